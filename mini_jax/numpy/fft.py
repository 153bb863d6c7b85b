"""mini_jax.numpy.fft: discrete Fourier transforms by their NumPy names.

norm says where the factor 1/n stands: "backward" (the default), in the inverse; "forward", in the forward transform; "ortho", its root in both.
"""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.fft import FftType, fft as fourier
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.manipulation import roll
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.array import device_put
from mini_jax.runtime.dispatch import library

__all__ = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn",
           "fftfreq", "rfftfreq", "fftshift", "ifftshift"]


# --- transforms --------------------------------------------------------------------------------------------------------------------------

def _operand(name: str, a):
    """The argument in the floating or complex dtype in which it is transformed: at least single precision."""
    a = as_array(promote_dtypes_inexact(*arraylike(name, a))[0])
    return lax.convert_element_type(a, dtypes.float32) if a.dtype in (dtypes.float16, dtypes.bfloat16) else a


def _cut(a, sizes: Sequence[int], axes: Sequence[int]):
    """a, cut or filled up with zeros to these sizes along these axes."""
    config = [(0, 0, 0)] * a.ndim
    for n, axis in zip(sizes, axes):
        config[axis] = (0, n - a.shape[axis], 0)
    return lax.pad(a, a.dtype.type(0), config) if any(config[axis][1] for axis in axes) else a


