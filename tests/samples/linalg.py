"""Samples of the decompositions of matrices."""
import numpy as np
import scipy.linalg

import mini_jax.numpy as jnp
from mini_jax.lax.linalg.condensed import hessenberg_p, tridiagonal_p
from mini_jax.lax.linalg.eigen import eig_p, eigh_p
from mini_jax.lax.linalg.lu import solve
from mini_jax.lax.linalg.matrices import adjoint as adjoint_, product, rows_of
from mini_jax.lax.linalg.qr import householder_product_p
from mini_jax.lax.linalg.schur import schur_p
from mini_jax.lax.linalg.svd import svd_p
from mini_jax.lax.shapes import convert_element_type
from tests.samples import Sample, constant, uniform


def matrices(m: int = 3, n: int = 3, batch: tuple = (2,), permuted: bool = False):
    """Well-conditioned matrices, for which elimination would choose the diagonal; with rows exchanged, to be exchanged back."""
    noise = uniform(-1, 1, (*batch, m, n))
    def draw(rng, dtype):
        x = (noise(rng, dtype) + 3 * np.eye(m, n)).astype(dtype)
        return np.roll(x, 1, -2) if permuted else x
    return draw


def positive(n: int = 3):
    noise = uniform(-1, 1, (2, n, n))
    def draw(rng, dtype):
        x = noise(rng, dtype)
        return (x @ np.conj(x.swapaxes(-1, -2)) + 2 * np.eye(n)).astype(dtype)
    return draw


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def from_lower(x):
    below = np.tril(x, -1)
    return below + adjoint(below) + np.eye(x.shape[-1]) * x.real


def triangular_solve(a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        a = a * (1 - np.eye(a.shape[-1])) + np.eye(a.shape[-1])
    a = a.swapaxes(-1, -2) if transpose_a else a
    a = np.conj(a) if conjugate_a else a
    return np.linalg.solve(a, b) if left_side else np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)


def lu(x):
    """SciPy's, as what LAPACK returns."""
    m, n = x.shape[-2:]
    results = [scipy.linalg.lu_factor(each) for each in x.reshape(-1, m, n)]
    factors, pivots = [np.stack(parts) for parts in zip(*results)]
    return [factors.reshape(x.shape), pivots.reshape(*x.shape[:-2], -1), permutation(pivots, permutation_size=m).reshape(x.shape[:-1])]


def permutation(pivots, *, permutation_size):
    found = np.tile(np.arange(permutation_size), (*pivots.shape[:-1], 1))
    for row, exchanges in zip(found.reshape(-1, permutation_size), pivots.reshape(-1, pivots.shape[-1])):
        for i, j in enumerate(exchanges):
            row[[i, j]] = row[[j, i]]
    return found


SYSTEM = np.array([[0.5, 3, 1], [1, -0.5, 4], [2, 1, 1]])
FACTORS, _, ORDER = lu(SYSTEM)


def flags(**on):
    return {"left_side": False, "lower": False, "transpose_a": False, "conjugate_a": False, "unit_diagonal": False, **on}


def spaced(n: int = 3):
    """Matrices whose eigenvalues lie apart."""
    noise = uniform(-0.5, 0.5, (2, n, n))
    return lambda rng, dtype: (noise(rng, dtype) + np.diag([1.0, -2.0, 4.0, 8.0][:n])).astype(dtype)


def scaled_sum(left, scale, right):
    """left diag(scale) right: what does not depend on the phases of the vectors."""
    scale = convert_element_type(scale, left.dtype)
    return product(left * rows_of(scale, left.shape), right)


def eigh(lower, of=lambda w: w * w * w):
    """Eigenvalues and v diag(w³) vᴴ, of matrices of which one triangle is read."""
    def call(x):
        v, w = eigh_p.bind(x, lower=lower)
        return [w, scaled_sum(v, of(w), adjoint_(v))]

    def reference(x):
        x = from_lower(x if lower else adjoint(x))
        return [np.linalg.eigvalsh(x), x @ x @ x]
    return call, reference


def svd(**params):
    """Singular values and u diag(s³) vᴴ = x xᴴ x."""
    def call(x):
        s, *uv = svd_p.bind(x, **params)
        k = s.shape[-1]
        return [s, *([scaled_sum(uv[0][..., :k], s * s * s, uv[1][..., :k, :])] if uv else [])]
    return call, lambda x: [np.linalg.svd(x, compute_uv=False), *([x @ adjoint(x) @ x] if params["compute_uv"] else [])]


