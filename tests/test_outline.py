"""The outliner: programs with functions for what they repeat compute what they computed before, whatever repeats in them and how."""
import random as python_random
import re
import subprocess
import sys

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from lowering.labels import Labels, inner_first
from lowering.outline import outlined
from lowering.products import matrices
from lowering.quotients import reciprocals
from lowering.ready import shared_first
from lowering.stretches import Notes
from mini_jax import lax
from mini_jax.core import config
from mini_jax.core.program import Jaxpr, JaxprEqn, Literal, Var, dce, subprograms
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise
from mini_jax.runtime import aliased, large, xla

VECTOR = array_type((4,), np.dtype("float32"))
X = np.linspace(-1, 1, 4, dtype=np.float32)


def program_of(fun, *args):
    return jax.make_jaxpr(fun)(*args).jaxpr


def run(program, args, steps=None):
    """The results of a program, with functions and without XLA's optimisations: primitive by primitive."""
    env = dict(zip(program.invars, args))
    for eqn in program.eqns:
        values = [v.val if type(v) is Literal else env[v] for v in eqn.invars]
        if eqn.primitive.name == "outlined":
            out = run(eqn.params["jaxpr"], values)
        else:
            out = eqn.primitive.bind(*values, **eqn.params)
        env.update(zip(eqn.outvars, out if type(out) is list else [out]))
    return [v.val if type(v) is Literal else env[v] for v in program.outvars]


def calls(program):
    return [eqn for eqn in program.eqns if eqn.primitive.name == "outlined"]


def assert_well_formed(program):
    """Every variable is bound once and before it is read; calls have the types of what they call."""
    bound = set(program.invars) | set(program.constvars)
    for eqn in program.eqns:
        assert all(v in bound for v in eqn.invars if type(v) is Var)
        assert bound.isdisjoint(eqn.outvars)
        bound.update(eqn.outvars)
        if eqn.primitive.name == "outlined":
            inner = eqn.params["jaxpr"]
            assert not inner.constvars and [t.mlir for t in eqn.in_types] == [t.mlir for t in inner.in_types]
            assert [t.mlir for t in eqn.out_types] == [t.mlir for t in inner.out_types]
            assert_well_formed(inner)
    assert all(v in bound for v in program.outvars if type(v) is Var)


# --- laws over generated programs ----------------------------------------------------------------------------------------------

UNARY = [jnp.sin, jnp.cos, jnp.tanh, jnp.negative, lambda x: 0.5 * x, lambda x: x[::-1]]
BINARY = [jnp.add, jnp.multiply, jnp.subtract, jnp.maximum]


def generated(seed):
    """A function of arrays, and arguments for it: pieces that repeat, nested, overlapping, with other wiring, mixed with noise."""
    rng = python_random.Random(seed)
    constants = [np.full(4, rng.random(), np.float32) for _ in range(3)]

    def piece(depth):
        size = rng.randint(2, 6)
        steps = []
        for _ in range(size):
            kind = rng.random()
            if depth and kind < 0.25:
                steps.append(("piece", piece(depth - 1), rng.randint(1, 4)))
            elif kind < 0.6:
                steps.append(("unary", rng.choice(UNARY), rng.randint(0, 3)))
            else:
                steps.append(("binary", rng.choice(BINARY), rng.randint(0, 3), rng.randint(0, 3)))
        return steps

    def play(steps, pool, noise):
        for step in steps:
            recent = pool[-4:]
            pick = lambda i: recent[-1 - i % len(recent)]
            if step[0] == "piece":
                for _ in range(step[2]):
                    play(step[1], pool, noise)
            elif step[0] == "unary":
                pool.append(step[1](pick(step[2])))
            else:
                other = constants[step[3] % 3] if step[3] == 3 else pick(step[3])
                pool.append(step[1](pick(step[2]), other))
            if noise.random() < 0.03:
                pool.append(noise.choice(UNARY)(noise.choice(pool)))
    pieces = [piece(2) for _ in range(rng.randint(1, 3))]
    order = [rng.choice(pieces) for _ in range(rng.randint(3, 9))]
    ends = rng.randint(1, 5)

    def fun(*xs):
        noise, pool = python_random.Random(seed), list(xs)
        for steps in order:
            play(steps, pool, noise)
        return [pool[-1]] + [pool[noise.randrange(len(pool))] for _ in range(ends)]
    return fun, [X, X + 1][:rng.randint(1, 2)]


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_a_program_with_functions_gives_bit_for_bit_the_same(first):
    made = 0
    for seed in range(first, first + 20):
        fun, args = generated(seed)
        closed = jax.make_jaxpr(fun)(*args)
        program = closed.jaxpr.replace(constvars=(), invars=(*closed.jaxpr.constvars, *closed.jaxpr.invars))
        args = [*closed.consts, *args]
        result = outlined(program, "eager")
        assert_well_formed(result)
        made += len(calls(result))
        for a, b in zip(run(program, args), run(result, args), strict=True):
            np.testing.assert_array_equal(a, b)
    assert made > 60


def layers(count, x, ws):
    for w in ws[:count]:
        y = jnp.tanh(x @ w)
        x = x + jnp.sin(y) * y - jnp.mean(y, axis=1, keepdims=True)
    return x


def test_compiled_gradients_of_layers_agree_and_the_program_depends_on_the_layers_not_on_their_number():
    ws = [np.random.default_rng(i).normal(size=(8, 8), scale=0.3).astype(np.float32) for i in range(12)]
    x = np.ones((4, 8), np.float32)

    def step(ws, x):
        loss, grads = jax.value_and_grad(lambda ws: jnp.sum(layers(len(ws), x, ws) ** 2))(ws)
        return [w - 0.1 * g for w, g in zip(ws, grads)], loss
    lines, results = {}, {}
    for mode in ("off", "eager"):
        with config.outline(mode):
            results[mode] = jax.jit(step)(ws, x)
            lines[mode] = [len(jax.jit(step).lower(ws[:n], x).as_text().splitlines()) for n in (6, 12)]
    for a, b in zip(jax.tree.leaves(results["off"]), jax.tree.leaves(results["eager"])):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(a).max())
    assert lines["off"][1] > 1.8 * lines["off"][0] and lines["eager"][1] < 1.5 * lines["eager"][0]


