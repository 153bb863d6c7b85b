"""xmap: named axes of arrays, on a batch or over a mesh as axis_resources says, with the same meaning; pdot."""
import re

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.experimental.maps import xmap
from mini_jax.sharding import Mesh

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(8, 6, 3)).astype(np.float32), rng.normal(size=(4, 8)).astype(np.float32)
W = rng.normal(size=(3, 4)).astype(np.float32)
MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))

RESOURCES = [{}, {"i": "x"}, {"i": ("x", "y")}, {"i": "y", "j": "x"}, {"j": "y"}, {"i": ("y", "x")}]


def sums(x, y):
    return {"sum": lax.psum(x, "i"), "mixed": jnp.sin(x) * y, "max": lax.pmax(jnp.sum(x) * y, ("j", "i")),
            "index": lax.axis_index("i") + 10 * lax.axis_index("j"), "all": lax.all_gather(y, "i"), "size": lax.psum(1, ("i", "j")) + 0 * y,
            "sent": lax.ppermute(y, "i", [(k, (k + 3) % 8) for k in range(8)]), "part": lax.psum_scatter(jnp.full(8, y) * jnp.arange(8), "i")}


OUT = {"sum": {}, "mixed": {1: "j", 0: "i"}, "max": {}, "index": ["j", "i", ...], "all": {0: "j"}, "size": {0: "i", 1: "j"}, "sent": {0: "i", 1: "j"},
       "part": {-1: "i", 0: "j"}}


@pytest.mark.parametrize("resources", RESOURCES, ids=str)
def test_it_means_the_same_wherever_the_axes_are(resources):
    with MESH:
        found = xmap(sums, in_axes=({0: "i"}, ["j", "i", ...]), out_axes=OUT, axis_resources=resources)(X, Y)
    same = lambda name, want: np.testing.assert_allclose(np.asarray(found[name]), want, rtol=1e-4, atol=1e-4, err_msg=name)
    same("sum", X.sum(0))
    same("mixed", np.einsum("inm,ji->ijnm", np.sin(X), Y))
    same("max", (X.sum((1, 2)) * Y).max())
    same("index", np.arange(8) + 10 * np.arange(4)[:, None])
    same("all", Y)
    same("size", np.full((8, 4), 32))
    same("sent", np.roll(Y.T, 3, 0))
    same("part", np.arange(8) * Y.sum(1)[:, None])


def loss(w, x, t):
    return jnp.sum((jnp.tanh(x @ w) - t) ** 2)


