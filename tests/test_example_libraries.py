"""stax and optimizers: initial values and outputs equal JAX's for the same keys (known numbers of jax 0.10.2), each optimizer's formula, training."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.example_libraries import optimizers as O, stax as s


def test_initial_values_and_outputs_are_those_of_jax():
    net = s.serial(s.Conv(4, (3, 3), padding="SAME"), s.BatchNorm(), s.Relu, s.MaxPool((2, 2), (2, 2)), s.AvgPool((2, 2), padding="SAME"), s.FanOut(2),
                   s.parallel(s.ConvTranspose(3, (2, 2), (2, 2)), s.serial(s.Conv(3, (1, 1)), s.ConvTranspose(3, (2, 2), (2, 2)))),
                   s.FanInConcat(), s.Flatten, s.Dropout(0.8), s.Dense(5), s.LogSoftmax)
    shape, params = jax.jit(net[0], static_argnums=1)(jax.random.PRNGKey(0), (-1, 8, 8, 2))
    x = jax.random.normal(jax.random.PRNGKey(1), (3, 8, 8, 2))
    out = jax.jit(net[1])(params, x, rng=jax.random.PRNGKey(2))
    np.testing.assert_allclose(params[0][0].ravel()[:2], [0.04151, -0.15927], atol=1e-5)
    np.testing.assert_allclose(params[10][0].ravel()[:2], [0.07573, -0.04189], atol=1e-5)
    np.testing.assert_allclose(out, [[-2.5836, -1.7495, -0.6634, -1.6241, -3.2584],
                                    [-1.5727, -1.6863, -1.3921, -1.4744, -2.0415],
                                    [-1.6022, -1.2729, -1.9993, -1.1713, -2.6156]], atol=2e-4)


def test_layers_say_the_shape_of_what_they_return():
    for layer, shape in ((s.Dense(3), (2, 5)), (s.Conv(3, (2, 3), (2, 1)), (2, 9, 9, 4)), (s.Conv1DTranspose(3, (3,), (2,)), (2, 9, 4)),
                         (s.MaxPool((2, 2)), (2, 5, 6, 3)), (s.SumPool((2, 2), (2, 2), spec="NCHW"), (2, 3, 6, 8)), (s.Flatten, (2, 3, 4)),
                         (s.serial(s.FanOut(3), s.parallel(s.Identity, s.Tanh, s.Gelu), s.FanInSum), (2, 3)),
                         (s.shape_dependent(lambda shape: s.Dense(shape[-1])), (2, 7)), (s.BatchNorm(0, center=False), (4, 3)), (s.serial(), (2, 2))):
        told, params = layer[0](jax.random.key(0), shape)
        assert jnp.shape(layer[1](params, jnp.ones(shape))) == tuple(told)
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    np.testing.assert_allclose(s.BatchNorm(0, scale=False, center=False)[1](((), ()), x), (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-5)
    assert s.AvgPool((2, 2), padding="SAME")[1]((), jnp.ones((1, 3, 3, 1))).tolist() == jnp.ones((1, 3, 3, 1)).tolist()
    assert np.array_equal(s.Dropout(0.5, mode="test")[1]((), x), x)
    with pytest.raises(ValueError, match="Dropout needs a random key.*rng=key"):
        s.Dropout(0.5)[1]((), x)


def by_hand(name, g, x, steps):
    """The same optimizers on one array, in NumPy."""
    m, v = np.zeros_like(x), np.zeros_like(x)
    for i in range(steps):
        g_i = g * (i + 1)
        if name in ("sgd", "schedule"):
            x = x - (0.1 if name == "sgd" else 0.1 * 0.5 ** (i / 2)) * g_i
        elif name in ("momentum", "nesterov"):
            v = 0.9 * v + g_i
            x = x - 0.1 * (v if name == "momentum" else 0.9 * v + g_i)
        elif name in ("adagrad", "sm3"):                       # of a vector, sm3 is adagrad
            v = v + g_i ** 2
            m = 0.1 * g_i / np.sqrt(v) + 0.9 * m
            x = x - 0.1 * m
        elif name in ("rmsprop", "rmsprop_momentum"):
            v = 0.9 * v + 0.1 * g_i ** 2
            m = (0.9 * m if name == "rmsprop_momentum" else 0) + 0.1 * g_i / np.sqrt(v + 1e-8)
            x = x - m
        elif name in ("adam", "adamax"):
            m = 0.1 * g_i + 0.9 * m
            v = 0.001 * g_i ** 2 + 0.999 * v if name == "adam" else np.maximum(0.999 * v, np.abs(g_i))
            scale = np.sqrt(v / (1 - 0.999 ** (i + 1))) if name == "adam" else v
            x = x - 0.1 * m / (1 - 0.9 ** (i + 1)) / (scale + 1e-8)
    return x


@pytest.mark.parametrize("name", ["sgd", "schedule", "momentum", "nesterov", "adagrad", "rmsprop", "rmsprop_momentum", "adam", "adamax", "sm3"])
def test_an_optimizer_is_its_formula_on_every_leaf_of_a_tree(name):
    make = O.sgd(O.exponential_decay(0.1, 2, 0.5)) if name == "schedule" else getattr(O, name)(0.1, 0.9) if name in ("momentum", "nesterov") else getattr(O, name)(0.1)
    x, g = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, -1.0, 2.0], np.float32)
    state, update = make.init_fn({"a": x, "b": [x * 2]}), jax.jit(make.update_fn)
    for i in range(3):
        state = update(i, {"a": g * (i + 1), "b": [-g * (i + 1)]}, state)
    found = make.params_fn(state)
    np.testing.assert_allclose(found["a"], by_hand(name, g, x, 3), rtol=1e-5), np.testing.assert_allclose(found["b"][0], by_hand(name, -g, 2 * x, 3), rtol=1e-5)
    again = O.pack_optimizer_state(O.unpack_optimizer_state(state))
    assert jax.tree.structure(again) == jax.tree.structure(state) and jax.tree.all(jax.tree.map(np.array_equal, again, state))
    with pytest.raises(TypeError, match="tree must be that of the params"):
        make.update_fn(0, {"a": g}, state)


def test_sm3_keeps_a_number_for_each_row_and_column():
    init, update, params_of = O.sm3(0.1, 0.0)
    x, g = np.ones((2, 3), np.float32), np.array([[1.0, 2, 3], [4, 5, 6]], np.float32)
    state = update(0, g, init(x))
    state = update(1, g, state)
    s1 = np.minimum((g ** 2).max(1)[:, None], (g ** 2).max(0)) + g ** 2
    np.testing.assert_allclose(params_of(state), x - 0.1 * np.sign(g) - 0.1 * g / np.sqrt(s1), rtol=1e-5)
    assert params_of(update(0, np.float32(2), init(np.float32(1)))).shape == ()


def test_schedules_and_norms():
    poly, pieces, inverse = O.polynomial_decay(1.0, 4, 0.2, 2.0), O.piecewise_constant([2, 5], [3.0, 2.0, 1.0]), O.inverse_time_decay(1.0, 2, 1.0, staircase=True)
    np.testing.assert_allclose([poly(i) for i in (0, 2, 4, 9)], [1, 0.4, 0.2, 0.2], rtol=1e-6)
    assert [float(pieces(i)) for i in (0, 2, 3, 6)] == [3, 3, 2, 1] and [float(inverse(i)) for i in (0, 1, 2)] == [1, 1, 0.5]
    tree = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    assert O.l2_norm(tree) == 5 and abs(O.l2_norm(O.clip_grads(tree, 1.0)) - 1) < 1e-6 and O.clip_grads(tree, 6.0)["b"] == 4
    for call, error, words in ((lambda: O.piecewise_constant([1], [1.0]), ValueError, "one value more"), (lambda: O.make_schedule([0.1]), TypeError, "step size is a number"),
                               (lambda: O.pack_optimizer_state([1]), TypeError, "must be JoinPoints, got 1")):
        with pytest.raises(error, match=words):
            call()


def test_a_network_learns():
    init, apply = s.serial(s.Dense(16), s.Tanh, s.Dense(2), s.LogSoftmax)
    x = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)
    labels = jax.nn.one_hot((x[:, 0] * x[:, 1] > 0).astype(int), 2)
    loss = lambda params: -jnp.mean(jnp.sum(apply(params, x) * labels, 1))
    opt = O.adam(0.05)
    step = jax.jit(lambda i, state: opt.update_fn(i, jax.grad(loss)(opt.params_fn(state)), state))
    state = opt.init_fn(init(jax.random.key(0), (-1, 2))[1])
    first = loss(opt.params_fn(state))
    for i in range(60):
        state = step(i, state)
    assert loss(opt.params_fn(state)) < 0.2 * first
