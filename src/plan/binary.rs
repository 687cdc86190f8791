//! Compiled plans as bytes: compile on one machine, run on another.

use std::fmt;

use fuseplan_api::{Binary, call};

use super::{CompiledPlan, FusionPlan};
use crate::build::{self, CompileError};
use crate::cache::{self, BinaryError, Subject};
use crate::handle::Handle;
use crate::observe;
use crate::options::CompileOptions;
use crate::target::Target;

/// A plan compiled for an architecture, to be stored or sent, and loaded where there is a device of that
/// architecture but perhaps no kernel compiler.
///
/// ```
/// use fuseplan::*;
/// # fn main() -> Result<(), Error> {
/// let x = TensorDescriptor::nchw(DataType::Float, [1, 3, 8, 8])?;
/// let mut plan = FusionPlan::new(x)?;
/// plan.append(ActivationForward::new(ActivationMode::Relu))?;
///
/// let handle = Handle::cpu();
/// let bytes = plan.compile_for(&handle, &CompileOptions::default())?.to_bytes();
/// // SAFETY: `to_bytes` just made them.
/// let binary = unsafe { CompiledBinary::from_bytes(&bytes) }?;
/// let compiled = plan.load(&handle, &binary)?;
/// # assert_eq!(compiled.info().solver, binary.solver());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CompiledBinary {
    subject: Subject,
    payload: Vec<u8>,
}

impl CompiledBinary {
    /// The bytes to store: the binary, what it is for and a digest. Only the version of fuseplan that made
    /// them loads them.
    pub fn to_bytes(&self) -> Vec<u8> {
        cache::encode(&self.subject, &self.payload)
    }

    /// A binary from bytes, every one of which is verified.
    ///
    /// # Errors
    /// The bytes are of another kind or format, are damaged, or some are missing.
    ///
    /// # Safety
    /// The bytes are those of [`to_bytes`](Self::to_bytes), or differ from them by accident. The digest
    /// finds damage; it does not find a forgery, and the payload is machine code that will be run.
    pub unsafe fn from_bytes(bytes: &[u8]) -> Result<Self, BinaryError> {
        let (subject, payload) = cache::decode(bytes)?;
        Ok(CompiledBinary { subject, payload: payload.to_vec() })
    }

    /// The id of the solver that compiled it.
    pub fn solver(&self) -> &str {
        &self.subject.solver
    }

    /// The architecture that it was compiled for.
    pub fn arch(&self) -> &str {
        &self.subject.arch
    }

    /// The compiler that it was compiled with.
    pub fn toolchain(&self) -> &str {
        &self.subject.toolchain
    }

    /// The version of fuseplan that compiled it.
    pub fn version(&self) -> &str {
        &self.subject.version
    }
}

