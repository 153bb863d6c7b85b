"""Comparison of whole arrays: allclose, array_equal, array_equiv."""
from __future__ import annotations

import numpy as np

from mini_jax.numpy.creation import asarray
from mini_jax.numpy.promotion import arraylike, as_array
from mini_jax.numpy.reductions import all as _all
from mini_jax.numpy.ufuncs import equal, isclose, isnan, logical_and, logical_or
from mini_jax.runtime.dispatch import library

__all__ = ["allclose", "array_equal", "array_equiv"]


@library(static_argnames=("equal_nan",))
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Whether |a - b| <= atol + rtol |b| everywhere: all(isclose(a, b, …))."""
    arraylike("allclose", a, b)
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1, a2, equal_nan: bool = False):
    """Whether two arrays have one shape and equal elements; NaNs are equal with equal_nan. A boolean scalar."""
    a1, a2 = asarray(a1), asarray(a2)
    if a1.shape != a2.shape:
        return as_array(np.bool_(False))
    return _array_equal(a1, a2, bool(equal_nan))


@library(static_argnames=("equal_nan",))
def _array_equal(a1, a2, equal_nan):
    same = equal(a1, a2)
    return _all(logical_or(same, logical_and(isnan(a1), isnan(a2))) if equal_nan else same)


def array_equiv(a1, a2):
    """Whether two arrays broadcast to each other and are equal then. A boolean scalar."""
    a1, a2 = asarray(a1), asarray(a2)
    try:
        np.broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return as_array(np.bool_(False))
    return _all(equal(a1, a2))
