"""Drawing from finite sets: shuffling, picking with and without putting back, categories with given logits."""
from __future__ import annotations

import math

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axis, canonical_shape
from mini_jax.random.arguments import keys_of, parameter, placed
from mini_jax.random.continuous import GUMBEL, gumbel_mode
from mini_jax.random.keys import opened
from mini_jax.random.uniform import integers, unit
from mini_jax.runtime.dispatch import library

__all__ = ["permutation", "choice", "categorical"]


def _population(name: str, x):
    """The type of a population: an array, or a number n that stands for the integers below it."""
    if isinstance(x, (list, tuple)):
        raise TypeError(f"random.{name}: the population must be an array or an integer, not a {type(x).__name__}; make it an array first")
    return typeof(x)


def _count(name: str, x) -> int:
    """The n of a population given as a number."""
    try:
        return x.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"random.{name}: the population must be an integer or an array with dimensions, got {x!r:.100}") from None


# --- permutation ---------------------------------------------------------------------------------------------------------------------

def permutation(key, x, axis=0, independent=False, *, out_sharding=None):
    """The integers below x in random order, or the array x with the slices along `axis` in random order.

    independent: shuffle each line along `axis` by itself.
    Raises TypeError for what is neither integer nor array, ValueError for an axis that x does not have.
    """
    data, generator, _ = opened(key, "permutation")
    aval = _population("permutation", x)
    if aval.ndim == 0:
        out = _shuffled_range(data, generator, _count("permutation", x))
    else:
        axis = canonical_axis(axis, aval.ndim)
        out = _permuted(data, generator, x, axis, bool(independent) or aval.ndim == 1)
    return out if out_sharding is None else placed(out, out_sharding)


@library(static_argnames=("generator", "number"))
def _shuffled_range(data, generator, number):
    return _shuffled(data, generator, lax.iota(dtypes.default_int(), number), 0)


@library(static_argnames=("generator", "axis", "independent"))
def _permuted(data, generator, x, axis, independent):
    if independent:
        return _shuffled(data, generator, x, axis)
    order = _shuffled_range(data, generator, typeof(x).shape[axis])
    return jnp.take(x, order, axis=axis)


def _shuffled(data, generator, x, axis: int):
    """Sorted by random words, as often as makes it unlikely that equal words ever left two entries in order."""
    shape = typeof(x).shape
    rounds = math.ceil(3 * math.log(max(1, math.prod(shape))) / math.log(2 ** 32 - 1))
    for _ in range(rounds):
        data, subkey = keys_of(data, generator, 2)
        _, x = lax.sort_key_val(generator.bits(subkey, 32, shape), x, dimension=axis)
    return x


# --- choice ------------------------------------------------------------------------------------------------------------------------------

def choice(key, a, shape=(), replace=True, p=None, axis=0, mode=None):
    """`shape` many of the integers below a, or of the slices of the array a along `axis`.

    replace: whether the same may be drawn twice. p: their probabilities (default: all alike).
    mode: see `gumbel`, which drawing without putting back by probabilities goes by.
    Raises ValueError for an empty population, for too many draws without putting back, for p of another length.
    """
    data, generator, _ = opened(key, "choice")
    aval, shape = _population("choice", a), canonical_shape(shape)
    number = _count("choice", a) if aval.ndim == 0 else aval.shape[canonical_axis(axis, aval.ndim)]
    axis = 0 if aval.ndim == 0 else canonical_axis(axis, aval.ndim)
    draws = math.prod(shape)
    if draws and number <= 0:
        raise ValueError("random.choice: nothing can be drawn from an empty population")
    if not replace and draws > number:
        raise ValueError(f"random.choice: {draws} different ones can't be drawn from a population of {number} (replace=False)")
    if p is not None and typeof(p).shape != (number,):
        raise ValueError(f"random.choice: p must have one probability for each of the population, shape ({number},); it is {typeof(p)}")
    return _chosen(data, generator, None if aval.ndim == 0 else a, p, number, shape, bool(replace), axis, gumbel_mode("choice", mode))


