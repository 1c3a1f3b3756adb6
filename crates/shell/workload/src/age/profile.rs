//! Profiles: the sizes, depths and ages of the files of a file system that has been in use.

use std::path::Path;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// The profiles that come with Ordo, in TOML.
///
/// The figures have the shape of the public profiles of Geriatrix (Kadekodi et al., USENIX ATC
/// 2018), which cites the studies behind each profile.
const BUILT_IN: [&str; 4] = [
    include_str!("profiles/agrawal.toml"),
    include_str!("profiles/douceur.toml"),
    include_str!("profiles/meyer.toml"),
    include_str!("profiles/server.toml"),
];

/// The most directories that a profile may have at one depth.
const DIRECTORIES_MAX: u32 = 1 << 16;
/// The distance from the end of an age's range at which a lifetime may end, as a part of the age.
const AROUND: f64 = 0.1;
/// The deepest directory that a profile may have.
const DEPTH_MAX: usize = 64;

/// The reason why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is no profile with this name, and no such file.
    #[error("no profile and no file is called '{name}'; the profiles are {known}")]
    Unknown {
        /// The text of the user.
        name: String,
        /// The profiles that exist.
        known: String,
    },
    /// The file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The text is no profile.
    #[error("{path}: not a profile: {error}")]
    Syntax {
        /// The file.
        path: String,
        /// The parser's message: the fault and its line.
        error: Box<toml::de::Error>,
    },
    /// The figures are impossible for files.
    #[error("{path}: {what}")]
    Figures {
        /// The file.
        path: String,
        /// The fault.
        what: &'static str,
    },
}

/// A profile of files.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// The source of its figures.
    pub about: String,
    /// Sizes in bytes, each with its number of files, smallest first. A file's size lies between
    /// the size before and this one.
    sizes: Vec<(u64, u32)>,
    /// Depths from 1 on, each with its number of files and of directories.
    depths: Vec<(u32, u32, u32)>,
    /// Ages in any unit, each with its number of files, youngest first.
    ages: Vec<(f64, u32)>,
}

impl Profile {
    /// The profiles that come with Ordo.
    pub fn built_in() -> Vec<Profile> {
        BUILT_IN.iter().map(|text| toml::from_str(text).expect("it is tested")).collect()
    }

    /// A profile by its name, or from a file in TOML.
    ///
    /// # Errors
    /// There is none; the file cannot be read or is no profile.
    pub fn find(name: &str) -> Result<Profile, ProfileError> {
        let built_in = Profile::built_in();
        if let Some(profile) = built_in.iter().find(|profile| profile.name == name) {
            return Ok(profile.clone());
        }
        let path = || name.to_owned();
        if !Path::new(name).exists() {
            let known: Vec<&str> = built_in.iter().map(|p| p.name.as_str()).collect();
            return Err(ProfileError::Unknown { name: path(), known: known.join(", ") });
        }
        let text = std::fs::read_to_string(name)
            .map_err(|error| ProfileError::File { path: path(), error })?;
        let profile: Profile = toml::from_str(&text)
            .map_err(|error| ProfileError::Syntax { path: path(), error: error.into() })?;
        match profile.fault() {
            None => Ok(profile),
            Some(what) => Err(ProfileError::Figures { path: path(), what }),
        }
    }

