"""How decompositions of matrices are written: on CPU as calls of LAPACK's kernels, which jaxlib brings and which take batches as they are.

A kernel reads and writes column-major matrices and reports in `info`, one number for each matrix, whether it succeeded; where it did
not, the results are NaN. Other platforms get StableHLO's own Cholesky decomposition and triangular solver, and what rules/portable.py makes.
"""
from __future__ import annotations

from typing import Sequence

import numpy as np

from lowering.emit import lowers
from lowering.rules import portable
from lowering.rules.reductions import compare
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.linalg.cholesky import cholesky_p, cholesky_update_p
from mini_jax.lax.linalg.condensed import hessenberg_p, tridiagonal_p
from mini_jax.lax.linalg.eigen import eig_p, eigh_p
from mini_jax.lax.linalg.lu import apply_factors, lu_p, lu_pivots_to_permutation, lu_pivots_to_permutation_p, lu_solve_p
from mini_jax.lax.linalg.matrices import adjoint, conjugate, from_lower, identity, lower_triangle, upper_triangle, zeros
from mini_jax.lax.linalg.qr import householder_product_p, ormqr_p, qr_p
from mini_jax.lax.linalg.schur import schur_p
from mini_jax.lax.linalg.svd import svd_p
from mini_jax.lax.linalg.triangular import triangular_solve_p
from mini_jax.lax.linalg.tridiagonal_solve import tridiagonal_solve_p
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, reduce_sum, reshape
from mini_jax.lax.slicing import dynamic_slice, dynamic_update_slice, pad, slice_in_dim
from mini_jax.runtime import xla

_LETTER = {dtypes.float32: "s", dtypes.float64: "d", dtypes.complex64: "c", dtypes.complex128: "z"}


# --- calling LAPACK --------------------------------------------------------------------------------------------------------------------

def _layout(aval, matrix: bool) -> str:
    """Batches row-major around column-major matrices, written minor to major."""
    order = list(range(aval.ndim - 1, -1, -1))
    if matrix:
        order[:2] = order[1::-1]
    return f"dense<{order if order else ''}> : tensor<{len(order)}xindex>"


def lapack(e, kernel: str, dtype, operands: Sequence[str], types: Sequence, outs: Sequence[tuple], aliases: Sequence[tuple[int, int]] = (),
           **attributes) -> list[str]:
    """Call the kernel for `dtype`. types: of the operands, which are matrices, `(type, False)` where they are vectors or numbers; outs:
    likewise. aliases: (operand, result) that share memory. attributes: characters, or numbers with their types as text."""
    xla.register_lapack()
    types, outs = [[t if isinstance(t, tuple) else (t, True) for t in ts] for ts in (types, outs)]
    single = len(outs) == 1
    config = ", ".join([f"{k} = {v if len(v) > 1 else f'{ord(v)} : ui8'}" for k, v in sorted(attributes.items())])
    shared = ", ".join([f"#stablehlo.output_operand_alias<output_tuple_indices = {[] if single else [out]}, operand_index = {operand}, "
                        "operand_tuple_indices = []>" for operand, out in aliases])
    results = ", ".join([t.mlir for t, _ in outs])
    return e.emit_many(
        f'stablehlo.custom_call @lapack_{_LETTER[dtype]}{kernel}_ffi({", ".join(operands)}) {{backend_config = "", mhlo.backend_config = {{{config}}}, '
        f"operand_layouts = [{', '.join([_layout(*t) for t in types])}], output_operand_aliases = [{shared}], "
        f"result_layouts = [{', '.join([_layout(*t) for t in outs])}]}} : ({', '.join([t.mlir for t, _ in types])}) -> "
        f"{results if single else f'({results})'}", len(outs))


def _only_on_cpu(e, eqn, how: str = "") -> None:
    """NotImplementedError for an operation, done in the way of `how`, on a platform without LAPACK."""
    if e.module.platform != "cpu":
        raise NotImplementedError(f"lax.linalg.{eqn.primitive.name}{how} is there on CPU only, by LAPACK, not on {e.module.platform}: move its operands "
                                  "there, for instance with device_put(x, devices('cpu')[0])")


def numbers(aval, dtype=dtypes.int32):
    """The type of one number for each matrix of type `aval`, as a result of a kernel."""
    return array_type(aval.shape[:-2], dtype), False


def vectors(aval, size: int, dtype=None):
    """The type of one vector for each matrix of type `aval`, as a result of a kernel."""
    return array_type((*aval.shape[:-2], size), dtype or aval.dtype), False


