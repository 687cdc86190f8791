//! A kernel's text and launch, and how the text is put together.

use std::fmt::Write;

use fuseplan_api::volume::Volume;
use fuseplan_api::{DataType, OpKind, Problem};

use crate::arguments::{ArgumentLayout, pointers};
use crate::chain;
use crate::volume::{DIMS, is_wide};

/// A kernel for a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// C++ for the run-time compiler, without headers. Its only kernel is `fuseplan_kernel`.
    pub source: String,
    /// How it is launched.
    pub geometry: Geometry,
    /// What the text takes as argument.
    pub arguments: ArgumentLayout,
    /// Bytes of memory that a first launch hands on to a second, for both of which [`Driver::with_scratch`](crate::Driver::with_scratch) is
    /// to be called; 0 where there is one launch.
    pub scratch: usize,
    /// The choices made, for people.
    pub detail: String,
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory of a block beyond what the kernel declares.
    pub shared: u32,
}

/// Numbers among the arguments. A size: eight bytes, read as an index. A divisor: sixteen, with what makes a
/// division of an index below 2^31 a product and a shift, also where it stands behind `/` or `%`.
const NUMBERS: &str = "\
struct alignas(8) Size {
  idx value;
  DEVICE operator idx() const { return value; }
};
struct Divisor {
  Size value;
  unsigned multiplier, shift;
  DEVICE idx divide(idx n) const {
    return sizeof(idx) == 4 ? (idx)((unsigned long long)(unsigned)n * multiplier >> shift) : n / value;
  }
  DEVICE operator idx() const { return value; }
};
template <class N> DEVICE idx operator/(N n, const Divisor& d) { return d.divide(n); }
template <class N> DEVICE idx operator%(N n, const Divisor& d) { return n - d.divide(n) * d.value; }";

/// The multiplier and shift with which `n / divisor == n * multiplier >> shift` for n below 2^31. Only for
/// divisors from 1 to 2^31.
fn reciprocal(divisor: usize) -> (u32, u32) {
    let shift = 31 + divisor.next_power_of_two().trailing_zeros();
    ((1u64 << shift).div_ceil(divisor as u64) as u32, shift)
}

/// The name of an element type in kernels' texts; `None` for those that kernels do not know.
pub fn element(data_type: DataType) -> Option<&'static str> {
    match data_type {
        DataType::Float => Some("float"),
        DataType::Half => Some("f16"),
        DataType::BFloat16 => Some("bf16"),
        DataType::Double | DataType::Int8 => None,
    }
}

/// The part of a text that finds the coordinates of an output's pixel, which [`Text::coord`] describes.
pub const COORD: &str = kernel_text!("../kernels/coord.cuh");

/// How a block brings what it keeps.
pub(crate) const BRING: &str = kernel_text!("../kernels/bring.cuh");

/// The part of a text that says what each of SPLIT blocks has of a tile.
pub const SHARE: &str = kernel_text!("../kernels/share.cuh");

/// The part of a text that stands for a cluster's words where SPLIT is 1.
pub const ALONE: &str = kernel_text!("../kernels/alone.cuh");

impl Kernel {
    /// The name of the kernel in the text.
    pub const NAME: &'static str = "fuseplan_kernel";
}

/// Words of a kernel's argument that differ between its two launches: the last ones.
pub const SCRATCH_WORDS: usize = 2;

/// What a text is made of besides files: constants, and sizes that are arguments.
#[derive(Debug, Default)]
pub struct Text {
    constants: String,
    fields: String,
    sizes: Vec<i64>,
    scratch: usize,
}

