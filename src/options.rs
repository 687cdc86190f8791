//! What a caller may choose at a compile.

/// Choices of the caller's at a compile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// The id of the only solver to be considered, such as `cpu.reference.v1`.
    pub solver: Option<String>,
    /// How a solver is chosen; if not given, as the environment variables `MIOPEN_FIND_MODE_FUSION` and
    /// `MIOPEN_FIND_MODE` say, else [`FindMode::Fast`].
    pub find: Option<FindMode>,
}

/// How a solver is chosen among those that take a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindMode {
    /// Estimates and the backend's order of preference decide; nothing is run.
    Fast,
    /// The first configurations of each are timed on memory of the device that is allocated for it (as much as the
    /// plan's tensors), and the fastest taken. What was found is stored on disk with the compiled kernels, and not
    /// timed again. Where timing is impossible, the same decides as with [`FindMode::Fast`].
    Normal,
}

impl CompileOptions {
    /// Only the solver with this id is considered.
    pub fn with_solver(mut self, id: impl Into<String>) -> Self {
        self.solver = Some(id.into());
        self
    }

    /// How a solver is chosen.
    pub fn with_find(mut self, mode: FindMode) -> Self {
        self.find = Some(mode);
        self
    }
}
