"""custom_linear_solve and custom_root: whatever finds a solution, its derivatives are those of what it solves."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core.check import check_jaxpr
from tests.folded import folded

A = np.array([[3, 1, 0.2], [0.3, 2, 0.1], [0.1, 0.4, 4]])
B = np.array([1.0, 2.0, -1.0])


def iterated(matvec, b):
    """A solver that can't be differentiated in reverse mode."""
    residual = lambda x: jax.tree.map(jnp.subtract, b, matvec(x))
    return lax.while_loop(lambda x: sum(jnp.sum(r * r) for r in jax.tree.leaves(residual(x))) > 1e-26,
                          lambda x: jax.tree.map(lambda x, r: x + 0.25 * r, x, residual(x)), jax.tree.map(jnp.zeros_like, b))


def implicit(a, b):
    return lax.custom_linear_solve(lambda x: a @ x, b, iterated, iterated)


def derived(solve):
    """The value of a solver (a, b) -> x, its derivatives and batched versions."""
    loss = lambda a, b: jnp.sum(jnp.sin(solve(a, b)))
    gradient = jax.grad(loss, (0, 1))

    def all_of_it(a, b):
        many_a, many_b = jnp.stack([a, a + 0.1, a.T]), jnp.stack([b, 2 * b, b * b])
        return {
            "value": solve(a, b), "gradient": gradient(a, b), "pushed": jax.jvp(solve, (a, b), (a * a, b * b)),
            "hessian product": jax.jvp(gradient, (a, b), (a * a, b * b))[1], "reverse twice": jax.grad(lambda a: jnp.sum(gradient(a, b)[0] ** 2))(a),
            "batched": jax.vmap(solve)(many_a, many_b), "batched over a": jax.vmap(solve, (1, None))(jnp.stack([a, a.T], 1), b),
            "batched over b": jax.vmap(solve, (None, 1), 1)(a, many_b.T), "batched gradient": jax.vmap(gradient, (None, 0))(a, many_b),
            "gradient of batched": jax.grad(lambda a: jnp.sum(jax.vmap(solve, (None, 0))(a, many_b)))(a),
            "scanned": jax.value_and_grad(lambda a: jnp.sum(lax.scan(lambda c, _: (solve(a, c), c), b, None, length=3)[0]))(a),
            "linearized": jax.linearize(solve, a, b)[1](a, b), "checkpointed": jax.grad(jax.checkpoint(loss))(a, b),
        }
    return all_of_it


def assert_close(found, expected, tolerance=1e-8):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def test_an_iterative_solve_has_the_derivatives_and_batches_of_the_solution():
    with jax.enable_x64(True):
        found, expected = folded(lambda: (derived(implicit)(A, B), derived(jnp.linalg.solve)(A, B)))()
        check_jaxpr(jax.make_jaxpr(lambda: derived(implicit)(A, B))())
    assert_close(found, expected)


def test_eagerly_and_under_disable_jit():
    with jax.enable_x64(True):
        expected = np.linalg.solve(A, B)
        np.testing.assert_allclose(implicit(A, B), expected, rtol=1e-8)
        with jax.disable_jit():
            np.testing.assert_allclose(implicit(A, B), expected, rtol=1e-8)
        np.testing.assert_allclose(jax.grad(lambda b: implicit(A, b)[0])(B), np.linalg.inv(A)[0], rtol=1e-8)


def test_the_transpose_is_solved_by_transpose_solve():
    calls = []

    def named(name):
        def solve(matvec, b):
            calls.append(name)
            return jnp.linalg.solve(jax.jacfwd(matvec)(b), b)
        return solve
    with jax.enable_x64(True):
        program = jax.make_jaxpr(jax.grad(lambda b: lax.custom_linear_solve(lambda x: A @ x, b, named("solve"), named("transpose"))[1]))(B)
    assert calls == ["solve", "transpose"]                                       # each is recorded once
    solves = [eqn for eqn in program.eqns if eqn.primitive.name == "custom_linear_solve"]
    assert len(solves) == 2 and solves[0].params["solve"] is solves[1].params["transpose_solve"]
    transposed = lambda ct: jax.linear_transpose(lambda b: implicit(A, b), B)(ct)[0]
    with jax.enable_x64(True):
        np.testing.assert_allclose(transposed(B), np.linalg.solve(A.T, B), rtol=1e-8)
        np.testing.assert_allclose(jax.linear_transpose(transposed, B)(B)[0], np.linalg.solve(A, B), rtol=1e-8)


def test_a_symmetric_system_needs_one_solver():
    with jax.enable_x64(True):
        s = A + A.T
        found = jax.grad(lambda b: lax.custom_linear_solve(lambda x: s @ x, b, lambda mv, b: iterated(lambda x: mv(x) / 4, b / 4), symmetric=True)[2])(B)
        np.testing.assert_allclose(found, np.linalg.inv(s)[2], rtol=1e-8)


def test_b_may_be_a_pytree_and_solvers_return_aux():
    def both(scale, b):
        matvec = lambda x: {"u": scale * x["u"] + 0.5 * x["v"], "v": 0.25 * x["u"] + x["v"]}
        solver = lambda matvec, b: (iterated(matvec, b), {"size": jnp.sum(b["v"]), "steps": 3})
        return lax.custom_linear_solve(matvec, b, solver, solver, has_aux=True)
    with jax.enable_x64(True):
        b = {"u": np.array([1.0, 2.0]), "v": np.array([0.5, -1.0])}
        (x, aux), gradient = jax.value_and_grad(lambda s: (lambda x, aux: (jnp.sum(x["u"] + aux["size"]), aux))(*both(s, b)), has_aux=True)(2.0)
        assert aux["steps"] == 3 and aux["size"] == -0.5
        u = lambda s: np.linalg.solve([[s, 0.5], [0.25, 1.0]], [b["u"], b["v"]])[0].sum()
        np.testing.assert_allclose(gradient, (u(2 + 1e-5) - u(2 - 1e-5)) / 2e-5, rtol=1e-6)
        np.testing.assert_allclose(jax.vmap(both, (0, None))(jnp.array([2.0, 3.0]), b)[0]["u"].sum(1), [u(2), u(3)], rtol=1e-8)


