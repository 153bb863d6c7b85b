"""Control flow: a loop or a choice computes what Python's computes, under every transformation, and says clearly what is wrong."""
import functools
import gc
import importlib
import weakref

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core.check import check_jaxpr
from mini_jax.core.program import dce, subprograms

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


@pytest.mark.parametrize("seed,reverse,unroll", [(0, False, 1), (1, True, 1), (2, False, 3), (4, True, 2)])
def test_scan_equals_the_python_loop_in_value_derivatives_and_batches(seed, reverse, unroll):
    body, args = body_of(seed), arguments(seed)
    direction = jax.tree.map(lambda leaf: np.float32(0.5) - leaf, args)
    many = np.stack([args[2], 1 - args[2], args[2] * 0.5])
    looped, scanned = everything(by_loop(body, reverse)), everything(by_scan(body, reverse, unroll))
    assert_equal_trees(jax.jit(scanned)(args, direction, many), jax.jit(looped)(args, direction, many))
    check_programs(scanned, args, direction, many)


def test_scan_of_no_steps_returns_the_carry_and_empty_rows_and_passes_gradients_on():
    w, init, xs = arguments(0, steps=0)
    run = by_scan(body_of(0))
    (carry, k, _), ys = run(w, init, xs)
    assert_equal_trees(carry, init)
    assert k == 0 and ys["y"].shape == (0, 3) and ys["k"].shape == (0,) and ys["k"].dtype == np.int32
    gradients = jax.grad(lambda w, init: scalar(run(w, init, xs)), (0, 1))(w, init)
    assert_equal_trees(gradients, jax.grad(lambda w, init: scalar(init), (0, 1))(w, init))
    (batched, _, _), ys = jax.vmap(run, (None, 0, None))(w, jax.tree.map(lambda v: np.stack([v, v]), init), xs)
    assert batched[0].shape == (2, 3) and ys["y"].shape == (2, 0, 3)


def test_loops_nest_three_deep():
    """A scan, in which a fori_loop, in which a while_loop and a cond; all derivatives that they have, batched and not."""
    def nested(outer, inner, innermost, choose):
        def run(x, w):
            def row(carry, w):
                def middle(i, carry):
                    carry = innermost(carry * w)
                    return choose(i, carry)
                return inner(middle, carry), carry.sum()
            return outer(row, x, w)
        return run

    def python_scan(row, carry, ws):
        ys = []
        for w in ws:
            carry, y = row(carry, w)
            ys.append(y)
        return carry, jnp.stack(ys)

    def python_middle(step, carry):
        for i in range(2):
            carry = step(i, carry)
        return carry
    scanned = nested(lax.scan, lambda step, carry: lax.fori_loop(0, 2, step, carry),
                     lambda v: lax.scan(lambda v, _: (jnp.sin(v) + 0.1 * v, None), v, None, length=2)[0],
                     lambda i, v: lax.cond(i > 0, lambda v: v * v, jnp.cos, v))
    looped = nested(python_scan, python_middle, lambda v: python_middle(lambda _, v: jnp.sin(v) + 0.1 * v, v), lambda i, v: v * v if i > 0 else jnp.cos(v))
    x, w = np.float32([0.3, -0.5]), np.float32([0.5, 1.5])

    def all_of(run):
        loss = lambda x, w: scalar(run(x, w))
        return lambda x, w: (run(x, w), jax.grad(loss, (0, 1))(x, w), jax.hessian(loss, 1)(x, w),
                             jax.vmap(jax.grad(loss), (0, None))(jnp.stack([x, 2 * x]), w), jax.jvp(loss, (x, w), (w, x)))
    assert_equal_trees(jax.jit(all_of(scanned))(x, w), jax.jit(all_of(looped))(x, w))
    check_programs(all_of(scanned), x, w)


def test_eager_and_disabled_jit_agree_with_jit():
    w, init, xs = arguments(3)
    run = by_scan(body_of(3))
    at_once, staged = run(w, init, xs), jax.jit(run)(w, init, xs)
    assert_equal_trees(at_once, staged, 1e-6)
    with jax.disable_jit():
        assert_equal_trees(jax.tree.map(jnp.asarray, run(w, init, xs)), staged, 1e-5)
        assert lax.scan(lambda c, x: (c, {"y": c * x}), 1.0, xs[:0])[1]["y"].shape == (0, 3)
        assert lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0) == 3
        assert lax.fori_loop(0, 3, lambda i, c: c + i, 0) == 3
        assert lax.cond(True, lambda x: x, lambda x: 1 / 0, 2.0) == 2.0
        assert lax.switch(1, [lambda x: 1 / 0, lambda x: x], 2.0) == 2.0
        np.testing.assert_array_equal(lax.map(lambda x: 2 * x, xs, batch_size=3), 2 * xs)
        np.testing.assert_array_equal(lax.associative_scan(jnp.add, np.arange(5)), np.cumsum(np.arange(5)))


