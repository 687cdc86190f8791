//! Copies of host slices in the memory of devices, and arguments that point to them.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use fuseplan_api::{BackendError, OpArgs, OpArgsKind};

use super::Slot;
use crate::buffer::Block;
use crate::handle::{Context, Handle};

/// What was copied for the arguments of a plan.
#[derive(Debug, Default)]
pub(super) struct Copies {
    devices: Mutex<Vec<OnDevice>>,
}

/// The copies in one device's memory.
#[derive(Debug)]
struct OnDevice {
    context: Arc<Context>,
    blocks: Vec<(Operand, Arc<Block>)>,
    /// Gone when an operator is set again.
    resident: Option<Arc<Resident>>,
}

/// Index of an operator, and of an operand of it.
pub(super) type Operand = (usize, usize);

/// Arguments all of whose operands that are read lie in a device's memory.
#[derive(Debug)]
pub(crate) struct Resident {
    ops: Vec<OpArgs>,
    blocks: Vec<(Operand, Arc<Block>)>,
}

impl Resident {
    pub(crate) fn ops(&self) -> &[OpArgs] {
        &self.ops
    }

    /// The copies are to be read by something launched into the handle's stream next.
    pub(crate) fn read_on(&self, handle: &Handle) -> Result<(), BackendError> {
        self.blocks.iter().try_for_each(|(_, block)| block.read_on(handle))
    }

    /// Where the copy of an operand is, if there is one.
    pub(super) fn address(&self, operand: Operand) -> Option<*mut c_void> {
        self.blocks.iter().find(|(at, _)| *at == operand).map(|(_, block)| block.address())
    }
}

impl Copies {
    /// The operator at `index` is set again.
    pub(super) fn forget(&mut self, index: usize) {
        for device in self.devices.get_mut().unwrap_or_else(PoisonError::into_inner) {
            device.resident = None;
            device.blocks.retain(|((operator, _), _)| *operator != index);
        }
    }

    /// The arguments on the handle's device; copies what is not there yet.
    pub(super) fn resident(
        &self,
        handle: &Handle,
        ops: &[OpArgs],
        slots: &[Slot<'_>],
    ) -> Result<Arc<Resident>, BackendError> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let found = devices.iter().position(|device| Arc::ptr_eq(&device.context, handle.context()));
        let at = found.unwrap_or_else(|| {
            let context = handle.context().clone();
            devices.push(OnDevice { context, blocks: Vec::new(), resident: None });
            devices.len() - 1
        });
        let device = &mut devices[at];
        if let Some(resident) = &device.resident {
            return Ok(resident.clone());
        }
        let mut moved = ops.to_vec();
        for (operator, (op, slot)) in moved.iter_mut().zip(slots).enumerate() {
            let mut addresses = Vec::with_capacity(slot.spans.len());
            for (index, span) in slot.spans.iter().enumerate() {
                addresses.push(if span.is_host() && !span.written {
                    device.copy((operator, index), slot, handle)?.address()
                } else {
                    span.address.cast_mut()
                });
            }
            place(&mut op.kind, &addresses);
        }
        let resident = Arc::new(Resident { ops: moved, blocks: device.blocks.clone() });
        device.resident = Some(resident.clone());
        Ok(resident)
    }
}

impl OnDevice {
    /// The copy of an operand.
    fn copy(&mut self, operand: Operand, slot: &Slot<'_>, handle: &Handle) -> Result<&Block, BackendError> {
        let found = self.blocks.iter().position(|(at, _)| *at == operand);
        let at = match found {
            Some(at) => at,
            None => {
                let slice = slot.spans[operand.1].host_bytes().unwrap_or_default();
                let block = Block::new(handle, slice.len())?;
                block.write(slice, handle)?;
                self.blocks.push((operand, Arc::new(block)));
                self.blocks.len() - 1
            }
        };
        Ok(&self.blocks[at].1)
    }
}

/// Replaces the pointers of arguments by `addresses`, which are in the order of
/// [`operands`](crate::execute::operands).
pub(crate) fn place(kind: &mut OpArgsKind, addresses: &[*mut c_void]) {
    match (kind, addresses) {
        (OpArgsKind::ConvForward { weights, .. }, &[w]) => *weights = w,
        (OpArgsKind::BiasForward { bias }, &[b]) => *bias = b,
        (OpArgsKind::BatchNormInference { scale, bias, mean, variance, .. }, &[s, b, m, v]) => {
            (*scale, *bias, *mean, *variance) =
                (s.cast_const().cast(), b.cast_const().cast(), m.cast_const().cast(), v.cast_const().cast());
        }
        (
            OpArgsKind::BatchNormForward {
                scale,
                bias,
                saved_mean,
                saved_inv_variance,
                running_mean,
                running_variance,
                ..
            },
            &[s, b, m, i, rm, rv],
        ) => {
            (*scale, *bias) = (s.cast_const().cast(), b.cast_const().cast());
            (*saved_mean, *saved_inv_variance) = (m.cast(), i.cast());
            (*running_mean, *running_variance) = (rm.cast(), rv.cast());
        }
        (
            OpArgsKind::BatchNormBackward {
                x,
                scale,
                bias,
                scale_diff,
                bias_diff,
                saved_mean,
                saved_inv_variance,
            },
            &[dx, s, b, m, i, ds, db],
        ) => {
            *x = dx;
            (*scale, *bias) = (s.cast_const().cast(), b.cast_const().cast());
            (*saved_mean, *saved_inv_variance) = (m.cast_const().cast(), i.cast_const().cast());
            (*scale_diff, *bias_diff) = (ds.cast(), db.cast());
        }
        (OpArgsKind::ActivationBackward { y, .. }, &[a]) => *y = a,
        // Activations and what was not set have scalars only.
        _ => debug_assert!(addresses.is_empty(), "one address for each operand"),
    }
}
