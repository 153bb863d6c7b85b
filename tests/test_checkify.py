"""checkify: a function's checks become a value, the first that fails, through every transformation."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.experimental import checkify
from mini_jax.experimental.checkify import all_checks, check, div_checks, float_checks, index_checks, nan_checks, user_checks


def positive(x):
    check(x > 0, "x must be positive, got {x}", x=x)
    return jnp.sin(x)


HERE = r" at .*test_checkify.py:\d+ \(positive\)"


def message(f, *args, errors=user_checks):
    """What a function's error says, the same compiled and not."""
    checked = checkify.checkify(f, errors=errors)
    error, compiled = checked(*args)[0], jax.jit(checked)(*args)[0]
    assert error.get() == compiled.get()
    return error.get()


# --- check --------------------------------------------------------------------------------------------------------------------------

def test_on_values_a_check_raises_at_once():
    with pytest.raises(checkify.JaxRuntimeError, match="x must be positive, got -1.0"):
        positive(-1.0)
    with pytest.raises(ValueError, match="got -2.0"):
        jax.vmap(positive)(jnp.array([1.0, -2.0, -3.0]))
    with pytest.raises(ValueError, match="got -1.0"):
        jax.grad(positive)(-1.0)
    np.testing.assert_allclose(positive(1.0), np.sin(1), rtol=1e-6)


@pytest.mark.parametrize("staged", [jax.jit, jax.pmap, lambda f: lambda x: lax.map(f, x), lambda f: lambda x: lax.cond(x[0] > 0, f, f, x[0]),
                                    lambda f: jax.grad(lambda x: jax.jit(f)(x[0]))])
def test_in_a_compiled_program_a_check_needs_checkify(staged):
    with pytest.raises(ValueError, match=r"Cannot abstractly evaluate a checkify.check.*\(positive\).*Put checkify around"):
        staged(positive if staged is not jax.jit else lambda x: positive(x[0]))(jnp.array([1.0]))


def test_arguments_are_checked():
    for args, kind, text in [((1, "a"), TypeError, "boolean scalar"), ((jnp.array([True]), "a"), TypeError, "all"), ((None, "a"), TypeError, "None"),
                             ((True, 3), TypeError, "message"), ((True, "{}"), IndexError, "argument 0"), ((True, "{x}"), KeyError, "x"),
                             ((True, "{}", "text"), TypeError, "arrays"), ((True, "{}", object()), TypeError, "arrays")]:
        with pytest.raises(kind, match=text):
            check(*args)
    with pytest.raises(ValueError, match="Leave the f"):
        jax.jit(lambda x: check(x > 0, f"{x}"))(1.0)
    for bad in (3, {ValueError}, "nan"):
        with pytest.raises(TypeError, match="set of checks"):
            checkify.checkify(positive, errors=bad)
    with pytest.raises(TypeError, match="takes a function"):
        checkify.checkify(3)
    with pytest.raises(TypeError, match="takes an Error"):
        checkify.check_error("wrong")
    with pytest.raises(TypeError, match="nothing has run yet"):
        jax.jit(lambda x: checkify.checkify(positive)(x)[0].get())(1.0)


def test_a_message_shows_arrays_of_any_kind_and_names_the_line():
    def f(x, n):
        check(n < 3, "{0} of {1[a]} {k:.1f}", n, {"a": x.astype(bool)}, k=x[0] / 3, unused=x)
    assert message(f, jnp.array([1.0, 0.0]), 5).startswith("5 of [ True False] 0.3 (`check` failed) at ")
    error, _ = checkify.checkify(positive)(-1.0)
    assert isinstance(error.get_exception(), Exception) and "got -1.0" in str(error) == f"Error({error.get()})"
    with pytest.raises(checkify.JaxRuntimeError, match="x must be positive, got -1.0.*" + HERE):
        error.throw()
    good, y = checkify.checkify(positive)(1.0)
    assert good.get() is None and good.throw() is None and good.get_exception() is None
    np.testing.assert_allclose(y, np.sin(1), rtol=1e-6)
    assert checkify.init_error.get() is None


