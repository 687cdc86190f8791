//! What environment variables mean to this crate.

use std::path::PathBuf;

use etcetera::BaseStrategy;
use fuseplan_api::Variable;

use crate::options::FindMode;

/// `FUSEPLAN_BACKEND`: the backend of [`Handle::new`](crate::Handle::new), if set and not empty.
pub(crate) fn backend() -> Option<String> {
    Variable::BACKEND.text().filter(|name| !name.is_empty())
}

/// The find mode of `MIOPEN_FIND_MODE_FUSION`, else of `MIOPEN_FIND_MODE`, by MIOpen's names and numbers;
/// `None` if neither says one. MIOpen's modes other than FAST time solvers; they differ in what they do
/// without a stored result, which is always used here.
pub(crate) fn find_mode() -> Option<FindMode> {
    let mode = |variable: Variable| variable.text().and_then(|value| mode_of(&value));
    mode(Variable::FIND_MODE_FUSION).or_else(|| mode(Variable::FIND_MODE))
}

fn mode_of(value: &str) -> Option<FindMode> {
    match value.to_ascii_uppercase().as_str() {
        "FAST" | "2" => Some(FindMode::Fast),
        "NORMAL" | "1" | "HYBRID" | "3" | "DYNAMIC_HYBRID" | "5" => Some(FindMode::Normal),
        "TRUST_VERIFY" | "6" | "TRUST_VERIFY_FULL" | "7" => Some(FindMode::Normal),
        _ => None,
    }
}

/// The directory of the on-disk cache: `MIOPEN_CUSTOM_CACHE_DIR`, else `fuseplan` in the user's directory
/// for caches; `None` where `MIOPEN_DISABLE_CACHE` says so or the user has no home.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    if is_set(Variable::DISABLE_CACHE) {
        return None;
    }
    Variable::CACHE_DIRECTORY
        .path()
        .or_else(|| Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("fuseplan")))
}

/// `FUSEPLAN_TRUST_CACHE_DIR`: whether `MIOPEN_CUSTOM_CACHE_DIR` is shared with others on purpose.
pub(crate) fn cache_directory_is_shared() -> bool {
    is_set(Variable::TRUST_CACHE_DIRECTORY) && Variable::CACHE_DIRECTORY.path().is_some()
}

/// `MIOPEN_LOG_LEVEL`, where it is a number.
pub(crate) fn log_level() -> Option<u32> {
    Variable::LOG_LEVEL.text()?.trim().parse().ok()
}

/// `MIOPEN_ENABLE_LOGGING`: whether calls of the C library are logged.
pub(crate) fn logs_calls() -> bool {
    is_set(Variable::ENABLE_LOGGING)
}

/// `MIOPEN_ENABLE_LOGGING_CMD`: whether the command that reproduces each plan is logged.
pub(crate) fn logs_commands() -> bool {
    is_set(Variable::ENABLE_LOGGING_CMD)
}

/// `FUSEPLAN_LOG_JSON`: whether lines of the log are JSON.
pub(crate) fn logs_json() -> bool {
    is_set(Variable::LOG_JSON)
}

/// `FUSEPLAN_RANGES`: whether compiles and executions are ranges in a profiler's timeline.
pub(crate) fn wants_ranges() -> bool {
    is_set(Variable::RANGES)
}

/// Whether a variable has one of the values that MIOpen takes for yes.
fn is_set(variable: Variable) -> bool {
    variable.text().is_some_and(|value| is_yes(&value))
}

fn is_yes(value: &str) -> bool {
    ["1", "on", "yes", "true", "enable", "enabled"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use crate::options::FindMode;

    #[test]
    fn find_modes_have_miopens_names_and_numbers() {
        for normal in ["NORMAL", "1", "normal", "3", "DYNAMIC_HYBRID", "7"] {
            assert_eq!(super::mode_of(normal), Some(FindMode::Normal), "{normal}");
        }
        assert_eq!(super::mode_of("fast"), Some(FindMode::Fast));
        assert_eq!(super::mode_of("2"), Some(FindMode::Fast));
        assert_eq!((super::mode_of(""), super::mode_of("4"), super::mode_of("quick")), (None, None, None));
    }

    #[test]
    fn miopens_words_for_yes() {
        for yes in ["1", "on", "ON", "yes", "True", "enable", "ENABLED"] {
            assert!(super::is_yes(yes), "{yes}");
        }
        for no in ["", "0", "off", "no", "false", "disable", "disabled", "2", "y"] {
            assert!(!super::is_yes(no), "{no}");
        }
    }
}
