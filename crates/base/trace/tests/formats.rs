//! Files of every form that is taken: recognised by themselves, read, and refused with the reason.

use std::io::Write;

use ordo_trace::formats::{FORMATS, FormatError, recognised, taken};
use ordo_trace::packed::unpack;
use ordo_trace::{RequestOp, Trace};
use proptest::prelude::*;

const BIOSNOOP: &str = "\
TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)
0.000000    jbd2/sda1-8    311    sda     W 2048       4096      1.250
0.002000    Web Content    4711   sda     R 64         8192      0.500
0.003000    kworker/0:1H   44     sda     W -1         0         0.750
";
const MSR: &str = "\
128166372003061629,hm,1,Read,383496192,32768,413
128166372013061629,hm,1,Write,4096,512,20
";
const SPC: &str = "0,20941264,8192,W,0.551706\n0,20939840,8192,r,0.554041,x\n";
const ALIBABA: &str = "\
device_id,opcode,offset,length,timestamp
419,W,8792731648,16384,1577808144360767
419,R,0,4096,1577808144360867
";
const TENCENT: &str = "1538323200,42360600,8,0,1283\n1538323201,8,16,1,1283\n";
const FIO_1: &str = "0, 4096, 512\n1, 0, 8192\n";
const FIO_3: &str = "fio version 3 iolog\n0 /dev/sda add\n5 /dev/sda write 0 4096\n";
const BLKPARSE: &str = "\
  8,0    1        1     0.000000000   697  D  WS 2048 + 8 [jbd2/sda1-8]
  8,0    1        2     0.001250000     0  C  WS 2048 + 8 [0]
";
const FTRACE: &str = "\
# tracer: nop
 jbd2/sda1-8-697 [001] .....  2342.000000: block_rq_issue: 8,0 WS 4096 () 2048 + 8 be,0,4 [jbd2/sda1-8]
          <idle>-0   [001] ..s..  2342.001250: block_rq_complete: 8,0 WS () 2048 + 8 be,0,4 [0]
";

fn read(text: &[u8], only: Option<&str>) -> Result<(Trace, Vec<String>), FormatError> {
    let file = unpack(text, None)?;
    let names = ["t".to_owned()];
    let done = file.format.read((&names, vec![file.bytes]), only)?;
    Ok((done.trace, done.notes))
}

/// Operation, offset, length, nanoseconds at issue, nanoseconds that it took.
type Row = (RequestOp, u64, u64, u64, u64);

fn rows(text: &str) -> Vec<Row> {
    let (trace, _) = read(text.as_bytes(), None).unwrap();
    let all = trace.requests().iter().map(|r| {
        let end = r.end.expect("a completion");
        let (issued, end) = (r.issued.as_nanos(), end.at.as_nanos());
        (r.op, r.offset, r.len, issued, end - issued)
    });
    all.collect()
}

/// Each form's units: sectors or bytes, ticks of 100 ns, seconds, micro- or milliseconds; times
/// from the first request on. Catches a sector taken for a byte, an issue at the time of the
/// completion, and a flush taken for a write at an impossible place.
#[test]
fn units_are_those_of_each_form() {
    use RequestOp::{Flush, Read, Write};
    let sector = 512;
    assert_eq!(
        rows(BIOSNOOP),
        [
            (Write, 2048 * sector, 4096, 0, 1_250_000),
            (Read, 64 * sector, 8192, 2_750_000, 500_000),
            (Flush, 0, 0, 3_500_000, 750_000),
        ]
    );
    let msr = [(Read, 383_496_192, 32_768, 0, 41_300), (Write, 4096, 512, 1_000_000_000, 2000)];
    assert_eq!(rows(MSR), msr);
    let spc = [(Write, 20_941_264 * 512, 8192, 0, 0), (Read, 20_939_840 * 512, 8192, 2_335_000, 0)];
    assert_eq!(rows(SPC), spc);
    let alibaba = [(Write, 8_792_731_648, 16_384, 0, 0), (Read, 0, 4096, 100_000, 0)];
    assert_eq!(rows(ALIBABA), alibaba);
    let tencent = [
        (Read, 42_360_600 * sector, 8 * sector, 0, 0),
        (Write, 8 * sector, 16 * sector, 1_000_000_000, 0),
    ];
    assert_eq!(rows(TENCENT), tencent);
    assert_eq!(rows(FIO_1), [(Read, 4096, 512, 0, 0), (Write, 0, 8192, 0, 0)]);
    assert_eq!(rows(FIO_3), [(Write, 0, 4096, 5000, 0)]);
    assert_eq!(rows(FTRACE)[0].4, rows(BLKPARSE)[0].4);
    let (trace, notes) = read(BIOSNOOP.as_bytes(), None).unwrap();
    let processes: Vec<_> = (0..3).map(|number| trace.process(number).unwrap()).collect();
    assert_eq!(processes, ["jbd2/sda1-8", "Web Content", "kworker/0:1H"]);
    assert_eq!(notes, Vec::<String>::new());
    let (_, notes) = read(SPC.as_bytes(), None).unwrap();
    assert!(notes[0].contains("no completions"), "{notes:?}");
}

