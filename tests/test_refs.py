"""Refs: what the seed promises, the rules that keep programs meaningful, indices as NumPy has them, execution in place, and bad input."""
import copy
import dataclasses
import gc
import inspect
import pickle
import sys
import threading
import typing
import weakref

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core.check import check_jaxpr
from mini_jax.core.refs import discharged, uses_refs
from mini_jax.core.staging import eval_jaxpr

F32 = np.float32


def fails(error_class, fun, *args, **kwargs) -> str:
    """The message of the error that a call raises."""
    with pytest.raises(error_class) as info:
        fun(*args, **kwargs)
    return str(info.value)


def line() -> int:
    """The caller's line."""
    return inspect.currentframe().f_back.f_lineno


def equal(ref, want) -> None:
    np.testing.assert_array_equal(np.asarray(ref[...]), np.asarray(want))


# --- the seed ----------------------------------------------------------------------------------------------------------------------

class Counter:
    def __init__(self):
        self.n = 0

    def count(self) -> int:
        self.n += 1
        return self.n


def test_untraceable_state_is_recorded_once():
    counter = Counter()
    assert [counter.count() for _ in range(3)] == [1, 2, 3]
    counter = Counter()
    traced = jax.jit(counter.count).trace()
    assert not traced.jaxpr.eqns and "in (1:i32[],)" in str(traced.jaxpr) and counter.n == 1
    count = jax.jit(Counter().count)
    assert [int(count()) for _ in range(3)] == [1, 1, 1]


def test_state_is_threaded_through_pure_functions():
    count = jax.jit(lambda n: (n + 1, n + 1))
    state, values = 0, []
    for _ in range(3):
        value, state = count(state)
        values.append(int(value))
    assert values == [1, 2, 3] and "add a 1:i32[]" in str(count.trace(0).jaxpr)

    def loss_fn(params, batch):
        x, y = batch
        return jnp.mean((params['w'] * x + params['b'] - y) ** 2)

    @jax.jit
    def update(params, opt_state, batch):
        grads = jax.grad(loss_fn)(params, batch)
        opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, opt_state), opt_state
    params = {'w': jnp.float32(1.0), 'b': jnp.float32(0.0)}
    start, opt_state = params, jax.tree.map(jnp.zeros_like, params)
    batch = (jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 5.0, 7.0]))
    for _ in range(100):
        params, opt_state = update(params, opt_state, batch)
    assert {k: round(float(v), 2) for k, v in params.items()} == {'w': 2.0, 'b': 1.0}

    # the same with refs: state in place of arguments, same numbers
    refs, momentum = jax.tree.map(jax.new_ref, start), jax.tree.map(lambda p: jax.new_ref(jnp.zeros_like(p)), start)

    @jax.jit
    def step(batch):
        grads = jax.grad(loss_fn)(jax.tree.map(lambda r: r[...], refs), batch)
        for k, g in grads.items():
            momentum[k][...] = 0.9 * momentum[k][...] + g
            refs[k][...] -= 0.1 * momentum[k][...]
    for _ in range(100):
        step(batch)
    assert all(np.allclose(refs[k][...], params[k], rtol=1e-5) for k in params)


def test_a_ref_is_updated_by_a_jitted_function():
    x_ref = jax.new_ref(jnp.zeros(3))

    @jax.jit
    def f():
        x_ref[1] += 1.
    assert repr(x_ref) == "Ref([0., 0., 0.], dtype=float32)"
    f()
    f()
    assert repr(x_ref) == "Ref([0., 2., 0.], dtype=float32)"
    assert x_ref.shape == (3,) and x_ref.dtype == F32 and x_ref.ndim == 1 and x_ref.size == 3 and len(x_ref) == 3
    assert isinstance(x_ref, jax.Ref) and not isinstance(x_ref, jax.Array)


def test_reading_and_writing_whole_values_is_differentiable():
    def g(x):
        x_ref = jax.new_ref(0.)
        x_ref[...] = jnp.sin(x)
        return x_ref[...]
    for derivative in (jax.grad(g), jax.jit(jax.grad(g)), jax.grad(jax.jit(g)), jax.jacfwd(g), jax.grad(jax.checkpoint(g))):
        assert np.allclose(derivative(1.0), np.cos(1.0))
    assert np.allclose(jax.hessian(g)(1.0), -np.sin(1.0)) and np.allclose(jax.vmap(g)(jnp.arange(3.)), np.sin(np.arange(3.)))


def test_indexing_expressions_of_the_seed():
    x_ref, x = jax.new_ref(jnp.arange(12.).reshape(3, 4)), np.arange(12., dtype=F32).reshape(3, 4)
    row = x_ref[0]
    x_ref[1] = row
    val = x_ref[1, 2]
    x_ref[2, 3] = val
    col = x_ref[:, 1]
    x_ref[0, :3] = col
    vals = x_ref[jnp.array([0, 0, 1]), jnp.array([1, 2, 3])]
    x_ref[jnp.array([1, 2, 1]), jnp.array([0, 0, 1])] = vals
    x[1] = x[0]
    x[2, 3] = x[1, 2]
    x[0, :3] = x[:, 1].copy()
    x[[1, 2, 1], [0, 0, 1]] = x[[0, 0, 1], [1, 2, 3]]
    equal(x_ref, x)
    final = jax.freeze(x_ref)
    assert isinstance(final, jax.Array) and np.array_equal(final, x)
    assert "is frozen" in fails(RuntimeError, lambda: x_ref[0]) and repr(x_ref) == "Ref(frozen, shape=(3, 4), dtype=float32)"


def test_functions_that_use_refs_inside_are_pure():
    def normalize(x):
        acc = jax.new_ref(0.0)
        acc[...] = jnp.sum(x)
        return x / acc[...]
    x = jnp.arange(1.0, 4.0)
    want = jax.grad(lambda x: (x / jnp.sum(x))[0])(x)
    assert np.allclose(jax.grad(lambda x: normalize(x)[0])(x), want)
    assert np.allclose(jax.jacrev(normalize)(x), jax.jacfwd(normalize)(x)) and np.allclose(jax.jacrev(jax.jit(normalize))(x)[0], want)


