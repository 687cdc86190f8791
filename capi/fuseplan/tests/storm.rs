//! Calls of every function in any order with whatever a caller might hand in: handles that live, that were destroyed, of
//! another kind, of nothing; numbers in and out of range; NULL. Nothing crashes, and nothing is an internal error.
//!
//! `FUSEPLAN_TEST_SEED` (a number, 0 by default) draws other calls, `FUSEPLAN_TEST_CASES` says how many.

use std::collections::BTreeMap;
use std::env;
use std::ffi::CStr;

use fastrand::Rng;
use fuseplan_c::abi::Prototype;
use fuseplan_c::{fuseplan_last_error, prototypes};

/// Bytes behind each pointer: more than any tensor of these calls has, each of whose lengths is small.
const BYTES: usize = 1 << 20;

/// Bytes that a caller may say that a buffer has.
const ROOM: usize = 1 << 12;

/// More parameters than a function has.
const PARAMETERS: usize = 10;

const NAMES: [&CStr; 14] = [
    c"weights",
    c"bias",
    c"scale",
    c"mean",
    c"variance",
    c"saved_mean",
    c"running_mean",
    c"activ_alpha",
    c"epsilon",
    c"cpu",
    c"cpu",
    c"cpu",
    c"nothing",
    c"",
];

/// The steps of a plan, which random calls would hardly ever take in their order.
const PROGRAM: [&str; 8] = [
    "fuseplan_handle_create",
    "fuseplan_tensor_create",
    "fuseplan_plan_create",
    "fuseplan_plan_append_activation",
    "fuseplan_plan_compile",
    "fuseplan_plan_compile_binary",
    "fuseplan_args_create",
    "fuseplan_execute",
];

struct Caller {
    random: Rng,
    functions: Vec<&'static Prototype>,
    /// Handles by type, the newest last; some of them were destroyed.
    handles: BTreeMap<&'static str, Vec<u64>>,
    /// Memory for each parameter, aligned as a workspace is.
    memory: Vec<Vec<[u64; 32]>>,
    succeeded: BTreeMap<&'static str, usize>,
}

impl Caller {
    fn new(seed: u64) -> Self {
        Caller {
            random: Rng::with_seed(seed),
            functions: prototypes().collect(),
            handles: BTreeMap::new(),
            memory: vec![vec![[0; 32]; BYTES / size_of::<[u64; 32]>()]; PARAMETERS],
            succeeded: BTreeMap::new(),
        }
    }

    fn address(&mut self, index: usize) -> u64 {
        self.memory[index].as_mut_ptr().expose_provenance() as u64
    }

    /// A handle: mostly the newest one of its type.
    fn handle(&mut self, kind: &str) -> u64 {
        let random = &mut self.random;
        let own = self.handles.get(kind).map_or(&[][..], Vec::as_slice);
        match random.u8(..20) {
            0 => 0,
            1 => random.u64(..),
            2 => {
                let all: Vec<u64> = self.handles.values().flatten().copied().collect();
                random.choice(all).unwrap_or(0)
            }
            3..=5 => random.choice(own.iter().copied()).unwrap_or(0),
            _ => own.last().copied().unwrap_or(0),
        }
    }

