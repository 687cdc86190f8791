//! The caller's threads give the bits that the library's own give, whatever the caller's pool does.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use fuseplan::{
    CompiledPlan, ConvForward, ConvForwardArgs, ConvolutionDescriptor, DataType, FusionPlan, Handle, OpId,
    OperatorArgs, Tensor, TensorDescriptor, TensorMut,
    device::ParallelFor,
    error::{ExecuteError, RunError},
};
use fuseplan_suite::case::Case;
use fuseplan_suite::corpus;
use fuseplan_suite::data::{self, Tier};
use fuseplan_suite::image::Alignment;
use fuseplan_suite::library::Library;
use fuseplan_suite::oracle::Operands;
use fuseplan_suite::sample::Sample;

/// One case of each kind of kernel.
const CASES: [&str; 9] = [
    "conv.3x3p1.relu.f32.nchw",
    "conv.3x3s2.relu.bf16.nhwc",
    "conv.deep.1x1.f32.nhwc",
    "conv.7x7s2p3.f16.nchw",
    "groups.depthwise.3x3.f32.nchw",
    "groups.g8.d2.bf16.nchw",
    "batch_norm.per-activation.relu.f16.nhwc",
    "activation.tanh.plain.f32.nchw",
    "training.forward.spatial.relu.f32.nchw",
];

fn cases() -> Vec<(Case, Operands)> {
    let corpus = corpus::load().unwrap();
    let find = |id: &&str| corpus.iter().find(|case| case.id == *id).unwrap_or_else(|| panic!("no {id}"));
    let with_data = |case: &Case| (case.clone(), data::operands(case, Tier::Bound, 1));
    CASES.iter().map(find).map(with_data).collect()
}

/// The bits of everything that a case gives on each solver that takes it.
fn bits(library: &Library, (case, operands): &(Case, Operands)) -> Vec<(&'static str, Vec<u64>)> {
    let built = library.build(case).unwrap();
    let mut all = Vec::new();
    for solver in library.solvers() {
        let Ok(compiled) = library.compile(&built, Some(solver)) else { continue };
        let outcome = library.execute(case, &built, &compiled, operands, Alignment::Full).unwrap();
        let values = outcome.results.iter().flat_map(|(_, values)| values);
        all.push((*solver, values.map(|value| value.to_bits()).collect()));
    }
    assert!(!all.is_empty());
    all
}

/// A part of a loop, which the pool's threads take from a queue: the loop's work, an index, and how many are left.
struct Part {
    work: &'static (dyn Fn(usize) + Sync),
    index: usize,
    left: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Queue {
    parts: Mutex<VecDeque<Part>>,
    news: Condvar,
    ends: AtomicBool,
}

impl Queue {
    /// Takes a part and computes it.
    fn help(&self) -> bool {
        let part = self.parts.lock().unwrap().pop_front();
        let Some(Part { work, index, left }) = part else { return false };
        work(index);
        left.fetch_sub(1, Ordering::Release);
        true
    }
}

/// A pool as frameworks have it: threads that wait for work, and a caller that helps until its loop is done, be it with
/// parts of other loops.
struct Queued {
    queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
    loops: AtomicUsize,
}

impl Queued {
    fn new(threads: usize, begin: fn(), after: fn()) -> Self {
        let queue = Arc::new(Queue::default());
        let worker = move |queue: Arc<Queue>| {
            begin();
            while !queue.ends.load(Ordering::Relaxed) {
                if queue.help() {
                    after();
                    continue;
                }
                let parts = queue.parts.lock().unwrap();
                let waits =
                    |parts: &mut VecDeque<Part>| parts.is_empty() && !queue.ends.load(Ordering::Relaxed);
                drop(queue.news.wait_while(parts, waits).unwrap());
            }
        };
        let start = |_| {
            let queue = queue.clone();
            thread::spawn(move || worker(queue))
        };
        Queued { workers: (1..threads).map(start).collect(), queue, loops: AtomicUsize::new(0) }
    }
}

impl ParallelFor for Queued {
    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.loops.fetch_add(1, Ordering::Relaxed);
        let left = Arc::new(AtomicUsize::new(count));
        // SAFETY: only the lifetime changes, and this function does not return before no part is left.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let parts = (0..count).map(|index| Part { work, index, left: left.clone() });
        self.queue.parts.lock().unwrap().extend(parts);
        self.queue.news.notify_all();
        while left.load(Ordering::Acquire) > 0 {
            if !self.queue.help() {
                thread::yield_now();
            }
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let parts = self.queue.parts.lock().unwrap();
        self.queue.ends.store(true, Ordering::Relaxed);
        drop(parts);
        self.queue.news.notify_all();
        self.workers.drain(..).for_each(|worker| worker.join().unwrap());
    }
}

/// Everything on the calling thread, in an order of its own for each loop.
struct Shuffled {
    threads: usize,
    state: AtomicUsize,
}

impl ParallelFor for Shuffled {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let mut indices: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            let state = self.state.fetch_add(0x9e37_79b9, Ordering::Relaxed);
            indices.swap(i, (state >> 7) % (i + 1));
        }
        indices.into_iter().for_each(work);
    }
}

