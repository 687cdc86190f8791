//! An attribute of a type's own instances without the look-up of its name.

use std::ffi::c_void;
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// A descriptor that a type keeps for an attribute, and the function in C by which it is asked.
#[derive(Debug)]
pub(crate) struct Getter {
    class: Py<PyType>,
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
}

impl Getter {
    /// Of an attribute that instances have from their type, if the type says so by a descriptor.
    ///
    /// # Errors
    /// What the look-up at the type raises.
    pub(crate) fn of(class: &Bound<'_, PyType>, name: &Bound<'_, PyString>) -> PyResult<Option<Self>> {
        let Some(descriptor) = class.getattr_opt(name)? else { return Ok(None) };
        // SAFETY: it is a type, which has this slot or not, and Python's lock is held.
        let slot = unsafe { ffi::PyType_GetSlot(descriptor.get_type().as_type_ptr(), ffi::Py_tp_descr_get) };
        let Some(slot) = NonNull::new(slot) else { return Ok(None) };
        // SAFETY: Python says that what is in this slot is such a function.
        let get = unsafe { std::mem::transmute::<*mut c_void, ffi::descrgetfunc>(slot.as_ptr()) };
        Ok(Some(Getter { class: class.clone().unbind(), descriptor: descriptor.unbind(), get }))
    }

    /// The attribute of an object that is of exactly this type; of others, whose type may have another, nothing.
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyAny>>> {
        let (py, class) = (object.py(), object.get_type());
        if !self.class.is(&class) {
            return None;
        }
        // SAFETY: the function is that of the descriptor's type, the object is of the type that the descriptor was found at, and
        // Python's lock is held. It gives a new reference, or raises.
        Some(unsafe {
            let found = (self.get)(self.descriptor.as_ptr(), object.as_ptr(), class.as_ptr());
            Bound::from_owned_ptr_or_err(py, found)
        })
    }
}
