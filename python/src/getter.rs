//! An attribute of a type's own instances without the look-up of its name.

use std::ffi::c_void;
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// A descriptor in C that types have for an attribute, and the function by which it is asked.
#[derive(Debug)]
pub(crate) struct Getter {
    classes: Vec<Py<PyType>>,
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
}

impl Getter {
    /// Of an attribute for which the first of these types that has one has such a descriptor, which no instance's own attributes
    /// hide; of those that have the same.
    ///
    /// # Errors
    /// What the look-up at a type raises.
    pub(crate) fn of(classes: &[&Bound<'_, PyType>], name: &Bound<'_, PyString>) -> PyResult<Option<Self>> {
        let mut of_classes = Vec::new();
        for class in classes {
            if let Some(descriptor) = class.getattr_opt(name)? {
                of_classes.push((class, descriptor));
            }
        }
        let Some((_, descriptor)) = of_classes.first().cloned() else { return Ok(None) };
        let kind = descriptor.get_type();
        if kind.name()? != "getset_descriptor" {
            return Ok(None);
        }
        // SAFETY: it is a type, which has this slot or not, and Python's lock is held.
        let slot = unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_descr_get) };
        let Some(slot) = NonNull::new(slot) else { return Ok(None) };
        // SAFETY: Python says that what is in this slot is such a function.
        let get = unsafe { std::mem::transmute::<*mut c_void, ffi::descrgetfunc>(slot.as_ptr()) };
        let alike = of_classes.iter().filter(|(_, of)| of.is(&descriptor));
        let classes = alike.map(|(class, _)| (**class).clone().unbind()).collect();
        Ok(Some(Getter { classes, descriptor: descriptor.unbind(), get }))
    }

    /// The attribute of an object that is of exactly one of the types; of others, whose type may have another, nothing.
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyAny>>> {
        let (py, class) = (object.py(), object.get_type());
        if !self.classes.iter().any(|known| known.is(&class)) {
            return None;
        }
        // SAFETY: the function is that of the descriptor's type, the object is of a type that the descriptor was found at, and
        // Python's lock is held. It gives a new reference, or raises.
        Some(unsafe {
            let found = (self.get)(self.descriptor.as_ptr(), object.as_ptr(), class.as_ptr());
            Bound::from_owned_ptr_or_err(py, found)
        })
    }
}