def valid(e, info: str, outs: Sequence[str], types: Sequence, rank: int) -> list[str]:
    """The results where info is 0, NaN elsewhere. rank: how many dimensions info has."""
    batch = array_type(types[0].shape[:rank], dtypes.int32)
    good = compare(e, "EQ", info, e.constant(0, batch), batch)
    flags = batch.update(dtype=dtypes.bool_)
    found = []
    for out, t in zip(outs, types):
        spread = e.broadcast(good, flags, t.shape, range(batch.ndim))
        nan = e.constant(complex(np.nan, np.nan) if dtypes.is_complex(t.dtype) else np.nan, t)
        found.append(e.emit(f"stablehlo.select {spread}, {out}, {nan} : {t.update(dtype=dtypes.bool_).mlir}, {t.mlir}"))
    return found


def empty(types) -> bool:
    return any([t.size == 0 for t in types])


# --- triangular systems, Cholesky --------------------------------------------------------------------------------------------------------

@lowers(triangular_solve_p)
def _triangular_solve(e, eqn, a, b):
    (ta, tb), p = eqn.in_types, eqn.params
    if empty([ta, tb]):
        return b
    if p["conjugate_a"] and not p["transpose_a"]:
        [a] = e.via(lambda a: [conjugate(a)], [ta], [a])
    if e.module.platform != "cpu":
        kind = ("TRANSPOSE", "ADJOINT")[p["conjugate_a"]] if p["transpose_a"] else "NO_TRANSPOSE"
        flags = ", ".join([f"{k} = {str(p[k]).lower()}" for k in ("left_side", "lower", "unit_diagonal")])
        return e.emit(f'"stablehlo.triangular_solve"({a}, {b}) {{{flags}, transpose_a = #stablehlo<transpose {kind}>}} : '
                      f"({ta.mlir}, {tb.mlir}) -> {tb.mlir}")
    trans = ("C" if p["conjugate_a"] else "T") if p["transpose_a"] else "N"
    return lapack(e, "trsm", ta.dtype, [a, b], [ta, tb], [tb], [(1, 0)], diag="U" if p["unit_diagonal"] else "N",
                  side="L" if p["left_side"] else "R", trans_x=trans, uplo="L" if p["lower"] else "U")[0]


@lowers(cholesky_p)
def _cholesky(e, eqn, x):
    t = eqn.outvars[0].aval
    if t.size == 0:
        return x
    if e.module.platform != "cpu":
        l = e.emit(f'"stablehlo.cholesky"({x}) {{lower = true}} : ({t.mlir}) -> {t.mlir}')
    else:
        l, info = lapack(e, "potrf", t.dtype, [x], [t], [t, numbers(t)], [(0, 0)], uplo="L")
        [l] = valid(e, info, [l], [t], t.ndim - 2)
    return e.via(lambda l: [lower_triangle(l)], [t], [l])[0]


@lowers(cholesky_update_p)
def _cholesky_update(e, eqn, r, w):
    """Rotation k makes w zero at k with row k of r, whose diagonal entry it makes √(rₖₖ² + wₖ²)."""
    types = [array_type((), dtypes.int32), *eqn.in_types]
    rank, n, dtype = types[1].ndim, types[1].shape[-1], types[1].dtype
    if types[1].size == 0:
        return r

    def step(k, r, w):
        still = [np.int32(0)] * (rank - 2)
        row = reshape(dynamic_slice(r, (*still, k, np.int32(0)), (*types[1].shape[:-2], 1, n)), types[2].shape)
        at = lambda x: dynamic_slice(x, (*still, k), (*types[2].shape[:-1], 1))
        x, y = at(row), at(w)
        size = _hypot(x, y)
        flat = elementwise.eq(size, dtype.type(0))
        size = select(flat, broadcast_in_dim(dtype.type(1), size.shape, ()), size)
        whole = lambda v: broadcast_in_dim(reshape(v, types[2].shape[:-1]), types[2].shape, tuple(range(rank - 2)))
        c, s = whole(select(flat, size, elementwise.div(x, size))), whole(elementwise.div(y, size))
        turned = elementwise.add(elementwise.mul(c, row), elementwise.mul(s, w))
        w = elementwise.sub(elementwise.mul(c, w), elementwise.mul(s, row))
        r = dynamic_update_slice(r, reshape(turned, (*types[1].shape[:-2], 1, n)), (*still, k, np.int32(0)))
        return [elementwise.add(k, np.int32(1)), r, w]

    texts = [t.mlir for t in types]
    [r] = e.via(lambda r: [upper_triangle(r)], types[1:2], [r])
    condition = e.region(texts, lambda e, k, *_: [(compare(e, "LT", k, e.constant(n, types[0]), types[0]), types[0].update(dtype=dtypes.bool_).mlir)])
    body = e.region(texts, lambda e, *values: list(zip(e.via(step, types, values), texts)))
    r = e.emit_many(f'"stablehlo.while"({e.constant(0, types[0])}, {r}, {w}) ({condition}, {body}) : ({", ".join(texts)}) -> ({", ".join(texts)})', 3)[1]
    return e.via(lambda r: [upper_triangle(r)], types[1:2], [r])[0]                         # below there is what rounding has left


