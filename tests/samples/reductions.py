"""Samples of reductions and cumulative operations."""
import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from tests.samples import Sample, constant, distinct, uniform

ALL = frozenset(dtypes.all_dtypes)
NUMBERS = ALL - {dtypes.bool_}
CUBE = (2, 3, 5)


def over_axes(function, draw, **more):
    """Reductions over one inner axis, and over two that are no neighbours."""
    return [Sample((draw,), {"axes": axes}, reference=lambda x, *, axes: function(x, axis=axes), **more) for axes in ((1,), (0, 2))]


def along(function, draw, **more):
    """A cumulative operation along either axis, from either end."""
    def reference(x, *, axis, reverse):
        flip = np.flip if reverse else lambda x, axis: x
        return flip(function(flip(x, axis), axis=axis), axis)
    return [Sample((draw,), {"axis": axis, "reverse": reverse}, reference=reference, **more) for axis, reverse in ((0, False), (1, True))]


def arg(function):
    return [Sample((distinct(),), {"axes": (axis,), "index_dtype": dtypes.int32},
                   reference=lambda x, *, axes, index_dtype: function(x, axis=axes[0])) for axis in (0, 1)]


def log_sum_exp(x, axis):
    return np.log(np.cumsum(np.exp(x), axis)) if np.iscomplexobj(x) else np.logaddexp.accumulate(x, axis)


def solved(a, b, *, axis, reverse):
    a, b = [np.moveaxis(x, axis, 0)[::-1 if reverse else 1] for x in (a, b)]
    out = [b[0]]
    for a_i, b_i in zip(a[1:], b[1:]):
        out.append(a_i * out[-1] + b_i)
    return np.moveaxis(np.stack(out)[::-1 if reverse else 1], 0, axis)


def compound(x, init):
    """Growth of growth: (1 + a)(1 + b) - 1, over and over."""
    return lax.reduce(x, init, lambda a, b: a + b + a * b, (0, 2))


def complex_product(x, y, one, zero):
    return lax.reduce((x, y), (one, zero), lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), (1,))


def complex_product_reference(x, y, one, zero):
    z = np.prod(x + 1j * y, axis=1)
    return [z.real, z.imag]


SAMPLES = {
    "reduce_sum": over_axes(np.sum, uniform(-2, 2, CUBE), dtypes=NUMBERS),
    "reduce_prod": over_axes(np.prod, uniform(0.5, 1.5, CUBE)),
    "reduce_max": over_axes(np.max, distinct(CUBE)),
    "reduce_max_number": over_axes(np.max, distinct(CUBE)),
    "reduce_min": over_axes(np.min, distinct(CUBE)),
    "reduce_and": over_axes(np.bitwise_and.reduce, distinct(CUBE)),
    "reduce_or": over_axes(np.bitwise_or.reduce, distinct(CUBE)),
    "reduce_xor": over_axes(np.bitwise_xor.reduce, distinct(CUBE)),
    "argmax": arg(np.argmax),
    "argmin": arg(np.argmin),
    "reduce": [
        Sample((uniform(-0.5, 0.5, CUBE), constant(0)), call=compound, differentiable=(0,), dtypes=frozenset([dtypes.float32, dtypes.complex64]),
               reference=lambda x, init: np.prod(1 + x, axis=(0, 2)) - 1),
        Sample((uniform(shape=(2, 3)), uniform(shape=(2, 3)), constant(1), constant(0)), call=complex_product, differentiable=(0, 1),
               reference=complex_product_reference, batched=(0, 1, 3)),
    ],
    "cumsum": along(np.cumsum, uniform()),
    "cumprod": along(np.cumprod, uniform(0.5, 1.5)),
    "cummax": along(np.maximum.accumulate, distinct()),
    "cummin": along(np.minimum.accumulate, distinct()),
    "cumlogsumexp": along(log_sum_exp, uniform()),
    "linear_recurrence": [Sample((uniform(), uniform()), {"axis": axis, "reverse": reverse}, reference=solved, linear=((1,),))
                          for axis, reverse in ((0, False), (1, True))],
}
