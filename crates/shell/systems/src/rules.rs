//! The rules of orderings by name. Each can be switched off to show its effect.

use bitflags::Flags;

/// The names of an ordering's rules.
pub(crate) fn names<R: Flags>() -> Vec<&'static str> {
    R::all().iter_names().map(|(name, _)| name).collect()
}

/// All rules except the one with this name, and whether there is a rule of this name.
pub(crate) fn all_but_known<R: Flags + Copy>(rule: Option<&str>) -> (R, bool) {
    let off = rule.and_then(R::from_name);
    (R::all().difference(off.unwrap_or(R::empty())), off.is_some())
}

/// All rules except the one with this name.
pub(crate) fn all_but<R: Flags + Copy>(rule: Option<&str>) -> R {
    let off = rule.map_or(R::empty(), |rule| {
        R::from_name(rule).unwrap_or_else(|| panic!("no rule of the ordering is called '{rule}'"))
    });
    R::all().difference(off)
}