/// Each text is known as its own form and no other. Catches a table taken for a neighbour's, whose
/// columns have other units.
#[test]
fn each_form_is_recognised() {
    for (text, name) in [
        (BIOSNOOP, "biosnoop"),
        (MSR, "MSR"),
        (SPC, "SPC"),
        (ALIBABA, "Alibaba"),
        (TENCENT, "Tencent"),
        (FIO_1, "fio"),
        (FIO_3, "fio"),
        (BLKPARSE, "blkparse"),
        (FTRACE, "ftrace"),
        ("Attaching 2 probes...\n1000 D 8,16 WS 8 8\n", "bpftrace"),
    ] {
        let format = recognised(text.as_bytes()).unwrap();
        assert!(format.name.contains(name), "{name}: {}", format.name);
    }
}

/// Sums of requests are refused with the reason, and anything else is told every form. Catches an
/// error that speaks of one form alone.
#[test]
fn other_input_is_told_what_is_taken() {
    for (text, program) in [
        ("PID    COMM             D MAJ MIN DISK       I/O  Kbytes  AVGms\n", "biotop"),
        ("Linux 6.1\n\nDevice            r/s     rkB/s   w/s     wkB/s\n", "iostat"),
        ("Device;tps;kB_read/s\n", "iostat"),
        ("TIME(ms)     COMM           PID    DISK    LAT(ms)\n", "biosnoop.bt"),
        ("     usecs               : count     distribution\n", "biolatency"),
    ] {
        let said = recognised(text.as_bytes()).unwrap_err().to_string();
        assert!(said.contains(program) && said.contains("Give requests"), "{said}");
    }
    let said = recognised(b"PAR1\x15\0").unwrap_err().to_string();
    assert!(said.contains("duckdb") && said.contains("Alibaba"), "{said}");
    for text in ["", "\n\n", "hello, world\n", "1,2\n"] {
        let said = recognised(text.as_bytes()).unwrap_err().to_string();
        for format in &FORMATS {
            assert!(said.contains(format.name), "{said}");
        }
    }
}

/// Damage in each table: a field too few, too large a number, a kind that is none, and a clock that
/// goes back. The error has the line and shows what a good one looks like.
#[test]
fn damaged_lines_are_named() {
    for (text, wrong) in [
        (MSR, "128166372003061629,hm,1,Read,383496192,32768"),
        (MSR, "128166372003061629,hm,1,Erase,0,1,1"),
        (MSR, "128166372003061629,hm,1,Read,18446744073709551615,2,1"),
        (MSR, "128166372003061629,hm,1,Read,0,4294967296,1"),
        (MSR, "99999999999999999999999,hm,1,Read,0,2,1"),
        (MSR, "9999999999999999999,hm,1,Read,0,2,1"),
        (MSR, "128166372003061629,hm,1,Read,0,2,18446744073709551615"),
        (SPC, "0,18446744073709551615,8192,W,0.6"),
        (SPC, "0,1,8192,W,half"),
        (ALIBABA, "419,T,0,1,1577808144360767"),
        (ALIBABA, "419,W,-1,1,1577808144360767"),
        (TENCENT, "1538323200,42360600,8,2,1283"),
        (TENCENT, "1538323200,0,18446744073709551615,0,1283"),
        (BIOSNOOP, "0.004 a 1 sda W 2048 4096"),
        (BIOSNOOP, "0.004 a 1 sda W 2048 4096 -1.0"),
        (BIOSNOOP, "0.004 a 1 sda W 2048 many 1.0"),
        (FIO_1, "0, 1"),
    ] {
        let line = text.lines().count() + 1;
        let text = format!("{text}{wrong}\n");
        let said = read(text.as_bytes(), None).unwrap_err().to_string();
        assert!(said.starts_with(&format!("line {line}: ")), "{wrong}: {said}");
        assert!(said.contains("a line of "), "{said}");
    }
    for (text, back) in [
        (MSR, "128166371003061629,hm,1,Read,0,512,1"),
        (SPC, "0,1,8192,W,-20.0"),
        (ALIBABA, "419,W,0,512,1577808100000000"),
        (TENCENT, "1538323000,0,8,0,1283"),
    ] {
        let line = text.lines().count() + 1;
        let text = format!("{text}{back}\n");
        let said = read(text.as_bytes(), None).unwrap_err().to_string();
        assert!(said.starts_with(&format!("line {line}: ")), "{said}");
        assert!(said.contains("s before an earlier line"), "{said}");
    }
    let (trace, notes) = read(MSR.trim_end().as_bytes(), None).unwrap();
    assert_eq!(trace.requests().len(), 1);
    assert!(notes.iter().any(|note| note.contains("no end")), "{notes:?}");
}