fn library(pool: Arc<dyn ParallelFor>) -> Library {
    Library::on(Handle::cpu_with_parallel_for(pool).unwrap()).unwrap()
}

#[test]
fn a_callers_pool_gives_the_same_bits() {
    let own = Library::on(Handle::cpu_with_threads(2).unwrap()).unwrap();
    let queued = Arc::new(Queued::new(3, || (), || ()));
    let libraries = [
        library(queued.clone()),
        library(Arc::new(Shuffled { threads: 1, state: AtomicUsize::new(1) })),
        library(Arc::new(Shuffled { threads: 5, state: AtomicUsize::new(1) })),
        library(Arc::new(Shuffled { threads: 100, state: AtomicUsize::new(1) })),
    ];
    for case in cases() {
        let expected = bits(&own, &case);
        for library in &libraries {
            assert_eq!(bits(library, &case), expected, "{}", case.0.id);
        }
    }
    assert!(queued.loops.load(Ordering::Relaxed) >= CASES.len());
}

#[test]
fn what_a_program_computes_between_plans_is_each_item_once() {
    let handles = [
        Handle::cpu_with_threads(1).unwrap(),
        Handle::cpu_with_threads(3).unwrap(),
        Handle::cpu_with_parallel_for(Arc::new(Queued::new(3, || (), || ()))).unwrap(),
        Handle::cpu_with_parallel_for(Arc::new(Shuffled { threads: 5, state: AtomicUsize::new(1) })).unwrap(),
    ];
    for handle in &handles {
        for items in [0, 1, 2, 7, 1000] {
            let times: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
            handle.for_each(items, &|item| _ = times[item].fetch_add(1, Ordering::Relaxed)).unwrap();
            assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1), "{items} items");
        }
        let error = handle.for_each(3, &|item| assert_ne!(item, 1)).unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }
}

#[test]
fn loops_of_several_threads_share_the_pool() {
    let handle = Handle::cpu_with_parallel_for(Arc::new(Queued::new(3, || (), || ()))).unwrap();
    let sample = Sample::new(17).unwrap();
    let compiled = sample.plan.compile(&handle).unwrap();
    let (args, expected) = (sample.args(), sample.expected());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(sample.run(&compiled, &handle, &args).unwrap(), expected);
                }
            });
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn workers_compute_in_the_default_environment_and_keep_their_own() {
    use std::arch::asm;

    /// Flush-to-zero, denormals-are-zero, rounding upwards, an exception that has occurred.
    const WORKERS: u32 = 0xdfc2;

    fn read() -> u32 {
        let mut state = 0u32;
        // SAFETY: it stores four bytes, for which there is room.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut state, options(nostack)) };
        state
    }
    fn write(state: u32) {
        // SAFETY: it loads four bytes that are a valid state, in which the worker does integer arithmetic only.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack)) };
    }
    static KEPT: AtomicUsize = AtomicUsize::new(0);

    let own = Library::on(Handle::cpu_with_threads(1).unwrap()).unwrap();
    let after = || {
        assert_eq!(read(), WORKERS);
        KEPT.fetch_add(1, Ordering::Relaxed);
    };
    let pool = Arc::new(Queued::new(3, || write(WORKERS), after));
    let flushed = library(pool.clone());
    for mut case in cases() {
        // Products with such numbers are denormal.
        let least = if case.0.data_type == DataType::Half { 2f64.powi(-16) } else { 2f64.powi(-131) };
        let data_type = case.0.data_type;
        case.1.input.iter_mut().for_each(|x| *x = fuseplan_suite::number::round(*x * least, data_type));
        assert_eq!(bits(&flushed, &case), bits(&own, &case), "{}", case.0.id);
    }
    // Which thread takes a part is left to chance.
    while KEPT.load(Ordering::Relaxed) == 0 {
        pool.run(8, &|_| thread::yield_now());
    }
}

thread_local! {
    /// Whether a loop of this thread's calls the library.
    static NESTED: Cell<bool> = const { Cell::new(false) };
}