# --- what a scan saves ------------------------------------------------------------------------------------------------------------

def scans(jaxpr):
    """All scan equations of a program, those inside others too."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "scan":
            yield eqn
        for _, program in subprograms(eqn.params):
            yield from scans(program)


def saved_by(fun, *args):
    """The types that the forward scan of grad(fun) stacks beyond the ys of fun itself."""
    plain, *_ = scans(jax.make_jaxpr(fun)(*args).jaxpr)
    forward, backward = [e for e in jax.make_jaxpr(jax.grad(lambda *args: scalar(fun(*args))))(*args).eqns if e.primitive.name == "scan"]
    assert backward.params["reverse"] != plain.params["reverse"]
    read = set(backward.invars)
    extra = forward.outvars[len(plain.outvars):]
    assert all(v in read for v in extra), "everything saved is read by the backward pass"
    return sorted(str(v.aval) for v in extra)


def test_only_what_the_backward_pass_reads_is_saved_and_once():
    xs, w = np.ones((5, 3), np.float32), np.ones((3, 3), np.float32)
    c = np.ones(3, np.float32)
    # tanh saves what its derivative reads; w and xs are not copied
    assert saved_by(lambda c, w, xs: lax.scan(lambda c, x: (jnp.tanh(w @ c + x), None), c, xs)[0], c, w, xs) == ["f32[5,3]"]
    # a product with x needs no copy of x
    assert saved_by(lambda c, xs: lax.scan(lambda c, x: (c * x, None), c, xs)[0], c, xs) == []
    # the carry that is also a y is found among the ys
    assert saved_by(lambda c, w: lax.scan(lambda c, _: (c * jnp.sin(w[0]), c), c, None, length=5)[1], c, w) == []
    # what is the same at every step is computed before the loop and not stacked
    assert saved_by(lambda c, w: lax.scan(lambda c, _: (c * jnp.exp(w).sum(0), None), c, None, length=5)[0], c, w) == []
    # what a few cheap operations make from a y, or from an x, is made again
    assert saved_by(lambda c, xs: lax.scan(lambda c, x: (jnp.tanh(c + x),) * 2, c, xs)[1], c, xs) == []
    assert saved_by(lambda c, xs: lax.scan(lambda c, x: (c * jnp.where(x > 0, x, 2 * x), None), c, xs)[0], c, xs) == []
    # linear bodies save nothing
    assert saved_by(lambda c, w: lax.scan(lambda c, x: (2 * c + x, c), c, np.ones((5, 3), np.float32))[0], c, w) == []
    # a broadcast is made again from what it was made of
    assert saved_by(lambda c, w: lax.scan(lambda c, _: (jnp.sin(c.sum()) * jnp.ones(3) * jnp.cos(w[0]), None), c, None, length=5)[0], c, w) == ["f32[5]"]


def test_a_derivative_that_is_the_same_at_every_step_leaves_the_loop():
    """The cotangent of exp(w) is summed over the steps; w's is computed from the sum, once."""
    w, c = np.ones((3, 3), np.float32) * 0.1, np.ones(3, np.float32)
    grad = jax.grad(lambda w, c: lax.scan(lambda c, _: (jnp.sin(c * jnp.exp(w @ w).sum(0)), None), c, None, length=5)[0].sum())
    for eqn in scans(jax.make_jaxpr(grad)(w, c).jaxpr):
        assert not {"dot_general", "exp"} & {inner.primitive.name for inner in eqn.params["jaxpr"].eqns}
    by_hand = jax.grad(lambda w, c: functools.reduce(lambda c, _: jnp.sin(c * jnp.exp(w @ w).sum(0)), range(5), c).sum())
    np.testing.assert_allclose(grad(w, c), by_hand(w, c), rtol=1e-5)


