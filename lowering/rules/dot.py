"""How products are written: two-dimensional after their batch dimensions, by reshapes that move nothing wherever that can be.

XLA's kernels take operands contracted over either of their dimensions, but of more dimensions it makes transposing copies,
into which it then fuses, again and again, all that produced the operand.
"""
from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Sequence

import numpy as np

from lowering.emit import lowers
from lowering.rules.reductions import compare
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax.dot import DotAlgorithm, DotAlgorithmPreset, common_dtype, dot_general_p, free_dims


@lowers(dot_general_p)
def _dot_general(e, eqn, lhs, rhs):
    a, b, out = eqn.invars[0].aval, eqn.invars[1].aval, eqn.outvars[0].aval
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    precision = eqn.params["precision"]
    operand_dtype, sum_dtype = _compute_dtypes(a.dtype, b.dtype, out.dtype, precision, e.module.platform)
    lhs, a = _converted(e, _rounded(e, lhs, a, precision, 0), a, operand_dtype)
    rhs, b = _converted(e, _rounded(e, rhs, b, precision, 1), b, operand_dtype)

    lhs_contract, rhs_contract = contracted((a, lhs_batch, lhs_contract), (b, rhs_batch, rhs_contract))
    lhs, lhs_shape, i = _arranged(e, lhs, a, lhs_batch, lhs_contract)
    rhs, rhs_shape, j = _arranged(e, rhs, b, rhs_batch, rhs_contract)

    batch = [n for d in lhs_batch if (n := a.shape[d]) != 1]
    rows = prod([a.shape[d] for d in free_dims(a.ndim, lhs_batch, lhs_contract)])
    columns = prod([b.shape[d] for d in free_dims(b.ndim, rhs_batch, rhs_contract)])
    shape = (*batch, *[n for n in (rows, columns) if n != 1])
    result = array_type(shape, sum_dtype)
    if i is None:
        y = _outer(e, lhs, lhs_shape, rhs, rhs_shape, len(batch), rows, columns, operand_dtype, result)
    else:
        stack = list(range(len(batch)))
        batching = f"batching_dims = {stack} x {stack}, " if stack else ""
        if operand_dtype == dtypes.bfloat16 and sum_dtype == dtypes.float32 and e.module.platform == "cpu" and e.module.devices is None:
            # XLA would fold a transpose into it, and then have no such product, or one that takes four times as long.
            lhs = e.row_major(lhs, array_type(lhs_shape, operand_dtype))
        types = f"({array_type(lhs_shape, operand_dtype).mlir}, {array_type(rhs_shape, operand_dtype).mlir}) -> {result.mlir}"
        y = e.emit(f"stablehlo.dot_general {lhs}, {rhs}, {batching}contracting_dims = [{i}] x [{j}]"
                   f"{_precision_text(precision)} : {types}")
    y = _result(e, y, result, out.dtype)
    return e.reshape(y, result.update(dtype=out.dtype), out.shape)


# --- layout -------------------------------------------------------------------------------------------------------------------

def contracted(lhs: tuple, rhs: tuple) -> tuple[Sequence[int], Sequence[int]]:
    """The dimensions over which two operands, each with its type, batch and contracted dimensions, are contracted, in the order for which
    the least must move."""
    (a, lhs_batch, lhs_contract), (b, rhs_batch, rhs_contract) = lhs, rhs
    if len(lhs_contract) < 2:
        return lhs_contract, rhs_contract
    pairs = list(zip(lhs_contract, rhs_contract))
    orders = [tuple(zip(*sorted(pairs, key=lambda pair: pair[side]))) or ((), ()) for side in (0, 1)]
    return min(orders, key=lambda order: _moved(a, lhs_batch, order[0]) + _moved(b, rhs_batch, order[1]))


@lru_cache(maxsize=4096)
def arrangement(shape: tuple[int, ...], batch: tuple[int, ...], contract: tuple[int, ...]) -> tuple[tuple[int, ...], bool, bool]:
    """The order in which an operand's dimensions are taken: (batch, free, contracted) or (batch, contracted, free); whether the
    contracted ones come first, and whether data must move. Dimensions of size 1 are anywhere."""
    free = free_dims(len(shape), batch, contract)
    orders = [((*batch, *free, *contract), False), ((*batch, *contract, *free), True)]
    sized = [[d for d in order if shape[d] != 1] for order, _ in orders]
    for (order, first), dims in zip(orders, sized):
        if dims == sorted(dims):
            return order, first, False
    last = max(sized[0])                             # rows that stay contiguous are moved as wholes
    order, first = orders[sized[1][-1] == last]
    return order, first, True


def _moved(aval, batch, contract) -> int:
    """How many elements of an operand must move."""
    return aval.size if arrangement(aval.shape, batch, contract)[2] else 0