/// A pool whose loops execute the very plan again that they are part of, as a thread does that waits for others and
/// takes the next job meanwhile.
struct Reentrant {
    again: OnceLock<Box<dyn Fn() + Send + Sync>>,
    times: AtomicUsize,
}

impl ParallelFor for Reentrant {
    fn threads(&self) -> usize {
        4
    }

    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        work(0);
        if !NESTED.replace(true) {
            if let Some(again) = self.again.get() {
                again();
                self.times.fetch_add(1, Ordering::Relaxed);
            }
            NESTED.set(false);
        }
        (1..count).for_each(work);
    }
}

/// A convolution with so many filters that several threads pack them.
fn many_filters() -> (FusionPlan, OpId<ConvForward>) {
    let x = TensorDescriptor::nchw(DataType::Float, [1, 16, 12, 12]).unwrap();
    let w = TensorDescriptor::nchw(DataType::Float, [200, 16, 3, 3]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
    let conv = plan.append(ConvForward::new(conv, w)).unwrap();
    (plan, conv)
}

#[test]
fn a_pool_may_execute_the_very_plan() {
    let pool = Arc::new(Reentrant { again: OnceLock::new(), times: AtomicUsize::new(0) });
    let (plan, conv) = many_filters();
    let x = *plan.input();
    let input: Vec<f32> = (0..x.span()).map(|i| (i % 17) as f32 / 3.0).collect();
    let weights: Vec<f32> = (0..200 * 16 * 9).map(|i| (i % 23) as f32 / 7.0 - 1.0).collect();
    // The pool keeps arguments, so that what they borrow lives as long as it.
    let (input, weights): (&'static [f32], &'static [f32]) = (input.leak(), weights.leak());
    let execute = move |handle: &Handle, compiled: &CompiledPlan, args: &OperatorArgs<'_>| {
        let mut output = vec![f32::NAN; compiled.output().span()];
        let y = TensorMut::new(compiled.output(), &mut output);
        compiled.execute(handle, Tensor::new(&x, input), y, args).unwrap();
        output
    };
    let arguments = || {
        let mut args = OperatorArgs::new();
        args.set(conv, ConvForwardArgs::new(weights));
        args
    };
    let compile = |handle: &Handle| plan.compile(handle).unwrap();
    let own = Handle::cpu_with_threads(2).unwrap();
    let expected = execute(&own, &compile(&own), &arguments());

    let handle = Handle::cpu_with_parallel_for(pool.clone()).unwrap();
    // The weights are packed by the first execution of all, inside of which the next ones are.
    let (compiled, args) = (compile(&handle), Arc::new(arguments()));
    let execute = Arc::new(execute);
    let again = {
        let (execute, handle) = (execute.clone(), handle.clone());
        let (compiled, args, expected) = (compiled.clone(), args.clone(), expected.clone());
        move || assert_eq!(execute(&handle, &compiled, &args), expected)
    };
    assert!(pool.again.set(Box::new(again)).is_ok());
    for _ in 0..3 {
        assert_eq!(execute(&handle, &compiled, &args), expected);
    }
    assert!(pool.times.load(Ordering::Relaxed) >= 3);
}

/// Panics when it is told to.
struct Panicking(AtomicBool);

impl ParallelFor for Panicking {
    fn threads(&self) -> usize {
        2
    }

    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        work(0);
        assert!(!self.0.load(Ordering::Relaxed), "on purpose");
        (1..count).for_each(work);
    }
}

#[test]
fn a_pools_panic_is_an_error_and_the_handle_lives_on() {
    let pool = Arc::new(Panicking(AtomicBool::new(false)));
    let handle = Handle::cpu_with_parallel_for(pool.clone()).unwrap();
    let sample = Sample::new(17).unwrap();
    let compiled = sample.plan.compile(&handle).unwrap();
    let (args, expected) = (sample.args(), sample.expected());
    for panics in [true, false, true, false] {
        pool.0.store(panics, Ordering::Relaxed);
        match sample.run(&compiled, &handle, &args) {
            Ok(found) => assert!(!panics && found == expected),
            Err(ExecuteError::Run(error @ RunError::Stopped { .. })) => {
                assert!(panics && error.to_string().contains("parallel loop panicked"), "{error}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn absurd_numbers_of_threads_are_refused() {
    for threads in [0, 1025, usize::MAX] {
        let pool = Arc::new(Shuffled { threads, state: AtomicUsize::new(0) });
        let error = Handle::cpu_with_parallel_for(pool).unwrap_err().to_string();
        assert!(error.contains("threads asked for; 1 to 1024 are possible"), "{error}");
    }
}
