//! Loaded kernels.

use std::sync::Arc;

use fuseplan_api::{BackendError, RawStream, Resources};

use crate::{Attribute, Context, Driver, Entered, Geometry, Object};

/// A kernel on a device. Nothing changes it after loading but its limit of shared memory, which only rises.
#[derive(Debug)]
pub struct Function<D: Driver> {
    object: Object,
    /// Which keeps the kernel.
    context: Arc<Context<D>>,
    resources: Resources,
}

impl<D: Driver> Function<D> {
    /// Loads an image for the device's architecture, which will be launched like this.
    pub(crate) fn load(
        context: &Arc<Context<D>>,
        image: &[u8],
        geometry: &Geometry,
    ) -> Result<Self, BackendError> {
        let driver = context.enter()?;
        let function = context.modules().function(&driver, image, geometry.shared)?;
        // SAFETY: the function is of a loaded module.
        let attribute = |which| unsafe { driver.attribute(function, which) }.map(|value| value.max(0) as u32);
        // SAFETY: the function is of a loaded module, and the geometry is the one that it was loaded for.
        let resident = unsafe { driver.resident(function, geometry) };
        let resources = Resources {
            blocks: geometry.grid,
            threads: geometry.block,
            registers: attribute(Attribute::Registers)?,
            local: attribute(Attribute::Local)?,
            shared: attribute(Attribute::Shared)? + geometry.shared,
            // Of use to people only.
            resident: resident.ok().and_then(|blocks| u32::try_from(blocks).ok()),
        };
        Ok(Function { object: Object(function), context: context.clone(), resources })
    }

    /// The launch that it was loaded for, and what that takes.
    pub fn resources(&self) -> Resources {
        self.resources
    }

    /// Makes its context the thread's current one until the result is dropped.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn enter(&self) -> Result<Entered<'_, D>, BackendError> {
        self.context.enter()
    }

    /// Launches with the kernel's argument, a structure of `arguments.len()` words, which is copied.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// The kernel may run with this argument: its pointers are what the kernel expects, and stay so until
    /// the stream has passed it. `stream` is a live stream of the function's device.
    pub unsafe fn launch(
        &self,
        stream: RawStream,
        geometry: &Geometry,
        arguments: &[u64],
    ) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.launch_entered(&self.enter()?, stream, geometry, arguments) }
    }

    /// [`Function::launch`] by one who has entered the function's context.
    ///
    /// # Errors
    /// As that one's.
    ///
    /// # Safety
    /// As that one's.
    pub unsafe fn launch_entered(
        &self,
        entered: &Entered<'_, D>,
        stream: RawStream,
        geometry: &Geometry,
        arguments: &[u64],
    ) -> Result<(), BackendError> {
        // SAFETY: the context keeps the function's module; the caller answers for the argument and the stream.
        unsafe { entered.launch(self.object.0, geometry, arguments, stream) }
    }
}
