//! Contents of small tensors that do not depend on the network's data: what exporters compute shapes with.

use super::rules::axis_of;
use super::shapes::{At, Miss};
use super::tensor::{Elem, Known, Numbers};

/// The most elements that are computed.
const MOST: usize = 1024;

/// The contents of a node's first result, which has these lengths, where they are known.
pub(crate) fn of(at: &At<'_>, dims: &[usize]) -> Option<Numbers> {
    let count = dims.iter().try_fold(1usize, |count, &length| count.checked_mul(length))?;
    if count > MOST {
        return None;
    }
    let numbers = |index: usize| at.optional(index)?.numbers.as_ref();
    match at.node.op.as_str() {
        "Shape" => {
            let of = at.dims(0).ok()?;
            let (from, to) = span(at.node.int("start", 0), at.node.int("end", of.len() as i64), of.len());
            Some(Numbers::Ints(of.get(from..to)?.iter().map(|&length| length as i64).collect()))
        }
        "Size" => {
            let of = at.dims(0).ok()?;
            let size =
                of.iter().try_fold(1i64, |size, &length| size.checked_mul(i64::try_from(length).ok()?));
            Some(Numbers::Ints(vec![size?]))
        }
        "ConstantOfShape" => match at.node.tensor("value").transpose().ok()? {
            None => Some(Numbers::Floats(vec![0.0; count])),
            Some(value) => value.numbers?.pick((0..count).map(|_| 0)),
        },
        "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => numbers(0).cloned(),
        "Cast" => {
            let wanted = Elem(at.node.int("to", 0) as i32);
            Some(match (numbers(0)?, wanted.is_integer()) {
                // A cast cuts off, and Rust's does.
                (Numbers::Floats(list), true) => {
                    Numbers::Ints(list.iter().map(|&number| number as i64).collect())
                }
                (list, true) => list.clone(),
                (list, false) => Numbers::Floats(list.floats()),
            })
        }
        "Concat" if dims.len() == 1 => {
            let parts: Vec<_> = (0..at.node.inputs.len()).map(numbers).collect::<Option<_>>()?;
            match parts.iter().map(|part| part.ints()).collect::<Option<Vec<_>>>() {
                Some(ints) => Some(Numbers::Ints(ints.concat())),
                None => Some(Numbers::Floats(parts.iter().flat_map(|part| part.floats()).collect())),
            }
        }
        "Slice" => {
            let of = at.dims(0).ok()?;
            let places = sliced(at).ok()?;
            match (of, places.as_slice()) {
                ([_], [places]) => numbers(0)?.pick(places.iter().copied()),
                _ => None,
            }
        }
        "Gather" => {
            let (of, indices) = (at.dims(0).ok()?, numbers(1)?.ints()?);
            let places: Option<Vec<_>> =
                indices.iter().map(|&index| axis_of(index, *of.first()?).ok()).collect();
            (of.len() == 1).then(|| numbers(0)?.pick(places?.into_iter())).flatten()
        }
        "Range" => {
            let (start, step) = (at.optional(0)?.scalar()?, at.optional(2)?.scalar()?);
            let steps = (0..count).map(|index| start + step * index as f64);
            Some(match at.elem(0).is_integer() {
                true => Numbers::Ints(steps.map(|number| number as i64).collect()),
                false => Numbers::Floats(steps.collect()),
            })
        }
        "ReduceProd" if at.optional(0)?.numbers.as_ref()?.len() <= MOST && count == 1 => {
            let list = numbers(0)?.ints()?;
            Some(Numbers::Ints(vec![list.iter().try_fold(1i64, |product, &n| product.checked_mul(n))?]))
        }
        "Floor" | "Ceil" | "Round" | "Sqrt" | "Neg" | "Reciprocal" => unary(&at.node.op, numbers(0)?),
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Mod" | "Pow" if at.node.inputs.len() == 2 => {
            binary(&at.node.op, at.optional(0)?, at.optional(1)?, count)
        }
        _ => None,
    }
}

