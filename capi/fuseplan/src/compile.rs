//! Compiled plans, binaries and explanations: the "Compile" section of the header.

use std::ffi::{c_char, c_uint, c_void};

use fuseplan::{CompileOptions, CompiledBinary, CompiledPlan, FindMode, FusionPlan, Handle, MathMode};

use crate::abi::{In, Out, fuseplan_layout_t};
use crate::boundary::export::export;
use crate::boundary::failure::{Failure, bad_parm};
use crate::boundary::table::{Ref, create, object};
use crate::boundary::text::write_text;
use crate::handle::fuseplan_handle_t;
use crate::plan::fuseplan_plan_t;
use crate::tensor::layout_number;

/// What a `fuseplan_compiled_t` names.
#[derive(Debug)]
pub struct CompiledObject {
    pub(crate) compiled: CompiledPlan,
}
object!(CompiledObject, Compiled, |object| Some(object.compiled.problem().to_string()));

/// C's `fuseplan_compiled_t`.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_compiled_t = Ref<CompiledObject>;

/// What a `fuseplan_binary_t` names: bytes at a place that does not move.
#[derive(Debug)]
pub struct BinaryObject {
    bytes: Box<[u8]>,
}
object!(BinaryObject, Binary, |binary| Some(format!("{} bytes", binary.bytes.len())));

/// C's `fuseplan_binary_t`.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_binary_t = Ref<BinaryObject>;

/// `FUSEPLAN_FIND` of the header.
const FIND: c_uint = 1;

/// `FUSEPLAN_ALLOW_TF32` of the header.
const ALLOW_TF32: c_uint = 2;

/// `FUSEPLAN_STRICT` of the header.
const STRICT: c_uint = 4;

/// A plan, the device that it is compiled for, and how.
struct Job {
    plan: FusionPlan,
    handle: Handle,
    options: CompileOptions,
}

impl Job {
    fn new(plan: fuseplan_plan_t, handle: fuseplan_handle_t, options: c_uint) -> Result<Self, Failure> {
        let (plan, handle) = (plan.get()?, handle.get()?.handle());
        let mut plan = plan.state().plan.clone();
        let unknown = options & !(FIND | ALLOW_TF32 | STRICT);
        if unknown != 0 {
            return Err(bad_parm(format!(
                "{options:#x} has {unknown:#x}, which is no option; accepted: {FIND:#x} (FUSEPLAN_FIND), \
                 {ALLOW_TF32:#x} (FUSEPLAN_ALLOW_TF32), {STRICT:#x} (FUSEPLAN_STRICT)"
            )));
        }
        match (options & ALLOW_TF32 != 0, options & STRICT != 0) {
            (true, true) => {
                return Err(bad_parm(
                    "FUSEPLAN_ALLOW_TF32 and FUSEPLAN_STRICT exclude each other; accepted: one of them",
                ));
            }
            (true, false) => plan.set_math_mode(MathMode::AllowTf32),
            (false, true) => plan.set_math_mode(MathMode::Strict),
            (false, false) => {}
        }
        let mut options_given = CompileOptions::default();
        if options & FIND != 0 {
            options_given = options_given.with_find(FindMode::Normal);
        }
        Ok(Job { plan, handle, options: options_given })
    }

    fn compile(&self) -> Result<CompiledPlan, Failure> {
        Ok(self.plan.compile_with(&self.handle, &self.options)?)
    }

    fn explain(&self) -> String {
        match self.compile() {
            Ok(compiled) => compiled.to_string(),
            Err(Failure { text, .. }) => format!("{}\nrefused    {text}", self.plan.problem()),
        }
    }
}

