"""Samples of special functions, with SciPy as reference."""
import numpy as np
from scipy import special

from mini_jax.core import dtypes
from tests.samples import Draw, Sample, uniform

STANDARD = frozenset([dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64])
SINGLE = frozenset([dtypes.float32])


def whole(low: int, high: int, shape=(2, 3)) -> Draw:
    """Whole numbers, of a floating dtype."""
    return lambda rng, dtype: rng.integers(low, high, shape).astype(dtype)


def unary(reference, low, high, **options) -> list[Sample]:
    return [Sample((uniform(low, high),), reference=reference, **options)]


def of_a_and_x(reference) -> list[Sample]:
    """x below and above a, so that both the series and the continued fraction are tried, and both large, for Temme's expansion.

    These programs are long, so their arrays have one dimension, and each is batched once.
    """
    line = (3,)
    return [Sample((uniform(0.5, 3, line), uniform(0.3, 6, line)), reference=reference, tolerance=32.0, differentiable=(1,)),
            Sample((uniform(0.5, 3, line), uniform(0.3, 6, ())), {}, SINGLE, reference, tolerance=32.0, order=1, batched=()),
            Sample((uniform(400, 500), uniform(430, 470)), {}, SINGLE, reference, tolerance=512.0, order=0, batched=())]


def slope_of_a_and_x(reference, tolerance: float, **options) -> list[Sample]:
    line = (3,)
    return [Sample((uniform(0.5, 3, line), uniform(0.3, 6, line)), {}, SINGLE, reference, tolerance=tolerance, order=0, batched=()),
            Sample((uniform(400, 500), uniform(430, 470)), {}, SINGLE, reference, tolerance=4 * tolerance, order=0, batched=()),
            Sample((uniform(0.5, 3, line), uniform(0.3, 6, line)), **options)]


def _gammainc_slope(a, x):
    """By differences of fourth order."""
    h = 1e-3 * a
    near, far = [special.gammainc(a + k * h, x) - special.gammainc(a - k * h, x) for k in (1, 2)]
    return (8 * near - far) / (12 * h)


def _quantile_slope(a, x):
    density = np.exp((a - 1) * np.log(x) - x - special.gammaln(a))
    return -_gammainc_slope(a, x) / density


SAMPLES = {
    "erf": unary(special.erf, -2, 2),
    "erfc": unary(special.erfc, -2, 2),
    "erf_inv": unary(special.erfinv, -0.9, 0.9, tolerance=16.0),
    "lgamma": unary(special.gammaln, 0.3, 5, tolerance=32.0),
    "digamma": unary(special.digamma, 0.3, 5, tolerance=16.0),
    "polygamma": [Sample((whole(1, 4), uniform(0.7, 4)), reference=lambda m, x: special.polygamma(m.astype(int), x), tolerance=64.0,
                         differentiable=(1,)),
                  Sample((whole(0, 1, ()), uniform(0.7, 4)), {}, SINGLE, lambda m, x: special.digamma(x), tolerance=64.0, order=0)],
    "zeta": [Sample((uniform(1.5, 4), uniform(0.7, 4)), reference=special.zeta, tolerance=32.0, differentiable=(1,))],
    "igamma": of_a_and_x(special.gammainc),
    "igammac": of_a_and_x(special.gammaincc),
    "igamma_grad_a": slope_of_a_and_x(_gammainc_slope, 64.0, differentiable=(1,)),
    "random_gamma_grad": slope_of_a_and_x(_quantile_slope, 256.0, order=0, batched=(0,)),
    "regularized_incomplete_beta": [
        Sample((uniform(0.5, 3, (3,)), uniform(0.5, 3, (3,)), uniform(0.1, 0.9, (3,))), reference=special.betainc, tolerance=32.0,
               differentiable=(2,), batched=(0, 2)),
        Sample((uniform(20, 60), uniform(20, 60, ()), uniform(0.3, 0.7)), {}, SINGLE, special.betainc, tolerance=128.0, order=0,
               batched=())],
    "bessel_i0e": unary(special.i0e, -6, 6, tolerance=8.0) + unary(special.i0e, 6, 20, dtypes=STANDARD, tolerance=8.0),
    "bessel_i1e": unary(special.i1e, -6, 6, tolerance=8.0),
}
