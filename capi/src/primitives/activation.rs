//! Activation forward and backward.

use std::ffi::c_void;

use fuseplan::{ActivationForward, ActivationMode, ActivationParams, DataType, TensorDescriptor};

use super::elements::{Elements, visit};
use super::scratch::Scratch;
use super::tensor::{blend, same_lens, transform};
use crate::abi::{In, export};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::{Given, Scales};
use crate::execute::{Chain, Memory};
use crate::handle::miopenHandle_t;
use crate::status::Failure;
use crate::tensor::miopenTensorDescriptor_t;

/// The same tensor with at least the four dimensions that plans take.
fn with_plan_rank(memory: Memory) -> Result<Memory, Failure> {
    let descriptor = memory.descriptor;
    let fill = vec![1; 4usize.saturating_sub(descriptor.rank())];
    let lens = [descriptor.lens(), &fill].concat();
    let strides = [descriptor.strides(), &fill].concat();
    let descriptor = TensorDescriptor::new(descriptor.data_type(), &lens, &strides)?;
    Ok(Memory { descriptor, ..memory })
}

/// The values at one element of a backward pass.
struct Point {
    x: f64,
    y: f64,
    dy: f64,
}

/// dx of one element, with MIOpen's formulas.
fn gradient(mode: ActivationMode, params: ActivationParams, epsilon: f64, at: Point) -> f64 {
    let Point { x, y, dy } = at;
    let ActivationParams { alpha, beta, gamma } = params;
    let when = |condition: bool, value: f64| if condition { value } else { 0.0 };
    match mode {
        ActivationMode::Logistic => dy * y * (1.0 - y),
        ActivationMode::Tanh => when(beta.abs() > epsilon, dy * alpha * (beta - y * y / beta)),
        ActivationMode::Relu => when(x > 0.0, dy),
        ActivationMode::SoftRelu => {
            let e = x.min(50.0).exp();
            dy * e / (1.0 + e)
        }
        ActivationMode::Abs => {
            if x > 0.0 {
                dy
            } else {
                -dy
            }
        }
        // MIOpen leaves dy out here; programs were written against that.
        ActivationMode::Power => {
            let base = alpha + beta * x;
            when(base > epsilon, beta * gamma * y / base)
        }
        ActivationMode::ClippedRelu => when(x > 0.0 && x <= alpha, dy),
        ActivationMode::LeakyRelu => {
            if x > 0.0 {
                dy
            } else {
                alpha * dy
            }
        }
        ActivationMode::Elu => {
            if x > 0.0 {
                dy
            } else {
                dy * (y + alpha)
            }
        }
        ActivationMode::Clamp => when(x > alpha && x <= beta, dy),
        _ => dy,
    }
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
        let mut copy = None;
        if x.descriptor != y.descriptor {
            handle.require_host("an activation that changes strides")?;
            let scratch = copy.insert(Scratch::new(y.descriptor)?);
            // SAFETY: the header says that `x` is memory of its descriptor, and it is the host's.
            unsafe { transform(x, scratch.memory(), Scales::NONE) }?;
            x = scratch.memory();
        }
        let params = [params.alpha, params.beta, params.gamma];
        let mut chain = Chain::new(x.descriptor)?;
        chain.append(ActivationForward::new(mode), Given::Activation { params }, Scales::read(alpha, beta))?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { chain.run(&handle, x, y, None) }?;
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
        // SAFETY: as above.
        let dx = unsafe { Elements::new(dx) };
        let scales = Scales::read(alpha, beta);
        let epsilon = match dx.descriptor().data_type() {
            DataType::Half | DataType::BFloat16 => 1e-4,
            _ => 1e-6,
        };
        let [xd, yd, dyd, dxd] = [x, y, dy, dx].map(|elements| *elements.descriptor());
        visit(
            dxd.lens(),
            [xd.strides(), yd.strides(), dyd.strides(), dxd.strides()],
            |[xo, yo, dyo, dxo]| {
                let at = Point { x: x.get(xo), y: y.get(yo), dy: dy.get(dyo) };
                dx.set(dxo, blend(gradient(mode, params, epsilon, at), scales, || dx.get(dxo)));
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each gradient against the slope of the function between two close points.
    #[test]
    fn gradients_are_the_slopes_of_the_functions() {
        let params = ActivationParams::new(0.75, 1.5, 2.0);
        let ActivationParams { alpha, beta, .. } = params;
        type Function = fn(f64, f64, f64) -> f64;
        let functions: [(ActivationMode, Function); 10] = [
            (ActivationMode::Pasthru, |x, _, _| x),
            (ActivationMode::Logistic, |x, _, _| 1.0 / (1.0 + (-x).exp())),
            (ActivationMode::Tanh, |x, a, b| b * (a * x).tanh()),
            (ActivationMode::Relu, |x, _, _| x.max(0.0)),
            (ActivationMode::SoftRelu, |x, _, _| x.exp().ln_1p()),
            (ActivationMode::Abs, |x, _, _| x.abs()),
            (ActivationMode::ClippedRelu, |x, a, _| x.max(0.0).min(a)),
            (ActivationMode::LeakyRelu, |x, a, _| if x > 0.0 { x } else { a * x }),
            (ActivationMode::Elu, |x, a, _| if x > 0.0 { x } else { a * x.exp_m1() }),
            (ActivationMode::Clamp, |x, a, b| x.min(b).max(a)),
        ];
        for (mode, function) in functions {
            let f = |x: f64| function(x, alpha, beta);
            for x in [-2.3, -0.4, 0.3, 0.9, 1.7] {
                let slope = (f(x + 1e-6) - f(x - 1e-6)) / 2e-6;
                let found = gradient(mode, params, 1e-6, Point { x, y: f(x), dy: 3.0 });
                assert!((found - 3.0 * slope).abs() < 1e-6, "{mode} at {x}: {found}, slope {slope}");
            }
        }
        // POWER as MIOpen has it, without dy.
        let y = (alpha + beta * 0.5).powi(2);
        let found = gradient(ActivationMode::Power, params, 1e-6, Point { x: 0.5, y, dy: 3.0 });
        assert!((found - 2.0 * beta * (alpha + beta * 0.5)).abs() < 1e-12);
    }
}