fn unary(op: &str, of: &Numbers) -> Option<Numbers> {
    match of {
        Numbers::Ints(list) if op == "Neg" => {
            Some(Numbers::Ints(list.iter().map(|number| number.checked_neg()).collect::<Option<_>>()?))
        }
        Numbers::Ints(_) => None,
        Numbers::Floats(list) => {
            let function: fn(f64) -> f64 = match op {
                "Floor" => f64::floor,
                "Ceil" => f64::ceil,
                "Round" => f64::round_ties_even,
                "Sqrt" => f64::sqrt,
                "Reciprocal" => f64::recip,
                _ => |number| -number,
            };
            Some(Numbers::Floats(list.iter().copied().map(function).collect()))
        }
    }
}

/// A function of two lists, of which one may be a single number for all of the other.
fn binary(op: &str, a: &Known, b: &Known, count: usize) -> Option<Numbers> {
    let (a, b) = (a.numbers.as_ref()?, b.numbers.as_ref()?);
    if ![a, b].iter().all(|list| list.len() == count || list.len() == 1) {
        return None;
    }
    fn pairs<T: Copy>(a: &[T], b: &[T], count: usize) -> impl Iterator<Item = (T, T)> {
        let at = |list: &[T], index: usize| list[if list.len() == 1 { 0 } else { index }];
        (0..count).map(move |index| (at(a, index), at(b, index)))
    }
    if let (Some(a), Some(b)) = (a.ints(), b.ints()) {
        let numbers = pairs(a, b, count).map(|(a, b)| match op {
            "Add" => a.checked_add(b),
            "Sub" => a.checked_sub(b),
            "Mul" => a.checked_mul(b),
            "Div" => a.checked_div(b),
            "Mod" => a.checked_rem_euclid(b),
            "Max" => Some(a.max(b)),
            "Min" => Some(a.min(b)),
            _ => None,
        });
        return Some(Numbers::Ints(numbers.collect::<Option<_>>()?));
    }
    let (a, b) = (a.floats(), b.floats());
    let numbers = pairs(&a, &b, count).map(|(a, b)| match op {
        "Add" => Some(a + b),
        "Sub" => Some(a - b),
        "Mul" => Some(a * b),
        "Div" => Some(a / b),
        "Pow" => Some(a.powf(b)),
        "Max" => Some(a.max(b)),
        "Min" => Some(a.min(b)),
        _ => None,
    });
    Some(Numbers::Floats(numbers.collect::<Option<_>>()?))
}

/// The part of a dimension that two ends name, counted from the end where they are negative.
pub(crate) fn span(from: i64, to: i64, length: usize) -> (usize, usize) {
    let end = |end: i64| {
        let from_start = if end < 0 { end.saturating_add(length as i64) } else { end };
        usize::try_from(from_start).unwrap_or(0).min(length)
    };
    (end(from), end(to))
}

/// The longest dimension that is sliced.
const LONGEST: usize = 1 << 24;

/// The places that a slice takes of each dimension of its input.
pub(crate) fn sliced(at: &At<'_>) -> Result<Vec<Vec<usize>>, Miss> {
    let dims = at.dims(0)?;
    if dims.iter().any(|&length| length > LONGEST) {
        return Err(format!("a slice of {dims:?}").into());
    }
    let starts = at.list("starts", 1)?.ok_or("it has no starts")?;
    let ends = at.list("ends", 2)?.ok_or("it has no ends")?;
    let axes = at.list("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = at.list("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [&ends, &axes, &steps].iter().any(|list| list.len() != starts.len()) {
        return Err("its starts, ends, axes and steps are not equally many".into());
    }
    let mut places: Vec<Vec<usize>> = dims.iter().map(|&length| (0..length).collect()).collect();
    for (((start, end), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let axis = axis_of(axis, dims.len())?;
        let length = dims[axis] as i64;
        let from_start = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let (start, end) = (from_start(start), from_start(end));
        let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
        places[axis] = match step {
            0 => return Err("its step is 0".into()),
            1.. => {
                (start.clamp(0, length)..end.clamp(0, length)).step_by(stride).map(|at| at as usize).collect()
            }
            // From the start down to above the end, which is -1 where all are taken.
            _ => {
                let (from, above) = (start.clamp(-1, length - 1), end.clamp(-1, length - 1));
                (above + 1..=from).rev().step_by(stride).map(|at| at as usize).collect()
            }
        };
    }
    Ok(places)
}
