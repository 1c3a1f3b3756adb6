//! Changes of permissions, as chmod takes them.

use ordo_vfs::{Attr, FileType};

/// Permissions in octal, or changes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// These permissions.
    To(u16),
    /// Changes, one after the other.
    By(Vec<Clause>),
}

/// One change: whose permissions, how, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The bits of the users that it is about, set-id and sticky bits among them.
    who: u16,
    how: char,
    /// The permissions for all, of which those of `who` count.
    bits: u16,
    /// `X`: execute for directories, and where somebody may execute already.
    execute_if_any: bool,
}

impl std::str::FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ModeChange, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
            return mode.map(ModeChange::To).ok_or_else(|| format!("{text}: not octal up to 7777"));
        }
        let clauses: Option<Vec<Clause>> = text.split(',').map(clause).collect();
        clauses
            .map(ModeChange::By)
            .ok_or_else(|| format!("{text}: neither octal nor as in u+rwX,go-w"))
    }
}

fn clause(text: &str) -> Option<Clause> {
    let at = text.find(['+', '-', '='])?;
    let how = text[at..].chars().next()?;
    let mut who = 0;
    for letter in text[..at].chars() {
        who |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    // The sticky bit is everybody's, whoever is named.
    let who = if who == 0 { 0o7777 } else { who | 0o1000 };
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in text[at + 1..].chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => execute_if_any = true,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            _ => return None,
        }
    }
    Some(Clause { who, how, bits, execute_if_any })
}

impl ModeChange {
    /// The permissions after the change.
    pub fn applied(&self, attr: &Attr) -> u16 {
        let clauses = match self {
            ModeChange::To(mode) => return *mode,
            ModeChange::By(clauses) => clauses,
        };
        let is_directory = attr.file_type == FileType::Directory;
        clauses.iter().fold(attr.permissions, |mode, clause| {
            let executes = clause.execute_if_any && (is_directory || mode & 0o111 != 0);
            let bits = (clause.bits | if executes { 0o111 } else { 0 }) & clause.who;
            match clause.how {
                '+' => mode | bits,
                '-' => mode & !bits,
                // The sticky bit goes only if all are named.
                _ => {
                    mode & !(clause.who & if clause.who == 0o7777 { 0o7777 } else { 0o6777 }) | bits
                }
            }
        })
    }
}