def test_debug_checks_are_nothing_without_checkify():
    f = lambda x: (checkify.debug_check(x > 0, "low"), x)[1]
    assert f(-1.0) == -1.0 and jax.jit(f)(-1.0) == -1.0 and (jax.vmap(f)(-jnp.ones(2)) == -1).all()
    assert message(f, -1.0).startswith("low")


def test_check_error_is_the_inverse_of_checkify():
    def f(x):
        error, y = jax.jit(checkify.checkify(positive))(x)
        checkify.check_error(error)
        return y
    f(1.0)
    with pytest.raises(checkify.JaxRuntimeError, match="got -1.0"):
        f(-1.0)
    assert "got -1.0" in message(f, -1.0)
    assert message(checkify.checkify(positive), -1.0) is None


# --- where checks stand -----------------------------------------------------------------------------------------------------------------

def with_jvp(f):
    g = jax.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 2))
    return g


def with_vjp(f):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 2,))
    return g


def with_vmap(f):
    g = jax.custom_batching.custom_vmap(f)
    g.def_vmap(lambda size, batched, x: (jax.vmap(f)(x), True))
    return g


PLACES = {                                           # scalar -> scalar, with the function somewhere inside
    "jit": jax.jit, "checkpoint": jax.checkpoint, "custom_jvp": with_jvp, "custom_vjp": with_vjp, "custom_vmap": with_vmap,
    "grad": jax.grad, "jvp": lambda f: lambda x: jax.jvp(f, (x,), (1.0,))[1],
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x + 9, x, x])).sum(),
    "scan": lambda f: lambda x: lax.scan(lambda c, s: (c, f(c + s)), x, jnp.array([9.0, 0.0, 9.0]))[1].sum(),
    "map": lambda f: lambda x: lax.map(f, jnp.stack([x, x + 9])).sum(), "fori": lambda f: lambda x: lax.fori_loop(0, 2, lambda i, c: c + f(x) * 0, x),
    "while": lambda f: lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + 0 * f(x)), (0, x))[1],
    "condition": lambda f: lambda x: lax.while_loop(lambda c: (c[0] < 2) & (f(x) < 9), lambda c: (c[0] + 1, c[1]), (0, x))[1],
    "cond": lambda f: lambda x: lax.cond(x < 5, f, lambda x: x, x), "switch": lambda f: lambda x: lax.switch(1, [lambda x: x, f, jnp.cos], x),
    "batched cond": lambda f: lambda x: jax.vmap(lambda x: lax.cond(x < 5, f, lambda x: x, x))(jnp.stack([x + 9, x])).sum(),
    "batched while": lambda f: lambda x: jax.vmap(lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + 0 * f(x)), (0, x))[1])(
        jnp.array([0, 2])).sum(),
    "pmap": lambda f: lambda x: jax.pmap(f)(jnp.stack([x + 9, x])).sum()}
REVERSE, FORWARD_ONLY = {"grad"}, {"while", "condition", "batched while"}
NAMES = list(PLACES)


def possible(nest) -> bool:
    return not any([a in REVERSE and b in FORWARD_ONLY or a == "jvp" and b == "custom_vjp" for i, a in enumerate(nest) for b in nest[i:]])


@pytest.mark.parametrize("nest", list(filter(possible, [(a, NAMES[(i + k) % len(NAMES)]) for i, a in enumerate(NAMES) for k in (5, 8)])), ids="-".join)
def test_a_check_inside_any_two_transformations_is_found_and_a_good_value_passes(nest):
    f = positive
    for name in reversed(nest):
        f = PLACES[name](f)
    checked = jax.jit(lambda x: (*checkify.checkify(f)(x), checkify.checkify(f, errors=div_checks)(x)[1]))
    (good, y, without_checks), (bad, _, _) = checked(jnp.float32(2)), checked(jnp.float32(-2))
    assert good.get() is None, good
    assert bad.get().startswith("x must be positive, got -2.0"), bad
    assert y == without_checks


