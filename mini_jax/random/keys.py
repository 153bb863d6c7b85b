"""Keys: what random numbers are made from. Made of a seed, split into independent ones, never used twice.

A typed key (`key(0)`) is an array of dtype `key<fry>`; a raw key (`PRNGKey(0)`) is its data, uint32[2].
"""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import config, dtypes, trace
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, eval_trace
from mini_jax.core.types import array_type
from mini_jax.lax import prng
from mini_jax.lax.shapes import canonical_shape
from mini_jax.random.generators import Generator, KeyDtype, find
from mini_jax.runtime.array import Array, ArrayImpl, device_put
from mini_jax.runtime.dispatch import library, register_extended

__all__ = ["PRNGKey", "key", "key_data", "wrap_key_data", "key_impl", "key_dtype", "clone", "split", "fold_in"]

_MAKE_ONE = "make one with random.key(seed), and new ones from it with random.split(key)"


# --- arrays of typed keys --------------------------------------------------------------------------------------------------------

class PRNGKeyArray:
    """An array of typed keys: `_data` holds their numbers, uint32[*shape, *key_shape]."""
    __slots__ = ("_data", "aval", "__weakref__")
    __hash__ = None
    __array_priority__ = 1000

    def __init__(self, dtype: KeyDtype, data):
        self._data = data
        self.aval = array_type(data.shape[:data.ndim - len(dtype.physical_shape)], dtype)

    dtype = property(lambda self: self.aval.dtype)
    shape = property(lambda self: self.aval.shape)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    itemsize = property(lambda self: self.aval.dtype.itemsize)
    nbytes = property(lambda self: self._data.nbytes)
    sharding = property(lambda self: self._data.sharding)
    device = property(lambda self: self._data.device)
    committed = property(lambda self: self._data.committed)
    is_fully_addressable = property(lambda self: self._data.is_fully_addressable)
    is_fully_replicated = property(lambda self: self._data.is_fully_replicated)
    weak_type = False

    def _like(self, data):
        """Keys of the same dtype; traced ones when the data is."""
        return prng.random_wrap(data, self.aval.dtype)

    def _put(self, device) -> "PRNGKeyArray":
        return PRNGKeyArray(self.aval.dtype, device_put(self._data, device))

    def __len__(self):
        return len(self.aval)

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over one random key: it has no dimensions")
        return iter([self._like(data) for data in self._data])

    def __getitem__(self, index):
        parts = index if isinstance(index, tuple) else (index,)
        whole = (slice(None),) * len(self.dtype.physical_shape) if any(p is Ellipsis for p in parts) else ()
        return self._like(self._data[(*parts, *whole)])

    def reshape(self, *shape):
        """The same keys in another shape; one size may be -1."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._like(self._data.reshape(*shape, *self.dtype.physical_shape))

    def ravel(self):
        """The keys in one dimension."""
        return self.reshape(self.size)

    flatten = ravel

    @property
    def T(self):
        """The keys with their dimensions reversed."""
        return self._like(lax.transpose(self._data, (*reversed(range(self.ndim)), *range(self.ndim, self._data.ndim))))

    def __eq__(self, other):
        if not isinstance(other, PRNGKeyArray) or other.dtype != self.dtype:
            return NotImplemented
        return (self._data == other._data).all(-1)

    def __ne__(self, other):
        same = self.__eq__(other)
        return same if same is NotImplemented else ~same

    def __repr__(self):
        return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{self._data}"

    def __bool__(self):
        raise TypeError(f"a random key ({self.aval}) has no truth value")

    def __array__(self, *_, **__):
        raise TypeError(f"random keys ({self.aval}) are no NumPy array; their numbers are random.key_data(keys)")

    def __reduce__(self):
        return _unpickle, (self.dtype, np.asarray(self._data))

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def copy(self):
        """The same keys in memory of their own."""
        return self._like(self._data.copy())

    def devices(self):
        """The set of devices that hold the keys."""
        return self._data.devices()

    def block_until_ready(self):
        """Wait until the keys are computed; returns them."""
        self._data.block_until_ready()
        return self

    def copy_to_host_async(self):
        """Start copying to the host."""
        self._data.copy_to_host_async()

    def delete(self):
        """Free the memory."""
        self._data.delete()

    def is_deleted(self):
        """Was the memory freed, or given away?"""
        return self._data.is_deleted()

    @property
    def addressable_shards(self):
        """The parts on this process's devices."""
        return [shard._replace(data=self._like(shard.data)) for shard in self._data.addressable_shards]

    def addressable_data(self, index: int):
        """The part on the `index`-th device of this process."""
        return self._like(self._data.addressable_data(index))


def _unpickle(dtype, host):
    return PRNGKeyArray(dtype, device_put(host))


def _refuse(name: str):
    def operator(self, *_):
        raise TypeError(f"{name}: {self.aval} is a random key, not a number; random.normal(key, shape) and the like make numbers of it")
    return operator


