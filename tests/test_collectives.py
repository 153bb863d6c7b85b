"""Laws of collectives: what each computes, over axes of vmap and of pmap and mixtures of them, with derivatives and batching.

The reference is NumPy on the stacked values of all: X of shape (n, ...) → Y of shape (n, ...), in float64.
"""
import itertools

import numpy as np
import pytest

import mini_jax as jax
from mini_jax import grad, jit, jvp, lax, pmap, vmap
from mini_jax import numpy as jnp

N, SHAPE = 4, (4, 8)
rng = np.random.default_rng(0)
X = rng.normal(size=(N, *SHAPE)).astype("f4")


def stacked(parts, axis):
    """np.stack for every replica: each has the same."""
    return lambda x: np.stack([np.stack(list(x), axis)] * len(x))


def exchange(split, concat):
    def reference(x):
        pieces = [np.split(part, len(x), split) for part in x]              # pieces[sender][receiver]
        return np.stack([np.concatenate([pieces[s][r] for s in range(len(x))], concat) for r in range(len(x))])
    return reference


PERM = [(0, 2), (2, 1), (3, 3)]


def permuted(x):
    y = np.zeros_like(x)
    for source, destination in PERM:
        y[destination] = x[source]
    return y


# name → (the collective over the axis or axes `i`, the reference)
COLLECTIVES = {
    "psum": (lambda x, i: lax.psum(x, i), lambda x: np.stack([x.sum(0)] * len(x))),
    "pmean": (lambda x, i: lax.pmean(x, i), lambda x: np.stack([x.mean(0)] * len(x))),
    "pmax": (lambda x, i: lax.pmax(x, i), lambda x: np.stack([x.max(0)] * len(x))),
    "pmin": (lambda x, i: lax.pmin(x, i), lambda x: np.stack([x.min(0)] * len(x))),
    "all_gather": (lambda x, i: lax.all_gather(x, i), stacked(X, 0)),
    "all_gather last": (lambda x, i: lax.all_gather(x, i, axis=-1), stacked(X, -1)),
    "all_gather tiled": (lambda x, i: lax.all_gather(x, i, axis=1, tiled=True), lambda x: np.stack([np.concatenate(list(x), 1)] * len(x))),
    "psum_scatter tiled": (lambda x, i: lax.psum_scatter(x, i, scatter_dimension=1, tiled=True), lambda x: np.stack(np.split(x.sum(0), len(x), 1))),
    "all_to_all tiled": (lambda x, i: lax.all_to_all(x, i, 1, 0, tiled=True), exchange(1, 0)),
    "all_to_all in place": (lambda x, i: lax.all_to_all(x, i, 1, 1, tiled=True), exchange(1, 1)),
    "pbroadcast": (lambda x, i: lax.pbroadcast(x, i, 1), lambda x: np.stack([x[1]] * len(x))),
    "axis_index": (lambda x, i: x * lax.axis_index(i).astype(x.dtype), lambda x: x * np.arange(len(x)).reshape(-1, 1, 1)),
}
# those whose operand has a dimension of the size of the axis, and those that are not defined over an axis of vmap among several
ONE_AXIS = {
    "psum_scatter": (lambda x, i: lax.psum_scatter(x, i), lambda x: x.sum(0)),
    "all_to_all": (lambda x, i: lax.all_to_all(x, i, 0, 1), lambda x: np.stack([np.stack(list(x[:, r]), 1) for r in range(len(x))])),
    "ppermute": (lambda x, i: lax.ppermute(x, i, PERM), permuted),
    "pshuffle": (lambda x, i: lax.pshuffle(x, i, [1, 2, 3, 0]), lambda x: x[[1, 2, 3, 0]]),
}
ALL = {**COLLECTIVES, **ONE_AXIS}
SOME = {name: COLLECTIVES[name] for name in ("psum", "pmax", "all_gather tiled", "psum_scatter tiled", "all_to_all tiled", "axis_index")}


def every(table, i):
    return lambda x: {name: collective(x, i) for name, (collective, _) in table.items()}


def expected(table, x):
    return {name: reference(np.asarray(x, "f8")) for name, (_, reference) in table.items()}


def assert_close(value, wanted, tolerance=1e-5):
    assert value.keys() == wanted.keys()
    for name in value:
        np.testing.assert_allclose(np.asarray(value[name]), wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)


# --- values -------------------------------------------------------------------------------------------------------------------------

