"""Samples of products, with NumPy's einsum as the reference."""
import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from tests.samples import Sample, uniform

INEXACT = frozenset([dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.complex64])


def einsum(lhs, rhs, *, dimension_numbers, **_):
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    left = [chr(ord("a") + i) for i in range(lhs.ndim)]
    right = [chr(ord("p") + i) for i in range(rhs.ndim)]
    for i, j in (*zip(lhs_contract, rhs_contract), *zip(lhs_batch, rhs_batch)):
        right[j] = left[i]
    summed = {left[i] for i in lhs_contract}
    out = [left[i] for i in lhs_batch]
    out += [c for c in left if c not in summed and c not in out]
    out += [c for c in right if c not in summed and c not in out]
    wide = [x.astype(np.int64) if x.dtype.kind in "biu" else x for x in (lhs, rhs)]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", *wide)


def product(lhs_shape, rhs_shape, contract, batch=((), ()), precision=None, preferred=None, **more):
    params = {"dimension_numbers": (contract, batch), "precision": precision, "preferred_element_type": preferred}
    return Sample((uniform(-1, 1, lhs_shape), uniform(-1, 1, rhs_shape)), params, reference=einsum, tolerance=16, **{"linear": ((0,), (1,)), **more})


SAMPLES = {
    "dot_general": [
        product((2, 3), (3, 5), ((1,), (0,))),                                              # matrix · matrix
        product((3, 2), (5, 3), ((0,), (1,)), dtypes=INEXACT),                              # of transposed matrices
        product((3,), (3,), ((0,), (0,)), dtypes=INEXACT),                                  # an inner product
        product((2,), (3, 5), ((), ()), dtypes=INEXACT),                                    # an outer product
        product((2, 3, 5), (3, 2, 7), ((0, 1), (1, 0)), dtypes=INEXACT),                    # two contracted dimensions, crossed
        product((2, 3, 5), (5, 6, 2), ((0, 2), (2, 0)), dtypes=INEXACT),                    # that are no neighbours
        product((2, 3, 5), (2, 5, 6), ((2,), (1,)), ((0,), (0,)), dtypes=INEXACT),          # batched
        product((3, 2, 5, 6), (6, 5, 2, 7), ((3,), (0,)), ((1, 2), (2, 1)), dtypes=INEXACT),  # with the batch inside
        product((2, 3), (3, 5), ((1,), (0,)), precision=(lax.Precision.HIGH, lax.Precision.HIGHEST), preferred=dtypes.float32,
                dtypes=frozenset([dtypes.float32, dtypes.bfloat16, dtypes.int8]), order=0, linear=()),
    ],
}
