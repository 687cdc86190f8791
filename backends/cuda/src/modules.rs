//! The kernels that a context has loaded.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use fuseplan_api::BackendError;
use fuseplan_gpu::Kernel;

use crate::driver::call;
use crate::sys::{self, Opaque};

/// The modules of a context. They stay as long as it does: a graph, also a caller's, has the functions of plans that
/// are gone, and unloading a module would take them away. The same image is loaded once.
#[derive(Debug, Default)]
pub(crate) struct Modules(Mutex<HashMap<Box<[u8]>, Module>>);

#[derive(Debug)]
struct Module {
    raw: Opaque,
    /// The most dynamic shared memory that the kernel may be launched with, in bytes.
    shared: u32,
}

// SAFETY: a module is an address that only the driver dereferences, which takes it from any thread.
unsafe impl Send for Module {}

impl Modules {
    /// The kernel of a cubin for the current context's device, which must be the context of these modules, to be
    /// launched with `shared` bytes of dynamic shared memory.
    pub(crate) fn function(&self, image: &[u8], shared: u32) -> Result<Opaque, BackendError> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match loaded.entry(image.into()) {
            Entry::Occupied(module) => module.into_mut(),
            Entry::Vacant(place) => {
                let mut raw = ptr::null_mut();
                // SAFETY: the image is a whole cubin, which the driver checks and copies.
                unsafe { call!(cuModuleLoadData(&mut raw, image.as_ptr().cast())) }?;
                place.insert(Module { raw, shared: 0 })
            }
        };
        let name = CString::new(Kernel::NAME).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded and its name ends in a zero.
        unsafe { call!(cuModuleGetFunction(&mut function, module.raw, name.as_ptr())) }?;
        // All that launch the function share its limit.
        if shared > module.shared {
            let limit = sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of the loaded module.
            unsafe { call!(cuFuncSetAttribute(function, limit, shared as i32)) }?;
            module.shared = shared;
        }
        Ok(function)
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Unloads everything.
    pub(crate) fn unload(&mut self) {
        for (_, module) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain() {
            // SAFETY: the module is unloaded once, and whatever launched its function is gone with the context.
            let _ = unsafe { call!(cuModuleUnload(module.raw)) };
        }
    }
}