/// Requests of several devices are refused with their names, or one of them is chosen.
#[test]
fn one_device_is_chosen() {
    for (text, more, only) in [
        (MSR, "128166372003061629,hm,0,Read,0,512,1\n", "hm,0"),
        (SPC, "7,1,8192,W,0.6\n", "7"),
        (ALIBABA, "5,W,0,512,1577808144360767\n", "5"),
        (TENCENT, "1538323201,0,8,0,9\n", "9"),
        (BIOSNOOP, "0.004 a 1 nvme0n1 W 2048 4096 1.0\n", "nvme0n1"),
    ] {
        let text = format!("{text}{more}");
        let said = read(text.as_bytes(), None).unwrap_err().to_string();
        assert!(said.starts_with("requests of 2 devices: "), "{said}");
        assert!(said.contains(&format!("{only} (1)")), "{said}");
        let (trace, _) = read(text.as_bytes(), Some(only)).unwrap();
        assert_eq!(trace.requests().len(), 1);
        let said = read(text.as_bytes(), Some("other")).unwrap_err().to_string();
        assert!(said.starts_with("no requests of 'other' (--only)"), "{said}");
    }
    let many: String = (0..50).map(|i| format!("{i},W,0,512,1577808144360767\n")).collect();
    let said = read(many.as_bytes(), None).unwrap_err().to_string();
    assert!(said.contains("and 38 more"), "{said}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// Compressed files are read as the plain ones, also several members one behind the other; a cut
/// one as far as it goes; a damaged one is refused; and one that expands to a thousand times its
/// size ends before it has taken the memory.
#[test]
fn compressed_files_are_expanded() {
    let plain = rows(MSR);
    let members = [gzip(MSR.as_bytes()), gzip(b"128166372023061629,hm,1,Read,0,512,1\n")].concat();
    let all = read(&members, None).unwrap().0;
    assert_eq!(all.requests().len(), plain.len() + 1);
    let zst = zstd::encode_all(MSR.as_bytes(), 3).unwrap();
    assert_eq!(read(&zst, None).unwrap().0.requests().len(), plain.len());

    let long: String =
        (0..50_000).map(|i| format!("419,W,{},4096,{}\n", i * 7919, 1000 + i)).collect();
    for packed in [gzip(long.as_bytes()), zstd::encode_all(long.as_bytes(), 3).unwrap()] {
        let cut = unpack(&packed[..packed.len() - 9], None).unwrap();
        assert!(cut.is_cut && cut.bytes.len() <= long.len());
        let nothing = unpack(&packed[..20], None);
        assert!(matches!(nothing, Err(FormatError::Cut)), "{nothing:?}");
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 0x55;
        assert!(matches!(unpack(&*damaged, None), Err(FormatError::Io(_)) | Ok(_)));
    }
    let mut damaged = gzip(long.as_bytes());
    let at = damaged.len() - 6;
    damaged[at] ^= 1;
    assert!(matches!(unpack(&*damaged, None), Err(FormatError::Io(_))));

    let mut out = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let lines = "419,W,0,4096,1000\n".repeat(1 << 16);
    for _ in 0..400 {
        out.write_all(lines.as_bytes()).unwrap();
    }
    let bomb = out.finish().unwrap();
    assert!(matches!(unpack(&*bomb, None), Err(FormatError::Expands { .. })), "{}", bomb.len());
    // Nothing behind the beginning of an unknown file is read, so an endless one ends.
    assert!(matches!(unpack(std::io::repeat(0), None), Err(FormatError::Unknown)));
}

/// The documentation has this table of all forms, and the help names each. Catches a form that was
/// added and not told.
#[test]
fn the_documentation_has_every_form() {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let mut table = String::from(
        "| form | contents | times | flushes | processes | `--only` |\n|---|---|---|---|---|---|\n",
    );
    for format in &FORMATS {
        let device = match format.device {
            "" => String::new(),
            device => format!("`{device}`"),
        };
        table += &format!(
            "| {} | {} | {} | {} | {} | {device} |\n",
            format.name,
            yes(format.has_contents),
            format.times,
            yes(format.has_flushes),
            yes(format.has_processes)
        );
        assert!(taken().contains(format.name));
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/formats/tracers.md");
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains(&table), "docs/formats/tracers.md wants this table:\n{table}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any change of a few characters in any form, and any text: an error or requests, never a
    /// panic.
    #[test]
    fn any_text_ends(at in 0usize..300, with in "[ -~\n]{0,20}", take in 0usize..20, rest in "[ -~\n]{0,200}") {
        for text in [BIOSNOOP, MSR, SPC, ALIBABA, TENCENT, FIO_1, FIO_3, BLKPARSE, FTRACE] {
            let at = at.min(text.len());
            let to = (at + take).min(text.len());
            let _ = read(format!("{}{with}{}", &text[..at], &text[to..]).as_bytes(), None);
        }
        let _ = read(rest.as_bytes(), None);
    }

    /// Any bytes behind the magic numbers of compressed files end.
    #[test]
    fn any_packed_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for magic in [&[0x1f, 0x8b, 8][..], &[0x28, 0xb5, 0x2f, 0xfd], &[]] {
            let _ = unpack(&*[magic, &bytes].concat(), None);
        }
    }
}
