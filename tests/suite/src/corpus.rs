//! The corpus: the files of `tests/data`, one list of cases each.

use std::path::{Path, PathBuf};

use fuseplan::DataType;
use serde::Deserialize;

use crate::case::{self, Case, OpSpec, Refused, Statistics};
use crate::layout::Layout;

/// A file of the corpus.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Entry>,
}

/// An entry of a file; stands for a case in each of its types, layouts and orders.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Stable and unique in its file.
    id: String,
    /// Names of data types.
    #[serde(default = "types")]
    types: Vec<String>,
    /// Layouts of the input; the packed ones where left out.
    layouts: Option<Vec<Layout>>,
    input: Vec<usize>,
    #[serde(default)]
    ops: Vec<OpSpec>,
    /// Operators that are appended in every order of up to so many, repetitions included.
    orders: Option<Orders>,
    #[serde(default)]
    alpha: Vec<f32>,
    #[serde(default)]
    beta: f32,
    #[serde(default = "epsilon")]
    epsilon: f64,
    statistics: Option<Statistics>,
    #[serde(default)]
    in_place: bool,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    for_device: bool,
    refused: Option<Refused>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Orders {
    of: Vec<OpSpec>,
    up_to: usize,
}

fn types() -> Vec<String> {
    [DataType::Float, DataType::Half, DataType::BFloat16].iter().map(ToString::to_string).collect()
}

fn epsilon() -> f64 {
    1e-5
}

/// Every case of the corpus, from the folder that `FUSEPLAN_TEST_DATA` names, or else from the tree that this was
/// built in.
///
/// # Errors
/// Files that cannot be read, with the file and the place in it; ids that are not unique.
pub fn load() -> Result<Vec<Case>, String> {
    let named = std::env::var_os("FUSEPLAN_TEST_DATA").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../data"));
    let listing = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = listing.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: File = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for entry in file.case {
            let id = format!("{name}.{}", entry.id);
            entry.expand(&id, &mut cases).map_err(|error| format!("{}: {id}: {error}", path.display()))?;
        }
    }
    let mut ids: Vec<_> = cases.iter().map(|case| case.id.as_str()).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(format!("two cases have the id {}", twice[0])),
        None => Ok(cases),
    }
}

impl Entry {
    fn expand(&self, id: &str, cases: &mut Vec<Case>) -> Result<(), String> {
        let packed = || {
            let names: &[&str] = if self.input.len() == 5 { &["ncdhw", "ndhwc"] } else { &["nchw", "nhwc"] };
            names.iter().map(|name| Layout::named(name)).collect()
        };
        let layouts = self.layouts.clone().unwrap_or_else(packed);
        for (suffix, ops) in self.sequences() {
            for name in &self.types {
                let data_type = case::data_type(name)?;
                for layout in &layouts {
                    let mut alpha = self.alpha.clone();
                    alpha.resize(ops.len(), 1.0);
                    cases.push(Case {
                        id: format!("{id}{suffix}.{data_type}.{}", layout.name()),
                        data_type,
                        layout: layout.clone(),
                        input: self.input.clone(),
                        ops: ops.clone(),
                        alpha,
                        beta: self.beta,
                        epsilon: self.epsilon,
                        statistics: self.statistics,
                        in_place: self.in_place,
                        special: self.special,
                        for_device: self.for_device,
                        refused: self.refused.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The operators of each case, with what they add to the id.
    fn sequences(&self) -> Vec<(String, Vec<OpSpec>)> {
        let Some(Orders { of, up_to }) = &self.orders else {
            return vec![(String::new(), self.ops.clone())];
        };
        let mut longest = vec![(String::from("."), self.ops.clone())];
        let mut all = Vec::new();
        for _ in 0..*up_to {
            let longer = longest.iter().flat_map(|(name, ops)| {
                of.iter().map(move |op| {
                    let ops = ops.iter().chain([op]).cloned().collect();
                    (format!("{name}{}", letter(op)), ops)
                })
            });
            longest = longer.collect();
            all.extend(longest.iter().cloned());
        }
        all
    }
}

fn letter(op: &OpSpec) -> char {
    match op {
        OpSpec::Conv(_) => 'c',
        OpSpec::Bias(_) => 'b',
        OpSpec::Residual(_) => 'r',
        OpSpec::PRelu(_) => 'p',
        OpSpec::BatchNorm(_) => 'n',
        OpSpec::Activation(_) => 'a',
        OpSpec::BatchNormForward(_) => 'f',
        OpSpec::BatchNormBackward(_) => 'g',
        OpSpec::ActivationBackward(_) => 'h',
    }
}
