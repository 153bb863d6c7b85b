"""scipy.stats: every distribution function by SciPy's, in float32 and float64, at edges and outside of the support; statistics of samples."""
import numpy as np
import pytest
import scipy.stats

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.scipy import stats
from mini_jax.test_util import check_grads
from tests.scipy_agreement import Case, check, check_slopes

X = np.array([-2, -1, -0.5, 0, 0.2, 0.5, 1, 1.5, 2, 3, 7, 40, np.inf, -np.inf, np.nan])
FINITE = X[np.isfinite(X) | np.isnan(X)]
Q = np.array([-1, 0, 1e-6, 0.2, 0.5, 0.77, 1, 2, np.nan])
K = np.array([-1, 0, 1, 2, 3, 1.5, 7, 30, np.nan])
ANGLES = np.array([-1, 0, 0.1, 1, 3, 6.2, 7, -3.1])
LOCATION, SCALE = np.array([0, 0.5])[:, None, None], np.array([1, 2.0])[:, None, None]


def rows(*parameters):
    """Lists of values as parameters for all of them at once: one row a value."""
    return tuple([np.array(p, float)[:, None] for p in parameters])


# name -> samples, parameters, and whether it has loc and scale
DISTRIBUTIONS = {
    "norm": (X, (), True), "truncnorm": (X, rows([-1, 1, -5], [2, 5, -2]), True), "beta": (X, rows([2, 0.5, 1, 60], [3, 1, 1, 40]), True),
    "gamma": (X, rows([2, 0.5, 1, 30, -1]), True), "chi2": (X, rows([2, 0.5, 30]), True), "expon": (X, (), True), "uniform": (X, (), True), "laplace": (X, (), True),
    "logistic": (X, (), True), "cauchy": (X, (), True), "t": (X, rows([1, 4.5, 20]), True), "pareto": (X, rows([2, 0.5]), True), "gumbel_l": (FINITE, (), True),
    "gumbel_r": (FINITE, (), True), "gennorm": (X, rows([1, 2, 0.7]), False), "vonmises": (ANGLES[[1, 2, 3, 7]], rows([1, 0, 50]), False),
    "wrapcauchy": (ANGLES, rows([0.5, 0.1]), False), "bernoulli": (K, rows([0.3, 0, 1]), False), "binom": (K, rows([5, 30, 5, 5], [0.3, 0.5, 0, 1]), False),
    "nbinom": (K, rows([3, 0.5], [0.3, 1]), False), "betabinom": (K, rows([5, 30], [2, 0.5], [3, 0.5]), False), "geom": (K, rows([0.3, 1]), False),
    "poisson": (K, rows([2, 0, 50, 1e5]), False)}


PLAIN = ("pdf", "pmf", "cdf", "sf")


def cases(dtype):
    """Every function of every distribution once: densities and distribution functions in float32, logarithms and inverses in float64."""
    for name, (x, parameters, shifted) in DISTRIBUTIONS.items():
        module, reference = getattr(stats, name), getattr(scipy.stats, name)
        for method in module.__all__:
            if method == "entropy" or (method in PLAIN) != (dtype == np.float32):
                continue
            at = Q if method in ("ppf", "isf") else x
            at = at[(at != 0) & (at != 1)] if (name, method) == ("bernoulli", "ppf") else at                         # 0, as JAX has it, where SciPy has -1
            operands = (at, *parameters, *((LOCATION, SCALE) if shifted else ()))
            yield Case(f"{name}.{method}", getattr(module, method), getattr(reference, method), operands, 600, 60)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distributions_are_scipys(dtype):
    check(list(cases(dtype)), dtype)


