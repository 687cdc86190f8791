//! Every operand of every kind of operator is checked, whatever the kind: what these tests put to the check, and what
//! they expect of it, they take from the list of operands.

use std::ffi::c_void;

use fuseplan_api::operands::MAX_OPERANDS;
use fuseplan_api::{DataType, OpKind};

use super::super::*;
use crate::error::ExecuteError;
use crate::raw::OpArgs;
use crate::*;

/// A plan with an operator of the kind, at its end, for the reference: every way in which operands are there or not.
fn plans(kind: OpKind, handle: &Handle) -> Vec<CompiledPlan> {
    let x = TensorDescriptor::nchw(DataType::Half, [2, 4, 3, 5]).unwrap();
    let bias = TensorDescriptor::nchw(DataType::Half, [1, 4, 1, 1]).unwrap();
    let weights = TensorDescriptor::nchw(DataType::Half, [6, 4, 2, 2]).unwrap();
    let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
    let compile = |append: &dyn Fn(&mut FusionPlan)| {
        let mut plan = FusionPlan::new(x).unwrap();
        append(&mut plan);
        plan.compile_with(handle, &CompileOptions::default()).unwrap()
    };
    macro_rules! plan {
        ($($operator:expr),+) => {
            compile(&|plan| {
                $(plan.append($operator).unwrap();)+
            })
        };
    }
    let modes = BatchNormMode::ALL.into_iter();
    match kind {
        OpKind::ConvForward => vec![plan!(ConvForward::new(conv, weights))],
        OpKind::BiasForward => {
            vec![plan!(BiasForward::with_descriptor(bias)), plan!(BiasForward::residual())]
        }
        OpKind::PReluForward => vec![plan!(PReluForward::new()), plan!(PReluForward::with_descriptor(bias))],
        OpKind::BatchNormInference => modes.map(|mode| plan!(BatchNormInference::new(mode))).collect(),
        OpKind::ActivationForward => vec![plan!(ActivationForward::new(ActivationMode::Relu))],
        OpKind::BatchNormForward => modes
            .flat_map(|mode| [false, true].map(|running| plan!(BatchNormForward::new(mode, running))))
            .collect(),
        OpKind::BatchNormBackward => modes.map(|mode| plan!(BatchNormBackward::new(mode))).collect(),
        OpKind::ActivationBackward => modes
            .map(|mode| plan!(BatchNormBackward::new(mode), ActivationBackward::new(ActivationMode::Relu)))
            .collect(),
    }
}

/// Operands far apart from one another, of which nothing is ever read.
struct Operands<'a> {
    compiled: &'a CompiledPlan,
    handle: &'a Handle,
    spans: Vec<[Span<'static>; MAX_OPERANDS]>,
    x: Span<'static>,
    y: Span<'static>,
}

impl<'a> Operands<'a> {
    fn new(compiled: &'a CompiledPlan, handle: &'a Handle) -> Self {
        let mut next = 0;
        let mut at = |descriptor: &TensorDescriptor, written| {
            next += 1 << 20;
            let address = std::ptr::without_provenance::<c_void>(next);
            let (bytes, data_type) = (Some(descriptor.bytes()), Some(descriptor.data_type()));
            Span { bytes, data_type, ..Span::raw(address, written) }
        };
        let (x, y) = (at(compiled.input(), false), at(compiled.output(), true));
        let count = compiled.problem().ops.len();
        let spans = (0..count).map(|index| {
            let mut spans = [Span::raw(std::ptr::null(), false); MAX_OPERANDS];
            for (operand, span) in compiled.operands(index).iter().zip(&mut spans) {
                if operand.is_taken {
                    *span = at(&operand.descriptor, operand.spec.access.is_written());
                }
            }
            spans
        });
        Operands { compiled, handle, spans: spans.collect(), x, y }
    }