# --- what is the same, and what only looks so ----------------------------------------------------------------------------------------

class Twin:
    """Parameters with one hash that are not equal."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return type(other) is Twin and self.name == other.name


def label(labels, literal=1.0, **params):
    x = Var(VECTOR)
    eqn = JaxprEqn(elementwise.add_p, [x, Literal(literal, array_type((), np.dtype("float32")))], [Var(VECTOR)], params, frozenset(), None)
    return labels.of(eqn)


def test_labels_are_equal_for_equal_equations_only():
    labels = Labels()
    different = [label(labels), label(labels, 0.0), label(labels, -0.0), label(labels, np.float32(np.nan)),
                 label(labels, a=1), label(labels, a=True),
                 label(labels, a=1.0), label(labels, a=0.0), label(labels, a=-0.0), label(labels, a=(1, 2)), label(labels, a=(1, True)),
                 label(labels, a=(1, 2.0)), label(labels, a=Twin("a")), label(labels, a=Twin("b")), label(labels, a=None), label(labels, a="1")]
    assert len(set(different)) == len(different)
    assert label(labels, np.float32(np.nan)) == different[3] and label(labels, a=Twin("b")) == different[13] and label(labels, a=(1, 2)) == different[9]


def test_stretches_that_differ_in_a_sign_of_zero_or_in_wiring_are_not_the_same():
    def signs(x):
        out = []
        for zero in (0.0, -0.0, 0.0, -0.0):
            y = lax.mul(jnp.sin(x), np.float32(zero))
            out.append(lax.div(np.float32(1), jnp.tanh(jnp.cos(y) - 1 + y)))
        return out
    program = program_of(signs, X)
    np.testing.assert_array_equal(run(outlined(program, "eager"), [X]), run(program, [X]))

    def wired(x, y):
        for k in range(6):
            a, b = jnp.sin(x), jnp.cos(y)
            x, y = (a - b, b) if k % 2 else (b - a, a)
        return x, y
    program = program_of(wired, X, X + 1)
    result = outlined(program, "eager")
    assert calls(result)
    np.testing.assert_array_equal(run(result, [X, X + 1]), run(program, [X, X + 1]))


def test_residuals_and_captured_arrays_may_differ():
    tables = [np.random.default_rng(i).normal(size=4).astype(np.float32) for i in range(8)]

    def fun(x):
        for table in tables:
            x = jnp.tanh(x * table) + jnp.sin(x)
        return x
    with config.outline("eager"):
        lowered = jax.jit(fun).lower(X)
        text, value = lowered.as_text(), lowered.compile()(X)
    assert text.count("stablehlo.tanh") < 8 and "dense<[" not in text
    with config.outline("off"):
        np.testing.assert_allclose(value, jax.jit(fun)(X), rtol=1e-6)


def test_masks_and_tables_made_in_each_copy_are_made_once():
    def fun(x, ws):
        for w in ws:
            mask = jnp.tril(jnp.ones((4, 4), bool))
            table = jnp.sin(jnp.arange(4.0) / 7) + 1
            x = jnp.where(mask, x @ w, 0.0) + jnp.tanh(x) * table
        return x
    ws = [np.eye(4, dtype=np.float32) * k for k in range(1, 7)]
    x = np.ones((4, 4), np.float32)
    program = program_of(fun, x, ws)
    result = outlined(program, "eager")
    names = [eqn.primitive.name for eqn in result.eqns]
    assert names.count("sin") == 1 and "sin" not in [e.primitive.name for e in calls(result)[0].params["jaxpr"].eqns]
    np.testing.assert_array_equal(run(result, [x, *ws])[0], run(program, [x, *ws])[0])


# --- what must stay where it is -------------------------------------------------------------------------------------------------------

def test_effects_happen_as_often_and_in_the_same_order():
    def fun(x):
        for k in range(5):
            x = jnp.sin(x) * 2 + jnp.cos(x)
            jax.debug.callback(lambda v, k=k: seen.append((k, round(float(v[0]), 5))), x, ordered=True)
            x = jnp.tanh(x) - x * x
        return x
    record = {}
    for mode in ("off", "eager"):
        seen = []
        with config.outline(mode):
            jax.block_until_ready(jax.jit(fun)(X))
        record[mode] = seen
    assert record["eager"] == record["off"] and [k for k, _ in seen] == [0, 1, 2, 3, 4]


def test_no_function_holds_an_effect_a_call_of_python_or_a_collective():
    def fun(x):
        for _ in range(4):
            x = jnp.sin(x) + jnp.cos(x) * x
            x = x + lax.psum(x, "i") + jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((4,), np.float32), x)
        return x
    mapped = jax.make_jaxpr(jax.pmap(fun, axis_name="i"))(np.ones((2, 4), np.float32)).jaxpr
    result = outlined(mapped.eqns[0].params["jaxpr"], "eager")
    assert calls(result)
    for eqn in calls(result):
        assert {"psum", "pure_callback"}.isdisjoint([e.primitive.name for e in eqn.params["jaxpr"].eqns])


def test_barriers_and_draws_are_not_merged():
    def fun(x):
        out = []
        for _ in range(4):
            y = lax.optimization_barrier(x) * 2
            out.append(jnp.sin(y) + lax.rng_uniform(np.float32(0), np.float32(1), (4,)))
        return out
    result = outlined(program_of(fun, X), "eager")
    inside = [eqn for call in calls(result) for eqn in call.params["jaxpr"].eqns]
    names = [eqn.primitive.name for eqn in (*result.eqns, *inside)]
    assert names.count("rng_uniform") == 4 and names.count("optimization_barrier") == 4
    assert "rng_uniform" not in [eqn.primitive.name for eqn in inside]


def test_replicas_with_functions_agree():
    def fun(x, w):
        for _ in range(4):
            x = jnp.tanh(x * w) + jnp.sin(x)
            x = x - lax.pmean(x, "i")
        return x
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    values = []
    for mode in ("off", "eager"):
        with config.outline(mode):
            values.append(np.asarray(jax.pmap(fun, axis_name="i", in_axes=(0, None))(x, X)))
    np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)


def test_donated_arguments_are_taken_over_and_results_are_right():
    def fun(xs):
        return [jnp.sin(x) * x + jnp.cos(x) for x in xs]
    xs = [np.full(256, k, np.float32) for k in range(6)]
    with config.outline("off"):
        expected = jax.jit(fun)(xs)
    with config.outline("eager"):
        donating = jax.jit(fun, donate_argnums=0)
        assert donating.lower(xs).as_text().count("tf.aliasing_output") == 6
        given = jax.device_put(xs)
        got = donating(given)
    assert all(x.is_deleted() for x in given)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_random_keys_give_the_same_numbers():
    def fun(key):
        return [jax.random.normal(k, (3,)) + jax.random.uniform(k, (3,)) for k in jax.random.split(key, 4)]
    with config.outline("off"):
        expected = jax.jit(fun)(jax.random.key(3))
    with config.outline("eager"):
        np.testing.assert_allclose(jax.jit(fun)(jax.random.key(3)), expected, rtol=1e-6)


# --- nesting ------------------------------------------------------------------------------------------------------------------------------

def test_functions_are_made_inside_of_loops_branches_and_functions():
    def fun(x):
        def body(x, _):
            for _ in range(6):
                x = jnp.sin(x) * 0.5 + jnp.cos(x)
            return x, None
        x = lax.scan(body, x, None, length=3)[0]
        return lax.cond(x[0] > 0, lambda x: body(x, None)[0], lambda x: -x, x)
    with config.outline("eager"):
        lowered = jax.jit(fun).lower(X)
        text, value = lowered.as_text(), lowered.compile()(X)
    assert "stablehlo.while" in text and 'inlineable = "false"' in text and text.count("stablehlo.sine") <= 2
    with config.outline("off"):
        np.testing.assert_allclose(value, jax.jit(fun)(X), rtol=1e-5)


def test_functions_that_users_jitted_are_called_as_they_are():
    @jax.jit
    def cell(x):
        for k in range(8):
            x = jnp.sin(x) + k * jnp.cos(x)
        return x
    with config.outline("eager"):
        text = jax.jit(lambda x: cell(cell(cell(x)))).lower(X).as_text()
    assert text.count('call @cell(') == text.count('inlineable = "false"') - text.count("call @cell_") == 3 or text.count('call @cell(') == 3
    assert text.count("func.func private @cell(") == 1 and "// 3 calls of" in text


def test_what_joins_the_entries_of_a_reduction_or_scatter_holds_no_functions():
    @jax.jit
    def twice(a):
        return jnp.sin(jnp.cos(a) * 0.5) + jnp.sin(jnp.cos(a + 1) * 0.5)

    def fun(x):
        y = lax.reduce(x, np.float32(0), lambda a, b: twice(a) + twice(b), (0,))
        return y + lax.reduce_window(x, np.float32(0), lambda a, b: twice(a) + twice(b), (2,), (1,), "VALID")
    result = outlined(program_of(fun, X), "eager")
    inner = [sub for program in inner_first(result) for eqn in program.eqns if eqn.primitive.name.startswith("reduce") for _, sub in subprograms(eqn.params)]
    assert len(inner) == 2 and not any([calls(program) for joined in inner for program in inner_first(joined)])
    with config.outline("eager"):
        jax.block_until_ready(jax.jit(fun)(X))


def test_products_take_transposed_operands_as_they_are_and_give_transposed_results():
    def fun(q, k, v):
        out = []
        for _ in range(3):
            scores = q @ k.transpose(0, 2, 1)
            q = scores @ v
            out.append((v.transpose(0, 2, 1) @ scores).transpose(0, 2, 1))
        return q, out
    rng = np.random.default_rng(0)
    q, k, v = [rng.normal(size=(2, 3, 3)).astype(np.float32) for _ in range(3)]
    program = program_of(fun, q, k, v)
    result = matrices(program)
    assert_well_formed(result)
    assert "transpose" not in [eqn.primitive.name for eqn in dce(result).eqns]
    for a, b in zip(run(program, [q, k, v]), run(result, [q, k, v]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_product_reads_the_transpose_of_one_that_was_turned():
    """(a·b)' becomes b'·a' where it stands, so who multiplies it takes it, and no longer what it was the transpose of."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=size).astype(np.float32) for size in ((3, 4), (4, 5), (3, 2))]
    program = program_of(lambda a, b, c: (a @ b).T @ c, *values)
    result = matrices(program)
    assert_well_formed(result)
    np.testing.assert_allclose(run(result, values)[0], (values[0] @ values[1]).T @ values[2], rtol=1e-5)


