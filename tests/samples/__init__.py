"""Samples: on what values and parameters the walk over all primitives (tests/test_primitives.py) tries each of them.

Each file of this folder holds the samples of one family, by the primitive's name:

    SAMPLES = {"sin": [Sample((uniform(-3, 3),), reference=np.sin)],
               "dot_general": [Sample((uniform(-1, 1, shape=(2, 3)), uniform(-1, 1, shape=(3, 4))),
                                      {"dimension_numbers": (((1,), (0,)), ((), ())), "precision": None, ...},
                                      reference=lambda a, b, **_: a @ b, linear=((0,), (1,)))]}

A list has as many samples as the primitive has behaviours that differ by parameters (both values of a flag, a batch
dimension and none, …); edge values (NaN, zeros, ties) belong into the family's own tests, since here everything must
be differentiable. Keep arrays small, of two dimensions where the primitive allows (so that batching is tried at axes 0, 1, 2),
and of sizes that differ, so that a confusion of axes shows.
"""
from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np

from mini_jax.core import dtypes

Draw = Callable[[np.random.Generator, np.dtype], Any]
"""How one operand is made: draw(rng, dtype) -> ndarray. Called with several generators, for several valid operands, and with
every dtype of the sample; an operand of a fixed dtype (indices, a predicate) ignores `dtype`."""


@dataclass(frozen=True)
class Sample:
    """One way to apply a primitive, and what is to hold of it."""

    operands: tuple[Draw, ...]
    """One draw for each operand. Values lie inside the domain and away from kinks (by 0.05 or more)."""

    params: dict[str, Any] = field(default_factory=dict)
    """The primitive is bound with these: `primitive.bind(*operands, **params)`."""

    dtypes: frozenset | None = None
    """The dtypes to evaluate in. None: those that the primitive declares (facts["dtypes"]), else float32 alone.
    Derivatives are checked in float64 and complex128, as far as these (or their 32-bit counterparts) are among them."""

    reference: Callable | None = None
    """reference(*operands, **params) -> the result (or list of results) by NumPy or SciPy. Floating operands come as float64,
    complex ones as complex128, int2 and int4 as int8, other integers and booleans as they are; the result is cast to the
    primitive's output dtype."""

    wide: bool = True
    """False: the reference gets its operands as they are, and may look at their dtype."""

    tolerance: float = 4.0
    """Allowed error of values against the reference, in units of the dtype's eps, relative (absolute below 1). Eight times more
    in float64, where the reference itself rounds."""

    differentiable: tuple[int, ...] | None = None
    """Positions of the operands to differentiate with respect to, jointly. None: all that are floating or complex."""

    order: int = 2
    """Up to which order derivatives are checked against finite differences: 2, 1 or 0 (not at all)."""

    linear: tuple[tuple[int, ...], ...] = ((0,),)
    """For a primitive with a transpose rule: sets of operands in which it is jointly linear, e.g. ((0,), (1,)) for mul,
    ((0,), (1,), (0, 1)) for add, () for a use in which it is linear in none."""

    batched: tuple[int, ...] | None = None
    """Positions of the operands that may be batched. None: all; () where the primitive is not batched at all."""

    call: Callable | None = None
    """call(*operands) -> result or list of results, where binding `params` does not say it: parameters that are programs, or that
    depend on the dtype. It must apply the primitive (this is checked)."""


# --- draws ------------------------------------------------------------------------------------------------------------

SHAPE = (2, 3)


def uniform(low: float = -2.0, high: float = 2.0, shape: tuple[int, ...] = SHAPE, dtype=None, away_from: tuple[float, ...] = (),
            gap: float = 0.1) -> Draw:
    """Values between low and high, at least `gap` away from each of `away_from`; complex ones have both parts there.

    Integers and booleans are rounded from the same interval (unsigned ones from its absolute values). `dtype` fixes the dtype.
    """
    def draw(rng, wanted):
        wanted = np.dtype(wanted if dtype is None else dtype)
        def part():
            x = rng.uniform(low, high, shape)
            for point in away_from:
                close = np.abs(x - point) < gap
                x = np.where(close, point + np.where(x < point, -gap, gap) * (1 + np.abs(x - point) / gap), x)
            return x
        if dtypes.is_complex(wanted):
            return (part() + 1j * part()).astype(wanted)
        if dtypes.is_bool(wanted):
            return part() > (low + high) / 2
        if dtypes.is_integer(wanted):
            limits = dtypes.iinfo(wanted)
            x = np.round(np.abs(part()) if dtypes.is_unsigned(wanted) else part())
            return np.clip(x, int(limits.min), int(limits.max)).astype(np.int64).astype(wanted)
        return part().astype(wanted)
    return draw


def integers(low: int, high: int, shape: tuple[int, ...] = SHAPE, dtype=None) -> Draw:
    """Integers in [low, high), of the sample's dtype unless one is given: indices, shifts, bit patterns."""
    return lambda rng, wanted: rng.integers(low, high, shape).astype(wanted if dtype is None else dtype)


def booleans(shape: tuple[int, ...] = SHAPE) -> Draw:
    """Both truth values."""
    def draw(rng, _):
        x = np.arange(int(np.prod(shape)))
        return (rng.permutation(x) % 2 == 0).reshape(shape)
    return draw


def distinct(shape: tuple[int, ...] = SHAPE, step: float = 0.25) -> Draw:
    """A random arrangement of values that all differ by at least `step` (ints: by 1), around zero: for sort, max and argmax."""
    def draw(rng, wanted):
        x = rng.permutation(int(np.prod(shape))).reshape(shape)
        wanted = np.dtype(wanted)
        if dtypes.is_bool(wanted):
            return x % 2 == 0
        if dtypes.is_unsigned(wanted):
            return x.astype(wanted)
        centred = x - x.size // 2
        if dtypes.is_integer(wanted):
            return centred.astype(wanted)
        return ((centred + 0.3) * step).astype(wanted) * (wanted.type(1 + 0.5j) if dtypes.is_complex(wanted) else wanted.type(1))
    return draw


def any_bits(shape: tuple[int, ...] = SHAPE) -> Draw:
    """Integers of the whole range of the dtype; booleans."""
    def draw(rng, wanted):
        wanted = np.dtype(wanted)
        if dtypes.is_bool(wanted):
            return rng.integers(0, 2, shape) == 1
        limits, wide = dtypes.iinfo(wanted), np.uint64 if wanted == np.uint64 else np.int64
        return rng.integers(int(limits.min), int(limits.max), shape, wide, endpoint=True).astype(wanted)
    return draw


def constant(value, dtype=None) -> Draw:
    """Always this value."""
    return lambda rng, wanted: np.asarray(value, wanted if dtype is None else dtype)


def collect() -> dict[str, list[Sample]]:
    """The samples of all files of this folder, by the primitive's name."""
    found: dict[str, list[Sample]] = {}
    for module in pkgutil.iter_modules(__path__):
        for name, samples in getattr(importlib.import_module(f"{__name__}.{module.name}"), "SAMPLES", {}).items():
            found.setdefault(name, []).extend(samples)
    return found
