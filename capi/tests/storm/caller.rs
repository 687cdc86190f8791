//! Makes calls from prototypes: what a parameter gets is decided by its type and name.
//!
//! A caller must keep what the header says of pointers, or any crash is its own. So a call is tame or wild. Tame calls
//! get memory, and only descriptors and plans that it is large enough for; wild calls get any descriptor and number,
//! and NULL in place of data. Sound calls are tame ones whose descriptors fit one another.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};

use MIOpen::abi::{Out, Prototype};
use MIOpen::*;
use fastrand::Rng;

use crate::draw::{self, float, variant, whole};

/// Bytes of the largest tensor of a tame call. Parameters may take twice that, packed f32 for 16-bit tensors.
const SMALL: usize = 64 << 10;
/// Bytes of each place that calls read or write.
const PLACE: usize = 256 << 10;
/// Places for data: of other calls than sound ones any, so that they overlap.
const PLACES: usize = 6;
/// More parameters than any function has.
const PARAMETERS: usize = 32;
/// Live handles of a type, beyond which one is destroyed for each that is created.
const POOL: usize = 6;

/// Functions that a sound program calls more often than others, so that some calls come to something.
const USUAL: [&str; 22] = [
    "miopenCreateFusionPlan",
    "miopenCreateFusionPlan",
    "miopenCreateOpConvForward",
    "miopenCreateOpBiasForward",
    "miopenCreateOpActivationForward",
    "miopenCreateOpActivationBackward",
    "miopenCreateOpBatchNormInference",
    "miopenCreateOpBatchNormForward",
    "miopenCreateOpBatchNormBackward",
    "miopenSet4dTensorDescriptor",
    "miopenSet4dTensorDescriptor",
    "miopenSet4dTensorDescriptor",
    "miopenInitConvolutionDescriptor",
    "miopenDeriveBNTensorDescriptor",
    "miopenCompileFusionPlan",
    "miopenCompileFusionPlan",
    "miopenSetOpArgsActivForward",
    "miopenSetOpArgsBiasForward",
    "miopenSetOpArgsConvForward",
    "miopenExecuteFusionPlan",
    "miopenExecuteFusionPlan",
    "fuseplanGetOutputDescriptor",
];

/// Functions that are not called: they execute what a problem has become in memory that another call has left, or
/// read structures and bytes of the caller's. Damaged bytes are the unit tests' of saved solutions.
const LEFT_OUT: [&str; 12] = [
    "miopenSetFindOptionPreallocatedTensor",
    "miopenSetFindOptionPreallocatedWorkspace",
    "miopenFindSolutions",
    "miopenRunSolution",
    "miopenDestroySolution",
    "miopenLoadSolution",
    "miopenSaveSolution",
    "miopenGetSolutionSize",
    "miopenGetSolutionWorkspaceSize",
    "miopenGetSolutionTime",
    "miopenGetSolutionSolverId",
    "miopenGetSolverIdConvAlgorithm",
];

/// The operators of sound plans, as the functions that set their arguments name them.
const PROGRAMS: [&[&str]; 7] = [
    &["ConvForward", "BiasForward", "ActivForward"],
    &["ConvForward", "PReluForward"],
    &["ConvForward", "BatchNormInference", "BiasForward"],
    &["BatchNormInference", "ActivForward"],
    &["BatchNormForward", "ActivForward"],
    &["BatchNormBackward", "ActivBackward"],
    &["BiasForward"],
];

/// Handles of one type of parameter.
#[derive(Default)]
struct Pool {
    live: Vec<u64>,
    ended: Vec<u64>,
}

/// Descriptors that fit one another, and a handle.
struct Sound {
    handle: miopenHandle_t,
    /// Input and output, filters, parameters of channels.
    tensors: [miopenTensorDescriptor_t; 3],
    conv: miopenConvolutionDescriptor_t,
    activation: miopenActivationDescriptor_t,
}

impl Sound {
    fn new() -> Self {
        let mut sound =
            Sound { handle: Ref::NULL, tensors: [Ref::NULL; 3], conv: Ref::NULL, activation: Ref::NULL };
        // SAFETY: places of this function's.
        unsafe {
            assert_eq!(miopenCreate(Out::new(&mut sound.handle)), 0);
            assert_eq!(miopenCreateConvolutionDescriptor(Out::new(&mut sound.conv)), 0);
            assert_eq!(miopenCreateActivationDescriptor(Out::new(&mut sound.activation)), 0);
            for (tensor, [n, c, h, w]) in
                sound.tensors.iter_mut().zip([[2, 4, 5, 5], [4, 4, 1, 1], [1, 4, 1, 1]])
            {
                assert_eq!(miopenCreateTensorDescriptor(Out::new(tensor)), 0);
                assert_eq!(miopenSet4dTensorDescriptor(*tensor, 1, n, c, h, w), 0);
            }
        }
        sound
    }

