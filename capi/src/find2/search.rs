//! `miopenFindSolutions`: chooses a solver for a problem and times it.

use std::ffi::c_void;

use fuseplan::{CompileOptions, DataType, FindMode, TensorDescriptor};

use super::operands::{BATCHNORM_EPSILON, BATCHNORM_EXP_AVG_FACTOR, Operands};
use super::options::{FindOptions, miopenFindOptions_t};
use super::problem::{Problem, miopenProblem_t};
use super::solution::{Solution, SolutionObject, by_solver, miopenSolution_t};
use crate::abi::{Out, export};
use crate::execute::{Memory, Workspace};
use crate::handle::{Pinned, miopenHandle_t};
use crate::primitives::convolution::algorithm;
use crate::primitives::scratch::Scratch;
use crate::status::{Failure, bad_parm};
use crate::table::create;

/// The solver that is chosen for the problem, with the time of one execution; `None` where it needs more
/// workspace than the options allow.
///
/// # Safety
/// The options' memory is memory of the handle's device, as large as the problem's tensors.
unsafe fn search(
    on: &Pinned<'_>,
    problem: Problem,
    options: &FindOptions,
) -> Result<Option<Solution>, Failure> {
    let mut chain = problem.chain(&Operands::default())?;
    if options.tuning {
        chain = chain.with_options(CompileOptions::default().with_find(FindMode::Normal));
    }
    let compiled = chain.compile(on)?;
    let info = compiled.info();
    if info.workspace > options.workspace_limit {
        return Ok(None);
    }
    let trial = Trial::new(on, &problem, options, info.workspace)?;
    // As a run of the solution has it, so that the kernel is there when the first one comes.
    let chain = problem.chain(&trial.arguments)?.with_options(by_solver(info.solver));
    // SAFETY: the trial's memory is the caller's, who promises it, or its own, of the problem's descriptors.
    let run = || unsafe { chain.run_on(on, trial.x, trial.y, trial.workspace) };
    // The first execution pays for what is done once.
    run()?;
    let (elapsed, result) = on.handle().time(run)?;
    result?;
    Ok(Some(Solution {
        solver: info.solver.into(),
        algorithm: algorithm(info.algorithm),
        workspace: info.workspace,
        milliseconds: elapsed.as_secs_f32() * 1e3,
        problem,
    }))
}

/// Memory to time a problem in: the caller's where there is some, else memory of its own.
struct Trial {
    arguments: Operands,
    x: Memory,
    y: Memory,
    workspace: Workspace,
    _own: Vec<Scratch>,
}

impl Trial {
    fn new(
        on: &Pinned<'_>,
        problem: &Problem,
        options: &FindOptions,
        workspace: usize,
    ) -> Result<Self, Failure> {
        let mut own = Vec::new();
        let mut allocate = |descriptor: TensorDescriptor| -> Result<*mut c_void, Failure> {
            let scratch = Scratch::new(on, descriptor)?;
            let address = scratch.address();
            own.push(scratch);
            Ok(address)
        };
        let mut arguments = Operands::default();
        arguments.set_scalar(BATCHNORM_EPSILON, 1e-5);
        arguments.set_scalar(BATCHNORM_EXP_AVG_FACTOR, 0.0);
        let tensors = problem.tensors()?;
        for &(id, descriptor) in &tensors {
            let given = options.tensors.get(&id).filter(|_| !problem.updates(id));
            let address = match given {
                Some(address) => address.0,
                None => allocate(descriptor)?,
            };
            arguments.set_buffer(id, address);
        }
        let memory = |index: usize| {
            let (id, descriptor) = tensors[index];
            Memory { descriptor, address: arguments.buffer(id) }
        };
        let (x, y) = (memory(0), memory(tensors.len() - 1));
        let workspace = match options.workspace.filter(|&(_, bytes)| bytes >= workspace) {
            _ if workspace == 0 => None,
            Some((address, bytes)) => Some((address.0, bytes)),
            None => {
                let bytes = TensorDescriptor::packed(DataType::Int8, &[workspace])?;
                Some((allocate(bytes)?, workspace))
            }
        };
        Ok(Trial { arguments, x, y, workspace, _own: own })
    }
}

export! {
    fn miopenFindSolutions(
        handle: miopenHandle_t,
        problem: miopenProblem_t,
        options: miopenFindOptions_t,
        solutions: Out<miopenSolution_t>,
        numSolutions: Out<usize>,
        maxSolutions: usize,
    ) {
        let handle = handle.get()?;
        let (problem, options) = (problem.snapshot()?, options.snapshot()?);
        let list = solutions.required("solutions")?;
        if maxSolutions == 0 {
            return Err(bad_parm("there is no room for a solution"));
        }
        // SAFETY: the header says that the options' memory is memory of the handle's device.
        let found = unsafe { search(&handle.pinned(), problem, &options) }?;
        let count = found.is_some() as usize;
        if let Some(solution) = found {
            list.set(create(SolutionObject { solution })?);
        }
        numSolutions.set(count);
    }
}
