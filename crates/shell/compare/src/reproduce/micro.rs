//! Section 8.1 of "Journaling versus Soft Updates" (2000): the microbenchmarks.
//!
//! Figures 1 to 3 have no numbers in print. The rows are the sentences about them: which system is
//! ahead, and what a larger file costs.

use ordo_systems::{System, ffs, journaled};

use super::tables::{Measured, measure};
use super::{Item, ReproductionRow, RowKind};
use crate::{CompareError, ComparisonSetup, Follow};

/// The ratio that stands for "nearly as well" and "comparable", and its reciprocal.
const NEARLY: f64 = 0.9;
/// The ratio from which on a difference is more than a tie.
const AHEAD: f64 = 1.03;
/// The value for "less than half" of FFS-async.
const HALF: f64 = 0.5;

/// Whether two systems are comparable.
pub(super) fn is_comparable(ratio: f64) -> bool {
    (NEARLY..=1.0 / NEARLY).contains(&ratio)
}

/// Files of length 0, created and removed: Figure 3.
pub(super) fn zero_length(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let setup = ComparisonSetup::journaling();
    let mut seconds = |system| -> Result<f64, CompareError> {
        Ok(measure(system, "create-delete", &setup, follow)?.app_seconds)
    };
    let none = seconds(ffs::NONE)?;
    let soft = none / seconds(ffs::SOFT_UPDATES)?;
    let [file, one, two] =
        [journaled::FILE, journaled::WAFS_1ASYNC, journaled::WAFS_2ASYNC].map(&mut seconds);
    let [file, one, two] = [none / file?, none / one?, none / two?];
    let sync = seconds(ffs::SYNC)?;
    let one_sync = sync / seconds(journaled::WAFS_1SYNC)?;
    let two_sync = sync / seconds(journaled::WAFS_2SYNC)?;
    let mut rows =
        vec![item.input(ffs::SOFT_UPDATES.name(), "to FFS-async, nearly as well", (NEARLY, soft))];
    for (system, ratio) in [(journaled::WAFS_1ASYNC, one), (journaled::WAFS_2ASYNC, two)] {
        let quantity = "to FFS-async, less than";
        let row = item.row(system.name(), quantity, (HALF, ratio), Some((ratio < HALF).into()));
        // The price of a log record decides here, and not the log's writes, which the paper gives
        // as the reason: agreement shows nothing.
        rows.push(ReproductionRow { kind: RowKind::Input, ..row });
    }
    let quantity = "two disks to one, comparable";
    let name = journaled::WAFS_2ASYNC.name();
    rows.push(item.order(name, quantity, (1.0, two / one), is_comparable(two / one)));
    let quantity = "to 1async, more than";
    rows.push(item.order(journaled::FILE.name(), quantity, (1.0, file / one), file / one > AHEAD));
    for (system, ratio) in [(journaled::WAFS_1SYNC, one_sync), (journaled::WAFS_2SYNC, two_sync)] {
        let quantity = "to FFS, identical";
        rows.push(item.order(system.name(), quantity, (1.0, ratio), is_comparable(ratio)));
    }
    Ok(rows)
}

/// The sizes of files at which the sentences can be judged, in KB. A quarter of the published bytes
/// is made of each: three times what may be dirty.
const SIZES: [u64; 7] = [2, 8, 64, 96, 104, 1024, 4096];

/// Files a second of a phase of the microbenchmark.
struct Rates(Measured);

impl Rates {
    fn of(system: System, follow: &mut dyn Follow) -> Result<Rates, CompareError> {
        let sizes: Vec<String> = SIZES.iter().map(|kb| format!("{kb}k")).collect();
        let workload = format!("micro:total=32m,files-min=128,sizes={}", sizes.join("+"));
        measure(system, &workload, &ComparisonSetup::journaling(), follow).map(Rates)
    }

    /// The files a second of a phase, at one size.
    fn files(&self, phase: &str, kb: u64) -> f64 {
        let size = if kb < 1024 { format!("{kb} KB") } else { format!("{} MB", kb / 1024) };
        let name = format!("{phase} {size}");
        let of = self.0.phases.iter().find(|p| p.phase.name == name);
        of.and_then(|p| p.phase.rate()).unwrap_or_else(|| panic!("no phase {name}"))
    }

    /// The bytes a second, in units that cancel.
    fn throughput(&self, phase: &str, kb: u64) -> f64 {
        self.files(phase, kb) * kb as f64
    }
}

/// The geometric mean of the ratios of two systems over sizes.
fn over(phase: &str, of: &Rates, to: &Rates, sizes: &[u64]) -> f64 {
    let logs = sizes.iter().map(|kb| (of.files(phase, *kb) / to.files(phase, *kb)).ln());
    (logs.sum::<f64>() / sizes.len() as f64).exp()
}

/// A microbenchmark of all systems.
struct All {
    sync: Rates,
    none: Rates,
    soft: Rates,
    file: Rates,
    one_sync: Rates,
    one_async: Rates,
    two_sync: Rates,
    two_async: Rates,
}

/// Figures 1 and 2: files created and removed, by size; and read and write, which the paper leaves
/// out since the systems do not differ.
pub(super) fn by_size(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let mut of = |system| Rates::of(system, follow);
    let all = All {
        sync: of(ffs::SYNC)?,
        none: of(ffs::NONE)?,
        soft: of(ffs::SOFT_UPDATES)?,
        file: of(journaled::FILE)?,
        one_sync: of(journaled::WAFS_1SYNC)?,
        one_async: of(journaled::WAFS_1ASYNC)?,
        two_sync: of(journaled::WAFS_2SYNC)?,
        two_async: of(journaled::WAFS_2ASYNC)?,
    };
    let mut rows = same_to_read_and_write(item, &all);
    rows.extend(created(item, &all));
    rows.extend(shape(item, &all.none));
    rows.extend(removed(item, &all));
    Ok(rows)
}

