//! The choice of a solver and its configuration: who can compute a problem, how, how fast, and how exactly.
//!
//! A solver's constraints say whether it can; a solver whose products are less exact than the plan allows is as good as
//! refused. The others are ranked: those whose preferences the problem meets before those that have reservations, among
//! these in the backend's order, and the configurations of one solver by its own estimates. The first is chosen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use fuseplan_api::{
    Accuracy, Algorithm, Candidate, Configuration, Estimate, ExecutableInfo, Refusal, Resources,
};
use fuseplan_api::{BuildError, Executable, Problem, Solver};

pub use crate::plan::LayoutTime;

use crate::observe::{Outcome, Source};
use crate::target::Target;

/// How a compiled plan's solver was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Chosen {
    /// It is the first by estimates and the backend's order.
    Preferred,
    /// It is the one that the caller, or a binary that was loaded, named.
    Requested,
    /// It is the fastest of those that were timed.
    Measured {
        /// What was timed, the fastest first.
        times: Vec<Measured>,
        /// Whether the times were found earlier and stored.
        stored: bool,
    },
}

/// The time of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measured {
    /// The solver's id.
    pub solver: &'static str,
    /// The configuration that was timed.
    pub configuration: Configuration,
    /// The time.
    pub time: Duration,
}

/// `cuda.conv_mma.v1 128x64x32 31.2 µs`
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.solver)?;
        if !self.configuration.as_str().is_empty() {
            write!(f, " {}", self.configuration)?;
        }
        write!(f, " {:.1} µs", self.time.as_secs_f64() * 1e6)
    }
}

/// `measured: cuda.conv_mma.v1 128x64x32 31.2 µs; cuda.direct.v1 501.0 µs`
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chosen::Preferred => f.write_str("by order of preference"),
            Chosen::Requested => f.write_str("by request"),
            Chosen::Measured { times, stored } => {
                f.write_str(if *stored { "measured earlier:" } else { "measured:" })?;
                for (index, measured) in times.iter().enumerate() {
                    write!(f, "{} {measured}", if index == 0 { "" } else { ";" })?;
                }
                Ok(())
            }
        }
    }
}

/// What a solver says of a problem.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The solver's id.
    pub solver: &'static str,
    /// The configurations in which it computes the problem as exactly as the plan asks for, the one of the smallest
    /// estimate first; or why there is none.
    pub candidates: Result<Vec<Candidate>, Refusal>,
    /// Why it stands behind the solvers that have no reservations, if it has some.
    pub reservation: Option<String>,
}

/// An executable, how it was chosen, and what was not.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) executable: Arc<dyn Executable>,
    /// Where the executable's binary comes from.
    pub(crate) source: Source,
    pub(crate) chosen: Chosen,
    /// Why solvers that stand before this one in the backend's order cannot compute the problem.
    pub(crate) refusals: Arc<[Refusal]>,
    /// Why kernels of solvers that are preferred to this one could not be built.
    pub(crate) failures: Arc<[BuildError]>,
}

impl Outcome for Built {
    fn solver(&self) -> &'static str {
        self.executable.info().solver
    }

    fn source(&self) -> Source {
        self.source
    }
}

/// A solver that can compute a problem as exactly as its plan asks for.
#[derive(Debug, Clone)]
pub(crate) struct Able {
    pub(crate) solver: &'static dyn Solver,
    pub(crate) reservation: Option<String>,
}

impl Able {
    /// The configurations that are exact enough, the one of the smallest estimate first.
    pub(crate) fn candidates(&self, problem: &Problem, target: &Target) -> Vec<Candidate> {
        let mut candidates = self.solver.configurations(problem, target.info());
        candidates.retain(|candidate| candidate.is_exact_enough(problem));
        Candidate::cheapest_first(candidates)
    }
}

