//! Shrinking a failing sequence.

/// Leaves out as many items as possible while `fails` stays true, in at most `runs` calls of it.
/// Halves are tried first, then ever smaller pieces down to single items.
pub fn minimise<T: Clone>(
    mut items: Vec<T>,
    mut runs: usize,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut removed = false;
        let mut at = 0;
        while at < items.len() {
            if runs == 0 {
                return items;
            }
            runs -= 1;
            let end = (at + size).min(items.len());
            let rest = [&items[..at], &items[end..]].concat();
            if fails(&rest) {
                items = rest;
                removed = true;
            } else {
                at = end;
            }
        }
        // Single items are tried again as long as any can be left out.
        if size > 1 || !removed {
            size /= 2;
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_items_are_those_that_fail_together() {
        let left = minimise((0..1000).collect(), 10_000, |items| {
            items.contains(&3) && items.contains(&777) && items.contains(&778)
        });
        assert_eq!(left, [3, 777, 778]);
    }

    #[test]
    fn shrinking_stops_after_the_allowed_runs() {
        let mut calls = 0;
        let left = minimise((0..100).collect::<Vec<_>>(), 5, |_| {
            calls += 1;
            false
        });
        assert_eq!((left.len(), calls), (100, 5));
    }
}
