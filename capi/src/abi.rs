//! The types of MIOpen's interface.

#![allow(non_camel_case_types, reason = "MIOpen's own names")]

use std::ffi::{c_uint, c_void};

use crate::boundary::arguments::{Argument, arguments};
use crate::boundary::parallel::{Loop, Work};
use crate::tensor::miopenTensorDescriptor_t;

pub use crate::boundary::export::{Bool, In, Out, Prototype};
pub(crate) use crate::boundary::export::{FromBits, export, export_symbol, to_int, to_size};

/// As in the header.
pub type miopenDataType_t = c_uint;
/// As in the header.
pub type miopenTensorLayout_t = c_uint;
/// As in the header.
pub type miopenTensorOp_t = c_uint;
/// As in the header.
pub type miopenConvolutionMode_t = c_uint;
/// As in the header.
pub type miopenConvolutionAttrib_t = c_uint;
/// As in the header.
pub type miopenConvolutionFindMode_t = c_uint;
/// As in the header.
pub type miopenBatchNormMode_t = c_uint;
/// As in the header.
pub type miopenActivationMode_t = c_uint;
/// As in the header.
pub type miopenFusionDirection_t = c_uint;
/// As in the header.
pub type fuseplanMathMode_t = c_uint;
/// As in the header.
pub type miopenConvFwdAlgorithm_t = c_uint;
/// As in the header.
pub type miopenConvAlgorithm_t = c_uint;
/// As in the header.
pub type miopenTuningPolicy_t = c_uint;
/// As in the header.
pub type miopenProblemDirection_t = c_uint;
/// As in the header.
pub type miopenTensorArgumentId_t = c_uint;
/// As in the header.
pub type miopenFindResultsOrder_t = c_uint;

/// As in the header.
pub type miopenAcceleratorQueue_t = *mut c_void;
/// As in the header.
pub type miopenAllocatorFunction = Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>;
/// As in the header.
pub type miopenDeallocatorFunction = Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>;
/// As in the header.
pub type fuseplanWork_t = Work;
/// As in the header.
pub type fuseplanParallelFor_t = Loop;

/// One result of a find call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct miopenConvAlgoPerf_t {
    /// The algorithm; a union of three enumerations in C.
    pub fwd_algo: miopenConvFwdAlgorithm_t,
    /// Milliseconds.
    pub time: f32,
    /// Bytes of workspace.
    pub memory: usize,
}

/// One solution of the immediate calls.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct miopenConvSolution_t {
    /// Milliseconds; negative when there is no estimate.
    pub time: f32,
    /// Bytes.
    pub workspace_size: usize,
    /// For the other immediate calls.
    pub solution_id: u64,
    /// Its algorithm.
    pub algorithm: miopenConvAlgorithm_t,
}

/// One argument of a solution.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct miopenTensorArgument_t {
    /// Which tensor or scalar of the problem it is.
    pub id: miopenTensorArgumentId_t,
    /// NULL, or a descriptor in the place of the problem's.
    pub descriptor: *const miopenTensorDescriptor_t,
    /// Memory of the device; of the host for scalars.
    pub buffer: *mut c_void,
}

impl FromBits for miopenAllocatorFunction {
    unsafe fn from_bits(bits: u64) -> Self {
        // SAFETY: 0, which is none, or a function, as the caller promises.
        unsafe { std::mem::transmute(bits as usize) }
    }
}

impl FromBits for miopenDeallocatorFunction {
    unsafe fn from_bits(bits: u64) -> Self {
        // SAFETY: 0, which is none, or a function, as the caller promises.
        unsafe { std::mem::transmute(bits as usize) }
    }
}

arguments! {
    for miopenAllocatorFunction: |function| function.map_or(0, |function| function as usize), "{:#x}";
    for miopenDeallocatorFunction: |function| function.map_or(0, |function| function as usize), "{:#x}";
}
