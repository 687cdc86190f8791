//! What is known of a tensor of a network before it runs: type, lengths, and the contents of small constants.

use std::fmt;

use fuseplan::DataType;

/// The type of a tensor's elements, by ONNX's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elem(pub(crate) i32);

impl Elem {
    /// Not a tensor, or one of unknown type.
    pub(crate) const NONE: Elem = Elem(0);
    pub(crate) const F32: Elem = Elem(1);
    pub(crate) const U8: Elem = Elem(2);
    pub(crate) const I32: Elem = Elem(6);
    pub(crate) const I64: Elem = Elem(7);
    pub(crate) const BOOL: Elem = Elem(9);
    pub(crate) const F16: Elem = Elem(10);
    pub(crate) const F64: Elem = Elem(11);
    pub(crate) const BF16: Elem = Elem(16);

    /// The library's name of it, where plans could have tensors of it.
    pub(crate) fn data_type(self) -> Option<DataType> {
        Some(match self {
            Elem::F32 => DataType::Float,
            Elem::F16 => DataType::Half,
            Elem::BF16 => DataType::BFloat16,
            Elem::F64 => DataType::Double,
            Elem(3) => DataType::Int8,
            _ => return None,
        })
    }

    /// Whether numbers of it have no fractions.
    pub(crate) fn is_integer(self) -> bool {
        matches!(self.0, 2..=7 | 9 | 12 | 13)
    }
}

/// Small contents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Numbers {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

impl Numbers {
    pub(crate) fn len(&self) -> usize {
        match self {
            Numbers::Ints(list) => list.len(),
            Numbers::Floats(list) => list.len(),
        }
    }

    /// The numbers without fractions, if they have none.
    pub(crate) fn ints(&self) -> Option<&[i64]> {
        match self {
            Numbers::Ints(list) => Some(list),
            Numbers::Floats(_) => None,
        }
    }

    /// All of them with fractions.
    pub(crate) fn floats(&self) -> Vec<f64> {
        match self {
            Numbers::Ints(list) => list.iter().map(|&number| number as f64).collect(),
            Numbers::Floats(list) => list.clone(),
        }
    }

    /// Those at these places.
    pub(crate) fn pick(&self, places: impl Iterator<Item = usize>) -> Option<Numbers> {
        Some(match self {
            Numbers::Ints(list) => {
                Numbers::Ints(places.map(|at| list.get(at).copied()).collect::<Option<_>>()?)
            }
            Numbers::Floats(list) => {
                Numbers::Floats(places.map(|at| list.get(at).copied()).collect::<Option<_>>()?)
            }
        })
    }
}

/// Why lengths are not known: the node at which they were lost, and what was missing there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) node: String,
    pub(crate) why: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.why)
    }
}

/// What is known of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) elem: Elem,
    pub(crate) dims: Result<Vec<usize>, Unknown>,
    /// Its contents, where these are few and do not change.
    pub(crate) numbers: Option<Numbers>,
    /// Whether it is the same at every execution.
    pub(crate) is_constant: bool,
}

impl Known {
    /// A tensor that is computed at each execution.
    pub(crate) fn new(elem: Elem, dims: Vec<usize>) -> Self {
        Known { elem, dims: Ok(dims), numbers: None, is_constant: false }
    }

    /// The one number that it is, whatever the number of its dimensions.
    pub(crate) fn scalar(&self) -> Option<f64> {
        match self.numbers.as_ref()?.floats().as_slice() {
            &[number] => Some(number),
            _ => None,
        }
    }
}

/// How many elements tensors of these lengths have, as a number with fractions, since it is one of work.
pub(crate) fn count(dims: &[usize]) -> f64 {
    dims.iter().map(|&length| length as f64).product()
}
