//! The `ordo` command.

fn main() {}
