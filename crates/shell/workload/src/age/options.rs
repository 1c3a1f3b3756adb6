//! The options of ageing, and their syntax on a command line.

use super::profile::{Profile, ProfileError};

/// Options of ageing.
#[derive(Clone, Debug, PartialEq)]
pub struct ChurnOptions {
    /// The profile of the files.
    pub profile: Profile,
    /// The share of the space to be in use, from 0 to 1.
    pub utilisation: f64,
    /// The number of times that the whole space is written.
    pub overwrites: f64,
    /// The seed of every choice.
    pub seed: u64,
}

/// The reason why a text is no option of ageing.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A value is out of range.
    #[error("{0}")]
    Value(String),
    /// There is no such option.
    #[error("ageing has no option '{0}'; its options are util= and overwrites=")]
    Unknown(String),
}

impl ChurnOptions {
    /// Ageing by a profile until 76 % of the space is in use, as the file systems of "Soft Updates"
    /// (2000), section 4.4, were, and has been written five times.
    pub fn new(profile: Profile) -> ChurnOptions {
        ChurnOptions { profile, utilisation: 0.76, overwrites: 5.0, seed: 1 }
    }

    /// Reads a share of the space: `76%` or `76`.
    ///
    /// # Errors
    /// It is no number, or not between 1 and 99.
    pub fn utilisation(text: &str) -> Result<f64, String> {
        match text.strip_suffix('%').unwrap_or(text).parse::<f64>() {
            Ok(percent) if (1.0..=99.0).contains(&percent) => Ok(percent / 100.0),
            _ => Err(format!("'{text}' is not a share of the space; use 1% to 99%")),
        }
    }

    /// Reads the number of times that the space is written.
    ///
    /// # Errors
    /// It is no number, or not between 0 and a million.
    pub fn overwrites(text: &str) -> Result<f64, String> {
        match text.parse::<f64>() {
            Ok(times) if (0.0..=1e6).contains(&times) => Ok(times),
            _ => Err(format!("'{text}' is not a number of times; use 0 to 1000000")),
        }
    }
}

/// `PROFILE[:util=SHARE][,overwrites=N]`, as in `agrawal:util=90%,overwrites=2`.
impl std::str::FromStr for ChurnOptions {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<ChurnOptions, OptionsError> {
        let (profile, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut options = ChurnOptions::new(Profile::find(profile)?);
        for word in rest.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("util", value)) => {
                    options.utilisation =
                        ChurnOptions::utilisation(value).map_err(OptionsError::Value)?;
                }
                Some(("overwrites", value)) => {
                    options.overwrites =
                        ChurnOptions::overwrites(value).map_err(OptionsError::Value)?;
                }
                _ => return Err(OptionsError::Unknown(word.to_owned())),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of an option reaches the option, and a wrong one is named. Would catch a value that
    /// is read and dropped.
    #[test]
    fn options_are_read() {
        let read = |text: &str| text.parse::<ChurnOptions>().map_err(|error| error.to_string());
        let usual = read("meyer").unwrap();
        assert_eq!((usual.profile.name.as_str(), usual.utilisation), ("meyer", 0.76));
        let other = read("agrawal:util=90%,overwrites=2.5").unwrap();
        assert_eq!((other.utilisation, other.overwrites), (0.9, 2.5));
        assert!(read("nobody").unwrap_err().contains("no profile"));
        assert!(read("agrawal:util=100%").unwrap_err().contains("1% to 99%"));
        assert!(read("agrawal:overwrites=-1").unwrap_err().contains("0 to 1000000"));
        assert!(read("agrawal:fast").unwrap_err().contains("'fast'"));
    }
}
