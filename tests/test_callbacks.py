"""Calling Python from programs: results, effects and their order, errors, under every transformation."""
import io
import subprocess
import sys

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import debug, lax
from mini_jax.experimental import io_callback

F32 = jax.ShapeDtypeStruct((), np.float32)
BOOL = jax.ShapeDtypeStruct((), bool)


def printed(capfd, fun, *args):
    """The lines that calling fun prints."""
    capfd.readouterr()
    jax.block_until_ready(fun(*args))
    return capfd.readouterr().out.splitlines()


# --- pure_callback ----------------------------------------------------------------------------------------------------------------

def host_sum(tree):
    return {"sum": np.asarray(tree["a"] + tree["b"]), "n": np.int32(2)}


def test_a_pure_callback_is_the_function_eagerly_compiled_and_for_pytrees():
    out = {"sum": jax.ShapeDtypeStruct((3,), np.float32), "n": jax.ShapeDtypeStruct((), np.int32)}
    f = lambda a: jax.pure_callback(host_sum, out, {"a": a, "b": 1.0})
    x = jnp.arange(3.0)
    for g in (f, jax.jit(f)):
        result = g(x)
        np.testing.assert_array_equal(result["sum"], [1, 2, 3])
        assert result["n"] == 2 and result["sum"].dtype == np.float32


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "bfloat16", "float16", "float32", "complex64", "float8_e4m3fn"])
def test_values_reach_python_and_come_back_as_they_are(dtype):
    x = jnp.asarray([[0, 1, 2], [1, 0, 3]]).astype(dtype)
    seen = []
    out = jax.jit(lambda x: jax.pure_callback(lambda a: (seen.append(a), a)[1], jax.ShapeDtypeStruct((3, 2), x.dtype), x.T))(x)
    assert isinstance(seen[0], jax.Array) and seen[0].dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(out).view(np.uint8), np.ascontiguousarray(np.asarray(x).T).view(np.uint8))


@pytest.mark.parametrize("method, shapes", [("sequential", {((), ())}), ("sequential_unrolled", {((), ())}), ("expand_dims", {((3,), (1,))}),
                                            ("broadcast_all", {((3,), (3,))}), ("legacy_vectorized", {((3,), ())})])
def test_each_vmap_method_gives_the_callback_its_shapes_and_the_same_result(method, shapes):
    seen = set()

    def add(x, y):
        seen.add((x.shape, y.shape))
        return np.asarray(x) + np.asarray(y)
    f = lambda x, y: jax.pure_callback(add, F32, x, y, vmap_method=method)
    for g in (jax.vmap(f, (0, None)), jax.jit(jax.vmap(f, (0, None)))):
        np.testing.assert_array_equal(g(jnp.arange(3.0), 1.0), [1, 2, 3])
    assert seen == shapes


def test_vmap_without_a_method_says_what_there_is():
    with pytest.raises(NotImplementedError, match="vmap_method=\"sequential\".*expand_dims"):
        jax.vmap(lambda x: jax.pure_callback(np.sin, F32, x))(jnp.arange(3.0))
    with pytest.raises(ValueError, match="one of 'sequential'"):
        jax.pure_callback(np.sin, F32, 1.0, vmap_method="parallel")


def test_a_callback_has_the_derivative_that_custom_jvp_gives_it():
    @jax.custom_jvp
    def sin(x):
        return jax.pure_callback(lambda x: np.sin(x), F32, x, vmap_method="sequential")
    sin.defjvp(lambda primals, tangents: (sin(*primals), jnp.cos(primals[0]) * tangents[0]))
    np.testing.assert_allclose(jax.vmap(jax.grad(sin))(jnp.arange(3.0)), np.cos(np.arange(3)), rtol=1e-6)
    for what, call in (("pure_callback", lambda x: jax.pure_callback(np.sin, F32, x)), ("io_callback", lambda x: io_callback(np.sin, F32, x))):
        with pytest.raises(ValueError, match=f"{what} has no derivative.*custom_jvp, custom_vjp"):
            jax.grad(call)(1.0)


# --- errors -----------------------------------------------------------------------------------------------------------------------

def failing(x):
    raise KeyError("no such entry")


