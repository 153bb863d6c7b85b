"""How sorting is written. XLA's CPU compiler sorts one array of plain numbers by `<` five times as fast as by any other
comparison or several arrays together, so that is what it gets:

- integers alone, as they are;
- else the keys as unsigned integers of 32 bits in the same order (digits): each digit, with the position of its entry below it in
  64 bits, is sorted, the last digit first. What comes out below is the permutation, which the operands then follow.

Other platforms, and small arrays, which take no time, get one sort of all operands by a comparison of the keys: it compiles faster.
"""
from __future__ import annotations

from math import prod
from typing import Sequence

import numpy as np

from lowering.emit import lowers
from lowering.rules.reductions import compare, wide_dtype
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax.sorting import sort_p, top_k_p

_BOOL = dtypes.bool_
_FEW = 2048


@lowers(sort_p)
def _sort(e, eqn, *operands):
    types, dimension, num_keys = eqn.in_types, eqn.params["dimension"], eqn.params["num_keys"]
    aval = types[0]
    if aval.size == 0 or aval.shape[dimension] == 1:
        return list(operands)
    if len(operands) == 1 and not dtypes.is_inexact(aval.dtype):
        dtype = dtypes.uint8 if dtypes.is_bool(aval.dtype) else wide_dtype(aval.dtype)
        number = aval.update(dtype=dtype)
        return [e.convert(_ascending(e, e.convert(operands[0], aval, dtype), number, dimension), number, aval.dtype)]
    whole = [t.update(dtype=_in_whole_bytes(t.dtype)) for t in types]
    operands = [e.convert(x, t, w.dtype) for x, t, w in zip(operands, types, whole)]
    if e.module.platform != "cpu" or aval.size <= _FEW:
        outs = _sorted_together(e, operands, whole, dimension, num_keys)
    else:
        digits = [digit for x, t in zip(operands[:num_keys], whole) for digit in _digits(e, x, t, equal_zeros=True)]
        order = _order(e, digits, aval, dimension)
        outs = [_taken(e, x, t, order, dimension) for x, t in zip(operands, whole)]
    return [e.convert(x, w, t.dtype) for x, t, w in zip(outs, types, whole)]


def _in_whole_bytes(dtype):
    """A dtype of at least one byte that holds the values of `dtype`: XLA's sort confuses entries that share a byte."""
    return wide_dtype(dtype) if dtypes.itemsize_bits(dtype) < 8 and not dtypes.is_bool(dtype) else dtype


def _ascending(e, x, aval, dimension: int) -> str:
    """An array of integers, in order."""
    scalar = aval.update(shape=())
    body = e.region([scalar.mlir] * 2, lambda e, a, b: [(compare(e, "LT", a, b, scalar), scalar.update(dtype=_BOOL).mlir)])
    return e.emit(f'"stablehlo.sort"({x}) ({body}) {{dimension = {dimension} : i64, is_stable = true}} : '
                  f"({aval.mlir}) -> {aval.mlir}")


def _positions(e, aval, dimension: int) -> str:
    return e.emit(f"stablehlo.iota dim = {dimension} : {aval.mlir}")


# --- keys and permutations -----------------------------------------------------------------------------------------------------------------

def _digits(e, x, aval, *, equal_zeros: bool) -> list[tuple[str, object]]:
    """A key as one or two arrays of uint32, the first foremost, in the same order. Floats are ordered totally; with equal_zeros, -0 = 0
    and all NaN are equal and the last."""
    if dtypes.is_complex(aval.dtype):
        part = aval.update(dtype=dtypes.to_real(aval.dtype))
        parts = [e.emit(f"stablehlo.{which} {x} : ({aval.mlir}) -> {part.mlir}") for which in ("real", "imag")]
        return [digit for y in parts for digit in _digits(e, y, part, equal_zeros=equal_zeros)]
    bits = 64 if dtypes.itemsize_bits(aval.dtype) == 64 else 32
    word, signed = [aval.update(dtype=d) for d in ((dtypes.uint64, dtypes.int64) if bits == 64 else (dtypes.uint32, dtypes.int32))]
    flag = aval.update(dtype=_BOOL).mlir
    top = e.constant(1 << (bits - 1), word)
    if dtypes.is_floating(aval.dtype):
        wide = aval.update(dtype=dtypes.float64 if bits == 64 else dtypes.float32)
        x = e.convert(x, aval, wide.dtype)
        if equal_zeros:
            zero = e.constant(0, wide)
            x = e.emit(f"stablehlo.select {compare(e, 'EQ', x, zero, wide)}, {zero}, {x} : {flag}, {wide.mlir}")
            x = e.emit(f"stablehlo.select {compare(e, 'NE', x, x, wide)}, {e.constant(np.nan, wide)}, {x} : {flag}, {wide.mlir}")
        x = e.emit(f"stablehlo.bitcast_convert {x} : ({wide.mlir}) -> {word.mlir}")
        negative = compare(e, "GE", x, top, word)
        flipped, raised = e.emit(f"stablehlo.not {x} : {word.mlir}"), e.emit(f"stablehlo.or {x}, {top} : {word.mlir}")
        x = e.emit(f"stablehlo.select {negative}, {flipped}, {raised} : {flag}, {word.mlir}")
    elif dtypes.is_signed(aval.dtype):
        x = e.emit(f"stablehlo.bitcast_convert {e.convert(x, aval, signed.dtype)} : ({signed.mlir}) -> {word.mlir}")
        x = e.emit(f"stablehlo.xor {x}, {top} : {word.mlir}")
    else:
        x = e.convert(x, aval, word.dtype)
    if bits == 32:
        return [x]
    high = e.emit(f"stablehlo.shift_right_logical {x}, {e.constant(32, word)} : {word.mlir}")
    return [e.convert(high, word, dtypes.uint32), e.convert(x, word, dtypes.uint32)]