def test_one_axis_of_vmap_or_pmap():
    assert_close(jit(vmap(every(ALL, "i"), axis_name="i"))(X), expected(ALL, X))
    assert_close(pmap(every(ALL, "i"), "i")(X), expected(ALL, X))


MAPS = {"vmap": lambda f, name: vmap(f, axis_name=name), "pmap": lambda f, name: pmap(f, name)}


@pytest.mark.parametrize("outer, inner", list(itertools.product(MAPS, MAPS)))
def test_several_axes_are_one_in_the_order_of_their_names(outer, inner):
    x = rng.normal(size=(2, 4, *SHAPE)).astype("f4")
    rows = jit(MAPS[outer](MAPS[inner](every(SOME, ("i", "j")), "j"), "i"))(x)
    wanted = expected(SOME, x.reshape(8, *SHAPE))
    assert_close({name: np.asarray(y).reshape(8, *y.shape[2:]) for name, y in rows.items()}, wanted)
    columns = jit(MAPS[outer](MAPS[inner](every(SOME, ("j", "i")), "j"), "i"))(x)
    wanted = expected(SOME, x.swapaxes(0, 1).reshape(8, *SHAPE))
    assert_close({name: np.asarray(y).swapaxes(0, 1).reshape(8, *y.shape[2:]) for name, y in columns.items()}, wanted)


@pytest.mark.parametrize("outer, inner", list(itertools.product(MAPS, MAPS)))
def test_one_of_two_axes_leaves_the_other_alone(outer, inner):
    x = rng.normal(size=(2, 4, *SHAPE)).astype("f4")
    f = lambda x: (every(SOME, "i")(x), every({**SOME, **ONE_AXIS}, "j")(x))
    along_i, along_j = jit(MAPS[outer](MAPS[inner](f, "j"), "i"))(x)
    assert_close(along_j, {name: np.stack([expected(ALL, row)[name] for row in x]) for name in along_j})
    assert_close(along_i, {name: np.stack([expected(SOME, x[:, j])[name] for j in range(4)], 1) for name in SOME})


def test_several_axes_of_pmap_permute_too():
    x = rng.normal(size=(2, 4, 8)).astype("f4")
    perm = [(0, 7), (7, 3), (4, 4)]
    y = np.asarray(pmap(pmap(lambda x: (lax.ppermute(x, ("i", "j"), perm), lax.psum_scatter(x, ("j", "i"))), "j"), "i")(x)[0]).reshape(8, 8)
    wanted = np.zeros((8, 8), "f4")
    for source, destination in perm:
        wanted[destination] = x.reshape(8, 8)[source]
    np.testing.assert_array_equal(y, wanted)


def test_groups_of_axis_indices():
    x = np.arange(4.0, dtype="f4")
    f = pmap(lambda x: {
        "psum": lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 3]]), "pmean": lax.pmean(x, "i", axis_index_groups=[[0, 2], [1, 3]]),
        "pmax": lax.pmax(x, "i", axis_index_groups=[[3, 0], [1, 2]]), "uneven": lax.psum(x, "i", axis_index_groups=[[0], [1, 2, 3]]),
        "uneven mean": lax.pmean(x, "i", axis_index_groups=[[0], [1, 2, 3]]),
        "gather": lax.all_gather(x, "i", axis_index_groups=[[0, 1], [3, 2]]),
        "scatter": lax.psum_scatter(jnp.stack([x, 10 * x]), "i", axis_index_groups=[[0, 1], [3, 2]]),
        "exchange": lax.all_to_all(jnp.stack([x, 10 * x]), "i", 0, 0, axis_index_groups=[[0, 1], [3, 2]]),
        "size": lax.psum(1, "i", axis_index_groups=[[0, 1], [2, 3]])}, "i")
    assert_close(f(x), {
        "psum": [1, 1, 5, 5], "pmean": [1, 2, 1, 2], "pmax": [3, 2, 2, 3], "uneven": [0, 6, 6, 6], "uneven mean": [0, 2, 2, 2],
        "gather": [[0, 1], [0, 1], [3, 2], [3, 2]], "scatter": [1, 10, 50, 5], "exchange": [[0, 1], [0, 10], [30, 20], [3, 2]], "size": [2] * 4})


