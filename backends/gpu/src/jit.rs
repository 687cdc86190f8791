//! Solvers whose kernels are compiled at run time.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, BackendError, Binary, BuildError, Candidate, Configuration, Constraint, Device,
    DeviceInfo, Estimate, Executable, ExecutableInfo, Preference, Problem, RawStream, RunArgs, RunError,
    Solver,
};

use crate::arguments::{ArgumentLayout, MAX_WORDS};
use crate::kernel::SCRATCH_WORDS;
use crate::{CompileFailure, Driver, Function, Geometry, GpuDevice, Kernel, Runtime, binary};

/// A solver: what it can compute, and the kernels with which it does.
pub struct JitSolver<R> {
    id: &'static str,
    algorithm: Algorithm,
    constraints: &'static [Constraint],
    preferences: &'static [Preference],
    accuracy: fn(&Problem) -> Accuracy,
    kernels: Kernels,
    runtime: PhantomData<fn() -> R>,
}

/// The kernels with which a solver computes a problem on an architecture. They depend on nothing else, so that a
/// binary compiled for an architecture fits every device of it.
#[derive(Debug, Clone, Copy)]
pub enum Kernels {
    /// One configuration.
    One(fn(&Problem, &str) -> Kernel),
    /// Several, each with the estimate of a model.
    Several {
        /// The configurations, that of the smallest estimate first.
        configurations: fn(&Problem, &str) -> Vec<(Configuration, Estimate)>,
        /// The kernel of one of them; `None` for others.
        kernel: fn(&Problem, &str, &Configuration) -> Option<Kernel>,
    },
}

impl<R: Runtime> JitSolver<R> {
    /// A solver with these kernels, whose products are exact and whose place in the backend's order is meant for all
    /// problems that it can compute.
    pub const fn new(
        id: &'static str,
        algorithm: Algorithm,
        constraints: &'static [Constraint],
        kernels: Kernels,
    ) -> Self {
        let accuracy = |_: &Problem| Accuracy::Exact;
        JitSolver { id, algorithm, constraints, preferences: &[], accuracy, kernels, runtime: PhantomData }
    }

    /// This solver, preferred only for some problems.
    pub const fn with_preferences(mut self, preferences: &'static [Preference]) -> Self {
        self.preferences = preferences;
        self
    }

    /// This solver with products of this error class.
    pub const fn with_accuracy(mut self, accuracy: fn(&Problem) -> Accuracy) -> Self {
        self.accuracy = accuracy;
        self
    }

    fn try_kernel(
        &self,
        problem: &Problem,
        arch: &str,
        configuration: &Configuration,
    ) -> Result<Kernel, BuildError> {
        let kernel = self.kernel_in(problem, arch, configuration);
        kernel.ok_or_else(|| no_configuration(self.id, configuration))
    }
}

/// The error of a configuration that is none of a problem's.
pub fn no_configuration(solver: &'static str, configuration: &Configuration) -> BuildError {
    BuildError::Configuration { solver, configuration: configuration.to_string() }
}

/// A solver whose kernels can be had without compiling them.
pub trait Planner: Solver {
    /// The kernel for a problem that meets the constraints, in one of its configurations; `None` for others.
    fn kernel_in(&self, problem: &Problem, arch: &str, configuration: &Configuration) -> Option<Kernel>;

    /// The kernel of the smallest estimate for a problem that meets the constraints.
    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel;
}

impl<R: Runtime> Planner for JitSolver<R> {
    fn kernel_in(&self, problem: &Problem, arch: &str, configuration: &Configuration) -> Option<Kernel> {
        match self.kernels {
            Kernels::One(kernel) => configuration.as_str().is_empty().then(|| kernel(problem, arch)),
            Kernels::Several { kernel, .. } => kernel(problem, arch, configuration),
        }
    }

    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        match self.kernels {
            Kernels::One(kernel) => kernel(problem, arch),
            Kernels::Several { configurations, kernel } => {
                let first = configurations(problem, arch).into_iter().next();
                let kernel = first.and_then(|(configuration, _)| kernel(problem, arch, &configuration));
                kernel.unwrap_or_else(|| unreachable!("a problem that meets the constraints has a kernel"))
            }
        }
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