def test_vmap_over_ref_entries_and_not_over_captured_refs():
    def scale_into(x, out_ref):
        out_ref[...] = 2.0 * x
    out_ref = jax.new_ref(jnp.zeros(3))
    jax.vmap(scale_into)(jnp.arange(3.0), out_ref)
    equal(out_ref, [0, 2, 4])
    r = jax.new_ref(0.0)
    made = line() - 1

    def write_shared(x):
        r[...] = x
    text = fails(ValueError, jax.vmap(write_shared), jnp.arange(3.0))
    assert f"test_refs.py:{made}" in text and "same place" in text and "axis to map over" in text
    assert np.array_equal(jax.vmap(lambda x: x + r[...])(jnp.arange(3.0)), np.arange(3.0))        # reading is no conflict


# --- the rules --------------------------------------------------------------------------------------------------------------------------

R = jax.new_ref(jnp.arange(5.))
R_LINE = line() - 1
S = jax.new_ref(jnp.zeros(5))


def _capturing(r=R):
    return jax.jit(lambda a: r[...] + a[0])


RULES = {
    "math": (TypeError, lambda: jnp.sin(R), "read it with ref[...]"),
    "math in jit": (TypeError, lambda: jax.jit(jnp.sin)(R), "read it with ref[...]"),
    "math in vmap": (TypeError, lambda: jax.vmap(jnp.sin)(R), "read it with ref[...]"),
    "math in vjp": (TypeError, lambda: jax.vjp(jnp.sin, R), "read it with ref[...]"),
    "math in scan": (TypeError, lambda: lax.scan(lambda c, x: (c, R * x), 0, jnp.ones(2)), "read it with ref[...]"),
    "operators": (TypeError, lambda: R + 1, "read it with ref[...]"),
    "operators, reversed": (TypeError, lambda: np.ones(5) * R, "read it with ref[...]"),
    "operators with arrays": (TypeError, lambda: jnp.ones(5) @ R, "read it with ref[...]"),
    "comparison": (TypeError, lambda: R < 2, "read it with ref[...]"),
    "truth": (TypeError, lambda: bool(R), "read it with ref[...]"),
    "float": (TypeError, lambda: float(R), "read it with ref[...]"),
    "iteration": (TypeError, lambda: list(R), "read it with ref[...]"),
    "membership": (TypeError, lambda: 1.0 in R, "read it with ref[...]"),
    "library functions": (TypeError, lambda: jnp.stack([R, S]), "stack takes arrays"),
    "asarray": (TypeError, lambda: jnp.asarray(R), "read it with ref[...]"),
    "NumPy": (TypeError, lambda: np.asarray(R), "read it with ref[...]"),
    "nn": (TypeError, lambda: jax.nn.relu(R), "relu takes arrays"),
    "device_put": (TypeError, lambda: jax.device_put(R), "device_put takes arrays"),
    "device_get": (TypeError, lambda: jax.device_get({"a": R}), "device_get takes arrays"),
    "pure_callback": (TypeError, lambda: jax.jit(lambda r: jax.pure_callback(lambda r: 0., jax.ShapeDtypeStruct((), F32), r))(R), "read it with ref[...]"),
    "debug.print": (TypeError, lambda: jax.jit(lambda r: jax.debug.print("{}", r))(R), "read it with ref[...]"),
    "linear_transpose": (TypeError, lambda: jax.linear_transpose(lambda r: r[...] * 2, R)(jnp.ones(5)), "linear_transpose takes arrays"),
    "out of jit": (ValueError, lambda: jax.jit(lambda: {"a": R})(), "return ref[...] or freeze(ref)"),
    "out of vmap": (ValueError, lambda: jax.vmap(lambda x: R)(jnp.ones(2)), "return ref[...] or freeze(ref)"),
    "out of grad": (ValueError, lambda: jax.grad(lambda x: R)(1.), "return ref[...] or freeze(ref)"),
    "out of vjp": (ValueError, lambda: jax.vjp(lambda r: r, R), "return ref[...] or freeze(ref)"),
    "out of pmap": (ValueError, lambda: jax.pmap(lambda x: R)(jnp.ones(2)), "return ref[...] or freeze(ref)"),
    "out of scan": (ValueError, lambda: lax.scan(lambda c, x: (c, R), 0, jnp.ones(2)), "return ref[...] or freeze(ref)"),
    "out of cond": (ValueError, lambda: lax.cond(True, lambda: R, lambda: R), "return ref[...] or freeze(ref)"),
    "out of checkpoint": (ValueError, lambda: jax.checkpoint(lambda: R)(), "return ref[...] or freeze(ref)"),
    "carried": (TypeError, lambda: lax.scan(lambda c, x: (c, x), R, jnp.ones(2)), "let the body use the ref"),
    "scanned": (TypeError, lambda: lax.scan(lambda c, x: (c, x), 0, R), "let the body use the ref"),
    "mapped by lax.map": (TypeError, lambda: lax.map(lambda x: x, R), "let the body use the ref"),
    "while_loop's value": (TypeError, lambda: lax.while_loop(lambda r: True, lambda r: r, R), "let the body use the ref"),
    "fori_loop's value": (TypeError, lambda: lax.fori_loop(0, 3, lambda i, r: r, R), "let the body use the ref"),
    "written by a condition": (ValueError, lambda: lax.while_loop(lambda x: (R.__setitem__(0, 1.), x > 0)[1], lambda x: x, 0), "Write in the body"),
    "passed twice": (ValueError, lambda: jax.jit(lambda a, b: None)(R, R), "Pass it once"),
    "passed twice, nested": (ValueError, lambda: jax.jit(lambda r: jax.jit(lambda a, b: None)(r, r))(R), "Pass it once"),
    "passed and captured": (ValueError, lambda: _capturing()(R), "captured by it"),
    "passed twice to vmap": (ValueError, lambda: jax.vmap(lambda a, b: None)(R, R), "Pass it once"),
    "passed to vmap and captured": (ValueError, lambda: jax.vmap(lambda a: a[...] + R[0])(R), "captured by it"),
    "passed twice to vjp": (ValueError, lambda: jax.vjp(lambda a, b: a[0] * b[0], R, R), "Pass it once"),
    "passed to vjp and captured": (ValueError, lambda: jax.vjp(lambda a: a[0] * R[0], R), "captured by it"),
    "passed twice to checkpoint": (ValueError, lambda: jax.checkpoint(lambda a, b: a.__setitem__(0, b[0]))(R, R), "Pass it once"),
    "passed twice to cond": (ValueError, lambda: lax.cond(True, lambda a, b: a.__setitem__(0, b[0]), lambda a, b: None, R, R), "Pass it once"),
    "passed to cond and captured": (ValueError, lambda: lax.cond(True, lambda a: a.__setitem__(0, R[1]), lambda a: None, R), "captured by it"),
    "passed twice to pmap": (ValueError, lambda: jax.pmap(lambda a, b: None)(R, R), "Pass it once"),
    "frozen in jit": (ValueError, lambda: jax.jit(lambda: jax.freeze(R))(), "Freeze it where it was made"),
    "argument frozen in jit": (ValueError, lambda: jax.jit(jax.freeze)(R), "Freeze it where it was made"),
    "frozen in vmap": (ValueError, lambda: jax.vmap(jax.freeze)(R), "Freeze it where it was made"),
    "frozen in scan": (ValueError, lambda: lax.scan(lambda c, x: (c, jax.freeze(R)), 0, jnp.ones(2)), "Freeze it where it was made"),
    "frozen in grad": (ValueError, lambda: jax.grad(lambda x: jax.freeze(R)[0])(1.), "Freeze it where it was made"),
    "refs to refs": (TypeError, lambda: jax.new_ref(R), "no refs to refs"),
    "written to a ref": (TypeError, lambda: S.__setitem__(..., R), "no refs to refs"),
    "vmap, in_axes None": (ValueError, lambda: jax.vmap(lambda x, r: r.__setitem__(0, x), in_axes=(0, None))(jnp.ones(3), R), "axis to map over"),
    "vmap of jit of a captured one": (ValueError, lambda: jax.vmap(jax.jit(lambda x: R.__setitem__(0, x)))(jnp.ones(3)), "axis to map over"),
    "vmap of scan of a captured one": (ValueError, lambda: jax.vmap(lambda x: lax.scan(lambda c, y: (R.__setitem__(0, y), (c, y))[1], 0, x)[1])(jnp.ones((2, 3))),
                                       "axis to map over"),
    "pmap of a captured one": (ValueError, lambda: jax.pmap(lambda x: R.__setitem__(0, x))(jnp.ones(2)), "axis to map over"),
    "pmap in jit of a captured one": (ValueError, lambda: jax.jit(lambda x: jax.pmap(lambda x: R.__setitem__(0, x))(x))(jnp.ones(2)), "axis to map over"),
    "a differentiated value": (ValueError, lambda: jax.grad(lambda x: (R.__setitem__(0, x), x)[1])(1.), "stop_gradient"),
    "a differentiated value, in jit": (ValueError, lambda: jax.grad(jax.jit(lambda x: (R.__setitem__(0, x), x)[1]))(1.), "stop_gradient"),
    "a differentiated value, added": (ValueError, lambda: jax.grad(lambda x: (jax.ref.addupdate(R, 0, x), x)[1])(1.), "stop_gradient"),
    "a differentiated value, in scan": (ValueError, lambda: jax.grad(lambda x: lax.scan(lambda c, y: (R.__setitem__(0, c), (c, y))[1], x, jnp.ones(2))[0])(1.),
                                       "stop_gradient"),
    "out of bounds": (IndexError, lambda: R[5], "axis 0 with size 5"),
    "out of bounds, negative": (IndexError, lambda: R.__setitem__(-6, 1.), "axis 0 with size 5"),
    "out of bounds, array": (IndexError, lambda: R.__setitem__(jnp.array([1, 9]), 1.), "index 9"),
    "out of bounds in jit": (IndexError, lambda: jax.jit(lambda r: r[7])(R), "axis 0 with size 5"),
    "wrong values": (TypeError, lambda: R.__setitem__(0, "a"), "not an array or a number"),
    "keys": (TypeError, lambda: R.__setitem__(0, jax.random.key(0)), "key<fry>"),
    "gradients of another shape": (ValueError, lambda: jax.vjp(jnp.sin, 1.0)[1].with_refs(R), "can't hold the gradient"),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_names_the_ref_where_it_was_made_and_what_to_do(rule):
    error_class, call, advice = RULES[rule]
    before = np.asarray(R[...])
    text = fails(error_class, call)
    assert "Ref{f32[" in text and f"test_refs.py:{R_LINE}" in text and advice in text, text
    equal(R, before)


def test_rules_without_a_place():
    assert "make one with new_ref" in fails(TypeError, jax.freeze, jnp.ones(3))
    assert "make one with new_ref" in fails(TypeError, jax.ref.swap, jnp.ones(3), 0, 1.)
    assert "random.key_data" in fails(TypeError, jax.new_ref, jax.random.key(0))
    for wrong in ([1, 2], None, "a", object()):
        fails(TypeError, jax.new_ref, wrong)
    for write in (lambda: R.__setitem__(..., jnp.ones(4)), lambda: R.__setitem__(slice(0, 2), jnp.ones((2, 2))),
                  lambda: jax.jit(lambda r: r.__setitem__(0, jnp.ones(2)))(R)):
        assert "can't be written" in fails(ValueError, write)
    r = jax.new_ref(1.)
    jax.freeze(r)
    assert "is frozen" in fails(RuntimeError, jax.freeze, r)
    for use in (lambda: r[...], lambda: r.__setitem__(..., 1.), lambda: jax.jit(lambda r: r[...])(r), lambda: jax.jit(lambda: r[...])(),
                lambda: jax.vmap(lambda x: x * r[...])(jnp.ones(2)), lambda: jax.ref.addupdate(r, ..., 1.), lambda: copy.copy(r), lambda: r.at[...].get()):
        assert "is frozen" in fails(RuntimeError, use)


def test_a_ref_made_inside_lives_as_long_as_the_function():
    kept = []
    jax.jit(lambda x: kept.append(jax.new_ref(x)))(1.)
    jax.grad(lambda x: (kept.append(jax.new_ref(x)), x)[1])(1.)
    for ref in kept:
        fails(jax.errors.UnexpectedTracerError, lambda: ref[...] + 1)

    def twice(x):
        r = jax.new_ref(x)
        jax.freeze(r)
        return r[...]
    for transform in (lambda f: f, jax.jit, jax.grad, lambda f: lambda x: jax.vmap(f)(jnp.ones(2))):
        assert f"test_refs.py:{twice.__code__.co_firstlineno + 1}" in fails(RuntimeError, transform(twice), 1.)

    @jax.custom_vjp
    def f(x):
        return x
    f.defvjp(lambda x: (x, jax.new_ref(x)), lambda r, g: (g * r[...],))
    assert "forward rule" in fails(ValueError, jax.jit(jax.grad(f)), 1.)


# --- indices ----------------------------------------------------------------------------------------------------------------------------

INDICES = [0, -1, (1, 2), (-1, -2), (0, slice(None)), slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(2, 0, -1), slice(5, 9), (slice(None), 1),
           (slice(None), slice(3, None, -2)), ..., (..., 1), None, (None, 0), (0, None, 1), (slice(None), None, slice(1, 3)), np.array([[0, 1], [2, 0]]),
           (np.array([0, 1]), np.array([2, 3])), (np.array([[0], [1]]), np.array([2, 3])), (slice(None), np.array([0, 3])), (np.array([1, 2]), slice(1, 3)),
           (np.array([0, 2]), None, 1), np.array([True, False, True]), np.arange(12).reshape(3, 4) % 5 == 0, (np.array([True, False, True]), 1), True, False,
           np.array([], int), np.zeros((3, 4), bool), np.int64(1), ()]


def test_every_index_reads_writes_and_adds_as_in_numpy():
    a = np.random.default_rng(0).normal(size=(3, 4)).astype(F32)
    rng = np.random.default_rng(1)
    values = [[2.5] + [rng.normal(size=a[i].shape), rng.integers(9, size=(1, *a[i].shape[1:]) if a[i].ndim else ())] for i in INDICES]

    @jax.jit
    def both(values):
        out = []
        for index, given in zip(INDICES, values):
            for v in given:
                r = jax.new_ref(a)
                read, view = r[index], r.at[index][...]
                r[index] = v
                written = r[...]
                r[index] += v
                added = r[...]
                r.at[index].add(v)
                out.append([read, view, written, added, jax.freeze(r)])
        return out
    out = iter(both(values))
    for index, given in zip(INDICES, values):
        for v in given:
            b = a.copy()
            b[index] = v
            c = b.copy()
            c[index] += np.asarray(v).astype(F32)
            d = c.copy()
            np.add.at(d, index, np.asarray(v).astype(F32))
            for have, want in zip(next(out), [a[index], a[index], b, c, d]):
                assert have.shape == want.shape and np.allclose(have, want, rtol=1e-6), (index, v)


def test_top_level_indices():
    a = np.arange(12, dtype=F32).reshape(3, 4)
    for index in (1, -1, (0, 2), slice(None, None, -1), np.array([2, 0]), np.array([True, False, True]), (slice(None), 1), None):
        r, b = jax.new_ref(a), a.copy()
        assert np.array_equal(r[index], a[index])
        r[index] = 7
        b[index] = 7
        equal(r, b)
    b = a.copy()
    r = jax.new_ref(a)
    r[0], b[0] = np.ones((1, 1, 4)), np.ones((1, 1, 4))               # leading axes of size 1 are dropped
    r[1:], b[1:] = np.float64([[0.1]]), np.float64([[0.1]])
    r[...], b[...] = r[...][None] * 2, b[None] * 2
    equal(r, b)
    r = jax.new_ref(jnp.zeros(3))
    jax.ref.addupdate(r, jnp.array([0, 0, 1]), 1.)                      # each of its values is added
    equal(r, [2, 1, 0])
    r[jnp.array([0, 0])] += 1.                                        # as in NumPy, once
    equal(r, [3, 1, 0])
    assert jax.ref.swap(r, 0, 9.) == 3 and jax.ref.get(r, 0) == 9 and np.array_equal(jax.ref.swap(r, ..., 0.), [9, 1, 0])
    jax.ref.set(r, slice(1, None), [4., 5.])
    view = r.at[1:]
    view[0] = -1.
    view[1] += 1.
    assert view.shape == (2,) and view.dtype == F32 and view.at[1].get() == 6 and repr(view).startswith("Ref([")
    view.at[0].set(2.)
    equal(r, [0, 2, 6])
    equal(jax.ref.empty_ref(jax.ShapeDtypeStruct((2,), jnp.int8)), [0, 0])


def test_traced_indices_and_masks():
    r = jax.new_ref(jnp.arange(4.))

    @jax.jit
    def f(i, mask):
        a = [r[i], r[i + 2], r[i - 9]]                                # where known only then, reads clamp and writes are dropped
        r[i] = 10.
        r[i + 90] = 1.
        r[mask] = 5.
        jax.ref.addupdate(r, mask, 2.)
        r[jnp.array([i, 0])] += 2.
        return a
    assert np.array_equal(f(-1, jnp.array([True, False, False, False])), [3, 1, 0])
    equal(r, [9, 1, 2, 12])
    assert "mask" in fails(IndexError, jax.jit(lambda m: r[m]), jnp.array([True] * 4))
    r2 = jax.new_ref(jnp.zeros((2, 3)))
    jax.jit(lambda m: r2.__setitem__((slice(None), m), 1.))(jnp.array([True, False, True]))
    equal(r2, [[1, 0, 1]] * 2)


@pytest.mark.parametrize("index", [3, -4, (0, 4), np.array([0, 5]), (slice(None), 9), 2 ** 40, np.int64(5), (0, 0, 0), (..., ...), np.zeros(4, bool)], ids=str)
def test_what_is_known_to_be_out_of_bounds_raises(index):
    r = jax.new_ref(jnp.zeros((3, 4)))
    for use in (lambda: r[index], lambda: r.__setitem__(index, 1.), lambda: jax.jit(lambda r: r[index])(r), lambda: r.at[index]):
        fails(IndexError, use)


# --- dtypes -----------------------------------------------------------------------------------------------------------------------------

def test_every_dtype():
    names = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn", "int4"]
    refs = {n: jax.new_ref(jnp.zeros(3, n)) for n in names}

    @jax.jit
    def f(refs):
        for n, r in refs.items():
            r[2] = 1.0
            r[0] += jnp.ones((), r.dtype)
            r[1:2] = jnp.ones((1,), jnp.int32)
    f(refs)
    for n, r in refs.items():
        r[1] = True
        assert np.array_equal(np.asarray(jax.freeze(r)).astype(np.complex64), [1, 1, 1]) and r.dtype == jnp.dtype(n)
    with jax.enable_x64(True):
        r = jax.new_ref(np.zeros(2))
        r[0] = np.pi
        assert r.dtype == np.float64 and r[0] == np.pi


def test_values_are_cast_as_numpy_assigns():
    r, x = jax.new_ref(jnp.zeros(3, jnp.int8)), np.zeros(3, np.int8)
    for value in (2.7, True, np.float32([1.5, -2.5, 3]), np.int32([300, -1, 5]), [1, 2, 3], [[4, 5, 6]]):
        r[...] = value
        x[...] = np.asarray(value).astype(np.int8)
        equal(r, x)
    h = jax.new_ref(jnp.zeros(2, jnp.bfloat16))
    h[0] = np.float32(1.001)
    assert h.dtype == jnp.bfloat16 and h[0] == 1.0
    assert jax.new_ref(2).dtype == np.int32 and jax.new_ref(1.5).dtype == F32 and not jax.new_ref(1.5)[...].weak_type


def test_size_zero():
    z = jax.new_ref(jnp.zeros((0, 3)))
    z[...] = 1.
    z[:, 1] = 2.
    jax.jit(lambda z: z.__setitem__((slice(None), 0), 3.))(z)
    jax.vmap(lambda z: z.__setitem__(..., 3.), in_axes=1)(z)
    assert z[:, 1].shape == (0,) and repr(z) == "Ref([], shape=(0, 3), dtype=float32)" and jax.freeze(z).shape == (0, 3)
    fails(IndexError, lambda: jax.new_ref(jnp.zeros(0))[0])


# --- programs ---------------------------------------------------------------------------------------------------------------------------

def test_programs_print_reads_writes_and_accumulations():
    def f(a, i, x):
        a[0] = x
        a[i] += x
        a[1:3] = a[::2][:2]
        a[...] += 1.
        b = jax.new_ref(x)
        b[...] *= 2
        return a[i], jax.freeze(b)
    text = str(jax.make_jaxpr(f)(jax.new_ref(jnp.zeros(4)), 1, 2.))
    for part in ("a:Ref{f32[4]} b:i32[] c:f32[]", "a[0] <- c", "a[b] += c", "a[1:3] <- ", "<- a[0:4:2]", "a[...] += 1.0:f32[]", ":Ref{f32[]} = new_ref ",
                 "[...] <- ", "= freeze "):
        assert part in text, (part, text)
    assert "a[1] += 1.0" in str(jax.make_jaxpr(lambda r: r.__setitem__(1, r[1] + 1.))(R))


def test_programs_are_well_formed_and_discharge_to_programs_without_refs():
    def f(r, x):
        acc = jax.new_ref(jnp.zeros(2))

        def body(i, _):
            r[i] += x
            acc[0] += r[0]
            lax.cond(x > i, lambda: acc.__setitem__(1, x), lambda: None)
        lax.fori_loop(0, 3, body, None)
        lax.while_loop(lambda i: (i < 3) & (r[0] < 100.), lambda i: (r.__setitem__(i, 1.), i + 1)[1], 0)
        jax.jit(lambda r: r.__setitem__(0, x))(r)
        jax.checkpoint(lambda: r.__setitem__(1, x))()
        return acc[...] + r[:2]
    r = jax.new_ref(jnp.arange(4.))
    programs = [jax.make_jaxpr(f)(r, 2.), jax.make_jaxpr(jax.jit(lambda x: f(r, x)))(2.), jax.make_jaxpr(jax.vmap(f))(jax.new_ref(jnp.ones((3, 4))), jnp.ones(3)),
                jax.make_jaxpr(jax.grad(lambda x: jnp.sum(jax.jit(lambda x: jax.new_ref(x)[...] * r[...])(x))))(2.)]
    for program in programs:
        check_jaxpr(program)
        pure = discharged(program.jaxpr.hoisted())
        check_jaxpr(pure.jaxpr)
        assert not uses_refs(pure.jaxpr) and not [e for e in pure.jaxpr.effects]
    pure = discharged(programs[0].jaxpr)
    out, state = jax.jit(lambda *xs: eval_jaxpr(pure.jaxpr, (), *xs))(jnp.arange(4.), 2.)
    assert np.array_equal(f(r, 2.), out) and pure.written == (0,)
    equal(r, state)
    kinds = {(e.kind, programs[0].jaxpr.invars.index(e.ref)) for e in programs[0].jaxpr.effects}
    assert ("write", 0) in kinds and all(position == 0 for _, position in kinds)


def test_stages():
    r = jax.new_ref(jnp.arange(3.))
    f, g = jax.jit(lambda q, x: (q.__setitem__(0, x), q[...] * 2)[1]), jax.jit(lambda x: (r.__setitem__(1, x), r[...] * 2)[1])
    assert jax.eval_shape(f, r, 1.).shape == (3,) and f.eval_shape(r, 1.).dtype == F32
    equal(r, [0, 1, 2])                                                # nothing has run
    compiled, captured = f.lower(r, 1.).compile(), g.lower(1.).compile()
    for x in (5., 6.):
        assert np.array_equal(compiled(r, x), [2 * x, *(2 * r[1:])])
        assert np.array_equal(captured(x + 1), [2 * x, 2 * x + 2, 4])
    equal(r, [6, 7, 2])
    assert "tf.aliasing_output = 0" in f.lower(r, 1.).as_text() and "Ref{f32[3]}" in str(f.trace(r, 1.).jaxpr)
    assert [str(t) for t in compiled.in_avals] == ["Ref{f32[3]}", "f32[]"] and compiled.input_shardings and captured.output_shardings
    fails(TypeError, compiled, jnp.ones(3), 1.)
    fails(TypeError, compiled, jax.new_ref(jnp.ones(4)), 1.)
    shaped = f.lower(jax.ShapeDtypeStruct((3,), F32, is_ref=True), 1.).compile()
    assert np.array_equal(shaped(r, 1.), [2, 14, 4])
    jax.freeze(r)
    assert "is frozen" in fails(RuntimeError, compiled, r, 1.) and "is frozen" in fails(RuntimeError, captured, 1.)


def test_nested_and_inlined_jit():
    r = jax.new_ref(jnp.zeros(3))
    inner = jax.jit(lambda r, x: (r.__setitem__(0, x), r[0] + 1)[1])
    inlined = jax.jit(lambda r, x: (r.__setitem__(1, x), r[1] + 1)[1], inline=True)
    assert jax.jit(lambda r, x: inner(r, x) + inlined(r, x))(r, 2.) == 6 and jax.jit(lambda x: inner(r, x) + r[0])(5.) == 11
    equal(r, [5, 2, 0])
    assert "jit[" not in str(jax.make_jaxpr(lambda r: inlined(r, 1.))(r))


def test_disable_jit(recwarn):
    r = jax.new_ref(jnp.zeros(3))
    with jax.disable_jit():
        jax.jit(lambda: r.__setitem__(0, 1.))()
        lax.fori_loop(0, 3, lambda i, c: (jax.ref.addupdate(r, i, 1.), c)[1], 0)
        lax.cond(True, lambda: r.__setitem__(2, 7.), lambda: None)
        lax.scan(lambda c, x: (r.__setitem__(1, x), (c, x))[1], 0, jnp.arange(3.))
        jax.vmap(lambda r, x: r.__setitem__(..., r[...] + x))(r, jnp.ones(3))
    equal(r, [3, 3, 8])


def test_debug_nans_leaves_a_ref_its_value():
    r, s = jax.new_ref(jnp.arange(3.)), jax.new_ref(jnp.arange(3.))
    f, g = jax.jit(lambda r, x: r.__setitem__(0, x / x)), jax.jit(lambda x: s.__setitem__(0, x / x))
    with jax.debug_nans(True):
        f(r, 2.)
        g(2.)
        for bad in (lambda: f(r, 0.), lambda: g(0.), lambda: r.__setitem__(0, jnp.nan), lambda: r.__setitem__(slice(2), np.nan)):
            fails(FloatingPointError, bad)
        assert "div" in fails(FloatingPointError, g, 0.)
    equal(r, [1, 1, 2])
    equal(s, [1, 1, 2])
    f(r, 0.)
    assert np.isnan(r[0])


def test_log_compiles_names_the_function(capfd, caplog):
    with jax.log_compiles():
        def writes(r):
            r[0] = 1.
        jax.jit(writes)(R)
    assert "jit_writes" in capfd.readouterr().err + caplog.text


# --- in place ---------------------------------------------------------------------------------------------------------------------------

def _address(ref) -> int:
    return ref.unsafe_buffer_pointer()


def test_writes_stay_at_their_address():
    r, s = jax.new_ref(jnp.zeros(1 << 16)), jax.new_ref(jnp.zeros(1 << 16))
    f, g = jax.jit(lambda r, x: r.__setitem__(3, x)), jax.jit(lambda x: s.__setitem__(slice(0, 2), x))
    scanned = jax.jit(lambda: lax.fori_loop(0, 5, lambda i, c: (jax.ref.addupdate(s, i, 1.), c)[1], 0))
    places = _address(r), _address(s)
    for _ in range(4):
        f(r, 1.)
        g(2.)
        scanned()
        r[0] = 5.
        r[1] += 1.
        r[4:6] = 2.
    assert (_address(r), _address(s)) == places and r[3] == 1 and s[0] == 3
    value = r[...]
    f(r, 9.)
    assert value[3] == 1 and r[3] == 9                                 # what was read does not change


def test_a_branch_that_writes_beside_one_that_does_not_moves_nothing():
    r = jax.new_ref(jnp.zeros(1 << 16))
    branches = [lambda: None, lambda: r.__setitem__(5, 7.), lambda: (r.__setitem__(1, r[5] + 1), None)[1]]
    f = jax.jit(lambda i: lax.fori_loop(0, 3, lambda k, _: lax.switch((i + k) % 3, branches), None))
    g = jax.jit(lambda p: lax.cond(p, lambda: r.__setitem__(0, 3.), lambda: None))
    place = _address(r)
    for p in (False, True):
        g(p)
        assert r[0] == 3. * p
    for i in range(3):
        f(i)
    assert _address(r) == place and (r[5], r[1], r[0]) == (7, 8, 3)
    for lowered in (f.lower(0), g.lower(True)):                        # where XLA would copy all of it
        assert "stablehlo.case" not in lowered.as_text() and "stablehlo.if" not in lowered.as_text()


def test_loops_that_run_at_once_are_compiled_once(caplog):
    r = jax.new_ref(jnp.zeros(7))
    with jax.log_compiles():
        for step in range(3):
            lax.fori_loop(0, 4, lambda i, _: r.__setitem__(i, r[i] + 1.5), None)      # a function of its own every time
    assert [record.message.split(" (")[0] for record in caplog.records] == ["compiled scan"]
    equal(r, [4.5] * 4 + [0] * 3)


def test_values_given_and_taken_are_nobody_elses():
    x = np.ones(3, F32)
    a = jnp.arange(3.)
    r, s = jax.new_ref(x), jax.new_ref(a)
    x[0] = 7
    s[0] = 9.
    assert r[0] == 1 and a[0] == 0
    donating = jax.jit(lambda a: a + 1, donate_argnums=0)
    donating(a)
    taken = s[...]
    donating(taken)
    s[1] = 8.
    equal(s, [9, 8, 2])
    for deleted in (lambda: jax.new_ref(a), lambda: s.__setitem__(..., a), lambda: s.__setitem__(slice(None), a),
                    lambda: jax.jit(lambda x: s.__setitem__(..., x))(a)):
        assert "deleted" in fails((RuntimeError, ValueError), deleted)
    equal(s, [9, 8, 2])
    jax.jit(lambda r: r.__setitem__(0, 3.), donate_argnums=0)(s)         # a ref is not given away
    last = jax.freeze(s)
    donating(last)
    assert "is frozen" in fails(RuntimeError, lambda: s[...])


def test_the_cpp_fast_path_is_taken_for_arguments_and_captures(monkeypatch):
    from mini_jax.transforms import jit as python_path
    r, s = jax.new_ref(jnp.zeros(3)), {"a": [jax.new_ref(jnp.zeros(3))], "b": jax.new_ref(0)}
    x = jnp.float32(2)

    @jax.jit
    def captured(x):
        r[0] += x
        return r[...]

    @jax.jit
    def passed(s, x):
        s["a"][0][1] += x
        s["b"][...] += 1
        return s["b"][...]
    for _ in range(3):
        captured(x)
        passed(s, x)
    monkeypatch.setattr(python_path, "take_apart", lambda *_: pytest.fail("Python dispatched a call"))
    for _ in range(3):
        got = captured(x), passed(s, x)
    monkeypatch.undo()
    equal(r, [12, 0, 0])
    equal(s["a"][0], [0, 12, 0])
    assert np.array_equal(got[0], [12, 0, 0]) and got[1] == 6 and s["b"][...] == 6
    other = {"a": [jax.new_ref(jnp.ones(3))], "b": jax.new_ref(5)}      # the same program, other refs
    assert passed(other, x) == 6 and other["a"][0][1] == 3 and s["b"][...] == 6
    two = jax.jit(lambda a, b: (a.__setitem__(0, b[1]), b.__setitem__(0, 1.))[1])
    a, b = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.ones(3))
    for _ in range(3):
        two(a, b)
    assert "Pass it once" in fails(ValueError, two, a, a)                # checked on the fast path, too
    assert "captured by it" in fails(ValueError, jax.jit(lambda q: r[...] + q[...]), r)