@pytest.mark.parametrize("resources", RESOURCES[:3], ids=str)
def test_reduce_axes_gives_the_total_gradient(resources):
    t = rng.normal(size=(8, 6, 4)).astype(np.float32)
    named = dict(in_axes=({}, {0: "i"}, {0: "i"}), axis_resources=resources)
    want = jax.grad(lambda w: jnp.sum((jnp.tanh(X @ w) - t) ** 2))(W)
    with MESH:
        total = xmap(jax.grad(loss, reduce_axes=("i",)), out_axes={}, **named)
        each = xmap(jax.grad(loss), out_axes={0: "i"}, **named)
        np.testing.assert_allclose(total(W, X, t), want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(np.asarray(each(W, X, t)).sum(0), want, rtol=1e-4, atol=1e-4)
        text = total.lower(W, X, t).as_text()
        assert text.count("all_reduce") == (1 if resources else 0)
        assert not re.findall(r"tensor<(?:8|4|2|1)x3x4xf32>", text), "no batch of gradients"
        assert re.findall(r"tensor<(?:8|2|1)x3x4xf32>", each.lower(W, X, t).as_text())
        outer = lambda w: jnp.sum(xmap(loss, out_axes={0: "i"}, **named)(w, X, t))
        np.testing.assert_allclose(jax.grad(outer)(W), want, rtol=1e-4, atol=1e-4)


def test_axes_that_no_argument_has():
    f = xmap(lambda x: x * lax.axis_index("k"), in_axes={}, out_axes={1: "k"}, axis_sizes={"k": 3})
    np.testing.assert_array_equal(f(np.arange(2.0)), np.arange(2.0)[:, None] * np.arange(3))


def test_structures_and_donation():
    params, batch = {"w": W, "b": np.zeros(4, np.float32)}, (X, [Y[0]])
    f = xmap(lambda p, b: {"out": b[0] @ p["w"] + p["b"] * b[1][0]}, in_axes=({"w": {}, "b": {}}, {0: "i"}), out_axes=["i", ...])
    np.testing.assert_allclose(f(params, batch)["out"], X @ W + np.zeros(4), rtol=1e-5)
    x = jnp.ones((4, 3))
    xmap(lambda x: x + 1, in_axes=["i", ...], out_axes=["i", ...], donate_argnums=0)(x)
    assert x.is_deleted()


def test_xmap_within_xmap_and_vmap():
    m = rng.normal(size=(3, 5)).astype(np.float32)
    inner = xmap(lambda x, y: lax.psum(x * y, "b") + lax.pmax(x, ("a", "b")), in_axes=({0: "b"}, {0: "b"}), out_axes={})
    f = xmap(inner, in_axes=({1: "a"}, {}), out_axes={0: "a"})
    np.testing.assert_allclose(f(m, np.arange(3.0)), np.arange(3) @ m + m.max(), rtol=1e-4)
    g = xmap(lambda x: jax.vmap(lambda r: r / lax.psum(r, "a"))(x), in_axes={1: "a"}, out_axes={1: "a"})
    np.testing.assert_allclose(g(m), m / m.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("build, error, message", [
    (lambda: xmap(3, {}, {}), TypeError, "takes a function"),
    (lambda: xmap(lambda x: x, {0: "i"}, {0: "i"}, axis_resources={"i": "x"})(X), ValueError, "no mesh"),
    (lambda: xmap(lambda x: x, {0: "i"}, {}, )(X), ValueError, "out_axes doesn't name"),
    (lambda: xmap(lambda x: x, {3: "i"}, {})(X), ValueError, "names dimension 3 'i', but the array has 3"),
    (lambda: xmap(lambda x: x, {0: "i", 1: "i"}, {})(X), ValueError, "uses a name twice"),
    (lambda: xmap(lambda x, y: x, ({0: "i"}, {0: "i"}), {})(X, Y), ValueError, "size 8 in x and 4 in y"),
    (lambda: xmap(lambda x: x, {0: "i"}, {0: "k"})(X), ValueError, "axis 'k', which no argument has"),
    (lambda: xmap(lambda x: x, {0: "i"}, {0: "i"}, axis_sizes={"i": 7})(X), ValueError, "size 7"),
    (lambda: xmap(lambda x: x, {0: "i"}, {0: "i"}, axis_resources={"i": "x", "j": "x"}), ValueError, "two names"),
    (lambda: xmap(lambda x: x, (0,), {0: "i"})(X), TypeError, "list of names that ends with"),
    (lambda: xmap(lambda x: x, {0: "i"}, 0)(X), TypeError, "out_axes: the dimensions with names"),
    (lambda: xmap(lambda x: x, {0: "i"}, {0: "i"}, axis_resources={"k": "x"})(X), ValueError, "axis_resources has the axis 'k'"),
    (lambda: xmap(lambda x: lax.psum(x, "nope"), {0: "i"}, {})(X), NameError, "nope"),
    (lambda: jax.vmap(lambda x: xmap(lambda x: x, {0: "i"}, {0: "i"})(x), axis_name="i")(X), ValueError, "each must have its own"),
])
def test_what_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_what_can_not_be_cut_over_the_mesh():
    with MESH, pytest.raises(ValueError, match="size 6 can't be cut into 4 equal parts"):
        xmap(lambda x: x, {1: "i"}, {1: "i"}, axis_resources={"i": "x"})(X)
    with MESH, pytest.raises(ValueError, match="mesh axis 'z', but the mesh is"):
        xmap(lambda x: x, {1: "i"}, {1: "i"}, axis_resources={"i": "z"})(X)
    with MESH, pytest.raises(ValueError, match="differs along"):
        xmap(lambda x: x, {0: "i"}, {}, axis_resources={"i": ("x", "y")})(X)


def test_resources_within_a_map_over_devices_are_refused():
    inner = xmap(lambda y: lax.psum(y, "j"), in_axes={0: "j"}, out_axes={}, axis_resources={"j": "y"})
    with MESH, pytest.raises(ValueError, match="mapped over devices, along 'i.x'"):
        xmap(inner, in_axes={0: "i"}, out_axes={0: "i"}, axis_resources={"i": "x"})(X)
    with MESH:
        np.testing.assert_allclose(xmap(inner, in_axes={0: "i"}, out_axes={0: "i"})(X), X.sum(1), rtol=1e-4)


# --- pdot ----------------------------------------------------------------------------------------------------------------------------

A, B = rng.normal(size=(4, 3, 5)).astype(np.float32), rng.normal(size=(4, 3, 5, 2)).astype(np.float32)


@pytest.mark.parametrize("how", [jax.vmap, jax.pmap], ids=["vmap", "pmap"])
def test_pdot_is_the_sum_of_products(how):
    full = how(lambda a, b: lax.pdot(a, b, "i", pos_contract=((0, 1), (0, 1))), axis_name="i", out_axes=None)
    np.testing.assert_allclose(full(A, B), np.einsum("irc,irck->k", A, B), rtol=1e-4, atol=1e-4)
    kept = how(lambda a, b: lax.pdot(a, b, "i", pos_contract=((1,), (1,)), pos_batch=((0,), (0,))), axis_name="i", out_axes=None)
    np.testing.assert_allclose(kept(A, B), np.einsum("irc,irck->rk", A, B), rtol=1e-4, atol=1e-4)
    outer = how(lambda a, b: lax.pdot(a[0], b[0, 0], "i"), axis_name="i", out_axes=None)
    np.testing.assert_allclose(outer(A, B), np.einsum("ic,ik->ck", A[:, 0], B[:, 0, 0]), rtol=1e-4, atol=1e-4)
    shared = how(lambda a, w: (lax.pdot(a, w, "i", ((1,), (0,))), lax.pdot(w, w, "i", ((0,), (0,)))), axis_name="i", in_axes=(0, None), out_axes=None)
    w = B[0, 0]
    for found, want in zip(shared(A, w), (A.sum(0) @ w, 4 * w.T @ w)):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_pdot_contracts_the_batch_itself():
    f = jax.jit(jax.vmap(lambda a, b: lax.pdot(a[0], b[0, 0], "i"), axis_name="i", out_axes=None))
    assert "4x5x2" not in f.lower(A, B[..., :2]).as_text().split("return")[0].split("{", 2)[2].replace("tensor<4x3x5x2xf32>", "")
    other = jax.vmap(jax.vmap(lambda a, b: lax.pdot(a, b, "i"), in_axes=(0, 0), axis_name="i", out_axes=None), in_axes=(2, 2), axis_name="c")
    np.testing.assert_allclose(other(A[:, 0:2], B[:, 0:2, :, 0]), np.einsum("iac,ibc->cab", A[:, :2], B[:, :2, :, 0]), rtol=1e-4, atol=1e-4)


def test_pdot_has_derivatives():
    f = lambda a, b: jnp.sum(jnp.tanh(jax.vmap(lambda a, b: lax.pdot(a, b, "i", ((0,), (0,))), axis_name="i", out_axes=None)(a, b)))
    want = jax.grad(lambda a, b: jnp.sum(jnp.tanh(jnp.einsum("irc,irk->ck", a, b))), argnums=(0, 1))(A, B[:, :, 0])
    for found, wanted in zip(jax.grad(f, argnums=(0, 1))(A, B[:, :, 0]), want):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(NameError, match="unbound axis name"):
        lax.pdot(A, A, "i")


def test_gradients_of_pdot_are_those_of_psum():
    """Of each index and in total, of operands that vary and of one that all share, over a batch and over devices; and forward."""
    product = lambda w, x: lax.psum(jnp.dot(x, w), "i")
    contracted = lambda w, x: lax.pdot(x, w, "i", ((0,), (0,)))
    x, w = A[:, 0], B[0, 0]
    for how in (jax.vmap, jax.pmap):
        found = []
        for f in (product, contracted):
            loss = lambda w, x: jnp.sum(jnp.sin(f(w, x)) * jnp.sum(x))
            of = lambda g: how(g, in_axes=(None, 0), axis_name="i")(w, x)
            second = jax.grad(lambda w: jnp.sum(how(jax.grad(loss), in_axes=(None, 0), axis_name="i")(w, x) ** 2))
            found.append([of(jax.grad(loss)), of(jax.grad(loss, argnums=1)), how(jax.grad(loss, reduce_axes=("i",)), in_axes=(None, 0), out_axes=None,
                          axis_name="i")(w, x), of(lambda w, x: jax.jvp(loss, (w, x), (w * jnp.sum(x), x + 1))[1]), second(w)])
        for one, other in zip(*found):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
