"""Discrete Fourier transforms over the last dimensions."""
from __future__ import annotations

import enum
import operator
from typing import Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.elementwise import conj, real
from mini_jax.lax.elementwise import complex as complex_
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, linear_in_first, moveaxis
from mini_jax.lax.slicing import pad

__all__ = ["fft", "fft_p", "FftType"]


class FftType(enum.IntEnum):
    """Kinds of transforms: forward, inverse, forward of real numbers, and the inverse of that."""
    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


fft_p = Primitive("fft", facts={"family": "fft", "dtypes": frozenset([dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128])})


def fft(x, fft_type: FftType | str, fft_lengths: Sequence[int]):
    """The discrete Fourier transform over the last 1 to 3 dimensions, of the sizes fft_lengths.

    fft_type: FFT, y_k = Σ_j x_j e^(−2πi jk/n) of complex x; IFFT, its inverse, y_k = 1/n Σ_j x_j e^(2πi jk/n); RFFT, the first n/2 + 1 entries (along
    the last dimension) of the FFT of real x; IRFFT, its inverse, real, of x with n/2 + 1 entries there. Its name, or the constant. x: float32 or
    float64 for RFFT, else complex64 or complex128 (real x is converted). Raises TypeError for other dtypes, ValueError for an unknown type
    and for lengths that are not the sizes of the operand. (StableHLO: fft)
    """
    try:
        fft_type = FftType[fft_type.upper()] if isinstance(fft_type, str) else FftType(fft_type)
    except (KeyError, ValueError):
        raise ValueError(f"lax.fft: unknown fft_type {fft_type!r}; it is FFT, IFFT, RFFT or IRFFT") from None
    if isinstance(fft_lengths, (int, np.integer)):
        raise TypeError(f"lax.fft: fft_lengths must be a sequence of integers, got {fft_lengths!r}")
    dtype = typeof(x).dtype
    if fft_type == FftType.RFFT and dtypes.is_complex(dtype):
        raise ValueError(f"lax.fft({typeof(x)}): only real valued inputs supported for rfft")
    if fft_type != FftType.RFFT and dtype in (dtypes.float32, dtypes.float64):
        x = complex_(x, broadcast_in_dim(dtype.type(0), typeof(x).shape, ()))
    return fft_p.bind(x, fft_type=fft_type, fft_lengths=tuple([operator.index(n) for n in fft_lengths]))


def _type(x, *, fft_type, fft_lengths):
    where = f"lax.fft({x}, {fft_type.name}, {fft_lengths})"
    accepted = (dtypes.float32, dtypes.float64) if fft_type == FftType.RFFT else (dtypes.complex64, dtypes.complex128)
    if x.dtype not in accepted:
        raise TypeError(f"{where}: dtype {x.dtype} is not accepted; it takes {accepted[0]} and {accepted[1]}")
    rank = len(fft_lengths)
    if not 1 <= rank <= 3 or rank > x.ndim:
        raise ValueError(f"{where}: fft_lengths must give the sizes of one, two or three dimensions of the operand")
    last = fft_lengths[-1]
    expected = (*fft_lengths[:-1], last // 2 + 1 if fft_type == FftType.IRFFT and last else last)
    if x.shape[x.ndim - rank:] != expected:
        raise ValueError(f"{where}: the operand's last dimensions must have the sizes {expected}, but are {x.shape[x.ndim - rank:]}")
    if fft_type == FftType.RFFT:
        dtype = dtypes.complex128 if x.dtype == dtypes.float64 else dtypes.complex64
        return array_type((*x.shape[:-1], last // 2 + 1 if last else 0), dtype)
    return array_type((*x.shape[:-1], last), dtypes.to_real(x.dtype)) if fft_type == FftType.IRFFT else array_type(x.shape, x.dtype)


def _transpose(ct, x, *, fft_type, fft_lengths):
    """The matrix of the transform is symmetric. Of a real operand only the real part counts, and the entries left out are zeros; of IRFFT all
    entries but the first and, for an even length, the last along the last dimension stand for themselves and for their conjugates."""
    if not x.wanted:
        return
    if fft_type in (FftType.FFT, FftType.IFFT):
        x.add(fft_p.bind(ct, fft_type=fft_type, fft_lengths=fft_lengths))
        return
    shape, last = typeof(ct).shape, fft_lengths[-1]
    if fft_type == FftType.RFFT:
        config = [(0, 0, 0)] * (len(shape) - 1) + [(0, last - shape[-1], 0)]
        whole = pad(ct, typeof(ct).dtype.type(0), config)
        x.add(real(fft_p.bind(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths)))
        return
    back = conj(fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths))
    place = broadcasted_iota(dtypes.int32, x.shape, x.ndim - 1)
    once = (place == np.int32(0)) | (place == np.int32(last // 2 if last % 2 == 0 else 0))
    n = float(np.prod(fft_lengths))
    factor = lambda value: broadcast_in_dim(x.dtype.type(value / n), x.shape, ())
    x.add(back * select(once, factor(1), factor(2)))


def _batch(axis, args, dims, **params):
    return fft_p.bind(moveaxis(args[0], dims[0], 0), **params), 0


linear_in_first(fft_p)
fft_p.type_rule, fft_p.transpose, fft_p.batch = _type, _transpose, _batch
