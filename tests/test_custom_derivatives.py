"""Derivatives that users write: which rule runs, on what, and what is said of a wrong one."""
from functools import partial

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.custom_derivatives import (
    SymbolicZero, closure_convert, custom_gradient, custom_vjp_primal_tree_values, linear_call, zero_from_primal)


def numbers(tree):
    return jax.tree.map(lambda x: np.round(np.asarray(x, np.float64), 5).tolist(), tree)


# --- custom_jvp --------------------------------------------------------------------------------------------------------------------

def test_arguments_that_are_not_differentiated_come_first_in_the_rule():
    @partial(jax.custom_jvp, nondiff_argnums=(0, 2))
    def apply(f, x, n):
        return f(x) * n

    @apply.defjvp
    def _(f, n, primals, tangents):
        return f(primals[0]) * n, 10 * tangents[0] * n

    @partial(jax.custom_jvp, nondiff_argnames="n")
    def power(x, n=2):
        return x ** n
    power.defjvp(lambda n, primals, tangents: (primals[0] ** n, n * tangents[0]))
    found = jax.jit(lambda x: (jax.grad(lambda x: apply(jnp.cos, x, 3))(x), jax.grad(lambda x: apply(jnp.cos, x, n=3))(x), jax.grad(power)(x),
                                jax.grad(power)(x, 5), jax.vmap(jax.grad(lambda x: power(x, n=4)))(jnp.stack([x, x]))))(1.0)
    assert numbers(found) == (30, 30, 2, 5, [4, 4])


def test_a_captured_value_that_is_differentiated_is_named():
    @partial(jax.custom_jvp, nondiff_argnums=0)
    def apply(f, x):
        return f(x)
    apply.defjvp(lambda f, primals, tangents: (f(*primals), tangents[0]))
    with pytest.raises(jax.errors.UnexpectedTracerError, match="captures the variable 'scale', a value of type f32.*closure_convert"):
        jax.grad(lambda scale: apply(lambda x: scale * x, scale))(1.0)


def test_one_rule_for_each_argument():
    @jax.custom_jvp
    def f(x, y):
        return x * y, {"sum": x + y}
    f.defjvps(lambda t, value, x, y: (100 * t * y, {"sum": t}), None)
    assert numbers(jax.jvp(f, (2.0, 3.0), (1.0, 1.0))) == ((6, {"sum": 5}), (300, {"sum": 1}))


