"""Samples of reductions over windows, with a loop over the windows' places as the reference."""
import itertools

import numpy as np

from mini_jax.core import dtypes
from mini_jax.lax.windows import reduce_window
from tests.samples import Sample, constant, distinct, uniform

REAL = frozenset([dtypes.float32, dtypes.float16, dtypes.int32])


def places(shape, *, window_dimensions, window_strides, padding, base_dilation, window_dilation):
    """For each place of the window: its index, and the indices of the operand's entries under it."""
    sizes = [(n - 1) * base + 1 + low + high for n, base, (low, high) in zip(shape, base_dilation, padding)]
    spans = [(k - 1) * holes + 1 for k, holes in zip(window_dimensions, window_dilation)]
    counts = [max((n - k) // stride + 1, 0) for n, k, stride in zip(sizes, spans, window_strides)]
    for place in itertools.product(*map(range, counts)):
        under = []
        for offset in itertools.product(*map(range, window_dimensions)):
            at = [p * stride + k * holes - low for p, stride, k, holes, (low, _) in zip(place, window_strides, offset, window_dilation, padding)]
            ends = [(n - 1) * base + 1 + min(high, 0) for n, base, (_, high) in zip(shape, base_dilation, padding)]
            starts = [max(-low, 0) for low, _ in padding]
            if all([start <= i < end and i % base == 0 for i, start, end, base in zip(at, starts, ends, base_dilation)]):
                under.append(tuple([i // base for i, base in zip(at, base_dilation)]))
        yield place, under


def over_windows(function):
    def reference(x, **params):
        found = {place: function([x[i] for i in under]) for place, under in places(x.shape, **params)}
        out = np.zeros([1 + max(p[d] for p in found) for d in range(x.ndim)], x.dtype)
        for place, value in found.items():
            out[place] = value
        return out
    return reference


def total(values):
    return sum(values)


def gathered(t, x, *, select_prim, **params):
    best = max if select_prim == "ge" else min
    found = {place: t[best(under, key=lambda i: x[i])] if under else 0 for place, under in places(x.shape, **params)}
    out = np.zeros([1 + max(p[d] for p in found) for d in range(x.ndim)], t.dtype)
    for place, value in found.items():
        out[place] = value
    return out


def scattered(source, x, *, select_prim, **params):
    best, out = max if select_prim == "ge" else min, np.zeros(x.shape, source.dtype)
    for place, under in places(x.shape, **params):
        if under:
            out[best(under, key=lambda i: x[i])] += source[place]
    return out


def windows(window, strides=None, padding=None, base=None, holes=None):
    n = len(window)
    return dict(window_dimensions=window, window_strides=strides or (1,) * n, padding=padding or ((0, 0),) * n,
                base_dilation=base or (1,) * n, window_dilation=holes or (1,) * n)


PLAIN = windows((2, 3), (1, 2))
PADDED = windows((3, 2), (2, 1), ((2, 1), (-1, 1)), (1, 2), (1, 3))
LARGE = windows((7, 6), (2, 3), ((3, 2), (1, 2)))
SHAPE = (5, 7)


def each(draw, function, **more):
    return [Sample((draw,), PLAIN, reference=over_windows(function), **more),
            *[Sample((draw,), params, reference=over_windows(function), **{**more, "dtypes": REAL}) for params in (PADDED, LARGE)]]


def compound(x, init):
    return reduce_window(x, init, lambda a, b: a + b + a * b, (2, 3), (1, 2), ((1, 0), (0, 1)))


def complex_product(x, y, one, zero):
    return reduce_window((x, y), (one, zero), lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), (2, 2))


def complex_product_reference(x, y, one, zero):
    z = over_windows(np.prod)(x + 1j * y, **windows((2, 2)))
    return [z.real, z.imag]


SELECTIONS = [{"select_prim": select} | params for select, params in (("ge", PLAIN), ("le", PADDED), ("ge", LARGE))]

SAMPLES = {
    "reduce_window_sum": each(uniform(shape=SHAPE), total, tolerance=32),
    "reduce_window_max": each(distinct(SHAPE), np.max),
    "reduce_window_min": each(distinct(SHAPE), np.min),
    "reduce_window": [
        Sample((uniform(-0.5, 0.5, (3, 5)), constant(0)), call=compound, differentiable=(0,), dtypes=frozenset([dtypes.float32]),
               reference=lambda x, init: over_windows(lambda v: np.prod([1 + u for u in v]) - 1)(x, **windows((2, 3), (1, 2), ((1, 0), (0, 1))))),
        Sample((uniform(shape=(2, 3)), uniform(shape=(2, 3)), constant(1), constant(0)), call=complex_product, differentiable=(0, 1),
               reference=complex_product_reference, batched=(0, 1, 3)),
    ],
    "select_and_gather_add": [Sample((uniform(shape=SHAPE), distinct(SHAPE)), params, reference=gathered) for params in SELECTIONS],
    "select_and_scatter_add": [Sample((uniform(shape=shape), distinct(SHAPE)), params, reference=scattered, tolerance=32)
                               for shape, params in zip(((4, 3), (3, 10), (2, 2)), SELECTIONS)],
}
