//! Executing through `fuseplan.h` allocates nothing on the heap after the first times.

use std::sync::atomic::Ordering;

#[macro_use]
#[allow(dead_code, reason = "other test programs use the rest")]
mod common;
#[path = "../../../tests/common/counting.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod counting;

use common::{Layer, cpu};
use counting::{ALLOCATIONS, comes_to_allocate_nothing};

// One test, so that nothing else runs and allocates in this process.
#[test]
fn no_heap_allocation_after_the_first_executions() {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    drop(std::hint::black_box(vec![0u8; 100]));
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > before, "allocations are not counted");
    for constant in [false, true] {
        let mut layer = Layer::new(cpu());
        if constant {
            layer.set_constant_weights()
        } else {
            layer.set_weights()
        }
        let quiet = comes_to_allocate_nothing(|| assert_eq!(layer.output(), 32.0));
        assert!(quiet, "constant weights: {constant}: executions allocate again and again");
    }
}
