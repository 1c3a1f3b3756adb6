//! The results of the kills for each system and shape, and their page.

use std::fmt::Write as _;
use std::path::Path;

/// A format, with block and fragment sizes.
pub type Shape = (&'static str, &'static str, &'static str);

/// Kills of one ordering on one shape.
pub struct Lot {
    /// The ordering, and the place of its log.
    pub system: (&'static str, &'static str),
    pub shape: Shape,
    /// The number of kills to do.
    pub wanted: usize,
    pub kills: usize,
    /// Syncs of a file or folder that returned before a kill.
    pub syncs: usize,
    /// The number of names that had to lead to what was durable, after a recovery.
    pub firm: usize,
    pub failures: Vec<String>,
}

impl Lot {
    pub fn new(system: (&'static str, &'static str), shape: Shape) -> Lot {
        Lot { system, shape, wanted: 0, kills: 0, syncs: 0, firm: 0, failures: Vec::new() }
    }

    /// The ordering, log and shape, in the form in which the command takes them.
    pub fn words(&self) -> String {
        let ((ordering, log), (format, block, fragment)) = (self.system, self.shape);
        format!("{ordering} {log} {format} {block}/{fragment}")
    }

    fn name(&self) -> String {
        match self.system {
            ("journal", "file") => "journal, log in a file".into(),
            ("journal", "behind") => "journal, log behind the file system".into(),
            ("journal", _) => "journal, log on a device of its own".into(),
            (ordering, _) => ordering.into(),
        }
    }
}

/// Writes the page.
pub fn write_page(path: &Path, lots: &[Lot], seed: u64, freebsd: bool) {
    let kills: usize = lots.iter().map(|lot| lot.kills).sum();
    let failed: usize = lots.iter().map(|lot| lot.failures.len()).sum();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut page = format!(
        "# Mounts killed at random\n\nWritten by `make test-kills`: {kills} kills, seed {seed}, Linux {}.\n\n",
        kernel.trim()
    );
    page.push_str(
        "Two or three programs make, overwrite, append to, cut, rename, replace and remove files, and sync most of\n\
         them. One to three others make all kinds of inodes durable, one call at a time, by an fsync of the file or of\n\
         its directory: owners, permissions, times, extended attributes, device numbers, targets, names (also from\n\
         O_TMPFILE, exchanged and linked), and contents that were written, cut, punched, mapped or written past the\n\
         kernel's cache, with holes of up to 20 GB. The server is killed after 10 to 1,500 ms. An image is killed up to\n\
         four times in a row. After recovery (a mount, or `ordo fsck -p`; under `none`, `ordo fsck -y`) all that was\n\
         durable is compared, and both checks look.\n\n",
    );
    page.push_str(match freebsd {
        true => {
            "FreeBSD's `fsck_ffs` looked at each image after the recovery, and preened a copy of each killed image under\n\
             soft updates.\n\n"
        }
        false => "FreeBSD's fsck was not asked (`FSCK=` names it): only Ordo's own looked.\n\n",
    });
    page.push_str(
        "| ordering | format | blocks | kills | syncs before | names that had to be right | failed |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|\n");
    let mut sorted: Vec<_> = lots.iter().collect();
    sorted.sort_by_key(|lot| (lot.name(), lot.shape.0, lot.shape.1.len(), lot.shape.1));
    for lot in sorted {
        let firm = match lot.system.0 {
            "none" => "promises none".to_owned(),
            _ => lot.firm.to_string(),
        };
        let (name, failed) = (lot.name(), lot.failures.len());
        let (format, block, fragment) = (lot.shape.0.to_uppercase(), lot.shape.1, lot.shape.2);
        let _ = writeln!(
            page,
            "| {name} | {format} | {block}/{fragment} | {} | {} | {firm} | {failed} |",
            lot.kills, lot.syncs
        );
    }
    let _ = match failed {
        0 => writeln!(
            page,
            "\nNothing that was synced was lost or wrong, and no check found anything."
        ),
        _ => writeln!(page, "\n{failed} kills failed:\n"),
    };
    for failure in lots.iter().flat_map(|lot| &lot.failures) {
        let _ = writeln!(page, "- {}", failure.lines().next().unwrap_or_default());
    }
    std::fs::write(path, page).expect("room for the page");
}
