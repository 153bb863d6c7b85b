"""Convolutions: sums of products of the entries under a window with a kernel, at every place of the window."""
from __future__ import annotations

import operator
from itertools import product
from math import prod
from typing import NamedTuple, Sequence, Union

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.dot import PrecisionLike, canonical_precision
from mini_jax.lax.rows import ANY, dtype_list
from mini_jax.lax.shapes import add_any, broadcast, convert_element_type, expand_dims, moveaxis, reshape, transpose
from mini_jax.lax.slicing import concatenate, pad, rev, slice

__all__ = ["conv_general_dilated", "conv", "conv_with_general_padding", "conv_transpose", "conv_general_dilated_patches",
           "conv_dimension_numbers", "conv_general_permutations", "padtype_to_pads", "ConvDimensionNumbers",
           "ConvGeneralDilatedDimensionNumbers", "conv_general_dilated_p"]


# --- where which dimension stands -------------------------------------------------------------------------------------------

class ConvDimensionNumbers(NamedTuple):
    """Which dimensions of the operands and the result are what.

    lhs_spec: (batch, feature, spatial …) of lhs; rhs_spec: (output feature, input feature, spatial …) of the kernel;
    out_spec: (batch, feature, spatial …) of the result.
    """
    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers = Union[None, ConvDimensionNumbers, tuple[str, str, str]]


