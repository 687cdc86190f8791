//! Numbers that calls are made of.

use std::ffi::c_void;

use fastrand::Rng;

/// Whole numbers at which something may tip over.
const EDGES: [i64; 20] = [
    -1,
    0,
    1,
    i32::MIN as i64,
    i32::MAX as i64,
    i32::MAX as i64 - 1,
    i32::MAX as i64 + 1,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
    1 << 20,
    1 << 30,
    1 << 40,
    1 << 62,
    65_535,
    65_536,
    10_000_000,
    46_341,
    255,
    33,
];

const FLOATS: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-5,
    1e-39,
    1e-300,
    1e38,
    -1e300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// A length, a padding, a stride, a count.
pub(crate) fn whole(random: &mut Rng, tame: bool) -> i64 {
    const USUAL: [i64; 12] = [1, 1, 1, 1, 2, 2, 2, 4, 4, 3, 0, 5];
    if tame || random.u8(..4) > 0 {
        USUAL[random.usize(..USUAL.len())]
    } else {
        EDGES[random.usize(..EDGES.len())]
    }
}

/// A value of an enumeration.
pub(crate) fn variant(random: &mut Rng, tame: bool) -> i64 {
    if tame || random.u8(..4) > 0 { random.i64(0..12) } else { EDGES[random.usize(..EDGES.len())] }
}

pub(crate) fn float(random: &mut Rng, tame: bool) -> f64 {
    let known = if tame { 7 } else { FLOATS.len() };
    FLOATS[random.usize(..known)]
}

/// The handle's allocator: of memory that is not there now and then.
pub(crate) extern "C" fn take(_context: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes > 1 << 20 {
        return std::ptr::null_mut();
    }
    // SAFETY: any size may be asked for.
    unsafe { libc::malloc(bytes) }
}

pub(crate) extern "C" fn give(_context: *mut c_void, memory: *mut c_void) {
    // SAFETY: from `take`, as the library promises.
    unsafe { libc::free(memory) }
}

/// A handle's parallel loop: a part of it on a thread of its own.
pub(crate) extern "C" fn run(
    _context: *mut c_void,
    count: usize,
    work: unsafe extern "C" fn(*mut c_void, usize),
    argument: *mut c_void,
) {
    let argument = argument.expose_provenance();
    // SAFETY: the library says that any thread may do so as long as this function has not returned.
    let part = |index| unsafe { work(std::ptr::with_exposed_provenance_mut(argument), index) };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..count / 2).for_each(part));
        (count / 2..count).for_each(part);
    });
}