for _name in ("squeeze", "swapaxes", "transpose", "repeat", "take"):
    setattr(PRNGKeyArray, _name, getattr(jnp, _name))
PRNGKeyArray.at = ArrayImpl.at

for _name in ("add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()):
    setattr(PRNGKeyArray, f"__{_name}__", _refuse(_name))
    setattr(PRNGKeyArray, f"__r{_name}__", _refuse(_name))
for _name in "neg pos abs invert lt le gt ge".split():
    setattr(PRNGKeyArray, f"__{_name}__", _refuse(_name))

trace.register_type(PRNGKeyArray, lambda keys: keys.aval)
register_extended(PRNGKeyArray, lambda keys: keys._data, lambda type_, data: PRNGKeyArray(type_.dtype, data))
Array.register(PRNGKeyArray)
prng.random_wrap_p.impl = lambda data, *, dtype: PRNGKeyArray(dtype, data)
prng.random_unwrap_p.impl = lambda keys: keys._data


# --- opening a key ---------------------------------------------------------------------------------------------------------------------

def opened(key, name: str):
    """(data, generator, typed?) of the one key that the function `name` was given; TypeError or ValueError for anything else."""
    if type(key) is PRNGKeyArray:
        data, generator, shape = key._data, key.aval.dtype.generator, key.aval.shape
    else:
        dtype = getattr(key, "dtype", None)
        if isinstance(dtype, KeyDtype):
            data, generator, shape = prng.random_unwrap(key), dtype.generator, key.shape
        else:
            data, generator = key, find()
            shape = _raw_shape(key, generator, name)
            if shape == ():
                return data, generator, False
    if shape != ():
        raise ValueError(f"random.{name} takes one key, but got an array of keys of shape {shape}: use vmap to apply it to each")
    return data, generator, True


def _raw_shape(key, generator: Generator, name: str) -> tuple:
    """The shape of an array of raw keys."""
    rank = len(generator.key_shape)
    shape, dtype = getattr(key, "shape", None), getattr(key, "dtype", None)
    if dtype == dtypes.uint32 and shape[len(shape) - rank:] == generator.key_shape:
        return shape[:len(shape) - rank]
    what = f"{key!r:.100} of type {type(key).__name__}" if shape is None else f"an array {dtype}[{','.join(map(str, shape))}]"
    other = next((g for g in find_all() if dtype == dtypes.uint32 and shape[-1:] == g.key_shape), None)
    hint = f" (a raw key of {other} must be typed first: random.wrap_key_data(data, impl={other.name!r}))" if other else ""
    raise TypeError(f"random.{name} takes a key as its first argument, which is an array of dtype {generator.dtype}, or a raw key "
                    f"uint32{list(generator.key_shape)}; got {what}{hint}. {_MAKE_ONE.capitalize()}.")


def find_all():
    """All generators."""
    from mini_jax.random.generators import generators
    return generators.values()


# --- making keys -------------------------------------------------------------------------------------------------------------------------

def key(seed, *, impl=None, dtype=None):
    """The typed key that an integer determines: an array of shape () and dtype key<fry>.

    seed: an int between -2**63 and 2**63 - 1, or an integer array of shape (). With x64 off its low 32 bits count.
    impl: the generator, 'threefry2x32' (the default), 'rbg' or 'unsafe_rbg'; or `dtype`, that of other keys.
    Raises TypeError for other seeds, OverflowError for ints beyond 64 bits, ValueError for an unknown generator.
    """
    generator = _generator(impl, dtype)
    return prng.random_wrap(_seeded(seed, generator, "key"), generator.dtype)


def PRNGKey(seed, *, impl=None):
    """The raw key, uint32[2], that an integer determines; the numbers of `key(seed, impl=impl)`."""
    generator = find(impl)
    data = _seeded(seed, generator, "PRNGKey")
    return prng.random_wrap(data, generator.dtype) if config.enable_custom_prng.value else data


def _generator(impl, dtype) -> Generator:
    if dtype is None:
        return find(impl)
    if impl is not None:
        raise ValueError("say which generator by impl or by dtype, not by both")
    if not isinstance(dtype, KeyDtype):
        raise TypeError(f"dtype={dtype!r} is no dtype of random keys, such as random.key(0).dtype")
    return dtype.generator


def _seeded(seed, generator: Generator, name: str):
    """The data of the key of a seed."""
    offset = config.options["random_seed_offset"].value
    if isinstance(seed, (int, np.integer, np.bool_)) or isinstance(seed, np.ndarray) and seed.ndim == 0 and seed.dtype.kind in "iub":
        number = int(seed) + offset
        if not (isinstance(seed, (np.generic, np.ndarray)) or -2 ** 63 <= number < 2 ** 63):
            raise OverflowError(f"random.{name}: the seed {seed} does not fit 64 bits")
        wide = dtypes.canonicalize(np.int64).itemsize == 8 and not (isinstance(seed, (np.generic, np.ndarray)) and seed.dtype.itemsize < 8)
        words = np.array([(number >> 32) & 0xFFFFFFFF if wide else 0, number & 0xFFFFFFFF], np.uint32)
        if state.trace is eval_trace:
            return generator.seed(device_put(words))
        return generator.seed(_pair(words[0], words[1]))
    if not trace.is_value(seed):
        raise TypeError(f"random.{name}: a seed is an integer, got {seed!r:.100} of type {type(seed).__name__}")
    aval = trace.typeof(seed)
    if not (dtypes.is_integer(aval.dtype) or dtypes.is_bool(aval.dtype)):
        raise TypeError(f"random.{name}: a seed is an integer, got {aval}")
    if aval.shape != ():
        raise TypeError(f"random.{name}: a seed is one integer, got an array {aval}; vmap(random.{name}) makes a key of each")
    return _seed_array(seed, generator, offset)


def _pair(high, low):
    return lax.concatenate([lax.broadcast(high, (1,)), lax.broadcast(low, (1,))], 0)


@library(static_argnames=("generator", "offset"))
def _seed_array(seed, generator, offset):
    aval = trace.typeof(seed)
    if offset:
        seed = lax.add(seed, aval.dtype.type(offset))
    low, high = lax.convert_element_type(seed, dtypes.uint32), np.uint32(0)
    if aval.dtype.itemsize == 8:
        high = lax.convert_element_type(lax.shift_right_logical(seed, aval.dtype.type(32)), dtypes.uint32)
    return generator.seed(_pair(high, low))


def key_data(keys):
    """The numbers of typed keys of shape K: uint32[*K, 2] (as many as the generator's keys have). Raw keys are their own."""
    if isinstance(getattr(keys, "dtype", None), KeyDtype):
        return prng.random_unwrap(keys)
    _raw_shape(keys, find(), "key_data")
    return keys


def wrap_key_data(key_bits_array, *, impl=None, dtype=None):
    """The typed keys of shape K whose numbers are `key_bits_array`, uint32[*K, 2]. TypeError for another dtype or shape."""
    generator = _generator(impl, dtype)
    if isinstance(getattr(key_bits_array, "dtype", None), KeyDtype):
        raise TypeError(f"random.wrap_key_data: {trace.typeof(key_bits_array)} are typed keys already")
    data = key_bits_array
    shape, given = getattr(data, "shape", None), getattr(data, "dtype", None)
    if given != dtypes.uint32 or shape[-1:] != generator.key_shape:
        what = repr(data) if shape is None else f"{given}[{','.join(map(str, shape))}]"
        raise TypeError(f"random.wrap_key_data: the keys of {generator} are uint32[..., {generator.key_shape[0]}], got {what:.100}")
    if state.trace is eval_trace and not isinstance(data, Tracer):
        data = device_put(data)
    return prng.random_wrap(data, generator.dtype)


def key_impl(keys) -> str:
    """The name of the generator of these keys."""
    if isinstance(getattr(keys, "dtype", None), KeyDtype):
        return keys.dtype.generator.name
    _raw_shape(keys, find(), "key_impl")
    return find().name


def key_dtype(impl_spec=None) -> KeyDtype:
    """The dtype of typed keys of a generator."""
    return find(impl_spec).dtype


def clone(key):
    """The same key, to be used once more on purpose (where config.debug_key_reuse would object)."""
    if not isinstance(getattr(key, "dtype", None), KeyDtype):
        _raw_shape(key, find(), "clone")
    return key


# --- keys from keys -------------------------------------------------------------------------------------------------------------------------

def split(key, num=2):
    """New independent keys from one, which must not be used again: an array of shape (num,), or of shape `num` if it is a tuple.

    Typed keys give typed keys, raw keys raw ones, uint32[num, 2].
    """
    data, generator, typed = opened(key, "split")
    out = _split(data, generator, canonical_shape(num))
    return prng.random_wrap(out, generator.dtype) if typed else out


@library(static_argnames=("generator", "shape"))
def _split(data, generator, shape):
    return generator.split(data, shape)


def fold_in(key, data):
    """The key that `key` and a number determine; different numbers give independent keys.

    data: an int in [0, 2**32) (else OverflowError) or an array of shape (), taken modulo 2**32.
    """
    bits, generator, typed = opened(key, "fold_in")
    if isinstance(data, int) and not 0 <= data < 2 ** 32:
        raise OverflowError(f"random.fold_in: data={data} is not between 0 and 2**32 - 1")
    shape = np.shape(data) if not isinstance(data, Tracer) else data.shape
    if shape != ():
        raise TypeError(f"random.fold_in: data is one number, got an array of shape {shape}; use vmap to fold in each")
    out = _fold_in(bits, generator, np.uint32(data) if isinstance(data, int) else data)
    return prng.random_wrap(out, generator.dtype) if typed else out


@library(static_argnames=("generator",))
def _fold_in(bits, generator, data):
    return generator.fold_in(bits, lax.convert_element_type(data, dtypes.uint32))
