"""Laws of control flow over generated programs: compiled, a program is what the same program is when Python runs its loops and choices.

A program works on a vector v, a scalar s and a counter k, and reads a matrix m, a table t and a vector b from around it. It is a nest of
three constructs, whose blocks, lengths and conditions are drawn from a seed; a `flow` says what the constructs mean: lax's functions,
or Python's own loops and ifs. Conditions, indices and trip counts depend on k, which Python knows. A failure shows the program.
"""
from types import SimpleNamespace

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from tests.folded import folded

ARITHMETIC = {
    "v = tanh(m @ v + b)": lambda w, v, s, k: (jnp.tanh(w["m"] @ v + w["b"]), s, k),
    "v = v + t[k % 3]; k += 1": lambda w, v, s, k: (v + w["t"][k % 3], s, k + 1),
    "v[k % 3] = s; k = (3 k + 1) % 11": lambda w, v, s, k: (v.at[k % 3].set(s), s, (3 * k + 1) % 11),
    "v[[k % 2, 2]] *= s": lambda w, v, s, k: (v.at[jnp.array([k % 2, 2])].multiply(s, unique_indices=True), s, k),
    "s = sin(s) + v[k % 3]": lambda w, v, s, k: (v, jnp.sin(s) + v[k % 3], k),
    "v = where(v > s, v, v b / 2); k += 2": lambda w, v, s, k: (jnp.where(v > s, v, v * w["b"] / 2), s, k + 2),
    "v = [v[2], v[0] s, v[1] - k / 5]": lambda w, v, s, k: (jnp.stack([v[2], v[0] * s, v[1] - 0.2 * k]), s, k),
    "s = s t[0] · b": lambda w, v, s, k: (v, s * (w["t"][0] @ w["b"]), k),
    "v = sin(exp(b) v); s = v · v / 2": lambda w, v, s, k: (jnp.sin(jnp.exp(w["b"]) * v), v @ v / 2, k),
}


# --- what the constructs mean ---------------------------------------------------------------------------------------------------------

def python_scan(f, carry, xs, reverse, unroll):
    ys = []
    for i in (reversed(range(len(xs))) if reverse else range(len(xs))):
        carry, y = f(carry, xs[i])
        ys.insert(0 if reverse else len(ys), y)
    return carry, jnp.stack(ys) if ys else jnp.zeros((0, 3))


def python_fori(lower, upper, f, carry):
    for i in range(lower, upper):
        carry = f(i, carry)
    return carry


def python_while(condition, f, carry):
    while condition(carry):
        carry = f(carry)
    return carry


PYTHON = SimpleNamespace(
    scan=python_scan, fori_loop=python_fori, while_loop=python_while, map=lambda f, xs, batch_size: jnp.stack([f(x) for x in xs]),
    cond=lambda p, f, g, x: f(x) if p else g(x), switch=lambda i, fs, x: fs[min(max(i, 0), len(fs) - 1)](x),
    checkpoint=lambda f, policy: f, jit=lambda f: f)
LAX = SimpleNamespace(scan=lax.scan, fori_loop=lax.fori_loop, while_loop=lax.while_loop, map=lax.map, cond=lax.cond, switch=lax.switch,
                      checkpoint=jax.checkpoint, jit=jax.jit)


# --- programs -------------------------------------------------------------------------------------------------------------------------
# A program is a pair: its lines, and a function (flow, w, state) -> state.

def program(rng, nest):
    """Some arithmetic, and the first construct of the nest around a program of the others, or more arithmetic."""
    parts = [arithmetic(rng), construct(rng, *nest) if nest else arithmetic(rng)]

    def run(flow, w, state):
        for _, part in parts:
            state = part(flow, w, state)
        return state
    return [line for lines, _ in parts for line in lines], run


def arithmetic(rng):
    line = list(ARITHMETIC)[rng.integers(len(ARITHMETIC))]
    return [line], lambda flow, w, state: ARITHMETIC[line](w, *state)


def construct(rng, kind, *nest):
    lines, inside = program(rng, nest)
    other_lines, other = program(rng, ())
    n, reverse, unroll = int(rng.integers(1, 4)), bool(rng.integers(2)), int(rng.integers(1, 3))
    policy = [None, jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.everything_saveable][rng.integers(3)]

    def scan(flow, w, state, n=n, wrap=lambda step: step):
        def step(state, row):
            v, s, k = inside(flow, w, state)
            return (v * row, s, k), v + row
        state, rows = flow.scan(wrap(step), state, w["t"][:n], reverse=reverse, unroll=unroll)
        return state[0] + rows.sum(0), *state[1:]

    def turns(flow, w, state, lower, upper):
        def turn(i, state):
            v, s, k = inside(flow, w, state)
            return v + 0.1 * i, s, k
        return flow.fori_loop(lower, upper, turn, state)

    def until(flow, w, state):
        """As many turns as k says at the beginning, counted in the carry, along with all that changes."""
        return flow.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, inside(flow, w, c[1])), (state[2] % 3, state))[1]

    def rows(flow, w, state):
        per_row = lambda row: inside(flow, w, (state[0] * row, *state[1:]))[0]
        return state[0] + flow.map(per_row, w["t"], batch_size=n).sum(0), *state[1:]

    two = lambda flow, w: [lambda state: inside(flow, w, state), lambda state: other(flow, w, state)]
    heads = {
        "scan": (f"scan t[:{n}] {reverse=} {unroll=}", scan),
        "scan of nothing": ("scan t[:0]", lambda *a: scan(*a, n=0)),
        "checkpointed scan": (f"scan t[:{n}] checkpointed, policy {getattr(policy, '__name__', None)}",
                              lambda flow, *a: scan(flow, *a, wrap=lambda step: flow.checkpoint(step, policy=policy))),
        "fori": (f"for i in range(1, {n + 1})", lambda *a: turns(*a, 1, n + 1)),
        "fori never": ("for i in range(2, 2)", lambda *a: turns(*a, 2, 2)),
        "fori to k": ("for i in range(k % 3)", lambda flow, w, state: turns(flow, w, state, 0, state[2] % 3)),
        "while": ("while fewer than k % 3 turns", until),
        "cond": ("if k % 2 == 0, else " + "; ".join(other_lines), lambda flow, w, state: flow.cond(state[2] % 2 == 0, *two(flow, w), state)),
        "switch": ("by k % 4 - 1, clamped: nothing, this, or " + "; ".join(other_lines),
                   lambda flow, w, state: flow.switch(state[2] % 4 - 1, [lambda state: state, *two(flow, w)], state)),
        "map": (f"v + sum over rows of t, batch_size={n}", rows),
        "jit": ("jit", lambda flow, w, state: flow.jit(lambda state: inside(flow, w, state))(state)),
    }
    head, run = heads[kind]
    return [head + ":", *["    " + line for line in lines]], run


