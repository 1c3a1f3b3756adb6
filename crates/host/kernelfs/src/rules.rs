//! Rules that decide about writes by their kind.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ordo_block::Operation;
use ordo_recorder::RequestDecision;
use ordo_watcher::{ClassifiedEvent, Kinds, NoKind};

/// The action of a rule on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The write completes this much later.
    Delay(Duration),
    /// The write is answered and never carried out.
    Drop,
    /// The write with this number, counted from 1, fails, and no other.
    Fail(u64),
}

/// A rule: `drop KIND [after N KIND]`, `delay KIND TIME [after N KIND]` or `fail KIND N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRule {
    /// The action.
    pub action: Action,
    /// The kinds of blocks to whose writes the rule applies.
    pub kinds: Kinds,
    /// The number of writes of some kind after which the rule begins to apply.
    pub after: Option<(u64, Kinds)>,
}

/// The reason why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRuleError {
    /// The words are others, or of another number.
    #[error(
        "'{0}' is not a rule; the rules are 'drop KIND', 'delay KIND TIME', and 'after N KIND' behind either, as in \
         'delay file_data 10s after 3 journal_commit'; and 'fail KIND N': the Nth write of this kind fails"
    )]
    Words(String),
    /// A word is not a kind of block.
    #[error(transparent)]
    Kind(#[from] NoKind),
    /// A word is not a time.
    #[error("'{0}' is not a time; write 10s or 250ms")]
    Time(String),
}

fn time(word: &str) -> Result<Duration, WriteRuleError> {
    let (number, unit) = match (word.strip_suffix("ms"), word.strip_suffix('s')) {
        (Some(n), _) => (n, 1),
        (None, Some(n)) => (n, 1000),
        _ => return Err(WriteRuleError::Time(word.into())),
    };
    let number = number.parse::<u32>().map_err(|_| WriteRuleError::Time(word.into()))?;
    Ok(Duration::from_millis(u64::from(number) * unit))
}

impl FromStr for WriteRule {
    type Err = WriteRuleError;

    fn from_str(text: &str) -> Result<WriteRule, WriteRuleError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = || WriteRuleError::Words(text.into());
        let (action, kind, rest) = match &words[..] {
            ["fail", kind, n] => {
                let number = n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
                (Action::Fail(number), kind, &[][..])
            }
            ["drop", kind, rest @ ..] => (Action::Drop, kind, rest),
            ["delay", kind, much, rest @ ..] => (Action::Delay(time(much)?), kind, rest),
            _ => return Err(wrong()),
        };
        let after = match rest {
            [] => None,
            ["after", n, kind] => Some((n.parse().map_err(|_| wrong())?, kind.parse()?)),
            _ => return Err(wrong()),
        };
        Ok(WriteRule { action, kinds: kind.parse()?, after })
    }
}

impl fmt::Display for WriteRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Drop => write!(f, "drop {}", self.kinds)?,
            Action::Delay(much) => write!(f, "delay {} {}ms", self.kinds, much.as_millis())?,
            Action::Fail(number) => write!(f, "fail {} {number}", self.kinds)?,
        }
        match self.after {
            Some((n, kinds)) => write!(f, " after {n} {kinds}"),
            None => Ok(()),
        }
    }
}

/// Rules with their progress.
#[derive(Debug, Default)]
pub struct WriteRules {
    list: Vec<(WriteRule, u64)>,
    /// The number of writes that were delayed.
    pub delayed: u64,
    /// The number of writes that were dropped.
    pub dropped: u64,
}

impl WriteRules {
    /// A list of rules, of which the first that matches a write decides.
    pub fn new(list: &[WriteRule]) -> WriteRules {
        WriteRules { list: list.iter().map(|rule| (*rule, 0)).collect(), delayed: 0, dropped: 0 }
    }

    /// The decision about a request.
    pub fn judge(&mut self, told: &ClassifiedEvent<'_>) -> RequestDecision {
        if told.named.op != Operation::Write {
            return RequestDecision::Pass;
        }
        let has = |kinds: Kinds| told.named.parts.iter().any(|part| kinds.have(part.class));
        let ready = |(rule, seen): &(WriteRule, u64)| match rule.action {
            Action::Fail(number) => *seen + 1 == number,
            _ => rule.after.is_none_or(|(n, _)| *seen >= n),
        };
        let found = self.list.iter().find(|one| ready(one) && has(one.0.kinds));
        let verdict = match found.map(|(rule, _)| rule.action) {
            None => RequestDecision::Pass,
            Some(Action::Drop) => RequestDecision::Drop,
            Some(Action::Delay(much)) => RequestDecision::Delay(much),
            Some(Action::Fail(_)) => RequestDecision::Fail,
        };
        self.delayed += u64::from(matches!(verdict, RequestDecision::Delay(_)));
        self.dropped += u64::from(verdict == RequestDecision::Drop);
        for (rule, seen) in &mut self.list {
            let counted = match rule.action {
                Action::Fail(_) => Some(rule.kinds),
                _ => rule.after.map(|(_, kinds)| kinds),
            };
            if counted.is_some_and(has) {
                *seen += 1;
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rule is printed as it is read; a text that is no rule is refused with the list of
    /// rules.
    #[test]
    fn rules_are_words() {
        let all = [
            "drop any",
            "delay file_data 250ms",
            "drop journal after 3 journal_commit",
            "fail any 3",
        ];
        for text in all {
            assert_eq!(text.parse::<WriteRule>().unwrap().to_string(), text);
        }
        assert_eq!(
            "delay fixed 2s".parse::<WriteRule>().unwrap().to_string(),
            "delay fixed 2000ms"
        );
        assert!(matches!("drop".parse::<WriteRule>(), Err(WriteRuleError::Words(_))));
        assert!(matches!("fail any 0".parse::<WriteRule>(), Err(WriteRuleError::Words(_))));
        assert!(matches!("fail any".parse::<WriteRule>(), Err(WriteRuleError::Words(_))));
        assert!(matches!("drop inodes".parse::<WriteRule>(), Err(WriteRuleError::Kind(_))));
        assert!(matches!("delay any 5".parse::<WriteRule>(), Err(WriteRuleError::Time(_))));
        assert!(matches!(
            "drop any after x any".parse::<WriteRule>(),
            Err(WriteRuleError::Words(_))
        ));
    }
}
