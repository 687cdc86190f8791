//! Handles: the "Handle" section of the header.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use fuseplan::Handle;

use crate::abi::{In, Out, fuseplan_parallel_for_t};
use crate::boundary::export::export;
use crate::boundary::failure::{Failure, bad_parm};
use crate::boundary::parallel::ParallelLoop;
use crate::boundary::table::{Ref, create, object};
use crate::boundary::text::{read_text, supported, write_text};

/// What a `fuseplan_handle_t` names: a handle with the stream that was set last.
#[derive(Debug)]
pub struct HandleObject {
    handle: Mutex<Handle>,
}
object!(HandleObject, Handle, |handle| Some(handle.handle().target().to_string()));

/// C's `fuseplan_handle_t`.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_handle_t = Ref<HandleObject>;

impl HandleObject {
    /// The handle to run on.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The number that stands for the device that the calling thread has chosen.
const CURRENT_DEVICE: c_int = -1;

fn open(backend: In<c_char>, device: c_int) -> Result<Handle, Failure> {
    let ordinal = match u32::try_from(device) {
        Ok(ordinal) => Some(ordinal),
        Err(_) if device == CURRENT_DEVICE => None,
        Err(_) => {
            return Err(bad_parm(format!(
                "{device} is no device; accepted: numbers from 0, FUSEPLAN_CURRENT_DEVICE ({CURRENT_DEVICE})"
            )));
        }
    };
    match (backend.get(), ordinal) {
        (None, None) => Ok(Handle::new()?),
        (None, Some(ordinal)) => Err(bad_parm(format!(
            "`backend` is NULL, and {ordinal} is the number of a device within a backend; \
             accepted: FUSEPLAN_CURRENT_DEVICE ({CURRENT_DEVICE})"
        ))),
        (Some(_), None) => Ok(Handle::of_backend(&read_text(backend, "backend")?)?),
        (Some(_), Some(ordinal)) => Ok(Handle::open(&read_text(backend, "backend")?, ordinal)?),
    }
}

fn create_handle(
    out: Out<fuseplan_handle_t>,
    open: impl FnOnce() -> Result<Handle, Failure>,
) -> Result<(), Failure> {
    let out = out.required("handle")?;
    out.set(create(HandleObject { handle: Mutex::new(open()?) })?);
    Ok(())
}

export! {
    fn fuseplan_handle_create(handle: Out<fuseplan_handle_t>, backend: In<c_char>, device: c_int) {
        create_handle(handle, || open(backend, device))?;
    }

    fn fuseplan_handle_create_cpu(handle: Out<fuseplan_handle_t>, threads: usize) {
        create_handle(handle, || Ok(Handle::cpu_with_threads(threads)?))?;
    }

    fn fuseplan_handle_create_parallel_for(
        handle: Out<fuseplan_handle_t>,
        threads: usize,
        parallel_for: fuseplan_parallel_for_t,
        context: *mut c_void,
    ) {
        create_handle(handle, || {
            let pool = ParallelLoop::new(parallel_for, context, threads);
            let pool = pool.ok_or_else(|| bad_parm("`parallel_for` is NULL"))?;
            Ok(Handle::cpu_with_parallel_for(Arc::new(pool))?)
        })?;
    }

    fn fuseplan_handle_set_stream(handle: fuseplan_handle_t, stream: *mut c_void) {
        let object = handle.get()?;
        let mut handle = object.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the header says that the stream is of the device and outlives the handle.
        *handle = unsafe { handle.with_stream(stream) };
    }

    fn fuseplan_handle_synchronize(handle: fuseplan_handle_t) {
        handle.get()?.handle().synchronize()?;
    }

    fn fuseplan_handle_supported(handle: fuseplan_handle_t, text: Out<c_char>, size: Out<usize>) {
        write_text(&supported(&handle.get()?.handle())?, text, size)?;
    }

    fn fuseplan_handle_destroy(handle: fuseplan_handle_t) {
        if !handle.is_null() {
            handle.remove()?;
        }
    }
}
