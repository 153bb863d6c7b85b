"""Random bits: the cipher threefry2x32, the bits, keys and subkeys made with it, and bits worn as typed keys."""
from __future__ import annotations

import enum

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax import rows, shapes
from mini_jax.lax.functions import of_one_dtype

__all__ = ["threefry2x32_p", "random_bits_p", "random_split_p", "random_fold_in_p", "random_wrap_p", "random_unwrap_p",
           "rng_bit_generator_p", "rng_bit_generator", "rng_uniform_p", "rng_uniform", "RandomAlgorithm"]

_FACTS = {"family": "prng", "dtypes": frozenset([dtypes.uint32])}

threefry2x32_p = Primitive("threefry2x32", multiple_results=True, facts=_FACTS)
random_bits_p = Primitive("random_bits", facts=_FACTS)
random_split_p = Primitive("random_split", facts=_FACTS)
random_fold_in_p = Primitive("random_fold_in", facts=_FACTS)
random_wrap_p = Primitive("random_wrap", facts=_FACTS)
random_unwrap_p = Primitive("random_unwrap", facts=_FACTS)
rng_bit_generator_p = Primitive("rng_bit_generator", multiple_results=True, facts=_FACTS)
rng_uniform_p = Primitive("rng_uniform", facts={"family": "prng", "differentiable": False, "dtypes": frozenset(
    [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64])})


# --- applying them ---------------------------------------------------------------------------------------------------------

def threefry2x32(key_0, key_1, count_0, count_1) -> list:
    """Two words of a counter, enciphered with two words of a key: threefry2x32 with 20 rounds, elementwise on uint32.

    Scalars stand for arrays of equal entries. (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
    """
    return threefry2x32_p.bind(key_0, key_1, count_0, count_1)


def random_bits(key, bit_width: int, shape: tuple, partitionable: bool):
    """uint{bit_width}[*K, *shape] from keys uint32[*K, 2].

    partitionable: each number depends on its position alone, so that an array spread over devices is made without
    communication; otherwise the words come from halves of the counter, as JAX made them before 0.5.
    """
    return random_bits_p.bind(key, bit_width=bit_width, shape=shape, partitionable=partitionable)


def random_split(key, shape: tuple, partitionable: bool):
    """New keys uint32[*K, *shape, 2] from keys uint32[*K, 2]."""
    return random_split_p.bind(key, shape=shape, partitionable=partitionable)


def random_fold_in(key, data):
    """New keys uint32[*K, 2] from keys uint32[*K, 2] and one number each, uint32[*K]."""
    return random_fold_in_p.bind(key, data)


def random_wrap(data, dtype):
    """The typed keys, of the extended dtype `dtype`, whose data is uint32[*K, *dtype.physical_shape]."""
    return random_wrap_p.bind(data, dtype=dtype)


def random_unwrap(keys):
    """The data, uint32[*K, *physical_shape], of typed keys of shape K."""
    return random_unwrap_p.bind(keys)


class RandomAlgorithm(enum.IntEnum):
    """The generators that XLA has built in."""
    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


def rng_bit_generator(key, shape, dtype=dtypes.uint32, algorithm=RandomAlgorithm.RNG_DEFAULT):
    """(new key, bits of `shape` and unsigned `dtype`) by XLA's own generator, from a key uint32[4] or uint64[2].

    The bits differ between backends and releases of XLA. (StableHLO: rng_bit_generator)
    """
    return tuple(rng_bit_generator_p.bind(key, shape=shapes.canonical_shape(shape), dtype=dtypes.canonicalize(dtype),
                                          algorithm=RandomAlgorithm(algorithm)))


def rng_uniform(a, b, shape):
    """Numbers in [a, b), of `shape` and of the dtype of the scalars a and b, from a state that XLA keeps: other ones each time.

    Its use is discouraged: nothing can be repeated. mini_jax.random makes numbers from keys. Raises ValueError for bounds that are no scalars of
    one dtype. (StableHLO: rng)
    """
    return rng_uniform_p.bind(*of_one_dtype(a, b), shape=shapes.canonical_shape(shape))


# --- types -------------------------------------------------------------------------------------------------------------------

def _threefry_type(*types):
    for t in types:
        if t.dtype != dtypes.uint32:
            raise rows.type_error("threefry2x32", types, "key and counter words must be uint32")
    out = array_type(rows.result_shape("threefry2x32", types), dtypes.uint32)
    return [out, out]


def _key_shape(name: str, key) -> tuple:
    """The shape of an array of keys, given the type of their data."""
    if key.dtype != dtypes.uint32 or key.shape[-1:] != (2,):
        raise TypeError(f"{name}({key}): keys of threefry2x32 are uint32[..., 2]")
    return key.shape[:-1]


def _bits_type(key, *, bit_width, shape, partitionable):
    return array_type((*_key_shape("random_bits", key), *shape), np.dtype(f"uint{bit_width}"))


def _split_type(key, *, shape, partitionable):
    return array_type((*_key_shape("random_split", key), *shape, 2), dtypes.uint32)


def _fold_in_type(key, data):
    if data.dtype != dtypes.uint32 or data.shape != _key_shape("random_fold_in", key):
        raise TypeError(f"random_fold_in({key}, {data}): there must be one uint32 for each key")
    return key


