//! Executions in destructors of thread-locals, when the library's own thread-local memory is gone.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use fuseplan::Handle;
use fuseplan_suite::sample::Sample;

/// Executions in destructors, whose panics would end the process without a word.
static RIGHT: AtomicUsize = AtomicUsize::new(0);

fn execute() -> bool {
    let (sample, handle) = (Sample::new(3).unwrap(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    sample.run(&compiled, &handle, &sample.args()).unwrap() == sample.expected()
}

struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        let right = std::panic::catch_unwind(execute).unwrap_or(false);
        RIGHT.fetch_add(usize::from(right), Ordering::SeqCst);
    }
}

thread_local! {
    static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    static EXECUTED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn executions_in_a_thread_locals_destructor_are_right() {
    // Destructors run in the opposite order of first uses: one before the library's, one after them.
    std::thread::spawn(|| {
        EARLY.set(Some(Last));
        EXECUTED.set(execute());
        LATE.set(Some(Last));
        assert!(EXECUTED.get());
    })
    .join()
    .unwrap();
    // And where the library was not used on the thread before.
    std::thread::spawn(|| EARLY.set(Some(Last))).join().unwrap();
    assert_eq!(RIGHT.load(Ordering::SeqCst), 3);
}
