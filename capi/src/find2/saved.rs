//! Solutions as bytes: 64-bit numbers in little-endian order behind a mark and a version, a hash at the end.
//! The bytes are as good as their source: each number is judged as if a caller had given it.

use std::collections::BTreeMap;

use fuseplan::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, ConvolutionMode, TensorDescriptor, fnv1a,
    raw::ActivationParams,
};

use super::operands::Operands;
use super::problem::{MOST_PARTS, Operation, Part, Problem};
use super::solution::Solution;
use crate::abi::miopenTensorArgumentId_t;
use crate::status::{Failure, Status, bad_parm};
use crate::tensor::{batch_norm_mode, code, data_type};

const MARK: u64 = u64::from_le_bytes(*b"fuseplan");

/// Changes whenever the meaning of the numbers behind it does.
const VERSION: u64 = 1;

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn number(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn list(&mut self, numbers: &[usize]) {
        self.number(numbers.len() as u64);
        numbers.iter().for_each(|&number| self.number(number as u64));
    }

    fn tensor(&mut self, tensor: &TensorDescriptor) -> Result<(), Failure> {
        self.number(code(tensor.data_type())?.into());
        self.list(tensor.lens());
        // In place of strides, the channels of a block.
        match tensor.strides() {
            Some(strides) => self.list(strides),
            None => self.list(&tensor.blocks().map(|blocks| blocks.channels).into_iter().collect::<Vec<_>>()),
        }
        Ok(())
    }

    fn operation(&mut self, operation: &Operation) {
        match operation {
            Operation::Convolution(conv) => {
                self.number(0);
                self.number(conv.mode() as u64);
                // The padding of both sides, or where they differ all numbers before and then all after.
                let (before, after) = (conv.pads_before(), conv.pads_after());
                self.list(&if before == after { before.to_vec() } else { [before, after].concat() });
                for list in [conv.strides(), conv.dilations(), conv.output_pads()] {
                    self.list(list);
                }
                self.number(conv.groups() as u64);
            }
            Operation::Bias => self.number(1),
            Operation::Activation(mode, params) => {
                self.number(2);
                self.number(mode.miopen_value().into());
                [params.alpha, params.beta, params.gamma].iter().for_each(|p| self.number(p.to_bits()));
            }
            Operation::BatchNormInference(mode) => {
                self.number(3);
                self.number(*mode as u64);
            }
            Operation::BatchNormTraining { mode, running } => {
                self.number(4);
                self.number(*mode as u64);
                self.number((*running).into());
            }
        }
    }
}

/// The solution as bytes.
pub(super) fn write(solution: &Solution) -> Result<Vec<u8>, Failure> {
    let mut writer = Writer::default();
    writer.number(MARK);
    writer.number(VERSION);
    writer.number(solution.solver.len() as u64);
    writer.bytes.extend(solution.solver.as_bytes());
    writer.number(solution.algorithm.into());
    writer.number(solution.workspace as u64);
    writer.number(solution.milliseconds.to_bits().into());
    writer.number(solution.problem.parts.len() as u64);
    for part in &solution.problem.parts {
        writer.operation(&part.operation);
        writer.number(part.tensors.len() as u64);
        for (&id, tensor) in &part.tensors {
            writer.number(id.into());
            writer.tensor(tensor)?;
        }
    }
    let hash = fnv1a(&writer.bytes);
    writer.number(hash);
    Ok(writer.bytes)
}

fn damaged() -> Failure {
    bad_parm("the data is damaged: it is not what miopenSaveSolution wrote")
}

/// The bytes that have not been read yet.
struct Reader<'a>(&'a [u8]);

/// The most entries of any list in a solution: of all lists operators may be the most.
const MOST: u64 = MOST_PARTS as u64;

impl Reader<'_> {
    fn bytes(&mut self, count: usize) -> Result<&[u8], Failure> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, Failure> {
        let bytes = self.bytes(8)?.try_into().map_err(|_| damaged())?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Failure> {
        T::try_from(self.number()?).map_err(|_| damaged())
    }

    fn count(&mut self) -> Result<usize, Failure> {
        let count = self.number()?;
        if count > MOST { Err(damaged()) } else { Ok(count as usize) }
    }

    fn list(&mut self) -> Result<Vec<usize>, Failure> {
        (0..self.count()?).map(|_| self.small()).collect()
    }

    fn tensor(&mut self) -> Result<TensorDescriptor, Failure> {
        let (data_type, computable) = data_type(self.small()?)?;
        let (lens, strides) = (self.list()?, self.list()?);
        if !computable {
            return Err(damaged());
        }
        match (lens.as_slice(), strides.as_slice()) {
            (&[n, c, h, w], &[block]) => Ok(TensorDescriptor::nchwc(data_type, [n, c, h, w], block)?),
            _ => Ok(TensorDescriptor::new(data_type, &lens, &strides)?),
        }
    }

    fn batch_norm(&mut self) -> Result<BatchNormMode, Failure> {
        batch_norm_mode(self.small()?)
    }

    fn operation(&mut self) -> Result<Operation, Failure> {
        Ok(match self.number()? {
            0 => {
                let mode = match self.number()? {
                    0 => ConvolutionMode::Convolution,
                    1 => ConvolutionMode::Transpose,
                    _ => return Err(damaged()),
                };
                let [pads, strides, dilations, output_pads] =
                    [self.list()?, self.list()?, self.list()?, self.list()?];
                let (before, after) = match pads.split_at_checked(strides.len()) {
                    Some((both, [])) => (both, both),
                    Some(sides) => sides,
                    None => return Err(damaged()),
                };
                let conv =
                    ConvolutionDescriptor::of_dims(strides.len())?.with_asymmetric_pads(before, after)?;
                let conv = conv.with_strides(strides)?.with_dilations(dilations)?;
                let conv = conv.with_mode(mode).with_output_padding(&output_pads)?;
                Operation::Convolution(conv.with_groups(self.small()?)?)
            }
            1 => Operation::Bias,
            2 => {
                let mode = ActivationMode::from_miopen_value(self.small()?).ok_or_else(damaged)?;
                let mut param = || Ok::<_, Failure>(f64::from_bits(self.number()?));
                Operation::Activation(mode, ActivationParams::new(param()?, param()?, param()?))
            }
            3 => Operation::BatchNormInference(self.batch_norm()?),
            4 => {
                let mode = self.batch_norm()?;
                Operation::BatchNormTraining { mode, running: self.number()? != 0 }
            }
            _ => return Err(damaged()),
        })
    }

    fn part(&mut self) -> Result<Part, Failure> {
        let operation = self.operation()?;
        let mut tensors: BTreeMap<miopenTensorArgumentId_t, TensorDescriptor> = BTreeMap::new();
        for _ in 0..self.count()? {
            tensors.insert(self.small()?, self.tensor()?);
        }
        Ok(Part { operation, tensors })
    }
}