impl fmt::Debug for CompiledBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledBinary")
            .field("version", &self.version())
            .field("solver", &self.solver())
            .field("arch", &self.arch())
            .field("toolchain", &self.toolchain())
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl FusionPlan {
    /// Compiles for a handle's device, or for an architecture with no such device present
    /// ([`Target::new`]).
    ///
    /// # Errors
    /// As [`FusionPlan::compile_with`].
    pub fn compile_for(
        &self,
        target: impl AsRef<Target>,
        options: &CompileOptions,
    ) -> Result<CompiledBinary, CompileError> {
        let target = target.as_ref();
        self.check_for(target)?;
        let problem = self.problem();
        let compiled =
            observe::compile(self, target, options, || call(|| build::compile(target, &problem, options)))?;
        let subject = Subject::exported(compiled.solver, &problem, target.info());
        Ok(CompiledBinary { subject, payload: compiled.binary.bytes })
    }

    /// Loads what an equal plan was compiled to, without compiling anything.
    ///
    /// # Errors
    /// An empty plan, a plan made for another device; a binary of another plan, architecture or version of
    /// fuseplan; a solver that does not take the plan on this device; the driver refuses.
    pub fn load(&self, handle: &Handle, binary: &CompiledBinary) -> Result<CompiledPlan, CompileError> {
        let target = handle.target();
        self.check_for(target)?;
        let problem = self.problem();
        let CompiledBinary { subject: found, payload } = binary;
        let expected = env!("CARGO_PKG_VERSION");
        if found.version != expected {
            let (found, expected) = (found.version.clone(), expected.into());
            return Err(BinaryError::Version { found, expected }.into());
        }
        let expected = &target.info().arch;
        if found.arch != *expected {
            let (found, expected) = (found.arch.clone(), expected.clone());
            return Err(BinaryError::Arch { found, expected }.into());
        }
        let expected = problem.key();
        if found.content != expected.as_bytes() {
            let found = String::from_utf8_lossy(&found.content).into_owned();
            return Err(BinaryError::Problem { found, expected }.into());
        }
        let (solver, arch) = (found.solver.clone(), found.arch.clone());
        let binary = Binary { solver, arch, bytes: payload.clone() };
        let options = CompileOptions::default().with_solver(&found.solver);
        let built = observe::compile(self, target, &options, || {
            call(|| build::load(handle.context(), &problem, &binary))
        })?;
        Ok(CompiledPlan::new(self, problem, handle, built))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Activation, ActivationForward, ActivationMode, BiasForward, BiasForwardArgs, DataType, OperatorArgs,
        Tensor, TensorDescriptor, TensorMut,
    };

    fn plan(channels: usize) -> FusionPlan {
        let x = TensorDescriptor::nchw(DataType::Float, [1, channels, 2, 2]).unwrap();
        let mut plan = FusionPlan::new(x).unwrap();
        plan.append(BiasForward::new()).unwrap();
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        plan
    }

    fn compile(plan: &FusionPlan) -> CompiledBinary {
        plan.compile_for(Handle::cpu(), &CompileOptions::default()).unwrap()
    }

    fn refused(plan: &FusionPlan, binary: &CompiledBinary) -> CompileError {
        plan.load(&Handle::cpu(), binary).unwrap_err()
    }

    #[test]
    fn what_comes_back_from_bytes_runs() {
        let (plan, handle) = (plan(3), Handle::cpu());
        let binary = compile(&plan);
        // SAFETY: `to_bytes` just made them.
        let read = unsafe { CompiledBinary::from_bytes(&binary.to_bytes()) }.unwrap();
        assert_eq!(read, binary);
        assert_eq!(read.arch(), handle.device_info().arch);
        assert_eq!(read.version(), env!("CARGO_PKG_VERSION"));
        let compiled = plan.load(&handle, &read).unwrap();
        assert_eq!(compiled.info().solver, read.solver());

        let x: Vec<f32> = (0..12).map(|i| i as f32 - 6.0).collect();
        let bias = [1.0, -2.0, 3.0];
        let mut args = OperatorArgs::new();
        args.set(plan.op_id::<BiasForward>(0).unwrap(), BiasForwardArgs::new(&bias))
            .set(plan.op_id::<ActivationForward>(1).unwrap(), Activation::Relu);
        let mut y = [f32::NAN; 12];
        let (x_desc, y_desc) = (plan.input(), plan.output());
        compiled.execute(&handle, Tensor::new(x_desc, &x), TensorMut::new(y_desc, &mut y), &args).unwrap();
        let expected: Vec<f32> = (0..12).map(|i| (x[i] + bias[i / 4]).max(0.0)).collect();
        assert_eq!(y[..], expected[..]);
    }

    #[test]
    fn the_solver_asked_for_is_the_one() {
        let options = CompileOptions::default().with_solver("cpu.reference.v1");
        let plan = plan(3);
        let binary = plan.compile_for(Handle::cpu(), &options).unwrap();
        assert_eq!(plan.load(&Handle::cpu(), &binary).unwrap().info().solver, "cpu.reference.v1");
    }

    #[test]
    fn bytes_that_are_damaged_are_refused() {
        let bytes = compile(&plan(3)).to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            // SAFETY: of one made by `to_bytes`, with an accident.
            assert!(unsafe { CompiledBinary::from_bytes(&damaged) }.is_err(), "byte {at}");
            // SAFETY: of one made by `to_bytes`, cut short by an accident.
            assert!(unsafe { CompiledBinary::from_bytes(&bytes[..at]) }.is_err(), "length {at}");
        }
    }

    #[test]
    fn a_binary_for_anything_else_is_refused_with_both_names() {
        let binary = compile(&plan(3));
        let text = refused(&plan(4), &binary).to_string();
        assert!(text.contains("f32 1x3x2x2") && text.contains("f32 1x4x2x2"), "{text}");

        let with = |change: fn(&mut Subject)| {
            let mut binary = binary.clone();
            change(&mut binary.subject);
            refused(&plan(3), &binary)
        };
        let error = with(|subject| subject.version = "0.0.1".into());
        assert!(matches!(error, CompileError::Binary(BinaryError::Version { .. })), "{error}");
        let error = with(|subject| subject.arch = "sm_90a".into());
        assert!(matches!(error, CompileError::Binary(BinaryError::Arch { .. })), "{error}");
        let error = with(|subject| subject.solver = "cuda.direct.v1".into());
        assert!(matches!(error, CompileError::UnknownSolver { .. }), "{error}");

        let x = *plan(3).input();
        let empty = FusionPlan::new(x).unwrap();
        assert_eq!(refused(&empty, &binary), CompileError::Empty);
    }

    /// A driver and a compiler of other versions do not matter: the binary is for the architecture.
    #[test]
    fn another_toolchain_is_no_reason_to_refuse() {
        let mut binary = compile(&plan(3));
        binary.subject.toolchain = "another".into();
        assert!(plan(3).load(&Handle::cpu(), &binary).is_ok());
    }
}
