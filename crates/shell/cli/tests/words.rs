//! The unit tests of parts of the command that only parse and format text, without compiling all
//! its dependencies again.

#![allow(dead_code)]

#[path = "../src/commands/mount/helper.rs"]
mod helper;
#[path = "../src/commands/mount/options.rs"]
mod options;
#[path = "../src/commands/rotate.rs"]
mod rotate;
#[path = "../src/commands/place/sectors.rs"]
mod sectors;
#[path = "../src/text.rs"]
mod text;
#[path = "../src/commands/window.rs"]
mod window;
