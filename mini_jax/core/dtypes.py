"""Element types: which there are, what they are called, and what two of them become when they meet."""
from __future__ import annotations

import warnings
from functools import cache
from typing import Any, Iterable

import ml_dtypes
import numpy as np

from mini_jax.core import config
from mini_jax.core.errors import TypePromotionError
from mini_jax.core.state import state

# ---------------------------------------------------------------------------------------------------------------------
# The dtypes there are: NumPy name, name in programs, name in StableHLO.

_TABLE = [
    ("bool", "bool", "i1"),
    ("uint2", "u2", "ui2"), ("uint4", "u4", "ui4"), ("uint8", "u8", "ui8"), ("uint16", "u16", "ui16"),
    ("uint32", "u32", "ui32"), ("uint64", "u64", "ui64"),
    ("int2", "i2", "i2"), ("int4", "i4", "i4"), ("int8", "i8", "i8"), ("int16", "i16", "i16"),
    ("int32", "i32", "i32"), ("int64", "i64", "i64"),
    ("float4_e2m1fn", "f4_e2m1fn", "f4E2M1FN"), ("float8_e3m4", "f8_e3m4", "f8E3M4"),
    ("float8_e4m3", "f8_e4m3", "f8E4M3"), ("float8_e4m3b11fnuz", "f8_e4m3b11fnuz", "f8E4M3B11FNUZ"),
    ("float8_e4m3fn", "f8_e4m3fn", "f8E4M3FN"), ("float8_e4m3fnuz", "f8_e4m3fnuz", "f8E4M3FNUZ"),
    ("float8_e5m2", "f8_e5m2", "f8E5M2"), ("float8_e5m2fnuz", "f8_e5m2fnuz", "f8E5M2FNUZ"),
    ("float8_e8m0fnu", "f8_e8m0fnu", "f8E8M0FNU"),
    ("bfloat16", "bf16", "bf16"), ("float16", "f16", "f16"), ("float32", "f32", "f32"), ("float64", "f64", "f64"),
    ("complex64", "c64", "complex<f32>"), ("complex128", "c128", "complex<f64>"),
]