def test_a_frozen_ref_captured_by_a_cached_function():
    r, q = jax.new_ref(jnp.zeros(2)), jax.new_ref(jnp.zeros(2))

    @jax.jit
    def f():
        r[0] += 1.

    @jax.jit
    def g(q):
        q[0] += 1.
    for _ in range(4):
        f()
        g(q)
    last = jax.freeze(r), jax.freeze(q)
    for _ in range(2):
        assert "is frozen" in fails(RuntimeError, f) and "is frozen" in fails(RuntimeError, g, q)
    assert np.array_equal(last, [[4, 0], [4, 0]])


def test_refs_are_freed_with_their_functions():
    def made():
        r = jax.new_ref(jnp.zeros(3))

        def write():
            r[0] += 1.
        f = jax.jit(write)
        for _ in range(3):
            f()
        return r, f
    r, f = made()
    gone = weakref.ref(r)
    del r, f
    gc.collect()
    assert gone() is None


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Model:
    w: typing.Any
    n: typing.Any


class Pair(typing.NamedTuple):
    first: typing.Any
    second: typing.Any


def test_refs_in_lists_dictionaries_dataclasses_and_named_tuples():
    tree = Model([jax.new_ref(jnp.zeros(2)), jax.new_ref(1)], Pair({"k": jax.new_ref(jnp.ones(1))}, jnp.float32(2)))

    @jax.jit
    def f(tree):
        tree.w[0][...] += tree.n.second
        tree.w[1][...] *= 2
        tree.n.first["k"][0] = 5.
        return tree.w[0][...]
    for _ in range(3):
        f(tree)
    equal(tree.w[0], [6, 6])
    assert tree.w[1][...] == 8 and tree.n.first["k"][0] == 5
    values = jax.tree.map(lambda x: x[...], tree, is_leaf=lambda x: isinstance(x, jax.Ref))
    assert isinstance(values, Model) and len(jax.tree.leaves(tree)) == 4
    jax.vmap(lambda t: t["r"].__setitem__(..., t["x"]))({"r": tree.w[0], "x": jnp.arange(2.)})
    equal(tree.w[0], [0, 1])


