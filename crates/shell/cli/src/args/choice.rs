//! Lists of systems, Ordo's and the kernel's, each with its options.

use ordo_compare::ComparisonSetup;
use ordo_compare::kernel::KernelFsSetup;
use ordo_systems::{Cleaning, DualOptions, System, Tuning};

/// One of Ordo's systems, with its options.
#[derive(Clone, Debug)]
pub struct OwnChoice {
    /// The system.
    pub system: System,
    /// The system with its options, as they were given.
    pub name: String,
    /// Options of the system's cleaner.
    pub cleaning: Option<Cleaning>,
    /// Options of DualFS.
    pub dual: Option<DualOptions>,
    /// Tuning of an FFS.
    pub tuning: Tuning,
}

impl OwnChoice {
    /// A system without options.
    pub fn usual(system: System) -> OwnChoice {
        let tuning = Tuning::default();
        OwnChoice { system, name: system.name().to_owned(), cleaning: None, dual: None, tuning }
    }

    /// The setup of a comparison with these options.
    pub fn setup(&self, setup: &ComparisonSetup) -> ComparisonSetup {
        ComparisonSetup {
            cleaning: self.cleaning.unwrap_or_default(),
            dual: self.dual.unwrap_or_default(),
            tuning: self.tuning,
            ..setup.clone()
        }
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if self.system.format().has_tuning() && Tuning::KEYS.contains(&key) {
            self.tuning.set(key, value).map_err(|e| format!("{option}: {e}"))?;
        } else if self.system.journal().is_some() {
            self.system = self.system.with(option).map_err(|e| format!("{option}: {e}"))?;
        } else if !self.system.has_cleaner() {
            let name = self.system.name();
            return Err(format!("{name} has no cleaner, and does not take the option '{key}'"));
        } else if self.system.format().has_pairs() && DualOptions::KEYS.contains(&key) {
            let dual = self.dual.get_or_insert_default();
            dual.set(key, value).map_err(|e| format!("{option}: {e}"))?;
        } else {
            let cleaning = self.cleaning.get_or_insert_default();
            cleaning.set(key, value).map_err(|e| format!("{option}: {e}"))?;
        }
        self.name.push(if self.name.contains(':') { ',' } else { ':' });
        self.name.push_str(option);
        Ok(())
    }
}

/// A system of a list.
#[derive(Clone, Debug)]
pub enum SystemChoice {
    /// One of Ordo's.
    Own(OwnChoice),
    /// One of the kernel's, with the name and options as they were given.
    Kernel(KernelFsSetup, String),
}

impl SystemChoice {
    fn by_name(name: &str) -> Result<SystemChoice, String> {
        if let Some(system) = KernelFsSetup::by_name(name) {
            return Ok(SystemChoice::Kernel(system, name.to_owned()));
        }
        let own = super::system(name).map(|system| SystemChoice::Own(OwnChoice::usual(system)));
        own.map_err(|error| {
            format!("{error}\nand of the kernel's {}", ordo_kernelfs::table::KernelFs::names())
        })
    }

    /// The system with its options, as they were given.
    pub fn name(&self) -> &str {
        match self {
            SystemChoice::Own(own) => &own.name,
            SystemChoice::Kernel(_, name) => name,
        }
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        match self {
            SystemChoice::Own(own) => own.set(option),
            SystemChoice::Kernel(system, name) => {
                system.set(option);
                name.push(if name.contains(':') { ',' } else { ':' });
                name.push_str(option);
                Ok(())
            }
        }
    }

    /// Whether a word of a list is an option of this system, and not the next one. Options of
    /// Ordo's systems have values.
    fn takes(&self, word: &str) -> bool {
        let is_option = !word.contains(':') || word.find('=') < word.find(':');
        let is_name = || System::by_name(word).is_some() || KernelFsSetup::by_name(word).is_some();
        is_option
            && match self {
                SystemChoice::Own(_) => word.contains('='),
                SystemChoice::Kernel(..) => word.contains('=') || !is_name(),
            }
    }
}

/// The systems of a list.
#[derive(Clone, Debug)]
pub struct ChoiceList(pub Vec<SystemChoice>);

impl ChoiceList {
    /// The systems of a comparison that names none: one of each way to protect metadata, and with
    /// `is_kernel` the kernel's that most people have.
    pub fn usual(is_kernel: bool) -> ChoiceList {
        let own = "ffs-sync,ffs-soft-updates,lffs-file,lfs,dualfs,ffs-none";
        let text = if is_kernel { format!("{own},ext4,xfs,btrfs") } else { own.to_owned() };
        ChoiceList::parse(&text).expect("they are all there")
    }

    /// Parses a list. A word that is no name of a system is an option of the one before it.
    pub fn parse(text: &str) -> Result<ChoiceList, String> {
        let mut all: Vec<SystemChoice> = Vec::new();
        for word in text.split(',') {
            if word == "all" {
                all.extend(System::runnable().map(OwnChoice::usual).map(SystemChoice::Own));
                continue;
            }
            if let Some(last) = all.last_mut()
                && (last.name().contains(':') || word.contains('='))
                && last.takes(word)
            {
                last.set(word)?;
                continue;
            }
            let (name, option) = match word.split_once(':') {
                Some((name, option)) => (name, Some(option)),
                None => (word, None),
            };
            let mut one = SystemChoice::by_name(name)?;
            option.map_or(Ok(()), |option| one.set(option))?;
            all.push(one);
        }
        Ok(ChoiceList(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let list = ChoiceList::parse(text).unwrap();
        list.0.iter().map(|choice| choice.name().to_owned()).collect()
    }

    /// Options go to the system before them, whether they have values or not, and a name that
    /// follows is a system again. Would catch a mount option taken for a system, and a system that
    /// vanishes among the options of the one before it.
    #[test]
    fn options_go_to_the_system_before_them() {
        assert_eq!(
            names("ext4:data=journal,nobarrier,xfs,lfs:cleaner=greedy,idle=off,ffs-sync"),
            ["ext4:data=journal,nobarrier", "xfs", "lfs:cleaner=greedy,idle=off", "ffs-sync"]
        );
        let list = ChoiceList::parse("ext4:mkfs=-b 1024,nobarrier").unwrap();
        let SystemChoice::Kernel(ext4, _) = &list.0[0] else { panic!("it is the kernel's") };
        assert_eq!(
            (&ext4.mkfs[..], &ext4.options[..]),
            (&["-b".into(), "1024".into()][..], &["nobarrier".into()][..])
        );
        assert!(
            ChoiceList::parse("ext5").is_err_and(|e| e.contains("ffs-sync") && e.contains("btrfs"))
        );
        assert!(ChoiceList::parse("ext4,nobarrier").is_err(), "no colon: it is no option");
    }
}
