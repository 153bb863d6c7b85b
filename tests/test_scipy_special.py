"""scipy.special: SciPy's values in float32 and float64 with edges and poles, exact derivatives, no NaN gradients where there is a derivative."""
import math

import numpy as np
import pytest
import scipy.special

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.scipy import special
from mini_jax.test_util import check_grads
from tests.scipy_agreement import Case, check, check_slopes

LINE = np.array([0.0, -0.0, 1, -1, 0.1, -0.3, 0.5, 0.9, 2.5, -2.5, 3, -4, 5, -7.5, 8, 12, 30, 1e-5, -1e-5, 1e-10, np.inf, np.nan])
WHOLE_LINE = np.append(LINE, -np.inf)
RIGHT = LINE[LINE >= 0]
UNIT = np.array([0.0, 1e-30, 1e-10, 1e-3, 0.02, 0.03, 0.05, 0.051, 0.1, 0.4, 0.5, 0.9, 0.95, 0.97, 0.999, 1, -0.5, 1.5, np.nan])
PAIR = (WHOLE_LINE[:, None], WHOLE_LINE[None])
POSITIVE = np.array([0.2, 0.5, 1, 2.5, 9, 11, 40, 300])
WHOLE = np.arange(13.0)


def case(name, *operands, relative=100.0, absolute=8.0):
    return Case(name, getattr(special, name), getattr(scipy.special, name), operands, relative, absolute)


ELEMENTARY = [
    *[case(name, WHOLE_LINE) for name in ("gammasgn", "entr", "expit", "ndtr", "erf", "erfc", "erfcx", "dawsn", "fresnel", "i0", "i0e", "i1", "i1e")],
    case("log_ndtr", WHOLE_LINE), case("log_ndtr", np.linspace(-40, 8, 49), relative=200), case("gammaln", LINE, absolute=50), case("gamma", WHOLE_LINE, relative=300),
    case("digamma", WHOLE_LINE), case("factorial", LINE, relative=300), case("logit", UNIT), case("ndtri", UNIT), case("erfinv", UNIT),
    case("exp1", WHOLE_LINE[(WHOLE_LINE >= 0) | np.isnan(WHOLE_LINE)]), case("expi", WHOLE_LINE, relative=200), case("expi", np.linspace(0.2, 80, 60), relative=200),
    case("spence", RIGHT[np.isfinite(RIGHT)]), case("spence", np.linspace(-1, 4, 41)), case("sici", WHOLE_LINE), case("sici", np.linspace(-20, 20, 41), absolute=16),
    case("dawsn", np.linspace(-12, 12, 60)), case("fresnel", np.linspace(-12, 12, 60)),
    case("loggamma", LINE, absolute=50)]
PAIRS = [
    case("xlogy", *PAIR), case("xlog1py", *PAIR), case("rel_entr", *PAIR, absolute=64), case("kl_div", *PAIR, absolute=64),
    case("betaln", POSITIVE[:, None], POSITIVE, absolute=2000), case("beta", POSITIVE[:6, None], POSITIVE[:6], relative=200),
    case("owens_t", WHOLE_LINE[:, None], WHOLE_LINE[np.abs(WHOLE_LINE) != 1e-10], relative=400), case("boxcox", RIGHT[RIGHT > 0][:, None], WHOLE_LINE, relative=1000),
    case("boxcox1p", RIGHT[:, None], WHOLE_LINE, relative=1000), case("comb", WHOLE[:, None], WHOLE - 2, relative=40), case("poch", POSITIVE[:7, None], np.array([0.0, 1, 2.5, 4]), relative=1000),
    case("expn", np.arange(0, 12)[:, None], RIGHT), case("polygamma", np.arange(0, 4)[:, None], POSITIVE), case("zeta", np.array([1.5, 2, 7])[:, None], POSITIVE),
    case("gammainc", POSITIVE[:, None], np.append(RIGHT, np.nan), relative=400), case("gammaincc", POSITIVE[:, None], np.append(RIGHT, np.nan), relative=400),
    case("betainc", POSITIVE[:6, None, None], POSITIVE[:6, None], UNIT, relative=2000, absolute=64)]
