//! From text to a plan. Words are read from left to right, and operators are appended as they come, so that the rules of
//! plans are those of [`FusionPlan::append`].

use fuseplan_api::{
    Activation, ActivationMode, ActivationParams, BatchNormMode, ConvolutionDescriptor, DataType, MAX_RANK,
    MathMode, TensorDescriptor, TensorLayout,
};

use super::{PlanText, PlanTextError, activation, parameters};
use crate::operator::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BiasForward, ConvForward, Operator, PReluForward,
};
use crate::plan::FusionPlan;

/// What an activation's word ends in where its gradient is meant.
const BACKWARD: &str = "-backward";

/// A text and the place up to which it has been read.
struct Parser<'t> {
    text: &'t str,
    at: usize,
}

/// A word and where it begins.
#[derive(Clone, Copy)]
struct Word<'t> {
    text: &'t str,
    at: usize,
}

impl Word<'_> {
    fn is(self, name: &str) -> bool {
        self.text.eq_ignore_ascii_case(name)
    }
}

pub(super) fn parse(text: &str) -> Result<PlanText, PlanTextError> {
    let mut parser = Parser { text, at: 0 };
    let first = parser.peek();
    let input = parser.tensor()?;
    let mut plan = FusionPlan::new(input).map_err(|error| parser.wrong(first, error, ""))?;
    if parser.takes("math") {
        let word = parser.next();
        plan.set_math_mode(match word.text {
            "strict" => MathMode::Strict,
            "tf32" => MathMode::AllowTf32,
            _ => return Err(parser.wrong(word, "no mode of products has this name", "strict, tf32")),
        });
    }
    let mut activations = Vec::new();
    loop {
        let word = parser.next();
        match word.text {
            "->" => activations.push(parser.operator(&mut plan)?),
            "" => return Ok(PlanText { plan, activations }),
            _ => return Err(parser.wrong(word, "this is not expected here", parser.expected(&plan))),
        }
    }
}

pub(super) fn parse_plan(text: &str) -> Result<FusionPlan, PlanTextError> {
    let PlanText { plan, activations } = parse(text)?;
    let Some(index) = activations.iter().position(Option::is_some) else { return Ok(plan) };
    // The words of the operator: behind as many arrows as there are operators before it, and its own.
    let mut parser = Parser { text, at: 0 };
    let mut arrows = 0;
    while arrows <= index {
        arrows += usize::from(parser.next().text == "->");
    }
    parser.next();
    let word = parser.peek();
    Err(parser.wrong(word, "a plan has no parameters of activations, which are arguments", "`->` or the end"))
}

