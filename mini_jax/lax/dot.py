"""Products: dot_general, contractions of two arrays over some of their dimensions, and what says how precisely to compute them."""
from __future__ import annotations

import enum
import functools
import operator
from typing import NamedTuple, Sequence, Union

import ml_dtypes
import numpy as np

from mini_jax.core import config, dtypes
from mini_jax.core.errors import IncompatibleShapesError
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.rows import ANY, dtype_list
from mini_jax.lax.shapes import add_any, convert_element_type, reshape, transpose

__all__ = ["dot", "dot_general", "batch_matmul", "Precision", "PrecisionLike", "DotDimensionNumbers", "DotAlgorithm",
           "DotAlgorithmPreset", "dot_general_p"]

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


# --- precision --------------------------------------------------------------------------------------------------------------

class Precision(enum.Enum):
    """How precisely devices that can trade precision for speed (GPU, TPU) are to multiply 32-bit floats.

    DEFAULT: as fast as the device can; HIGH: in between; HIGHEST: full 32 bits. Each may be given by name: "default",
    "fastest", "bfloat16"; "high", "bfloat16_3x", "tensorfloat32"; "highest", "float32".
    """
    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value):
        return _BY_NAME.get(value)

    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"

    def __str__(self):
        return self.name


_BY_NAME = {None: Precision.DEFAULT, "default": Precision.DEFAULT, "fastest": Precision.DEFAULT, "bfloat16": Precision.DEFAULT,
            "high": Precision.HIGH, "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH,
            "highest": Precision.HIGHEST, "float32": Precision.HIGHEST}


class DotAlgorithm(NamedTuple):
    """An algorithm for products, exactly: operands are rounded to the precision types (as sums of `component_count` parts each, of
    whose products `num_primitive_operations` are computed) and added in the accumulation type. (StableHLO: dot_general)"""
    lhs_precision_type: object
    rhs_precision_type: object
    accumulation_type: object
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Algorithms by name: LHS_RHS_ACCUMULATOR, the types that operands are rounded to and products are added in.

    X3, X6, X9: operands are split into bfloat16 (or TF32) parts, of whose products that many are computed; FAST_ACCUM: parts of
    the sum may be less precise; ANY: the operand's own type.
    """
    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"

    def __str__(self):
        return self.name

    @property
    def precision_type(self):
        """The type (a StableHLO name) operands are rounded to; None: their own."""
        return None if self.name == "DEFAULT" or self.name.startswith("ANY") else self.name.split("_")[0].lower()

    @property
    def accumulation_type(self):
        """The scalar type that products are added in, None where it is the result's."""
        return None if self.name == "DEFAULT" else _SCALAR_TYPES.get(self.name.split("_")[2 if self.precision_type else 4])

    @property
    def supported_lhs_types(self) -> tuple | None:
        """The scalar types of operands that are taken as they are; None: all. Others are converted to the first."""
        kind = self.precision_type
        if kind is None:
            return None
        if self.name in ("BF16_BF16_BF16", "BF16_BF16_F32"):
            return (ml_dtypes.bfloat16, np.float32)
        return (np.float32,) if kind in ("bf16", "tf32") else (_SCALAR_TYPES[kind.upper()],)

    supported_rhs_types = supported_lhs_types


_SCALAR_TYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64}

PrecisionLike = Union[None, str, Precision, tuple[str, str], tuple[Precision, Precision], DotAlgorithm, DotAlgorithmPreset]


def canonical_precision(precision) -> tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset | None:
    """Of each operand, or the algorithm, from what users pass; None is the option default_matmul_precision.

    Raises ValueError for anything else.
    """
    if precision is None:
        precision = config.default_matmul_precision.value
        if precision is None:
            return None
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision]
    pair = precision if isinstance(precision, (tuple, list)) else (precision, precision)
    if len(pair) == 2 and all([isinstance(p, Precision) or (p is None or isinstance(p, str)) and p in _BY_NAME for p in pair]):
        return tuple([Precision(p) for p in pair])
    raise ValueError(f"precision={precision!r} is not known: pass None, one of {', '.join(sorted(n for n in _BY_NAME if n))}, a "
                     "lax.Precision, a pair of these (one for each operand), a lax.DotAlgorithm, or a lax.DotAlgorithmPreset or its name")


