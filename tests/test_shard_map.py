"""shard_map: a function of the parts of arrays, on every device of a mesh, computes what the same function of whole arrays does."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax, shard_map
from mini_jax.sharding import Mesh, NamedSharding, PartitionSpec as P, set_mesh

DEVICES = jax.devices()
MESH = jax.make_mesh((4, 2), ("x", "y"))


def host(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def over(in_specs, out_specs, mesh=MESH, **options):
    return shard_map(mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)


def close(found, expected, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance), found, expected)


# --- values -----------------------------------------------------------------------------------------------------------------

def test_a_product_of_cut_matrices():
    a, b = host(8, 16), host(16, 4, seed=1)
    f = over((P("x", "y"), P("y", None)), P("x", None))(lambda a, b: lax.psum(a @ b, "y"))
    for g in (f, jax.jit(f)):
        for _ in range(2):
            out = g(a, b)
            close(out, a @ b)
            assert out.sharding == NamedSharding(MESH, P("x"))
    spread = [jax.device_put(v, NamedSharding(MESH, s)) for v, s in ((a, P("x", "y")), (b, P("y")))]
    close(jax.jit(f)(*spread), a @ b)
    text = jax.jit(f).lower(a, b).as_text()
    assert "sdy.manual_computation" in text and text.count("stablehlo.all_reduce") == 1


def test_every_collective_is_the_computation_on_the_whole():
    x, n = host(8, 4), 4
    parts = x.reshape(n, 2, 4)                                        # by device along x; the same for all along y

    @over(P("x"), (P(), P(), P(), P(), P(), P("x"), P("x"), P("x"), P("x"), P("x"), P(), P("x"), P("x"), P(("x", "y"))))
    def f(x):
        return (lax.psum(x, "x"), lax.pmean(x, "x"), lax.pmax(x, "x"), lax.pmin(x, "x"), lax.all_gather(x, "x"),
                lax.all_gather(x, "x", tiled=True)[None], lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True), lax.ppermute(x, "x", [(0, 1), (2, 0)]),
                lax.pshuffle(x, "x", [3, 0, 2, 1]), lax.all_to_all(x, "x", 1, 0), lax.pbroadcast(x, "x", 2),
                lax.axis_index("x")[None], jnp.full(1, lax.axis_size(("x", "y"))), lax.axis_index(("x", "y"))[None])
    for g in (f, jax.jit(f)):
        out = g(x)
        for found, expected in zip(out, (
                parts.sum(0), parts.mean(0), parts.max(0), parts.min(0), parts, np.tile(x, (n, 1, 1)), parts.sum(0).reshape(2, n, 1).transpose(1, 0, 2).reshape(-1, 1),
                np.concatenate([parts[2], parts[0], 0 * parts[0], 0 * parts[0]]), parts[[3, 0, 2, 1]].reshape(8, 4),
                parts.transpose(2, 0, 1).reshape(16, 2), parts[2], np.arange(4), np.full(4, 8), np.arange(8)), strict=True):
            close(found, expected)


def test_collectives_over_both_axes_over_groups_and_of_trees():
    x = host(8, 4)
    tree = {"a": x, "b": [x[:, 0], np.arange(8, dtype=np.int32)]}

    @over(P(("x", "y")), (P(), P(("x", "y")), P("y")))
    def f(t):
        return (lax.psum(t, ("x", "y")), lax.psum(t["a"], "x", axis_index_groups=[[0, 3], [1, 2]]), lax.pmax(t["a"].sum(), "x")[None])
    total, groups, most = f(tree)
    close(total, jax.tree.map(lambda v: v.sum(0, keepdims=True).astype(v.dtype), tree))
    grid = x.reshape(4, 2, 4)
    pairs = np.stack([grid[0] + grid[3], grid[1] + grid[2], grid[1] + grid[2], grid[0] + grid[3]])
    close(groups, pairs.reshape(8, 4))
    close(most, grid.sum(2).max(0))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int4", "bfloat16", "complex64", "float16"])
def test_collectives_of_any_dtype(dtype):
    kind = np.dtype(getattr(__import__("ml_dtypes"), dtype, dtype))
    x = (np.arange(8) % 2).astype(kind)
    gathered, turned, total = over(P("x"), (P(), P("x"), P()))(
        lambda x: (lax.all_gather(x, "x", tiled=True), lax.ppermute(x, "x", [(i, (i + 1) % 4) for i in range(4)]), lax.psum(x, "x")))(x)
    assert (np.asarray(gathered) == x).all() and (np.asarray(turned) == np.roll(x, 2)).all()
    assert gathered.dtype == kind and (np.asarray(total).astype(complex) == [0, 4]).all()


def test_meshes_of_one_device_of_some_and_in_other_orders():
    x = host(8)
    f = lambda x: (lax.psum(x, "i"), x * (1 + lax.axis_index("i")), lax.ppermute(x, "i", [(0, lax.axis_size("i") - 1)]))
    for devices in ([DEVICES[3]], [DEVICES[6], DEVICES[1]], DEVICES[::-1]):
        mesh, n = Mesh(devices, "i"), len(devices)
        parts = x.reshape(n, -1)
        expected = (parts.sum(0), (parts * np.arange(1, n + 1)[:, None]).reshape(-1), np.concatenate([np.zeros(8 - 8 // n), parts[0]]))
        g = over(P("i"), (P(), P("i"), P("i")), mesh)(f)
        for h in (g, jax.jit(g)):
            out = h(x)
            close(out, expected)
            assert out[1].devices() == set(devices)
            close(h(out[1])[0], expected[1].reshape(n, -1).sum(0))


def test_two_meshes_with_other_orders_in_one_program():
    x = host(8)
    turned = Mesh(MESH.devices[::-1].T, ("u", "v"))

    @jax.jit
    def f(x):
        y = over(P("x"), P(("x", "y")))(lambda x: x[:1] * (1 + lax.axis_index("x")) + lax.axis_index("y"))(x)
        return y, over(P("v"), P(), turned)(lambda y: lax.all_gather(
            lax.psum(y[:1], "v") + 10 * lax.axis_index("u") + lax.axis_index("v") + lax.ppermute(y[1:], "v", [(0, 1), (1, 3)]), ("u", "v"), tiled=True))(y)
    first = np.repeat(x[::2], 2) * np.repeat(np.arange(1, 5), 2) + np.tile([0, 1], 4)
    moved = np.array([0, first[1], 0, first[3]])
    close(f(x), (first, np.concatenate([first[::2].sum() + 10 * u + np.arange(4) + moved for u in range(2)])))
    close(f(jax.device_put(x, NamedSharding(turned, P("u"))))[0], first)


def test_ragged_all_to_all_sends_runs_of_rows():
    mesh, rng = jax.make_mesh((4,), ("i",), devices=DEVICES[:4]), np.random.RandomState(0)
    operand, output = host(4, 10, 3), -np.ones((4, 14, 3), np.float32)
    before = lambda sizes: np.concatenate([np.zeros((4, 1), np.int32), np.cumsum(sizes, 1)[:, :-1]], 1).astype(np.int32)
    send = rng.randint(0, 3, (4, 4)).astype(np.int32)
    starts, places = before(send), np.ascontiguousarray(before(send.T).T)
    expected, gradient = output.copy(), np.zeros_like(operand)
    weights = host(4, 14, 3, seed=1)
    for s in range(4):
        for r in range(4):
            mine, there = slice(starts[s, r], starts[s, r] + send[s, r]), slice(places[s, r], places[s, r] + send[s, r])
            expected[r, there] = operand[s, mine]
            gradient[s, mine] += weights[r, there]
    args = (output, starts, send, places, np.ascontiguousarray(send.T))
    move = lambda *args: lax.ragged_all_to_all(*args, axis_name="i")
    sharded = over(P("i"), P("i"), mesh)(lambda *args: move(*[v[0] for v in args])[None])
    close(jax.jit(sharded)(operand, *args), expected)
    close(jax.jit(jax.grad(lambda x: (sharded(x, *args) * weights).sum()))(operand), gradient)
    close(jax.vmap(move, axis_name="i")(operand, *args), expected)
    with pytest.raises(ValueError, match="send_sizes must be 4 integers"):
        jax.vmap(lambda x: move(x, x, x[:4, 0].astype(int), x[:3, 0].astype(int), x[:4, 0].astype(int), x[:4, 0].astype(int)), axis_name="i")(operand)


# --- what goes in and out ---------------------------------------------------------------------------------------------------

def test_trees_prefixes_scalars_and_results_without_arguments():
    p, x = {"w": host(4, 4), "b": host(4)}, host(8, 4)
    f = over((P(), P("x")), (P("x"), {"loss": P(), "where": P()}))(
        lambda p, x: (x @ p["w"] + p["b"], {"loss": lax.pmean((x ** 2).sum(), "x"), "where": [jnp.float32(1), lax.psum(1, "x")]}))
    y, rest = f(p, x)
    close(y, x @ p["w"] + p["b"])
    close(rest, {"loss": (x ** 2).sum() / 4, "where": [1, 4]})
    close(over((), P(("x", "y")))(lambda: lax.axis_index("x")[None] * 10 + lax.axis_index("y"))(), [0, 1, 10, 11, 20, 21, 30, 31])
    close(over(P(), P())(lambda t: t)(2.5), 2.5)
    with set_mesh(MESH):
        close(shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P())(x), x.reshape(4, 2, 4).sum(0))

    @over((P("x"), P()), P("x"))
    def named(x, scale):
        """What it does."""
        return x * scale
    assert named.__name__ == "named" and named.__doc__ == "What it does."


def test_closures_over_arrays_and_over_traced_values():
    x, w = host(8, 4), jnp.asarray(host(4, 4, seed=1))
    f = lambda x, s: over(P("x"), P("x"))(lambda x: jnp.tanh(x @ w) * s)(x)
    expected = np.tanh(x @ np.asarray(w)) * 2
    close(f(x, 2.0), expected)
    close(jax.jit(f)(x, 2.0), expected)
    close(jax.grad(lambda s: f(x, s).sum())(2.0), np.tanh(x @ np.asarray(w)).sum())
    close(jax.vmap(f, (None, 0))(x, jnp.arange(3.)), np.arange(3.)[:, None, None] * expected / 2)
    cut = jax.device_put(w, NamedSharding(MESH, P(None, "y")))
    close(over(P("x"), P("x"))(lambda x: x @ cut)(x), x @ np.asarray(w))


def test_calls_of_python_run_on_each_device():
    seen = []

    @jax.jit
    @over(P("x"), P("x"))
    def f(x):
        jax.debug.callback(lambda i, s: seen.append((int(i), float(s))), lax.axis_index("x"), x.sum())
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    close(f(np.arange(8, dtype=np.float32)), 2 * np.arange(8))
    jax.effects_barrier()
    assert sorted(seen) == [(i, 4. * i + 1) for i in range(4) for _ in range(2)]


def test_printing_inside(capfd):
    jax.jit(over(P("x"), P())(lambda x: jax.debug.print("sum {}", lax.psum(x, "x")) or lax.psum(x, "x")))(np.arange(4.))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("sum [6.]") == 8


def test_refs_made_inside_are_each_devices_own():
    def body(x):
        total = jax.new_ref(jnp.zeros_like(x))
        for i in range(3):
            total[...] += jnp.sin(x) * (i + lax.axis_index("x"))
        return total[...]
    x = host(8, 4)
    f, factor = over(P("x"), P("x"))(body), 3 + 3 * np.repeat(np.arange(4), 2)[:, None]
    close(jax.jit(f)(x), np.sin(x) * factor)
    close(jax.grad(lambda x: f(x).sum())(x), np.cos(x) * factor)
    ref = jax.new_ref(jnp.zeros(2))
    with pytest.raises(TypeError, match="a ref"):
        over(P("x"), P("x"))(lambda x: x + ref[...])(host(8))


def test_the_name_and_arguments_it_had_first():
    from mini_jax.experimental.shard_map import shard_map as first
    x = host(8, 4)
    close(first(lambda x: lax.psum(x, "x"), MESH, (P("x"),), P(), check_rep=False, auto=frozenset({"y"}))(x), x.reshape(4, 2, 4).sum(0))


# --- derivatives ------------------------------------------------------------------------------------------------------------

CASES = {
    "psum": (lambda x, w: lax.psum(jnp.sin(x @ w), "x"), P(), lambda x, w: jnp.sin(x @ w).reshape(4, 2, 3).sum(0)),
    "shared result": (lambda x, w: jnp.tanh(w), P(), lambda x, w: jnp.tanh(w)),
    "rows": (lambda x, w: jnp.sin(x @ w) * jnp.cos(x).sum(), P("x"), lambda x, w: jnp.sin(x @ w) * jnp.repeat(jnp.cos(x).reshape(4, 8).sum(1), 2)[:, None]),
    "all_gather": (lambda x, w: jnp.cumsum(lax.all_gather(jnp.sin(x @ w), "x", tiled=True), 0)[lax.axis_index("x")][None], P("x"),
                   lambda x, w: jnp.cumsum(jnp.sin(x @ w), 0)[:4]),
    "psum_scatter": (lambda x, w: lax.psum_scatter(jnp.outer(x[:, 0], w[:, 0]) ** 2, "x", scatter_dimension=1, tiled=True), P(None, "x"),
                     lambda x, w: (jnp.einsum("nb,w->nbw", x[:, 0].reshape(4, 2), w[:, 0]) ** 2).sum(0)),
    "ppermute": (lambda x, w: x * lax.ppermute(jnp.sin(x), "x", [(i, (i + 1) % 4) for i in range(4)]) + w.sum(), P("x"),
                 lambda x, w: x * jnp.roll(jnp.sin(x), 2, 0) + w.sum()),
    "all_to_all": (lambda x, w: lax.all_to_all(jnp.sin(x @ (w @ w.T)), "x", 1, 0) ** 2, P("x"),
                   lambda x, w: jnp.sin(x @ (w @ w.T)).reshape(4, 2, 4).transpose(2, 0, 1).reshape(16, 2) ** 2),
    "scalar residual": (lambda x, w: lax.psum(jnp.sin((x @ w).sum()) ** 2, "x"), P(),
                        lambda x, w: (jnp.sin((x @ w).reshape(4, -1).sum(1)) ** 2).sum()),
    "pmax": (lambda x, w: lax.pmax(x @ w, "x"), P(), lambda x, w: (x @ w).reshape(4, 2, 3).max(0)),
    "index": (lambda x, w: x * (1 + lax.axis_index("x")) @ w, P("x"), lambda x, w: x * (1 + jnp.repeat(jnp.arange(4), 2))[:, None] @ w),
    "scan": (lambda x, w: lax.scan(lambda c, r: (c + lax.psum(jnp.sin(r @ w), "x"), c * r.sum()), jnp.zeros(3), x), (P(), P(None, "x")),
             lambda x, w: lax.scan(lambda c, r: (c + jnp.sin(r @ w).sum(0), jnp.outer(r.sum(1), c).reshape(-1)), jnp.zeros(3),
                                   x.reshape(4, 2, 4).transpose(1, 0, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_the_unsharded_function(name):
    body, out_specs, whole = CASES[name]
    x, w, dx, dw = host(8, 4), host(4, 3, seed=1), host(8, 4, seed=2), host(4, 3, seed=3)
    if name == "scan":
        body, inner = (lambda x, w: (lambda c, y: (c, y))(*inner(lax.pvary(x, "x"), w))), body
    sharded = over((P("x"), P()), out_specs)(body)
    weigh = lambda out: sum([(jnp.sin(leaf) * jnp.arange(1., leaf.size + 1).reshape(leaf.shape)).sum() for leaf in jax.tree.leaves(out)])

    def everything(f):
        loss = lambda x, w: weigh(f(x, w))
        value, slope = jax.jvp(f, (x, w), (dx, dw))
        return value, slope, jax.grad(loss, (0, 1))(x, w), jax.jvp(jax.grad(loss, (0, 1)), (x, w), (dx, dw))[1]
    close(jax.jit(lambda: everything(sharded))(), jax.jit(lambda: everything(whole))(), 2e-4)


def test_gradients_run_at_once_as_well_as_compiled():
    x, w = host(8, 4), host(4, 3, seed=1)
    loss = lambda f: lambda x, w: (f(x, w) ** 2).sum()
    sharded = over((P("x"), P()), P())(lambda x, w: lax.psum(jnp.sin(x @ w), "x"))
    expected = jax.grad(loss(CASES["psum"][2]), (0, 1))(x, w)
    close(jax.grad(loss(sharded), (0, 1))(x, w), expected)
    close(jax.grad(loss(jax.checkpoint(sharded)), (0, 1))(x, w), expected)
    close(jax.grad(loss(jax.jit(sharded)), (0, 1))(x, w), expected)
    out, pull = jax.vjp(sharded, x, w)
    close(pull(2 * out), expected)
    out, push = jax.linearize(sharded, x, w)
    close(push(x, w), jax.jvp(sharded, (x, w), (x, w))[1])


def test_a_gradient_taken_inside_in_what_all_share_is_the_total():
    """With check_vma, as if the mesh's axes stood in reduce_axes; without, or in a value marked as varying, each device has its own."""
    x, w = host(8, 4), host(4, seed=1)
    local = lambda w, x: ((x @ w) ** 2).sum()
    want = jax.grad(local)(w, x)
    close(over((P(), P("x")), P())(jax.grad(local))(w, x), want)
    close(jax.jit(over((P(), P("x")), P())(jax.jit(jax.grad(local))))(w, x), want)
    close(over((P(), P(("x", "y"))), P())(jax.grad(lambda w, x: lax.psum(local(w, x), ("x", "y"))))(w, x), want)
    own = jax.vmap(jax.grad(local), (None, 0))(w, x.reshape(4, 2, 4)).reshape(16)
    close(over((P(), P("x")), P("x"), check_vma=False)(jax.grad(local))(w, x), own)
    close(over((P(), P("x")), P("x"))(lambda w, x: jax.grad(local)(lax.pvary(w, "x"), x))(w, x), own)


