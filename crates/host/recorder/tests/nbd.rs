//! The device over NBD, used by other programs' clients, and by clients that break the protocol.
//!
//! Fault model: any client, any bytes; a device whose writes are dropped or delayed.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ordo_block::model::Model;
use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_recorder::nbd::{Address, Nbd};
use ordo_recorder::{DeviceSetup, KeepRequests, Observer, RequestDecision, Transport};
use ordo_trace::{Flags, RequestOp};

fn image(dir: &Path, len: usize) -> std::path::PathBuf {
    let path = dir.join("image");
    let bytes: Vec<u8> = (0..len).map(|i| (i / 512 * 7) as u8).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// nbdinfo must see the size and the device's features. nbdcopy must copy an image there and back.
/// qemu-img must compare it as equal. Every request of theirs must be in the trace, over a unix
/// socket and over TCP.
#[test]
fn clients_of_others_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = image(dir.path(), 4 << 20);
    let source = source.to_str().unwrap();
    for tcp in [false, true] {
        let address = match tcp {
            false => Address::Unix(dir.path().join("socket")),
            true => Address::Tcp("127.0.0.1:0".into()),
        };
        let nbd = Nbd::serve(DeviceSetup::in_memory(4 << 20), &address).unwrap();
        let uri = nbd.uri().to_owned();
        let Some(said) = ordo_testkit::judge("nbdinfo", &["--json", &uri]) else { return };
        for what in ["\"export-size\": 4194304", "\"can_flush\": true", "\"can_fua\": true"] {
            assert!(said.contains(what), "{what}: {said}");
        }
        assert!(
            said.contains("\"can_trim\": true") && said.contains("\"can_zero\": true"),
            "{said}"
        );
        let back = dir.path().join("back");
        let Some(_) = ordo_testkit::judge("nbdcopy", &["--flush", source, &uri]) else { return };
        ordo_testkit::judge("nbdcopy", &[&uri, back.to_str().unwrap()]).unwrap();
        assert!(std::fs::read(&back).unwrap() == std::fs::read(source).unwrap());
        if let Some(said) =
            ordo_testkit::judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &uri])
        {
            assert!(said.contains("identical"), "{said}");
        }
        let recording = nbd.finish().unwrap();
        let requests = recording.trace.requests();
        let written: u64 =
            requests.iter().filter(|r| r.op == RequestOp::Write).map(|r| r.len).sum();
        assert!(written >= 4 << 20);
        assert!(requests.iter().any(|r| r.op == RequestOp::Flush));
        assert!(requests.iter().all(|r| r.end.is_some_and(|e| e.ok && e.at >= r.issued)));
    }
}

/// A client that speaks the protocol by hand.
struct Client(UnixStream);

impl Client {
    fn connect(path: &Path) -> Client {
        let mut socket = UnixStream::connect(path).unwrap();
        let mut hello = [0; 18];
        socket.read_exact(&mut hello).unwrap();
        socket.write_all(&3u32.to_be_bytes()).unwrap();
        socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        let mut export = [0; 10];
        socket.read_exact(&mut export).unwrap();
        Client(socket)
    }

    fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32, data: &[u8]) -> u32 {
        let mut out = 0x2560_9513u32.to_be_bytes().to_vec();
        out.extend(flags.to_be_bytes());
        out.extend(command.to_be_bytes());
        out.extend(7u64.to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend(len.to_be_bytes());
        out.extend(data);
        self.0.write_all(&out).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply[8..], 7u64.to_be_bytes());
        u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
    }

    fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        assert_eq!(self.ask(0, 0, offset, len, &[]), 0);
        let mut data = vec![0; len as usize];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}

