"""Decompositions of matrices for platforms without LAPACK: XLA's own reflections, and loops of elementwise operations on whole matrices."""
from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from lowering.loops import counted
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.linalg.eigen import eigh_p
from mini_jax.lax.linalg.matrices import (
    adjoint, columns_of, conjugate, diagonal, hermitian_part, identity, permuted_rows, product, real_part, rows_of, transposed, zeros)
from mini_jax.lax.linalg.polar import polar_factor
from mini_jax.lax.linalg.qr import householder_product, qr
from mini_jax.lax.reductions import argmax, reduce_or
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, convert_element_type, reduce_sum, reshape
from mini_jax.lax.slicing import concatenate, dynamic_slice, dynamic_update_slice, pad, rev, slice_in_dim
from mini_jax.lax.sorting import sort


def _steps(e, count: int, values: Sequence[str], types: Sequence, step: Callable) -> list[str]:
    """The values after `values = step(i, *values)` for i from 0 to count - 1."""
    return counted(e, 0, count, values, types, lambda e, i, index, *values: e.via(step, [index, *types], [i, *values]))


def _full(value, shape, dtype):
    return broadcast_in_dim(dtype.type(value), shape, ())


def _at(x, i, axis: int):
    """x at the index i along an axis, whose size becomes 1."""
    shape = x.shape
    return dynamic_slice(x, [i if d == axis else np.int32(0) for d in range(len(shape))], [1 if d == axis else n for d, n in enumerate(shape)])


def _put(x, i, axis: int, value):
    return dynamic_update_slice(x, value, [i if d == axis else np.int32(0) for d in range(len(x.shape))])


# --- reflections -----------------------------------------------------------------------------------------------------------------------

def reflections(e, x: str, t, taus) -> list[str]:
    """The QR decomposition as LAPACK's geqrf leaves it: r above, the vectors of the reflections below, and their factors, of type `taus`."""
    return e.emit_many(f"stablehlo.custom_call @Qr({x}) : ({t.mlir}) -> ({t.mlir}, {taus.mlir})", 2)


def product_of_reflections(e, a: str, tau: str, t, taus) -> str:
    """The first columns of the product of reflections, as LAPACK's orgqr makes them."""
    return e.emit(f"stablehlo.custom_call @ProductOfElementaryHouseholderReflectors({a}, {tau}) : ({t.mlir}, {taus.mlir}) -> {t.mlir}")


def apply_reflections(a, taus, c, *, left: bool, transpose: bool):
    """q c, with q of full size: made of the reflections and columns of zeros."""
    r, k = a.shape[-2:]
    q = householder_product(pad(a, a.dtype.type(0), (*[(0, 0, 0)] * (a.ndim - 1), (0, r - k, 0))), taus)
    q = adjoint(q) if transpose else q
    return product(q, c) if left else product(c, q)


# --- LU --------------------------------------------------------------------------------------------------------------------------------

def _size(x):
    """By what LAPACK chooses pivots."""
    return elementwise.abs(elementwise.real(x)) + elementwise.abs(elementwise.imag(x)) if dtypes.is_complex(x.dtype) else elementwise.abs(x)


