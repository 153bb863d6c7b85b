"""The generators of random bits: what a key of each consists of, and how seeds, subkeys and bits are made from it.

The functions take and return the data of keys, uint32[*key_shape].
"""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax.core import config, dtypes
from mini_jax.lax import prng


class KeyDtype(dtypes.ExtendedDtype):
    """The dtype of typed keys of one generator: `key<fry>`, each a block of uint32 numbers."""
    __slots__ = ("generator", "name")
    type = dtypes.prng_key
    physical_dtype = dtypes.uint32

    def __init__(self, generator: "Generator", tag: str):
        self.generator, self.name = generator, f"key<{tag}>"

    @property
    def physical_shape(self):
        return self.generator.key_shape

    def __reduce__(self):
        return key_dtype_of, (self.generator.name,)


class Generator:
    """A way to make random bits from keys."""
    name: str
    key_shape: tuple[int, ...]

    def __init__(self, tag: str):
        self.dtype = KeyDtype(self, tag)

    def __repr__(self):
        return self.name

    def seed(self, seed):
        """The key of an integer, given as its high and low words uint32[2]."""
        raise NotImplementedError

    def split(self, key, shape: tuple):
        """uint32[*shape, *key_shape]: new keys."""
        raise NotImplementedError

    def fold_in(self, key, data):
        """The key that a key and a number uint32[] determine."""
        raise NotImplementedError

    def bits(self, key, bit_width: int, shape: tuple):
        """uint{bit_width}[*shape]."""
        raise NotImplementedError


class Threefry(Generator):
    """A cipher applied to a counter: fast everywhere, the same on every backend."""
    name, key_shape = "threefry2x32", (2,)

    def seed(self, seed):
        return seed

    def split(self, key, shape):
        return prng.random_split(key, shape, config.threefry_partitionable.value)

    def fold_in(self, key, data):
        return prng.random_fold_in(key, data)

    def bits(self, key, bit_width, shape):
        return prng.random_bits(key, bit_width, shape, config.threefry_partitionable.value)


class Rbg(Generator):
    """XLA's own generator of bits (they differ between backends), with keys made by threefry2x32 on both halves."""
    name, key_shape = "rbg", (4,)

    def seed(self, seed):
        return lax.concatenate([seed, seed], 0)

    def split(self, key, shape):
        halves = prng.random_split(lax.reshape(key, (2, 2)), shape, config.threefry_partitionable.value)
        return lax.concatenate([lax.index_in_dim(halves, i, 0, keepdims=False) for i in (0, 1)], len(shape))

    def fold_in(self, key, data):
        return lax.reshape(prng.random_fold_in(lax.reshape(key, (2, 2)), lax.broadcast(data, (2,))), (4,))

    def bits(self, key, bit_width, shape):
        return lax.rng_bit_generator(key, shape, np.dtype(f"uint{bit_width}"))[1]


class UnsafeRbg(Rbg):
    """Keys, too, are made by XLA's generator: fastest, and not known to be independent."""
    name = "unsafe_rbg"

    def split(self, key, shape):
        number = int(np.prod(shape))
        rows = self.bits(key, 32, (10 * number, 4))
        return lax.reshape(lax.slice(rows, (0, 0), rows.shape, (10, 1)), (*shape, 4))

    def fold_in(self, key, data):
        words = lax.concatenate([np.zeros(1, np.uint32), lax.reshape(data, (1,))], 0)
        rows = self.bits(self.seed(words), 32, (10, 4))
        return lax.bitwise_xor(key, lax.index_in_dim(rows, 9, 0, keepdims=False))


generators: dict[str, Generator] = {g.name: g for g in (Threefry("fry"), Rbg("rbg"), UnsafeRbg("urbg"))}


def find(impl=None) -> Generator:
    """The generator of a name or of a key dtype; None: the default (config.default_prng_impl). ValueError if there is none."""
    if impl is None:
        return generators[config.default_prng_impl.value]
    if isinstance(impl, KeyDtype):
        return impl.generator
    if isinstance(impl, Generator):
        return impl
    found = generators.get(impl) if isinstance(impl, str) else None
    if found is None:
        raise ValueError(f"there is no generator of random keys called {impl!r}; impl is one of {', '.join(map(repr, generators))}")
    return found


def key_dtype_of(impl=None) -> KeyDtype:
    return find(impl).dtype
