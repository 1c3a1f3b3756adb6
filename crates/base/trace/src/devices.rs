//! The choice of one device, where a trace has requests of several.

use std::collections::BTreeMap;

/// The most devices that an error names.
const NAMED_MAX: usize = 12;

/// The reason why no device could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DevicesError {
    /// There are requests of several devices.
    #[error("requests of {count} devices: {known}; choose one with --only, as --only '{most}'")]
    Several {
        /// The number of devices.
        count: usize,
        /// Their names, each with the number of its requests; those with the most come first.
        known: String,
        /// The one with the most requests.
        most: String,
    },
    /// There are none of the wanted device.
    #[error("no requests of '{wanted}' (--only); there are requests of: {known}")]
    Missing {
        /// The wanted device.
        wanted: String,
        /// As for several.
        known: String,
    },
}

/// Counts requests by device, and says which of them are wanted.
pub(crate) struct DeviceChoice<'a> {
    wanted: Option<&'a str>,
    counts: BTreeMap<String, u64>,
}

impl<'a> DeviceChoice<'a> {
    /// The choice of the wanted device, or of the only one.
    pub(crate) fn new(wanted: Option<&'a str>) -> DeviceChoice<'a> {
        DeviceChoice { wanted, counts: BTreeMap::new() }
    }

    /// Counts a request of a device. Returns whether it is worth keeping.
    pub(crate) fn count(&mut self, device: &str) -> bool {
        match self.counts.get_mut(device) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(device.to_owned(), 1);
            }
        }
        match self.wanted {
            Some(wanted) => wanted == device,
            None => self.counts.len() == 1,
        }
    }

    /// Ends the count.
    ///
    /// # Errors
    /// None of the devices is the wanted one, or none is wanted and there are several.
    pub(crate) fn done(&self) -> Result<(), DevicesError> {
        let is_known = |wanted: &str| self.counts.contains_key(wanted);
        if self.wanted.map_or(self.counts.len() <= 1, is_known) {
            return Ok(());
        }
        let mut all: Vec<(&String, &u64)> = self.counts.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named = all.iter().take(NAMED_MAX);
        let named: Vec<String> = named.map(|(name, count)| format!("{name} ({count})")).collect();
        let more = match all.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let known = if named.is_empty() { "no device".into() } else { named.join(", ") + &more };
        match self.wanted {
            Some(wanted) => Err(DevicesError::Missing { wanted: wanted.to_owned(), known }),
            None => {
                let (count, most) = (all.len(), all[0].0.clone());
                Err(DevicesError::Several { count, known, most })
            }
        }
    }
}
