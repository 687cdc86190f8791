//! Execution: the last section of the header.

use std::ffi::c_void;

use fuseplan::memory::{Operand, OperandMut};
use fuseplan::{Tensor, TensorMut, raw};

use crate::args::fuseplan_args_t;
use crate::boundary::export::export;
use crate::compile::fuseplan_compiled_t;
use crate::handle::fuseplan_handle_t;

export! {
    fn fuseplan_execute(
        handle: fuseplan_handle_t,
        compiled: fuseplan_compiled_t,
        args: fuseplan_args_t,
        input: *const c_void,
        output: *mut c_void,
        workspace: *mut c_void,
        workspace_bytes: usize,
    ) {
        let handle = handle.get()?.handle();
        let compiled = &compiled.get()?.compiled;
        let settings = args.get()?.settings();
        let ops = settings.of(compiled.problem())?;
        // SAFETY: the header says that input, output and workspace, and the pointers that were set, are memory of the
        // handle's device, which nobody else writes until the stream has passed the execution; arguments are of the
        // operators' kinds.
        let (input, output, args, workspace) = unsafe {
            (
                Tensor::new(compiled.input(), Operand::from_raw(input, None)),
                TensorMut::new(compiled.output(), OperandMut::from_raw(output, None)),
                raw::Args::new(ops),
                OperandMut::from_raw(workspace, Some(workspace_bytes)),
            )
        };
        compiled.execute_with_workspace(&handle, input, output, args, workspace)?;
    }
}