def eig(left, right, enable_eigvec_derivs=True):
    """The sums of the cubes of the eigenvalues, and the projections on eigenspaces, weighted by place: free of phases and norms."""
    def call(x):
        w, *vectors = eig_p.bind(x, left=left, right=right, enable_eigvec_derivs=enable_eigvec_derivs)
        return [(w * w * w).sum(-1), *[scaled_sum(v, abs(w), adjoint_(v)) for v in vectors]]

    def reference(x):
        w, v = np.linalg.eig(x)
        _, u = np.linalg.eig(adjoint(x))
        left_values = np.abs(np.linalg.eig(adjoint(x))[0])
        weighted = lambda v, w: (v * w[..., None, :]) @ adjoint(v)
        return [(w ** 3).sum(-1), *[weighted(u, left_values)] * left, *[weighted(v, np.abs(w))] * right]
    return call, reference


def qr(x, *, pivoting, full_matrices):
    if pivoting:
        return [np.stack(parts) for parts in zip(*[scipy.linalg.qr(each, pivoting=True, mode="full" if full_matrices else "economic") for each in x])]
    return list(np.linalg.qr(x, mode="complete" if full_matrices else "reduced"))


def householder_product(a, taus):
    """The product of the reflections, one after the other."""
    m, n = a.shape[-2:]
    found = np.zeros(a.shape, np.result_type(a, taus))
    for at in np.ndindex(a.shape[:-2]):
        whole = np.eye(m)
        for i, tau in enumerate(taus[at]):
            v = np.concatenate([np.zeros(i), [1], a[at][i + 1:, i]])
            whole = whole @ (np.eye(m) - tau * np.outer(v, np.conj(v)))
        found[at] = whole[:, :n]
    return found


def reflections(a, taus):
    """The product of all reflections, square."""
    return householder_product(np.concatenate([a, np.zeros((*a.shape[:-1], a.shape[-2] - a.shape[-1]))], -1), taus)


def ormqr(a, taus, c, *, left, transpose):
    q = reflections(a, taus)
    q = adjoint(q) if transpose else q
    return q @ c if left else c @ q


def hessenberg_call(x):
    """q h qᴴ, which is x."""
    h, taus = hessenberg_p.bind(x)
    n = h.shape[-1]
    inner = householder_product_p.bind(h[..., 1:, :-1], taus)
    q = jnp.broadcast_to(jnp.eye(n, dtype=h.dtype), h.shape).at[..., 1:, 1:].set(inner)
    return [product(product(q, jnp.triu(h, -1)), adjoint_(q))]


def tridiagonal_call(lower):
    """The sums of the diagonal and of the squares of the entries of the tridiagonal matrix: what is free of q."""
    def call(x):
        _, d, e, _ = tridiagonal_p.bind(x, lower=lower)
        return [d.sum(-1), (d * d).sum(-1) + 2 * (e * e).sum(-1)]

    def reference(x):
        x = from_lower(x if lower else adjoint(x))
        return [np.trace(x, axis1=-2, axis2=-1).real, (abs(x) ** 2).sum((-2, -1))]
    return call, reference


def tridiagonal_solve(dl, d, du, b, *, perturb_singular):
    eye = lambda k: np.eye(d.shape[-1], k=k)
    return np.linalg.solve(d[..., None] * eye(0) + dl[..., None] * eye(-1) + du[..., None] * eye(1), b)


def cholesky_update(r, w):
    r = np.triu(r)
    return np.linalg.cholesky(r.swapaxes(-1, -2) @ r + w[..., :, None] * w[..., None, :]).swapaxes(-1, -2)


REAL = frozenset([np.dtype(np.float32), np.dtype(np.float64)])


def schur_call(x):
    t, z = schur_p.bind(x, compute_schur_vectors=True)
    return [product(product(z, t), adjoint_(z))]


