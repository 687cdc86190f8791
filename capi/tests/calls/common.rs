//! Calls in few words, and a handle of the CPU backend.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null;

use MIOpen::abi::{In, Out};
use MIOpen::*;

/// The status of a call.
macro_rules! status {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are any numbers, and pointers are to live locals of their type.
        unsafe { MIOpen::$function($($argument),*) }
    };
}

/// A call that succeeds.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let status = status!($function($($argument),*));
        assert_eq!(status, 0, "{}: {}", stringify!($function), $crate::common::last_error());
    }};
}

/// A call that creates something and succeeds.
macro_rules! create {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let mut handle = MIOpen::Ref::NULL;
        call!($function($crate::common::out(&mut handle) $(, $argument)*));
        handle
    }};
}

/// A place that a call writes to.
pub(crate) fn out<T: Copy>(place: &mut T) -> Out<T> {
    // SAFETY: the tests keep every place alive during the call that it is for.
    unsafe { Out::new(place) }
}

/// A place for a handle that nobody asks for again; it stays for ever.
pub(crate) fn discarded<T>() -> Out<Ref<T>> {
    out(Box::leak(Box::new(Ref::NULL)))
}

/// Values that a call reads; as many as the function reads.
pub(crate) fn from<T: Copy>(values: &[T]) -> In<T> {
    // SAFETY: the tests hand in as many values as the function reads, and keep them alive.
    unsafe { In::new(values.as_ptr()) }
}

/// The same of values whose type only the function's contract tells.
pub(crate) fn any(values: &[f32]) -> In<c_void> {
    // SAFETY: as `from`.
    unsafe { In::new(values.as_ptr().cast()) }
}

/// NULL.
pub(crate) fn none() -> In<c_void> {
    // SAFETY: NULL promises nothing.
    unsafe { In::new(null()) }
}

/// What this thread was told last.
pub(crate) fn last_error() -> String {
    // SAFETY: a C string that lives until this thread's next failure, after the copy.
    unsafe { CStr::from_ptr(fuseplanGetLastErrorString()) }.to_string_lossy().into_owned()
}

pub(crate) fn cpu() -> miopenHandle_t {
    let name = c"cpu";
    create!(fuseplanCreateForBackend(In::new(name.as_ptr())))
}

/// A packed f32 tensor.
pub(crate) fn tensor(lens: [c_int; 4]) -> miopenTensorDescriptor_t {
    let [n, c, h, w] = lens;
    let tensor = create!(miopenCreateTensorDescriptor());
    call!(miopenSet4dTensorDescriptor(tensor, 1, n, c, h, w));
    tensor
}

/// An f32 tensor with strides.
pub(crate) fn strided(lens: [c_int; 4], strides: [c_int; 4]) -> miopenTensorDescriptor_t {
    let tensor = create!(miopenCreateTensorDescriptor());
    call!(miopenSetTensorDescriptor(tensor, 1, 4, from(&lens), from(&strides)));
    tensor
}

/// A convolution with a padding, and strides and dilations of 1.
pub(crate) fn convolution(pad: c_int) -> miopenConvolutionDescriptor_t {
    let conv = create!(miopenCreateConvolutionDescriptor());
    call!(miopenInitConvolutionDescriptor(conv, 0, pad, pad, 1, 1, 1, 1));
    conv
}
