//! Layouts are those of HIP 6 and 7 on 64-bit systems, as their headers' compiler gives them.
#![cfg(target_pointer_width = "64")]

use std::mem::{offset_of, size_of};

use fuseplan_hip_sys::*;

#[test]
fn structures_have_the_headers_layouts() {
    assert_eq!(size_of::<hipDeviceProp_tR0600>(), 1472);
    assert_eq!(offset_of!(hipDeviceProp_tR0600, totalGlobalMem), 288);
    assert_eq!(offset_of!(hipDeviceProp_tR0600, gcnArchName), 1160);
}

#[test]
fn numbers_are_those_of_every_version() {
    assert_eq!(hipError_t::hipErrorOutOfMemory.0, 2);
    assert_eq!(hipError_t::hipErrorNoDevice.0, 100);
    assert_eq!(hipError_t::hipErrorNoBinaryForGpu.0, 209);
    assert_eq!(hipDeviceAttribute_t::hipDeviceAttributeWarpSize.0, 87);
    assert_eq!(hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount.0, 63);
    assert_eq!(hipDeviceAttribute_t::hipDeviceAttributeMaxSharedMemoryPerBlock.0, 74);
}