def test_copies_and_pickles_are_refs_of_their_own():
    r = jax.new_ref(jnp.arange(3.))
    for other in (copy.copy(r), copy.deepcopy({"r": r})["r"], pickle.loads(pickle.dumps(r))):
        other[0] = 9.
        assert isinstance(other, jax.Ref) and r[0] == 0 and other[0] == 9 and other is not r
    assert len({r, copy.copy(r)}) == 2 and r == r and r != copy.copy(r)


# --- failures -----------------------------------------------------------------------------------------------------------------------------

def test_exceptions_leave_a_ref_its_value_or_make_it_say_that_it_was_lost():
    r = jax.new_ref(jnp.arange(3.))

    def raises(q, x):
        q[0] = x
        raise KeyError("mine")
    for call in (lambda: jax.jit(raises)(r, 1.), lambda: jax.jit(lambda x: raises(r, x))(1.), lambda: lax.scan(lambda c, x: raises(r, x), 0, jnp.ones(2)),
                 lambda: lax.cond(True, lambda: raises(r, 1.), lambda: None), lambda: jax.make_jaxpr(raises)(r, 1.)):
        fails(KeyError, call)
    equal(r, [0, 1, 2])                                                # while tracing: nothing has run

    def broken(x):
        raise RuntimeError("in the callback")

    @jax.jit
    def f(x):
        r[0] = x
        r[1] = jax.pure_callback(broken, jax.ShapeDtypeStruct((), F32), x)
    made = r.created
    assert "in the callback" in fails(Exception, f, 1.)
    for use in (lambda: r[...], lambda: r[0], lambda: r.__setitem__(0, 1.), lambda: f(1.), lambda: jax.freeze(r), lambda: jax.jit(lambda r: r[...])(r)):
        assert "was lost" in fails(RuntimeError, use)
    assert repr(r) == "Ref(lost, shape=(3,), dtype=float32)" and r.created is made


