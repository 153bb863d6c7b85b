"""reduce_axes: along the named axes listed, a gradient is that of the sum, and no gradient of one example ever exists."""
import re

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.sharding import PartitionSpec as P

N = 4
rng = np.random.default_rng(0)
PARAMS = {"w": rng.normal(size=(5, 5)).astype(np.float32) / 2, "b": rng.normal(size=5).astype(np.float32),
          "table": rng.normal(size=(6, 5)).astype(np.float32), "s": np.float32(0.7), "kernel": rng.normal(size=(2, 1, 3)).astype(np.float32)}
XS = rng.normal(size=(N, 2, 5)).astype(np.float32)
IDS = np.array([[0, 5], [1, 1], [5, 2], [3, 0]], np.int32)


def dense(p, x, ids):
    return jnp.sum(jnp.tanh(x @ p["w"] + p["b"]) ** 2)


def decayed(p, x, ids):
    """A term that all examples share: in the total it counts once for each of them."""
    return dense(p, x, ids) + 0.1 * jnp.sum(p["w"] ** 2) + p["s"]


def embedded(p, x, ids):
    return jnp.sum(jnp.tanh(p["table"][ids] * x) @ p["w"])


def rows_by_slices(p, x, ids):
    row = lax.dynamic_slice(p["table"], (ids[0], np.int32(0)), (1, 5)) + lax.dynamic_index_in_dim(p["table"], ids[1], 0)
    return jnp.sum(jnp.tanh(row * x[:1]))


def convolved(p, x, ids):
    y = lax.conv_general_dilated(x[:, None, :], p["kernel"], (1,), [(1, 1)], dimension_numbers=("NCH", "OIH", "NCH"))
    return jnp.sum(jnp.tanh(y) * p["s"])


def scanned(p, x, ids):
    def step(h, row):
        h = jnp.tanh(h @ p["w"] + row + p["table"][ids[0]])
        return h, h * p["s"]
    h, ys = lax.scan(step, jnp.zeros(5), x)
    return jnp.sum(h * p["b"]) + jnp.sum(ys)


def layers_scanned(p, x, ids):
    """The parameters are the scan's xs."""
    h, _ = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, jnp.stack([p["w"], p["w"] * p["s"]]))
    return jnp.sum(h)


def branched(p, x, ids):
    return lax.cond(ids[0] > 2, lambda q, x: jnp.sum(x @ q["w"]) * q["s"], lambda q, x: jnp.sum(jnp.cos(x) * q["b"]), p, x)


def looped(p, x, ids):
    return jnp.sum(lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ p["w"]) + p["b"], x))


@jax.jit
def _prepared(w, s):
    return jnp.tanh(w) * s, jnp.sum(w)


def prepared(p, x, ids):
    """What a call makes of parameters alone."""
    w, total = _prepared(p["w"], p["s"])
    return jnp.sum(jnp.tanh(x @ w)) * total + total


def rematerialized(p, x, ids):
    return jax.checkpoint(dense)(p, x, ids) + jnp.sum(jax.checkpoint(jnp.sin)(p["b"]) * x)


@jax.custom_vjp
def _scaled(x, w):
    return x * jnp.sum(w)


_scaled.defvjp(lambda x, w: (_scaled(x, w), (x, w)), lambda saved, ct: (ct * jnp.sum(saved[1]), jnp.full((5, 5), jnp.sum(ct * saved[0]))))


def customized(p, x, ids):
    return jnp.sum(_scaled(x, p["w"]) + _scaled(p["b"], p["w"]))


def concatenated(p, x, ids):
    stacked = jnp.concatenate([x, p["table"], jnp.where(x > 0, p["b"], x)])
    return jnp.sum(jnp.cumsum(stacked, 0) ** 2) + jnp.max(jnp.sort(p["b"] + x[0]))


def solved(p, x, ids):
    a = p["w"] @ p["w"].T + 5 * jnp.eye(5)
    return jnp.sum(jnp.linalg.solve(a, x.T) ** 2) + jnp.sum(jnp.linalg.solve(a + jnp.diag(x[0] ** 2), p["b"]))


