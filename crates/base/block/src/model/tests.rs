use std::cell::RefCell;
use std::rc::Rc;

use ordo_runtime::{Duration, Executor, Runtime};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::catalog::EXPECTED;
use super::hdd::Hdd;
use super::*;
use crate::Fault;
use crate::ram::RamDisk;

fn hdd_spec(name: &str) -> HddSpec {
    match Model::by_name(name).unwrap().kind {
        ModelKind::Hdd(spec) => spec,
        _ => panic!("{name} is no hard disk"),
    }
}

fn within(what: &str, got: f64, wanted: f64, tolerance: f64) {
    let off = (got - wanted).abs() / wanted;
    assert!(off <= tolerance, "{what}: {got:.3}, wanted {wanted:.3} within {tolerance}");
}

/// A device of the model's size that stores nothing, since only time matters here.
struct Nothing(Geometry);

impl Nothing {
    fn of(model: &Model) -> Nothing {
        Nothing(Geometry {
            bytes: model.bytes().max(1 << 30),
            sector: 512,
            max_request: 1 << 20,
            volatile_cache: false,
            read_only: false,
        })
    }
}

impl BlockDevice for Nothing {
    fn geometry(&self) -> Geometry {
        self.0
    }
    async fn read(&self, _: u64, len: usize) -> Result<IoBuf, BlockError> {
        Ok(IoBuf::scratch(len))
    }
    async fn write(&self, _: u64, _: IoBuf, _: WriteFlags) -> Result<(), BlockError> {
        Ok(())
    }
    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }
    async fn discard(&self, _: u64, _: u64) -> Result<(), BlockError> {
        Ok(())
    }
}

struct Bench {
    executor: Executor,
    runtime: Runtime,
    disk: Rc<Modeled<Nothing>>,
}

impl Bench {
    fn new(model: &Model) -> Bench {
        let executor = Executor::simulated(1);
        let runtime = executor.runtime();
        let disk = Rc::new(Modeled::new(&runtime, model, Nothing::of(model)));
        Bench { executor, runtime, disk }
    }

    fn named(name: &str) -> Bench {
        Bench::new(Model::by_name(name).unwrap())
    }

    fn seconds(&self) -> f64 {
        self.runtime.now().as_secs_f64()
    }

    fn run<T>(&self, f: impl Future<Output = T>) -> T {
        self.executor.block_on(f).unwrap()
    }

    /// The rate of random requests of 4 KB, in requests a second, `depth` at once.
    fn random_rate(&self, write: bool, depth: u64, each: u64) -> f64 {
        let start = self.seconds();
        for task in 0..depth {
            let disk = self.disk.clone();
            let mut rng = Pcg64Mcg::seed_from_u64(task);
            self.runtime.spawn("client", async move {
                let blocks = disk.geometry().bytes / 4096;
                for _ in 0..each {
                    let at = rng.random_range(0..blocks) * 4096;
                    if write {
                        disk.write(at, IoBuf::scratch(4096), WriteFlags::empty()).await.unwrap();
                    } else {
                        disk.read(at, 4096).await.unwrap();
                    }
                }
            });
        }
        self.executor.run_until_idle().unwrap();
        (depth * each) as f64 / (self.seconds() - start)
    }

    /// The rate of sequential requests of `size` bytes from `at` on, in 10^6 bytes a second,
    /// `depth` at once.
    fn sequential_rate(&self, write: bool, at: u64, size: usize, count: u64, depth: usize) -> f64 {
        let start = self.seconds();
        let next = Rc::new(RefCell::new(0..count));
        for _ in 0..depth {
            let (disk, next) = (self.disk.clone(), next.clone());
            self.runtime.spawn("client", async move {
                loop {
                    let Some(i) = next.borrow_mut().next() else { return };
                    let at = at + i * size as u64;
                    if write {
                        disk.write(at, IoBuf::scratch(size), WriteFlags::empty()).await.unwrap();
                    } else {
                        disk.read(at, size).await.unwrap();
                    }
                }
            });
        }
        self.executor.run_until_idle().unwrap();
        (count * size as u64) as f64 / (self.seconds() - start) / 1e6
    }
}

