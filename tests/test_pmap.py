"""Laws of pmap: it computes what a loop over the mapped axis computes, on one device for each index, through all transformations."""
import gc
import threading
import weakref

import numpy as np
import pytest

import mini_jax as jax
from mini_jax import checkpoint, custom_vjp, grad, jacfwd, jacrev, jit, jvp, lax, pmap, random, value_and_grad, vjp, vmap
from mini_jax import numpy as jnp
from mini_jax.runtime import xla

DEVICES = jax.devices()
rng = np.random.default_rng(0)
X = rng.normal(size=(4, 3)).astype("f4")
GRID = rng.normal(size=(2, 4, 3)).astype("f4")


def assert_close(value, wanted, tolerance=1e-5):
    leaves, tree = jax.tree.flatten(value)
    others, other = jax.tree.flatten(wanted)
    assert tree == other
    for a, b in zip(leaves, others):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def shards(x):
    """device number → the shape of what it holds"""
    return {shard.device.id: shard.data.shape for shard in x.addressable_shards}


# --- arguments and results -----------------------------------------------------------------------------------------------------------

def test_each_index_of_the_mapped_axis_is_computed_on_its_own_device():
    y = pmap(lambda x: jnp.sin(x) * 2)(X)
    assert_close(y, np.sin(X) * 2)
    assert shards(y) == {i: (1, 3) for i in range(4)}


@pytest.mark.parametrize("axis", range(-3, 3))
def test_any_axis_of_arguments_and_results(axis):
    x = rng.normal(size=(2, 2, 2)).astype("f4")
    f = lambda a, b: (a * 2 + b[0], a.sum() * b)
    wanted = [f(np.take(x, i, axis), np.take(x, i, 0)) for i in range(2)]
    first, second = pmap(f, in_axes=(axis, 0), out_axes=(axis, -1))(x, x)
    assert_close(first, np.stack([w[0] for w in wanted], axis))
    assert_close(second, np.stack([w[1] for w in wanted], -1))


def test_trees_prefixes_and_keyword_arguments():
    def f(params, x, *, shift):
        return {"y": params["w"][0] * x + shift, "b": (params["b"], lax.psum(x, "i"))}
    out = pmap(f, "i", in_axes=({"w": None, "b": 1}, 0), out_axes={"y": 1, "b": (0, None)})({"w": [2.0], "b": X.T}, X, shift=np.arange(4.0, dtype="f4"))
    assert_close(out, {"y": (2 * X + np.arange(4)[:, None]).T, "b": (X, X.sum(0))})
    assert_close(pmap(lambda pair: pair[0] + pair[1])([X, X]), 2 * X)
    assert pmap(lambda x: ())(X) == ()


def test_static_arguments_select_the_program():
    traced = []

    def f(x, power, b):
        traced.append(power)
        return x ** power + b
    mapped = pmap(f, static_broadcasted_argnums=1, in_axes=(0, None, None))
    for power in (2, 3, 2, 3):
        assert_close(mapped(X, power, 1.0), X ** power + 1)
    assert traced == [2, 3]


def test_when_nothing_is_mapped_the_size_is_given():
    assert pmap(lambda x: x + lax.axis_index("i"), "i", in_axes=None, axis_size=3)(1.0).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("x", [
    np.arange(24.0, dtype="f4").reshape(2, 4, 3)[:, :, ::-1], np.asfortranarray(np.ones((4, 3), "f4")), np.arange(4, dtype=">f4"),
    np.broadcast_to(np.float32(3), (4, 2)), np.zeros((4, 0), "f4"), np.arange(8).reshape(4, 2) > 3, np.ones((4, 3), "f8"), np.arange(4, dtype="u1"),
    [1.0, 2.0]], ids=lambda x: str(getattr(x, "dtype", "list")))
def test_whatever_numpy_has(x):
    y = pmap(lambda x: x)(x) if not isinstance(x, list) else pmap(lambda x: x)(jnp.array(x))
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def test_keys():
    keys = random.split(random.key(0), 4)
    assert_close(pmap(lambda key: random.normal(key, (2,)))(keys), np.stack([random.normal(key, (2,)) for key in keys]))
    split = pmap(lambda key: random.split(key, 2))(keys)
    assert_close(random.key_data(split), np.stack([random.key_data(random.split(key, 2)) for key in keys]))
    folded = pmap(lambda i, key: random.uniform(random.fold_in(key, i)), in_axes=(0, None))(np.arange(2), random.key(1))
    assert_close(folded, np.stack([random.uniform(random.fold_in(random.key(1), i)) for i in range(2)]))
    gathered = pmap(pmap(lambda key: random.key_data(lax.all_gather(key, "i")), "j"), "i")(keys.reshape(2, 2))
    assert_close(gathered[0, 1], random.key_data(keys.reshape(2, 2)[:, 1]))


