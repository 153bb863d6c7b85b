"""How decompositions of matrices are written: on CPU as calls of LAPACK's kernels, which jaxlib brings and which take batches as they are.

A kernel reads and writes column-major matrices and reports in `info`, one number for each matrix, whether it succeeded; where it did
not, the results are NaN. Other platforms get StableHLO's own Cholesky decomposition and triangular solver, and no others.
"""
from __future__ import annotations

from typing import Sequence

import numpy as np

from lowering.emit import lowers
from lowering.rules.reductions import compare
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.linalg.cholesky import cholesky_p
from mini_jax.lax.linalg.lu import apply_factors, lu_p, lu_pivots_to_permutation, lu_pivots_to_permutation_p, lu_solve_p
from mini_jax.lax.linalg.matrices import lower_triangle
from mini_jax.lax.linalg.triangular import triangular_solve_p
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, reduce_sum
from mini_jax.lax.slicing import dynamic_slice, dynamic_update_slice
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
    if e.module.platform != "cpu":
        raise NotImplementedError(f"the matrix decomposition by LAPACK's {kernel} is there on CPU only, not on {e.module.platform}: run it "
                                  "with jit(..., device=devices('cpu')[0]) or on arrays that are there")
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


def numbers(aval, dtype=dtypes.int32):
    """The type of one number for each matrix of type `aval`, as a result of a kernel."""
    return array_type(aval.shape[:-2], dtype), False


def vectors(aval, size: int, dtype=None):
    """The type of one vector for each matrix of type `aval`, as a result of a kernel."""
    return array_type((*aval.shape[:-2], size), dtype or aval.dtype), False


def valid(e, info: str, outs: Sequence[str], types: Sequence) -> list[str]:
    """The results where info is 0, NaN elsewhere."""
    batch = array_type(types[0].shape[:_batch_rank(types)], dtypes.int32)
    good = compare(e, "EQ", info, e.constant(0, batch), batch)
    flags = batch.update(dtype=dtypes.bool_)
    found = []
    for out, t in zip(outs, types):
        spread = e.broadcast(good, flags, t.shape, range(batch.ndim))
        nan = e.constant(complex(np.nan, np.nan) if dtypes.is_complex(t.dtype) else np.nan, t)
        found.append(e.emit(f"stablehlo.select {spread}, {out}, {nan} : {t.update(dtype=dtypes.bool_).mlir}, {t.mlir}"))
    return found


def _batch_rank(types) -> int:
    return max([t.ndim for t in types]) - 2


def empty(types) -> bool:
    return any([t.size == 0 for t in types])


# --- triangular systems, Cholesky --------------------------------------------------------------------------------------------------------

@lowers(triangular_solve_p)
def _triangular_solve(e, eqn, a, b):
    (ta, tb), p = eqn.in_types, eqn.params
    if empty([ta, tb]):
        return b
    if e.module.platform != "cpu":
        kind = ("TRANSPOSE", "ADJOINT")[p["conjugate_a"]] if p["transpose_a"] else "NO_TRANSPOSE"
        if p["conjugate_a"] and not p["transpose_a"]:
            [a] = e.via(lambda a: [_conjugate(a)], [ta], [a])
        flags = ", ".join([f"{k} = {str(p[k]).lower()}" for k in ("left_side", "lower", "unit_diagonal")])
        return e.emit(f'"stablehlo.triangular_solve"({a}, {b}) {{{flags}, transpose_a = #stablehlo<transpose {kind}>}} : '
                      f"({ta.mlir}, {tb.mlir}) -> {tb.mlir}")
    if p["conjugate_a"] and not p["transpose_a"]:
        [a] = e.via(lambda a: [_conjugate(a)], [ta], [a])
    trans = ("C" if p["conjugate_a"] else "T") if p["transpose_a"] else "N"
    return lapack(e, "trsm", ta.dtype, [a, b], [ta, tb], [tb], [(1, 0)], diag="U" if p["unit_diagonal"] else "N",
                  side="L" if p["left_side"] else "R", trans_x=trans, uplo="L" if p["lower"] else "U")[0]


def _conjugate(x):
    return elementwise.conj(x) if dtypes.is_complex(x.dtype) else x


@lowers(cholesky_p)
def _cholesky(e, eqn, x):
    t = eqn.outvars[0].aval
    if t.size == 0:
        return x
    if e.module.platform != "cpu":
        l = e.emit(f'"stablehlo.cholesky"({x}) {{lower = true}} : ({t.mlir}) -> {t.mlir}')
    else:
        l, info = lapack(e, "potrf", t.dtype, [x], [t], [t, numbers(t)], [(0, 0)], uplo="L")
        [l] = valid(e, info, [l], [t])
    return e.via(lambda l: [lower_triangle(l)], [t], [l])[0]


# --- LU ----------------------------------------------------------------------------------------------------------------------------------

@lowers(lu_p)
def _lu(e, eqn, x):
    t, pivots_type, permutation_type = [v.aval for v in eqn.outvars]
    if t.size == 0:
        m = t.shape[-2]
        return [x, e.constant(0, pivots_type), e.via(lambda: [broadcasted_iota(dtypes.int32, (*t.shape[:-2], m), t.ndim - 2)], [], [])[0]]
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
