"""Arrays of other libraries."""

import subprocess
import sys

import fuseplan
import ml_dtypes
import numpy as np
import pytest

X = np.linspace(-1, 1, 2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
RELU = np.maximum(X, 0)


class Dlpack:
    """An array that is known by DLPack alone."""

    def __init__(self, array, versions=True):
        self.array, self.versions = array, versions

    def __dlpack__(self, *, stream=None, **words):
        assert stream is None
        if words and not self.versions:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_the_package_needs_neither_numpy_nor_torch():
    code = "import sys, fuseplan; fuseplan.Plan((1, 2, 3, 4)); assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("versions", [True, False])
def test_dlpack(versions):
    layer = fuseplan.Plan(Dlpack(X, versions)).activation("relu").compile(fuseplan.Handle("cpu"))
    out = np.empty_like(X)
    given = Dlpack(out, versions)
    assert layer(Dlpack(X, versions), out=given) is given
    assert np.array_equal(out, RELU)
    with pytest.raises(TypeError, match="out has to be given"):
        layer(Dlpack(X, versions))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy has DLPack 1 since 2.1")
def test_dlpack_says_what_must_not_be_written():
    layer = fuseplan.Plan(X).activation("relu").compile(fuseplan.Handle("cpu"))
    out = np.empty_like(X)
    out.flags.writeable = False
    with pytest.raises(fuseplan.OperandError, match="read-only"):
        layer(X, out=Dlpack(out))
    assert np.array_equal(layer(Dlpack(out), out=np.empty_like(X)), np.maximum(out, 0))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: type("Interface", (), {"__array_interface__": x.__array_interface__, "kept": x})()])
def test_arrays_of_the_host_that_plans_cannot_read(wrap):
    layer = fuseplan.Plan(X).activation("relu").compile(fuseplan.Handle("cpu"))
    out = np.full_like(X, np.nan)

    def refused(x):
        with pytest.raises(fuseplan.OperandError) as caught:
            layer(wrap(x), out=out)
        return caught.value.property

    assert refused(X.astype(">f4")) == "dtype" and refused(X.astype(np.int32)) == "dtype"
    assert refused(X[:, :, ::-1]) == refused(X[..., :2]) == "strides" or refused(X[..., :2]) == "shape"
    whole = np.zeros((2, 3, 4, 4), np.dtype({"names": ["x"], "formats": [np.float32], "offsets": [0], "itemsize": 6}))
    assert refused(whole["x"]) == "strides"
    locked = np.empty_like(X)
    locked.flags.writeable = False
    with pytest.raises(fuseplan.OperandError, match="read-only"):
        layer(X, out=wrap(locked))
    assert np.isnan(out).all()
    assert layer(wrap(X), out=out) is out and np.array_equal(out, RELU)


def test_a_capsule_that_is_not_numpys_is_an_error():
    class Odd:
        __array_struct__ = 4

    with pytest.raises(TypeError):
        fuseplan.Plan(Odd())


def test_bfloat16_of_ml_dtypes():
    x = X.astype(ml_dtypes.bfloat16)
    y = fuseplan.Plan(x).activation("relu").compile(fuseplan.Handle("cpu"))(x)
    assert y.dtype == ml_dtypes.bfloat16 and np.array_equal(y, np.maximum(x, 0))


def test_views_are_read_where_they_lie():
    whole = np.zeros((2, 6, 8, 8), np.float32)
    view = whole[:, ::2, ::2, 4:]
    view[...] = X
    layer = fuseplan.Plan(view).activation("relu").compile(fuseplan.Handle("cpu"))
    y = layer(view)
    assert y.strides == view.strides and np.array_equal(y, RELU)


def test_a_slot_of_an_array_is_not_looked_at_twice():
    class Changing:
        """An interface whose memory lies elsewhere at each look."""

        def __init__(self):
            self.looks = 0

        @property
        def __array_interface__(self):
            self.looks += 1
            return X.__array_interface__

    array = Changing()
    layer = fuseplan.Plan(X).activation("relu").compile(fuseplan.Handle("cpu"))
    layer(array, out=np.empty_like(X))
    assert array.looks == 1


@pytest.mark.parametrize(
    "interface",
    [
        {},
        {"typestr": "<f4"},
        {"typestr": "<f4", "shape": (1, 1, 1, 1)},
        {"typestr": "<f4", "shape": (1, 1, 1, 1), "data": None},
        {"typestr": "<f4", "shape": "1111", "data": (0, False)},
        {"typestr": "<f4", "shape": (1, 1, 1, -1), "data": (0, False)},
        {"typestr": "<f4", "shape": (2**62, 2**62, 1, 1), "data": (0, False)},
        {"typestr": 4, "shape": (1, 1, 1, 1), "data": (0, False)},
        [],
    ],
)
def test_an_interface_that_is_none_is_an_error(interface):
    class Odd:
        __array_interface__ = interface

    with pytest.raises((BufferError, TypeError, ValueError)):
        fuseplan.Plan(Odd())


def test_a_null_pointer_is_an_error():
    class Null:
        __array_interface__ = {"typestr": "<f4", "shape": X.shape, "data": (0, False)}

    layer = fuseplan.Plan(X).activation("relu").compile(fuseplan.Handle("cpu"))
    with pytest.raises(fuseplan.Error, match="null"):
        layer(Null(), out=np.empty_like(X))


def test_memory_of_another_device_is_an_error():
    class OnCuda(Dlpack):
        def __dlpack__(self, **words):
            return capsule_of_device(2, 0)

    layer = fuseplan.Plan(X).activation("relu").compile(fuseplan.Handle("cpu"))
    with pytest.raises(fuseplan.OperandError) as caught:
        layer(OnCuda(X), out=np.empty_like(X))
    assert (caught.value.property, caught.value.found) == ("device", "cuda:0")
    assert caught.value.accepted.startswith("memory of cpu 0")


def capsule_of_device(kind, number):
    """A capsule of DLPack with X's numbers that claims to lie on a device."""
    import ctypes

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p),
            ("kind", ctypes.c_int32),
            ("number", ctypes.c_int32),
            ("ndim", ctypes.c_int32),
            ("code", ctypes.c_uint8),
            ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16),
            ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p),
            ("offset", ctypes.c_uint64),
            ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p),
        ]

    shape = (ctypes.c_int64 * 4)(*X.shape)
    tensor = Tensor(X.ctypes.data, kind, number, 4, 2, 32, 1, ctypes.addressof(shape), None, 0, None, None)
    KEPT.append((shape, tensor))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(tensor), b"dltensor", None)


KEPT = []
