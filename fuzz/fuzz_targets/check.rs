//! Any image: a check ends, and one repair is enough.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ordo_fuzzing::check(data));
