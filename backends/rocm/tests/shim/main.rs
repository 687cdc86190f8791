//! The shim itself: it computes what a text says, and says of a wrong text what is wrong. It needs clang.

#[path = "mod.rs"]
mod shim;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::path::Path;

use libloading::Library;

const VENDOR: &str = include_str!("../../kernels/vendor.cuh");
const ARGS: &str = "struct Args {\n  const float* x;\n  float* y;\n};\n";

/// `launch.h`.
type Launch = unsafe extern "C" fn(
    *const c_char,
    *const c_uint,
    *const c_uint,
    c_uint,
    *const c_void,
    c_ulong,
    *mut c_char,
    c_ulong,
) -> c_int;

/// A launch of one block of a text's kernel: what it wrote, or what the shim says.
struct Block<'a> {
    arch: &'a str,
    text: &'a str,
    name: &'a str,
    items: u32,
    shared: u32,
    words: usize,
}

impl Default for Block<'_> {
    fn default() -> Self {
        Block { arch: "gfx942", text: "", name: "fuseplan_kernel", items: 64, shared: 0, words: 2 }
    }
}

impl Block<'_> {
    fn run<Y: Clone + Default>(&self, x: &[f32], outputs: usize) -> Result<Vec<Y>, String> {
        let text = [VENDOR, ARGS, self.text].concat();
        let object = shim::build(&text, self.arch, Path::new(env!("CARGO_TARGET_TMPDIR")))?;
        let mut y = vec![Y::default(); outputs];
        let arguments = [x.as_ptr() as u64, y.as_mut_ptr() as u64];
        let (name, grid, block) = (CString::new(self.name).unwrap(), [1, 1, 1], [self.items, 1, 1]);
        let mut message = [0u8; 256];
        // SAFETY: the object was made of shim.cpp, and stays loaded during the call; the texts below stay
        // within `x` and `y`.
        let status = unsafe {
            let library = Library::new(object).map_err(|error| error.to_string())?;
            let launch = library.get::<Launch>(b"shim_launch\0").map_err(|error| error.to_string())?;
            launch(
                name.as_ptr(),
                grid.as_ptr(),
                block.as_ptr(),
                self.shared,
                arguments.as_ptr().cast(),
                (self.words * 8) as c_ulong,
                message.as_mut_ptr().cast(),
                message.len() as c_ulong,
            )
        };
        let message = CStr::from_bytes_until_nul(&message).unwrap().to_string_lossy().into_owned();
        if status == 0 { Ok(y) } else { Err(message) }
    }

    /// What the shim says against a text.
    fn refusal(&self) -> String {
        self.run::<f32>(&[0.0; 64], 64).unwrap_err()
    }
}

#[test]
#[ignore = "needs clang++ 19 or later; `.ci/run test` runs it"]
fn barriers_order_what_work_items_do() {
    // Each round reads what the neighbour wrote in the round before.
    let text = "KERNEL(256) {
  DYNAMIC_SHARED(float, shared);
  const int i = threadIdx.x;
  shared[i] = args.x[i];
  for (int round = 0; round < 100; round++) {
    __syncthreads();
    const float v = shared[(i + 1) % 256];
    __syncthreads();
    shared[i] = v;
  }
  args.y[i] = shared[i];
}";
    let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let found = Block { text, items: 256, shared: 1024, ..Block::default() }.run::<f32>(&x, 256).unwrap();
    assert!((0..256).all(|i| found[i] == ((i + 100) % 256) as f32), "{found:?}");
}

#[test]
#[ignore = "needs clang++ 19 or later; `.ci/run test` runs it"]
fn wrong_texts_are_told_apart() {
    let diverging = "KERNEL(64) {\n  if (threadIdx.x < 60) __syncthreads();\n  args.y[0] = 1.f;\n}";
    let found = Block { text: diverging, ..Block::default() }.refusal();
    assert_eq!(
        found,
        "of 64 work-items, 60 wait at a barrier, 4 have ended, the others wait for their wave, in group 0,0,0"
    );
    let beyond = "KERNEL(64) {\n  DYNAMIC_SHARED(float, shared);\n  shared[threadIdx.x] = 1.f;\n}";
    let found = Block { text: beyond, shared: 252, ..Block::default() }.refusal();
    assert_eq!(found, "a write beyond the shared memory in group 0,0,0");
    assert_eq!(Block { text: beyond, shared: 256, ..Block::default() }.run::<f32>(&[], 0), Ok(vec![]));
    let found = Block { text: beyond, name: "other", ..Block::default() }.refusal();
    assert_eq!(found, "no kernel other in group 0,0,0");
    let found = Block { text: beyond, shared: 256, words: 3, ..Block::default() }.refusal();
    assert_eq!(found, "arguments of 24 bytes for 16 in group 0,0,0");
    let unwritten =
        "KERNEL(64) {\n  DYNAMIC_SHARED(float, shared);\n  args.y[threadIdx.x] = shared[threadIdx.x];\n}";
    let found = Block { text: unwritten, shared: 256, ..Block::default() }.run::<f32>(&[], 64).unwrap();
    assert!(found.iter().all(|v| v.is_nan()), "shared memory has no contents before it is written");
    let halves = "typedef float Sums __attribute__((ext_vector_type(8)));
typedef _Float16 Row __attribute__((ext_vector_type(16)));
KERNEL(32) {
  const Row a = (Row)(_Float16)(float)(threadIdx.x / 16);
  const Sums sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, a, (Sums)0.f);
  args.y[threadIdx.x] = sums[0];
}";
    let found = Block { text: halves, arch: "gfx1100", items: 32, ..Block::default() }.refusal();
    assert_eq!(found, "wmma_f32_16x16x16_f16_w32: the halves of the wave differ in group 0,0,0");
}

#[test]
#[ignore = "needs clang++ 19 or later; `.ci/run test` runs it"]
fn conversions_round_to_nearest_even() {
    let text = "KERNEL(64) {
  const int i = threadIdx.x;
  unsigned short* y = (unsigned short*)args.y;
  for (int at = i; at < COUNT; at += 64) {
    y[2 * at] = f16_from_float(args.x[at]).bits;
    y[2 * at + 1] = bf16_from_float(args.x[at]).bits;
  }
}";
    // Around every number of f16 and bf16: itself, the middle to the next, a little to both sides of it.
    let mut x = Vec::new();
    for bits in 0..=u16::MAX {
        let numbers = [half::f16::from_bits(bits).to_f32(), half::bf16::from_bits(bits).to_f32()];
        for number in numbers.into_iter().filter(|number| !number.is_nan()) {
            let bits = number.to_bits();
            x.extend([0, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001].map(|d| f32::from_bits(bits ^ d)));
        }
    }
    let text = format!("constexpr int COUNT = {};\n{text}", x.len());
    let found = Block { text: &text, ..Block::default() }.run::<u16>(&x, 2 * x.len()).unwrap();
    for (i, &v) in x.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
        let expected = [half::f16::from_f32(v).to_bits(), half::bf16::from_f32(v).to_bits()];
        assert_eq!(found[2 * i..2 * i + 2], expected, "{v:e}");
    }
}
