"""Operators and methods of arrays and of traced values: `x + y`, `x @ y`, `x[i]`, `x.sum()`, `x.T`, …

On arrays the operators are C++ dispatchers, set on the class, so that a repeated `x + y` never enters Python. On tracers they go
straight to the primitive where the operands already have one type, or one is a Python number of the fitting kind; all
other cases take the universal function's way of promotion and broadcasting.
"""
from __future__ import annotations

import builtins
from typing import Callable


from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, is_value
from mini_jax.lax.rows import ANY, NUMBERS, REALS
from mini_jax.numpy import creation, diagonals, indexing, manipulation, products, reductions, selecting, sorting, ufuncs
from mini_jax.runtime import xla
from mini_jax.runtime.array import ArrayImpl

_INEXACT = frozenset(dtypes.floats | dtypes.complexes)
_INTEGRAL = frozenset(dtypes.integers | {dtypes.bool_})

# operator, the function it is, the primitive that this is for operands of one of these dtypes
_BINARY = [
    ("add", ufuncs.add, lax.add_p, NUMBERS),
    ("sub", ufuncs.subtract, lax.sub_p, NUMBERS),
    ("mul", ufuncs.multiply, lax.mul_p, NUMBERS),
    ("truediv", ufuncs.divide, lax.div_p, _INEXACT),
    ("floordiv", ufuncs.floor_divide, None, ()),
    ("mod", ufuncs.remainder, None, ()),
    ("divmod", ufuncs.divmod, None, ()),
    ("pow", ufuncs.power, lax.pow_p, _INEXACT),
    ("matmul", products.matmul, None, ()),
    ("and", ufuncs.bitwise_and, lax.and_p, _INTEGRAL),
    ("or", ufuncs.bitwise_or, lax.or_p, _INTEGRAL),
    ("xor", ufuncs.bitwise_xor, lax.xor_p, _INTEGRAL),
    ("lshift", ufuncs.left_shift, None, ()),
    ("rshift", ufuncs.right_shift, None, ()),
]
_COMPARISONS = [
    ("eq", ufuncs.equal, lax.eq_p, ANY), ("ne", ufuncs.not_equal, lax.ne_p, ANY), ("lt", ufuncs.less, lax.lt_p, REALS),
    ("le", ufuncs.less_equal, lax.le_p, REALS), ("gt", ufuncs.greater, lax.gt_p, REALS), ("ge", ufuncs.greater_equal, lax.ge_p, REALS),
]
_UNARY = [("neg", ufuncs.negative), ("pos", ufuncs.positive), ("abs", ufuncs.absolute), ("invert", ufuncs.invert)]


# --- on tracers ---------------------------------------------------------------------------------------------------------------

class _Direct(dict):
    """For each type of an operand: which numbers go with it directly, and within which limits.

    {type: {kind: (low, high, make)}}: a number of class `kind` within the limits becomes the literal make(number). Nothing
    goes directly with a type whose dtype is not accepted.
    """

    def __init__(self, accepted):
        self.accepted = frozenset(accepted)

    def __missing__(self, aval):
        if builtins.len(self) > 4096:
            self.clear()
        made = self[aval] = self._plan(aval)
        return made

    def _plan(self, aval):
        dtype = aval.dtype
        if dtype not in self.accepted:
            return None
        if aval.weak_type or dtypes.itemsize_bits(dtype) < 16:
            return {}
        if dtypes.is_integer(dtype):
            info = dtypes.iinfo(dtype)
            default = dtypes.iinfo(dtypes.default_int())
            return {int: (max(int(info.min), int(default.min)), min(int(info.max), int(default.max)), dtype.type),
                    dtype.type: (info.min, info.max, _itself)}
        limit = float(dtypes.finfo(dtypes.to_real(dtype)).max)
        whole = min(limit, 2.0 ** 31 - 1)
        kinds = {float: (-limit, limit, dtype.type), int: (-whole, whole, dtype.type)}
        return kinds if dtypes.is_complex(dtype) else {**kinds, dtype.type: (-limit, limit, _itself)}


