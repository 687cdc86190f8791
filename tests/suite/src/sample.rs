//! A small plan with data, for tests of everything but numbers.

use fuseplan::{
    Activation, ActivationForward, ActivationMode, BiasForward, BiasForwardArgs, CompiledPlan, ConvForward,
    ConvForwardArgs, ConvolutionDescriptor, DataType, Error, FusionPlan, Handle, OpId, OperatorArgs, Tensor,
    TensorDescriptor, TensorMut, error::ExecuteError,
};

/// Convolution, bias, ReLU of f32 NCHW.
#[derive(Debug)]
pub struct Sample {
    /// The plan.
    pub plan: FusionPlan,
    /// The convolution, 3x3, padded by 1.
    pub conv: OpId<ConvForward>,
    /// The bias.
    pub bias: OpId<BiasForward>,
    /// The ReLU.
    pub relu: OpId<ActivationForward>,
    /// The input.
    pub input: Vec<f32>,
    /// The filters.
    pub weights: Vec<f32>,
    /// The biases.
    pub shift: Vec<f32>,
}

impl Sample {
    /// A sample with `channels` input channels, images of 6x5 and 4 filters.
    ///
    /// # Errors
    /// None; the descriptors are sound.
    pub fn new(channels: usize) -> Result<Self, Error> {
        let x = TensorDescriptor::nchw(DataType::Float, [2, channels, 6, 5])?;
        let w = TensorDescriptor::nchw(DataType::Float, [4, channels, 3, 3])?;
        let mut plan = FusionPlan::new(x)?;
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?;
        let conv = plan.append(ConvForward::new(conv, w))?;
        let bias = plan.append(BiasForward::new())?;
        let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
        let numbers = |count: usize, step: usize| (0..count).map(|i| (i * step % 7) as f32 - 3.0).collect();
        let (input, weights) = (numbers(x.span(), 3), numbers(w.span(), 5));
        Ok(Sample { plan, conv, bias, relu, input, weights, shift: vec![-1.0, 0.0, 1.0, 2.0] })
    }

    /// Arguments for every operator.
    pub fn args(&self) -> OperatorArgs<'_> {
        let mut args = OperatorArgs::new();
        args.set(self.conv, ConvForwardArgs::new(&self.weights))
            .set(self.bias, BiasForwardArgs::new(&self.shift))
            .set(self.relu, Activation::Relu);
        args
    }

    /// The output of a compiled plan of this sample.
    ///
    /// # Errors
    /// The execution was refused.
    pub fn run(
        &self,
        compiled: &CompiledPlan,
        handle: &Handle,
        args: &OperatorArgs<'_>,
    ) -> Result<Vec<f32>, ExecuteError> {
        let mut output = vec![f32::NAN; compiled.output().span()];
        let y = TensorMut::new(compiled.output(), &mut output);
        compiled.execute(handle, Tensor::new(self.plan.input(), &self.input), y, args)?;
        Ok(output)
    }

    /// What the plan computes, by the formulas.
    pub fn expected(&self) -> Vec<f32> {
        let channels = self.plan.input().lens()[1];
        let mut output = Vec::new();
        for (n, k, h, w) in (0..2 * 4 * 6 * 5).map(|i| (i / 120, i / 30 % 4, i / 5 % 6, i % 5)) {
            let mut sum = self.shift[k];
            for (c, r, s) in (0..channels * 9).map(|i| (i / 9, i / 3 % 3, i % 3)) {
                if (1..=6).contains(&(h + r)) && (1..=5).contains(&(w + s)) {
                    let x = self.input[((n * channels + c) * 6 + h + r - 1) * 5 + w + s - 1];
                    sum += x * self.weights[((k * channels + c) * 3 + r) * 3 + s];
                }
            }
            output.push(sum.max(0.0));
        }
        output
    }
}
