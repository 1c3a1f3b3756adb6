//! A guest kernel on Ordo's disks, in Ordo's virtual time.
//!
//! Fault model: what reaches a guest outside of virtual time (the host's clock, its random numbers,
//! the order in which sockets are served) differs from run to run, and so would the requests; and a
//! guest that dies, spins or is not there at all must end in one error, with nothing left behind.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Completed, Issued, Recorder, Tap, TapSink};
use ordo_block::{BlockDevice, Device};
use ordo_guest::orders::{GuestAnswer, GuestProgram, Order};
use ordo_guest::{Guest, GuestError, GuestSetup, Kernel};
use ordo_runtime::Executor;
use ordo_runtime::cpu::CpuModel;
use tempfile::TempDir;

const INIT: &str = env!("CARGO_BIN_EXE_guest-init");
const DISK: u64 = 64 << 20;

/// The guest kernel; without one the test is skipped out loud, or fails where nothing may be.
fn kernel() -> Option<Kernel> {
    match Kernel::find() {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            ordo_testkit::skip(&error.to_string());
            None
        }
    }
}

fn setup(kernel: Kernel) -> GuestSetup {
    GuestSetup::new(kernel, PathBuf::from(INIT))
}

fn shell(script: &str, output: Option<&Path>) -> Order {
    Order::Run(GuestProgram {
        words: ["/bin/sh", "-ec", script].map(Into::into).to_vec(),
        environment: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
        dir: "/".into(),
        output: output.map(Path::to_owned),
        ..GuestProgram::default()
    })
}

/// All requests of a disk, in order, with contents and times.
#[derive(Default)]
struct Digest(std::cell::RefCell<DefaultHasher>);

impl TapSink for Digest {
    fn issued(&self, request: &Issued<'_>) {
        let mut hash = self.0.borrow_mut();
        (request.id, request.offset, request.len).hash(&mut *hash);
        request.at.as_nanos().hash(&mut *hash);
        request.data.hash(&mut *hash);
    }
    fn completed(&self, request: &Completed<'_>) {
        (request.id, request.at.as_nanos()).hash(&mut *self.0.borrow_mut());
    }
}

/// A run: the digest of its requests, their number, and the time at its end.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    digest: u64,
    requests: usize,
    ended_ns: u64,
}

/// Runs a script in a guest with a disk of a model.
fn run_script(kernel: Kernel, seed: u64, script: &str, disk: &str) -> Run {
    let executor = Executor::simulated(seed);
    let runtime = executor.runtime();
    let model = Model::by_name(disk).unwrap();
    let disk = Tap::new(&runtime, Modeled::new(&runtime, model, RamDisk::new(DISK)));
    let (digest, counted) = (Rc::new(Digest::default()), Recorder::new(false));
    disk.attach(digest.clone());
    disk.attach(counted.clone());
    let disks: Vec<Device> = vec![disk.erase()];
    let setup = GuestSetup { disks, seed, cpu: CpuModel::PENTIUM_III_500, ..setup(kernel) };
    let guest = Guest::start(&runtime, setup).unwrap();
    let order = shell(script, None);
    let done = executor.block_on(async {
        guest.carry_out(&order).await?;
        guest.power_off().await
    });
    done.unwrap().unwrap_or_else(|error| panic!("{error}\n{}", guest.log()));
    let digest = digest.0.borrow().finish();
    let requests = counted.take().len();
    Run { digest, requests, ended_ns: runtime.now().as_nanos() }
}

const WORK: &str = "mke2fs -q -t ext4 -U 6f72646f-0000-4000-8000-000000000001 \
    -E hash_seed=6f72646f-0000-4000-8000-000000000002 /dev/vda; \
    mkdir /tmp/m; mount /dev/vda /tmp/m; cd /tmp/m; \
    for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; sync f$i; done; \
    head -c 300000 /dev/urandom > random; (sleep 3; echo late > late) & \
    sleep 40; wait; rm f1 f2; cd /; umount /tmp/m";

/// One seed is one run: the same requests with the same contents at the same nanoseconds, with a
/// kernel that writes back by timers, random numbers, and two processes. Another seed writes other
/// contents. Would catch anything that reaches the guest from the host.
#[test]
fn a_seed_is_a_run() {
    let Some(kernel) = kernel() else { return };
    let first = run_script(kernel.clone(), 7, WORK, "hdd-4tb");
    assert!(first.requests > 60, "{first:?}");
    assert!(first.ended_ns > 40_000_000_000, "{first:?}");
    for _ in 0..3 {
        assert_eq!(run_script(kernel.clone(), 7, WORK, "hdd-4tb"), first);
    }
    let other = run_script(kernel, 8, WORK, "hdd-4tb");
    assert_ne!(other.digest, first.digest, "random numbers do not come from the seed");
}

