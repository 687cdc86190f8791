//! The corpus of named cases, the oracle that judges them, and the runner that every backend is put through.
//!
//! A case is data (`tests/data/*.toml`) or drawn at random. It becomes a plan; every solver that takes the
//! plan runs it, each on its own, and each is judged by the same f64 oracle, never by another kernel. A
//! backend's test is one line: `fuseplan_suite::run("cpu")`.

pub mod case;
pub mod command;
pub mod corpus;
pub mod data;
mod difference;
#[cfg(unix)]
pub mod guard_pages;
pub mod image;
pub mod judge;
pub mod layout;
pub mod library;
pub mod number;
pub mod oracle;
pub mod process;
pub mod random;
pub mod sample;
mod share;
pub mod side_by_side;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, FormatSetting, Trial};

use library::Library;
use share::Share;

/// Runs every case of the corpus, then random cases, on a backend's first device; each is a test of its own.
///
/// Environment: `FUSEPLAN_TEST_SEED` (a number, 0 by default) draws other data and other random cases;
/// `FUSEPLAN_TEST_CASES` says how many of the latter; of all of them one in `FUSEPLAN_TEST_EVERY` runs, always
/// the same ones, and others with a `FUSEPLAN_TEST_OFFSET` below it: together they are all of them, for several
/// processes. `FUSEPLAN_TEST_SOLVERS=chosen` leaves out the solvers that a plan would not get. A backend
/// without a device is one ignored test, which says why, unless `REQUIRE_BACKEND` lists the backend: then it is
/// a failure.
pub fn run(backend: &str) -> ExitCode {
    if let Some(code) = process::child(backend) {
        return code;
    }
    let arguments = terse(Arguments::from_args());
    let trials = match Library::open(backend) {
        Ok(library) => trials(Arc::new(library)),
        Err(reason) => vec![missing(backend, backend, &reason)],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A dot a case, where nobody asked for certain ones.
fn terse(mut arguments: Arguments) -> Arguments {
    if arguments.filter.is_none() && !arguments.list {
        arguments.format.get_or_insert(FormatSetting::Terse);
    }
    arguments
}

/// The one test of a run named `run` without the device of a backend.
fn missing(backend: &str, run: &str, reason: &str) -> Trial {
    let required = std::env::var("REQUIRE_BACKEND").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == backend);
    println!("{backend} has no device here: {reason}");
    let failure = format!("REQUIRE_BACKEND names {backend}, which has no device here: {reason}");
    Trial::test(format!("{run}.device"), || Err(failure.into())).with_ignored_flag(!required)
}

fn trials(library: Arc<Library>) -> Vec<Trial> {
    let Share { seed, solvers, cases } = match Share::of_environment() {
        Ok(share) => share,
        Err(error) => return vec![Trial::test("corpus", || Err(error.into()))],
    };
    let trial = |case: case::Case| {
        let library = library.clone();
        Trial::test(case.id.clone(), move || judge::judge(&library, &case, seed, solvers).map_err(Into::into))
    };
    let mut trials: Vec<_> = cases.into_iter().map(trial).collect();
    if process::has_binaries(&library) {
        let can_start = process::can_start();
        if !can_start {
            println!("ignored: this program was started by a loader, which a second process would not be");
        }
        let trial = Trial::test("cache.second_process", || Ok(process::second_process()?));
        trials.push(trial.with_ignored_flag(!can_start));
    }
    trials
}

/// A number of a case's name, by which it is drawn: it depends on every letter, the same on every machine and in every version.
pub fn hash(text: &str) -> u64 {
    fuseplan_api::fnv1a(text.as_bytes())
}

/// The number in an environment variable.
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
