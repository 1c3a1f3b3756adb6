//! DualFS under the explorer: states of the product of both devices' caches.
//!
//! Fault model: completed is durable, and a volatile cache for each disk, torn at 512 bytes, both
//! devices on one disk or on one each. The search finds nothing where all rules hold, and something
//! where contents come late. (`forms.rs` has rules that take another form of the system or another
//! fault. A data device that is nearly full is in `crates/core/dualfs/tests/all`.)

use ordo_crash::FsGeometry;
use ordo_crash::mutants::Search;
use ordo_systems::{System, dualfs};

const SYSTEMS: [System; 2] = [dualfs::DUALFS, dualfs::DUALFS_2];

#[test]
fn no_geometry_has_findings() {
    let few = Search { states: 1500, ..Search::default() };
    for system in SYSTEMS {
        for name in ["4k-512", "8k-1k", "4k-512-groups"] {
            let shape = FsGeometry::by_name(name).unwrap();
            let sought = few.scheme(&system.crashed(None, &shape).unwrap(), &shape).unwrap();
            let what = format!("{}, {name}: {sought:?}", system.name());
            assert!(sought.states >= 1500 && sought.found.is_none(), "{what}");
        }
    }
}

/// Would catch an explorer that does not see the contents of the one device beside the metadata of
/// the other.
#[test]
fn contents_written_after_their_metadata_are_found() {
    let search = Search { states: 20_000, ..Search::default() };
    for system in SYSTEMS {
        for name in ["4k-512", "8k-1k"] {
            let shape = FsGeometry::by_name(name).unwrap();
            let mutant = system.crashed(None, &shape).unwrap().without("CONTENTS");
            let sought = search.scheme(&mutant, &shape).unwrap();
            assert!(sought.found.is_some(), "{}, {name}: {sought:?}", system.name());
        }
    }
}
