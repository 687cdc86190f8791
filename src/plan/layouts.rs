//! Which layout a plan is fastest in.

use std::time::Duration;

use fuseplan_api::{
    BuildError, DescriptorError, Op, Problem, TensorDescriptor, TensorLayout, call, fork, in_order_of,
};

use super::FusionPlan;
use crate::build::CompileError;
use crate::find;
use crate::handle::Handle;

/// A layout of a plan's tensors, and how fast the plan is with it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LayoutTime {
    /// The layout of input, output and residuals.
    pub layout: TensorLayout,
    /// The fastest solver's id.
    pub solver: &'static str,
    /// Its time for an execution.
    pub time: Duration,
}

impl FusionPlan {
    /// The layouts that input, output and residuals of this plan could all have on a handle's device, whatever they have
    /// now, the fastest first, each with the time that the fastest solver was measured to take there. Filters lie as the input
    /// does, or as NCHW where that has blocks of channels. A layout is left out where the channels are no whole blocks of it,
    /// or no solver takes it.
    ///
    /// A network that keeps its tensors in one layout does best in the one whose times, summed over its layers, are
    /// least; a convolution where it enters or leaves it may have [an output in another](crate::ConvForward::with_output_layout).
    /// Every solver is timed with memory of the call, which takes up to a tenth of a second for each.
    ///
    /// ```
    /// use fuseplan::{FusionPlan, Handle};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let plan: FusionPlan = "f32 1x24x6x6 NCHW -> bias -> relu".parse()?;
    /// let layouts = plan.fastest_layouts(&Handle::cpu())?;
    /// // Of 24 channels there are blocks of 4 and 8.
    /// assert_eq!(layouts.len(), 4);
    /// assert!(layouts[0].time <= layouts[3].time);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An empty plan, a plan made for another device; the device refuses, or has no memory for the tensors.
    pub fn fastest_layouts(&self, handle: &Handle) -> Result<Vec<LayoutTime>, CompileError> {
        self.check_for(handle.target())?;
        let time = |layout: TensorLayout| -> Result<Option<LayoutTime>, BuildError> {
            // The channels are no whole blocks of it.
            let Ok(problem) = self.problem_in(layout) else { return Ok(None) };
            let fastest = call(|| {
                fork::usable()?;
                find::least_time(handle, &problem)
            })?;
            Ok(fastest.map(|of| LayoutTime { layout, solver: of.solver, time: of.time }))
        };
        let layouts = TensorLayout::all_of_rank(self.input.rank()).iter();
        let times = layouts.filter_map(|&layout| time(layout).transpose()).collect::<Result<_, _>>()?;
        Ok(in_order_of(times, |found: &LayoutTime| found.time.as_secs_f64()))
    }

    /// The plan in canonical form with all its tensors in one layout.
    fn problem_in(&self, layout: TensorLayout) -> Result<Problem, DescriptorError> {
        let of = |tensor: &TensorDescriptor| {
            TensorDescriptor::with_layout(tensor.data_type(), layout, tensor.lens())
        };
        let (input, output) = (of(&self.input)?, of(&self.output)?);
        let op = |op: &Op| -> Result<Op, DescriptorError> {
            Ok(match op {
                Op::ConvForward { conv, weights } => {
                    Op::ConvForward { conv: *conv, weights: input.filters_like(weights.lens())? }
                }
                Op::BiasForward { bias } if op.is_residual() => Op::BiasForward { bias: of(bias)? },
                Op::BiasForward { .. }
                | Op::PReluForward { .. }
                | Op::BatchNormInference { .. }
                | Op::ActivationForward { .. }
                | Op::BatchNormForward { .. }
                | Op::BatchNormBackward { .. }
                | Op::ActivationBackward { .. } => op.clone(),
            })
        };
        let ops = self.ops.iter().map(op).collect::<Result<_, _>>()?;
        Ok(FusionPlan { input, output, ops, ..self.clone() }.problem())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts(text: &str) -> Vec<TensorLayout> {
        let plan: FusionPlan = text.parse().unwrap();
        let found = plan.fastest_layouts(&Handle::cpu()).unwrap();
        assert!(found.windows(2).all(|pair| pair[0].time <= pair[1].time), "{found:?}");
        assert!(found.iter().all(|found| found.time > Duration::ZERO), "{found:?}");
        let mut layouts: Vec<_> = found.iter().map(|found| found.layout).collect();
        layouts.sort();
        layouts
    }

    #[test]
    fn every_layout_that_the_channels_have_is_timed() {
        use TensorLayout::*;
        let all =
            "f32 1x32x6x5 NHWC -> conv 48 3x3 pad 1 weights NCHW output NCHWc8 -> residual NCHW -> relu";
        assert_eq!(layouts(all), [Nchw, Nhwc, Nchwc4, Nchwc8, Nchwc16]);
        // Filters are outputs' channels.
        assert_eq!(layouts("f32 1x32x6x5 NCHWc16 -> conv 20 1x1 output NCHW -> bias"), [Nchw, Nhwc, Nchwc4]);
        assert_eq!(layouts("bf16 1x3x6x5 -> batch-norm spatial -> prelu"), [Nchw, Nhwc]);
        assert_eq!(layouts("f32 1x16x4x4x4 NDHWC -> conv 16 1x1x1"), [Ncdhw, Ndhwc]);
        // No solver for training takes blocks.
        assert_eq!(layouts("f32 2x32x4x4 -> batch-norm-forward spatial"), [Nchw, Nhwc]);
    }

    #[test]
    fn a_plan_without_operators_has_no_time() {
        let empty: FusionPlan =
            FusionPlan::new(TensorDescriptor::packed(fuseplan_api::DataType::Float, &[1; 4]).unwrap())
                .unwrap();
        assert!(matches!(empty.fastest_layouts(&Handle::cpu()), Err(CompileError::Empty)));
    }
}