def of_parameters_alone(p, x, ids):
    """A scan that carries what all share, and returns what they don't; its results are used by all together and by each."""
    def step(h, row):
        h = jnp.tanh(h @ p["w"])
        return h, h * row
    h, ys = lax.scan(step, p["b"], x)
    weights, _ = lax.scan(lambda h, b: (jnp.tanh(h @ p["w"]) * b, None), p["w"], p["b"])
    return jnp.sum(ys) + jnp.sum(h) + jnp.sum(jnp.tanh(x @ weights)) + jnp.sum(weights ** 2)


def replaced(p, x, ids):
    """A scan that carries what differs, but not after a step."""
    h, ys = lax.scan(lambda h, row: (jnp.ones(5) * p["s"] + p["b"], h * row), x[0], x)
    return jnp.sum(ys ** 2) + jnp.sum(h * x)


def chosen_by_parameters(p, x, ids):
    """All take the same branch; one makes of parameters what all share, the other what they don't, in a way that all share or not."""
    a, b, c = lax.cond(p["s"] > 0, lambda: (jnp.tanh(p["w"]), p["b"] * p["s"], x @ p["w"]), lambda: (p["w"] * x[0], x[0] * p["b"], x * 1.0))
    a_, b_, c_ = lax.cond(p["s"] < 0, lambda: (jnp.tanh(p["w"]), p["b"] * p["s"], x @ p["w"]), lambda: (p["w"] * x[0], x[0] * p["b"], x * 1.0))
    return jnp.sum(jnp.sin(a) * a_) + jnp.sum(b * jnp.sin(b_)) + jnp.sum(c * c_)


PER_EXAMPLE = [dense, decayed, embedded, rows_by_slices, convolved, scanned, layers_scanned, branched, looped, prepared, rematerialized,
               customized, concatenated, solved, of_parameters_alone, replaced, chosen_by_parameters]


def total_of(loss):
    return jax.grad(lambda p, xs, ids: jnp.sum(jax.vmap(loss, (None, 0, 0))(p, xs, ids)))