def _named(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


bool_ = _named("bool")
uint2, uint4, uint8, uint16, uint32, uint64 = map(_named, ("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"))
int2, int4, int8, int16, int32, int64 = map(_named, ("int2", "int4", "int8", "int16", "int32", "int64"))
float4_e2m1fn = _named("float4_e2m1fn")
float8_e3m4, float8_e4m3, float8_e4m3b11fnuz = map(_named, ("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"))
float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 = map(_named, ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"))
float8_e5m2fnuz, float8_e8m0fnu = map(_named, ("float8_e5m2fnuz", "float8_e8m0fnu"))
bfloat16, float16, float32, float64 = map(_named, ("bfloat16", "float16", "float32", "float64"))
complex64, complex128 = map(_named, ("complex64", "complex128"))
float0 = np.dtype([("float0", np.void, 0)])     # the tangents of integers and booleans: no information, no bytes

all_dtypes: tuple[np.dtype, ...] = tuple(_named(row[0]) for row in _TABLE)
integers = frozenset(d for d in all_dtypes if d.name.startswith(("int", "uint")))
signed_integers = frozenset(d for d in integers if d.name.startswith("int"))
floats = frozenset(d for d in all_dtypes if d.name.startswith(("float", "bfloat")))
complexes = frozenset((complex64, complex128))

_short = {_named(name): short for name, short, _ in _TABLE} | {float0: "float0"}
_mlir = {_named(name): mlir for name, _, mlir in _TABLE} | {float0: "i1"}


class extended(np.generic):
    """The kind of all dtypes that NumPy does not know; `issubdtype(d, extended)` asks for them."""


class prng_key(extended):
    """The kind of the dtypes of typed random keys."""


class ExtendedDtype:
    """A dtype of our own: each element is a block of `physical_shape` elements of `physical_dtype`.

    Subclasses give, as attributes: `name` ("key<fry>"), `type` (a subclass of `extended`), `physical_shape`,
    `physical_dtype`. Two with equal type and name are equal.
    """
    __slots__ = ()
    name: str
    type: type
    physical_shape: tuple[int, ...]
    physical_dtype: np.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(np.prod(self.physical_shape)) * self.physical_dtype.itemsize

    def __eq__(self, other):
        return self is other or type(self) is type(other) and self.name == other.name

    def __hash__(self):
        return hash((type(self), self.name))

    def __repr__(self):
        return self.name

    __str__ = __repr__


def is_extended(dtype) -> bool:
    return isinstance(dtype, ExtendedDtype)


def short_name(dtype) -> str:
    """The name in printed programs: f32, i32, bool, bf16, c64, f8_e4m3fn, float0, key<fry>."""
    return _short.get(dtype) or dtype.name


def mlir_name(dtype) -> str:
    """The name of the element type in StableHLO: f32, ui8, i1, complex<f32>, f8E4M3FN; float0 is stored as i1."""
    try:
        return _mlir[dtype]
    except KeyError:
        if isinstance(dtype, ExtendedDtype):
            return mlir_name(dtype.physical_dtype)
        raise TypeError(f"arrays of dtype {dtype} cannot be compiled") from None


def mlir_tensor(shape: Iterable[int], dtype) -> str:
    """The StableHLO type of an array: tensor<3x4xf32>; an extended dtype's physical shape comes last."""
    if isinstance(dtype, ExtendedDtype):
        shape = (*shape, *dtype.physical_shape)
    return f"tensor<{''.join([f'{n}x' for n in shape])}{mlir_name(dtype)}>"


# ---------------------------------------------------------------------------------------------------------------------
# The dtype meant, and the dtype had: with x64 off, 64-bit dtypes stand for their 32-bit counterparts.

_x64 = config.enable_x64.state
_strict = config.numpy_dtype_promotion.state
_same = {d: d for d in all_dtypes}
_to_32 = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}
_canonical: tuple[dict, dict] = ({}, {})      # what has been asked with x64 off, on

python_scalar_types: dict[type, np.dtype] = {bool: bool_, int: int64, float: float64, complex: complex128}
"""Python's scalar types and the dtype each stands for, before canonicalisation; all but bool are weak."""


def as_dtype(dtype) -> Any:
    """The np.dtype (or extended dtype) that a user means by a dtype, a type, a name or None (float64); not canonical."""
    if isinstance(dtype, (np.dtype, ExtendedDtype)):
        return dtype
    if isinstance(dtype, str) and hasattr(ml_dtypes, dtype):
        return np.dtype(getattr(ml_dtypes, dtype))
    inner = getattr(dtype, "dtype", None)
    if isinstance(inner, (np.dtype, ExtendedDtype)):
        return inner
    return np.dtype(dtype)


def canonicalize(dtype) -> Any:
    """The dtype object that `dtype` (a dtype, a type, a name, None for the default float) stands for under the present
    enable_x64. Extended dtypes are returned as they are. Raises TypeError when it is no dtype.
    """
    try:
        return _canonical[_x64.value][dtype]
    except KeyError:
        meant = as_dtype(dtype)
        if isinstance(meant, np.dtype) and not meant.isnative:
            meant = meant.newbyteorder("=")    # bytes in the other order are a matter of the NumPy array, not of the values
        meant = _same.get(meant, meant)        # np.longlong and np.int64 are one dtype; keep one object for it
        _canonical[True][dtype] = meant
        _canonical[False][dtype] = _to_32.get(meant, meant)
        return _canonical[_x64.value][dtype]
    except TypeError:                          # unhashable: no dtype, or one NumPy builds from a list
        meant = as_dtype(dtype)
        return meant if _x64.value else _to_32.get(meant, meant)


def requested(dtype, where: str) -> Any:
    """`canonicalize` for the public function `where` with an argument `dtype=`: warns (UserWarning) when 64 bits were
    asked for and are not available. Raises TypeError when arrays of that dtype do not exist.
    """
    canonical = canonicalize(dtype)
    if canonical not in _short and not isinstance(canonical, ExtendedDtype):
        raise TypeError(f"{where}: arrays hold numbers, booleans or random keys; dtype={dtype!r} is none of these")
    if dtype is not None and dtype not in python_scalar_types:
        meant = as_dtype(dtype)
        if meant != canonical:
            state.warned += 1
            warnings.warn(f"{where}: dtype {meant} was requested, but 64-bit types are off, so the result is {canonical}. "
                          "To have them, call config.update('jax_enable_x64', True) at the start of the program.",
                          UserWarning, stacklevel=_frames_to_user())
    return canonical


def _frames_to_user() -> int:
    """The stacklevel, for a warning raised by the caller, of the first frame outside this package."""
    import sys
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "mini_jax":
        frame, level = frame.f_back, level + 1
    return level


def default_int() -> np.dtype:
    return int64 if _x64.value else int32


def default_uint() -> np.dtype:
    return uint64 if _x64.value else uint32


def default_float() -> np.dtype:
    return float64 if _x64.value else float32


def default_complex() -> np.dtype:
    return complex128 if _x64.value else complex64


# ---------------------------------------------------------------------------------------------------------------------
# Questions about dtypes. These take dtype objects, as types of values hold them; `issubdtype` takes anything.

_inexact = floats | complexes
_numbers = _inexact | integers


def is_inexact(dtype) -> bool:
    """Floating or complex."""
    return dtype in _inexact


def is_floating(dtype) -> bool:
    return dtype in floats


def is_complex(dtype) -> bool:
    return dtype in complexes


def is_integer(dtype) -> bool:
    """Signed or unsigned, not boolean."""
    return dtype in integers


def is_bool(dtype) -> bool:
    return dtype is bool_ or dtype == bool_


def is_signed(dtype) -> bool:
    """A signed integer."""
    return dtype in signed_integers


def is_unsigned(dtype) -> bool:
    """An unsigned integer."""
    return dtype in integers and dtype not in signed_integers


def is_numeric(dtype) -> bool:
    """Integer, floating or complex."""
    return dtype in _numbers


_subtypes: dict[tuple, bool] = {}


def issubdtype(a, b) -> bool:
    """Whether dtype `a` is of the kind `b`: np.issubdtype that knows bfloat16, float8, int4, random keys.

    a, b: dtypes, scalar types, names, Python types, or kinds (np.floating, np.integer, …, extended, prng_key).
    """
    try:
        return _subtypes[a, b]
    except KeyError:
        found = _subtypes[a, b] = _issubdtype(a, b)
        return found
    except TypeError:
        return _issubdtype(a, b)


def _issubdtype(a, b) -> bool:
    if isinstance(b, ExtendedDtype):
        return a == b
    if not _is_kind(b):
        return not isinstance(a, ExtendedDtype) and not _is_kind(a) and as_dtype(a) == as_dtype(b)
    scalar = a if _is_kind(a) else a.type if isinstance(a, ExtendedDtype) else as_dtype(a).type
    return issubclass(_kind_of_narrow.get(scalar, scalar), b)


def _is_kind(x) -> bool:
    """Whether `x` is one of NumPy's abstract scalar classes, or of ours."""
    return isinstance(x, type) and issubclass(x, np.generic) and x not in _scalar_types


_scalar_types = {d.type for d in all_dtypes}
_kind_of_narrow = {d.type: np.signedinteger if d in signed_integers else np.unsignedinteger if d in integers
                   else np.floating for d in all_dtypes if d.type.__module__ != "numpy"}


def finfo(dtype):
    """Range and precision of a floating (or of the parts of a complex) dtype, with NumPy's attributes.
    Raises ValueError for other dtypes.
    """
    return ml_dtypes.finfo(as_dtype(dtype))


def iinfo(dtype):
    """Range of an integer dtype, with NumPy's attributes. Raises ValueError for other dtypes."""
    return ml_dtypes.iinfo(as_dtype(dtype))


_bits = {d: d.itemsize * 8 for d in all_dtypes} | {uint2: 2, int2: 2, uint4: 4, int4: 4, float4_e2m1fn: 4}


def itemsize_bits(dtype) -> int:
    """Bits of one element, without padding: 32 for float32, 4 for int4, 8 for bool. Raises ValueError for dtypes that
    do not hold numbers."""
    bits = _bits.get(as_dtype(dtype))
    if bits is None:
        raise ValueError(f"elements of dtype {dtype} have no size in bits")
    return bits


def to_real(dtype) -> np.dtype:
    """The dtype of the real part: float32 for complex64; other dtypes are their own."""
    return float32 if dtype == complex64 else float64 if dtype == complex128 else dtype


def to_complex(dtype) -> np.dtype:
    """The complex dtype that holds every value of `dtype`, of at most the default size for integers."""
    if dtype in complexes:
        return dtype
    return complex128 if to_inexact(dtype) == float64 else complex64


def to_inexact(dtype) -> Any:
    """The dtype in which sin, exp or a mean of values of `dtype` is computed: float64 for 64-bit integers (when x64 is
    on), float32 for other integers and booleans; floating and complex dtypes are their own."""
    if dtype in integers or dtype == bool_:
        return canonicalize(float64) if dtype in _to_32 else float32
    return dtype


# ---------------------------------------------------------------------------------------------------------------------
# The dtype of a value.

def dtype_of(x) -> Any:
    """The dtype of a Python scalar, a NumPy value, an array, a traced value, a dtype or a scalar type. Canonical, except
    that an array which is 64 bits wide already stays so. Raises TypeError when `x` has none.
    """
    if isinstance(x, (type, np.dtype, ExtendedDtype)):
        return canonicalize(x)
    dtype = getattr(x, "dtype", None)
    if dtype is not None:
        return canonicalize(dtype) if isinstance(x, (np.ndarray, np.generic)) else dtype
    python = python_scalar_types.get(type(x)) or _python_ancestor(x)
    if python is None:
        raise TypeError(f"{x!r} (of type {type(x).__name__}) has no dtype: it is neither an array nor a number")
    return python if _x64.value else _to_32.get(python, python)


def _python_ancestor(x):
    """The dtype for an instance of a subclass of a Python scalar type, such as an IntEnum member, or None."""
    for python, dtype in python_scalar_types.items():
        if isinstance(x, python):
            return dtype
    return None


def is_weak(x) -> bool:
    """Whether the dtype of `x` gives way in promotion: Python's int, float and complex, and arrays that come of them."""
    weak = getattr(x, "weak_type", None)
    if weak is not None:
        return bool(weak)
    return isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic))


