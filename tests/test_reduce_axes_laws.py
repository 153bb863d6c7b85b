"""reduce_axes on programs drawn at random: whatever is computed of parameters and data, and wherever the axes are, the gradient is that of the sum.

The reference never reduces: the parameters are repeated along the axes that are not reduced over, and the sum of all losses is differentiated from
outside, through the batching of everything.
"""
import random

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.sharding import PartitionSpec as P

IJ = ("i", "j")
rng = np.random.default_rng(0)
draw = lambda *shape: rng.normal(size=shape).astype(np.float32) / 2
PARAMS = {"w": draw(4, 4), "v": draw(4, 4), "b": draw(4), "t": draw(6, 4), "s": np.float32(0.7), "k": draw(3, 1, 3)}
XS, IDS = draw(2, 2, 4, 4), rng.integers(0, 6, size=(2, 2, 4)).astype(np.int32)


@jax.custom_jvp
def ruled_forward(a, b):
    return jnp.sin(a) * b


ruled_forward.defjvp(lambda p, t: (ruled_forward(*p), jnp.cos(p[0]) * p[1] * t[0] + jnp.sin(p[0]) * t[1]))


@jax.custom_vjp
def ruled_backward(a, b):
    return jnp.tanh(a) @ b


ruled_backward.defvjp(lambda a, b: (ruled_backward(a, b), (a, b)),
                      lambda saved, ct: (ct @ saved[1].T * (1 - jnp.tanh(saved[0]) ** 2), jnp.tanh(saved[0]).T @ ct))


def spread_kernel(a, p, groups):
    kernel = jnp.concatenate([p["k"], p["k"][:1]]) if groups else p["k"]
    operand = a[None] if groups else a[:, None]
    y = lax.conv_general_dilated(operand, kernel, (1,), [(1, 1)], dimension_numbers=("NCH", "OIH", "NCH"), feature_group_count=4 if groups else 1)
    return y[0] if groups else y.sum(1)


def held(a, b, p):
    ref = jax.new_ref(a * 1.0)
    ref[0] = b[1]
    ref[...] += p["b"]
    return ref[...]


# Each is of two values 4 × 4 and has such a value. n, p, x, ids: a random number, the parameters, the example.
OPERATIONS = {
    "add": lambda a, b, n, p, x, ids: a + b * p["s"],
    "mul": lambda a, b, n, p, x, ids: a * b + p["b"],
    "matmul": lambda a, b, n, p, x, ids: a @ b,
    "unary": lambda a, b, n, p, x, ids: (jnp.sin, jax.nn.gelu, jnp.abs, jnp.transpose)[n % 4](a),
    "look up": lambda a, b, n, p, x, ids: p["t"][ids] * a,
    "look up outside": lambda a, b, n, p, x, ids: jnp.take(p["t"], ids * 2 - 3, axis=0, mode=("fill", "clip", "wrap")[n % 3], fill_value=0) + a,
    "along": lambda a, b, n, p, x, ids: jnp.take_along_axis(a, (ids[:, None] + ids) % 4, n % 2) + b,
    "slice": lambda a, b, n, p, x, ids: lax.dynamic_slice(p["t"], (ids[0] - 1, 0), (4, 4)) * a,
    "replace": lambda a, b, n, p, x, ids: lax.dynamic_update_slice(a, b[:2] * p["s"], (ids[1] % 3, 0)),
    "scatter": lambda a, b, n, p, x, ids: a.at[ids % 4].add(b * p["b"]),
    "sort": lambda a, b, n, p, x, ids: jnp.sort(a, n % 2) * b,
    "cumulate": lambda a, b, n, p, x, ids: (jnp.cumsum, jnp.cumprod)[n % 2](jnp.tanh(a), 0),
    "softmax": lambda a, b, n, p, x, ids: jax.nn.softmax(a @ b),
    "normalize": lambda a, b, n, p, x, ids: jax.nn.standardize(a) * p["b"] + jax.nn.logsumexp(b, 0),
    "concatenate": lambda a, b, n, p, x, ids: jnp.concatenate([a, p["b"][None], b])[n % 6:][:4],
    "batches": lambda a, b, n, p, x, ids: jnp.tile(lax.dot_general(a.reshape(2, 2, 4), b.reshape(2, 4, 2), (((2,), (1,)), ((0,), (0,)))).reshape(2, 4), (2, 1)),
    "convolve": lambda a, b, n, p, x, ids: spread_kernel(a, p, n % 2),
    "where": lambda a, b, n, p, x, ids: jnp.where((x, p["w"])[n % 2] > 0, a, b),
    "reduce": lambda a, b, n, p, x, ids: jnp.max(a, 0) * jnp.var(b, 1)[:, None],
    "fft": lambda a, b, n, p, x, ids: jnp.real(jnp.fft.fft(a) * jnp.fft.fft(b)),
    "solve": lambda a, b, n, p, x, ids: jnp.linalg.solve(a @ a.T + 3 * jnp.eye(4), b),
    "custom_jvp": lambda a, b, n, p, x, ids: ruled_forward(a, b),
    "custom_vjp": lambda a, b, n, p, x, ids: ruled_backward(a, b),
    "ref": lambda a, b, n, p, x, ids: held(a, b, p),
    "vmap": lambda a, b, n, p, x, ids: jax.vmap(lambda u, v: u * v @ p["w"] + p["b"])(a, b),
    "associative_scan": lambda a, b, n, p, x, ids: lax.associative_scan(lambda u, v: jnp.tanh(u + v * p["s"]), a),
}