/// The seek curve of each hard disk must go through the datasheet's three figures.
#[test]
fn seek_curves_meet_their_datasheets() {
    for expected in EXPECTED {
        let spec = hdd_spec(expected.name);
        let hdd = Hdd::new(spec);
        let cylinders = hdd.cylinders();
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let (mut sum, mut n) = (0.0, 0.0);
        while n < 100_000.0 {
            let distance = rng.random_range(0..cylinders).abs_diff(rng.random_range(0..cylinders));
            if distance > 0 {
                sum += hdd.seek_ns(distance) / 1e6;
                n += 1.0;
            }
        }
        within(expected.name, sum / n, expected.seek_average_ms, 0.01);
        within(expected.name, hdd.seek_ns(1) / 1e6, spec.seek_single_ms, 0.001);
        within(expected.name, hdd.seek_ns(cylinders - 1) / 1e6, spec.seek_full_ms, 0.001);
        let mut last = 0.0;
        for distance in 1..cylinders.min(20_000) {
            assert!(hdd.seek_ns(distance) >= last, "{}: not monotonic", expected.name);
            last = hdd.seek_ns(distance);
        }
        assert!(hdd.place(spec.sectors - 1).cylinder < cylinders);
    }
}

/// Random reads over the whole disk: the mean seek (within 6 %, since sectors and not cylinders are
/// uniform), the mean rotational delay (within 3 %), and the sum of all parts.
#[test]
fn random_reads_cost_seek_and_half_a_revolution() {
    for expected in EXPECTED {
        let bench = Bench::named(expected.name);
        let rate = bench.random_rate(false, 1, 10_000);
        let stats = bench.disk.stats();
        let per = |ns: u64| ns as f64 / stats.reads as f64 / 1e6;
        within(expected.name, per(stats.seek_ns), expected.seek_average_ms, 0.06);
        within(expected.name, per(stats.rotation_ns), expected.latency_ms, 0.03);
        let spec = hdd_spec(expected.name);
        let sum = expected.seek_average_ms + expected.latency_ms + spec.overhead_us / 1e3;
        within(expected.name, 1e3 / rate, sum, 0.06);
        assert_eq!(stats.requests, 10_000);
        within(expected.name, stats.busy_ns as f64 / 1e9, bench.seconds(), 0.001);
    }
}

/// Sequential reads of 64 KB in the outermost and innermost zone: the sustained rates, within 3 %.
#[test]
fn sequential_reads_stream_at_the_zones_rate() {
    for expected in EXPECTED {
        let size = hdd_spec(expected.name).sectors * 512;
        let count = 2000;
        let outer = Bench::named(expected.name).sequential_rate(false, 0, 65_536, count, 1);
        within(expected.name, outer, expected.sequential.outer, 0.03);
        let from = (size - count * 65_536) / 4096 * 4096;
        let inner = Bench::named(expected.name).sequential_rate(false, from, 65_536, count, 1);
        within(expected.name, inner, expected.sequential.inner, 0.03);
    }
}

/// Without a write cache, each of several adjacent writes that are made one after the other loses a
/// revolution. With the cache they stream.
#[test]
fn adjacent_writes_lose_a_revolution_only_without_a_cache() {
    let rate = Bench::named("cheetah").sequential_rate(true, 0, 65_536, 500, 1);
    let lost = 65_536.0 / (65_536.0 / 21.7e6 + 60.0 / 10_025.0 + 0.001) / 1e6;
    within("cheetah", rate, lost, 0.15);
    let cached = Model {
        kind: ModelKind::Hdd(HddSpec { write_cache_bytes: 1 << 20, ..hdd_spec("cheetah") }),
        ..*Model::by_name("cheetah").unwrap()
    };
    assert!(cached.volatile_cache());
    within(
        "cheetah, cached",
        Bench::new(&cached).sequential_rate(true, 0, 65_536, 2000, 1),
        18.5,
        0.1,
    );
    within(
        "hdd-4tb",
        Bench::named("hdd-4tb").sequential_rate(true, 0, 1 << 20, 2000, 1),
        215.0,
        0.1,
    );
}

