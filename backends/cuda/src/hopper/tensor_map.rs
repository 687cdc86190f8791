//! Tensor maps: tensors as TMA sees them.

use std::ffi::{c_int, c_void};

use fuseplan_api::{BackendError, DataType};

use crate::driver::{self, call};
use crate::sys;

/// Words of an encoded map.
pub(crate) const MAP_WORDS: usize = 16;

/// Most dimensions: channels, W, H, (D,) images or filters.
pub(crate) const MAX_DIMS: usize = 5;

/// A tensor without its address, and the box of it that one TMA load brings.
#[derive(Debug, Clone)]
pub(crate) struct TensorMap {
    pub(crate) data_type: DataType,
    /// Whether f32 elements are rounded to TF32, to nearest, while they are loaded; `wgmma` would cut off.
    pub(crate) rounds: bool,
    /// Lengths, innermost first.
    pub(crate) lens: Vec<u64>,
    /// Strides of every dimension but the innermost, in bytes.
    pub(crate) strides: Vec<u64>,
    /// Innermost elements of a load: channels, a filter's depth, or positions of a plane.
    pub(crate) innermost: u32,
    /// Bytes of shared memory over which TMA swizzles rows, and from each to the next: 128, 64 or 32. Others are not swizzled, and follow one
    /// another.
    pub(crate) row: usize,
    pub(crate) part: Part,
}

/// What a load brings along the other dimensions.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// A box, of whose extents these are the others: the tiled mode.
    Tile { extents: Vec<u32> },
    /// As many output pixels, row by row and image by image: the im2col mode.
    Pixels {
        pixels: u32,
        strides: Vec<u32>,
        /// The corners of the im2col box: the coordinates of the first output's first tap, and those of the last
        /// output's first tap relative to the last element.
        lower: Vec<i32>,
        upper: Vec<i32>,
    },
}

/// Drivers set a bit of the second word for tensors of fewer bytes than this, which they must not; the last
/// that do are of CUDA 13.1.
const SMALL: u64 = 131_072;
const FLAW: u64 = 1 << 21;
const LAST_FLAWED: (c_int, c_int) = (13, 1);

/// The driver writes to multiples of 64 bytes.
#[repr(align(64))]
struct Encoded([u64; MAP_WORDS]);

impl TensorMap {
    /// The words that TMA reads, for the tensor at this address.
    ///
    /// # Errors
    /// A driver that is older than tensor maps, or that refuses this one.
    pub(crate) fn encode(&self, address: *const c_void) -> Result<[u64; MAP_WORDS], BackendError> {
        let data_type = match self.data_type {
            DataType::BFloat16 => sys::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DataType::Half => sys::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DataType::Float if !self.rounds => sys::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DataType::Float => sys::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            other @ (DataType::Double | DataType::Int8) => unreachable!("a constraint refuses {other}"),
        };
        let swizzle = match self.row {
            128 => sys::CU_TENSOR_MAP_SWIZZLE_128B,
            64 => sys::CU_TENSOR_MAP_SWIZZLE_64B,
            32 => sys::CU_TENSOR_MAP_SWIZZLE_32B,
            _ => sys::CU_TENSOR_MAP_SWIZZLE_NONE,
        };
        let (flat, promotion, zeros) = (
            sys::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        );
        let (rank, address) = (self.lens.len(), address.cast_mut());
        let (lens, strides) = (self.lens.as_ptr(), self.strides.as_ptr());
        let mut encoded = Encoded([0; MAP_WORDS]);
        let to = encoded.0.as_mut_ptr();
        let mut steps = [1; MAX_DIMS];
        match &self.part {
            Part::Tile { extents } => {
                let mut part = [1; MAX_DIMS];
                part[0] = self.innermost;
                part[1..rank].copy_from_slice(extents);
                let (part, steps) = (part.as_ptr(), steps.as_ptr());
                // SAFETY: arrays have as many entries as the rank asks for, the map is aligned and has its
                // size; the address is not read.
                unsafe {
                    call!(cuTensorMapEncodeTiled(
                        to,
                        data_type,
                        rank as u32,
                        address,
                        lens,
                        strides,
                        part,
                        steps,
                        flat,
                        swizzle,
                        promotion,
                        zeros
                    ))
                }?;
            }
            Part::Pixels { pixels, strides: apart, lower, upper } => {
                steps[1..rank - 1].copy_from_slice(apart);
                let (lower, upper, steps) = (lower.as_ptr(), upper.as_ptr(), steps.as_ptr());
                // SAFETY: arrays have as many entries as the rank asks for, the map is aligned and has its
                // size; the address is not read.
                unsafe {
                    call!(cuTensorMapEncodeIm2col(
                        to,
                        data_type,
                        rank as u32,
                        address,
                        lens,
                        strides,
                        lower,
                        upper,
                        self.innermost,
                        *pixels,
                        steps,
                        flat,
                        swizzle,
                        promotion,
                        zeros
                    ))
                }?;
            }
        }
        let bytes = self.strides.iter().zip(&self.lens[1..]).map(|(stride, len)| stride * len).max();
        let bytes = bytes.unwrap_or(self.lens[0] * self.data_type.size() as u64);
        if bytes < SMALL && driver::version()? <= LAST_FLAWED {
            encoded.0[1] &= !FLAW;
        }
        Ok(encoded.0)
    }
}
