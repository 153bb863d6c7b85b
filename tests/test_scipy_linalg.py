"""scipy.linalg: SciPy's results, decompositions put together again, derivatives, batches."""
import numpy as np
import pytest
import scipy.linalg

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.scipy import linalg
from mini_jax.test_util import check_grads

RNG = np.random.default_rng(0)
A, B, V = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 2)), RNG.normal(size=4)
Z, P = A + 1j * RNG.normal(size=(4, 4)), A @ A.T + np.eye(4)
H, HP = Z + Z.conj().T, Z @ Z.conj().T + np.eye(4)
TALL, D, E = RNG.normal(size=(5, 3)), RNG.normal(size=6), RNG.normal(size=5)
MATRICES = {"square": A, "tall": TALL, "wide": TALL.T, "complex": Z}


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def compare(run, tolerance=1e-9):
    """run(module, matrices…): what it gives with ours, in one program, and with SciPy's; dictionaries of results."""
    got = jax.jit(lambda: run(linalg, jnp))()
    for name, wanted in run(scipy.linalg, np).items():
        for g, w in zip(jax.tree.leaves(got[name]), jax.tree.leaves(wanted), strict=True):
            w = np.asarray(w)
            assert g.shape == w.shape, name
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance, err_msg=name)


def test_systems_of_equations():
    def run(l, n):
        found = {f"solve {a}": (l.solve(P, B, assume_a=a), l.solve(P, V, assume_a=a)) for a in ("gen", "sym", "her", "pos")}
        found |= {f"triangular {t} {lower}": (l.solve_triangular(Z, B, t, lower), l.solve_triangular(Z, V, t, lower, unit_diagonal=True))
                  for t in (0, 1, 2, "N", "T", "C") for lower in (False, True)}
        found |= {f"cho {lower}": (l.cho_solve(l.cho_factor(HP, lower), B), l.cho_solve(l.cho_factor(HP, lower), V), l.cholesky(HP, lower)) for lower in (False, True)}
        found |= {f"lu {t}": (l.lu_solve(l.lu_factor(Z), B, t), l.lu_solve(l.lu_factor(Z), V, t)) for t in (0, 1, 2)}
        return found | {"inv": l.inv(A), "det": l.det(A), "lu_factor": l.lu_factor(Z), "sylvester": l.solve_sylvester(A, P, B @ B.T), "sylvester complex": l.solve_sylvester(Z, P[:3, :3], np.ones((4, 3)))}
    compare(run)
    assert np.isnan(linalg.solve_sylvester(np.eye(2), -np.eye(2), np.eye(2))).all()
    batch = np.stack([P, 2 * P])
    for x in (linalg.solve(batch, B, assume_a="pos"), linalg.cho_solve(linalg.cho_factor(batch), B), linalg.lu_solve(linalg.lu_factor(batch), B)):
        np.testing.assert_allclose(x, np.linalg.solve(batch, B))


def test_decompositions():
    def run(l, n):
        found = {}
        for name, m in MATRICES.items():
            found[name] = [l.lu(m), l.lu(m, permute_l=True), l.svd(m, compute_uv=False), l.polar(m), l.polar(m, "left"),
                           [l.qr(m, mode=mode, pivoting=p) for mode in ("full", "economic", "r") for p in (False, True)],
                           [l.qr_multiply(m, np.ones((2, m.shape[0])) + V[0], "right"), l.qr_multiply(m, np.ones((min(m.shape), 2)) * V[1], "left", conjugate=True)]]
        return found | {"eigh": l.eigh(H, eigvals_only=True), **{f"eigh {t}": l.eigh(H, HP, eigvals_only=True, type=t) for t in (1, 2, 3)},
                        "tridiagonal": l.eigh_tridiagonal(D, E, eigvals_only=True), "some": l.eigh_tridiagonal(D, E, eigvals_only=True, select="i", select_range=(1, 3)),
                        "hessenberg": [abs(l.hessenberg(x)) for x in (A, Z)]}
    compare(run)
    adjoint = lambda x: np.conj(np.asarray(x)).T
    w, v = linalg.eigh(H, HP)
    np.testing.assert_allclose(H @ v, HP @ v * w, atol=1e-10)
    for m, output in ((A, "real"), (A, "complex"), (Z, "complex")):
        t, z = linalg.schur(m, output)
        np.testing.assert_allclose(z @ t @ adjoint(z), m, atol=1e-10)
    t, z = linalg.rsf2csf(*linalg.schur(A))
    np.testing.assert_allclose(z @ t @ adjoint(z), A, atol=1e-10)
    h, q = linalg.hessenberg(np.stack([A, P]), calc_q=True)
    np.testing.assert_allclose(q @ h @ np.swapaxes(q, 1, 2), np.stack([A, P]), atol=1e-10)


