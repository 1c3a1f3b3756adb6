//! Numbers that a personality gives: fixed ones, and random ones with WML's distributions.
//!
//! WML has no Zipf distribution. Its random variables are those of `cvar` (gamma, uniform,
//! exponential, normal, lognormal and more) and of the older `randvar` (uniform, gamma, tabular).
//! The functions come from `libm`, so that a seed gives the same numbers on every machine.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// The largest number that a distribution gives: a terabyte.
const MOST: f64 = (1_u64 << 40) as f64;

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Amount {
    /// Always the same.
    Fixed(u64),
    /// A new one each time.
    Random(Distribution),
}

/// A distribution, whose numbers are cut to a range and rounded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distribution {
    pub(super) shape: Shape,
    /// The least and the most number.
    pub(super) range: (f64, f64),
    /// The unit to whose nearest multiple numbers are rounded; 0 is none.
    pub(super) round: u64,
}

/// The shape of a distribution, before the cut.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Between two bounds.
    Uniform { lower: f64, upper: f64 },
    /// Gamma, with its mean above `least` and its shape.
    Gamma { least: f64, mean: f64, gamma: f64 },
    /// Exponential.
    Exponential { mean: f64 },
    /// Normal.
    Normal { mean: f64, sigma: f64 },
    /// The exponential function of a normal number with the mean `ln scale` and the deviation
    /// `shape`.
    LogNormal { shape: f64, scale: f64 },
    /// Rows of a percentage, a lower and an upper bound. The percentages make 100.
    Table(Vec<(u64, f64, f64)>),
}

impl Amount {
    /// The next number.
    pub(super) fn sample(&self, random: &mut Pcg64Mcg) -> u64 {
        match self {
            Amount::Fixed(number) => *number,
            Amount::Random(distribution) => distribution.sample(random),
        }
    }

    /// The mean, before the cut to a range.
    pub(super) fn mean(&self) -> u64 {
        match self {
            Amount::Fixed(number) => *number,
            Amount::Random(Distribution { shape, .. }) => shape.mean().clamp(0.0, MOST) as u64,
        }
    }
}

impl Distribution {
    fn sample(&self, random: &mut Pcg64Mcg) -> u64 {
        let (least, most) = self.range;
        let number = self.shape.sample(random);
        let number = match self.round {
            0 => number,
            unit => libm::round(number / unit as f64) * unit as f64,
        };
        // A number that is none (0 over 0) becomes the least one.
        number.max(least).min(most).clamp(0.0, MOST) as u64
    }
}

impl Shape {
    fn sample(&self, random: &mut Pcg64Mcg) -> f64 {
        match *self {
            Shape::Uniform { lower, upper } => lower + random.random::<f64>() * (upper - lower),
            Shape::Gamma { least, mean, gamma } => {
                least + (mean - least) / gamma * standard_gamma(random, gamma)
            }
            Shape::Exponential { mean } => -mean * libm::log(above_zero(random)),
            Shape::Normal { mean, sigma } => mean + sigma * standard_normal(random),
            Shape::LogNormal { shape, scale } => scale * libm::exp(shape * standard_normal(random)),
            Shape::Table(ref rows) => {
                let mut share = random.random_range(0..100);
                for (percent, lower, upper) in rows {
                    if share < *percent {
                        return lower + random.random::<f64>() * (upper - lower);
                    }
                    share -= percent;
                }
                unreachable!("the percentages make 100")
            }
        }
    }

    fn mean(&self) -> f64 {
        match *self {
            Shape::Uniform { lower, upper } => (lower + upper) / 2.0,
            Shape::Gamma { mean, .. }
            | Shape::Exponential { mean }
            | Shape::Normal { mean, .. } => mean,
            Shape::LogNormal { shape, scale } => scale * libm::exp(shape * shape / 2.0),
            Shape::Table(ref rows) => {
                let of = |(percent, lower, upper): &(u64, f64, f64)| {
                    *percent as f64 / 100.0 * (lower + upper) / 2.0
                };
                rows.iter().map(of).sum()
            }
        }
    }
}