def test_products_of_many_dimensions_are_products_of_matrices():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    for shapes, numbers in [(((2, 3, 4), (4, 5)), (((2,), (0,)), ((), ()))), (((2, 3, 4), (2, 3, 5)), (((0, 1), (0, 1)), ((), ()))),
                            (((4, 2, 3), (2, 5, 4, 1)), (((0,), (2,)), ((1,), (0,)))), (((3,), (3,)), (((0,), (0,)), ((), ()))),
                            (((1, 3), (3, 1)), (((1,), (0,)), ((), ()))), (((2, 3), (4, 5)), (((), ()), ((), ()))),
                            (((2, 6, 3, 4), (6, 4, 3, 2)), (((2, 3), (2, 1)), ((0, 1), (3, 0))))]:
        x, y = [draw(*shape) for shape in shapes]
        program = program_of(lambda x, y: lax.dot_general(x, y, numbers), x, y)
        result = matrices(program)
        assert_well_formed(result)
        assert all(len(t.shape) <= 3 for eqn in result.eqns if eqn.primitive.name == "dot_general" and numbers[0][0] for t in eqn.in_types)
        np.testing.assert_allclose(run(result, [x, y])[0], run(program, [x, y])[0], rtol=1e-5, atol=1e-6)


def test_what_is_divided_by_a_broadcast_value_is_multiplied_by_its_reciprocal_once():
    def normalized(x, s):
        y = jnp.sqrt(jnp.sum(x * x, 1, keepdims=True))
        return x / y * s, y / s[:1], x / s, 1 / y + (x / y)[:, :1]          # (y / s[:1]: broadcast as well; x / s: s is a row)
    x, s = np.arange(-6, 6, dtype=np.float32).reshape(3, 4), np.float32([1, 0, np.inf, np.nan])
    program = program_of(normalized, x, s)
    assert_well_formed(new := reciprocals(program))
    divisions = lambda program: sorted([eqn.out_types[0].size for eqn in program.eqns if eqn.primitive.name == "div"])
    assert divisions(program) == [3, 3, 12, 12, 12] and divisions(new) == [3, 3, 3, 4]          # one 1 / y and one 1 / s for all of 12
    for got, want in zip(run(new, (x, s)), run(program, (x, s))):
        np.testing.assert_allclose(got, want, rtol=3e-7)


