//! What each operator of ONNX makes of its inputs' types and lengths.

use super::contents;
use super::shapes::{At, Miss};
use super::tensor::{Elem, Known, Numbers};
use super::window::{self, Window};

type Made = Result<Vec<Known>, Miss>;

/// What a node makes, output by output; those that are missing at the end are not known.
pub(crate) fn apply(at: &At<'_>) -> Made {
    let mut made = shaped(at)?;
    if let Some(first) = made.first_mut() {
        let known = first.dims.as_deref().ok().and_then(|dims| contents::of(at, dims));
        if first.numbers.is_none() {
            first.numbers = known;
        }
        // What is known before the network runs does not change.
        first.is_constant |= first.numbers.is_some();
    }
    Ok(made)
}

fn shaped(at: &At<'_>) -> Made {
    let node = at.node;
    let elem = at.elem(0);
    let one = |dims: Vec<usize>| Ok(vec![Known::new(elem, dims)]);
    let typed = |elem: Elem, dims: Vec<usize>| Ok(vec![Known::new(elem, dims)]);
    match node.op.as_str() {
        "Conv" | "com.microsoft.FusedConv" => one(convolved(at, 0, 1)?),
        "ConvInteger" => typed(Elem::I32, convolved(at, 0, 1)?),
        "QLinearConv" => typed(at.elem(7), convolved(at, 0, 3)?),
        "ConvTranspose" => one(transposed_convolution(at)?),
        "MaxPool" | "AveragePool" | "LpPool" => {
            let dims = window::output(at.dims(0)?, &Window::of_pool(node, at.dims(0)?)?)?;
            Ok(vec![Known::new(elem, dims.clone()), Known::new(Elem::I64, dims)])
        }
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => {
            let dims = at.dims(0)?;
            one(dims.iter().enumerate().map(|(d, &length)| if d < 2 { length } else { 1 }).collect())
        }
        "Gemm" => one(gemm(at)?),
        "MatMul" | "com.microsoft.FusedMatMul" => one(product(at.dims(0)?, at.dims(1)?)?),
        "MatMulInteger" => typed(Elem::I32, product(at.dims(0)?, at.dims(1)?)?),
        "QLinearMatMul" => typed(at.elem(7), product(at.dims(0)?, at.dims(3)?)?),
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "PRelu" | "BitShift" => {
            match node.int("broadcast", 0) {
                0 => one(broadcast(at, 0)?),
                _ => one(at.dims(0)?.to_vec()),
            }
        }
        "Max" | "Min" | "Sum" | "Mean" => one(broadcast(at, 0)?),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "And" | "Or" | "Xor" => {
            typed(Elem::BOOL, broadcast(at, 0)?)
        }
        "Where" => typed(at.elem(1), broadcast(at, 0)?),
        "Not" | "IsNaN" | "IsInf" => typed(Elem::BOOL, at.dims(0)?.to_vec()),
        "Cast" => typed(Elem(node.int("to", 0) as i32), at.dims(0)?.to_vec()),
        "CastLike" => typed(at.elem(1), at.dims(0)?.to_vec()),
        "QuantizeLinear" => {
            let elem = if at.optional(2).is_some() { at.elem(2) } else { Elem::U8 };
            typed(elem, at.dims(0)?.to_vec())
        }
        "DynamicQuantizeLinear" => {
            let of = |elem, dims| Known::new(elem, dims);
            Ok(vec![of(Elem::U8, at.dims(0)?.to_vec()), of(Elem::F32, vec![]), of(Elem::U8, vec![])])
        }
        "DequantizeLinear" => typed(at.elem(1), at.dims(0)?.to_vec()),
        "Dropout" => {
            let dims = at.dims(0)?.to_vec();
            Ok(vec![Known::new(elem, dims.clone()), Known::new(Elem::BOOL, dims)])
        }
        "Concat" => one(concatenated(at)?),
        "Reshape" => one(reshaped(at.dims(0)?, at.list("shape", 1)?, node.int("allowzero", 0) != 0)?),
        "Flatten" => {
            let dims = at.dims(0)?;
            let axis = axis_of(node.int("axis", 1), dims.len() + 1)?;
            one(vec![length(&dims[..axis])?, length(&dims[axis..])?])
        }
        "Transpose" => {
            let dims = at.dims(0)?;
            let order = match node.ints("perm") {
                Some(order) => axes(order, dims.len())?,
                None => (0..dims.len()).rev().collect(),
            };
            one(order.into_iter().map(|axis| dims[axis]).collect())
        }
        "Squeeze" => one(squeezed(at.dims(0)?, at.list("axes", 1)?)?),
        "Unsqueeze" => one(unsqueezed(at.dims(0)?, &at.list("axes", 1)?.ok_or("it has no axes")?)?),
        "Expand" => {
            let shape = at.list("shape", 1)?.ok_or("it has no shape")?;
            one(common(&[at.dims(0)?.to_vec(), lengths(&shape)?])?)
        }
        "Tile" => {
            let (dims, times) = (at.dims(0)?, lengths(&at.list("repeats", 1)?.ok_or("it has no repeats")?)?);
            one(dims.iter().zip(times).map(|(&length, times)| length.saturating_mul(times)).collect())
        }
        "Slice" => one(contents::sliced(at)?.into_iter().map(|places| places.len()).collect()),
        "Split" => split(at),
        "Pad" => one(padded(at)?),
        "Gather" => {
            let (dims, indices) = (at.dims(0)?, at.dims(1)?);
            let axis = axis_of(node.int("axis", 0), dims.len())?;
            one([&dims[..axis], indices, &dims[axis + 1..]].concat())
        }
        "GatherElements" => one(at.dims(1)?.to_vec()),
        "Resize" | "Upsample" => one(resized(at)?),
        "DepthToSpace" | "SpaceToDepth" => one(blocks(at)?),
        "ArgMax" | "ArgMin" => {
            let axes = vec![node.int("axis", 0)];
            typed(Elem::I64, reduced(at.dims(0)?, Some(axes), node.int("keepdims", 1) != 0)?)
        }
        op if op.starts_with("Reduce") => {
            let axes = at.list("axes", 1)?.filter(|axes| !axes.is_empty());
            match (&axes, node.int("noop_with_empty_axes", 0)) {
                (None, 1) => one(at.dims(0)?.to_vec()),
                _ => one(reduced(at.dims(0)?, axes, node.int("keepdims", 1) != 0)?),
            }
        }
        "Shape" => {
            let rank = at.dims(0)?.len();
            let (from, to) = contents::span(node.int("start", 0), node.int("end", rank as i64), rank);
            typed(Elem::I64, vec![to.saturating_sub(from)])
        }
        "Size" => typed(Elem::I64, vec![]),
        "Constant" => literal(at),
        "ConstantOfShape" => {
            let elem = node.tensor("value").transpose()?.map_or(Elem::F32, |value| value.elem);
            typed(elem, lengths(&at.list("shape", 0)?.ok_or("it has no shape")?)?)
        }
        "Range" => {
            let number = |index| {
                at.known(index)?.scalar().ok_or(Miss::from("its bounds are not known before it runs"))
            };
            let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
            one(vec![((limit - start) / step).ceil().max(0.0) as usize])
        }
        "TopK" => {
            let dims = at.dims(0)?;
            let axis = axis_of(node.int("axis", -1), dims.len())?;
            let k = at.list("k", 1)?.and_then(|list| list.first().copied());
            let k = k.and_then(|k| usize::try_from(k).ok()).or(usize::try_from(node.int("k", -1)).ok());
            let mut dims = dims.to_vec();
            dims[axis] = k.ok_or("it has no k")?;
            Ok(vec![Known::new(elem, dims.clone()), Known::new(Elem::I64, dims)])
        }
        "LSTM" | "GRU" | "RNN" => recurrent(at),
        op if SAME.contains(&op) => one(at.dims(0)?.to_vec()),
        op => {
            // What is lost already was lost there, and not here.
            (0..node.inputs.len())
                .filter(|&index| at.optional(index).is_some())
                .try_for_each(|index| at.dims(index).map(drop))?;
            Err(format!("{op} is an operator of unknown shape here").into())
        }
    }
}