def newton(f, x):
    return lax.while_loop(lambda x: jnp.abs(f(x)) > 1e-13, lambda x: x - f(x) / jax.grad(f)(x), x)


def cube_root(a):
    return lax.custom_root(lambda x: x ** 3 - a, 1.0, newton, lambda g, y: y / g(1.0))


def test_a_root_has_the_derivatives_of_the_implicit_function():
    with jax.enable_x64(True):
        points = jnp.array([1.0, 8.0, 2.5])

        def derivatives(root):
            third = jax.grad(jax.grad(jax.grad(root)))
            return [root(2.0), jax.grad(root)(2.0), jax.jvp(root, (2.0,), (3.0,)), third(2.0), jax.vmap(root)(points), jax.vmap(jax.grad(root))(points),
                    jax.grad(lambda a: jnp.sum(jax.vmap(root)(a * points)))(1.0), jax.grad(lambda a: lax.scan(lambda c, _: (root(c + a), None), a, None, length=2)[0])(2.0)]
        found, expected = folded(lambda: (derivatives(cube_root), derivatives(jnp.cbrt)))()
        assert_close(found, expected)
        np.testing.assert_allclose(jax.pmap(jax.grad(cube_root))(points), jax.vmap(jax.grad(jnp.cbrt))(points), rtol=1e-8)
        with jax.disable_jit():
            np.testing.assert_allclose(cube_root(8.0), 2.0)


def test_a_root_of_several_variables_by_iterative_solvers():
    def fixed_point(w):                                                          # x = tanh(W x + 1)
        f = lambda p: {"x": jnp.tanh(w @ p["x"] + 1) - p["x"]}
        solve = lambda f, p: (lax.fori_loop(0, 60, lambda _, p: {"x": p["x"] + f(p)["x"]}, p), 7)
        tangent = lambda g, y: jax.tree.map(jnp.negative, lax.custom_linear_solve(lambda v: jax.tree.map(jnp.negative, g(v)), y, iterated, iterated))
        return lax.custom_root(f, {"x": jnp.zeros(3)}, solve, tangent, has_aux=True)

    def unrolled(w):
        x = jnp.zeros(3)
        return lax.fori_loop(0, 60, lambda _, x: jnp.tanh(w @ x + 1), x)
    with jax.enable_x64(True):
        w = A / 8

        def derivatives(f):
            loss = lambda w: jnp.sum(f(w) ** 2)
            return [f(w), jax.grad(loss)(w), jax.jvp(jax.grad(loss), (w,), (w * w,))[1], jax.vmap(jax.grad(loss))(jnp.stack([w, w.T]))]
        found, expected = folded(lambda: (derivatives(lambda w: fixed_point(w)[0]["x"]), derivatives(unrolled)))()
        assert_close(found, expected, 1e-7)
        assert fixed_point(w)[1] == 7


def test_errors_say_what_does_not_fit():
    two, solve = jnp.ones(2), lambda matvec, b: b
    linear = lambda x: 2 * x

    def message(error, fun, *args, **kwargs):
        with pytest.raises(error) as caught:
            fun(*args, **kwargs)
        return str(caught.value)
    assert "matvec must return the structure of b, PyTreeDef(*), but returns PyTreeDef({'a': *})" in message(
        TypeError, lax.custom_linear_solve, lambda x: {"a": x}, two, solve)
    assert "where b['k'] is f32[2] it returns f32[1]" in message(ValueError, lax.custom_linear_solve, lambda x: {"k": x["k"][:1]}, {"k": two}, solve)
    assert "solve must return values of the shapes and dtypes of b, but where b is f32[2] it returns f32[1]" in message(
        ValueError, lax.custom_linear_solve, linear, two, lambda matvec, b: b[:1])
    assert "applies it to ['f32[3]']" in message(TypeError, lax.custom_linear_solve, linear, two, lambda matvec, b: matvec(jnp.ones(3)))
    assert "solve must return a pair (solution, aux)" in message(TypeError, lax.custom_linear_solve, linear, two, solve, has_aux=True)
    assert "b is i32[2]" in message(TypeError, lax.custom_linear_solve, linear, jnp.ones(2, int), solve)
    assert "matvec has no transpose, so it is not linear" in message(TypeError, lax.custom_linear_solve, jnp.sin, two, solve, solve)
    assert "needs transpose_solve" in message(TypeError, jax.grad(lambda b: lax.custom_linear_solve(linear, b, solve).sum()), two)
    assert "custom_linear_solve: transpose_solve must be a function" in message(TypeError, lax.custom_linear_solve, linear, two, solve, 3)
    identity = lambda f, x: x
    assert "f must return values of the shapes and dtypes of initial_guess" in message(ValueError, lax.custom_root, lambda x: x[:1], two, identity, identity)
    assert "solve must return the structure of initial_guess" in message(TypeError, lax.custom_root, linear, two, lambda f, x: (x, x), identity)
    assert "tangent_solve must return values of the shapes and dtypes of initial_guess" in message(
        ValueError, jax.jacfwd(lambda a: lax.custom_root(lambda x: x - a, two, identity, lambda g, y: y[0])), two)
