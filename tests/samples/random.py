"""Samples of the primitives that make random bits. The reference is threefry2x32 on Python's integers in NumPy arrays."""
import numpy as np

from mini_jax.core import dtypes
from mini_jax.lax import prng
from mini_jax.random.generators import find
from tests.samples import Sample, constant, integers

U32 = frozenset([dtypes.uint32])


def words(*shape):
    return integers(0, 2 ** 32, shape, np.uint32)


def threefry(key_0, key_1, x, y):
    """Salmon et al. 2011, figure 2 and table 2, modulo 2**32."""
    key_0, key_1, x, y = [np.asarray(w, np.uint64) for w in (key_0, key_1, x, y)]
    mask, keys = np.uint64(0xFFFFFFFF), (key_0, key_1, key_0 ^ key_1 ^ np.uint64(0x1BD11BDA))
    x, y = (x + key_0) & mask, (y + key_1) & mask
    for r in range(20):
        turn = np.uint64((13, 15, 26, 6, 17, 29, 16, 24)[r % 8])
        x = (x + y) & mask
        y = ((y << turn | y >> (np.uint64(32) - turn)) & mask) ^ x
        if r % 4 == 3:
            i = r // 4 + 1
            x, y = (x + keys[i % 3]) & mask, (y + keys[(i + 1) % 3] + np.uint64(i)) & mask
    return [x.astype(np.uint32), y.astype(np.uint32)]


def bits(key, bit_width, shape, partitionable):
    size = int(np.prod(shape))
    high, low = threefry(key[0], key[1], np.zeros(size), np.arange(size))
    out = high.astype(np.uint64) << np.uint64(32) | low if bit_width == 64 else high ^ low
    return out.astype(f"u{bit_width // 8}").reshape(shape)


def split(key, shape, partitionable):
    size = int(np.prod(shape))
    if partitionable:
        return np.stack(threefry(key[0], key[1], np.zeros(size), np.arange(size)), -1).reshape(*shape, 2)
    return np.concatenate(threefry(key[0], key[1], np.arange(size), size + np.arange(size))).reshape(*shape, 2)


SAMPLES = {
    "threefry2x32": [Sample((words(3, 2),) * 4, dtypes=U32, reference=threefry),
                     Sample((words(), words(), words(), words(2, 3)), dtypes=U32, reference=threefry, batched=(3,))],
    "random_bits": [Sample((words(2),), {"bit_width": width, "shape": (3, 5), "partitionable": True}, dtypes=U32, reference=bits)
                    for width in (8, 16, 32, 64)] + [Sample((words(2),), {"bit_width": 16, "shape": (3, 5), "partitionable": False}, dtypes=U32)],
    "random_split": [Sample((words(2),), {"shape": (3, 2), "partitionable": p}, dtypes=U32, reference=split) for p in (True, False)],
    "random_fold_in": [Sample((words(2), words()), dtypes=U32,
                              reference=lambda key, data: np.stack(threefry(key[0], key[1], 0, data)))],
    "random_wrap": [Sample((words(3, 2),), dtypes=U32, reference=lambda data: data,
                           call=lambda data: prng.random_unwrap(prng.random_wrap(data, find().dtype)))],
    "random_unwrap": [Sample((words(4),), dtypes=U32, reference=lambda data: data,
                             call=lambda data: prng.random_unwrap(prng.random_wrap(data, find("rbg").dtype)))],
    "rng_uniform": [Sample((constant(3), constant(3 + whole)), {"shape": (2, 3)}, reference=lambda a, b, shape: np.full(shape, a),    # nothing else is between
                           dtypes=frozenset(d for d in prng.rng_uniform_p.facts["dtypes"] if dtypes.is_integer(d) == whole), batched=() if whole else None)
                    for whole in (False, True)],
    "rng_bit_generator": [Sample((words(4),), {"shape": (3, 5), "dtype": np.dtype("uint32"), "algorithm": prng.RandomAlgorithm.RNG_DEFAULT},
                                 dtypes=U32, batched=())],          # batched, one key makes all: see test_random.py
}
