"""Questions about element types, under the names of jax.dtypes."""
from mini_jax.core import dtypes as _dtypes
from mini_jax.core.dtypes import (
    extended as extended, finfo as finfo, float0 as float0, iinfo as iinfo, issubdtype as issubdtype,
    itemsize_bits as itemsize_bits, prng_key as prng_key, result_type as result_type, scalar_type_of as scalar_type_of)
from mini_jax.core.errors import TypePromotionError as TypePromotionError

bfloat16 = _dtypes.bfloat16.type


def canonicalize_dtype(dtype, allow_extended_dtype: bool = False):
    """The dtype that `dtype` stands for: itself, or its 32-bit counterpart when x64 is off.

    Raises ValueError for the dtypes of typed keys, unless allow_extended_dtype; TypeError when it is no dtype.
    """
    canonical = _dtypes.canonicalize(dtype)
    if not allow_extended_dtype and isinstance(canonical, _dtypes.ExtendedDtype):
        raise ValueError(f"{canonical} is an extended dtype; canonicalize_dtype takes it with allow_extended_dtype=True")
    return canonical
