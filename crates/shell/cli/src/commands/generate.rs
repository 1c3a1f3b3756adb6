//! `ordo completions` and `ordo man`: generated from the definitions of the commands.

use anyhow::{Context, Result};
use clap::Command;

use crate::args::{Completions, Man, Shell};

/// Prints the completions of the command `ordo`.
pub fn completions(args: &Completions, mut ordo: Command) -> Result<()> {
    use clap_complete::Shell as Complete;
    let shell = match args.shell {
        Shell::Bash => Complete::Bash,
        Shell::Elvish => Complete::Elvish,
        Shell::Fish => Complete::Fish,
        Shell::Power => Complete::PowerShell,
        Shell::Zsh => Complete::Zsh,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut ordo, "ordo", &mut script);
    crate::text::put(None, &String::from_utf8(script)?)
}

/// Writes the manual pages of the command `ordo`.
pub fn man(args: &Man, ordo: Command) -> Result<()> {
    let context = || format!("writing manual pages to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(ordo, &args.dir).with_context(context)
}
