//! Copies of host slices in the memory of devices, and arguments that point to them.

use std::sync::{Arc, Mutex, PoisonError};

use fuseplan_api::{BackendError, OpArgs};

use super::Slot;
use crate::buffer::Block;
use crate::context::Context;
use crate::handle::Handle;

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
        slots: &[Option<Slot<'_>>],
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
            let Some(slot) = slot else { continue };
            for (index, (span, pointer)) in slot.spans().iter().zip(&mut op.pointers).enumerate() {
                if let Some(slice) = span.host_bytes() {
                    *pointer = device.copy((operator, index), slice, handle)?.address();
                }
            }
        }
        let resident = Arc::new(Resident { ops: moved, blocks: device.blocks.clone() });
        device.resident = Some(resident.clone());
        Ok(resident)
    }
}

impl OnDevice {
    /// The copy of an operand whose contents are `slice`.
    fn copy(&mut self, operand: Operand, slice: &[u8], handle: &Handle) -> Result<&Block, BackendError> {
        let found = self.blocks.iter().position(|(at, _)| *at == operand);
        let at = match found {
            Some(at) => at,
            None => {
                let block = Block::new(handle, slice.len())?;
                block.write(slice, handle)?;
                self.blocks.push((operand, Arc::new(block)));
                self.blocks.len() - 1
            }
        };
        Ok(&self.blocks[at].1)
    }
}
