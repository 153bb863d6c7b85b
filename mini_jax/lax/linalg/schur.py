"""Reductions to triangular form: the Schur decomposition."""
from __future__ import annotations

from mini_jax.core.primitive import Primitive
from mini_jax.core.types import array_type
from mini_jax.lax.linalg.matrices import LAPACK, check_matrix, leading_batch

__all__ = ["schur", "schur_p"]

schur_p = Primitive("schur", multiple_results=True, facts={"family": "linalg", "dtypes": LAPACK, "differentiable": False})


def schur(x, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable=None):
    """[t, z] with x = z t zᴴ, z unitary, t upper triangular; without compute_schur_vectors, [t].

    x: (..., n, n). Of a real x, z and t are real, and t has 2 × 2 blocks on its diagonal for pairs of complex eigenvalues. Where it does not
    converge, and for NaN, the results are NaN. Not differentiable. Raises TypeError for other dtypes than float32, float64, complex64 and
    complex128 and fewer than two dimensions, ValueError for matrices that are not square, NotImplementedError for an order of eigenvalues
    (sort_eig_vals, select_callable). (LAPACK: gees)
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError("lax.linalg.schur: the kernel leaves eigenvalues in the order in which it finds them; sort_eig_vals must be False "
                                  "and select_callable None")
    return schur_p.bind(x, compute_schur_vectors=bool(compute_schur_vectors))


def _type(x, *, compute_schur_vectors):
    check_matrix("schur", x, square=True)
    return [array_type(x.shape, x.dtype)] * (1 + compute_schur_vectors)


schur_p.type_rule, schur_p.batch = _type, leading_batch(schur_p)