def test_a_carry_that_never_changes_is_a_constant_and_an_x_handed_on_is_not_copied():
    def run(w, xs):
        return lax.scan(lambda carry, x: ((carry[0], carry[1] * carry[0]), (x, carry[1])), (w, np.float32(1)), xs)
    eqn, = scans(jax.make_jaxpr(run)(np.float32(2), np.ones(3, np.float32)).jaxpr)
    assert (eqn.params["num_consts"], eqn.params["num_carry"], len(eqn.outvars)) == (1, 1, 2)
    (w, last), (xs, before) = run(np.float32(2), np.arange(3, dtype=np.float32))
    assert w == 2 and last == 8
    np.testing.assert_array_equal(xs, [0, 1, 2])
    np.testing.assert_array_equal(before, [1, 2, 4])
    assert jax.grad(lambda w: run(w, np.ones(3, np.float32))[0][1])(2.0) == 12


def test_checkpoint_in_a_scan_saves_the_carry_alone():
    w, c = np.ones((3, 3), np.float32), np.ones(3, np.float32)
    step = lambda w, c: jnp.sin(jnp.tanh(w @ c) * jnp.cos(c))
    run = lambda step: lambda c, w: lax.scan(lambda c, _: (step(w, c), None), c, None, length=5)[0]
    assert saved_by(run(jax.checkpoint(step)), c, w) == ["f32[5,3]"]
    assert len(saved_by(run(step), c, w)) > 1
    loss = lambda step: jax.grad(lambda c, w: run(step)(c, w).sum(), (0, 1))
    assert_equal_trees(loss(jax.checkpoint(step))(c, w), loss(step)(c, w), 1e-5)


# --- while and fori -----------------------------------------------------------------------------------------------------------------

def test_while_loop_counts_and_takes_any_tree():
    out = lax.while_loop(lambda c: c["i"] < 5, lambda c: {"i": c["i"] + 1, "x": (c["x"][0] * 2, None)}, {"i": 0, "x": (np.float32(1), None)})
    assert out["i"] == 5 and out["x"][0] == 32 and out["x"][1] is None
    assert lax.while_loop(lambda c: False, lambda c: c + 1, 3) == 3


def test_while_loop_has_derivatives_in_forward_mode_of_any_order():
    def power(x, n):                                        # x ** n
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, jnp.ones_like(x)))[1]
    value, tangent = jax.jit(lambda x: jax.jvp(lambda x: power(x, 4), (x,), (1.0,)))(3.0)
    assert (value, tangent) == (81, 108)
    assert jax.linearize(lambda x: power(x, 4), 3.0)[1](1.0) == 108
    assert jax.jacfwd(jax.jacfwd(lambda x: power(x, 4)))(3.0) == 108
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.jacfwd(power), (0, 0)))(np.float32([1, 2, 3]), np.int32([1, 2, 3])), [1, 4, 27])
    assert jax.grad(lambda x: x * lax.stop_gradient(power(x, 2)))(3.0) == 9


def test_reverse_mode_through_a_while_loop_says_what_to_use_instead():
    dynamic = lambda x, n: lax.fori_loop(0, n, lambda i, c: c * x, 1.0)
    for fun in (lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * x, x), lambda x: jax.jit(dynamic)(x, 3)):
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work for lax.while_loop.*Try using lax.scan"):
            jax.grad(fun)(2.0)


def test_batched_conditions_and_trip_counts_stop_each_example_where_it_would_alone():
    def collatz(n):
        return lax.while_loop(lambda c: c[0] > 1, lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0))[1]

    def by_hand(n):
        steps = 0
        while n > 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps
    numbers = np.arange(1, 12)
    np.testing.assert_array_equal(jax.vmap(collatz)(numbers), [by_hand(n) for n in numbers])
    assert jax.vmap(collatz)(numbers[:0]).shape == (0,)
    count = lambda n, x, start: lax.fori_loop(start, n, lambda i, c: c + i * x, 0.0)
    expected = lambda n, x, start: sum(i * x for i in range(start, n))
    n, x, start = np.int32([0, 1, 4, 2]), np.float32([1, 2, 3, 4]), np.int32([0, 0, 1, 3])
    for axes in [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (0, None, 0)]:
        picked = [a if axis == 0 else a[2] for a, axis in zip((n, x, start), axes)]
        rows = [[a[i] if axis == 0 else a for a, axis in zip(picked, axes)] for i in range(4)]
        np.testing.assert_allclose(jax.vmap(count, axes)(*picked), [expected(*row) for row in rows], err_msg=str(axes))
    nested = jax.vmap(jax.vmap(count, (0, None, None)), (None, 0, None))(n, x, np.int32(0))
    np.testing.assert_allclose(nested, [[expected(a, b, 0) for a in n] for b in x])


