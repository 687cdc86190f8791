//! Plans without a convolution, in one pass over packed tensors.
//!
//! The elements are seen as rows in memory (see [`Grid`]) and cut into items that threads take. Steps that
//! are affine in each channel or position (bias, batch-norm, alpha) and follow one another are folded into one, by
//! the rules of [`Fold`](crate::channels::Fold), once for each item. A chain of one of these and a simple activation
//! runs in registers; any other passes block by block through the first-level cache. Arithmetic is f32, rounded once
//! at the end, and no element's result depends on how the elements are cut.

mod grid;
mod kernel;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use fuseplan_api::{
    Accuracy, ActivationMode, Algorithm, Executable, ExecutableInfo, Op, Problem, RawStream, RunArgs,
    RunError,
};

use crate::arena::with_scratch;
use crate::constraint;
use crate::element::with_value_type;
use crate::isa::Isa;
use crate::pool::Pool;
use crate::solver::{self, CpuSolver};
use grid::Grid;
use kernel::Item;

pub(crate) static ELEMENT_WISE: CpuSolver = CpuSolver {
    id: "cpu.element_wise.v1",
    algorithm: Algorithm::ElementWise,
    constraints: &[constraint::DATA_TYPE, constraint::ELEMENT_WISE, constraint::ONE_LAYOUT],
    preferences: &[],
    any_layout: true,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        let (isa, pool) = (device.isa(), device.pool().clone());
        let grid = Grid::of(problem);
        let stages = stages(&problem.ops);
        let (count, threads) = (stages.len(), pool.threads());
        let info = solver.info(format!("{count} stages, {grid}, {}, {threads} threads", isa.name()));
        Arc::new(ElementWiseExecutable { info, problem: problem.clone(), grid, stages, isa, pool })
    },
};

/// A part of the chain. The first is always affine.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Operators with parameters of an element's channel or position, at most one of them a batch-norm; none of them is
    /// the identity.
    Affine(Range<usize>),
    /// A bias with one value an element.
    Residual(usize),
    /// An activation.
    Activation(usize),
    /// A PReLU.
    PRelu(usize),
}

fn stages(ops: &[Op]) -> Vec<Stage> {
    let mut stages = vec![Stage::Affine(0..0)];
    let is_norm = |op: &Op| matches!(op, Op::BatchNormInference { .. });
    for (i, op) in ops.iter().enumerate() {
        match op {
            Op::ActivationForward { mode } if *mode != ActivationMode::Pasthru => {
                stages.push(Stage::Activation(i))
            }
            Op::PReluForward { .. } => stages.push(Stage::PRelu(i)),
            Op::BiasForward { .. } if op.is_residual() => stages.push(Stage::Residual(i)),
            Op::ConvForward { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. }
            | Op::ActivationBackward { .. } => unreachable!("a constraint refuses {op}"),
            Op::BiasForward { .. } | Op::BatchNormInference { .. } | Op::ActivationForward { .. } => {
                match stages.last_mut() {
                    Some(Stage::Affine(range))
                        if !(is_norm(op) && ops[range.clone()].iter().any(is_norm)) =>
                    {
                        let first = if *range == (0..0) { i } else { range.start };
                        *range = first..i + 1;
                    }
                    _ => stages.push(Stage::Affine(i..i + 1)),
                }
            }
        }
    }
    stages
}

#[derive(Debug)]
struct ElementWiseExecutable {
    info: ExecutableInfo,
    problem: Problem,
    grid: Grid,
    stages: Vec<Stage>,
    isa: Isa,
    pool: Arc<Pool>,
}

impl Executable for ElementWiseExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let call = Call { executable: self, args };
        let failure = Mutex::new(None);
        let run_item = |index| {
            if let Err(error) = call.item(index) {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        match self.grid.items() {
            1 => run_item(0),
            items => self.pool.for_each(items, &run_item)?,
        }
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// One execution.
struct Call<'a> {
    executable: &'a ElementWiseExecutable,
    args: &'a RunArgs<'a>,
}

// SAFETY: threads write different elements of the output, and read other operands only where those are the
// same elements.
unsafe impl Sync for Call<'_> {}

impl Call<'_> {
    fn item(&self, index: usize) -> Result<(), RunError> {
        let ElementWiseExecutable { problem, grid, stages, isa, .. } = self.executable;
        let item = grid.item(index);
        with_value_type!(problem.output.data_type(), T => {
            with_scratch(Item::<T>::scratch(stages), |scratch| {
                isa.run(Item::<T>::new(problem, grid, stages, self.args, item, scratch))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{BatchNormMode, DataType, TensorDescriptor};

    use super::*;

    #[test]
    fn neighbouring_affine_operators_are_one_stage() {
        let residual = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
        let per_channel = TensorDescriptor::nchw(DataType::Float, [1, 3, 1, 1]).unwrap();
        let bias = || Op::BiasForward { bias: per_channel };
        let batch_norm = || Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float };
        let activation = |mode| Op::ActivationForward { mode };
        let chain = [
            bias(),
            batch_norm(),
            activation(ActivationMode::Pasthru),
            activation(ActivationMode::Relu),
            Op::BiasForward { bias: residual },
            batch_norm(),
            bias(),
        ];
        use Stage::*;
        assert_eq!(stages(&chain), [Affine(0..3), Activation(3), Residual(4), Affine(5..7)]);
        assert_eq!(stages(&chain[3..4]), [Affine(0..0), Activation(0)]);
        assert_eq!(stages(&[bias(), batch_norm(), bias(), batch_norm()]), [Affine(0..3), Affine(3..4)]);
    }
}