def agree(got, want, tolerance=1e-4):
    for (path, a), b in zip(jax.tree_util.tree_flatten_with_path(got)[0], jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def gradients(losses, *axes):
    """Of several losses at once, by name: one program, which is compiled once."""
    return lambda p, x, ids: {loss.__name__: jax.grad(loss, reduce_axes=axes)(p, x, ids) for loss in losses}


def over_batch(losses):
    return jax.vmap(gradients(losses, "i"), in_axes=(None, 0, 0), out_axes=None, axis_name="i")


def over_devices(losses):
    return jax.pmap(gradients(losses, "i"), in_axes=(None, 0, 0), out_axes=None, axis_name="i")


def over_both(losses):
    """Half of the axes are devices'."""
    inner = jax.vmap(gradients(losses, "i", "j"), in_axes=(None, 0, 0), out_axes=None, axis_name="j")
    outer = jax.pmap(inner, in_axes=(None, 0, 0), out_axes=None, axis_name="i")
    return lambda p, xs, ids: outer(p, xs.reshape(2, 2, *xs.shape[1:]), ids.reshape(2, 2, *ids.shape[1:]))


def over_mesh(losses):
    one = lambda p, x, ids: gradients(losses, "i")(p, x[0], ids[0])
    return jax.shard_map(one, mesh=jax.make_mesh((N,), ("i",)), in_specs=(P(), P("i"), P("i")), out_specs=P())


@pytest.fixture(scope="module")
def totals():
    return jax.jit(lambda *args: {loss.__name__: total_of(loss)(*args) for loss in PER_EXAMPLE})(PARAMS, XS, IDS)


@pytest.mark.parametrize("how", [over_batch, over_devices, over_both, over_mesh], ids=lambda f: f.__name__)
def test_it_is_the_gradient_of_the_sum(how, totals):
    agree(jax.jit(how(PER_EXAMPLE))(PARAMS, XS, IDS), totals)


@pytest.mark.parametrize("loss", [dense, embedded, prepared], ids=lambda f: f.__name__)
def test_it_is_the_same_wherever_jit_is(loss, totals):
    want, mapped = totals[loss.__name__], lambda f: jax.vmap(f, in_axes=(None, 0, 0), out_axes=None, axis_name="i")(PARAMS, XS, IDS)
    agree(mapped(jax.grad(loss, reduce_axes=("i",))), want)
    agree(mapped(jax.grad(jax.jit(loss), reduce_axes=("i",))), want)
    agree(mapped(jax.jit(jax.grad(loss, reduce_axes=("i",)))), want)


def test_without_it_gradients_are_those_of_each_example(totals):
    losses = [dense, decayed, scanned, prepared, branched, customized]
    each = jax.jit(jax.vmap(gradients(losses), (None, 0, 0), axis_name="i"))(PARAMS, XS, IDS)
    agree(jax.tree.map(lambda g: np.asarray(g).sum(0), each), {loss.__name__: totals[loss.__name__] for loss in losses})
    agree(jax.pmap(gradients(losses), in_axes=(None, 0, 0), axis_name="i")(PARAMS, XS, IDS), each)
    mixed = jax.jit(jax.vmap(over_batch(losses), in_axes=(None, 0, 0), axis_name="j"))
    halves = mixed(PARAMS, XS.reshape(2, 2, 2, 5), IDS.reshape(2, 2, 2))
    agree(halves, jax.tree.map(lambda g: np.asarray(g).reshape(2, 2, *g.shape[1:]).sum(1), each))


# --- collectives in the function --------------------------------------------------------------------------------------------------

def alone(p, x, ids):
    """It has nothing to do with the examples."""
    return jnp.sum(jnp.sin(p["w"]) * p["s"] + p["b"] ** 2)


def mean_loss(p, x, ids):
    return lax.pmean(dense(p, x, ids), "i")


def normalized(p, x, ids):
    """Batch normalization: a sum over examples in the middle; the loss is the same on all."""
    h = x @ p["w"]
    h = (h - lax.pmean(h, "i")) * lax.rsqrt(lax.pmean(h ** 2, "i") + 1) * p["b"]
    return lax.psum(jnp.sum(jnp.tanh(h)), "i") + jnp.sum(p["b"] ** 2)


def gathered(p, x, ids):
    """Contrastive: each example against all, and what all share."""
    every = lax.all_gather(x @ p["w"], "i")
    return lax.pmean(jnp.sum(jnp.tanh(every * (x * p["b"]))), "i") + jnp.sum(every ** 2)


def scattered(p, x, ids):
    parts = lax.psum_scatter(jnp.tile(p["w"][:1] * x[0], (N, 1)) + p["table"][:N], "i")
    return lax.psum(jnp.sum(parts ** 2), "i") + lax.pmean(jnp.sum(lax.ppermute(p["b"] * x[0], "i", [(k, (k + 1) % N) for k in range(N)]) ** 3), "i")


def extreme(p, x, ids):
    return lax.pmax(jnp.sum(x * p["b"]), "i") * lax.psum(p["s"], "i") + lax.pmean(lax.axis_index("i") * p["s"], "i")


def exchanged(p, x, ids):
    y = lax.all_to_all(jnp.tile(x[:1] * p["b"], (N, 1)) * jnp.arange(N)[:, None], "i", 0, 0)
    z = lax.all_to_all(p["table"][:N], "i", 0, 0)
    return lax.psum(jnp.sum(y ** 2 * z), "i")


SHARED = [alone, mean_loss, normalized, gathered, scattered, extreme, exchanged]


@pytest.fixture(scope="module")
def shared_gradients():
    together = lambda loss: lambda p, xs, ids: jax.vmap(loss, (None, 0, 0), out_axes=None, axis_name="i")(p, xs, ids)
    values = jax.jit(lambda *args: {loss.__name__: together(loss)(*args) for loss in SHARED})
    found = jax.jit(lambda *args: {loss.__name__: jax.grad(together(loss))(*args) for loss in SHARED})(PARAMS, XS, IDS)
    direction = rng.normal(size=5).astype(np.float32)
    above, below = [values({**PARAMS, "b": PARAMS["b"] + step * direction}, XS, IDS) for step in (1e-2, -1e-2)]
    for name, gradient in found.items():
        np.testing.assert_allclose(np.sum(gradient["b"] * direction), (above[name] - below[name]) / 2e-2, rtol=2e-2, atol=2e-2)
    return found


@pytest.mark.parametrize("how", [over_batch, over_devices, over_mesh], ids=lambda f: f.__name__)
def test_a_loss_that_all_share_has_one_gradient(how, shared_gradients):
    """Of a loss that is the same along the axis, it is the loss's own: not as many times that as there are examples."""
    agree(jax.jit(how(SHARED))(PARAMS, XS, IDS), shared_gradients)


@pytest.mark.parametrize("along", ["i", "j"])
def test_axes_of_which_only_some_are_gathered_whole(along):
    """all_gather over two axes, of a loss that differs along one of them."""
    def loss(w, x):
        every = lax.all_gather(x @ w, ("i", "j"))
        return jnp.sum(jnp.tanh(every) ** 2 * lax.pmean(x[0], "j" if along == "i" else "i"))
    xs = XS.reshape(2, 2, 2, 5)

    each = jax.vmap(jax.vmap(loss, (None, 0), axis_name="j"), (None, 0), axis_name="i")
    want = jax.grad(lambda w: jnp.sum(each(w, xs)) / 2)(PARAMS["w"])          # the loss is the same along the other axis
    total = jax.grad(loss, reduce_axes=("i", "j"))
    for inner, outer in ((jax.vmap, jax.vmap), (jax.vmap, jax.pmap), (jax.pmap, jax.pmap)):
        g = outer(inner(total, in_axes=(None, 0), out_axes=None, axis_name="j"), in_axes=(None, 0), out_axes=None, axis_name="i")
        agree(g(PARAMS["w"], xs), want)


# --- what it costs ------------------------------------------------------------------------------------------------------------------

def _two_layers(p, x):
    h = jnp.tanh(x @ p["a"] + p["c"])
    return jnp.sum((h @ p["d"]) ** 2) + 0.1 * jnp.sum(p["a"] ** 2)


LAYERS = {"a": jnp.ones((17, 13)), "c": jnp.ones(13), "d": jnp.ones((13, 11))}
BATCH = jnp.ones((8, 3, 17))


def _shapes(text):
    return {tuple(map(int, re.findall(r"\d+(?=x)", found))) for found in re.findall(r"tensor<([0-9x]+x[a-z]\w*)>", text)}


@pytest.mark.parametrize("forward", [_two_layers, jax.jit(_two_layers)], ids=["plain", "jitted"])
def test_over_devices_there_is_one_communication(forward):
    step = jax.pmap(jax.value_and_grad(forward, reduce_axes=("i",)), in_axes=(None, 0), out_axes=(0, None), axis_name="i")
    assert step.lower(LAYERS, BATCH).as_text().count("all_reduce") == 1
    nested = jax.pmap(jax.vmap(jax.grad(forward, reduce_axes=("i", "j")), (None, 0), out_axes=None, axis_name="j"), in_axes=(None, 0), out_axes=None,
                      axis_name="i")
    text = nested.lower(LAYERS, BATCH.reshape(4, 2, 3, 17)).as_text()
    assert text.count("all_reduce") == 1
    assert not [shape for shape in _shapes(text) if {17, 13} <= set(shape) and len(shape) > 2]


@pytest.mark.parametrize("loss", [scanned, layers_scanned, of_parameters_alone, branched, chosen_by_parameters, rematerialized, prepared], ids=lambda f: f.__name__)
def test_loops_and_branches_communicate_no_more(loss):
    step = jax.pmap(jax.grad(loss, reduce_axes=("i",)), in_axes=(None, 0, 0), out_axes=None, axis_name="i")
    assert step.lower(PARAMS, XS, IDS).as_text().count("all_reduce") == 1


def test_no_batch_of_gradients_is_made():
    """Each parameter's sizes are primes of its own, so that a tensor of batch and parameter would show."""
    f = jax.jit(jax.vmap(jax.grad(_two_layers, reduce_axes=("i",)), (None, 0), out_axes=None, axis_name="i"))
    assert not [shape for shape in _shapes(f.lower(LAYERS, BATCH).as_text()) if len(shape) > 2 and ({17, 13} <= set(shape) or {13, 11} <= set(shape))]
    table, ids = jnp.ones((97, 7)), jnp.zeros((8, 5), jnp.int32)
    for read in (lambda t, ids: jnp.sum(jnp.tanh(t[ids])), lambda t, ids: jnp.sum(jnp.tanh(lax.dynamic_slice(t, (ids[0], ids[1]), (1, 2))))):
        g = jax.jit(jax.vmap(jax.grad(read, reduce_axes=("i",)), (None, 0), out_axes=None, axis_name="i"))
        assert not [shape for shape in _shapes(g.lower(table, ids).as_text()) if 97 in shape and len(shape) > 2]
    kernel, images = jnp.ones((3, 3, 5, 7)), jnp.ones((8, 2, 11, 11, 5))
    blur = lambda k, x: jnp.sum(jnp.tanh(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))))
    g = jax.jit(jax.vmap(jax.grad(blur, reduce_axes=("i",)), (None, 0), out_axes=None, axis_name="i"))
    assert not [shape for shape in _shapes(g.lower(kernel, images).as_text()) if {3, 5, 7} <= set(shape) and len(shape) > 4]
    per_example = jax.jit(jax.vmap(jax.grad(_two_layers), (None, 0), axis_name="i"))
    assert [shape for shape in _shapes(per_example.lower(LAYERS, BATCH).as_text()) if {17, 13} <= set(shape) and len(shape) > 2], "the check sees none"