# --- batching, control flow, nesting ----------------------------------------------------------------------------------------------

def test_vmap_at_every_axis_is_a_loop():
    x, w = host(8, 4), host(4, 3, seed=1)
    f = over((P("x"), P(None, None)), (P("x"), P()))(lambda x, w: (jnp.sin(x) @ w, lax.psum((x @ w).sum(0), "x")))
    one = lambda x, w: (jnp.sin(x) @ w, (x @ w).reshape(4, 2, 3).sum((0, 1)))
    xs, ws = np.stack([x, 2 * x, x - 1]), np.stack([w, w + 1, 3 * w])
    for dx in (None, 0, 1, 2, -1):
        for dw in (None, 0, 1, 2):
            if dx is None and dw is None:
                continue
            a, b = (v if d is None else np.moveaxis(vs, 0, d) for v, vs, d in ((x, xs, dx), (w, ws, dw)))
            found = jax.vmap(f, (dx, dw), out_axes=(1, 0))(a, b)
            rows = [one(x if dx is None else xs[i], w if dw is None else ws[i]) for i in range(3)]
            close(found, (np.stack([r[0] for r in rows], 1), np.stack([r[1] for r in rows])), 1e-4)


def test_vmap_cuts_the_batch_over_another_axis():
    x = host(4, 8)
    f = jax.vmap(over(P("x"), (P("x"), P()))(lambda x: (jnp.sin(x), lax.psum(x, "x"))), spmd_axis_name="y")
    y, total = jax.jit(f)(x)
    close((y, total), (np.sin(x), x.reshape(4, 4, 2).sum(1)))
    assert y.sharding.spec == P("y", "x") and total.sharding.spec == P("y")
    close(jax.grad(lambda x: (f(x)[1] ** 2).sum())(x), np.tile(2 * x.reshape(4, 4, 2).sum(1), (1, 4)))
    with pytest.raises(ValueError, match="batch of 3 can't be cut into 2"):
        f(x[:3])


