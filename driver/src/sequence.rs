//! Plans run one after the other on tensors in the device's memory.

use fuseplan::{
    CompileOptions, CompiledPlan, DeviceBuffer, Error, Handle, TensorDescriptor, device::MemoryKind,
    error::ExecuteError,
};

use crate::chain::{Chain, Operands, Plan, Ready, Step, Written};
use crate::element::Scalar;
use crate::verify;

/// Plans, the tensors that they read and write, and the operators' operands.
#[derive(Debug)]
pub(crate) struct Sequence<'a, T> {
    plans: Vec<Ready<'a>>,
    /// The input, what each plan makes of it, the output; filled with what no correct result holds.
    tensors: Vec<DeviceBuffer<T>>,
}

impl<'a, T: Scalar> Sequence<'a, T> {
    /// One plan for each part of the chain's steps.
    pub(crate) fn new<'s>(
        chain: &Chain,
        parts: impl Iterator<Item = &'s [Step]>,
        handle: &Handle,
        options: &CompileOptions,
        input: &[T],
        operands: &'a Operands<T>,
        written: &'a mut Written,
    ) -> Result<Self, Error> {
        let (mut operands, mut written) = (&operands.0[..], &mut written.0[..]);
        let mut tensors = vec![DeviceBuffer::from_slice(handle, input)?];
        let mut plans = Vec::new();
        let mut running: TensorDescriptor = chain.input;
        for steps in parts {
            let plan = Plan::new(running, steps, chain.math)?;
            running = *plan.plan.output();
            let (these, rest) = operands.split_at(steps.len());
            let (those, others) = written.split_at_mut(steps.len());
            (operands, written) = (rest, others);
            plans.push(plan.compile(handle, options, these, those)?);
            tensors.push(DeviceBuffer::from_slice(handle, &verify::poisoned(&running)?)?);
        }
        Ok(Sequence { plans, tensors })
    }

    /// One plan of all steps.
    pub(crate) fn fused(
        chain: &Chain,
        handle: &Handle,
        options: &CompileOptions,
        input: &[T],
        operands: &'a Operands<T>,
        written: &'a mut Written,
    ) -> Result<Self, Error> {
        Self::new(chain, std::iter::once(&chain.steps[..]), handle, options, input, operands, written)
    }

    /// Executes the plans in order.
    pub(crate) fn run(&mut self) -> Result<(), ExecuteError> {
        for (index, plan) in self.plans.iter().enumerate() {
            let (before, behind) = self.tensors.split_at_mut(index + 1);
            plan.run((&before[index]).into(), (&mut behind[0]).into())?;
        }
        Ok(())
    }

    /// Waits, and reads the output.
    pub(crate) fn output(&self) -> Result<Vec<T>, Error> {
        let output = self.tensors.last().map(DeviceBuffer::to_vec).transpose()?;
        Ok(output.unwrap_or_default())
    }

    /// The compiled plans.
    pub(crate) fn compiled(&self) -> impl Iterator<Item = &CompiledPlan> {
        self.plans.iter().map(|plan| &plan.compiled)
    }
}

/// The same plans on several sets of operands, so that what a device keeps in its caches is not what it
/// reads next.
#[derive(Debug)]
pub(crate) struct Rotation<'a, T> {
    sets: Vec<Sequence<'a, T>>,
}

/// Bytes of all sets together: several times the caches of any GPU.
const ROTATED: f64 = 256e6;

/// The fewest and the most sets.
const SETS: (usize, usize) = (2, 64);

impl<'a, T: Scalar> Rotation<'a, T> {
    /// How many sets are taken of operands of `bytes` bytes: one where the device shares the host's memory,
    /// as programs on a CPU find their data in its caches.
    pub(crate) fn sets(handle: &Handle, bytes: f64) -> usize {
        match handle.memory_kind() {
            MemoryKind::Host => 1,
            MemoryKind::Device => ((ROTATED / bytes).ceil() as usize).clamp(SETS.0, SETS.1),
        }
    }

    /// A set for each of what sets write, made by `make`.
    pub(crate) fn new(
        written: &'a mut [Written],
        make: impl Fn(&'a mut Written) -> Result<Sequence<'a, T>, Error>,
    ) -> Result<Self, Error> {
        Ok(Rotation { sets: written.iter_mut().map(make).collect::<Result<_, _>>()? })
    }

    /// Executes every set once.
    pub(crate) fn run(&mut self) -> Result<(), ExecuteError> {
        self.sets.iter_mut().try_for_each(Sequence::run)
    }

    /// The first set.
    pub(crate) fn first(&self) -> &Sequence<'a, T> {
        &self.sets[0]
    }
}
