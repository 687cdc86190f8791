//! Solvers: who can run a problem, under which constraints, and the executable that comes out.

use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;

use crate::{
    Accuracy, BuildError, Candidate, Configuration, Device, DeviceInfo, Preference, Problem, RawStream,
    RunArgs, RunError,
};

/// The algorithm of a solver, with MIOpen's names for those that have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Direct convolution.
    Direct,
    /// Winograd's minimal filtering.
    Winograd,
    /// Convolution as a matrix product whose operand is never written out.
    ImplicitGemm,
    /// No convolution: one pass over the elements.
    ElementWise,
    /// No convolution: reductions over the batch.
    BatchNorm,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Algorithm::Direct => "Direct",
            Algorithm::Winograd => "Winograd",
            Algorithm::ImplicitGemm => "ImplicitGEMM",
            Algorithm::ElementWise => "ElementWise",
            Algorithm::BatchNorm => "BatchNorm",
        })
    }
}

/// One condition that a solver puts on problems: a rule and the words for it in one place.
#[derive(Clone, Copy)]
pub struct Constraint {
    /// What it is about: "data type", "layout", "filter", …
    pub property: &'static str,
    /// What is accepted, to stand behind the property: "f32, f16, bf16".
    pub accepts: &'static str,
    /// `None` when the problem is accepted on the device, else what was found instead ("f64").
    pub check: fn(&Problem, &DeviceInfo) -> Option<String>,
}

impl Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.accepts)
    }
}

/// Tensors whose elements lie where strides say, and an output that lies as the input does.
pub const LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "tensors with strides (not NCHWc), the output in the order of the input",
    check: |problem, _| {
        let tensors = || [&problem.input, &problem.output].into_iter().chain(problem.residuals());
        let is_strided = tensors().all(|tensor| tensor.blocks().is_none());
        (!is_strided || !problem.keeps_order())
            .then(|| tensors().map(|tensor| tensor.order()).collect::<Vec<_>>().join(", "))
    },
};

/// Why a solver does not take a problem.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The solver's id.
    pub solver: &'static str,
    /// The constraint's property.
    pub property: &'static str,
    /// What the constraint accepts.
    pub accepts: &'static str,
    /// What the problem has instead.
    pub found: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is {}, accepted: {}", self.solver, self.property, self.found, self.accepts)
    }
}

/// One way of running problems on the devices of a backend.
pub trait Solver: Debug + Send + Sync {
    /// `<backend>.<kernel>.v<N>`: stable, unique, greppable. The version changes with the numbers computed.
    fn id(&self) -> &'static str;

    /// The algorithm.
    fn algorithm(&self) -> Algorithm;

    /// Every condition under which this solver can compute a problem, and no other: what it is good at is a matter of
    /// [`preferences`](Self::preferences) and [`configurations`](Self::configurations). This list *is* the rule: it
    /// decides, it explains refusals, and the table of what is supported is made from it.
    fn constraints(&self) -> &'static [Constraint];

    /// Whether kernels of this solver find the channels of a tensor in blocks, and write an output in another order than the
    /// input's. Others have the constraint [`LAYOUT`] in front of their own, so that a solver that says nothing never gets
    /// tensors that it would take for strided ones.
    fn addresses_any_layout(&self) -> bool {
        false
    }

    /// The constraints, with the one on layouts where the solver has it.
    fn all_constraints(&self) -> Vec<&'static Constraint> {
        let layout = (!self.addresses_any_layout()).then_some(&LAYOUT);
        layout.into_iter().chain(self.constraints()).collect()
    }

    /// The conditions under which the solver's place in the backend's order is meant. A problem that does not meet
    /// them all is left to the solvers behind it, unless there is none.
    fn preferences(&self) -> &'static [Preference] {
        &[]
    }

    /// The first preference that a problem does not meet, in words.
    fn reservation(&self, problem: &Problem, device: &DeviceInfo) -> Option<String> {
        self.preferences().iter().find_map(|preference| {
            let found = (preference.check)(problem, device)?;
            let Preference { property, prefers, .. } = preference;
            Some(format!("{property} is {found}, preferred: {prefers}"))
        })
    }

    /// Whether the solver is there to be compared with: it is never timed, since it may be slower by orders of
    /// magnitude, and is chosen where no other can compute a problem.
    fn is_reference(&self) -> bool {
        false
    }

    /// The error class of the most exact of the problem's configurations.
    fn accuracy(&self, _problem: &Problem) -> Accuracy {
        Accuracy::Exact
    }

    /// The configurations in which this solver computes a problem that it can compute, the one of the smallest estimate
    /// first; at least one. Of many, those of large estimates may be missing.
    fn configurations(&self, _problem: &Problem, _target: &DeviceInfo) -> Vec<Candidate> {
        vec![Candidate::only()]
    }

    /// Whether this solver can compute the problem on this device.
    ///
    /// # Errors
    /// The first constraint that the problem does not meet.
    fn applies(&self, problem: &Problem, device: &DeviceInfo) -> Result<(), Refusal> {
        for constraint in self.all_constraints() {
            if let Some(found) = (constraint.check)(problem, device) {
                let Constraint { property, accepts, .. } = *constraint;
                return Err(Refusal { solver: self.id(), property, accepts, found });
            }
        }
        Ok(())
    }

    /// What decides the binary of a problem in a configuration, beside the solver's id, the
    /// architecture and the toolchain: the configuration, which the binary remembers, and the text of the kernel
    /// with the options of the compiler, or the properties of the problem that `compile` looks at and a hash of the
    /// kernel's text. Problems of equal keys share one stored binary: a kernel that serves every batch size leaves
    /// the batch out.
    ///
    /// `None`: compiling is not worth storing. Nothing is then asked of a disk.
    fn cache_key(
        &self,
        _problem: &Problem,
        _target: &DeviceInfo,
        _configuration: &Configuration,
    ) -> Option<Vec<u8>> {
        None
    }

    /// Compiles for an architecture in one of the solver's configurations, which the binary remembers; no device is
    /// needed. Only for problems that this solver can compute.
    ///
    /// # Errors
    /// A configuration that is none of the problem's; the kernel compiler is missing or refuses.
    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError>;

    /// The configuration of the smallest estimate.
    fn preferred(&self, problem: &Problem, target: &DeviceInfo) -> Configuration {
        let first = self.configurations(problem, target).into_iter().next();
        first.map(|candidate| candidate.configuration).unwrap_or_default()
    }

    /// Compiles in the configuration of the smallest estimate.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    fn compile_preferred(&self, problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
        self.compile(problem, target, &self.preferred(problem, target))
    }

    /// Makes a compiled kernel ready to run on an opened device of its architecture. The bytes are those
    /// that this solver made, possibly on another machine: of the target that it compiled for only the
    /// architecture is that of this device, so the configuration is read from the binary, not chosen again.
    ///
    /// # Errors
    /// A binary of another solver, architecture or format; the driver refuses.
    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError>;
}

