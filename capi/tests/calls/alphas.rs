//! `miopenConvolutionBiasActivationForward` scales by any two alphas: act(alpha1 · conv(x) + alpha2 · z + bias).

use std::ffi::c_void;

use MIOpen::*;

use crate::common::{any, convolution, cpu, last_error, tensor};

/// Images of 2x2 with two channels; a 1x1 convolution sums them.
struct Call {
    handle: miopenHandle_t,
    x: [f32; 8],
    weights: [f32; 2],
    z: [f32; 4],
    bias: [f32; 1],
}

impl Call {
    /// The output, or the status; with `z` in the output's own memory if asked for.
    fn run(&self, alphas: [f32; 2], in_place: bool) -> Vec<f32> {
        let [x, w, y] = [[1, 2, 2, 2], [1, 2, 1, 1], [1, 1, 2, 2]].map(tensor);
        let activation = create!(miopenCreateActivationDescriptor());
        call!(miopenSetActivationDescriptor(activation, 0, 0.0, 0.0, 0.0));
        let pointer = |values: &[f32]| values.as_ptr().cast::<c_void>();
        let mut output = if in_place { self.z } else { [f32::NAN; 4] };
        let to: *mut c_void = output.as_mut_ptr().cast();
        let z = if in_place { to.cast_const() } else { pointer(&self.z) };
        let [alpha1, alpha2] = alphas.map(|alpha| [alpha]);
        let status = status!(miopenConvolutionBiasActivationForward(
            self.handle,
            any(&alpha1),
            x,
            pointer(&self.x),
            w,
            pointer(&self.weights),
            convolution(0),
            1,
            std::ptr::null_mut(),
            0,
            any(&alpha2),
            y,
            z,
            tensor([1, 1, 1, 1]),
            pointer(&self.bias),
            activation,
            y,
            to,
        ));
        assert_eq!(status, 0, "{}", last_error());
        output.to_vec()
    }

    /// In f64.
    fn expected(&self, [alpha1, alpha2]: [f32; 2]) -> Vec<f64> {
        let sum =
            |i: usize| f64::from(self.x[i] * self.weights[0]) + f64::from(self.x[4 + i] * self.weights[1]);
        let rest = |i: usize| if alpha2 == 0.0 { 0.0 } else { f64::from(alpha2) * f64::from(self.z[i]) };
        (0..4).map(|i| f64::from(alpha1) * sum(i) + rest(i) + f64::from(self.bias[0])).collect()
    }
}

#[test]
fn any_two_alphas_scale_what_they_belong_to() {
    let mut call = Call {
        handle: cpu(),
        x: [1.0, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0, 8.0],
        weights: [2.0, -1.0],
        z: [3.0, -0.5, 0.0, 1e10],
        bias: [0.25],
    };
    let numbers = [0.0, 1.0, -1.0, 2.0, 0.3, 1e-39, -1e-20, 1e20, 3e38, 1e-45];
    let mut pairs = 0;
    for z in [call.z, [1e-3, 1e5, -7.0, 0.0]] {
        call.z = z;
        for alphas in numbers.iter().flat_map(|&a| numbers.map(|b| [a, b])) {
            let expected = call.expected(alphas);
            for in_place in [false, true] {
                let found = call.run(alphas, in_place);
                for (found, &expected) in found.iter().zip(&expected) {
                    // Products of f32 that f32 cannot hold are infinite, and sums of them may be NaN.
                    let largest = f64::from(f32::MAX) / 1e3;
                    let terms = f64::from(alphas[0]).abs() * 24.0 + f64::from(alphas[1]).abs() * 1e10;
                    if terms > largest {
                        continue;
                    }
                    let error = (f64::from(*found) - expected).abs();
                    let scale = f64::from(alphas[0]).abs() * 24.0
                        + call.z.iter().fold(0.0, |m: f64, z| m.max(f64::from(z.abs())))
                            * f64::from(alphas[1]).abs()
                        + 0.25;
                    assert!(error <= 1e-6 * scale, "{alphas:?}: {found} instead of {expected}");
                    pairs += 1;
                }
            }
        }
    }
    assert!(pairs > 1000, "{pairs}");
}