def test_fori_loop_over_known_bounds_is_a_scan_with_both_modes():
    factorial = lambda x, n: lax.fori_loop(1, n + 1, lambda i, c: c * i * x, 1.0)
    assert factorial(1.0, 5) == 120 and lax.fori_loop(4, 2, lambda i, c: c * 0, 7) == 7
    assert jax.grad(factorial)(2.0, 3) == 6 * 3 * 4
    assert [e.primitive.name for e in jax.make_jaxpr(lambda x: factorial(x, 3))(1.0).eqns] == ["scan"]
    assert "while" in [e.primitive.name for e in jax.make_jaxpr(factorial)(1.0, 3).eqns]
    for unroll in (1, 2, 3, True, 0):
        assert lax.fori_loop(0, 5, lambda i, c: c + i, 0, unroll=unroll) == 10
    kinds = []
    lax.fori_loop(np.int8(0), 2, lambda i, c: kinds.append((i.dtype, i.weak_type)) or c, 0)
    jax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: kinds.append((i.dtype, i.weak_type)) or c, 0))(np.int16(2))
    assert kinds == [(np.int32, True), (np.int16, False)]


# --- cond and switch ------------------------------------------------------------------------------------------------------------------

def test_cond_runs_one_branch_and_differentiates_it():
    f = lambda p, x: lax.cond(p, lambda x: jnp.sin(x) * x, lambda x: x * x * x, x)
    expected = {True: (np.sin(2) * 2, np.sin(2) + 2 * np.cos(2), 2 * np.cos(2) - 2 * np.sin(2)), False: (8, 12, 12)}
    for pred, (value, first, second) in expected.items():
        for given in (pred, np.asarray(pred), jnp.asarray(pred), int(pred), 1.5 * pred):
            for run in (f, jax.jit(f)):
                np.testing.assert_allclose(run(given, 2.0), value, rtol=1e-6)
        for transform in (lambda f: f, jax.jit):
            np.testing.assert_allclose(transform(jax.grad(f, 1))(pred, 2.0), first, rtol=1e-5)
            np.testing.assert_allclose(transform(jax.grad(jax.grad(f, 1), 1))(pred, 2.0), second, rtol=1e-5)
            np.testing.assert_allclose(transform(lambda p: jax.jvp(lambda x: f(p, x), (2.0,), (1.0,)))(pred), (value, first), rtol=1e-5)
    check_programs(jax.grad(jax.grad(f, 1), 1), True, 2.0)


def test_branches_may_depend_on_different_operands_and_capture_values():
    a, b = jnp.float32(2), jnp.float32([1, 2])
    def f(i, x, y):
        return lax.switch(i, [lambda x, y: (x * a, y), lambda x, y: (x.sum() * b, b), lambda x, y: (jnp.zeros(2), jnp.sin(y) * b)], x, y)
    by_hand = [lambda x, y: (x * a, y), lambda x, y: (x.sum() * b, b), lambda x, y: (jnp.zeros(2), jnp.sin(y) * b)]
    x, y = np.float32([0.3, 0.4]), np.float32([0.5, 0.6])
    for i in range(3):
        assert_equal_trees(jax.jit(f)(i, x, y), by_hand[i](x, y), 1e-6)
        loss, hand = (lambda x, y: scalar(f(i, x, y))), (lambda x, y: scalar(by_hand[i](x, y)))
        want = jax.grad(hand, (0, 1))(x, y)
        assert_equal_trees(jax.grad(loss, (0, 1))(x, y), want, 1e-5)
        assert_equal_trees(jax.jit(lambda i, x, y: jax.grad(lambda x, y: scalar(f(i, x, y)), (0, 1))(x, y))(i, x, y), want, 1e-5)
    indices = np.int32([2, 0, 1, -3, 9])
    rows = [by_hand[min(max(int(i), 0), 2)](x, y) for i in indices]
    batched = jax.vmap(f, (0, None, None))(indices, x, y)
    assert_equal_trees(batched, jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows), 1e-6)
    loss = lambda x: scalar(jax.vmap(f, (0, None, None))(indices, x, y))
    assert_equal_trees(jax.grad(loss)(x), jax.grad(lambda x: scalar(jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[by_hand[min(max(int(i), 0), 2)](x, y) for i in indices])))(x), 1e-5)


def test_vmap_of_cond_over_operands_still_chooses_once():
    f = lambda p, x: lax.cond(p, jnp.sin, lambda x: 2 * x, x)
    x = np.float32([1, 2, 3])
    jaxpr = jax.make_jaxpr(jax.vmap(f, (None, 0)))(True, x)
    assert "cond" in [eqn.primitive.name for eqn in jaxpr.eqns]
    np.testing.assert_allclose(jax.vmap(f, (None, 0))(True, x), np.sin(x), rtol=1e-6)
    chosen = np.array([True, False, True])
    np.testing.assert_allclose(jax.vmap(f, (0, 1), 1)(chosen, np.stack([x, x])), [np.where(chosen, np.sin(x), 2 * x)] * 2, rtol=1e-6)