    /// The first fault of the profile's figures, as text.
    fn fault(&self) -> Option<&'static str> {
        let sum = |weights: &mut dyn Iterator<Item = u32>| weights.map(u64::from).sum::<u64>();
        let depths = self.depths.iter().enumerate();
        [
            (sum(&mut self.sizes.iter().map(|s| s.1)) == 0, "no size has files"),
            (sum(&mut self.depths.iter().map(|d| d.1)) == 0, "no depth has files"),
            (sum(&mut self.ages.iter().map(|a| a.1)) == 0, "no age has files"),
            (!self.sizes.is_sorted_by(|a, b| a.0 < b.0), "sizes must rise"),
            (self.sizes.iter().any(|s| s.0 == 0), "a size of 0 bytes takes no space"),
            (!self.ages.is_sorted_by(|a, b| a.0 < b.0), "ages must rise"),
            (self.ages.iter().any(|a| !a.0.is_finite() || a.0 <= 0.0), "ages must be above 0"),
            (self.depths.len() > DEPTH_MAX, "more than 64 depths"),
            (
                depths.clone().any(|(n, d)| d.0 as usize != n + 1),
                "depths must be 1, 2, 3 and so on, without a gap",
            ),
            (
                self.depths.iter().any(|d| !(1..=DIRECTORIES_MAX).contains(&d.2)),
                "each depth has 1 to 65,536 directories",
            ),
        ]
        .into_iter()
        .find_map(|(is_wrong, what)| is_wrong.then_some(what))
    }

    /// The number of directories at each depth, the root's first.
    pub(super) fn directories(&self) -> impl Iterator<Item = u32> {
        self.depths.iter().map(|(_, _, directories)| *directories)
    }

    /// A depth for a file, from 0 on.
    pub(super) fn depth(&self, random: &mut Pcg64Mcg) -> usize {
        pick(random, self.depths.iter().map(|d| d.1.into()))
    }

    /// A size for a file, in bytes.
    pub(super) fn size(&self, random: &mut Pcg64Mcg) -> u64 {
        let n = pick(random, self.sizes.iter().map(|s| s.1.into()));
        let above = n.checked_sub(1).map_or(0, |before| self.sizes[before].0);
        random.random_range(above + 1..=self.sizes[n].0)
    }

    /// The probabilities of lifetimes that end with each range of ages. At a steady rate of
    /// creation, the files of some age are those that were created that long ago and live at least
    /// that long. So the number of files per unit of age, which must fall with age, gives the
    /// probability of reaching that age.
    fn ends(&self) -> Vec<f64> {
        let mut reach: Vec<f64> = self
            .ages
            .iter()
            .enumerate()
            .map(|(n, (age, files))| f64::from(*files) / (age - self.age_before(n)))
            .collect();
        for n in (1..reach.len()).rev() {
            reach[n - 1] = reach[n - 1].max(reach[n]);
        }
        let after = |n: usize| reach.get(n + 1).copied().unwrap_or(0.0);
        (0..reach.len()).map(|n| reach[n] - after(n)).collect()
    }

    fn age_before(&self, n: usize) -> f64 {
        n.checked_sub(1).map_or(0.0, |before| self.ages[before].0)
    }

    /// Lifetimes, in units of the mean lifetime.
    pub(super) fn lifetimes(&self) -> Lifetimes {
        let ends = self.ends();
        let all: f64 = ends.iter().sum();
        let ages = self.ages.iter().map(|(age, _)| age);
        let mean = ends.iter().zip(ages).map(|(chance, age)| chance / all * age).sum::<f64>();
        let end = |n: usize| self.ages[n].0 / mean;
        let range = |n: usize| (end(n) * (1.0 - AROUND), end(n) * (1.0 + AROUND));
        Lifetimes { ranges: (0..ends.len()).map(|n| (range(n), ends[n] / all)).collect() }
    }
}

/// Lifetimes of files: ranges, each with its probability.
pub(super) struct Lifetimes {
    ranges: Vec<((f64, f64), f64)>,
}

impl Lifetimes {
    /// A lifetime, in units of the mean one.
    pub(super) fn pick(&self, random: &mut Pcg64Mcg) -> f64 {
        let (least, most) = self.ranges[pick(random, self.ranges.iter().map(|r| r.1))].0;
        least + random.random::<f64>() * (most - least)
    }
}

