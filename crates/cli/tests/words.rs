//! The unit tests of the command's parts that know only words, without compiling all that it does once more.

#![allow(dead_code)]

#[path = "../src/commands/mount/helper.rs"]
mod helper;
#[path = "../src/commands/mount/options.rs"]
mod options;
#[path = "../src/text.rs"]
mod text;