@library(static_argnames=("generator", "number", "shape", "replace", "axis", "mode"))
def _chosen(data, generator, a, p, number, shape, replace, axis, mode):
    draws = math.prod(shape)
    if draws == 0:
        indices = lax.full(shape, 0, dtypes.default_int())
    elif p is None and not replace:
        population = lax.iota(dtypes.default_int(), number) if a is None else a
        first = lax.slice_in_dim(_permuted(data, generator, population, axis, typeof(population).ndim == 1), 0, draws, axis=axis)
        rest = typeof(first).shape
        return lax.reshape(first, (*rest[:axis], *shape, *rest[axis + 1:]))
    elif p is None:
        indices = integers(data, generator, shape, dtypes.default_int(), 0, number)
    else:
        p = parameter(p, dtypes.to_inexact(typeof(p).dtype))
        dtype = typeof(p).dtype
        if replace:
            below = jnp.cumsum(p)
            u = lax.mul(below[-1], lax.sub(dtype.type(1), unit(data, generator, shape, dtype)))
            indices = lax.convert_element_type(jnp.searchsorted(below, u), dtypes.default_int())
        else:
            noise = GUMBEL[mode](data, generator, (number,), dtype)
            indices = lax.reshape(lax.top_k(lax.add(noise, lax.log(p)), draws)[1], shape)
    return indices if a is None else jnp.take(a, indices, axis=axis)


# --- categories ---------------------------------------------------------------------------------------------------------------------------

def categorical(key, logits, axis=-1, shape=None, replace=True, mode=None, *, out_sharding=None):
    """Positions along `axis` with probabilities in proportion to exp(logits): where logits plus Gumbel noise is largest.

    shape: that of the result, ending in the batch shape (logits' without `axis`), which is the default; before it, more draws.
    replace=False: the draws before the batch shape are all different (those of the largest sums).
    Raises ValueError for a shape that does not end so, and for more different draws than categories.
    """
    data, generator, _ = opened(key, "categorical")
    aval = typeof(logits)
    if not dtypes.is_floating(aval.dtype):
        raise ValueError(f"random.categorical: logits must be floating, got {aval}")
    axis = canonical_axis(axis, aval.ndim)
    batch = aval.shape[:axis] + aval.shape[axis + 1:]
    shape = batch if shape is None else canonical_shape(shape)
    lead = len(shape) - len(batch)
    try:
        fits = lead >= 0 and np.broadcast_shapes(shape, batch) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"random.categorical: shape={shape} must end in the batch shape {batch} of logits {aval} without axis {axis}")
    mode = gumbel_mode("categorical", mode)
    if replace:
        out = _categories(data, generator, mode, logits, axis, shape)
    else:
        draws = math.prod(shape[:lead])
        if draws > aval.shape[axis]:
            raise ValueError(f"random.categorical: {draws} different ones can't be drawn from {aval.shape[axis]} categories (replace=False)")
        out = _different_categories(data, generator, mode, logits, axis, shape, draws)
    return out if out_sharding is None else placed(out, out_sharding)


@library(static_argnames=("generator", "mode", "axis", "shape"))
def _categories(data, generator, mode, logits, axis, shape):
    aval = typeof(logits)
    lead = len(shape) - (aval.ndim - 1)
    own = list(shape[lead:])
    own.insert(axis, aval.shape[axis])
    full = (*shape[:lead], *own)
    scores = lax.add(GUMBEL[mode](data, generator, full, aval.dtype), lax.broadcast_in_dim(logits, full, tuple(range(lead, len(full)))))
    return lax.argmax(scores, lead + axis, dtypes.default_int())


@library(static_argnames=("generator", "mode", "axis", "shape", "draws"))
def _different_categories(data, generator, mode, logits, axis, shape, draws):
    aval = typeof(logits)
    scores = lax.add(GUMBEL[mode](data, generator, aval.shape, aval.dtype), logits)
    order = [i for i in range(aval.ndim) if i != axis]
    found = lax.top_k(lax.transpose(scores, (*order, axis)), draws)[1]
    return lax.reshape(lax.transpose(found, (aval.ndim - 1, *range(aval.ndim - 1))), shape)