def test_vmap_with_a_name_meets_the_mesh():
    x = host(3, 8)
    f = over(P("x"), (P("x"), P()))(lambda v: (v - lax.pmean(v, "n"), lax.psum(v, ("n", "x"))))
    out, total = jax.vmap(f, axis_name="n", out_axes=(0, None))(x)
    close((out, total), (x - x.mean(0), x.sum(0).reshape(4, 2).sum(0)))


def test_control_flow_inside():
    x = host(8, 4)

    @over((P("x"), P()), (P(), P("x"), P("x")))
    def f(x, flag):
        total = lax.fori_loop(0, 3, lambda i, c: c + lax.psum(x, "x") * i, lax.psum(0 * x, "x"))
        chosen = lax.cond(flag, lambda x: lax.ppermute(x, "x", [(0, 1), (1, 0)]), lambda x: x, x)
        _, counted = lax.while_loop(lambda s: s[0] < 20, lambda s: (s[0] + lax.psum(1, "x"), s[1] + x), (0, x))
        return total, chosen, counted
    parts = x.reshape(4, 2, 4)
    for flag in (True, False):
        expected = np.concatenate([parts[1], parts[0], 0 * parts[0], 0 * parts[0]]) if flag else x
        close(jax.jit(f)(x, flag), (3 * parts.sum(0), expected, 6 * x))


