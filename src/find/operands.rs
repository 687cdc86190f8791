//! Operands to time kernels on.

use std::sync::Arc;

use fuseplan_api::operands::MAX_SCALARS;
use fuseplan_api::{BackendError, OpArgs, Prepared, Problem};

use crate::buffer::{Block, CHUNK};
use crate::handle::Handle;

/// What every scalar is: every formula has a value of ordinary numbers there.
const SCALAR: f64 = 0.5;

/// Operands of a problem, of small positive numbers.
pub(super) struct Scratch {
    pub(super) input: Block,
    pub(super) output: Block,
    pub(super) ops: Vec<OpArgs>,
    /// What `ops` point to.
    _operands: Vec<Block>,
}

impl Scratch {
    pub(super) fn new(handle: &Handle, problem: &Problem) -> Result<Self, BackendError> {
        let block = |bytes: usize| {
            let block = Block::new(handle, bytes)?;
            block.fill(&pattern(), handle).map(|()| block)
        };
        let (mut ops, mut all) = (Vec::new(), Vec::new());
        for op in &problem.ops {
            let mut args = OpArgs {
                scalars: [SCALAR; MAX_SCALARS],
                prepared: Some(Arc::new(Prepared::default())),
                ..OpArgs::default()
            };
            // What the operator does not take stays null.
            for (operand, pointer) in op.operands(&problem.output).zip(&mut args.pointers) {
                if operand.is_taken {
                    all.push(block(operand.descriptor.bytes())?);
                    *pointer = all[all.len() - 1].address();
                }
            }
            ops.push(args);
        }
        let (input, output) = (block(problem.input.bytes())?, block(problem.output.bytes())?);
        Ok(Scratch { input, output, ops, _operands: all })
    }
}

/// Bytes of small positive numbers in f32, f16 and bf16 alike: their exponents are in every second byte.
fn pattern() -> [u8; CHUNK] {
    let mut state = 1u32;
    std::array::from_fn(|at| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if at % 2 == 1 { 0x3C } else { (state >> 24) as u8 }
    })
}
