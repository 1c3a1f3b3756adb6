//! How fast playback is: requests a second of real time, for a chain of writes on each disk model.
//!
//! `cargo run --release -p ordo-playback --example playback`

use std::rc::Rc;
use std::time::Instant;

use ordo_block::model::ALL;
use ordo_playback::plan::{After, Plan, PlanStep, RANK};
use ordo_playback::play::{PlayDisk, PlayStage, play};
use ordo_playback::traffic::Role;
use ordo_trace::RequestOp;

const REQUESTS: u64 = 500_000;
/// Rounds on each model.
const ROUNDS: usize = 5;
/// Thousands of requests a second.
const GOAL: f64 = 1000.0;
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
    println!("## Speed\n");
    println!(
        "Half a million writes of 4 KB at random places, eight chains side by side; median of {ROUNDS} rounds, on one processor. \
         Thousands of requests a second of real time.\n"
    );
    println!(
        "| model | median | least | most | seconds in virtual time |\n|---|---:|---:|---:|---:|"
    );
    let mut slow = Vec::new();
    for model in ALL {
        let mut rates = Vec::new();
        let mut last = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let played = play(&plan, &PlayStage::one(PlayDisk::Model(model), 1 << 30))
                .expect("requests inside the disk");
            rates.push(REQUESTS as f64 / start.elapsed().as_secs_f64() / 1e3);
            last = played.times.iter().map(|t| t.1).max().unwrap_or(0);
        }
        rates.sort_by(f64::total_cmp);
        let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|n| rates[n]);
        let virtual_time = last as f64 / 1e9;
        println!("| {} | {median:.0} | {least:.0} | {most:.0} | {virtual_time:.3} |", model.name);
        if median < GOAL {
            slow.push(model.name);
        }
    }
    match slow.is_empty() {
        true => println!("\nGoal: a million requests a second: PASSED on every model."),
        false => println!("\nGoal: a million requests a second: MISSED on {}.", slow.join(", ")),
    }
}