def _order(e, digits: Sequence[str], aval, dimension: int) -> str:
    """The permutation along `dimension`, as int32, that sorts by digits, the first foremost; equal entries keep their order."""
    digit, word, place = [aval.update(dtype=d) for d in (dtypes.uint32, dtypes.uint64, dtypes.int32)]
    order = None
    for x in reversed(digits):
        if order is not None:
            x = _taken(e, x, digit, order, dimension)
        high = e.emit(f"stablehlo.shift_left {e.convert(x, digit, word.dtype)}, {e.constant(32, word)} : {word.mlir}")
        packed = e.emit(f"stablehlo.or {high}, {_positions(e, word, dimension)} : {word.mlir}")
        moved = e.convert(_ascending(e, packed, word, dimension), word, place.dtype)
        order = moved if order is None else _taken(e, order, place, moved, dimension)
    return order


def _taken(e, x, aval, order: str, dimension: int, size: int | None = None) -> str:
    """x at the positions `order` (int32, of size `size`) along `dimension`."""
    before, n, after = prod(aval.shape[:dimension]), aval.shape[dimension], prod(aval.shape[dimension + 1:])
    size = n if size is None else size
    out = aval.update(shape=(*aval.shape[:dimension], size, *aval.shape[dimension + 1:]))
    place = array_type((before, size, after), dtypes.int32 if aval.size < 2 ** 31 else dtypes.int64)
    order = e.reshape(e.convert(order, out.update(dtype=dtypes.int32), place.dtype), out.update(dtype=place.dtype), place.shape)
    times = lambda index, factor: e.emit(f"stablehlo.multiply {index}, {e.constant(factor, place)} : {place.mlir}")
    scaled = lambda index, factor: index if factor == 1 else times(index, factor)
    order = scaled(order, after)
    if before != 1:
        order = e.emit(f"stablehlo.add {order}, {scaled(_positions(e, place, 0), n * after)} : {place.mlir}")
    if after != 1:
        order = e.emit(f"stablehlo.add {order}, {_positions(e, place, 2)} : {place.mlir}")
    line, starts = aval.update(shape=(aval.size,)), place.update(shape=(place.size, 1))
    y = out.update(shape=(out.size,))
    taken = e.emit(f'"stablehlo.gather"({e.reshape(x, aval, line.shape)}, {e.reshape(order, place, starts.shape)}) {{dimension_numbers = '
                   "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
                   f"slice_sizes = array<i64: 1>, indices_are_sorted = false}} : ({line.mlir}, {starts.mlir}) -> {y.mlir}")
    return e.reshape(taken, y, out.shape)


def _sorted_together(e, operands, types, dimension: int, num_keys: int) -> list[str]:
    """One sort of all operands, by a comparison of the digits of their keys."""
    scalars = [t.update(shape=()) for t in types]
    digit, flag = array_type((), dtypes.uint32), array_type((), _BOOL).mlir

    def body(e, *pairs):
        result = None
        keys = [(a, b) for k in range(num_keys) for a, b in
                zip(*[_digits(e, pairs[2 * k + side], scalars[k], equal_zeros=True) for side in (0, 1)])]
        for a, b in reversed(keys):
            less = compare(e, "LT", a, b, digit)
            if result is not None:
                tied = e.emit(f"stablehlo.and {compare(e, 'EQ', a, b, digit)}, {result} : {flag}")
                less = e.emit(f"stablehlo.or {less}, {tied} : {flag}")
            result = less
        return [(result, flag)]

    region = e.region([t.mlir for t in scalars for _ in (0, 1)], body)
    kinds = ", ".join([t.mlir for t in types])
    return e.emit_many(f'"stablehlo.sort"({", ".join(operands)}) ({region}) {{dimension = {dimension} : i64, is_stable = true}} : '
                       f"({kinds}) -> ({kinds})", len(operands))