def test_results_that_all_share_are_checked():
    y = pmap(lambda x: lax.pmean(x, "i"), "i", out_axes=None)(X)
    assert_close(y, X.mean(0))
    assert y.is_fully_replicated and len(y.devices()) == 4
    with pytest.raises(ValueError, match=r"out_axes None for a result of <lambda> at \['r'\], which differs along the mapped axis.*psum"):
        pmap(lambda x: {"r": x}, out_axes=None)(X)
    assert_close(pmap(lambda x: jit(lambda y: lax.psum(y, "i"))(x), "i", out_axes=None)(X), X.sum(0))      # seen through a call


# --- where arrays are ----------------------------------------------------------------------------------------------------------------

def test_what_is_on_its_devices_stays_there(monkeypatch):
    f = pmap(lambda w, x: (w * 2, x + w.sum(), lax.psum(x, "i")), "i", in_axes=(None, 0), out_axes=(None, 0, None))
    w, x, total = f(np.ones(3, "f4"), X)
    w, x, total = f(w, x)
    placed = []
    monkeypatch.setattr(xla, "_place_argument", lambda value, sharding, place=xla._place_argument: (placed.append(value), place(value, sharding))[1])
    for _ in range(3):
        w, x, total = f(w, x)
    assert not placed
    assert_close(w, np.full(3, 32.0)) and assert_close(x, X + 3 * 31)
    _, pull = vjp(lambda x: pmap(pmap(jnp.sin))(x), GRID)                 # forward and backward are programs of their own
    [residual] = pull._linear.residuals.values()
    assert shards(residual) == {i: (1, 1, 3) for i in range(8)}


def test_spread_arrays_are_arrays():
    y = pmap(lambda x: x + 1)(X)
    for value, wanted in [(y.sum(), (X + 1).sum()), (y[0], X[0] + 1), (y + y, 2 * X + 2), (y * X, (X + 1) * X), (jit(lambda a: a * 2)(y), 2 * X + 2),
                          (jnp.sin(y), np.sin(X + 1)), (y.T, (X + 1).T), (jax.device_put(y, DEVICES[5]), X + 1), (y.at[0].set(0.0)[1:], X[1:] + 1)]:
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-5, atol=1e-5)
    assert len(y) == 4 and [row.shape for row in y] == [(3,)] * 4 and repr(y).startswith("Array([[") and str(y) == str(np.asarray(y))
    elsewhere = jax.device_put(X, DEVICES[2])
    assert (y + elsewhere).device == DEVICES[2] and shards(pmap(lambda x: x)(elsewhere)).keys() == {0, 1, 2, 3}


def test_devices_in_the_order_given():
    y = pmap(lambda x: x + lax.axis_index("i"), "i", devices=DEVICES[::-1])(np.zeros(3, "i4"))
    assert y.tolist() == [0, 1, 2] and shards(y).keys() == {7, 6, 5}
    assert_close(jit(pmap(lambda x: lax.psum(x, "i"), "i", devices=DEVICES[4:6]))(X[:2]), np.stack([X[:2].sum(0)] * 2))
    assert shards(jit(pmap(lambda x: x, devices=DEVICES[4:6]))(X[:2])).keys() == {4, 5}
    assert_close(pmap(lambda x: x, backend="cpu")(X), X)


def test_donated_arrays_are_gone_and_say_so():
    f = pmap(lambda x, y: x + y, donate_argnums=0)
    x = pmap(lambda x: x)(X)
    pointer = x.addressable_shards[1].data.unsafe_buffer_pointer()
    out = f(x, X)
    assert x.is_deleted() and out.addressable_shards[1].data.unsafe_buffer_pointer() == pointer
    for call in (lambda: f(x, X), lambda: f(X, x), lambda: pmap(lambda a: a + 1)(x), lambda: jit(pmap(lambda a: a + 2))(x), lambda: x + 1):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="deleted"):
                call()
    out = f(f(out, X), X)                                                 # and the function goes on working
    assert_close(out, 4 * X)
    fast = jit(lambda a: pmap(lambda b: b * 2)(a))
    y = fast(fast(fast(X)))
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        fast(y)