def test_with_symbolic_zeros_a_rule_sees_which_tangents_are_zero():
    seen = []

    @jax.custom_jvp
    def f(x, y):
        return x * y

    @partial(f.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        seen.append(tuple(type(t) is SymbolicZero for t in tangents))
        x, y = primals
        return x * y, sum(t * other for t, other in zip(tangents, (y, x)) if type(t) is not SymbolicZero)
    assert numbers([jax.grad(f)(2.0, 3.0), jax.grad(f, 1)(2.0, 3.0), jax.vmap(jax.grad(f))(jnp.ones(2), 3 * jnp.ones(2))]) == [3, 2, [3, 3]]
    assert seen == [(False, True), (True, False), (False, True)]


@pytest.mark.parametrize("rule, message", [
    (lambda p, t: p[0], r"must return a pair \(value, tangent\)"),
    (lambda p, t: (p[0], (t[0], t[0])), "a value and a tangent of different structure"),
    (lambda p, t: (p[0], jnp.ones(3)), r"tangents of the types of its values: got f32\[3\] for a value of type f32\[\]"),
])
def test_a_wrong_jvp_rule_is_an_error(rule, message):
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(rule)
    with pytest.raises(TypeError, match=message):
        jax.grad(f)(1.0)


# --- custom_vjp --------------------------------------------------------------------------------------------------------------------

def test_the_backward_rule_gets_arguments_that_are_not_differentiated_first():
    @partial(jax.custom_vjp, nondiff_argnums=(0, 3))
    def f(fun, x, y, n):
        return fun(x) * y * n
    f.defvjp(lambda fun, x, y, n: (fun(x) * y * n, x), lambda fun, n, x, ct: (100 * n * ct, ct * x))
    gradient = jax.grad(lambda x, y: f(jnp.cos, x, y, 2), (0, 1))
    assert numbers(jax.jit(lambda: (gradient(1.0, 2.0), jax.vmap(gradient, (0, None))(jnp.ones(2), 2.0)))()) == ((200, 1), ([200, 200], [1, 1]))


def test_none_stands_for_a_zero_cotangent_of_an_argument_or_of_a_leaf():
    @jax.custom_vjp
    def f(p, k):
        return p["a"] * k + p["b"]
    f.defvjp(lambda p, k: (f(p, k), k), lambda k, ct: ({"a": k * ct, "b": None}, None))
    assert numbers(jax.grad(f)({"a": 1.0, "b": 2.0}, 3)) == {"a": 3, "b": 0}


def test_with_symbolic_zeros_rules_see_what_is_differentiated():
    seen = []

    @jax.custom_vjp
    def f(x, y):
        return x * y, x

    def forward(x, y):
        seen.append((x.perturbed, y.perturbed))
        x, y = custom_vjp_primal_tree_values((x, y))
        return (x * y, x), (x, y)

    def backward(residuals, cts):
        seen.append(tuple(type(ct) is SymbolicZero for ct in cts))
        x, y = residuals
        return (0.0 if type(cts[0]) is SymbolicZero else cts[0] * y) + (0.0 if type(cts[1]) is SymbolicZero else cts[1]), cts[0]
    f.defvjp(forward, backward, symbolic_zeros=True)
    assert numbers([jax.grad(lambda x: f(x, 3.0)[0])(2.0), jax.grad(lambda x: f(x, 3.0)[1])(2.0)]) == [3, 1]
    assert seen == [(True, False), (False, True), (True, False), (True, False)]


@pytest.mark.parametrize("forward, backward, message", [
    (lambda x: x, None, r"must return a pair \(value, residuals\)"),
    (lambda x: ((x, x), None), None, "must return a value of the structure that"),
    (lambda x: (jnp.ones(2), None), None, r"the forward rule of f must return the values that f returns, of types f32\[\], but returns f32\[2\]"),
    (lambda x: (x, None), lambda _, ct: ct, "must return a tuple of 1 cotangents"),
    (lambda x: (x, None), lambda _, ct: (ct, ct), "must return a tuple of 1 cotangents"),
    (lambda x: (x, None), lambda _, ct: (jnp.ones(2),), r"a cotangent of type f32\[2\] for an input of type f32\[\]"),
    (lambda x: (x, None), lambda _, ct: ([ct],), "a cotangent of structure"),
])
def test_a_wrong_vjp_rule_is_an_error(forward, backward, message):
    def f(x):
        return x
    f = jax.custom_vjp(f)
    f.defvjp(forward, backward)
    with pytest.raises((TypeError, ValueError), match=message):
        jax.vjp(jax.jit(f), 1.0)[1](1.0)


def test_forward_mode_says_that_there_is_none():
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    with pytest.raises(TypeError, match="reverse mode only"):
        jax.jvp(f, (1.0,), (1.0,))
    with pytest.raises(AttributeError, match="define one with defvjp"):
        jax.custom_vjp(lambda x: x)(1.0)


# --- optimize_remat ----------------------------------------------------------------------------------------------------------------

def opaque(optimize_remat, log):
    """sin, whose forward rule is one operation that nothing can be left out of."""
    def called(name, count):
        def callback(x):
            log.append(name)
            return (np.sin(x), np.cos(x))[:count]
        return lambda x: jax.pure_callback(callback, (jax.ShapeDtypeStruct((), np.float32),) * count, x, vmap_method="sequential")
    f = jax.custom_vjp(lambda x: called("function", 1)(x)[0])
    f.defvjp(lambda x: tuple(called("rule", 2)(x)), lambda cos, ct: (ct * cos,), optimize_remat=optimize_remat)
    return f


@pytest.mark.parametrize("optimize_remat", [False, True])
def test_where_residuals_are_dropped_the_function_runs_instead_of_the_forward_rule(optimize_remat):
    log = []
    f = opaque(optimize_remat, log)
    block = jax.checkpoint(lambda x: f(x) * 2)
    twice = lambda x: lax.scan(lambda c, _: (block(c), None), x, None, length=2)[0]
    value, gradient = jax.jit(jax.value_and_grad(twice))(0.5)
    once = 2 * np.sin(0.5)
    np.testing.assert_allclose([value, gradient], [2 * np.sin(once), 4 * np.cos(once) * np.cos(0.5)], rtol=1e-5)
    assert log == [*["function" if optimize_remat else "rule"] * 2, "rule", "rule"]          # forwards, and again backwards
    log.clear()
    assert numbers(jax.grad(f)(0.0)) == 1 and log == ["rule"]                                # nothing is dropped
    np.testing.assert_allclose(jax.vmap(jax.grad(block))(jnp.array([0.5, 1.0])), 2 * np.cos([0.5, 1.0]), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: lax.scan(lambda c, _: (jax.vmap(block)(c), None), x, None, length=1)[0].sum()))(
        jnp.array([0.5, 1.0])), 2 * np.cos([0.5, 1.0]), rtol=1e-5)