def test_switch_takes_the_nearest_branch_for_an_index_out_of_range():
    branches = [lambda x: x, lambda x: 2 * x, lambda x: 3 * x]
    for index, expected in [(-5, 1), (0, 1), (1, 2), (2, 3), (7, 3)]:
        assert lax.switch(index, branches, 1.0) == expected == jax.jit(lambda i: lax.switch(i, branches, 1.0))(index)
    assert jax.jit(lambda i: lax.switch(i, branches, 1.0))(np.uint8(255)) == 3
    assert lax.switch(9, branches[:1], 4.0) == 4


def test_cond_in_its_other_forms():
    assert lax.cond(False, 1.0, lambda x: x, 2.0, lambda x: -x) == -2
    assert lax.cond(True, lambda x: x, lambda x: -x, operand=3.0) == 3
    assert lax.cond(True, lambda x: 1, lambda x: 2, operand=None) == 1
    assert lax.cond(False, lambda: 1, lambda: 2) == 2


# --- map, associative_scan ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 7])
def test_map_applies_to_each_row(batch_size):
    xs = {"a": np.arange(14, dtype=np.float32).reshape(7, 2), "b": np.arange(7)}
    f = lambda x: (x["a"].sum() + x["b"], {"c": x["a"]})
    total, rest = lax.map(f, xs, batch_size=batch_size)
    np.testing.assert_allclose(total, xs["a"].sum(1) + xs["b"])
    np.testing.assert_array_equal(rest["c"], xs["a"])
    if batch_size in (None, 3):
        np.testing.assert_allclose(jax.grad(lambda a: lax.map(jnp.sin, a, batch_size=batch_size).sum())(xs["a"]), np.cos(xs["a"]), rtol=1e-5)


def test_map_of_no_rows():
    assert lax.map(lambda x: {"y": x.sum()}, np.zeros((0, 3)))["y"].shape == (0,)
    assert lax.map(lambda x: {"y": x.sum()}, np.zeros((0, 3)), batch_size=2)["y"].shape == (0,)


@pytest.mark.parametrize("size, short", [(0, 1024), (1, 1024), (2, 1024), (3, 1), (13, 1024), (13, 3), (8, 1)])
def test_associative_scan_gives_every_prefix(size, short, monkeypatch):
    """By halving, one by one, and by halving until it is short."""
    monkeypatch.setattr(importlib.import_module("mini_jax.transforms.control.associative_scan"), "_SHORT", short)
    rng = np.random.default_rng(size)
    matrices = rng.normal(size=(2, size, 2, 2)).astype(np.float32)
    by_hand = lambda ms: [functools.reduce(np.matmul, ms[:i + 1]) for i in range(len(ms))]
    product = lambda a, b: jnp.einsum("...ij,...jk->...ik", a, b)
    got = jax.jit(lambda m: lax.associative_scan(product, m, axis=1))(matrices)
    assert got.shape == matrices.shape
    if size:
        np.testing.assert_allclose(got[1], by_hand(list(matrices[1])), rtol=1e-4, atol=1e-4)
    x = rng.integers(0, 9, size)
    np.testing.assert_array_equal(lax.associative_scan(jnp.add, x, reverse=True), np.cumsum(x[::-1])[::-1])
    recurrence = lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])               # composition of x -> a x + b
    a, b = rng.normal(size=(2, size)).astype(np.float32)
    state, states = 0.0, []
    for i in range(size):
        state = a[i] * state + b[i]
        states.append(state)
    np.testing.assert_allclose(lax.associative_scan(recurrence, (a, b))[1], np.asarray(states, np.float32), rtol=1e-4, atol=1e-5)


# --- types of carries -----------------------------------------------------------------------------------------------------------------

def test_python_numbers_in_a_carry_take_the_dtype_that_the_body_gives_them():
    half = np.ones(3, np.float16)
    assert lax.scan(lambda c, x: (c + x, None), 0, half)[0].dtype == np.float16
    assert lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, 0).dtype == np.float32
    assert lax.fori_loop(0, 3, lambda i, c: c * 1.5, 1).dtype == np.float32
    assert lax.scan(lambda c, _: (c + 1, c), 0, None, length=3)[0].weak_type


