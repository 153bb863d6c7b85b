"""Creation: arrays from numbers, sequences and buffers, of equal entries, and of equally spaced ones.

Outside of any tracing, small arrays that depend on nothing are made by NumPy and put on the device, which needs no compilation;
inside they are operations of the program.
"""
from __future__ import annotations

import math
import operator
from typing import Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes, errors
from mini_jax.core.refs import refuse_refs
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, eval_trace, known_int, leaked, typeof, whence
from mini_jax.lax.prng import random_wrap
from mini_jax.lax.shapes import canonical_shape, moveaxis
from mini_jax.numpy.promotion import arraylike, as_array, broadcast_to_shape, promote_dtypes_inexact
from mini_jax.runtime.array import ArrayImpl, device_put
from mini_jax.runtime.dispatch import library

__all__ = ["array", "asarray", "copy", "astype", "frombuffer", "fromstring", "from_dlpack", "fromfunction", "zeros", "ones", "empty", "full",
           "zeros_like", "ones_like", "empty_like", "full_like", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri"]

_SMALL = 1 << 16        # elements: copying more to a device may take longer than computing them there


def placed(x, device):
    """The array on a device or sharding, if one is given; a traced value stays what it is."""
    return x if device is None or isinstance(x, Tracer) else device_put(x, device)


# --- from values ---------------------------------------------------------------------------------------------------------------

def asarray(a, dtype=None, order: str | None = None, *, copy: bool | None = None, device=None, out_sharding=None):
    """`a` as an array: an array as it is, NumPy arrays, numbers, (nested) sequences and buffers copied to the device.

    dtype: that of the result; None: that of `a`, or for sequences the one in which their elements meet. Numbers give weakly
    typed scalars. copy: True makes a new array even of an array. device: a Device or Sharding to put the result on.
    Raises TypeError for what holds no numbers, ValueError for ragged sequences and for None, OverflowError for ints beyond the
    range, NotImplementedError for an order other than 'K'.
    """
    return array(a, dtype, copy=bool(copy), order="K" if order is None else order, device=out_sharding if device is None else device)


def array(object, dtype=None, *, copy: bool = True, order: str | None = "K", ndmin: int = 0, device=None, out_sharding=None):
    """A new array of what `object` holds; see `asarray`. ndmin: the least number of dimensions, new ones standing in front."""
    if order not in (None, "K"):
        raise NotImplementedError(f"array: order={order!r} is not supported, only 'K': how an array is laid out is up to the compiler")
    if dtype is not None:
        dtype = dtypes.requested(dtype, "array")
    convert = getattr(object, "__jax_array__", None)
    if convert is not None:
        object = convert()
    refuse_refs("array", [object])
    if hasattr(object, "aval"):
        out = object if dtype is None else lax.convert_element_type(object, dtype)
        if copy and out is object and type(object) is ArrayImpl:
            out = object.copy()
    else:
        out = _of_host(object, dtype)
    if ndmin > np.ndim(out):
        out = lax.reshape(out, (1,) * (ndmin - np.ndim(out)) + np.shape(out))
    device = out_sharding if device is None else device
    return placed(out, device)


def _of_host(object, dtype):
    """An array of what is no array yet."""
    if type(object) in dtypes.python_scalar_types:
        if dtype is None:
            return as_array(object)
        return as_array(_number(object, dtype))
    if isinstance(object, (list, tuple)):
        return _of_sequence(object, dtype)
    if object is None:
        raise ValueError("None is not a valid value for an array")
    host = object if isinstance(object, (np.ndarray, np.generic)) else np.asarray(object)
    if host.dtype.kind in "OSUMm" or host.dtype.kind == "V" and host.dtype not in dtypes.all_dtypes:
        raise TypeError(f"Value {object!r:.100} with dtype {host.dtype} is not a valid array type: arrays hold numbers and booleans")
    if dtype is not None and host.dtype != dtype:
        with np.errstate(all="ignore"):
            host = host.real.astype(dtype) if host.dtype.kind == "c" and not dtypes.is_complex(dtype) else host.astype(dtype)
    return as_array(host if host.ndim else host[()])


def _number(x, dtype):
    """A Python number as a NumPy scalar; OverflowError for an int beyond the dtype's range."""
    if type(x) is int:
        dtypes.check_scalar_range(x, dtype)
    if type(x) is complex and not dtypes.is_complex(dtype):
        raise TypeError(f"a complex number has no value of dtype {dtype}; take its .real first")
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)[()]