def conv_general_permutations(dimension_numbers: tuple[str, str, str]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """From three strings such as ("NHWC", "HWIO", "NHWC"): the dimensions of lhs as (N, C, spatial …), of rhs as (O, I, spatial …)
    and of the result as (N, C, spatial …), the spatial ones in the order in which they stand in the kernel.

    Raises TypeError where a letter is missing or repeated, or the spatial letters differ.
    """
    if not isinstance(dimension_numbers, (tuple, list)) or len(dimension_numbers) != 3 or not all([isinstance(spec, str) for spec in dimension_numbers]):
        raise TypeError(f"convolution dimension_numbers are three strings, such as ('NHWC', 'HWIO', 'NHWC'), got {dimension_numbers!r:.200}")
    where = f"convolution dimension_numbers={tuple(dimension_numbers)}"
    lhs, rhs, out = dimension_numbers
    for name, spec, letters in (("lhs", lhs, "NC"), ("rhs", rhs, "OI"), ("the result", out, "NC")):
        if any([spec.count(letter) != 1 for letter in letters]):
            raise TypeError(f"{where}: {spec!r}, of {name}, must contain each of the letters {letters[0]} and {letters[1]} once")
        if len(set(spec)) != len(spec):
            raise TypeError(f"{where}: {spec!r}, of {name}, repeats a letter")
    spatial = [letter for letter in rhs if letter not in "OI"]
    if not set(lhs) - set("NC") == set(out) - set("NC") == set(spatial):
        raise TypeError(f"{where}: all three must have the same spatial letters")
    return tuple([tuple([spec.index(letter) for letter in (*letters, *spatial)])
                  for spec, letters in ((lhs, "NC"), (rhs, "OI"), (out, "NC"))])


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                           dimension_numbers: ConvGeneralDilatedDimensionNumbers) -> ConvDimensionNumbers:
    """ConvDimensionNumbers from what users pass: None is (batch, feature, spatial …) and (output, input, spatial …).

    Raises TypeError for anything but None, ConvDimensionNumbers or three strings, and where their length is not the rank.
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return ConvDimensionNumbers(*[tuple(map(operator.index, spec)) for spec in dimension_numbers])
    n = len(lhs_shape)
    if n != len(rhs_shape):
        raise TypeError(f"convolution: lhs and rhs must have as many dimensions as each other, got shapes {tuple(lhs_shape)} and "
                        f"{tuple(rhs_shape)}")
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(n))] * 3)
    if not (isinstance(dimension_numbers, (tuple, list)) and len(dimension_numbers) == 3
            and all([isinstance(spec, str) for spec in dimension_numbers])):
        raise TypeError(f"convolution: dimension_numbers must be None, lax.ConvDimensionNumbers or three strings such as "
                        f"('NHWC', 'HWIO', 'NHWC'), got {dimension_numbers!r}")
    for spec in dimension_numbers:
        if len(spec) != n:
            raise TypeError(f"convolution dimension_numbers={tuple(dimension_numbers)}: {spec!r} must have a letter for each of the {n} "
                            f"dimensions of lhs and rhs, whose shapes are {tuple(lhs_shape)} and {tuple(rhs_shape)}")
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


# --- sizes --------------------------------------------------------------------------------------------------------------------

def dilated(size: int, dilation: int) -> int:
    """The size of a dimension with dilation - 1 holes between neighbours."""
    return (size - 1) * dilation + 1 if size else 0


def window_places(size: int, window: int, stride: int, padding: tuple[int, int], base_dilation: int = 1, window_dilation: int = 1) -> int:
    """In how many places a window fits into a padded dimension."""
    room = dilated(size, base_dilation) + sum(padding) - dilated(window, window_dilation)
    return max(room // stride + 1, 0)


def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int],
                    padding: str) -> list[tuple[int, int]]:
    """The pairs (low, high) that a name stands for.

    "VALID": none. "SAME": as much as gives ⌈size / stride⌉ places, an odd one behind; "SAME_LOWER": an odd one in front.
    Raises RuntimeError for another name, TypeError for what is none.
    """
    name = padding.upper() if isinstance(padding, str) else getattr(padding, "name", padding)
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if not isinstance(name, str):
        raise TypeError(f"padding={padding!r:.200} of type {type(padding).__name__} is no name: pass 'VALID', 'SAME' or 'SAME_LOWER'")
    if name not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"padding={padding!r} is not known: pass 'VALID', 'SAME', 'SAME_LOWER' or pairs (low, high)")
    totals = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k, stride in zip(in_shape, window_shape, window_strides)]
    pairs = [(total // 2, total - total // 2) for total in totals]
    return pairs if name == "SAME" else [(high, low) for low, high in pairs]


def pad_pairs(where: str, padding) -> tuple[tuple[int, int], ...]:
    """Pairs (low, high) of ints from what users pass."""
    try:
        pairs = tuple([(operator.index(low), operator.index(high)) for low, high in padding])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: padding must be a string or a sequence of pairs (low, high), got {padding!r}") from error
    return pairs


# --- conv_general_dilated ------------------------------------------------------------------------------------------------------

conv_general_dilated_p = Primitive("conv_general_dilated", facts={"family": "convolution", "dtypes": ANY})


def conv_general_dilated(lhs, rhs, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]],
                         lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
                         dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, feature_group_count: int = 1,
                         batch_group_count: int = 1, precision: PrecisionLike = None, preferred_element_type=None, out_sharding=None):
    """out[n, o, s] = Σ_{i, k} lhs[n, i, s · stride + k · rhs_dilation - low] · rhs[o, i, k], entries outside of lhs being zero.

    lhs: (batch, features, spatial …); rhs: (output features, input features, window …), or as dimension_numbers says.
    window_strides, lhs_dilation (holes in lhs), rhs_dilation (holes in the window): one integer for each spatial dimension.
    padding: "SAME", "SAME_LOWER", "VALID" or a pair (low, high) for each spatial dimension; negative ones take away.
    feature_group_count: features are that many groups, each convolved on its own with its part of the output features.
    batch_group_count: so for the batch; the groups' results stand one after the other in the output features.
    precision: see lax.Precision. preferred_element_type: the dtype of the result; default: that of the operands.
    Raises TypeError for dtypes and ranks that do not fit, ValueError for sizes, strides, dilations and groups that do not.
    (StableHLO: convolution)
    """
    if out_sharding is not None:
        raise NotImplementedError("lax.conv_general_dilated: out_sharding must be None; constrain the result's sharding instead")
    a, b = typeof(lhs), typeof(rhs)
    where = f"lax.conv_general_dilated({a}, {b})"
    numbers = conv_dimension_numbers(a.shape, b.shape, dimension_numbers)
    spatial = max(a.ndim - 2, 0)
    ints = lambda values: (1,) * spatial if values is None else tuple([operator.index(v) for v in values])
    window_strides, lhs_dilation, rhs_dilation = ints(window_strides), ints(lhs_dilation), ints(rhs_dilation)
    if isinstance(padding, str):
        if any([d != 1 for d in lhs_dilation]):
            raise ValueError(f"{where}: padding={padding!r} has no meaning with lhs_dilation={lhs_dilation}; give pairs (low, high), or use "
                             "lax.conv_transpose")
        if a.ndim != b.ndim or len(rhs_dilation) != spatial or len(window_strides) != spatial:
            padding = [(0, 0)] * spatial                 # the type rule says what is wrong
        else:
            windows = [dilated(b.shape[d], dilation) for d, dilation in zip(numbers.rhs_spec[2:], rhs_dilation)]
            padding = padtype_to_pads([a.shape[d] for d in numbers.lhs_spec[2:]], windows, window_strides, padding)
    return conv_general_dilated_p.bind(
        lhs, rhs, window_strides=window_strides, padding=pad_pairs(where, padding), lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        dimension_numbers=numbers, feature_group_count=operator.index(feature_group_count),
        batch_group_count=operator.index(batch_group_count), precision=canonical_precision(precision),
        preferred_element_type=None if preferred_element_type is None else dtypes.canonicalize(preferred_element_type))


def conv(lhs, rhs, window_strides: Sequence[int], padding: str, precision: PrecisionLike = None, preferred_element_type=None):
    """The convolution of lhs (batch, features, spatial …) with rhs (output features, input features, window …): see conv_general_dilated."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs, rhs, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]],
                              lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None, precision: PrecisionLike = None,
                              preferred_element_type=None):
    """`conv` with any padding and dilations: see conv_general_dilated."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_transpose(lhs, rhs, strides: Sequence[int], padding: str | Sequence[tuple[int, int]], rhs_dilation: Sequence[int] | None = None,
                   dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, transpose_kernel: bool = False,
                   precision: PrecisionLike = None, preferred_element_type=None, use_consistent_padding: bool = False):
    """The transposed ("fractionally strided") convolution: one with stride - 1 zeros between the entries of lhs.

    dimension_numbers: default: features last, as in ("NHWC", "HWIO", "NHWC"). padding: "SAME" (size · stride results), "VALID"
    ((size - 1) · stride + window, or size · stride where that is more) or pairs. Pairs pad the dilated lhs; with
    use_consistent_padding they are those of the convolution of which this one is the transpose.
    transpose_kernel: flip the window and exchange the kernel's features, so that this is the gradient of the convolution with it.
    Raises as conv_general_dilated.
    """
    a, b = typeof(lhs), typeof(rhs)
    n = len(a.shape) - 2
    if dimension_numbers is None:
        if n not in range(4):
            raise ValueError(f"lax.conv_transpose({a}, {b}): there are no default dimension_numbers for {n} spatial dimensions; give them")
        letters = "HWD"[:n]
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = conv_dimension_numbers(a.shape, b.shape, dimension_numbers)
    rhs_dilation = (1,) * n if rhs_dilation is None else tuple(rhs_dilation)
    windows = [dilated(b.shape[d], dilation) for d, dilation in zip(numbers.rhs_spec[2:], rhs_dilation)]
    if isinstance(padding, str):
        pads = [_transposed_padding(k, s, padding) for k, s in zip(windows, strides)]
    else:
        pads = pad_pairs("lax.conv_transpose", padding)
        if use_consistent_padding:
            pads = [(k - 1 - low, k - 1 - high) for k, (low, high) in zip(windows, pads)]
    if transpose_kernel:
        rhs = rev(rhs, numbers.rhs_spec[2:])
        numbers = numbers._replace(rhs_spec=_exchanged(numbers.rhs_spec))
    return conv_general_dilated(lhs, rhs, (1,) * n, pads, strides, rhs_dilation, numbers, precision=precision,
                                preferred_element_type=preferred_element_type)


def _transposed_padding(window: int, stride: int, padding: str) -> tuple[int, int]:
    if padding.upper() == "SAME":
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else -(-total // 2)
    elif padding.upper() == "VALID":
        total, low = window + stride - 2 + max(window - stride, 0), window - 1
    else:
        raise ValueError(f"lax.conv_transpose: padding={padding!r} is not known: pass 'SAME', 'VALID' or pairs (low, high)")
    return low, total - low


def conv_general_dilated_patches(lhs, filter_shape: Sequence[int], window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]],
                                 lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
                                 dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
                                 preferred_element_type=None):
    """What stands under the window in each of its places: an array like a convolution's result, whose features are (feature, window …).

    A convolution is the product of these patches with the kernel. lhs: (batch, features, spatial …), or as dimension_numbers says;
    the other arguments are those of conv_general_dilated. `precision` is accepted and without effect: nothing is computed.
    """
    canonical_precision(precision)
    a, filter_shape = typeof(lhs), tuple([operator.index(k) for k in filter_shape])
    n = a.ndim - 2
    numbers = conv_dimension_numbers(a.shape, (1,) * a.ndim, dimension_numbers)
    ones = (1,) * n
    lhs_dilation, rhs_dilation = tuple(lhs_dilation or ones), tuple(rhs_dilation or ones)
    windows = [dilated(k, d) for k, d in zip(filter_shape, rhs_dilation)]
    x = transpose(lhs, numbers.lhs_spec)
    where = f"lax.conv_general_dilated_patches({a}, {filter_shape})"
    if not len(filter_shape) == len(window_strides) == len(lhs_dilation) == len(rhs_dilation) == n:
        raise ValueError(f"{where}: the window's shape, strides and dilations must have an entry for each of the {n} spatial dimensions")
    if isinstance(padding, str):
        padding = padtype_to_pads(x.shape[2:], windows, window_strides, padding)
    pads = pad_pairs(where, padding)
    places = [window_places(*sizes) for sizes in zip(x.shape[2:], filter_shape, window_strides, pads, lhs_dilation, rhs_dilation)]
    if preferred_element_type is not None:
        x = convert_element_type(x, preferred_element_type)
    x = pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * 2 + [(low, high, dilation - 1) for (low, high), dilation in zip(pads, lhs_dilation)])
    spans = [dilated(m, s) for m, s in zip(places, window_strides)]
    if 0 in (*filter_shape, *places):
        patches = broadcast(np.zeros((), x.dtype), (x.shape[0], x.shape[1] * prod(filter_shape), *places))
    else:
        starts = product(*[range(0, window, dilation) for window, dilation in zip(windows, rhs_dilation)])
        parts = [slice(x, (0, 0, *start), (*x.shape[:2], *[i + span for i, span in zip(start, spans)]), (1, 1, *window_strides))
                 for start in starts]
        patches = concatenate([expand_dims(part, (2,)) for part in parts], 2)
        patches = reshape(patches, (x.shape[0], x.shape[1] * prod(filter_shape), *places))
    return transpose(patches, np.argsort(numbers.out_spec).tolist())


# --- its type -------------------------------------------------------------------------------------------------------------------

def _conv_type(lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
               batch_group_count, precision, preferred_element_type):
    where = f"lax.conv_general_dilated({lhs}, {rhs})"
    n = lhs.ndim - 2
    if lhs.ndim != rhs.ndim or n < 0:
        raise TypeError(f"{where}: lhs and rhs must have as many dimensions as each other, at least two")
    for x, name in ((lhs, "lhs"), (rhs, "rhs")):
        if x.dtype not in ANY:
            raise TypeError(f"{where}: dtype {x.dtype} of {name} is not accepted; it takes {dtype_list(ANY)}")
    if lhs.dtype != rhs.dtype:
        raise TypeError(f"{where}: lhs and rhs must have one dtype; convert one of them")
    for name, spec in zip(("lhs_spec", "rhs_spec", "out_spec"), dimension_numbers):
        if sorted(spec) != list(range(lhs.ndim)):
            raise TypeError(f"{where}: {name}={spec} of dimension_numbers must be a permutation of the {lhs.ndim} dimensions")
    for name, values in (("window_strides", window_strides), ("lhs_dilation", lhs_dilation), ("rhs_dilation", rhs_dilation)):
        if len(values) != n or any([v < 1 for v in values]):
            raise ValueError(f"{where}: {name}={values} must be positive integers, one for each of the {n} spatial dimensions")
    if len(padding) != n:
        raise TypeError(f"{where}: padding={padding} must have a pair (low, high) for each of the {n} spatial dimensions")
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    batch, features, *sizes = [lhs.shape[d] for d in lhs_spec]
    out_features, in_features, *windows = [rhs.shape[d] for d in rhs_spec]
    for name, count in (("feature_group_count", feature_group_count), ("batch_group_count", batch_group_count)):
        if count < 1:
            raise ValueError(f"{where}: {name}={count} must be positive")
        if out_features % count:
            raise ValueError(f"{where}: {name}={count} must divide the {out_features} output features of rhs")
    if feature_group_count > 1 and batch_group_count > 1:
        raise ValueError(f"{where}: one of feature_group_count={feature_group_count} and batch_group_count={batch_group_count} must be 1")
    if features != in_features * feature_group_count:
        raise ValueError(f"{where}: the {features} features of lhs must be feature_group_count={feature_group_count} times the {in_features} "
                         "input features of rhs")
    if batch % batch_group_count:
        raise ValueError(f"{where}: batch_group_count={batch_group_count} must divide the batch of {batch}")
    if 0 in windows:
        raise ValueError(f"{where}: the window {tuple(windows)} must not be empty")
    if any([dilated(size, d) + low + high < 0 for size, d, (low, high) in zip(sizes, lhs_dilation, padding)]):
        raise ValueError(f"{where}: padding={padding} takes away more than there is of lhs, whose spatial sizes are {tuple(sizes)}")
    places = [window_places(*each) for each in zip(sizes, windows, window_strides, padding, lhs_dilation, rhs_dilation)]
    shape = dict(zip(out_spec, (batch // batch_group_count, out_features, *places)))
    dtype = lhs.dtype
    if preferred_element_type is not None:
        if not _may_become(dtype, preferred_element_type):
            raise TypeError(f"{where}: preferred_element_type={preferred_element_type} is narrower than the operands or of another kind")
        dtype = preferred_element_type
    return array_type(tuple([shape[d] for d in range(lhs.ndim)]), dtype, lhs.weak_type and rhs.weak_type)


def _may_become(dtype, preferred) -> bool:
    """Integers may become integers or floats, floats floats, complex numbers complex ones, none narrower than it was."""
    kind = lambda d: 2 if dtypes.is_complex(d) else 1 if dtypes.is_floating(d) else 0
    fits = kind(dtype) == kind(preferred) or kind(dtype) == 0 and kind(preferred) == 1
    bits = lambda d: 1 if dtypes.is_bool(d) else dtypes.itemsize_bits(d)
    return preferred in ANY and fits and (kind(dtype) != kind(preferred) or bits(preferred) >= bits(dtype))


# --- its derivative and transposes ------------------------------------------------------------------------------------------------

def _conv_jvp(primals, tangents, **params):
    """Linear in each operand: d(x ∗ w) = dx ∗ w + x ∗ dw."""
    (lhs, rhs), (dl, dr) = primals, tangents
    y = conv_general_dilated_p.bind(lhs, rhs, **params)
    terms = [] if type(dl) is Zero else [conv_general_dilated_p.bind(dl, rhs, **params)]
    if type(dr) is not Zero:
        terms.append(conv_general_dilated_p.bind(lhs, dr, **params))
    return y, zero_like(y) if not terms else terms[0] if len(terms) == 1 else add_any(*terms)


def _conv_transpose(ct, lhs, rhs, **params):
    x, gradient = (lhs, _lhs_cotangent) if isinstance(lhs, Accumulator) else (rhs, _rhs_cotangent)
    if not x.wanted or 0 in (typeof(ct).size, x.size):
        return
    params["preferred_element_type"] = None
    other = convert_element_type(rhs if x is lhs else lhs, ct.dtype)
    if x is rhs and params["batch_group_count"] == 1:
        (ct, other), _ = x.contracted((ct, other), (params["dimension_numbers"].out_spec[0], params["dimension_numbers"].lhs_spec[0]))
    x.add(convert_element_type(gradient(ct, x.shape, other, **params), x.dtype))


def _lhs_cotangent(ct, shape, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
                   batch_group_count, precision, preferred_element_type):
    """The convolution of ct with the flipped kernel, its features exchanged, in which strides and dilation of lhs change places:

        ct_lhs[n, i, s] = Σ_{o, k} ct[n, o, (s · lhs_dilation + low - k · rhs_dilation) / stride] · rhs[o, i, k].

    With groups, the output features (groups, o) of the kernel become its input features o, and its input features i become
    (groups, i). Batch groups come out as groups of features, and are moved to the batch.
    """
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    groups = feature_group_count * batch_group_count
    sizes, windows, places = _spatial(shape, lhs_spec), _spatial(rhs.shape, rhs_spec), _spatial(ct.shape, out_spec)
    kernel = rev(rhs, rhs_spec[2:])
    if groups > 1:
        kernel = _split_to_front(kernel, rhs_spec[0], groups)
        kernel = _merged(kernel, 0, rhs_spec[1])
    pads = []
    for size, window, count, stride, (low, _), base, holes in zip(sizes, windows, places, window_strides, padding, lhs_dilation, rhs_dilation):
        before = dilated(window, holes) - 1 - low
        pads.append((before, dilated(size, base) + dilated(window, holes) - 1 - dilated(count, stride) - before))
    out = conv_general_dilated_p.bind(
        ct, kernel, window_strides=lhs_dilation, padding=tuple(pads), lhs_dilation=window_strides, rhs_dilation=rhs_dilation,
        dimension_numbers=ConvDimensionNumbers(out_spec, _exchanged(rhs_spec), lhs_spec), feature_group_count=groups, batch_group_count=1,
        precision=precision, preferred_element_type=preferred_element_type)
    if batch_group_count > 1:
        out = _merged(_split_to_front(out, lhs_spec[1], batch_group_count), 0, lhs_spec[0])
    return out


def _rhs_cotangent(ct, shape, lhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
                   batch_group_count, precision, preferred_element_type):
    """The convolution of lhs with ct as the kernel, in which features and batch, strides and dilation of the kernel change places:

        ct_rhs[o, i, k] = Σ_{n, s} lhs[n, i, k · rhs_dilation + s · stride - low] · ct[n, o, s].

    So do feature groups and batch groups.
    """
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    sizes, windows, places = _spatial(lhs.shape, lhs_spec), _spatial(shape, rhs_spec), _spatial(ct.shape, out_spec)
    pads = []
    for size, window, count, stride, (low, _), base, holes in zip(sizes, windows, places, window_strides, padding, lhs_dilation, rhs_dilation):
        pads.append((low, dilated(count, stride) + dilated(window, holes) - 1 - low - dilated(size, base)))
    return conv_general_dilated_p.bind(
        lhs, ct, window_strides=rhs_dilation, padding=tuple(pads), lhs_dilation=lhs_dilation, rhs_dilation=window_strides,
        dimension_numbers=ConvDimensionNumbers(*map(_exchanged, (lhs_spec, out_spec, rhs_spec))),
        feature_group_count=batch_group_count, batch_group_count=feature_group_count, precision=precision,
        preferred_element_type=preferred_element_type)


def _spatial(shape, spec) -> list[int]:
    return [shape[d] for d in spec[2:]]


def _exchanged(spec) -> tuple[int, ...]:
    """The dimensions with batch and feature (or output and input features) exchanged."""
    return (spec[1], spec[0], *spec[2:])


# --- batching -----------------------------------------------------------------------------------------------------------------------

def _merged(x, source: int, target: int, groups: int = 1):
    """Dimension `source` made part of dimension `target` (counted without it): (groups, n) becomes (groups, source, n)."""
    x = moveaxis(x, source, target)
    shape = x.shape
    if groups > 1:
        x = reshape(x, (*shape[:target + 1], groups, shape[target + 1] // groups, *shape[target + 2:]))
        x = moveaxis(x, target, target + 1)
    return reshape(x, (*shape[:target], shape[target] * shape[target + 1], *shape[target + 2:]))


def _split_to_front(x, d: int, size: int, groups: int = 1):
    """The inverse of `_merged`, with the dimension in front: (groups, size, n) becomes (groups, n)."""
    shape = x.shape
    inner = shape[d] // (groups * size)
    x = moveaxis(reshape(x, (*shape[:d], groups, size, inner, *shape[d + 1:])), d + 1, 0)
    return reshape(x, (size, *shape[:d], groups * inner, *shape[d + 1:]))


def _conv_batch(axis, args, dims, *, dimension_numbers, feature_group_count, batch_group_count, **params):
    """lhs batched: its batch is larger. rhs batched: there are more output features. Both: there are more groups."""
    (lhs, rhs), (dl, dr) = args, dims
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    size, groups = axis.size, feature_group_count * batch_group_count
    if dr is None:
        lhs, split, groups = _merged(lhs, dl, lhs_spec[0], batch_group_count), out_spec[0], 1
    elif dl is None:
        rhs, split = _merged(rhs, dr, rhs_spec[0], groups), out_spec[1]
    else:
        lhs = _merged(lhs, dl, lhs_spec[0 if batch_group_count > 1 else 1])
        rhs, split, groups = _merged(rhs, dr, rhs_spec[0]), out_spec[1], 1
        if batch_group_count > 1:
            batch_group_count *= size
        else:
            feature_group_count *= size
    out = conv_general_dilated_p.bind(lhs, rhs, dimension_numbers=dimension_numbers, feature_group_count=feature_group_count,
                                      batch_group_count=batch_group_count, **params)
    return _split_to_front(out, split, size, groups), 0


conv_general_dilated_p.type_rule, conv_general_dilated_p.jvp, conv_general_dilated_p.transpose, conv_general_dilated_p.batch = (
    _conv_type, _conv_jvp, _conv_transpose, _conv_batch)