def lu(e, x: str, t) -> list[str]:
    """[factors, pivots, permutation], by elimination of one column after the other in the whole matrix."""
    (m, n), leading, rank = t.shape[-2:], t.shape[:-2], t.ndim
    pivots, permutation = array_type((*leading, min(m, n)), dtypes.int32), array_type((*leading, m), dtypes.int32)
    row, column = rank - 2, rank - 1
    whole = lambda x, shape: broadcast_in_dim(x, shape, tuple(range(len(shape))))

    def step(k, a, pivots, permutation):
        k = convert_element_type(k, dtypes.int32)
        rows, columns = broadcasted_iota(dtypes.int32, (*leading, m, 1), row), broadcasted_iota(dtypes.int32, (*leading, 1, n), column)
        here = _at(a, k, column)
        same = lambda counts: broadcast_in_dim(k, counts.shape, ())
        sizes = select(elementwise.lt(rows, same(rows)), _full(-1, rows.shape, dtypes.to_real(t.dtype)), _size(here))
        pivot = argmax(sizes, row, dtypes.int32)                                     # (..., 1)
        pivots = _put(pivots, k, rank - 2, pivot)
        chosen, first = elementwise.eq(rows, whole(reshape(pivot, (*leading, 1, 1)), rows.shape)), elementwise.eq(rows, same(rows))

        def exchange(x, chosen, first, axis):
            """Rows k and pivot of x change places."""
            spread = lambda y: whole(y, x.shape)
            mine = _at(x, k, axis)
            other = reshape(reduce_sum(select(spread(chosen), x, zeros(x.shape, x.dtype)), (axis,)), mine.shape)
            return select(spread(first), spread(other), select(spread(chosen), spread(mine), x)), other
        a, top = exchange(a, chosen, first, row)
        flat = lambda mask: reshape(mask, (*leading, m))
        permutation, _ = exchange(permutation, flat(chosen), flat(first), rank - 2)
        head = _at(top, k, column)
        zero = elementwise.eq(head, zeros(head.shape, head.dtype))
        head = select(zero, _full(1, head.shape, head.dtype), head)
        below, right, here = elementwise.gt(rows, same(rows)), elementwise.gt(columns, same(columns)), _at(a, k, column)
        factor = select(below, elementwise.div(here, whole(head, here.shape)), here)
        a = _put(a, k, column, factor)
        factor, top = select(below, factor, zeros(factor.shape, factor.dtype)), select(right, top, zeros(top.shape, top.dtype))
        return [elementwise.sub(a, elementwise.mul(whole(factor, a.shape), whole(top, a.shape))), pivots, permutation]

    start = [x, e.constant(0, pivots), e.emit(f"stablehlo.iota dim = {rank - 2} : {permutation.mlir}")]
    return _steps(e, min(m, n), start, [t, pivots, permutation], step)


# --- Hermitian eigenvalues ---------------------------------------------------------------------------------------------------------------

_SWEEPS = 30                                          # ten do, for all but the most unusual matrices


