//! Which cases a process takes, and a program in several processes.

use std::io::Result;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use crate::case::Case;
use crate::judge::Solvers;
use crate::{corpus, hash, number, random};

/// Random cases of a run, if `FUSEPLAN_TEST_CASES` does not say otherwise.
const RANDOM_CASES: u64 = 1_000;

/// In the environment of one of several processes: the file that its findings go to.
const FINDINGS: &str = "FUSEPLAN_TEST_FINDINGS";

/// The cases of this process and how they are to be put, as the environment says.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) seed: u64,
    pub(crate) solvers: Solvers,
    pub(crate) cases: Vec<Case>,
}

impl Share {
    /// The corpus, then random cases; of both those that are this process's.
    pub(crate) fn of_environment() -> std::result::Result<Self, String> {
        let seed = number("FUSEPLAN_TEST_SEED", 0);
        let random = number("FUSEPLAN_TEST_CASES", RANDOM_CASES) as usize;
        let (every, offset) = part();
        let mut cases = corpus::load()?;
        cases.extend((0..random).map(|number| random::case(seed, number)));
        cases.retain(|case| hash(&case.id) % every == offset);
        let chosen = env::var("FUSEPLAN_TEST_SOLVERS").is_ok_and(|solvers| solvers == "chosen");
        Ok(Share { seed, solvers: if chosen { Solvers::Chosen } else { Solvers::All }, cases })
    }
}

/// One case in how many is taken, and which of them.
fn part() -> (u64, u64) {
    let every = number("FUSEPLAN_TEST_EVERY", 1).max(1);
    (every, number("FUSEPLAN_TEST_OFFSET", 0) % every)
}

/// The file for this process's findings, if it is one of several.
pub(crate) fn findings_file() -> Option<PathBuf> {
    env::var_os(FINDINGS).map(PathBuf::from)
}

/// Runs this program with its arguments in `FUSEPLAN_TEST_PROCESSES` processes, which share its cases: compilers of
/// kernels lock what they need, so threads of one process wait for each other. The text that each left in its
/// [`findings_file`], and whether all succeeded; `None` if one process is to do everything, which is the default.
pub(crate) fn in_processes() -> Result<Option<(Vec<String>, bool)>> {
    let count = number("FUSEPLAN_TEST_PROCESSES", 1);
    if count < 2 || findings_file().is_some() {
        return Ok(None);
    }
    let (every, offset) = part();
    let start = |i: u64| {
        let file = env::temp_dir().join(format!("fuseplan-findings-{}-{i}", std::process::id()));
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1)).env(FINDINGS, &file);
        command.env("FUSEPLAN_TEST_EVERY", (every * count).to_string());
        command.env("FUSEPLAN_TEST_OFFSET", (offset + every * i).to_string());
        Ok((file, command.spawn()?))
    };
    let children = (0..count).map(start).collect::<Result<Vec<_>>>()?;
    let (mut texts, mut succeeded) = (Vec::new(), true);
    for (file, mut child) in children {
        succeeded &= child.wait()?.success();
        // A process that died left none.
        texts.extend(fs::read_to_string(&file));
        fs::remove_file(&file).or_else(|error| if succeeded { Err(error) } else { Ok(()) })?;
    }
    Ok(Some((texts, succeeded)))
}
