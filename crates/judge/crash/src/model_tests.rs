//! The states of a run, compared with a plain reading of `docs/crash-model.md`.
//!
//! Small random runs use two disks. For every moment, every image that the model allows is derived
//! in the slow way: from every subset of the sectors that may be lost. The explorer must make
//! exactly these. Would catch an impossible state (a false alarm), one that is missed, and one that
//! is counted twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use crate::disk::SECTOR;
use crate::explore::Pair;
use crate::history::History;
use crate::model::{CrashModel, Sectors};
use crate::run::{DiskRun, Event, Run, Write};
use crate::sample;

/// The number of sectors of each disk.
const SIZE: usize = 3;

/// The first byte of each sector of both disks.
type Image = [[u8; SIZE]; 2];

fn write(offset: usize, count: usize, byte: u8, fua: bool) -> Write {
    Write {
        id: 0,
        offset: (offset * SECTOR) as u64,
        data: vec![byte; count * SECTOR].into(),
        fua,
        name: String::new(),
        class: ordo_watcher::Class::Unknown,
    }
}

/// A random run: writes and flushes are issued, and complete in any order.
fn run(model: CrashModel) -> impl Strategy<Value = Run> {
    let range = (0..SIZE).prop_flat_map(|a| (Just(a), 1..=SIZE - a));
    let request = (0..2usize, range, any::<bool>(), 0..4u8, any::<prop::sample::Index>());
    prop::collection::vec(request, 1..7).prop_map(move |requests| {
        let base = Arc::new(vec![0; SIZE * SECTOR].into());
        let mut disks = vec![DiskRun { base, writes: vec![] }; 2];
        let mut events = Vec::new();
        let mut open: Vec<Event> = Vec::new();
        for (i, (disk, (offset, count), fua, kind, when)) in requests.into_iter().enumerate() {
            if kind == 0 {
                let id = i as u64;
                events.push(Event::FlushIssued { disk, id });
                open.push(Event::Flushed { disk, id });
            } else {
                // There are few different bytes, so that contents return.
                let byte = kind + (i as u8 % 2) * 4;
                disks[disk].writes.push(write(offset, count, byte, fua && kind == 1));
                let write = disks[disk].writes.len() - 1;
                events.push(Event::Issued { disk, write });
                // A write of two or more sectors may fail.
                open.push(match count > 1 && fua {
                    true => Event::Failed { disk, write },
                    false => Event::Completed { disk, write },
                });
            }
            // Some of the open requests complete.
            if kind != 3 {
                let at = when.index(open.len());
                events.push(open.remove(at));
            }
        }
        Run { model, unit: SECTOR, disks, events, history: Arc::new(History::default()) }
    })
}

/// Every image after a crash at `at`, derived in the slow way.
fn plainly(run: &Run, at: usize) -> BTreeSet<Image> {
    let (mut completed, mut flushes, mut durable) = (Vec::new(), Vec::new(), Vec::new());
    let (mut under_way, mut failed) = (Vec::new(), Vec::new());
    for event in &run.events[..at] {
        match *event {
            Event::Issued { disk, write } => under_way.push((disk, write)),
            Event::Completed { disk, write } => {
                under_way.retain(|w| *w != (disk, write));
                completed.push((disk, write));
                let fua = run.disks[disk].writes[write].fua;
                if run.model == CrashModel::Completed || (fua && run.model == CrashModel::Volatile)
                {
                    durable.push((disk, write));
                }
            }
            Event::Failed { disk, write } => {
                under_way.retain(|w| *w != (disk, write));
                completed.push((disk, write));
                failed.push((disk, write));
            }
            Event::FlushIssued { disk, id } => flushes.push((disk, id, completed.len())),
            Event::Flushed { disk, id } => {
                let flush = flushes.iter().find(|f| (f.0, f.1) == (disk, id)).unwrap();
                if run.model == CrashModel::Volatile {
                    let covered = completed[..flush.2].iter();
                    durable.extend(covered.filter(|w| w.0 == disk && !failed.contains(w)));
                }
            }
        }
    }
    if run.model == CrashModel::Prefix {
        // Completed writes are there. The next may be there, in part, if it was sent.
        durable.extend(completed.iter().filter(|w| !failed.contains(w)));
        let next = run.events[at..].iter().find_map(|e| match *e {
            Event::Completed { disk, write } => Some((disk, write)),
            _ => None,
        });
        under_way.retain(|w| Some(*w) == next);
    }
    let order: Vec<_> = completed.iter().chain(&under_way).copied().collect();
    // Each sector has its newest durable content, or any newer one.
    let mut images = BTreeSet::from([[[0; SIZE]; 2]]);
    for (disk, sector) in (0..2).flat_map(|d| (0..SIZE).map(move |s| (d, s))) {
        let covers = |w: &&(usize, usize)| {
            let write = &run.disks[w.0].writes[w.1];
            let first = write.offset as usize / SECTOR;
            w.0 == disk && (first..first + write.data.len() / SECTOR).contains(&sector)
        };
        let mut may = vec![0];
        for w in order.iter().filter(covers) {
            if durable.contains(w) {
                may.clear();
            }
            may.push(run.disks[w.0].writes[w.1].data[0]);
        }
        let mut wider = BTreeSet::new();
        for mut image in images {
            for byte in &may {
                image[disk][sector] = *byte;
                wider.insert(image);
            }
        }
        images = wider;
    }
    images
}