def test_optimize_remat_does_not_go_with_symbolic_zeros():
    with pytest.raises(NotImplementedError, match="symbolic_zeros"):
        jax.custom_vjp(lambda x: x).defvjp(None, None, symbolic_zeros=True, optimize_remat=True)


# --- helpers ----------------------------------------------------------------------------------------------------------------------

def test_custom_gradient_gives_value_and_rule_together():
    @custom_gradient
    def f(x, y):
        s = jnp.sin(x)
        return s * y, lambda ct: (ct * s, ct * y)                     # the rule reads s: it is saved

    @jax.custom_gradient
    def g(x):
        return x ** 2, lambda ct: ct * x
    gradient = jax.grad(f, (0, 1))
    found = jax.jit(lambda x: (f(x, y=2.0), gradient(x, 2.0), jax.vmap(gradient, (0, None))(jnp.stack([x, x]), 2.0), jax.grad(g)(3.0),
                                jax.grad(lambda x: lax.scan(lambda c, _: (g(c), None), x, None, length=2)[0])(3.0), jax.grad(jax.grad(g))(3.0)))(1.0)
    s = round(float(np.sin(1.0)), 5)
    assert numbers(found) == (round(float(2 * np.sin(1.0)), 5), (s, 2), ([s, s], [2, 2]), 3, 27, 1)
    with pytest.raises(TypeError, match=r"must return a pair \(value, function of its cotangent\)"):
        custom_gradient(lambda x: x)(1.0)


def divided(x, r):
    return linear_call(lambda r, x: x / r, lambda r, ct: ct / r, r, x)


def test_linear_call_transposes_as_it_is_told():
    transpose = lambda f: lambda ct: jax.linear_transpose(f, 1.0)(ct)[0]
    seven = lambda x: linear_call(lambda _, x: x, lambda _, ct: 7.0, (), x)
    assert [float(f(1.0)) for f in (seven, transpose(seven), transpose(transpose(seven)), transpose(transpose(transpose(seven))))] == [1, 7, 1, 7]


def test_linear_call_goes_through_the_transformations():
    def everything(f):
        gradient = jax.grad(lambda x, r: jnp.sum(jnp.sin(f(x, r))), (0, 1))
        xs, rs = jnp.arange(3.0), jnp.array([1.0, 2.0, 4.0])
        return [jax.jvp(f, (3.0, 2.0), (1.0, 0.5)), gradient(3.0, 2.0), jax.vmap(gradient)(xs, rs), jax.vmap(gradient, (None, 0))(3.0, rs),
                jax.grad(lambda x: jax.vmap(f, (None, 0))(x, rs).sum())(3.0), jax.hessian(lambda x: f(x, x) * f(x, 2.0))(3.0),
                jax.grad(lambda x: lax.scan(lambda c, r: (f(c, r), None), x, rs)[0])(3.0)]
    ours, plain = jax.jit(lambda: (everything(divided), everything(jnp.divide)))()
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_linear_call_names_a_transpose_that_does_not_fit():
    with pytest.raises(TypeError, match="must return the structure of the linear arguments"):
        jax.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: (ct, ct), (), x))(1.0)
    with pytest.raises(ValueError, match=r"returned f32\[3\] for a linear argument of type f32\[\]"):
        jax.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: jnp.ones(3), (), x))(1.0)


