//! The first process of a guest, for tests of this crate; elsewhere it is `ordo` itself.

fn main() -> std::io::Result<()> {
    ordo_guest::init::first_process()
}
