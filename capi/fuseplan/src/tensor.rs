//! Tensors: the section of the header.

use fuseplan::{DataType, TensorDescriptor, TensorLayout};

use crate::abi::{In, Out, fuseplan_data_type_t, fuseplan_layout_t};
use crate::boundary::export::export;
use crate::boundary::failure::{Failure, bad_parm};
use crate::boundary::table::{Ref, create, object};

/// What a `fuseplan_tensor_t` names.
#[derive(Debug)]
pub struct TensorObject {
    descriptor: TensorDescriptor,
}
object!(TensorObject, Tensor, |tensor| Some(tensor.descriptor.to_string()));

/// C's `fuseplan_tensor_t`.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_tensor_t = Ref<TensorObject>;

impl fuseplan_tensor_t {
    /// The descriptor.
    pub(crate) fn descriptor(self) -> Result<TensorDescriptor, Failure> {
        Ok(self.get()?.descriptor)
    }

    /// A handle for a descriptor.
    pub(crate) fn of(descriptor: TensorDescriptor) -> Result<Self, Failure> {
        create(TensorObject { descriptor })
    }
}

/// The data types that plans compute with, at their numbers.
const DATA_TYPES: [DataType; 3] = [DataType::Half, DataType::Float, DataType::BFloat16];

/// The data type that C names.
pub(crate) fn data_type(number: fuseplan_data_type_t) -> Result<DataType, Failure> {
    DATA_TYPES.get(number as usize).copied().ok_or_else(|| {
        bad_parm(format!(
            "{number} is no data type; accepted: 0 (FUSEPLAN_F16), 1 (FUSEPLAN_F32), 2 (FUSEPLAN_BF16)"
        ))
    })
}

/// The number of a data type. A tensor of any other than C names cannot be made here.
fn number(data_type: DataType) -> Result<fuseplan_data_type_t, Failure> {
    let number = DATA_TYPES.iter().position(|&named| named == data_type);
    Ok(number.ok_or_else(|| bad_parm(format!("{data_type} has no number here")))? as fuseplan_data_type_t)
}

/// `rank` numbers of the caller's.
pub(crate) fn list(numbers: In<usize>, rank: usize, name: &str) -> Result<Vec<usize>, Failure> {
    if !(1..=TensorDescriptor::MAX_RANK).contains(&rank) {
        let most = TensorDescriptor::MAX_RANK;
        return Err(bad_parm(format!("{rank} dimensions; accepted: 1 to {most}")));
    }
    numbers.list(rank).ok_or_else(|| bad_parm(format!("`{name}` is NULL")))
}

/// The number of a layout, which is its place among those of its rank.
pub(crate) fn layout_number(layout: TensorLayout) -> fuseplan_layout_t {
    let before = TensorLayout::all_of_rank(layout.rank()).iter().take_while(|&&other| other != layout);
    before.count() as fuseplan_layout_t
}

/// The layout that C names, of a tensor with so many dimensions.
pub(crate) fn layout(number: fuseplan_layout_t, rank: usize) -> Result<TensorLayout, Failure> {
    let layouts = TensorLayout::all_of_rank(rank);
    if layouts.is_empty() {
        return Err(bad_parm(format!("{rank} dimensions have no layout; accepted: 4, 5")));
    }
    layouts.get(number as usize).copied().ok_or_else(|| {
        let blocks = ", 2 (FUSEPLAN_BLOCKS_OF_4), 3 (FUSEPLAN_BLOCKS_OF_8), 4 (FUSEPLAN_BLOCKS_OF_16)";
        bad_parm(format!(
            "{number} is no layout of {rank} dimensions; accepted: 0 (FUSEPLAN_CHANNELS_FIRST), 1 (FUSEPLAN_CHANNELS_LAST){}",
            if layouts.len() > 2 { blocks } else { "" }
        ))
    })
}

export! {
    fn fuseplan_tensor_create(
        tensor: Out<fuseplan_tensor_t>,
        data_type: fuseplan_data_type_t,
        layout: fuseplan_layout_t,
        rank: usize,
        lens: In<usize>,
    ) {
        let out = tensor.required("tensor")?;
        let (data_type, layout) = (self::data_type(data_type)?, self::layout(layout, rank)?);
        let descriptor = TensorDescriptor::with_layout(data_type, layout, &list(lens, rank, "lens")?)?;
        out.set(fuseplan_tensor_t::of(descriptor)?);
    }

    fn fuseplan_tensor_create_strided(
        tensor: Out<fuseplan_tensor_t>,
        data_type: fuseplan_data_type_t,
        rank: usize,
        lens: In<usize>,
        strides: In<usize>,
    ) {
        let out = tensor.required("tensor")?;
        let data_type = self::data_type(data_type)?;
        let (lens, strides) = (list(lens, rank, "lens")?, list(strides, rank, "strides")?);
        out.set(fuseplan_tensor_t::of(TensorDescriptor::new(data_type, &lens, &strides)?)?);
    }

    fn fuseplan_tensor_get(
        tensor: fuseplan_tensor_t,
        data_type: Out<fuseplan_data_type_t>,
        rank: Out<usize>,
        lens: Out<usize>,
        strides: Out<usize>,
    ) {
        let descriptor = tensor.descriptor()?;
        let numbers = match descriptor.strides() {
            None if !strides.is_null() => {
                return Err(bad_parm(format!("strides of {descriptor}; accepted: NULL in place of them")));
            }
            numbers => numbers.unwrap_or_default(),
        };
        data_type.set(number(descriptor.data_type())?);
        rank.set(descriptor.rank());
        lens.set_all(descriptor.lens());
        strides.set_all(numbers);
    }

    fn fuseplan_tensor_layout(tensor: fuseplan_tensor_t, layout: Out<fuseplan_layout_t>) {
        let descriptor = tensor.descriptor()?;
        let out = layout.required("layout")?;
        let layout = descriptor.literal_layout().ok_or_else(|| {
            bad_parm(format!("{descriptor} has no layout; accepted: a tensor that is packed in one"))
        })?;
        out.set(layout_number(layout));
    }

    fn fuseplan_tensor_bytes(tensor: fuseplan_tensor_t, bytes: Out<usize>) {
        let descriptor = tensor.descriptor()?;
        bytes.required("bytes")?.set(descriptor.bytes());
    }

    fn fuseplan_tensor_destroy(tensor: fuseplan_tensor_t) {
        if !tensor.is_null() {
            tensor.remove()?;
        }
    }
}
