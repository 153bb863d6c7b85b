"""Signals: convolution and correlation in any dimension, detrending, and spectra by short Fourier transforms."""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axes, canonical_axis
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve", "detrend", "stft", "istft", "csd", "welch"]


# --- convolution -----------------------------------------------------------------------------------------------------------------------

def _check_mode(name: str, mode: str) -> None:
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"{name}: mode must be one of 'full', 'same' and 'valid', got {mode!r}")


def _operands(name: str, in1, in2, inexact: bool = False):
    in1, in2 = [as_array(x) for x in (promote_dtypes_inexact if inexact else promote_dtypes)(*arraylike(name, in1, in2))]
    if in1.ndim != in2.ndim:
        raise ValueError(f"{name}: in1 and in2 must have the same number of dimensions, got {in1.aval} and {in2.aval}")
    if not in1.size or not in2.size:
        raise ValueError(f"{name}: in1 and in2 must not be empty, got {in1.aval} and {in2.aval}")
    return in1, in2


def _swapped(name: str, in1, in2, mode: str, axes: Sequence[int]) -> bool:
    """For 'valid' one of the two must be at least as large everywhere: is it the second?"""
    if mode != "valid":
        return False
    larger = [all([x.shape[i] >= y.shape[i] for i in axes]) for x, y in ((in1, in2), (in2, in1))]
    if not any(larger):
        raise ValueError(f"{name}: for mode='valid' one input must be at least as large as the other in every dimension, got {in1.aval} and "
                         f"{in2.aval}")
    return not larger[0]