    /// The bits of a parameter.
    fn parameter(&mut self, function: &Prototype, index: usize) -> u64 {
        let (name, kind) = (function.names[index], function.parameters[index]);
        let is_null = self.random.u8(..10) == 0;
        match kind {
            "fuseplan_data_type_t" | "fuseplan_layout_t" | "fuseplan_batch_norm_mode_t" => {
                [0, 1, 1, 1, 2, 9][self.random.usize(..6)]
            }
            // Its timings take their time, like FUSEPLAN_FIND's below: it gets as far as any number gets for a handle.
            "fuseplan_handle_t" if function.name == "fuseplan_plan_fastest_layouts" => self.random.u64(..),
            "fuseplan_activation_t" => [3, 3, 3, 8, 10, 11, 1000, 1005, 1006][self.random.usize(..9)],
            // Not FUSEPLAN_FIND, whose timings take their time.
            "c_uint" => [0, 0, 0, 2, 4][self.random.usize(..5)],
            "c_int" => [-1, -1, 0, 0, 1, -2][self.random.usize(..6)] as u64,
            "f64" => self.random.f64().to_bits(),
            "f32" => u64::from([1.0f32, 0.0, 0.5][self.random.usize(..3)].to_bits()),
            "usize" => match name {
                "rank" => [4, 4, 4, 5, 0, 6][self.random.usize(..6)],
                "threads" => self.random.u64(..2),
                "groups" => [1, 1, 1, 2, 0][self.random.usize(..5)],
                "size" | "workspace_bytes" => self.random.u64(..ROOM as u64),
                _ => self.random.u64(..4),
            },
            "fuseplan_parallel_for_t" => 0,
            _ if kind.starts_with("fuseplan_") => self.handle(kind),
            _ if is_null => 0,
            "In<c_char>" => NAMES[self.random.usize(..NAMES.len())].as_ptr().expose_provenance() as u64,
            "In<usize>" => {
                // Lengths, strides, pads: small, and rarely 0.
                let numbers: [u64; 32] = std::array::from_fn(|_| match self.random.u8(..12) {
                    0 => 0,
                    1..=6 => 1,
                    _ => self.random.u64(1..4),
                });
                self.memory[index][0] = numbers;
                self.address(index)
            }
            "Out<usize>" => {
                self.memory[index][0][0] = self.random.u64(..ROOM as u64);
                self.address(index)
            }
            _ => self.address(index),
        }
    }

    fn program(&mut self) {
        for name in PROGRAM {
            let function = self.functions.iter().find(|function| function.name == name).copied();
            self.call(function.unwrap_or_else(|| panic!("there is no {name}")));
        }
    }

    fn any_call(&mut self) {
        let function = self.functions[self.random.usize(..self.functions.len())];
        // Destroying as often as creating would leave nothing to work with.
        if !function.name.ends_with("_destroy") || self.random.u8(..4) == 0 {
            self.call(function);
        }
    }

    fn call(&mut self, function: &'static Prototype) {
        let parameters = 0..function.parameters.len();
        let bits: Vec<u64> = parameters.map(|index| self.parameter(function, index)).collect();
        // SAFETY: handles are any numbers. Pointers are NULL or have room for every tensor, list and text of these calls, of
        // which there is a memory for each parameter, used by this thread alone; names are C strings.
        let status = unsafe { (function.call)(&bits) };
        // SAFETY: a C string that lives until this thread's next failure.
        let reason = unsafe { CStr::from_ptr(fuseplan_last_error()) }.to_string_lossy();
        assert!(status <= 5, "{} gave {status}", function.name);
        assert!(status != 5 || !reason.contains("internal error"), "{}: {reason}", function.name);
        if status != 0 {
            assert!(reason.starts_with(function.name), "{} failed: {reason}", function.name);
            return;
        }
        *self.succeeded.entry(function.name).or_default() += 1;
        for (index, kind) in function.parameters.iter().enumerate() {
            let made = kind.strip_prefix("Out<").and_then(|kind| kind.strip_suffix('>'));
            if let Some(kind) = made.filter(|kind| is_handle(kind)) {
                self.handles.entry(kind).or_default().push(self.memory[index][0][0]);
            }
        }
    }
}

/// Whether a type is that of an object, and not of a number.
fn is_handle(kind: &str) -> bool {
    let kinds = ["handle", "tensor", "plan", "compiled", "binary", "args"];
    kinds.iter().any(|object| kind == format!("fuseplan_{object}_t"))
}

#[test]
fn nothing_that_a_caller_hands_in_is_more_than_an_error() {
    let number =
        |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let mut caller = Caller::new(number("FUSEPLAN_TEST_SEED", 0));
    let cases = number("FUSEPLAN_TEST_CASES", 4000);
    for _ in 0..cases {
        if caller.random.u8(..16) == 0 { caller.program() } else { caller.any_call() }
    }
    // Calls get somewhere.
    for name in PROGRAM {
        assert!(caller.succeeded.contains_key(name), "{name} never succeeded: {:?}", caller.succeeded);
    }
}
