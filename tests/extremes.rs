//! Plans of sizes that no memory has: each is refused with a reason or compiled, and nothing panics or ends the process.

use fastrand::Rng;
use fuseplan::device::Target;
use fuseplan::{FusionPlan, Handle};

/// Lengths, strides and pads that meet limits of 31, 32 and 64 bits when they are multiplied.
const NUMBERS: [u64; 12] =
    [1, 2, 3, 8, 33, 1 << 16, (1 << 20) + 1, (1 << 31) - 1, 1 << 32, 1 << 40, 1 << 50, 1 << 60];

/// So many numbers, most of which are one of the first few.
fn list(random: &mut Rng, count: usize, small: usize) -> String {
    let mut number = || {
        let end = if random.usize(..3) > 0 { small } else { NUMBERS.len() };
        NUMBERS[random.usize(..end)].to_string()
    };
    (0..count).map(|_| number()).collect::<Vec<_>>().join("x")
}

/// A convolution whose numbers are mostly small.
fn text(random: &mut Rng) -> String {
    let dims = 2 + random.usize(..2);
    let kind = ["f32", "f16", "bf16"][random.usize(..3)];
    let layout = ["", [" NHWC", " NDHWC"][dims - 2]][random.usize(..2)];
    let (image, filters, taps) = (list(random, 2 + dims, 5), list(random, 1, 5), list(random, dims, 3));
    let (pad, stride, dilation) = (list(random, dims, 3), list(random, dims, 2), list(random, dims, 2));
    let groups = list(random, 1, 1);
    format!(
        "{kind} {image}{layout} -> conv {filters} {taps} pad {pad} stride {stride} dilation {dilation} groups {groups} \
         -> bias -> relu"
    )
}

#[test]
fn sizes_that_no_memory_has_are_answered() {
    let handle = Handle::cpu();
    let targets = [("cuda", "sm_90a"), ("cuda", "sm_80"), ("rocm", "gfx942"), ("rocm", "gfx1100")];
    let targets = targets.map(|(backend, arch)| Target::new(backend, arch).unwrap());
    let mut plans = 0;
    for seed in 0..12_000 {
        let text = text(&mut Rng::with_seed(seed));
        // Descriptors refuse what has more elements than addresses.
        let Ok(plan) = text.parse::<FusionPlan>() else { continue };
        plans += 1;
        println!("{text}");
        for target in [handle.as_ref()].into_iter().chain(&targets) {
            plan.answers(target).unwrap();
        }
        // Of a plan whose operands no memory has a kernel may be compiled or refused.
        let _ = plan.compile(&handle);
    }
    assert!(plans > 900, "{plans} plans");
}