# These take besides, as f, a part of a program: two values -> a value.
HOLDERS = {
    "jit": lambda f, a, b, n, p, x, ids: jax.jit(f)(a, b),
    "checkpoint": lambda f, a, b, n, p, x, ids: jax.checkpoint(f, policy=(None, jax.checkpoint_policies.dots_saveable)[n % 2])(a, b),
    "scan": lambda f, a, b, n, p, x, ids: sum(lax.scan(lambda h, row: (f(h, b) + row, h[0]), a, (b, x)[n % 2])),
    "scan of parameters": lambda f, a, b, n, p, x, ids: lax.scan(lambda h, w: (f(h, w), h @ b), p["v"], jnp.stack([p["w"], p["v"]]))[1][1],
    "cond": lambda f, a, b, n, p, x, ids: lax.cond(p["s"] > (0, 1)[n % 2], f, lambda a, b: b * p["s"], a, b),
    "cond of each": lambda f, a, b, n, p, x, ids: lax.cond(x[0, 0] > 0, f, lambda a, b: a + p["b"], a, b),
    "switch of each": lambda f, a, b, n, p, x, ids: lax.switch(ids[0] % 3, [f, lambda a, b: a * p["b"], lambda a, b: p["w"] * 1.0], a, b),
}

COLLECTIVES = {
    "psum": lambda a, b, n, p, x, ids: lax.psum(a, ("i", "j", IJ)[n % 3]) * b,
    "pmean": lambda a, b, n, p, x, ids: lax.pmean(a, ("i", "j", IJ)[n % 3]),
    "pmax": lambda a, b, n, p, x, ids: lax.pmax(a, IJ[n % 2]) * b,
    "all_gather": lambda a, b, n, p, x, ids: jnp.tensordot(jnp.arange(1.0, 5), lax.all_gather(a, (IJ, ("j", "i"))[n % 2]), 1) * b,
    "groups": lambda a, b, n, p, x, ids: lax.all_gather(a, IJ[n % 2], axis_index_groups=[[1], [0]])[0] + lax.psum(b, "j", axis_index_groups=[[1], [0]]),
    "ppermute": lambda a, b, n, p, x, ids: lax.ppermute(a, IJ[n % 2], [(0, 1), (1, 0)][:1 + n % 3]),
    "psum_scatter": lambda a, b, n, p, x, ids: jnp.tile(lax.psum_scatter(a, IJ[n % 2], tiled=True), (2, 1)),
    "all_to_all": lambda a, b, n, p, x, ids: lax.all_to_all(a, ("i", "j", IJ)[n % 3], 0, 1, tiled=True).reshape(4, 4),
    "axis_index": lambda a, b, n, p, x, ids: a * (1 + lax.axis_index(IJ[n % 2])),
    "pvary": lambda a, b, n, p, x, ids: lax.pvary(a, IJ[n % 2]) * b,
    "pbroadcast": lambda a, b, n, p, x, ids: lax.pbroadcast(a, IJ[n % 2], 1) + b,
}