def _itself(x):
    return x


def _tracer_operator(fun: Callable, primitive, accepted, reflected: bool = False) -> Callable:
    """The operator on tracers; reflected: the tracer is the right operand."""
    general = getattr(fun, "recording", fun)
    direct = _Direct(accepted)

    def apply(x, y):
        aval = x.aval
        plan = direct[aval]
        if plan is not None:
            number = plan.get(type(y))
            if number is not None:
                low, high, make = number
                if low <= y <= high:
                    return state.trace.process(primitive, (make(y), x) if reflected else (x, make(y)), {})
            elif getattr(y, "aval", None) is aval:
                return state.trace.process(primitive, (y, x) if reflected else (x, y), {})
        if not is_value(y):
            return NotImplemented
        return general(y, x) if reflected else general(x, y)
    return apply


def _tracer_power(x, y):
    if type(y) is int:
        return ufuncs.power(x, y)
    return _general_power(x, y)


_general_power = _tracer_operator(ufuncs.power, lax.pow_p, _INEXACT)


# --- on arrays -----------------------------------------------------------------------------------------------------------------

def _array_operator(fun: Callable, reflected: bool = False, mirrored: bool = False) -> Callable:
    """The operator on arrays: the function's own dispatcher, but an operand that is no value is left to its own class.
    mirrored: so is a tracer, whose class has the same operator with its operands exchanged."""
    if not hasattr(fun, "_cache_miss"):                  # a Python function around dispatchers
        def apply(x, y):
            if not is_value(y):
                return NotImplemented
            return fun(y, x) if reflected else fun(x, y)
        return apply
    miss = fun._cache_miss
    if reflected:
        return lambda x, y: fun(y, x) if is_value(y) else NotImplemented

    def checked(x, y):
        return (NotImplemented, None, False) if mirrored and isinstance(y, Tracer) or not is_value(y) else miss(x, y)
    return xla.dispatcher(fun.__name__, fun.__wrapped__, checked)


# --- methods -------------------------------------------------------------------------------------------------------------------

def _astype(self, dtype, copy: bool = False, device=None):
    """The array converted to `dtype`; None: the default float."""
    return creation.astype(self, dtype, copy=copy, device=device)


def _reshape(self, *shape, order: str = "C"):
    """The array in another shape: x.reshape(2, 3) or x.reshape((2, 3)); one size may be -1."""
    return manipulation.reshape(self, shape[0] if len(shape) == 1 else shape, order)


def _compress(self, condition, axis: int | None = None, *, size: int | None = None, fill_value=0, out=None):
    """The elements along `axis` (None: of the flattened array) where the condition, a vector of booleans, holds."""
    return selecting.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


def _transpose(self, *axes):
    """The array with its axes permuted: x.transpose(1, 0) or x.transpose((1, 0)); without axes reversed."""
    return manipulation.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def _flatten(self, order: str = "C"):
    """All elements in one dimension."""
    return manipulation.ravel(self, order)


def _view(self, dtype=None):
    """The same bytes read as another dtype; the last dimension's size changes with the width."""
    return manipulation.view(self, dtype)


def _clip(self, min=None, max=None):
    """The elements limited to [min, max]."""
    return ufuncs.clip(self, min, max)


def _python_round(self, ndigits: int | None = None):
    """round(x, n); without n, as of Python's numbers, the nearest integers as integers."""
    if ndigits is not None or dtypes.is_integer(self.dtype):
        return ufuncs.round(self, ndigits or 0)
    return lax.convert_element_type(ufuncs.round(self), dtypes.default_int())


def _iterate(self):
    if not self.ndim:
        raise TypeError("iteration over a 0-d array")
    if isinstance(self, Tracer):
        return iter([lax.index_in_dim(self, i, keepdims=False) for i in range(self.shape[0])])
    return (indexing.getitem(self, i) for i in range(self.shape[0]))