def _of_sequence(object, dtype):
    kinds: set[type] = set()
    _element_types(object, kinds)
    if kinds <= dtypes.python_scalar_types.keys():
        if dtype is None:
            widest = max(kinds, key=list(dtypes.python_scalar_types).index, default=float)
            dtype = dtypes.canonicalize(dtypes.python_scalar_types[widest])
        elif complex in kinds and not dtypes.is_complex(dtype):
            raise TypeError(f"complex numbers have no value of dtype {dtype}; take their .real first")
        return device_put(_host_sequence(object, dtype))
    if type(None) in kinds:
        raise ValueError("None is not a valid value for an array")
    leaves: list = []
    if not any([hasattr(kind, "aval") or hasattr(kind, "__jax_array__") for kind in kinds]):
        if dtype is None:
            _leaves(object, leaves)
            dtype = dtypes.result_type(*[leaf if not isinstance(leaf, np.ndarray) else leaf.dtype for leaf in map(_checked_leaf, leaves)])
        return device_put(_host_sequence(object, dtype))
    if dtype is None:
        _leaves(object, leaves)
        dtype = dtypes.result_type(*map(_checked_leaf, leaves))
    return _stacked(object, dtype)


def _element_types(object, kinds: set) -> None:
    found = set(map(type, object))
    if not found.isdisjoint((list, tuple)):
        for item in object:
            if isinstance(item, (list, tuple)):
                _element_types(item, kinds)
    kinds |= found - {list, tuple}


def _leaves(object, out: list) -> None:
    for item in object:
        _leaves(item, out) if isinstance(item, (list, tuple)) else out.append(item)


def _checked_leaf(leaf):
    try:
        typeof(leaf)
        return leaf
    except TypeError:
        return np.asarray(leaf)


def _host_sequence(object, dtype) -> np.ndarray:
    try:
        host = np.array(object, dtype)
    except TypeError:                                     # some of ml_dtypes' types take no sequences
        host = np.array(object).astype(dtype)
    if host.dtype.kind == "O":
        raise TypeError(f"Value {object!r:.100} with dtype object is not a valid array type: arrays hold numbers and booleans")
    return host


def _stacked(object, dtype):
    """Nested sequences with arrays or traced values among them."""
    if not isinstance(object, (list, tuple)):
        return array(object, dtype, copy=False)
    parts = [_stacked(item, dtype) for item in object]
    if not parts:
        return zeros((0,), dtype)
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise TypeError(f"array: a sequence's items must have one shape, got {', '.join(map(str, sorted(shapes)))}")
    return lax.concatenate([lax.expand_dims(part, (0,)) for part in parts], 0)


def copy(a, order: str | None = None):
    """A copy of the array `a`, which shares no memory with it."""
    return array(a, copy=True, order="K" if order is None else order)


def astype(x, dtype, /, *, copy: bool = False, device=None):
    """The array converted to `dtype` (None: the default float), strongly typed.

    Floats become ints towards zero, numbers become booleans by != 0, complex numbers reals by their real part.
    """
    (x,) = arraylike("astype", x)
    out = lax.convert_element_type(x, dtypes.requested(float if dtype is None else dtype, "astype"))
    if copy and out is x:
        out = array(x, copy=True)
    return placed(out, device)


def frombuffer(buffer, dtype=float, count: int = -1, offset: int = 0):
    """The bytes of `buffer` read as a one-dimensional array. (NumPy: frombuffer)"""
    return asarray(np.frombuffer(buffer, dtype=dtypes.as_dtype(dtype), count=count, offset=offset))


def fromstring(string: str, dtype=float, count: int = -1, *, sep: str):
    """The numbers written in `string`, separated by `sep`. (NumPy: fromstring)"""
    return asarray(np.fromstring(string, dtype=dtypes.as_dtype(dtype), count=count, sep=sep))


def from_dlpack(x, /, *, device=None, copy: bool | None = None):
    """The array that `x`, of any library that speaks DLPack, holds. Data on the host is copied."""
    return asarray(x if isinstance(x, (ArrayImpl, Tracer)) else np.from_dlpack(x), copy=copy, device=device)


def fromfunction(function: Callable, shape, *, dtype=float, **kwargs):
    """function(i, j, …, **kwargs) at the indices of an array of `shape`: it is called on scalars, mapped over all of them."""
    from mini_jax.transforms.vmap import vmap
    shape = canonical_shape(shape)
    for axis in reversed(range(len(shape))):
        function = vmap(function, in_axes=tuple(0 if i == axis else None for i in range(len(shape))))
    return function(*[arange(n, dtype=dtype) for n in shape], **kwargs)


