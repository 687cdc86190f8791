//! One configuration: its plan, its data and the commands that use them.

use std::error::Error;
use std::io::{Lines as StdLines, StdinLock};
use std::path::Path;
use std::time::{Duration, Instant};

use fuseplan::{
    Activation, ActivationForward, ActivationMode, BatchNormInference, BatchNormInferenceArgs, BatchNormMode,
    BiasForward, BiasForwardArgs, CompiledPlan, ConvForward, ConvForwardArgs, ConvolutionDescriptor,
    FusionPlan, Handle, OperatorArgs, Tensor, TensorDescriptor, TensorLayout, TensorMut, memory::Operand,
    traits::Element,
};
use half::{bf16, f16};

use crate::answer;

pub(crate) type Failure = Box<dyn Error>;
pub(crate) type Lines<'a> = StdLines<StdinLock<'a>>;

/// The `key=value` words of a `setup` command.
pub(crate) struct Keys<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Keys<'a> {
    pub(crate) fn new(words: &'a str) -> Self {
        Keys(words.split_whitespace().filter_map(|word| word.split_once('=')).collect())
    }

    pub(crate) fn text(&self, key: &str) -> Result<&'a str, Failure> {
        let found = self.0.iter().find(|(k, _)| *k == key);
        found.map(|(_, value)| *value).ok_or_else(|| format!("{key} is missing").into())
    }

    fn number(&self, key: &str) -> Result<usize, Failure> {
        Ok(self.text(key)?.parse()?)
    }
}

/// An element that files (f32) are converted to and from.
pub(crate) trait Number: Element {
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn from_f32(value: f32) -> Self {
                <$t>::from_f32(value)
            }
            fn to_f32(self) -> f32 {
                <$t>::to_f32(self)
            }
        }
    )*};
}
number!(f16, bf16);

impl Number for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
    fn to_f32(self) -> f32 {
        self
    }
}