@pytest.mark.parametrize("transformed", [lambda f: f, jax.jit, lambda f: jax.jit(lambda x: lax.fori_loop(0, 2, lambda i, c: f(c), x))])
@pytest.mark.parametrize("call", [lambda x: jax.pure_callback(failing, F32, x), lambda x: io_callback(failing, F32, x),
                                  lambda x: (jax.jit(lambda x: debug.callback(failing, x))(x), x)[1]])
def test_an_exception_in_a_callback_reaches_the_caller_with_its_story(transformed, call):
    f = transformed(call)
    for _ in range(2):                                # also when it has been compiled already
        with pytest.raises(jax.errors.JaxRuntimeError, match="failing at .*KeyError: 'no such entry'") as caught:
            f(1.0)
        assert isinstance(caught.value.__cause__, KeyError) and 'raise KeyError("no such entry")' in str(caught.value)


@pytest.mark.parametrize("result, message", [
    (np.zeros(2, np.float32), r"shape \(2,\).*declares f32\[\]"), (np.int32(1), "dtype int32.*declares f32"),
    ((np.float32(1), np.float32(1)), "a tuple of length 2"), (None, "None"), ("text", "dtype <U4")])
def test_a_result_that_is_not_as_declared_is_an_error_that_names_both(result, message):
    def wrong(x):
        return result
    for g in (jax.jit, lambda f: f):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"(?s)wrong at .*pure_callback.*{message}"):
            g(lambda x: jax.pure_callback(wrong, F32, x))(1.0)


def test_declarations_are_checked_while_tracing():
    with pytest.raises(ValueError, match="declares float64.*jax_enable_x64"):
        jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float64), 1.0)
    with pytest.raises(TypeError, match="a shape and a dtype"):
        jax.pure_callback(np.sin, 3.0, 1.0)
    with pytest.raises(TypeError, match="takes a function"):
        debug.callback("print", 1.0)


def test_a_callback_may_call_compiled_functions_again():
    inner = jax.jit(lambda x: jnp.sum(x @ x.T))
    back = lambda x: inner(x) + io_callback(lambda y: jnp.sin(y), F32, x[0, 0])
    f = jax.jit(lambda x: jax.pure_callback(back, F32, x))
    x = jnp.ones((200, 200))
    np.testing.assert_allclose(f(x), 200.0 ** 3 + np.sin(1), rtol=1e-6)


# --- effects ----------------------------------------------------------------------------------------------------------------------

def test_prints_happen_in_program_order_through_calls_loops_and_branches(capfd):
    @jax.jit
    def f(x):
        debug.print("start {}", x)
        x = jax.jit(lambda x: (debug.print("inner {x:.1f}", x=x), x * 2)[1])(x)

        def step(c, i):
            debug.print("step {i}: {c}", i=i, c=c)
            return c + 1, None
        x, _ = lax.scan(step, x, jnp.arange(2))
        x = lax.cond(x > 2, lambda x: (debug.print("large"), x)[1], lambda x: (debug.print("small"), x)[1], x)
        x = lax.while_loop(lambda x: x < 6, lambda x: (debug.print("while {}", x), x + 1)[1], x)
        debug.print("end")
        return x
    expected = ["start 1.0", "inner 1.0", "step 0: 2.0", "step 1: 3.0", "large", "while 4.0", "while 5.0", "end"]
    assert printed(capfd, f, 1.0) == expected == printed(capfd, f, 1.0)


def test_every_print_of_a_loop_is_there_when_the_call_returns():
    log = []
    jax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: (debug.callback(lambda i: log.append(int(i)), i, ordered=True), c)[1], 0.0))(100)
    assert log == list(range(100))


def test_debug_callbacks_see_primals_once_under_derivatives(capfd):
    def f(x):
        debug.print("x = {}", x)
        return jnp.sin(x) * x
    for g in (jax.grad(f), jax.jit(jax.grad(f)), jax.grad(jax.jit(f)), jax.value_and_grad(f), lambda x: jax.jvp(f, (x,), (x,)), jax.grad(jax.grad(f))):
        assert printed(capfd, g, 2.0) == ["x = 2.0"]
    scanned = lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]
    first, second = printed(capfd, jax.grad(scanned), 2.0)
    assert first == "x = 2.0" and second == f"x = {jnp.sin(2.0) * 2.0}"