# --- the other ways to ask ----------------------------------------------------------------------------------------------------------

def test_every_reverse_mode_takes_it():
    want = total_of(dense)(PARAMS, XS, IDS)
    run = lambda fun: jax.vmap(fun, in_axes=(None, 0, 0), out_axes=None, axis_name="i")(PARAMS, XS, IDS)
    agree(run(lambda p, x, ids: jax.value_and_grad(dense, reduce_axes=("i",))(p, x, ids)[1]), want)
    agree(run(lambda p, x, ids: jax.vjp(lambda p: dense(p, x, ids), p, reduce_axes=("i",))[1](1.0)[0]), want)
    agree(run(lambda p, x, ids: jax.jacrev(dense, reduce_axes=("i",))(p, x, ids)), want)
    linear = lambda x: jax.linear_transpose(lambda w: x @ w, PARAMS["w"], reduce_axes=("i",))(jnp.ones((2, 5)))[0]
    np.testing.assert_allclose(jax.vmap(linear, out_axes=None, axis_name="i")(XS), np.einsum("nbi,bj->ij", XS, np.ones((2, 5))), rtol=1e-5)


def test_a_gradient_is_added_to_a_ref_in_total():
    total = jax.new_ref(jnp.zeros((5, 5)))

    def each(w, x):
        back = jax.vjp(lambda w: jnp.sum(jnp.tanh(x @ w)), w, reduce_axes=("i",))[1]
        return back.with_refs(jax.ad.GradValue())(1.0)[0]
    agree(jax.vmap(each, in_axes=(None, 0), out_axes=None, axis_name="i")(PARAMS["w"], XS),
          jax.grad(lambda w: jnp.sum(jnp.tanh(XS @ w)))(PARAMS["w"]))
    back = jax.vjp(lambda w: jnp.sum(jax.vmap(lambda x: jnp.sum(jnp.tanh(x @ w)), axis_name="i")(jnp.asarray(XS))), PARAMS["w"], reduce_axes=("i",))[1]
    back.with_refs(total)(1.0)
    agree(total[...], jax.grad(lambda w: jnp.sum(jnp.tanh(XS @ w)))(PARAMS["w"]))


