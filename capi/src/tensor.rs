//! Tensor descriptors.

use std::ffi::c_int;
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
object!(TensorObject, Tensor);

/// C's `miopenTensorDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenTensorDescriptor_t = Ref<TensorObject>;

#[derive(Debug, Clone, Copy)]
struct Described {
    /// The data type as C gave it.
    code: miopenDataType_t,
    /// With the data type, or one of the same size where it is one that only C can name.
    descriptor: TensorDescriptor,
    /// Set by `miopenSetTensorCastType`.
    cast: Option<miopenDataType_t>,
}

/// The data type that C names, and for types that cannot be computed with one of the same size.
fn data_type(code: miopenDataType_t) -> Result<(DataType, bool), Failure> {
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
fn code(data_type: DataType) -> Result<miopenDataType_t, Failure> {
    Ok(match data_type {
        DataType::Half => 0,
        DataType::Float => 1,
        DataType::Int8 => 3,
        DataType::BFloat16 => 5,
        DataType::Double => 6,
        other => return Err(not_implemented(format!("{other} has no number in MIOpen's interface"))),
    })
}

fn layout(number: miopenTensorLayout_t) -> Result<TensorLayout, Failure> {
    Ok(match number {
        0 => TensorLayout::Nchw,
        1 => TensorLayout::Nhwc,
        7 => TensorLayout::Ncdhw,
        8 => TensorLayout::Ndhwc,
        2..=6 => {
            return Err(not_implemented(format!(
                "tensor layout {number} is not supported; accepted: NCHW (0), NHWC (1), NCDHW (7), NDHWC (8)"
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

impl miopenTensorDescriptor_t {
    fn described(self) -> Result<Described, Failure> {
        let object = self.get()?;
        let described = *object.described.read().unwrap_or_else(PoisonError::into_inner);
        described.ok_or_else(|| bad_parm("the tensor descriptor has not been set"))
    }

    /// The descriptor, for computing with it.
    pub(crate) fn descriptor(self) -> Result<TensorDescriptor, Failure> {
        let Described { code, descriptor, cast } = self.described()?;
        if !data_type(code)?.1 {
            return Err(not_implemented(format!(
                "tensors of data type {code} can be described, but not computed with"
            )));
        }
        if let Some(cast) = cast.filter(|&cast| cast != code) {
            return Err(not_implemented(format!("tensors of data type {code} that are cast to {cast}")));
        }
        Ok(descriptor)
    }

    /// Describes this very tensor.
    pub(crate) fn assign(self, descriptor: TensorDescriptor) -> Result<(), Failure> {
        self.put(code(descriptor.data_type())?, descriptor)
    }

    fn put(self, code: miopenDataType_t, descriptor: TensorDescriptor) -> Result<(), Failure> {
        let object = self.get()?;
        let described = Described { code, descriptor, cast: None };
        *object.described.write().unwrap_or_else(PoisonError::into_inner) = Some(described);
        Ok(())
    }

    /// Describes a tensor; `None` for strides is packed.
    fn describe(
        self,
        code: miopenDataType_t,
        lens: &[usize],
        strides: Option<&[usize]>,
    ) -> Result<(), Failure> {
        self.get()?;
        let (data_type, _) = data_type(code)?;
        let descriptor = match strides {
            Some(strides) => TensorDescriptor::new(data_type, lens, strides),
            None => TensorDescriptor::packed(data_type, lens),
        }?;
        self.put(code, descriptor)
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
        tensorDesc.describe(dataType, &sizes(&[n, c, h, w], "a tensor length")?, None)?;
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
        tensorDesc.describe(dataType, &lens, Some(&strides))?;
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
        let lens = sizes(&lens, "a tensor length")?;
        let descriptor = TensorDescriptor::with_layout(data_type(dataType)?.0, layout, &lens)?;
        tensorDesc.put(dataType, descriptor)?;
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
        tensorDesc.describe(dataType, &lens, strides.as_deref())?;
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
        tensorDesc.describe(dataType, &lens, stridesA.list(count).as_deref())?;
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
        let Described { code, descriptor, .. } = tensorDesc.described()?;
        if descriptor.rank() != 4 {
            return Err(bad_parm(format!("the tensor has {} dimensions, not 4", descriptor.rank())));
        }
        let (lens, strides) = ints(&descriptor)?;
        dataType.set(code);
        for (out, value) in [n, c, h, w, nStride, cStride, hStride, wStride].iter().zip([lens, strides].concat()) {
            out.set(value);
        }
    }

    fn miopenGetTensorDescriptorSize(tensorDesc: miopenTensorDescriptor_t, size: Out<c_int>) {
        let object = tensorDesc.get()?;
        let described = *object.described.read().unwrap_or_else(PoisonError::into_inner);
        let rank = described.map_or(0, |described| described.descriptor.rank());
        size.required("size")?.set(to_int(rank, "the number of dimensions")?);
    }

    fn miopenGetTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: Out<miopenDataType_t>,
        dimsA: Out<c_int>,
        stridesA: Out<c_int>,
    ) {
        let Described { code, descriptor, .. } = tensorDesc.described()?;
        let (lens, strides) = ints(&descriptor)?;
        dataType.set(code);
        dimsA.set_all(&lens);
        stridesA.set_all(&strides);
    }

    fn miopenGetTensorNumBytes(tensorDesc: miopenTensorDescriptor_t, numBytes: Out<usize>) {
        let described = tensorDesc.described()?;
        numBytes.required("numBytes")?.set(described.descriptor.bytes());
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
        let derived = batch_norm_mode(bn_mode)?.derive(&xDesc.described()?.descriptor)?;
        derivedBnDesc.assign(derived)?;
    }
}

/// Lengths and strides as C has them.
fn ints(descriptor: &TensorDescriptor) -> Result<(Vec<c_int>, Vec<c_int>), Failure> {
    let list = |values: &[usize], what: &str| -> Result<Vec<c_int>, Failure> {
        values.iter().map(|&value| to_int(value, what)).collect()
    };
    Ok((list(descriptor.lens(), "a tensor length")?, list(descriptor.strides(), "a tensor stride")?))
}