def test_keys_complex_numbers_and_small_types_go_round_a_loop():
    def step(key, _):
        key, now = jax.random.split(key)
        return key, jax.random.normal(now, (2,))
    key, rows, by_hand = jax.random.key(0), [], jax.random.key(0)
    for _ in range(3):
        by_hand, row = step(by_hand, None)
        rows.append(row)
    end, scanned = lax.scan(step, key, None, length=3)
    np.testing.assert_array_equal(scanned, np.stack(rows))
    np.testing.assert_array_equal(jax.random.key_data(end), jax.random.key_data(by_hand))
    z = lax.fori_loop(0, 4, lambda i, z: z * z + 0.1j, jnp.complex64(0.2))
    by_hand = 0.2
    for _ in range(4):
        by_hand = by_hand * by_hand + 0.1j
    np.testing.assert_allclose(z, by_hand, rtol=1e-5)
    for dtype in (jnp.bfloat16, np.float16, np.int8, np.uint8, np.bool_):
        xs = jnp.ones(4, dtype)
        total, ys = lax.scan(lambda c, x: (c | x if dtype is np.bool_ else c + x, c), jnp.zeros((), dtype), xs)
        assert total.dtype == dtype and ys.dtype == dtype and int(total) == (1 if dtype is np.bool_ else 4)


