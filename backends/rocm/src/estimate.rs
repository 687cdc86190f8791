//! What a kernel cannot beat, on paper: nothing here was measured.

use fuseplan_api::{DataType, Problem};

use crate::arch;

/// An architecture's largest chip in AMD's figures.
struct Chip {
    arch: &'static str,
    name: &'static str,
    gigahertz: f64,
    /// Operations of a compute unit's matrix cores in a cycle, a multiply-add being two: f16 or bf16, and f32.
    matrix: [f64; 2],
    /// The same of its vector units in f32, at best.
    vector: f64,
    /// Gigabytes of memory traffic in a second.
    bandwidth: f64,
}

const fn chip(
    arch: &'static str,
    name: &'static str,
    gigahertz: f64,
    matrix: [f64; 2],
    vector: f64,
    bandwidth: f64,
) -> Chip {
    Chip { arch, name, gigahertz, matrix, vector, bandwidth }
}

/// Every known processor's. RDNA's matrix cores have no f32; of those of gfx908 fuseplan has no use.
const CHIPS: [Chip; 16] = [
    chip("gfx906", "an MI60", 1.8, [0.0, 0.0], 128.0, 1024.0),
    chip("gfx908", "an MI100", 1.5, [0.0, 0.0], 128.0, 1229.0),
    chip("gfx90a", "a die of an MI250X", 1.7, [1024.0, 256.0], 256.0, 1638.0),
    chip("gfx942", "an MI300X", 2.1, [2048.0, 256.0], 256.0, 5300.0),
    chip("gfx950", "an MI355X", 2.4, [4096.0, 256.0], 256.0, 8000.0),
    chip("gfx1030", "an RX 6900 XT", 2.25, [0.0, 0.0], 128.0, 512.0),
    chip("gfx1031", "an RX 6700 XT", 2.58, [0.0, 0.0], 128.0, 384.0),
    chip("gfx1032", "an RX 6600 XT", 2.59, [0.0, 0.0], 128.0, 256.0),
    chip("gfx1100", "an RX 7900 XTX", 2.5, [512.0, 0.0], 256.0, 960.0),
    chip("gfx1101", "an RX 7800 XT", 2.43, [512.0, 0.0], 256.0, 624.0),
    chip("gfx1102", "an RX 7600", 2.66, [512.0, 0.0], 256.0, 288.0),
    chip("gfx1103", "a Radeon 780M", 2.7, [512.0, 0.0], 256.0, 90.0),
    chip("gfx1150", "a Radeon 890M", 2.9, [512.0, 0.0], 256.0, 120.0),
    chip("gfx1151", "a Radeon 8060S", 2.9, [512.0, 0.0], 256.0, 256.0),
    chip("gfx1200", "an RX 9060 XT", 3.13, [1024.0, 0.0], 256.0, 322.0),
    chip("gfx1201", "an RX 9070 XT", 2.97, [1024.0, 0.0], 256.0, 645.0),
];

/// The shortest time of a kernel in words, or nothing for a chip that is not known: every operand passes memory
/// once, every matrix core of the largest chip multiplies all the time, or every vector unit does.
pub(crate) fn shortest(problem: &Problem, arch: &str, on_matrix_cores: bool) -> Option<String> {
    let arch = arch::named(arch)?;
    let chip = CHIPS.iter().find(|chip| chip.arch == arch.name)?;
    let (rate, units) = if on_matrix_cores {
        (chip.matrix[usize::from(problem.output.data_type() == DataType::Float)], "by matrix cores")
    } else {
        (chip.vector, "by multiply-adds")
    };
    let multiply = problem.flops() / (rate * f64::from(arch.units) * chip.gigahertz * 1e3);
    let memory = problem.bytes() / (chip.bandwidth * 1e3);
    let (time, limit) = if multiply > memory { (multiply, units) } else { (memory, "by memory") };
    Some(format!("estimate, not measured: at least {time:.1} us on {} {limit}", chip.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{ConvolutionDescriptor, MathMode, Op, TensorDescriptor};

    fn conv(data_type: DataType, extent: usize) -> Problem {
        let input = TensorDescriptor::nhwc(data_type, [64, 256, 28, 28]).unwrap();
        let weights = TensorDescriptor::nhwc(data_type, [256, 256, extent, extent]).unwrap();
        let pads = [extent / 2, extent / 2];
        let conv = ConvolutionDescriptor::new_2d(pads, [1, 1], [1, 1]).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise }
    }

    #[test]
    fn the_slower_of_matrix_cores_and_memory_decides() {
        let said = |data_type, extent, arch| shortest(&conv(data_type, extent), arch, true).unwrap();
        // 59.2 GFLOP at 1307 TFLOP/s; 51 MB at 5.3 TB/s.
        assert_eq!(
            said(DataType::Half, 3, "gfx942:sramecc+:xnack-"),
            "estimate, not measured: at least 45.3 us on an MI300X by matrix cores"
        );
        assert_eq!(
            said(DataType::Half, 1, "gfx942"),
            "estimate, not measured: at least 9.7 us on an MI300X by memory"
        );
        assert_eq!(
            said(DataType::BFloat16, 3, "gfx1100"),
            "estimate, not measured: at least 481.7 us on an RX 7900 XTX by matrix cores"
        );
        // 59.2 GFLOP at 23 TFLOP/s.
        assert_eq!(
            shortest(&conv(DataType::Half, 3), "gfx1030", false).unwrap(),
            "estimate, not measured: at least 2569.0 us on an RX 6900 XT by multiply-adds"
        );
        assert_eq!(shortest(&conv(DataType::Half, 3), "gfx1", true), None);
    }

    #[test]
    fn every_architecture_has_its_chip() {
        assert_eq!(CHIPS.map(|chip| chip.arch), arch::ARCHS.map(|arch| arch.name));
    }
}
