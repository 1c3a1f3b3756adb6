//! Memory for dependencies: slabs of one type each, and lists in a pool.
//!
//! A [`Slab`] keeps values in chunks that never move, so that growing copies nothing and wastes at
//! most one chunk. A [`List`] is four bytes in its owner; its links lie in the [`Lists`] of its
//! type.

use std::num::NonZeroU32;

use smallvec::SmallVec;

/// The number of values in a chunk.
const CHUNK: usize = 256;

/// Values in chunks of one size.
struct Chunks<T>(Vec<Vec<T>>);

impl<T> Default for Chunks<T> {
    fn default() -> Chunks<T> {
        Chunks(Vec::new())
    }
}

impl<T> Chunks<T> {
    fn push(&mut self, value: T) -> u32 {
        if self.0.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.0.push(Vec::with_capacity(CHUNK));
        }
        let full = self.0.len() - 1;
        let last = self.0.last_mut().expect("just made");
        last.push(value);
        (full * CHUNK + last.len() - 1) as u32
    }

    fn get(&self, place: u32) -> Option<&T> {
        self.0.get(place as usize / CHUNK)?.get(place as usize % CHUNK)
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.0.get_mut(place as usize / CHUNK)?.get_mut(place as usize % CHUNK)
    }
}

/// The index of a value in a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlabIndex {
    pub index: u32,
    /// The stamp of the value. No two values of a graph have the same one, so a stale index finds
    /// nothing.
    pub stamp: NonZeroU32,
}

/// A value that carries its own stamp.
pub(super) trait Stamped {
    /// The stamp; 0 for a vacant index.
    fn stamp(&self) -> u32;

    /// The content of a vacant index.
    fn vacant() -> Self;
}

/// Values of one type.
pub(super) struct Slab<T> {
    chunks: Chunks<T>,
    vacant: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Chunks::default(), vacant: Vec::new(), len: 0 }
    }
}

impl<T: Stamped> Slab<T> {
    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The memory of the values, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        match self.vacant.pop() {
            Some(index) => {
                *self.chunks.get_mut(index).expect("it was in use") = value;
                index
            }
            None => self.chunks.push(value),
        }
    }

    pub(super) fn get(&self, place: SlabIndex) -> Option<&T> {
        self.chunks.get(place.index).filter(|value| value.stamp() == place.stamp.get())
    }

    pub(super) fn get_mut(&mut self, place: SlabIndex) -> Option<&mut T> {
        self.chunks.get_mut(place.index).filter(|value| value.stamp() == place.stamp.get())
    }

    pub(super) fn remove(&mut self, place: SlabIndex) -> Option<T> {
        let value = std::mem::replace(self.get_mut(place)?, T::vacant());
        self.vacant.push(place.index);
        self.len -= 1;
        Some(value)
    }

    /// All values, with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = self.chunks.0.iter().flatten().enumerate();
        all.filter(|(_, value)| value.stamp() != 0).map(|(index, value)| (index as u32, value))
    }

    /// Frees all memory. The slab must be empty.
    pub(super) fn release(&mut self) {
        debug_assert_eq!(self.len, 0);
        *self = Slab::default();
    }
}

/// A list of values in a pool, the newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct List(u32);

#[derive(Clone, Copy)]
struct Link<T> {
    value: T,
    /// One more than the next link's index; 0 at the end.
    next: u32,
}

/// The links of lists.
pub(super) struct Lists<T> {
    links: Chunks<Link<T>>,
    /// The first of the vacant links.
    vacant: u32,
    len: usize,
}

impl<T> Default for Lists<T> {
    fn default() -> Lists<T> {
        Lists { links: Chunks::default(), vacant: 0, len: 0 }
    }
}

impl<T: Copy + PartialEq> Lists<T> {
    /// The memory of the links in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.len * size_of::<Link<T>>()
    }

    pub(super) fn push(&mut self, list: &mut List, value: T) {
        let link = Link { value, next: list.0 };
        self.len += 1;
        list.0 = match self.vacant.checked_sub(1) {
            Some(index) => {
                let place = self.links.get_mut(index).expect("it was in use");
                self.vacant = place.next;
                *place = link;
                index + 1
            }
            None => self.links.push(link) + 1,
        };
    }

    /// The values of a list, newest first.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = T> + '_ {
        let link = |at: u32| at.checked_sub(1).and_then(|index| self.links.get(index));
        std::iter::successors(link(list.0), move |at| link(at.next)).map(|link| link.value)
    }

    /// Empties a list, and returns its values, oldest first.
    pub(super) fn take<A: smallvec::Array<Item = T>>(&mut self, list: &mut List) -> SmallVec<A> {
        let mut out: SmallVec<A> = self.iter(*list).collect();
        out.reverse();
        while let Some(index) = list.0.checked_sub(1) {
            let link = self.links.get_mut(index).expect("it is in a list");
            list.0 = std::mem::replace(&mut link.next, self.vacant);
            self.vacant = index + 1;
        }
        self.len -= out.len();
        out
    }

    /// Removes all values equal to `value` from a list.
    pub(super) fn remove(&mut self, list: &mut List, value: T) {
        self.retain(list, |v| *v != value);
    }

    /// Keeps some values of a list, in their order.
    pub(super) fn retain(&mut self, list: &mut List, keep: impl Fn(&T) -> bool) {
        if self.iter(*list).all(|v| keep(&v)) {
            return;
        }
        let all: SmallVec<[T; 4]> = self.take(list);
        all.into_iter().filter(keep).for_each(|v| self.push(list, v));
    }

    /// Frees all memory. All lists must be empty.
    pub(super) fn release(&mut self) {
        debug_assert_eq!(self.len, 0);
        *self = Lists::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists share a pool. Would catch a link that is in two lists, lost, or used again too early.
    #[test]
    fn lists_keep_their_values_and_give_links_back() {
        let mut pool = Lists::default();
        let (mut a, mut b) = (List::default(), List::default());
        for n in 0..1000u64 {
            pool.push(if n % 3 == 0 { &mut a } else { &mut b }, n);
        }
        pool.retain(&mut b, |n| n % 2 == 0);
        pool.remove(&mut a, 999);
        assert!(pool.iter(a).eq((0..999).rev().filter(|n| n % 3 == 0)));
        let left: SmallVec<[u64; 4]> = pool.take(&mut b);
        assert!(left.iter().copied().eq((0..1000).filter(|n| n % 3 != 0 && n % 2 == 0)));
        assert_eq!((b, pool.iter(b).count(), pool.len), (List::default(), 0, 333));
        let chunks = pool.links.0.len();
        (0..600).for_each(|n| pool.push(&mut b, n));
        assert_eq!(pool.links.0.len(), chunks, "vacant links are used again");
        assert!(
            pool.take::<[u64; 4]>(&mut a).len() == 333
                && pool.take::<[u64; 4]>(&mut b).len() == 600
        );
        pool.release();
        assert_eq!(pool.bytes(), 0);
    }
}
