"""Arrays as files and as text: NumPy's own functions, reading into arrays."""
from __future__ import annotations

from numpy import get_printoptions, printoptions, save, savez, set_printoptions

import numpy as np

from mini_jax.numpy.creation import asarray

__all__ = ["load", "save", "savez", "fromfile", "fromiter", "array_repr", "array_str", "get_printoptions", "printoptions", "set_printoptions", "iterable"]

iterable = np.iterable


def load(file, *args, **kwargs):
    """The array in an .npy file (or what else numpy.load finds there). bfloat16 and the like, which NumPy saves as bytes, stay bytes."""
    out = np.load(file, *args, **kwargs)
    return asarray(out) if isinstance(out, np.ndarray) and out.dtype.kind in "biufc" else out


def fromfile(*args, **kwargs):
    """The array in a file of bytes or text; arguments of numpy.fromfile."""
    return asarray(np.fromfile(*args, **kwargs))


def fromiter(*args, **kwargs):
    """The array of an iterator's elements; arguments of numpy.fromiter."""
    return asarray(np.fromiter(*args, **kwargs))


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None) -> str:
    """The array as text with its dtype, as repr shows it."""
    if max_line_width is None and precision is None and suppress_small is None:
        return repr(asarray(arr))
    return np.array_repr(np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(a, max_line_width=None, precision=None, suppress_small=None) -> str:
    """The elements of the array as text."""
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)
