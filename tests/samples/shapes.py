"""Samples of shape operations and conversions."""
import numpy as np

from mini_jax.core import dtypes
from mini_jax.lax.rows import ANY, BOOL, COMPLEX, FLOATS, INTS, UINTS
from tests.samples import Sample, uniform

SAMPLES = {
    "broadcast_in_dim": [
        Sample((uniform(shape=operand),), {"shape": shape, "broadcast_dimensions": dims}, wide=False,
               reference=lambda x, shape, broadcast_dimensions, index=index: np.broadcast_to(x[index], shape))
        for operand, shape, dims, index in [
            ((), (2, 3), (), ...), ((2,), (2, 3), (0,), (slice(None), None)), ((3,), (2, 3), (1,), ...),
            ((1, 3), (2, 3), (0, 1), ...), ((1,), (2, 1, 3), (1,), (slice(None), None))]],
    "reshape": [Sample((uniform(),), {"new_sizes": sizes}, reference=lambda x, new_sizes: x.reshape(new_sizes))
                for sizes in ((3, 2), (6,), (1, 2, 3))],
    "transpose": [Sample((uniform(shape=(2, 3, 5)),), {"permutation": p}, reference=lambda x, permutation: x.transpose(permutation))
                  for p in ((2, 0, 1), (1, 0, 2))],
    "squeeze": [Sample((uniform(shape=(1, 2, 1, 3)),), {"dimensions": d}, reference=lambda x, dimensions: x.squeeze(dimensions))
                for d in ((0, 2), (2,))],
    "add_any": [Sample((uniform(), uniform()), dtypes=FLOATS | COMPLEX, reference=np.add, linear=((0,), (1,), (0, 1)))],
}


# --- conversions: of every dtype to these -----------------------------------------------------------------------------

def _converted(to):
    def reference(x, *, new_dtype, weak_type):
        x = x.real if np.iscomplexobj(x) and to in FLOATS | INTS | UINTS else x
        return x != 0 if to in BOOL else x.astype(to)
    return reference


SAMPLES["convert_element_type"] = [
    *[Sample((uniform(0.1, 1.9),), {"new_dtype": to, "weak_type": weak}, ANY, _converted(to), order=0, linear=())
      for to, weak in ((dtypes.float32, False), (dtypes.bfloat16, False), (dtypes.float8_e5m2, False), (dtypes.int32, True),
                       (dtypes.uint8, False), (dtypes.int4, False), (dtypes.bool_, False), (dtypes.complex64, False))],
    *[Sample((uniform(0.1, 1.9),), {"new_dtype": to, "weak_type": False}, FLOATS | COMPLEX, _converted(to))
      for to in (dtypes.float64, dtypes.complex128)]]