    /// The check's answer with `change` made to one operand: of typed operands, and of bare pointers, of which less is
    /// known.
    fn check(&self, changed: (usize, usize), change: Span<'static>) -> [Result<(), ExecuteError>; 2] {
        let mut spans = self.spans.clone();
        spans[changed.0][changed.1] = change;
        let ops = spans
            .iter()
            .map(|spans| OpArgs { pointers: spans.map(|span| span.address.cast_mut()), ..OpArgs::default() });
        let ops: Vec<_> = ops.collect();
        let kinds = self.compiled.problem().ops.iter().map(|op| (op.kind(), op.activation_mode()));
        let plan = self.compiled.plan_id();
        let slots = kinds.zip(spans).map(|((kind, mode), spans)| Some(Slot { plan, kind, mode, spans }));
        let slots: Vec<_> = slots.collect();
        [Some(slots.as_slice()), None].map(|slots| {
            let (input, output) = (self.compiled.input(), self.compiled.output());
            self.compiled.check_all(self.handle, input, &self.x, output, &self.y, Given { ops: &ops, slots })
        })
    }
}

#[test]
fn every_operand_of_every_kind_is_checked_and_named() {
    let handle = Handle::cpu();
    for compiled in OpKind::ALL.into_iter().flat_map(|kind| plans(kind, &handle)) {
        let all = Operands::new(&compiled, &handle);
        for (index, at, operand) in compiled.all_operands() {
            let (kind, spec) = (compiled.problem().ops[index].kind(), operand.spec);
            let name = format!("{kind} (operator {index}): {}", spec.name);
            let what = format!("{}: {name}", compiled.problem());
            let good = all.spans[index][at];
            let check = |change| all.check((index, at), change);
            assert_eq!(check(good), [Ok(()), Ok(())], "{what}");

            let null = Span { address: std::ptr::null(), ..good };
            let missing = match operand.may_be_null() {
                true => Ok(()),
                false => Err(ExecuteError::Null { operand: name.clone() }),
            };
            assert_eq!(check(null), [missing.clone(), missing], "{what}");
            if !operand.is_taken {
                let unexpected = Err(ExecuteError::Unexpected { operand: name });
                let given = Span { address: all.y.address.wrapping_byte_add(1 << 30), ..good };
                assert_eq!(check(given), [unexpected.clone(), unexpected], "{what}");
                continue;
            }

            let needed = operand.descriptor.bytes();
            let short = Span { bytes: Some(needed - 1), ..good };
            let too_small = ExecuteError::TooSmall { operand: name.clone(), found: needed - 1, needed };
            assert_eq!(check(short), [Err(too_small), Ok(())], "{what}");

            let expected = operand.descriptor.data_type();
            let other = Span { data_type: Some(DataType::Int8), ..good };
            let data_type = ExecuteError::DataType { operand: name.clone(), found: DataType::Int8, expected };
            assert_eq!(check(other), [Err(data_type), Ok(())], "{what}");

            let odd = Span { address: good.address.wrapping_byte_add(1), ..good };
            let misaligned = Err(ExecuteError::Misaligned { operand: name.clone(), size: expected.size() });
            assert_eq!(check(odd), [misaligned.clone(), misaligned], "{what}");

            // In place is exact only where operator and operand have the output's elements one by one.
            let on_output = Span { address: all.y.address, ..good };
            let in_place = compiled.problem().is_element_wise() && operand.descriptor == *compiled.output();
            for found in check(on_output) {
                match found {
                    Ok(()) => assert!(in_place, "{what}"),
                    Err(ExecuteError::Overlap { written, other, .. }) => {
                        assert_eq!((written.as_str(), other, in_place), ("the output", name.clone(), false));
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }

            // What is written shares no memory with what is read.
            let on_input = Span { address: all.x.address, ..good };
            let is_written = spec.access.is_written();
            for found in check(on_input) {
                match found {
                    Ok(()) => assert!(!is_written, "{what}"),
                    Err(ExecuteError::Overlap { written, .. }) => assert!(is_written && written == name),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
}