/// Operators whose first result is as large as their first input.
#[rustfmt::skip]
const SAME: [&str; 58] = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization", "BitwiseNot", "Ceil", "Celu", "Clip",
    "Cos", "Cosh", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu", "GroupNormalization", "HardSigmoid", "HardSwish",
    "Hardmax", "Identity", "InstanceNormalization", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax",
    "LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "RMSNormalization", "Reciprocal", "Relu", "Round", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Trilu", "com.microsoft.FastGelu", "com.microsoft.Gelu", "com.microsoft.QuickGelu",
    "com.microsoft.BiasGelu",
];

/// The product of lengths.
fn length(dims: &[usize]) -> Result<usize, Miss> {
    let length = dims.iter().try_fold(1usize, |product, &length| product.checked_mul(length));
    length.ok_or_else(|| format!("lengths {dims:?} are too large").into())
}

fn lengths(list: &[i64]) -> Result<Vec<usize>, Miss> {
    let lengths = list.iter().map(|&length| usize::try_from(length)).collect::<Result<_, _>>();
    lengths.map_err(|_| format!("it asks for lengths {list:?}").into())
}

/// A dimension, counted from the end where it is negative.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize, Miss> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let axis_in = from_start.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank);
    axis_in.ok_or_else(|| format!("dimension {axis} of {rank}").into())
}