# --- dot_general --------------------------------------------------------------------------------------------------------------

dot_general_p = Primitive("dot_general", facts={"family": "dot", "dtypes": ANY})


def dot_general(lhs, rhs, dimension_numbers: DotDimensionNumbers, precision: PrecisionLike = None, preferred_element_type=None, *,
                out_sharding=None):
    """Σ lhs · rhs over contracted dimensions, for each index of the batch dimensions and of all that remain.

    dimension_numbers: ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), dimensions paired in order, of equal sizes.
    precision: how precisely to multiply (see Precision and DotAlgorithm); default: the option default_matmul_precision.
    preferred_element_type: the dtype of the result; default: the operands', or the wider kind of the two.
    Returns an array whose dimensions are batch, then the lhs's others, then the rhs's others.
    Raises TypeError where the dimensions do not fit and for a result narrower than exact operands. (StableHLO: dot_general)
    """
    if out_sharding is not None:
        raise NotImplementedError("lax.dot_general: out_sharding must be None; constrain the result's sharding instead")
    try:
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        lhs_contract, rhs_contract, lhs_batch, rhs_batch = map(tuple, (lhs_contract, rhs_contract, lhs_batch, rhs_batch))
    except (TypeError, ValueError):
        raise TypeError("lax.dot_general: dimension_numbers must be ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), each a sequence of "
                        f"dimensions, got {dimension_numbers!r:.200}") from None
    ints = lambda dims: tuple([operator.index(d) for d in dims])
    return dot_general_p.bind(
        lhs, rhs, dimension_numbers=((ints(lhs_contract), ints(rhs_contract)), (ints(lhs_batch), ints(rhs_batch))),
        precision=canonical_precision(precision),
        preferred_element_type=None if preferred_element_type is None else dtypes.canonicalize(preferred_element_type))


