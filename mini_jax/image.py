"""`jax.image`: resampling of images, as products with one matrix of weights for each axis.

The weight of input sample i in output sample o is k(d) / Σᵢ k(d), d their distance in input samples, with the kernels of the methods;
where the output is coarser and antialias is set, the kernel is stretched to the distance of output samples.
"""
from __future__ import annotations

import enum
from typing import Callable, Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy import ufuncs
from mini_jax.numpy.creation import arange
from mini_jax.numpy.promotion import arraylike, converted
from mini_jax.numpy.selecting import where
from mini_jax.runtime.dispatch import library

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How resize and scale_and_translate interpolate."""
    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5

    @staticmethod
    def from_string(name: str) -> "ResizeMethod":
        """The method of this name: nearest; linear, bilinear, trilinear, triangle; cubic, bicubic, tricubic; lanczos3; lanczos5; cubic-pytorch."""
        names = {"nearest": "NEAREST", "linear": "LINEAR", "bilinear": "LINEAR", "trilinear": "LINEAR", "triangle": "LINEAR", "lanczos3": "LANCZOS3",
                 "lanczos5": "LANCZOS5", "cubic": "CUBIC", "bicubic": "CUBIC", "tricubic": "CUBIC", "cubic-pytorch": "CUBIC_PYTORCH"}
        if name not in names:
            raise ValueError(f"unknown resize method {name!r}: it may be {', '.join(map(repr, names))}")
        return ResizeMethod[names[name]]


def _triangle(x):
    return ufuncs.maximum(0, 1 - abs(x))


def _lanczos(radius: float, x):
    y = radius * ufuncs.sin(np.pi * x) * ufuncs.sin(np.pi * x / radius)
    square = where(x != 0, np.pi ** 2 * x ** 2, 1)
    return where(x > radius, 0.0, where(abs(x) < 1e-3, 1.0, y / square))


def _cubic(a: float, x):
    """Keys' kernel (1981): a = -1/2 is his own."""
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return where(x >= 2, 0.0, where(x >= 1, far, near))


_KERNELS: dict[ResizeMethod, Callable] = {
    ResizeMethod.LINEAR: _triangle, ResizeMethod.CUBIC: lambda x: _cubic(-0.5, x), ResizeMethod.CUBIC_PYTORCH: lambda x: _cubic(-0.75, x),
    ResizeMethod.LANCZOS3: lambda x: _lanczos(3.0, x), ResizeMethod.LANCZOS5: lambda x: _lanczos(5.0, x)}


def _weights(size: int, out_size: int, scale, translation, kernel: Callable, antialias: bool, repeated: bool):
    """The matrix (size, out_size) of the weights. repeated: beyond its sides the image goes on as its last sample; else it is left out."""
    dtype = typeof(scale).dtype
    inverse = 1 / scale
    stretch = ufuncs.maximum(inverse, 1) if antialias else 1
    centre = (arange(out_size, dtype=dtype) + 0.5) * inverse - translation * inverse - 0.5
    beyond = size if repeated else 0
    x = abs(centre[None, :] - arange(-beyond, size + beyond, dtype=dtype)[:, None]) / stretch
    weights = kernel(x)
    total = lax.reduce_sum(weights, (0,))[None, :]
    weights = where(abs(total) > 1000 * float(np.finfo(np.float32).eps), weights / where(total != 0, total, 1), 0)
    if repeated:
        first, last = [lax.reduce_sum(part, (0,)) for part in (weights[:size + 1], weights[2 * size - 1:])]
        weights = weights[size:2 * size].at[0].set(first).at[-1].set(last) if size > 1 else lax.reduce_sum(weights, (0,))[None, :]
    return where(((centre >= -0.5) & (centre <= size - 0.5))[None, :], weights, 0)