def test_io_callbacks_happen_exactly_once_and_their_results_are_used_under_checkpoint():
    calls = []

    def noise():
        calls.append(1)
        return np.float32(3)
    f = jax.checkpoint(lambda x: jnp.sin(x) * lax.stop_gradient(io_callback(noise, F32)))
    np.testing.assert_allclose(jax.jit(jax.grad(f))(1.0), 3 * np.cos(1), rtol=1e-6)
    assert len(calls) == 1
    g = jax.checkpoint(lambda x: jnp.sin(jax.jit(lambda x: (debug.callback(calls.append, x), x * x)[1])(x)))
    np.testing.assert_allclose(jax.jit(jax.grad(g))(1.0), 2 * np.cos(1), rtol=1e-6)
    assert 2 <= len(calls) <= 3


def test_under_vmap_debug_and_io_callbacks_are_called_for_each_example_in_order(capfd):
    f = lambda x, y: debug.print("{} {}", x, y)
    g = jax.vmap(jax.vmap(f, (0, None)), (0, 0))
    expected = [f"{x} {y}" for xs, y in zip([[0, 1], [2, 3]], [5, 6]) for x in xs]
    args = jnp.arange(4).reshape(2, 2), jnp.array([5, 6])
    assert printed(capfd, g, *args) == expected == printed(capfd, jax.jit(g), *args)
    out = jax.jit(jax.vmap(lambda x: io_callback(lambda x: x + 1, F32, x)))(jnp.arange(3.0))
    np.testing.assert_array_equal(out, [1, 2, 3])
    assert jax.vmap(lambda x: io_callback(lambda x: x, F32, x))(jnp.zeros(0)).shape == (0,)


def test_in_a_batched_choice_or_loop_each_example_calls_as_if_it_ran_alone(capfd):
    def choose(x):
        return lax.switch(x, [lambda x: (debug.print("zero {}", x), x)[1], lambda x: -x,
                              lambda x: lax.scan(lambda c, i: (lax.cond(c % 2 == i, lambda: (debug.print("{} at {}", c, i), c + 1)[1], lambda: c + 2), None),
                                                 x, jnp.arange(2))[0]], x)

    def loop(x):
        return lax.while_loop(lambda c: (debug.print("is {}", c), c < 2)[1], lambda c: (debug.print("step {}", c), c + 1)[1], x)
    for f, xs in ((choose, jnp.array([0, 1, 2, 2])), (lambda x: jax.jit(jax.checkpoint(loop))(x), jnp.arange(4))):
        one = jax.jit(f)
        alone = sorted(line for x in xs for line in printed(capfd, one, x))
        assert alone == sorted(printed(capfd, jax.jit(jax.vmap(f)), xs)) == sorted(printed(capfd, jax.jit(jax.vmap(jax.vmap(f))), xs.reshape(2, 2)))
    assert sorted(printed(capfd, jax.vmap(loop), jnp.arange(4))) == alone
    assert printed(capfd, jax.grad(lambda x: jax.vmap(lambda x: lax.cond(x > 0, lambda x: (debug.print("{}", x), x)[1], jnp.sin, x))(x).sum()),
                   jnp.array([-1.0, 2.0])) == ["2.0"]
    seen = []
    ask = lambda x: lax.cond(x > 0, lambda x: io_callback(lambda v: seen.append(float(v)) or v * 10, F32, x), lambda x: x, x)
    np.testing.assert_array_equal(jax.jit(jax.vmap(ask))(jnp.array([1.0, -2.0, 3.0])), [10, -2, 30])
    assert seen == [1, 3]
    counted = lambda n: lax.while_loop(lambda c: io_callback(lambda c: seen.append(int(c)) or np.bool_(c < n_max), BOOL, c) & (c < n), lambda c: c + 1, 0)
    n_max, seen[:] = 5, []
    np.testing.assert_array_equal(jax.vmap(counted)(jnp.array([1, 3])), [1, 3])
    assert sorted(seen) == [0, 0, 1, 1, 2, 3]


def test_each_replica_of_a_pmap_calls():
    log = []
    jax.pmap(lambda x: (debug.callback(lambda x: log.append(float(x)), x), x)[1])(jnp.arange(4.0))
    assert sorted(log) == [0, 1, 2, 3]