# --- top_k ----------------------------------------------------------------------------------------------------------------------------

@lowers(top_k_p)
def _top_k(e, eqn, x):
    """XLA has a fast kernel for float32, the order of whose bits is that of any key of 32 bits; of wider keys all are sorted."""
    aval, (values, indices), k, axis = eqn.in_types[0], eqn.out_types, eqn.params["k"], eqn.params["axis"]
    if values.size == 0:
        return [e.constant(0, values), e.constant(0, indices)]
    if dtypes.itemsize_bits(aval.dtype) == 64:
        word = aval.update(dtype=dtypes.uint32)
        descending = [e.emit(f"stablehlo.not {digit} : {word.mlir}") for digit in _digits(e, x, aval, equal_zeros=False)]
        order = _order(e, descending, aval, axis)
        low, high = [0] * aval.ndim, values.shape
        bounds = ", ".join([f"{a}:{b}" for a, b in zip(low, high)])
        order = e.emit(f"stablehlo.slice {order} [{bounds}] : ({aval.update(dtype=dtypes.int32).mlir}) -> {indices.mlir}")
        return [_taken(e, x, aval, order, axis, k), order]
    last = [i for i in range(aval.ndim) if i != axis] + [axis]
    x, aval = _transposed(e, x, aval, last)
    number, word = aval.update(dtype=dtypes.float32), aval.update(dtype=dtypes.int32)
    exact = dtypes.itemsize_bits(aval.dtype) < 32 or aval.dtype == dtypes.float32
    x = e.convert(x, aval, number.dtype) if exact else _as_float(e, x, aval, number)
    top = number.update(shape=(*aval.shape[:-1], k))
    found, places = e.emit_many(f"chlo.top_k({x}, k = {k}) : {number.mlir} -> ({top.mlir}, {top.update(dtype=dtypes.int32).mlir})", 2)
    found = e.convert(found, top, aval.dtype) if exact else _as_integer(e, found, top, aval.dtype)
    back = np.argsort(last).tolist()
    return [_transposed(e, found, top.update(dtype=aval.dtype), back)[0], _transposed(e, places, top.update(dtype=dtypes.int32), back)[0]]


def _transposed(e, x, aval, permutation):
    if permutation == sorted(permutation):
        return x, aval
    out = aval.update(shape=tuple([aval.shape[p] for p in permutation]))
    return e.emit(f"stablehlo.transpose {x}, dims = {permutation} : ({aval.mlir}) -> {out.mlir}"), out


def _as_float(e, x, aval, number) -> str:
    """A 32-bit integer as the float32 whose bits stand at the same place in the total order."""
    word = aval.update(dtype=dtypes.int32)
    if not dtypes.is_signed(aval.dtype):
        x = e.emit(f"stablehlo.xor {x}, {e.constant(1 << 31, aval)} : {aval.mlir}")
        x = e.emit(f"stablehlo.bitcast_convert {x} : ({aval.mlir}) -> {word.mlir}")
    return e.emit(f"stablehlo.bitcast_convert {_flipped(e, x, word)} : ({word.mlir}) -> {number.mlir}")


def _as_integer(e, x, number, dtype) -> str:
    """The inverse of _as_float."""
    word, out = number.update(dtype=dtypes.int32), number.update(dtype=dtype)
    x = _flipped(e, e.emit(f"stablehlo.bitcast_convert {x} : ({number.mlir}) -> {word.mlir}"), word)
    if dtypes.is_signed(dtype):
        return x
    x = e.emit(f"stablehlo.bitcast_convert {x} : ({word.mlir}) -> {out.mlir}")
    return e.emit(f"stablehlo.xor {x}, {e.constant(1 << 31, out)} : {out.mlir}")


def _flipped(e, x, word) -> str:
    """The bits below the sign turned over where the sign is set: from two's complement to sign and magnitude, and back."""
    sign = e.emit(f"stablehlo.shift_right_arithmetic {x}, {e.constant(31, word)} : {word.mlir}")
    mask = e.emit(f"stablehlo.and {sign}, {e.constant(2 ** 31 - 1, word)} : {word.mlir}")
    return e.emit(f"stablehlo.xor {x}, {mask} : {word.mlir}")
