//! What can be asked before anything runs: why an operator is rejected and what would be accepted, which
//! solver a plan gets and why others refused, and the table of everything that is supported.
//!
//! Nothing here is found by trial and error: rejections come at the append, as data and as a sentence, and leave
//! the plan as it was. The program ends with an error if a rejection or the plan after it is not what it says.
//!
//! ```text
//! cargo run --release --example inspect
//! ```

use std::error::Error;

use fuseplan::error::{AppendError, Reason};
use fuseplan::problem::OpKind;
use fuseplan::support::Table;
use fuseplan::*;

fn main() -> Result<(), Box<dyn Error>> {
    let handle = Handle::cpu();
    let x = TensorDescriptor::nhwc(DataType::Float, [1, 64, 56, 56])?;
    let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?;
    let filters = |lens| TensorDescriptor::nhwc(DataType::Float, lens);
    let mut plan = FusionPlan::for_device(&handle, x)?;

    println!("Rejected at the append:");
    let rejected = plan.append(ConvForward::new(conv, filters([128, 32, 3, 3])?));
    show(rejected, |reason| matches!(reason, Reason::Shape { .. }))?;
    let half = TensorDescriptor::nhwc(DataType::Half, [128, 64, 3, 3])?;
    let rejected = plan.append(ConvForward::new(conv, half));
    show(rejected, |reason| matches!(reason, Reason::ParameterType { found: DataType::Half, .. }))?;

    // Neither changed the plan. With what was said to be accepted, it goes on.
    assert!(plan.ops().is_empty());
    plan.append(ConvForward::new(conv, filters([128, 64, 3, 3])?))?;

    let rejected = plan.append(ConvForward::new(conv, filters([128, 128, 3, 3])?));
    show(rejected, |reason| *reason == Reason::SecondConvolution)?;
    let narrow = TensorDescriptor::nhwc(DataType::Float, [1, 64, 1, 1])?;
    let rejected = plan.append(BiasForward::with_descriptor(narrow));
    show(rejected, |reason| matches!(reason, Reason::BiasShape { .. }))?;
    let rejected = plan.append(BatchNormForward::new(BatchNormMode::Spatial, false));
    show(rejected, |reason| matches!(reason, Reason::NotFirst { first: OpKind::ConvForward }))?;

    plan.append(BatchNormInference::new(BatchNormMode::Spatial))?;
    plan.append(BiasForward::residual())?;
    plan.append(ActivationForward::new(ActivationMode::Relu))?;
    assert_eq!(plan.output().lens(), [1, 128, 56, 56]);

    println!("\nThe plan that came out:");
    println!("{}", plan.compile(&handle)?);

    println!("\n{}", Table::of_backend("cpu")?);
    Ok(())
}

/// Prints a rejection; an error if there is none or it has another reason.
fn show<O>(
    appended: Result<OpId<O>, AppendError>,
    expected: impl Fn(&Reason) -> bool,
) -> Result<(), Box<dyn Error>> {
    let Err(rejection) = appended else { return Err("an operator was taken that does not fit".into()) };
    println!("  {} at {}: {}", rejection.kind, rejection.index, rejection.reason);
    println!("      accepted: {}", rejection.accepted);
    if expected(&rejection.reason) { Ok(()) } else { Err(rejection.into()) }
}
