"""How cumulative operations are written: as a loop along the dimension, which XLA's CPU compiler turns into one tight kernel where
rows are short (1e6 numbers in a line: 5 ms), and runs row by row where they are long.

Other platforms get log₂ n steps over the whole array (Hillis & Steele 1986), since there a loop would be slow.
"""
from __future__ import annotations

from math import prod
from typing import Callable, NamedTuple, Sequence

import numpy as np

from lowering.emit import lowers
from lowering.loops import counted
from lowering.rules.reductions import combine, compare, wide_dtype
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax.cumulative import cumlogsumexp_p, cummax_p, cummin_p, cumprod_p, cumsum_p, recurrence_p
from mini_jax.lax.reductions import greatest, least


class Accumulation(NamedTuple):
    """What a cumulative operation accumulates: a state of one or more values, merged associatively.

    dtypes, identity: of the state's values. lift(e, entries, t): the state that stands for one entry of each operand.
    merge(e, left, right, t): the state of two neighbouring stretches; value(e, state, t): the result at the end of a stretch.
    t(dtype) is the type of the arrays at hand. A left value that the merge of others does not need may be None.
    """
    dtypes: Sequence
    identity: Sequence
    merge: Callable
    lift: Callable = lambda e, entries, t: entries
    value: Callable = lambda e, state, t: state[-1]


def carry_dtype(dtype):
    """The dtype in which sums are carried along: 64 bits for floats, so that each entry is right to its last bit."""
    if dtypes.is_complex(dtype):
        return dtypes.complex128
    return dtypes.float64 if dtypes.is_floating(dtype) else dtype


def _simple(operation: str, identity, dtype) -> Accumulation:
    return Accumulation([dtype], [identity], lambda e, left, right, t: [combine(e, operation, left[0], right[0], t(dtype))])


def _recurrence(dtype) -> Accumulation:
    """oᵢ = aᵢ oᵢ₋₁ + bᵢ: stretches are affine functions (a, b) of what comes before, merged by composition."""
    def merge(e, left, right, t):
        (a, b), (c, d), kind = left, right, t(dtype).mlir
        moved = e.emit(f"stablehlo.multiply {c}, {b} : {kind}")
        return [a and e.emit(f"stablehlo.multiply {a}, {c} : {kind}"), e.emit(f"stablehlo.add {moved}, {d} : {kind}")]
    return Accumulation([dtype, dtype], [1, 0], merge)


def _log_sum_exp(dtype) -> Accumulation:
    """A sum of exponentials as (m, s), which stands for s · exp m; m is the greatest (real part of an) exponent."""
    real = dtypes.to_real(dtype)

    def lift(e, entries, t):
        x, = entries
        if not dtypes.is_complex(dtype):
            return [x, e.constant(1, t(dtype))]
        m, angle = [e.emit(f"stablehlo.{part} {x} : ({t(dtype).mlir}) -> {t(real).mlir}") for part in ("real", "imag")]
        cos, sin = [e.emit(f"stablehlo.{function} {angle} : {t(real).mlir}") for function in ("cosine", "sine")]
        return [m, e.emit(f"stablehlo.complex {cos}, {sin} : {t(dtype).mlir}")]

    def merge(e, left, right, t):
        (m, s), (n, r), kind, flag = left, right, t(real), t(dtypes.bool_).mlir
        distance = e.emit(f"stablehlo.abs {e.emit(f'stablehlo.subtract {m}, {n} : {kind.mlir}')} : {kind.mlir}")
        ratio = e.emit(f"stablehlo.exponential {e.emit(f'stablehlo.negate {distance} : {kind.mlir}')} : {kind.mlir}")
        tied = compare(e, "EQ", m, n, kind)                                                   # also where both are infinite
        ratio = e.emit(f"stablehlo.select {tied}, {e.constant(1, kind)}, {ratio} : {flag}, {kind.mlir}")
        if dtypes.is_complex(dtype):
            ratio = e.emit(f"stablehlo.complex {ratio}, {e.constant(0, kind)} : {t(dtype).mlir}")
        less = compare(e, "LT", m, n, kind)
        shrunk, whole = [e.emit(f"stablehlo.select {less}, {a}, {b} : {flag}, {t(dtype).mlir}") for a, b in ((s, r), (r, s))]
        small = e.emit(f"stablehlo.multiply {shrunk}, {ratio} : {t(dtype).mlir}")
        return [e.emit(f"stablehlo.maximum {m}, {n} : {kind.mlir}"), e.emit(f"stablehlo.add {whole}, {small} : {t(dtype).mlir}")]

    def value(e, state, t):
        m, log = state[0], e.emit(f"stablehlo.log {state[1]} : {t(dtype).mlir}")
        if dtypes.is_complex(dtype):
            m = e.emit(f"stablehlo.complex {m}, {e.constant(0, t(real))} : {t(dtype).mlir}")
        return e.emit(f"stablehlo.add {m}, {log} : {t(dtype).mlir}")

    return Accumulation([real, dtype], [-np.inf, 0], merge, lift, value)


