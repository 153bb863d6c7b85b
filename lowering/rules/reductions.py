"""How reductions are written: in the dtype and the form that XLA reduces fast and exactly."""
from __future__ import annotations

from math import prod
from typing import Callable

from lowering.emit import lowers
from lowering.loops import counted
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax.reductions import (argmax_p, argmin_p, greatest, identity, least, reduce_and_p, reduce_max_number_p, reduce_max_p,
                                     reduce_min_p, reduce_or_p, reduce_p, reduce_prod_p, reduce_xor_p)
from mini_jax.lax.shapes import reduce_sum_p

_OPERATIONS = {reduce_sum_p: "add", reduce_prod_p: "multiply", reduce_max_p: "maximum", reduce_min_p: "minimum", reduce_and_p: "and",
               reduce_or_p: "or", reduce_xor_p: "xor", reduce_max_number_p: "maximum"}


def wide_dtype(dtype):
    """The dtype in which values of `dtype` are added and multiplied: at least 32 bits for floats, 8 for integers."""
    if dtypes.is_floating(dtype) and dtypes.itemsize_bits(dtype) < 32:
        return dtypes.float32
    if dtypes.is_integer(dtype) and dtypes.itemsize_bits(dtype) < 8:
        return dtypes.int32
    return dtype


def narrow_to_order(dtype):
    """The dtype in which values of `dtype` are compared: itself, where XLA knows its order well."""
    return dtype if dtype in (dtypes.bfloat16, dtypes.float16) else wide_dtype(dtype)


def combine(e, operation: str, x: str, y: str, aval) -> str:
    """`operation` (add, maximum, …) of two values of type `aval`; complex numbers are ordered lexicographically."""
    if operation in ("maximum", "minimum") and dtypes.is_complex(aval.dtype):
        first = before(e, y, x, aval) if operation == "maximum" else before(e, x, y, aval)
        return e.emit(f"stablehlo.select {first}, {x}, {y} : {aval.update(dtype=dtypes.bool_).mlir}, {aval.mlir}")
    return e.emit(f"stablehlo.{operation} {x}, {y} : {aval.mlir}")


def compare(e, direction: str, x: str, y: str, aval) -> str:
    """A comparison (LT, EQ, …) of two values of type `aval`."""
    kind = ("FLOAT" if dtypes.is_inexact(aval.dtype) else "SIGNED" if dtypes.is_signed(aval.dtype) else "UNSIGNED")
    return e.emit(f"stablehlo.compare {direction}, {x}, {y}, {kind} : ({aval.mlir}, {aval.mlir}) -> {aval.update(dtype=dtypes.bool_).mlir}")


def before(e, x: str, y: str, aval) -> str:
    """x < y; of complex numbers, lexicographically."""
    if not dtypes.is_complex(aval.dtype):
        return compare(e, "LT", x, y, aval)
    part, flag = aval.update(dtype=dtypes.to_real(aval.dtype)), aval.update(dtype=dtypes.bool_).mlir
    (a, b), (c, d) = [[e.emit(f"stablehlo.{which} {z} : ({aval.mlir}) -> {part.mlir}") for z in (x, y)] for which in ("real", "imag")]
    tied = e.emit(f"stablehlo.and {compare(e, 'EQ', a, b, part)}, {compare(e, 'LT', c, d, part)} : {flag}")
    return e.emit(f"stablehlo.or {compare(e, 'LT', a, b, part)}, {tied} : {flag}")


@lowers(*_OPERATIONS)
def _reduce_monoid(e, eqn, x):
    aval, axes = eqn.invars[0].aval, eqn.params["axes"]
    operation = _OPERATIONS[eqn.primitive]
    adds = operation in ("add", "multiply")
    dtype = (wide_dtype if adds else narrow_to_order)(aval.dtype)
    wide = aval.update(dtype=dtype)
    if dtypes.is_bool(dtype):
        operation = {"maximum": "or", "minimum": "and"}.get(operation, operation)
    x, start = e.convert(x, aval, dtype), identity(eqn.primitive, dtype if adds else aval.dtype)
    if eqn.primitive is reduce_max_number_p and axes:
        y = _reduced(e, operation, x, wide, axes, start, _disguised(e, wide, axes))
    else:
        y = reduced(e, operation, x, wide, axes, start)
    return e.convert(y, eqn.outvars[0].aval.update(dtype=dtype), aval.dtype)


