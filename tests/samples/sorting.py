"""Samples of sort and top_k."""
import numpy as np

from tests.samples import Sample, distinct, integers, uniform

SHAPE = (3, 5)


def sort(*operands, dimension, is_stable, num_keys):
    """NumPy's lexsort, last key first; complex numbers are two keys."""
    keys = [part for x in operands[:num_keys] for part in ((x.real, x.imag) if np.iscomplexobj(x) else (x,))]
    order = np.lexsort(keys[::-1], axis=dimension)
    return [np.take_along_axis(x, order, dimension) for x in operands]


def top_k(x, *, k, axis):
    key = -x.astype(object) if x.dtype.kind in "ui" else np.where(np.isnan(x), -np.inf, -x.astype(np.float64))
    order = np.argsort(key, axis=axis, kind="stable").take(range(k), axis=axis)
    return [np.take_along_axis(x, order, axis), order]


SAMPLES = {
    "sort": [
        Sample((distinct(SHAPE),), {"dimension": 1, "is_stable": True, "num_keys": 1}, reference=sort),
        Sample((distinct(SHAPE), uniform(shape=SHAPE)), {"dimension": 0, "is_stable": False, "num_keys": 1}, reference=sort),
        Sample((integers(0, 2, SHAPE, np.int32), distinct(SHAPE), uniform(shape=SHAPE)), {"dimension": 1, "is_stable": True, "num_keys": 2},
               reference=sort),
    ],
    "top_k": [Sample((distinct(SHAPE),), {"k": k, "axis": axis}, reference=top_k) for k, axis in ((2, 1), (3, 0))],
}
