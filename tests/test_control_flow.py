"""Control flow: a loop or a choice computes what Python's computes, under every transformation, and says clearly what is wrong."""
import gc
import weakref

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
import mini_jax.transforms.control as _control
for _n in _control.__all__:
    setattr(lax, _n, getattr(_control, _n))
from mini_jax.core.check import check_jaxpr
from mini_jax.core.program import subprograms

STEPS = 4


# --- generated bodies -----------------------------------------------------------------------------------------------------------
# A body is a function (w, carry, x) -> (carry, y) made of operations drawn at random. The carry holds a vector, a scalar, a counter
# (an integer, so without a derivative) and None; w is a matrix and a vector that every step reads.

OPERATIONS = (
    lambda w, v, s, k, x: (jnp.tanh(w["m"] @ v + x), s, k),
    lambda w, v, s, k, x: (jnp.sin(v) * w["b"], s * 0.5 + x.sum(), k + 1),
    lambda w, v, s, k, x: (v + s * x, jnp.cos(s) - v[0], k),
    lambda w, v, s, k, x: (jnp.where(x > 0, v, 0.3 * v * v), s, k + 2),
    lambda w, v, s, k, x: (v[::-1] - 0.1 * k, s * v.mean(), k),
    lambda w, v, s, k, x: (v / (1.5 + jnp.exp(-w["b"])), jnp.tanh(s + w["m"].sum()), k),
    lambda w, v, s, k, x: (lax.cond(k % 2 == 0, lambda v: jnp.sin(v), lambda v: v * w["b"], v), s, k),
)
OUTPUTS = (
    lambda v, s, k, x: {"y": v * s, "k": k},
    lambda v, s, k, x: (x, v),
    lambda v, s, k, x: [None, s],
)


def body_of(seed):
    rng = np.random.default_rng(seed)
    chosen = [OPERATIONS[i] for i in rng.choice(len(OPERATIONS), 3, replace=False)]
    output = OUTPUTS[seed % len(OUTPUTS)]

    def body(w, carry, x):
        (v, s), k, _ = carry
        for operation in chosen:
            v, s, k = operation(w, v, s, k, x)
        return ((v, s), k, None), output(v, s, k, x)
    return body


def arguments(seed, steps=STEPS):
    rng = np.random.default_rng(100 + seed)
    draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
    return {"m": draw(3, 3), "b": draw(3)}, (draw(3), np.float32(0.3)), draw(steps, 3)


def by_scan(body, reverse=False, unroll=1):
    def run(w, init, xs):
        return lax.scan(lambda carry, x: body(w, carry, x), (init, 0, None), xs, reverse=reverse, unroll=unroll)
    return run


def by_loop(body, reverse=False):
    def run(w, init, xs):
        carry, ys = (init, jnp.asarray(0), None), []
        for i in (reversed(range(xs.shape[0])) if reverse else range(xs.shape[0])):
            carry, y = body(w, carry, xs[i])
            ys.insert(0, y) if reverse else ys.append(y)
        return carry, jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *ys)
    return run


def scalar(tree):
    """A number that depends on all floating leaves."""
    return sum(jnp.sum(jnp.sin(leaf + i)) for i, leaf in enumerate(jax.tree.leaves(tree)) if jnp.asarray(leaf).dtype == np.float32)


def everything(run):
    """The value, gradient, Hessian-vector product, forward derivative and batched versions of `run`, as one function."""
    def derived(args, direction, many):
        loss = lambda *args: scalar(run(*args))
        gradient = jax.grad(loss, (0, 1, 2))
        value, pushed = jax.jvp(run, args, direction)
        return {
            "value": value, "pushed": [t for t in jax.tree.leaves(pushed) if t.dtype == np.float32],
            "gradient": gradient(*args),
            "hessian product": jax.jvp(gradient, args, direction)[1],
            "batched": jax.vmap(run, (None, None, 0))(*args[:2], many),
            "batched over all": jax.vmap(run)(*jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), args)),
            "batched gradient": jax.vmap(gradient, (None, None, 0))(*args[:2], many),
            "gradient of batched": jax.grad(lambda w: scalar(jax.vmap(run, (None, None, 1))(w, args[1], jnp.swapaxes(many, 0, 1))))(args[0]),
        }
    return derived


def assert_equal_trees(a, b, tolerance=2e-4):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), (_, y) in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b)):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape and x.dtype == y.dtype, (jax.tree_util.keystr(path), x.dtype, y.dtype, x.shape, y.shape)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def check_programs(fun, *args):
    """The program of fun, and those in it, are well formed."""
    check_jaxpr(jax.make_jaxpr(fun)(*args))


@pytest.mark.parametrize("seed,reverse,unroll", [(0, False, 1), (1, True, 1), (2, False, 3), (3, True, True), (4, False, 1), (5, True, 2)])
def test_scan_equals_the_python_loop_in_value_derivatives_and_batches(seed, reverse, unroll):
    body, args = body_of(seed), arguments(seed)
    direction = jax.tree.map(lambda leaf: np.float32(0.5) - leaf, args)
    many = np.stack([args[2], 1 - args[2], args[2] * 0.5])
    looped, scanned = everything(by_loop(body, reverse)), everything(by_scan(body, reverse, unroll))
    assert_equal_trees(jax.jit(scanned)(args, direction, many), jax.jit(looped)(args, direction, many))
    check_programs(scanned, args, direction, many)
