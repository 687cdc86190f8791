//! What the operating system tells about the processor, with a portable answer where it does not.

use std::fs;
use std::num::NonZero;

use fuseplan_api::Variable;

/// The most threads that a device may have: more than any machine's, few enough to start.
pub(crate) const MAX_THREADS: usize = 1024;

/// The environment variable for the number of threads of a device opened without one: a whole number from
/// 1 to 1024. Any other value is ignored, which discovery notes.
pub(crate) const THREADS_VARIABLE: Variable = Variable::NUM_THREADS;

/// The number of threads to use where none is asked for, and a note where the environment's was ignored.
pub(crate) fn default_threads() -> (usize, Option<String>) {
    let available = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
    let Some(value) = THREADS_VARIABLE.lossy_text() else { return (available, None) };
    match threads_from(&value) {
        Some(threads) => (threads, None),
        None => {
            let note = format!(
                "{THREADS_VARIABLE}={value:?} is ignored: not a whole number from 1 to {MAX_THREADS}; using \
                 {available} threads"
            );
            (available, Some(note))
        }
    }
}

fn threads_from(value: &str) -> Option<usize> {
    value.trim().parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads))
}

/// The processor's name.
pub(crate) fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processor_from(&info).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

fn processor_from(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(k, v)| k.trim() == key && !v.trim().is_empty()).map(|(_, v)| v.trim().to_owned())
    };
    // ARM's kernel gives the maker's numbers only.
    value("model name").or_else(|| {
        Some(format!("ARM implementer {} part {}", value("CPU implementer")?, value("CPU part")?))
    })
}

/// Bytes of main memory, 0 where the system does not tell.
pub(crate) fn memory() -> u64 {
    fs::read_to_string("/proc/meminfo").ok().and_then(|info| memory_from(&info)).unwrap_or(0)
}

fn memory_from(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of a first-level data cache and of the largest cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caches {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// The caches of the first processor; 32 KiB and 32 MiB where the system does not tell.
pub(crate) fn caches() -> Caches {
    let mut caches = Caches { first: 0, last: 0 };
    for index in 0..8 {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            fs::read_to_string(path).map(|text| text.trim().to_owned()).ok()
        };
        let (Some(kind), Some(size)) = (read("type"), read("size").and_then(|s| size_from(&s))) else {
            continue;
        };
        if kind != "Instruction" {
            if read("level").as_deref() == Some("1") {
                caches.first = size;
            }
            caches.last = caches.last.max(size);
        }
    }
    let or = |size, fallback| if size == 0 { fallback } else { size };
    Caches { first: or(caches.first, 32 << 10), last: or(caches.last, 32 << 20) }
}

fn size_from(text: &str) -> Option<usize> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_are_whole_numbers_in_range() {
        assert_eq!(threads_from(" 4 "), Some(4));
        assert_eq!(threads_from("1024"), Some(1024));
        for nonsense in ["", "0", "-1", "1025", "two", "2.0", "99999999999999999999"] {
            assert_eq!(threads_from(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn processors_are_named_by_their_maker() {
        let intel =
            "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some(R) CPU @ 2.5GHz\nmodel name\t: other\n";
        assert_eq!(processor_from(intel).as_deref(), Some("Some(R) CPU @ 2.5GHz"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(processor_from(arm).as_deref(), Some("ARM implementer 0x41 part 0xd40"));
        assert_eq!(processor_from("model name :\n"), None);
        assert!(!processor().is_empty());
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(memory_from("MemFree: 1 kB\nMemTotal:       8024 kB\n"), Some(8024 << 10));
        assert_eq!(memory_from("MemTotal: lots\n"), None);
        assert_eq!(size_from("48K"), Some(48 << 10));
        assert_eq!(size_from("480M"), Some(480 << 20));
        assert_eq!(size_from("512"), Some(512));
        assert_eq!(size_from("K"), None);
        let Caches { first, last } = caches();
        assert!(first >= 1 << 10 && last >= first);
    }
}