def _applied(x, dims: Sequence[int], matrices: Sequence):
    for d, weights in zip(dims, matrices):
        x = lax.dot_general(x, converted(weights, typeof(x).dtype), (((d,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)
        x = lax.transpose(x, [*range(d), typeof(x).ndim - 1, *range(d, typeof(x).ndim - 1)])
    return x


def _method(method) -> ResizeMethod:
    if isinstance(method, str):
        return ResizeMethod.from_string(method)
    if not isinstance(method, ResizeMethod):
        raise TypeError(f"a resize method is a string or a ResizeMethod, got {method!r:.100}")
    return method


def _inexact(image):
    return image if dtypes.is_inexact(typeof(image).dtype) else converted(image, dtypes.canonicalize(dtypes.float64))


@library(static_argnames=("shape", "dims", "method", "antialias"))
def _scaled(image, scale, translation, shape, dims, method, antialias):
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC                      # as PyTorch, which takes PIL's kernel then
    kernel, have = _KERNELS[method], typeof(image).shape
    matrices = [_weights(have[d], shape[d], scale[i], translation[i], kernel, antialias, method is ResizeMethod.CUBIC_PYTORCH)
                for i, d in enumerate(dims)]
    return _applied(image, dims, matrices)


def scale_and_translate(image, shape: Sequence[int], spatial_dims: Sequence[int], scale, translation, method, antialias: bool = True,
                        precision=None):
    """The image moved and scaled: out(y) = image((y - translation) / scale) along each of spatial_dims, in continuous coordinates in which
    samples are unit cells. Zero where that lies outside of the image.

    shape: of the result, equal to the image's in other dimensions. scale, translation: arrays, an entry for each of spatial_dims;
    differentiable. method: a string or a ResizeMethod, not nearest. antialias: stretch the kernel where the result is coarser.
    Raises ValueError where shapes or dimensions don't fit.
    """
    image, scale, translation = arraylike("scale_and_translate", image, scale, translation)
    t, shape = typeof(image), tuple([int(n) for n in shape])
    dims = tuple([canonical_axis(d, t.ndim) for d in spatial_dims])
    if len(shape) != t.ndim:
        raise ValueError(f"scale_and_translate: shape {shape} must have as many dimensions as the image ({t})")
    for d, (n, m) in enumerate(zip(t.shape, shape)):
        if d not in dims and n != m:
            raise ValueError(f"scale_and_translate: dimension {d} is none of spatial_dims {dims}, so its size must stay {n}, not {m}")
    if typeof(scale).shape != (len(dims),) or typeof(translation).shape != (len(dims),):
        raise ValueError(f"scale_and_translate: scale ({typeof(scale)}) and translation ({typeof(translation)}) need one entry for each of the "
                         f"{len(dims)} spatial_dims")
    method = _method(method)
    if method is ResizeMethod.NEAREST:
        raise ValueError("scale_and_translate: the method nearest has no kernel; use resize")
    image = _inexact(image)
    real = dtypes.to_real(typeof(image).dtype)
    return _scaled(image, converted(scale, real), converted(translation, real), shape, dims, method, bool(antialias))


@library(static_argnames=("shape",))
def _nearest(image, shape):
    for d, (n, m) in enumerate(zip(typeof(image).shape, shape)):
        if n != m:
            at = np.floor((np.arange(m, dtype=np.float32) + 0.5) * np.float32(n) / np.float32(m)).astype(np.int32)
            image = image[(*[slice(None)] * d, at)]
    return image


def resize(image, shape: Sequence[int], method, antialias: bool = True, precision=None):
    """The image at another size: each dimension whose size differs is resampled, the sides of the image staying where they are.

    shape: of the result, with as many dimensions as the image. method: 'nearest', 'linear' ('bilinear', …), 'cubic', 'lanczos3', 'lanczos5',
    'cubic-pytorch', or a ResizeMethod. antialias: where the result is coarser, average over what a sample covers.
    Raises ValueError for a shape of another number of dimensions and for an unknown method.
    """
    arraylike("resize", image)
    t, shape, method = typeof(image), tuple([int(n) for n in shape]), _method(method)
    if len(shape) != t.ndim:
        raise ValueError(f"resize: shape {shape} must have as many dimensions as the image ({t})")
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape)
    image = _inexact(image)
    dims = tuple([d for d, (n, m) in enumerate(zip(t.shape, shape)) if n != m])
    real = dtypes.to_real(typeof(image).dtype)
    scale = np.array([1.0 if shape[d] == 0 or t.shape[d] == 0 else shape[d] / t.shape[d] for d in dims], real)
    return _scaled(image, scale, np.zeros(len(dims), real), shape, dims, method, bool(antialias)) if dims else image
