"""scipy.signal, fft, ndimage, integrate, interpolate, cluster: SciPy's results, and derivatives."""
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.signal

import mini_jax as jax
from mini_jax import scipy as ours
from mini_jax.test_util import check_grads

RNG = np.random.default_rng(0)
V, W, M, K = RNG.normal(size=9), RNG.normal(size=4), RNG.normal(size=(6, 7)), RNG.normal(size=(3, 2))
X, Y = RNG.normal(size=(2, 200)), RNG.normal(size=(2, 200))
IMAGE, PLACES = RNG.normal(size=(5, 6)), [RNG.uniform(-4, 9, size=(3, 4)), RNG.uniform(-4, 9, size=(3, 4))]


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def compare(run, reference, tolerance=1e-10):
    """run(module) gives a dictionary of results: with ours, in one program, and with SciPy's."""
    got = jax.jit(lambda: run(ours))()
    for name, wanted in run(reference).items():
        for g, w in zip(jax.tree.leaves(got[name]), jax.tree.leaves(wanted), strict=True):
            w = np.asarray(w)
            assert g.shape == w.shape, (name, g.shape, w.shape)
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance, err_msg=name)


def test_convolutions():
    pairs = {"vectors": (V, W), "shorter first": (W, V), "matrices": (M, K), "smaller first": (K, M), "complex": (V + 1j * V[::-1], W - 2j), "integers": (np.arange(5), np.arange(3)),
             "three": (RNG.normal(size=(3, 4, 5)), RNG.normal(size=(2, 2, 3)))}

    def run(s):
        found = {f"{name} {mode}": [s.signal.convolve(a, b, mode), s.signal.correlate(a, b, mode), s.signal.fftconvolve(a, b, mode)]
                 for name, (a, b) in pairs.items() for mode in ("full", "same", "valid")}
        found |= {f"2d {mode} {boundary}": [s.signal.convolve2d(M, K, mode, boundary, 0.3), s.signal.correlate2d(M, K, mode, boundary, 0.3)]
                  for mode in ("full", "same", "valid") for boundary in ("fill", "wrap", "symm")}
        return found | {"2d smaller first": [s.signal.correlate2d(K, M, "valid"), s.signal.convolve2d(K, M, "valid")], "axes": s.signal.fftconvolve(M, M[:1, :3], axes=1)}
    compare(run, scipy)
    np.testing.assert_allclose(ours.signal.convolve(V, W, method="fft"), np.convolve(V, W))
    assert ours.signal.convolve(V.astype(np.float32), W.astype(np.float32)).dtype == np.float32 and ours.signal.fftconvolve(np.ones(3, np.float16), np.ones(2, np.float16)).dtype == np.float16
    np.testing.assert_allclose(jax.vmap(lambda k: ours.signal.convolve(V, k, "same"))(M[:, :4]), [np.convolve(V, k, "same") for k in M[:, :4]])


def test_spectra():
    options = (dict(nperseg=32), dict(nperseg=32, noverlap=10, nfft=40, fs=3.0), dict(nperseg=33, window="hamming"), dict(nperseg=32, boundary=None, padded=False), dict(nperseg=32, boundary="even"),
               dict(nperseg=32, boundary="odd", detrend="constant"), dict(nperseg=32, return_onesided=False), *[dict(nperseg=16, window=w) for w in ("bartlett", "nuttall", "blackmanharris", "boxcar")])

    def run(s):
        found = {f"stft {o}": s.signal.stft(X, **o) for o in options}
        found |= {f"welch {o}": [s.signal.csd(X, Y, **o), s.signal.welch(X, **o)] for o in (dict(nperseg=32), dict(nperseg=32, average="median", scaling="spectrum", fs=2.0), dict(nperseg=31, detrend="linear"))}
        return found | {"shorter": s.signal.csd(X, Y[:, :100], nperseg=32), "axis": s.signal.stft(X.T, nperseg=32, axis=0),
                        "detrend": [s.signal.detrend(M, 0), s.signal.detrend(M, 1, "constant"), s.signal.detrend(V, bp=[3, 5])]}
    compare(run, scipy)
    for o in (dict(nperseg=32), dict(nperseg=32, noverlap=24), dict(nperseg=33), dict(nperseg=32, nfft=48)):
        z = scipy.signal.stft(X, **o)[2]
        times, x = ours.signal.istft(z, **o)
        np.testing.assert_allclose(x, scipy.signal.istft(z, **o)[1], atol=1e-12)
        np.testing.assert_allclose(x[:, :200], X, atol=1e-12)
        assert times.shape == x.shape[-1:]
    z = scipy.signal.stft(X, nperseg=32)[2]
    np.testing.assert_allclose(ours.signal.istft(np.moveaxis(z, 2, 0), nperseg=32, time_axis=0, freq_axis=2)[1], scipy.signal.istft(np.moveaxis(z, 2, 0), nperseg=32, time_axis=0, freq_axis=2)[1], atol=1e-12)


