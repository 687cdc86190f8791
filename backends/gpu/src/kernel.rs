//! A kernel's text and launch, and how the text is put together.

use std::fmt::Write;

use fuseplan_api::{DataType, Op, Problem};

use crate::volume::{DIMS, Volume, is_wide};
use crate::{Resources, chain};

/// A kernel for a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// C++ for the run-time compiler, without headers. Its only kernel is `fuseplan_kernel`.
    pub source: String,
    /// How it is launched.
    pub geometry: Geometry,
    /// The sizes that the text takes as arguments.
    pub sizes: Vec<i64>,
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

/// Places of four pointers that an operator takes among the arguments.
pub(crate) fn places(op: &Op) -> usize {
    match op {
        Op::BatchNormForward { .. } | Op::BatchNormBackward { .. } => 2,
        _ => 1,
    }
}

/// A size among the arguments: eight bytes, read as an index.
const SIZE: &str =
    "struct alignas(8) Size {\n  idx value;\n  DEVICE operator idx() const { return value; }\n};";

/// The part of a text that finds the place of an output's pixel, which [`Text::place`] describes.
pub const PLACE: &str = include_str!("../kernels/place.cuh");

impl Kernel {
    /// The name of the kernel in the text.
    pub const NAME: &'static str = "fuseplan_kernel";

    /// The choices made, the launch and what the compiler used, for people.
    pub fn describe(&self, resources: Resources) -> String {
        let Geometry { grid: [x, y, z], block, shared: dynamic } = self.geometry;
        let Resources { registers, local, shared, resident } = resources;
        let resident = resident.map_or(String::new(), |blocks| {
            format!(" ({blocks}, that is {} threads, a compute unit at once)", blocks * block)
        });
        format!(
            "{}; {x}x{y}x{z} blocks of {block} threads{resident}, {registers} registers, {local} bytes of local \
             and {} of shared memory",
            self.detail,
            shared + dynamic
        )
    }
}

/// What a text is made of besides files: constants, and sizes that are arguments.
#[derive(Debug, Default)]
pub struct Text {
    constants: String,
    names: Vec<String>,
    sizes: Vec<i64>,
}

impl Text {
    /// A number that is fixed in the binary.
    pub fn constant(&mut self, name: &str, value: usize) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.constants, "constexpr int {name} = {value};");
        self
    }

    /// A number that is an argument, `args.shape.<name>` in the text.
    pub fn size(&mut self, name: impl Into<String>, value: usize) -> &mut Self {
        self.names.push(name.into());
        self.sizes.push(value as i64);
        self
    }

    /// The strides of a tensor as arguments `<prefix>_n`, `<prefix>_c`, …
    pub fn strides(&mut self, prefix: &str, strides: &[usize; 5]) -> &mut Self {
        for (dim, stride) in DIMS.iter().zip(strides) {
            self.size(format!("{prefix}_{dim}"), *stride);
        }
        self
    }

    /// What every kernel knows of its output.
    pub fn output(&mut self, output: &Volume) -> &mut Self {
        self.size("out_h", output.lens[3]).size("out_w", output.lens[4]).size("out_plane", output.plane())
    }

    /// What [`PLACE`] needs to know of the output.
    pub fn place(&mut self, output: &Volume) -> &mut Self {
        let (pixels, places) = (output.pixel_stride(), output.place_stride());
        self.constant("Y_LINEAR", pixels.is_some().into()).constant("Y_PLANAR", places.is_some().into());
        self.size("pixels", output.pixels());
        self.size("y_p", pixels.or(places).unwrap_or(0)).strides("y", &output.strides)
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
            chain::functions(problem, &mut self) + "\n" + include_str!("../kernels/chain.cuh")
        };
        let element = match problem.output.data_type() {
            DataType::Half => "f16",
            DataType::BFloat16 => "bf16",
            _ => "float",
        };
        let idx = if is_wide(problem) { "long long" } else { "int" };
        let fields: String = self.names.iter().map(|name| format!("  Size {name};\n")).collect();
        let mut source = format!(
            "{vendor}\ntypedef {element} T;\ntypedef {idx} idx;\n{SIZE}\n{}constexpr int OPS = {};\nstruct Shape {{\n{fields}}};\n",
            self.constants,
            problem.ops.iter().map(places).sum::<usize>(),
        );
        for part in [include_str!("../kernels/common.cuh"), &chain] {
            source.push('\n');
            source.push_str(part);
        }
        for file in files {
            source.push('\n');
            source.push_str(file);
        }
        Kernel { source, geometry, sizes: self.sizes, detail }
    }
}
