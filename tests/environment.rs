//! `docs/environment.md` explains the variables that are read and no others, and one file reads them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuseplan_api::Variable;

/// The sources of everything that is published.
const ROOMS: [&str; 9] = [
    "src",
    "capi/src",
    "driver/src",
    "backends/api/src",
    "backends/cpu/src",
    "backends/gpu/src",
    "backends/cuda/src",
    "backends/hip-sys/src",
    "backends/rocm/src",
];

/// Every source of a folder, without its tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            let text = fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]\nmod ").next().unwrap().to_owned();
            found.push((path, product));
        }
    }
    found
}

fn every_source() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found: Vec<_> = ROOMS.iter().flat_map(|room| sources(&root.join(room))).collect();
    assert!(found.len() > 100, "{} sources", found.len());
    found
}

#[test]
fn the_documentation_explains_every_variable_and_no_other() {
    let mut read: BTreeSet<String> = Variable::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(read.len(), Variable::ALL.len(), "one of them is listed twice");
    // The command's flags may name the variable that stands in for them.
    for (_, text) in every_source() {
        read.extend(text.split("env = \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    let page = include_str!("../docs/environment.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let documented: BTreeSet<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(String::from).collect();
    assert_eq!(documented, read);
}

#[test]
fn one_file_reads_the_environment() {
    for (path, text) in every_source() {
        let reads = text.contains("env::var") || text.contains("getenv");
        assert_eq!(reads, path.ends_with("backends/api/src/environment.rs"), "{}", path.display());
    }
}