/// Adjacent small writes that wait in the queue reach four fifths of the media's rate on every disk
/// of the catalogue: the disk has handled a write's command when its sectors come under the head,
/// also where they are the first ones of a track. Would catch a command whose handling begins only
/// when the media are free, so that each small write loses a revolution.
#[test]
fn queued_adjacent_writes_stream() {
    for expected in EXPECTED {
        for size in [2048, 4096, 8192] {
            let bench = Bench::named(expected.name);
            let rate = bench.sequential_rate(true, 0, size, 4000, 32);
            let least = 0.8 * expected.sequential.outer;
            let name = expected.name;
            assert!(rate > least, "{name}, {size} bytes: {rate:.1} MB/s, wanted {least:.1}");
        }
    }
}

/// Somebody who waits for each write before he makes the next one waits for the platter's turn,
/// since the sectors have passed under the head when the command has been handled. Would catch
/// handling that a lone command does not pay.
#[test]
fn a_lone_synchronous_write_waits_for_its_turn() {
    for expected in EXPECTED {
        let spec = hdd_spec(expected.name);
        if spec.write_cache_bytes > 0 {
            continue;
        }
        let bench = Bench::named(expected.name);
        let rate = bench.sequential_rate(true, 0, 2048, 500, 1);
        let each = 2048.0 / (rate * 1e6);
        within(expected.name, each, 60.0 / spec.rpm, 0.05);
    }
}

/// A flush must take as long as writing the cache's contents does; FUA goes to the media at once.
#[test]
fn a_flush_pays_for_what_is_cached() {
    let bench = Bench::named("hdd-4tb");
    bench.run(async {
        let disk = &bench.disk;
        for i in 0..100 {
            let at = (i * 7919 % 100) * (1 << 30);
            disk.write(at, IoBuf::scratch(4096), WriteFlags::empty()).await.unwrap();
        }
        assert!(bench.seconds() < 0.1, "cached writes waited for the platter");
        disk.flush().await.unwrap();
        assert!(bench.seconds() > 0.2, "100 scattered writes in {} s", bench.seconds());
        let before = bench.seconds();
        disk.flush().await.unwrap();
        assert!(bench.seconds() - before < 0.001, "an empty cache was flushed");
        let before = bench.seconds();
        disk.write(5 << 30, IoBuf::scratch(4096), WriteFlags::FUA).await.unwrap();
        assert!(bench.seconds() - before > 0.001, "FUA did not wait for the platter");
    });
}

/// A queue lets the arm sweep: 64 random reads at once must be served much faster than one by one,
/// and in the order of their place from the arm on (C-LOOK).
#[test]
fn the_queue_sweeps() {
    let alone = Bench::named("cheetah").random_rate(false, 1, 2000);
    let queued = Bench::named("cheetah").random_rate(false, 64, 100);
    assert!(queued > 1.6 * alone, "{queued:.0} against {alone:.0} requests a second");

    let bench = Bench::named("cheetah");
    let order = Rc::new(RefCell::new(Vec::new()));
    bench.run(bench.disk.read(500 << 20, 4096)).unwrap();
    for place in [100u64, 900, 300, 700] {
        let (disk, order) = (bench.disk.clone(), order.clone());
        bench.runtime.spawn("client", async move {
            disk.read(place * 1_048_576, 4096).await.unwrap();
            order.borrow_mut().push(place);
        });
    }
    bench.executor.run_until_idle().unwrap();
    assert_eq!(order.take(), [700, 900, 100, 300]);
}

/// A request whose task goes away, in the queue or in service, must not stop the others.
#[test]
fn abandoned_requests_leave_the_queue() {
    let bench = Bench::named("viking");
    bench.run(async {
        let disk = &bench.disk;
        let mut requests: Vec<_> =
            (0..6u64).map(|i| Box::pin(disk.read(i * (100 << 20), 4096))).collect();
        std::future::poll_fn(|cx| {
            for r in &mut requests {
                assert!(r.as_mut().poll(cx).is_pending());
            }
            std::task::Poll::Ready(())
        })
        .await;
        let last = requests.pop().unwrap();
        drop(requests.remove(0));
        drop(requests.remove(2));
        last.await.unwrap();
        for r in requests {
            r.await.unwrap();
        }
    });
    let stats = bench.disk.stats();
    assert_eq!((stats.reads, stats.queue_max), (4, 6));
}

