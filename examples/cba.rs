//! Convolution + bias + activation as one kernel: AMD's fusion sample for MIOpen, step by step.
//!
//! The same problem (16×128×16×16 input, one 128×3×3 filter, no padding, ReLU, f32) and the same order of
//! steps: describe, create the plan, append three operators, compile, set arguments, execute; then new data of
//! the same shapes, set and executed again without a compile. Every output must be what plain loops in f64 give, but for
//! f32's rounding; a wrong number ends the program with an error.
//!
//! ```text
//! cargo run --release --example cba
//! ```

use std::error::Error;
use std::time::Instant;

use fuseplan::*;

const N: usize = 16;
const C: usize = 128;
const H: usize = 16;
const W: usize = 16;
const K: usize = 1;
const TAPS: usize = 3;
const OUT_H: usize = H - TAPS + 1;
const OUT_W: usize = W - TAPS + 1;

fn main() -> Result<(), Box<dyn Error>> {
    // 1. A handle: the best device of this machine, which may be its CPU.
    let handle = Handle::new()?;
    println!("device: {} ({})", handle.device_info().name, handle.device_info().arch);

    // 2. Tensor descriptors of input and weights.
    let input = TensorDescriptor::nchw(DataType::Float, [N, C, H, W])?;
    let weights = TensorDescriptor::nchw(DataType::Float, [K, C, TAPS, TAPS])?;

    // 3. A convolution descriptor: padding 0, stride 1, dilation 1.
    let conv_desc = ConvolutionDescriptor::d2();

    // 4. The output's shape follows from the two.
    let output = conv_desc.forward_output(&input, &weights)?;
    assert_eq!(output.lens(), [N, K, OUT_H, OUT_W]);
    println!("input {input}, weights {weights}, output {output}");

    // 5. The plan, from the descriptor of its input.
    let mut plan = FusionPlan::for_device(&handle, input)?;

    // 6. Three operators, in the order in which they are computed.
    let conv = plan.append(ConvForward::new(conv_desc, weights))?;
    let bias = plan.append(BiasForward::new())?;
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;

    // 7. Compile: everything becomes one kernel.
    let start = Instant::now();
    let compiled = plan.compile(&handle)?;
    println!("\ncompiled in {:?}:\n{compiled}\n", start.elapsed());
    assert!(compiled.is_one_kernel());

    for seed in [1, 2] {
        // 8. Arguments: weights, bias and scalars are given at run time. 10. New ones need no new compile.
        let data = Data::random(seed);
        let mut args = OperatorArgs::new();
        args.set(conv, ConvForwardArgs::new(&data.weights).alpha(1.0).beta(0.0))
            .set(bias, BiasForwardArgs::new(&data.bias))
            .set(relu, Activation::Relu);

        // 9. Execute on slices, which works on every device. Data that stay on a GPU are `DeviceBuffer`s.
        let mut y = vec![f32::NAN; output.element_count()];
        let start = Instant::now();
        compiled.execute(
            &handle,
            Tensor::new(&input, &data.input),
            TensorMut::new(&output, &mut y),
            &args,
        )?;
        let elapsed = start.elapsed();

        let zeros = check(&data, &y)?;
        println!(
            "data set {seed}: executed in {elapsed:?}; {} values right, {zeros} of them cut to 0",
            y.len()
        );
    }

    // 11. Plans, arguments and descriptors clean up after themselves when they go out of scope.
    println!("compiled once, executed twice");
    Ok(())
}

/// One set of run-time data.
struct Data {
    input: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Data {
    /// Eighths from -1 to 1 that depend on the seed only (xorshift).
    fn random(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut values = |count: usize| {
            let next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 % 17.0 / 8.0 - 1.0
            };
            std::iter::repeat_with(next).take(count).collect()
        };
        Data { input: values(N * C * H * W), weights: values(K * C * TAPS * TAPS), bias: values(K) }
    }
}

/// More than f32's rounding moves a sum. Products of eighths are 64ths: a sum with a wrong one is off by 0.015 or more.
const ROUNDING: f64 = 0.001;

/// Compares with plain loops in f64 and returns how many values ReLU cut to 0.
fn check(data: &Data, y: &[f32]) -> Result<usize, String> {
    let mut zeros = 0;
    for n in 0..N {
        for k in 0..K {
            for oh in 0..OUT_H {
                for ow in 0..OUT_W {
                    let mut sum = f64::from(data.bias[k]);
                    for c in 0..C {
                        for r in 0..TAPS {
                            for s in 0..TAPS {
                                let x = data.input[((n * C + c) * H + oh + r) * W + ow + s];
                                let w = data.weights[((k * C + c) * TAPS + r) * TAPS + s];
                                sum += f64::from(x) * f64::from(w);
                            }
                        }
                    }
                    let expected = sum.max(0.0);
                    let found = f64::from(y[((n * K + k) * OUT_H + oh) * OUT_W + ow]);
                    let error = (found - expected).abs();
                    if error.is_nan() || error > ROUNDING {
                        return Err(format!("y[{n}, {k}, {oh}, {ow}] is {found}, expected {expected}"));
                    }
                    zeros += usize::from(found == 0.0);
                }
            }
        }
    }
    Ok(zeros)
}