/// Every command, over an image: written data is in the file, trimmed or zeroed ranges read as
/// zeros, FUA is seen, and a request outside the device is refused while the connection continues.
#[test]
fn every_command_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 1 << 20);
    let socket = dir.path().join("socket");
    let setup = DeviceSetup { place: Transport::Path(path.clone()), ..DeviceSetup::in_memory(0) };
    let nbd = Nbd::serve(setup, &Address::Unix(socket.clone())).unwrap();
    let mut client = Client::connect(&socket);
    assert_eq!(client.ask(1, 1, 4096, 512, &[9; 512]), 0);
    assert_eq!(client.read(4096, 512), [9; 512]);
    assert_eq!(client.ask(0, 4, 8192, 8192, &[]), 0);
    assert_eq!(client.ask(0, 6, 65_536, 512, &[]), 0);
    assert_eq!(client.ask(0, 3, 0, 0, &[]), 0);
    assert_eq!(client.ask(0, 1, 1 << 20, 512, &[1; 512]), 22, "behind the end");
    assert_eq!(client.ask(0, 0, 1, 512, &[]), 22, "not whole sectors");
    assert_eq!(client.ask(0, 77, 0, 512, &[]), 22, "no such command");
    assert_eq!(client.read(8192, 8192), [0; 8192]);
    assert_eq!(client.read(65_536, 512), [0; 512]);
    let recording = nbd.finish().unwrap();
    let file = std::fs::read(path).unwrap();
    assert_eq!((&file[4096..4608], &file[65_536..66_048]), (&[9; 512][..], &[0; 512][..]));
    assert_eq!(recording.start.len(), 1 << 20);
    assert_ne!(recording.start[4096], 9);
    let seen: Vec<_> = recording.trace.requests().iter().map(|r| (r.op, r.flags)).collect();
    assert_eq!(seen[0], (RequestOp::Write, Flags::FUA));
    assert_eq!(seen[2].0, RequestOp::Discard);
    assert!(!socket.exists(), "the socket goes away with the server");
}

/// Marks that are written to the control pipe stand in the trace between the requests between which
/// they were written, the last one too, after which the server ends at once. Would catch marks that
/// are lost or come at the end.
#[test]
fn marks_stand_between_requests() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let nbd = Nbd::serve(DeviceSetup::in_memory(1 << 20), &Address::Unix(socket.clone())).unwrap();
    let mut client = Client::connect(&socket);
    let mark = |text: &str| std::fs::write(nbd.control(), text).unwrap();
    assert_eq!(client.ask(0, 1, 0, 512, &[1; 512]), 0);
    mark("mark one\r\nno mark\n");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.ask(0, 1, 512, 512, &[1; 512]), 0);
    mark("mark two\n");
    let pipe = nbd.control();
    let recording = nbd.finish().unwrap();
    let requests = recording.trace.requests();
    let seen: Vec<_> = requests.iter().map(|r| (r.op, recording.trace.data(r))).collect();
    let [
        (RequestOp::Write, _),
        (RequestOp::Mark, one),
        (RequestOp::Write, _),
        (RequestOp::Mark, two),
    ] = seen.as_slice()
    else {
        panic!("{seen:?}")
    };
    assert_eq!((*one, *two), (Some(&b"one"[..]), Some(&b"two"[..])));
    assert!(!pipe.exists(), "the pipe goes away with the server");
}

/// Clients that send garbage, send too much, or go away in the middle: the next client is served
/// all the same.
#[test]
fn rubbish_ends_a_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let nbd = Nbd::serve(DeviceSetup::in_memory(1 << 20), &Address::Unix(socket.clone())).unwrap();
    let mut one = UnixStream::connect(&socket).unwrap();
    one.write_all(&[0x41; 4000]).unwrap();
    let mut two = UnixStream::connect(&socket).unwrap();
    two.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").unwrap();
    let mut three = Client::connect(&socket);
    // A write of 4 GiB whose data never comes.
    let head = b"\x25\x60\x95\x13\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\xff\xff\xff\xff";
    three.0.write_all(head).unwrap();
    let mut rest = Vec::new();
    assert_eq!(three.0.read_to_end(&mut rest).unwrap(), 0, "it hangs up");
    drop(UnixStream::connect(&socket).unwrap());
    let mut good = Client::connect(&socket);
    assert_eq!(good.ask(0, 1, 0, 512, &[1; 512]), 0);
    assert_eq!(nbd.finish().unwrap().trace.requests().len(), 1);
    let far = Nbd::serve(DeviceSetup::in_memory(1 << 20), &Address::Tcp("192.0.2.1:0".into()));
    assert!(far.unwrap_err().to_string().contains("loopback"));
    let missing =
        DeviceSetup { place: Transport::Path("/nonexistent".into()), ..DeviceSetup::in_memory(0) };
    let error = Nbd::serve(missing, &Address::Unix(socket)).unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
}

