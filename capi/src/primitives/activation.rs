//! Activation forward and backward.

use std::ffi::c_void;

use fuseplan::{ActivationForward, TensorDescriptor};

use super::elements::{Elements, strides, visit};
use super::scratch::Scratch;
use super::tensor::{blend, same_lens, transform};
use crate::abi::{In, export};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::Scales;
use crate::execute::{Chain, Memory};
use crate::handle::miopenHandle_t;
use crate::status::Failure;
use crate::tensor::miopenTensorDescriptor_t;

/// The same tensor with at least the four dimensions that plans take.
fn with_plan_rank(memory: Memory) -> Result<Memory, Failure> {
    let descriptor = memory.descriptor;
    // Of lower ranks, none of which has channels in blocks.
    let Some(strides) = descriptor.strides().filter(|_| descriptor.rank() < 4) else { return Ok(memory) };
    let fill = vec![1; 4 - descriptor.rank()];
    let lens = [descriptor.lens(), &fill].concat();
    let strides = [strides, &fill].concat();
    let descriptor = TensorDescriptor::new(descriptor.data_type(), &lens, &strides)?;
    Ok(Memory { descriptor, ..memory })
}

export! {
    fn miopenActivationForward(
        handle: miopenHandle_t,
        activDesc: miopenActivationDescriptor_t,
        alpha: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        beta: In<c_void>,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        let handle = handle.get()?;
        let (mode, params) = activDesc.activation()?;
        let mut x = with_plan_rank(Memory::new(xDesc, x)?.present("x")?)?;
        let y = with_plan_rank(Memory::new(yDesc, y)?.present("y")?)?;
        same_lens("y", &y.descriptor, "x", &x.descriptor)?;
        // A plan of activations keeps its input's strides.
        let on = handle.pinned();
        let mut copy = None;
        if x.descriptor != y.descriptor {
            handle.require_host("an activation that changes strides")?;
            let scratch = copy.insert(Scratch::new(&on, y.descriptor)?);
            // SAFETY: the header says that `x` is memory of its descriptor, and it is the host's.
            unsafe { transform(x, scratch.memory(), Scales::NONE) }?;
            x = scratch.memory();
        }
        let mut chain = Chain::new(x.descriptor)?;
        chain.append(ActivationForward::new(mode), params.into(), Scales::read(alpha, beta))?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { chain.run_on(&on, x, y, None) }?;
    }

    fn miopenActivationBackward(
        handle: miopenHandle_t,
        activDesc: miopenActivationDescriptor_t,
        alpha: In<c_void>,
        yDesc: miopenTensorDescriptor_t,
        y: *const c_void,
        dyDesc: miopenTensorDescriptor_t,
        dy: *const c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        beta: In<c_void>,
        dxDesc: miopenTensorDescriptor_t,
        dx: *mut c_void,
    ) {
        handle.get()?.require_host("miopenActivationBackward")?;
        let (mode, params) = activDesc.activation()?;
        let dx = Memory::new(dxDesc, dx)?.present("dx")?;
        let read = |descriptor, address, name| {
            let memory = Memory::new(descriptor, address)?.present(name)?;
            same_lens(name, &memory.descriptor, "dx", &dx.descriptor)?;
            // SAFETY: the header says that the pointer is memory of its descriptor, and it is the host's.
            Ok::<_, Failure>(unsafe { Elements::new(memory) })
        };
        let (x, y, dy) = (read(xDesc, x, "x")?, read(yDesc, y, "y")?, read(dyDesc, dy, "dy")?);
        // SAFETY: the header says that `dx` is memory of its descriptor, and it is the host's.
        let dx = unsafe { Elements::new(dx) };
        let scales = Scales::read(alpha, beta);
        let (activation, data_type) = (mode.with(&params), dx.descriptor().data_type());
        let [xd, yd, dyd, dxd] = [x, y, dy, dx].map(|elements| *elements.descriptor());
        visit(
            dxd.lens(),
            [strides(&xd)?, strides(&yd)?, strides(&dyd)?, strides(&dxd)?],
            |[xo, yo, dyo, dxo]| {
                let gradient = activation.backward(data_type, x.get(xo), y.get(yo), dy.get(dyo));
                dx.set(dxo, blend(gradient, scales, || dx.get(dxo)));
            },
        );
    }
}
