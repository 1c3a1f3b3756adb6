//! Project tasks. `cargo xtask tidy` checks the style that no other tool does.

mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            let faults = tidy::check(&tidy::root());
            for fault in &faults {
                println!("{fault}");
            }
            println!("tidy: {} fault(s)", faults.len());
            ExitCode::from(u8::from(!faults.is_empty()))
        }
        _ => {
            println!("usage: cargo xtask tidy");
            ExitCode::from(2)
        }
    }
}
