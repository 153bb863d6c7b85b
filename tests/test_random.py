"""Random keys and numbers: JAX's values bit for bit, keys as a dtype under every transformation, what bad keys and seeds say."""
import copy
import pickle

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from lowering.physical import physicalize
from mini_jax import random
from mini_jax.lax import prng
from tests.known import described, first_values, load
from tests.known import random as known_random

KNOWN, GROUPS = load("random"), known_random.groups(jax)
ROUNDED = {"normal", "continuous", "gamma", "wide", "several"}         # floats that went through functions which round


# --- values -------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("group", GROUPS)
def test_values_are_jaxs(group):
    values, known = GROUPS[group].values(jax), KNOWN[group]
    assert set(values) == set(known)
    for name, value in values.items():
        here, there = described(value), known[name]
        assert here[:2] == there[:2], f"{name}: dtype and shape {here[:2]}, JAX's are {there[:2]}"
        if group in ROUNDED and value.dtype.kind not in "iub":
            a, b = first_values(here, value.dtype), first_values(there, value.dtype)
            wide = np.complex128 if value.dtype.kind == "c" else np.float64
            rounding = 64 * float(jnp.finfo(value.dtype).eps)
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rounding, atol=rounding, err_msg=name)
        else:
            assert here[2] == there[2], f"{name}: bits differ from JAX's: {here[3]}, {there[3]}"


def test_a_vmapped_generator_of_the_backend_makes_the_batch_from_its_first_key():
    keys = random.split(random.key(7, impl="rbg"), 3)
    assert np.array_equal(jax.vmap(lambda k: random.bits(k, (2,)))(keys), random.bits(keys[0], (3, 2)))


def test_raw_and_typed_keys_draw_the_same_numbers_eager_traced_and_mapped():
    typed, raw = random.split(random.key(3), 4), random.split(random.PRNGKey(3), 4)
    draw = lambda k: random.normal(k, (3,))
    one_by_one = np.stack([draw(k) for k in typed])
    for keys in (typed, raw):
        assert np.array_equal(one_by_one, [draw(k) for k in keys])
        assert np.array_equal(one_by_one, jax.vmap(draw)(keys))
        assert np.array_equal(one_by_one, jax.jit(jax.vmap(draw))(keys))
    with jax.disable_jit():
        assert np.allclose(one_by_one[0], draw(typed[0]), rtol=1e-6)


def test_the_seed_offset_is_added():
    jax.config.update("jax_random_seed_offset", 5)
    try:
        assert random.PRNGKey(2).tolist() == [0, 7]
    finally:
        jax.config.update("jax_random_seed_offset", 0)


def test_distributions_have_their_moments():
    """Mean and variance of 20,000 draws, to five standard errors."""
    k, n, euler, gumbel_variance = random.key(0), (20000,), 0.5772156649, np.pi ** 2 / 6
    drawn = jax.jit(lambda k: {
        "uniform": (random.uniform(k, n, minval=-1.0, maxval=2.0), 0.5, 9 / 12), "normal": (random.normal(k, n), 0, 1),
        "exponential": (random.exponential(k, n), 1, 1), "laplace": (random.laplace(k, n), 0, 2),
        "gumbel": (random.gumbel(k, n), euler, gumbel_variance), "gumbel high": (random.gumbel(k, n, mode="high"), euler, gumbel_variance),
        "logistic": (random.logistic(k, n), 0, np.pi ** 2 / 3), "bernoulli": (random.bernoulli(k, 0.2, n), 0.2, 0.16),
        "randint": (random.randint(k, n, -2, 5), 1, 4), "rademacher": (random.rademacher(k, n), 0, 1)})(k)
    for name, (x, mean, variance) in drawn.items():
        x = np.asarray(x, np.float64)
        assert abs(x.mean() - mean) < 5 * np.sqrt(variance / x.size), name
        assert abs(x.var() / float(variance) - 1) < 0.1, name


