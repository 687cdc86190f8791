//! Tensor descriptors.

use std::ffi::c_int;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use fuseplan::{BatchNormMode, DataType, TensorDescriptor, TensorLayout};

use crate::abi::{
    In, Out, export, miopenBatchNormMode_t, miopenDataType_t, miopenTensorLayout_t, to_int, to_size,
};
use crate::status::{Failure, Status, bad_parm, not_implemented};
use crate::table::{Ref, create, object};

/// What a `miopenTensorDescriptor_t` names: nothing yet, or a described tensor.
#[derive(Debug, Default)]
pub struct TensorObject {
    described: RwLock<Option<Described>>,
}
object!(TensorObject, Tensor, |tensor| Some(tensor.get()?.to_string()));

/// C's `miopenTensorDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenTensorDescriptor_t = Ref<TensorObject>;

#[derive(Debug, Clone, Copy)]
struct Described {
    /// The data type as C gave it.
    code: miopenDataType_t,
    /// With the data type, or one of the same size where it is one that only C can name, and with a length of 1
    /// where it is 0.
    descriptor: TensorDescriptor,
    /// Whether a length is 0: a placeholder, which can be described and read back, and not used.
    zeros: [bool; TensorDescriptor::MAX_RANK],
    /// Set by `miopenSetTensorCastType`.
    cast: Option<miopenDataType_t>,
}

impl Described {
    fn lens(&self) -> Vec<usize> {
        let lens = self.descriptor.lens().iter().zip(self.zeros);
        lens.map(|(&length, is_zero)| if is_zero { 0 } else { length }).collect()
    }

    /// The descriptor of a tensor that has elements.
    fn tensor(&self) -> Result<TensorDescriptor, Failure> {
        if self.zeros.contains(&true) {
            return Err(bad_parm(format!(
                "the tensor has lengths {:?}, so no elements; accepted: lengths from 1",
                self.lens()
            )));
        }
        Ok(self.descriptor)
    }
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match data_type(self.code) {
            Ok((_, true)) if !self.zeros.contains(&true) => write!(f, "{}", self.descriptor),
            _ => write!(f, "data type {}, lengths {:?}", self.code, self.lens()),
        }
    }
}

