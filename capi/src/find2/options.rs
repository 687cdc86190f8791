//! What a search may use, and whether it times solvers.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::abi::{Out, export, miopenFindResultsOrder_t, miopenTensorArgumentId_t};
use crate::parallel::Address;
use crate::status::{Failure, bad_parm};
use crate::table::{Ref, create, object};

/// What a `miopenFindOptions_t` names.
#[derive(Debug, Default)]
pub struct FindOptionsObject {
    options: Mutex<FindOptions>,
}
object!(FindOptionsObject, FindOptions);

/// C's `miopenFindOptions_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenFindOptions_t = Ref<FindOptionsObject>;

#[derive(Debug, Clone)]
pub(super) struct FindOptions {
    /// Whether solvers are timed; otherwise the handle's tuning policy decides.
    pub(super) tuning: bool,
    /// The most bytes of workspace that a solution may need.
    pub(super) workspace_limit: usize,
    pub(super) workspace: Option<(Address, usize)>,
    /// Memory for the problem's tensors.
    pub(super) tensors: BTreeMap<miopenTensorArgumentId_t, Address>,
}

impl Default for FindOptions {
    fn default() -> Self {
        FindOptions { tuning: false, workspace_limit: usize::MAX, workspace: None, tensors: BTreeMap::new() }
    }
}

impl miopenFindOptions_t {
    fn with(self, work: impl FnOnce(&mut FindOptions)) -> Result<(), Failure> {
        let object = self.get()?;
        work(&mut object.options.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// The options as they are now; those that nobody set for NULL.
    pub(super) fn snapshot(self) -> Result<FindOptions, Failure> {
        if self.is_null() {
            return Ok(FindOptions::default());
        }
        let object = self.get()?;
        let options = object.options.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(options.clone())
    }
}

/// A switch that is 0 or 1.
fn switch(value: i64, what: &str) -> Result<bool, Failure> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(bad_parm(format!("{what} is {value}; accepted: 0 or 1"))),
    }
}

export! {
    fn miopenCreateFindOptions(options: Out<miopenFindOptions_t>) {
        let out = options.required("options")?;
        out.set(create(FindOptionsObject::default())?);
    }

    fn miopenDestroyFindOptions(options: miopenFindOptions_t) {
        if !options.is_null() {
            options.remove()?;
        }
    }

    fn miopenSetFindOptionTuning(options: miopenFindOptions_t, value: c_int) {
        let tuning = switch(value.into(), "the tuning option")?;
        options.with(|options| options.tuning = tuning)?;
    }

    fn miopenSetFindOptionResultsOrder(options: miopenFindOptions_t, value: miopenFindResultsOrder_t) {
        options.get()?;
        // There is one result, which is in any order.
        switch(value.into(), "the order of results")?;
    }

    fn miopenSetFindOptionWorkspaceLimit(options: miopenFindOptions_t, value: usize) {
        options.with(|options| options.workspace_limit = value)?;
    }

    fn miopenSetFindOptionPreallocatedWorkspace(options: miopenFindOptions_t, buffer: *mut c_void, size: usize) {
        let workspace = (!buffer.is_null()).then_some((Address(buffer), size));
        options.with(|options| options.workspace = workspace)?;
    }

    fn miopenSetFindOptionPreallocatedTensor(
        options: miopenFindOptions_t,
        id: miopenTensorArgumentId_t,
        buffer: *mut c_void,
    ) {
        let address = Address(buffer);
        options.with(|options| {
            if address.0.is_null() {
                options.tensors.remove(&id);
            } else {
                options.tensors.insert(id, address);
            }
        })?;
    }

    fn miopenSetFindOptionAttachBinaries(options: miopenFindOptions_t, attach: c_uint) {
        options.get()?;
        // Kernels are kept in the cache on disk, where a loaded solution finds them, not in the solution.
        switch(attach.into(), "the option to attach binaries")?;
    }
}
