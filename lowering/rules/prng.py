"""How random bits are written: the rounds of threefry2x32, one function for each shape, and typed keys as their bits."""
from functools import lru_cache

import numpy as np

from lowering.emit import KEPT, lower_via, lowers
from mini_jax import lax
from mini_jax.core import config, dtypes
from mini_jax.core.staging import stage
from mini_jax.core.types import array_type
from mini_jax.lax import prng

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def _rotate_left(x, distance: int):
    return lax.bitwise_or(lax.shift_left(x, np.uint32(distance)), lax.shift_right_logical(x, np.uint32(32 - distance)))


def _rounds(key_0, key_1, x, y):
    """Five times four rounds, between which the key (with its parity as a third word) is added in turn."""
    keys = (key_0, key_1, lax.bitwise_xor(lax.bitwise_xor(key_0, key_1), _PARITY))
    x, y = lax.add(x, key_0), lax.add(y, key_1)
    for i in range(5):
        for distance in _ROTATIONS[i % 2]:
            x = lax.add(x, y)
            y = lax.bitwise_xor(x, _rotate_left(y, distance))
        x = lax.add(x, keys[(i + 1) % 3])
        y = lax.add(y, lax.add(keys[(i + 2) % 3], np.uint32(i + 1)))
    return [x, y]


lower_via(prng.threefry2x32_p, _rounds)


# --- bits, keys and subkeys in terms of the cipher ------------------------------------------------------------------------------

def _words(key):
    """The two words of each key, uint32[*K]."""
    last = key.ndim - 1
    return [lax.squeeze(lax.slice_in_dim(key, i, i + 1, axis=last), (last,)) for i in (0, 1)]


def _counters(shape):
    """The row-major position of each entry as a high and a low word."""
    size = int(np.prod(shape, dtype=object))
    dtype = dtypes.uint32 if size <= 2 ** 32 else dtypes.uint64
    position, stride = None, 1
    for d in reversed(range(len(shape))):
        if shape[d] != 1:                      # sums of iotas, rather than one reshaped, can be cut along any dimension
            index = lax.broadcasted_iota(dtype, shape, d)
            index = lax.mul(index, dtype.type(stride)) if stride != 1 else index
            position = index if position is None else lax.add(position, index)
        stride *= shape[d]
    if position is None:
        position = lax.full(shape, 0, dtype)
    if dtype is dtypes.uint32:
        return np.uint32(0), position
    return lax.convert_element_type(lax.shift_right_logical(position, np.uint64(32)), dtypes.uint32), lax.convert_element_type(position, dtypes.uint32)


def _enciphered(key, shape):
    """Both output words for the positions of `shape`, uint32[*K, *shape] each."""
    words, full = _words(key), (*key.shape[:-1], *shape)
    if key.ndim > 1:
        words = [lax.broadcast_in_dim(w, full, tuple(range(key.ndim - 1))) for w in words]
    counters = _counters(shape)
    if key.ndim > 1:
        counters = [c if np.ndim(c) == 0 and isinstance(c, np.uint32) else
                    lax.broadcast_in_dim(c, full, tuple(range(key.ndim - 1, len(full)))) for c in counters]
    return prng.threefry2x32(*words, *counters)


def _halved(key, count: int):
    """uint32[*K, count]: the positions below `count`, the first half enciphered together with the second."""
    half = (count + 1) // 2
    full = (*key.shape[:-1], half)
    words = [lax.broadcast_in_dim(w, full, tuple(range(key.ndim - 1))) for w in _words(key)]
    low = lax.broadcasted_iota(dtypes.uint32, full, len(full) - 1)
    high = lax.add(low, np.uint32(half))
    if count % 2:                              # the counter is padded with a zero
        high = lax.select(lax.eq(high, np.uint32(count)), lax.full(full, 0, dtypes.uint32), high)
    words = lax.concatenate(prng.threefry2x32(*words, low, high), len(full) - 1)
    return lax.slice_in_dim(words, 0, count, axis=len(full) - 1)


def _joined(high, low):
    """Two words as one of 64 bits."""
    high, low = lax.convert_element_type(high, dtypes.uint64), lax.convert_element_type(low, dtypes.uint64)
    return lax.bitwise_or(lax.shift_left(high, np.uint64(32)), low)


