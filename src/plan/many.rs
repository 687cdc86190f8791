//! Plans that are compiled at once.

use std::collections::HashSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{CompiledPlan, FusionPlan};
use crate::build::{self, CompileError};
use crate::handle::Handle;
use crate::options::{CompileOptions, FindMode};

impl FusionPlan {
    /// Compiles plans for a handle's device, several at a time, each by [`compile_with`](Self::compile_with); results are in
    /// the order of the plans.
    ///
    /// There are as many at a time as this process has processors. Equal plans are compiled once. Where find mode measures,
    /// there is one at a time, so that none disturbs another's times.
    pub fn compile_all(
        plans: &[FusionPlan],
        handle: &Handle,
        options: &CompileOptions,
    ) -> Vec<Result<CompiledPlan, CompileError>> {
        let compile = |plan: &FusionPlan| plan.compile_with(handle, options);
        let threads = match build::find_mode(options) {
            FindMode::Normal => 1,
            FindMode::Fast => thread::available_parallelism().map_or(1, NonZero::get),
        };
        // A plan that is equal to one before would only wait for it.
        let mut known = HashSet::new();
        let first: Vec<_> = plans.iter().map(|plan| known.insert(plan.problem())).collect();
        let made: Vec<_> = plans.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < plans.len()) {
                if first[at] {
                    *made[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(compile(&plans[at]));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads.min(known.len()) {
                // A thread that the system does not give is one fewer.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        let made = made.into_iter().map(|made| made.into_inner().unwrap_or_else(PoisonError::into_inner));
        made.zip(plans).map(|(made, plan)| made.unwrap_or_else(|| compile(plan))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::{ActivationForward, ActivationMode, DataType, TensorDescriptor};

    fn plan(width: usize) -> Result<FusionPlan, Box<dyn Error>> {
        let mut plan = FusionPlan::new(TensorDescriptor::nchw(DataType::Float, [1, 2, 3, width])?)?;
        plan.append(ActivationForward::new(ActivationMode::Relu))?;
        Ok(plan)
    }

    #[test]
    fn results_are_in_the_order_of_the_plans() -> Result<(), Box<dyn Error>> {
        let plans = [7, 5, 7, 3, 9, 5].into_iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let compiled = FusionPlan::compile_all(&plans, &Handle::cpu(), &CompileOptions::default());
        assert_eq!(compiled.len(), plans.len());
        for (plan, compiled) in plans.iter().zip(compiled) {
            assert_eq!(compiled?.output(), plan.output());
        }
        Ok(())
    }

    #[test]
    fn a_plan_that_does_not_compile_leaves_the_others() -> Result<(), Box<dyn Error>> {
        let empty = FusionPlan::new(TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 4])?)?;
        let plans = [plan(4)?, empty, plan(6)?];
        let compiled = FusionPlan::compile_all(&plans, &Handle::cpu(), &CompileOptions::default());
        let [first, second, third] = compiled.try_into().map_err(|_| "three plans, three results")?;
        assert_eq!(second.err(), Some(CompileError::Empty));
        assert_eq!((first?.output(), third?.output()), (plans[0].output(), plans[2].output()));
        assert!(FusionPlan::compile_all(&[], &Handle::cpu(), &CompileOptions::default()).is_empty());
        Ok(())
    }
}