def test_cosine_transforms():
    xs = [RNG.normal(size=(3, n)) for n in (1, 2, 5, 8)]
    compare(lambda s: {f"{n} {t} {norm}": [s.fft.dct(x, t, norm=norm), s.fft.idct(x, t, norm=norm)] for n, x in enumerate(xs) for t in (2, 3) for norm in (None, "ortho", "forward")}
            | {"n": [s.fft.dctn(IMAGE), s.fft.idctn(IMAGE, s=(3, 8), axes=(0, 1), norm="ortho"), s.fft.dct(IMAGE, n=4, axis=0)]}, scipy)
    check_grads(lambda x: ours.fft.dct(x, norm="ortho"), (V,), 1)


def test_images_between_their_pixels():
    modes = {"constant": "grid-constant", "nearest": "nearest", "wrap": "grid-wrap", "mirror": "mirror", "reflect": "reflect"}
    got = jax.jit(lambda: {(mode, order): ours.ndimage.map_coordinates(IMAGE, PLACES, order, mode, 0.7) for mode in modes for order in (0, 1)})()
    for (mode, order), value in got.items():
        np.testing.assert_allclose(value, scipy.ndimage.map_coordinates(IMAGE, PLACES, order=order, mode=modes[mode], cval=0.7), atol=1e-12, err_msg=f"{mode} {order}")
    whole = RNG.integers(0, 50, size=(5, 6))
    rounded = ours.ndimage.map_coordinates(whole, PLACES, 1, "nearest")
    assert rounded.dtype == whole.dtype and np.array_equal(rounded, scipy.ndimage.map_coordinates(whole.astype(float), PLACES, order=1, mode="nearest").round())
    check_grads(jax.jit(lambda image, x, y: ours.ndimage.map_coordinates(image, [x, y], 1, "mirror")), (IMAGE, *PLACES), 1)
    with pytest.raises(NotImplementedError, match="order"):
        ours.ndimage.map_coordinates(IMAGE, PLACES, 3)
    with pytest.raises(ValueError, match="input.ndim"):
        ours.ndimage.map_coordinates(IMAGE, PLACES[:1], 1)


def test_grids_codes_and_integrals():
    points, at = (np.array([0.0, 1, 2.5, 3, 5]), np.array([-1.0, 0, 1, 2, 4, 5])), RNG.uniform(-2, 6, size=(9, 2))
    for method in ("linear", "nearest"):
        for fill in (np.nan, 0.0, None):
            make = lambda module: module.interpolate.RegularGridInterpolator(points, IMAGE, method, False, fill)
            np.testing.assert_allclose(make(ours)(at), make(scipy)(at), atol=1e-12)
    one = ours.interpolate.RegularGridInterpolator(points[:1], IMAGE)
    np.testing.assert_allclose(jax.jit(lambda f, x: f(x))(one, np.array([0.5, 1.7])), scipy.interpolate.RegularGridInterpolator(points[:1], IMAGE)(np.array([0.5, 1.7])))
    check_grads(lambda values, x: ours.interpolate.RegularGridInterpolator(points, values, fill_value=None)(x), (IMAGE, at), 1)
    for observed, codes in ((RNG.normal(size=(7, 3)), RNG.normal(size=(4, 3))), (V, W)):
        for got, want in zip(ours.cluster.vq.vq(observed, codes), scipy.cluster.vq.vq(observed, codes)):
            np.testing.assert_allclose(got, want)
    np.testing.assert_allclose(ours.integrate.trapezoid(IMAGE, dx=0.3, axis=0), scipy.integrate.trapezoid(IMAGE, dx=0.3, axis=0))


def test_bad_arguments():
    for call in (lambda: ours.signal.convolve(V, W, "half"), lambda: ours.signal.convolve(V, M), lambda: ours.signal.convolve(V, V[:0]), lambda: ours.signal.convolve(M, M[:2, :1].T @ np.ones((1, 9)), "valid"),
                 lambda: ours.signal.stft(V, window="triangle"), lambda: ours.signal.stft(V, nperseg=4, noverlap=4), lambda: ours.signal.convolve2d(M, K, boundary="no"), lambda: ours.fft.dct(V, norm="x"),
                 lambda: ours.cluster.vq.vq(V, M), lambda: ours.signal.detrend(V, bp=[20])):
        with pytest.raises(ValueError):
            call()