def _bits(key, *, bit_width, shape, partitionable):
    dtype = np.dtype(f"uint{bit_width}")
    if partitionable:
        high, low = _enciphered(key, shape)
        return _joined(high, low) if bit_width == 64 else lax.convert_element_type(lax.bitwise_xor(high, low), dtype)
    size, leading = int(np.prod(shape)), key.shape[:-1]
    words = _halved(key, -(-bit_width * size // 32))
    axis = len(leading)
    if bit_width == 64:
        bits = _joined(lax.slice_in_dim(words, 0, size, axis=axis), lax.slice_in_dim(words, size, 2 * size, axis=axis))
    elif bit_width < 32:
        parts = 32 // bit_width
        split = (*words.shape, parts)
        shifts = lax.mul(lax.broadcasted_iota(dtypes.uint32, split, axis + 1), np.uint32(bit_width))
        bits = lax.shift_right_logical(lax.broadcast_in_dim(words, split, tuple(range(axis + 1))), shifts)
        bits = lax.reshape(lax.convert_element_type(bits, dtype), (*leading, words.shape[-1] * parts))
        bits = lax.slice_in_dim(bits, 0, size, axis=axis)
    else:
        bits = words
    return lax.reshape(bits, (*leading, *shape))


def _paired(first, second):
    """[..., 2] from two [...]: one word of 64 bits read as two. Joined by concatenation, XLA would encipher everything twice."""
    return lax.bitcast_convert_type(_joined(second, first), dtypes.uint32)


def _split(key, *, shape, partitionable):
    if partitionable:
        return _paired(*_enciphered(key, shape))
    return lax.reshape(_halved(key, 2 * int(np.prod(shape))), (*key.shape[:-1], *shape, 2))


def _fold_in(key, data):
    return _paired(*prng.threefry2x32(*_words(key), np.uint32(0), data))


# --- as functions ------------------------------------------------------------------------------------------------------------------

@lru_cache(maxsize=1024)
def _program(fun, types, params):
    with config.enable_x64(True):              # words of 64 bits serve in between, whether or not users have them
        jaxpr, _ = stage(lambda *operands: [fun(*operands, **dict(params))], types)
    return jaxpr


def _lower_as_function(primitive, fun):
    """Each use is a call of one function for each combination of types and parameters.

    XLA for CPUs is to keep the calls. Then the function is compiled once, however often it is called; the hundred operations that make
    a key are not repeated for every number drawn with it; and slow operations on the numbers (a remainder, a tangent), which
    are done one by one, do not keep the bits from being made several at a time.
    """
    @lowers(primitive)
    def rule(e, eqn, *operands):
        types, out = tuple([array_type(t.shape, t.dtype) for t in eqn.in_types]), eqn.outvars[0].aval
        jaxpr = _program(fun, types, tuple(eqn.params.items()))
        if e.module.platform != "cpu":
            return e.call(jaxpr, operands, primitive.name)[0]
        function = e.module.function(jaxpr, primitive.name, e.axes)
        return e.emit(f"func.call @{function}({', '.join(operands)}){KEPT} : ({', '.join([t.mlir for t in types])}) -> {out.mlir}")


_lower_as_function(prng.random_bits_p, _bits)
_lower_as_function(prng.random_split_p, _split)
_lower_as_function(prng.random_fold_in_p, _fold_in)


@lowers(prng.random_wrap_p, prng.random_unwrap_p)
def _same(e, eqn, x):
    return x


@lowers(prng.rng_bit_generator_p)
def _rng_bit_generator(e, eqn, key):
    algorithm = ("DEFAULT", "THREE_FRY", "PHILOX")[eqn.params["algorithm"]]
    (key_type,), (new_key, bits) = eqn.in_types, eqn.out_types
    wide = array_type((2,), dtypes.uint64)              # the state is two words of 64 bits
    if key_type.dtype == dtypes.uint32:
        pairs = e.reshape(key, key_type, (2, 2))
        key = e.emit(f"stablehlo.bitcast_convert {pairs} : ({key_type.update(shape=(2, 2)).mlir}) -> {wide.mlir}")
    state, out = e.emit_many(f"stablehlo.rng_bit_generator {key}, algorithm = {algorithm} : ({wide.mlir}) -> ({wide.mlir}, {bits.mlir})", 2)
    if new_key.dtype == dtypes.uint32:
        pairs = new_key.update(shape=(2, 2))
        state = e.reshape(e.emit(f"stablehlo.bitcast_convert {state} : ({wide.mlir}) -> {pairs.mlir}"), pairs, (4,))
    return [state, out]


@lowers(prng.rng_uniform_p)
def _rng_uniform(e, eqn, a, b):
    """Never shared: each has numbers of its own."""
    [bound, _], out = eqn.in_types, eqn.outvars[0].aval
    shape = e.index_constant(out.shape) if out.shape else e.emit("stablehlo.constant dense<> : tensor<0xi64>")
    return e.emit_many(f"stablehlo.rng {a}, {b}, {shape}, distribution = UNIFORM : ({bound.mlir}, {bound.mlir}, tensor<{out.ndim}xi64>) -> {out.mlir}",
                       1, pure=False)[0]