/// A compiled kernel that can be stored, and loaded by the solver that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The id of the solver that made it.
    pub solver: String,
    /// The architecture it was made for.
    pub arch: String,
    /// The solver's own format; empty where there is nothing to compile.
    pub bytes: Vec<u8>,
}

/// What an executable is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutableInfo {
    /// The solver's id.
    pub solver: &'static str,
    /// The solver's algorithm.
    pub algorithm: Algorithm,
    /// Kernels launched by an execution, besides those that prepare its weights: once, or where they may change each time.
    pub kernels: u32,
    /// Bytes of workspace that an execution needs.
    pub workspace: usize,
    /// The choices made: tile, vector width, …
    pub detail: String,
    /// The launch of its kernel and what that takes of a device; `None` where a kernel is no launch, as on a CPU.
    pub resources: Option<Resources>,
}

/// The launch of a kernel, and what the compiled kernel takes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Blocks of a launch in x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of memory of a thread's own: registers that were spilled, arrays that could not be registers.
    pub local: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Blocks that a compute unit has room for at once; `None` where the driver does not say.
    pub resident: Option<u32>,
}

impl Resources {
    /// Whether threads keep in memory what should be in registers.
    pub fn spills(&self) -> bool {
        self.local > 0
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { blocks: [x, y, z], threads, registers, local, shared, resident } = *self;
        write!(f, "{x}x{y}x{z} blocks of {threads} threads")?;
        if let Some(blocks) = resident {
            let threads = u64::from(blocks) * u64::from(threads);
            write!(f, " ({blocks}, that is {threads} threads, a compute unit at once)")?;
        }
        write!(f, ", {registers} registers a thread, {shared} bytes of shared memory a block, ")?;
        match local {
            0 => f.write_str("no spills"),
            _ => write!(
                f,
                "spills: {local} bytes of local memory a thread (registers, or arrays that are indexed)"
            ),
        }
    }
}

/// A kernel on a device, ready to run. Any number of threads may run it at once.
pub trait Executable: Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &ExecutableInfo;

    /// Runs, or launches into the stream and returns. Neither allocates device memory nor synchronises, so
    /// a GPU launch may be captured into a graph; allocates no host memory after the first run on a thread.
    /// Runs within a [`call`](crate::call()), so in the default floating-point environment.
    ///
    /// # Errors
    /// The launch fails.
    ///
    /// # Safety
    /// `args` keep what [`RunArgs`] promises for this executable's problem; every pointer stays valid, and
    /// unwritten by others, until the stream has passed this point; `stream` is a live stream of the device
    /// that this was loaded for.
    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_and_what_it_takes_is_said() {
        let resources = Resources {
            blocks: [132, 2, 1],
            threads: 256,
            registers: 128,
            local: 0,
            shared: 66560,
            resident: None,
        };
        let rest = "128 registers a thread, 66560 bytes of shared memory a block, no spills";
        assert_eq!(resources.to_string(), format!("132x2x1 blocks of 256 threads, {rest}"));
        let resident = "(2, that is 512 threads, a compute unit at once)";
        assert_eq!(
            Resources { resident: Some(2), ..resources }.to_string(),
            format!("132x2x1 blocks of 256 threads {resident}, {rest}")
        );
        let spilling = Resources { local: 24, ..resources };
        assert!(spilling.spills() && !resources.spills());
        assert!(spilling.to_string().contains(", spills: 24 bytes of local memory a thread"), "{spilling}");
    }
}
