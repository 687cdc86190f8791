//! The kernels that a context has loaded.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::mem;
use std::sync::{Mutex, PoisonError};

use fuseplan_api::BackendError;

use crate::{Driver, Entered, Kernel, Object, RawFunction, RawModule};

/// The modules of a context by their images. They stay as long as it does: a graph, also a caller's, has the functions of
/// plans that are gone, and unloading a module would take them away; HIP does not even wait for work in streams then.
/// The same image is loaded once.
#[derive(Debug, Default)]
pub(crate) struct Modules(Mutex<Loaded>);

/// Modules by their images, which drivers may go on reading.
type Loaded = HashMap<Box<[u8]>, Module>;

#[derive(Debug)]
pub(crate) struct Module {
    object: Object,
    /// The most dynamic shared memory that the kernel may be launched with, in bytes.
    shared: u32,
}

impl Module {
    pub(crate) fn raw(&self) -> RawModule {
        self.object.0
    }
}

impl Modules {
    /// The kernel of an image that the compiler made for the device, to be launched with `shared` bytes of dynamic
    /// shared memory. The driver is that of the context of these modules.
    pub(crate) fn function<D: Driver>(
        &self,
        driver: &Entered<'_, D>,
        image: &[u8],
        shared: u32,
    ) -> Result<RawFunction, BackendError> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match loaded.entry(image.into()) {
            Entry::Occupied(module) => module.into_mut(),
            Entry::Vacant(place) => {
                // SAFETY: the image is a whole one; this is the table's own copy, which outlives the module.
                let object = Object(unsafe { driver.load(place.key()) }?);
                place.insert(Module { object, shared: 0 })
            }
        };
        let name = CString::new(Kernel::NAME).unwrap_or_default();
        // SAFETY: the module is loaded.
        let function = unsafe { driver.function(module.raw(), &name) }?;
        // All that launch the function share its limit.
        if shared > module.shared {
            // SAFETY: the function is of the loaded module.
            unsafe { driver.allow_shared(function, shared) }?;
            module.shared = shared;
        }
        Ok(function)
    }

    /// Everything that was loaded, for unloading it: the images are still there then.
    pub(crate) fn take(&mut self) -> Loaded {
        mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}
