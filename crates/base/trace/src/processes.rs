//! The processes that sent the requests of a trace, as far as a tracer told.

use rustc_hash::FxHashMap;

/// Names of processes by the number of their request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    names: Vec<String>,
    known: FxHashMap<String, u32>,
    /// For each request up to the last one with a process, the index of its name plus 1, or 0.
    of: Vec<u32>,
}

impl Processes {
    /// Sets the process of a request.
    pub(crate) fn set(&mut self, number: usize, name: &str) {
        let next = self.names.len() as u32;
        let index = match self.known.get(name) {
            Some(index) => *index,
            None => {
                self.known.insert(name.to_owned(), next);
                self.names.push(name.to_owned());
                next
            }
        };
        if self.of.len() <= number {
            self.of.resize(number + 1, 0);
        }
        self.of[number] = index + 1;
    }

    /// The process of a request.
    pub(crate) fn get(&self, number: usize) -> Option<&str> {
        let index = self.of.get(number)?.checked_sub(1)?;
        Some(&self.names[index as usize])
    }

    /// Gives each request's process to the request of the number that `to` has for it.
    pub(crate) fn renumber(&mut self, to: impl Fn(usize) -> usize) {
        for (number, index) in std::mem::take(&mut self.of).into_iter().enumerate() {
            if index > 0 {
                let number = to(number);
                self.of.resize(self.of.len().max(number + 1), 0);
                self.of[number] = index;
            }
        }
    }

    /// Whether no request has a process.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
