//! `ordo completions` and `ordo man`: generated from the definitions of the commands.

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Cli, Completions, Man, Shell};

pub fn completions(args: &Completions) -> Result<()> {
    use clap_complete::Shell as Complete;
    let shell = match args.shell {
        Shell::Bash => Complete::Bash,
        Shell::Elvish => Complete::Elvish,
        Shell::Fish => Complete::Fish,
        Shell::Power => Complete::PowerShell,
        Shell::Zsh => Complete::Zsh,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ordo", &mut script);
    crate::text::put(None, &String::from_utf8(script)?)
}

pub fn man(args: &Man) -> Result<()> {
    let context = || format!("writing manual pages to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).with_context(context)
}
