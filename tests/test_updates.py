"""Laws of updates at a program's end: where nothing repeats, small ones of many shapes are compiled together, and compute what they computed."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from lowering.emit import ONE_KERNEL
from lowering.updates import MANY, SMALL, TOGETHER, updates_together
from mini_jax.core import config
from mini_jax.core.program import Literal, Var
from mini_jax.lax.elementwise import mul_p

SHAPES = [(3 + i, 2 + i) for i in range(MANY + 3)]


def leaves(shapes=SHAPES, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [(10 * rng.normal(size=shape)).astype(dtype) for shape in shapes]


def descent(params, gradients):
    return [p - 0.1 * g for p, g in zip(params, gradients)]


def program_of(fun, *args):
    return jax.make_jaxpr(fun)(*args).jaxpr


def calls(program):
    return [eqn for eqn in program.eqns if eqn.primitive.name == "outlined"]


def run(program, values):
    """Equation by equation."""
    env = dict(zip(program.invars, values))
    read = lambda v: v.val if type(v) is Literal else env[v]
    for eqn in program.eqns:
        given = [read(v) for v in eqn.invars]
        out = run(eqn.params["jaxpr"], given) if eqn.primitive.name == "outlined" else eqn.primitive.bind(*given, **eqn.params)
        env.update(zip(eqn.outvars, out if type(out) is list else [out]))
    return [read(v) for v in program.outvars]


def network(params, x):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return (x ** 2).mean()


def layers(count, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(3 + i, 4 + i)).astype(np.float32), rng.normal(size=4 + i).astype(np.float32)) for i in range(count)]


def adam(params, moments, x, count):
    """A step, whose corrections follow from the count of steps."""
    rate = 1e-2 * jnp.sqrt(1 - 0.99 ** count) / (1 - 0.9 ** count)
    new, state = [], []
    for pair, (m, v), grads in zip(params, moments, jax.grad(network)(params, x)):
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads)]
        v = [0.99 * a + 0.01 * g * g for a, g in zip(v, grads)]
        new.append([p - rate * a / (jnp.sqrt(b) + 1e-8) for p, a, b in zip(pair, m, v)])
        state.append((m, v))
    return new, state


def training(count=24):
    params = layers(count)
    return params, [([np.abs(p) for p in pair], [np.abs(p) for p in pair]) for pair in params], np.ones((5, 3), np.float32), np.float32(3)


@pytest.mark.parametrize("fun, args", [(descent, (leaves(), leaves(seed=1))), (adam, training())], ids=["descent", "adam"])
def test_functions_of_several_updates_compute_what_the_program_did(fun, args):
    program = program_of(fun, *args)
    together = updates_together(program)
    count = len(program.outvars) // (3 if fun is adam else 1)
    found = calls(together)
    assert len(found) == -(-count // TOGETHER) and found == list(together.eqns[-len(found):])
    given = jax.tree.leaves(args)
    for mine, wanted in zip(run(together, given), run(program, given), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_scalars_stay_outside_and_the_sums_that_are_gradients_of_biases_go_inside():
    together = updates_together(program_of(adam, *training()))
    within = [eqn for call in calls(together) for eqn in call.params["jaxpr"].eqns]
    assert all(max(v.aval.size for v in (*eqn.invars, *eqn.outvars)) > 1 for eqn in within)
    assert {eqn.primitive.name for eqn in within} >= {"reduce_sum", "sqrt", "div"}
    assert "reduce_sum" not in {eqn.primitive.name for eqn in together.eqns if eqn.outvars[0].aval.ndim == 1}


def test_few_shapes_large_arrays_and_what_others_read_stay_where_they_are():
    few = program_of(descent, leaves(SHAPES[:MANY - 1]), leaves(SHAPES[:MANY - 1]))
    same = program_of(descent, leaves(SHAPES[:4] * 8), leaves(SHAPES[:4] * 8))
    large = program_of(descent, *[leaves([(SMALL // (5 + i) + 10, 5 + i) for i in range(MANY + 3)])] * 2)
    assert [updates_together(program) for program in (few, same, large)] == [few, same, large]

    def reads_one_again(params, gradients):
        new = descent(params, gradients)
        return new, new[0] @ new[0].T
    program = program_of(reads_one_again, leaves(), leaves())
    together = updates_together(program)
    read = {v for eqn in together.eqns if eqn.primitive is not mul_p and eqn.primitive.name != "outlined" for v in eqn.invars if type(v) is Var}
    assert calls(together) and read.isdisjoint([v for call in calls(together) for v in call.outvars])
    assert sum(eqn.primitive.name == "sub" for call in calls(together) for eqn in call.params["jaxpr"].eqns) == len(SHAPES) - 1


def compiled(fun, args, mode, **how):
    with config.outline(mode):
        lowered = jax.jit(lambda *args: fun(*args), **how).lower(*args)
        return lowered.as_text(), lowered.compile()(*args)


def test_a_step_of_a_program_that_repeats_nothing_is_the_same_to_rounding_and_says_what_was_done():
    args = training()
    text, mine = compiled(adam, args, "auto")
    plain, wanted = compiled(adam, args, "off")
    assert text.count(ONE_KERNEL) == -(-2 * len(args[0]) // TOGETHER) and "equations on small arrays, compiled to one kernel" in text
    assert ONE_KERNEL not in plain
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_donated_parameters_are_updated_in_place_as_before():
    args = jax.device_put(training())
    with config.outline("auto"):
        lowered = jax.jit(adam, donate_argnums=0).lower(*args)
        assert ONE_KERNEL not in lowered.as_text()
        lowered.compile()(*args)
    assert all(a.is_deleted() for a in jax.tree.leaves(args[0]))


def every_operation(params, others):
    """What may be among updates, on what is NaN, infinite and zero too."""
    done = []
    for a, b in zip(params, others):
        if jnp.issubdtype(a.dtype, jnp.inexact):
            c = jnp.exp(-abs(a)) * jnp.tanh(b) + jnp.sqrt(abs(a)) * a ** 2 - b ** 3 + jnp.log(abs(b)) / a
            c = c + jax.lax.rsqrt(abs(a)) * jax.nn.sigmoid(abs(b)) if not jnp.issubdtype(a.dtype, jnp.complexfloating) else c
        else:
            c = a * b - b ** 3 + (a | b)
        if not jnp.issubdtype(a.dtype, jnp.complexfloating):
            c = jnp.where((a < b) & (b != 1), c, jnp.maximum(a, -b)) + jnp.sign(a) * jnp.clip(b, -3, 3)
        done.append(c + a.sum(0, dtype=a.dtype) * jnp.expand_dims(b, 0)[0])
    return done


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32", "int64", "uint32", "uint8", "complex64"])
def test_one_kernel_of_several_updates_gives_the_same_in_every_dtype(dtype):
    with jax.enable_x64(dtype.endswith("64") and dtype != "complex64"):
        shapes = [*SHAPES, (0, 3), (1, 7), (40,), (2, 3, 4)]
        given = [leaves(shapes, dtype, seed) for seed in (0, 1)]
        if jnp.issubdtype(dtype, jnp.inexact):
            for a, b in zip(*given):
                a.flat[:4], b.flat[2:6] = [np.nan, np.inf, -np.inf, 0][:a.size], [0, np.nan, 1, -np.inf][:max(0, a.size - 2)]
        text, mine = compiled(every_operation, given, "auto")
        _, wanted = compiled(every_operation, given, "off")
        assert (ONE_KERNEL in text) == (dtype in ("float32", "float64", "int32", "int64", "uint32"))
        for a, b in zip(mine, wanted, strict=True):
            assert a.dtype == dtype
            a, b = [np.asarray(x).astype(np.complex128 if dtype == "complex64" else np.float64) for x in (a, b)]
            off, size = {"bfloat16": 0.02, "float16": 0.004, "float64": 1e-12}.get(dtype, 1e-5), np.abs(b[np.isfinite(b)]).max(initial=0)
            np.testing.assert_allclose(a, b, rtol=off, atol=off * size)


def test_calls_of_python_in_order_stay_as_they_are(capfd):
    def told(params, moments, x, count):
        jax.debug.print("step {}", count, ordered=True)
        return adam(params, moments, x, count)
    text, _ = compiled(told, training(), "auto")
    jax.effects_barrier()
    assert ONE_KERNEL in text and capfd.readouterr().out == "step 3.0\n"


def test_xla_does_not_end_the_process_where_it_finds_that_an_update_reads_nothing():
    params = [np.arange((3 + i) * (4 + i), dtype=np.int32).reshape(3 + i, 4 + i) for i in range(40)]

    def update(params, steps):
        new = []
        for p, step in zip(params, steps):
            for _ in range(3):
                p = p + 0 * step                        # whole numbers: XLA takes 0 for the product, and reads no step
            new.append(jnp.where(True, p, step) * 2 - (step - step))
        return new
    text, mine = compiled(update, (params, [p + 1 for p in params]), "auto")
    assert text.count(ONE_KERNEL) == 40 / TOGETHER
    for new, p in zip(mine, params, strict=True):
        np.testing.assert_array_equal(new, 2 * p)


def test_sums_that_xla_would_give_to_a_library_stay_outside():
    """The gradient of a bias is a sum of as many entries as the layer has results, of small and of large batches."""
    params, moments, _, count = training()
    for batch in (2, 300):
        args = params, moments, np.random.default_rng(0).normal(size=(batch, 3)).astype(np.float32), count
        text, mine = compiled(adam, args, "auto")
        _, wanted = compiled(adam, args, "off")
        assert ONE_KERNEL in text
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
