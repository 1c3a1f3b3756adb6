//! The computing of a workload's own programs.

use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Duration, Runtime};

/// The time for which a program has the processor before another one gets it, in nanoseconds.
const SLICE_NS: u64 = 10_000_000;

/// Computes for as long as a 300 MHz Pentium II takes `micros` microseconds, and in proportion on
/// other models. Programs that compute at once share the one processor. On a real clock the time is
/// slept.
pub(super) async fn compute(runtime: &Runtime, micros: u64) {
    if !runtime.is_simulated() {
        return runtime.sleep(Duration::from_micros(micros)).await;
    }
    let model = runtime.cpu().model();
    let mut left = micros * 1000 * model.touch_ns / CpuModel::PENTIUM_II_300.touch_ns;
    while left > 0 {
        let slice = left.min(SLICE_NS);
        runtime.cpu().compute(slice);
        runtime.settle().await;
        left -= slice;
    }
}