def test_nested_in_jit_and_in_loops_outside():
    x = host(8, 4)
    f = over(P("x"), P("x"))(lambda x: x - lax.pmean(x, "x"))
    out = jax.jit(lambda x: lax.fori_loop(0, 2, lambda i, x: jax.jit(f)(x) + 1, x))(x)
    step = lambda x: x - np.tile(x.reshape(4, 2, 4).mean(0), (4, 1)) + 1
    close(out, step(step(x)))
    ys = jax.jit(lambda xs: lax.map(f, xs))(np.stack([x, 2 * x]))
    close(ys, np.stack([step(x) - 1, step(2 * x) - 1]))


def test_some_axes_by_hand_and_the_others_by_xla():
    a, b = host(8, 16), host(16, 4, seed=1)
    f = over((P("x"), P()), P("x"), axis_names={"x"})(lambda a, b: jnp.sin(a) @ b - lax.pmean(a, "x")[:, :4])
    expected = np.sin(a) @ b - np.tile(a.reshape(4, 2, 16).mean(0), (4, 1))[:, :4]
    close(jax.jit(f)(a, b), expected)
    close(f(a, jax.device_put(b, NamedSharding(MESH, P("y")))), expected)
    close(jax.jit(jax.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))(a, b), jax.grad(
        lambda a, b: ((jnp.sin(a) @ b - jnp.tile(a.reshape(4, 2, 16).mean(0), (4, 1))[:, :4]) ** 2).sum(), (0, 1))(a, b), 1e-4)
    with pytest.raises(NameError, match="'y'"):
        over(P("x"), P("x"), axis_names={"x"})(lambda x: lax.psum(x, "y"))(a)