/// Read-ahead: a read of sectors that just passed under the head costs no movement. After a write
/// to them, a read must not be served from the old cache contents.
#[test]
fn the_track_cache_serves_what_follows() {
    let bench = Bench::named("cheetah");
    bench.run(async {
        let disk = &bench.disk;
        disk.read(1 << 30, 8192).await.unwrap();
        bench.runtime.sleep(Duration::from_millis(20)).await;
        let before = bench.seconds();
        disk.read((1 << 30) + 8192, 65_536).await.unwrap();
        let hit = bench.seconds() - before;
        assert!(hit < 0.0025, "a hit took {hit} s");
        assert_eq!(disk.stats().cache_hits, 1);
        disk.write((1 << 30) + 8192, IoBuf::scratch(512), WriteFlags::empty()).await.unwrap();
        disk.read((1 << 30) + 8192, 512).await.unwrap();
        assert_eq!(disk.stats().cache_hits, 1);
    });
}

/// Solid-state disks: requests a second at depth 1 (within 5 %) and at great depth (15 %), and
/// sequential rates (5 %).
#[test]
fn solid_state_disks_meet_their_datasheets() {
    for (name, read1, write1, depth, many, read_mb, write_mb) in [
        ("sata-ssd", 13_000.0, 36_000.0, 32, 98_000.0, 560.0, 530.0),
        ("nvme", 22_000.0, 60_000.0, 512, 1_000_000.0, 7_000.0, 5_000.0),
    ] {
        let random = |write, depth, each| Bench::named(name).random_rate(write, depth, each);
        within(name, random(false, 1, 2000), read1, 0.05);
        within(name, random(true, 1, 2000), write1, 0.05);
        within(name, random(false, depth, 200), many, 0.15);
        within(name, random(true, depth, 50), many, 0.15);
        let sequential = |write| Bench::named(name).sequential_rate(write, 0, 1 << 20, 1000, 8);
        within(name, sequential(false), read_mb, 0.05);
        within(name, sequential(true), write_mb, 0.05);
    }
}

/// A solid-state disk's flush costs its fixed price and the cache's contents; FUA costs the program
/// time.
#[test]
fn a_solid_state_disk_charges_for_durability() {
    let bench = Bench::named("sata-ssd");
    bench.run(async {
        let disk = &bench.disk;
        let mut at = 0.0;
        let mut step = || bench.seconds() - std::mem::replace(&mut at, bench.seconds());
        disk.write(0, IoBuf::scratch(1 << 20), WriteFlags::empty()).await.unwrap();
        step();
        disk.flush().await.unwrap();
        within("flush", step(), 0.001 + 0.002, 0.1);
        disk.write(0, IoBuf::scratch(4096), WriteFlags::FUA).await.unwrap();
        within("FUA", step(), 0.0009, 0.1);
    });
}

/// The volume's limits hold, by number for small requests and by bytes for large ones. A single
/// request takes the round trip.
#[test]
fn a_network_volume_keeps_to_its_caps() {
    within("iops", Bench::named("network-volume").random_rate(true, 64, 200), 3_000.0, 0.05);
    let rate = Bench::named("network-volume").sequential_rate(false, 0, 1 << 20, 500, 16);
    within("bytes", rate, 125.0, 0.02);
    let alone = Bench::named("network-volume").random_rate(false, 1, 100);
    within("latency", 1e6 / alone, 633.0, 0.05);
    assert!(!Model::by_name("network-volume").unwrap().volatile_cache());
}

/// The same requests take the same time to the nanosecond. Memory takes no time.
#[test]
fn time_is_reproducible() {
    for model in ALL {
        let rate = || Bench::new(model).random_rate(true, 8, 50);
        assert!(rate() == rate(), "{}", model.name);
        assert_eq!(rate() == f64::INFINITY, model.name == "ram");
        assert!(std::ptr::eq(Model::by_name(model.name).unwrap(), model));
    }
}

/// Errors come before time is spent, and are the device's own.
#[test]
fn requests_outside_the_device_fail_at_once() {
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let model = Model::by_name("viking").unwrap();
    let disk = Modeled::new(&runtime, model, RamDisk::new(1 << 20));
    executor
        .block_on(async {
            let e = disk.read(1 << 20, 512).await.unwrap_err();
            assert_eq!(e.fault, Fault::OutOfRange);
            let e = disk.write(100, IoBuf::scratch(512), WriteFlags::empty()).await.unwrap_err();
            assert_eq!(e.fault, Fault::Misaligned);
            assert_eq!(runtime.now().as_nanos(), 0);
        })
        .unwrap();
}