def _wrap_type(data, *, dtype):
    rank = len(dtype.physical_shape)
    if data.dtype != dtype.physical_dtype or data.ndim < rank or data.shape[data.ndim - rank:] != dtype.physical_shape:
        block = ", ".join(["...", *map(str, dtype.physical_shape)])
        raise TypeError(f"random_wrap({data}): {dtype} consists of {dtype.physical_dtype}[{block}]")
    return array_type(data.shape[:data.ndim - rank], dtype)


def _unwrap_type(keys):
    if not dtypes.is_extended(keys.dtype):
        raise TypeError(f"random_unwrap({keys}): these are no typed keys")
    return array_type((*keys.shape, *keys.dtype.physical_shape), keys.dtype.physical_dtype)


def _generator_type(key, *, shape, dtype, algorithm):
    if (key.dtype, key.shape) not in ((dtypes.uint32, (4,)), (dtypes.uint64, (2,))):
        raise TypeError(f"lax.rng_bit_generator({key}): the key must be uint32[4] or uint64[2]")
    if not dtypes.is_unsigned(dtype) or dtypes.itemsize_bits(dtype) < 8:
        raise TypeError(f"lax.rng_bit_generator: it makes uint8, uint16, uint32 or uint64, not {dtype}")
    return [key, array_type(shape, dtype)]


def _uniform_type(a, b, *, shape):
    if a.shape or b.shape or a.dtype != b.dtype:
        raise ValueError(f"lax.rng_uniform({a}, {b}): the bounds must be scalars of one dtype")
    if a.dtype not in rng_uniform_p.facts["dtypes"]:
        raise TypeError(f"lax.rng_uniform({a}, {b}): dtype {a.dtype} is not accepted; it takes numbers of 16 bits or more")
    return array_type(shape, a.dtype)


# --- derivatives and batching ------------------------------------------------------------------------------------------------

def _without_tangent(primitive):
    def rule(primals, tangents, **params):
        out = primitive.bind(*primals, **params)
        if primitive.multiple_results:
            return out, [Zero(typeof(y).tangent()) for y in out]
        return out, Zero(typeof(out).tangent())
    return rule


def _threefry_batch(axis, args, dims):
    args, dim = rows.align(axis, args, dims)
    return threefry2x32_p.bind(*args), [dim, dim]


def _keys_first(primitive):
    """Batching of a function of one array of keys: the batch dimension becomes the first of theirs."""
    return lambda axis, args, dims, **params: (primitive.bind(shapes.moveaxis(args[0], dims[0], 0), **params), 0)


def _fold_in_batch(axis, args, dims):
    return random_fold_in(*[shapes.broadcast_in_dim(a, (axis.size, *typeof(a).shape), tuple(range(1, typeof(a).ndim + 1)))
                            if d is None else shapes.moveaxis(a, d, 0) for a, d in zip(args, dims)]), 0


def _generator_batch(axis, args, dims, *, shape, dtype, algorithm):
    """The first key makes the bits of the whole batch, as JAX documents it: the generator takes one key."""
    from mini_jax.lax import dynamic_update_slice, slice_in_dim                 # those families stand on this floor too
    keys = shapes.moveaxis(args[0], dims[0], 0)
    first = slice_in_dim(keys, 0, 1)
    key, bits = rng_bit_generator_p.bind(shapes.squeeze(first, (0,)), shape=(axis.size, *shape), dtype=dtype, algorithm=algorithm)
    return [dynamic_update_slice(keys, shapes.expand_dims(key, (0,)), (0, 0)), bits], [0, 0]


def _uniform_batch(axis, args, dims, *, shape):
    """Numbers between 0 and 1 for all examples, moved between the bounds of each."""
    dtype = typeof(args[0]).dtype
    if dtypes.is_inexact(dtype):
        whole = (axis.size, *shape)
        spread = lambda x, d: shapes.broadcast_in_dim(x, whole, () if d is None else (0,))
        low, high = [spread(x, d) for x, d in zip(args, dims)]
        return low + rng_uniform_p.bind(dtype.type(0), dtype.type(1), shape=whole) * (high - low), 0
    raise NotImplementedError("lax.rng_uniform takes no batch of integer bounds; use mini_jax.random.randint")


rng_uniform_p.type_rule, rng_uniform_p.batch = _uniform_type, _uniform_batch
threefry2x32_p.type_rule, threefry2x32_p.batch = _threefry_type, _threefry_batch
random_bits_p.type_rule, random_split_p.type_rule = _bits_type, _split_type
random_fold_in_p.type_rule, random_fold_in_p.batch = _fold_in_type, _fold_in_batch
random_wrap_p.type_rule, random_unwrap_p.type_rule = _wrap_type, _unwrap_type
rng_bit_generator_p.type_rule, rng_bit_generator_p.batch = _generator_type, _generator_batch
for _primitive in (random_bits_p, random_split_p, random_wrap_p, random_unwrap_p):
    _primitive.batch = _keys_first(_primitive)
for _primitive in (threefry2x32_p, random_bits_p, random_split_p, random_fold_in_p, random_wrap_p, random_unwrap_p, rng_bit_generator_p):
    _primitive.jvp = _without_tangent(_primitive)