def test_what_differs_along_the_axis_has_gradients_of_its_own():
    both = jax.vmap(jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)), argnums=(0, 1), reduce_axes=("i",)), in_axes=(None, 0), out_axes=(None, 0), axis_name="i")
    of_w, of_x = both(PARAMS["w"], XS)
    agree((of_w, of_x), jax.grad(lambda w, xs: jnp.sum(jnp.tanh(xs @ w)), argnums=(0, 1))(PARAMS["w"], XS))
    marked = jax.vmap(jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)), reduce_axes=("i",)), axis_name="i")
    agree(jax.vmap(lambda w, x: jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)), reduce_axes=("i",))(lax.pvary(w, "i")), (None, 0), axis_name="i")(PARAMS["w"], XS),
          marked(np.stack([PARAMS["w"]] * N), XS))


def test_second_derivatives_go_through_it():
    """Of the total gradient's length, over a batch as over devices."""
    loss = lambda w, x: jnp.sum(jnp.tanh(x @ w))
    flat = lambda w: jnp.sum(jax.grad(lambda w: jnp.sum(jnp.tanh(XS @ w)))(w) ** 2)
    want = jax.grad(flat)(PARAMS["w"])
    mapped = lambda how, w: jnp.sum(how(jax.grad(loss, reduce_axes=("i",)), in_axes=(None, 0), out_axes=None, axis_name="i")(w, XS) ** 2)
    agree(jax.grad(lambda w: mapped(jax.vmap, w))(PARAMS["w"]), want)
    agree(jax.grad(lambda w: mapped(jax.pmap, w))(PARAMS["w"]), want)
    inside = lambda w, x: jnp.sum(jax.grad(loss, reduce_axes=("i",))(w, x) ** 2)
    agree(jax.vmap(jax.grad(inside, reduce_axes=("i",)), in_axes=(None, 0), out_axes=None, axis_name="i")(PARAMS["w"], XS), want)
    agree(jax.pmap(jax.grad(inside, reduce_axes=("i",)), in_axes=(None, 0), out_axes=None, axis_name="i")(PARAMS["w"], XS), want)