# --- nesting -------------------------------------------------------------------------------------------------------------------------

def nested(map_i, map_j):
    def f(x, w):
        def g(y, v):
            return {"row": lax.psum(y, "j"), "column": lax.pmax(y, "i"), "all": lax.pmean(y, ("i", "j")) * x.sum(), "gather": lax.all_gather(y * w, "i"),
                    "index": lax.axis_index(("j", "i")), "v": v * 2}
        return map_j(g)(x, w * x), lax.psum(w, "i")
    return map_i(f)


def test_nested_maps_multiply():
    by_pmap = nested(lambda f: pmap(f, "i", in_axes=(0, None)), lambda f: pmap(f, "j"))
    by_vmap = nested(lambda f: vmap(f, axis_name="i", in_axes=(0, None)), lambda f: vmap(f, axis_name="j"))
    wanted = jit(by_vmap)(GRID, 2.0)
    assert_close(by_pmap(GRID, 2.0), wanted)
    assert_close(jit(by_pmap)(GRID, 2.0), wanted)


def test_nests_lie_on_the_whole_grid_and_nothing_is_gathered():
    f = pmap(pmap(lambda x: jnp.sin(x) * lax.psum(x, ("i", "j")), "j"), "i")
    y = f(GRID)
    assert_close(y, np.sin(GRID) * GRID.sum((0, 1)))
    assert shards(y) == {i: (1, 1, 3) for i in range(8)}
    text = f.lower(GRID).as_text()
    assert "all_gather" not in text and "dynamic_slice" not in text and text.count("all_reduce") == 1
    assert "num_replicas = 8" in text and "[[0, 1, 2, 3, 4, 5, 6, 7]]" in text
    loss = lambda x: (f(x) ** 2).sum()
    for derivative in (grad(loss), jit(grad(loss))):
        assert shards(derivative(GRID)) == {i: (1, 1, 3) for i in range(8)}
    assert "all_gather" not in jit(grad(lambda x: pmap(pmap(jnp.sin))(x).sum())).lower(GRID).as_text()


def test_three_deep_at_other_axes():
    x = rng.normal(size=(2, 3, 2, 2)).astype("f4")
    f = lambda x: jnp.sin(x) * lax.psum(x, ("a", "c")) + lax.axis_index("b")
    by_pmap = pmap(pmap(pmap(f, "c", in_axes=1, out_axes=1), "b"), "a", in_axes=2)
    by_vmap = vmap(vmap(vmap(f, axis_name="c", in_axes=1, out_axes=1), axis_name="b"), axis_name="a", in_axes=2)
    x = x[:, :2]
    y = by_pmap(x)
    assert_close(y, by_vmap(x))
    assert len(shards(y)) == 8 and set(shards(y).values()) == {(1, 1, 2, 1)}


def test_what_the_outer_map_uses_itself_is_cut_and_gathered_inside():
    f = lambda over: over(lambda x: (over(lambda y: y * x.sum())(x) + x, over(lambda y: y + 1)(over(lambda y: y * 2)(x))))
    assert_close(f(pmap)(GRID), f(vmap)(GRID))
    assert_close(jit(f(pmap))(GRID), f(vmap)(GRID))
    small = jnp.arange(8).reshape(2, 4).astype("int4")
    summed = lambda m: m(lambda x: m(lambda y: y + x[0])(x) + x)
    assert_close(summed(pmap)(small).astype("int8"), summed(vmap)(small).astype("int8"))


def test_maps_side_by_side_share_the_replicas():
    f = jit(lambda x, y: (pmap(lambda x: lax.psum(x, "i"), "i")(x), pmap(lambda y: lax.psum(y, "i") * lax.axis_index("i"), "i")(y), pmap(lambda x: x * 2)(x) + 1))
    a, b = np.arange(4.0, dtype="f4"), np.arange(2.0, dtype="f4")
    assert_close(f(a, b), (np.full(4, 6), np.array([0, 1]), 2 * a + 1))
    assert_close(f(np.arange(3.0, dtype="f4"), b), (np.full(3, 3), np.array([0, 1]), 2 * np.arange(3) + 1))       # on six devices
    with pytest.raises(ValueError, match="pmap needs 10 devices"):
        f(np.arange(5.0, dtype="f4"), b)