def test_a_call_that_fails_on_the_fast_path():
    r, q, x = jax.new_ref(jnp.zeros(2)), jax.new_ref(jnp.zeros(2)), jnp.ones(2)
    f, g = jax.jit(lambda x: r.__setitem__(0, x[0])), jax.jit(lambda q, x: q.__setitem__(0, x[0]))
    for _ in range(3):
        f(x)
        g(q, x)
    x.delete()
    fails(Exception, f, x)
    fails(Exception, g, q, x)
    equal(r, [1, 0])
    equal(q, [1, 0])
    for ref, call in ((r, lambda: f(jnp.ones(2))), (q, lambda: g(q, jnp.ones(2)))):
        ref.array.delete()                                             # as a call does that fails after it has begun
        fails(Exception, call)
        assert "was lost" in fails(RuntimeError, lambda: ref[0]) and "was lost" in fails(RuntimeError, call) and "lost" in repr(ref)


# --- threads ------------------------------------------------------------------------------------------------------------------------------

def _race(work, count: int = 3, times: int = 60) -> None:
    errors = []

    def run(i):
        try:
            for j in range(times):
                work(i, j)
        except BaseException as error:
            errors.append(error)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors[0]


def test_threads_lose_no_write_and_see_no_half_of_one():
    r, q, w = jax.new_ref(jnp.zeros(4)), jax.new_ref(jnp.zeros(4)), jax.new_ref(jnp.zeros(64))

    def increment(q, x):
        q[0] += x
    f, g = jax.jit(lambda x: increment(r, x)), jax.jit(increment)
    h = jax.jit(lambda: w.__setitem__(..., w[...] + 1.))
    for _ in range(3):
        f(1.)
        g(q, 1.)
        h()
    _race(lambda i, j: (f(1.), g(q, 1.)))
    equal(r, [183, 0, 0, 0])
    equal(q, [183, 0, 0, 0])

    def reads_and_writes(i, j):
        if i == 0:
            h()
        else:
            seen = np.asarray(w[...])
            assert seen.min() == seen.max() and repr(w).startswith("Ref([")
    _race(reads_and_writes)
    equal(w, np.full(64, 63.))
    mine: dict = {}

    def own(i, j):
        if j == 0:
            mine[i] = jax.new_ref(jnp.zeros(4))
        g(mine[i], 1.)
        mine[i][1] = 2.
    _race(own)
    assert all(np.array_equal(ref[...], [60, 2, 0, 0]) for ref in mine.values())
    a, b = jax.new_ref(0.), jax.new_ref(0.)
    both = jax.jit(lambda a, b: (a.__setitem__(..., a[...] + 1), b.__setitem__(..., b[...] + 1))[0])
    _race(lambda i, j: both(a, b) if i % 2 else both(b, a))              # in whatever order: no deadlock
    assert a[...] == b[...] == 180


