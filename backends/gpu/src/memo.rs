//! What a run-time compiler made of texts, remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::CompileFailure;

/// What a compiler made of a text.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The machine code.
    pub image: Arc<[u8]>,
    /// What the compiler said, which may be nothing.
    pub log: String,
}

/// Most results that are remembered; then all are forgotten.
const CAPACITY: usize = 1024;

/// What was made of a text, once it was, by the one thread that has it locked.
type Place = Arc<Mutex<Option<Compiled>>>;

/// Remembers by text and architecture: plans that differ in sizes alone have the same text.
#[derive(Debug, Default)]
pub struct Memo(Mutex<HashMap<(String, String), Place>>);

impl Memo {
    /// What `compile` makes of the text for the architecture. Several threads may compile at once, but of one text and
    /// architecture a single one does, which the others wait for; failures are not remembered.
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
        let place = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= CAPACITY && !known.contains_key(&key) {
                known.clear();
            }
            Arc::clone(known.entry(key).or_default())
        };
        let mut compiled = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = &*compiled {
            return Ok(compiled.clone());
        }
        Ok(compiled.insert(compile(source, arch)?).clone())
    }
}
