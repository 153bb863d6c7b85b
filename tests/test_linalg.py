"""Laws of linear algebra: decompositions put together again, hard cases (singular, empty, NaN), derivatives, NumPy's names."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.lax import linalg
from mini_jax.test_util import check_grads

QUICK = {"xla_backend_optimization_level": 0}
KINDS = [np.float32, np.float64, np.complex64, np.complex128]


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def drawn(*shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(np.asarray(x), -1, -2))


def close(actual, expected, factor=200.0):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    eps = np.finfo(actual.dtype).eps
    assert np.allclose(actual, expected, rtol=factor * eps, atol=factor * eps * max(1, np.abs(expected).max(initial=0)), equal_nan=True), (actual, expected)


# --- decompositions put together again --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", KINDS)
def test_factors_multiply_to_the_matrix(dtype):
    square, tall, wide = drawn(2, 4, 4, dtype=dtype), drawn(2, 5, 3, dtype=dtype), drawn(2, 3, 5, dtype=dtype)
    hermitian = square + adjoint(square)
    positive = square @ adjoint(square) + np.eye(4, dtype=dtype)

    def all_of_them(square, tall, wide, hermitian, positive):
        both = lambda f: [f(tall), f(wide)]
        return (linalg.cholesky(positive), both(linalg.lu), both(linalg.qr), both(lambda x: linalg.qr(x, full_matrices=False, pivoting=True)),
                both(linalg.svd), both(lambda x: linalg.svd(x, full_matrices=False, algorithm=linalg.SvdAlgorithm.QR)), linalg.eigh(hermitian),
                linalg.eig(square), linalg.schur(square))
    l, lus, qrs, pivoted, svds, thin, (v, w), (values, vl, vr), (t, z) = jax.jit(all_of_them, compiler_options=QUICK)(
        square, tall, wide, hermitian, positive)
    close(l @ adjoint(l), positive)
    assert (np.triu(l, 1) == 0).all()
    for x, (factors, pivots, order) in zip((tall, wide), lus):
        k = min(x.shape[-2:])
        lower, upper = np.tril(factors, -1)[..., :k] + np.eye(x.shape[-2], k, dtype=dtype), np.triu(factors)[..., :k, :]
        close(lower @ upper, np.take_along_axis(x, np.asarray(order)[..., None], 1))
        assert np.array_equal(linalg.lu_pivots_to_permutation(pivots, x.shape[-2]), order)
    for x, (q, r) in zip((tall, wide), qrs):
        close(q @ r, x)
        close(adjoint(q) @ q, np.broadcast_to(np.eye(x.shape[-2], dtype=dtype), q.shape))
        assert (np.tril(r, -1) == 0).all()
    for x, (q, r, order) in zip((tall, wide), pivoted):
        close(q @ r, np.take_along_axis(x, np.asarray(order)[:, None], 2))
        sizes = np.abs(np.diagonal(r, 0, 1, 2))
        assert (np.diff(sizes) <= 1e-5).all()
    for x, (u, s, vh) in [*zip((tall, wide), svds), *zip((tall, wide), thin)]:
        k = s.shape[-1]
        close(u[..., :k] * s[:, None] @ vh[:, :k], x)
        close(adjoint(u) @ u, np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), (2, u.shape[-1], u.shape[-1])))
    close(hermitian @ v, v * w[:, None])
    assert (np.diff(w) >= 0).all() and w.dtype == l.real.dtype
    close(square @ vr, vr * values[:, None])
    close(adjoint(vl) @ square, np.asarray(values)[..., None] * adjoint(vl))
    close(z @ t @ adjoint(z), square)


# --- hard cases -----------------------------------------------------------------------------------------------------------------------------

def test_what_fails_is_nan_and_only_that_matrix():
    x = np.stack([np.eye(3), np.full((3, 3), np.nan), [[1, 2, 0], [2, 1, 0], [0, 0, 1]]])
    l = np.asarray(linalg.cholesky(x))
    assert np.isnan(l[1][np.tril_indices(3)]).all() and np.isnan(l[2][np.tril_indices(3)]).all() and (l[0] == np.eye(3)).all()
    for f in (linalg.eigh, linalg.eig, linalg.svd, linalg.schur):
        for y in jax.tree.leaves(f(x)):
            assert np.isnan(y[1]).all() and np.isfinite(y[0]).all() and np.isfinite(y[2]).all(), f


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 2, 2)])
def test_no_matrices_and_matrices_without_entries(shape):
    x = np.zeros(shape)
    for f in (linalg.cholesky, linalg.eigh, linalg.eig, linalg.svd, linalg.schur, linalg.lu, linalg.qr, jnp.linalg.inv, jnp.linalg.pinv):
        assert all([y.size == 0 for y in jax.tree.leaves(f(x))]), f
    assert (np.asarray(jnp.linalg.det(x)) == np.linalg.det(x)).all()
    assert linalg.triangular_solve(x, np.zeros((*shape[:-1], 3)), left_side=True).shape == (*shape[:-1], 3)


def test_rectangles_without_entries():
    for m, n in ((3, 0), (0, 3)):
        x = np.zeros((m, n))
        u, s, vh = linalg.svd(x)
        q, r = linalg.qr(x)
        assert (np.asarray(u) == np.eye(m)).all() and s.shape == (0,) and (np.asarray(vh) == np.eye(n)).all()
        assert (np.asarray(q) == np.eye(m)).all() and r.shape == (m, n)
        assert np.asarray(linalg.lu(x)[2]).tolist() == list(range(m))


def test_singular_systems_have_no_finite_solution():
    singular = np.ones((3, 3))
    x = np.asarray(jnp.linalg.solve(singular, np.arange(3.0)))
    assert not np.isfinite(x).any()
    sign, logarithm = jnp.linalg.slogdet(singular)
    assert sign == 0 and logarithm == -np.inf and jnp.linalg.det(singular) == 0 and jnp.linalg.cond(np.zeros((2, 2))) == np.inf


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="square"):
        linalg.cholesky(np.ones((2, 3)))
    with pytest.raises(TypeError, match="at least two dimensions"):
        linalg.svd(np.ones(3))
    with pytest.raises(TypeError, match="float16 is not accepted"):
        linalg.lu(np.ones((2, 2), np.float16))
    with pytest.raises(ValueError, match="Incompatible shapes"):
        linalg.triangular_solve(np.eye(2), np.ones((3, 3)))
    with pytest.raises(TypeError, match="one dtype"):
        linalg.triangular_solve(np.eye(2), np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match=r"\[..., n, n\]"):
        jnp.linalg.inv(np.ones((2, 3)))
    with pytest.raises(ValueError, match="right side"):
        jnp.linalg.solve(np.eye(3), np.ones(2))
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs"):
        jax.jvp(lambda x: linalg.eig(x), (np.eye(2),), (np.eye(2),))
    with pytest.raises(NotImplementedError, match="full_matrices"):
        jax.jvp(linalg.svd, (np.ones((2, 3)),), (np.ones((2, 3)),))


# --- derivatives ------------------------------------------------------------------------------------------------------------------------------

def test_eigenvalues_have_derivatives_where_they_coincide_and_eigenvectors_not():
    one = np.eye(3)
    direction = np.diag([1.0, 2.0, 3.0])
    (_, _), (dv, dw) = jax.jvp(linalg.eigh, (one,), (direction,))
    assert sorted(np.asarray(dw).tolist()) == [1, 2, 3]
    assert not np.isfinite(np.asarray(dv)[0, 1])
    assert np.isfinite(jax.grad(lambda x: jnp.linalg.eigvalsh(x).sum())(one)).all()


def test_the_determinant_has_a_derivative_where_it_is_zero():
    a = drawn(4, 4)
    a[3] = a[0] + a[1]
    minors = np.array([[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(4)] for i in range(4)])
    close(jax.grad(jnp.linalg.det)(a), minors)
    assert (np.asarray(jax.grad(jnp.linalg.det)(np.zeros((4, 4)))) == 0).all()


def test_inverses_and_solutions_have_derivatives_of_first_and_second_order():
    a, b, tall = drawn(3, 3, seed=1) + 3 * np.eye(3), drawn(3, 2), drawn(4, 3)
    check_grads(lambda a, b: jnp.linalg.solve(a, b), (a, b), 2)
    check_grads(lambda a: (jnp.linalg.inv(a), jnp.linalg.slogdet(a)[1], jnp.linalg.pinv(tall * a[0])), (a,), 2)
    check_grads(lambda t, b: jnp.linalg.lstsq(t, b)[0], (tall, drawn(4)), 1)


# --- NumPy's names ------------------------------------------------------------------------------------------------------------------------------

def test_systems_of_every_shape():
    a, many, b = drawn(3, 3), drawn(2, 3, 3), drawn(5, 1, 3, 4)
    for x, y in ((a, b), (many, b), (a, b[0, 0, :, 0]), (many, b[0, 0]), (a.astype(np.complex64), b)):
        expected = np.linalg.solve(x, y)
        close(jnp.linalg.solve(x, y), expected, 1e4)
    close(jax.vmap(jnp.linalg.solve, (None, 1), 1)(a, b[0, 0]), np.linalg.solve(a, b[0, 0]))


def test_the_rest_is_numpys():
    a, tall, b = drawn(4, 4), drawn(2, 5, 3), drawn(5, 2)
    low = tall[0] @ drawn(3, 4, seed=1)
    for f in ("inv", "pinv", "det"):
        close(getattr(jnp.linalg, f)(a), getattr(np.linalg, f)(a), 1e4)
    close(jnp.linalg.pinv(tall), np.linalg.pinv(tall), 1e4)
    close(jnp.linalg.pinv(a + a.T, hermitian=True), np.linalg.pinv(a + a.T), 1e5)
    for got, expected in zip(jnp.linalg.lstsq(tall[0], b), np.linalg.lstsq(tall[0], b, rcond=None)):
        assert np.allclose(got, expected)
    for rcond in (-1, 0.9):
        assert jnp.linalg.lstsq(low, b, rcond)[2] == np.linalg.lstsq(low, b, rcond)[2]
    assert jnp.linalg.lstsq(low, b, numpy_resid=True)[1].size == 0 and jnp.linalg.matrix_rank(low) == 3
    assert jnp.linalg.matrix_rank(tall).tolist() == [3, 3] and jnp.linalg.matrix_rank(np.zeros(3)) == 0
    for p in (None, 2, -2, 1, np.inf, "fro"):
        assert np.allclose(jnp.linalg.cond(a, p), np.linalg.cond(a, p))
    for order in (2, -2, "nuc"):
        assert np.allclose(jnp.linalg.norm(tall, order, (0, 2)), np.linalg.norm(tall, order, (0, 2)))
    close(jnp.linalg.matrix_power(a, -3), np.linalg.matrix_power(a, -3), 1e4)
    close(jnp.linalg.tensorsolve(drawn(2, 3, 6), drawn(2, 3)), np.linalg.tensorsolve(drawn(2, 3, 6), drawn(2, 3)), 1e4)
    close(jnp.linalg.tensorinv(drawn(2, 3, 6)), np.linalg.tensorinv(drawn(2, 3, 6)), 1e4)
    close(jnp.linalg.cholesky(a @ a.T, upper=True), np.linalg.cholesky(a @ a.T).T, 1e4)
    close(jnp.linalg.svdvals(tall), np.linalg.svd(tall, compute_uv=False))
    u, s, vh = jnp.linalg.svd(a + a.T, hermitian=True)
    close(u * s @ vh, a + a.T)
    assert np.allclose(np.sort_complex(jnp.linalg.eigvals(a)), np.sort_complex(np.linalg.eigvals(a)))
    assert jnp.linalg.eigh(a).eigenvalues.shape == (4,) and jnp.linalg.qr(tall).Q.shape == (2, 5, 3) and jnp.linalg.qr(tall, "r").shape == (2, 3, 3)
    sign, logarithm = jnp.linalg.slogdet(a.astype(complex) * 1j)
    assert np.allclose((sign, logarithm), np.linalg.slogdet(a.astype(complex) * 1j))
