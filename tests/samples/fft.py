"""Samples of Fourier transforms."""
import numpy as np

from mini_jax.core import dtypes
from mini_jax.lax.fft import FftType
from tests.samples import Sample, uniform

REAL, COMPLEX = frozenset([dtypes.float32, dtypes.float64]), frozenset([dtypes.complex64, dtypes.complex128])


def fft(x, *, fft_type, fft_lengths):
    axes = tuple(range(-len(fft_lengths), 0))
    return getattr(np.fft, fft_type.name.lower() + "n")(x, fft_lengths, axes)


def _sample(kind: FftType, lengths: tuple, shape: tuple) -> Sample:
    return Sample((uniform(shape=shape),), {"fft_type": kind, "fft_lengths": lengths}, REAL if kind == FftType.RFFT else COMPLEX, reference=fft,
                  tolerance=32)


SAMPLES = {"fft": [
    _sample(FftType.FFT, (5,), (2, 5)), _sample(FftType.FFT, (2, 3), (2, 3)), _sample(FftType.IFFT, (3, 2), (3, 2)),
    _sample(FftType.RFFT, (6,), (2, 6)), _sample(FftType.RFFT, (2, 5), (2, 5)), _sample(FftType.IRFFT, (6,), (2, 4)),
    _sample(FftType.IRFFT, (3, 5), (3, 3)),
]}