def _arranged(e, x, aval, batch, contract):
    """The operand with its batch dimensions, at most one free and one contracted dimension; its shape; which is the contracted one (None:
    it has none, since there is nothing to add)."""
    shape = aval.shape
    order, contract_first, moves = arrangement(shape, batch, contract)
    if moves:
        moved = aval.update(shape=tuple([shape[d] for d in order]))
        x = e.emit(f"stablehlo.transpose {x}, dims = {list(order)} : ({aval.mlir}) -> {moved.mlir}")
        aval = moved
    free = free_dims(len(shape), batch, contract)
    rows, terms = [prod([shape[d] for d in dims]) for dims in (free, contract)]
    kept = [n for n in (*[shape[d] for d in batch], rows) if n != 1]
    place = None
    if terms != 1:
        place = len(kept) - (contract_first and rows != 1)
        kept.insert(place, terms)
    return e.reshape(x, aval, tuple(kept)), tuple(kept), place


def _outer(e, lhs, lhs_shape, rhs, rhs_shape, batch, rows, columns, dtype, result):
    """A product without a sum: of two broadcast operands, after `batch` dimensions that they share."""
    lead = tuple(range(batch))
    at_rows = (*lead, batch) if rows != 1 else lead
    at_columns = (*lead, batch + (rows != 1)) if columns != 1 else lead
    have = array_type(result.shape, dtype)
    sides = [e.broadcast(x, array_type(shape, dtype), result.shape, at) if shape != result.shape else x
             for x, shape, at in ((lhs, lhs_shape, at_rows), (rhs, rhs_shape, at_columns))]
    sides = [e.convert(x, have, result.dtype) for x in sides]
    return e.emit(f"stablehlo.multiply {sides[0]}, {sides[1]} : {result.mlir}")


# --- dtypes and precision ---------------------------------------------------------------------------------------------------------

_WIDE = frozenset([dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64])


def _compute_dtypes(a, b, out, precision, platform):
    """The dtypes of the operands and of the sum as XLA gets them: on CPU those of its fast kernels, and never less precise than asked."""
    common = common_dtype(a, b)
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)) and precision.accumulation_type is not None and dtypes.is_floating(common):
        sum_dtype = np.dtype(precision.accumulation_type)
    elif platform != "cpu":
        return common, out
    elif dtypes.is_complex(common) or dtypes.is_complex(out):
        sum_dtype = common if dtypes.is_complex(common) else out
    elif dtypes.is_floating(common) or dtypes.is_floating(out) or dtypes.is_bool(out) and dtypes.is_bool(common):
        sum_dtype = dtypes.float64 if dtypes.float64 in (common, out) else dtypes.float32
    else:
        sum_dtype = out if out in _WIDE else common if common in _WIDE else dtypes.int32
    native = a == b and (a, sum_dtype) in ((dtypes.bfloat16, dtypes.float32), (dtypes.int8, dtypes.int32))
    return (a if native else sum_dtype), sum_dtype


_FORMATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "f32": (8, 23)}       # bits of exponent and mantissa


def _rounded(e, x, aval, precision, side: int):
    """The operand rounded to the type that an algorithm names; one of several parts gets its operands as they are."""
    kind = None
    if isinstance(precision, DotAlgorithm) and precision[3 + side] == 1:
        kind = dtypes.short_name(np.dtype(precision[side]))
    elif isinstance(precision, DotAlgorithmPreset) and not precision.name.endswith(("X3", "X6", "X9")):
        kind = precision.precision_type
    if kind not in _FORMATS or not dtypes.is_floating(aval.dtype) or dtypes.finfo(aval.dtype).nmant <= _FORMATS[kind][1]:
        return x
    exponent, mantissa = _FORMATS[kind]
    return e.emit(f"stablehlo.reduce_precision {x}, format = e{exponent}m{mantissa} : {aval.mlir}")


def _converted(e, x, aval, dtype):
    return e.convert(x, aval, dtype), aval.update(dtype=dtype, weak_type=False)


def _result(e, y, have, dtype):
    """The sum in the dtype of the result."""
    if dtypes.is_bool(dtype) and have.dtype != dtype:
        return compare(e, "NE", y, e.constant(0, have), have)
    if dtypes.is_complex(have.dtype) and not dtypes.is_complex(dtype):
        real = have.update(dtype=dtypes.to_real(have.dtype))
        y, have = e.emit(f"stablehlo.real {y} : ({have.mlir}) -> {real.mlir}"), real
    return e.convert(y, have, dtype)


def _precision_text(precision) -> str:
    """The attribute that says how precisely to multiply. What an algorithm says has been done to the operands and the sum."""
    return f", precision = [{precision[0]}, {precision[1]}]" if type(precision) is tuple else ""