@lowers(cumsum_p, cumprod_p, cummax_p, cummin_p, cumlogsumexp_p, recurrence_p)
def _cumulative(e, eqn, *operands):
    primitive, out = eqn.primitive, eqn.outvars[0].aval
    stored = wide_dtype(out.dtype)
    if primitive is cumsum_p:
        kind = _simple("add", 0, carry_dtype(stored))
    elif primitive is cumprod_p:
        kind = _simple("multiply", 1, carry_dtype(stored))
    elif primitive is recurrence_p:
        kind = _recurrence(carry_dtype(stored))
    elif primitive is cumlogsumexp_p:
        kind = _log_sum_exp(stored)
    else:
        kind = _simple("maximum", least(stored), stored) if primitive is cummax_p else _simple("minimum", greatest(stored), stored)
    if out.size == 0 or len(operands) == 1 and out.shape[eqn.params["axis"]] == 1:
        return operands[-1]
    operands = [e.convert(x, v.aval, stored) for x, v in zip(operands, eqn.invars)]
    write = _loop if e.module.platform == "cpu" else _doubling
    return e.convert(write(e, kind, operands, out.update(dtype=stored), **eqn.params), out.update(dtype=stored), out.dtype)


_ROW = 64           # entries after the dimension from which on a row is worth a step of its own
_CHAINS = 8         # so many sums, each of which waits for its last addition, run side by side in one core


def _loop(e, kind: Accumulation, operands: Sequence[str], aval, *, axis: int, reverse: bool) -> str:
    """One step for each entry along the dimension, over rows of all that comes after it. Of what comes before it, a few indices (where
    rows are long: all) are taken at once, and the others one after the other, starting anew at each."""
    before, n, after = prod(aval.shape[:axis]), aval.shape[axis], prod(aval.shape[axis + 1:])
    together = before if after >= _ROW else max([k for k in (1, 2, 4, 8) if before % k == 0 and (k == 1 or k * after <= _CHAINS)])
    view = aval.update(shape=(together, before // together * n, after))
    outer, steps, _ = view.shape
    t = lambda dtype: array_type((outer, 1, after), dtype)
    operands = [e.reshape(x, aval, view.shape) for x in operands]
    carried = range(len(kind.dtypes)) if len(operands) == 1 else range(1, 2)            # of a recurrence, only o
    starts = [e.constant(kind.identity[k], t(kind.dtypes[k])) for k in carried]

    def body(e, i, index, *values):
        *state, result = values
        zero, positions = e.constant(0, index), ", ".join([index.mlir] * 3)
        phase = i if steps == n else e.emit(f"stablehlo.remainder {i}, {e.constant(n, index)} : {index.mlir}")
        anew = compare(e, "EQ", phase, zero, index)
        if steps != n:
            state = [e.emit(f"stablehlo.select {anew}, {start}, {s} : tensor<i1>, {t(kind.dtypes[k]).mlir}")
                     for k, start, s in zip(carried, starts, state)]
        place = e.emit(f"stablehlo.subtract {e.constant(steps - 1, index)}, {i} : {index.mlir}") if reverse else i
        row = t(view.dtype)
        entries = [e.emit(f"stablehlo.dynamic_slice {x}, {zero}, {place}, {zero}, sizes = {list(row.shape)} : "
                          f"({view.mlir}, {positions}) -> {row.mlir}") for x in operands]
        entries = [e.convert(x, row, kind.dtypes[-1]) for x in entries]
        if len(entries) == 2:                                                           # what would multiply o₋₁ = 0 may be infinite
            carry = t(kind.dtypes[0])
            entries[0] = e.emit(f"stablehlo.select {anew}, {e.constant(0, carry)}, {entries[0]} : tensor<i1>, {carry.mlir}")
        left = [None] * (len(kind.dtypes) - len(state)) + state
        state = kind.merge(e, left, kind.lift(e, entries, t), t)
        y = e.convert(kind.value(e, state, t), t(kind.dtypes[-1]), view.dtype)
        result = e.emit(f"stablehlo.dynamic_update_slice {result}, {y}, {zero}, {place}, {zero} : "
                        f"({view.mlir}, {row.mlir}, {positions}) -> {view.mlir}")
        return [*[state[k] for k in carried], result]
    results = counted(e, 0, steps, [*starts, e.constant(0, view)], [*[t(kind.dtypes[k]) for k in carried], view], body)
    return e.reshape(results[-1], view, aval.shape)


def _doubling(e, kind: Accumulation, operands: Sequence[str], aval, *, axis: int, reverse: bool) -> str:
    """After step k each entry stands for the 2ᵏ entries that end (with reverse, begin) there."""
    n, t = aval.shape[axis], lambda dtype: aval.update(dtype=dtype)
    if len(operands) == 2:                                                              # what would multiply o₋₁ = 0 may be infinite
        places, flag = t(dtypes.int32), t(dtypes.bool_)
        place = e.emit(f"stablehlo.iota dim = {axis} : {places.mlir}")
        first = compare(e, "EQ", place, e.constant(n - 1 if reverse else 0, places), places)
        operands = [e.emit(f"stablehlo.select {first}, {e.constant(0, aval)}, {operands[0]} : {flag.mlir}, {aval.mlir}"), operands[1]]
    state = kind.lift(e, [e.convert(x, aval, kind.dtypes[-1]) for x in operands], t)
    distance = 1
    while distance < n:
        low, high = [0] * aval.ndim, [0] * aval.ndim
        low[axis], high[axis] = (-distance, distance) if reverse else (distance, -distance)
        earlier = []
        for value, dtype, identity in zip(state, kind.dtypes, kind.identity):
            scalar = array_type((), dtype)
            earlier.append(e.emit(f"stablehlo.pad {value}, {e.constant(identity, scalar)}, low = {low}, high = {high}, "
                                  f"interior = {[0] * aval.ndim} : ({t(dtype).mlir}, {scalar.mlir}) -> {t(dtype).mlir}"))
        state = kind.merge(e, earlier, state, t)
        distance *= 2
    return e.convert(kind.value(e, state, t), t(kind.dtypes[-1]), aval.dtype)