    /// The tensor that a parameter of this name is.
    fn tensor(&self, name: &str) -> miopenTensorDescriptor_t {
        let is_filter = ["wDesc", "filterDesc"].contains(&name);
        let is_parameter = ["bn", "Scale", "scale", "bias", "slope", "Mean", "Var", "bDesc"]
            .iter()
            .any(|part| name.contains(part));
        self.tensors[if is_filter { 1 } else { usize::from(is_parameter) * 2 }]
    }

    fn end(self) {
        // SAFETY: handles are any numbers.
        unsafe {
            assert_eq!(miopenDestroy(self.handle), 0);
            assert_eq!(miopenDestroyConvolutionDescriptor(self.conv), 0);
            assert_eq!(miopenDestroyActivationDescriptor(self.activation), 0);
            for tensor in self.tensors {
                assert_eq!(miopenDestroyTensorDescriptor(tensor), 0);
            }
        }
    }
}

pub(crate) struct Caller {
    random: Rng,
    sound: Sound,
    /// The newest operator of each kind, as [`PROGRAMS`] names them.
    operators: BTreeMap<String, u64>,
    functions: Vec<&'static Prototype>,
    usual: Vec<&'static Prototype>,
    pools: BTreeMap<&'static str, Pool>,
    /// Of each plan whether only tame calls made it what it is.
    plans: BTreeMap<u64, bool>,
    /// Data, 64-bit words so that addresses are aligned until one is made not to be.
    data: Vec<Vec<u64>>,
    /// What output parameters point to, one place for each parameter.
    outs: Vec<Vec<u64>>,
    /// What input parameters point to, likewise.
    ins: Vec<Vec<u64>>,
    succeeded: BTreeMap<&'static str, usize>,
}

impl Caller {
    pub(crate) fn new(seed: u64) -> Self {
        let functions: Vec<&Prototype> =
            prototypes().filter(|function| !LEFT_OUT.contains(&function.name)).collect();
        let by_name = |name: &&str| functions.iter().find(|function| function.name == *name).copied();
        let created = functions.iter().filter(|function| function.name.contains("Create"));
        let types =
            created.flat_map(|function| function.parameters).filter_map(|parameter| inner(parameter, "Out<"));
        Caller {
            random: Rng::with_seed(seed),
            sound: Sound::new(),
            operators: BTreeMap::new(),
            usual: USUAL.iter().filter_map(by_name).collect(),
            pools: types.map(|name| (name, Pool::default())).collect(),
            plans: BTreeMap::new(),
            data: vec![vec![0; PLACE / 8]; PARAMETERS],
            outs: vec![vec![0; PLACE / 8]; PARAMETERS],
            ins: vec![vec![0; 64]; PARAMETERS],
            succeeded: functions.iter().map(|function| (function.name, 0)).collect(),
            functions,
        }
    }

    /// A call, or a sound program with calls in between.
    pub(crate) fn step(&mut self) {
        match self.random.u8(..64) {
            0 => self.program(),
            _ => self.any_call(),
        }
    }

    fn any_call(&mut self) {
        let list = if self.random.bool() { &self.usual } else { &self.functions };
        let function = list[self.random.usize(..list.len())];
        let mood = [Mood::Sound, Mood::Tame, Mood::Tame, Mood::Wild][self.random.usize(..4)];
        self.call(function, mood);
    }

    /// A plan that is created, compiled and executed.
    fn program(&mut self) {
        let operators = PROGRAMS[self.random.usize(..PROGRAMS.len())];
        let create = operators.iter().map(|name| format!("CreateOp{}", name.replace("Activ", "Activation")));
        let set = operators.iter().map(|name| format!("SetOpArgs{name}"));
        let execute = ["miopenExecuteFusionPlan", "miopenExecuteFusionPlan_v2"][self.random.usize(..2)];
        let mut names = vec!["miopenCreateFusionPlan".into(), "miopenCreateOperatorArgs".into()];
        names.extend(create.chain(set));
        names.extend(["miopenCompileFusionPlan", "miopenFusionPlanGetOp", execute].map(String::from));
        for name in names {
            // Those of operators that MIOpen does not have begin with the library's own name.
            let is_named = |function: &&&Prototype| {
                ["", "miopen", "fuseplan"]
                    .iter()
                    .any(|prefix| function.name.strip_prefix(prefix) == Some(&name))
            };
            let function = self.functions.iter().find(is_named).copied();
            self.call(function.unwrap_or_else(|| panic!("there is no {name}")), Mood::Sound);
            if self.random.u8(..16) == 0 {
                self.any_call();
            }
        }
    }

