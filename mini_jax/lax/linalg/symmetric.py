"""Products of matrices that are symmetric."""
from __future__ import annotations

from mini_jax.core.trace import typeof
from mini_jax.lax.linalg.matrices import check_matrix, lower_triangle, product, transposed

__all__ = ["symmetric_product"]


def symmetric_product(a_matrix, c_matrix, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False):
    """α a aᵀ + β c, for a symmetric c.

    a_matrix: (..., m, n). c_matrix: (..., m, m). alpha, beta: numbers. symmetrize_output: the upper triangle is made equal to the lower one,
    which the caller may rely on in any case. Raises TypeError for dtypes that differ or are not float32, float64, complex64 or complex128,
    ValueError for shapes that don't fit. (BLAS: syrk)
    """
    a, c = typeof(a_matrix), typeof(c_matrix)
    check_matrix("symmetric_product", a)
    check_matrix("symmetric_product", c, square=True)
    where = f"lax.linalg.symmetric_product({a}, {c})"
    if a.dtype != c.dtype:
        raise TypeError(f"{where}: the operands must have one dtype")
    if c.shape[:-1] != a.shape[:-1]:
        raise ValueError(f"{where}: c_matrix must be (..., m, m) for a_matrix of shape (..., m, n)")
    out = product(a_matrix, transposed(a_matrix)) * a.dtype.type(alpha) + c_matrix * a.dtype.type(beta)
    return lower_triangle(out) + transposed(lower_triangle(out, -1)) if symmetrize_output else out