def test_a_thread_begins_to_use_a_ref_in_the_middle_of_calls_by_another():
    w = jax.new_ref(jnp.zeros(64))
    h = jax.jit(lambda: w.__setitem__(..., w[...] + 1.))
    for _ in range(3):
        h()
    errors, stop = [], threading.Event()

    def reads():
        try:
            while not stop.is_set():
                repr(w), w[0], w[...]
        except BaseException as error:
            errors.append(error)
    thread = threading.Thread(target=reads)
    thread.start()
    for _ in range(100):
        h()
    stop.set()
    thread.join()
    assert not errors, errors
    equal(w, np.full(64, 103.))


def test_frozen_by_another_thread():
    r = jax.new_ref(jnp.zeros(4))
    g = jax.jit(lambda q: q.__setitem__(0, q[0] + 1.))
    g(r)
    last = []

    def work(i, j):
        if i == 0 and j == 20:
            last.append(jax.freeze(r))
        try:
            g(r)
        except RuntimeError as error:
            assert "is frozen" in str(error)
    _race(work)
    assert last[0][0] >= 21 and not last[0].is_deleted()


# --- devices --------------------------------------------------------------------------------------------------------------------------------

def test_other_devices():
    one, two = jax.devices()[1:3]
    r = jax.new_ref(jax.device_put(jnp.arange(3.), one))
    f = jax.jit(lambda r, x: (r.__setitem__(0, x), r[...] * 2)[1])
    r[0] = 5.
    r[1:] += 1.
    for _ in range(3):
        out = f(r, 1.)
    assert r.sharding.device_set == out.sharding.device_set == r[0].sharding.device_set == {one}
    equal(r, [1, 2, 3])
    assert f.lower(r, 1.).compile()(r, 4.).sharding.device_set == {one}
    x = jax.device_put(jnp.float32(1), two)
    for wrong in (lambda: f(r, x), lambda: r.__setitem__(0, x), lambda: f(jax.new_ref(x[None]), jax.device_put(1., one))):
        assert "committed" in fails(ValueError, wrong)
    equal(r, [4, 2, 3])