def scalar_type_of(x) -> type:
    """The Python type (bool, int, float, complex) of which an element of `x` (a value or a dtype) is one.
    Raises TypeError for other elements.
    """
    dtype = canonicalize(x) if isinstance(x, str) else dtype_of(x)
    for python, members in ((bool, (bool_,)), (int, integers), (float, floats), (complex, complexes)):
        if dtype in members:
            return python
    raise TypeError(f"elements of dtype {dtype} are not Python numbers")


_int_ranges = {d: (int(ml_dtypes.iinfo(d).min), int(ml_dtypes.iinfo(d).max)) for d in integers}


def check_scalar_range(x, dtype=None) -> None:
    """Raises OverflowError when the Python int `x` does not fit the integer `dtype` (default: the default int)."""
    if type(x) is int:
        limits = _int_ranges.get(default_int() if dtype is None else dtype)
        if limits is not None and not limits[0] <= x <= limits[1]:
            name = default_int() if dtype is None else dtype
            raise OverflowError(f"the Python int {x} does not fit {name}, which holds {limits[0]} to {limits[1]}")


# ---------------------------------------------------------------------------------------------------------------------
# Promotion. A lattice: two operands become the lowest dtype above both. Weak types are nodes of their own, low in it,
# so that `x + 1.0` keeps the dtype of x (JAX documentation, "Type promotion semantics").

