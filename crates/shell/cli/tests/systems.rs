//! Every command takes its systems from the registry, and lists them.
//!
//! Fault model: a command with a list of its own that lacks a new system.

use assert_cmd::Command;
use ordo_systems::{AnySystem, FORMATS, System, orderings};

/// The error of a command for an unknown name.
fn refused(args: &[&str]) -> String {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    assert!(!out.status.success(), "{args:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The names after "there are", up to the end of the line.
fn listed(text: &str) -> Vec<String> {
    let at = text.find("there are ").unwrap_or_else(|| panic!("no list of names: {text}"));
    let line = text[at + "there are ".len()..].lines().next().unwrap_or_default();
    line.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_list_of_systems_is_the_registrys() {
    let ours: Vec<&str> = System::runnable().map(|s| s.name()).collect();
    for command in [&["compare"][..], &["bench", "micro"], &["crash", "mutants"]] {
        let args = [command, &["--fs", "absentfs"]].concat();
        assert_eq!(listed(&refused(&args)), ours, "{command:?}");
    }
    let all: Vec<&str> = AnySystem::all().map(|s| s.name()).collect();
    assert!(all.starts_with(&ours) && all.len() > ours.len());
    assert_eq!(listed(&refused(&["crash", "--fs", "absentfs"])), all);
    let formats = FORMATS.iter().map(|f| f.name());
    let made: Vec<&str> = formats.chain(System::all().iter().map(|s| s.name())).collect();
    assert_eq!(listed(&refused(&["mkfs", "/absent", "--fs", "absentfs"])), made);
    let orderings: Vec<&str> = orderings().into_iter().map(|(first, _)| first).collect();
    let said = refused(&["mount", "/absent", "/", "-o", "ordering=nosuch"]);
    assert_eq!(listed(&said), orderings);
}

/// A system that can only be read is refused with its abilities, by every command that takes a
/// system.
#[test]
fn systems_that_cannot_run_are_refused_with_their_abilities() {
    for system in System::all().iter().filter(|s| !s.is_runnable()) {
        for command in [&["compare"][..], &["bench", "micro"], &["crash"], &["crash", "mutants"]] {
            let said = refused(&[command, &["--fs", system.name()]].concat());
            assert!(said.contains("which can be made, read"), "{command:?}: {said}");
        }
    }
}