def test_what_is_no_traced_value_is_the_same_everywhere():
    def f(x):
        assert lax.psum(1, "i") == 4 and type(lax.psum(1, "i")) is int and lax.psum(2.5, "i") == 10.0 and lax.psum(True, "i") == 4
        assert lax.axis_size("i") == 4 and type(lax.axis_size("i")) is int
        return lax.psum(np.ones(2, "f4"), "i"), lax.pmean(np.float32(3), "i"), lax.pmax(np.arange(2), "i"), lax.pmean(2, "i"), x
    for mapped in (pmap(f, "i"), vmap(f, axis_name="i")):
        total, mean, largest, of_int, _ = mapped(X)
        np.testing.assert_array_equal(np.asarray(total), np.full((4, 2), 4))
        assert np.asarray(mean)[0] == 3 and np.asarray(of_int)[3] == 2 and np.asarray(largest)[2].tolist() == [0, 1]


def test_unmapped_values_take_part_in_each_replica():
    def f(w, x):
        return {"psum": lax.psum(w, "i"), "gather": lax.all_gather(w, "i"), "scatter": lax.psum_scatter(w, "i"), "max": lax.pmax(w, "i"),
                "exchange": lax.all_to_all(w, "i", 0, 0), "permute": lax.ppermute(w, "i", [(0, 1)])}
    w = jnp.arange(4.0)
    ones = np.ones((4, 1))
    wanted = {"psum": 4 * np.arange(4) * ones, "gather": np.arange(4) * np.ones((4, 4, 1)), "scatter": 4 * np.arange(4), "max": np.arange(4) * ones,
              "exchange": np.repeat(np.arange(4), 4).reshape(4, 4), "permute": np.arange(4) * np.array([[0], [1], [0], [0]])}
    assert_close(pmap(f, "i", in_axes=(None, 0))(w, X), wanted)
    assert_close(vmap(f, axis_name="i", in_axes=(None, 0))(w, X), wanted)
    assert_close(jit(vmap(f, axis_name="i", in_axes=(None, 0)))(w, X), wanted)


def test_trees_travel_together():
    f = pmap(lambda tree: lax.psum(tree, "i"), "i")
    tree = {"a": X, "b": [np.arange(4, dtype="f4"), np.arange(4)], "c": X > 0}
    out = f(tree)
    assert_close({"a": out["a"], "b": out["b"][0], "n": out["b"][1], "c": out["c"]},
                 {"a": np.stack([X.sum(0)] * 4), "b": np.full(4, 6), "n": np.full(4, 6), "c": np.stack([(X > 0).sum(0)] * 4)})
    assert out["b"][1].dtype == np.int32 and out["c"].dtype == np.int32                   # booleans are counted
    assert f.lower(tree).as_text().count("all_reduce") == 2                               # one for floats, one for integers
    assert pmap(lambda x: lax.pmean(x, "i"), "i")(np.arange(4)).tolist() == [1.5] * 4


def test_dimensions_may_stand_among_the_names():
    f = lambda x: {"sum": lax.psum(x, ("i", 0)), "mean": lax.pmean(x, (1, "i")), "max": lax.pmax(x, (0, -1)), "min": lax.pmin(x, 1)}
    ones = np.ones((4, 1))
    assert_close(vmap(f, axis_name="i")(X), {"sum": X.sum((0, 1)) * ones, "mean": X.mean((0, 2)) * ones, "max": X.max((1, 2)), "min": X.min(2)})


DTYPES = ["bfloat16", "float16", "float8_e5m2", "int2", "uint4", "int8", "uint32", "complex64", "bool"]


def test_dtypes():
    def f(x):
        out = {"psum": lax.psum(x, "i"), "gather": lax.all_gather(x, "i"), "permute": lax.ppermute(x, "i", [(0, 1)]), "send": lax.pbroadcast(x, "i", 0),
               "scatter": lax.psum_scatter(jnp.stack([x] * 4), "i"), "exchange": lax.all_to_all(jnp.stack([x] * 4), "i", 0, 0)}
        return out if x.dtype == "complex64" else {**out, "max": lax.pmax(x, "i"), "min": lax.pmin(x, "i")}
    every_dtype = lambda xs: {name: f(x) for name, x in xs.items()}
    xs = {dtype: jnp.asarray([1, 0, 0, 1]).astype(dtype) for dtype in DTYPES}
    for mapped in (pmap(every_dtype, "i"), jit(vmap(every_dtype, axis_name="i"))):
        for dtype, out in mapped(xs).items():
            two = -2 if dtype == "int2" else 2
            wanted = {"psum": [two] * 4, "gather": [[1, 0, 0, 1]] * 4, "permute": [0, 1, 0, 0], "send": [1] * 4, "scatter": [two] * 4,
                      "exchange": [[1, 0, 0, 1]] * 4, "max": [1] * 4, "min": [0] * 4}
            for name, y in out.items():
                assert str(y.dtype) == ("int32" if dtype == "bool" and name in ("psum", "scatter") else dtype), name
                np.testing.assert_array_equal(np.asarray(y).astype("c8"), wanted[name], err_msg=f"{name} of {dtype}")