/// Every dimension once, in this order.
fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let wrong = || format!("{list:?} is no order of {rank} dimensions");
    let axes: Vec<usize> = list.iter().filter_map(|&axis| usize::try_from(axis).ok()).collect();
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if list.len() == rank && sorted.iter().copied().eq(0..rank) { Ok(axes) } else { Err(wrong()) }
}

/// The lengths that all inputs from one on have in common, lined up by their last dimension.
fn broadcast(at: &At<'_>, first: usize) -> Result<Vec<usize>, Miss> {
    let inputs = first..at.node.inputs.len();
    common(&inputs.map(|index| at.dims(index).map(<[usize]>::to_vec)).collect::<Result<Vec<_>, _>>()?)
}

fn common(all: &[Vec<usize>]) -> Result<Vec<usize>, Miss> {
    let rank = all.iter().map(Vec::len).max().unwrap_or(0);
    let mut dims = vec![1; rank];
    for lens in all {
        for (have, &length) in dims.iter_mut().rev().zip(lens.iter().rev()) {
            match (*have, length) {
                (have, length) if have == length || length == 1 => {}
                (1, length) => *have = length,
                _ => return Err(format!("lengths {all:?} do not go together").into()),
            }
        }
    }
    Ok(dims)
}

fn convolved(at: &At<'_>, x: usize, w: usize) -> Result<Vec<usize>, Miss> {
    let (input, filters) = (at.dims(x)?, at.dims(w)?);
    let mut dims = window::output(input, &Window::of_convolution(at.node, input, filters)?)?;
    dims[1] = filters[0];
    Ok(dims)
}

fn transposed_convolution(at: &At<'_>) -> Result<Vec<usize>, Miss> {
    let (input, filters) = (at.dims(0)?, at.dims(1)?);
    window::transposed(at.node, input, filters)
}

fn gemm(at: &At<'_>) -> Result<Vec<usize>, Miss> {
    let side = |index, transposed: &str, second: bool| match *at.dims(index)? {
        [rows, columns] => Ok(if (at.node.int(transposed, 0) != 0) != second { columns } else { rows }),
        ref other => Err(Miss::Here(format!("its factor has lengths {other:?}"))),
    };
    Ok(vec![side(0, "transA", false)?, side(1, "transB", true)?])
}