def reduced(e, operation: str, x: str, aval, axes: tuple, start) -> str:
    """The reduction of x over `axes`, a tuple that may be empty, by an operation on two values, of which `start` is the identity."""
    if not axes:
        return x
    finds_nan = operation not in _EXTREMA or not misses_nan(e, aval)
    y = _reduced(e, operation, x, aval, axes, start, disguised := _disguised(e, aval, axes, not finds_nan))
    if finds_nan or disguised:
        return y
    return with_nan(e, y, _reduced(e, "add", squares(e, x, aval), aval, axes, 0, False), _without(aval, axes))


def _reduced(e, operation: str, x: str, aval, axes: tuple, start, disguised: bool) -> str:
    """The same; an extremum that is not disguised may pass over NaN."""
    scalar, out = aval.update(shape=()), _without(aval, axes)
    start = e.constant(start, scalar)
    if dtypes.is_complex(aval.dtype) and operation in _EXTREMA:
        region = lambda inner, p, q: combine(inner, operation, p, q, scalar)
    elif disguised and operation in _DISGUISED:
        region = lambda inner, p, q: _DISGUISED[operation](inner, p, q, scalar)
    else:
        return e.emit(f"stablehlo.reduce({x} init: {start}) applies stablehlo.{operation} across dimensions = {sorted(axes)} : "
                      f"({aval.mlir}, {scalar.mlir}) -> {out.mlir}")
    body = e.region([scalar.mlir] * 2, lambda inner, p, q: [(region(inner, p, q), scalar.mlir)])
    return e.emit(f'"stablehlo.reduce"({x}, {start}) ({body}) {{dimensions = array<i64: {_list(sorted(axes))}>}} : '
                  f"({aval.mlir}, {scalar.mlir}) -> {out.mlir}")


def _without(aval, axes):
    return aval.update(shape=tuple([n for i, n in enumerate(aval.shape) if i not in axes]))


def _list(values) -> str:
    return ", ".join(map(str, values))


# XLA's CPU compiler hands sums and extrema of floats to a library (jaxlib 0.10 to 0.12). It takes ten to forty times as long as XLA's own
# code where the rows that are kept are long (more than 16384 entries), and its extrema of float32 and float64 pass over NaN. XLA
# recognises what it hands over by the operation, so where its own code is as fast the operation is written as something else that means
# the same. Where the library is faster, a sum of squares, which it makes as fast and which is NaN only if a term is, says where NaN was.
_LONG_ROWS = 16384
_LIBRARY = 4096                                          # entries of the smallest arrays that are handed over
_MANY = 2 ** 18                                          # entries that take so long that a longer compilation pays
_EXTREMA = "maximum", "minimum"


def misses_nan(e, aval) -> bool:
    return e.module.platform == "cpu" and aval.dtype in (dtypes.float32, dtypes.float64) and aval.size >= _LIBRARY


def _disguised(e, aval, axes, finds_nan: bool = False) -> bool:
    """Is XLA's own code to be preferred to the library; where it should find NaN?"""
    if e.module.platform != "cpu" or not dtypes.is_floating(aval.dtype):
        return False
    return prod(aval.shape[max(axes) + 1:]) > _LONG_ROWS or finds_nan and max(axes) < len(axes) < aval.ndim and aval.size >= _MANY


def squares(e, x: str, aval) -> str:
    return e.emit(f"stablehlo.multiply {x}, {x} : {aval.mlir}")


def with_nan(e, extremum: str, summed_squares: str, out) -> str:
    """The extremum, or NaN where the sum of squares of the same entries says that one is among them."""
    return e.emit(f"stablehlo.select {compare(e, 'NE', summed_squares, summed_squares, out)}, {summed_squares}, {extremum} : "
                  f"{out.update(dtype=dtypes.bool_).mlir}, {out.mlir}")


def _plain_sum(e, x, y, aval):
    negative = e.emit(f"stablehlo.negate {y} : {aval.mlir}")
    return e.emit(f"stablehlo.subtract {x}, {negative} : {aval.mlir}")


