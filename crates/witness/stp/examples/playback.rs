//! How fast playback is: requests a second of real time, for a chain of writes on each disk model.
//!
//! `cargo run --release -p ordo-stp --example playback`

use std::rc::Rc;
use std::time::Instant;

use ordo_block::model::ALL;
use ordo_stp::plan::{After, Plan, PlanStep, RANK};
use ordo_stp::play::{PlayDisk, PlayStage, play};
use ordo_stp::traffic::Role;
use ordo_trace::RequestOp;

const REQUESTS: u64 = 500_000;
/// Chains that run side by side.
const CHAINS: u64 = 8;

fn main() {
    let mut plan = Plan::default();
    let mut at = 1u64;
    for n in 0..REQUESTS {
        at = (at * 1_103_515_245 + 12_345) % 2_147_483_648;
        let step = PlanStep {
            disk: 0,
            op: RequestOp::Write,
            offset: at % 200_000 * 4096,
            len: 4096,
            fua: false,
            preflush: false,
            role: Role::Data,
            transaction: None,
            copies: Vec::new(),
            checkpoint: false,
            recorded: None,
            text: None,
            not_before: 0,
            order: n * RANK,
        };
        let before = n.checked_sub(CHAINS).map(|n| After { step: n as usize, think: 1000 });
        plan.add(step, before);
    }
    let plan = Rc::new(plan);
    for model in ALL {
        let start = Instant::now();
        let played = play(&plan, &PlayStage::one(PlayDisk::Model(model), 1 << 30))
            .expect("requests inside the disk");
        let real = start.elapsed().as_secs_f64();
        let last = played.times.iter().map(|t| t.1).max().unwrap_or(0);
        println!(
            "{:>16}: {:>10.0} requests a second, {:.3} s in virtual time",
            model.name,
            REQUESTS as f64 / real,
            last as f64 / 1e9
        );
    }
}
