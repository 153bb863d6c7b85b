"""Matrices that a vector or a number determines: block diagonal, Toeplitz and Hankel, companions, Hilbert's and Pascal's, transforms."""
from __future__ import annotations

import functools
import math
import operator

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes
from mini_jax.runtime.dispatch import library

__all__ = ["block_diag", "toeplitz", "hankel", "circulant", "companion", "fiedler", "fiedler_companion", "leslie", "convolution_matrix",
           "hilbert", "invhilbert", "pascal", "invpascal", "dft", "hadamard", "helmert"]


@library
def block_diag(*arrs):
    """The matrix with these matrices on its diagonal, one after the other, and zeros. Vectors count as rows, numbers as 1 × 1.

    Without arguments, a matrix (1, 0). Raises ValueError for more than two dimensions.
    """
    blocks = [as_array(x) for x in promote_dtypes(*arraylike("block_diag", *arrs))] if arrs else [jnp.zeros((1, 0))]
    if any([x.ndim > 2 for x in blocks]):
        raise ValueError(f"block_diag: arguments must have at most two dimensions, got {', '.join([str(x.aval) for x in blocks])}")
    blocks = [jnp.atleast_2d(x) for x in blocks]
    width, left, rows = sum([x.shape[1] for x in blocks]), 0, []
    for x in blocks:
        rows.append(lax.pad(x, x.dtype.type(0), [(0, 0, 0), (left, width - left - x.shape[1], 0)]))
        left += x.shape[1]
    return jnp.concatenate(rows, 0)


# --- along diagonals -----------------------------------------------------------------------------------------------------------------------

def _vectors(name: str, *xs):
    """The arguments as vectors of one dtype, batched in their leading dimensions."""
    return [jnp.atleast_1d(x) for x in promote_dtypes(*arraylike(name, *xs))]


@library
def toeplitz(c, r=None):
    """The matrices (..., m, n) with entry ij = c[i - j], of first column c (..., m) and first row r (..., n), whose first entry is not used; r
    is the conjugate of c unless given."""
    c, r = _vectors("toeplitz", c, jnp.conj(c) if r is None else r)
    m, n = c.shape[-1], r.shape[-1]
    batch = jnp.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    c, r = jnp.broadcast_to(c, (*batch, m)), jnp.broadcast_to(r, (*batch, n))
    if not m or not n:
        return jnp.zeros((*batch, m, n), c.dtype)
    line = jnp.concatenate([r[..., :0:-1], c], -1)
    return line[..., np.arange(m)[:, None] - np.arange(n)[None] + n - 1]


@library
def hankel(c, r=None):
    """The matrices (..., m, n) with entry ij = (c, r[1:])[i + j], of first column c (..., m) and last row r (..., n), zero unless given."""
    c, r = _vectors("hankel", c, jnp.zeros_like(c) if r is None else r)
    m, n = c.shape[-1], r.shape[-1]
    batch = jnp.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    c, r = jnp.broadcast_to(c, (*batch, m)), jnp.broadcast_to(r, (*batch, n))
    return jnp.concatenate([c, r[..., 1:]], -1)[..., np.arange(m)[:, None] + np.arange(n)[None]]


@library
def circulant(c):
    """The matrices (..., n, n) with entry ij = c[(i - j) mod n], of first column c (..., n)."""
    c, = _vectors("circulant", c)
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)[None]) % max(n, 1)]