def _immutable(self, index, value):
    raise TypeError(f"arrays are immutable, so x[{index!r:.60}] = … cannot be done in place; write "
                    f"x = x.at[{index!r:.60}].set(…), which makes a new array")


def _to_device(self, device, /, *, stream=None):
    """The array on another device. (Python array API: to_device)"""
    if stream is not None:
        raise NotImplementedError("to_device: the argument `stream` is not supported; transfers are ordered by their data")
    return creation.placed(self, device)


def _namespace(self, *, api_version: None | str = None):
    """The module of the functions that work on this array. (Python array API standard)"""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"version {api_version!r} of the array API is not known here; 2024.12 is")
    from mini_jax import numpy
    return numpy


_METHODS: dict[str, Callable] = {
    "__getitem__": indexing.getitem, "__iter__": _iterate, "__setitem__": _immutable, "__array_namespace__": _namespace,
    "__round__": _python_round,
    "astype": _astype, "reshape": _reshape, "transpose": _transpose, "flatten": _flatten, "view": _view, "clip": _clip, "to_device": _to_device,
    "ravel": manipulation.ravel, "repeat": manipulation.repeat, "squeeze": manipulation.squeeze, "swapaxes": manipulation.swapaxes,
    "round": ufuncs.round, "conj": ufuncs.conjugate, "conjugate": ufuncs.conjugate,
    "dot": products.dot, "diagonal": diagonals.diagonal, "trace": diagonals.trace,
    "take": indexing.take, "choose": selecting.choose, "compress": _compress,
    "sort": sorting.sort, "argsort": sorting.argsort, "argpartition": sorting.argpartition, "searchsorted": sorting.searchsorted,
    "nonzero": sorting.nonzero,
} | {name: getattr(reductions, name) for name in (
    "sum", "prod", "mean", "std", "var", "max", "min", "ptp", "all", "any", "argmax", "argmin", "cumsum", "cumprod")}

_PROPERTIES: dict[str, property] = {
    "T": property(lambda self: manipulation.transpose(self), doc="The array with its axes reversed."),
    "mT": property(lambda self: manipulation.matrix_transpose(self), doc="The array with its last two axes exchanged."),
    "real": property(lambda self: ufuncs.real(self), doc="The real part."),
    "imag": property(lambda self: ufuncs.imag(self), doc="The imaginary part."),
    "at": property(indexing.AtHelper, doc="x.at[index].set(value) and the like: a new array with elements changed."),
}


def _install() -> None:
    for name, fun, primitive, accepted in _BINARY:
        forward, backward = f"__{name}__", f"__r{name}__"
        setattr(ArrayImpl, forward, _array_operator(fun, mirrored=True))
        setattr(ArrayImpl, backward, _array_operator(fun, reflected=True))
        setattr(Tracer, forward, _tracer_operator(fun, primitive, accepted))
        setattr(Tracer, backward, _tracer_operator(fun, primitive, accepted, reflected=True))
    for name, fun, primitive, accepted in _COMPARISONS:
        setattr(ArrayImpl, f"__{name}__", _array_operator(fun))
        setattr(Tracer, f"__{name}__", _tracer_operator(fun, primitive, accepted))
    Tracer.__pow__ = _tracer_power
    for name, fun in _UNARY:
        setattr(ArrayImpl, f"__{name}__", fun)
        setattr(Tracer, f"__{name}__", fun.recording)
    for name, fun in (_METHODS | _PROPERTIES).items():
        setattr(ArrayImpl, name, fun)
        setattr(Tracer, name, getattr(fun, "recording", fun))
    for name in ("__hash__",):                           # defining == takes it away in Python; arrays never had it
        setattr(Tracer, name, None)
    Tracer.copy = lambda self: self


_install()