def test_a_rule_that_ignores_its_cotangent_is_asked_for_each_example():
    """What it gives does not differ along the axis then, and is no total for that; what examples share is asked for once, with the total."""
    def ignorant(f):
        rule = jax.custom_vjp(f)
        rule.defvjp(lambda w, *x: (f(w, *x), None), lambda _, ct: (jnp.float32(1), *[jnp.float32(2)] * (f is scaled)))
        return rule
    scaled, cubed = lambda w, x: w * x, lambda w: w ** 3
    each, shared = ignorant(scaled), ignorant(cubed)
    losses = [each, lambda w, x: each(w * w, x), jax.jit(each), lambda w, x: lax.scan(lambda c, _: (each(w, c), None), x, None, 2)[0], lambda w, x: shared(w) * x]
    every = lambda w, x: [jax.grad(loss, reduce_axes=("i",))(w, x) for loss in losses]
    xs, want = np.arange(N, dtype="f4"), [N, 6 * N, N, 2 * N, 1]
    mesh = jax.make_mesh((N,), ("i",))
    agree(jax.vmap(every, (None, 0), None, axis_name="i")(np.float32(3), xs), want)
    agree(jax.pmap(every, "i", in_axes=(None, 0), out_axes=None)(np.float32(3), xs), want)
    agree(jax.shard_map(lambda w, x: every(w, x[0]), mesh=mesh, in_specs=(P(), P("i")), out_specs=P())(np.float32(3), xs), want)


def test_names_that_are_not_in_scope_mean_nothing():
    agree(jax.grad(dense, reduce_axes=("nowhere",))(PARAMS, XS[0], IDS[0]), jax.grad(dense)(PARAMS, XS[0], IDS[0]))
    with pytest.raises(TypeError, match="reduce_axes must be a sequence of axis names"):
        jax.grad(dense, reduce_axes=3)


def test_a_jitted_function_is_recorded_for_each_kind_of_axis():
    """The same function over a batch and over devices, its gradient inside jit."""
    inner = jax.jit(jax.grad(dense, reduce_axes=("i",)))
    want = total_of(dense)(PARAMS, XS, IDS)
    for how in (jax.vmap, jax.pmap, jax.vmap):
        agree(how(inner, in_axes=(None, 0, 0), out_axes=None, axis_name="i")(PARAMS, XS, IDS), want)
    agree(jax.vmap(inner, in_axes=(None, 0, 0), axis_name="other")(PARAMS, XS, IDS)["w"], jax.vmap(jax.grad(dense), (None, 0, 0))(PARAMS, XS, IDS)["w"])
