"""Fourier transforms are NumPy's, in value and in what they accept; their derivatives are tested by the walk over the primitives."""
import numpy as np
import pytest

import mini_jax as jax
from mini_jax.lax.fft import FftType, fft as transform
from mini_jax.numpy import fft


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(2, 3, 4, 5))
COMPLEX = REAL + 1j * RNG.normal(size=REAL.shape)


def operand(name):
    return REAL if name.startswith(("r", "ih")) else COMPLEX


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_along_one_axis_cut_filled_and_scaled(name):
    x = operand(name)
    for options in ({}, {"n": 7}, {"n": 3, "axis": 1}, {"norm": "ortho"}, {"norm": "forward", "axis": 2}):
        assert np.allclose(getattr(fft, name)(x, **options), getattr(np.fft, name)(x, **options), atol=1e-13), options


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"])
def test_over_several_axes_also_more_than_three(name):
    x = operand(name)
    for options in ({}, {"s": (3, 6), "axes": (1, -1)}, {"norm": "ortho"}):
        assert np.allclose(getattr(fft, name)(x, **options), getattr(np.fft, name)(x, **options), atol=1e-12), options


def test_frequencies_and_shifts():
    for n in (4, 5):
        assert np.array_equal(fft.fftfreq(n, 0.1), np.fft.fftfreq(n, 0.1)) and np.array_equal(fft.rfftfreq(n, 0.1), np.fft.rfftfreq(n, 0.1))
    assert np.array_equal(fft.fftshift(REAL), np.fft.fftshift(REAL))
    assert np.array_equal(fft.ifftshift(fft.fftshift(REAL, axes=(1, 3)), axes=(1, 3)), REAL)


def test_dtypes_and_numbers_that_are_none():
    assert fft.fft(np.arange(3, dtype=np.float32)).dtype == np.complex64 and fft.rfft(np.arange(3, dtype=np.float16)).dtype == np.complex64
    assert np.isnan(fft.fft(np.array([1, np.nan, 2]))).all()
    assert fft.fft(np.zeros((0, 3))).shape == (0, 3) and transform(np.zeros((2, 0), complex), "FFT", (0,)).shape == (2, 0)


def test_errors_say_what_was_wrong():
    for call, error, match in [
            (lambda: transform(COMPLEX, "FFT", (4,)), ValueError, "must have the sizes"),
            (lambda: transform(COMPLEX, "RFFT", (5,)), ValueError, "real valued"),
            (lambda: transform(COMPLEX, "FFT", 5), TypeError, "sequence"),
            (lambda: transform(COMPLEX, "DCT", (5,)), ValueError, "unknown fft_type"),
            (lambda: transform(REAL, FftType.RFFT, REAL.shape), ValueError, "one, two or three"),
            (lambda: transform(np.arange(3), FftType.RFFT, (3,)), TypeError, "int64 is not accepted"),
            (lambda: fft.fft(REAL, norm="half"), ValueError, "Invalid norm"),
            (lambda: fft.fft(REAL, n=0), ValueError, "positive"),
            (lambda: fft.fft(REAL, axis=4), ValueError, "out of bounds"),
            (lambda: fft.fftn(REAL, axes=(1, 1)), ValueError, "repeated axes"),
            (lambda: fft.rfft(COMPLEX), TypeError, "real valued")]:
        with pytest.raises(error, match=match):
            call()
