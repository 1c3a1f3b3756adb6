//! Any image: mounting and reading everything ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ordo_fuzzing::mount(data));