def test_pmap_of_per_device_refs_then_jit():
    r, c = jax.new_ref(jnp.zeros((4, 2))), jax.new_ref(jnp.float32(3))

    def f(r, x):
        r[0] = x
        r[1] += c[...]
        return lax.psum(r[0], "i")
    step = jax.pmap(f, axis_name="i")
    for _ in range(2):
        assert np.array_equal(step(r, jnp.arange(4.)), [6] * 4)
    assert len(r.sharding.device_set) == 4
    equal(r, [[i, 6] for i in range(4)])
    assert jax.jit(lambda r: (r.__setitem__((slice(None), 1), 0.), r[...].sum())[1])(r) == 6
    r[0] = 9.
    jax.jit(lambda r, x: jax.pmap(lambda r, x: r.__setitem__(1, x))(r, x))(r, jnp.ones(4))
    equal(r, [[9, 1], [1, 1], [2, 1], [3, 1]])
    q = jax.new_ref(jnp.zeros((2, 3)))
    jax.pmap(lambda q, x: jax.vmap(lambda q, y: q.__setitem__(..., x + y))(q, jnp.arange(3.)))(q, jnp.arange(2.))
    equal(q, [[0, 1, 2], [1, 2, 3]])
    assert np.array_equal(jax.pmap(jax.grad(lambda x: x * x * c[...]))(jnp.arange(2.)), [0, 6])


