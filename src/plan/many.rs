//! Plans that are compiled at once.

use std::collections::HashMap;

use fuseplan_api::in_order_of;

use super::{CompiledPlan, FusionPlan};
use crate::build::{self, CompileError};
use crate::handle::Handle;
use crate::options::{CompileOptions, FindMode};
use crate::several::{processors, several};

impl FusionPlan {
    /// Compiles plans for a handle's device, several at a time, each by [`compile_with`](Self::compile_with); results are in
    /// the order of the plans.
    ///
    /// There are as many at a time as this process has processors, the longest texts of kernels first where there are more plans
    /// than that. Equal plans are compiled once, and fail with one error. Where find mode measures, there is one at a time, so that
    /// none disturbs another's times.
    pub fn compile_all(
        plans: &[FusionPlan],
        handle: &Handle,
        options: &CompileOptions,
    ) -> Vec<Result<CompiledPlan, CompileError>> {
        let compile = |plan: &FusionPlan| plan.compile_with(handle, options);
        let threads = match build::find_mode(options) {
            FindMode::Normal => 1,
            FindMode::Fast => processors(),
        };
        // The first plan that each is equal to, for which another would only wait.
        let mut known = HashMap::new();
        let first: Vec<_> =
            plans.iter().enumerate().map(|(at, plan)| *known.entry(plan.problem()).or_insert(at)).collect();
        // Of plans that are equal the first alone is compiled here.
        let mut unlike: Vec<_> = (0..plans.len()).filter(|&at| first[at] == at).collect();
        if threads > 1 && unlike.len() > threads {
            let effort = |&at: &usize| {
                let plan = &plans[at];
                let can_be = plan.check_for(handle.target()).is_ok();
                if can_be { build::effort(handle.context(), &plan.problem(), options) } else { 0 }
            };
            let efforts = several(&unlike, threads, effort);
            unlike = longest_first(&unlike, &efforts);
        }
        let compiled = several(&unlike, threads, |&at| compile(&plans[at]));
        let made: HashMap<_, _> = unlike.into_iter().zip(compiled).collect();
        let result = |(at, plan): (usize, &FusionPlan)| match &made[&first[at]] {
            made if first[at] == at => made.clone(),
            // Whether it is for the device each plan says for itself.
            Err(error) if !matches!(error, CompileError::OtherDevice { .. }) => {
                plan.check_for(handle.target()).and_then(|()| Err(error.clone()))
            }
            _ => compile(plan),
        };
        plans.iter().enumerate().map(result).collect()
    }
}

/// The numbers, those of what takes the most first, so that none of it is worked at by itself in the end.
fn longest_first(items: &[usize], efforts: &[usize]) -> Vec<usize> {
    let order = in_order_of(efforts.iter().zip(items).collect(), |&(&effort, _)| -(effort as f64));
    order.into_iter().map(|(_, &item)| item).collect()
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use fuseplan_api::Backend;
    use fuseplan_fakes::{FakeBackend, FakeSolver};

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
    fn what_takes_the_most_begins_first() {
        assert_eq!(longest_first(&[0, 2, 3, 5], &[3, 9, 0, 9]), [2, 5, 0, 3]);
    }

    /// Of a compiler that fails, each equal plan would wait for a failure of its own.
    #[test]
    fn equal_plans_fail_once() -> Result<(), Box<dyn Error>> {
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        static BACKEND: FakeBackend = FakeBackend {
            name: "fake",
            arch: "fake_90",
            toolchain: "",
            solvers: &[&FakeSolver {
                compile: |_| {
                    COMPILED.fetch_add(1, Ordering::Relaxed);
                    Err("line 1 is wrong".into())
                },
                ..FakeSolver::new("fake.broken_once.v1")
            }],
        };
        let handle = Handle::of(&BACKEND, BACKEND.open(0)?)?;
        let elsewhere = TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 4])?;
        let mut elsewhere = FusionPlan::for_device(Handle::cpu(), elsewhere)?;
        elsewhere.append(ActivationForward::new(ActivationMode::Relu))?;
        let plans = [elsewhere.clone(), plan(4)?, plan(4)?, elsewhere, plan(4)?];
        let compiled = FusionPlan::compile_all(&plans[1..], &handle, &CompileOptions::default());
        assert_eq!(COMPILED.load(Ordering::Relaxed), 1);
        let errors: Vec<_> =
            compiled.into_iter().map(|made| made.err().ok_or("no error")).collect::<Result<_, _>>()?;
        assert!(matches!(errors[0], CompileError::Build(_)), "{:?}", errors[0]);
        assert_eq!((&errors[1], &errors[3]), (&errors[0], &errors[0]));
        assert!(matches!(errors[2], CompileError::OtherDevice { .. }), "{:?}", errors[2]);
        // One that is for another device says nothing of its copies.
        let compiled = FusionPlan::compile_all(&plans[..2], &handle, &CompileOptions::default());
        assert!(matches!(compiled[0], Err(CompileError::OtherDevice { .. })));
        assert!(matches!(compiled[1], Err(CompileError::Build(_))));
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