def test_shuffles_and_draws_without_putting_back_have_no_repetition():
    k = random.key(1)
    assert sorted(random.permutation(k, 1000).tolist()) == list(range(1000))
    assert len(set(random.choice(k, 50, (40,), replace=False).tolist())) == 40
    assert len(set(random.choice(k, 5, (5,), replace=False, p=jnp.ones(5)).tolist())) == 5
    rows = random.permutation(k, jnp.arange(12).reshape(4, 3), axis=1)
    assert sorted(map(tuple, rows.T.tolist())) == sorted(map(tuple, np.arange(12).reshape(4, 3).T.tolist()))


def test_numbers_move_with_their_parameters():
    """Derivatives of samples with respect to parameters, against finite differences."""
    k = random.key(2)
    samplers = {
        "uniform": lambda s: random.uniform(k, (3,), minval=-s, maxval=2 * s), "lognormal": lambda s: random.lognormal(k, s, (3,)),
        "truncated_normal": lambda s: random.truncated_normal(k, -s, s, (3,)), "rayleigh": lambda s: random.rayleigh(k, s, (3,)),
        "pareto": lambda s: random.pareto(k, s, (3,))}
    with jax.enable_x64(True):
        h = 1e-5
        moved = jax.jit(lambda s: {name: (jax.jvp(f, (s,), (1.0,))[1], (f(s + h) - f(s - h)) / (2 * h)) for name, f in samplers.items()})(1.3)
        for name, (exact, difference) in moved.items():
            np.testing.assert_allclose(exact, difference, rtol=1e-6, atol=1e-6, err_msg=name)


# --- keys as values ------------------------------------------------------------------------------------------------------------------

def test_a_key_array_shows_its_shape_and_type():
    k = random.key(42)
    assert repr(k) == "Array((), dtype=key<fry>) overlaying:\n[ 0 42]"
    ks = random.split(k, (2, 3))
    assert (ks.shape, ks.ndim, ks.size, len(ks), str(ks.dtype), ks.itemsize) == ((2, 3), 2, 6, 2, "key<fry>", 8)
    assert isinstance(k, jax.Array) and jnp.issubdtype(k.dtype, jax.dtypes.prng_key) and not jnp.issubdtype(k.dtype, jnp.integer)
    assert random.key_impl(k) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"
    assert random.key(0, impl="rbg").dtype != k.dtype and random.key(0, dtype=k.dtype).dtype == k.dtype
    assert k.devices() == {jax.devices()[0]} and jax.device_put(k, jax.devices()[0]).committed


def test_key_arrays_compare_copy_pickle_and_go_through_trees():
    ks = random.split(random.key(0), 3)
    assert (ks == ks).tolist() == [True] * 3 and (ks != ks[0]).tolist() == [False, True, True]
    for twin in (pickle.loads(pickle.dumps(ks)), copy.deepcopy(ks), ks.copy(), jax.device_put(ks), random.clone(ks),
                 random.wrap_key_data(random.key_data(ks)), jax.tree.map(lambda x: x, {"k": ks})["k"], jax.block_until_ready(ks)):
        assert twin.dtype == ks.dtype and (twin == ks).all()
    assert [k.shape for k in ks] == [(), (), ()]


def test_arrays_like_keys_are_keys_of_such_words():
    for ks in (random.key(3), random.split(random.key(3)), random.key(3, impl="rbg")):
        for fun, word in ((jnp.zeros_like, 0), (jnp.ones_like, 1), (jnp.empty_like, 0), (jax.jit(jnp.zeros_like), 0)):
            like = fun(ks)
            assert (like.shape, like.dtype) == (ks.shape, ks.dtype) and np.all(random.key_data(like) == word)
    assert jnp.zeros_like(ks, shape=(3,)).shape == (3,)


def test_an_unequal_kind_of_key_is_not_equal():
    assert (random.key(0) == random.key(0, impl="rbg")) is False


def test_keys_are_constants_arguments_and_results_of_programs():
    ks = random.split(random.key(0), 3)
    assert (jax.jit(lambda i: ks[i])(1) == ks[1]).all()
    assert (jax.jit(lambda k: k)(ks) == ks).all()
    assert (jax.jit(lambda k: random.split(k)[1], donate_argnums=0)(random.key(0)) == random.split(random.key(0))[1]).all()
    assert jax.eval_shape(random.key, 0).dtype == ks.dtype
    assert float(jax.grad(lambda s, k: (random.normal(k, (3,)) * s).sum())(2.0, ks[0])) == pytest.approx(float(random.normal(ks[0], (3,)).sum()))


