//! Whole kernels that are kept beside the files that they are made of, to be read, and to be opened in an editor.

use std::fmt::Debug;
use std::path::Path;
use std::{env, fs};

/// A kernel's whole text, behind a comment that says what it is.
pub(crate) fn example(package: &str, what: &str, launch: &dyn Debug, source: &str) -> String {
    format!(
        "// {what}\n// {launch:?}\n// Made by `UPDATE=1 cargo test -p {package} --test kernels`, which `cargo test` compares with \
         what is made now.\n\n{source}"
    )
}

/// Compares files with the sources in a folder `examples`, or writes them there with `UPDATE=1`.
pub(crate) fn compare(folder: &Path, examples: &[(String, String)]) {
    let update = env::var_os("UPDATE").is_some_and(|value| value == "1");
    for (name, text) in examples {
        let path = folder.join(name);
        if update {
            fs::write(&path, text).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        let line = kept.lines().zip(text.lines()).position(|(kept, made)| kept != made);
        let line = line.unwrap_or(kept.lines().count().min(text.lines().count())) + 1;
        assert!(kept == *text, "{} differs from line {line} on; UPDATE=1 writes it anew", path.display());
    }
    for file in fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_source = name.ends_with(".cu") || name.ends_with(".hip");
        assert!(
            !is_source || examples.iter().any(|(example, _)| *example == name),
            "nothing makes {name} any more"
        );
    }
}

/// The files of a folder of kernel text.
pub(crate) fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cuh") {
            let name = path.strip_prefix(folder.ancestors().nth(2).unwrap()).unwrap().display().to_string();
            files.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    files
}