X = np.array([0, 0.1, -0.1, 1, -1, 5, -5, 30, -30])
HYPERGEOMETRIC = [case("hyp1f1", np.array([0.5, 1, 2, -2, 3.3])[:, None, None], np.array([0.5, 1, 2, 4.5])[:, None], np.append(X, [120, -120]), relative=400),
                  case("hyp2f1", np.array([0.5, 1, 2, -2, 3.3])[:, None, None, None], np.array([0.5, 1.5])[:, None, None], np.array([0.8, 2.1, 4.5])[:, None],
                       np.array([0, 0.1, -0.1, 0.5, 0.8, -1, 0.95, -5]), relative=20000, absolute=500)]
TABLE = {"elementary": ELEMENTARY, "pairs": PAIRS, "hypergeometric": HYPERGEOMETRIC}


def numbered(cases):
    """Cases by names of their own, where a function has several."""
    return [c._replace(name=f"{c.name} {i}") for i, c in enumerate(cases)]


@pytest.mark.parametrize("part", TABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_scipys(part, dtype):
    check(numbered(TABLE[part]), dtype)


def test_half_precision_is_computed_in_single():
    for dtype in (jnp.bfloat16, jnp.float16):
        x = jnp.array([0.1, 0.7, 3.0], dtype)
        for name in ("erfcx", "dawsn", "exp1", "spence", "log_ndtr"):
            got = getattr(special, name)(x)
            assert got.dtype == dtype
            np.testing.assert_allclose(np.asarray(got, np.float32), getattr(scipy.special, name)(np.asarray(x, np.float64)), rtol=float(jnp.finfo(dtype).eps))


def test_integers_become_floats_and_python_numbers_stay_weak():
    assert special.gammaln(np.int8(3)).dtype == np.float32 and special.xlogy(2, 3).aval.weak_type and not special.erf(np.float32(1)).aval.weak_type
    assert special.betaln(jnp.float16(2), 3.0).dtype == np.float16
    assert special.gammaln(x=3.0) == special.gammaln(3.0) and special.xlogy(y=2.0, x=1.0) == special.xlogy(1.0, 2.0)


POINTS = {
    "gamma": [(1.3,), (-0.4,)], "digamma": [(1.3,)], "betaln": [(1.3, 2.2), (20.0, 3.0), (30.0, 40.0)], "beta": [(1.3, 2.2), (20.0, 3.0)], "erfcx": [(-1.0,), (3.0,), (60.0,)],
    "dawsn": [(0.2,), (-3.0,), (60.0,)], "fresnel": [(0.3,), (2.0,)], "log_ndtr": [(-20.0,), (-0.3,), (2.0,)], "ndtri": [(0.01,), (0.5,), (0.99,)],
    "owens_t": [(0.5, 0.3), (1.0, 2.0), (-1.0, 3.0)], "exp1": [(0.3,), (3.0,)], "expi": [(-0.3,), (0.3,), (3.0,)], "spence": [(0.2,), (1.0,), (3.0,)], "sici": [(0.3,), (5.0,)],
    "i0": [(0.0,), (2.0,)], "i1": [(0.0,), (-2.0,)], "xlogy": [(0.0, 2.0), (1.0, 3.0)], "xlog1py": [(0.0, 2.0), (1.0, 3.0)], "entr": [(0.3,)], "kl_div": [(0.3, 0.4)], "rel_entr": [(0.3, 0.4)],
    "boxcox": [(0.4, 0.0), (2.0, 1e-3), (2.0, 3.0)], "boxcox1p": [(0.4, 0.0), (2.0, 3.0)], "logit": [(0.3,)], "expit": [(0.3,)], "poch": [(1.3, 2.2)], "comb": [(5.3, 2.2)],
    "gammainc": [(2.0, 1.0)], "hyp2f1": [(0.5, 0.6, 1.7, -3.0)]}


def test_derivatives_by_every_operand():
    check_slopes({name: (getattr(special, name), points) for name, points in POINTS.items()})


def test_second_derivatives_and_reverse_mode():
    with jax.enable_x64(True):
        check_grads(jax.jit(lambda x, y: [special.xlogy(x, y), special.erfcx(x), special.i0(y - 2.0), special.spence(y)]), (1.0, 2.0), 2)
        check_grads(jax.jit(lambda a, x: special.hyp1f1(a, 2.2, x)), (1.5, -3.0), 1)                  # a while loop, in a derivative rule
        check_grads(jax.jit(lambda z: [special.loggamma(z), special.wofz(z)]), (-3.3 + 0.5j,), 1)
        check_grads(jax.jit(lambda z: special.bessel_jn(z, v=3)), (np.array([0.3, -2.0, 7.0]),), 1)


def test_gradients_at_the_edges_are_limits_not_nan():
    gradient = lambda f, i, *x: float(jax.grad(f, i)(*x))
    assert gradient(special.xlogy, 1, 0.0, 0.0) == 0 and gradient(special.xlogy, 0, 0.0, 2.0) == pytest.approx(math.log(2))
    assert gradient(special.xlog1py, 1, 0.0, -1.0) == 0 and gradient(special.rel_entr, 0, 0.0, 0.0) == 0 and gradient(special.kl_div, 1, 0.0, 1.0) == 1
    assert gradient(special.log_ndtr, 0, -1e5) == pytest.approx(1e5) and gradient(special.log_ndtr, 0, 300.0) == 0 and gradient(special.entr, 0, -1.0) == 0
    assert gradient(special.i1, 0, 0.0) == pytest.approx(0.5) and gradient(special.expn, 1, 2, 0.0) == -np.inf and gradient(special.ndtri, 0, 0.0) == np.inf
    with pytest.raises(NotImplementedError, match="betainc"):
        jax.grad(special.betainc)(1.0, 2.0, 0.5)


def test_complex_functions():
    rng = np.random.default_rng(0)
    z = rng.normal(size=60) * 4 + 4j * rng.normal(size=60)
    with jax.enable_x64(True):
        for name in ("wofz", "loggamma"):
            np.testing.assert_allclose(getattr(special, name)(z), getattr(scipy.special, name)(z), rtol=1e-12, atol=1e-12)
    n, m, theta = np.arange(6)[:, None, None], np.arange(-5, 6)[:, None], np.linspace(0, np.pi, 7)
    np.testing.assert_allclose(special.sph_harm_y(n, m, theta, 1.3 * theta), np.nan_to_num(scipy.special.sph_harm_y(n, m, theta, 1.3 * theta)), atol=1e-5)


def test_sequences_and_sums():
    z = np.linspace(-20, 20, 21)
    np.testing.assert_allclose(special.bessel_jn(z.astype(np.float32), v=5), [scipy.special.jv(k, z) for k in range(6)], atol=1e-6)
    np.testing.assert_allclose(special.bernoulli(20), scipy.special.bernoulli(20), rtol=1e-6)
    np.testing.assert_allclose(special.multigammaln(POSITIVE[3:].astype(np.float32), 3), scipy.special.multigammaln(POSITIVE[3:], 3), rtol=1e-5)
    x = np.array([[1.0, 2.0, -np.inf], [700.0, 800.0, 3.0]], np.float32)
    b = np.array([1.0, -2.0, 0.5], np.float32)
    for axis in (None, 0, 1):
        np.testing.assert_allclose(special.logsumexp(x, axis), scipy.special.logsumexp(x, axis), rtol=1e-6)
        np.testing.assert_allclose(special.softmax(x, axis=axis), scipy.special.softmax(x, axis), rtol=1e-5, atol=1e-30)
        for got, want in zip(special.logsumexp(x, axis, b, return_sign=True), scipy.special.logsumexp(x, axis, b, return_sign=True)):
            np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(special.log_softmax(x, axis=1), scipy.special.log_softmax(x, 1), rtol=1e-6)


def test_bad_arguments():
    for call in (lambda: special.polygamma(1.5, 2.0), lambda: special.bernoulli(-1), lambda: special.bessel_jn(1.0, v=60), lambda: special.sph_harm_y(1.5, 1, 0.0, 0.0)):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="real operands"):
        special.gammaln(1j)
    with pytest.raises(TypeError, match="requires ndarray"):
        special.erf([1.0])
    with pytest.raises(TypeError, match="argument"):
        special.erf(1.0, 2.0)
    with pytest.raises(NotImplementedError):
        special.factorial(3, exact=True)