def test_the_first_error_wins():
    def f(x):
        check(x > 0, "first")
        check(x > 1, "second")
    assert [message(f, x) and message(f, x)[:6] for x in (0.0, 1.0, 2.0)] == ["first ", "second", None]

    def steps(x, reverse):
        def step(c, i):
            check(i != 2, "two {}", i)
            check((i != 1) & (i != 3), "odd {}", i)
            return c, None
        return lax.scan(step, x, jnp.arange(5), reverse=reverse)[0]
    assert message(lambda x: steps(x, False), 0.0).startswith("odd 1") and message(lambda x: steps(x, True), 0.0).startswith("odd 3")

    def both(n):
        def go_on(i):
            check(i < 4, "condition at {}", i)
            return i < 6

        def step(i):
            check(i < n, "body at {}", i)
            return i + 1
        return lax.while_loop(go_on, step, 0)
    assert message(both, 3).startswith("body at 3") and message(both, 9).startswith("condition at 4") and message(both, 4).startswith("condition at 4")
    assert "3" in message(lambda x: jax.vmap(lambda x: check(x < 3, "{}", x))(x), jnp.arange(6))


def test_branches_and_loops_that_do_not_run_fail_nothing():
    f = lambda x: lax.cond(x > 0, positive, lambda x: x, x)
    assert message(f, -1.0) is None and message(jax.vmap(f), jnp.array([-1.0, 1.0])) is None
    assert message(lambda x: lax.scan(lambda c, _: (positive(c), None), x, None, length=0)[0], -1.0) is None
    assert message(lambda x: lax.while_loop(lambda x: x > 0, positive, x), -1.0) is None
    assert message(jax.vmap(positive), jnp.zeros(0)) is None
    loop = lambda n: lax.while_loop(lambda i: i < n, lambda i: (check(i < 2, "{}", i), i + 1)[1], 0)
    assert message(jax.vmap(loop), jnp.array([0, 2])) is None and message(jax.vmap(loop), jnp.array([0, 3])).startswith("2 ")


def test_an_error_goes_through_vmap_pmap_loops_and_derivatives_as_a_value():
    checked = checkify.checkify(positive)
    for mapped in (jax.vmap(checked), jax.pmap(checked), lambda x: lax.map(checked, x)):
        error, _ = mapped(jnp.array([1.0, -2.0, -3.0]))
        first, second = error.get().split("\n")
        assert first.startswith("at mapped index 1: x must be positive, got -2.0") and second.startswith("at mapped index 2: ")
        with pytest.raises(checkify.JaxRuntimeError, match="mapped index 1"):
            error.throw()
    error, slope = jax.jit(checkify.checkify(jax.grad(positive)))(-1.0)
    assert "got -1.0" in error.get()
    np.testing.assert_allclose(slope, np.cos(1), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: checked(x)[1])(1.0), np.cos(1), rtol=1e-6)
    f, g = jax.custom_jvp(positive), jax.custom_vjp(positive)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0] * 2))
    g.defvjp(lambda x: (x, None), lambda _, ct: (ct * 2,))
    for custom in (f, g):                            # a rule that holds checks of its own would need checkify around grad
        checked_custom = checkify.checkify(lambda x: custom(x))
        assert jax.jit(jax.grad(lambda x: checked_custom(x)[1]))(1.0) == 2 and jax.jit(checked_custom)(-1.0)[0].get()
    (_, error), _ = jax.value_and_grad(lambda x: checked(x)[::-1], has_aux=True)(-1.0)
    assert "got -1.0" in error.get()


def test_rules_of_custom_derivatives_are_checked_where_they_run():
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (check(x > 5, "forward"), (x, x))[1], lambda r, ct: (check(ct > 5, "backward"), (ct,))[1])
    assert message(f, 1.0) is None and message(jax.grad(f), 1.0).startswith("forward") and message(jax.grad(f), 6.0).startswith("backward")
    g = jax.custom_jvp(lambda x: x)
    g.defjvp(lambda p, t: (check(p[0] > 5, "rule"), (p[0], t[0]))[1])
    assert message(jax.grad(g), 1.0).startswith("rule") and message(g, 1.0) is None


def test_input_and_output_of_custom_functions_happens_once():
    calls = []

    @jax.custom_jvp
    def f(x):
        y = jax.experimental.io_callback(lambda x: calls.append(1) or x, jax.ShapeDtypeStruct((), jnp.float32), x)
        check(y > 0, "low")
        return y
    f.defjvp(lambda p, t: (p[0], t[0]))
    assert checkify.checkify(f)(jnp.float32(-1))[0].get().startswith("low") and len(calls) == 1