    fn preferences(&self) -> &'static [Preference] {
        self.preferences
    }

    fn accuracy(&self, problem: &Problem) -> Accuracy {
        (self.accuracy)(problem)
    }

    fn configurations(&self, problem: &Problem, target: &DeviceInfo) -> Vec<Candidate> {
        let accuracy = (self.accuracy)(problem);
        match self.kernels {
            Kernels::One(_) => vec![Candidate { accuracy, ..Candidate::only() }],
            Kernels::Several { configurations, .. } => configurations(problem, &target.arch)
                .into_iter()
                .map(|(configuration, estimate)| Candidate { configuration, estimate, accuracy })
                .collect(),
        }
    }

    fn cache_key(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Option<Vec<u8>> {
        Some(binary::cache_key(configuration, &self.kernel_in(problem, &target.arch, configuration)?.source))
    }

    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        let kernel = self.try_kernel(problem, &target.arch, configuration)?;
        let image = compile::<R>(self.id, &kernel.source, &target.arch)?;
        Ok(binary::seal(self.id, &target.arch, configuration, &kernel.source, &image))
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let arch = &device.info().arch;
        let configuration = binary::configuration(self.id, arch, binary)?;
        let kernel = self.try_kernel(problem, arch, &configuration)?;
        let image = binary::open(self.id, arch, &kernel.source, binary)?;
        let (function, info) = load::<R>(self.id, self.algorithm, &**device, &kernel, image)?;
        let Kernel { geometry, arguments, scratch, .. } = kernel;
        Ok(Arc::new(JitExecutable { info, function, geometry, arguments, scratch }))
    }
}

/// Compiles a solver's text.
///
/// # Errors
/// The compiler is missing, or refuses the text.
pub fn compile<R: Runtime>(solver: &'static str, text: &str, arch: &str) -> Result<Arc<[u8]>, BuildError> {
    let compiled = R::compile(text, arch).map_err(|failure| match failure {
        CompileFailure::Backend(error) => BuildError::Backend(error),
        CompileFailure::Log(log) => BuildError::Compiler { solver, log },
    })?;
    Ok(compiled.image)
}

/// The kernel of one of these planners, by its id, for a problem. `None` for an id that is none's, or a problem that the
/// planner does not take.
pub fn kernel_of(
    planners: &[&dyn Planner],
    solver: &str,
    problem: &Problem,
    target: &DeviceInfo,
) -> Option<Kernel> {
    let planner = planners.iter().find(|planner| planner.id() == solver)?;
    planner.applies(problem, target).ok()?;
    Some(planner.kernel(problem, &target.arch))
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
) -> Result<(Function<R>, ExecutableInfo), BuildError> {
    let function = GpuDevice::<R>::of(device)?.load(image, &kernel.geometry)?;
    let (detail, resources) = (kernel.detail.clone(), Some(function.resources()));
    let kernels = if kernel.scratch == 0 { 1 } else { 2 };
    Ok((function, ExecutableInfo { solver, algorithm, kernels, workspace: 0, detail, resources }))
}

#[derive(Debug)]
struct JitExecutable<D: Driver> {
    info: ExecutableInfo,
    function: Function<D>,
    geometry: Geometry,
    arguments: ArgumentLayout,
    /// Bytes of memory that a first launch hands on to a second.
    scratch: usize,
}

impl<D: Driver> Executable for JitExecutable<D> {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let mut words = [0; MAX_WORDS];
        let count = self.arguments.pack(args, &mut words);
        let entered = self.function.enter()?;
        let launch = |words: &[u64]| {
            // SAFETY: these are the arguments of this kernel's text; the caller keeps what `RunArgs` promises.
            unsafe { self.function.launch_entered(&entered, stream, &self.geometry, &words[..count]) }
        };
        if self.scratch == 0 {
            return Ok(launch(&words)?);
        }
        let mut launch_both = |scratch: *mut c_void| {
            (0..2).try_for_each(|number| {
                words[count - SCRATCH_WORDS..count].copy_from_slice(&[scratch as u64, number]);
                launch(&words)
            })
        };
        // SAFETY: the context is entered, in which the caller promises a live stream.
        unsafe { entered.with_scratch(stream, self.scratch, &mut launch_both) }.map_err(|error| match error {
            BackendError::OutOfMemory { bytes, .. } => {
                let ExecutableInfo { solver, ref detail, .. } = self.info;
                RunError::SharedSums { solver, bytes, detail: detail.clone() }
            }
            error => error.into(),
        })
    }
}

#[cfg(test)]
mod tests;