/// Picks the index of one of some weights, not all of them 0, with a probability in proportion to
/// the weight.
fn pick(random: &mut Pcg64Mcg, weights: impl Iterator<Item = f64> + Clone) -> usize {
    let mut left = random.random::<f64>() * weights.clone().sum::<f64>();
    let mut last = 0;
    for (n, weight) in weights.enumerate().filter(|(_, weight)| *weight > 0.0) {
        last = n;
        if left < weight {
            break;
        }
        left -= weight;
    }
    last
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// The built-in profiles are valid, and found by their names.
    #[test]
    fn built_in_profiles_are_sound() {
        for profile in Profile::built_in() {
            assert_eq!(profile.fault(), None, "{}", profile.name);
            assert_eq!(Profile::find(&profile.name).unwrap(), profile);
        }
        assert!(matches!(Profile::find("no-such"), Err(ProfileError::Unknown { .. })));
    }

    /// Impossible figures are refused, each with its own message. Would catch a profile that panics
    /// or never ends when it is used.
    #[test]
    fn impossible_figures_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let sound = ("[[8, 1], [64, 2]]", "[[1, 1, 1]]", "[[1.5, 1], [2, 1]]");
        let try_one = |(sizes, depths, ages): (&str, &str, &str)| {
            let path = folder.path().join("p.toml");
            let text = format!(
                "name = 'p'\nabout = ''\nsizes = {sizes}\ndepths = {depths}\nages = {ages}\n"
            );
            std::fs::write(&path, text).unwrap();
            Profile::find(path.to_str().unwrap())
        };
        assert!(try_one(sound).is_ok());
        let said: std::collections::BTreeSet<String> = [
            ("[[8, 0]]", sound.1, sound.2),
            ("[]", sound.1, sound.2),
            ("[[8, 1], [8, 1]]", sound.1, sound.2),
            ("[[0, 1]]", sound.1, sound.2),
            (sound.0, "[[1, 0, 1]]", sound.2),
            (sound.0, "[[2, 1, 1]]", sound.2),
            (sound.0, "[[1, 1, 0]]", sound.2),
            (sound.0, sound.1, "[[2, 1], [1, 1]]"),
            (sound.0, sound.1, "[[-1.0, 1]]"),
            (sound.0, sound.1, "[[1.0, 0]]"),
        ]
        .map(|bad| match try_one(bad).unwrap_err() {
            ProfileError::Figures { what, .. } => what.to_owned(),
            other => panic!("{bad:?}: {other}"),
        })
        .into();
        assert_eq!(said.len(), 9);
        assert!(matches!(try_one(("7", "[]", "[]")), Err(ProfileError::Syntax { .. })));
    }

    /// Files that are created and removed with a profile's lifetimes have, after a while, the
    /// profile's ages. Would catch ages that are taken for lifetimes.
    #[test]
    fn lifetimes_lead_to_the_ages() {
        let profile = Profile::find("agrawal").unwrap();
        let (lifetimes, mut random) = (profile.lifetimes(), Pcg64Mcg::seed_from_u64(7));
        let made: Vec<f64> = (0..400_000).map(|_| lifetimes.pick(&mut random)).collect();
        let mean = made.iter().sum::<f64>() / made.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        // One file is created in each unit of time; `made[n]` was created n units before the end.
        let scale = 4000.0;
        let alive = made.iter().enumerate().filter(|(n, lifetime)| **lifetime * scale > *n as f64);
        let ages: Vec<f64> = alive.map(|(n, _)| n as f64 / scale).collect();
        let total: u32 = profile.ages.iter().map(|a| a.1).sum();
        let ends = profile.ends();
        let all: f64 = ends.iter().sum();
        let unit: f64 = (0..ends.len()).map(|n| ends[n] / all * profile.ages[n].0).sum();
        for (n, (age, _)) in profile.ages.iter().enumerate() {
            let wanted: u32 = profile.ages[..=n].iter().map(|a| a.1).sum();
            let wanted = f64::from(wanted) / f64::from(total);
            let found = ages.iter().filter(|a| **a <= age / unit).count() as f64;
            let found = found / ages.len() as f64;
            assert!((found - wanted).abs() < 0.06, "up to {age}: {found} instead of {wanted}");
        }
    }
}