/// Every image that the explorer makes, the number of its states, and the number that it predicts.
fn explored(run: &Run) -> (BTreeSet<Image>, usize, f64) {
    let sectors = Sectors::new(Arc::new(run.clone()));
    let mut pair = Pair::new(&sectors);
    let (mut images, mut count, mut possible) = (BTreeSet::new(), 0, 0.0);
    for frontier in 0..sectors.ends.len() {
        let layout = pair.layout(&sectors, frontier);
        possible += layout.possible();
        let mut here = BTreeSet::new();
        for state in sample::states(&sectors, &layout, (1 << 20, &[]), 1) {
            let mut contents = pair.here.durable.clone();
            for (choice, option) in layout.choices.iter().zip(&state) {
                contents[choice.place as usize] = choice.options[usize::from(*option)];
            }
            let mut image = [[0; SIZE]; 2];
            for ((disk, sector), content) in sectors.places.iter().zip(contents) {
                image[*disk][*sector as usize] = sectors.content(content)[0];
            }
            assert!(here.insert(image), "a state of a frontier twice: {image:?}");
            count += 1;
        }
        images.extend(here);
    }
    (images, count, possible)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn exactly_the_states_of_the_model_are_explored(
        run in prop::sample::select(CrashModel::ALL.to_vec()).prop_flat_map(run)
    ) {
        let mut expected = BTreeSet::new();
        for at in 0..=run.events.len() {
            expected.extend(plainly(&run, at));
        }
        let (images, count, possible) = explored(&run);
        prop_assert_eq!(&images, &expected);
        prop_assert_eq!(count as f64, possible);
    }
}

/// Writes are told in the largest unit that the disk never tears, and of which all of them are
/// multiples. A write of a single sector makes that a sector. The contents are those of the run in
/// any unit.
///
/// Would catch a superblock that is torn at 512 bytes on a disk whose sectors have 4,096, and
/// memory for eight times as many pieces.
#[test]
fn units_are_as_large_as_disk_and_writes_allow() {
    let of = |writes: Vec<Write>, wanted| {
        let base = Arc::new(vec![0; 64 * SECTOR].into());
        let events = (0..writes.len()).map(|write| Event::Issued { disk: 0, write }).collect();
        let disks = vec![DiskRun { base, writes }];
        let (model, history) = (CrashModel::Volatile, Arc::new(History::default()));
        Sectors::with_unit(Arc::new(Run { model, unit: SECTOR, disks, events, history }), wanted)
    };
    let aligned = || vec![write(8, 16, 1, false), write(16, 8, 2, false), write(40, 8, 1, false)];
    let whole = of(aligned(), 4096);
    assert_eq!(whole.places, [(0, 8), (0, 16), (0, 40)]);
    let (_, second) = whole.pieces(0, 1)[0];
    assert_eq!(whole.content(second)[..], [2; 4096]);
    assert_eq!(whole.pieces(0, 0)[0].1, whole.pieces(0, 2)[0].1, "equal contents have one number");
    assert_eq!(of(aligned(), SECTOR).places.len(), 24);
    let single = || [aligned(), vec![write(3, 1, 9, false)]].concat();
    let cut = of(single(), 4096);
    assert_eq!((cut.places.len(), cut.places[0]), (25, (0, 3)));
    assert_eq!(cut.content(cut.pieces(0, 3)[0].1)[..], [9; SECTOR]);
}