def test_shard_maps_over_different_axes_nest():
    x = host(8, 4)
    inner = over(P(None, "y"), P(None, "y"), axis_names={"y"})(lambda v: v - lax.pmean(v, "y"))
    f = over(P("x"), P("x"), axis_names={"x"})(lambda v: inner(v) * lax.psum(1, "x") + lax.pmean(v, "x"))
    expected = (x - np.tile(x.reshape(8, 2, 2).mean(1), (1, 2))) * 4 + np.tile(x.reshape(4, 2, 4).mean(0), (4, 1))
    close(jax.jit(f)(x), expected)
    close(f(x), expected)


# --- what is refused --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make, error, words", [
    (lambda: over(P("x"), P())(lambda x: x)(np.ones(8)), ValueError, r"f32\[2\]\{x\} differs along 'x', which its out_spec PartitionSpec\(\) doesn't name"),
    (lambda: over(P("x"), (P("x"), {"a": P()}))(lambda x: (x, {"a": x}))(np.ones(8)), ValueError, r"result\[1\]\['a'\]"),
    (lambda: over(P("x"), P("x"))(lambda x: x)(np.ones(6)), ValueError, "argument x of type f32.6. can't be cut .* size 6, which can't be cut into 4"),
    (lambda: over(P("x", "y"), P("x"))(lambda x: x)(np.ones(8)), ValueError, "cuts 2 dimensions"),
    (lambda: over(P("z"), P())(lambda x: x)(np.ones(8)), ValueError, "names the axis 'z'"),
    (lambda: over(P("x", "x"), P())(lambda x: x)(np.ones((8, 8))), ValueError, "twice"),
    (lambda: over(P("x"), P("x"))(lambda x: x.sum())(np.ones(8)), ValueError, "0 dimensions"),
    (lambda: over(P("x"), P("x"))(lambda x: lax.psum(x, "q"))(np.ones(8)), NameError, "'q'"),
    (lambda: over((P("x"), P("x")), P("x"))(lambda x: x)(np.ones(8)), ValueError, "in_specs has a tuple of length 2 where the tuple of arguments has"),
    (lambda: over("x", P("x"))(lambda x: x)(np.ones(8)), TypeError, "PartitionSpec"),
    (lambda: shard_map(lambda x: x, in_specs=P(), out_specs=P())(np.ones(8)), ValueError, "needs a mesh"),
    (lambda: shard_map(lambda x: x, mesh=MESH, in_specs=P(), out_specs=P(), axis_names={"q"})(np.ones(8)), ValueError, "axis_names has 'q'"),
    (lambda: shard_map(3, mesh=MESH, in_specs=P(), out_specs=P()), TypeError, "takes a function"),
    (lambda: over(None, P())(lambda x: x)(np.ones(8)), TypeError, "in_specs must say"),
    (lambda: over(P("x"), P("x"))(lambda x: over(P("x"), P("x"))(lambda x: x)(x))(np.ones(16)), ValueError, "'x'"),
])
def test_what_cannot_be_is_said(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_check_vma_can_be_switched_off():
    close(over(P("x"), P(), check_vma=False)(lambda x: x)(np.ones(8)), np.ones(2))


# --- training -----------------------------------------------------------------------------------------------------------------------

def test_a_training_run_is_the_same_on_one_device_and_on_eight():
    x, y = host(16, 6), host(16, 2, seed=1)
    start = {"w": 0.5 * host(6, 5, seed=2), "b": host(5, seed=3), "v": 0.5 * host(5, 2, seed=4)}
    loss = lambda p, x, y: ((jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2).mean()
    descend = lambda p, g: jax.tree.map(lambda p, g: p - 0.1 * g, p, g)
    cut = lambda v, *sizes: v.reshape(*sizes, -1, v.shape[-1])

    def run(step, *data):
        p, losses = start, []
        for _ in range(5):
            value, p = step(p, *data)
            losses.append(float(np.asarray(value).reshape(-1)[0]))
        return losses, jax.tree.map(np.asarray, p)

    def plain(p, x, y):
        value, g = jax.value_and_grad(loss)(p, x, y)
        return value, descend(p, g)

    def local(*names):
        def step(p, x, y):
            value, g = lax.pmean(jax.value_and_grad(loss)(p, x, y), names)
            return value, descend(p, g)
        return step
    def shared(p, x, y):
        value, g = jax.value_and_grad(lambda p: lax.pmean(loss(p, x, y), ("x", "y")))(p)
        return value, descend(p, g)
    rows = NamedSharding(MESH, P(("x", "y")))
    whole = NamedSharding(MESH, P())
    expected = run(jax.jit(plain), x, y)
    runs = {
        "pmap": run(jax.pmap(local("i"), "i", in_axes=(None, 0, 0), out_axes=(None, None)), cut(x, 8), cut(y, 8)),
        "nested pmap": run(jax.pmap(jax.pmap(local("i", "j"), "j", in_axes=(None, 0, 0), out_axes=(None, None)), "i", in_axes=(None, 0, 0),
                                    out_axes=(None, None)), cut(x, 2, 4), cut(y, 2, 4)),
        "shard_map": run(jax.jit(over((P(), P(("x", "y")), P(("x", "y"))), P())(shared)), x, y),
        "jit over a mesh": run(jax.jit(plain, in_shardings=(whole, rows, rows), out_shardings=(whole, whole)), x, y),
        "parameters cut too": run(jax.jit(plain), *jax.device_put((x, y), rows)),
        "gradient of a shard_map": run(jax.jit(lambda p, x, y: (lambda v, g: (v, descend(p, g)))(*jax.value_and_grad(
            over((P(), P("x"), P("x")), P())(lambda p, x, y: lax.pmean(loss(p, x, y), "x")))(p, x, y))), x, y),
    }
    for found in runs.values():
        close(found, expected)
    assert expected[0][-1] < expected[0][0]


# --- starts of programs that communicate (on jaxlib 0.10 they need care) -----------------------------------------------------------

def test_what_was_donated_is_refused_and_the_program_stays_fast():
    cut = NamedSharding(MESH, P("x"))
    total = over(P("x"), P())(lambda x: lax.psum(x, "x"))
    f, g = jax.jit(total), jax.jit(over(P("x"), P("x"))(lambda x: x + lax.psum(x, "x")), donate_argnums=0)
    g(jax.device_put(host(8, 4), cut)), f(jax.device_put(host(8, 4), cut)), f(jax.device_put(host(8, 4), cut))
    x, y = [jax.device_put(host(8, 4), cut) for _ in range(2)]
    g(x), y.delete()
    for gone in (x, y, x):
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[8, 4\]"):
            f(gone)
        close(f(jax.device_put(host(8, 4), cut)), host(8, 4).reshape(4, 2, 4).sum(0))


@pytest.mark.parametrize("size", [4, 1 << 14])
def test_any_number_of_programs_may_be_started_before_the_first_is_done(size):
    f = jax.jit(over(P("x"), P("x"))(lambda x: lax.pmean(x, "x") + 0 * x))
    x = jax.device_put(np.ones((8, size), "f4"), NamedSharding(MESH, P("x")))
    kept = [f(x) for _ in range(100)]
    for _ in range(100):
        x = f(x)
    close(x, kept[0])


def test_parts_that_are_exchanged_are_whole_slices():
    """In the text as in XLA: a dimension of one more would make loops of copies."""
    f = over(P("x"), P("x"))(lambda x: lax.all_to_all(x, "x", 1, 1, tiled=True))
    text = jax.jit(f).lower(np.ones((4, 8, 3), "f4")).as_text()
    assert "all_to_all" in text and "(tensor<1x8x3xf32>) -> tensor<1x8x3xf32>" in text
    x = host(4, 8, 3)
    close(f(x), x.reshape(4, 4, 2, 3).swapaxes(0, 1).reshape(4, 8, 3))