/// A uniform number above 0, and 1 at most.
fn above_zero(random: &mut Pcg64Mcg) -> f64 {
    1.0 - random.random::<f64>()
}

/// A normal number with the mean 0 and the deviation 1 (Marsaglia's polar method).
fn standard_normal(random: &mut Pcg64Mcg) -> f64 {
    loop {
        let x = 2.0 * random.random::<f64>() - 1.0;
        let y = 2.0 * random.random::<f64>() - 1.0;
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * libm::sqrt(-2.0 * libm::log(square) / square);
        }
    }
}

/// A gamma number with the scale 1 and a shape above 0. Source: Marsaglia and Tsang, "A Simple
/// Method for Generating Gamma Variables", 2000; a shape below 1 is reached from the shape above it
/// by a power of a uniform number.
fn standard_gamma(random: &mut Pcg64Mcg, shape: f64) -> f64 {
    if shape < 1.0 {
        let power = libm::pow(above_zero(random), 1.0 / shape);
        return standard_gamma(random, shape + 1.0) * power;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    loop {
        let normal = standard_normal(random);
        let cube = (1.0 + c * normal) * (1.0 + c * normal) * (1.0 + c * normal);
        let bound = 0.5 * normal * normal + d - d * cube + d * libm::log(cube);
        if cube > 0.0 && libm::log(above_zero(random)) < bound {
            return d * cube;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// The mean and the deviation of 100,000 numbers.
    fn moments(shape: Shape) -> (f64, f64) {
        const COUNT: usize = 100_000;
        let amount = Amount::Random(Distribution { shape, range: (0.0, MOST), round: 0 });
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let all: Vec<f64> = (0..COUNT).map(|_| amount.sample(&mut random) as f64).collect();
        let mean = all.iter().sum::<f64>() / COUNT as f64;
        let variance = all.iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / COUNT as f64;
        (mean, libm::sqrt(variance))
    }

    /// Each distribution has its mean and its deviation, by the formulas of textbooks. Would catch
    /// a gamma with a wrong scale, and one whose shape has no effect.
    #[test]
    fn distributions_have_their_means_and_deviations() {
        let near = |(mean, deviation): (f64, f64), (m, d): (f64, f64)| {
            assert!((mean / m - 1.0).abs() < 0.02, "mean {mean}, not {m}");
            assert!((deviation / d - 1.0).abs() < 0.03, "deviation {deviation}, not {d}");
        };
        for gamma in [0.5, 1.0, 1.5, 8.0] {
            let shape = Shape::Gamma { least: 0.0, mean: 16384.0, gamma };
            near(moments(shape), (16384.0, 16384.0 / libm::sqrt(gamma)));
        }
        near(moments(Shape::Exponential { mean: 5e4 }), (5e4, 5e4));
        near(moments(Shape::Normal { mean: 9e4, sigma: 1e4 }), (9e4, 1e4));
        let width = 9e4 - 1e4;
        let uniform = Shape::Uniform { lower: 1e4, upper: 9e4 };
        near(moments(uniform), (5e4, width / libm::sqrt(12.0)));
        let lognormal = Shape::LogNormal { shape: 0.5, scale: 1e5 };
        let mean = 1e5 * libm::exp(0.125);
        near(moments(lognormal), (mean, mean * libm::sqrt(libm::exp(0.25) - 1.0)));
        let table = Shape::Table(vec![(80, 0.0, 2e4), (20, 1e5, 2e5)]);
        assert_eq!(table.mean(), 8e3 + 3e4);
        assert!((moments(table).0 / 3.8e4 - 1.0).abs() < 0.02);
    }

    #[test]
    fn numbers_are_rounded_and_stay_in_their_range() {
        let shape = Shape::Normal { mean: 0.0, sigma: 1e5 };
        let amount = Amount::Random(Distribution { shape, range: (4096.0, 65536.0), round: 4096 });
        let mut random = Pcg64Mcg::seed_from_u64(2);
        for _ in 0..1000 {
            let number = amount.sample(&mut random);
            assert!((4096..=65536).contains(&number) && number.is_multiple_of(4096), "{number}");
        }
    }
}