_NARROW_INTEGERS = (uint2, uint4, int2, int4)
_NARROW_FLOATS = tuple(d for d in all_dtypes if d.name.startswith(("float8", "float4")))
_ABOVE: dict[Any, tuple] = {                   # node → the nodes next above; weak nodes are int, float, complex
    bool_: (int,),
    int: (*_NARROW_INTEGERS, uint8, int8),
    **{d: () for d in _NARROW_INTEGERS},
    uint8: (int16, uint16), uint16: (int32, uint32), uint32: (int64, uint64), uint64: (float,),
    int8: (int16,), int16: (int32,), int32: (int64,), int64: (float,),
    float: (*_NARROW_FLOATS, bfloat16, float16, complex),
    **{d: () for d in _NARROW_FLOATS},
    bfloat16: (float32,), float16: (float32,), float32: (float64, complex64), float64: (complex128,),
    complex: (complex64,), complex64: (complex128,), complex128: (),
}
_STRICTLY_ABOVE: dict[Any, tuple] = {           # in strict mode only weak types give way, and only within their kind
    int: (*integers, float), float: (*floats, complex), complex: tuple(complexes), **{d: () for d in all_dtypes},
}


def _closure(above: dict) -> dict:
    """For each node, the set of the node and all above it."""
    @cache
    def up(node):
        return frozenset([node]).union(*map(up, above[node]))
    return {node: up(node) for node in above}


