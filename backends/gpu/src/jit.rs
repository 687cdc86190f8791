//! Solvers whose kernels are compiled at run time.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use fuseplan_api::{
    ActivationParams, Algorithm, Binary, BuildError, Constraint, Device, DeviceInfo, Executable,
    ExecutableInfo, OpArgs, OpArgsKind, Problem, RawStream, RunArgs, RunError, Solver,
};

use crate::{CompileFailure, Function, Geometry, Kernel, Runtime};

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

    /// The kernel for a problem that meets the constraints.
    pub fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        (self.plan)(problem, arch)
    }
}

impl<R> fmt::Debug for JitSolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JitSolver({})", self.id)
    }
}

/// The first bytes of a stored binary; the number is the format's.
const MAGIC: [u8; 8] = *b"fuseGPU1";
/// Magic and digest.
const HEADER: usize = 16;

/// Tells texts apart (FNV-1a): a binary is only used for the very text that it was made from.
fn digest(text: &str) -> [u8; 8] {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.to_le_bytes()
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

    /// The text, and this version, which stands for the compiler's options.
    fn cache_key(&self, problem: &Problem, target: &DeviceInfo) -> Option<Vec<u8>> {
        let kernel = self.kernel(problem, &target.arch);
        Some([env!("CARGO_PKG_VERSION"), "\n", &kernel.source].concat().into_bytes())
    }

    fn compile(&self, problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
        let kernel = self.kernel(problem, &target.arch);
        let image = R::compile(&kernel.source, &target.arch).map_err(|failure| match failure {
            CompileFailure::Backend(error) => BuildError::Backend(error),
            CompileFailure::Log(log) => BuildError::Compiler { solver: self.id, log },
        })?;
        let bytes = [&MAGIC, &digest(&kernel.source), &*image].concat();
        Ok(Binary { solver: self.id.into(), arch: target.arch.clone(), bytes })
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let refuse = |reason: String| Err(BuildError::Binary { solver: self.id, reason });
        let arch = &device.info().arch;
        if binary.solver != self.id {
            return refuse(format!("it was made by {}", binary.solver));
        }
        if binary.arch != *arch {
            return refuse(format!("it was made for {}, the device is {arch}", binary.arch));
        }
        let kernel = self.kernel(problem, arch);
        if binary.bytes.len() <= HEADER || binary.bytes[..8] != MAGIC {
            return refuse("it is not of this format".into());
        }
        if binary.bytes[8..HEADER] != digest(&kernel.source) {
            return refuse("it was made from another text".into());
        }
        let function = R::load(device, &binary.bytes[HEADER..], &kernel.geometry)?;
        let resources = function.resources();
        let Geometry { grid: [x, y, z], block, shared } = kernel.geometry;
        let info = ExecutableInfo {
            solver: self.id,
            algorithm: self.algorithm,
            kernels: 1,
            workspace: 0,
            detail: format!(
                "{}; {x}x{y}x{z} blocks of {block} threads, {} registers, {} bytes of local and {shared} of \
                 shared memory",
                kernel.detail, resources.registers, resources.local
            ),
        };
        Ok(Arc::new(JitExecutable { info, function, geometry: kernel.geometry, sizes: kernel.sizes }))
    }
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

/// Words of a kernel's argument: drivers take 4096 bytes.
const MAX_WORDS: usize = 512;
/// Words before the operators: input, output, beta.
const FIRST_OP: usize = 3;
/// Words of an operator: four pointers, alpha and three scalars.
const OP_WORDS: usize = 6;

/// Writes the text's `struct Args`; the number of words.
fn pack(args: &RunArgs<'_>, sizes: &[i64], words: &mut [u64; MAX_WORDS]) -> usize {
    let two = |low: f32, high: f32| u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32;
    let beta = args.ops.last().map_or(0.0, |op| op.beta);
    words[..FIRST_OP].copy_from_slice(&[args.input as u64, args.output as u64, two(beta, 0.0)]);
    let mut next = FIRST_OP;
    for op in args.ops {
        let (pointers, more, [a, b, c]) = operands(op);
        let scalars = [two(op.alpha, a), two(b, c)];
        words[next..next + 4].copy_from_slice(&pointers);
        words[next + 4..next + OP_WORDS].copy_from_slice(&scalars);
        next += OP_WORDS;
        // The second place of operators that have one; its scalars are not used.
        if let Some(more) = more {
            words[next..next + 4].copy_from_slice(&more);
            next += OP_WORDS;
        }
    }
    for (word, size) in words[next..].iter_mut().zip(sizes) {
        *word = *size as u64;
    }
    next + sizes.len()
}

/// An operator's pointers, those of its second place, and scalars, in the order in which the text expects
/// them.
fn operands(op: &OpArgs) -> ([u64; 4], Option<[u64; 4]>, [f32; 3]) {
    match &op.kind {
        OpArgsKind::ConvForward { weights, .. } => ([*weights as u64, 0, 0, 0], None, [0.0; 3]),
        OpArgsKind::BiasForward { bias } => ([*bias as u64, 0, 0, 0], None, [0.0; 3]),
        OpArgsKind::BatchNormInference { scale, bias, mean, variance, epsilon } => {
            let pointers = [*scale, *bias, *mean, *variance].map(|pointer| pointer as u64);
            (pointers, None, [*epsilon as f32, 0.0, 0.0])
        }
        OpArgsKind::ActivationForward { params } => ([0; 4], None, scalars(params)),
        OpArgsKind::BatchNormForward {
            scale,
            bias,
            saved_mean,
            saved_inv_variance,
            running_mean,
            running_variance,
            exp_avg_factor,
            epsilon,
        } => (
            [*scale as u64, *bias as u64, *saved_mean as u64, *saved_inv_variance as u64],
            Some([*running_mean as u64, *running_variance as u64, 0, 0]),
            [*epsilon as f32, *exp_avg_factor as f32, 0.0],
        ),
        OpArgsKind::BatchNormBackward {
            x,
            scale,
            bias,
            scale_diff,
            bias_diff,
            saved_mean,
            saved_inv_variance,
        } => (
            [*x as u64, *scale as u64, *bias as u64, *scale_diff as u64],
            Some([*bias_diff as u64, *saved_mean as u64, *saved_inv_variance as u64, 0]),
            [0.0; 3],
        ),
        OpArgsKind::ActivationBackward { y, params } => ([*y as u64, 0, 0, 0], None, scalars(params)),
        _ => unreachable!("arguments are of their operators' kinds"),
    }
}

fn scalars(params: &ActivationParams) -> [f32; 3] {
    [params.alpha as f32, params.beta as f32, params.gamma as f32]
}

#[cfg(test)]
mod tests;