    fn call(&mut self, function: &'static Prototype, mood: Mood) {
        let tame = mood != Mood::Wild;
        // What describes sound calls is not to be changed by one.
        let changes = ["Set", "Init", "Destroy", "Derive", "GetOutputDescriptor"];
        let keeps =
            function.name.contains("SetOpArgs") || !changes.iter().any(|part| function.name.contains(part));
        let is_sound = mood == Mood::Sound && keeps;
        let parameters = 0..function.parameters.len();
        let bits: Vec<u64> = parameters
            .map(|index| {
                let sound = if is_sound { self.sound_parameter(function, index) } else { None };
                sound.unwrap_or_else(|| self.parameter(function, index, tame))
            })
            .collect();
        // SAFETY: as this module's description says.
        let status = unsafe { (function.call)(&bits) };
        // SAFETY: a C string that lives until this thread's next failure.
        let reason = unsafe { CStr::from_ptr(fuseplanGetLastErrorString()) }.to_string_lossy();
        assert!(status <= 10, "{} gave {status}", function.name);
        assert!(status != 5 || !reason.contains("internal error"), "{}: {reason}", function.name);
        if status == 0 {
            *self.succeeded.entry(function.name).or_default() += 1;
        }
        self.remember(function, &bits, tame, status == 0);
    }