def _direct(in1, in2, mode: str, precision):
    """The sums Σⱼ in1[i - j] in2[j], by the primitive for convolutions. In 'same' mode as large as in1."""
    shape2 = in2.shape
    full = [(n - 1, n - 1) for n in shape2]
    padding = {"full": full, "valid": [(0, 0)] * in1.ndim, "same": [(n // 2, n - 1 - n // 2) for n in shape2]}[mode]
    dtype = in1.dtype
    if dtypes.is_integer(dtype) or dtypes.is_bool(dtype):
        preferred = None
    else:
        preferred = dtype
    if not in1.ndim:
        return in1 * in2
    out = lax.conv_general_dilated(in1[None, None], jnp.flip(in2)[None, None], (1,) * in1.ndim, padding, precision=precision,
                                   preferred_element_type=preferred)
    return out[0, 0].astype(dtype)


@library(static_argnames=("mode", "method", "precision"))
def _convolve(in1, in2, mode, method, precision):
    in1, in2 = _operands("convolve", in1, in2)
    if _swapped("convolve", in1, in2, mode, range(in1.ndim)):
        in1, in2 = in2, in1
    if method == "fft":
        return _by_fft(*[as_array(x) for x in promote_dtypes_inexact(in1, in2)], mode, tuple(range(in1.ndim)))
    return _direct(in1, in2, mode, precision)


def _method(name: str, method: str) -> str:
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"{name}: method is 'auto', 'direct' or 'fft', got {method!r}")
    return method


def convolve(in1, in2, mode: str = "full", method: str = "auto", precision=None):
    """The convolution Σⱼ in1[i - j] in2[j] of arrays of as many dimensions.

    mode: 'full', all places where they overlap; 'same', as many as in1 has, from the middle; 'valid', where they overlap fully. method: 'fft'
    multiplies Fourier transforms, which is faster for large in2; 'direct' and 'auto' add products. precision: see lax.conv_general_dilated.
    Raises ValueError for another mode or method, empty arrays and dimensions that differ.
    """
    _check_mode("convolve", mode)
    return _convolve(in1, in2, mode, _method("convolve", method), precision)


@library(static_argnames=("mode", "method", "precision"))
def _correlate(in1, in2, mode, method, precision):
    in1, in2 = _operands("correlate", in1, in2)
    flipped = jnp.flip(jnp.conj(in2))
    if _swapped("correlate", in1, in2, mode, range(in1.ndim)):
        out = _convolve(jnp.conj(in2), jnp.flip(in1), mode, method, precision)
        return jnp.flip(out)
    return _convolve(in1, flipped, mode, method, precision)


def correlate(in1, in2, mode: str = "full", method: str = "auto", precision=None):
    """The correlation Σⱼ in1[i + j] conj(in2[j]); arguments as of `convolve`."""
    _check_mode("correlate", mode)
    return _correlate(in1, in2, mode, _method("correlate", method), precision)


_PADDING = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


@library(static_argnames=("mode", "boundary", "precision", "late"))
def _convolve2d(in1, in2, fillvalue, mode, boundary, precision, late):
    """late: the middle, in 'same' mode, is the later one of two where the size of in2 is even."""
    in1, in2 = _operands("convolve2d", in1, in2)
    if in1.ndim != 2:
        raise ValueError(f"convolve2d: the inputs must be two-dimensional, got {in1.aval} and {in2.aval}")
    if _swapped("convolve2d", in1, in2, mode, (0, 1)):
        in1, in2 = in2, in1
    before = [{"full": n - 1, "same": (n - 1) // 2 if late else n // 2, "valid": 0}[mode] for n in in2.shape]
    after = [{"full": n - 1, "same": n - 1 - first, "valid": 0}[mode] for n, first in zip(in2.shape, before)]
    fill = {"constant_values": fillvalue} if boundary == "fill" else {}
    return _direct(jnp.pad(in1, list(zip(before, after)), mode=_PADDING[boundary], **fill), in2, "valid", precision)


def _check_boundary(name: str, boundary: str) -> None:
    if boundary not in _PADDING:
        raise ValueError(f"{name}: boundary is 'fill', 'wrap' or 'symm', got {boundary!r}")


def convolve2d(in1, in2, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision=None):
    """The convolution of two matrices; see `convolve`. boundary: what in1 is beyond its edges: 'fill', fillvalue; 'wrap', in1 again; 'symm', its
    mirror image."""
    _check_mode("convolve2d", mode)
    _check_boundary("convolve2d", boundary)
    return _convolve2d(in1, in2, fillvalue, mode, boundary, precision, False)


def correlate2d(in1, in2, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision=None):
    """The correlation of two matrices; see `correlate` and `convolve2d`."""
    _check_mode("correlate2d", mode)
    _check_boundary("correlate2d", boundary)
    return _correlate2d(in1, in2, fillvalue, mode, boundary, precision)


@library(static_argnames=("mode", "boundary", "precision"))
def _correlate2d(in1, in2, fillvalue, mode, boundary, precision):
    in1, in2 = _operands("correlate2d", in1, in2)
    if in1.ndim == 2 and _swapped("correlate2d", in1, in2, mode, (0, 1)):
        return jnp.flip(_convolve2d(jnp.conj(in2), jnp.flip(in1), fillvalue, mode, boundary, precision, True))
    return _convolve2d(in1, jnp.flip(jnp.conj(in2)), fillvalue, mode, boundary, precision, True)


def _by_fft(in1, in2, mode: str, axes: tuple[int, ...]):
    full = [in1.shape[i] + in2.shape[i] - 1 for i in axes]
    dtype = in1.dtype
    if dtypes.itemsize_bits(dtype) < 32:
        in1, in2 = in1.astype(dtypes.float32), in2.astype(dtypes.float32)
    forward, back = (jnp.fft.fftn, jnp.fft.ifftn) if dtypes.is_complex(dtype) else (jnp.fft.rfftn, jnp.fft.irfftn)
    out = back(forward(in1, full, axes) * forward(in2, full, axes), full, axes) if axes else in1 * in2
    if mode != "full":
        for i in axes:
            size = in1.shape[i] if mode == "same" else in1.shape[i] - in2.shape[i] + 1
            start = (out.shape[i] - size) // 2
            out = lax.slice_in_dim(out, start, start + size, axis=i)
    return out.astype(dtype)


@library(static_argnames=("mode", "axes"))
def _fftconvolve(in1, in2, mode, axes):
    in1, in2 = _operands("fftconvolve", in1, in2, inexact=True)
    axes = canonical_axes(axes, in1.ndim, "axes")
    if _swapped("fftconvolve", in1, in2, mode, axes):
        in1, in2 = in2, in1
    for i in range(in1.ndim):
        if i not in axes and in1.shape[i] != in2.shape[i] and 1 not in (in1.shape[i], in2.shape[i]):
            raise ValueError(f"fftconvolve: along other axes than {axes} the shapes must broadcast, got {in1.aval} and {in2.aval}")
    return _by_fft(in1, in2, mode, axes)


def fftconvolve(in1, in2, mode: str = "full", axes: Sequence[int] | int | None = None):
    """The convolution along `axes` (None: all) by fast Fourier transforms; see `convolve`. Along other axes the arrays broadcast."""
    _check_mode("fftconvolve", mode)
    return _fftconvolve(in1, in2, mode, (axes,) if isinstance(axes, int) else None if axes is None else tuple(axes))


# --- trends ------------------------------------------------------------------------------------------------------------------------------

def detrend(data, axis: int = -1, type: str = "linear", bp=0, overwrite_data: None = None):
    """`data` less the straight line (type='linear') or the mean ('constant') that fits best along `axis`, in the sense of least squares.

    bp: where one line ends and the next begins, an index or several. Raises ValueError for another type and breakpoints beyond the data.
    """
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("linear", "constant"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    return _detrend(data, axis, type, tuple(np.unique(np.atleast_1d(np.asarray(bp, np.int64))).tolist()))


@library(static_argnames=("axis", "type", "bp"))
def _detrend(data, axis, type, bp):
    data = as_array(promote_dtypes_inexact(*arraylike("detrend", data))[0])
    axis = canonical_axis(axis, data.ndim)
    if type == "constant":
        return data - jnp.mean(data, axis, keepdims=True)
    n = data.shape[axis]
    edges = sorted({0, n, *bp})
    if edges[0] < 0 or edges[-1] > n:
        raise ValueError(f"Breakpoints must be non-negative and less than length of data along given axis, got {bp} for {n}")
    lines = jnp.moveaxis(data, axis, -1)
    parts = []
    for start, end in zip(edges, edges[1:]):
        x = np.arange(end - start) - (end - start - 1) / 2                      # centred, so that mean and slope don't mix
        square = (x ** 2).sum()
        x = x.astype(dtypes.to_real(data.dtype))
        part = lines[..., start:end]
        slope = jnp.sum(part * x, -1, keepdims=True) / (square if square else 1.0)
        parts.append(part - jnp.mean(part, -1, keepdims=True) - slope * x)
    return jnp.moveaxis(jnp.concatenate(parts, -1), -1, axis)


# --- spectra -----------------------------------------------------------------------------------------------------------------------------

# Windows of n samples of one period: a₀ - a₁ cos(2πi/n) + a₂ cos(4πi/n) - …
_COSINES = {"boxcar": (1.0,), "hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08),
            "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411), "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168)}
_COSINES |= {"hanning": _COSINES["hann"], "rectangular": _COSINES["boxcar"], "ones": _COSINES["boxcar"]}


def _window(name: str, window, n: int):
    """A window by its name, or the samples of one."""
    if not isinstance(window, (str, tuple)):
        window = as_array(arraylike(name, window)[0])
        if window.ndim != 1:
            raise ValueError(f"{name}: a window must be a vector, got {window.aval}")
        return window
    if window == "bartlett" or window == "triang":
        i = np.arange(n)
        half = n / 2 if window == "bartlett" else (n + 2 if n % 2 == 0 else n + 1) / 2
        return 1 - np.abs(i - n / 2) / half if window == "bartlett" else 1 - np.abs(i - (n // 2 if n % 2 == 0 else n / 2)) / half
    if window not in _COSINES:
        raise ValueError(f"{name}: the windows known by name are {', '.join([*sorted(_COSINES), 'bartlett'])}; pass the samples of another, "
                         f"got {window!r}")
    return sum([(-1) ** k * a * np.cos(2 * np.pi * k * np.arange(n) / n) for k, a in enumerate(_COSINES[window])])


def _segments(x, size: int, step: int):
    """(..., n) → (..., segments, size), one beginning `step` after another."""
    count = (x.shape[-1] - size) // step + 1
    return x[..., np.arange(count)[:, None] * step + np.arange(size)[None]]


def _sizes(name: str, n: int, nperseg, noverlap, nfft, window) -> tuple[int, int, int]:
    if not isinstance(window, (str, tuple)):
        size = np.shape(window)[0]
        if nperseg is not None and operator.index(nperseg) != size:
            raise ValueError(f"{name}: value specified for nperseg={nperseg} is different from length of window, {size}")
        nperseg = size
    nperseg = min(256, n) if nperseg is None else operator.index(nperseg)
    if nperseg < 1:
        raise ValueError(f"{name}: nperseg must be a positive integer, got {nperseg}")
    nperseg = min(nperseg, n) if isinstance(window, (str, tuple)) else nperseg
    nfft = nperseg if nfft is None else operator.index(nfft)
    if nfft < nperseg:
        raise ValueError(f"{name}: nfft must be greater than or equal to nperseg, got {nfft} and {nperseg}")
    noverlap = nperseg // 2 if noverlap is None else operator.index(noverlap)
    if noverlap >= nperseg:
        raise ValueError(f"{name}: noverlap must be less than nperseg, got {noverlap} and {nperseg}")
    return nperseg, noverlap, nfft


def _spectra(name, x, window, nperseg, noverlap, nfft, trend, onesided):
    """The Fourier transforms (..., segments, frequencies) of the windowed segments of x, and the window."""
    w = jnp.asarray(_window(name, window, nperseg)).astype(dtypes.to_real(x.dtype))
    parts = _segments(x, nperseg, nperseg - noverlap)
    if callable(trend):
        parts = trend(parts)
    elif trend:
        parts = _detrend(parts, -1, trend, (0,))
    transform = jnp.fft.rfft if onesided else jnp.fft.fft
    return transform(parts * w, nfft), w


def _frequencies(nfft: int, fs, onesided: bool):
    steps = np.fft.rfftfreq(nfft) if onesided else np.fft.fftfreq(nfft)
    return jnp.asarray(steps.astype(dtypes.default_float())) * fs


def _times(start: float, step: int, count: int, fs):
    return jnp.asarray((start + step * np.arange(count)).astype(dtypes.default_float())) / fs


def _floats(name: str, x):
    x = as_array(promote_dtypes_inexact(*arraylike(name, x))[0])
    if not x.ndim or not x.size:
        raise ValueError(f"{name}: the signal must have samples, got {x.aval}")
    return x


_EXTENSIONS = {"zeros": ("constant", {}), "constant": ("edge", {}), "even": ("reflect", {}), "odd": ("reflect", {"reflect_type": "odd"})}


def stft(x, fs=1.0, window="hann", nperseg: int = 256, noverlap: int | None = None, nfft: int | None = None, detrend=False,
         return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True, axis: int = -1):
    """(frequencies, times, Z): the Fourier transforms of windowed segments of x, one after the other; Z has frequencies in place of `axis`, and times
    last. Inverted by `istft`.

    fs: samples per unit of time. window: a name ('hann', 'hamming', 'blackman', 'boxcar', …) or samples. nperseg: size of a segment, noverlap: how
    much of it is in the next too (default: half), nfft: the size to which it is filled up with zeros. detrend: False, 'constant' or 'linear', as
    detrend's type. boundary: how x goes on for half a segment on both sides: 'zeros', 'even', 'odd', 'constant', or None, not at all. padded: fill x
    up with zeros to whole segments. return_onesided: of real x no negative frequencies. Scaled to the spectrum: Z of a wave of amplitude 1 is 1/2.
    """
    x = _floats("stft", x)
    axis = canonical_axis(axis, x.ndim)
    if boundary is not None and boundary not in _EXTENSIONS:
        raise ValueError(f"stft: unknown boundary option {boundary!r}, must be one of {[*_EXTENSIONS, None]}")
    n = x.shape[axis]
    nperseg, noverlap, nfft = _sizes("stft", n, nperseg, noverlap, nfft, window)
    x = jnp.moveaxis(x, axis, -1)
    onesided, step = return_onesided and not dtypes.is_complex(x.dtype), nperseg - noverlap
    if boundary is not None:
        mode, options = _EXTENSIONS[boundary]
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(nperseg // 2, nperseg // 2)], mode=mode, **options)
    if padded:
        extra = -(x.shape[-1] - nperseg) % step % nperseg
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, extra)])
    z, w = _spectra("stft", x, window, nperseg, noverlap, nfft, detrend, onesided)
    z = z / jnp.sum(w)
    times = _times(nperseg / 2 if boundary is None else 0, step, z.shape[-2], fs)
    return _frequencies(nfft, fs, onesided), times, jnp.moveaxis(z, -1, axis)


def istft(Zxx, fs=1.0, window="hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True,
          boundary: bool = True, time_axis: int = -1, freq_axis: int = -2):
    """(times, x): the signal whose `stft` with the same arguments is Zxx, by adding the segments, windowed again, and dividing by the squares of
    the windows. boundary: half a segment on both sides was added, and is cut off."""
    z = _floats("istft", Zxx)
    if z.ndim < 2:
        raise ValueError(f"istft: Input stft must be at least 2d, got {z.aval}")
    time_axis, freq_axis = canonical_axis(time_axis, z.ndim), canonical_axis(freq_axis, z.ndim)
    if time_axis == freq_axis:
        raise ValueError("istft: must specify differing time and frequency axes")
    z = jnp.moveaxis(z, (time_axis, freq_axis), (-2, -1))
    given = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    if nperseg is None:
        nperseg = given
    nperseg = operator.index(nperseg)
    if nfft is None:
        nfft = nperseg if input_onesided and nperseg == given + 1 else given
    nfft = operator.index(nfft)
    if nperseg < 1 or nfft < nperseg:
        raise ValueError(f"istft: nperseg must be positive and nfft not less, got {nperseg} and {nfft}")
    noverlap = nperseg // 2 if noverlap is None else operator.index(noverlap)
    if noverlap >= nperseg:
        raise ValueError(f"istft: noverlap must be less than nperseg, got {noverlap} and {nperseg}")
    parts = (jnp.fft.irfft if input_onesided else jnp.fft.ifft)(z, nfft)[..., :nperseg]
    w = jnp.asarray(_window("istft", window, nperseg)).astype(dtypes.to_real(parts.dtype))
    if w.shape != (nperseg,):
        raise ValueError(f"istft: window must have length of {nperseg}, got {w.aval}")
    step, count = nperseg - noverlap, parts.shape[-2]
    size = nperseg + (count - 1) * step
    places = np.arange(count)[:, None] * step + np.arange(nperseg)[None]
    x = jnp.zeros((*parts.shape[:-2], size), parts.dtype).at[..., places].add(parts * w * jnp.sum(w))
    norm = jnp.zeros(size, w.dtype).at[places].add(jnp.broadcast_to(w * w, places.shape))
    if boundary:
        x, norm = [y[..., nperseg // 2:size - nperseg // 2] for y in (x, norm)]
    x = x / jnp.where(norm > 1e-10, norm, 1)
    times = _times(0, 1, x.shape[-1], fs)
    return times, jnp.moveaxis(x, -1, time_axis - (freq_axis < time_axis))


def csd(x, y, fs=1.0, window="hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None, detrend="constant",
        return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean"):
    """(frequencies, P): the cross spectral density of x and y by Welch's method, the average of conj(X) Y over segments, which overlap by half.

    y None: x's own, real. scaling: 'density' (per unit of frequency) or 'spectrum'. average: 'mean', or 'median', corrected for its bias. Other
    arguments as of `stft`. x and y broadcast except along `axis`, where the shorter is filled up with zeros. Raises ValueError for other words.
    """
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling!r}")
    if average not in ("mean", "median"):
        raise ValueError(f"average must be 'median' or 'mean', got {average!r}")
    own = y is None or y is x
    x = _floats("csd", x)
    axis = canonical_axis(axis, x.ndim)
    x = jnp.moveaxis(x, axis, -1)
    if not own:
        x, y = [as_array(v) for v in promote_dtypes(x, jnp.moveaxis(_floats("csd", y), axis, -1))]
        n = max(x.shape[-1], y.shape[-1])
        x, y = [jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, n - v.shape[-1])]) for v in (x, y)]
    nperseg, noverlap, nfft = _sizes("csd", x.shape[-1], nperseg, noverlap, nfft, window)
    onesided = return_onesided and not dtypes.is_complex(x.dtype)
    spectrum, w = _spectra("csd", x, window, nperseg, noverlap, nfft, detrend, onesided)
    other = spectrum if own else _spectra("csd", y, window, nperseg, noverlap, nfft, detrend, onesided)[0]
    p = jnp.conj(spectrum) * other / (fs * jnp.sum(w * w) if scaling == "density" else jnp.sum(w) ** 2)
    if onesided:
        twice = np.full(p.shape[-1], 2)
        twice[0] = 1
        if nfft % 2 == 0:
            twice[-1] = 1
        p = p * twice.astype(dtypes.to_real(p.dtype))
    count = p.shape[-2]
    if average == "mean" or count == 1:
        p = jnp.mean(p, -2)
    else:
        bias = 1 + sum([1 / (k + 1) - 1 / k for k in range(2, count, 2)])
        p = lax.complex(jnp.median(jnp.real(p), -2), jnp.median(jnp.imag(p), -2)) / bias
    p = jnp.real(p) if own else p
    return _frequencies(nfft, fs, onesided), jnp.moveaxis(p, -1, axis)


def welch(x, fs=1.0, window="hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None, detrend="constant",
          return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean"):
    """(frequencies, P): the power spectral density of x, the average of |X|² over segments; arguments as of `csd`. (Welch 1967)"""
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
