"""Samples of convolutions, with the sum over all indices as the reference."""
import itertools

import numpy as np

from mini_jax.core import dtypes
from mini_jax.lax.convolution import conv_dimension_numbers
from tests.samples import Sample, uniform

INEXACT = frozenset([dtypes.float32, dtypes.bfloat16, dtypes.complex64])


def convolved(lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count,
              **_):
    """out[n, o, s] = Σ_{i, k} lhs[n, i, s · stride + k] · rhs[o, i, k], in dilated and padded arrays."""
    lhs, rhs = [x.astype(np.int64) if x.dtype.kind in "biu" else x for x in (lhs, rhs)]
    lhs, rhs = np.transpose(lhs, dimension_numbers.lhs_spec), np.transpose(rhs, dimension_numbers.rhs_spec)
    for d, (base, holes, (low, high)) in enumerate(zip(lhs_dilation, rhs_dilation, padding), 2):
        lhs, rhs = spaced(lhs, d, base), spaced(rhs, d, holes)
        ends = [(0, 0)] * lhs.ndim
        ends[d] = (max(low, 0), max(high, 0))
        size = lhs.shape[d]
        lhs = np.take(lhs, range(max(-low, 0), size - max(-high, 0)), d)
        lhs = np.pad(lhs, ends)
    places = [max((n - k) // s + 1, 0) for n, k, s in zip(lhs.shape[2:], rhs.shape[2:], window_strides)]
    groups, batch, features = feature_group_count * batch_group_count, lhs.shape[0] // batch_group_count, rhs.shape[0]
    out = np.zeros((batch, features, *places), lhs.dtype)
    for o in range(features):
        group = o * groups // features
        part = (lhs[:, group * rhs.shape[1]:(group + 1) * rhs.shape[1]] if batch_group_count == 1
                else lhs[group * batch:(group + 1) * batch])
        for place in itertools.product(*map(range, places)):
            under = tuple([slice(p * s, p * s + k) for p, s, k in zip(place, window_strides, rhs.shape[2:])])
            out[(slice(None), o, *place)] = (part[(slice(None), slice(None), *under)] * rhs[o]).reshape(batch, -1).sum(1)
    return np.transpose(out, np.argsort(dimension_numbers.out_spec))


def spaced(x, d, step):
    """x with step - 1 zeros between neighbours along dimension d."""
    shape = list(x.shape)
    shape[d] = (shape[d] - 1) * step + 1 if shape[d] else 0
    out = np.zeros(shape, x.dtype)
    out[(slice(None),) * d + (slice(None, None, step),)] = x
    return out


def convolution(lhs, rhs, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, numbers=None, groups=1, batch_groups=1, **more):
    n = len(lhs) - 2
    params = dict(window_strides=strides or (1,) * n, padding=padding or ((0, 0),) * n, lhs_dilation=lhs_dilation or (1,) * n,
                  rhs_dilation=rhs_dilation or (1,) * n, dimension_numbers=conv_dimension_numbers(lhs, rhs, numbers),
                  feature_group_count=groups, batch_group_count=batch_groups, precision=None, preferred_element_type=None)
    return Sample((uniform(-1, 1, lhs), uniform(-1, 1, rhs)), params, reference=convolved,
                  **{"tolerance": 16, "linear": ((0,), (1,)), "dtypes": INEXACT, **more})


SAMPLES = {
    "conv_general_dilated": [
        convolution((2, 3, 7), (5, 3, 2), dtypes=None),
        convolution((2, 7, 3), (2, 3, 5), (2,), ((2, 1),), None, (3,), ("NHC", "HIO", "NHC")),
        convolution((2, 3, 6), (5, 3, 2), (3,), ((3, -2),), (2,), (2,)),
        convolution((2, 3, 5, 6), (2, 3, 3, 2), (2, 1), ((1, 1), (0, 1)), None, (1, 2)),
        convolution((2, 6, 7), (6, 2, 3), (2,), ((1, 1),), None, None, None, 3),
        convolution((6, 3, 7), (6, 3, 3), (2,), ((1, 1),), None, None, None, 1, 3),
        convolution((2, 3, 7), (3, 1, 3), (2,), ((1, 2),), (2,), (2,), ("NCH", "OIH", "NHC"), 3),                       # features alone
        convolution((2, 3), (5, 3)),
        convolution((2, 5, 3, 6), (1, 1, 6, 5), (2, 1), ((1, 0), (-1, 1)), (1, 2), None, ("NHWC", "HWIO", "NCHW")),     # a pointwise kernel
        convolution((2, 6, 5), (6, 2, 1), (2,), None, None, None, None, 3),
        convolution((6, 3, 5), (3, 3, 6), (2,), ((0, 1),), (2,), (3,), ("NCH", "HIO", "NHC"), 1, 3),                    # one place
    ],
}