SAMPLES = {
    "triangular_solve": [
        Sample((matrices(), uniform(shape=(2, 4, 3) if not on.get("left_side") else (2, 3, 4))), flags(**on), reference=triangular_solve,
               tolerance=16, linear=((1,),))
        for on in ({"left_side": True, "lower": True}, {"left_side": True, "transpose_a": True, "conjugate_a": True}, {},
                   {"lower": True, "conjugate_a": True, "unit_diagonal": True},
                   {"left_side": True, "lower": True, "transpose_a": True, "unit_diagonal": True})],
    "cholesky": [Sample((positive(),), reference=lambda x: np.linalg.cholesky(from_lower(x)), tolerance=16)],
    "lu": [Sample((matrices(m, n, permuted=True),), reference=lu, tolerance=16) for m, n in ((3, 3), (4, 3), (3, 4))],
    "lu_pivots_to_permutation": [Sample((constant([[2, 3, 2], [0, 1, 2]], np.int32),), {"permutation_size": 4}, reference=permutation)],
    "lu_solve": [
        Sample((constant(SYSTEM), constant(FACTORS), constant(ORDER, np.int32), uniform(shape=(3, 2))), {"transpose_a": flag},
               reference=lambda a, _, __, b, transpose_a: np.linalg.solve(a.T if transpose_a else a, b), tolerance=16, differentiable=(3,),
               linear=((3,),)) for flag in (False, True)] + [
        Sample((matrices(permuted=True), uniform(shape=(2, 3, 2))), reference=np.linalg.solve, tolerance=16, linear=(), call=solve)],
    "qr": [Sample((matrices(m, n),), {"pivoting": pivoting, "full_matrices": full}, reference=qr, tolerance=32)
           for m, n, pivoting, full in ((3, 3, False, True), (4, 3, False, False), (3, 4, False, True), (4, 3, True, False))] + [
        Sample((matrices(4, 3),), {"pivoting": False, "full_matrices": True}, reference=qr, tolerance=32, order=0)],
    "householder_product": [Sample((uniform(shape=(2, 4, 3)), uniform(0.5, 1.5, shape=(2, k))), reference=householder_product, tolerance=64, linear=())
                            for k in (3, 2)],
    "eigh": [Sample((spaced(),), call=eigh(lower)[0], reference=eigh(lower)[1], tolerance=256) for lower in (True, False)],
    "eig": [Sample((spaced(),), call=eig(*sides)[0], reference=eig(*sides)[1], tolerance=512)
            for sides in ((True, True), (False, False))],
    "svd": [Sample((matrices(m, n),), call=svd(**params)[0], reference=svd(**params)[1], tolerance=256, order=order)
            for m, n, params, order in (
                (3, 3, {"full_matrices": True, "compute_uv": True, "iterate": False}, 2),
                (4, 3, {"full_matrices": False, "compute_uv": True, "iterate": False}, 2),
                (3, 4, {"full_matrices": False, "compute_uv": True, "iterate": True}, 2),
                (3, 4, {"full_matrices": True, "compute_uv": True, "iterate": False}, 0),
                (3, 4, {"full_matrices": True, "compute_uv": False, "iterate": False}, 2))],
    "ormqr": [Sample((uniform(shape=(2, 4, 3)), uniform(0.5, 1.5, shape=(2, 3)), uniform(shape=(2, 4, 5) if left else (2, 5, 4))),
                     {"left": left, "transpose": transpose}, reference=ormqr, tolerance=64, differentiable=(2,), linear=((2,),))
              for left, transpose in ((True, True), (False, False))],
    "hessenberg": [Sample((spaced(),), call=hessenberg_call, reference=lambda x: [x], tolerance=64)],
    "tridiagonal": [Sample((spaced(),), call=tridiagonal_call(lower)[0], reference=tridiagonal_call(lower)[1], tolerance=256) for lower in (True, False)],
    "tridiagonal_solve": [Sample((uniform(shape=(2, 4)), uniform(3, 5, shape=(2, 4)), uniform(shape=(2, 4)), uniform(shape=(2, 4, 3))),
                                 {"perturb_singular": flag}, reference=tridiagonal_solve, tolerance=16, linear=((3,),), dtypes=REAL if flag else None)
                          for flag in (False, True)],
    "cholesky_update": [Sample((matrices(), uniform(shape=(2, 3))), reference=cholesky_update, tolerance=32, linear=())],
    "schur": [Sample((spaced(),), call=schur_call, reference=lambda x: [x], tolerance=128)],
}
