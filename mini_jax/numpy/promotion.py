"""Promotion: bringing the operands of a function to one dtype (JAX's lattice) and to one shape (NumPy's broadcasting)."""
from __future__ import annotations

import functools
import warnings
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import config, dtypes
from mini_jax.core.errors import IncompatibleShapesError
from mini_jax.core.state import state
from mini_jax.core.trace import eval_trace, is_value, typeof
from mini_jax.lax.shapes import canonical_shape
from mini_jax.runtime.array import device_put

_python_scalars = (bool, int, float, complex)


_values: set[type] = set()                # classes whose instances are known to be arrays or numbers as they are


def arraylike(name: str, *args) -> Sequence:
    """The arguments, each an array or a number. Raises TypeError naming the function and the position of one that is neither."""
    for x in args:
        if type(x) not in _values:
            return _checked(name, args)
    return args


def _checked(name: str, args: Sequence) -> Sequence:
    for position, x in enumerate(args):
        if not is_value(x):
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}."
                            + (" Make an array of it first: mini_jax.numpy.array(...)." if isinstance(x, (list, tuple)) else ""))
        if not hasattr(x, "__jax_array__"):
            _values.add(type(x))
    return tuple([x.__jax_array__() if hasattr(x, "__jax_array__") else x for x in args])


def as_array(x):
    """A number or NumPy array as an array; numbers stay numbers of the program that is being traced."""
    if hasattr(x, "aval"):
        return x
    if state.trace is not eval_trace and not np.ndim(x):
        aval = typeof(x)
        return lax.convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type)
    return device_put(x)


def array_argument(name: str, x):
    """The argument as an array; TypeError naming the function if it is neither array nor number."""
    return as_array(arraylike(name, x)[0])


# --- dtypes --------------------------------------------------------------------------------------------------------------

_limits = {d: (float(dtypes.finfo(d).min), float(dtypes.finfo(d).max)) for d in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)}


def converted(x, dtype, weak_type: bool = False):
    """`x` as an operand of dtype `dtype`: numbers and NumPy arrays at once, others by an operation."""
    return x if typeof(x).dtype == dtype else _converted(x, dtype, weak_type)


def _converted(x, dtype, weak_type):
    if isinstance(x, _python_scalars) and not isinstance(x, np.generic):
        if weak_type:
            kind = dtypes.scalar_type_of(dtype)
            if dtypes.canonicalize(kind) == dtype:
                return kind(x)
        limits = _limits.get(dtype)
        if limits is not None and type(x) in (int, float) and limits[0] <= x <= limits[1]:
            return dtype.type(x)
        x = np.asarray(x)
    if isinstance(x, (np.ndarray, np.generic)):
        with np.errstate(all="ignore"):
            return x.astype(dtype) if x.ndim else x.astype(dtype)[()]
    return lax.convert_element_type(x, dtype, weak_type)


def _promoted(args: Sequence, target=None) -> Sequence:
    """The operands in the dtype in which they meet, or in what `target` makes of it."""
    avals = [typeof(x) for x in args]
    dtype = avals[0].dtype
    for aval in avals:
        if aval.dtype is not dtype and aval.dtype != dtype:
            dtype, weak = dtypes.promote(*[(a.dtype, a.weak_type) for a in avals])
            break
    else:
        if target is None or target(dtype) is dtype:
            return args
        weak = all([a.weak_type for a in avals])
    if target is not None:
        dtype = target(dtype)
    return [x if aval.dtype is dtype or aval.dtype == dtype else _converted(x, dtype, weak) for x, aval in zip(args, avals)]


def promote_dtypes(*args) -> Sequence:
    """The operands in the dtype in which they meet."""
    return _promoted(args)


def promote_dtypes_inexact(*args) -> Sequence:
    """The operands in the floating or complex dtype in which they meet; integers and booleans become floats."""
    return _promoted(args, dtypes.to_inexact)


def promote_dtypes_numeric(*args) -> Sequence:
    """The operands in the dtype in which they meet; booleans become the default integer."""
    return _promoted(args, _to_number)


def _to_number(dtype):
    return dtypes.default_int() if dtype == dtypes.bool_ else dtype


# --- shapes --------------------------------------------------------------------------------------------------------------

def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The shape to which arrays of these shapes broadcast: aligned at the last dimension, sizes equal or 1.

    Raises ValueError when they do not broadcast. (NumPy: broadcast_shapes)
    """
    shapes = [canonical_shape(shape) for shape in shapes]
    out: list[int] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for i, n in enumerate(reversed(shape), 1):
            if n != 1 and out[-i] != n:
                if out[-i] != 1:
                    raise ValueError(f"Incompatible shapes for broadcasting: shapes={', '.join(map(str, shapes))}")
                out[-i] = n
    return tuple(out)


def broadcast_to_shape(x, shape: tuple[int, ...]):
    """`x` repeated to `shape`, to which it must broadcast."""
    have = typeof(x).shape
    if have == shape and hasattr(x, "aval"):
        return x
    if len(have) > len(shape) or any([n != 1 and n != m for n, m in zip(have, shape[len(shape) - len(have):])]):
        raise ValueError(f"Incompatible shapes for broadcasting: {have} and requested shape {shape}")
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - len(have), len(shape))))


def broadcast_operands(name: str, *args) -> Sequence:
    """The operands in the shape to which they broadcast; those without dimensions stay so (lax takes them as they are)."""
    shapes = tuple([typeof(x).shape for x in args])
    plan = _broadcast_plan(shapes)
    if plan is None:
        return args
    if config.numpy_rank_promotion.value != "allow" and len({len(shape) for shape in shapes if shape}) > 1:
        _complain_of_ranks(name, shapes)
    if plan == "no":
        raise IncompatibleShapesError(f"{name}: the operands' shapes do not broadcast: {', '.join(map(str, shapes))}. Sizes, aligned at the "
                         "last dimension, must be equal or 1.")
    return [x if how is None else lax.broadcast_in_dim_p.bind(x, **how) for x, how in zip(args, plan)]


@functools.lru_cache(4096)
def _broadcast_plan(shapes: tuple[tuple[int, ...], ...]):
    """For each operand the parameters of its broadcast_in_dim, or None; altogether None where no operand changes."""
    ranked = {shape for shape in shapes if shape}
    if len(ranked) <= 1:
        return None
    try:
        out = broadcast_shapes(*ranked)
    except ValueError:
        return "no"
    return tuple([{"shape": out, "broadcast_dimensions": tuple(range(len(out) - len(shape), len(out)))} if shape and shape != out else None
                  for shape in shapes])


def _complain_of_ranks(name, shapes):
    message = (f"{name}: operands of ranks {', '.join([str(len(s)) for s in shapes])} (shapes {', '.join(map(str, shapes))}) would be "
               "broadcast to one rank, which the option numpy_rank_promotion")
    if config.numpy_rank_promotion.value == "raise":
        raise ValueError(message + " forbids ('raise'): reshape them first, or set it to 'allow'.")
    state.warned += 1
    warnings.warn(message + " warns of.", UserWarning, stacklevel=4)


# --- both -----------------------------------------------------------------------------------------------------------------

def _both(promote):
    def promote_args(name: str, *args) -> Sequence:
        args = arraylike(name, *args)
        return promote(*args) if len(args) == 1 else broadcast_operands(name, *promote(*args))
    return promote_args


promote_args = _both(promote_dtypes)
promote_args_inexact = _both(promote_dtypes_inexact)
promote_args_numeric = _both(promote_dtypes_numeric)