_up, _strictly_up = _closure(_ABOVE), _closure(_STRICTLY_ABOVE)
_promoted: tuple[dict, dict] = ({}, {})        # operands met with x64 off, on
_promoted_strictly: tuple[dict, dict] = ({}, {})


def promote_pair(dtype_a, weak_a: bool, dtype_b, weak_b: bool) -> tuple[Any, bool]:
    """The dtype, and whether it is weak, of an operation between two operands.

    Raises TypePromotionError when there is no common dtype, or when numpy_dtype_promotion is 'strict' and the dtypes differ.
    """
    table = (_promoted if _strict.value == "standard" else _promoted_strictly)[_x64.value]
    try:
        return table[dtype_a, weak_a, dtype_b, weak_b]
    except KeyError:
        found = table[dtype_a, weak_a, dtype_b, weak_b] = _promote(((dtype_a, weak_a), (dtype_b, weak_b)))
        return found


def promote(*operands: tuple[Any, bool]) -> tuple[Any, bool]:
    """The common (dtype, weak) of operands given as (dtype, weak). Raises TypePromotionError as `promote_pair` does."""
    table = (_promoted if _strict.value == "standard" else _promoted_strictly)[_x64.value]
    try:
        return table[operands]
    except KeyError:
        found = table[operands] = _promote(operands)
        return found


def _promote(operands) -> tuple[Any, bool]:
    operands = [(canonicalize(dtype), weak) for dtype, weak in operands]
    dtypes = {dtype for dtype, _ in operands}
    all_weak = all(weak for _, weak in operands)
    strict = _strict.value == "strict"
    if len(dtypes) == 1 and not all_weak:
        return dtypes.pop(), False
    if not dtypes <= _up.keys():
        error = TypeError if any(map(is_extended, dtypes)) else TypePromotionError
        raise error(f"{_listed(dtypes)} have no common dtype: such values do not mix with numbers")
    up = _strictly_up if strict else _up
    # Weak operands are their Python types; but, where all are, they first meet as the dtypes they are.
    nodes = dtypes if all_weak and not strict else {_node(dtype, weak) for dtype, weak in operands}
    common = frozenset.intersection(*[up[node] for node in nodes])
    joined = next((node for node in common if up[node] == common), None)
    if joined is None:
        if strict:
            raise TypePromotionError(
                f"{_listed(dtypes)} are not mixed implicitly, because numpy_dtype_promotion is 'strict': convert with "
                ".astype(...), or set the option to 'standard'")
        raise TypePromotionError(f"{_listed(dtypes)} have no common dtype: convert with .astype(...) to the one you want")
    if joined in python_scalar_types:
        return canonicalize(joined), True
    return (canonicalize(_widest(joined)), True) if all_weak and joined != bool_ else (canonicalize(joined), False)


def _node(dtype, weak: bool):
    return dtype if not weak or dtype == bool_ else int if dtype in integers else float if dtype in floats else complex


def _widest(dtype) -> np.dtype:
    if dtype in integers:
        return int64 if dtype in signed_integers else uint64
    return float64 if dtype in floats else complex128


def _listed(dtypes) -> str:
    names = sorted(map(short_name, dtypes))
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def promote_types(a, b) -> np.dtype:
    """The dtype in which values of dtypes `a` and `b` meet. int, float and complex count as weak. Not canonicalised:
    promote_types('uint64', 'int8') is float64 whether or not x64 is on.
    """
    with config.enable_x64(True):
        return promote(_typed(a), _typed(b))[0]


def _typed(x) -> tuple[Any, bool]:
    """(dtype, weak) of a value, a dtype, a type or a name."""
    if x is None or isinstance(x, (str, type, np.dtype, ExtendedDtype)):
        return as_dtype(x), x is int or x is float or x is complex
    return dtype_of(x), is_weak(x)


def result_type(*args, return_weak_type_flag: bool = False):
    """The dtype in which all of `args` (values, dtypes, types, names) meet, canonicalised.

    return_weak_type_flag: return (dtype, weak) instead.
    Raises TypePromotionError (a ValueError) when they have no common dtype, TypeError when one has no dtype.
    """
    if not args:
        raise ValueError("result_type needs at least one value or dtype")
    dtype, weak = promote(*map(_typed, args))
    return (dtype, weak) if return_weak_type_flag else dtype
