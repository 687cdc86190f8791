//! Windows that move over images: kernel, strides, dilations and padding of convolutions and pools, as ONNX writes them.

use super::graph::Node;
use super::shapes::Miss;

/// A window, a number for each spatial dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) taps: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) dilations: Vec<usize>,
    /// Padding before the first element; a negative one cuts elements off.
    pub(crate) before: Vec<i64>,
    /// Padding behind the last element.
    pub(crate) behind: Vec<i64>,
    /// Whether a last position counts that begins inside and reaches outside.
    rounds_up: bool,
}

/// The largest number that a window may have: sums of a few of them do not overflow.
const LARGEST: i64 = 1 << 31;

impl Window {
    /// The window of a convolution.
    pub(crate) fn of_convolution(node: &Node, input: &[usize], filters: &[usize]) -> Result<Self, Miss> {
        if input.len() < 3 || filters.len() != input.len() {
            return Err(format!("an input of {input:?} and filters of {filters:?}").into());
        }
        Self::new(node, &input[2..], filters[2..].to_vec())
    }

    /// The window of a pool.
    pub(crate) fn of_pool(node: &Node, input: &[usize]) -> Result<Self, Miss> {
        let taps = numbers(node.ints("kernel_shape").ok_or("it has no kernel_shape")?)?;
        if input.len() != taps.len() + 2 {
            return Err(format!("a window of {taps:?} on {input:?}").into());
        }
        Self::new(node, &input[2..], taps)
    }

    fn new(node: &Node, image: &[usize], taps: Vec<usize>) -> Result<Self, Miss> {
        let rank = image.len();
        let list = |name: &str, default: i64, count: usize| {
            let list = node.ints(name).map_or_else(|| vec![default; count], <[i64]>::to_vec);
            let is_fine = list.len() == count && list.iter().all(|n| n.unsigned_abs() < LARGEST as u64);
            if is_fine { Ok(list) } else { Err(Miss::Here(format!("its {name} are {list:?}"))) }
        };
        let strides = numbers(&list("strides", 1, rank)?)?;
        let dilations = numbers(&list("dilations", 1, rank)?)?;
        let too_large = |list: &[usize]| list.iter().any(|&n| n as i64 >= LARGEST || n == 0);
        if too_large(&strides) || too_large(&dilations) || too_large(&taps) || too_large(image) {
            return Err(format!(
                "a window of {taps:?}, strides {strides:?} and dilations {dilations:?} on {image:?}"
            )
            .into());
        }
        let pads = list("pads", 0, 2 * rank)?;
        let (mut before, mut behind) = (pads[..rank].to_vec(), pads[rank..].to_vec());
        let auto = node.word("auto_pad");
        match auto {
            "" | "NOTSET" => {}
            "VALID" => (before, behind) = (vec![0; rank], vec![0; rank]),
            "SAME_UPPER" | "SAME_LOWER" => {
                for d in 0..rank {
                    let reach = (taps[d] - 1) * dilations[d] + 1;
                    let steps = image[d].div_ceil(strides[d]) - 1;
                    let all = (steps * strides[d] + reach).saturating_sub(image[d]) as i64;
                    let (less, more) = (all / 2, all - all / 2);
                    (before[d], behind[d]) = if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
                }
            }
            other => return Err(format!("its auto_pad is {other}").into()),
        }
        let rounds_up = node.int("ceil_mode", 0) != 0;
        Ok(Window { taps, strides, dilations, before, behind, rounds_up })
    }
}

fn numbers(list: &[i64]) -> Result<Vec<usize>, Miss> {
    let numbers = list.iter().map(|&number| usize::try_from(number)).collect::<Result<_, _>>();
    numbers.map_err(|_| format!("a negative number among {list:?}").into())
}

/// The lengths of what a window gives on an input: a value for each position.
pub(crate) fn output(input: &[usize], window: &Window) -> Result<Vec<usize>, Miss> {
    let mut dims = input.to_vec();
    for d in 0..window.taps.len() {
        let reach = (window.taps[d] as i64 - 1) * window.dilations[d] as i64 + 1;
        let room = input[2 + d] as i64 + window.before[d] + window.behind[d] - reach;
        if room < 0 {
            return Err(format!("its window is larger than the image: {window:?} on {input:?}").into());
        }
        let stride = window.strides[d] as i64;
        let mut positions = room / stride + 1;
        if window.rounds_up
            && room % stride != 0
            && positions * stride < input[2 + d] as i64 + window.before[d]
        {
            positions += 1;
        }
        dims[2 + d] = positions as usize;
    }
    Ok(dims)
}

/// The lengths of what a transposed convolution gives.
pub(crate) fn transposed(node: &Node, input: &[usize], filters: &[usize]) -> Result<Vec<usize>, Miss> {
    let window = Window::of_convolution(node, input, filters)?;
    let rank = window.taps.len();
    let groups = usize::try_from(node.int("group", 1)).unwrap_or(0);
    let channels = filters[1].saturating_mul(groups);
    let given = match node.ints("output_shape") {
        Some(shape) if shape.len() >= rank => Some(numbers(&shape[shape.len() - rank..])?),
        Some(shape) => return Err(format!("its output_shape is {shape:?}").into()),
        None => None,
    };
    let extra = node.ints("output_padding").map_or_else(|| vec![0; rank], <[i64]>::to_vec);
    if extra.len() != rank || extra.iter().any(|n| n.unsigned_abs() >= LARGEST as u64) {
        return Err(format!("its output_padding is {extra:?}").into());
    }
    let same = node.word("auto_pad").starts_with("SAME");
    let mut dims = vec![input[0], channels];
    for d in 0..rank {
        let (length, stride) = (input[2 + d], window.strides[d]);
        dims.push(match &given {
            Some(given) => given[d],
            None if same => length.saturating_mul(stride),
            None => {
                let reach = (window.taps[d] as i64 - 1) * window.dilations[d] as i64 + 1;
                let spread =
                    ((length as i64 - 1).checked_mul(stride as i64)).ok_or("its output is too large")?;
                let extent = spread + extra[d] + reach - window.before[d] - window.behind[d];
                usize::try_from(extent).map_err(|_| Miss::from("its output has no extent"))?
            }
        });
    }
    Ok(dims)
}
