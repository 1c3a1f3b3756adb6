//! The attributes of an entity, with the values of their variables.

use std::collections::BTreeMap;

use super::amount::{Amount, Distribution, Shape};
use super::error::{Fault, WmlPlace, WmlProblem};
use super::syntax::{Attribute, Attributes, Random, Value};

/// The variables of a file, with their last values.
pub(super) type Variables = BTreeMap<String, (Value, WmlPlace)>;

/// The value of an attribute, without variables.
enum Plain<'s> {
    Number(u64),
    Bool(bool),
    Text(&'s str),
    Random(&'s Random),
}

impl Plain<'_> {
    fn found(&self) -> String {
        match self {
            Plain::Number(number) => number.to_string(),
            Plain::Bool(value) => value.to_string(),
            Plain::Text(text) => format!("'{}'", text.escape_debug()),
            Plain::Random(_) => "a random variable".to_owned(),
        }
    }
}

/// A reader of one entity's attributes.
pub(super) struct AttributeReader<'s> {
    attributes: &'s Attributes,
    variables: &'s Variables,
}

impl<'s> AttributeReader<'s> {
    /// A reader of attributes, all of which are in `known` or in `ignored`.
    ///
    /// # Errors
    /// Another attribute is there.
    pub(super) fn new(
        attributes: &'s Attributes,
        variables: &'s Variables,
        known: &[&str],
        ignored: &[&str],
    ) -> Result<AttributeReader<'s>, Fault> {
        for attribute in &attributes.list {
            let name = attribute.name.as_str();
            if !known.contains(&name) && !ignored.contains(&name) {
                let problem = WmlProblem::Attribute {
                    entity: attributes.entity.clone(),
                    name: attribute.name.clone(),
                    known: known.join(", "),
                };
                return Err(problem.at(attribute.place));
            }
        }
        Ok(AttributeReader { attributes, variables })
    }

    /// The place of the entity.
    pub(super) fn place(&self) -> WmlPlace {
        self.attributes.place
    }

    fn find(&self, name: &str) -> Option<&'s Attribute> {
        self.attributes.list.iter().find(|attribute| attribute.name == name)
    }

    /// The place of an attribute; of the entity if it has no such attribute.
    pub(super) fn place_of(&self, name: &str) -> WmlPlace {
        self.find(name).map_or(self.place(), |attribute| attribute.place)
    }

    fn plain(&self, name: &str) -> Result<Option<Plain<'s>>, Fault> {
        let Some(attribute) = self.find(name) else { return Ok(None) };
        plain(&attribute.value, self.variables, attribute.place).map(Some)
    }

    fn misfit(&self, name: &str, found: &Plain<'_>, expected: impl Into<String>) -> Fault {
        let (name, place) = (name.to_owned(), self.place_of(name));
        WmlProblem::Value { name, found: found.found(), expected: expected.into() }.at(place)
    }

    /// A name or another text.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        match self.plain(name)? {
            None => Ok(None),
            Some(Plain::Text(text)) => Ok(Some(text.to_owned())),
            Some(Plain::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(self.misfit(name, &other, "a text")),
        }
    }

    /// A text that must be there.
    pub(super) fn needed(&self, name: &'static str) -> Result<String, Fault> {
        self.text(name)?.ok_or_else(|| {
            let entity = self.attributes.entity.clone();
            WmlProblem::Missing { entity, name }.at(self.place())
        })
    }

    /// A flag, which is false if the attribute is not there.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Fault> {
        match self.plain(name)? {
            None | Some(Plain::Number(0)) => Ok(false),
            Some(Plain::Number(1)) => Ok(true),
            Some(Plain::Bool(value)) => Ok(value),
            Some(other) => Err(self.misfit(name, &other, "true or false")),
        }
    }

    /// A number, fixed or random.
    pub(super) fn amount(&self, name: &str, default: u64) -> Result<Amount, Fault> {
        match self.plain(name)? {
            None => Ok(Amount::Fixed(default)),
            Some(Plain::Number(number)) => Ok(Amount::Fixed(number)),
            Some(Plain::Random(random)) => distribution(random, self.variables).map(Amount::Random),
            Some(other) => Err(self.misfit(name, &other, "a number")),
        }
    }

    /// A fixed number from `range`.
    pub(super) fn number(
        &self,
        name: &str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, Fault> {
        let (least, most) = (range.start(), range.end());
        match self.plain(name)? {
            None => Ok(default),
            Some(Plain::Number(number)) if range.contains(&number) => Ok(number),
            Some(other) => {
                Err(self.misfit(name, &other, format!("a number from {least} to {most}")))
            }
        }
    }

    /// A percentage, or a flag: true is 100 percent.
    pub(super) fn percent(&self, name: &str) -> Result<u64, Fault> {
        match self.plain(name)? {
            Some(Plain::Bool(true)) => Ok(100),
            Some(Plain::Bool(false)) => Ok(0),
            _ => self.number(name, 0, 0..=100),
        }
    }
}

