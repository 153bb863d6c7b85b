"""Statistics of samples: the commonest value, ranks, the standard error of the mean."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.types import AbstractValue
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["mode", "rankdata", "sem"]


class ModeResult(NamedTuple):
    """What `mode` returns."""
    mode: AbstractValue
    count: AbstractValue


def _check_policy(name: str, nan_policy: str, known: tuple[str, ...] = ("propagate",)) -> None:
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"{name}: nan_policy is 'propagate', 'omit' or 'raise', got {nan_policy!r}")
    if nan_policy not in known:
        raise NotImplementedError(f"{name}: nan_policy={nan_policy!r} is not supported; it takes {' or '.join(map(repr, known))}")


def _along(x, axis):
    """x with `axis` (None: all, flattened) as its last."""
    return lax.reshape(x, (x.size,)) if axis is None else jnp.moveaxis(x, axis, -1)


def mode(a, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """(mode, count): the commonest value along `axis` (None: of all), the least where there are several, and how often it occurs (int32).

    NaNs are equal to none: where nothing else occurs, NaN and its number. Nothing at all gives NaN and 0. Raises NotImplementedError for
    another nan_policy.
    """
    _check_policy("mode", nan_policy)
    return _mode(a, axis, bool(keepdims))


@library(static_argnames=("axis", "keepdims"))
def _mode(a, axis, keepdims):
    a = array_argument("mode", a)
    axis = None if axis is None else canonical_axis(axis, a.ndim)
    shape = (1,) * a.ndim if axis is None else (*a.shape[:axis], 1, *a.shape[axis + 1:])
    x = _along(a, axis)
    if not x.shape[-1]:
        found, count = jnp.full(x.shape[:-1], np.nan, dtypes.default_float()), jnp.zeros(x.shape[:-1], dtypes.int32)
    else:
        x = jnp.sort(x, -1)
        new = jnp.concatenate([jnp.ones_like(x[..., :1], bool), x[..., 1:] != x[..., :-1]], -1)
        place = jnp.broadcast_to(jnp.arange(x.shape[-1], dtype=dtypes.int32), x.shape)
        begun = lax.cummax(jnp.where(new, place, 0), x.ndim - 1)
        run = place - begun + 1
        best = jnp.argmax(run, -1, keepdims=True)
        found, count = [jnp.take_along_axis(y, best, -1)[..., 0] for y in (x, run)]
        if dtypes.is_floating(x.dtype):
            lost = jnp.isnan(found)
            count = jnp.where(lost, jnp.sum(jnp.isnan(x), -1, dtype=dtypes.int32), count)
    if keepdims:
        found, count = found.reshape(shape), count.reshape(shape)
    return ModeResult(found, count)


def rankdata(a, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"):
    """The ranks of the elements along `axis` (None: of all, flattened), the least being 1; floating numbers.

    method: what equal elements get: the 'average', 'min' or 'max' of their ranks, 'dense' (the next greater gets one more), or 'ordinal' (in
    the order of their positions). Where there is a NaN, all ranks are NaN. Raises ValueError for another method, NotImplementedError for
    another nan_policy.
    """
    _check_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"rankdata: method is 'average', 'min', 'max', 'dense' or 'ordinal', got {method!r}")
    return _rankdata(a, method, axis)


@library(static_argnames=("method", "axis"))
def _rankdata(a, method, axis):
    a = array_argument("rankdata", a)
    x = _along(a, axis)
    n, last = x.shape[-1], x.ndim - 1
    order = jnp.argsort(x, -1)
    sorted_x = jnp.take_along_axis(x, order, -1)
    place = jnp.broadcast_to(jnp.arange(1, n + 1, dtype=dtypes.int32), x.shape)
    new = jnp.concatenate([jnp.ones_like(x[..., :1], bool), sorted_x[..., 1:] != sorted_x[..., :-1]], -1)
    ends = jnp.concatenate([new[..., 1:], jnp.ones_like(x[..., :1], bool)], -1)
    least = lax.cummax(jnp.where(new, place, 0), last)
    greatest = lax.cummin(jnp.where(ends, place, n), last, reverse=True)
    ranks = {"ordinal": lambda: place, "min": lambda: least, "max": lambda: greatest, "average": lambda: (least + greatest) / 2,
             "dense": lambda: lax.cumsum(new.astype(dtypes.int32), last)}[method]()
    back = jnp.argsort(order, -1)
    ranks = jnp.take_along_axis(ranks, back, -1).astype(dtypes.default_float())
    if dtypes.is_floating(x.dtype):
        ranks = jnp.where(jnp.any(jnp.isnan(x), -1, keepdims=True), np.nan, ranks)
    return ranks if axis is None else jnp.moveaxis(ranks, -1, axis)


def sem(a, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False):
    """The standard error of the mean, the standard deviation (of `ddof`) divided by √n, along `axis` (None: of all).

    nan_policy: 'propagate' NaNs, or 'omit' them. Raises NotImplementedError for 'raise'.
    """
    _check_policy("sem", nan_policy, ("propagate", "omit"))
    return _sem(a, axis, ddof, nan_policy == "omit", bool(keepdims))


@library(static_argnames=("axis", "ddof", "omit", "keepdims"))
def _sem(a, axis, ddof, omit, keepdims):
    a = as_array(promote_dtypes_inexact(*arraylike("sem", a))[0])
    counted = ~jnp.isnan(a) if omit else None
    n = jnp.sum(counted, axis, keepdims=keepdims).astype(a.dtype) if omit else a.size if axis is None else a.shape[axis]
    return jnp.std(a, axis, ddof=ddof, where=counted, keepdims=keepdims) / jnp.sqrt(n).astype(a.dtype)