def eigh(e, x: str, t) -> list[str]:
    """[v, w] of Hermitian matrices, by Jacobi's method in parallel order: half of the rows meet the other half at once, and after each meeting
    all but the first move one place on. (Brent & Luk 1985, doi:10.1137/0906007)"""
    n, leading, rank = t.shape[-1], t.shape[:-2], t.ndim
    real = dtypes.to_real(t.dtype)
    half = (n + 1) // 2
    size = 2 * half
    wide = array_type((*leading, size, size), t.dtype)
    flag, count = array_type((), dtypes.bool_), array_type((), dtypes.int32)
    eps = float(dtypes.finfo(real).eps)
    cut = lambda x, axis: (slice_in_dim(x, 0, half, axis=axis), slice_in_dim(x, half, size, axis=axis))

    def moved(p, q, axis):
        """Both halves, put together again in the order of the next meeting."""
        if half == 1:
            return concatenate([p, q], axis)
        part = lambda x, first, last: slice_in_dim(x, first, last, axis=axis)
        return concatenate([part(p, 0, 1), part(q, 0, 1), part(p, 1, half - 1), part(q, 1, half), part(p, half - 1, half)], axis)

    def meet(_, a, v):
        """Each pair (p, q) is turned by the rotation that makes entry pq zero: t = tan of its angle, the smaller root of t² + 2 τ t = 1."""
        app, aqq = cut(real_part(diagonal(a)), rank - 2)
        apq = diagonal(cut(cut(a, rank - 2)[0], rank - 1)[1])
        length = elementwise.abs(apq)
        none = elementwise.eq(length, zeros(length.shape, real))
        safe = select(none, _full(1, length.shape, real), length)
        tau = (aqq - app) / (safe + safe)
        one = _full(1, length.shape, real)
        tan = one / (elementwise.abs(tau) + elementwise.sqrt(one + tau * tau))
        tan = select(none, zeros(length.shape, real), select(elementwise.lt(tau, zeros(length.shape, real)), -tan, tan))
        cos = one / elementwise.sqrt(one + tan * tan)
        whole = lambda x: convert_element_type(x, t.dtype)
        c, s = whole(cos), whole(tan * cos)
        phase = select(none, whole(one), conjugate(apq) / whole(safe))

        def columns(x):
            p, q = cut(x, rank - 1)
            spread = lambda d: rows_of(d, p.shape)
            return moved(spread(c) * p - spread(s * phase) * q, spread(s) * p + spread(c * phase) * q, rank - 1)

        def rows(x):
            p, q = cut(x, rank - 2)
            spread = lambda d: columns_of(d, p.shape)
            back = conjugate(phase)
            return moved(spread(c) * p - spread(s * back) * q, spread(s) * p + spread(c * back) * q, rank - 2)
        return [rows(columns(a)), columns(v)]

    def go_on(a, before):
        """Is the part outside of the diagonal more than rounding? (And still shrinking: then `before` is larger.)"""
        squares = elementwise.abs(a) * elementwise.abs(a)
        on = identity(a.shape, real)
        outside = reduce_sum(squares * (_full(1, a.shape, real) - on), (rank - 2, rank - 1))
        everything = reduce_sum(squares, (rank - 2, rank - 1))
        more = elementwise.gt(outside, everything * _full(eps ** 2, everything.shape, real))
        shrinking = elementwise.lt(outside, before * _full(0.5, before.shape, real))
        large = elementwise.gt(outside, everything * _full(size * eps, everything.shape, real))
        return [reduce_or(elementwise.bitwise_and(more, elementwise.bitwise_or(shrinking, large)), tuple(range(rank - 2))), outside]

    start = lambda x: [elementwise.mul(reduce_sum(elementwise.abs(x), (rank - 2, rank - 1)), real.type(0)), pad(x, t.dtype.type(0), (*[(0, 0, 0)] * (rank - 2), (0, size - n, 0), (0, size - n, 0))), identity(wide.shape, t.dtype)]
    nothing, whole, v = e.via(start, [t], [x])                 # nothing: 0, or NaN where there is an entry that is not finite
    norm = array_type(leading, real)
    before = e.constant(np.inf, norm)
    types = [flag, count, norm, wide, wide]
    texts = [u.mlir for u in types]

    def going(e, more, count_, *_):
        few = e.emit(f"stablehlo.compare LT, {count_}, {e.constant(_SWEEPS, count)}, SIGNED : ({count.mlir}, {count.mlir}) -> {flag.mlir}")
        return [(e.emit(f"stablehlo.and {more}, {few} : {flag.mlir}"), flag.mlir)]

    def sweep(e, _, number, before, a, v):
        a, v = _steps(e, size - 1, [a, v], [wide, wide], meet)
        more, outside = e.via(go_on, [wide, norm], [a, before])
        return list(zip([more, e.emit(f"stablehlo.add {number}, {e.constant(1, count)} : {count.mlir}"), outside, a, v], texts))
    [more, _] = e.via(go_on, [wide, norm], [whole, before])
    *_, v = e.emit_many(f'"stablehlo.while"({more}, {e.constant(0, count)}, {before}, {whole}, {v}) ({e.region(texts, going)}, {e.region(texts, sweep)}) : '
                           f"({', '.join(texts)}) -> ({', '.join(texts)})", 5)

    def ordered(nothing, x, v):
        """The columns of v made orthonormal again, which many rotations have left a little less, and their Rayleigh quotients, ascending; a row
        that was added, which met others without being turned, comes last and is left out."""
        half_of = lambda y: y * t.dtype.type(0.5)
        v = v + half_of(v - product(v, product(adjoint(v), v)))
        w = real_part(diagonal(product(adjoint(v), product(x, v))))
        key = w
        if size > n:
            added = elementwise.gt(elementwise.abs(slice_in_dim(v, n, size, axis=rank - 2)), _full(0.5, (*leading, 1, size), real))
            key = select(reshape(added, w.shape), _full(np.inf, w.shape, real), w)
        _, w, order = sort((key, w, broadcasted_iota(dtypes.int32, w.shape, rank - 2)), dimension=rank - 2, num_keys=1)
        v = transposed(permuted_rows(transposed(v), order))
        part = lambda x, axis: slice_in_dim(x, 0, n, axis=axis)
        spread = lambda shape: broadcast_in_dim(nothing, shape, tuple(range(rank - 2)))
        return [part(part(v, rank - 2), rank - 1) + convert_element_type(spread(t.shape), t.dtype), part(w, rank - 2) + spread(t.shape[:-1])]
    return e.via(ordered, [norm, wide, wide], [nothing, whole, v])


# --- singular values ---------------------------------------------------------------------------------------------------------------------