# --- types --------------------------------------------------------------------------------------------------------------------------

def test_types_say_along_which_axes_a_value_differs():
    seen = {}

    def f(w, x):
        seen.update(w=w, x=x, sum=lax.psum(x, "i"), both=lax.psum(x, ("i", "j")), index=lax.axis_index("j"), gathered=lax.all_gather(w * x, "j"),
                    scattered=lax.psum_scatter(w, "i"), called=jit(lambda y: lax.psum(y, "j"))(x), groups=lax.psum(x, "j", axis_index_groups=[[0], [1]]))
        seen.update({name: str(jax.typeof(value)) for name, value in seen.items()})
        return x
    pmap(pmap(f, "j", in_axes=(None, 0)), "i", in_axes=(None, 0))(np.ones(2, "f4"), np.ones((2, 2), "f4"))
    assert seen == {"w": "f32[2]", "x": "f32[]{i,j}", "sum": "f32[]{j}", "both": "f32[]", "index": "i32[]{j}", "gathered": "f32[2,2]{i}",
                    "scattered": "f32[]{i}", "called": "f32[]{i}", "groups": "f32[]{i,j}"}


# --- derivatives ----------------------------------------------------------------------------------------------------------------------

def weights(table):
    return {name: rng.normal(size=y.shape) for name, y in expected(table, X).items()}


def loss(y, w, sin=jnp.sin):
    """Nonlinear in every result, so that second derivatives do not vanish."""
    return sum((sin(y[name]) * w[name]).sum() for name in y)