WRONG = {
    "carry changes shape": (lambda: lax.scan(lambda c, x: ({"a": jnp.ones(3) * c["a"]}, None), {"a": 1.0}, np.ones(2)),
                            TypeError, r"c\['a'\] is f32\[\] before a step and f32\[3\] after it: start with an array of shape \(3,\)"),
    "carry changes dtype": (lambda: lax.scan(lambda count, x: (count + x, None), np.int32(0), np.ones(2, np.float32)),
                            TypeError, r"count is i32\[\] before a step and f32\[\] after it: convert the result with .astype\('int32'\), or start with"),
    "carry changes structure": (lambda: lax.scan(lambda c, x: ({"a": c["a"], "b": 1.0}, None), {"a": 1.0}, np.ones(2)),
                                TypeError, r"must return a carry of the structure that it was given.*\n.*not wanted: 'b'"),
    "no pair": (lambda: lax.scan(lambda c, x: c, 1.0, np.ones(2)), TypeError, r"must return a pair \(carry, y\)"),
    "sizes differ": (lambda: lax.scan(lambda c, x: (c, x), 1.0, {"a": np.ones(3), "b": [np.ones(4)]}),
                     ValueError, r"one leading size, but\n  xs\['a'\] has leading size 3 .*\n  xs\['b'\]\[0\] has leading size 4"),
    "length differs": (lambda: lax.scan(lambda c, x: (c, x), 1.0, np.ones(3), length=4), ValueError, r"length is 4, but\n  xs has leading size 3"),
    "no length": (lambda: lax.scan(lambda c, x: (c, x), 1.0), ValueError, "give the number of steps with length="),
    "negative length": (lambda: lax.scan(lambda c, x: (c, x), 1.0, length=-1), ValueError, "at least 0, got -1"),
    "scalar xs": (lambda: lax.scan(lambda c, x: (c, x), 1.0, 2.0), ValueError, r"xs has type f32\[\], which has no leading axis"),
    "traced length": (lambda: jax.jit(lambda n: lax.scan(lambda c, x: (c, x), 1.0, length=n))(3), jax.errors.ConcretizationTypeError,
                      "length of a scan.*\n.*argument n.*\n.*use while_loop or fori_loop"),
    "unroll": (lambda: lax.scan(lambda c, x: (c, x), 1.0, np.ones(3), unroll=-2), ValueError, "unroll is a number of steps"),
    "no function": (lambda: lax.scan(1, 1.0, np.ones(3)), TypeError, "scan: f must be a function, got 1"),
    "no arrays": (lambda: lax.scan(lambda c, x: (c, x), "text", np.ones(3)), TypeError, "c of .* is 'text' of type str"),
    "python if": (lambda: lax.scan(lambda c, x: (c if c > 0 else x, None), 1.0, np.ones(3, np.float32)), jax.errors.TracerBoolConversionError,
                  "The function given to scan runs on values that Python never sees"),
    "while carry": (lambda: lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, np.int32(0)), TypeError, "c is i32.*before a step and f32"),
    "while structure": (lambda: lax.while_loop(lambda c: c[0] < 3, lambda c: c[0], (0,)), TypeError, "must return a carry of the structure"),
    "condition no boolean": (lambda: lax.while_loop(lambda c: c, lambda c: c, 0), TypeError, r"boolean scalar, got i32\[\]; compare it"),
    "condition no scalar": (lambda: lax.while_loop(lambda c: c < 1, lambda c: c, np.ones(3)), TypeError, r"boolean scalar, got bool\[3\]; reduce it"),
    "condition no leaf": (lambda: lax.while_loop(lambda c: (c < 1,), lambda c: c, 0), TypeError, "got a result of structure"),
    "fori carry": (lambda: lax.fori_loop(0, 3, lambda i, state: state * jnp.ones(2), 1.0), TypeError, r"state is f32\[\] before a step and f32\[2\]"),
    "fori bounds": (lambda: lax.fori_loop(0.0, 3, lambda i, c: c, 1.0), TypeError, r"lower is an integer scalar, got f32\[\]"),
    "fori two dtypes": (lambda: lax.fori_loop(np.int8(0), np.int16(3), lambda i, c: c, 1.0), TypeError, r"one dtype, got i8\[\] and i16\[\]"),
    "fori unroll": (lambda: jax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 1.0, unroll=2))(3), ValueError, "upper is a traced value"),
    "branch types": (lambda: lax.cond(True, lambda x: {"r": x}, lambda x: {"r": 1}, 1.0),
                     TypeError, r"result\['r'\] is f32\[\] from true_fun and i32\[\] from false_fun"),
    "branch structures": (lambda: lax.switch(0, [lambda x: x, lambda x: (x,)], 1.0), TypeError, "results of one structure.*\n.*branch 0 is .*\n.*branch 1 is"),
    "predicate no scalar": (lambda: lax.cond(np.ones(2) > 0, lambda: 1, lambda: 2), TypeError, r"the predicate is a scalar, got bool\[2\]"),
    "predicate None": (lambda: lax.cond(None, lambda: 1, lambda: 2), TypeError, "predicate is None"),
    "predicate function": (lambda: lax.cond(lambda: True, lambda: 1, lambda: 2), TypeError, "a boolean or a number, got <function"),
    "branch no function": (lambda: lax.cond(True, 1, lambda: 2), TypeError, "cond: true_fun must be a function, got 1"),
    "no branches": (lambda: lax.switch(0, [], 1.0), ValueError, "at least one branch"),
    "index no integer": (lambda: lax.switch(0.0, [lambda: 1, lambda: 2]), TypeError, r"integer scalar, got f32\[\]"),
    "index boolean": (lambda: lax.switch(True, [lambda: 1, lambda: 2]), TypeError, "for a boolean use cond"),
    "map sizes": (lambda: lax.map(lambda x: x, (np.ones(2), np.ones(3))), ValueError, r"map: .*\n  xs\[0\] has leading size 2"),
    "map batch": (lambda: lax.map(lambda x: x, np.ones(2), batch_size=0), ValueError, "batch_size is a number of rows"),
    "prefix axis": (lambda: lax.associative_scan(jnp.add, {"a": np.ones(3)}, axis=1), ValueError, r"axis 1 is out of bounds for elems\['a'\]"),
    "prefix sizes": (lambda: lax.associative_scan(lambda a, b: a, (np.ones(3), np.ones(4))), ValueError, r"elems\[1\] has size 4"),
    "prefix structure": (lambda: lax.associative_scan(lambda a, b: (a,), np.ones(3)), TypeError, "must return the structure of elems"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=f"(?s){message}"):
        call()


# --- memory, effects, other transformations -----------------------------------------------------------------------------------------------

def test_a_body_is_recorded_once_and_freed_with_what_it_captured():
    runs = []
    big = jnp.ones((100, 100))

    def body(c, x):
        runs.append(1)
        return c + (big * x).sum(), None
    for _ in range(3):
        lax.scan(body, np.float32(0), np.ones(2, np.float32))
        jax.grad(lambda c: lax.scan(body, c, np.ones(2, np.float32))[0])(np.float32(1))
    assert len(runs) == 1
    kept = [weakref.ref(big), weakref.ref(body)]
    del body, big
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