def test_derivatives_by_samples_and_parameters():
    inside = {"norm": (0.3, 0.2, 1.5), "truncnorm": (0.3, -1.0, 2.0, 0.2, 1.5), "beta": (0.3, 2.0, 3.0, 0.1, 1.5), "gamma": (0.7, 2.0, 0.2, 1.5), "chi2": (0.7, 2.5, 0.2, 1.5),
              "expon": (0.7, 0.2, 1.5), "laplace": (0.7, 0.2, 1.5), "logistic": (0.7, 0.2, 1.5), "cauchy": (0.7, 0.2, 1.5), "t": (0.7, 4.5, 0.2, 1.5), "pareto": (3.0, 2.0, 0.2, 1.5),
              "gumbel_l": (0.7, 0.2, 1.5), "gumbel_r": (0.7, 0.2, 1.5), "gennorm": (0.7, 1.5), "vonmises": (0.7, 1.5), "wrapcauchy": (0.7, 0.4)}
    functions = {}
    for name, point in inside.items():
        for method in ("logpdf", *{"norm": ("cdf", "logsf", "ppf"), "truncnorm": ("cdf",), "beta": ("cdf",), "gamma": ("logsf",), "cauchy": ("logcdf", "isf")}.get(name, ())):
            fun = getattr(getattr(stats, name), method)
            if method in ("ppf", "isf"):
                functions[f"{name}.{method}"] = fun, [(0.3, *point[1:])]
            elif name == "beta" and "pdf" not in method:
                functions[f"{name}.{method}"] = (lambda fun: lambda x, loc, scale: fun(x, 2.0, 3.0, loc, scale))(fun), [(0.3, 0.1, 1.5)]
            elif (name, method) != ("gennorm", "cdf"):
                functions[f"{name}.{method}"] = fun, [point]
    for name, *parameters in (("binom", 5.5, 0.3), ("nbinom", 2.5, 0.3), ("betabinom", 5.5, 2.0, 3.0), ("geom", 0.3), ("poisson", 2.3), ("bernoulli", 0.3)):
        fun = getattr(stats, name).logpmf
        functions[f"{name}.logpmf"] = (lambda fun: lambda *p: fun(1, *p))(fun), [tuple(parameters)]
    check_slopes(functions, 1e-5)


def test_gradients_outside_of_the_support_are_zero_and_at_its_edge_finite():
    slopes = jax.jit(lambda: [jax.grad(f)(x) for f, x in (
        (lambda x: stats.beta.logpdf(x, 1.0, 1.0), 0.0), (lambda x: stats.beta.pdf(x, 2.0, 3.0), -1.0), (lambda x: stats.gamma.logpdf(x, 1.0), 0.0), (lambda x: stats.gamma.pdf(x, 2.0), -1.0),
        (stats.expon.logpdf, -1.0), (stats.uniform.logpdf, 3.0), (lambda x: stats.pareto.logpdf(x, 2.0), 0.5), (lambda x: stats.truncnorm.logpdf(x, -1.0, 1.0), 2.0),
        (lambda p: stats.binom.logpmf(0.0, 5.0, p), 0.0), (lambda m: stats.poisson.logpmf(0.0, m), 0.0), (lambda p: stats.multinomial.logpmf(jnp.array([0.0, 2.0]), 2.0, jnp.array([0.0, 1.0]) + p), 0.0),
        (lambda x: stats.gennorm.logpdf(x, 2.0), 0.0), (lambda s: stats.norm.logcdf(-40.0, 0.0, s), 1.0), (stats.expon.logcdf, 0.0))])()
    assert np.isfinite(slopes[:-1]).all() and [float(s) for s in slopes[3:6]] == [0, 0, 0] and not np.isnan(slopes[-1])


def test_nan_parameters_give_nan_and_nothing_else():
    """exp(select(p, NaN, x)) is anything in jaxlib 0.10: densities of impossible parameters come out as NaN all the same."""
    x = np.linspace(-2, 7, 15).astype(np.float32)
    for got in (stats.gamma.pdf(x, np.float32(-1)), stats.beta.pdf(x, np.float32(-1), np.float32(2)), stats.poisson.pmf(x, np.float32(-1)), stats.t.pdf(x, np.float32(-1))):
        assert np.isnan(got).all()