def _hypot(x, y):
    """√(x² + y²), without overflow in between."""
    x, y = elementwise.abs(x), elementwise.abs(y)
    large, small = elementwise.max(x, y), elementwise.min(x, y)
    safe = select(elementwise.eq(large, large.dtype.type(0)), broadcast_in_dim(large.dtype.type(1), large.shape, ()), large)
    ratio = elementwise.div(small, safe)
    return elementwise.mul(large, elementwise.sqrt(elementwise.add(elementwise.mul(ratio, ratio), large.dtype.type(1))))


# --- LU ----------------------------------------------------------------------------------------------------------------------------------

@lowers(lu_p)
def _lu(e, eqn, x):
    t, pivots_type, permutation_type = [v.aval for v in eqn.outvars]
    if t.size == 0:
        m = t.shape[-2]
        return [x, e.constant(0, pivots_type), e.via(lambda: [broadcasted_iota(dtypes.int32, (*t.shape[:-2], m), t.ndim - 2)], [], [])[0]]
    if e.module.platform != "cpu":
        return portable.lu(e, x, t)
    factors, pivots, _ = lapack(e, "getrf", t.dtype, [x], [t], [t, (pivots_type, False), numbers(t)], [(0, 0)])
    pivots = e.emit(f"stablehlo.subtract {pivots}, {e.constant(1, pivots_type)} : {pivots_type.mlir}")           # LAPACK counts from 1
    permutation = e.via(lambda p: [lu_pivots_to_permutation(p, t.shape[-2])], [pivots_type], [pivots])[0]
    return [factors, pivots, permutation]


@lowers(lu_pivots_to_permutation_p)
def _permutation(e, eqn, pivots):
    """A loop over the pivots: entry i and the entry that the pivot names change places, in all permutations at once."""
    [given], [out] = eqn.in_types, [v.aval for v in eqn.outvars]
    rank = out.ndim
    start = e.emit(f"stablehlo.iota dim = {rank - 1} : {out.mlir}")
    if given.size == 0:
        return start
    index = array_type((), dtypes.int32)

    def step(i, pivots, permutation):
        at = (*[np.int32(0)] * (rank - 1), i)
        one = (*out.shape[:-1], 1)
        across = lambda x: broadcast_in_dim(x, out.shape, tuple(range(rank)))
        chosen = elementwise.eq(broadcasted_iota(dtypes.int32, out.shape, rank - 1), across(dynamic_slice(pivots, at, one)))
        here = dynamic_slice(permutation, at, one)
        there = reduce_sum(select(chosen, permutation, broadcast_in_dim(np.int32(0), out.shape, ())), (rank - 1,))
        swapped = select(chosen, across(here), permutation)
        swapped = dynamic_update_slice(swapped, broadcast_in_dim(there, one, tuple(range(rank - 1))), at)
        return [elementwise.add(i, np.int32(1)), pivots, swapped]

    types = [index, given, out]
    texts = [t.mlir for t in types]
    condition = e.region(texts, lambda e, i, *_: [(compare(e, "LT", i, e.constant(given.shape[-1], index), index),
                                                   index.update(dtype=dtypes.bool_).mlir)])
    body = e.region(texts, lambda e, *values: list(zip(e.via(step, types, values), texts)))
    return e.emit_many(f'"stablehlo.while"({e.constant(0, index)}, {pivots}, {start}) ({condition}, {body}) : '
                       f"({', '.join(texts)}) -> ({', '.join(texts)})", 3)[2]


@lowers(lu_solve_p)
def _lu_solve(e, eqn, *operands):
    return e.via(lambda *xs: [apply_factors(*xs, **eqn.params)], eqn.in_types, operands)[0]


# --- QR ----------------------------------------------------------------------------------------------------------------------------------

