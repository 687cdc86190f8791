//! The types of the interface that are numbers and functions.

#![allow(non_camel_case_types, reason = "C's names")]

use std::ffi::c_uint;

use crate::boundary::parallel::{Loop, Work};

pub use crate::boundary::export::{Bool, In, Out, Prototype};

/// As in the header.
pub type fuseplan_data_type_t = c_uint;
/// As in the header.
pub type fuseplan_layout_t = c_uint;
/// As in the header.
pub type fuseplan_batch_norm_mode_t = c_uint;
/// As in the header.
pub type fuseplan_activation_t = c_uint;
/// As in the header.
pub type fuseplan_work_t = Work;
/// As in the header.
pub type fuseplan_parallel_for_t = Loop;
