//! Calls behind each other, as a text has them.

/// One call. Tensors are numbers: of those from outside, then of results of the calls before.
pub(crate) struct Step {
    /// Image, weight and operands; of other operators an image, and what it is multiplied by.
    pub(crate) tensors: Vec<usize>,
    pub(crate) operators: String,
    pub(crate) kind: Kind,
}

/// What a step calls.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// The operator, and whether weight and operands are constants.
    Chain { constant: bool },
    /// An operator of PyTorch's that computes the mean over the pixels.
    Mean,
    /// Its product with numbers of each image and channel.
    Product,
    /// A result of the run, which nothing else reads, with other lengths and strides where it lies.
    View,
}

impl Kind {
    fn of(word: &str, tensors: usize) -> Option<Self> {
        let (kind, accepted) = match word {
            "constant" => (Kind::Chain { constant: true }, tensors >= 2),
            "variable" => (Kind::Chain { constant: false }, tensors >= 2),
            "mean" => (Kind::Mean, tensors == 1),
            "product" => (Kind::Product, tensors == 2),
            "view" => (Kind::View, tensors == 1),
            _ => return None,
        };
        accepted.then_some(kind)
    }
}

/// The numbers of the results, and the steps, of a text.
///
/// A call a line: `constant 0 1 2: conv … -> bias` has tensors 0, 1 and 2, the weight and biases of which are constants, as
/// they are not behind `variable`. `mean 3: adaptive_avg_pool2d` and `product 3 4: mul` are PyTorch's operators by their names,
/// `view 5: 1,1000` is the result of a call in front of it with other lengths, by which alone it is read. The first is a chain. In
/// front of the calls is a line with the numbers of the results.
pub(crate) fn parsed(text: &str, given: usize) -> Option<(Vec<usize>, Vec<Step>)> {
    let numbers = |words: &str, end: usize| {
        let number = |word: &str| word.parse().ok().filter(|&number| number < end);
        words.split(' ').map(number).collect::<Option<Vec<usize>>>()
    };
    let (results, lines) = text.split_once('\n')?;
    let steps = lines.lines().enumerate().map(|(index, line)| {
        let (words, operators) = line.split_once(": ")?;
        let (kind, tensors) = words.split_once(' ')?;
        let tensors = numbers(tensors, given + index)?;
        let kind = Kind::of(kind, tensors.len())?;
        if kind == Kind::View && (tensors[0] < given || lengths(operators).is_none()) {
            return None;
        }
        Some(Step { tensors, operators: operators.to_owned(), kind })
    });
    let steps = steps.collect::<Option<Vec<_>>>()?;
    let results = numbers(results, given + steps.len())?;
    let is_own = |(at, number): (usize, &usize)| *number >= given && !results[..at].contains(number);
    // By the first call's plan the memory of the others' results is made.
    let begins = steps.first().is_some_and(|step| matches!(step.kind, Kind::Chain { .. }));
    let reads =
        |number: usize| steps.iter().flat_map(|step| &step.tensors).filter(move |&&of| of == number).count();
    let sees_alone = |step: &Step| {
        step.kind != Kind::View || (reads(step.tensors[0]) == 1 && !results.contains(&step.tensors[0]))
    };
    let is_program = begins && results.iter().enumerate().all(is_own) && steps.iter().all(sees_alone);
    is_program.then_some((results, steps))
}

/// The lengths of a view, from their text.
pub(crate) fn lengths(text: &str) -> Option<Vec<i64>> {
    text.split(',').map(|word| word.parse().ok()).collect()
}