# --- through the transformations ------------------------------------------------------------------------------------------------------

def test_the_first_example_of_all():
    """Nested, with a gradient inside, and the gradient of all of that."""
    @pmap
    def f(x):
        y = jnp.sin(x)

        @pmap
        def g(z):
            return jnp.cos(z) * jnp.tan(y.sum()) * jnp.tanh(x).sum()
        return grad(lambda w: jnp.sum(g(w)))(x)
    x = np.arange(8.0).reshape(2, 4)
    sin, cos = np.sin(x), np.cos(x)
    tan, total, tanh = np.tan(sin.sum(1, keepdims=True)), sin.sum(1, keepdims=True), np.tanh(x).sum(1, keepdims=True)
    wanted = -cos * tan * tanh - total * (1 + tan ** 2) * cos * tanh - total * tan * (1 - np.tanh(x) ** 2)
    x = x.astype("f4")
    assert_close(f(x), -sin * tan * tanh)
    assert_close(grad(lambda x: f(x).sum())(x), wanted, 1e-4)
    assert_close(jit(grad(lambda x: f(x).sum()))(x), wanted, 1e-4)


def model(over):
    """A function of shared parameters and dealt out data, communicating, with calls inside, and results of all kinds.

    over: pmap or vmap, as a function (f, name, in_axes, out_axes)."""
    def replica(w, x):
        h = jnp.tanh(jit(lambda w, x: w["a"] * x + lax.pmean(x, "i"))(w, x))
        scale = jit(lambda w: lax.psum(w["b"], "i"))(w)                     # the same everywhere, by way of a call
        own = grad(lambda v: jit(lambda v: (v * h).sum() * lax.psum(v.sum(), "i"))(v))(w["b"])     # the cotangent of a shared value varies
        return h * scale, lax.pmean((h ** 2).sum() + own.sum(), "i"), own * x
    mapped = over(replica, "i", (None, 0), (0, None, 1))
    return lambda w, x: (lambda y, loss, own: jnp.sin(y).sum() + loss ** 2 + jnp.cos(own).sum())(*mapped(w, x))


MODELS = {"pmap": model(lambda f, name, ins, outs: pmap(f, name, in_axes=ins, out_axes=outs)),
          "vmap": model(lambda f, name, ins, outs: vmap(f, axis_name=name, in_axes=ins, out_axes=outs))}
W = {"a": rng.normal(size=3).astype("f4"), "b": rng.normal(size=3).astype("f4")}
DW, DX = jax.tree.map(lambda w: rng.normal(size=w.shape).astype("f4"), (W, X))


@pytest.mark.parametrize("transformed", [
    lambda f: value_and_grad(f, (0, 1)), lambda f: lambda w, x: jvp(f, (w, x), (DW, DX)), lambda f: lambda w, x: jvp(grad(f, (0, 1)), (w, x), (DW, DX)),
    lambda f: jit(grad(jit(f), (0, 1))), lambda f: lambda w, x: grad(lambda x: sum((g ** 2).sum() for g in jax.tree.leaves(grad(f)(w, x))))(x),
    lambda f: lambda w, x: jacrev(grad(lambda b: f({**w, "b": b}, x)))(w["b"]), lambda f: lambda w, x: jacfwd(grad(lambda b: f({**w, "b": b}, x)))(w["b"]),
    lambda f: lambda w, x: vmap(grad(f), in_axes=(None, 1))(w, jnp.stack([x, 2 * x], 1)),
    lambda f: lambda w, x: grad(checkpoint(f), (0, 1))(w, x),
], ids=["value_and_grad", "jvp", "forward over reverse", "jit", "reverse over reverse", "jacrev", "jacfwd", "vmap of grad", "checkpoint"])
def test_derivatives_are_those_of_the_batched_program(transformed):
    assert_close(transformed(MODELS["pmap"])(W, X), jit(transformed(MODELS["vmap"]))(W, X), 2e-3)