fn product(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Miss> {
    let mismatch = || Miss::Here(format!("factors of {a:?} and {b:?} do not go together"));
    let (a_matrix, b_matrix) = match (a, b) {
        ([], _) | (_, []) => return Err(mismatch()),
        ([k], _) => (vec![1, *k], b.to_vec()),
        (_, [k]) => (a.to_vec(), vec![*k, 1]),
        _ => (a.to_vec(), b.to_vec()),
    };
    let ((a_outer, a_inner), (b_outer, b_inner)) =
        (a_matrix.split_at(a_matrix.len() - 2), b_matrix.split_at(b_matrix.len().saturating_sub(2)));
    if b_inner.len() != 2 || a_inner[1] != b_inner[0] {
        return Err(mismatch());
    }
    let mut dims = common(&[a_outer.to_vec(), b_outer.to_vec()])?;
    dims.extend((a.len() > 1).then_some(a_inner[0]));
    dims.extend((b.len() > 1).then_some(b_inner[1]));
    Ok(dims)
}

fn concatenated(at: &At<'_>) -> Result<Vec<usize>, Miss> {
    let mut dims = at.dims(0)?.to_vec();
    let axis = axis_of(at.node.int("axis", 1), dims.len())?;
    for index in 1..at.node.inputs.len() {
        let other = at.dims(index)?;
        let fits = other.len() == dims.len() && (0..dims.len()).all(|d| d == axis || dims[d] == other[d]);
        if !fits {
            return Err(format!("lengths {dims:?} and {other:?} cannot be put together").into());
        }
        dims[axis] = dims[axis].saturating_add(other[axis]);
    }
    Ok(dims)
}

fn reshaped(dims: &[usize], shape: Option<Vec<i64>>, zero_is_zero: bool) -> Result<Vec<usize>, Miss> {
    let shape = shape.ok_or("it has no shape")?;
    let wrong = || Miss::Here(format!("{dims:?} cannot be seen as {shape:?}"));
    let mut result = Vec::new();
    for (d, &wanted) in shape.iter().enumerate() {
        result.push(match wanted {
            -1 => 1,
            0 if !zero_is_zero => *dims.get(d).ok_or_else(wrong)?,
            wanted => usize::try_from(wanted).map_err(|_| wrong())?,
        });
    }
    let (have, others) = (length(dims)?, length(&result)?);
    match shape.iter().filter(|&&wanted| wanted == -1).count() {
        0 if have == others => {}
        1 if others > 0 && have % others == 0 => {
            let rest = shape.iter().position(|&wanted| wanted == -1).ok_or_else(wrong)?;
            result[rest] = have / others;
        }
        _ => return Err(wrong()),
    }
    Ok(result)
}

fn squeezed(dims: &[usize], asked: Option<Vec<i64>>) -> Result<Vec<usize>, Miss> {
    let gone = match asked {
        Some(list) => list.iter().map(|&axis| axis_of(axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).filter(|&d| dims[d] == 1).collect(),
    };
    Ok(dims.iter().enumerate().filter(|(d, _)| !gone.contains(d)).map(|(_, &length)| length).collect())
}

fn unsqueezed(dims: &[usize], asked: &[i64]) -> Result<Vec<usize>, Miss> {
    let rank = dims.len() + asked.len();
    let new = asked.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut old = dims.iter();
    let length = |d| if new.contains(&d) { Some(1) } else { old.next().copied() };
    let result: Option<Vec<_>> = (0..rank).map(length).collect();
    result.ok_or_else(|| format!("its axes {asked:?} are not different").into())
}

fn split(at: &At<'_>) -> Made {
    let dims = at.dims(0)?;
    let axis = axis_of(at.node.int("axis", 0), dims.len())?;
    let parts = at.node.outputs.len().max(1);
    let sizes = match at.list("split", 1)? {
        Some(sizes) => lengths(&sizes)?,
        None => {
            let each = dims[axis].div_ceil(parts);
            (0..parts).map(|part| dims[axis].saturating_sub(part * each).min(each)).collect()
        }
    };
    let part = |size| Known::new(at.elem(0), [&dims[..axis], &[size], &dims[axis + 1..]].concat());
    Ok(sizes.into_iter().map(part).collect())
}

fn padded(at: &At<'_>) -> Result<Vec<usize>, Miss> {
    let mut dims = at.dims(0)?.to_vec();
    let pads = at.list("pads", 1)?.ok_or("it has no pads")?;
    let axes = match at.numbers(3)?.and_then(Numbers::ints) {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("it has {} pads for {} dimensions", pads.len(), axes.len()).into());
    }
    for (index, &axis) in axes.iter().enumerate() {
        let both = pads[index].checked_add(pads[axes.len() + index]);
        let length = both.and_then(|both| both.checked_add(dims[axis] as i64));
        let length = length.and_then(|length| usize::try_from(length).ok());
        dims[axis] = length.ok_or_else(|| format!("its pads are {pads:?}"))?;
    }
    Ok(dims)
}

fn resized(at: &At<'_>) -> Result<Vec<usize>, Miss> {
    let dims = at.dims(0)?;
    // Resize has scales behind a region and sizes behind them since version 11; Upsample and version 10 have scales alone.
    let has_region = at.node.op == "Resize" && at.node.inputs.len() != 2;
    let chosen = match at.node.ints("axes") {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).collect(),
    };
    let mut result = dims.to_vec();
    if let Some(sizes) = if has_region { at.numbers(3)? } else { None } {
        let sizes = lengths(sizes.ints().ok_or("its sizes are no integers")?)?;
        if sizes.len() != chosen.len() {
            return Err(format!("it has {} sizes for {} dimensions", sizes.len(), chosen.len()).into());
        }
        chosen.iter().zip(sizes).for_each(|(&axis, size)| result[axis] = size);
        return Ok(result);
    }
    let scales = match at.node.floats("scales") {
        Some(scales) => scales.iter().map(|&scale| scale.into()).collect(),
        None => {
            at.numbers(if has_region { 2 } else { 1 })?.ok_or("it has neither scales nor sizes")?.floats()
        }
    };
    if scales.len() != chosen.len() {
        return Err(format!("it has {} scales for {} dimensions", scales.len(), chosen.len()).into());
    }
    for (&axis, scale) in chosen.iter().zip(scales) {
        result[axis] = (dims[axis] as f64 * scale).floor() as usize;
    }
    Ok(result)
}