def program(seed: int, collectives: bool):
    """A loss: some operations, each of results of those before; half of them with parts of programs in them."""
    def loss(p, x, ids):
        r = random.Random(seed)
        choose = lambda names: (lambda name, n: (name, n))(r.choice(sorted(names)), r.randrange(12))

        def part(name, n):
            return lambda a, b: jnp.tanh(OPERATIONS[name](a, b, n, p, x, ids))
        values = [p["w"], x, p["v"], jnp.outer(p["b"], p["b"])]
        for step in range(5):
            a, b = r.choice(values), r.choice(values[-3:])
            name, n = choose(COLLECTIVES if collectives and step % 2 else HOLDERS if step % 2 == 0 else OPERATIONS)
            if name in HOLDERS:
                values.append(jnp.tanh(HOLDERS[name](part(*choose(OPERATIONS)), a, b, n, p, x, ids)))
            else:
                values.append(jnp.tanh((COLLECTIVES | OPERATIONS)[name](a, b, n, p, x, ids)))
        total = sum([jnp.sum(v * (k + 1)) for k, v in enumerate(values[-4:])])
        return lax.pmean(total, IJ) if collectives and seed % 3 == 0 else total + 0 * jnp.sum(x)
    return loss


def over(outer, inner, fun, each: tuple):
    """fun at each index of i (mapped by outer) and j (by inner); results have dimensions for the axes in `each`."""
    out = [0 if name in each else None for name in IJ]
    return outer(inner(fun, in_axes=(None, 0, 0), out_axes=out[1], axis_name="j"), in_axes=(None, 0, 0), out_axes=out[0], axis_name="i")


def over_mesh(fun, each: tuple):
    def one(p, x, ids):
        return jax.tree.map(lambda g: g.reshape((1,) * len(each) + g.shape), fun(p, x[0, 0], ids[0, 0]))
    return jax.shard_map(one, mesh=jax.make_mesh((2, 2), IJ), in_specs=(P(), P("i", "j"), P("i", "j")), out_specs=P(*each), check_vma=not each)


PLACES = {"vmap": lambda fun, each: over(jax.vmap, jax.vmap, fun, each), "pmap of vmap": lambda fun, each: over(jax.pmap, jax.vmap, fun, each),
          "vmap of pmap": lambda fun, each: over(jax.vmap, jax.pmap, fun, each), "shard_map": over_mesh}


def from_outside(loss, each: tuple):
    """The gradient of the sum, in parameters of which there is one for each index of the axes in `each`."""
    axes = [0 if name in each else None for name in IJ]
    every = jax.vmap(jax.vmap(loss, (axes[1], 0, 0), axis_name="j"), (axes[0], 0, 0), axis_name="i")

    def gradient(p, xs, ids):
        p = jax.tree.map(lambda a: jnp.broadcast_to(a, (2,) * len(each) + jnp.shape(a)), p)
        return jax.grad(lambda p: jnp.sum(every(p, xs, ids)))(p)
    return gradient


@pytest.mark.parametrize("collectives", [False, True], ids=["apart", "together"])
@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_that_of_the_sum_along_the_axes_named(seed, collectives):
    loss, r = program(seed, collectives), random.Random(seed + 100 * collectives)
    reduced = r.choice([IJ, IJ, ("i",), ("j",)])
    each = tuple([name for name in IJ if name not in reduced])
    copies = 2 ** len(reduced) if collectives and seed % 3 == 0 else 1         # the reference counts a loss that all share so many times
    want = jax.jit(from_outside(loss, each))(PARAMS, XS, IDS)
    for place in ("vmap", r.choice(sorted(PLACES)[:-1])):
        found = jax.jit(PLACES[place](jax.grad(loss, reduce_axes=reduced), each))(PARAMS, XS, IDS)
        for (path, a), b in zip(jax.tree_util.tree_flatten_with_path(found)[0], jax.tree.leaves(want), strict=True):
            b = np.asarray(b) / copies
            np.testing.assert_allclose(a, b, rtol=3e-3, atol=3e-3 * (1 + abs(b).max()), err_msg=f"{place}, over {reduced}: {jax.tree_util.keystr(path)}")