def test_a_failure_in_one_replica_does_not_leave_the_others_waiting():
    def fail_for_two(x):
        if x == 2:
            raise ZeroDivisionError("two")
    f = jax.pmap(lambda x: (debug.callback(fail_for_two, x), lax.psum(x, "i"))[1], axis_name="i")
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError: two"):
            f(jnp.arange(4.0))
    np.testing.assert_array_equal(f(jnp.arange(10.0, 14.0)), [46.0] * 4)


def test_functions_called_by_a_pmapped_program_run_programs_of_one_device_and_refuse_more():
    inner, mapped = jax.jit(lambda x: jnp.sum(jnp.ones(3)) * x), jax.pmap(lambda x: x + 1)
    mapped(jnp.arange(2.0))
    ask = lambda back: jax.pmap(lambda x: jax.pure_callback(back, F32, x))(jnp.arange(2.0))
    np.testing.assert_array_equal(ask(lambda x: inner(x)), [0, 3])
    for transformed in (mapped, jax.jit(mapped)):
        with pytest.raises(jax.errors.JaxRuntimeError, match="can't run such programs itself"):
            ask(lambda x: transformed(jnp.arange(2.0))[0])
    outside = jax.pure_callback(lambda x: mapped(jnp.stack([x, x]))[0], F32, jnp.float32(1))
    assert outside == 2 and (mapped(jnp.arange(2.0)) == jnp.array([1, 2])).all()


def test_an_eager_debug_callback_is_a_call():
    with pytest.raises(KeyError, match="no such entry"):
        debug.callback(failing, 1.0)


