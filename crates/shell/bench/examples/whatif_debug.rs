use ordo_bench::whatif::*;
use ordo_block::model::Model;
use ordo_runtime::Duration;
use ordo_stp::calls::engine::play_calls;
use ordo_stp::play::{PlayDisk, PlayStage};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let disk = Model::by_name(&args[1]).unwrap();
    let count: usize = args[2].parse().unwrap();
    let len: u64 = args[3].parse().unwrap();
    let options: Vec<&str> = args[4..].iter().map(|s| s.as_str()).collect();
    let ext3 = ["contents=ordered", "phases=apart", "commits=tangled", "records=blocks"];
    let setup = JournalSetup::usual(disk).with(&ext3).with(&options);
    let kind = TaskKind::Random { len, syncs: 60, pause: Duration::from_nanos(0) };
    let setup = JournalSetup {
        log_bytes: std::env::var("LOG").map_or(setup.log_bytes, |s| s.parse().unwrap()),
        ..setup
    };
    let (kind, size) = match std::env::var("KIND").as_deref() {
        Ok("mixed") => (TaskKind::Mixed { rounds: 40 }, 32 << 20),
        Ok("tpcc") => {
            (TaskKind::Records { pages: 10, record: 300, log: 8192, transactions: 300 }, 9 << 20)
        }
        _ => (kind, 8 << 20),
    };
    let run = record(&setup, &SyncClients::alike(count, kind, size));
    let start = run.start();
    let predictor = run.predictor(&start).unwrap();
    let world = predictor.calls().unwrap();
    println!("{:?}\n{:?}", world.facts.policy, world.facts.log);
    let unchanged = world.unchanged().unwrap();
    println!("unchanged {:+.4} of {:?}", unchanged.error, unchanged.measured);
    let played =
        play_calls(&world.plan, &world.facts, &PlayStage::one(PlayDisk::Model(disk), 512 << 20))
            .unwrap();
    let seen = ordo_stp::traffic::of(&run.trace, &run.rows).unwrap();
    let (from, n) = (std::env::var("FROM").map_or(0, |s| s.parse().unwrap()), 40);
    let base = run.calls.iter().map(|c| c.began).min().unwrap();
    println!("-- recorded");
    for s in seen.iter().filter(|s| s.issued >= base).skip(from).take(n * 5) {
        println!(
            "{:>9} {:?} {} {:.3} {:.3}",
            s.offset,
            s.role,
            s.len,
            (s.issued - base) as f64 / 1e6,
            (s.completed - base) as f64 / 1e6
        );
    }
    println!(
        "-- played, {} requests for {}",
        played.requests.len(),
        seen.iter().filter(|s| s.issued >= base).count()
    );
    let mut all = played.requests.clone();
    all.sort_by_key(|r| r.times);
    for r in all.iter().skip(from).take(n) {
        println!(
            "          {:?} {} {:.3} {:.3}",
            r.role,
            r.len,
            (r.times.0 - played.bounds.0) as f64 / 1e6,
            (r.times.1 - played.bounds.0) as f64 / 1e6
        );
    }
    println!("-- calls");
    for c in run.calls.iter().skip(from).take(30) {
        println!(
            "{} {} {:.3} {:.3} {:?}",
            c.process,
            c.name,
            (c.began - base) as f64 / 1e6,
            (c.ended - base) as f64 / 1e6,
            c.waits.iter().map(|w| (w.kind, w.ns / 1000)).collect::<Vec<_>>()
        );
    }
}