def test_derivatives_are_those_of_the_definition():
    w, t = weights(ALL), rng.normal(size=X.shape)
    reference = lambda x: loss(expected(ALL, x), w, np.sin)
    slope = (reference(X + 1e-5 * t) - reference(X - 1e-5 * t)) / 2e-5
    w32, t32 = {name: value.astype("f4") for name, value in w.items()}, t.astype("f4")
    first, second = {}, {}
    for kind, mapped in (("vmap", vmap(every(ALL, "i"), axis_name="i")), ("pmap", pmap(every(ALL, "i"), "i"))):
        f = lambda x: loss(mapped(x), w32)
        derivatives = jit(lambda x: (jvp(f, (x,), (t32,))[1], *jvp(grad(f), (x,), (t32,))))
        forward, first[kind], second[kind] = map(np.asarray, derivatives(X))
        np.testing.assert_allclose(forward, slope, rtol=1e-4)
        np.testing.assert_allclose(np.vdot(first[kind].astype("f8"), t), slope, rtol=1e-4)
        difference = np.asarray(derivatives(X + 2e-3 * t32)[1], "f8") - np.asarray(derivatives(X - 2e-3 * t32)[1], "f8")
        np.testing.assert_allclose(second[kind], difference / 4e-3, rtol=2e-2, atol=2e-1)
    np.testing.assert_allclose(first["pmap"], first["vmap"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second["pmap"], second["vmap"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(grad(f)(X), first["vmap"], rtol=1e-4, atol=1e-4)          # and without jit around


def test_inside_the_map_each_replica_differentiates_its_own_copy():
    """The copies of a sum are as many values, so that psum transposes to psum."""
    inside = grad(lambda x: loss(every(ALL, "i")(x), {name: 1.0 for name in ALL}))
    by_vmap = jit(vmap(inside, axis_name="i"))(X)
    np.testing.assert_allclose(pmap(inside, "i")(X), by_vmap, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pmap(jit(inside), "i")(X), by_vmap, rtol=1e-4, atol=1e-4)
    for mapped in (pmap(grad(lambda x: lax.psum(x, "i")), "i"), vmap(grad(lambda x: lax.psum(x, "i")), axis_name="i")):
        assert mapped(np.arange(4.0, dtype="f4")).tolist() == [4.0] * 4


def test_of_values_that_attain_an_extremum_each_gets_an_equal_share():
    x = np.array([3, 1, 3, 0], "f4")
    for mapped in (pmap(lambda x: lax.pmax(x, "i"), "i"), vmap(lambda x: lax.pmax(x, "i"), axis_name="i")):
        assert grad(lambda x: mapped(x)[0])(x).tolist() == [0.5, 0, 0.5, 0]


# --- batching ---------------------------------------------------------------------------------------------------------------------------

def test_batches_inside_and_outside_of_the_map():
    x = rng.normal(size=(2, N, *SHAPE)).astype("f4")                                    # (batch, axis, ...)
    wanted = {name: np.stack([expected(ALL, example)[name] for example in x]) for name in ALL}
    inside = [np.moveaxis(x.swapaxes(0, 1), 1, d + 1) for d in (0, 2)]                  # (axis, ...) with the batch at d of each
    for over_axis in (lambda f: pmap(f, "i"), lambda f: vmap(f, axis_name="i")):
        outer = jit(lambda *xs: [vmap(over_axis(every(ALL, "i")), in_axes=d)(x) for d, x in zip((0, 1, 3), xs)])
        for batched in outer(*[np.moveaxis(x, 0, d) for d in (0, 1, 3)]):
            assert_close(batched, wanted)
        inner = jit(lambda *xs: [over_axis(vmap(every(ALL, "i"), in_axes=d))(x) for d, x in zip((0, 2), xs)])
        for batched in inner(*inside):
            assert_close({name: np.asarray(y).swapaxes(0, 1) for name, y in batched.items()}, wanted)


# --- mistakes ---------------------------------------------------------------------------------------------------------------------------

def test_names_that_are_not_in_scope():
    for collective in (lax.psum, lax.pmax, lax.all_gather, lax.psum_scatter, lambda x, i: lax.ppermute(x, i, [(0, 0)]), lambda x, i: lax.axis_index(i),
                       lambda x, i: lax.axis_size(i), lax.pvary, lambda x, i: lax.all_to_all(x, i, 0, 0), lambda x, i: lax.pbroadcast(x, i, 0)):
        with pytest.raises(NameError, match="unbound axis name: 'j'.*in scope here: 'i'"):
            pmap(lambda x: collective(x, "j"), "i")(X)
    with pytest.raises(NameError, match="in scope here: none"):
        lax.psum(1.0, "i")
    with pytest.raises(NameError, match="unbound axis name: 'i'"):                        # the scope ends with the function
        pmap(lambda x: x, "i")(X), lax.psum(1.0, "i")


@pytest.mark.parametrize("call, error, words", [
    (lambda x: lax.psum(x, ("i", "i")), ValueError, "occurs twice"),
    (lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2]]), ValueError, "each index of the axis 'i' of size 4 exactly once"),
    (lambda x: lax.all_gather(x, "i", axis_index_groups=[[0], [1, 2, 3]]), ValueError, "one size"),
    (lambda x: lax.all_gather(x, "i", axis=3), ValueError, "axis 3 is out of bounds"),
    (lambda x: lax.psum_scatter(x[:3], "i"), ValueError, r"f32\[3,8\]\{i\}.*dimension 0 of size 3 is to be dealt out to 4: its size must be that"),
    (lambda x: lax.psum_scatter(x[:3], "i", tiled=True), ValueError, "its size must be a multiple of that"),
    (lambda x: lax.all_to_all(x, "i", 1, 0), ValueError, "dimension 1 .* has size 8, but 4 parts"),
    (lambda x: lax.all_to_all(x[:3], "i", 0, 0, tiled=True), ValueError, "a multiple of"),
    (lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)]), ValueError, "each source must be an index of the axis 'i', 0 to 3, and occur once"),
    (lambda x: lax.ppermute(x, "i", [(0, 4)]), ValueError, "each destination"),
    (lambda x: lax.pshuffle(x, "i", [0, 0, 1, 2]), ValueError, "must be a permutation"),
    (lambda x: lax.pbroadcast(x, "i", 4), ValueError, "source must be an index"),
    (lambda x: lax.pcast(x, "i", to="same"), ValueError, "to='same'"),
    (lambda x: lax.pmax(x + 1j, "i"), TypeError, r"no max of values of dtype complex64"),
])
def test_mistakes(call, error, words):
    for mapped in (pmap(call, "i"), vmap(call, axis_name="i")):
        with pytest.raises(error, match=words):
            mapped(X)
    assert np.asarray(pmap(lambda x: lax.pcast(lax.pvary(x, "i"), "i", to="varying"), "i")(X)).shape == X.shape
