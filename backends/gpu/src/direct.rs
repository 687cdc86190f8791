//! Every plan for inference: one thread for each output, sizes as arguments.

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, spatial};

use crate::kernel::{Geometry, Kernel, Text};

/// Threads of a block; the text has the same number.
const THREADS: usize = 256;
/// Most blocks of a launch; threads walk over the rest. HIP counts threads in 32 bits.
const BLOCKS: usize = 1 << 23;

constants! {
    /// The constants of `direct.cuh`.
    struct Constants {
        has_conv: bool,
        channels_last: bool,
    }
}

/// Plans the kernel that takes any problem for inference.
pub(crate) fn direct(vendor: &str, problem: &Problem) -> Kernel {
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let mut text = Text::default();
    Constants { has_conv: problem.conv().is_some(), channels_last: y.is_channels_last() }.write(&mut text);
    let outputs = problem.output.element_count();
    let blocks = outputs.div_ceil(THREADS).min(BLOCKS);
    text.output(&y).size("out_k", y.lens[1]).size("outputs", outputs).size("threads", blocks * THREADS);
    text.strides("x", &x.strides).strides("y", &y.strides);
    text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]);
    // Read by the branch of the text that has a convolution.
    let (weights, numbers, groups) = match problem.conv() {
        Some((conv, weights)) => {
            let numbers =
                [spatial(conv.pads_before(), 0), spatial(conv.strides(), 1), spatial(conv.dilations(), 1)];
            (Volume::of(weights), numbers, conv.groups())
        }
        None => (Volume::new([1; 5], [0; 5]), [[0; 3], [1; 3], [1; 3]], 1),
    };
    text.size("filters_per_group", weights.lens[0] / groups).size("channels", weights.lens[1]);
    for (d, dim) in ["d", "h", "w"].into_iter().enumerate() {
        text.size(format!("taps_{dim}"), weights.lens[2 + d])
            .size(format!("w_{dim}"), weights.strides[2 + d]);
        for (name, list) in ["pad", "stride", "dilation"].into_iter().zip(&numbers) {
            text.size(format!("{name}_{dim}"), list[d]);
        }
    }
    text.size("w_k", weights.strides[0]).size("w_c", weights.strides[1]);
    let geometry = Geometry { grid: [blocks as u32, 1, 1], block: THREADS as u32, shared: 0 };
    text.finish(
        vendor,
        problem,
        &[kernel_text!("../kernels/direct.cuh")],
        geometry,
        "one output a thread".into(),
    )
}