# --- of equal entries -----------------------------------------------------------------------------------------------------------

def _filled(shape: tuple[int, ...], value, dtype, weak_type: bool, device):
    """An array of equal entries, `value` a number."""
    if state.trace is eval_trace and math.prod(shape) <= _SMALL and not weak_type:
        return device_put(np.full(shape, value, dtype), device)
    scalar = value if weak_type else _number(value, dtype)
    out = lax.broadcast_in_dim(scalar, shape, ())
    return placed(out, device)


def zeros(shape, dtype=None, *, device=None, out_sharding=None):
    """Zeros of `shape`; dtype None: the default float.

    Raises TypeError when shape is no sequence of non-negative ints.
    """
    return _filled(_shape("zeros", shape), 0, dtypes.requested(dtype, "zeros"), False, out_sharding if device is None else device)


def ones(shape, dtype=None, *, device=None, out_sharding=None):
    """Ones of `shape`; dtype None: the default float."""
    return _filled(_shape("ones", shape), 1, dtypes.requested(dtype, "ones"), False, out_sharding if device is None else device)


def empty(shape, dtype=None, *, device=None, out_sharding=None):
    """An array whose entries are not promised; they are zeros."""
    return zeros(shape, dtype, device=device, out_sharding=out_sharding)


def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None):
    """An array of `shape` filled with `fill_value`, a number or an array that broadcasts to it; dtype None: that of fill_value."""
    shape, device = _shape("full", shape), out_sharding if device is None else device
    (fill_value,) = arraylike("full", fill_value)
    if type(fill_value) in dtypes.python_scalar_types:
        wanted = dtypes.dtype_of(fill_value) if dtype is None else dtypes.requested(dtype, "full")
        dtypes.check_scalar_range(fill_value, wanted)
        return _filled(shape, fill_value, wanted, dtype is None and type(fill_value) is not bool, device)
    out = broadcast_to_shape(asarray(fill_value, dtype), shape)
    return placed(out, device)


def _shape(name: str, shape) -> tuple[int, ...]:
    if isinstance(shape, (tuple, list)) or isinstance(shape, (int, np.integer)):
        return canonical_shape(shape, f"jnp.{name}", "shape")
    try:
        return canonical_shape(shape if np.ndim(shape) else (known_int(shape, f"jnp.{name}", "shape"),), f"jnp.{name}", "shape")
    except errors.ConcretizationTypeError:
        raise
    except TypeError:
        raise TypeError(f"{name}: a shape is an int or a sequence of ints, got {shape!r}") from None


def _like(name: str, a, value, dtype, shape, device, out_sharding):
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):         # a ShapeDtypeStruct serves too
        arraylike(name, a)
    shape = np.shape(a) if shape is None else _shape(name, shape)
    weak = dtype is None and dtypes.is_weak(a)
    dtype = dtypes.dtype_of(a) if dtype is None else dtypes.requested(dtype, name)
    if dtypes.is_extended(dtype):
        if type(value) not in dtypes.python_scalar_types:
            return lax.full_like(a, value, shape=shape)
        return random_wrap(lax.full((*shape, *dtype.physical_shape), value, dtype.physical_dtype), dtype)         # keys of such words
    device = out_sharding if device is None else device
    if type(value) not in dtypes.python_scalar_types:
        (value,) = arraylike(name, value)
        out = broadcast_to_shape(lax.convert_element_type(as_array(value), dtype, weak), shape)
        return placed(out, device)
    weak = weak and dtypes.canonicalize(dtypes.scalar_type_of(dtype)) == dtype
    return _filled(shape, dtypes.scalar_type_of(dtype)(value) if weak else value, dtype, weak, device)


def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Zeros of the shape and dtype of `a`, an array, number or ShapeDtypeStruct, where `dtype` and `shape` do not say otherwise."""
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Ones of the shape and dtype of `a`, an array, number or ShapeDtypeStruct, where `dtype` and `shape` do not say otherwise."""
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype, dtype=None, shape=None, *, device=None):
    """An array like `prototype` whose entries are not promised; they are zeros."""
    return _like("empty_like", prototype, 0, dtype, shape, device, None)


def full_like(a, fill_value, dtype=None, shape=None, *, device=None):
    """An array of the shape and dtype of `a` filled with `fill_value`, a number or an array that broadcasts to it."""
    return _like("full_like", a, fill_value, dtype, shape, device, None)


# --- equally spaced -----------------------------------------------------------------------------------------------------------------