/// The solution that the bytes are.
pub(super) fn read(bytes: &[u8]) -> Result<Solution, Failure> {
    let mut reader = Reader(bytes);
    if reader.number().ok() != Some(MARK) {
        return Err(bad_parm(
            "the data is no solution of fuseplan; solutions of other libraries cannot be loaded",
        ));
    }
    let version = reader.number()?;
    if version != VERSION {
        return Err(Failure::new(
            Status::VersionMismatch,
            format!("the solution is of version {version}, this library reads version {VERSION}"),
        ));
    }
    let (content, end) = bytes.split_at(bytes.len() - 8);
    if fnv1a(content).to_le_bytes() != end {
        return Err(damaged());
    }
    let length = reader.count()?;
    let solver = String::from_utf8(reader.bytes(length)?.to_vec()).map_err(|_| damaged())?;
    let (algorithm, workspace) = (reader.small()?, reader.small()?);
    let milliseconds = f32::from_bits(reader.small()?);
    let mut problem = Problem::default();
    for _ in 0..reader.count()? {
        problem.parts.push(reader.part()?);
    }
    if problem.parts.is_empty() || reader.0.len() != 8 {
        return Err(damaged());
    }
    problem.chain(&Operands::default())?;
    Ok(Solution { problem, solver, algorithm, workspace, milliseconds })
}

#[cfg(test)]
mod tests {
    use fuseplan::{ActivationMode, DataType};

    use super::*;
    use crate::find2::operands::{CONVOLUTION_W, CONVOLUTION_X};

    fn solution() -> Solution {
        let conv = ConvolutionDescriptor::d2().with_pads([1, 0]).unwrap().with_strides([1, 2]).unwrap();
        let tensor = |lens: &[usize]| TensorDescriptor::packed(DataType::Float, lens).unwrap();
        let tensors =
            BTreeMap::from([(CONVOLUTION_X, tensor(&[2, 4, 5, 6])), (CONVOLUTION_W, tensor(&[8, 2, 3, 3]))]);
        let part = |operation| Part { operation, tensors: BTreeMap::new() };
        let clip = ActivationParams::new(6.5, -0.0, f64::MIN_POSITIVE);
        let parts = vec![
            Part { operation: Operation::Convolution(conv.with_groups(2).unwrap()), tensors },
            part(Operation::Bias),
            part(Operation::BatchNormInference(BatchNormMode::Spatial)),
            part(Operation::Activation(ActivationMode::ClippedRelu, clip)),
        ];
        let problem = Problem { parts };
        Solution { problem, solver: "cpu.direct.v1".into(), algorithm: 1, workspace: 7, milliseconds: 0.25 }
    }

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let bytes = write(&solution()).unwrap();
        assert_eq!(read(&bytes).unwrap(), solution());
        let mut padded = solution();
        let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([1, 0], [0, 2]).unwrap();
        padded.problem.parts[0].operation = Operation::Convolution(conv.with_groups(2).unwrap());
        let longer = write(&padded).unwrap();
        assert_eq!(read(&longer).unwrap(), padded);
        assert_eq!(longer.len(), bytes.len() + 16);
    }

    #[test]
    fn damage_is_noticed_and_nothing_is_believed() {
        let good = write(&solution()).unwrap();
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_err(), "{length} of {} bytes", good.len());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert!(read(&bad).is_err(), "byte {at}");
        }
        // Behind a right hash, too: whatever is read is a problem that makes sense, or is refused.
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let mut bad = good[..good.len() - 8].to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(16..bad.len());
                bad[at] = random.u8(..);
            }
            let hash = fnv1a(&bad);
            bad.extend(hash.to_le_bytes());
            if let Ok(solution) = read(&bad) {
                assert!(solution.problem.tensors().is_ok());
            }
        }
        let mut newer = good.clone();
        newer[8] = 2;
        assert_eq!(read(&newer).unwrap_err().status, Status::VersionMismatch);
    }
}