# --- the laws -------------------------------------------------------------------------------------------------------------------------

def draw(rng):
    return {name: rng.uniform(-1, 1, shape) for name, shape in [("m", (3, 3)), ("t", (3, 3)), ("b", (3,))]}, rng.uniform(-1, 1, 3), rng.uniform(0.2, 1)


def number(state):
    """A number that depends on all of the vector and the scalar; and the counter."""
    v, s, k = state
    return jnp.sin(v) @ np.array([1.0, 2.0, 3.0]) + jnp.cos(s), k


def reverse_derivatives(run):
    """Value, gradient, slope along a direction and Hessian-vector product, and the end state of the counter."""
    def derive(floats, k, direction):
        def value_and_gradient(floats):
            (value, k_end), gradient = jax.value_and_grad(lambda floats: number(run(floats[0], (*floats[1:], k))), has_aux=True)(floats)
            return (value, gradient), k_end
        return jax.jvp(value_and_gradient, (floats,), (direction,), has_aux=True)
    return derive


def forward_derivatives(run):
    """Value, slope and curvature along a direction, and the end state of the counter."""
    def derive(floats, k, direction):
        def value_and_slope(floats):
            value, slope, k_end = jax.jvp(lambda floats: number(run(floats[0], (*floats[1:], k))), (floats,), (direction,), has_aux=True)
            return (value, slope), k_end
        return jax.jvp(value_and_slope, (floats,), (direction,), has_aux=True)
    return derive


def check(name, seed, derivatives, across):
    """Two examples, batched by `across` (vmap or pmap) over some of the arguments, and the first alone, against Python's loops."""
    rng = np.random.default_rng(seed)
    lines, run = program(rng, name.split(" > "))
    floats, others, direction, axes = draw(rng), draw(rng), draw(rng), [bool(b) for b in rng.integers(0, 2, 3)]
    mapped = jax.tree.map(lambda _: axes[0], floats[0]), *axes[1:]
    numbers = [2 + seed % 3, 3 + seed % 3]
    pick = lambda i: jax.tree.map(lambda a, b, axis: b if axis and i else a, floats, others, mapped)
    with jax.enable_x64(True):
        by_python = [folded(lambda floats, direction: derivatives(lambda w, state: run(PYTHON, w, state))(floats, k, direction))(pick(i), direction)
                     for i, k in enumerate(numbers)]
        compiled = derivatives(lambda w, state: run(LAX, w, state))
        stacked = jax.tree.map(lambda a, b, axis: np.stack([a, b]) if axis else a, floats, others, mapped)
        in_axes = (jax.tree.map(lambda axis: 0 if axis else None, mapped), 0, None)
        counters = np.array(numbers)
        found = {"batched": jax.jit(across(compiled, in_axes=in_axes))(stacked, counters, direction)}
        if across is jax.vmap:
            found["alone"] = jax.jit(compiled)(floats, counters[0], direction)
    shown = f"seed {seed}, {name}, batched {mapped}, k = {numbers}:\n" + "\n".join(lines)
    expected = {"alone": by_python[0], "batched": jax.tree.map(lambda *xs: np.stack(xs), *by_python)}
    for what, results in found.items():
        for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(results), jax.tree.leaves(expected[what]), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9, err_msg=f"{what}{jax.tree_util.keystr(path)} of {shown}")


@pytest.mark.parametrize("seed, name", list(enumerate([
    "scan > cond > fori", "switch > scan > map", "checkpointed scan > switch > scan", "fori > map > cond", "cond > checkpointed scan > fori never",
    "map > jit > scan of nothing"])))
def test_a_program_of_scans_and_choices_has_the_value_gradient_and_hessian_product_of_pythons_loops_alone_and_batched(seed, name):
    check(name, seed, reverse_derivatives, jax.vmap)


@pytest.mark.parametrize("seed, name", list(enumerate([
    "while > scan > cond", "scan > fori to k > switch", "cond > while > fori to k"], 100)))
def test_a_program_of_while_loops_has_the_forward_derivatives_of_pythons_loops_alone_and_batched(seed, name):
    check(name, seed, forward_derivatives, jax.vmap)


@pytest.mark.parametrize("seed, name, derivatives", [(200, "scan > cond > checkpointed scan", reverse_derivatives), (201, "while > switch > scan", forward_derivatives)])
def test_a_program_over_two_devices_is_what_it_is_on_one(seed, name, derivatives):
    check(name, seed, derivatives, jax.pmap)