@pytest.mark.parametrize("use", [
    lambda f: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, np.float32(1))),
    lambda f: lax.fori_loop(0, 2, lambda i, c: f(c), np.float32(1)),
    lambda f: lax.cond(True, f, f, np.float32(1)),
    lambda f: jax.jit(jax.vmap(lambda p: lax.cond(p, f, lambda c: c, np.float32(1))))(np.array([True, False])),
    lambda f: lax.map(f, np.ones(3, np.float32), batch_size=2),
    lambda f: lax.associative_scan(lambda a, b: f(a) + b, np.ones(3, np.float32)),
], ids=["while", "fori", "cond", "vmapped cond", "map", "associative_scan"])
def test_functions_given_to_control_flow_are_freed(use):
    big = jnp.ones(100)
    f = lambda c: c * big.sum()
    use(f)
    kept = [weakref.ref(f), weakref.ref(big)]
    del f, big
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_equal_programs_of_new_functions_are_compiled_once(monkeypatch):
    from mini_jax.runtime import xla
    compilations = []
    compile = xla.compile
    monkeypatch.setattr(xla, "compile", lambda *args, **kwargs: compilations.append(1) or compile(*args, **kwargs))
    for _ in range(3):
        assert lax.scan(lambda c, x: (c * 3 - x, c), np.float32(2), np.ones(7, np.float32))[1].shape == (7,)
    assert len(compilations) == 1


def test_loops_with_counters_transpose():
    assert jax.linear_transpose(lambda x: lax.fori_loop(0, 4, lambda i, c: c * (i + 1), x), 1.0)(1.0) == (24,)


def test_a_custom_rule_may_loop_over_primals_and_tangents_together():
    @jax.custom_jvp
    def thrice(x):
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x)

    @thrice.defjvp
    def rule(primals, tangents):
        return lax.scan(lambda c, _: ((jnp.sin(c[0]), lax.cond(c[0] > 9, lambda c: c[1], lambda c: jnp.cos(c[0]) * c[1], c)), None),
                        (primals[0], tangents[0]), None, length=3)[0]
    expected = jax.grad(lambda x: jnp.sin(jnp.sin(jnp.sin(x))))(0.5)
    for gradient in (jax.grad(thrice), jax.jit(jax.grad(thrice)), jax.grad(jax.jit(thrice)), jax.jacfwd(thrice)):
        np.testing.assert_allclose(gradient(0.5), expected, rtol=1e-6)


def test_loops_inside_pmap_and_named_axes():
    """A psum in a scan, in a cond and in a while loop, under pmap and under vmap of the same name, with gradients through."""
    n = 4
    xs = np.arange(n * 3, dtype=np.float32).reshape(n, 3) / 10

    def f(x):
        carry, ys = lax.scan(lambda c, x: (c + lax.psum(x * c, "i"), c), x[0], x)
        carry = lax.fori_loop(0, 2, lambda i, c: c * 0.5 + lax.pmean(c, "i"), carry)
        carry = lax.cond(x.sum() > -1, lambda c: lax.psum(c, "i") * c, lambda c: c, carry)
        return lax.while_loop(lambda c: c[1] < 3, lambda c: (lax.pmean(c[0], "i") + c[0], c[1] + 1), (carry, 0))[0], ys
    many, batched = jax.pmap(f, axis_name="i", devices=jax.devices()[:n])(xs), jax.vmap(f, axis_name="i")(xs)
    assert_equal_trees(many, batched, 1e-5)
    g = jax.grad(lambda x: lax.scan(lambda c, x: (c * jnp.sin(lax.psum(x, "i")), None), x[1], x)[0])
    assert_equal_trees(jax.pmap(g, axis_name="i", devices=jax.devices()[:n])(xs), jax.vmap(g, axis_name="i")(xs), 1e-5)


def test_what_nobody_reads_of_a_loop_or_a_choice_is_not_computed():
    def f(w, x):
        (a, b), ys = lax.scan(lambda c, x: ((c[0] * x, jnp.sin(c[1]) * w), jnp.cos(c[1])), (1.0, 2.0), x)
        _, d, e = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * w, jnp.exp(c[2])), (0, a, b))
        p, q = lax.cond(a > 0, lambda d, e: (d, jnp.tan(e)), lambda d, e: (2 * d, e), d, e)
        return p
    args = np.float32(2), np.ones(3, np.float32)
    jaxpr = dce(jax.make_jaxpr(f)(*args).jaxpr)
    check_jaxpr(jaxpr)
    text = str(jaxpr)
    assert not any(name in text for name in ("sin", "cos", "exp", "tan"))
    assert f(*args) == jax.jit(f)(*args) == 8
    # an inner loop whose rows nobody reads saves nothing for them
    inner = lambda c: lax.scan(lambda c, _: (c * 2.0, jnp.sin(c)), c, None, length=3)[0]
    assert saved_by(lambda c: lax.scan(lambda c, _: (inner(c), None), c, None, length=5)[0], np.float32(1)) == []