impl<'t> Parser<'t> {
    /// The next word, empty at the end. An arrow is a word with or without spaces.
    fn peek(&self) -> Word<'t> {
        let rest = self.text[self.at..].trim_start();
        let at = self.text.len() - rest.len();
        let end = match rest.find("->") {
            Some(0) => 2,
            arrow => rest.find(char::is_whitespace).into_iter().chain(arrow).min().unwrap_or(rest.len()),
        };
        Word { text: &rest[..end], at }
    }

    /// Reads the next word.
    fn next(&mut self) -> Word<'t> {
        let word = self.peek();
        self.at = word.at + word.text.len();
        word
    }

    /// Reads the next word if it is this one.
    fn takes(&mut self, name: &str) -> bool {
        let is_it = self.peek().is(name);
        if is_it {
            self.next();
        }
        is_it
    }

    /// Reads the next word if it means something.
    fn takes_any<T>(&mut self, meaning: impl Fn(Word<'t>) -> Option<T>) -> Option<T> {
        let found = meaning(self.peek());
        if found.is_some() {
            self.next();
        }
        found
    }

    fn wrong(&self, word: Word<'_>, reason: impl ToString, accepted: impl Into<String>) -> PlanTextError {
        PlanTextError {
            text: self.text.into(),
            at: word.at,
            reason: reason.to_string(),
            accepted: accepted.into(),
        }
    }

    /// What may stand where an operator, or the input, is over.
    fn expected(&self, plan: &FusionPlan) -> String {
        if !plan.ops().is_empty() {
            return "`->`, the end, or a property of the operator before it".into();
        }
        let layouts = TensorLayout::all_of_rank(plan.input().rank()).iter().map(ToString::to_string);
        format!("`->`, {}, strides, math", layouts.collect::<Vec<_>>().join(", "))
    }

    fn tensor(&mut self) -> Result<TensorDescriptor, PlanTextError> {
        let word = self.next();
        let Some(data_type) = data_type(word) else {
            return Err(self.wrong(word, "no data type has this name", names(&DataType::ALL)));
        };
        let word = self.next();
        let lens = self.numbers(word)?;
        match self.order()? {
            Some(order) => self.described(data_type, &lens, &order),
            None => TensorDescriptor::packed(data_type, &lens).map_err(|error| self.wrong(word, error, "")),
        }
    }

    /// The order in memory that is written next, if one is.
    fn order(&mut self) -> Result<Option<Order<'t>>, PlanTextError> {
        let word = self.peek();
        let strides = if let Some(layout) = self.takes_any(layout) {
            Strides::Layout(layout)
        } else if self.takes("strides") {
            let word = self.next();
            Strides::Given(self.numbers(word)?)
        } else {
            return Ok(None);
        };
        Ok(Some(Order { word, strides }))
    }

    fn described(
        &self,
        data_type: DataType,
        lens: &[usize],
        order: &Order<'_>,
    ) -> Result<TensorDescriptor, PlanTextError> {
        let made = match &order.strides {
            Strides::Layout(layout) => TensorDescriptor::with_layout(data_type, *layout, lens),
            Strides::Given(strides) => TensorDescriptor::new(data_type, lens, strides),
        };
        made.map_err(|error| self.wrong(order.word, error, orders(lens.len())))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, PlanTextError> {
        let word = self.next();
        word.text.parse().map_err(|_| self.wrong(word, "this is no number", "a number"))
    }

    /// The numbers of a word with an `x` between them.
    fn numbers(&self, word: Word<'_>) -> Result<Vec<usize>, PlanTextError> {
        let numbers = word.text.split(['x', 'X']).map(str::parse);
        let wrong = || self.wrong(word, "these are no numbers", "numbers with x between them, such as 3x3");
        numbers.collect::<Result<_, _>>().map_err(|_| wrong())
    }

    /// A number for each of so many dimensions; a single one is for all.
    fn list(&mut self, dims: usize) -> Result<(Word<'t>, Vec<usize>), PlanTextError> {
        let word = self.next();
        let numbers = self.numbers(word)?;
        self.spread(word, numbers, dims).map(|list| (word, list))
    }

    fn spread<T: Copy>(&self, word: Word<'_>, list: Vec<T>, dims: usize) -> Result<Vec<T>, PlanTextError> {
        match list.len() {
            1 => Ok(vec![list[0]; dims]),
            count if count == dims => Ok(list),
            count => {
                let reason = format!("there are {count} numbers, and {dims} spatial dimensions");
                Err(self.wrong(word, reason, format!("1 number or {dims}, with x between them")))
            }
        }
    }

    /// Padding before and after each dimension.
    fn pads(&mut self, dims: usize) -> Result<(Word<'t>, [Vec<usize>; 2]), PlanTextError> {
        let word = self.next();
        let pad = |text: &str| {
            let (before, after) = text.split_once(':').unwrap_or((text, text));
            Some((before.parse().ok()?, after.parse().ok()?))
        };
        let pads: Option<Vec<(usize, usize)>> = word.text.split(['x', 'X']).map(pad).collect();
        let Some(pads) = pads else {
            let accepted =
                "numbers with x between them, each for both sides or as before:after, such as 1x0:1";
            return Err(self.wrong(word, "this is no padding", accepted));
        };
        let (before, after) = self.spread(word, pads, dims)?.into_iter().unzip();
        Ok((word, [before, after]))
    }

    /// Reads an operator and appends it; an activation with the parameters that are written behind it.
    fn operator(&mut self, plan: &mut FusionPlan) -> Result<Option<Activation>, PlanTextError> {
        let word = self.next();
        let name = word.text.to_ascii_lowercase();
        let mode = |name: &str| ActivationMode::ALL.into_iter().find(|&mode| activation(mode) == name);
        if let Some(mode) = mode(&name) {
            let activation = self.parameters(mode)?;
            return self.append(word, plan, ActivationForward::new(mode)).map(|()| activation);
        }
        if let Some(mode) = name.strip_suffix(BACKWARD).and_then(mode) {
            let activation = self.parameters(mode)?;
            return self.append(word, plan, ActivationBackward::new(mode)).map(|()| activation);
        }
        match name.as_str() {
            "conv" => {
                let conv = self.convolution(plan.output())?;
                self.append(word, plan, conv)?;
            }
            "bias" => {
                let bias = self.bias(plan.output())?;
                self.append(word, plan, bias)?;
            }
            "prelu" => {
                let prelu = self.prelu(plan.output())?;
                self.append(word, plan, prelu)?;
            }
            "residual" => {
                let residual = self.residual(plan.output())?;
                self.append(word, plan, residual)?;
            }
            "batch-norm" => {
                let norm = self.batch_norm(plan.output())?;
                self.append(word, plan, norm)?;
            }
            "batch-norm-forward" => {
                let mode = self.norm_mode();
                let running = self.takes("running");
                self.append(word, plan, BatchNormForward::new(mode, running))?;
            }
            "batch-norm-backward" => {
                let mode = self.norm_mode();
                self.append(word, plan, BatchNormBackward::new(mode))?;
            }
            _ => return Err(self.wrong(word, "no operator has this name", operators())),
        }
        Ok(None)
    }

    fn append<O: Operator>(
        &self,
        word: Word<'_>,
        plan: &mut FusionPlan,
        operator: O,
    ) -> Result<(), PlanTextError> {
        let appended = plan.append(operator);
        appended.map(drop).map_err(|error| self.wrong(word, error.reason, error.accepted))
    }

    fn convolution(&mut self, running: &TensorDescriptor) -> Result<ConvForward, PlanTextError> {
        let dims = running.spatial().len();
        let word = self.next();
        let filters: usize =
            word.text.parse().map_err(|_| self.wrong(word, "this is no number of filters", "a number"))?;
        let (taps_word, taps) = self.list(dims)?;
        let conv = ConvolutionDescriptor::of_dims(dims);
        let mut conv = conv.map_err(|error| self.wrong(taps_word, error, ""))?;
        let (mut weights, mut output) = (None, None);
        loop {
            let before = self.at;
            let option = self.next();
            let (word, changed) = match option.text.to_ascii_lowercase().as_str() {
                "pad" => {
                    let (word, [before, after]) = self.pads(dims)?;
                    (word, conv.with_asymmetric_pads(before, after))
                }
                "stride" => {
                    let (word, list) = self.list(dims)?;
                    (word, conv.with_strides(list))
                }
                "dilation" => {
                    let (word, list) = self.list(dims)?;
                    (word, conv.with_dilations(list))
                }
                "output-pad" => {
                    let (word, list) = self.list(dims)?;
                    (word, conv.with_output_padding(&list))
                }
                "groups" => (self.peek(), conv.with_groups(self.number()?)),
                "weights" => {
                    let word = self.peek();
                    let Some(order) = self.order()? else {
                        return Err(self.wrong(
                            word,
                            "weights have no such property",
                            orders(running.rank()),
                        ));
                    };
                    weights = Some(order);
                    continue;
                }
                "output" => {
                    let word = self.peek();
                    output = self.order()?;
                    if output.is_none() {
                        let accepted = orders(running.rank());
                        return Err(self.wrong(word, "an output has no such property", accepted));
                    }
                    continue;
                }
                _ => {
                    self.at = before;
                    break;
                }
            };
            conv = changed.map_err(|error| self.wrong(word, error, ""))?;
        }
        // At least 1, so that the plan can say which number of groups does not fit.
        let per_group = (running.lens()[1] / conv.groups()).max(1);
        let lens = [&[filters, per_group], &taps[..]].concat();
        let weights = match weights {
            Some(order) => self.described(running.data_type(), &lens, &order)?,
            None => running.filters_like(&lens).map_err(|error| self.wrong(word, error, ""))?,
        };
        let conv = ConvForward::new(conv, weights);
        Ok(match output.map(|order| order.strides) {
            Some(Strides::Layout(layout)) => conv.with_output_layout(layout),
            Some(Strides::Given(strides)) => conv.with_output_strides(&strides),
            None => conv,
        })
    }

    fn bias(&mut self, running: &TensorDescriptor) -> Result<BiasForward, PlanTextError> {
        Ok(self
            .per_channel(running, running.lens()[1])?
            .map_or_else(BiasForward::new, BiasForward::with_descriptor))
    }

    fn prelu(&mut self, running: &TensorDescriptor) -> Result<PReluForward, PlanTextError> {
        let channels = if self.takes("one") { 1 } else { running.lens()[1] };
        let slope = self.per_channel(running, channels)?;
        Ok(slope.map_or_else(PReluForward::new, PReluForward::with_descriptor))
    }

    /// What is written of a list with one value for each of so many channels; `None` if all of it is as usual.
    fn per_channel(
        &mut self,
        running: &TensorDescriptor,
        channels: usize,
    ) -> Result<Option<TensorDescriptor>, PlanTextError> {
        let word = self.peek();
        let data_type = self.takes_any(data_type);
        let order = self.order()?;
        if data_type.is_none() && order.is_none() && channels == running.lens()[1] {
            return Ok(None);
        }
        let mut lens = [1; MAX_RANK];
        lens[1] = channels;
        let (data_type, lens) = (data_type.unwrap_or(running.data_type()), &lens[..running.rank()]);
        let list = match order {
            Some(order) => self.described(data_type, lens, &order)?,
            None => TensorDescriptor::packed(data_type, lens).map_err(|error| self.wrong(word, error, ""))?,
        };
        Ok(Some(list))
    }

    fn residual(&mut self, running: &TensorDescriptor) -> Result<BiasForward, PlanTextError> {
        let Some(order) = self.order()? else { return Ok(BiasForward::residual()) };
        let residual = self.described(running.data_type(), running.lens(), &order)?;
        Ok(BiasForward::with_descriptor(residual))
    }

    fn batch_norm(&mut self, running: &TensorDescriptor) -> Result<BatchNormInference, PlanTextError> {
        let mode = self.norm_mode();
        let word = self.peek();
        let Some(data_type) = self.takes_any(data_type) else { return Ok(BatchNormInference::new(mode)) };
        let params = mode.derive(running).and_then(|params| params.with_data_type(data_type));
        let params = params.map_err(|error| self.wrong(word, error, ""))?;
        Ok(BatchNormInference::with_descriptor(mode, params))
    }

    fn norm_mode(&mut self) -> BatchNormMode {
        self.takes_any(|word| named(word, &BatchNormMode::ALL)).unwrap_or(BatchNormMode::Spatial)
    }

    /// The activation with the parameters that are written next, and 1 for others; `None` where none is written.
    fn parameters(&mut self, mode: ActivationMode) -> Result<Option<Activation>, PlanTextError> {
        let mut written = [None; 3];
        while let Some(index) = self.takes_any(|word| parameters(mode).iter().position(|name| word.is(name)))
        {
            written[index] = Some(self.number()?);
        }
        let [alpha, beta, gamma] = written.map(|value| value.unwrap_or(1.0));
        let is_written = written.iter().any(Option::is_some);
        Ok(is_written.then(|| mode.with(&ActivationParams::new(alpha, beta, gamma))))
    }
}

/// The words for operators.
fn operators() -> String {
    let activations = ActivationMode::ALL.map(activation).join(", ");
    format!(
        "conv, bias, residual, prelu, batch-norm, batch-norm-forward, batch-norm-backward, {activations}, and these names of \
         activations with {BACKWARD} behind them"
    )
}

/// How a tensor lies in memory, and where that is written.
struct Order<'t> {
    word: Word<'t>,
    strides: Strides,
}

enum Strides {
    Layout(TensorLayout),
    Given(Vec<usize>),
}

/// What is accepted where the order of a tensor's dimensions in memory is written.
fn orders(rank: usize) -> String {
    format!("{}, or strides and {rank} numbers with x between them", names(TensorLayout::all_of_rank(rank)))
}

fn names<T: ToString>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The one of these whose name is the word.
fn named<T: ToString + Copy>(word: Word<'_>, all: &[T]) -> Option<T> {
    all.iter().find(|one| word.is(&one.to_string())).copied()
}

fn data_type(word: Word<'_>) -> Option<DataType> {
    named(word, &DataType::ALL)
}

fn layout(word: Word<'_>) -> Option<TensorLayout> {
    named(word, &TensorLayout::ALL)
}
