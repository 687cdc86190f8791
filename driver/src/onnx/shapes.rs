//! Lengths of every value of a graph, from those of its inputs: operator by operator, in order. What one operator does is
//! in [`rules`].

use super::graph::{Graph, Node};
use super::rules;
use super::tensor::{Elem, Known, Numbers, Unknown};

/// What is known of each value, by its number.
#[derive(Debug)]
pub(crate) struct Shapes(pub(crate) Vec<Known>);

impl Shapes {
    /// Carries the lengths of the inputs, which are in the order of the graph's, through the graph. Where an operator's
    /// result cannot be told, what the file notes of it counts, if `notes_hold`.
    pub(crate) fn infer(graph: &Graph, inputs: Vec<Known>, notes_hold: bool) -> Self {
        let missing = |name: &str| Unknown { node: name.into(), why: "nothing makes it".into() };
        let nothing =
            |name| Known { elem: Elem::NONE, dims: Err(missing(name)), numbers: None, is_constant: false };
        let mut known: Vec<Known> = graph
            .values
            .iter()
            .map(|value| value.initializer.clone().unwrap_or_else(|| nothing(&value.name)))
            .collect();
        for (input, given) in graph.inputs.iter().zip(inputs) {
            known[input.value] = given;
        }
        for node in &graph.nodes {
            let made = rules::apply(&At { node, known: &known });
            let (made, error) = match made {
                Ok(made) => (made, None),
                Err(Miss::Behind(unknown)) => (Vec::new(), Some(unknown)),
                Err(Miss::Here(why)) => (Vec::new(), Some(Unknown { node: node.label.clone(), why })),
            };
            let mut made = made.into_iter();
            let is_constant = is_constant(node, &known);
            for output in &node.outputs {
                let of_rule = made.next();
                let Some(value) = *output else { continue };
                let mut result = of_rule.unwrap_or_else(|| {
                    let why = || "its further results are not known here".to_string();
                    let unknown =
                        error.clone().unwrap_or_else(|| Unknown { node: node.label.clone(), why: why() });
                    Known { elem: Elem::NONE, dims: Err(unknown), numbers: None, is_constant: false }
                });
                if let (Err(_), true, Some((elem, dims))) =
                    (&result.dims, notes_hold, &graph.values[value].noted)
                {
                    result = Known::new(*elem, dims.clone());
                }
                result.is_constant |= is_constant;
                known[value] = result;
            }
        }
        Shapes(known)
    }

    /// The lengths of a value, where they are known.
    pub(crate) fn dims(&self, value: usize) -> Option<&[usize]> {
        self.0[value].dims.as_deref().ok()
    }
}

/// Whether a node gives the same at every execution: all that it reads does, and it draws no numbers.
fn is_constant(node: &Node, known: &[Known]) -> bool {
    let draws = ["Random", "Multinomial", "Bernoulli"].iter().any(|start| node.op.starts_with(start));
    !draws && !node.has_graphs() && node.inputs.iter().flatten().all(|&input| known[input].is_constant)
}

/// Why a rule has no result.
#[derive(Debug)]
pub(crate) enum Miss {
    /// The operator needs what was lost before it.
    Behind(Unknown),
    /// The operator itself.
    Here(String),
}

impl From<String> for Miss {
    fn from(why: String) -> Self {
        Miss::Here(why)
    }
}

impl From<&str> for Miss {
    fn from(why: &str) -> Self {
        Miss::Here(why.into())
    }
}

/// A node among what is known of the values before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) node: &'a Node,
    pub(crate) known: &'a [Known],
}

impl<'a> At<'a> {
    /// What is known of an input.
    pub(crate) fn known(&self, index: usize) -> Result<&'a Known, Miss> {
        self.optional(index).ok_or_else(|| Miss::Here(format!("it has no input {index}")))
    }

    /// What is known of an input that may be left out.
    pub(crate) fn optional(&self, index: usize) -> Option<&'a Known> {
        self.node.input(index).map(|value| &self.known[value])
    }

    /// The lengths of an input.
    pub(crate) fn dims(&self, index: usize) -> Result<&'a [usize], Miss> {
        self.known(index)?.dims.as_deref().map_err(|unknown| Miss::Behind(unknown.clone()))
    }

    /// The type of an input's elements.
    pub(crate) fn elem(&self, index: usize) -> Elem {
        self.optional(index).map_or(Elem::NONE, |known| known.elem)
    }

    /// The contents of an input; none where it is left out.
    pub(crate) fn numbers(&self, index: usize) -> Result<Option<&'a Numbers>, Miss> {
        let Some(known) = self.optional(index) else { return Ok(None) };
        if let (None, Err(unknown)) = (&known.numbers, &known.dims) {
            return Err(Miss::Behind(unknown.clone()));
        }
        let numbers = known.numbers.as_ref();
        numbers.map(Some).ok_or_else(|| Miss::Here(format!("its input {index} is not known before it runs")))
    }

    /// A list that older versions of an operator have as an attribute and newer ones as an input.
    pub(crate) fn list(&self, attribute: &str, index: usize) -> Result<Option<Vec<i64>>, Miss> {
        if let Some(list) = self.node.ints(attribute) {
            return Ok(Some(list.to_vec()));
        }
        let list = self.numbers(index)?.map(|numbers| numbers.ints().map(<[i64]>::to_vec));
        list.map(|list| list.ok_or_else(|| Miss::Here(format!("its {attribute} are no integers"))))
            .transpose()
    }
}