/// Requests that complete while a system call is charged: the first interrupt waits for the end of
/// the call, and the later ones must not wake the guest at a time at which it has not asked to run.
/// (The kernel ended with a BUG in its clock there.)
#[test]
fn many_requests_complete_within_one_call() {
    let Some(kernel) = kernel() else { return };
    let work = "for i in 1 2 3 4 5 6; do \
        (dd if=/dev/zero of=/dev/vda bs=4k count=300 seek=$((i * 400)) oflag=direct 2>/dev/null) & \
        done; wait; for i in 1 2 3; do dd if=/dev/vda of=/dev/null bs=64k count=500; done 2>/dev/null";
    let first = run_script(kernel.clone(), 1, work, "nvme");
    assert!(first.requests > 1_800, "{first:?}");
    assert_eq!(run_script(kernel, 1, work, "nvme"), first);
}

/// A minute of sleep takes a minute of virtual time, and much less of ours.
#[test]
fn a_minute_of_sleep_is_a_minute() {
    let Some(kernel) = kernel() else { return };
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let began = Instant::now();
    let guest = Guest::start(&runtime, setup(kernel)).unwrap();
    executor
        .block_on(async {
            guest.carry_out(&shell("true", None)).await.unwrap();
            let before = runtime.now();
            guest.carry_out(&shell("sleep 60", None)).await.unwrap();
            let slept = runtime.now().since(before);
            assert!(slept >= Duration::from_secs(60) && slept < Duration::from_millis(60_100));
            guest.power_off().await.unwrap();
        })
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
}

/// Programs can read the host's files and write none of them, but for what is shared; their exit
/// status and their output come back.
#[test]
fn the_host_is_safe_from_its_guest() {
    let Some(kernel) = kernel() else { return };
    let (shared, closed) = (TempDir::new().unwrap(), TempDir::new_in("/opt").unwrap());
    let (out, secret) = (shared.path().join("out"), closed.path().join("file"));
    std::fs::write(&secret, "as it was").unwrap();
    let executor = Executor::simulated(1);
    let shares = vec![shared.path().to_owned()];
    let guest = GuestSetup { shared: shares, ..setup(kernel) };
    let guest = Guest::start(&executor.runtime(), guest).unwrap();
    let secret_name = secret.display();
    let script = format!(
        "cat {secret_name}; echo changed > {secret_name} || rm {secret_name} || echo refused; \
         echo done > /tmp/nowhere; exit 3"
    );
    let script = script.replace("; echo changed", "\nset +e\necho changed");
    let answer = executor.block_on(async {
        let answer = guest.ask(&shell(&script, Some(&out))).await?;
        guest.power_off().await.map(|()| answer)
    });
    let said = std::fs::read_to_string(&out).unwrap_or_default();
    assert_eq!(
        answer.unwrap().unwrap(),
        GuestAnswer::Ended { code: Some(3), signal: None },
        "{said}"
    );
    assert!(said.starts_with("as it was") && said.contains("refused"), "{said}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "as it was");
    assert!(!Path::new("/tmp/nowhere").exists());
}

/// A program that never sleeps stops virtual time. It is named, and the guest ends.
#[test]
fn a_program_that_spins_is_named() {
    let Some(kernel) = kernel() else { return };
    let executor = Executor::simulated(1);
    let patience = Duration::from_secs(2);
    let guest = GuestSetup { patience, ..setup(kernel) };
    let guest = Guest::start(&executor.runtime(), guest).unwrap();
    let spin = Order::Run(GuestProgram {
        words: ["/usr/bin/perl", "-e", "1 while 1"].map(Into::into).to_vec(),
        dir: "/".into(),
        ..GuestProgram::default()
    });
    let error = executor.block_on(guest.ask(&spin)).unwrap().unwrap_err();
    assert!(matches!(&error, GuestError::Spins { task, .. } if task == "perl"), "{error}");
}

/// A kernel that panics ends everyone's wait with its last words.
#[test]
fn a_panic_is_reported_with_the_kernels_words() {
    let Some(kernel) = kernel() else { return };
    let executor = Executor::simulated(1);
    let guest = Guest::start(&executor.runtime(), setup(kernel)).unwrap();
    let order = shell("echo c > /proc/sysrq-trigger", None);
    let error = executor.block_on(guest.ask(&order)).unwrap().unwrap_err();
    let GuestError::Ended { log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("sysrq"), "{error}");
}

/// A program that is no kernel, a kernel that is not there, an init that is not there: one error
/// each, and no process or folder is left.
#[test]
fn what_is_no_guest_is_one_error() {
    let none = Kernel::at(Path::new("/nonexistent/linux")).unwrap_err();
    assert!(none.to_string().contains("/nonexistent/linux"), "{none}");
    let not = Kernel::at(Path::new("/bin/true")).unwrap_err();
    assert!(matches!(not, GuestError::NotAKernel { .. }), "{not}");
    let Some(kernel) = kernel() else { return };
    let executor = Executor::simulated(1);
    let guest = GuestSetup::new(kernel, "/nonexistent/init".into());
    let guest = Guest::start(&executor.runtime(), guest).unwrap();
    let error = executor.block_on(guest.ask(&shell("true", None))).unwrap().unwrap_err();
    let GuestError::Ended { log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("/nonexistent/init"), "{error}");
}
