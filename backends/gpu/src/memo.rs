//! What a run-time compiler made of texts, remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::CompileFailure;

/// What a compiler made of a text.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The machine code.
    pub image: Arc<[u8]>,
    /// What the compiler said, which may be nothing.
    pub log: String,
}

/// Most results that are remembered; then all are forgotten but those that a thread asks for.
const CAPACITY: usize = 1024;

/// A text and an architecture.
type Key = (String, String);

/// What was made of a text, once it was, by the one thread that has it locked.
type Place = Arc<Mutex<Option<Compiled>>>;

/// Remembers by text and architecture: plans that differ in sizes alone have the same text.
#[derive(Debug, Default)]
pub struct Memo(Mutex<HashMap<Key, Place>>);

impl Memo {
    /// What `compile` makes of the text for the architecture. Several threads may compile at once, but of one text and
    /// architecture a single one does, which the others wait for. Failures and panics are not remembered: each thread
    /// that waited for one tries by itself, one after the other.
    ///
    /// # Errors
    /// What `compile` returns.
    pub fn get_or_compile(
        &self,
        source: &str,
        arch: &str,
        compile: impl FnOnce(&str, &str) -> Result<Compiled, CompileFailure>,
    ) -> Result<Compiled, CompileFailure> {
        let key = (source.to_string(), arch.to_string());
        // Dropped last, when this thread holds the place no longer.
        let _asked = Asked { memo: self, key: &key };
        let place = self.place(&key);
        let mut compiled = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = &*compiled {
            return Ok(compiled.clone());
        }
        Ok(compiled.insert(compile(source, arch)?).clone())
    }

    /// That of a key, which is kept for as long as it is held.
    fn place(&self, key: &Key) -> Place {
        let mut known = self.known();
        if let Some(place) = known.get(key) {
            return Arc::clone(place);
        }
        if known.len() >= CAPACITY {
            // Places are handed out by this lock alone, so what nobody holds nobody fills.
            known.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(known.entry(key.clone()).or_default())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a key behind the last thread that asked for it, where none has filled its place.
struct Asked<'a> {
    memo: &'a Memo,
    key: &'a Key,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut known = self.memo.known();
        let unheld = known.get_mut(self.key).and_then(Arc::get_mut);
        if unheld.is_some_and(|place| place.get_mut().unwrap_or_else(PoisonError::into_inner).is_none()) {
            known.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[expect(clippy::unnecessary_wraps)]
    fn compiled(source: &str, _: &str) -> Result<Compiled, CompileFailure> {
        Ok(Compiled { image: source.as_bytes().into(), log: String::new() })
    }

    fn failed(source: &str, _: &str) -> Result<Compiled, CompileFailure> {
        Err(CompileFailure::Log(format!("{source} is no text")))
    }

    /// What two threads get that ask for a text at once, and how often it is compiled.
    fn by_two(
        memo: &Memo,
        compile: fn(&str, &str) -> Result<Compiled, CompileFailure>,
    ) -> ([Result<Compiled, CompileFailure>; 2], usize) {
        let (barrier, times) = (Barrier::new(2), AtomicUsize::new(0));
        let ask = || {
            barrier.wait();
            memo.get_or_compile("text", "arch", |source, arch| {
                times.fetch_add(1, Ordering::Relaxed);
                // Long enough for the other to ask as well.
                thread::sleep(Duration::from_millis(50));
                compile(source, arch)
            })
        };
        let found =
            thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|thread| thread.join().unwrap()));
        (found, times.into_inner())
    }

    #[test]
    fn a_text_is_compiled_once_by_two_threads() {
        let memo = Memo::default();
        let (found, times) = by_two(&memo, compiled);
        assert!(found.iter().all(|found| *found.as_ref().unwrap().image == *b"text"));
        assert_eq!(times, 1);
        // For another architecture it is another.
        let other = memo.get_or_compile("text", "other", failed);
        assert!(other.is_err());
        assert_eq!(memo.known().len(), 1);
    }

    #[test]
    fn each_of_two_threads_tries_what_fails_and_nothing_is_left() {
        let memo = Memo::default();
        let (found, times) = by_two(&memo, failed);
        assert!(found.iter().all(Result::is_err));
        assert_eq!(times, 2);
        assert!(memo.known().is_empty());
        memo.get_or_compile("text", "arch", compiled).unwrap();
        memo.get_or_compile("text", "arch", failed).unwrap();
    }

    #[test]
    fn a_panic_is_not_remembered() {
        let memo = Memo::default();
        let panics = || memo.get_or_compile("text", "arch", |_, _| panic!("a compiler's"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(memo.known().is_empty());
        memo.get_or_compile("text", "arch", compiled).unwrap();
        memo.get_or_compile("text", "arch", failed).unwrap();
    }

    #[test]
    fn beyond_the_capacity_only_what_is_asked_for_is_kept() {
        let memo = Memo::default();
        for text in 1..CAPACITY {
            memo.get_or_compile(&text.to_string(), "arch", compiled).unwrap();
        }
        let with_another = |source: &str, arch: &str| {
            assert_eq!(memo.known().len(), CAPACITY);
            memo.get_or_compile("another", "arch", compiled)?;
            assert_eq!(memo.known().len(), 2);
            compiled(source, arch)
        };
        memo.get_or_compile("last", "arch", with_another).unwrap();
        memo.get_or_compile("last", "arch", failed).unwrap();
        memo.get_or_compile("another", "arch", failed).unwrap();
        assert!(memo.get_or_compile("1", "arch", failed).is_err());
        assert_eq!(memo.known().len(), 2);
    }
}