impl TensorObject {
    fn get(&self) -> Option<Described> {
        *self.described.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data type that C names, and for types that cannot be computed with one of the same size.
pub(crate) fn data_type(code: miopenDataType_t) -> Result<(DataType, bool), Failure> {
    Ok(match code {
        0 => (DataType::Half, true),
        1 => (DataType::Float, true),
        3 => (DataType::Int8, true),
        5 => (DataType::BFloat16, true),
        6 => (DataType::Double, true),
        2 => (DataType::Float, false),
        7 | 8 => (DataType::Int8, false),
        9 => (DataType::Double, false),
        _ => return Err(bad_parm(format!("{code} is no data type"))),
    })
}

/// C's number of a data type.
pub(crate) fn code(data_type: DataType) -> Result<miopenDataType_t, Failure> {
    Ok(match data_type {
        DataType::Half => 0,
        DataType::Float => 1,
        DataType::Int8 => 3,
        DataType::BFloat16 => 5,
        DataType::Double => 6,
    })
}

fn layout(number: miopenTensorLayout_t) -> Result<TensorLayout, Failure> {
    Ok(match number {
        0 => TensorLayout::Nchw,
        1 => TensorLayout::Nhwc,
        3 => TensorLayout::Nchwc4,
        4 => TensorLayout::Nchwc8,
        7 => TensorLayout::Ncdhw,
        8 => TensorLayout::Ndhwc,
        2 | 5 | 6 => {
            return Err(not_implemented(format!(
                "tensor layout {number} is not supported; accepted: NCHW (0), NHWC (1), NCHWc4 (3), NCHWc8 (4), NCDHW (7), \
                 NDHWC (8)"
            )));
        }
        _ => return Err(bad_parm(format!("{number} is no tensor layout"))),
    })
}

/// The batch-norm mode that C names.
pub(crate) fn batch_norm_mode(number: miopenBatchNormMode_t) -> Result<BatchNormMode, Failure> {
    let mode = BatchNormMode::ALL.get(number as usize).copied();
    mode.ok_or_else(|| {
        bad_parm(format!("{number} is no batch-norm mode; accepted: 0 (per activation), 1 (spatial)"))
    })
}

/// A descriptor in words, with its strides where it has some.
pub(crate) fn in_full(descriptor: &TensorDescriptor) -> String {
    match descriptor.strides() {
        Some(strides) => format!("{descriptor} with strides {strides:?}"),
        None => descriptor.to_string(),
    }
}

/// Where a tensor's strides come from.
enum Strides<'a> {
    Given(&'a [usize]),
    /// The last dimension innermost.
    Packed,
    Layout(TensorLayout),
}

impl miopenTensorDescriptor_t {
    fn described(self) -> Result<Described, Failure> {
        self.get()?.get().ok_or_else(|| bad_parm("the tensor descriptor has not been set"))
    }

    /// The descriptor, for computing with it.
    pub(crate) fn descriptor(self) -> Result<TensorDescriptor, Failure> {
        let described = self.described()?;
        let Described { code, cast, .. } = described;
        if !data_type(code)?.1 {
            return Err(not_implemented(format!(
                "tensors of data type {code} can be described, but not computed with"
            )));
        }
        if let Some(cast) = cast.filter(|&cast| cast != code) {
            return Err(not_implemented(format!("tensors of data type {code} that are cast to {cast}")));
        }
        described.tensor()
    }

    /// Describes this very tensor.
    pub(crate) fn assign(self, descriptor: TensorDescriptor) -> Result<(), Failure> {
        self.put(code(descriptor.data_type())?, descriptor, [false; TensorDescriptor::MAX_RANK])
    }

    fn put(
        self,
        code: miopenDataType_t,
        descriptor: TensorDescriptor,
        zeros: [bool; TensorDescriptor::MAX_RANK],
    ) -> Result<(), Failure> {
        let object = self.get()?;
        let described = Described { code, descriptor, zeros, cast: None };
        *object.described.write().unwrap_or_else(PoisonError::into_inner) = Some(described);
        Ok(())
    }

    /// Describes a tensor.
    fn describe(self, code: miopenDataType_t, lens: &[usize], strides: Strides<'_>) -> Result<(), Failure> {
        self.get()?;
        let (data_type, _) = data_type(code)?;
        let mut zeros = [false; TensorDescriptor::MAX_RANK];
        zeros.iter_mut().zip(lens).for_each(|(is_zero, &length)| *is_zero = length == 0);
        let lens: Vec<usize> = lens.iter().map(|&length| length.max(1)).collect();
        let descriptor = match strides {
            Strides::Given(strides) => TensorDescriptor::new(data_type, &lens, strides),
            Strides::Packed => TensorDescriptor::packed(data_type, &lens),
            Strides::Layout(layout) => TensorDescriptor::with_layout(data_type, layout, &lens),
        }?;
        self.put(code, descriptor, zeros)
    }
}

fn sizes(values: &[c_int], what: &str) -> Result<Vec<usize>, Failure> {
    values.iter().map(|&value| to_size(value, what)).collect()
}

/// The number of dimensions of a list that C gives, which has at most as many as a tensor may have.
fn count(dims: c_int) -> Result<usize, Failure> {
    match usize::try_from(dims) {
        Ok(count @ 1..=5) => Ok(count),
        Ok(count @ 6..) => Err(bad_parm(format!("{count} dimensions; accepted: 1 to 5"))),
        _ => Err(Failure::new(Status::InvalidValue, format!("{dims} dimensions; accepted: 1 to 5"))),
    }
}

fn invalid_null(name: &str) -> Failure {
    Failure::new(Status::InvalidValue, format!("`{name}` is NULL"))
}

export! {
    fn miopenCreateTensorDescriptor(tensorDesc: Out<miopenTensorDescriptor_t>) {
        let out = tensorDesc.required("tensorDesc")?;
        out.set(create(TensorObject::default())?);
    }

    fn miopenSet4dTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        n: c_int,
        c: c_int,
        h: c_int,
        w: c_int,
    ) {
        tensorDesc.describe(dataType, &sizes(&[n, c, h, w], "a tensor length")?, Strides::Packed)?;
    }

    fn miopenSet4dTensorDescriptorEx(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        n: c_int,
        c: c_int,
        h: c_int,
        w: c_int,
        nStride: c_int,
        cStride: c_int,
        hStride: c_int,
        wStride: c_int,
    ) {
        let lens = sizes(&[n, c, h, w], "a tensor length")?;
        let strides = sizes(&[nStride, cStride, hStride, wStride], "a tensor stride")?;
        tensorDesc.describe(dataType, &lens, Strides::Given(&strides))?;
    }

    fn miopenSetNdTensorDescriptorWithLayout(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        tensorLayout: miopenTensorLayout_t,
        lens: In<c_int>,
        num_lens: c_int,
    ) {
        tensorDesc.get()?;
        let layout = layout(tensorLayout)?;
        let lens = lens.list(count(num_lens)?).ok_or_else(|| invalid_null("lens"))?;
        tensorDesc.describe(dataType, &sizes(&lens, "a tensor length")?, Strides::Layout(layout))?;
    }

    fn miopenSetTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        nbDims: c_int,
        dimsA: In<c_int>,
        stridesA: In<c_int>,
    ) {
        tensorDesc.get()?;
        let count = count(nbDims)?;
        let lens = sizes(&dimsA.list(count).ok_or_else(|| invalid_null("dimsA"))?, "a tensor length")?;
        let strides = stridesA.list(count).map(|list| sizes(&list, "a tensor stride")).transpose()?;
        let strides = strides.as_deref().map_or(Strides::Packed, Strides::Given);
        tensorDesc.describe(dataType, &lens, strides)?;
    }