# --- automatic checks -----------------------------------------------------------------------------------------------------------------------

def test_nan_checks_name_the_operation_that_made_it():
    assert message(lambda x: jnp.log(x), -1.0, errors=nan_checks).startswith("nan generated by primitive: log at ")
    assert message(lambda x: x.reshape(1), jnp.nan, errors=nan_checks) is None
    assert "log" in message(lambda x: jnp.where(x > 0, jnp.log(x), 0.0), -1.0, errors=nan_checks)
    assert "dot_general" in message(lambda x: x @ x, jnp.array([jnp.inf, 0.0]) * jnp.array([[1.0, 0.0], [0.0, 1.0]]), errors=nan_checks)
    assert "mul" in message(lambda z: z * 0, jnp.complex64(complex(np.inf, 0)), errors=nan_checks)
    assert message(jnp.log, 1.0, errors=all_checks) is None
    assert message(lambda x: jnp.log(x), -1.0) is None


def test_div_checks_find_zero_divisors_of_every_type():
    ones = [jnp.asarray(one) for one in (1.0, 1, jnp.complex64(1), jnp.bfloat16(1), jnp.uint8(1))]
    errors = jax.jit(lambda ys: [checkify.checkify(lax.div, errors=div_checks)(one, y)[0] for one, y in zip(ones, ys)])
    assert [found.get() for found in errors(ones)] == [None] * len(ones)
    assert [found.get()[:16] for found in errors([np.zeros((), one.dtype) for one in ones])] == ["division by zero"] * len(ones)
    assert message(jax.grad(lambda x: jnp.sqrt(x) * 0.0), 0.0, errors=float_checks).startswith("division by zero")
    assert message(lambda x: x / 0.0, 1.0, errors=div_checks).startswith("division")


def test_index_checks_find_what_lies_outside():
    x = jnp.arange(12.0).reshape(3, 4)
    cases = [(lambda i: x[i], 3, "index 3 is out of bounds for axis 0 with size 3"), (lambda i: x[0, i], -6, "index -2 is out of bounds for axis 1"),
             (lambda i: x[jnp.stack([0 * i, i])], 7, "index 7"), (lambda i: x.at[i].add(1.0), 5, "index 5"), (lambda i: x.at[:, i].set(1.0), 9, "axis 1"),
             (lambda i: lax.dynamic_slice(x, (i, 0), (2, 4)), 2, "index 2 is out of bounds for axis 0 with size 3 for a window of size 2"),
             (lambda i: lax.dynamic_update_slice(x, x[:2], (i, 0)), 2, "index 2"), (lambda i: jnp.take(x, i), 12, "index 12"),
             (lambda i: jnp.take_along_axis(x, i[None, None], 1), 4, "index 4"), (lambda i: jax.vmap(lambda r: r[i])(x), 4, "index 4"),
             (lambda i: lax.dynamic_index_in_dim(x, i.astype(jnp.uint8), 0), 200, "index 200")]
    errors = jax.jit(lambda indices: [checkify.checkify(f, errors=all_checks)(i)[0] for (f, _, _), i in zip(cases, indices)])
    for found, (_, _, text) in zip(errors([i for _, i, _ in cases]), cases):
        assert "out-of-bounds indexing for array of shape" in found.get() and text in found.get(), (found, text)
    assert [found.get() for found in errors([1] * len(cases))] == [None] * len(cases)
    assert message(cases[0][0], jnp.asarray(3)) is None
    with jax.enable_x64(True):
        assert "index 2147483647" in message(lambda i: x[i], jnp.asarray(2**40), errors=index_checks)


def test_kinds_of_errors_come_in_the_order_of_the_program():
    def f(x, i):
        y = x[i] / x[0]
        check(y > 0, "user")
        return jnp.log(y)
    x = jnp.array([1.0, -1.0])
    expected = [((x, 5), "out-of-bounds"), ((x * 0, 0), "division by zero"), ((x, 1), "user")]
    for args, text in expected:
        assert message(f, *args, errors=all_checks).startswith(text)
    assert message(f, x, 1, errors=float_checks).startswith("nan generated by primitive: log")