def test_functions_hand_over_reciprocals_and_do_not_compute_them_again():
    def loss(ws, x):
        for w in ws:
            x = x + jnp.tanh(x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-3) @ w)
        return jnp.sum(jax.nn.softmax(x) ** 2)
    ws, x = np.random.default_rng(0).normal(size=(12, 8, 8)).astype(np.float32), np.ones((5, 8), np.float32)
    program = outlined(dce(program_of(jax.grad(loss), list(ws), x)))
    functions = {id(eqn.params["jaxpr"]): eqn.params["jaxpr"] for eqn in calls(program)}.values()
    sizes = [eqn.out_types[0].size for f in functions for eqn in f.eqns if eqn.primitive.name == "div" and eqn.invars[1] not in f.constvars
             and type(eqn.invars[1]) is Var]
    assert sizes == [5]                                          # 1 / √…, for each row, in the function of the forward pass alone


def test_what_one_reader_outside_of_functions_can_compute_is_not_handed_over_at_every_call():
    def loss(ws, x):
        for w in ws:
            x = x + jnp.tanh(x @ w) @ w.T
        return jnp.sum(x ** 2)
    ws, x = (0.2 * np.random.default_rng(0).normal(size=(14, 8, 8))).astype(np.float32), np.ones((5, 8), np.float32)
    program = dce(program_of(jax.grad(loss), list(ws), x))            # the backward pass of the first layer is its own: none is before it
    new = outlined(program, "eager")
    assert_well_formed(new)
    forward = next(eqn.params["jaxpr"] for eqn in calls(new))
    assert "sub" not in [eqn.primitive.name for eqn in forward.eqns]           # tanh, not 1 - tanh²
    for got, want in zip(run(new, [*ws, x]), run(program, [*ws, x])):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def functions_of(program):
    return list({id(eqn.params["jaxpr"]): eqn.params["jaxpr"] for eqn in calls(program)}.values())


def attention(x, w):
    batch, length, width = x.shape
    q, k, v = [part.reshape(batch, length, 2, width // 2).transpose(0, 2, 1, 3) for part in jnp.split(x @ w, 3, axis=-1)]
    mixed = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2)) @ v
    return jnp.tanh(x + mixed.transpose(0, 2, 1, 3).reshape(x.shape))


def trained(layer, ws, rate=0.1):
    """One step of gradient descent on layers, as a function of their weights."""
    def step(ws, x):
        def loss(ws):
            y = x
            for w in ws:
                y = layer(y, w)
            return jnp.sum(y ** 2)
        return [w - r * g for w, r, g in zip(ws, rate if type(rate) is list else [rate] * len(ws), jax.grad(loss)(ws))]
    return step


def assert_same_under_all_modes(step, *args):
    results = {}
    for mode in ("off", "auto", "eager"):
        with config.outline(mode):
            results[mode] = jax.jit(step)(*args)
    for mode in ("auto", "eager"):
        for a, b in zip(jax.tree.leaves(results["off"]), jax.tree.leaves(results[mode])):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(a).max(initial=0))


@pytest.mark.parametrize("shape", [(4, 6, 8), (1, 6, 8), (4, 1, 8), (0, 6, 8)])
def test_what_products_take_transposed_or_reshaped_is_computed_once_in_a_function(shape):
    ws = list(np.random.default_rng(0).normal(size=(12, 8, 24), scale=0.3).astype(np.float32))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    step = trained(attention, ws)
    assert_same_under_all_modes(step, ws, x)
    lowered = jax.jit(step).lower(ws, x)
    assert "@LayoutConstraint" in lowered.as_text()
    if shape == (4, 6, 8):                                       # q, k and v, for their products and the backward pass; there one cotangent
        copies = re.findall(r"= f32\[(?:4,2,6,4|192)\]\S* fusion\(", lowered.compile().as_text())
        assert len(copies) == 4 * len(ws)