export! {
    fn fuseplan_plan_compile(
        plan: fuseplan_plan_t,
        handle: fuseplan_handle_t,
        options: c_uint,
        compiled: Out<fuseplan_compiled_t>,
    ) {
        let job = Job::new(plan, handle, options)?;
        let out = compiled.required("compiled")?;
        out.set(create(CompiledObject { compiled: job.compile()? })?);
    }

    fn fuseplan_plans_compile(
        plans: In<fuseplan_plan_t>,
        count: usize,
        handle: fuseplan_handle_t,
        options: c_uint,
        compiled: Out<fuseplan_compiled_t>,
    ) {
        let plans = plans.list(count).ok_or_else(|| bad_parm("`plans` is NULL"))?;
        let out = compiled.required("compiled")?;
        let of = |at: usize| move |failure: Failure| Failure { text: format!("plan {at}: {}", failure.text), ..failure };
        let jobs = plans.into_iter().map(|plan| Job::new(plan, handle, options));
        let jobs = jobs.enumerate().map(|(at, job)| job.map_err(of(at))).collect::<Result<Vec<_>, _>>()?;
        let Some(Job { handle, options, .. }) = jobs.first() else {
            return Ok(());
        };
        let (handle, options) = (handle.clone(), options.clone());
        let plans: Vec<_> = jobs.into_iter().map(|job| job.plan).collect();
        let made = FusionPlan::compile_all(&plans, &handle, &options).into_iter().enumerate();
        let made = made.map(|(at, made)| made.map_err(|error| of(at)(error.into())));
        let mut objects = Vec::with_capacity(count);
        for compiled in made.collect::<Result<Vec<_>, _>>()? {
            match create(CompiledObject { compiled }) {
                Ok(object) => objects.push(object),
                Err(failure) => {
                    // What was made for the others has no owner.
                    for object in objects {
                        object.remove()?;
                    }
                    return Err(failure);
                }
            }
        }
        out.set_all(&objects);
    }

    fn fuseplan_plan_explain(
        plan: fuseplan_plan_t,
        handle: fuseplan_handle_t,
        options: c_uint,
        text: Out<c_char>,
        size: Out<usize>,
    ) {
        let job = Job::new(plan, handle, options)?;
        write_text(&job.explain(), text, size)?;
    }

    fn fuseplan_plan_fastest_layouts(
        plan: fuseplan_plan_t,
        handle: fuseplan_handle_t,
        options: c_uint,
        room: usize,
        count: Out<usize>,
        layouts: Out<fuseplan_layout_t>,
        seconds: Out<f64>,
    ) {
        let job = Job::new(plan, handle, options)?;
        let times = job.plan.fastest_layouts(&job.handle)?;
        count.set(times.len());
        let times = &times[..times.len().min(room)];
        layouts.set_all(&times.iter().map(|time| layout_number(time.layout)).collect::<Vec<_>>());
        seconds.set_all(&times.iter().map(|time| time.time.as_secs_f64()).collect::<Vec<_>>());
    }

    fn fuseplan_compiled_workspace(compiled: fuseplan_compiled_t, bytes: Out<usize>) {
        let object = compiled.get()?;
        bytes.required("bytes")?.set(object.compiled.workspace());
    }

    fn fuseplan_compiled_destroy(compiled: fuseplan_compiled_t) {
        if !compiled.is_null() {
            compiled.remove()?;
        }
    }

    fn fuseplan_plan_compile_binary(
        plan: fuseplan_plan_t,
        handle: fuseplan_handle_t,
        options: c_uint,
        binary: Out<fuseplan_binary_t>,
    ) {
        let job = Job::new(plan, handle, options)?;
        let out = binary.required("binary")?;
        let bytes = job.plan.compile_for(&job.handle, &job.options)?.to_bytes().into();
        out.set(create(BinaryObject { bytes })?);
    }

    fn fuseplan_binary_data(
        binary: fuseplan_binary_t,
        data: Out<*const c_void>,
        size: Out<usize>,
    ) {
        let object = binary.get()?;
        let (data, size) = (data.required("data")?, size.required("size")?);
        data.set(object.bytes.as_ptr().cast());
        size.set(object.bytes.len());
    }

    fn fuseplan_binary_destroy(binary: fuseplan_binary_t) {
        if !binary.is_null() {
            binary.remove()?;
        }
    }

    fn fuseplan_plan_load(
        plan: fuseplan_plan_t,
        handle: fuseplan_handle_t,
        options: c_uint,
        data: In<c_void>,
        size: usize,
        compiled: Out<fuseplan_compiled_t>,
    ) {
        let job = Job::new(plan, handle, options)?;
        let out = compiled.required("compiled")?;
        let bytes = data.cast::<u8>().list(size).ok_or_else(|| bad_parm("`data` is NULL"))?;
        // SAFETY: the header says that the bytes come from where the caller trusts.
        let binary = unsafe { CompiledBinary::from_bytes(&bytes) }?;
        out.set(create(CompiledObject { compiled: job.plan.load(&job.handle, &binary)? })?);
    }
}