@lowers(qr_p)
def _qr(e, eqn, x):
    """R and the reflections come in one array; of a padded or cut copy of it, orgqr makes Q."""
    [t], outs, pivoting = eqn.in_types, [v.aval for v in eqn.outvars], eqn.params["pivoting"]
    (m, n), rank, (q, r) = t.shape[-2:], t.ndim, outs[:2]
    p, k = q.shape[-1], min(m, n)
    if t.size == 0:
        return e.via(lambda: [identity(q.shape, q.dtype), zeros(r.shape, r.dtype),
                              *[broadcasted_iota(dtypes.int32, i.shape, i.ndim - 1) for i in outs[2:]]], [], [])
    taus, order = vectors(t, k), []
    if pivoting:
        _only_on_cpu(e, eqn, "(pivoting=True)")
        free = outs[2]
        factors, order, tau = lapack(e, "geqp3", t.dtype, [x, e.constant(0, free)], [t, (free, False)], [t, (free, False), taus], [(0, 0), (1, 1)])
        order = [e.emit(f"stablehlo.subtract {order}, {e.constant(1, free)} : {free.mlir}")]                   # LAPACK counts from 1
    elif e.module.platform != "cpu":
        factors, tau = portable.reflections(e, x, t, taus[0])
    else:
        factors, tau = lapack(e, "geqrf", t.dtype, [x], [t], [t, taus], [(0, 0)])
    zero = t.dtype.type(0)

    def parts(factors):
        still = [(0, 0, 0)] * (rank - 1)
        reflections = slice_in_dim(factors, 0, p, axis=rank - 1) if p < n else pad(factors, zero, (*still, (0, p - n, 0))) if p > n else factors
        return [reflections, upper_triangle(slice_in_dim(factors, 0, r.shape[-2], axis=rank - 2))]
    reflections, upper = e.via(parts, [t], [factors])
    return [_product_of_reflections(e, reflections, tau, q, taus), upper, *order]


def _product_of_reflections(e, a: str, tau: str, aval, taus) -> str:
    if e.module.platform != "cpu":
        return portable.product_of_reflections(e, a, tau, aval, taus[0])
    kernel = "ungqr" if dtypes.is_complex(aval.dtype) else "orgqr"
    return lapack(e, kernel, aval.dtype, [a, tau], [aval, taus], [aval], [(0, 0)])[0]


@lowers(householder_product_p)
def _householder_product(e, eqn, a, taus):
    aval, tau = eqn.in_types
    if aval.size == 0 or tau.size == 0:
        return e.via(lambda: [identity(aval.shape, aval.dtype)], [], [])[0]
    return _product_of_reflections(e, a, taus, aval, (tau, False))


@lowers(ormqr_p)
def _ormqr(e, eqn, a, taus, c):
    (ta, ttaus, tc), p = eqn.in_types, eqn.params
    if empty(eqn.in_types):
        return c
    if e.module.platform != "cpu":
        return e.via(lambda *xs: [portable.apply_reflections(*xs, **p)], eqn.in_types, [a, taus, c])[0]
    flags = {"left": str(p["left"]).lower(), "transpose": str(p["transpose"]).lower()}
    kernel = "unmqr" if dtypes.is_complex(tc.dtype) else "ormqr"
    return lapack(e, kernel, tc.dtype, [a, taus, c], [ta, (ttaus, False), tc], [tc], [(2, 0)], **flags)[0]


# --- tridiagonal systems, condensed forms -------------------------------------------------------------------------------------------------

@lowers(tridiagonal_solve_p)
def _tridiagonal_solve(e, eqn, dl, d, du, b):
    types = eqn.in_types
    t, diagonal = types[3], (types[0], False)
    if t.size == 0:
        return b
    if eqn.params["perturb_singular"]:
        _only_on_cpu(e, eqn, "(perturb_singular=True)")
        xla.register_lapack()
        return e.emit(f'stablehlo.custom_call @tridiagonal_solve_perturbed_ffi({dl}, {d}, {du}, {b}) {{backend_config = "", mhlo.backend_config = {{}}, '
                      f"operand_layouts = [{', '.join([_layout(*diagonal)] * 3 + [_layout(t, True)])}], result_layouts = [{_layout(t, True)}]}} : "
                      f"({', '.join([u.mlir for u in types])}) -> {t.mlir}")
    if e.module.platform != "cpu":
        return portable.tridiagonal_solve(e, [dl, d, du, b], types)
    *_, x, info = lapack(e, "gtsv", t.dtype, [dl, d, du, b], [diagonal] * 3 + [t], [diagonal] * 3 + [t, numbers(t)], [(i, i) for i in range(4)])
    return valid(e, info, [x], [t], t.ndim - 2)[0]


@lowers(hessenberg_p)
def _hessenberg(e, eqn, a):
    t, taus = [out.aval for out in eqn.outvars]
    n = t.shape[-1]
    if t.size == 0 or n == 1:
        return [a, e.constant(0, taus)]
    _only_on_cpu(e, eqn)
    h, tau, info = lapack(e, "gehrd", t.dtype, [a], [t], [t, (taus, False), numbers(t)], [(0, 0)], low="1 : i32", high=f"{n} : i32")
    return valid(e, info, [h, tau], [t, taus], t.ndim - 2)