@pytest.mark.parametrize("end", ["raise ValueError", "import sys; sys.exit(3)", "pass"])
def test_prints_are_there_however_the_program_ends(end):
    program = f"""if True:
        import mini_jax as jax
        from mini_jax import debug, lax
        f = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: (debug.print("step {{}}", i), c + 1)[1], x))
        y = f(1.0)
        {end}"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split("\n") == ["step 0", "step 1", "step 2", ""] and run.returncode == {"r": 1, "i": 3, "p": 0}[end[0]], run


def test_order_is_refused_where_there_is_none(capfd):
    f = lambda x: (debug.print("{}", x, ordered=True), x)[1]
    assert printed(capfd, jax.vmap(f), jnp.arange(3)) == ["0", "1", "2"]
    for g in (jax.vmap(lambda x: io_callback(lambda x: x, F32, x, ordered=True)), jax.pmap(f)):
        with pytest.raises((ValueError, NotImplementedError), match="ordered"):
            g(jnp.arange(2.0))
    with pytest.raises(NotImplementedError, match="condition of a while_loop"):
        jax.jit(lambda x: lax.while_loop(lambda c: f(c) < 3, lambda c: c + 1, x))(0.0)


# --- debug.print ------------------------------------------------------------------------------------------------------------------

def test_format_strings_are_checked_while_tracing():
    x = 1.0
    for args, kwargs, message in [(("{} {}", x), {}, "positional argument 1"), (("{y}",), {"x": x}, "keyword argument .*y"),
                                  (("a",), {"x": x}, "no field .* 'x'"), (("{}", x, x), {}, "number 1"), ((x,), {}, "format string")]:
        with pytest.raises((ValueError, TypeError, KeyError, IndexError), match=message):
            jax.jit(lambda: debug.print(*args, **kwargs))()
    with pytest.raises(ValueError, match="Leave the f"):
        jax.jit(lambda x: debug.print(f"x = {x}"))(1.0)


def test_prints_take_pytrees_keys_and_python_values(capfd):
    lines = printed(capfd, jax.jit(lambda x: debug.print("{name} {x[a]} {x[b].shape} {s:.1f}", name="n", x={"a": x, "b": x}, s=x[0])), jnp.arange(2.0))
    assert lines == ["n [0. 1.] (2,) 0.0"]
    seen = []
    jax.jit(lambda k: debug.callback(seen.append, k))(jax.random.key(0))
    assert seen[0] == jax.random.key(0)


def test_log_writes_what_print_prints_into_the_log(caplog):
    with caplog.at_level("INFO", logger="mini_jax.debug"):
        jax.jit(lambda x: debug.log("x = {}", x))(2.0)
    assert [record.getMessage() for record in caplog.records] == ["x = 2.0"]
    with pytest.raises(IndexError, match="debug.log"):
        debug.log("{}")


# --- debug.breakpoint -------------------------------------------------------------------------------------------------------------

def stopping(x, stdin, stdout):
    label, pair = "here", {"a": x, 3: None, "b": None}
    y = x * 2
    debug.breakpoint(stdin=stdin, stdout=stdout)
    return y + len(label) + len(pair)


def test_a_breakpoint_shows_the_variables_with_their_values_of_that_time():
    for transformed in (lambda f: f, jax.jit, jax.grad):
        out = io.StringIO()
        f = transformed(lambda x: stopping(x, io.StringIO("p y\np label\nl\nu\np x + 1\nd\np nothing\nbt\nc\n"), out))
        jax.block_until_ready(f(3.0))
        text = out.getvalue()
        for part in ("stopping", "6.", "'here'", "-> debug.breakpoint(stdin", "4.", "*** NameError"):
            assert part in text, (part, text)
    with pytest.raises(jax.errors.JaxRuntimeError, match="quit from debug.breakpoint"):
        jax.jit(lambda x: stopping(x, io.StringIO("q\n"), io.StringIO()))(1.0)


# --- compositions -----------------------------------------------------------------------------------------------------------------

def with_vjp(f):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x),))
    return g


def with_jvp(f):
    g = jax.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * 2))
    return g


WRAPPERS = {                                         # scalar -> scalar, and how often it calls its function, on examples of what values
    "jit": (jax.jit, 1), "checkpoint": (jax.checkpoint, 1), "grad": (jax.grad, 1), "value_and_grad": (lambda f: lambda x: jax.value_and_grad(f)(x)[0], 1),
    "jvp": (lambda f: lambda x: jax.jvp(f, (x,), (1.0,))[1], 1), "custom_vjp": (with_vjp, 1), "custom_jvp": (with_jvp, 1),
    "vmap": (lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])).sum(), 2), "scan": (lambda f: lambda x: lax.scan(lambda c, _: (c + 0 * f(x), None), x, None, 3)[0], 3),
    "unrolled": (lambda f: lambda x: lax.scan(lambda c, _: (c + 0 * f(x), None), x, None, 2, unroll=2)[0], 2),
    "cond": (lambda f: lambda x: lax.cond(x > 0, f, lambda x: x, x), 1), "switch": (lambda f: lambda x: lax.switch(1, [lambda x: x, f], x), 1),
    "while": (lambda f: lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + 0 * f(x)), (0, x))[1], 2),
    "map": (lambda f: lambda x: lax.map(f, jnp.stack([x, x])).sum(), 2), "pmap": (lambda f: lambda x: jax.pmap(f)(jnp.stack([x, x])).sum(), 2)}
REVERSE = {"grad", "value_and_grad"}


NAMES = list(WRAPPERS)
NESTS = [(a, NAMES[(i + 4) % len(NAMES)], NAMES[(i + 6) % len(NAMES)]) for i, a in enumerate(NAMES)]


def possible(nest) -> bool:
    """Reverse mode does not go through while_loop, nor forward mode through custom_vjp."""
    return not any([a in REVERSE and b == "while" or a == "jvp" and b == "custom_vjp" for i, a in enumerate(nest) for b in nest[i:]])


@pytest.mark.parametrize("nest", list(filter(possible, NESTS)), ids="-".join)
def test_debug_callbacks_are_called_as_often_as_the_function_in_nests_of_transformations(nest):
    log = []
    f = lambda x: (debug.callback(lambda v: log.append(float(v)), x), jnp.sin(x) * x)[1]
    expected = 1
    for name in reversed(nest):
        wrap, count = WRAPPERS[name]
        f, expected = wrap(f), expected * count
    jax.block_until_ready(f(jnp.float32(2)))
    again = 2 if "checkpoint" in nest and REVERSE & {*nest} else 1         # what is computed twice may be shown twice
    assert len(log) in (expected, expected * again) and set(log) == {2.0}
