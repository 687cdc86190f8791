//! The shared corpus of cases through the functions of both C libraries: the same data files and the same oracle as every
//! backend. A case goes through the library that its name and `FUSEPLAN_TEST_SEED` draw, or the one that has words for it, and
//! through both with `FUSEPLAN_TEST_LIBRARIES=both`: a test for each case and library.

mod fuseplan_h;
mod memory;
mod miopen;

use std::env;
use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::process::ExitCode;

use fuseplan::{DataType, TensorDescriptor};
use fuseplan_suite::case::{self, Case, OpSpec, Stage};
use fuseplan_suite::corpus;
use fuseplan_suite::data::{self, EXACT_EPSILON, Tier};
use fuseplan_suite::oracle::{self, F32_ROUNDOFF, Field, Operands};
use libtest_mimic::{Arguments, FormatSetting, Trial};
use memory::Memory;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.filter.is_none() && !arguments.list {
        arguments.format.get_or_insert(FormatSetting::Terse);
    }
    let trials = match corpus::load() {
        Ok(cases) => cases.into_iter().flat_map(trials).collect(),
        Err(error) => vec![Trial::test("corpus", || Err(error.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(case: Case) -> Vec<Trial> {
    let takes_both = env::var("FUSEPLAN_TEST_LIBRARIES").is_ok_and(|libraries| libraries == "both");
    let drawn =
        fuseplan_suite::hash(&case.id).wrapping_add(fuseplan_suite::number("FUSEPLAN_TEST_SEED", 0)) % 2;
    let miopen = trial::<miopen::Built>("capi", case.clone());
    let mut trials: Vec<_> =
        miopen.into_iter().chain(trial::<fuseplan_h::Built>("fuseplan_h", case)).collect();
    if !takes_both && trials.len() > 1 {
        trials.remove(drawn as usize);
    }
    trials
}

fn trial<L: Library + 'static>(name: &str, case: Case) -> Option<Trial> {
    L::can_say(&case).then(|| Trial::test(format!("{name}.{}", case.id), move || Ok(judge::<L>(&case)?)))
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A case as it is put to a C library: a plan with everything that was made for it, all of which ends with the value.
trait Library: Sized {
    /// The statuses that say that a plan cannot be computed.
    const UNSUPPORTED: &[u32];
    /// Whether the library has words for a case.
    fn can_say(case: &Case) -> bool;
    /// Whether C's rules may take what is refused in Rust.
    fn may_take(refused: &case::Refused) -> bool;
    /// Where a case is refused, which is elsewhere than in Rust where C's functions are cut differently.
    fn refuses_at(case: &Case, refused: &case::Refused) -> Stage;
    /// The plan with all its operators.
    fn build(case: &Case) -> Result<Self>;
    /// Compiles the plan.
    fn compile(&mut self) -> Result<()>;
    /// The plan's output.
    fn output(&self) -> Result<TensorDescriptor>;
    /// Sets the arguments of the operator at an index: what it reads, and what it writes besides the output.
    fn set(&self, case: &Case, index: usize, read: &[*mut c_void], written: &[*mut c_void]) -> Result<()>;
    /// Executes the plan.
    fn execute(&self, case: &Case, x: *mut c_void, y: *mut c_void) -> Result<()>;
}

/// A call that failed: at which stage, with which status and text.
#[derive(Debug)]
struct Refused {
    stage: Stage,
    status: u32,
    text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} gave status {}: {}", self.stage, self.status, self.text)
    }
}

impl Error for Refused {}

fn judge<L: Library>(case: &Case) -> Result<()> {
    let Some(refused) = &case.refused else {
        judge_tier::<L>(case, Tier::Bound)?;
        return if case.can_be_exact() { judge_tier::<L>(case, Tier::Exact) } else { Ok(()) };
    };
    let outcome = L::build(case).and_then(|mut built| built.compile());
    let found = match outcome {
        Ok(()) if L::may_take(refused) => return Ok(()),
        Ok(()) => return Err(format!("was taken, want {refused:?}").into()),
        Err(error) => *error.downcast::<Refused>()?,
    };
    if found.stage != L::refuses_at(case, refused) || !L::UNSUPPORTED.contains(&found.status) {
        return Err(format!("found {found}, want {refused:?}").into());
    }
    Ok(())
}

fn judge_tier<L: Library>(case: &Case, tier: Tier) -> Result<()> {
    let mut case = case.clone();
    let mut roundoff = F32_ROUNDOFF;
    if tier == Tier::Exact {
        (case.epsilon, roundoff) = (EXACT_EPSILON, 0.0);
    }
    let operands = data::operands(&case, tier, 0);
    let expected = oracle::expect(&case, &operands, roundoff, 0.0)?;
    let mut built = L::build(&case)?;
    built.compile()?;
    let found = execute(&case, &built, &operands)?;
    if found.len() != expected.len() {
        return Err(format!("{} results, want {}", found.len(), expected.len()).into());
    }
    for (at, ((data_type, values), field)) in found.iter().zip(&expected).enumerate() {
        compare(*data_type, values, field).map_err(|text| format!("tier {tier:?}, result {at}: {text}"))?;
    }
    Ok(())
}

fn compare(data_type: DataType, found: &[f64], want: &Field) -> std::result::Result<(), String> {
    for (i, &value) in found.iter().enumerate() {
        let (least, greatest) = want.accepted(i, data_type);
        let right = (least..=greatest).contains(&value) || (want.value[i].is_nan() && value.is_nan());
        if !right {
            return Err(format!("element {i} is {value}, accepted: {least} to {greatest}"));
        }
    }
    Ok(())
}

/// Sets the arguments, executes, and gives the output and whatever operators wrote besides.
fn execute<L: Library>(case: &Case, built: &L, operands: &Operands) -> Result<Vec<(DataType, Vec<f64>)>> {
    let output = built.output()?;
    let specs = case.operands();
    let mut read: Vec<Vec<Memory>> = Vec::new();
    for (specs, values) in specs.iter().zip(&operands.ops) {
        let memories: Result<Vec<_>> =
            specs.iter().zip(values).map(|(s, v)| Memory::of(s, output, Some(v))).collect();
        read.push(memories?);
    }
    let mut written = Vec::new();
    if case.is_training() {
        let params = specs[0].iter().rfind(|spec| spec.data_type == DataType::Float);
        let spec = params.ok_or("a training operator has parameters")?;
        for _ in 0..2 {
            written.push(Memory::of(spec, output, None)?);
        }
    }
    for (index, memories) in read.iter_mut().enumerate() {
        let pointers: Vec<*mut c_void> = memories.iter_mut().map(Memory::pointer).collect();
        let results: Vec<*mut c_void> = written.iter_mut().map(Memory::pointer).collect();
        built.set(case, index, &pointers, &results)?;
    }
    let mut x = Memory::new(case.layout.describe(case.data_type, &case.input)?, Some(&operands.input))?;
    let prior = (case.beta != 0.0).then_some(&operands.prior[..]);
    let mut y = Memory::new(output, prior)?;
    let target = if case.in_place { x.pointer() } else { y.pointer() };
    built.execute(case, x.pointer(), target)?;
    let running = matches!(case.ops.first(), Some(OpSpec::BatchNormForward(norm)) if norm.running);
    let mut results = vec![if case.in_place { x } else { y }];
    results.extend(written);
    if running {
        results.extend(read[0].drain(2..));
    }
    Ok(results.iter_mut().map(|memory| (memory.data_type(), memory.values())).collect())
}
