//! Mutual exclusion across awaits.
//!
//! The guards hold no reference to the data's `RefCell`: they borrow it again on each access, so
//! that no borrow lives across an await.

use std::cell::{Ref, RefCell, RefMut};

use super::semaphore::{Permit, Semaphore};

/// The permits that a writer takes, which is also the greatest number of concurrent readers.
const ALL: u64 = 1 << 32;

/// A lock that one task holds at a time.
pub struct Mutex<T> {
    semaphore: Semaphore,
    value: RefCell<T>,
}

/// The guard of a held [`Mutex`].
pub struct MutexGuard<'a, T> {
    _permit: Permit<'a>,
    value: &'a RefCell<T>,
}

impl<T> Mutex<T> {
    /// A mutex that a deadlock report calls `what` with the number `id`.
    pub const fn new(value: T, what: &'static str, id: u64) -> Mutex<T> {
        Mutex { semaphore: Semaphore::new(1, what, id), value: RefCell::new(value) }
    }

    /// Waits for the lock.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { _permit: self.semaphore.acquire(1).await, value: &self.value }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard { _permit: self.semaphore.try_acquire(1)?, value: &self.value })
    }
}

impl<T> MutexGuard<'_, T> {
    /// The value, for reading. The borrow must not live across an await.
    pub fn get(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    /// The value, for changing. The borrow must not live across an await.
    pub fn get_mut(&self) -> RefMut<'_, T> {
        self.value.borrow_mut()
    }
}

/// A lock for one writer or any number of readers; first come, first served.
pub struct RwLock {
    semaphore: Semaphore,
}

/// The guard of an [`RwLock`] held to read.
pub struct ReadGuard<'a>(#[expect(dead_code, reason = "held for its destructor")] Permit<'a>);

/// The guard of an [`RwLock`] held to write.
pub struct WriteGuard<'a>(#[expect(dead_code, reason = "held for its destructor")] Permit<'a>);

impl RwLock {
    /// A lock that a deadlock report calls `what` with the number `id`.
    pub const fn new(what: &'static str, id: u64) -> RwLock {
        RwLock { semaphore: Semaphore::new(ALL, what, id) }
    }

    /// Waits until no writer holds the lock, and takes it to read.
    pub async fn read(&self) -> ReadGuard<'_> {
        ReadGuard(self.semaphore.acquire(1).await)
    }

    /// Waits until no other task holds the lock, and takes it to write.
    pub async fn write(&self) -> WriteGuard<'_> {
        WriteGuard(self.semaphore.acquire(ALL).await)
    }

    /// Takes the lock for reading, if no writer holds it or waits for it.
    pub fn try_read(&self) -> Option<ReadGuard<'_>> {
        self.semaphore.try_acquire(1).map(ReadGuard)
    }

    /// Takes the lock to write, if no task holds it or waits.
    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        self.semaphore.try_acquire(ALL).map(WriteGuard)
    }

    /// Whether any task holds the lock.
    pub fn is_held(&self) -> bool {
        self.semaphore.available() != ALL
    }
}