def test_derivatives_of_the_batched_program_are_right():
    """What the test above compares with, against differences, in double precision."""
    with jax.enable_x64(True):
        w, x, dw, dx = jax.tree.map(lambda a: jnp.asarray(np.asarray(a, "f8")), (W, X, DW, DX))
        f, h = jit(MODELS["vmap"]), 1e-6
        step = lambda s: f(jax.tree.map(lambda a, d: a + s * h * d, w, dw), x + s * h * dx)
        gw, gx = grad(f, (0, 1))(w, x)
        slope = sum((g * d).sum() for g, d in zip(jax.tree.leaves((gw, gx)), jax.tree.leaves((dw, dx))))
        np.testing.assert_allclose(slope, (step(1) - step(-1)) / (2 * h), rtol=1e-6)


def test_the_backward_pass_is_parallel_and_sums_shared_gradients_in_one_communication():
    f = lambda w, v, x: pmap(lambda w, v, x: jnp.sin(w * x) * v, in_axes=(None, None, 0))(w, v, x).sum()
    text = str(jax.make_jaxpr(grad(f, (0, 1, 2)))(W["a"], W["b"], X))
    assert text.count("pmap[") == 2 and text.count("= psum[") == 1
    assert "all_gather" not in jit(grad(f, (0, 1, 2))).lower(W["a"], W["b"], X).as_text()
    gw, gv, gx = grad(f, (0, 1, 2))(W["a"], W["b"], X)
    assert len(shards(gx)) == 4 and gw.is_fully_replicated
    assert_close((gw, gv, gx), ((np.cos(W["a"] * X) * X * W["b"]).sum(0), np.sin(W["a"] * X).sum(0), np.cos(W["a"] * X) * W["a"] * W["b"]))


def test_a_result_that_all_share_is_one_value():
    assert_close(grad(lambda x: pmap(lambda x: lax.psum(x, "i"), "i", out_axes=None)(x).sum())(X), np.ones_like(X))
    assert_close(grad(lambda w: pmap(lambda w, x: w * 2, in_axes=(None, 0), out_axes=None)(w, X).sum())(W["a"]), np.full(3, 2.0))
    f = pmap(lambda x: lax.psum(x, "i"), "i")                       # each replica's copy counts
    assert_close(grad(lambda x: f(x).sum())(X), np.full_like(X, 4))


def test_gradients_inside_are_each_replicas_own():
    per_replica = pmap(lambda w, x: grad(lambda w: (w * x).sum())(w), in_axes=(None, 0))(W["a"], X)
    assert_close(per_replica, X)
    total = pmap(lambda w, x: lax.psum(grad(lambda w: (w * x).sum())(w), "i"), "i", in_axes=(None, 0), out_axes=None)(W["a"], X)
    assert_close(total, X.sum(0))


def test_custom_derivatives():
    @custom_vjp
    def mean(x):
        return lax.pmean(x, "i")
    mean.defvjp(lambda x: (mean(x), None), lambda _, ct: (lax.psum(ct, "i") * 10,))
    assert_close(grad(lambda x: pmap(lambda x: mean(x) ** 2, "i")(x).sum())(X), np.stack([4 * 2 * X.mean(0) * 10] * 4), 1e-4)


def test_vmap_around_and_within_at_every_axis():
    f = lambda x: (lax.psum(jnp.sin(x), "i") * x, x.sum())
    for batch in range(3):
        for mapped in range(2):
            x = rng.normal(size=(2, 3, 4)).astype("f4")
            over = lambda m: vmap(m, in_axes=batch, out_axes=(1, 0))(x)
            assert_close(over(lambda x: pmap(f, "i", in_axes=mapped, out_axes=(mapped, 0))(x)), over(lambda x: vmap(f, axis_name="i", in_axes=mapped, out_axes=(mapped, 0))(x)))


def test_a_map_reaches_axes_of_vmap_around_it():
    f = lambda over: vmap(lambda row: over(lambda x: lax.psum(x, "outer") + lax.axis_index("outer"))(row), axis_name="outer")(X)
    assert_close(f(pmap), f(vmap))
    assert_close(jit(lambda: f(pmap))(), f(vmap))


def test_values_of_outer_traces():
    closed = lambda over: grad(lambda w: over(lambda x: x * w + jnp.sin(w).sum())(X).sum())(jnp.asarray(W["a"]))
    assert_close(closed(pmap), closed(vmap))
    for f in (lambda over: jit(lambda w: over(lambda x: x * w)(X))(W["a"]), lambda over: vmap(lambda w: over(lambda x: x * w)(X))(X)):
        assert_close(f(pmap), f(vmap))