@functools.partial(library, static_argnames=("n", "mode"))
def convolution_matrix(a, n: int, mode: str = "full"):
    """The matrix M with M @ v = convolve(a, v, mode) for vectors v of size n. a: (..., m). mode: 'full', 'same' or 'valid'."""
    a, = _vectors("convolution_matrix", a)
    n, m = operator.index(n), a.shape[-1]
    if n <= 0:
        raise ValueError(f"n must be a positive integer, got {n}")
    if m == 0:
        raise ValueError("convolution_matrix: a must not be empty")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'full', 'same' and 'valid', got {mode!r}")
    size = {"full": m + n - 1, "same": max(m, n), "valid": max(m, n) - min(m, n) + 1}[mode]
    first = {"full": 0, "same": (min(m, n) - 1) // 2, "valid": min(m, n) - 1}[mode]
    place = np.arange(size)[:, None] + first - np.arange(n)[None]
    return jnp.where((place >= 0) & (place < m), a[..., np.clip(place, 0, m - 1)], 0)


# --- companions ----------------------------------------------------------------------------------------------------------------------------

@library
def companion(a):
    """The companion matrices (..., n-1, n-1) of polynomials of coefficients a (..., n), highest power first: first row -a[1:]/a[0], ones below the
    diagonal. Their eigenvalues are the roots. Raises ValueError for less than two coefficients."""
    a, = _vectors("companion", a)
    n = a.shape[-1]
    if n < 2:
        raise ValueError(f"companion: polynomials need at least two coefficients, got {a.aval}")
    first = -a[..., 1:] / a[..., :1]
    below = jnp.broadcast_to(jnp.eye(n - 2, n - 1, dtype=first.dtype), (*a.shape[:-1], n - 2, n - 1))
    return jnp.concatenate([first[..., None, :], below], -2)


@library
def fiedler(a):
    """The symmetric matrices (..., n, n) with entry ij = |aᵢ - aⱼ|, of a (..., n)."""
    a, = _vectors("fiedler", a)
    return jnp.abs(a[..., :, None] - a[..., None, :])


@library
def fiedler_companion(a):
    """The pentadiagonal companion matrix (n-1, n-1) of the polynomial of coefficients a (n), highest power first; its eigenvalues are the roots.

    Raises ValueError for more dimensions. (Fiedler 2003)
    """
    a, = _vectors("fiedler_companion", a)
    if a.ndim != 1:
        raise ValueError(f"fiedler_companion: a must be a vector, got {a.aval}")
    if a.size <= 2:
        return jnp.zeros((0, 0), a.dtype) if a.size < 2 else (-a[1:2] / a[0])[:, None]
    a = a / a[0]
    n = a.size - 1
    c = jnp.zeros((n, n), a.dtype)
    rows = np.arange(1, n, 2)
    c = c.at[0, 0].set(-a[1]).at[1, 0].set(1)
    even, odd = np.arange(0, n - 2, 2), np.arange(2, n, 2)
    c = c.at[rows - 1, rows].set(-a[rows + 1])
    c = c.at[even, even + 2].set(1)
    c = c.at[odd, odd - 1].set(-a[odd + 1])
    low = np.arange(1, n - 2, 2)
    return c.at[low + 2, low].set(1)


@library
def leslie(f, s):
    """The Leslie matrices (..., n, n) of a population: fecundities f (..., n) in the first row, survival rates s (..., n-1) below the diagonal.

    Raises ValueError for sizes that don't fit.
    """
    f, s = _vectors("leslie", f, s)
    n = f.shape[-1]
    if s.shape[-1] != n - 1 or n < 2:
        raise ValueError(f"leslie: f must have n ≥ 2 entries and s n - 1, got {f.aval} and {s.aval}")
    batch = jnp.broadcast_shapes(f.shape[:-1], s.shape[:-1])
    f, s = jnp.broadcast_to(f, (*batch, n)), jnp.broadcast_to(s, (*batch, n - 1))
    below = s[..., :, None] * jnp.eye(n - 1, n, dtype=f.dtype)
    return jnp.concatenate([f[..., None, :], below], -2)


# --- of a size -----------------------------------------------------------------------------------------------------------------------------

def _size(name: str, n) -> int:
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"{name}: the size must not be negative, got {n}")
    return n


def _floats(rows):
    return jnp.asarray(np.array(rows, np.float64).astype(dtypes.default_float()))