def svd(x, *, compute_uv: bool, full_matrices: bool):
    """[s, u, vᴴ] or [s]: of the polar decomposition x = w h, h = v s vᴴ; then x v = u s is a QR decomposition, u of orthonormal columns also
    where s is zero. (Nakatsukasa & Higham 2013, doi:10.1137/120876605)"""
    m, n = x.shape[-2:]
    if m < n:
        s, *uv = svd(adjoint(x), compute_uv=compute_uv, full_matrices=full_matrices)
        return [s, *[adjoint(y) for y in reversed(uv)]]
    rank, real = x.ndim, dtypes.to_real(x.dtype)
    small = qr(x, full_matrices=False)[1] if m > n else x
    h = hermitian_part(product(adjoint(polar_factor(small).factor), small))
    v, w = eigh_p.bind(h, lower=True)
    v, w = rev(v, (rank - 1,)), rev(w, (rank - 2,))
    s = elementwise.max(w, zeros(w.shape, real))
    if not compute_uv:
        return [s]
    u, r = qr(product(x, v), full_matrices=full_matrices)
    d = diagonal(slice_in_dim(r, 0, n, axis=rank - 2))
    length = elementwise.abs(d)
    none = elementwise.eq(length, zeros(length.shape, real))
    phase = select(none, _full(1, d.shape, d.dtype), d / convert_element_type(select(none, _full(1, length.shape, real), length), d.dtype))
    more = u.shape[-1] - n
    if more:
        phase = concatenate([phase, _full(1, (*phase.shape[:-1], more), d.dtype)], rank - 2)
    return [s, u * rows_of(phase, u.shape), adjoint(v)]


# --- tridiagonal systems -------------------------------------------------------------------------------------------------------------------

def tridiagonal_solve(e, operands: Sequence[str], types: Sequence) -> str:
    """Gaussian elimination in which neighbouring rows change places where that makes the pivot larger; then a second diagonal above fills in."""
    t, b = types[1], types[3]
    n, axis, leading = t.shape[-1], t.ndim - 1, t.shape[:-1]
    index = np.int32(1)

    def eliminate(i, dl, d, du, du2, b):
        i = convert_element_type(i, dtypes.int32)
        k = elementwise.add(i, index)
        low, here, following, up, up_next = _at(dl, k, axis), _at(d, i, axis), _at(d, k, axis), _at(du, i, axis), _at(du, k, axis)
        row, next_row = _at(b, i, axis), _at(b, k, axis)
        stays = elementwise.ge(elementwise.abs(here), elementwise.abs(low))
        pivot, other = select(stays, here, low), select(stays, low, here)
        f = elementwise.div(other, pivot)
        wide = lambda x: broadcast_in_dim(x, row.shape, tuple(range(axis + 1)))
        up_here, up_other = select(stays, up, following), select(stays, following, up)
        second = select(stays, zeros(up.shape, up.dtype), up_next)
        upper, lower = select(wide(stays), row, next_row), select(wide(stays), next_row, row)
        d = _put(_put(d, i, axis, pivot), k, axis, up_other - f * up_here)
        du = _put(_put(du, k, axis, select(stays, up_next, -(f * up_next))), i, axis, up_here)
        return [dl, d, du, _put(du2, i, axis, second), _put(_put(b, i, axis, upper), k, axis, lower - wide(f) * upper)]

    def substitute(i, d, du, du2, x):
        """x holds b up to row r, and the solution below it, where two rows of zeros were added."""
        r = elementwise.sub(np.int32(n - 1), convert_element_type(i, dtypes.int32))
        wide = lambda y: broadcast_in_dim(y, _at(x, r, axis).shape, tuple(range(axis + 1)))
        after = lambda step: _at(x, elementwise.add(r, np.int32(step)), axis)
        value = (_at(x, r, axis) - wide(_at(du, r, axis)) * after(1) - wide(_at(du2, r, axis)) * after(2)) / wide(_at(d, r, axis))
        return [d, du, du2, _put(x, r, axis, value)]

    last = lambda du: [_put(du, np.int32(n - 1), axis, zeros((*leading, 1), t.dtype))]                   # which is not read
    [du] = e.via(last, [t], [operands[2]])
    _, d, du, du2, x = _steps(e, n - 1, [operands[0], operands[1], du, e.constant(0, t), operands[3]], [t, t, t, t, b], eliminate)
    still = [(0, 0, 0)] * b.ndim
    longer = b.update(shape=(*leading, n + 2, b.shape[-1]))
    [x] = e.via(lambda x: [pad(x, b.dtype.type(0), (*still[:axis], (0, 2, 0), *still[axis + 1:]))], [b], [x])
    *_, x = _steps(e, n, [d, du, du2, x], [t, t, t, longer], substitute)
    return e.via(lambda x: [slice_in_dim(x, 0, n, axis=axis)], [longer], [x])[0]
