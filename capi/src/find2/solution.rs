//! Solutions: a problem and the solver that computes it.

use std::borrow::Cow;
use std::ffi::{c_char, c_void};

use fuseplan::CompileOptions;

use super::operands::{Operands, is_scalar};
use super::problem::Problem;
use super::saved;
use crate::abi::{In, Out, export, miopenConvAlgorithm_t, miopenTensorArgument_t};
use crate::execute::Memory;
use crate::handle::miopenHandle_t;
use crate::primitives::convolution::workspace;
use crate::status::{Failure, bad_parm};
use crate::table::{Ref, create, object};

/// What a `miopenSolution_t` names.
#[derive(Debug)]
pub struct SolutionObject {
    pub(super) solution: Solution,
}
object!(SolutionObject, Solution);

/// C's `miopenSolution_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenSolution_t = Ref<SolutionObject>;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Solution {
    pub(super) problem: Problem,
    /// The solver's id, such as `cpu.direct.v1`.
    pub(super) solver: String,
    pub(super) algorithm: miopenConvAlgorithm_t,
    /// Bytes.
    pub(super) workspace: usize,
    /// Of one execution, when it was found.
    pub(super) milliseconds: f32,
}

/// The algorithms that C has numbers for.
const ALGORITHMS: [miopenConvAlgorithm_t; 5] = [0, 1, 2, 3, 5];

impl Solution {
    /// A number that stands for the solver in all versions: a hash of its id, above its algorithm.
    fn solver_id(&self) -> u64 {
        fuseplan::fnv1a(self.solver.as_bytes()) << 8 | (u64::from(self.algorithm) + 1)
    }

    /// The problem with the descriptors that a call has in the place of some, and what it gives for the rest.
    fn bind(&self, given: &[miopenTensorArgument_t]) -> Result<(Cow<'_, Problem>, Operands), Failure> {
        let mut problem = Cow::Borrowed(&self.problem);
        let mut arguments = Operands::default();
        for argument in given {
            if is_scalar(argument.id) {
                // SAFETY: the header says that a scalar's buffer is NULL or one double of the host's.
                let value = unsafe { In::new(argument.buffer.cast_const().cast::<f64>()) }.get();
                if let Some(value) = value {
                    arguments.set_scalar(argument.id, value);
                }
                continue;
            }
            arguments.set_buffer(argument.id, argument.buffer);
            // SAFETY: the header says that it is NULL or a descriptor.
            if let Some(descriptor) = unsafe { In::new(argument.descriptor) }.get() {
                problem.to_mut().describe(argument.id, descriptor.descriptor()?)?;
            }
        }
        arguments.require(&problem.needed())?;
        Ok((problem, arguments))
    }
}

/// The choice of a solver by its id.
pub(super) fn by_solver(id: &str) -> CompileOptions {
    CompileOptions::default().with_solver(id)
}

/// The algorithm in a solver's number.
fn algorithm_of(solver_id: u64) -> Result<miopenConvAlgorithm_t, Failure> {
    let algorithm = ALGORITHMS.into_iter().find(|&number| u64::from(number) + 1 == solver_id & 0xff);
    algorithm.ok_or_else(|| bad_parm(format!("{solver_id} is no solver's number")))
}

export! {
    fn miopenRunSolution(
        handle: miopenHandle_t,
        solution: miopenSolution_t,
        nInputs: usize,
        tensors: In<miopenTensorArgument_t>,
        workspace: *mut c_void,
        workspaceSize: usize,
    ) {
        let handle = handle.get()?;
        let solution = &solution.get()?.solution;
        let given = tensors.list(nInputs).ok_or_else(|| bad_parm("`tensors` is NULL"))?;
        let (problem, arguments) = solution.bind(&given)?;
        let chain = problem.chain(&arguments)?.with_options(by_solver(&solution.solver));
        let memory = |descriptor, id| Memory { descriptor, address: arguments.buffer(id) };
        let x = memory(problem.input_descriptor()?, problem.input());
        let y = memory(*chain.output(), problem.output());
        // SAFETY: the header says that the buffers are memory of the handle's device.
        unsafe { chain.run(&handle, x, y, self::workspace(workspace, workspaceSize)) }?;
    }

    fn miopenDestroySolution(solution: miopenSolution_t) {
        if !solution.is_null() {
            solution.remove()?;
        }
    }

    fn miopenGetSolutionSize(solution: miopenSolution_t, size: Out<usize>) {
        let object = solution.get()?;
        size.required("size")?.set(saved::write(&object.solution)?.len());
    }

    fn miopenSaveSolution(solution: miopenSolution_t, data: Out<c_char>) {
        let object = solution.get()?;
        let bytes = saved::write(&object.solution)?;
        let bytes: Vec<c_char> = bytes.into_iter().map(|byte| byte as c_char).collect();
        data.required("data")?.set_all(&bytes);
    }

    fn miopenLoadSolution(solution: Out<miopenSolution_t>, data: In<c_char>, size: usize) {
        let out = solution.required("solution")?;
        let bytes = data.list(size).ok_or_else(|| bad_parm("`data` is NULL"))?;
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
        let solution = saved::read(&bytes)?;
        out.set(create(SolutionObject { solution })?);
    }

    fn miopenGetSolutionWorkspaceSize(solution: miopenSolution_t, workspaceSize: Out<usize>) {
        let object = solution.get()?;
        workspaceSize.required("workspaceSize")?.set(object.solution.workspace);
    }

    fn miopenGetSolutionTime(solution: miopenSolution_t, time: Out<f32>) {
        let object = solution.get()?;
        time.required("time")?.set(object.solution.milliseconds);
    }

    fn miopenGetSolutionSolverId(solution: miopenSolution_t, solverId: Out<u64>) {
        let object = solution.get()?;
        solverId.required("solverId")?.set(object.solution.solver_id());
    }

    fn miopenGetSolverIdConvAlgorithm(solverId: u64, result: Out<miopenConvAlgorithm_t>) {
        let out = result.required("result")?;
        out.set(algorithm_of(solverId)?);
    }
}
