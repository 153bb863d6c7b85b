"""Discrete cosine transforms, by the fast Fourier transform. (Makhoul 1980)"""
from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.promotion import array_argument, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["dct", "idct", "dctn", "idctn"]

_INVERSE = {2: 3, 3: 2}


def _resized(x, n: int, axis: int):
    """x with size n along the axis: cut, or filled up with zeros."""
    size = x.shape[axis]
    if n <= size:
        return lax.slice_in_dim(x, 0, n, axis=axis)
    return lax.pad(x, x.dtype.type(0), [(0, (n - size) * (i == axis), 0) for i in range(x.ndim)])


def _transform(x, type: int, axis: int, ortho: bool):
    """Type 2: 2 Σ xⱼ cos(πk(2j+1)/2n). Type 3: x₀ + 2 Σ xⱼ cos(πj(2k+1)/2n). `ortho`: scaled to an orthogonal matrix."""
    x = jnp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    dtype = jnp.promote_types(x.dtype, dtypes.complex64)
    turn = np.exp(-0.5j * np.pi * np.arange(n) / n).astype(dtype)
    weights = np.full(n, math.sqrt(0.5 / n))
    weights[0] = math.sqrt(0.25 / n)
    weights = weights.astype(x.dtype)
    if type == 2:
        folded = jnp.concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], -1)
        out = 2 * lax.real(jnp.fft.fft(folded.astype(dtype)) * turn)
        out = out * weights if ortho else out
    else:
        x = x / weights if ortho else x * (2 * n)
        mirrored = jnp.concatenate([jnp.zeros_like(x[..., :1]), x[..., :0:-1]], -1)
        folded = lax.real(jnp.fft.ifft(lax.complex(x, -mirrored) * np.conj(turn) * dtype.type(0.5)))
        out = jnp.zeros_like(folded).at[..., ::2].set(folded[..., :(n + 1) // 2]).at[..., 1::2].set(folded[..., (n + 1) // 2:][..., ::-1])
    return jnp.moveaxis(out.astype(x.dtype), -1, axis)


def _many(name: str, x, type: int, sizes, axes: tuple[int, ...], norm, inverse: bool):
    if type not in (2, 3):
        raise NotImplementedError(f"{name}: types 2 and 3 are supported, not {type!r}")
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f"{name}: norm is None, 'backward', 'ortho' or 'forward', got {norm!r}")
    return _transformed(x, _INVERSE[type] if inverse else type, sizes, axes, norm or "backward", inverse)


@library(static_argnames=("type", "sizes", "axes", "norm", "inverse"))
def _transformed(x, type, sizes, axes, norm, inverse):
    x = array_argument("dct", *promote_dtypes_inexact(array_argument("dct", x)))
    if dtypes.is_complex(x.dtype):
        raise TypeError(f"dct takes real arrays, got {x.aval}")
    narrow, dtype = dtypes.itemsize_bits(x.dtype) < 32, x.dtype
    x = x.astype(dtypes.float32) if narrow else x
    for axis, n in zip(axes, sizes):
        x = x if n is None else _resized(x, n, axis)
        scaled = (norm == "forward") != inverse
        x = _transform(x, type, axis, norm == "ortho")
        x = x / (2 * x.shape[axis]) if norm != "ortho" and scaled else x
    return x.astype(dtype)


def dct(x, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The discrete cosine transform along `axis`: 2 Σ xⱼ cos(πk(2j+1)/2n) over j = 0, …, n - 1.

    type: 2, or 3, x₀ + 2 Σ xⱼ cos(πj(2k+1)/2n) (NotImplementedError for others). n: x is cut or filled up with zeros to this size. norm: 'ortho' makes
    it an orthogonal matrix, 'forward' divides by 2n; None or 'backward' leaves that to the inverse.
    """
    return _many("dct", x, type, (n,), (canonical_axis(axis, jnp.ndim(x)),), norm, False)


def idct(x, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The inverse of `dct` with the same arguments."""
    return _many("idct", x, type, (n,), (canonical_axis(axis, jnp.ndim(x)),), norm, True)


def _axes(name: str, x, s, axes):
    ndim = jnp.ndim(x)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    axes = tuple([canonical_axis(axis, ndim) for axis in axes])
    sizes = (None,) * len(axes) if s is None else tuple(s)
    if len(sizes) != len(axes) or len(set(axes)) != len(axes):
        raise ValueError(f"{name}: s={s} must name a size for each of the axes {axes}, which must differ")
    return sizes, axes


def dctn(x, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
    """`dct` along several axes (None: all), of sizes s."""
    return _many("dctn", x, type, *_axes("dctn", x, s, axes), norm, False)


def idctn(x, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
    """The inverse of `dctn` with the same arguments."""
    return _many("idctn", x, type, *_axes("idctn", x, s, axes), norm, True)