def dot(lhs, rhs, *, dimension_numbers: DotDimensionNumbers | None = None, precision: PrecisionLike = None, preferred_element_type=None,
        out_sharding=None):
    """The product of matrices and vectors: the last dimension of lhs is contracted with the first of rhs.

    lhs, rhs: of one or two dimensions. With dimension_numbers, any product: see dot_general, whose other arguments these are too.
    Raises TypeError where the dimensions do not fit.
    """
    if dimension_numbers is None:
        a, b = typeof(lhs), typeof(rhs)
        if not (1 <= a.ndim <= 2 and 1 <= b.ndim <= 2 and a.shape[-1] == b.shape[0]):
            raise IncompatibleShapesError(f"lax.dot({a}, {b}): the last dimension of lhs and the first of rhs must agree, in one or two dimensions each; "
                            "for other products give dimension_numbers")
        dimension_numbers = (((a.ndim - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs, rhs, precision: PrecisionLike = None):
    """The products lhs[…, :, :] · rhs[…, :, :] of two stacks of matrices, (…, m, k) and (…, k, n).

    Raises ValueError for fewer than two dimensions or ranks that differ, TypeError for sizes that do not fit.
    """
    a, b = typeof(lhs), typeof(rhs)
    if min(a.ndim, b.ndim) < 2:
        raise ValueError(f"lax.batch_matmul({a}, {b}): operands must have at least two dimensions")
    if a.ndim != b.ndim:
        raise ValueError(f"lax.batch_matmul({a}, {b}): operands must have as many dimensions as each other")
    batch = tuple(range(a.ndim - 2))
    return dot_general(lhs, rhs, (((a.ndim - 1,), (b.ndim - 2,)), (batch, batch)), precision)


def free_dims(ndim: int, *used: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that are neither contracted nor batch dimensions."""
    taken = {d for dims in used for d in dims}
    return tuple([d for d in range(ndim) if d not in taken])


def _dot_type(lhs, rhs, *, dimension_numbers, precision, preferred_element_type):
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    where = f"lax.dot_general({lhs}, {rhs}, {dimension_numbers})"
    for name, x, contract, batch in (("lhs", lhs, lhs_contract, lhs_batch), ("rhs", rhs, rhs_contract, rhs_batch)):
        if not all([0 <= d < x.ndim for d in (*contract, *batch)]):
            raise TypeError(f"{where}: dimension numbers of {name} must lie between 0 and {x.ndim - 1}")
        if len({*contract, *batch}) != len(contract) + len(batch):
            raise TypeError(f"{where}: the contracting and batch dimensions of {name} must be distinct")
        if x.dtype not in ANY:
            raise TypeError(f"{where}: dtype {x.dtype} of {name} is not accepted; it takes {dtype_list(ANY)}")
    for kind, left, right in (("contracting", lhs_contract, rhs_contract), ("batch", lhs_batch, rhs_batch)):
        sizes = tuple([lhs.shape[d] for d in left]), tuple([rhs.shape[d] for d in right])
        if sizes[0] != sizes[1]:
            raise TypeError(f"{where}: {kind} dimensions must be as many and of the same sizes, got {sizes[0]} and {sizes[1]}")
    shape = (*[lhs.shape[d] for d in lhs_batch], *[lhs.shape[d] for d in free_dims(lhs.ndim, lhs_contract, lhs_batch)],
             *[rhs.shape[d] for d in free_dims(rhs.ndim, rhs_contract, rhs_batch)])
    dtype = common_dtype(lhs.dtype, rhs.dtype)
    if preferred_element_type is not None:
        if not _may_become(dtype, preferred_element_type):
            raise TypeError(f"{where}: preferred_element_type={preferred_element_type} is narrower than the operands")
        dtype = preferred_element_type
    return array_type(shape, dtype, lhs.weak_type and rhs.weak_type)


def common_dtype(a, b):
    """The dtype in which operands of dtypes a and b are multiplied: that of the higher kind (boolean, integer, floating, complex),
    of one kind the wider; int8 rather than uint8, bfloat16 rather than float16."""
    def height(dtype):
        kind = 3 if dtypes.is_complex(dtype) else 2 if dtypes.is_floating(dtype) else 1 if dtypes.is_integer(dtype) else 0
        return kind, dtypes.itemsize_bits(dtype), dtypes.is_signed(dtype) or dtype == dtypes.bfloat16
    return a if height(a) >= height(b) else b


def _may_become(dtype, preferred) -> bool:
    if dtypes.is_floating(dtype) or dtypes.is_bool(dtype):
        return preferred in ANY
    bits = 1 if dtypes.is_bool(preferred) else dtypes.itemsize_bits(preferred)
    return preferred in ANY and bits >= dtypes.itemsize_bits(dtype) // (2 if dtypes.is_complex(dtype) else 1)


# --- its derivative, transpose and batching ------------------------------------------------------------------------------------

def _dot_jvp(primals, tangents, **params):
    (lhs, rhs), (dl, dr) = primals, tangents
    y = dot_general_p.bind(lhs, rhs, **params)
    terms = [] if type(dl) is Zero else [dot_general_p.bind(dl, rhs, **params)]
    if type(dr) is not Zero:
        terms.append(dot_general_p.bind(lhs, dr, **params))
    return y, zero_like(y) if not terms else terms[0] if len(terms) == 1 else add_any(*terms)


def _dot_transpose(ct, lhs, rhs, *, dimension_numbers, precision, preferred_element_type):
    """The cotangent of one operand is the product of ct and the other operand over the other's free dimensions."""
    is_left = isinstance(lhs, Accumulator)
    x, other = (lhs, rhs) if is_left else (rhs, lhs)
    if not x.wanted:
        return
    ndim = typeof(other).ndim
    (ct, other), has_axis = x.contracted((ct, other), (None, None))
    ct_first, numbers, permutation = _cotangent_plan(is_left, x.shape, ndim, dimension_numbers, has_axis)
    if type(precision) is tuple and ct_first is not is_left:
        precision = precision[::-1]
    out = dot_general_p.bind(*((ct, other) if ct_first else (other, ct)), dimension_numbers=numbers, precision=precision,
                             preferred_element_type=preferred_element_type)
    out = reshape(out, x.shape) if permutation is None else transpose(out, permutation)
    x.add(convert_element_type(out, x.dtype))


@functools.lru_cache(4096)
def _cotangent_plan(is_left: bool, shape: tuple, other_ndim: int, dimension_numbers: tuple, has_axis: bool) -> tuple:
    """(is ct the first factor, the dimension numbers of its product with the other operand, the permutation that follows or None)
    for the cotangent of the left or right operand, of this shape. has_axis: both factors have one more dimension, in front, to sum over.

    Of the two orders of that product, the one whose result already has the operand's order of dimensions is taken, so that
    e.g. the gradient of w in x·w is x'·ct, with nothing to transpose.
    """
    contracts, batches = dimension_numbers
    contract, other_contract = contracts if is_left else contracts[::-1]
    batch, other_batch = batches if is_left else batches[::-1]
    free = free_dims(len(shape), contract, batch)
    other_free = free_dims(other_ndim, other_contract, other_batch)
    ct_batch = tuple(range(len(batch)))
    ct_free = tuple(range(len(batch), len(batch) + len(free) + len(other_free)))
    ct_summed = ct_free[len(free):] if is_left else ct_free[:len(other_free)]
    # The result has dimensions (batch, free, paired) or (batch, paired, free), where `paired` are x's contracted dimensions in
    # the order in which their partners stand in `other`.
    paired = [contract[other_contract.index(d)] for d in sorted(other_contract)]
    if has_axis:
        ct_batch, ct_summed, other_batch, other_free = [tuple([d + 1 for d in dims]) for dims in (ct_batch, ct_summed, other_batch, other_free)]
        ct_summed, other_free = (0, *ct_summed), (0, *other_free)
    sized = lambda dims: [d for d in dims if shape[d] != 1]               # it matters where these stand
    leading, trailing = sized(free), sized(paired)
    ct_first = not (leading and trailing) or leading[0] < trailing[0]
    if ct_first:
        numbers, order = ((ct_summed, other_free), (ct_batch, other_batch)), [*batch, *free, *paired]
    else:
        numbers, order = ((other_free, ct_summed), (other_batch, ct_batch)), [*batch, *paired, *free]
    return ct_first, numbers, None if sized(order) == sorted(sized(order)) else tuple(np.argsort(order).tolist())


def batched_numbers(args, dims, dimension_numbers) -> tuple[tuple, int]:
    """The dimension numbers of a batch of products, and where its dimension is in the result.

    Both batched: one more batch dimension, the first. One batched: a free dimension more, and still one product.
    """
    (lhs, rhs), (dl, dr) = args, dims
    (lhs_contract, lhs_batch), (rhs_contract, rhs_batch) = [
        [_shifted(numbers, d) for numbers in side] for side, d in zip(zip(*dimension_numbers), dims)]
    if dl is not None and dr is not None:
        lhs_batch, rhs_batch, dim = (dl, *lhs_batch), (dr, *rhs_batch), 0
    elif dl is not None:
        dim = len(lhs_batch) + free_dims(typeof(lhs).ndim, lhs_contract, lhs_batch).index(dl)
    else:
        dim = (len(lhs_batch) + len(free_dims(typeof(lhs).ndim, lhs_contract, lhs_batch))
               + free_dims(typeof(rhs).ndim, rhs_contract, rhs_batch).index(dr))
    return ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)), dim


def contracted_numbers(dims, dimension_numbers) -> tuple:
    """The dimension numbers of the sum of a batch of products, both operands batched."""
    (lhs_contract, lhs_batch), (rhs_contract, rhs_batch) = [
        [_shifted(numbers, d) for numbers in side] for side, d in zip(zip(*dimension_numbers), dims)]
    return ((dims[0], *lhs_contract), (dims[1], *rhs_contract)), (lhs_batch, rhs_batch)


def _shifted(numbers: tuple, d: int | None) -> tuple:
    """Dimensions, counted with a further one that stands at d."""
    return numbers if d is None else tuple([n + (n >= d) for n in numbers])


def _dot_batch(axis, args, dims, *, dimension_numbers, **params):
    numbers, dim = batched_numbers(args, dims, dimension_numbers)
    return dot_general_p.bind(*args, dimension_numbers=numbers, **params), dim


dot_general_p.type_rule, dot_general_p.jvp, dot_general_p.transpose, dot_general_p.batch = (
    _dot_type, _dot_jvp, _dot_transpose, _dot_batch)
