//! Packed weights: kept beside constant ones, made anew for others.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use fuseplan_api::operands::ConvForward;
use fuseplan_api::{RunArgs, RunError};

use crate::arena::{Buffer, with_scratch};
use crate::pool::Locked;

/// Under which an executable's packed weights are kept: a number that no other executable has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(0);
        Owner(OWNERS.fetch_add(1, Ordering::Relaxed))
    }
}

/// Calls `compute` with the convolution's weights in the `len` floats that `pack` makes of them: those kept beside the
/// arguments where weights are constant, which the first execution packs under their lock, and otherwise some in
/// scratch memory.
///
/// # Errors
/// What `pack` and `compute` return; out of memory.
pub(crate) fn with_packed(
    args: &RunArgs<'_>,
    owner: Owner,
    len: usize,
    pack: impl Fn(*const c_void, &mut [f32], Locked) -> Result<(), RunError>,
    compute: impl FnOnce(&[f32]) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let ConvForward { weights } = ConvForward::of(&args.ops[0]);
    let Some(prepared) = &args.ops[0].prepared else {
        return with_scratch(len, |packed| {
            pack(weights, packed, Locked::No)?;
            compute(packed)
        })?;
    };
    let packed = prepared.get_or_try_make(owner.0, || {
        let mut buffer = Buffer::zeroed(len)?;
        pack(weights, buffer.as_mut_slice(), Locked::Yes)?;
        Ok::<_, RunError>(buffer)
    })?;
    compute(packed.as_slice())
}