fn plain<'s>(
    value: &'s Value,
    variables: &'s Variables,
    place: WmlPlace,
) -> Result<Plain<'s>, Fault> {
    Ok(match value {
        Value::Number(number) => Plain::Number(*number),
        Value::Bool(value) => Plain::Bool(*value),
        Value::Text(text) => Plain::Text(text),
        Value::Random(random) => Plain::Random(random),
        Value::Variable(name) => match variables.get(name) {
            // `set` puts the value of the other variable in its place, so no chain is longer than
            // this.
            Some((Value::Variable(_), _)) | None => {
                return Err(WmlProblem::Unset(name.clone()).at(place));
            }
            Some((value, _)) => plain(value, variables, place)?,
        },
    })
}

/// A fixed number that a value stands for.
pub(super) fn fixed(
    name: &str,
    value: &Value,
    variables: &Variables,
    place: WmlPlace,
) -> Result<u64, Fault> {
    match plain(value, variables, place)? {
        Plain::Number(number) => Ok(number),
        other => {
            let (found, expected) = (other.found(), "a fixed number".to_owned());
            Err(WmlProblem::Value { name: name.to_owned(), found, expected }.at(place))
        }
    }
}

fn distribution(random: &Random, variables: &Variables) -> Result<Distribution, Fault> {
    match random.kind {
        "cvar" => custom(random, variables),
        _ => random_variable(random, variables),
    }
}

/// `cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)`.
fn custom(random: &Random, variables: &Variables) -> Result<Distribution, Fault> {
    let known = ["type", "parameters", "min", "max", "round"];
    let reader = AttributeReader::new(&random.attributes, variables, &known, &[])?;
    let kind = reader.needed("type")?;
    let mut parameters = Parameters::read(&reader)?;
    let shape = match kind.strip_prefix("cvar-").unwrap_or(&kind) {
        "gamma" => Shape::Gamma {
            least: 0.0,
            mean: parameters.take("mean", 1.0),
            gamma: parameters.positive("gamma", 1.0)?,
        },
        "uniform" => Shape::Uniform {
            lower: parameters.take("lower", 0.0),
            upper: parameters.take("upper", 1.0),
        },
        "exponential" => Shape::Exponential { mean: parameters.take("mean", 1.0) },
        "normal" => Shape::Normal {
            mean: parameters.take("mean", 0.0),
            sigma: parameters.take("sigma", 1.0),
        },
        "lognormal" => Shape::LogNormal {
            shape: parameters.take("shape", 1.0),
            scale: parameters.positive("scale", 1.0)?,
        },
        _ => {
            let instead = "; it reads cvar-gamma, cvar-uniform, cvar-exponential, cvar-normal and \
                           cvar-lognormal";
            let what = format!("the custom variable '{}'", kind.escape_debug());
            return Err(WmlProblem::unsupported(what, instead).at(reader.place_of("type")));
        }
    };
    parameters.none_left()?;
    let least = reader.number("min", 0, 0..=1 << 40)?;
    let most = reader.number("max", 1 << 40, 0..=1 << 40)?;
    let round = reader.number("round", 0, 0..=1 << 30)?;
    Ok(Distribution { shape, range: (least as f64, most as f64), round })
}

