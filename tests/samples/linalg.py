"""Samples of the decompositions of matrices."""
import numpy as np
import scipy.linalg

from mini_jax.core import dtypes
from mini_jax.lax.linalg.lu import solve
from tests.samples import Sample, constant, uniform

REAL, COMPLEX = frozenset([dtypes.float32, dtypes.float64]), frozenset([dtypes.complex64, dtypes.complex128])


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
}
