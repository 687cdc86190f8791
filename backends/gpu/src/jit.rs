//! Solvers whose kernels are compiled at run time.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use fuseplan_api::{
    Algorithm, Binary, BuildError, Constraint, Device, DeviceInfo, Executable, ExecutableInfo, Problem,
    RawStream, RunArgs, RunError, Solver,
};

use crate::arguments::{MAX_WORDS, pack};
use crate::{CompileFailure, Function, Geometry, Kernel, Runtime, binary};

/// A solver: constraints, and a plan for the problems that meet them.
pub struct JitSolver<R> {
    id: &'static str,
    algorithm: Algorithm,
    constraints: &'static [Constraint],
    plan: fn(&Problem, &str) -> Kernel,
    runtime: PhantomData<fn() -> R>,
}

impl<R: Runtime> JitSolver<R> {
    /// A solver that plans with `plan`, given an architecture. The plan depends on nothing else, so that a
    /// binary compiled for an architecture fits every device of it.
    pub const fn new(
        id: &'static str,
        algorithm: Algorithm,
        constraints: &'static [Constraint],
        plan: fn(&Problem, &str) -> Kernel,
    ) -> Self {
        JitSolver { id, algorithm, constraints, plan, runtime: PhantomData }
    }
}

/// A solver whose kernels can be had without compiling them.
pub trait Planner: Solver {
    /// The kernel for a problem that meets the constraints.
    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel;
}

impl<R: Runtime> Planner for JitSolver<R> {
    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        let mut kernel = (self.plan)(problem, arch);
        if let Some(estimate) = R::estimate(self.id, problem, arch) {
            kernel.detail = format!("{}; {estimate}", kernel.detail);
        }
        kernel
    }
}

/// Planners as the solvers that they are.
pub const fn upcast<const N: usize>(planners: [&'static dyn Planner; N]) -> [&'static dyn Solver; N] {
    let mut solvers: [&'static dyn Solver; N] = [planners[0]; N];
    let mut i = 1;
    while i < N {
        solvers[i] = planners[i];
        i += 1;
    }
    solvers
}

impl<R> fmt::Debug for JitSolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JitSolver({})", self.id)
    }
}

impl<R: Runtime> Solver for JitSolver<R> {
    fn id(&self) -> &'static str {
        self.id
    }

    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    fn constraints(&self) -> &'static [Constraint] {
        self.constraints
    }

    fn cache_key(&self, problem: &Problem, target: &DeviceInfo) -> Option<Vec<u8>> {
        Some(binary::cache_key(&self.kernel(problem, &target.arch).source))
    }

    fn compile(&self, problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
        let kernel = self.kernel(problem, &target.arch);
        let image = compile::<R>(self.id, &kernel.source, &target.arch)?;
        Ok(binary::seal(self.id, &target.arch, &kernel.source, &image))
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let arch = &device.info().arch;
        let kernel = self.kernel(problem, arch);
        let image = binary::open(self.id, arch, &kernel.source, binary)?;
        let (function, info) = load::<R>(self.id, self.algorithm, &**device, &kernel, image)?;
        Ok(Arc::new(JitExecutable { info, function, geometry: kernel.geometry, sizes: kernel.sizes }))
    }
}

/// Compiles a solver's text.
///
/// # Errors
/// The compiler is missing, or refuses the text.
pub fn compile<R: Runtime>(solver: &'static str, text: &str, arch: &str) -> Result<Arc<[u8]>, BuildError> {
    R::compile(text, arch).map_err(|failure| match failure {
        CompileFailure::Backend(error) => BuildError::Backend(error),
        CompileFailure::Log(log) => BuildError::Compiler { solver, log },
    })
}

/// Loads a solver's kernel, of which `compile` made the image, and says what is known of it.
///
/// # Errors
/// A device of another backend; the driver refuses.
pub fn load<R: Runtime>(
    solver: &'static str,
    algorithm: Algorithm,
    device: &dyn Device,
    kernel: &Kernel,
    image: &[u8],
) -> Result<(R::Function, ExecutableInfo), BuildError> {
    let function = R::load(device, image, &kernel.geometry)?;
    let (detail, resources) = (kernel.detail.clone(), Some(function.resources()));
    Ok((function, ExecutableInfo { solver, algorithm, kernels: 1, workspace: 0, detail, resources }))
}

#[derive(Debug)]
struct JitExecutable<F> {
    info: ExecutableInfo,
    function: F,
    geometry: Geometry,
    sizes: Vec<i64>,
}

impl<F: Function> Executable for JitExecutable<F> {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let mut words = [0; MAX_WORDS];
        let count = pack(args, &self.sizes, &mut words);
        // SAFETY: these are the arguments of this kernel's text; the caller keeps what `RunArgs` promises.
        Ok(unsafe { self.function.launch(stream, &self.geometry, &words[..count]) }?)
    }
}

#[cfg(test)]
mod tests;
