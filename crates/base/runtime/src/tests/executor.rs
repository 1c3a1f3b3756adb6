use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proptest::prelude::*;

use crate::cpu::CpuModel;
use crate::sync::{Mutex, Notify};
use crate::{Backend, Duration, Executor, Runtime, Schedule, Time};

/// A log that tasks append to.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<u64>>>);

impl Log {
    fn push(&self, n: u64) {
        self.0.borrow_mut().push(n);
    }
    fn take(&self) -> Vec<u64> {
        self.0.take()
    }
}

/// Sleepers must wake in the order of their deadlines, and those with equal deadlines in order of
/// arrival. The clock must stand exactly at each deadline.
#[test]
fn sleepers_wake_in_order_and_on_time() {
    let executor = Executor::simulated(1);
    let (rt, log) = (executor.runtime(), Log::default());
    for (i, ms) in [30, 10, 20, 10, 0].into_iter().enumerate() {
        let (log, rt2) = (log.clone(), rt.clone());
        rt.spawn("sleeper", async move {
            rt2.sleep(Duration::from_millis(ms)).await;
            assert_eq!(rt2.now(), Time::from_nanos(ms * 1_000_000));
            log.push(i as u64);
        });
    }
    executor.run_until_idle().unwrap();
    assert_eq!(log.take(), [4, 1, 3, 2, 0]);
}

