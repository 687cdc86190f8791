//! Running the command and taking its answers apart.

use std::process::Command;

use serde_json::Value;

/// What a run of the command left behind.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `fuseplan` with the words of `line`, in an environment of its own, on the CPU.
pub(crate) fn fuseplan(line: &str) -> Run {
    fuseplan_with(line, &[])
}

/// The same with environment variables.
pub(crate) fn fuseplan_with(line: &str, variables: &[(&str, &str)]) -> Run {
    fuseplan_of(&line.split_whitespace().collect::<Vec<_>>(), variables)
}

/// The same with words that may have spaces.
pub(crate) fn fuseplan_of(words: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseplan"));
    for variable in [
        "MIOPEN_DEBUG_DRIVER_PRNG_SEED",
        "MIOPEN_FIND_MODE_FUSION",
        "MIOPEN_FIND_MODE",
        "MIOPEN_LOG_LEVEL",
        "MIOPEN_ENABLE_LOGGING",
        "MIOPEN_ENABLE_LOGGING_CMD",
        "FUSEPLAN_LOG_JSON",
        "FUSEPLAN_RANGES",
    ] {
        command.env_remove(variable);
    }
    command.env("FUSEPLAN_BACKEND", "cpu");
    command.envs(variables.iter().copied()).args(words);
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    /// The objects on standard output, which holds nothing else; each has the schema and a kind.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let objects: Vec<Value> = self
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect();
        for object in &objects {
            assert_eq!(object["schema"], 1, "{object}");
            assert!(object["kind"].is_string(), "{object}");
        }
        objects
    }

    /// Standard output with every number that depends on the machine replaced: times and errors.
    pub(crate) fn form(&self) -> String {
        let number = |word: &str| word.contains('.') && word.parse::<f64>().is_ok_and(f64::is_finite);
        let line = |line: &str| {
            if let Some((text, _)) = line.split_once('(').filter(|(text, _)| text.contains("Verifies")) {
                return format!("{text}(#)");
            }
            line.split(' ').map(|word| if number(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
        };
        self.stdout.lines().map(|l| line(l) + "\n").collect()
    }
}
