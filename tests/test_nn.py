"""nn: values by NumPy in float64 (initial weights: JAX's), exact derivatives, stability, masks, bad input."""
import math

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import nn
from tests.known import described, initializers as known_initializers, load

POINTS = np.array([-30.0, -6.5, -2.5, -1.25, -0.5, -1e-3, 1e-3, 0.25, 0.75, 1.5, 2.75, 6.25, 40.0])


def sigma(x):
    return 1 / (1 + np.exp(-x))


def normal_cdf(x):
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


# name -> formula in float64
ACTIVATIONS = {
    "identity": lambda x: x, "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x), "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.maximum(x, 0) + np.minimum(np.expm1(np.minimum(x, 0)), 0),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
    "silu": lambda x: x * sigma(x), "swish": lambda x: x * sigma(x), "sigmoid": sigma, "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(x, 0), "log_sigmoid": lambda x: -np.logaddexp(-x, 0), "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)), "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "soft_sign": lambda x: x / (1 + np.abs(x)), "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)), "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6, "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "log1mexp": lambda x: np.log(-np.expm1(-x)),
}


def domain(name):
    return POINTS[POINTS > 0.1] if name == "log1mexp" else POINTS


def test_activations_are_their_formulas_with_exact_derivatives():
    """In float64: values by NumPy; first derivatives by differences of the formula; second ones by differences of the first."""
    h = 1e-5
    with jax.enable_x64(True):
        def all_of(points):
            out = {}
            for name in ACTIVATIONS:
                f, x = getattr(nn, name), points[name]
                slope = jax.vmap(jax.grad(f))
                out[name] = f(x), slope(x), jax.vmap(jax.grad(jax.grad(f)))(x), (slope(x + h) - slope(x - h)) / (2 * h)
            return out
        results = jax.jit(all_of)({name: domain(name) for name in ACTIVATIONS})
    for name, formula in ACTIVATIONS.items():
        x = domain(name)
        value, slope, curvature, difference = map(np.asarray, results[name])
        np.testing.assert_allclose(value, formula(x), rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(slope, (formula(x + h) - formula(x - h)) / (2 * h), rtol=1e-5, atol=1e-8, err_msg=name)
        np.testing.assert_allclose(curvature, difference, rtol=1e-5, atol=1e-8, err_msg=name)


def test_gelu_is_exact_on_demand():
    with jax.enable_x64(True):
        np.testing.assert_allclose(nn.gelu(POINTS, approximate=False), POINTS * normal_cdf(POINTS), rtol=1e-12)


@pytest.mark.parametrize("name, at, slope", [
    ("relu", 0.0, 0), ("relu6", 0.0, 0), ("relu6", 6.0, 0), ("leaky_relu", 0.0, 1), ("elu", 0.0, 1), ("celu", 0.0, 1), ("hard_tanh", 1.0, 1),
    ("hard_tanh", -1.0, 1), ("softplus", 0.0, 0.5), ("log_sigmoid", 0.0, 0.5), ("hard_sigmoid", -3.0, 0), ("sparse_plus", -1.0, 0)])
def test_derivatives_at_kinks(name, at, slope):
    assert float(jax.grad(getattr(nn, name))(at)) == slope


def test_activations_hold_at_the_ends_of_the_range():
    big = np.float32(3e38)
    expected = {"softplus": [0, 0, big, np.inf], "log_sigmoid": [-np.inf, -big, 0, 0], "sigmoid": [0, 0, 1, 1], "relu": [0, 0, big, np.inf],
                "elu": [-1, -1, big, np.inf], "hard_tanh": [-1, -1, 1, 1], "relu6": [0, 0, 6, 6]}
    smooth = ("softplus", "elu", "log_sigmoid", "sigmoid", "silu")
    values, slopes = jax.jit(lambda ends, far: ({name: getattr(nn, name)(ends) for name in expected},
                                                {name: jax.vmap(jax.grad(getattr(nn, name)))(far) for name in smooth}))(
        jnp.array([-np.inf, -big, big, np.inf]), jnp.array([-1e4, 1e4]))
    for name in expected:
        assert np.array_equal(values[name], np.float32(expected[name])), name
    for name in smooth:                                     # no NaN from a branch that is not taken
        assert np.isfinite(slopes[name]).all(), name
    assert np.isnan([nn.relu(np.nan), nn.relu6(np.nan), nn.softplus(np.nan), nn.log1mexp(-1.0)]).all() and nn.log1mexp(0.0) == -np.inf


def test_dtypes_of_activations():
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
        types = jax.eval_shape(lambda x: [getattr(nn, name)(x) for name in ACTIVATIONS], jnp.ones(2, dtype))
        assert all(t.dtype == dtype for t in types)
    whole = jnp.arange(-2, 3)
    assert nn.relu(whole).dtype == jnp.int32 and nn.relu(whole).tolist() == [0, 0, 0, 1, 2] and nn.gelu(whole).dtype == jnp.float32
    assert nn.relu(1.5).weak_type and nn.relu(np.array([True])).dtype == jnp.int32


def test_glu_gates_one_half_by_the_other():
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(nn.glu(x), x[:, :2] * sigma(x[:, 2:]), rtol=1e-5)
    np.testing.assert_allclose(nn.glu(x[:2], axis=0), x[:1] * sigma(x[1:2]), rtol=1e-5)
    with pytest.raises(ValueError, match="even"):
        nn.glu(x, axis=0)


# --- softmax --------------------------------------------------------------------------------------------------------------------

def softmax64(x, axis, where=True):
    w = np.where(where, np.exp(x - x.max(axis, keepdims=True)), 0)
    with np.errstate(all="ignore"):
        return np.where(where, w / w.sum(axis, keepdims=True), 0)


X = np.random.default_rng(1).normal(size=(4, 5))
WHERE = np.random.default_rng(2).random((4, 5)) > 0.3


@pytest.mark.parametrize("axis", [-1, 0, (0, 1), None, [1, 0]])
@pytest.mark.parametrize("where", [None, WHERE])
def test_softmax_and_its_kin_are_their_formulas(axis, where):
    over, counted = tuple(axis) if isinstance(axis, list) else axis, True if where is None else where
    p = softmax64(X, over, counted)
    total = np.log(np.where(counted, np.exp(X), 0).sum(over))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(nn.softmax(X, axis, where), p, rtol=2e-6)
        np.testing.assert_allclose(nn.log_softmax(X, axis, where), np.log(p), rtol=3e-6, atol=1e-6)
    np.testing.assert_allclose(nn.logsumexp(X, axis, where=where), total, rtol=2e-6)
    np.testing.assert_allclose(nn.logmeanexp(X, axis, where), total - np.log(np.broadcast_to(counted, X.shape).sum(over)), rtol=2e-6, atol=1e-6)


def test_derivatives_of_softmax_and_its_kin():
    """dsoftmax = p(dx - Σ p dx), dlogsoftmax = dx - Σ p dx, dlogsumexp = Σ p dx; masked entries do not count."""
    v = np.random.default_rng(3).normal(size=X.shape)
    for where in (None, WHERE):
        p = softmax64(X, -1, True if where is None else where)
        mean = (p * v).sum(-1, keepdims=True)
        with jax.enable_x64(True):
            moved = jax.jit(lambda x, v: [jax.jvp(lambda x: f(x, axis=-1, where=where), (x,), (v,))[1] for f in (nn.softmax, nn.log_softmax, nn.logsumexp)])(X, v)
        counted = np.ones(X.shape, bool) if where is None else where
        np.testing.assert_allclose(moved[0], p * (v - mean), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(moved[1], np.where(counted, v - mean, 0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(moved[2], mean[:, 0], rtol=1e-10)


def test_large_infinite_and_missing_entries():
    x = np.float32([[1000, 1000, -np.inf], [-np.inf] * 3, [np.inf, 0, 0], [np.nan, 0, 0]])
    assert nn.softmax(x)[0].tolist() == [0.5, 0.5, 0] and np.isnan(nn.softmax(x)[1:]).all()
    assert np.array_equal(nn.logsumexp(x, -1), np.float32([1000 + math.log(2), -np.inf, np.inf, np.nan]), equal_nan=True)
    none = np.zeros((4, 3), bool)
    assert nn.softmax(x, where=none).tolist() == [[0] * 3] * 4 and nn.log_softmax(x, where=none).tolist() == [[-np.inf] * 3] * 4
    gradient = jax.grad(lambda x: nn.softmax(x, where=none).sum() + nn.logsumexp(x, where=none))(jnp.zeros((4, 3)))
    assert gradient.tolist() == [[0] * 3] * 4
    for f in (nn.softmax, nn.log_softmax):
        assert f(jnp.zeros((2, 0))).shape == (2, 0) and f(jnp.zeros((0, 2))).shape == (0, 2)
    assert nn.logsumexp(jnp.zeros((2, 0)), -1).tolist() == [-np.inf] * 2 and np.isnan(nn.logmeanexp(jnp.zeros((2, 0)), -1)).all()


def test_logsumexp_takes_factors_and_gives_signs():
    b = np.random.default_rng(4).normal(size=5)
    total = (b * np.exp(X)).sum(-1)
    value, sign = nn.logsumexp(X, -1, b=b, return_sign=True)
    np.testing.assert_allclose(value, np.log(np.abs(total)), rtol=1e-5, atol=1e-5)
    assert np.array_equal(sign, np.sign(total))
    assert np.array_equal(np.isnan(nn.logsumexp(X, -1, b=b)), total < 0)
    assert nn.logsumexp(X, keepdims=True).shape == (1, 1) and nn.logsumexp(jnp.array([0.0, np.inf]), b=jnp.array([1.0, 0.0])) == 0
    z = X + 1j * X[::-1]
    np.testing.assert_allclose(np.exp(nn.logsumexp(z, -1)), np.exp(z).sum(-1), rtol=1e-5)


def test_standardize():
    stable = nn.standardize(X + 1000, algorithm="stable")
    for given in (nn.standardize(X), stable, nn.standardize(X, mean=X.mean(-1, keepdims=True), variance=X.var(-1, keepdims=True))):
        np.testing.assert_allclose(given, (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5), rtol=1e-3, atol=1e-3)
    m, v = np.mean(X, where=WHERE, axis=0), np.var(X, where=WHERE, axis=0)
    np.testing.assert_allclose(nn.standardize(X, axis=0, where=WHERE, epsilon=0.1), (X - m) / np.sqrt(v + 0.1), rtol=1e-4, atol=1e-5)
    constant = nn.standardize(jnp.full(7, 0.1))
    assert np.isfinite(constant).all() and np.abs(constant).max() < 0.01
    with pytest.raises(ValueError, match="'fast' or 'stable'"):
        nn.standardize(X, algorithm="exact")


# --- one_hot ------------------------------------------------------------------------------------------------------------------------

def test_one_hot_is_a_row_of_the_unit_matrix():
    x = np.array([[0, 2], [1, 3]])
    assert np.array_equal(nn.one_hot(x, 4), np.eye(4)[x])
    for axis in (0, 1, -2):
        assert np.array_equal(nn.one_hot(x, 4, axis=axis), np.moveaxis(np.eye(4)[x], -1, axis))
    assert nn.one_hot(jnp.array([-1, 5]), 3).tolist() == [[0] * 3] * 2 and nn.one_hot(jnp.array([0.0, 1.5]), 2).tolist() == [[1, 0], [0, 0]]
    assert nn.one_hot(1, 3, dtype=jnp.int8).dtype == jnp.int8 and nn.one_hot([0, 1], 2).tolist() == [[1, 0], [0, 1]]
    assert nn.one_hot(jnp.arange(3), 0).shape == (3, 0) and nn.one_hot(jnp.uint8(200), 300)[200] == 1
    with pytest.raises(ValueError, match="axis 3"):
        nn.one_hot(x, 4, axis=3)
    with pytest.raises(TypeError, match="num_classes"):
        nn.one_hot(x, 3.0)
    with pytest.raises(ValueError, match="negative"):
        nn.one_hot(x, -1)


# --- attention -----------------------------------------------------------------------------------------------------------------------

B, T, S, N, K, H = 2, 5, 6, 4, 2, 3
RNG = np.random.default_rng(5)
Q, KEYS, VALUES = RNG.normal(size=(B, T, N, H)), RNG.normal(size=(B, S, K, H)), RNG.normal(size=(B, S, K, H))
BIAS, MASK = RNG.normal(size=(1, N, T, S)), RNG.random((B, 1, T, S)) > 0.4


def attention(bias=0.0, counted=True, scale=1 / math.sqrt(H)):
    """A loop over the batch and the heads."""
    bias, counted = np.broadcast_to(bias, (B, N, T, S)), np.broadcast_to(counted, (B, N, T, S))
    out = np.empty((B, T, N, H))
    for b in range(B):
        for n in range(N):
            scores = scale * Q[b, :, n] @ KEYS[b, :, n // (N // K)].T + bias[b, n]
            out[b, :, n] = softmax64(np.where(counted[b, n], scores, -1e30), -1) @ VALUES[b, :, n // (N // K)]
    return out


def below(lengths, size):
    return np.arange(size) < np.array(lengths)[:, None]


@pytest.mark.parametrize("options, expected", [
    ({}, lambda: attention()),
    ({"bias": BIAS, "scale": 0.3}, lambda: attention(BIAS, scale=0.3)),
    ({"mask": MASK}, lambda: attention(counted=MASK)),
    ({"is_causal": True}, lambda: attention(counted=np.tri(T, S, dtype=bool))),
    ({"local_window_size": (1, 2)}, lambda: attention(counted=np.tri(T, S, 2, dtype=bool) & ~np.tri(T, S, -2, dtype=bool))),
    ({"local_window_size": 1}, lambda: attention(counted=np.tri(T, S, 1, dtype=bool) & ~np.tri(T, S, -2, dtype=bool))),
    ({"key_value_seq_lengths": np.array([2, 6])}, lambda: attention(counted=below([2, 6], S)[:, None, None])),
    ({"query_seq_lengths": np.array([2, 5])}, lambda: attention() * below([2, 5], T)[:, :, None, None]),
    ({"mask": np.zeros((B, 1, T, S), bool)}, lambda: attention(counted=False)),
])
def test_attention_is_a_loop_over_heads(options, expected):
    with jax.enable_x64(True):
        np.testing.assert_allclose(nn.dot_product_attention(Q, KEYS, VALUES, **options), expected(), rtol=1e-9, atol=1e-9)


def test_attention_without_batch_with_residual_and_in_low_precision():
    out, residual = nn.dot_product_attention(Q[0], KEYS[0], VALUES[0], bias=BIAS[0], return_residual=True)
    np.testing.assert_allclose(out, attention(BIAS)[0], rtol=1e-4, atol=1e-5)
    scores = np.einsum("tnh,snh->tns", Q[0], KEYS[0].repeat(N // K, 1)) / math.sqrt(H) + BIAS[0].transpose(1, 0, 2)
    np.testing.assert_allclose(residual, np.log(np.exp(scores).sum(-1)), rtol=1e-4)
    narrow = nn.dot_product_attention(*[jnp.asarray(x, jnp.bfloat16) for x in (Q, KEYS, VALUES)])
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(narrow, np.float64), attention(), atol=0.05)


def test_the_gradient_of_attention_is_right_along_a_direction():
    direction = [RNG.normal(size=x.shape) for x in (Q, KEYS, VALUES)]
    f = lambda q, k, v: jnp.sum(nn.dot_product_attention(q, k, v, BIAS, MASK, is_causal=True) ** 2)
    with jax.enable_x64(True):
        gradients, slope = jax.jit(lambda: (jax.grad(f, (0, 1, 2))(Q, KEYS, VALUES), [
            f(*[x + s * d for x, d in zip((Q, KEYS, VALUES), direction)]) for s in (1e-5, -1e-5)]))()
    exact = sum(float((g * d).sum()) for g, d in zip(gradients, direction))
    assert exact == pytest.approx(float(slope[0] - slope[1]) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("words, args, options", [
    ("3 or 4 dimensions", (Q[0, 0], KEYS, VALUES), {}), ("one shape", (Q, KEYS[:1], VALUES), {}), ("head size", (Q, KEYS[..., :2], VALUES[..., :2]), {}),
    ("multiple", (Q[:, :, :3], KEYS, VALUES), {}), ("boolean", (Q, KEYS, VALUES), {"mask": np.ones((B, 1, T, S))}),
    (r"\[2, 4, 5, 6\]", (Q, KEYS, VALUES), {"mask": np.ones((3, T, S), bool)}), ("query_seq_lengths", (Q, KEYS, VALUES), {"query_seq_lengths": np.ones(3, int)}),
    ("implementation", (Q, KEYS, VALUES), {"implementation": "other"}), ("one dtype", (Q, KEYS.astype(np.float16), VALUES.astype(np.float16)), {})])
def test_attention_says_what_does_not_fit(words, args, options):
    with pytest.raises(ValueError, match=words):
        nn.dot_product_attention(*args, **options)


# --- initial weights ---------------------------------------------------------------------------------------------------------------

def test_initial_weights_are_jaxs():
    values, known = known_initializers.groups(jax)["values"].values(jax), load("initializers")["values"]
    assert set(values) == set(known)
    for name, value in values.items():
        dtype, shape, _, first = known[name]
        assert (value.dtype.name, list(value.shape)) == (dtype, shape), name
        here = np.array(described(value)[3], np.int64)
        assert np.abs(here - np.array(first, np.int64)).max(initial=0) <= 8, f"{name}: more than rounding away from JAX's"      # in units of the last place


def test_variances_of_initial_weights():
    draw = lambda f: np.asarray(f(jax.random.key(0), (200, 50)))
    for f, variance in ((nn.initializers.lecun_normal(), 1 / 200), (nn.initializers.he_uniform(), 2 / 200), (nn.initializers.glorot_normal(), 2 / 250),
                        (nn.initializers.variance_scaling(3.0, "fan_out", "normal"), 3 / 50), (nn.initializers.normal(0.5), 0.25)):
        x = draw(f)
        assert x.var() == pytest.approx(variance, rel=0.06) and abs(x.mean()) < 5 * math.sqrt(variance / x.size)
    assert isinstance(nn.initializers.zeros, nn.initializers.Initializer)


@pytest.mark.parametrize("words, fun", [
    ("two axes", lambda k: nn.initializers.lecun_normal()(k, (3,))), ("mode is one of", lambda k: nn.initializers.variance_scaling(1.0, "x", "normal")(k, (2, 2))),
    ("distribution is", lambda k: nn.initializers.variance_scaling(1.0, "fan_in", "x")(k, (2, 2))), ("no entries", lambda k: nn.initializers.lecun_normal()(k, (0, 2))),
    ("floating", lambda k: nn.initializers.normal()(k, (2,), "int32")), ("axis 5", lambda k: nn.initializers.he_normal(in_axis=5)(k, (2, 2)))])
def test_bad_initial_weights_say_why(words, fun):
    with pytest.raises(ValueError, match=words):
        fun(jax.random.key(0))
