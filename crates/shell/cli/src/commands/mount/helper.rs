//! The helper of mount(8).

use std::ffi::OsString;

/// Translates a call by mount(8), `mount.fuse.ordo IMAGE DIR [-sfnv] [-N NS] [-t TYPE] [-o
/// OPTIONS]`, to arguments of `ordo mount`.
pub fn as_helper(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec!["ordo".into(), "mount".into()];
    let mut args = args.skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => {
                out.push(arg);
                out.extend(args.next());
            }
            Some("-N" | "-t") => drop(args.next()),
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {}
            _ => out.push(arg),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call by mount(8) becomes the same mount, without options that do not concern Ordo.
    #[test]
    fn a_helper_of_mount() {
        let given =
            ["mount.fuse.ordo", "/disk", "/mnt", "-sv", "-t", "fuse.ordo", "-o", "ro,nofail"];
        let words = as_helper(given.iter().map(OsString::from));
        assert_eq!(words, ["ordo", "mount", "/disk", "/mnt", "-o", "ro,nofail"]);
    }
}