def test_programs_name_the_dtype_and_their_text_has_only_its_bits():
    def f(ks, i):
        return jnp.where(i > 0, ks.reshape(3, 2)[i, ::-1], random.fold_in(ks[0], i))
    ks = random.split(random.key(0), 6)
    traced = jax.jit(f).trace(ks, 1)
    assert "key<fry>[6]" in str(traced.jaxpr)
    text = traced.lower().as_text()
    assert "tensor<6x2xui32>" in text and "key" not in text
    assert (jax.jit(f)(ks, 1) == ks.reshape(3, 2)[1, ::-1]).all()


def test_a_program_without_keys_is_physical_as_it_is():
    jaxpr = jax.make_jaxpr(jax.jit(lambda x: jnp.sin(x).reshape(3, 2)[1]))(jnp.zeros(6)).jaxpr
    assert physicalize(jaxpr) is jaxpr
    with_keys = jax.make_jaxpr(jax.jit(lambda ks: ks[1]))(random.split(random.key(0), 3)).jaxpr
    assert physicalize(with_keys) is physicalize(with_keys) is not with_keys
    assert all("key" not in str(v.aval) for eqn in physicalize(with_keys).eqns for v in eqn.invars + eqn.outvars)


def test_loops_and_branches_carry_keys():
    k = random.key(5)
    last, drawn = jax.jit(lambda k: jax.lax.scan(lambda k, _: (random.split(k)[0], random.uniform(random.split(k)[1])), k, None, 3))(k)
    expected = []
    for _ in range(3):
        k, sub = random.split(k)
        expected.append(float(random.uniform(sub)))
    assert np.array_equal(drawn, np.float32(expected)) and (last == k).all()
    choose = jax.jit(lambda p, a, b: jax.lax.cond(p, lambda a, b: a, lambda a, b: random.fold_in(b, 1), a, b))
    assert (choose(True, k, sub) == k).all() and (choose(False, k, sub) == random.fold_in(sub, 1)).all()


def test_a_number_of_draws_of_one_shape_share_one_function():
    text = jax.jit(lambda ks: [random.normal(k, (8,)) for k in ks]).lower(random.split(random.key(0), 5)).as_text()
    assert text.count("func.func private @random_bits") == 1 and text.count("call @random_bits") == 5


# --- bad input ---------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fun", [
    lambda k: k + 1, lambda k: 1 + k, lambda k: k * k, lambda k: -k, lambda k: k < k, lambda k: jnp.arange(3) + k, lambda k: jnp.sin(k),
    lambda k: jnp.sum(k[None]), lambda k: jax.jit(lambda k: k + 1)(k), lambda k: jax.jit(lambda k: jnp.cumsum(k[None]))(k),
    lambda k: jnp.matmul(k[None], k[None]), lambda k: jnp.exp2(k)])
def test_arithmetic_on_a_key_is_a_type_error_that_names_it(fun):
    with pytest.raises(TypeError, match="key<fry>"):
        fun(random.key(0))


@pytest.mark.parametrize("convert", [bool, float, int, np.asarray, hash])
def test_a_key_is_no_number(convert):
    with pytest.raises(TypeError):
        convert(random.key(0))


@pytest.mark.parametrize("bad, words", [
    (0, "got 0 of type int"), ((3,), "tuple"), ("k", "str"), (np.zeros(2, np.float32), "float32"), (np.zeros(3, np.uint32), r"uint32\[3\]"),
    (np.zeros(4, np.uint32), "wrap_key_data.*rbg")])
def test_what_is_no_key_hears_what_a_key_is(bad, words):
    with pytest.raises(TypeError, match=words) as error:
        random.normal(bad, (3,))
    assert "key<fry>" in str(error.value) and "random.key(seed)" in str(error.value) and "random.normal" in str(error.value)


@pytest.mark.parametrize("fun", [lambda ks: random.normal(ks), lambda ks: random.split(ks), lambda ks: random.fold_in(ks, 1),
                                 lambda ks: random.uniform(random.key_data(ks)), lambda ks: random.permutation(ks, 3)])