def test_vectors():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        simplex, alpha = rng.dirichlet([1, 2, 3], 4).T, np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(stats.dirichlet.logpdf(simplex, alpha), scipy.stats.dirichlet.logpdf(simplex, alpha), rtol=1e-12)
        np.testing.assert_allclose(stats.dirichlet.pdf(simplex[:2], alpha), scipy.stats.dirichlet.pdf(simplex[:2], alpha), rtol=1e-12)
        counts, p = np.array([[1, 2, 3], [0, 0, 6], [1, 1, 1]]), np.array([0.2, 0.3, 0.5])
        np.testing.assert_allclose(stats.multinomial.logpmf(counts, 6, p), scipy.stats.multinomial.logpmf(counts, 6, p), rtol=1e-12)
        cov, mean, x = np.cov(rng.normal(size=(3, 10))), rng.normal(size=3), rng.normal(size=(5, 2, 3))
        wanted = scipy.stats.multivariate_normal.logpdf(x, mean, cov)
        np.testing.assert_allclose(stats.multivariate_normal.logpdf(x, mean, cov), wanted, rtol=1e-12)
        np.testing.assert_allclose(stats.multivariate_normal.logpdf(x, mean, np.stack([cov, cov])), wanted, rtol=1e-12)
        np.testing.assert_allclose(jax.vmap(stats.multivariate_normal.logpdf, (0, None, None))(x, mean, cov), wanted, rtol=1e-12)
        np.testing.assert_allclose(stats.multivariate_normal.pdf(x, mean, 2.0), scipy.stats.multivariate_normal.pdf(x, mean, 2.0), rtol=1e-12)
        np.testing.assert_allclose(stats.poisson.entropy(np.array([0, 0.1, 10, 59, 61, 1000])), scipy.stats.poisson.entropy(np.array([0, 0.1, 10, 59, 61, 1000])), rtol=1e-9)
        check_grads(lambda x, m, l: stats.multivariate_normal.logpdf(x, m, l @ l.T), (x[0], mean, np.linalg.cholesky(cov)), 1)
    for call in (lambda: stats.multivariate_normal.logpdf(x, mean, cov[:2]), lambda: stats.dirichlet.logpdf(simplex, alpha[:2, None]), lambda: stats.dirichlet.logpdf(simplex[:1], alpha)):
        with pytest.raises(ValueError):
            call()


def test_kernel_density_estimates():
    rng = np.random.default_rng(0)
    data, weights, points = rng.normal(size=(2, 30)), rng.uniform(size=30), rng.normal(size=(2, 7))
    with jax.enable_x64(True):
        for width in (None, "silverman", 0.7, lambda k: k.n ** 0.1 * 0.3):
            ours, theirs = stats.gaussian_kde(data, width, weights), scipy.stats.gaussian_kde(data, width, weights)
            np.testing.assert_allclose(ours(points), theirs(points), rtol=1e-11)
        np.testing.assert_allclose(ours.logpdf(points), theirs.logpdf(points), rtol=1e-11)
        np.testing.assert_allclose(ours.integrate_gaussian(np.zeros(2), np.eye(2)), theirs.integrate_gaussian(np.zeros(2), np.eye(2)), rtol=1e-11)
        np.testing.assert_allclose(ours.integrate_kde(ours), theirs.integrate_kde(theirs), rtol=1e-11)
        np.testing.assert_allclose(stats.gaussian_kde(data[0]).integrate_box_1d(-1, 0.5), scipy.stats.gaussian_kde(data[0]).integrate_box_1d(-1, 0.5), rtol=1e-11)
        np.testing.assert_allclose(jax.jit(lambda k: k(points))(ours), ours(points), rtol=1e-11)
    single = stats.gaussian_kde(np.random.default_rng(0).normal(size=(2, 20)).astype(np.float32))
    assert single.resample(jax.random.key(0), (3, 4)).shape == (2, 3, 4)
    with pytest.raises(ValueError, match="more than one"):
        stats.gaussian_kde(np.ones(1))


def test_statistics_of_samples():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, size=(4, 6))
    for axis in (None, 0, 1):
        for method in ("average", "min", "max", "dense", "ordinal"):
            assert np.array_equal(stats.rankdata(x, method, axis=axis), scipy.stats.rankdata(x, method, axis=axis)), (axis, method)
        for keepdims in (False, True):
            ours, theirs = stats.mode(x, axis, keepdims=keepdims), scipy.stats.mode(x, axis, keepdims=keepdims)
            assert np.array_equal(ours.mode, theirs.mode) and np.array_equal(ours.count, theirs.count) and ours.mode.dtype == jnp.asarray(x).dtype
        np.testing.assert_allclose(stats.sem(x, axis, ddof=0), scipy.stats.sem(x, axis, ddof=0), rtol=1e-6)
    assert np.isnan(stats.rankdata(np.array([1.0, np.nan]))).all() and stats.sem(np.array([1.0, np.nan, 3.0]), nan_policy="omit") == pytest.approx(1)
    with pytest.raises(NotImplementedError):
        stats.mode(x, nan_policy="omit")
    with pytest.raises(ValueError, match="method"):
        stats.rankdata(x, "first")
