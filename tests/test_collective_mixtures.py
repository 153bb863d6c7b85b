"""Collectives mean the same whatever their axes are: a batch (vmap), devices (pmap, shard_map), or one of each."""
import itertools

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.sharding import PartitionSpec as P

IJ = ("i", "j")
X = np.random.default_rng(0).normal(size=(2, 3, 6, 4)).astype(np.float32)
HALVES, UNEVEN = [[0, 3], [5, 1], [2, 4]], [[4], [0, 2], [1, 3, 5]]

PROGRAMS = {
    "sums": lambda x: {"psum": lax.psum(x, IJ), "of j": lax.psum(x, "j") * lax.pmean(x, "i"), "max": lax.pmax(x, IJ), "min": lax.pmin(x, "j")},
    "groups of sums": lambda x: {"psum": lax.psum(x, IJ, axis_index_groups=HALVES), "mean": lax.pmean(x, IJ, axis_index_groups=HALVES),
                                 "uneven": lax.psum(x, IJ, axis_index_groups=UNEVEN), "max": lax.pmax(x, IJ, axis_index_groups=UNEVEN),
                                 "of j": lax.psum(x, "j", axis_index_groups=[[0, 2], [1]])},
    "gathers": lambda x: {"all": lax.all_gather(x, IJ), "tiled": lax.all_gather(x, ("j", "i"), axis=1, tiled=True),
                          "groups": lax.all_gather(x, IJ, axis_index_groups=HALVES), "of i": lax.all_gather(x, "i", axis_index_groups=[[1], [0]])},
    "scatters": lambda x: {"all": lax.psum_scatter(x, IJ), "tiled": lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
                           "groups": lax.psum_scatter(x, IJ, axis_index_groups=HALVES, tiled=True)},
    "exchanges": lambda x: {"all": lax.all_to_all(x, IJ, 0, 1), "tiled": lax.all_to_all(x, "j", 0, 1, tiled=True),
                            "groups": lax.all_to_all(x, IJ, 1, 0, axis_index_groups=HALVES, tiled=True)},
    "permutations": lambda x: {"all": lax.ppermute(x, IJ, [(0, 4), (4, 2), (1, 1), (3, 0)]), "of j": lax.ppermute(x, "j", [(0, 1), (1, 2), (2, 0)]),
                               "shuffle": lax.pshuffle(x, "i", [1, 0]), "broadcast": lax.pbroadcast(x, "j", 2),
                               "index": x * lax.axis_index(IJ) + lax.axis_index("j") * lax.axis_size(IJ)},
}


def over_mesh(f, x):
    mesh = jax.make_mesh((2, 3), IJ)
    one = lambda x: jax.tree.map(lambda y: y[None, None], f(x[0, 0]))
    return jax.shard_map(one, mesh=mesh, in_specs=P("i", "j"), out_specs=P("i", "j"), check_vma=False)(x)


MAPS = {f"{outer} of {inner}": lambda f, x, outer=outer, inner=inner: getattr(jax, outer)(getattr(jax, inner)(f, axis_name="j"), axis_name="i")(x)
        for outer, inner in itertools.product(("vmap", "pmap"), repeat=2)} | {"shard_map": over_mesh}


@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_the_axes_are(name):
    program = PROGRAMS[name]
    weight = lambda y: jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
    results = {}
    for how, mapped in MAPS.items():
        values = jax.jit(lambda x: mapped(program, x))(X)
        gradient = jax.jit(jax.grad(lambda x: sum(jnp.sum(y * weight(y)) for y in mapped(program, x).values())))(X)
        results[how] = values, gradient
    want = results["pmap of pmap"]
    for how, found in results.items():
        jax.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5, err_msg=how), found, want)


def test_against_numpy():
    """What all forms agree on is right."""
    rows = X.reshape(6, 6, 4)
    found = MAPS["vmap of pmap"](PROGRAMS["groups of sums"], X)
    sums, largest = np.zeros_like(rows), np.zeros_like(rows)
    for group in HALVES:
        sums[group] = rows[group].sum(0)
    for group in UNEVEN:
        largest[group] = rows[group].max(0)
    np.testing.assert_allclose(found["psum"].reshape(rows.shape), sums, rtol=1e-5)
    np.testing.assert_allclose(found["max"].reshape(rows.shape), largest)
    found = MAPS["pmap of vmap"](PROGRAMS["permutations"], X)["all"].reshape(rows.shape)
    want = np.zeros_like(rows)
    for source, destination in [(0, 4), (4, 2), (1, 1), (3, 0)]:
        want[destination] = rows[source]
    np.testing.assert_array_equal(found, want)
