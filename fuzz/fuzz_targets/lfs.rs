//! Any LFS: mounting, reading and checking end, and one repair is enough.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ordo_fuzzing::lfs(&ordo_fuzzing::lfs_image(data)));
