//! Any pair of devices of a DualFS: mounting, reading, salvaging and checking end, and one repair
//! is enough.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ordo_fuzzing::dualfs(&ordo_fuzzing::dualfs_images(data)));