/// An observer that drops writes of ones and delays writes of twos.
struct ByContents(Rc<Cell<RequestDecision>>);

impl TapSink for ByContents {
    fn issued(&self, r: &Issued<'_>) {
        self.0.set(match r.data {
            Some([1, ..]) => RequestDecision::Drop,
            Some([2, ..]) => RequestDecision::Delay(Duration::from_millis(60)),
            _ => RequestDecision::Pass,
        });
    }
    fn completed(&self, _: &Completed<'_>) {}
}

struct Watching(Rc<ByContents>);

impl Observer for Watching {
    fn sink(&self) -> Rc<dyn TapSink> {
        self.0.clone()
    }
    fn finish(self: Box<Self>) {}
}

/// The observer decides: a dropped write is answered and absent, a delayed one is late and present,
/// and others pass. The last requests are kept, and no more.
#[test]
fn an_observer_delays_or_drops_writes() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let setup = DeviceSetup {
        keep: KeepRequests::Last(2),
        keep_start: false,
        observer: Some(Box::new(|before, verdict| {
            assert_eq!(before.bytes, 1 << 20);
            before.read_at(1 << 20, &mut [0]).unwrap_err();
            Some(Box::new(Watching(Rc::new(ByContents(verdict.clone())))))
        })),
        ..DeviceSetup::in_memory(1 << 20)
    };
    let nbd = Nbd::serve(setup, &Address::Unix(socket.clone())).unwrap();
    let mut client = Client::connect(&socket);
    let before = Instant::now();
    assert_eq!(client.ask(0, 1, 0, 512, &[1; 512]), 0);
    assert_eq!(client.ask(0, 1, 512, 512, &[2; 512]), 0);
    assert!(before.elapsed() >= Duration::from_millis(60));
    assert_eq!(client.ask(0, 1, 1024, 512, &[3; 512]), 0);
    let read = client.read(0, 1536);
    assert_eq!((read[0], read[512], read[1024]), (0, 2, 3));
    let trace = nbd.finish().unwrap().trace;
    assert_eq!(
        trace.requests().iter().map(|r| r.op).collect::<Vec<_>>(),
        [RequestOp::Write, RequestOp::Read]
    );
    assert!(trace.requests().iter().all(|r| r.data.is_none()));
}

/// A device with a disk model takes at least that disk's time for every request that the disk's
/// cache does not absorb: a durable write waits for the arm and the platter, a flush for the
/// cache's contents. Catches a model whose time is computed but not waited for.
#[test]
fn a_modelled_disk_takes_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let disk = Model::by_name("hdd-4tb");
    let setup = DeviceSetup { disk, ..DeviceSetup::in_memory(512 << 20) };
    let nbd = Nbd::serve(setup, &Address::Unix(socket.clone())).unwrap();
    let mut client = Client::connect(&socket);
    let far = |n: u64| (n * 0x9e37_79b9 % (1 << 19)) << 10;
    for n in 0..12 {
        assert_eq!(client.ask(1, 1, far(n), 512, &[1; 512]), 0);
    }
    for n in 0..12 {
        assert_eq!(client.ask(0, 1, far(n), 512, &[2; 512]), 0);
    }
    assert_eq!(client.ask(0, 3, 0, 0, &[]), 0);
    assert_eq!(client.read(far(5), 512), [2; 512]);
    let trace = nbd.finish().unwrap().trace;
    let took = |r: &ordo_trace::TraceRequest| r.end.unwrap().at.as_nanos() - r.issued.as_nanos();
    let mut durable: Vec<u64> = trace.requests()[..12].iter().map(took).collect();
    durable.sort_unstable();
    // A revolution of this disk takes 8.3 ms, a seek a millisecond and more.
    assert!(durable[6] > 2_000_000, "{durable:?}");
    let flush = trace.requests().iter().find(|r| r.op == RequestOp::Flush).unwrap();
    assert!(took(flush) > 10_000_000, "{} ns for twelve writes", took(flush));
}

