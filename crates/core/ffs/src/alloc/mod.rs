//! Allocation: the choice of groups, blocks, fragments and inodes.
//!
//! Source of the policies: the 1984 paper and FreeBSD's practice (`ffs_hashalloc`). Space is
//! searched in the preferred group, then by quadratic rehash, then in every group.

mod blocks;
mod clusters;
mod inodes;

/// The groups in which to search, best first: the preferred group, the groups at a distance of 1,
/// 3, 7, 15, ... from it, then all others in turn. A group may come twice. The caller skips groups
/// without space.
pub(crate) fn group_order(start: u32, groups: u32) -> impl Iterator<Item = u32> {
    let mut rehash = (1..).scan(0u64, move |at, i: u32| {
        let step = 1u64 << (i - 1).min(62);
        *at += step;
        (step < u64::from(groups)).then_some(*at)
    });
    let quadratic = std::iter::from_fn(move || rehash.next());
    std::iter::once(0)
        .chain(quadratic)
        .chain(1..u64::from(groups))
        .map(move |off| ((u64::from(start) + off) % u64::from(groups)) as u32)
}

#[cfg(test)]
mod tests {
    use super::group_order;

    /// The order has every group, the preferred one first, then those of the quadratic rehash.
    /// Would catch a search that misses a group, and so reports a full disk that is not full.
    #[test]
    fn every_group_is_looked_at() {
        for groups in [1, 2, 3, 7, 64] {
            for start in 0..groups {
                let order: Vec<u32> = group_order(start, groups).collect();
                assert_eq!(order[0], start);
                let mut seen = order.clone();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), groups as usize);
            }
        }
        assert_eq!(group_order(10, 64).take(5).collect::<Vec<_>>(), [10, 11, 13, 17, 25]);
    }
}