def test_a_residual_stream_is_not_computed_again_by_each_product_that_reads_it_reshaped():
    def layer(x, w):
        y = jnp.abs(x @ w) * x                                   # read by the product, which takes it as a matrix, and by the sum
        return 0.5 * x + y + (y @ w).sum(-1, keepdims=True)
    ws = list(np.random.default_rng(0).normal(size=(14, 8, 8), scale=0.05).astype(np.float32))
    x = np.ones((2, 3, 8), np.float32)

    def forward(ws, x):
        for w in ws:
            x = layer(x, w)
        return x
    assert_same_under_all_modes(forward, ws, x)
    counts = {}
    for mode in ("off", "eager"):
        with config.outline(mode):
            counts[mode] = jax.jit(forward).lower(ws, x).compile().as_text().count(" abs(")
    assert counts["eager"] == len(ws) < counts["off"]


def test_updates_are_part_of_the_function_that_computes_the_gradient():
    ws = list(np.random.default_rng(0).normal(size=(14, 8, 8), scale=0.2).astype(np.float32))
    x = np.ones((5, 8), np.float32)
    step = trained(lambda x, w: x + jnp.tanh(x @ w) @ w.T, ws)
    assert_same_under_all_modes(step, ws, x)
    program = dce(program_of(step, ws, x))
    new = outlined(program, "eager")
    assert_well_formed(new)
    has_update = lambda f: any(eqn.primitive.name == "sub" and eqn.out_types[0].shape == (8, 8) for eqn in f.eqns)
    updating = [f for f in functions_of(new) if has_update(f)]
    assert updating and all(any(eqn.primitive.name == "dot_general" for eqn in f.eqns) for f in updating)
    # What takes over the buffer of a parameter must not be computed where the parameter is still read.
    apart = [f for f in functions_of(outlined(program, "eager", donates=True)) if has_update(f)]
    assert apart and not any(eqn.primitive.name == "dot_general" for f in apart for eqn in f.eqns)


def test_an_update_moves_as_a_whole_or_stays():
    """Else what one part of it leaves to another would be written."""
    ws, x = list(np.random.default_rng(0).normal(size=(14, 8, 8), scale=0.2).astype(np.float32)), np.ones((5, 8), np.float32)

    def adam(ws, moments, t, x, limited):
        def loss(ws):
            y = x
            for w in ws:
                y = y + jnp.tanh(y @ w) @ w.T
            return jnp.sum(y ** 2)
        grads, t, new, state = jax.grad(loss)(ws), t + 1, [], []
        for w, g, (m, v) in zip(ws, grads, moments):
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            rate = 0.1 / jnp.maximum(1, jnp.sum(grads[0])) if limited else 0.1
            new.append(w - rate * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.99 ** t)) + 1e-3))
            state.append((m, v))
        return new, state, t
    given = ws, [(0 * w, 0 * w) for w in ws], np.float32(0), x
    assert_same_under_all_modes(lambda *args: adam(*args, False), *given)
    early, stays = [outlined(dce(program_of(lambda *args: adam(*args, limited), *given)), "eager") for limited in (False, True)]
    holds = lambda f, name: any(eqn.primitive.name == name and eqn.out_types[0].shape == (8, 8) for eqn in f.eqns)
    for program, together in (early, True), (stays, False):
        assert_well_formed(program)
        updating = [f for f in functions_of(program) if holds(f, "sqrt")]
        assert updating and all(holds(f, "dot_general") is together for f in updating)
        decaying = [f for f in functions_of(program) if any(eqn.primitive.name == "mul" and str(getattr(eqn.invars[0], "val", 0)) == "0.99" for eqn in f.eqns)]
        assert decaying and all(f in updating for f in decaying)


@pytest.mark.parametrize("second", [lambda y: y, lambda y: y * 1.0, lambda y: jnp.ones_like(y) * y, lambda y: y + 0.0, lambda y: lax.optimization_barrier(y),
                                    lambda y: y.reshape(-1).reshape(y.shape), lambda y: jnp.where(True, y, 0 * y), lambda y: -(-y), lambda y: y.T.T,
                                    lambda y: jnp.concatenate([y[:20], y[20:]]), lambda y: 2.0 * (0.5 * y), lambda y: jnp.maximum(y, y),
                                    lambda y: lax.scan(lambda c, _: (c, None), y, None, length=3)[0], lambda y: lax.fori_loop(0, 3, lambda i, c: c, y),
                                    lambda y: lax.cond(True, lambda c: c, jnp.sin, y), lambda y: lax.cond(y[0, 0] > 9, lambda c: 1.0 * c, lambda c: c, y)])
def test_a_function_that_is_given_one_value_twice_does_not_write_over_it_while_it_reads_it(second):
    @jax.jit
    def turned(a, b):
        return b + 0.5 * a[::-1].T

    def fun(x):
        y = jnp.sin(turned(x, 2 * x))
        return turned(y, second(y))
    x = np.random.default_rng(0).normal(size=(64, 64), scale=0.1).astype(np.float32)
    assert_same_under_all_modes(fun, x)

    def called_once(x):
        y = jnp.sin(x)
        for _ in range(3):
            y = jnp.cos(y) * jnp.sin(0.1 * y @ x)                # repeats, so there are functions
        return jax.jit(lambda a, b: b + 0.25 * a[::-1].T)(y, second(y))
    assert_same_under_all_modes(called_once, x)


