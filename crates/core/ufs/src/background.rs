//! Deferred frees: a background task frees what an ordering has deferred, when it is due.

use std::rc::Rc;

use ordo_ordering::{DeferredFree, Op, OpKind};
use ordo_vfs::{Errno, FsError, FsResult};

use crate::layout::Layout;
use crate::{LayoutInode, Ufs, io_error};

/// The most frees in one operation. Others get their turn between two operations.
const STEPS_MAX: usize = 64;

impl<L: Layout> Ufs<L> {
    /// Starts the task that does deferred frees, if the ordering defers any. The task ends with the
    /// executor. While it waits it holds no reference to the file system.
    pub(crate) fn start_deferred_frees(&self) {
        let Some(ready) = self.cache().ordering().ready() else { return };
        let weak = Rc::downgrade(&self.shared);
        self.cache().runtime().spawn_daemon("giving back", async move {
            while let Some(shared) = weak.upgrade() {
                Ufs { shared }.free_deferred().await;
                ready.notified().await;
            }
        });
    }

    /// Does every deferred free that is due. When this returns, no task is doing one.
    pub(crate) async fn free_deferred(&self) {
        let _one = self.shared.deferred_frees.write().await;
        while let Some(step) = self.cache().ordering().next_ready() {
            let done = match step {
                DeferredFree::Release { ino } => {
                    let done = self.release_deferred(ino).await;
                    self.cache().ordering().taken(step);
                    done
                }
                step => self.free_deferred_from(step).await,
            };
            if let Err(error) = done {
                // The cache keeps a device's failure for good. Any other failure is reported at the
                // next sync.
                self.shared.deferred_free_failure.borrow_mut().get_or_insert(error);
            }
        }
    }

    /// Does a deferred free, and the next ones that are due, in one operation.
    async fn free_deferred_from(&self, step: DeferredFree) -> FsResult<()> {
        let ordering = self.cache().ordering();
        let mut done = Ok(());
        let mut next = Some(step);
        let mut op = match self.begin(OpKind::Free).await {
            Ok(op) => op,
            Err(error) => {
                ordering.taken(step);
                return Err(error);
            }
        };
        for n in 1..=STEPS_MAX {
            let Some(step) = next.take() else { break };
            done = done.and(self.layout().free_deferred(&mut op, step).await);
            ordering.taken(step);
            if n < STEPS_MAX
                && !matches!(ordering.peek_ready(), None | Some(DeferredFree::Release { .. }))
            {
                next = ordering.next_ready();
            }
        }
        done.and(op.end().await.map_err(io_error))
    }

    async fn release_deferred(&self, ino: u64) -> FsResult<()> {
        // An unnamed, unopened inode stays in the table until it is freed. An orphan that a crash
        // has left is read from disk.
        match self.inode(ino).await {
            Ok(ip) => self.release_orphan(&ip).await,
            Err(error) if error.errno == Errno::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Defers the release of an inode that has just lost its last name. Returns false if the
    /// ordering wants the release done at once, or if the inode is still open.
    pub(crate) fn defer_release(&self, op: &mut Op<'_>, ip: &LayoutInode<L>) -> bool {
        ip.is_unused() && op.defer(DeferredFree::Release { ino: ip.ino() }).is_none()
    }

    /// Makes everything durable, and does all deferred frees. Frees that need no write come first,
    /// so that nothing is written for their sake.
    ///
    /// # Errors
    /// The device failed, now or earlier in a deferred free.
    pub async fn sync_all(&self) -> FsResult<()> {
        loop {
            self.free_deferred().await;
            self.layout().sync().await?;
            if self.cache().ordering().deferred() == 0 {
                break;
            }
        }
        let failure: Option<FsError> = self.shared.deferred_free_failure.borrow_mut().take();
        match failure {
            Some(error) if error.errno != Errno::ReadOnly => Err(error),
            _ => Ok(()),
        }
    }
}
