"""scipy.sparse.linalg and scipy.optimize: solutions of systems and minima, their derivatives, on pytrees, in batches."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.scipy.optimize import minimize
from mini_jax.scipy.sparse import linalg
from mini_jax.test_util import check_grads

RNG = np.random.default_rng(0)
A, b = RNG.normal(size=(8, 8)), RNG.normal(size=8)
SYSTEMS = {"cg": A @ A.T + 8 * np.eye(8), "bicgstab": A + 6 * np.eye(8), "gmres": A + 6 * np.eye(8)}


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("method", SYSTEMS)
def test_solutions(method):
    solve, matrix = getattr(linalg, method), SYSTEMS[method]
    hermitian = matrix + 1j * RNG.normal(size=(8, 8))
    complex_matrix = hermitian @ hermitian.conj().T if method == "cg" else hermitian
    inverse = np.diag(1 / np.diag(matrix))
    tree = {"a": b[:3], "b": b[3:, None]}

    def product(t):
        y = matrix @ jnp.concatenate([t["a"], t["b"][:, 0]])
        return {"a": y[:3], "b": y[3:, None]}
    got = jax.jit(lambda: {
        "plain": solve(matrix, b, tol=1e-12)[0], "function": solve(lambda x: matrix @ x, b, x0=b, tol=1e-12)[0], "preconditioned": solve(matrix, b, M=inverse, tol=1e-12)[0],
        "complex": solve(complex_matrix, b + 1j * b[::-1], tol=1e-13)[0], "pytree": solve(product, tree, tol=1e-12)[0],
        "batch": jax.vmap(lambda b: solve(matrix, b, tol=1e-12)[0])(np.stack([b, 2 * b])), "zero": solve(matrix, 0 * b)[0],
        **({"restarted": solve(matrix, b, tol=1e-12, restart=4, maxiter=100, solve_method="incremental")[0]} if method == "gmres" else {})})()
    x = np.linalg.solve(matrix, b)
    got["pytree"] = np.concatenate([got["pytree"]["a"], got["pytree"]["b"][:, 0]])
    other = {"complex": np.linalg.solve(complex_matrix, b + 1j * b[::-1]), "batch": np.stack([x, 2 * x]), "zero": 0 * b}
    for name, value in got.items():
        np.testing.assert_allclose(value, other.get(name, x), rtol=1e-6, atol=1e-8, err_msg=name)
    symmetric = (lambda a: a + a.T) if method == "cg" else lambda a: a
    check_grads(jax.jit(lambda a, b: solve(lambda x: symmetric(a) @ x, b, tol=1e-13)[0]), (matrix, b), 2 if method == "cg" else 1)


def test_bad_systems():
    for call in (lambda: linalg.cg(A[:2], b), lambda: linalg.cg(A, b, x0=b[:2]), lambda: linalg.cg(A, b, x0={"a": b}), lambda: linalg.gmres(A, b, solve_method="x")):
        with pytest.raises(ValueError):
            call()


def test_minima():
    rosenbrock = lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    found = minimize(rosenbrock, np.array([-1.2, 1.0, 0.5]), method="BFGS")
    assert found.success and found.status == 0 and found.nfev < 150 and np.abs(found.x - 1).max() < 1e-4 and np.abs(found.jac).max() < 1e-5
    np.testing.assert_allclose(found.hess_inv, np.linalg.inv(jax.hessian(rosenbrock)(found.x)), rtol=0.2, atol=0.02)
    many = jax.jit(jax.vmap(lambda x: minimize(rosenbrock, x, method="bfgs").x))(np.array([[0.0, 0], [2.0, 2]]))
    assert np.abs(many - 1).max() < 1e-4
    himmelblau = lambda x, c: (x[0] ** 2 + x[1] - c) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2
    np.testing.assert_allclose(minimize(himmelblau, np.zeros(2), (11.0,), method="BFGS", tol=1e-7).x, [3, 2], atol=1e-6)
    short = minimize(rosenbrock, np.zeros(2, np.float32), method="BFGS", options={"maxiter": 3})
    assert short.x.dtype == np.float32 and not short.success and short.status == 1 and short.nit == 3
    for error, call in ((ValueError, lambda: minimize(rosenbrock, np.zeros(2), method="Nelder-Mead")), (TypeError, lambda: minimize(rosenbrock, np.zeros(2), [1], method="BFGS")),
                        (ValueError, lambda: minimize(rosenbrock, np.zeros((2, 2)), method="BFGS")), (TypeError, lambda: minimize(rosenbrock, np.zeros(2), method="BFGS", options={"x": 1}))):
        with pytest.raises(error):
            call()