@pytest.mark.parametrize("pair", [
    lambda y: (y, jnp.concatenate(jnp.split(y, 4))), lambda y: (y, jnp.concatenate([-(-y[:20]), y[20:]])), lambda y: (y, jnp.pad(y, 1)[1:-1, 1:-1]),
    lambda y: (y, jnp.repeat(y[None], 3, 0)[1]), lambda y: (y, jnp.where(jnp.zeros_like(y, bool), jnp.sin(y), y)), lambda y: (y, lax.complex(jnp.sin(y), y).imag),
    lambda y: (y, lax.dynamic_slice_in_dim(y, jnp.argmax(y[0]), len(y))), lambda y: (y, jnp.cumsum(y[:, :, None], 2)[:, :, 0]),
    lambda y: (y, lax.while_loop(lambda c: c[1], lambda c: (c[0], ~c[1]), (y, y[0, 0] < 9))[0]), lambda y: (jnp.sin(y), jax.jit(jnp.sin)(y)),
    lambda y: (jnp.sin(y), jax.checkpoint(jnp.sin)(y)), lambda y: (jnp.sin(y), lax.optimization_barrier(jnp.sin(y))), lambda y: (jnp.sin(y), jnp.sin(-(-y))),
    lambda y: (jnp.sin(y), jnp.stack([jnp.sin(y), jnp.cos(y)])[0]), lambda y: [lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + 0.1, y) for _ in range(2)],
    lambda y: (jax.nn.sigmoid(y), 1 / (1 + jnp.exp(-y))), lambda y: (lax.rsqrt(y * y + 1), 1 / jnp.sqrt(y * y + 1)),
    lambda y: (jnp.tile(y, (2, 1))[3:67], lax.dynamic_slice(jnp.tile(y, (2, 1)), (3, 0), (64, 64)))])
def test_a_function_that_xla_finds_to_be_given_one_value_twice_does_not_write_over_it_while_it_reads_it(pair):
    @jax.jit
    def turned(a, b):
        return b + 0.5 * a[::-1].T

    def fun(x):
        return turned(*pair(jnp.sin(turned(x, 2 * x))))

    def within(x):
        return jax.jit(lambda a, b: turned(a, b) + 1)(*pair(jnp.sin(turned(x, 2 * x))))
    x = np.random.default_rng(0).normal(size=(64, 64), scale=0.1).astype(np.float32)
    assert_same_under_all_modes(fun, x)
    assert_same_under_all_modes(within, x)


def test_what_xla_makes_of_a_call_is_read_through_casts_results_and_inner_calls():
    program = """HloModule m

inner {
  p.0 = f32[4]{0} parameter(0)
  p.1 = f32[4]{0} parameter(1)
  ROOT sum = f32[4]{0} fusion(p.0, p.1), kind=kLoop, calls=f
}

outer {
  q.0 = f32[4]{0} parameter(0)
  q.1 = f32[2,2]{1,0} parameter(1)
  flat = f32[4]{0} bitcast(q.1)
  r = f32[4]{0} call(q.0, flat), to_apply=inner
  ROOT both = (f32[4]{0}, f32[2,2]{1,0}) tuple(r, q.1)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[2,2]{1,0} fusion(x), kind=kLoop, calls=g
  z = f32[4]{0} fusion(x), kind=kLoop, calls=h
  first = (f32[4]{0}, f32[2,2]{1,0}) call(z, y), to_apply=outer
  same = f32[2,2]{1,0} get-tuple-element(first), index=1
  line = f32[4]{0} bitcast(GIVEN)
  second = (f32[4]{0}, f32[2,2]{1,0}) call(line, /*index=1*/y), to_apply=outer
  ROOT out = f32[4]{0} get-tuple-element(second), index=0
}
"""
    found = {given: aliased.reads_one_as_two(program.replace("GIVEN", given)) for given in ("y", "same", "z")}
    assert found == {"y": True, "same": True, "z": False}
    assert aliased.reads_one_as_two(program.replace("GIVEN", "z").replace("fusion(x), kind=kLoop, calls=h", "fusion(x, x), kind=kLoop, calls=h"))


def test_layers_that_are_updated_each_in_its_own_way_still_repeat():
    ws = list(np.random.default_rng(0).normal(size=(14, 8, 8), scale=0.2).astype(np.float32))
    x = np.ones((5, 8), np.float32)
    layer = lambda x, w: x + jnp.tanh(x @ w) @ w.T
    alike, differing = [outlined(dce(program_of(trained(layer, ws, rate), ws, x)), "eager")
                        for rate in (0.1, [0.01 * (i + 1) for i in range(len(ws))])]
    products = lambda program: sum(eqn.primitive.name == "dot_general" for p in inner_first(program) for eqn in p.eqns)
    assert products(differing) <= products(alike)                # those of two layers, not of fourteen


def test_a_function_takes_what_is_in_memory_or_as_large_in_place_of_what_follows_from_it():
    def loss(ws, x):
        for w in ws:
            y = x + x @ w
            y = y - jnp.mean(y, -1, keepdims=True)
            x = x + y / jnp.sqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-3)
        return jnp.sum(x ** 2)
    ws, x = list(np.random.default_rng(0).normal(size=(14, 32, 32), scale=0.2).astype(np.float32)), np.ones((5, 32), np.float32)
    forward = next(f for f in functions_of(outlined(dce(program_of(jax.grad(loss), ws, x)))) if "sqrt" in [eqn.primitive.name for eqn in f.eqns])
    made = {eqn.outvars[0]: eqn.primitive.name for eqn in forward.eqns}
    assert "sub" not in [made.get(v) for v in forward.outvars]           # the sum before it and the mean


def test_the_derivative_of_a_maximum_does_not_hang_on_how_its_result_is_rounded_elsewhere():
    """(x + h) + 1 is computed within a function for the maximum, and outside of it, where XLA makes it x + (h + 1), to be compared."""
    def slopes(x):
        out = []
        for f in (jax.nn.sparse_plus, jax.nn.sparse_sigmoid):
            slope = jax.vmap(jax.grad(f))
            out += [f(x), slope(x), slope(x + 1e-5)]
        return out
    x = np.array([-30.0, -3, -1, -0.5, -0.25, -1e-3, 1e-3, 0.25, 0.5, 1, 3, 30])
    with jax.enable_x64(True), config.outline("eager"):
        slope = jax.jit(slopes)(x)[-1]
    np.testing.assert_array_equal(slope, 0.5 * (np.abs(x + 1e-5) < 1))


