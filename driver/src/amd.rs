//! What a kernel cannot beat on an AMD GPU by AMD's figures. Nothing here was measured: it says what to expect where
//! there is no such device to measure.

use fuseplan::{DataType, device::DeviceInfo, problem::Problem};

/// The largest chip of an architecture, in AMD's figures.
struct Chip {
    arch: &'static str,
    name: &'static str,
    compute_units: f64,
    gigahertz: f64,
    /// Operations of a compute unit's matrix cores in a cycle, a multiply-add being two: f16 or bf16, and f32.
    matrix: [f64; 2],
    /// Operations in a cycle of a compute unit's vector units in f32, at best.
    vector: f64,
    /// Gigabytes of memory traffic in a second.
    bandwidth: f64,
}

const fn chip(
    arch: &'static str,
    name: &'static str,
    compute_units: f64,
    gigahertz: f64,
    matrix: [f64; 2],
    vector: f64,
    bandwidth: f64,
) -> Chip {
    Chip { arch, name, compute_units, gigahertz, matrix, vector, bandwidth }
}

/// Every known processor's. RDNA's matrix cores have no f32; fuseplan has no use for those of gfx908.
const CHIPS: [Chip; 16] = [
    chip("gfx906", "an MI60", 64.0, 1.8, [0.0, 0.0], 128.0, 1024.0),
    chip("gfx908", "an MI100", 120.0, 1.5, [0.0, 0.0], 128.0, 1229.0),
    chip("gfx90a", "a die of an MI250X", 110.0, 1.7, [1024.0, 256.0], 256.0, 1638.0),
    chip("gfx942", "an MI300X", 304.0, 2.1, [2048.0, 256.0], 256.0, 5300.0),
    chip("gfx950", "an MI355X", 256.0, 2.4, [4096.0, 256.0], 256.0, 8000.0),
    chip("gfx1030", "an RX 6900 XT", 80.0, 2.25, [0.0, 0.0], 128.0, 512.0),
    chip("gfx1031", "an RX 6700 XT", 40.0, 2.58, [0.0, 0.0], 128.0, 384.0),
    chip("gfx1032", "an RX 6600 XT", 32.0, 2.59, [0.0, 0.0], 128.0, 256.0),
    chip("gfx1100", "an RX 7900 XTX", 96.0, 2.5, [512.0, 0.0], 256.0, 960.0),
    chip("gfx1101", "an RX 7800 XT", 60.0, 2.43, [512.0, 0.0], 256.0, 624.0),
    chip("gfx1102", "an RX 7600", 32.0, 2.66, [512.0, 0.0], 256.0, 288.0),
    chip("gfx1103", "a Radeon 780M", 12.0, 2.7, [512.0, 0.0], 256.0, 90.0),
    chip("gfx1150", "a Radeon 890M", 16.0, 2.9, [512.0, 0.0], 256.0, 120.0),
    chip("gfx1151", "a Radeon 8060S", 40.0, 2.9, [512.0, 0.0], 256.0, 256.0),
    chip("gfx1200", "an RX 9060 XT", 32.0, 3.13, [1024.0, 0.0], 256.0, 322.0),
    chip("gfx1201", "an RX 9070 XT", 64.0, 2.97, [1024.0, 0.0], 256.0, 645.0),
];

/// The shortest time that an architecture's largest chip could take for a problem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PaperFloor {
    /// The time.
    pub(crate) seconds: f64,
    /// What takes that long.
    pub(crate) limit: &'static str,
    /// The chip.
    pub(crate) chip: &'static str,
}

/// The floor of a kernel: every operand passes memory once, and every matrix core of the chip multiplies all the time,
/// or every vector unit where the solver uses no matrix cores. Devices that AMD did not make have none here.
pub(crate) fn floor(problem: &Problem, device: &DeviceInfo, solver: &str) -> Option<PaperFloor> {
    let processor = device.arch.split(':').next()?;
    let chip = CHIPS.iter().find(|chip| device.backend == "rocm" && chip.arch == processor)?;
    let (rate, units) = if solver.contains("_mfma.") || solver.contains("_wmma.") {
        (chip.matrix[usize::from(problem.output.data_type() == DataType::Float)], "matrix cores")
    } else {
        (chip.vector, "multiply-adds")
    };
    let multiply = problem.flops() / (rate * chip.compute_units * chip.gigahertz * 1e9);
    let memory = problem.bytes() / (chip.bandwidth * 1e9);
    let (seconds, limit) = if multiply > memory { (multiply, units) } else { (memory, "memory") };
    Some(PaperFloor { seconds, limit, chip: chip.name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan::{ConvForward, ConvolutionDescriptor, FusionPlan, TensorDescriptor, device::Target};

    fn conv(data_type: DataType, extent: usize) -> Problem {
        let input = TensorDescriptor::nhwc(data_type, [64, 256, 28, 28]).unwrap();
        let weights = TensorDescriptor::nhwc(data_type, [256, 256, extent, extent]).unwrap();
        let pads = [extent / 2, extent / 2];
        let conv = ConvolutionDescriptor::d2().with_pads(pads).unwrap();
        let mut plan = FusionPlan::new(input).unwrap();
        plan.append(ConvForward::new(conv, weights)).unwrap();
        plan.problem()
    }

    fn floor_on(data_type: DataType, extent: usize, arch: &str, solver: &str) -> (String, &'static str) {
        let target = Target::new("rocm", arch).unwrap();
        let floor = floor(&conv(data_type, extent), target.info(), solver).unwrap();
        (format!("{:.1}", floor.seconds * 1e6), floor.limit)
    }

    #[test]
    fn the_slower_of_products_and_memory_decides() {
        let mfma = "rocm.conv_mfma.v1";
        // 59.2 GFLOP at 1307 TFLOP/s; 51 MB at 5.3 TB/s.
        let arch = "gfx942:sramecc+:xnack-";
        assert_eq!(floor_on(DataType::Half, 3, arch, mfma), ("45.3".into(), "matrix cores"));
        assert_eq!(floor_on(DataType::Half, 1, "gfx942", mfma), ("9.7".into(), "memory"));
        let wmma = floor_on(DataType::BFloat16, 3, "gfx1100", "rocm.conv_wmma.v1");
        assert_eq!(wmma, ("481.7".into(), "matrix cores"));
        // 59.2 GFLOP at 23 TFLOP/s.
        let fma = floor_on(DataType::Half, 3, "gfx1030", "rocm.conv_ffma.v1");
        assert_eq!(fma, ("2569.0".into(), "multiply-adds"));
        let cpu = fuseplan::device::discover("cpu").unwrap().devices.swap_remove(0);
        assert_eq!(floor(&conv(DataType::Half, 3), &cpu, "cpu.direct.v1"), None);
    }

    #[test]
    fn every_architecture_has_its_chip() {
        for chip in &CHIPS {
            let info = Target::new("rocm", chip.arch).unwrap().info().clone();
            assert_eq!(f64::from(info.compute_units), chip.compute_units, "{}", chip.arch);
        }
        let known = Target::new("rocm", "gfx1").unwrap_err().to_string();
        assert!(known.ends_with(&CHIPS.map(|chip| chip.arch).join(", ")), "{known}");
    }
}