/// Elements that begin on a page, as the peers' own allocations do.
struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Number> Aligned<T> {
    const PAGE: usize = 4096;

    fn new(len: usize) -> Self {
        let memory = vec![T::from_f32(f32::NAN); len + Self::PAGE / size_of::<T>()];
        let start = memory.as_ptr().align_offset(Self::PAGE);
        Aligned { memory, start, len }
    }

    /// A file of f32 in the order N, C, H, W, stored as the packed tensor `desc`.
    fn read(file: &Path, desc: &TensorDescriptor) -> Result<Self, Failure> {
        let values = read(file)?;
        let places = places(desc);
        if values.len() != places.len() {
            let found = values.len();
            return Err(format!("{}: {found} values, not {}", file.display(), places.len()).into());
        }
        let mut result = Self::new(values.len());
        for (value, place) in values.into_iter().zip(places) {
            result.as_mut_slice()[place] = T::from_f32(value);
        }
        Ok(result)
    }

    fn as_slice(&self) -> &[T] {
        &self.memory[self.start..][..self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.memory[self.start..][..self.len]
    }
}

fn read(file: &Path) -> Result<Vec<f32>, Failure> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// Where the elements of a packed 4-D tensor lie, in the order N, C, H, W.
fn places(desc: &TensorDescriptor) -> Vec<usize> {
    let lens = desc.lens();
    let mut places = Vec::with_capacity(lens.iter().product());
    for n in 0..lens[0] {
        for c in 0..lens[1] {
            for h in 0..lens[2] {
                places.extend((0..lens[3]).map(|w| desc.offset(&[n, c, h, w])));
            }
        }
    }
    places
}

/// Sets a configuration up and serves it until another `setup`, which is returned, or the end of the input.
pub(crate) fn serve<T: Number>(
    handle: &Handle,
    keys: &Keys<'_>,
    lines: &mut Lines<'_>,
) -> Result<Option<String>, Failure> {
    let layout = match keys.text("layout")? {
        "nchw" => TensorLayout::Nchw,
        "nhwc" => TensorLayout::Nhwc,
        other => return Err(format!("no layout {other}").into()),
    };
    let tensor = |lens: [usize; 4]| TensorDescriptor::with_layout(T::DATA_TYPE, layout, &lens);
    let x = tensor([keys.number("n")?, keys.number("c")?, keys.number("h")?, keys.number("w")?])?;
    let folder = Path::new(keys.text("data")?);
    let mut plan = FusionPlan::for_device(handle, x)?;

    if keys.text("op")? == "bn" {
        let bn = plan.append(BatchNormInference::new(BatchNormMode::Spatial))?;
        let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
        let [scale, shift, mean, variance] =
            ["scale", "shift", "mean", "variance"].map(|name| read(&folder.join(name)));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        let mut args = OperatorArgs::new();
        args.set(
            bn,
            BatchNormInferenceArgs::new().scale(&scale).bias(&shift).mean(&mean).variance(&variance),
        )
        .set(relu, Activation::Relu);
        let input = Aligned::<T>::read(&folder.join("x"), &x)?;
        return commands(handle, &plan.compile(handle)?, &input, &args, lines);
    }
    let [k, kernel, groups] = [keys.number("k")?, keys.number("kernel")?, keys.number("groups")?];
    let [pad, stride, dilation] = ["pad", "stride", "dilation"].map(|key| keys.number(key).map(|v| [v, v]));
    let conv = ConvolutionDescriptor::d2().with_pads(pad?)?.with_strides(stride?)?;
    let conv = conv.with_dilations(dilation?)?.with_groups(groups)?;
    // MIOpen's filters have the layout of the images.
    let w = tensor([k, x.lens()[1] / groups, kernel, kernel])?;
    let conv = plan.append(ConvForward::new(conv, w))?;
    let bias = plan.append(BiasForward::new())?;
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
    let weights = Aligned::<T>::read(&folder.join("w"), &w)?;
    let shift: Vec<T> = read(&folder.join("b"))?.into_iter().map(T::from_f32).collect();
    let input = Aligned::<T>::read(&folder.join("x"), &x)?;
    let filters = match keys.text("weights")? {
        "packed" => Operand::from(weights.as_slice()),
        // SAFETY: the slice lives as long as the arguments and is not written. Only the promise that its
        // contents stay is withheld, as a C caller withholds it.
        _ => unsafe {
            let slice = weights.as_slice();
            Operand::from_raw(slice.as_ptr().cast(), Some(size_of_val(slice)))
        },
    };
    let mut args = OperatorArgs::new();
    args.set(conv, ConvForwardArgs::new(filters))
        .set(bias, BiasForwardArgs::new(&shift))
        .set(relu, Activation::Relu);
    commands(handle, &plan.compile(handle)?, &input, &args, lines)
}

fn commands<T: Number>(
    handle: &Handle,
    plan: &CompiledPlan,
    input: &Aligned<T>,
    args: &OperatorArgs<'_>,
    lines: &mut Lines<'_>,
) -> Result<Option<String>, Failure> {
    let mut output = Aligned::<T>::new(plan.output().lens().iter().product());
    let call = |output: &mut Aligned<T>| {
        let x = Tensor::new(plan.input(), input.as_slice());
        plan.execute(handle, x, TensorMut::new(plan.output(), output.as_mut_slice()), args)
    };
    call(&mut output)?;
    let info = plan.info();
    answer(&format!("ready {} {}", info.solver, info.detail))?;
    for line in lines.by_ref() {
        let line = line?;
        match line.split_once(' ') {
            Some(("setup", _)) => return Ok(Some(line)),
            Some(("run", seconds)) => {
                let limit = Duration::from_secs_f64(seconds.parse()?);
                call(&mut output)?;
                let (mut count, start) = (0u32, Instant::now());
                let elapsed = loop {
                    call(&mut output)?;
                    count += 1;
                    let elapsed = start.elapsed();
                    if elapsed >= limit {
                        break elapsed;
                    }
                };
                answer(&format!("time {:e} {count}", elapsed.as_secs_f64() / f64::from(count)))?;
            }
            Some(("output", file)) => {
                let places = places(plan.output()).into_iter();
                let bytes: Vec<u8> =
                    places.flat_map(|place| output.as_slice()[place].to_f32().to_le_bytes()).collect();
                std::fs::write(file, bytes)?;
                answer("done")?;
            }
            _ => return Err(format!("unknown command {line}").into()),
        }
    }
    Ok(None)
}
