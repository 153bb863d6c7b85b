"""Scalar types and questions about dtypes: float32, int8, …, callable as `float32(3)`, and finfo, issubdtype, result_type, ….

A scalar type is a name for a dtype wherever one is asked for; it equals NumPy's type of the same name, and called it makes an array.
"""
from __future__ import annotations

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.dtypes import finfo, iinfo, issubdtype, promote_types, result_type
from mini_jax.core.trace import typeof

__all__ = ["dtype", "finfo", "iinfo", "issubdtype", "isdtype", "promote_types", "result_type", "can_cast", "iscomplexobj", "isrealobj", "isscalar"]

dtype = np.dtype


class ScalarType(type):
    """The class of scalar types."""

    def __call__(cls, x):
        from mini_jax.numpy.creation import array
        return array(x, dtype=cls.dtype)

    def __hash__(cls):
        return hash(cls.dtype.type)

    def __eq__(cls, other):
        return cls is other or cls.dtype.type == other          # NumPy's type of this name, or a dtype: `x.dtype in (float32, bfloat16)` asks this

    def __ne__(cls, other):
        return not cls == other

    def __instancecheck__(cls, value):
        return isinstance(value, cls.dtype.type)


def _scalar_type(dtype: np.dtype) -> ScalarType:
    name = dtype.name
    return ScalarType(name, (), {"dtype": dtype, "__module__": "mini_jax.numpy", "__doc__": f"The dtype {name}; {name}(x) makes an array of it.",
                                 "__slots__": ()})


for _dtype in dtypes.all_dtypes:
    globals()[_dtype.name] = _scalar_type(_dtype)
    __all__.append(_dtype.name)

# NumPy's other names for them, and the names of kinds of dtypes.
_NAMES = {"bool_": "bool", "int_": "int64", "uint": "uint64", "float_": "float64", "complex_": "complex128", "single": "float32",
          "double": "float64", "csingle": "complex64", "cdouble": "complex128"}
for _name, _target in _NAMES.items():
    globals()[_name] = globals()[_target]
for _name in ("generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating", "complexfloating", "flexible", "character",
              "object_"):
    globals()[_name] = getattr(np, _name)
    __all__.append(_name)
__all__ += _NAMES


_KINDS = {
    "bool": dtypes.is_bool, "signed integer": dtypes.is_signed, "unsigned integer": dtypes.is_unsigned, "integral": dtypes.is_integer,
    "real floating": dtypes.is_floating, "complex floating": dtypes.is_complex, "numeric": dtypes.is_numeric,
}


def isdtype(dtype, kind) -> bool:
    """Whether `dtype` is of `kind`: 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating', 'complex floating',
    'numeric', a dtype, or a tuple of these of which one is to hold. ValueError for another name. (Python array API: isdtype)"""
    dtype = dtypes.as_dtype(dtype)
    if isinstance(kind, tuple):
        return any([isdtype(dtype, k) for k in kind])
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind](dtype)
    try:
        return dtype == dtypes.as_dtype(kind)
    except TypeError:
        raise ValueError(f"isdtype: unrecognized kind={kind!r}; it is a dtype or one of {', '.join(map(repr, _KINDS))}") from None


def can_cast(from_, to, casting: str = "safe") -> bool:
    """Whether values of dtype `from_` may become `to` under NumPy's rule `casting`. (NumPy: can_cast)"""
    return np.can_cast(dtypes.as_dtype(from_), dtypes.as_dtype(to), casting)


def iscomplexobj(x) -> bool:
    """Whether the dtype of x is complex."""
    return dtypes.is_complex(getattr(x, "dtype", None) or np.asarray(x).dtype) if x is not None else False


def isrealobj(x) -> bool:
    """Whether the dtype of x is not complex."""
    return not iscomplexobj(x)


def isscalar(element) -> bool:
    """Whether `element` is a number or an array without dimensions."""
    if isinstance(element, (np.ndarray, np.generic)) or hasattr(element, "aval"):
        return element.ndim == 0 if hasattr(element, "ndim") else False
    if hasattr(element, "__jax_array__"):
        return typeof(element).ndim == 0
    return np.isscalar(element) and not isinstance(element, (str, bytes))