def _plain_extremum(opposite: str) -> Callable:
    """max(x, y) = -min(-x, -y), and the other way round: NaN stays NaN."""
    def rule(e, x, y, aval):
        x, y = [e.emit(f"stablehlo.negate {z} : {aval.mlir}") for z in (x, y)]
        return e.emit(f"stablehlo.negate {e.emit(f'stablehlo.{opposite} {x}, {y} : {aval.mlir}')} : {aval.mlir}")
    return rule


_DISGUISED = {"add": _plain_sum, "maximum": _plain_extremum("minimum"), "minimum": _plain_extremum("maximum")}


# --- where the extremum is -----------------------------------------------------------------------------------------------------

_FEW = 64                                                # entries along a dimension, which are reduced as pairs
_SMALL = 2 ** 15                                         # entries of an array that takes less time than compiling
_ROW, _ROWS = 64, 2 ** 18                                # entries after the dimension that are worth a step; entries that stay in a cache
_FLOATS = 2 ** 24                                        # integers up to here are float32 too


@lowers(argmax_p, argmin_p)
def _arg_extremum(e, eqn, x):
    """In small arrays and of few entries, values and indices are reduced together. Long rows are compared one after the other with the
    best so far. Else the extremum is found, then the first index where it stands: XLA reduces single values far faster than pairs."""
    aval, out = eqn.invars[0].aval, eqn.outvars[0].aval
    axis, = eqn.params["axes"]
    largest = eqn.primitive is argmax_p
    dtype = dtypes.uint8 if dtypes.is_bool(aval.dtype) else narrow_to_order(aval.dtype)
    x, aval = e.convert(x, aval, dtype), aval.update(dtype=dtype)
    n, after = aval.shape[axis], prod(aval.shape[axis + 1:])
    index = aval.update(dtype=dtypes.int32 if n < 2 ** 30 else dtypes.int64)
    if e.module.platform != "cpu" or aval.size <= _SMALL:
        place = _reduced_pairs(e, x, aval, index, axis, largest)
    elif after >= _ROW and aval.size // n <= _ROWS:
        place = _row_by_row(e, x, aval, index, axis, largest)
    elif n <= _FEW:
        place = _reduced_pairs(e, x, aval, index, axis, largest)
    else:
        place = _extremum_then_place(e, x, aval, index, axis, largest)
    return e.convert(place, out.update(dtype=index.dtype), out.dtype)


def _worst(dtype, largest: bool):
    return (least if largest else greatest)(dtype)


def _extremum_then_place(e, x, aval, index, axis: int, largest: bool) -> str:
    """The least of i where NaN stands and n + i where the extremum does."""
    n, kept = aval.shape[axis], [i for i in range(aval.ndim) if i != axis]
    out, flag = _without(index, (axis,)), aval.update(dtype=dtypes.bool_).mlir
    counted = index.update(dtype=dtypes.float32) if 2 * n <= _FLOATS else index                   # XLA reduces floats faster
    best = _reduced(e, "maximum" if largest else "minimum", x, aval, (axis,), _worst(aval.dtype, largest), _disguised(e, aval, (axis,)))
    found = compare(e, "EQ", x, e.broadcast(best, out.update(dtype=aval.dtype), aval.shape, kept), aval)
    places, size = e.emit(f"stablehlo.iota dim = {axis} : {counted.mlir}"), e.constant(n, counted)
    if not dtypes.is_floating(aval.dtype):
        candidates = e.emit(f"stablehlo.select {found}, {places}, {size} : {flag}, {counted.mlir}")
    else:
        later = e.emit(f"stablehlo.add {places}, {size} : {counted.mlir}")
        candidates = e.emit(f"stablehlo.select {found}, {later}, {e.constant(2 * n, counted)} : {flag}, {counted.mlir}")
        candidates = e.emit(f"stablehlo.select {compare(e, 'NE', x, x, aval)}, {places}, {candidates} : {flag}, {counted.mlir}")
    first = _reduced(e, "minimum", candidates, counted, (axis,), greatest(counted.dtype), _disguised(e, counted, (axis,)))
    first = e.convert(first, out.update(dtype=counted.dtype), index.dtype)
    if dtypes.is_floating(aval.dtype):
        first = e.emit(f"stablehlo.remainder {first}, {e.constant(n, out)} : {out.mlir}")
    return first