def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """start, start + step, start + 2 step, … up to, and without, stop; arange(n) is 0, …, n - 1.

    start, stop, step: real numbers that are known (not traced). dtype None: the one in which they meet.
    Raises ZeroDivisionError for step 0, ValueError for complex arguments, ConcretizationTypeError for traced ones.
    """
    if stop is None:
        start, stop = 0, start
    given = [_known("arange", name, x) for name, x in (("start", start), ("stop", stop), ("step", 1 if step is None else step))]
    start, stop, step = given
    if dtype is None:
        dtype = dtypes.result_type(*given)
    dtype = dtypes.requested(dtype, "arange")
    if any([isinstance(x, int) and not isinstance(x, bool) for x in given]):
        for x in given:
            if type(x) is int and dtypes.is_integer(dtype):
                dtypes.check_scalar_range(x)
    size = max(0, -int((start - stop) // step)) if all([isinstance(x, (int, np.integer)) for x in given]) else max(0, math.ceil((stop - start) / step))
    device = out_sharding if device is None else device
    if state.trace is eval_trace and size <= _SMALL and dtype != dtypes.bool_:
        if dtypes.is_integer(dtype) and all([isinstance(x, (int, np.integer)) for x in given]):
            return device_put((int(start) + int(step) * np.arange(size)).astype(dtype), device)
        with np.errstate(all="ignore"):
            return device_put((np.arange(size).astype(dtype) * np.asarray(step).astype(dtype) + np.asarray(start).astype(dtype)).astype(dtype), device)
    out = lax.iota(dtype, size)
    if step != 1:
        out = out * _number(step, dtype)
    if start != 0:
        out = out + _number(start, dtype)
    return placed(out, device)


def _known(function: str, name: str, x):
    """A real number that is known while tracing, as a Python or NumPy scalar."""
    if isinstance(x, (int, float)):
        return x
    if isinstance(x, Tracer):
        value = x._trace.concrete(x) if x._trace.alive else None
        if value is None:
            raise errors.shape_depends_on_value(f"jnp.{function}", name, whence(x)) if x._trace.alive else leaked(x)
        x = value
    host = np.asarray(x)
    if host.dtype.kind == "c":
        raise ValueError(f"{function}: {name} must be real, got {x!r}")
    if host.ndim or host.dtype.kind in "OSUMmV" and host.dtype not in dtypes.all_dtypes:
        raise TypeError(f"{function}: {name} must be a real number, got {x!r:.60} of type {type(x).__name__}")
    return host[()]


def linspace(start, stop, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype=None, axis: int = 0, *, device=None):
    """`num` evenly spaced numbers from start to stop: start + i (stop - start) / (num - 1), without endpoint / num.

    start, stop: numbers or arrays that broadcast; the samples stand along `axis` of the result. dtype None: the floating one in
    which they meet; of integers, values are rounded down. retstep: return (samples, distance) instead.
    Raises ValueError for negative num.
    """
    num = known_int(num, "the function", "num")
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    if dtype is not None:
        dtype = dtypes.requested(dtype, "linspace")
    arraylike("linspace", start, stop)
    if state.trace is eval_trace and num <= _SMALL and all([isinstance(x, (int, float, complex)) for x in (start, stop)]):
        computed = dtypes.to_inexact(dtypes.result_type(start, stop))
        out, step = np.linspace(start, stop, num, endpoint, True, dtype=np.complex128 if dtypes.is_complex(computed) else np.float64)
        if dtype is not None and dtypes.is_integer(dtype):
            out = np.floor(out)
        with np.errstate(all="ignore"):
            out = device_put(out.astype(computed if dtype is None else dtype), device)
        return (out, device_put(np.asarray(step).astype(computed)[()])) if retstep else out
    out, step = _linspace(start, stop, num, bool(endpoint), dtype, operator.index(axis))
    out = placed(out, device)
    return (out, step) if retstep else out


@library(static_argnames=("num", "endpoint", "dtype", "axis"))
def _linspace(start, stop, num, endpoint, dtype, axis):
    start, stop = map(as_array, promote_dtypes_inexact(start, stop))
    computed = start.dtype
    shape = np.broadcast_shapes(start.shape, stop.shape)
    start, stop = broadcast_to_shape(start, shape), broadcast_to_shape(stop, shape)
    intervals = num - 1 if endpoint else num
    step = (stop - start) / intervals if intervals > 0 else full(shape, math.nan, computed)
    ndim = len(shape) + 1
    axis = axis + ndim if axis < 0 else axis
    real = dtypes.to_real(computed)
    count = lax.convert_element_type(lax.broadcast_in_dim(lax.iota(real, num), (num, *shape), (0,)), computed)
    along = lambda x: lax.broadcast_in_dim(x, (num, *shape), tuple(range(1, ndim)))
    out = along(start) + count * along(step) if intervals > 0 else along(start)
    last = lax.expand_dims(stop, (0,))
    if endpoint and num > 1:
        out = lax.concatenate([lax.slice_in_dim(out, 0, num - 1), last], 0)
    if dtype is not None and dtypes.is_integer(dtype):
        out = lax.floor(out)
    out = moveaxis(out, 0, axis)
    return lax.convert_element_type(out, computed if dtype is None else dtype), step


def logspace(start, stop, num: int = 50, endpoint: bool = True, base=10.0, dtype=None, axis: int = 0):
    """base to the powers linspace(start, stop, num, endpoint)."""
    out = lax.pow(*promote_dtypes_inexact(as_array(base), linspace(start, stop, num, endpoint, axis=axis)))
    return out if dtype is None else astype(out, dtype)


def geomspace(start, stop, num: int = 50, endpoint: bool = True, dtype=None, axis: int = 0):
    """`num` numbers from start to stop, each the one before times a constant.

    start, stop: numbers other than 0, or arrays of them that broadcast, of one sign (or complex).
    """
    num = known_int(num, "the function", "num")
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    out = _geomspace(start, stop, num, bool(endpoint), operator.index(axis))
    return out if dtype is None else astype(out, dtype)


@library(static_argnames=("num", "endpoint", "axis"))
def _geomspace(start, stop, num, endpoint, axis):
    start, stop = map(as_array, promote_dtypes_inexact(*arraylike("geomspace", start, stop)))
    shape = np.broadcast_shapes(start.shape, stop.shape)
    start, stop = broadcast_to_shape(start, shape), broadcast_to_shape(stop, shape)
    sign = lax.sign(start)
    out = lax.exp(linspace(lax.log(start / sign), lax.log(stop / sign), num, endpoint)) * (lax.expand_dims(sign, (0,)) if shape else sign)
    inner_end = num - 1 if endpoint and num > 1 else num                # the ends are exact
    parts = [lax.expand_dims(start, (0,))][:num] + [lax.slice_in_dim(out, 1, inner_end)] * (inner_end > 1)
    parts += [lax.expand_dims(stop, (0,))] * (inner_end < num)
    out = lax.concatenate(parts, 0) if parts else out
    return moveaxis(out, 0, axis + out.ndim if axis < 0 else axis)


# --- of zeros and ones ---------------------------------------------------------------------------------------------------------------

def _bands(rows: int, columns: int, dtype, host: Callable, traced: Callable, device=None):
    if state.trace is eval_trace and rows * columns <= _SMALL:
        return device_put(host(), device)
    i, j = [lax.broadcasted_iota(np.int32, (rows, columns), d) for d in (0, 1)]
    out = lax.convert_element_type(traced(i, j), dtype)
    return placed(out, device)


def eye(N: int, M: int | None = None, k=0, dtype=None, *, device=None):
    """The N × M matrix (M = N by default) with ones where column - row = k, zeros elsewhere; k may be an array scalar."""
    rows, columns = known_int(N, "jnp.eye", "N"), known_int(N if M is None else M, "jnp.eye", "M")
    if rows < 0 or columns < 0:
        raise ValueError(f"negative dimensions are not allowed, got {N} and {M}")
    dtype = dtypes.requested(dtype, "eye")
    if hasattr(k, "aval"):
        i, j = [lax.broadcasted_iota(k.dtype, (rows, columns), d) for d in (0, 1)]
        return lax.convert_element_type(lax.eq(j - i, k), dtype)
    k = operator.index(k)
    return _bands(rows, columns, dtype, lambda: np.eye(rows, columns, k).astype(dtype), lambda i, j: lax.eq(j - i, k), device)


def identity(n: int, dtype=None):
    """The n × n identity matrix: 1 on the diagonal and 0 elsewhere, of the default float dtype unless `dtype` is given."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype=None):
    """The N × M matrix with ones where column - row <= k, zeros elsewhere."""
    rows, columns, k = known_int(N, "jnp.tri", "N"), known_int(N if M is None else M, "jnp.tri", "M"), known_int(k, "jnp.tri", "k")
    dtype = dtypes.requested(np.float32 if dtype is None else dtype, "tri")
    return _bands(rows, columns, dtype, lambda: np.tri(rows, columns, k).astype(dtype), lambda i, j: lax.le(j - i, k))