def test_products_and_sums_are_the_same_either_way_round():
    def both(x, y):
        return [(x * y) + (y * x) - (x - y) * (y - x) for _ in range(2)]
    eqns = shared_first(program_of(both, X, X + 1), Labels()).eqns
    assert [eqn.primitive.name for eqn in eqns] == ["mul", "add", "sub", "sub", "mul", "sub"]


def options_of_xla(lines, often, others=()):
    """Of a program in which a function of these lines is called so often, beside other lines."""
    call = '    %1 = func.call @f(%0) {mhlo.frontend_attributes = {inlineable = "false"}} : (tensor<1xf32>) -> tensor<1xf32>'
    return large.options("\n".join(["module @m {", "  func.func public @main(%arg0: tensor<1xf32>) -> (tensor<1xf32>) {", *[call] * often, *others, "  }",
                                    "  func.func private @f(%arg0: tensor<1xf32>) -> (tensor<1xf32>) {", *lines, "  }", "}"]))


def test_options_of_xla_are_those_under_which_the_program_runs_as_fast():
    product = "stablehlo.dot_general %0, %1, contracting_dims = [1] x [{}] : (tensor<{}x512x{}>, tensor<{}x{}>) -> tensor<1xf32>"
    total = "stablehlo.reduce(%1 init: %2) applies stablehlo.add across dimensions = [{}] : (tensor<{}xf32>, tensor<f32>) -> tensor<1xf32>"
    late, types, tree = xla.EXTRA_OPTIONS, "xla_cpu_experimental_ynn_fusion_type", "xla_disable_hlo_passes"
    plain = product.format(0, 256, "f32", "512x256", "f32")
    for lines, often, wanted in [
            ((), 2, {late}),
            ((plain,), 3, {late}), ((plain,), 4, {late, types}),         # Eigen's products are compiled for longer
            ((product.format(0, 16, "f32", "512x256", "f32"),), 40, {late}), ((product.format(0, 16, "f32", "512x32", "f32"),), 40, {late, types}),
            ((product.format(1, 256, "f32", "256x512", "f32"),), 40, {late, types}),
            ((product.format(1, 128, "f32", "256x512", "f32"),), 40, {late}), ((product.format(1, 512, "f32", "1024x512", "f32"),), 40, {late}),
            ((product.format(0, 256, "bf16", "512x256", "bf16"),), 40, {late}), ((product.format(0, 0, "f32", "512x256", "f32"),), 40, {late}),
            ((total.format(1, "4096x1024"),), 7, {late}), ((total.format(1, "4096x1024"),), 8, {late, types, tree}),
            ((total.format(0, "16x512"),), 40, {late, types, tree}), ((total.format(0, "4096x4"),), 40, {late, types, tree}),
            ((total.format(0, "256x128"),), 40, {late}), ((total.format(0, "256x128"), *[plain] * 5), 40, {late, types, tree}),
            ((total.format(1, "2x100000"),), 40, {late})]:
        assert set(options_of_xla(lines, often)) == wanted, (lines, often)
        assert "flatten" in options_of_xla(lines, often)[late]
        for alone in (options_of_xla(lines, 1), large.options("\n".join(lines))):         # a function of the library's, called once, is no reason
            assert set(alone) <= {late} and "flatten" not in alone.get(late, "")
    kinds = lambda *args: options_of_xla(*args)[types].replace("LIBRARY_FUSION_TYPE_", "").split(",")[:-1]
    assert kinds([plain], 9) == ["REDUCE"] and kinds([total.format(1, "128x128")], 20) == ["DOT"] and kinds([plain, total.format(1, "128x128")], 20) == []
    alone = lambda *lines: large.options("\n".join(lines)).get(types, "").replace("LIBRARY_FUSION_TYPE_", "").split(",")[:-1]
    small = product.format(0, 16, "f32", "512x32", "f32")
    assert alone(*[small] * 16) == ["REDUCE"] and alone(*[small] * 15) == alone(*[small] * 16, plain) == []
    assert set(options_of_xla([plain], 9, [product.format(1, 16, "f32", "256x512", "f32")])) == {late}      # one slow product decides for all


def test_loops_are_unrolled_where_long_columns_or_very_short_rows_are_summed_by_xla_itself():
    line = "stablehlo.reduce(%1 init: %2) applies stablehlo.{} across dimensions = [{}] : (tensor<{}>, tensor<f32>) -> tensor<1xf32>"
    unrolled = lambda *lines: "unrolling" not in large.options("\n".join(lines)).get(xla.EXTRA_OPTIONS, "")
    assert unrolled() and unrolled("%1 = stablehlo.add %0, %0 : tensor<8x8xf32>") and not unrolled("%1 = stablehlo.add %0, %0 : tensor<5x13xf32>")
    assert unrolled("%1 = stablehlo.add %0, %0 : tensor<300xbf16>")
    for operation, dims, shape, wanted in [
            ("add", 0, "512x1024xf32", False), ("add", 0, "512x1024xi32", True), ("add", 1, "512x1024xi32", False), ("maximum", 0, "512x1024xf32", True),
            ("maximum", 0, "64x64xf32", False), ("multiply", 0, "4096x64xf64", True), ("or", 0, "4096x4xi1", False), ("or", 1, "8x512x256xi1", True),
            ("minimum", 1, "4096x3xf32", True), ("minimum", 1, "64x3xf32", False), ("add", 1, "4096x3xf32", False)]:
        assert unrolled(line.format(operation, dims, shape)) == wanted, (operation, dims, shape)
    several = options_of_xla([line.format("add", 1, "128x128xf32"), line.format("add", 0, "256x512xf32")], 40, [line.format("add", 1, "9x9xf32")])
    assert "flatten" in several[xla.EXTRA_OPTIONS] and "unrolling" in several[xla.EXTRA_OPTIONS]            # YNNPACK's, as long as they are