/// Fails if the work has not ended after 30 seconds: what is tested here would otherwise hang.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = tell.send(work());
    });
    told.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("{what} hangs"))
}

/// A client asks for more than a socket holds and never reads an answer, another one sends writes
/// without end. Others are served meanwhile, the server takes no more than its budget from such a
/// client, and it ends at once. Would catch a server whose one thread waits in a write to a full
/// socket.
#[test]
fn a_client_that_does_not_read_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let nbd = Nbd::serve(DeviceSetup::in_memory(16 << 20), &Address::Unix(socket.clone())).unwrap();
    let head = |command: u16, len: u32| {
        let mut out = 0x2560_9513u32.to_be_bytes().to_vec();
        out.extend([0, 0]);
        out.extend(command.to_be_bytes());
        out.extend([0; 16]);
        out.extend(len.to_be_bytes());
        out
    };
    let mut deaf = Client::connect(&socket);
    for _ in 0..8 {
        deaf.0.write_all(&head(0, 8 << 20)).unwrap();
    }
    // Answers that nobody reads fill the socket, then the budget; then nothing more is taken.
    let mut writer = Client::connect(&socket);
    writer.0.set_nonblocking(true).unwrap();
    let request = [head(1, 1 << 20), vec![7; 1 << 20]].concat();
    let (mut sent, mut idle) = (0, 0);
    while idle < 100 && sent < 4 << 30 {
        match writer.0.write(&request[sent % request.len()..]) {
            Ok(n) => (sent, idle) = (sent + n, 0),
            Err(_) => {
                idle += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let place = socket.clone();
    let read = in_time("another client", move || Client::connect(&place).read(0, 512));
    assert_eq!(read.len(), 512);
    in_time("the end", move || nbd.finish().unwrap());
    drop((deaf, writer));
}

/// A port of TCP is open to every user of the machine: without the secret of the URI nobody is
/// served, nobody is told it, and the socket of the other transport is for its owner alone.
#[test]
fn only_the_uri_lets_a_client_in() {
    use std::os::unix::fs::PermissionsExt;
    let nbd = Nbd::serve(DeviceSetup::in_memory(1 << 20), &Address::Tcp("127.0.0.1:0".into()));
    let nbd = nbd.unwrap();
    let uri = nbd.uri().to_owned();
    let (at, secret) = uri.strip_prefix("nbd://").unwrap().split_once('/').unwrap();
    assert!(secret.len() >= 32, "{uri}");
    let ask = |option: u32, name: &str| {
        let mut socket = std::net::TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        let mut data = name.as_bytes().to_vec();
        if option == 7 {
            data.splice(0..0, (name.len() as u32).to_be_bytes());
            data.extend([0; 2]);
        }
        socket.write_all(&3u32.to_be_bytes()).unwrap();
        socket.write_all(b"IHAVEOPT").unwrap();
        socket.write_all(&option.to_be_bytes()).unwrap();
        socket.write_all(&(data.len() as u32).to_be_bytes()).unwrap();
        socket.write_all(&data).unwrap();
        let mut answer = vec![0; 20];
        let n = socket.read(&mut answer).unwrap();
        answer.truncate(n);
        answer
    };
    // The name of an export: the connection ends without a size.
    assert_eq!(ask(1, "").len(), 0);
    assert_eq!(ask(1, &"0".repeat(32)).len(), 0);
    assert_eq!(ask(1, secret)[..8], (1u64 << 20).to_be_bytes());
    // NBD_OPT_GO: unknown; NBD_OPT_LIST: not told, by policy.
    assert_eq!(ask(7, "")[12..16], 0x8000_0006u32.to_be_bytes());
    assert_eq!(ask(7, secret)[12..16], 3u32.to_be_bytes());
    assert_eq!(ask(3, "")[12..16], 0x8000_0002u32.to_be_bytes());
    nbd.finish().unwrap();
    let nbd = Nbd::serve(DeviceSetup::in_memory(1 << 20), &Address::Private).unwrap();
    let socket = nbd.uri().split_once("socket=").unwrap().1.to_owned();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    assert_eq!(Client::connect(Path::new(&socket)).read(0, 512).len(), 512);
}
