//! `ordo reproduce` as a user runs it.
//!
//! The items have published sizes, and so take long. These tests run the short ones. They would
//! catch figures that are neither measured nor explained, JSON without the promised keys, output
//! wider than a terminal.

use assert_cmd::Command;
use serde_json::Value;

fn ordo(args: &[&str]) -> (String, String, Option<i32>) {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code())
}

/// Table 2 of the journaling paper: crash states show what each system may lose, and the paper
/// agrees.
#[test]
fn the_table_of_guarantees_is_reproduced() {
    let item = ["reproduce", "journaling-vs-soft-updates", "semantics"];
    let (table, _, code) = ordo(&item);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(table.contains("properties: the same in 43 of 43"), "{table}");
    assert!(!table.contains("measurements"), "properties are no measurements: {table}");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let (rows, _, _) = ordo(&[&item[..], &["--json", "--html", page.to_str().unwrap()]].concat());
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let rows = rows["rows"].as_array().unwrap();
    for key in
        ["paper", "item", "system", "quantity", "published", "measured", "same_winner", "kind"]
    {
        assert!(rows.iter().all(|row| row.get(key).is_some()), "{key}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("class=\"later\" style=\"width").count(), rows.len(), "published");
    assert_eq!(page.matches("same winner</div>").count(), rows.len(), "{page}");
    assert!(!page.contains("ANOTHER") && page.contains("<h3>synchronous metadata</h3>"), "{page}");
    let differ: Vec<_> = rows.iter().filter(|row| row["same_winner"] != true).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn unknown_papers_and_items_are_named() {
    let (_, said, code) = ordo(&["reproduce", "soft-updates", "no-such-item"]);
    assert!(code != Some(0) && said.contains("ordo reproduce --list"), "{said}");
    let (list, _, _) = ordo(&["reproduce", "--list"]);
    assert!(list.contains("journaling-vs-soft-updates netnews"), "{list}");
    assert!(list.contains("the computing of the programs of ssh-build"), "{list}");
    assert!(list.contains("it describes the machine; the model `cheetah` has its disk"), "{list}");
}