def test_several_keys_where_one_is_taken_point_to_vmap(fun):
    with pytest.raises(ValueError, match=r"shape \(3,\).*vmap"):
        fun(random.split(random.key(0), 3))


@pytest.mark.parametrize("seed, error", [
    (2**63, OverflowError), (-2**63 - 1, OverflowError), (1.5, TypeError), (np.float32(1), TypeError), ("a", TypeError), (None, TypeError),
    ([1, 2], TypeError), (np.arange(2), TypeError)])
def test_seeds_are_integers_of_64_bits(seed, error):
    for make in (random.key, random.PRNGKey):
        with pytest.raises(error, match="seed"):
            make(seed)


@pytest.mark.parametrize("error, words, fun", [
    (OverflowError, "2\\*\\*32", lambda k: random.fold_in(k, -1)), (TypeError, "vmap", lambda k: random.fold_in(k, jnp.arange(2))),
    (ValueError, "'foo'.*threefry2x32", lambda k: random.key(0, impl="foo")), (ValueError, "both", lambda k: random.key(0, impl="rbg", dtype=k.dtype)),
    (TypeError, "key_data|uint32", lambda k: random.wrap_key_data(np.zeros((2, 3), np.uint32))), (TypeError, "already", lambda k: random.wrap_key_data(k)),
    (ValueError, "int32", lambda k: random.normal(k, (3,), "int32")), (ValueError, "complex64", lambda k: random.uniform(k, (3,), "complex64")),
    (TypeError, "float32", lambda k: random.randint(k, (3,), 0, 5, "float32")), (OverflowError, "4294967296", lambda k: random.randint(k, (3,), 0, 2**32)),
    (ValueError, "int32", lambda k: random.bits(k, (3,), "int32")), (TypeError, "negative", lambda k: random.uniform(k, (3, -1))),
    (TypeError, "shape", lambda k: random.uniform(k, (2.5,))), (ValueError, "broadcast", lambda k: random.uniform(k, (2, 3), minval=jnp.zeros(4))),
    (TypeError, "floating", lambda k: random.bernoulli(k, 1)), (ValueError, "mode", lambda k: random.bernoulli(k, 0.5, mode="x")),
    (ValueError, "broadcast", lambda k: random.bernoulli(k, jnp.array([0.1, 0.9]), (3,))), (ValueError, "mode", lambda k: random.gumbel(k, mode="x")),
    (TypeError, "integer", lambda k: random.permutation(k, 3.5)), (TypeError, "array", lambda k: random.permutation(k, [1, 2])),
    (ValueError, "axis 2", lambda k: random.permutation(k, jnp.arange(3), axis=2)), (ValueError, "empty", lambda k: random.choice(k, 0)),
    (ValueError, "population of 3", lambda k: random.choice(k, 3, (5,), replace=False)), (ValueError, "probability", lambda k: random.choice(k, 3, p=jnp.ones(2))),
    (ValueError, "floating", lambda k: random.categorical(k, jnp.zeros((2, 3), int))), (ValueError, "batch shape", lambda k: random.categorical(k, jnp.zeros((2, 3)), shape=(5,))),
    (ValueError, "categories", lambda k: random.categorical(k, jnp.zeros((2, 3)), shape=(4, 2), replace=False)),
    (ValueError, "dimension", lambda k: random.dirichlet(k, 1.0))])
def test_bad_arguments_say_which_and_why(error, words, fun):
    with pytest.raises(error, match=words):
        fun(random.key(0))


def test_a_dtype_that_is_not_available_warns_and_gives_the_32_bit_one():
    with pytest.warns(UserWarning, match="float64"):
        assert random.uniform(random.key(0), (2,), "float64").dtype == np.float32


def test_a_traced_shape_says_so():
    with pytest.raises(TypeError):
        jax.jit(lambda n: random.normal(random.key(0), (n,)))(3)


def test_primitives_refuse_data_that_is_no_key():
    for bind in (lambda x: prng.random_bits(x, 32, (3,), True), lambda x: prng.random_split(x, (2,), True), lambda x: prng.random_fold_in(x, x),
                 lambda x: prng.random_unwrap(x), lambda x: prng.threefry2x32(x, x, x, x)):
        with pytest.raises(TypeError):
            jax.make_jaxpr(bind)(jnp.zeros(2))