/// Whether a solver can compute a problem as exactly as its plan asks for.
fn ask(solver: &'static dyn Solver, problem: &Problem, target: &Target) -> Result<(), Refusal> {
    let answer = solver.applies(problem, target.info()).and_then(|()| {
        let (needed, allowed) = (solver.accuracy(problem), problem.math.allows());
        if needed <= allowed {
            return Ok(());
        }
        Err(Refusal {
            solver: solver.id(),
            property: "accuracy",
            accepts: match needed {
                Accuracy::Exact => "every plan",
                Accuracy::Tf32x3 => "plans that allow 3xTF32 products",
                Accuracy::Transformed => "plans that allow transformed products",
                Accuracy::Tf32 => "plans that allow TF32 products",
            },
            found: allowed.to_string(),
        })
    });
    match &answer {
        Ok(()) => tracing::debug!(target: "fuseplan::select", solver = solver.id(), accept = true, %problem),
        Err(refusal) => {
            tracing::debug!(target: "fuseplan::select", solver = solver.id(), reject = %refusal, %problem);
        }
    }
    answer
}

/// The solvers of the target's backend, or of those the one that has the id, as they are ranked; and why others are not
/// among them, in the backend's order.
pub(crate) fn ranked(target: &Target, problem: &Problem, id: Option<&str>) -> (Vec<Able>, Vec<Refusal>) {
    let (mut able, mut refusals) = (Vec::new(), Vec::new());
    let solvers = target.backend.solvers().iter().copied();
    for solver in solvers.filter(|solver| id.is_none_or(|id| id == solver.id())) {
        match ask(solver, problem, target) {
            Ok(()) => able.push(Able { solver, reservation: solver.reservation(problem, target.info()) }),
            Err(refusal) => refusals.push(refusal),
        }
    }
    // Within both parts the backend's order stands.
    let (mut ranked, reserved): (Vec<_>, Vec<_>) =
        able.into_iter().partition(|able| able.reservation.is_none());
    ranked.extend(reserved);
    (ranked, refusals)
}

/// What every solver of the target's backend says of a problem: those that can compute it as they are ranked, then the
/// others in the backend's order.
pub(crate) fn answers(target: &Target, problem: &Problem) -> Vec<Answer> {
    let (able, refusals) = ranked(target, problem, None);
    let able = able.into_iter().map(|able| Answer {
        solver: able.solver.id(),
        candidates: Ok(able.candidates(problem, target)),
        reservation: able.reservation,
    });
    let refused =
        |refusal: Refusal| Answer { solver: refusal.solver, candidates: Err(refusal), reservation: None };
    able.chain(refusals.into_iter().map(refused)).collect()
}

/// The configuration that is chosen.
pub(crate) fn preferred(target: &Target, problem: &Problem) -> Option<Candidate> {
    let (able, _) = ranked(target, problem, None);
    able.first()?.candidates(problem, target).into_iter().next()
}

/// Whether a solver takes the problem. No configuration is looked at, so that asking costs little.
///
/// # Errors
/// Every solver's reason.
pub(crate) fn is_taken(target: &Target, problem: &Problem) -> Result<(), Vec<Refusal>> {
    let mut refusals = Vec::new();
    for &solver in target.backend.solvers() {
        match ask(solver, problem, target) {
            Ok(()) => return Ok(()),
            Err(refusal) => refusals.push(refusal),
        }
    }
    Err(refusals)
}