def _row_by_row(e, x, aval, index, axis: int, largest: bool) -> str:
    n = aval.shape[axis]
    view = aval.update(shape=(prod(aval.shape[:axis]), n, prod(aval.shape[axis + 1:])))
    row = aval.update(shape=(view.shape[0], 1, view.shape[2]))
    place, flag = index.update(shape=row.shape), row.update(dtype=dtypes.bool_).mlir
    x = e.reshape(x, aval, view.shape)

    def compared(e, i, step, best, where):
        zero = e.constant(0, step)
        entry = e.emit(f"stablehlo.dynamic_slice {x}, {zero}, {i}, {zero}, sizes = {list(row.shape)} : "
                       f"({', '.join([view.mlir, *[step.mlir] * 3])}) -> {row.mlir}")
        stays = compare(e, "LE" if largest else "GE", entry, best, row)
        if dtypes.is_floating(row.dtype):
            stays = e.emit(f"stablehlo.or {stays}, {compare(e, 'NE', best, best, row)} : {flag}")
        now = e.convert(e.broadcast(i, step, place.shape, ()), place.update(dtype=step.dtype), place.dtype)
        return [e.emit(f"stablehlo.select {stays}, {old}, {new} : {flag}, {t.mlir}") for old, new, t in ((best, entry, row), (where, now, place))]
    first = e.emit(f"stablehlo.slice {x} [0:{row.shape[0]}, 0:1, 0:{row.shape[2]}] : ({view.mlir}) -> {row.mlir}")
    found = counted(e, 1, n, [first, e.constant(0, place)], [row, place], compared)[1]
    return e.reshape(found, place, aval.shape[:axis] + aval.shape[axis + 1:])


def _reduced_pairs(e, x, aval, index, axis: int, largest: bool) -> str:
    direction, places = "GT" if largest else "LT", e.emit(f"stablehlo.iota dim = {axis} : {index.mlir}")
    value, place, flag = aval.update(shape=()), index.update(shape=()), aval.update(shape=(), dtype=dtypes.bool_).mlir

    def beats(e, a, b):
        better = compare(e, direction, a, b, value)
        if not dtypes.is_floating(value.dtype):
            return better
        only_nan = e.emit(f"stablehlo.and {compare(e, 'NE', a, a, value)}, {compare(e, 'EQ', b, b, value)} : {flag}")
        return e.emit(f"stablehlo.or {better}, {only_nan} : {flag}")

    def body(e, a, i, b, j):
        not_beaten = e.emit(f"stablehlo.not {beats(e, b, a)} : {flag}")
        tied_and_first = e.emit(f"stablehlo.and {not_beaten}, {compare(e, 'LT', i, j, place)} : {flag}")
        wins = e.emit(f"stablehlo.or {beats(e, a, b)}, {tied_and_first} : {flag}")
        return [(e.emit(f"stablehlo.select {wins}, {p}, {q} : {flag}, {t.mlir}"), t.mlir)
                for p, q, t in ((a, b, value), (i, j, place))]

    region = e.region([value.mlir, place.mlir, value.mlir, place.mlir], body)
    out = [t.update(shape=aval.shape[:axis] + aval.shape[axis + 1:]).mlir for t in (aval, index)]
    starts = e.constant(_worst(aval.dtype, largest), value), e.constant(greatest(index.dtype), place)
    return e.emit_many(f'"stablehlo.reduce"({x}, {places}, {starts[0]}, {starts[1]}) ({region}) {{dimensions = array<i64: {axis}>}} : '
                       f"({aval.mlir}, {index.mlir}, {value.mlir}, {place.mlir}) -> ({', '.join(out)})", 2)[1]


# --- reduce ------------------------------------------------------------------------------------------------------------------------

@lowers(reduce_p)
def _reduce(e, eqn, *operands):
    n = len(operands) // 2
    jaxpr, dimensions = eqn.params["jaxpr"], eqn.params["dimensions"]
    if not dimensions:
        return [*operands[:n]]
    scalars = [array_type((), t.dtype).mlir for t in eqn.in_types[:n]]
    region = e.region(scalars * 2, lambda inner, *xs: list(zip(inner.inline(jaxpr, xs), scalars)))
    ins, outs = ", ".join([t.mlir for t in eqn.in_types]), ", ".join([t.mlir for t in eqn.out_types])
    return e.emit_many(f'"stablehlo.reduce"({", ".join(operands)}) ({region}) {{dimensions = array<i64: {_list(sorted(dimensions))}>}} : '
                       f"({ins}) -> ({outs})", n)