/// The parameters of a custom variable: `mean:16384;gamma:1.5`.
struct Parameters {
    place: WmlPlace,
    left: BTreeMap<String, f64>,
}

impl Parameters {
    fn read(reader: &AttributeReader<'_>) -> Result<Parameters, Fault> {
        let place = reader.place_of("parameters");
        let text = reader.text("parameters")?.unwrap_or_default();
        let mut left = BTreeMap::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let pair = part.split_once(':');
            let pair = pair.and_then(|(key, value)| Some((key, value.parse::<f64>().ok()?)));
            let Some((key, value)) = pair.filter(|(_, value)| value.is_finite()) else {
                let (name, found) = ("parameters".to_owned(), format!("'{part}'"));
                let expected = "as in mean:16384;gamma:1.5".to_owned();
                return Err(WmlProblem::Value { name, found, expected }.at(place));
            };
            left.insert(key.to_owned(), value);
        }
        Ok(Parameters { place, left })
    }

    fn take(&mut self, name: &str, default: f64) -> f64 {
        self.left.remove(name).unwrap_or(default)
    }

    fn positive(&mut self, name: &str, default: f64) -> Result<f64, Fault> {
        let value = self.take(name, default);
        if value > 0.0 {
            return Ok(value);
        }
        let (name, found) = (name.to_owned(), value.to_string());
        let expected = "above 0".to_owned();
        Err(WmlProblem::Value { name, found, expected }.at(self.place))
    }

    fn none_left(&self) -> Result<(), Fault> {
        let Some(name) = self.left.keys().next() else { return Ok(()) };
        let (name, found) = ("parameters".to_owned(), format!("'{name}'"));
        let expected = "parameters of this type".to_owned();
        Err(WmlProblem::Value { name, found, expected }.at(self.place))
    }
}

/// `randvar(type=gamma,mean=16k,gamma=1500,min=1k)`: the older random variables. A gamma's shape is
/// in thousandths.
fn random_variable(random: &Random, variables: &Variables) -> Result<Distribution, Fault> {
    let known = ["type", "min", "mean", "gamma", "round", "randtable"];
    let ignored = ["seed", "randsrc", "name"];
    let reader = AttributeReader::new(&random.attributes, variables, &known, &ignored)?;
    let kind = reader.needed("type")?;
    let most = 1 << 40;
    let least = reader.number("min", 0, 0..=most)?;
    let mean = reader.number("mean", least, least..=most)? as f64;
    let round = reader.number("round", 0, 0..=1 << 30)?;
    let shape = match kind.as_str() {
        "uniform" => Shape::Uniform { lower: least as f64, upper: 2.0 * mean - least as f64 },
        "gamma" => {
            let gamma = reader.number("gamma", 1500, 1..=1_000_000)? as f64 / 1000.0;
            Shape::Gamma { least: least as f64, mean, gamma }
        }
        "tabular" => Shape::Table(table(random, variables)?),
        _ => {
            let instead = "; it reads uniform, gamma and tabular";
            let what = format!("the random variable '{}'", kind.escape_debug());
            return Err(WmlProblem::unsupported(what, instead).at(reader.place_of("type")));
        }
    };
    Ok(Distribution { shape, range: (least as f64, most as f64), round })
}

fn table(random: &Random, variables: &Variables) -> Result<Vec<(u64, f64, f64)>, Fault> {
    let place = random.attributes.place;
    let cell = |value| fixed("randtable", value, variables, place);
    let mut rows = Vec::new();
    for [percent, least, most] in &random.table {
        rows.push((cell(percent)?, cell(least)? as f64, cell(most)? as f64));
    }
    let all = rows.iter().try_fold(0_u64, |sum, row| sum.checked_add(row.0));
    if all == Some(100) {
        return Ok(rows);
    }
    let found = all.map_or("too much".to_owned(), |all| format!("{all} percent in all"));
    let expected = "100 percent".to_owned();
    Err(WmlProblem::Value { name: "randtable".to_owned(), found, expected }.at(place))
}
