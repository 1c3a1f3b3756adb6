//! Measures how fast traces are analyzed: `naming START-IMAGE TRACE [ROUNDS]`. One watcher gets the
//! trace again and again; the median of nine such runs is printed. Then the same is done without
//! contents, as blktrace records. Run it with `cargo run --release -p ordo-watcher --example
//! naming`.

use std::time::Instant;

use ordo_watcher::Watch;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, log, rest @ ..] = &args[..] else {
        eprintln!("usage: speed START-IMAGE TRACE [ROUNDS]");
        return;
    };
    let rounds: u32 = rest.first().and_then(|n| n.parse().ok()).unwrap_or(200);
    let image = std::fs::read(image).expect("a start image that can be read");
    let log = std::fs::read(log).expect("a trace that can be read");
    let trace = ordo_trace::dm_log_writes::import(log).expect("a log of dm-log-writes").trace;
    let mut bare = ordo_trace::Trace::new(trace.sector(), trace.timed());
    trace.requests().iter().for_each(|r| bare.push(ordo_trace::TraceRequest { data: None, ..*r }));
    run("with contents", &image, &trace, rounds);
    run("without", &image, &bare, rounds);
}

fn run(what: &str, image: &[u8], trace: &ordo_trace::Trace, rounds: u32) {
    let bytes: u64 = trace.requests().iter().map(|r| r.len).sum();
    let mut seconds: Vec<f64> = (0..9)
        .map(|_| {
            let watch = Watch::over(&image).expect("a file system that is known");
            let start = Instant::now();
            (0..rounds).for_each(|_| ordo_trace::replay(trace, &watch));
            start.elapsed().as_secs_f64() / f64::from(rounds)
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let middle = seconds[seconds.len() / 2];
    let requests = trace.requests().len() as f64;
    println!(
        "{what}: {:.0} requests a second, {:.0} MB/s ({requests} requests, {:.1} KiB each)",
        requests / middle,
        bytes as f64 / middle / 1e6,
        bytes as f64 / requests / 1024.0
    );
}