    /// Destroys everything that is left and gives how often each function has succeeded.
    pub(crate) fn end(mut self) -> BTreeMap<&'static str, usize> {
        for (name, pool) in std::mem::take(&mut self.pools) {
            let ends =
                |function: &&&Prototype| function.name.contains("Destroy") && function.parameters == [name];
            let Some(destroy) = self.functions.iter().find(ends) else { continue };
            for handle in pool.live {
                // SAFETY: a handle is any number.
                let status = unsafe { (destroy.call)(&[handle]) };
                assert_eq!(status, 0, "{} of {handle:#x}", destroy.name);
            }
        }
        self.sound.end();
        self.succeeded
    }

    /// What the call made and ended.
    fn remember(&mut self, function: &'static Prototype, bits: &[u64], tame: bool, succeeded: bool) {
        let plans =
            function.parameters.iter().zip(bits).filter(|(name, _)| **name == "miopenFusionPlanDescriptor_t");
        for (_, plan) in plans.filter(|_| !tame && function.name.contains("CreateOp")) {
            self.plans.insert(*plan, false);
        }
        if !succeeded {
            return;
        }
        if function.name.contains("Destroy") {
            let pool = self.pools.get_mut(function.parameters[0]);
            if let Some(pool) = pool.filter(|pool| pool.live.contains(&bits[0])) {
                pool.live.retain(|handle| *handle != bits[0]);
                pool.ended.push(bits[0]);
            }
        }
        if function.name.contains("Create") {
            let made = function.parameters.iter().position(|name| inner(name, "Out<").is_some());
            let Some((index, name)) =
                made.and_then(|index| Some((index, inner(function.parameters[index], "Out<")?)))
            else {
                return;
            };
            // SAFETY: the call succeeded, so it has written a handle to the place, which any bits may be read from.
            let handle =
                unsafe { std::ptr::with_exposed_provenance::<u64>(bits[index] as usize).read_unaligned() };
            if name == "miopenFusionPlanDescriptor_t" {
                self.plans.insert(handle, tame);
            }
            if let Some((_, kind)) = function.name.split_once("CreateOp") {
                self.operators.insert(kind.replace("Activation", "Activ"), handle);
            }
            let Some(pool) = self.pools.get_mut(name) else { return };
            assert!(
                !pool.live.contains(&handle) && !pool.ended.contains(&handle),
                "{handle:#x} was given out twice"
            );
            pool.live.push(handle);
            if pool.live.len() > POOL {
                let oldest = pool.live.remove(0);
                pool.ended.push(oldest);
                let ends = |function: &&&Prototype| {
                    function.name.contains("Destroy") && function.parameters == [name]
                };
                if let Some(destroy) = self.functions.iter().find(ends) {
                    // SAFETY: a handle is any number.
                    assert_eq!(unsafe { (destroy.call)(&[oldest]) }, 0, "{}", destroy.name);
                }
            }
        }
    }

    /// The bits of a parameter of a sound call; `None`: any that are tame.
    fn sound_parameter(&mut self, function: &'static Prototype, index: usize) -> Option<u64> {
        let (name, kind) = (function.names[index], function.parameters[index]);
        let newest = |kind: &str| self.pools.get(kind)?.live.last().copied();
        Some(match kind {
            "miopenHandle_t" => self.sound.handle.bits(),
            "miopenTensorDescriptor_t" => self.sound.tensor(name).bits(),
            "miopenConvolutionDescriptor_t" => self.sound.conv.bits(),
            "miopenActivationDescriptor_t" => self.sound.activation.bits(),
            "miopenFusionPlanDescriptor_t" => {
                newest(kind).filter(|plan| self.plans.get(plan) == Some(&true))?
            }
            "miopenFusionOpDescriptor_t" => *self.operators.get(function.name.split_once("SetOpArgs")?.1)?,
            "miopenOperatorArgs_t" => newest(kind)?,
            "miopenBatchNormMode_t" | "miopenDataType_t" | "u64" => 1,
            "miopenActivationMode_t" => 3,
            "f64" => 0.5f64.to_bits(),
            // Alpha and beta.
            "In<c_void>" => 0,
            // No operand overlaps another.
            "*const c_void" | "*mut c_void" => self.data[index].as_mut_ptr().expose_provenance() as u64,
            "c_int" if name == "op_idx" => 0,
            "c_int" => 1,
            _ => return None,
        })
    }

    /// The bits of a parameter.
    fn parameter(&mut self, function: &'static Prototype, index: usize, tame: bool) -> u64 {
        let (name, kind) = (function.names[index], function.parameters[index]);
        let random = &mut self.random;
        if self.pools.contains_key(kind) {
            return self.handle(kind, tame);
        }
        if let Some(what) = inner(kind, "Out<") {
            return self.out(what, index, tame);
        }
        if let Some(what) = inner(kind, "In<") {
            return self.input(what, index, tame);
        }
        match kind {
            "c_int" => whole(random, tame) as u64,
            "f32" => u64::from((float(random, tame) as f32).to_bits()),
            "f64" => float(random, tame).to_bits(),
            // Sizes of memory that is handed in with them.
            "usize" if tame => random.u64(..SMALL as u64),
            "usize" | "u64" => whole(random, false) as u64,
            "Bool" => random.u64(..256),
            "*const c_void" | "*mut c_void" if name == "allocatorContext" => 0,
            "*const c_void" | "*mut c_void" => self.memory(tame),
            "miopenAllocatorFunction" if random.bool() => draw::take as *const () as u64,
            "miopenDeallocatorFunction" if random.bool() => draw::give as *const () as u64,
            "miopenAllocatorFunction" | "miopenDeallocatorFunction" => 0,
            "fuseplanParallelFor_t" if random.bool() => draw::run as *const () as u64,
            "fuseplanParallelFor_t" => 0,
            "miopenDataType_t" if tame => [1, 1, 1, 1, 0, 5][random.usize(..6)],
            "miopenFusionDirection_t" if tame => 0,
            // Some of each kind of problem.
            "miopenTensorArgumentId_t" if tame => [1, 2, 3, 37, 38, 41, 43, 48, 54][random.usize(..9)],
            // Those that time solvers make a storm of single calls a slow one.
            "miopenTuningPolicy_t" => [0, 1, 1, 5, 6][random.usize(..5)],
            _ => variant(random, tame) as u64,
        }
    }

    /// A handle: one that lives, mostly, else one that is destroyed, of another kind, NULL, or any number.
    fn handle(&mut self, kind: &'static str, tame: bool) -> u64 {
        let pool = &self.pools[kind];
        let choice = self.random.u8(..32);
        if !pool.live.is_empty() && choice > 3 {
            let newest = *pool.live.last().unwrap_or(&0);
            let any = pool.live[self.random.usize(..pool.live.len())];
            let handle = if self.random.bool() { newest } else { any };
            return if !tame || self.is_small(kind, handle) { handle } else { 0 };
        }
        let others: Vec<u64> = self
            .pools
            .iter()
            .filter(|(other, _)| **other != kind)
            .flat_map(|(_, pool)| pool.live.clone())
            .collect();
        match choice {
            0 if !pool.ended.is_empty() => pool.ended[self.random.usize(..pool.ended.len())],
            1 if !others.is_empty() => others[self.random.usize(..others.len())],
            // No number with the tag of handles: it might be one that lives.
            2 => self.random.u64(..) >> 8,
            _ => 0,
        }
    }

    /// Whether a tame call may have it: what it describes fits the places.
    fn is_small(&self, kind: &str, handle: u64) -> bool {
        match kind {
            "miopenTensorDescriptor_t" => {
                let mut bytes = 0;
                // SAFETY: a handle is any number, and the place is this function's.
                let status = unsafe { miopenGetTensorNumBytes(Ref::from_bits(handle), Out::new(&mut bytes)) };
                // One that describes nothing yet is what setting it is for.
                status != 0 || bytes <= SMALL
            }
            "miopenConvolutionDescriptor_t" => {
                let (mut numbers, mut dims) = ([[0; 3]; 4], 0);
                let [before, after, strides, dilations] = &mut numbers;
                // SAFETY: places for three dimensions, which are the most there are.
                let status = unsafe {
                    let list = |list: &mut [i32; 3]| Out::new(list.as_mut_ptr());
                    let _ = miopenGetConvolutionSpatialDim(Ref::from_bits(handle), Out::new(&mut dims));
                    let (none, mode) = (Out::new(std::ptr::null_mut()), Out::new(std::ptr::null_mut()));
                    let conv = Ref::from_bits(handle);
                    let (strides, dilations) = (list(strides), list(dilations));
                    let pads = fuseplanGetConvolutionPadding(conv, dims, list(before), list(after));
                    pads | miopenGetConvolutionNdDescriptor(conv, dims, none, none, strides, dilations, mode)
                };
                status == 0 && numbers.as_flattened().iter().all(|number| *number <= 16)
            }
            "miopenFusionPlanDescriptor_t" => self.plans.get(&handle).copied().unwrap_or(false),
            _ => true,
        }
    }

    /// A place for what the call gives back; NULL now and then.
    fn out(&mut self, what: &'static str, index: usize, tame: bool) -> u64 {
        if self.random.u8(..16) == 0 {
            return 0;
        }
        let place = &mut self.outs[index];
        // A size that the call reads before it writes; text has room for whatever there is to say.
        place[0] = if tame { (PLACE / 2) as u64 } else { whole(&mut self.random, false) as u64 };
        let offset = if self.pools.contains_key(what) { 0 } else { self.random.usize(..8) };
        place.as_mut_ptr().expose_provenance() as u64 + offset as u64
    }

    /// Values that the call reads.
    fn input(&mut self, what: &'static str, index: usize, tame: bool) -> u64 {
        let (random, place) = (&mut self.random, &mut self.ins[index]);
        if random.u8(..8) == 0 {
            return 0;
        }
        match what {
            "c_int" => {
                for word in place.iter_mut() {
                    *word =
                        u64::from(whole(random, tame) as u32) | u64::from(whole(random, tame) as u32) << 32;
                }
            }
            "usize" => place.iter_mut().for_each(|word| *word = whole(random, tame) as u64),
            "c_void" => {
                place.iter_mut().for_each(|word| *word = u64::from((float(random, tame) as f32).to_bits()))
            }
            "c_char" => {
                let text: &CStr = [c"cpu", c"cpu", c"", c"none such", c"\xff\xfe"][random.usize(..5)];
                return text.as_ptr().cast::<c_char>().expose_provenance() as u64;
            }
            // Nothing is known of it but that NULL is allowed.
            _ => return 0,
        }
        place.as_ptr().expose_provenance() as u64
    }

    /// Memory for a tensor of a tame call, now and then at an odd address; NULL in wild calls.
    fn memory(&mut self, tame: bool) -> u64 {
        if !tame || self.random.u8(..24) == 0 {
            return 0;
        }
        let place: *mut c_void = self.data[self.random.usize(..PLACES)].as_mut_ptr().cast();
        let offset = if self.random.u8(..16) == 0 { self.random.u64(..64) } else { 0 };
        place.expose_provenance() as u64 + offset
    }
}

/// How a call's parameters are drawn.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Sound,
    Tame,
    Wild,
}

/// `T` of `Out<T>`.
fn inner(kind: &'static str, wrapper: &str) -> Option<&'static str> {
    kind.strip_prefix(wrapper)?.strip_suffix('>')
}
