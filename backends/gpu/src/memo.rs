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

/// Remembers by text and architecture: plans that differ in sizes alone have the same text.
#[derive(Debug, Default)]
pub struct Memo(Mutex<HashMap<(String, String), Compiled>>);

impl Memo {
    /// What `compile` makes of the text for the architecture. Several threads may compile at once; failures are
    /// not remembered.
    ///
    /// # Errors
    /// What `compile` returns.
    pub fn get_or_compile(
        &self,
        source: &str,
        arch: &str,
        compile: impl FnOnce(&str, &str) -> Result<Compiled, CompileFailure>,
    ) -> Result<Compiled, CompileFailure> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (source.to_string(), arch.to_string());
        if let Some(compiled) = known().get(&key) {
            return Ok(compiled.clone());
        }
        let compiled = compile(source, arch)?;
        let mut known = known();
        if known.len() >= CAPACITY {
            known.clear();
        }
        Ok(known.entry(key).or_insert(compiled).clone())
    }
}