def test_functions_of_matrices():
    compare(lambda l, n: {"expm": [l.expm(A), l.expm(Z), l.expm(1e-3 * A), l.expm_frechet(A, P)], "batch": l.expm(np.stack([A, 0 * A])), "sqrtm": [l.sqrtm(P), l.sqrtm(Z)], "large": l.expm(20 * A) / np.exp(40)}, 1e-8)
    np.testing.assert_allclose(linalg.expm(np.triu(A), upper_triangular=True), scipy.linalg.expm(np.triu(A)))
    np.testing.assert_allclose(linalg.funm(A, jnp.exp), scipy.linalg.expm(A))
    assert np.isnan(linalg.expm(1e9 * A)).all() and linalg.expm(np.zeros((0, 0))).shape == (0, 0) and linalg.expm(A.astype(np.float32)).dtype == np.float32
    roots = np.asarray(linalg.sqrtm(np.stack([A, P])))
    np.testing.assert_allclose(roots @ roots, np.stack([A, P]), atol=1e-10)


def test_structured_matrices():
    def run(l, n):
        found = {f"{k}": [l.hilbert(k), l.invhilbert(k), l.helmert(k), l.helmert(k, True), [l.dft(k, s) for s in (None, "sqrtn", "n")],
                          [[l.pascal(k, kind), l.invpascal(k, kind)] for kind in ("symmetric", "upper", "lower")]] for k in (1, 2, 5)}
        return found | {"toeplitz": [l.toeplitz(V, D), l.toeplitz(Z[0])], "hankel": [l.hankel(V, D), l.hankel(V)], "circulant": l.circulant(V), "companion": l.companion(V),
                        "fiedler": [l.fiedler(V), *[l.fiedler_companion(D[:k]) for k in (2, 3, 4, 5, 6)]], "leslie": l.leslie(V, V[:3]), "hadamard": l.hadamard(8),
                        "blocks": [l.block_diag(1, B, V), l.block_diag()], "convolution": [l.convolution_matrix(V, k, mode) for k in (2, 4, 7) for mode in ("full", "same", "valid")]}
    compare(run)


def test_derivatives():
    check_grads(jax.jit(lambda a: [linalg.expm(a), linalg.solve_sylvester(a, P, B @ B.T)]), (A,), 2)
    check_grads(jax.jit(lambda a, b: [linalg.solve(a @ a.T, b, assume_a="pos"), linalg.cho_solve(linalg.cho_factor(a @ a.T), b), linalg.lu_solve(linalg.lu_factor(a), b, 1),
                                      linalg.solve_triangular(a, b), linalg.eigh(a @ a.T, P, eigvals_only=True), linalg.lu(a)[2], jnp.real(linalg.sqrtm(a @ a.T))]), (A, B), 1)


def test_bad_arguments():
    for call in (lambda: linalg.solve(A, B, assume_a="x"), lambda: linalg.solve_triangular(A, B, "X"), lambda: linalg.lu_solve(linalg.lu_factor(A), B, 3), lambda: linalg.solve_triangular(A, np.ones(3)),
                 lambda: linalg.qr(A, mode="raw"), lambda: linalg.schur(A, "other"), lambda: linalg.polar(A, "up"), lambda: linalg.expm(TALL), lambda: linalg.hadamard(3),
                 lambda: linalg.block_diag(np.ones((1, 1, 1))), lambda: linalg.eigh_tridiagonal(D, D), lambda: linalg.solve_sylvester(A, A, B)):
        with pytest.raises(ValueError):
            call()