impl Text {
    /// A number that is fixed in the binary. One beyond 32 bits is an error of the compiler: braces do not narrow.
    pub(crate) fn constant(&mut self, name: &str, value: usize) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.constants, "constexpr int {name}{{{value}}};");
        self
    }

    /// A number that is an argument, `args.shape.<name>` in the text. Operators of the chain declare the sizes that they
    /// use, which the kernel may have declared before.
    pub fn size(&mut self, name: impl Into<String>, value: usize) -> &mut Self {
        let name = name.into();
        // A divisor is a size as well.
        if ![format!("  Size {name};\n"), format!("  Divisor {name};\n")]
            .iter()
            .any(|field| self.fields.contains(field))
        {
            self.fields.push_str(&format!("  Size {name};\n"));
            self.sizes.push(value as i64);
        }
        self
    }

    /// A size that the text divides by, `args.shape.<name>.divide(n)`; its value is `.value`.
    pub fn divisor(&mut self, name: &str, value: usize) -> &mut Self {
        let _ = writeln!(self.fields, "  Divisor {name};");
        // Divisors of indices that need 64 bits are plain sizes.
        let (multiplier, shift) = if value >> 31 == 0 { reciprocal(value.max(1)) } else { (0, 0) };
        self.sizes.extend([value as i64, (u64::from(shift) << 32 | u64::from(multiplier)) as i64]);
        self
    }

    /// The strides of a tensor as arguments `<prefix>_n`, `<prefix>_c`, …
    pub fn strides(&mut self, prefix: &str, strides: &[usize; 5]) -> &mut Self {
        for (dim, stride) in DIMS.iter().zip(strides) {
            self.size(format!("{prefix}_{dim}"), *stride);
        }
        self
    }

    /// The extents of the output's planes.
    pub fn output(&mut self, output: &Volume) -> &mut Self {
        self.size("out_h", output.lens[3]).size("out_w", output.lens[4]).size("out_plane", output.plane())
    }

    /// The same as divisors.
    pub fn output_divisors(&mut self, output: &Volume) -> &mut Self {
        let divided = self.divisor("out_h", output.lens[3]).divisor("out_w", output.lens[4]);
        divided.divisor("out_plane", output.plane())
    }

    /// What [`COORD`] needs to know of the output.
    pub fn coord(&mut self, output: &Volume) -> &mut Self {
        let (pixels, positions) = (output.pixel_stride(), output.position_stride());
        self.constant("Y_LINEAR", pixels.is_some().into()).constant("Y_PLANAR", positions.is_some().into());
        self.size("pixels", output.pixels());
        self.size("y_p", pixels.or(positions).unwrap_or(0)).strides("y", &output.strides)
    }

    /// Has the kernel launched twice, with memory that the first launch may write for the second, `args.shape.scratch`, and the number
    /// of the launch, `args.shape.launch`.
    pub fn launched_twice(&mut self, scratch: usize) -> &mut Self {
        self.scratch = scratch;
        self
    }

    /// The whole text: the vendor's words, the problem's numbers and chain of operators, and `files`.
    pub fn finish(
        mut self,
        vendor: &str,
        problem: &Problem,
        files: &[&str],
        geometry: Geometry,
        detail: String,
    ) -> Kernel {
        // Operators behind a convolution or alone; training has texts of its own.
        let chain = if problem.is_training() {
            String::new()
        } else {
            chain::functions(problem, &mut self) + "\n" + kernel_text!("../kernels/chain.cuh")
        };
        // The last words of all.
        if self.scratch > 0 {
            self.fields.push_str("  double* scratch;\n  Size launch;\n");
            self.sizes.extend([0; SCRATCH_WORDS]);
        }
        let data_type = problem.output.data_type();
        let Some(element) = element(data_type) else { unreachable!("a constraint refuses {data_type}") };
        let pointers = pointers(problem);
        let idx = if is_wide(problem) { "long long" } else { "int" };
        let kinds = OpKind::ALL.into_iter().filter(|kind| !kind.operands().is_empty());
        let operands: String = kinds.map(numbers).collect();
        let mut source = format!(
            "{vendor}\n{operands}typedef {element} T;\ntypedef {idx} idx;\ntypedef unsigned {idx} Unsigned;\n{NUMBERS}\n{}constexpr int OPS = {};\nconstexpr int POINTERS = {pointers};\nstruct Shape {{\n{}}};\n",
            self.constants,
            problem.ops.len(),
            self.fields,
        );
        for part in [kernel_text!("../kernels/common.cuh"), kernel_text!("../kernels/activation.cuh"), &chain]
        {
            source.push('\n');
            source.push_str(part);
        }
        for file in files {
            source.push('\n');
            source.push_str(file);
        }
        let arguments = ArgumentLayout { pointers, sizes: self.sizes };
        Kernel { source, geometry, arguments, scratch: self.scratch, detail }
    }
}

/// `struct BiasForward { enum { bias }; };`: the numbers of a kind's operands among an operator's pointers.
fn numbers(kind: OpKind) -> String {
    let names: Vec<_> = kind.operands().iter().map(|spec| spec.name).collect();
    format!("struct {kind} {{ enum {{ {} }}; }};\n", names.join(", "))
}

#[cfg(test)]
impl Text {
    /// The constants as they stand in the text.
    pub(crate) fn constants(&self) -> &str {
        &self.constants
    }
}

#[cfg(test)]
impl Kernel {
    /// A constant of the text.
    pub(crate) fn constant(&self, name: &str) -> usize {
        let (_, value) = self.source.split_once(&format!("constexpr int {name}{{")).unwrap();
        value.split_once('}').unwrap().0.parse().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_and_a_shift_divide() {
        let divide = |n: u64, (multiplier, shift): (u32, u32)| (n * u64::from(multiplier)) >> shift;
        let divisors = (1..=4096).chain((12..31).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        for divisor in divisors {
            let number = reciprocal(divisor);
            let divisor = divisor as u64;
            let multiples = [1, 2, 3, 1000, 0x7FFF_FFFF / divisor].map(|factor| factor * divisor);
            let near = multiples.into_iter().flat_map(|n| [n - 1, n, n + 1]).chain([0, 0x7FFF_FFFF]);
            for n in near.filter(|&n| n < 1 << 31) {
                assert_eq!(divide(n, number), n / divisor, "{n} / {divisor}");
            }
        }
    }
}