def hilbert(n: int):
    """The n × n matrix with entry ij = 1/(i + j + 1)."""
    i = np.arange(_size("hilbert", n))
    return _floats(1 / (i[:, None] + i[None] + 1.0))


def invhilbert(n: int):
    """The inverse of `hilbert`, exact integers as floating numbers:
    (-1)^(i+j) (i+j+1) C(n+i, n-j-1) C(n+j, n-i-1) C(i+j, i)²."""
    n = _size("invhilbert", n)
    entry = lambda i, j: (-1) ** (i + j) * (i + j + 1) * math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1) * math.comb(i + j, i) ** 2
    return _floats([[float(entry(i, j)) for j in range(n)] for i in range(n)] or np.zeros((0, 0)))


def pascal(n: int, kind: str | None = None):
    """The n × n matrix of binomial coefficients: C(i + j, i) ('symmetric', the default), or its Cholesky factor C(i, j) ('lower', 'upper')."""
    return _floats(_pascal("pascal", n, kind))


def _pascal(name, n, kind):
    n, kind = _size(name, n), "symmetric" if kind is None else kind
    entry = {"symmetric": lambda i, j: math.comb(i + j, i), "lower": math.comb, "upper": lambda i, j: math.comb(j, i)}.get(kind)
    if entry is None:
        raise ValueError(f"Expected kind to be on of: 'symmetric', 'lower', 'upper'; got {kind!r}")
    return np.array([[float(entry(i, j)) for j in range(n)] for i in range(n)]).reshape(n, n)


def invpascal(n: int, kind: str | None = None):
    """The inverse of `pascal`: of its triangular kinds (-1)^(i+j) C(i, j)."""
    n, kind = _size("invpascal", n), "symmetric" if kind is None else kind
    if kind != "symmetric":
        triangle = _pascal("invpascal", n, kind)
        return _floats(triangle * (-1.0) ** (np.arange(n)[:, None] + np.arange(n)[None]))
    lower = _pascal("invpascal", n, "lower") * (-1.0) ** (np.arange(n)[:, None] + np.arange(n)[None])
    return _floats(lower.T @ lower)


def dft(n: int, scale: str | None = None, *, dtype=None):
    """The n × n matrix with entry jk = exp(-2πi jk/n), which multiplies as numpy.fft.fft; scale: None, 'sqrtn' (/√n) or 'n' (/n). Complex."""
    n = _size("dft", n)
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; {scale!r} is not valid.")
    dtype = dtypes.canonicalize(np.complex128) if dtype is None else dtypes.requested(dtype, "dft")
    i = np.arange(n)
    matrix = np.exp(-2j * np.pi * (i[:, None] * i[None] % max(n, 1)) / max(n, 1))
    return jnp.asarray((matrix / {None: 1, "sqrtn": math.sqrt(max(n, 1)), "n": max(n, 1)}[scale]).astype(dtype))


def hadamard(n: int, dtype=int):
    """The n × n matrix of ±1 with orthogonal rows: entry ij is -1 to the number of ones that i and j have in common. n: a power of 2."""
    n = operator.index(n)
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be an positive integer, and n must be a power of 2, got {n}")
    made = np.array([[1]])
    while made.shape[0] < n:
        made = np.block([[made, made], [made, -made]])
    return jnp.asarray(made.astype(dtypes.requested(dtype, "hadamard")))


def helmert(n: int, full: bool = False):
    """The (n-1) × n matrix of orthonormal rows that add up to 0: row i has 1/√i(i+1) i times, then -i/√i(i+1); `full`: before it the row 1/√n."""
    n = _size("helmert", n)
    rows = [np.full(n, 1 / math.sqrt(n))] if full else []
    for i in range(1, n):
        rows.append(np.concatenate([np.ones(i), [-i], np.zeros(n - i - 1)]) / math.sqrt(i * (i + 1)))
    return _floats(np.array(rows).reshape(len(rows), n))