/// A cancelled sleep must neither wake a task nor move the clock.
#[test]
fn a_cancelled_sleep_does_not_move_the_clock() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor
        .block_on(async {
            for _ in 0..1000 {
                let mut long = Box::pin(rt.sleep(Duration::from_secs(3600)));
                std::future::poll_fn(|cx| {
                    assert!(long.as_mut().poll(cx).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            rt.sleep(Duration::from_millis(1)).await;
            assert_eq!(rt.now().as_nanos(), 1_000_000);
        })
        .unwrap();
    assert!(executor.block_on(std::future::pending::<()>()).is_err());
    assert_eq!(rt.now().as_nanos(), 1_000_000, "the cancelled timers fired");
}

proptest! {
    /// The timers are compared with a sorted list, for any mix of sleeps and cancellations.
    #[test]
    fn timers_agree_with_a_sorted_list(plan in prop::collection::vec((0u64..50, any::<bool>()), 0..200)) {
        let executor = Executor::simulated(1);
        let (rt, log) = (executor.runtime(), Log::default());
        let mut expected: Vec<(u64, usize)> = Vec::new();
        for (i, (ns, keep)) in plan.iter().copied().enumerate() {
            if keep {
                expected.push((ns, i));
            }
            let (log, rt2) = (log.clone(), rt.clone());
            rt.spawn("sleeper", async move {
                let mut sleep = std::pin::pin!(rt2.sleep_until(Time::from_nanos(ns + 1)));
                std::future::poll_fn(|cx| {
                    let _ = sleep.as_mut().poll(cx);
                    std::task::Poll::Ready(())
                }).await;
                if keep {
                    sleep.await;
                    log.push(i as u64);
                }
            });
        }
        executor.run_until_idle().unwrap();
        expected.sort();
        prop_assert_eq!(log.take(), expected.iter().map(|(_, i)| *i as u64).collect::<Vec<_>>());
    }
}

fn interleaving(seed: u64, schedule: Schedule) -> Vec<u64> {
    let executor = Executor::simulated(seed);
    executor.set_schedule(schedule);
    let (rt, log) = (executor.runtime(), Log::default());
    for i in 0..6 {
        let (log, rt2) = (log.clone(), rt.clone());
        rt.spawn("worker", async move {
            for step in 0..4 {
                log.push(i * 10 + step);
                rt2.yield_now().await;
            }
        });
    }
    executor.run_until_idle().unwrap();
    log.take()
}

/// The same seed must give the same interleaving, and other seeds others. First-come order needs no
/// seed.
#[test]
fn a_seed_fixes_the_schedule() {
    let mut seen: Vec<Vec<u64>> = Vec::new();
    for seed in 0..20 {
        let once = interleaving(seed, Schedule::Seeded);
        assert_eq!(once, interleaving(seed, Schedule::Seeded), "seed {seed} does not replay");
        seen.push(once);
    }
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 15, "only {} schedules from 20 seeds", seen.len());
    assert_eq!(interleaving(1, Schedule::Fifo), interleaving(2, Schedule::Fifo));
}

/// Two tasks wait for each other's lock: the report must name both, and the lock for which each
/// waits.
#[test]
fn a_deadlock_is_reported_with_what_each_task_waits_for() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let a = Rc::new(Mutex::new((), "inode lock", 7));
    let b = Rc::new(Mutex::new((), "inode lock", 8));
    for (name, first, second) in [("rename", a.clone(), b.clone()), ("unlink", b, a)] {
        let rt2 = rt.clone();
        rt.spawn(name, async move {
            let _first = first.lock().await;
            rt2.sleep(Duration::from_millis(1)).await;
            let _second = second.lock().await;
        });
    }
    rt.spawn_daemon("syncer", std::future::pending());
    let text = executor.run_until_idle().unwrap_err().to_string();
    assert!(text.contains("idle with 2 task(s) left"), "{text}");
    assert!(text.contains("rename waits for inode lock 8"), "{text}");
    assert!(text.contains("unlink waits for inode lock 7"), "{text}");
    assert!(!text.contains("syncer"), "{text}");

    let never = Notify::new("an answer", 3);
    let text = executor.block_on(never.notified()).unwrap_err().to_string();
    assert!(text.contains("main waits for an answer 3"), "{text}");
}

/// Sets a flag when dropped.
struct Guard(Rc<Cell<u32>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Dropping the executor is a crash: every task is dropped at its present await, with its locks,
/// including tasks that a destructor spawns.
#[test]
fn dropping_the_executor_drops_every_task() {
    struct SpawnsWhenDropped(Runtime, Rc<Cell<u32>>);
    impl Drop for SpawnsWhenDropped {
        fn drop(&mut self) {
            let guard = Guard(self.1.clone());
            self.0.spawn("late", async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let lock = Rc::new(Mutex::new((), "lock", 0));
    for _ in 0..3 {
        let (guard, lock, rt2) = (Guard(dropped.clone()), lock.clone(), rt.clone());
        rt.spawn("victim", async move {
            let _held = lock.lock().await;
            let _guard = guard;
            rt2.sleep(Duration::from_secs(1)).await;
        });
    }
    let late = SpawnsWhenDropped(rt.clone(), dropped.clone());
    rt.spawn("spawner", async move {
        let _late = late;
        std::future::pending::<()>().await;
    });
    executor.block_on(rt.sleep(Duration::from_millis(1))).unwrap();
    assert_eq!(dropped.get(), 0);
    drop(executor);
    assert_eq!(dropped.get(), 4);
    assert!(lock.try_lock().is_some(), "a dropped task still holds its lock");
}

/// A task's slot is used again after the task is done; a stale wake-up must not reach the next
/// task.
#[test]
fn a_stale_waker_does_not_wake_the_next_task_in_the_slot() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let stale = Rc::new(RefCell::new(None));
    let keep = stale.clone();
    executor
        .block_on(async {
            rt.spawn("first", async move {
                std::future::poll_fn(|cx| {
                    *keep.borrow_mut() = Some(cx.waker().clone());
                    std::task::Poll::Ready(())
                })
                .await;
            })
            .await;
            let polls = Rc::new(Cell::new(0));
            let count = polls.clone();
            rt.spawn_daemon(
                "second",
                std::future::poll_fn(move |_| {
                    count.set(count.get() + 1);
                    std::task::Poll::Pending
                }),
            );
            rt.yield_now().await;
            stale.take().unwrap().wake();
            rt.sleep(Duration::from_millis(1)).await;
            assert_eq!(polls.get(), 1);
        })
        .unwrap();
}

/// With one processor, work that two tasks charge at once takes the sum of their times, and is
/// counted.
#[test]
fn processor_work_is_done_one_after_the_other() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    rt.cpu().set_model(CpuModel { operation_ns: 1000, ..CpuModel::NONE });
    let ends = Log::default();
    for _ in 0..3 {
        let (rt2, ends) = (rt.clone(), ends.clone());
        rt.spawn("worker", async move {
            rt2.cpu().operation();
            rt2.settle().await;
            ends.push(rt2.now().as_nanos());
        });
    }
    executor.run_until_idle().unwrap();
    assert_eq!(ends.take(), [1000, 2000, 3000]);
    assert_eq!(rt.cpu().total_ns(), 3000);
}

/// The result of a task reaches its joiner, whether the task ends before or after the join.
#[test]
fn a_join_gives_the_result() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor
        .block_on(async {
            let early = rt.spawn("early", async { 1 });
            let rt2 = rt.clone();
            let late = rt.spawn("late", async move {
                rt2.sleep(Duration::from_millis(2)).await;
                2
            });
            rt.sleep(Duration::from_millis(1)).await;
            assert_eq!(early.await + late.await, 3);
        })
        .unwrap();
}

/// In real time, a wake-up from another thread must interrupt the wait, on every backend. Without
/// an external source an idle executor must report a deadlock instead of hanging.
#[test]
fn another_thread_can_wake_a_task() {
    for backend in [Backend::Auto, Backend::Threads, Backend::Inline] {
        let executor = Executor::real_on(backend, 1);
        let rt = executor.runtime();
        assert!(executor.block_on(std::future::pending::<()>()).is_err());
        let external = rt.external();
        let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut thread = None;
        executor
            .block_on(std::future::poll_fn(|cx| {
                if flag.load(std::sync::atomic::Ordering::SeqCst) {
                    return std::task::Poll::Ready(());
                }
                thread.get_or_insert_with(|| {
                    let (waker, flag) = (cx.waker().clone(), flag.clone());
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(20));
                        flag.store(true, std::sync::atomic::Ordering::SeqCst);
                        waker.wake();
                    })
                });
                std::task::Poll::Pending
            }))
            .unwrap();
        thread.unwrap().join().unwrap();
        drop(external);
    }
}

/// In real time, a task that is always ready must not keep timers from firing.
#[test]
fn a_busy_task_does_not_starve_timers() {
    let executor = Executor::real_on(Backend::Auto, 1);
    let rt = executor.runtime();
    let done = Rc::new(Cell::new(false));
    let (rt2, done2) = (rt.clone(), done.clone());
    rt.spawn("sleeper", async move {
        rt2.sleep(Duration::from_millis(5)).await;
        done2.set(true);
    });
    executor
        .block_on(async {
            while !done.get() {
                rt.yield_now().await;
            }
        })
        .unwrap();
}
