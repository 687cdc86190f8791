//! Tensor helpers: operations of two tensors, fill, scale, change of strides. Host memory only.

use std::ffi::c_void;

use fuseplan::{DataType, TensorDescriptor};

use super::elements::{Elements, strides, visit};
use crate::abi::{In, export, miopenTensorOp_t};
use crate::args::Scales;
use crate::execute::Memory;
use crate::handle::miopenHandle_t;
use crate::status::{Failure, bad_parm};
use crate::tensor::miopenTensorDescriptor_t;

/// `alpha · x + beta · y` for each element; `y` is not read when beta is 0.
///
/// # Safety
/// Host memory as the descriptors say.
pub(crate) unsafe fn transform(x: Memory, y: Memory, scales: Scales) -> Result<(), Failure> {
    same_lens("y", &y.descriptor, "x", &x.descriptor)?;
    // SAFETY: as promised by the caller.
    let (x, y) = unsafe { (Elements::new(x), Elements::new(y)) };
    let (from, to) = (*x.descriptor(), *y.descriptor());
    visit(from.lens(), [strides(&from)?, strides(&to)?], |[source, target]| {
        y.set(target, blend(x.get(source), scales, || y.get(target)));
    });
    Ok(())
}

/// `alpha · value + beta · prior`; the prior value is not read when beta is 0.
pub(crate) fn blend(value: f64, scales: Scales, prior: impl FnOnce() -> f64) -> f64 {
    let scaled = f64::from(scales.alpha) * value;
    if scales.beta == 0.0 { scaled } else { scaled + f64::from(scales.beta) * prior() }
}

pub(crate) fn same_lens(
    name: &str,
    found: &TensorDescriptor,
    other: &str,
    expected: &TensorDescriptor,
) -> Result<(), Failure> {
    if found.lens() == expected.lens() && found.data_type() == expected.data_type() {
        return Ok(());
    }
    Err(bad_parm(format!("`{name}` is {found}, `{other}` is {expected}; lengths and data type must agree")))
}

/// Strides of `small` that repeat its dimensions of length 1 over the lengths of `large`.
fn repeated(small: &TensorDescriptor, large: &TensorDescriptor) -> Result<Vec<usize>, Failure> {
    let fits = small.rank() == large.rank() && small.data_type() == large.data_type();
    let mut dims = small.lens().iter().zip(large.lens());
    if !fits || !dims.all(|(&s, &l)| s == l || s == 1) {
        return Err(bad_parm(format!(
            "`B` is {small}, `C` is {large}; each length of B must be that of C, or 1, and the data types equal"
        )));
    }
    let lens = small.lens().iter().zip(strides(small)?);
    Ok(lens.map(|(&length, &stride)| if length == 1 { 0 } else { stride }).collect())
}

/// The function of a tensor operation.
fn operation(number: miopenTensorOp_t) -> Result<fn(f64, f64) -> f64, Failure> {
    Ok(match number {
        0 => |a, b| a + b,
        1 => |a, b| a * b,
        2 => f64::min,
        3 => f64::max,
        _ => return Err(bad_parm(format!("{number} is no tensor operation; accepted: 0 to 3"))),
    })
}

/// The value behind `alpha`, which is of the tensor's own data type.
fn value(alpha: In<c_void>, data_type: DataType) -> Result<f64, Failure> {
    let number = match data_type {
        DataType::Half => alpha.cast::<half::f16>().get().map(f64::from),
        DataType::BFloat16 => alpha.cast::<half::bf16>().get().map(f64::from),
        DataType::Double => alpha.cast::<f64>().get(),
        DataType::Int8 => alpha.cast::<i8>().get().map(f64::from),
        _ => alpha.cast::<f32>().get().map(f64::from),
    };
    number.ok_or_else(|| bad_parm("`alpha` is NULL"))
}

export! {
    fn miopenOpTensor(
        handle: miopenHandle_t,
        tensorOp: miopenTensorOp_t,
        alpha1: In<c_void>,
        aDesc: miopenTensorDescriptor_t,
        A: *const c_void,
        alpha2: In<c_void>,
        bDesc: miopenTensorDescriptor_t,
        B: *const c_void,
        beta: In<c_void>,
        cDesc: miopenTensorDescriptor_t,
        C: *mut c_void,
    ) {
        handle.get()?.require_host("miopenOpTensor")?;
        let op = operation(tensorOp)?;
        let a = Memory::new(aDesc, A)?.present("A")?;
        let b = Memory::new(bDesc, B)?.present("B")?;
        let c = Memory::new(cDesc, C)?.present("C")?;
        same_lens("A", &a.descriptor, "C", &c.descriptor)?;
        let b_strides = repeated(&b.descriptor, &c.descriptor)?;
        let a_scale = f64::from(Scales::read(alpha1, In::NULL).alpha);
        let Scales { alpha: b_scale, beta } = Scales::read(alpha2, beta);
        // SAFETY: the header says that the pointers are memory of their descriptors, and it is the host's.
        let (a, b, c) = unsafe { (Elements::new(a), Elements::new(b), Elements::new(c)) };
        let (ad, cd) = (*a.descriptor(), *c.descriptor());
        visit(cd.lens(), [strides(&ad)?, &b_strides, strides(&cd)?], |[ao, bo, co]| {
            let result = op(a_scale * a.get(ao), f64::from(b_scale) * b.get(bo));
            c.set(co, blend(result, Scales { alpha: 1.0, beta }, || c.get(co)));
        });
    }

    fn miopenSetTensor(
        handle: miopenHandle_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        alpha: In<c_void>,
    ) {
        handle.get()?.require_host("miopenSetTensor")?;
        let y = Memory::new(yDesc, y)?.present("y")?;
        let value = value(alpha, y.descriptor.data_type())?;
        // SAFETY: the header says that `y` is memory of its descriptor, and it is the host's.
        let y = unsafe { Elements::new(y) };
        let descriptor = *y.descriptor();
        visit(descriptor.lens(), [strides(&descriptor)?], |[offset]| y.set(offset, value));
    }

    fn miopenScaleTensor(
        handle: miopenHandle_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        alpha: In<c_void>,
    ) {
        handle.get()?.require_host("miopenScaleTensor")?;
        let y = Memory::new(yDesc, y)?.present("y")?;
        let value = value(alpha, y.descriptor.data_type())?;
        // SAFETY: the header says that `y` is memory of its descriptor, and it is the host's.
        let y = unsafe { Elements::new(y) };
        let descriptor = *y.descriptor();
        visit(descriptor.lens(), [strides(&descriptor)?], |[offset]| y.set(offset, value * y.get(offset)));
    }

    fn miopenTransformTensor(
        handle: miopenHandle_t,
        alpha: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        beta: In<c_void>,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        handle.get()?.require_host("miopenTransformTensor")?;
        let x = Memory::new(xDesc, x)?.present("x")?;
        let y = Memory::new(yDesc, y)?.present("y")?;
        // SAFETY: the header says that the pointers are memory of their descriptors, and it is the host's.
        unsafe { transform(x, y, Scales::read(alpha, beta)) }?;
    }
}