def test_a_pullback_made_outside_works_inside():
    _, pull = vjp(lambda x: pmap(jnp.sin)(x), X[:, 0])
    inside = lambda over: over(lambda ct: pull(ct * jnp.ones(4))[0])(np.arange(2.0, dtype="f4"))
    assert_close(inside(pmap), np.arange(2)[:, None] * np.cos(X[:, 0]))


# --- looking at it --------------------------------------------------------------------------------------------------------------------

def test_stages():
    f = pmap(lambda x, n: {"y": lax.psum(x, "i") * n}, "i", static_broadcasted_argnums=1)
    traced = f.trace(jax.ShapeDtypeStruct((4, 3), "float32"), 2)
    assert "pmap[" in str(traced.jaxpr) and "axis_size=4" in str(traced.jaxpr) and "f32[3]{i}" in str(traced.jaxpr)
    assert traced.out_info == {"y": jax.ShapeDtypeStruct((4, 3), "float32")} == f.eval_shape(X, 2)
    lowered = traced.lower()
    assert "num_replicas = 4" in lowered.as_text() and "test_pmap.py" not in lowered.as_text() and "test_pmap.py" in lowered.as_text(debug_info=True)
    compiled = lowered.compile()
    assert_close(compiled(X), {"y": 2 * np.stack([X.sum(0)] * 4)})
    assert "all-reduce" in compiled.as_text() and compiled.cost_analysis() and compiled.memory_analysis() is not None
    assert "PmapSharding" in repr(compiled.input_shardings) and list(compiled.output_shardings) == ["y"]
    with pytest.raises(TypeError, match=r"compiled for f32\[4,3\]"):
        compiled(X[:2])


def test_without_jit_it_computes_the_same():
    with jax.disable_jit():
        assert_close(pmap(lambda x, n, *, b: (lax.psum(x, "i") * n + b, lax.axis_index("i")), "i", static_broadcasted_argnums=1)(X, 2, b=X),
                     (2 * X.sum(0) + X, np.arange(4)))
        assert_close(pmap(pmap(lambda x: lax.psum(x, ("i", "j")), "j"), "i")(GRID), np.broadcast_to(GRID.sum((0, 1)), GRID.shape))


