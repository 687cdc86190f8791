//! Batch-norm with given statistics + activation as one pass over the data, in f32 and in f16.
//!
//! A spatial batch-norm (one scale, bias, mean and variance for each channel) and a clipped ReLU on a
//! 4×64×28×28 tensor. Parameters are f32 whatever the type of the data. Every value is checked against the formula
//! in f64, within the rounding that the data type allows; a wrong number ends the program with an error.
//!
//! ```text
//! cargo run --release --example batch_norm
//! ```

use std::error::Error;
use std::fmt::Display;
use std::time::Instant;

use fuseplan::traits::Element;
use fuseplan::*;
use half::f16;

const LENS: [usize; 4] = [4, 64, 28, 28];
const EPSILON: f64 = 1e-5;
/// Where the activation clips: `min(6, max(0, x))`.
const CLIP: f64 = 6.0;

fn main() -> Result<(), Box<dyn Error>> {
    let handle = Handle::new()?;
    println!("device: {} ({})", handle.device_info().name, handle.device_info().arch);
    run::<f32>(&handle, |x| x, f64::from)?;
    run::<f16>(&handle, f16::from_f32, f64::from)?;
    Ok(())
}

/// Makes the plan for data of type `T`, runs it on it and checks every value.
fn run<T: Element + Display>(
    handle: &Handle,
    narrow: impl Fn(f32) -> T,
    widen: impl Fn(T) -> f64,
) -> Result<(), Box<dyn Error>> {
    let x = TensorDescriptor::nchw(T::DATA_TYPE, LENS)?;
    let mut plan = FusionPlan::for_device(handle, x)?;
    let norm = plan.append(BatchNormInference::new(BatchNormMode::Spatial))?;
    let clip = plan.append(ActivationForward::new(ActivationMode::ClippedRelu))?;
    let compiled = plan.compile(handle)?;
    println!("\n{compiled}");
    assert!(compiled.is_one_kernel());

    // Statistics as a trained network has them: the data's own, with a scale and a shift that were learnt.
    let [_, channels, height, width] = LENS;
    let wave = |i: usize, rate: f32| (i as f32 * rate).sin();
    let scale: Vec<f32> = (0..channels).map(|c| 1.5 + wave(c, 0.7)).collect();
    let bias: Vec<f32> = (0..channels).map(|c| 1.0 + wave(c, 1.3)).collect();
    let mean: Vec<f32> = (0..channels).map(|c| 2.0 * wave(c, 2.1)).collect();
    let variance: Vec<f32> = (0..channels).map(|c| 0.6 + 0.5 * wave(c, 0.4)).collect();
    let channel = |i: usize| i / (height * width) % channels;
    let input: Vec<T> =
        (0..x.element_count()).map(|i| narrow(mean[channel(i)] + 2.5 * wave(i, 12.9898))).collect();

    let mut args = OperatorArgs::new();
    args.set(
        norm,
        BatchNormInferenceArgs::new()
            .scale(&scale)
            .bias(&bias)
            .mean(&mean)
            .variance(&variance)
            .epsilon(EPSILON),
    )
    .set(clip, Activation::ClippedRelu { max: CLIP });
    let mut output = vec![narrow(f32::NAN); x.element_count()];
    let start = Instant::now();
    compiled.execute(handle, Tensor::new(&x, &input), TensorMut::new(plan.output(), &mut output), &args)?;
    let elapsed = start.elapsed();

    // Eight roundings in f32 at most, each of a number no larger than the terms of the sum, then one to T.
    // The last term is half of the smallest f16.
    let unit = f64::from(f32::EPSILON) / 2.0;
    let (mut lowest, mut highest) = (0, 0);
    for (i, (&x, &y)) in input.iter().zip(&output).enumerate() {
        let c = channel(i);
        let [scale, bias, mean, variance] = [&scale, &bias, &mean, &variance].map(|list| f64::from(list[c]));
        let factor = scale / (variance + EPSILON).sqrt();
        let expected = (factor * (widen(x) - mean) + bias).clamp(0.0, CLIP);
        let terms = (factor * widen(x)).abs() + (factor * mean).abs() + bias.abs();
        let allowed = 8.0 * unit * terms + T::DATA_TYPE.epsilon() / 2.0 * expected + 2f64.powi(-25);
        let error = (widen(y) - expected).abs();
        if error.is_nan() || error > allowed {
            return Err(format!("{} {i} is {y}, expected {expected} ± {allowed:e}", T::DATA_TYPE).into());
        }
        lowest += usize::from(widen(y) == 0.0);
        highest += usize::from(widen(y) == CLIP);
    }
    println!(
        "{}: executed in {elapsed:?}; {} values right, {lowest} of them cut to 0 and {highest} to {CLIP}",
        T::DATA_TYPE,
        output.len()
    );
    Ok(())
}