    fn miopenSetTensorDescriptorV2(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        nbDims: c_int,
        dimsA: In<usize>,
        stridesA: In<usize>,
    ) {
        tensorDesc.get()?;
        let count = count(nbDims)?;
        let lens = dimsA.list(count).ok_or_else(|| invalid_null("dimsA"))?;
        let strides = stridesA.list(count);
        tensorDesc.describe(dataType, &lens, strides.as_deref().map_or(Strides::Packed, Strides::Given))?;
    }

    fn miopenSetTensorCastType(tensorDesc: miopenTensorDescriptor_t, cast_type: miopenDataType_t) {
        data_type(cast_type)?;
        let object = tensorDesc.get()?;
        let mut described = object.described.write().unwrap_or_else(PoisonError::into_inner);
        match &mut *described {
            Some(described) => described.cast = Some(cast_type),
            None => return Err(bad_parm("the tensor descriptor has not been set")),
        }
    }

    fn miopenGet4dTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: Out<miopenDataType_t>,
        n: Out<c_int>,
        c: Out<c_int>,
        h: Out<c_int>,
        w: Out<c_int>,
        nStride: Out<c_int>,
        cStride: Out<c_int>,
        hStride: Out<c_int>,
        wStride: Out<c_int>,
    ) {
        let described = tensorDesc.described()?;
        if described.descriptor.rank() != 4 {
            return Err(bad_parm(format!("the tensor has {} dimensions, not 4", described.descriptor.rank())));
        }
        let strides = [nStride, cStride, hStride, wStride];
        let (lens, numbers) = ints(&described, strides.iter().any(|stride| !stride.is_null()))?;
        dataType.set(described.code);
        for (out, value) in [n, c, h, w].iter().chain(&strides).zip([lens, numbers].concat()) {
            out.set(value);
        }
    }

    fn miopenGetTensorDescriptorSize(tensorDesc: miopenTensorDescriptor_t, size: Out<c_int>) {
        let rank = tensorDesc.get()?.get().map_or(0, |described| described.descriptor.rank());
        size.required("size")?.set(to_int(rank, "the number of dimensions")?);
    }

    fn miopenGetTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: Out<miopenDataType_t>,
        dimsA: Out<c_int>,
        stridesA: Out<c_int>,
    ) {
        let described = tensorDesc.described()?;
        let (lens, strides) = ints(&described, !stridesA.is_null())?;
        dataType.set(described.code);
        dimsA.set_all(&lens);
        stridesA.set_all(&strides);
    }

    fn miopenGetTensorNumBytes(tensorDesc: miopenTensorDescriptor_t, numBytes: Out<usize>) {
        let described = tensorDesc.described()?;
        numBytes.required("numBytes")?.set(described.tensor().map_or(0, |tensor| tensor.bytes()));
    }

    fn miopenDestroyTensorDescriptor(tensorDesc: miopenTensorDescriptor_t) {
        if !tensorDesc.is_null() {
            tensorDesc.remove()?;
        }
    }

    fn miopenDeriveBNTensorDescriptor(
        derivedBnDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        bn_mode: miopenBatchNormMode_t,
    ) {
        derivedBnDesc.get()?;
        let derived = batch_norm_mode(bn_mode)?.derive(&xDesc.described()?.tensor()?)?;
        derivedBnDesc.assign(derived)?;
    }
}

/// Lengths as C has them, and strides where they are asked for. A tensor whose channels lie in blocks has none: numbers from
/// which a caller described it again would name other elements, and more of them.
fn ints(described: &Described, with_strides: bool) -> Result<(Vec<c_int>, Vec<c_int>), Failure> {
    let strides = match described.descriptor.strides() {
        Some(strides) => strides,
        None if with_strides => {
            let tensor = described.descriptor;
            return Err(not_implemented(format!("strides of {tensor}; accepted: NULL in place of them")));
        }
        None => &[],
    };
    let list = |values: &[usize], what: &str| -> Result<Vec<c_int>, Failure> {
        values.iter().map(|&value| to_int(value, what)).collect()
    };
    Ok((list(&described.lens(), "a tensor length")?, list(strides, "a tensor stride")?))
}
