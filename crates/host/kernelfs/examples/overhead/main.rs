//! Measures the cost of the pseudo-device beside a bare loop device and beside pass-throughs that
//! name nothing: the same work on ext4 on each, by turns, in an order that rotates. Run it with
//! `cargo run --release -p ordo-kernelfs --example overhead [ROUNDS] [DIRECTORY]`, as root; the
//! image is made in DIRECTORY. `PASSTHROUGH` names libfuse's example `passthrough_ll`, if it is not
//! in the path.
//!
//! FUSE over io_uring is switched on for the systems that use it, and left afterwards as it was.

mod machine;
mod page;
mod systems;
mod works;

use std::path::{Path, PathBuf};

use machine::Cost;
use systems::MeasuredDevice;
use works::Work;

/// The size of the image in bytes. The work writes 1 GB of it.
const IMAGE: u64 = 1280 << 20;

/// The costs of one work, by system and round.
type Costs = Vec<Vec<Cost>>;

fn measured(
    work: &Work,
    systems: &[MeasuredDevice],
    rounds: usize,
    image: &Path,
    at: &Path,
) -> Costs {
    let mut costs: Costs = vec![Vec::new(); systems.len()];
    // The first round warms everything up, and does not count.
    for round in 0..=rounds {
        // The order rotates, since each system finds the host's caches as the one before it left
        // them.
        for turn in 0..systems.len() {
            let which = (turn + round) % systems.len();
            machine::make_ext4(image);
            let cost = systems[which].carry_out(work, image, at);
            if round > 0 {
                costs[which].push(cost);
            }
        }
    }
    costs
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = args.first().and_then(|n| n.parse().ok()).unwrap_or(9);
    let place = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let at = tempfile::tempdir().expect("a directory to mount on");
    let image = machine::Image::new(&place, IMAGE);
    let ring = machine::RingSwitch::new();
    let systems = systems::all(ring.works());
    println!("{}", page::heading(&place, rounds, ring.works()));
    for work in works::ALL.iter().filter(|work| systems::is_wanted("WORK", work.name)) {
        let costs = measured(work, &systems, rounds, image.path(), at.path());
        println!("{}", page::table(work.name, &systems, &costs));
    }
}
