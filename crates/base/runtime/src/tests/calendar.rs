//! Processes outside of the executor whose clock it has.

use std::cell::RefCell;
use std::rc::Rc;

use crate::sync::Notify;
use crate::{CalendarClient, Duration, Executor, Runtime, Time};

/// A process that wakes at given times, and goes on by itself as long as it may.
struct Clockwork {
    name: &'static str,
    wants: RefCell<Vec<u64>>,
    seen: Rc<RefCell<Vec<(&'static str, u64)>>>,
    /// The time at which it stops for a task's work, and the signal for that task.
    asks_at: Option<(u64, Rc<Notify>)>,
}

impl CalendarClient for Clockwork {
    fn request(&self) -> Option<Time> {
        self.wants.borrow().last().map(|at| Time::from_nanos(*at))
    }

    fn run(&self, now: Time, until: Time) -> Time {
        let mut reached = now;
        while let Some(next) = self.request().filter(|at| *at <= now || *at < until) {
            self.wants.borrow_mut().pop();
            reached = reached.max(next);
            self.seen.borrow_mut().push((self.name, reached.as_nanos()));
            if let Some((at, asks)) = &self.asks_at
                && *at == next.as_nanos()
            {
                asks.notify_all();
                break;
            }
        }
        reached
    }
}

fn clockwork(
    name: &'static str,
    wants: &[u64],
    seen: &Rc<RefCell<Vec<(&'static str, u64)>>>,
) -> Rc<Clockwork> {
    let wants = RefCell::new(wants.iter().rev().copied().collect());
    Rc::new(Clockwork { name, wants, seen: seen.clone(), asks_at: None })
}

async fn note(runtime: &Runtime, at: u64, seen: &RefCell<Vec<(&'static str, u64)>>) {
    runtime.sleep(Duration::from_nanos(at)).await;
    seen.borrow_mut().push(("task", runtime.now().as_nanos()));
}

/// Timers and the wakings of two processes come in one order of time, and a timer goes before a
/// process at the same time. Would catch a process that runs past a timer or past the other one.
#[test]
fn everything_happens_in_the_order_of_time() {
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let seen = Rc::default();
    let entries = [
        runtime.enter(clockwork("a", &[10, 20, 50, 60], &seen)),
        runtime.enter(clockwork("b", &[30, 50, 70], &seen)),
    ];
    executor
        .block_on(async {
            for sleep in [15, 35, 40] {
                note(&runtime, sleep, &seen).await;
            }
        })
        .unwrap();
    let expected = [
        ("a", 10),
        ("task", 15),
        ("a", 20),
        ("b", 30),
        ("task", 50),
        ("a", 50),
        ("b", 50),
        ("a", 60),
        ("b", 70),
        ("task", 90),
    ];
    assert_eq!(*seen.borrow(), expected);
    drop(entries);
}

/// A process that stops for a task's work goes on after the task has run, at the time at which it
/// stopped. Would catch a clock that stands still while a process runs, and a process that runs on
/// before its request is taken.
#[test]
fn a_task_runs_at_the_time_at_which_it_was_asked() {
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let seen = Rc::default();
    let asks = Rc::new(Notify::new("a request", 0));
    let mut process = Rc::into_inner(clockwork("a", &[10, 20, 30], &seen)).unwrap();
    process.asks_at = Some((20, asks.clone()));
    let entry = runtime.enter(Rc::new(process));
    let answered = seen.clone();
    let (now, notified) = (runtime.clone(), asks.clone());
    runtime.spawn_daemon("a disk", async move {
        notified.notified().await;
        answered.borrow_mut().push(("task", now.now().as_nanos()));
    });
    executor.block_on(note(&runtime, 40, &seen)).unwrap();
    assert_eq!(*seen.borrow(), [("a", 10), ("a", 20), ("task", 20), ("a", 30), ("task", 40)]);
    drop(entry);
}

/// A process that waits for ever is a deadlock like any other, and one that has left the calendar
/// is asked no more.
#[test]
fn a_process_that_waits_for_ever_is_a_deadlock() {
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let seen = Rc::default();
    let entry = runtime.enter(clockwork("a", &[10], &seen));
    assert!(executor.block_on(std::future::pending::<()>()).is_err());
    assert_eq!(runtime.now().as_nanos(), 10);
    drop(entry);
    let late = runtime.enter(clockwork("late", &[20], &seen));
    drop(late);
    assert!(executor.block_on(std::future::pending::<()>()).is_err());
    assert_eq!(*seen.borrow(), [("a", 10)]);
}