/// Those of the refusals whose solvers stand before this one in the backend's order.
pub(crate) fn before(refusals: Vec<Refusal>, solver: &str, target: &Target) -> Arc<[Refusal]> {
    let solvers = target.backend.solvers().iter().map(|solver| solver.id());
    let before: Vec<_> = solvers.take_while(|id| *id != solver).collect();
    refusals.into_iter().filter(|refusal| before.contains(&refusal.solver)).collect()
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{MathMode, Preference};
    use fuseplan_fakes::{FakeBackend, FakeSolver};

    use super::*;
    use crate::{ActivationForward, ActivationMode, DataType, FusionPlan, TensorDescriptor};

    fn candidate(words: &str, seconds: f64, accuracy: Accuracy) -> Candidate {
        let estimate = Estimate::Time { seconds, model: "a fake" };
        Candidate { configuration: Configuration::new(words), estimate, accuracy }
    }

    /// Preferred for nothing; less exact and quickest; with models; by order alone.
    static BACKEND: FakeBackend = FakeBackend {
        name: "fake",
        arch: "fake_90",
        toolchain: "",
        solvers: &[
            &FakeSolver {
                preferences: &[Preference {
                    property: "activation",
                    prefers: "none",
                    check: |problem, _| Some(problem.chain()),
                }],
                ..FakeSolver::new("fake.choosy.v1")
            },
            &FakeSolver {
                configurations: || vec![candidate("rounded", 1e-9, Accuracy::Tf32)],
                ..FakeSolver::new("fake.rounding.v1")
            },
            &FakeSolver {
                configurations: || {
                    vec![
                        candidate("small tile", 3e-6, Accuracy::Exact),
                        candidate("rounded", 1e-6, Accuracy::Tf32),
                        candidate("large tile", 2e-6, Accuracy::Exact),
                    ]
                },
                ..FakeSolver::new("fake.tiles.v1")
            },
            &FakeSolver::new("fake.last.v1"),
        ],
    };

    fn plan(math: MathMode) -> FusionPlan {
        let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 2, 2]).unwrap();
        let mut plan = FusionPlan::new(x).unwrap();
        plan.set_math_mode(math);
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        plan
    }

    /// Solvers in their ranking with their configurations.
    fn ranking(math: MathMode) -> Vec<(&'static str, Option<Vec<String>>)> {
        let target = Target::of(&BACKEND, BACKEND.info());
        let words = |candidates: Vec<Candidate>| {
            candidates.into_iter().map(|candidate| candidate.configuration.to_string()).collect()
        };
        let answers = plan(math).answers(&target).unwrap().into_iter();
        answers.map(|answer| (answer.solver, answer.candidates.ok().map(words))).collect()
    }

    #[test]
    fn order_then_estimates_among_what_is_exact_enough() {
        let of = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect());
        assert_eq!(
            ranking(MathMode::Precise),
            [
                ("fake.tiles.v1", of(&["large tile", "small tile"])),
                ("fake.last.v1", of(&[""])),
                ("fake.choosy.v1", of(&[""])),
                ("fake.rounding.v1", None),
            ]
        );
        assert_eq!(
            ranking(MathMode::AllowTf32),
            [
                ("fake.rounding.v1", of(&["rounded"])),
                ("fake.tiles.v1", of(&["rounded", "large tile", "small tile"])),
                ("fake.last.v1", of(&[""])),
                ("fake.choosy.v1", of(&[""])),
            ]
        );
    }

    #[test]
    fn who_is_not_preferred_says_why_and_who_is_inexact_is_refused() {
        let target = Target::of(&BACKEND, BACKEND.info());
        let answers = plan(MathMode::Precise).answers(&target).unwrap();
        assert_eq!(
            answers[2].reservation.as_deref(),
            Some("activation is ActivationForward, preferred: none")
        );
        assert_eq!(answers[0].reservation, None);
        let refusal = answers[3].candidates.as_ref().unwrap_err().to_string();
        assert_eq!(
            refusal,
            "fake.rounding.v1: accuracy is transformed products, accepted: plans that allow TF32 products"
        );
        // Asked for by name, the one is taken and the other is not.
        let problem = plan(MathMode::Precise).problem();
        assert_eq!(ranked(&target, &problem, Some("fake.choosy.v1")).0.len(), 1);
        assert!(ranked(&target, &problem, Some("fake.rounding.v1")).0.is_empty());
        assert_eq!(is_taken(&target, &problem), Ok(()));
    }
}