def test_calls_of_functions_within_functions_are_counted():
    functions = {"main": "call @a() call @a() call @b()", "b": "call @c()", "a": "call @b() call @c()", "c": ""}
    assert large._runs(functions) == {"main": 1, "a": 2, "b": 3, "c": 5}
    deep = {f"f{i}": f"call @f{i + 1}() call @f{i + 1}()" for i in range(5000)} | {"f5000": ""}
    assert large._runs(deep)["f5000"] == 2 ** 5000


def test_programs_nested_beyond_the_recursion_limit():
    from mini_jax.transforms.jit import jit_p
    x = Var(VECTOR)
    y = Var(VECTOR)
    program = Jaxpr((), [x], [JaxprEqn(elementwise.neg_p, [x], [y], {}, frozenset(), None)], [y])
    for _ in range(3000):
        x, y, z = Var(VECTOR), Var(VECTOR), Var(VECTOR)
        call = {"jaxpr": program, "name": "f"}
        program = Jaxpr((), [x], [JaxprEqn(jit_p, [x], [y], call, frozenset(), None), JaxprEqn(jit_p, [y], [z], call, frozenset(), None)], [z])
    assert outlined(program, "auto").out_types == [VECTOR]


# --- how much work, and always the same -----------------------------------------------------------------------------------------------------

def chain(operations):
    """The program of one operation after the other: "n" neg x, "m" mul x x, "s" sin, and a letter of its own kind for any other."""
    x = first = Var(VECTOR)
    eqns = []
    for operation in operations:
        y = Var(VECTOR)
        if operation == "m":
            eqns.append(JaxprEqn(elementwise.mul_p, [x, x], [y], {}, frozenset(), None))
        elif operation in "nsc":
            primitive = {"n": elementwise.neg_p, "s": elementwise.sin_p, "c": elementwise.cos_p}[operation]
            eqns.append(JaxprEqn(primitive, [x], [y], {}, frozenset(), None))
        x = y
    return Jaxpr((), [first], eqns, [x])


def fibonacci(n):
    a, b = "n", "nm"
    while len(b) < n:
        a, b = b, b + a
    return b[:n]


FAMILIES = {
    "one operation": lambda n: "n" * n,
    "layers": lambda n: "nmscnnmsmcsn" * (n // 12),
    "Fibonacci words": fibonacci,
    "no pattern": lambda n: "".join(python_random.Random(n).choices("nmsc", k=n)),
    "two long copies": lambda n: 2 * "".join(python_random.Random(n).choices("nmsc", k=n // 2)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_work_grows_in_proportion_to_the_program(family):
    steps = {}
    for n in (2000, 8000):
        notes = Notes()
        outlined(chain(FAMILIES[family](n)), "auto", notes)
        steps[n] = notes.steps
    assert steps[2000] < 40 * 2000 and steps[8000] < 1.6 * 4 * steps[2000]


def test_the_text_is_the_same_in_every_process():
    program = """
import mini_jax as jax, mini_jax.numpy as jnp, numpy as np
from mini_jax.core import config
def fun(x, ws):
    for w in ws:
        x = jnp.tanh(x @ w) + jnp.sin(x) * 2
    return jnp.sum(x)
ws = [np.ones((4, 4), np.float32)] * 8
with config.outline("eager"):
    print(jax.jit(jax.grad(fun)).lower(ws[0], ws).as_text())
"""
    texts = [subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."}, capture_output=True, text=True,
                            check=True).stdout for seed in ("0", "1")]
    assert texts[0] == texts[1] and "inlineable" in texts[0]


def test_the_text_does_not_depend_on_where_in_memory_variables_lie():
    """Functions that compute for themselves what they took, and take something else instead: in an order that no set decides."""
    def loss(params, x):
        for w, scale in params:
            y = convolve(jax.nn.relu(convolve(x, w)), w)
            y = (y - jnp.mean(y, (1, 2), keepdims=True)) / jnp.sqrt(jnp.var(y, (1, 2), keepdims=True) + 1e-5) * scale
            x = jax.nn.relu(x + y)
        return jnp.mean(x ** 2)
    convolve = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    params = [(np.ones((3, 3, 32, 32), np.float32), np.ones(32, np.float32))] * 8
    x, held = np.ones((8, 16, 16, 32), np.float32), []
    for _ in range(6):
        held.append(jax.jit(lambda params, x: jax.grad(loss)(params, x)).lower(params, x))
    assert "inlineable" in held[0].as_text() and len({lowered.as_text() for lowered in held}) == 1


# --- when it is not worth it, and what the text says ------------------------------------------------------------------------------------------

def test_small_programs_and_those_that_repeat_nothing_are_left_as_they_are():
    small = chain("nms" * 100)
    varied = chain("".join(python_random.Random(0).choices("nmsc", k=600)))
    assert outlined(small, "auto") is small and outlined(varied, "auto") is varied


def test_the_text_names_functions_by_the_users_lines_and_says_why_they_are_there():
    def block(x):
        for _ in range(14):
            x = jnp.sin(x) * 0.5
        return x

    def model(xs):
        return [block(x) / (k + 2) for k, x in enumerate(xs)]
    xs = [np.ones(4, np.float32)] * 20
    with config.outline("auto"):
        text = jax.jit(model).lower(xs).as_text()
    assert "func.func private @block_part(" in text and "// outlined: " in text
    assert "  // 20 calls of 28 equations: repeated in" in text and "block, test_outline.py:" in text
    with config.outline("off"):
        assert "inlineable" not in jax.jit(lambda xs: model(xs)).lower(xs).as_text()
