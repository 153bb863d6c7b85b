"""The methods of universal functions: add.reduce, add.accumulate, add.at, add.outer, add.reduceat; and ufuncs of one's own (frompyfunc).

Where a reduction or scan of its own does the same, a method is that; else the function is folded, element after element.
"""
from __future__ import annotations

import operator
from typing import Any, Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy import reductions, ufuncs
from mini_jax.numpy.creation import asarray
from mini_jax.numpy.manipulation import broadcast_to, moveaxis, ravel
from mini_jax.numpy.mapping import vectorize
from mini_jax.numpy.promotion import array_argument, arraylike, as_array
from mini_jax.numpy.ufuncs import as_bool, unsupported_out

__all__ = ["ufunc", "frompyfunc"]

_REDUCTIONS = {"add": reductions.sum, "multiply": reductions.prod, "maximum": reductions.max, "minimum": reductions.min}
_SCANS = {"add": reductions.cumsum, "multiply": reductions.cumprod}
_UPDATES = {"add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "max", "minimum": "min", "power": "power"}
_IDENTITIES = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False, "logical_xor": False, "bitwise_and": -1, "bitwise_or": 0,
               "bitwise_xor": 0}


class ufunc:
    """A function of `nin` numbers that gives `nout` numbers, mapped over arrays that broadcast, with NumPy's ufunc methods.

    identity: the number i for which func(i, x) = x, from which reductions start; None: they need at least one element.
    """

    def __init__(self, func: Callable, /, nin: int, nout: int, *, name: str | None = None, nargs: int | None = None, identity: Any = None,
                 call: Callable | None = None):
        self.__name__ = name or getattr(func, "__name__", "ufunc")
        self.__doc__ = func.__doc__ or type(self).__doc__
        self._call = call or vectorize(func)
        self.nin, self.nout, self.identity, self.nargs = operator.index(nin), operator.index(nout), identity, nargs or nin

    def __call__(self, *args, out=None, where=None):
        unsupported_out(self.__name__, out)
        if where is not None:
            raise NotImplementedError(f"{self.__name__}: the argument `where` is not supported; use jnp.where on the result")
        if len(args) != self.nargs:
            raise TypeError(f"{self.__name__} takes {self.nargs} arguments, got {len(args)}")
        return self._call(*args)

    def __repr__(self):
        return f"<ufunc {self.__name__!r}>"

    def _needs(self, method: str, nin: int = 2):
        if self.nin != nin or self.nout != 1:
            raise ValueError(f"{self.__name__}.{method} is defined for functions of {nin} arguments and one result")

    def reduce(self, a, axis=0, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
        """func(…func(func(a₀, a₁), a₂)…) of the elements along `axis` (an int, several, or None: all)."""
        self._needs("reduce")
        unsupported_out(f"{self.__name__}.reduce", out)
        known = _REDUCTIONS.get(self.__name__)
        if known is not None:
            if known in (reductions.max, reductions.min):
                return known(a if dtype is None else asarray(a, dtype), axis, None, keepdims, initial, where)
            return known(a, axis, dtype, None, keepdims, initial, where)
        a = array_argument(f"{self.__name__}.reduce", a)
        if dtype is not None:
            a = lax.convert_element_type(a, dtype)
        axes = reductions.reduced_axes(reductions.static_axis(axis), a.ndim)
        kept = [i for i in range(a.ndim) if i not in axes]
        rows = lax.reshape(lax.transpose(a, [*axes, *kept]), (int(np.prod([a.shape[i] for i in axes], initial=1)), *[a.shape[i] for i in kept]))
        start = self.identity if initial is None else initial
        if start is None and (where is not None or not rows.shape[0]):
            raise ValueError(f"reduction operation {self.__name__} does not have an identity, so `initial` must be given here")
        if where is not None:
            chosen = lax.transpose(broadcast_to(as_bool(as_array(where)), a.shape), [*axes, *kept])
            chosen = lax.reshape(chosen, rows.shape)
        init = rows[0] if start is None else self._first(start, rows)
        rest = rows[1:] if start is None else rows

        def step(carry, x):
            made = self._call(carry, x if where is None else x[0])
            return made if where is None else lax.select(x[1], made, carry), None
        init = lax.convert_element_type(init, self._result_type(init, rows))
        result = lax.scan(step, init, rest if where is None else (rest, chosen))[0]
        return lax.expand_dims(result, axes) if keepdims and axes else result

    def _first(self, start, rows):
        return broadcast_to(lax.convert_element_type(start, rows.dtype) if not dtypes.is_bool(rows.dtype) or isinstance(start, bool) else asarray(bool(start)),
                            rows.shape[1:])

    def _result_type(self, init, rows):
        from mini_jax.transforms.api import eval_shape
        return eval_shape(self._call, init, init).dtype

    def accumulate(self, a, axis: int = 0, dtype=None, out=None):
        """The reductions of the first 1, 2, … elements along `axis`."""
        self._needs("accumulate")
        unsupported_out(f"{self.__name__}.accumulate", out)
        axis = operator.index(axis)
        if self.__name__ in _SCANS:
            return _SCANS[self.__name__](a, axis, dtype)
        a = array_argument(f"{self.__name__}.accumulate", a)
        if dtype is not None:
            a = lax.convert_element_type(a, dtype)
        if not a.ndim:
            raise ValueError(f"{self.__name__}.accumulate: cannot accumulate over an array without dimensions")
        axis = canonical_axis(axis, a.ndim)
        rows = moveaxis(a, axis, 0)
        if not rows.shape[0]:
            return a
        first = lax.convert_element_type(rows[0], self._result_type(rows[0], rows))

        def step(carry, x):
            made = self._call(carry, x)
            return made, made
        later = lax.scan(step, first, rows[1:])[1]
        return moveaxis(lax.concatenate([lax.expand_dims(first, (0,)), later], 0), 0, axis)

    def at(self, a, indices, b=None, /, *, inplace: bool = True):
        """`a` with func(a[i], b) in the place of a[i] for each of the indices, repeated ones again and again.

        Arrays are immutable: pass inplace=False (else NotImplementedError).
        """
        if inplace:
            raise NotImplementedError(f"{self.__name__}.at: arrays are immutable, so it cannot work in place; pass inplace=False and use the result")
        a = array_argument(f"{self.__name__}.at", a)
        if b is None:
            self._needs("at without a second operand", 1)
            return a.at[indices].set(lax.convert_element_type(self._call(a[indices]), a.dtype))
        self._needs("at")
        update = _UPDATES.get(self.__name__)
        if update is not None and update != "power":
            return getattr(a.at[indices], update)(b)
        places = lax.reshape(lax.iota(np.dtype(np.int32), a.size), a.shape)[indices]
        values = ravel(broadcast_to(array_argument(f"{self.__name__}.at", b), places.shape))

        def step(flat, pair):
            place, value = pair
            return flat.at[place].set(lax.convert_element_type(self._call(flat[place], value), flat.dtype)), None
        return lax.reshape(lax.scan(step, ravel(a), (ravel(places), values))[0], a.shape)

    def reduceat(self, a, indices, axis: int = 0, dtype=None, out=None):
        """The reductions of a[indices[i]:indices[i + 1]] along `axis`, of the last to the end; where that is empty, a[indices[i]]."""
        self._needs("reduceat")
        unsupported_out(f"{self.__name__}.reduceat", out)
        a = array_argument(f"{self.__name__}.reduceat", a)
        if dtype is not None:
            a = lax.convert_element_type(a, dtype)
        axis = canonical_axis(axis, a.ndim)
        starts = array_argument(f"{self.__name__}.reduceat", indices)
        if starts.ndim != 1:
            raise ValueError(f"{self.__name__}.reduceat: indices must be a vector, got {starts.aval}")
        rows = moveaxis(a, axis, 0)
        n, k = rows.shape[0], starts.shape[0]
        ends = lax.concatenate([starts[1:], lax.full((1,), n, starts.dtype)], 0)
        first = rows[starts]
        first = lax.convert_element_type(first, self._result_type(first, rows))
        column = lambda mask: lax.broadcast_in_dim(mask, first.shape, (0,))

        def step(carry, item):
            i, x = item
            inside = lax.bitwise_and(lax.gt(lax.broadcast(i, (k,)), starts), lax.lt(lax.broadcast(i, (k,)), ends))
            return lax.select(column(inside), self._call(carry, broadcast_to(x, carry.shape)), carry), None
        return moveaxis(lax.scan(step, first, (lax.iota(starts.dtype, n), rows))[0], 0, axis)

    def outer(self, A, B, /):
        """func(A[i], B[j]) for all pairs of elements: an array of shape A.shape + B.shape."""
        self._needs("outer")
        A, B = map(as_array, arraylike(f"{self.__name__}.outer", A, B))
        return self._call(lax.reshape(A, (*A.shape, *(1,) * B.ndim)), B)


def frompyfunc(func: Callable, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """The universal function that maps `func`, of nin numbers to nout numbers, over arrays; see `ufunc`."""
    return ufunc(func, nin, nout, identity=identity)


for _name in ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2",
              "arctan2", "hypot", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
              "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "gcd", "lcm", "power"):
    _function = getattr(ufuncs, _name)
    _methods = ufunc(_function, 2, 1, name=_name, identity=_IDENTITIES.get(_name), call=_function)
    for _method in ("reduce", "accumulate", "at", "reduceat", "outer"):
        setattr(_function, _method, getattr(_methods, _method))
