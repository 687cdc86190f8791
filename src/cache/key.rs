//! What a stored binary is found by.

use fuseplan_api::{Configuration, DeviceInfo, Problem, Solver};

use super::format;

/// In place of a solver's id in stored times.
const FIND: &str = "find";

/// Everything that decides what is in a binary. Binaries of equal subjects can stand for one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// This crate's version: the arguments that a kernel takes may change with it.
    pub(crate) version: String,
    /// The solver's id; [`FIND`] of stored times.
    pub(crate) solver: String,
    /// The architecture.
    pub(crate) arch: String,
    /// The compiler; empty where there is none, and what any of them made has to do.
    pub(crate) toolchain: String,
    /// In the cache a hash of [`Solver::cache_key`]; in exported bytes the problem, for people to read.
    pub(crate) content: Vec<u8>,
}

impl Subject {
    fn new(solver: &dyn Solver, target: &DeviceInfo, content: Vec<u8>) -> Self {
        Subject {
            version: env!("CARGO_PKG_VERSION").into(),
            solver: solver.id().into(),
            arch: target.arch.clone(),
            toolchain: target.toolchain.clone(),
            content,
        }
    }

    /// The subject of a cache entry; `None` where the solver has nothing worth storing.
    pub(crate) fn stored(
        solver: &dyn Solver,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Option<Self> {
        let content = solver.cache_key(problem, target, configuration)?;
        Some(Self::new(solver, target, blake3::hash(&content).as_bytes().to_vec()))
    }

    /// The subject of times on a device: what decides them is the problem, the device itself and not only its
    /// architecture, and what was timed, in words.
    pub(crate) fn found(device: &DeviceInfo, problem: &Problem, timed: &str) -> Self {
        let DeviceInfo { name, compute_units, .. } = device;
        let content = format!("{name}\n{compute_units}\n{timed}{}", problem.key());
        Subject {
            version: env!("CARGO_PKG_VERSION").into(),
            solver: FIND.into(),
            arch: device.arch.clone(),
            toolchain: device.toolchain.clone(),
            content: blake3::hash(content.as_bytes()).as_bytes().to_vec(),
        }
    }

    /// The subject of exported bytes.
    pub(crate) fn exported(solver: &dyn Solver, problem: &Problem, target: &DeviceInfo) -> Self {
        Self::new(solver, target, problem.key().into_bytes())
    }

    /// The name of the entry: a hash of the format's version and of every field but the compiler, with its
    /// length, so that no two subjects share it. What another compiler made is found, and replaced.
    pub(crate) fn key(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&format::VERSION.to_le_bytes());
        hasher.update(&format::fields(&Subject { toolchain: String::new(), ..self.clone() }));
        hasher.finalize()
    }

    /// The name of the lock of everybody who makes such an entry. Some thousand names suffice for entries that are made at once, of
    /// which two seldom have one lock then, and so lock files never need to be removed. Who times solvers has them compiled before,
    /// and keeps nobody from compiling meanwhile.
    pub(super) fn lock(&self) -> String {
        let kind = if self.solver == FIND { "find-" } else { "" };
        format!("{kind}{}.lock", &self.key().to_hex()[..3])
    }

    /// Whether a binary that was stored as this one is what `asked` asks for.
    pub(super) fn serves(&self, asked: &Subject) -> bool {
        let toolchain = if asked.toolchain.is_empty() { &asked.toolchain } else { &self.toolchain };
        *asked == Subject { toolchain: toolchain.clone(), ..self.clone() }
    }
}