fn same_to_read_and_write(item: &Item, all: &All) -> Vec<ReproductionRow> {
    let others =
        [(ffs::SYNC, &all.sync), (ffs::SOFT_UPDATES, &all.soft), (journaled::FILE, &all.file)];
    let mut rows = Vec::new();
    for phase in ["read", "write"] {
        for (system, rates) in others {
            let ratio = over(phase, rates, &all.none, &SIZES);
            let quantity = format!("{phase}, to FFS-async, comparable");
            rows.push(item.order(system.name(), quantity, (1.0, ratio), is_comparable(ratio)));
        }
    }
    rows
}

fn created(item: &Item, all: &All) -> Vec<ReproductionRow> {
    let create = |of: &Rates, to: &Rates, sizes: &[u64]| over("create", of, to, sizes);
    let (small, direct) = (&SIZES[..2], &SIZES[..4]);
    let mut rows = Vec::new();
    for (system, of) in [(ffs::SOFT_UPDATES, &all.soft), (journaled::WAFS_2ASYNC, &all.two_async)] {
        let ratio = create(of, &all.none, &SIZES);
        let quantity = "create, to FFS-async, comparable";
        rows.push(item.order(system.name(), quantity, (1.0, ratio), is_comparable(ratio)));
    }
    let one_sync = journaled::WAFS_1SYNC.name();
    let ratio = create(&all.one_sync, &all.sync, direct);
    let quantity = "create to 96 KB, to FFS, comparable";
    rows.push(item.order(one_sync, quantity, (1.0, ratio), is_comparable(ratio)));
    let ratio = create(&all.one_sync, &all.sync, &[104]);
    rows.push(item.order(one_sync, "create 104 KB, to FFS, more", (1.0, ratio), ratio > AHEAD));
    let ratio = create(&all.one_sync, &all.sync, &[4096]);
    rows.push(item.order(one_sync, "create 4 MB, to FFS, less", (1.0, ratio), ratio < 1.0 / AHEAD));
    for (system, of) in [(journaled::FILE, &all.file), (journaled::WAFS_1ASYNC, &all.one_async)] {
        let ratio = create(of, &all.two_async, small);
        let quantity = "create to 8 KB, to 2async, less";
        rows.push(item.order(system.name(), quantity, (1.0, ratio), ratio < 1.0 / AHEAD));
        let ratio = create(of, &all.sync, small);
        rows.push(item.order(
            system.name(),
            "create to 8 KB, to FFS, more",
            (1.0, ratio),
            ratio > AHEAD,
        ));
    }
    let two = journaled::WAFS_2ASYNC.name();
    let ratio = create(&all.two_async, &all.two_sync, small);
    rows.push(item.order(two, "create to 8 KB, to 2sync, more", (1.0, ratio), ratio > AHEAD));
    let ratio = create(&all.two_async, &all.two_sync, &[4096]);
    let holds = is_comparable(ratio);
    rows.push(item.order(two, "create 4 MB, to 2sync, comparable", (1.0, ratio), holds));
    rows
}

/// The shape of the curve of FFS-async in Figure 1: the throughput at one size over that at
/// another.
fn shape(item: &Item, none: &Rates) -> Vec<ReproductionRow> {
    let most = SIZES.iter().map(|kb| none.throughput("create", *kb)).fold(0.0, f64::max);
    let nearly = none.throughput("create", 64) / most;
    let quantity = "create 64 KB, to the most, nearly";
    let name = ffs::NONE.name();
    let mut rows = vec![item.order(name, quantity, (1.0, nearly), nearly >= NEARLY)];
    for (size, other, words, more) in [
        (96, 64, "create 96 KB, to 64 KB, less", false),
        (104, 96, "create 104 KB, to 96 KB, less", false),
        (1024, 104, "create 1 MB, to 104 KB, more", true),
        (4096, 1024, "create 4 MB, to 1 MB, less", false),
    ] {
        let ratio = none.throughput("create", size) / none.throughput("create", other);
        let holds = if more { ratio > 1.0 } else { ratio < 1.0 };
        rows.push(item.order(name, words, (1.0, ratio), holds));
    }
    rows
}

fn removed(item: &Item, all: &All) -> Vec<ReproductionRow> {
    let (soft, none) = (ffs::SOFT_UPDATES.name(), ffs::NONE.name());
    let small = over("delete", &all.soft, &all.none, &SIZES[..4]);
    let large = over("delete", &all.soft, &all.none, &SIZES[4..]);
    let mut rows = vec![
        item.order(soft, "delete to 96 KB, to FFS-async, more", (1.0, small), small > AHEAD),
        item.order(soft, "delete from 104 KB on, to FFS-async, more", (1.0, large), large > AHEAD),
        item.order(
            soft,
            "more from 104 KB on than below",
            (1.0, large / small),
            large / small > AHEAD,
        ),
    ];
    for (name, of) in [(none, &all.none), (journaled::FILE.name(), &all.file)] {
        let ratio = of.files("delete", 104) / of.files("delete", 96);
        let quantity = "delete 104 KB, to 96 KB, less";
        rows.push(item.order(name, quantity, (1.0, ratio), ratio < 1.0 / AHEAD));
    }
    let ratio = all.file.files("delete", 96) / all.file.files("delete", 8);
    let quantity = "delete 96 KB, to 8 KB, less";
    rows.push(item.order(journaled::FILE.name(), quantity, (1.0, ratio), ratio < 1.0));
    rows
}