fn blocks(at: &At<'_>) -> Result<Vec<usize>, Miss> {
    let block = usize::try_from(at.node.int("blocksize", 0)).unwrap_or(0);
    let wrong = |dims: &[usize]| Miss::Here(format!("{dims:?} has no blocks of {block}"));
    let dims = at.dims(0)?;
    let (&[n, c, h, w], area) = (dims, block.saturating_mul(block)) else { return Err(wrong(dims)) };
    match at.node.op == "DepthToSpace" {
        _ if block == 0 => Err(wrong(dims)),
        true if c % area == 0 => Ok(vec![n, c / area, h.saturating_mul(block), w.saturating_mul(block)]),
        false if h % block == 0 && w % block == 0 => {
            Ok(vec![n, c.saturating_mul(area), h / block, w / block])
        }
        _ => Err(wrong(dims)),
    }
}

fn reduced(dims: &[usize], asked: Option<Vec<i64>>, keeps: bool) -> Result<Vec<usize>, Miss> {
    let gone = match asked {
        Some(list) => list.iter().map(|&axis| axis_of(axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).collect(),
    };
    let length = |(d, &length): (usize, &usize)| match gone.contains(&d) {
        true => keeps.then_some(1),
        false => Some(length),
    };
    Ok(dims.iter().enumerate().filter_map(length).collect())
}

/// A constant that stands in the node itself.
fn literal(at: &At<'_>) -> Made {
    if let Some(value) = at.node.tensor("value") {
        return Ok(vec![value?]);
    }
    let ints = |list: Vec<i64>, dims| (Elem::I64, dims, Numbers::Ints(list));
    let floats = |list: Vec<f64>, dims| (Elem::F32, dims, Numbers::Floats(list));
    let (elem, dims, numbers) = if let Some(list) = at.node.ints("value_ints") {
        ints(list.to_vec(), vec![list.len()])
    } else if let Some(list) = at.node.floats("value_floats") {
        floats(list.iter().map(|&number| number.into()).collect(), vec![list.len()])
    } else if at.node.has("value_int") {
        ints(vec![at.node.int("value_int", 0)], vec![])
    } else if at.node.has("value_float") {
        floats(vec![at.node.float("value_float", 0.0)], vec![])
    } else {
        return Err("its value is no dense tensor of numbers".into());
    };
    Ok(vec![Known { elem, dims: Ok(dims), numbers: Some(numbers), is_constant: true }])
}

/// LSTM, GRU and RNN: all steps, then the last hidden state and, of an LSTM, the last cell's.
fn recurrent(at: &At<'_>) -> Made {
    let directions = if at.node.word("direction") == "bidirectional" { 2 } else { 1 };
    let hidden = match usize::try_from(at.node.int("hidden_size", 0)) {
        Ok(hidden) if hidden > 0 => hidden,
        _ => *at.dims(2)?.last().ok_or("its weights have no lengths")?,
    };
    let &[first, second, _] = at.dims(0)? else { return Err("its input has not three dimensions".into()) };
    let (all, last) = match at.node.int("layout", 0) {
        0 => (vec![first, directions, second, hidden], vec![directions, second, hidden]),
        _ => (vec![first, second, directions, hidden], vec![first, directions, hidden]),
    };
    let known = |dims| Known::new(at.elem(0), dims);
    Ok(vec![known(all), known(last.clone()), known(last)])
}