@library(static_argnames=("kind", "s", "axes", "norm", "name"))
def _transform(a, kind: FftType, s, axes, norm, name: str):
    a = _operand(name, a)
    if axes is None:
        axes = tuple(range(a.ndim)) if s is None else tuple(range(a.ndim - len(s), a.ndim))
    if s is not None and len(s) != len(axes):
        raise ValueError(f"jnp.fft.{name}: s={s} and axes={axes} must have one length")
    axes = [canonical_axis(axis, a.ndim) for axis in axes]
    if len(set(axes)) != len(axes):
        raise ValueError(f"jnp.fft.{name} does not support repeated axes. Got axes {tuple(axes)}.")
    if kind == FftType.RFFT and dtypes.is_complex(a.dtype):
        raise TypeError(f"jnp.fft.{name}: only real valued inputs supported, got {a.aval}")
    if not axes:
        return a if dtypes.is_complex(a.dtype) or kind == FftType.RFFT else _to_complex(a)
    if s is None:
        s = [a.shape[axis] for axis in axes]
        if kind == FftType.IRFFT:
            s[-1] = max(0, 2 * (s[-1] - 1))
    if any([n <= 0 for n in s]):
        raise ValueError(f"jnp.fft.{name}: the number of entries transformed must be positive, got {list(s)}")
    sizes = [*s[:-1], s[-1] // 2 + 1] if kind == FftType.IRFFT else s
    a = _cut(a, sizes, axes)
    order = [d for d in range(a.ndim) if d not in axes] + axes
    out = _over_last(lax.transpose(a, order), kind, list(s))
    out = lax.transpose(out, np.argsort(order).tolist())
    factor = _factor(kind, int(np.prod(s)), norm)
    return out if factor == 1 else out * np.asarray(factor, dtypes.to_real(out.dtype))[()].astype(out.dtype)


def _factor(kind: FftType, n: int, norm) -> float:
    """What a transform that the compiler scales as "backward" is to be multiplied by."""
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    if norm in (None, "backward"):
        return 1
    if norm == "ortho":
        return n ** 0.5 if inverse else n ** -0.5
    if norm == "forward":
        return n if inverse else 1 / n
    raise ValueError(f'Invalid norm value {norm!r}; should be "backward","ortho" or "forward".')


def _to_complex(a):
    return a if dtypes.is_complex(a.dtype) else lax.complex(a, lax.full_like(a, 0))


def _over_last(a, kind: FftType, sizes: list):
    """The transform over the last dimensions: three at a time, the compiler's limit, the last of which (and none else) may be of real numbers."""
    if kind in (FftType.FFT, FftType.IFFT):
        a = _to_complex(a)
    if kind == FftType.IRFFT:
        a = _to_complex(a)
        return fourier(_complex_over(a, FftType.IFFT, sizes[:-3], 3), kind, sizes[-3:])
    out = fourier(a, kind, sizes[-3:])
    return _complex_over(out, FftType.FFT if kind == FftType.RFFT else kind, sizes[:-3], 3)


def _complex_over(a, kind, sizes: list, done: int):
    """The complex transform over the dimensions before the last `done`."""
    while sizes:
        part, count = sizes[-3:], len(sizes[-3:])
        end = a.ndim - done
        moved = [*range(end - count), *range(end, a.ndim), *range(end - count, end)]
        a = lax.transpose(fourier(lax.transpose(a, moved), kind, part), np.argsort(moved).tolist())
        sizes, done = sizes[:-3], done + count
    return a


def _one(name: str, kind: FftType, doc: str):
    def transform(a, n: int | None = None, axis: int = -1, norm: str | None = None):
        return _transform(a, kind, None if n is None else (operator.index(n),), (operator.index(axis),), norm, name)
    return _named(transform, name, doc + "\n\n    a is cut or filled up with zeros to n entries along the axis. Raises ValueError for an axis out of bounds, n < 1 and an unknown norm.\n    ")


def _several(name: str, kind: FftType, doc: str, axes):
    if axes is None:
        def transform(a, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
            return _transform(a, kind, _static(s), _static(axes), norm, name)
    else:
        def transform(a, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None):
            if len(axes) != 2:
                raise ValueError(f"jnp.fft.{name} only supports 2 axes. Got axes = {axes!r}.")
            return _transform(a, kind, _static(s), _static(axes), norm, name)
    return _named(transform, name, doc + "\n\n    a is cut or filled up with zeros to the sizes s along the axes. Raises ValueError for axes out of bounds or repeated, sizes below 1\n"
                  "    and an unknown norm.\n    ")


def _static(sizes):
    return None if sizes is None else tuple([operator.index(n) for n in sizes])


def _named(fun, name: str, doc: str):
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return fun


fft = _one("fft", FftType.FFT, "The Fourier transform along an axis: y_k = Σ_j a_j e^(−2πi jk/n).")
ifft = _one("ifft", FftType.IFFT, "The inverse Fourier transform along an axis: y_k = 1/n Σ_j a_j e^(2πi jk/n).")
rfft = _one("rfft", FftType.RFFT, "The first n/2 + 1 entries of the Fourier transform of real numbers along an axis; the others are their conjugates.")
irfft = _one("irfft", FftType.IRFFT, "The inverse of rfft: n real numbers from n/2 + 1 entries along an axis. n: default, twice one less than there are.")
fft2 = _several("fft2", FftType.FFT, "The Fourier transform over two axes.", 2)
ifft2 = _several("ifft2", FftType.IFFT, "The inverse Fourier transform over two axes.", 2)
rfft2 = _several("rfft2", FftType.RFFT, "The Fourier transform of real numbers over two axes, the first n/2 + 1 entries along the last of these.", 2)
irfft2 = _several("irfft2", FftType.IRFFT, "The inverse of rfft2.", 2)
fftn = _several("fftn", FftType.FFT, "The Fourier transform over several axes (None: all, or as many of the last as s has sizes).", None)
ifftn = _several("ifftn", FftType.IFFT, "The inverse Fourier transform over several axes (None: all, or as many of the last as s has sizes).", None)
rfftn = _several("rfftn", FftType.RFFT, "The Fourier transform of real numbers over several axes, the first n/2 + 1 entries along the last of these.", None)
irfftn = _several("irfftn", FftType.IRFFT, "The inverse of rfftn.", None)

_OTHER = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(a, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The Fourier transform, real, of n entries of which the second half are the conjugates of the first, a; n: default, 2 (size − 1)."""
    if norm not in _OTHER:
        raise ValueError(f'Invalid norm value {norm!r}; should be "backward","ortho" or "forward".')
    return irfft(lax.conj(_operand("hfft", a)), n, axis, _OTHER[norm])


def ihfft(a, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The inverse of hfft: the first n/2 + 1 entries of the inverse Fourier transform of real numbers."""
    if norm not in _OTHER:
        raise ValueError(f'Invalid norm value {norm!r}; should be "backward","ortho" or "forward".')
    return lax.conj(rfft(a, n, axis, _OTHER[norm]))


# --- frequencies ---------------------------------------------------------------------------------------------------------------------------

def _frequencies(places, n: int, d, dtype, device):
    n = operator.index(n)
    dtype = dtypes.canonicalize(dtypes.default_float() if dtype is None else dtype)
    out = lax.convert_element_type(places(n).astype(dtype) / (lax.convert_element_type(d, dtype) * dtype.type(n)), dtype)
    return out if device is None else device_put(out, device)


def fftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """The frequencies to which the entries of an fft of n samples a time d apart belong: 0, 1, …, then the negative ones, each over n d."""
    if n < 1:
        raise ValueError(f"The n argument of jnp.fft.fftfreq must be positive, got {n}")
    return _frequencies(lambda n: np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)]), n, d, dtype, device)


def rfftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """The frequencies to which the entries of an rfft of n samples a time d apart belong: 0, 1, …, n/2, each over n d."""
    if n < 1:
        raise ValueError(f"The n argument of jnp.fft.rfftfreq must be positive, got {n}")
    return _frequencies(lambda n: np.arange(n // 2 + 1), n, d, dtype, device)


def _shift(name: str, x, axes, sign: int):
    x = array_argument(name, x)
    axes = tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    return roll(x, tuple([sign * (x.shape[axis] // 2) for axis in axes]), axes)


def fftshift(x, axes: None | int | Sequence[int] = None):
    """x with the entry of frequency 0 moved to the middle, along `axes` (None: all)."""
    return _shift("fftshift", x, axes, 1)


def ifftshift(x, axes: None | int | Sequence[int] = None):
    """The inverse of fftshift: rolls each of `axes` (None: all) by -(n // 2), so that the zero frequency comes first."""
    return _shift("ifftshift", x, axes, -1)