# --- mistakes -------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("call, error, words", [
    (lambda: pmap(lambda a: a)(np.ones((9, 2))), ValueError, "pmap needs 9 devices.*there are 8: cpu:0.*xla_force_host_platform_device_count=9"),
    (lambda: pmap(pmap(lambda a: a))(np.ones((4, 3))), ValueError, "pmap needs 12 devices"),
    (lambda: jit(pmap(pmap(lambda a: a)))(np.ones((4, 3))), ValueError, "pmap needs 12 devices"),
    (lambda: pmap(lambda a: a, devices=DEVICES[:2])(X), ValueError, r"needs 4 devices.*was given 2: cpu:0, cpu:1\. Pass more in devices="),
    (lambda: jit(lambda x: (pmap(lambda a: a, devices=DEVICES[:2])(x), pmap(lambda a: a, devices=DEVICES[2:4])(x)))(X[:2]), ValueError, "different devices"),
    (lambda: pmap(lambda a: a, devices=DEVICES, backend="cpu"), ValueError, "not both"),
    (lambda: pmap(lambda a, b: a)(X, {"k": X[:3]}), ValueError, r"inconsistent sizes.*\n.*a has size 4 along axis 0 \(type f32\[4,3\]\)\n.*b\['k'\] has size 3"),
    (lambda: pmap(lambda a, b: a)(X, 1.0), ValueError, "axis 0 of argument b of <lambda>, which has type f32.*in_axes None"),
    (lambda: pmap(lambda a: a, in_axes=None)(X), ValueError, "maps no argument"),
    (lambda: pmap(lambda a: a, axis_size=3)(X), ValueError, "axis_size is 3"),
    (lambda: pmap(lambda a: a)(X[:0]), ValueError, "size 0"),
    (lambda: pmap(lambda a: a, in_axes=2)(X), ValueError, "axis 2 of argument a"),
    (lambda: pmap(lambda a: a, out_axes=2)(X), ValueError, "out_axes 2 is out of bounds for a result of <lambda> with 2 axes"),
    (lambda: pmap(lambda a: a, in_axes="a"), TypeError, "pmap in_axes must be ints"),
    (lambda: pmap(lambda a: a, in_axes={"k": 0}), TypeError, "write in_axes="),
    (lambda: pmap(lambda a: a, in_axes=(0, 0))(X), ValueError, "2 entries, but <lambda> was called with 1"),
    (lambda: pmap(lambda a: a, in_axes=({"k": 0},))({"j": X}), ValueError, "pmap in_axes"),
    (lambda: pmap(3), TypeError, "takes a function, got 3"),
    (lambda: pmap(lambda a: a, ["i"]), TypeError, "must be hashable"),
    (lambda: pmap(lambda a: a)("text"), TypeError, "argument a of <lambda> is 'text'"),
    (lambda: pmap(lambda a: "text")(X), TypeError, "returned 'text'"),
    (lambda: pmap(lambda a, n: a, static_broadcasted_argnums=1)(X, [1]), ValueError, "[Nn]on-hashable static"),
    (lambda: pmap(lambda a: a, static_broadcasted_argnums=3), ValueError, "3 names none"),
    (lambda: pmap(lambda a: a, static_broadcasted_argnums=0, donate_argnums=0), ValueError, "both static and donated"),
    (lambda: pmap(lambda a: pmap(lambda b: lax.psum(b, "i"), "i")(a), "i")(X), ValueError, "axis name 'i' is that of a map around it"),
    (lambda: pmap(lambda a: bool(a[0] > 0))(X), jax.errors.TracerBoolConversionError, "a"),
    (lambda: grad(lambda x: pmap(lambda a: a)(x).sum())(np.arange(4)), TypeError, r"argument x of <lambda> is i32\[4\]"),
])
def test_mistakes(call, error, words):
    for _ in range(2):                                                         # the second time too, when something is cached
        with pytest.raises(error, match=words):
            call()


def test_a_failed_call_does_not_slow_down_later_ones():
    fail = [True]

    def f(x):
        if fail[0]:
            raise KeyError("first")
        return x
    mapped = pmap(f)
    with pytest.raises(KeyError):
        mapped(X)
    fail[0] = False
    mapped(X)
    assert mapped._cache_size() == 1


# --- life -----------------------------------------------------------------------------------------------------------------------------

def test_dropped_functions_are_freed_with_what_they_captured():
    def used(use):
        big = jnp.ones(100)

        def f(x):
            return x * big.sum()
        use(f)
        return weakref.ref(f), weakref.ref(big)
    uses = [lambda f: pmap(f)(X), lambda f: pmap(pmap(f))(GRID), lambda f: jit(pmap(f))(X), lambda f: grad(lambda x: pmap(f)(x).sum())(X)]
    alive = [used(use) for use in uses for _ in range(2)]
    gc.collect()
    assert [(f(), big()) for f, big in alive] == [(None, None)] * 8


def test_equal_maps_of_one_function_share_their_programs():
    count = []

    def f(x):
        count.append(1)
        return x + 1
    for _ in range(3):
        pmap(f)(X), pmap(f, in_axes=(0,))(X)
    assert len(count) == 2


def test_threads_compile_once():
    count, results = [], []

    def f(x):
        count.append(1)
        return lax.psum(x, "i") + x
    mapped = pmap(f, "i")
    run(8, lambda: results.append(np.asarray(mapped(X))))
    assert len(count) == 1 and len(results) == 8
    for r in results:
        assert_close(r, X.sum(0) + X)


def run(count, work):
    threads = [threading.Thread(target=work) for _ in range(count)]
    [t.start() for t in threads], [t.join() for t in threads]


def test_threads_communicate_at_the_same_time():
    maps, results = [pmap(lambda x, k=k: lax.psum(jnp.sin(x), "i") + k, "i") for k in range(4)], []

    def work():
        mine = jit(lambda x: pmap(lambda x: lax.pmean(x, "i"), "i")(x) * 2)
        y = np.ones((8, 100), "f4")
        for k in range(40):
            y = mine(y) if k % 5 == 0 else maps[k % 4](y)
        results.append(np.asarray(y))
    run(4, work)
    for r in results:
        np.testing.assert_array_equal(r, results[0])