def test_a_ref_moves_with_its_values():
    with jax.default_device(jax.devices()[3]):
        refs = [jax.new_ref(jnp.zeros(2)) for _ in range(4)]           # committed to no device: a call elsewhere takes it along
    captured = jax.jit(lambda x: refs[3].__setitem__(0, refs[3][0] + x))
    f = jax.jit(lambda r, x: (r.__setitem__(0, r[0] + x), r[...])[1])
    refs[0][1] = 7.
    assert refs[0].sharding.device_set == {jax.devices()[0]}
    for r in refs[:3]:
        for _ in range(3):
            out = f(r, 1.)
        assert r.sharding.device_set == out.sharding.device_set == {jax.devices()[0]} and r[0] == 3
    for _ in range(3):
        captured(1.)
    pmapped = jax.pmap(lambda r: r.__setitem__(..., r[...] * 2))
    pmapped(refs[3])
    captured(1.)
    pmapped(refs[3])
    captured(1.)
    equal(refs[3], [15, 0])


def test_a_function_called_by_a_program_may_not_use_the_refs_of_that_program():
    r, other, seen = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.ones(3)), []

    def call(use):
        def calls(x):
            r[0] = x
            r[1] = jax.pure_callback(lambda v: F32(use()), jax.ShapeDtypeStruct((), F32), r[0])
        return jax.jit(calls)
    call(lambda: (other.__setitem__(0, 5.), seen.append(repr(r)), other[1])[2])(2.)       # another is nobody's business
    equal(r, [2, 1, 0])
    equal(other, [5, 1, 1])
    assert seen == ["Ref(in use, shape=(3,), dtype=float32)"]
    assert "hand the function the value" in fails(Exception, call(lambda: r[1]), 3.)
    assert "was lost" in fails(RuntimeError, lambda: r[...])