@lowers(tridiagonal_p)
def _tridiagonal(e, eqn, a):
    t, *others = types = [out.aval for out in eqn.outvars]
    if t.size == 0:
        return [a, *[e.constant(0, out) for out in others]]
    _only_on_cpu(e, eqn)
    kernel = "hetrd" if dtypes.is_complex(t.dtype) else "sytrd"
    *outs, info = lapack(e, kernel, t.dtype, [a], [t], [t, *[(out, False) for out in others], numbers(t)], [(0, 0)],
                         uplo="L" if eqn.params["lower"] else "U")
    return valid(e, info, outs, types, t.ndim - 2)


# --- eigenvalues, singular values, Schur ---------------------------------------------------------------------------------------------------

@lowers(eigh_p)
def _eigh(e, eqn, x):
    v, w = [out.aval for out in eqn.outvars]
    if v.size == 0:
        return [x, e.constant(0, w)]
    if e.module.platform != "cpu":
        read = from_lower if eqn.params["lower"] else lambda x: from_lower(adjoint(x))
        return portable.eigh(e, e.via(lambda x: [read(x)], [v], [x])[0], v)
    kernel = "heevd" if dtypes.is_complex(v.dtype) else "syevd"
    *outs, info = lapack(e, kernel, v.dtype, [x], [v], [v, (w, False), numbers(v)], [(0, 0)], mode="V", uplo="L" if eqn.params["lower"] else "U")
    return valid(e, info, outs, [v, w], v.ndim - 2)


@lowers(eig_p)
def _eig(e, eqn, x):
    [t], (w, *vectors_types), p = eqn.in_types, [out.aval for out in eqn.outvars], eqn.params
    if t.size == 0:
        return [e.constant(0, out) for out in (w, *vectors_types)]
    _only_on_cpu(e, eqn)
    v = t.update(dtype=w.dtype)
    flags = {"compute_left": "V" if p["left"] else "N", "compute_right": "V" if p["right"] else "N"}
    if dtypes.is_complex(t.dtype):
        values, left, right, info = lapack(e, "geev", t.dtype, [x], [t], [(w, False), v, v, numbers(t)], **flags)
    else:
        part = w.update(dtype=t.dtype)
        real, imag, left, right, info = lapack(e, "geev", t.dtype, [x], [t], [(part, False), (part, False), v, v, numbers(t)], **flags)
        values = e.emit(f"stablehlo.complex {real}, {imag} : {w.mlir}")
    wanted = [values, *[left] * p["left"], *[right] * p["right"]]
    return valid(e, info, wanted, [w, *vectors_types], t.ndim - 2)


@lowers(svd_p)
def _svd(e, eqn, x):
    [t], outs, p = eqn.in_types, [out.aval for out in eqn.outvars], eqn.params
    if t.size == 0:
        return [e.constant(0, outs[0]), *e.via(lambda: [identity(out.shape, out.dtype) for out in outs[1:]], [], [])]
    if e.module.platform != "cpu":
        return e.via(lambda x: portable.svd(x, compute_uv=p["compute_uv"], full_matrices=p["full_matrices"]), [t], [x])
    m, n = t.shape[-2:]
    u, vh = outs[1:] or [t.update(shape=(*t.shape[:-2], size, size)) for size in (m, n)]
    mode = "N" if not p["compute_uv"] else "A" if p["full_matrices"] else "S"
    _, s, *uv, info = lapack(e, "gesvd" if p["iterate"] else "gesdd", t.dtype, [x], [t], [t, (outs[0], False), u, vh, numbers(t)], [(0, 0)],
                             mode=mode)
    return valid(e, info, [s, *uv[:len(outs) - 1]], outs, t.ndim - 2)


@lowers(schur_p)
def _schur(e, eqn, x):
    [t], outs = eqn.in_types, [out.aval for out in eqn.outvars]
    if t.size == 0:
        return [x] * len(outs)
    _only_on_cpu(e, eqn)
    values = [vectors(t, t.shape[-1])] * (1 if dtypes.is_complex(t.dtype) else 2)
    triangle, z, *_, info = lapack(e, "gees", t.dtype, [x], [t], [t, t, *values, numbers(t), numbers(t)], [(0, 0)],
                                   mode="V" if len(outs) == 2 else "N", sort="N")
    return valid(e, info, [triangle, z][:len(outs)], outs, t.ndim - 2)