def test_closure_convert_makes_captured_values_arguments():
    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def apply(f, x, *captured):
        return f(x, *captured)
    apply.defvjp(lambda f, x, *captured: (f(x, *captured), captured), lambda f, captured, ct: (ct, *[42.0 * ct for _ in captured]))

    def f(scale):
        converted, captured = closure_convert(lambda x: jnp.sin(x * scale), 3.0)
        return apply(converted, 3.0, *captured)
    assert numbers([jax.grad(f)(2.0), jax.jit(jax.grad(f))(2.0), jax.vmap(jax.grad(f))(jnp.ones(2))]) == [42, 42, [42, 42]]


def test_zero_from_primal_is_the_zero_tangent():
    zero = zero_from_primal(jnp.ones(3), symbolic_zeros=True)
    assert type(zero) is SymbolicZero and zero.shape == (3,) and zero.dtype == np.float32
    assert zero_from_primal(1).dtype == jax.dtypes.float0 and numbers(zero_from_primal(jnp.ones(2))) == [0, 0]


# --- Jacobians ---------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_jacobians_of_several_arguments_with_aux_and_of_holomorphic_functions(jacobian):
    f = lambda x, y: ({"p": x * y["k"], "s": jnp.sum(x)}, {"aux": y["k"]})
    x, y = jnp.arange(3.0), {"k": jnp.array([2.0, 3.0, 5.0])}
    found, aux = jacobian(f, (0, 1), has_aux=True)(x, y)
    expected = {"p": (np.diag(y["k"]), {"k": np.diag(x)}), "s": (np.ones(3), {"k": np.zeros(3)})}
    assert numbers(found) == numbers(expected) and aux["aux"].tolist() == [2, 3, 5]
    assert numbers(jacobian(f, -1, has_aux=True)(x, y)[0]["p"]) == {"k": np.diag(x).tolist()}
    z = jnp.array([1 + 1j, 2.0])
    np.testing.assert_allclose(jacobian(lambda z: z * z * 1j, holomorphic=True)(z), np.diag(2j * z), rtol=1e-6)
    with pytest.raises(TypeError, match="with holomorphic=True inputs must be complex"):
        jacobian(lambda z: z, holomorphic=True)(x)
    with pytest.raises(TypeError, match="complex|holomorphic"):
        jacobian(lambda z: z * z)(z)


def test_hessians_with_aux_and_the_jacobian_of_real_arguments_with_complex_results():
    f = lambda x, y: (jnp.sum(x ** 2 * y), x)
    found, aux = jax.hessian(f, (0, 1), has_aux=True)(jnp.array([1.0, 2.0]), 3.0)
    assert numbers(found) == (([[6, 0], [0, 6]], [2, 4]), ([2, 4], 0)) and aux.tolist() == [1, 2]
    np.testing.assert_allclose(jax.jacfwd(lambda x: x * 1j)(jnp.ones(2)), 1j * np.eye(2))


def test_a_vjp_function_is_a_pytree_of_its_residuals():
    f = lambda x: jnp.sin(x) * x
    value, f_vjp = jax.jit(lambda x: jax.vjp(f, x))(2.0)
    again = jax.tree.map(lambda leaf: leaf, f_vjp)
    assert numbers([f_vjp(1.0), jax.jit(lambda g, ct: g(ct))(again, 1.0)]) == numbers([(jax.grad(f)(2.0),)] * 2)
    assert jax.tree.structure(again) == jax.tree.structure(f_vjp) and numbers(value) == numbers(f(2.0))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_batch_of_what_is_not_differentiated_has_zeros_of_one_example(dim):
    """vmap over one argument, the derivative in the other: in any dimension, and again."""
    @jax.custom_jvp
    def f(x, y):
        return jnp.sin(x) * y
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * jnp.cos(primals[0]) * primals[1] + jnp.sin(primals[0]) * tangents[1]))
    xs = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    y = np.float32(1.5) * np.ones([n for d, n in enumerate(xs.shape[1:]) if d != dim], np.float32)
    over = lambda f: jax.vmap(jax.vmap(f, (dim, None)), (0, None))
    want = jax.grad(lambda y: jnp.sum(over(lambda x, y: jnp.sin(x) * y)(xs, y)))(y)
    np.testing.assert_allclose(jax.grad(lambda y: jnp.sum(over(f)(xs, y)))(y), want, rtol=1e-5)
