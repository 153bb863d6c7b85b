"""Selection of elements by conditions and by number: select, piecewise, choose, compress, extract, place."""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import Tracer, typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, broadcast_shapes, broadcast_to_shape, promote_dtypes
from mini_jax.numpy.ufuncs import as_bool, unsupported_out, where
from mini_jax.runtime.dispatch import library

__all__ = ["select", "piecewise", "choose", "compress", "extract", "place"]


def select(condlist: Sequence, choicelist: Sequence, default=0):
    """Of each element the choice whose condition is the first that holds, `default` where none does.

    condlist, choicelist: equally many arrays that broadcast. Raises ValueError for none, or for different numbers of them.
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist, got {len(condlist)} and {len(choicelist)}")
    if not len(condlist):
        raise ValueError("condlist must be non-empty")
    return _select(list(condlist), list(choicelist), default)


@library
def _select(conditions, choices, default):
    arraylike("select", *conditions, *choices, default)
    *choices, out = promote_dtypes(*choices, default)
    shape = broadcast_shapes(*[typeof(x).shape for x in (*conditions, *choices, out)])
    out = broadcast_to_shape(as_array(out), shape)
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        out = where(condition, choice, out)
    return out


def piecewise(x, condlist, funclist: Sequence, *args, **kw):
    """funclist[i](x, *args, **kw) where the i-th condition is the last that holds; the last entry, if there is one more, where none does.

    x: an array. condlist: one condition, a sequence of them or an array of rows. funclist: functions, or numbers.
    Raises ValueError unless there are as many functions as conditions, or one more.
    """
    x = array_argument("piecewise", x)
    if isinstance(condlist, (list, tuple)) and condlist and not (np.ndim(condlist[0]) == 0 and x.ndim):
        conditions = list(condlist)
    elif np.ndim(condlist) == x.ndim:
        conditions = [condlist if not isinstance(condlist, (list, tuple)) else np.asarray(condlist)]
    else:
        conditions = [condlist[i] for i in range(len(condlist))]
    funclist = list(funclist)
    if len(funclist) == len(conditions):
        funclist.append(0)
    if len(funclist) != len(conditions) + 1:
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected; got {len(funclist)}")
    conditions = [broadcast_to_shape(as_bool(as_array(c)), x.shape) for c in conditions]
    out = None
    for fun, condition in zip([funclist[-1], *funclist[:-1]], [None, *conditions]):
        value = fun(x, *args, **kw) if callable(fun) else fun
        value = broadcast_to_shape(lax.convert_element_type(as_array(value), x.dtype), x.shape)
        out = value if condition is None else lax.select(condition, value, out)
    return out


def choose(a, choices, out=None, mode: str = "raise"):
    """choices[a], elementwise: of each element the choice with the number that `a` has there.

    a: integers; choices: a sequence of arrays, or an array whose rows they are; all broadcast. mode: 'raise' (a must be known), 'wrap'
    or 'clip' for numbers out of bounds.
    """
    unsupported_out("choose", out)
    a = array_argument("choose", a)
    if not dtypes.is_integer(a.dtype) and not dtypes.is_bool(a.dtype):
        raise ValueError(f"choose takes integers, got {a.aval}")
    if not isinstance(choices, (list, tuple)):
        choices = [as_array(choices)[i] for i in range(typeof(choices).shape[0])]
    n = len(choices)
    if mode == "raise":
        from mini_jax.numpy.sorting import concrete
        known = concrete("choose with mode='raise'", "whether a number is out of bounds", a)
        if known.size and not (0 <= known.min() and known.max() < n):
            raise ValueError("invalid entry in choice array")
    elif mode not in ("wrap", "clip"):
        raise ValueError(f"mode={mode!r} not understood; must be 'raise', 'wrap', or 'clip'")
    return _choose(a, list(choices), mode)


@library(static_argnames=("mode",))
def _choose(a, choices, mode):
    arraylike("choose", *choices)
    n, index = len(choices), np.dtype(np.int32)
    a = lax.convert_element_type(a, index)
    if mode == "wrap":
        from mini_jax.numpy.ufuncs import remainder
        a = remainder(a, n)
    choices = [as_array(c) for c in promote_dtypes(*choices)]
    shape = broadcast_shapes(a.shape, *[c.shape for c in choices])
    choices = [broadcast_to_shape(c, shape) for c in choices]
    return choices[0] if n == 1 else lax.select_n(broadcast_to_shape(a, shape), *choices)


def compress(condition, a, axis: int | None = None, *, size: int | None = None, fill_value=0, out=None):
    """The elements along `axis` (None: of the flattened array) where the condition, a vector of booleans, holds.

    size: how many; needed where the condition is traced; missing ones are `fill_value`.
    """
    unsupported_out("compress", out)
    condition, a = map(as_array, arraylike("compress", condition, a))
    if condition.ndim != 1:
        raise ValueError("condition must be a 1D array")
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    if condition.shape[0] > a.shape[axis]:
        condition, extra = lax.slice_in_dim(condition, 0, a.shape[axis]), lax.slice_in_dim(condition, a.shape[axis], None)
        if not isinstance(extra, Tracer) and np.asarray(extra).any():
            raise ValueError("condition contains entries that are out of bounds")
    from mini_jax.numpy.indexing import take
    from mini_jax.numpy.sorting import flatnonzero
    if size is None:
        return take(a, flatnonzero(condition), axis=axis)
    return take(a, flatnonzero(condition, size=operator.index(size), fill_value=a.shape[axis]), axis=axis, mode="fill", fill_value=fill_value)


def extract(condition, arr, *, size: int | None = None, fill_value=0):
    """The elements of `arr`, flattened, where the condition holds; size and fill_value as for `compress`."""
    condition, arr = map(as_array, arraylike("extract", condition, arr))
    return compress(lax.reshape(condition, (condition.size,)), lax.reshape(arr, (arr.size,)), size=size, fill_value=fill_value)


def place(arr, mask, vals, *, inplace: bool = True):
    """`arr` with its elements where the mask holds replaced by those of `vals` in turn, repeated as often as needed.

    Arrays are immutable: pass inplace=False (else NotImplementedError).
    """
    if inplace:
        raise NotImplementedError("place: arrays are immutable, so it cannot work in place; pass inplace=False and use the result")
    return _place(*map(as_array, arraylike("place", arr, mask, vals)))


@library
def _place(arr, mask, vals):
    mask, vals = lax.reshape(as_bool(mask), (arr.size,)), lax.reshape(lax.convert_element_type(vals, arr.dtype), (vals.size,))
    if not vals.size:
        raise ValueError("Cannot place values from an empty array")
    from mini_jax.numpy.indexing import take
    nth = lax.rem(lax.cumsum(lax.convert_element_type(mask, np.int32), 0) - 1 + vals.size, vals.size)
    return lax.reshape(lax.select(mask, take(vals, nth, mode="clip"), lax.reshape(arr, (arr.size,))), arr.shape)
