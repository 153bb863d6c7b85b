"""The shapes of results: of convolutions and of reductions over windows, without computing them; and the convolution whose kernel is not shared."""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax.core.trace import typeof
from mini_jax.lax.convolution import (
    ConvGeneralDilatedDimensionNumbers, conv_dimension_numbers, conv_general_dilated_patches, conv_general_permutations, pad_pairs,
    padtype_to_pads, window_places)
from mini_jax.lax.dot import PrecisionLike, dot_general
from mini_jax.lax.shapes import transpose
from mini_jax.lax.windows import places_of

__all__ = ["conv_shape_tuple", "conv_general_shape_tuple", "conv_transpose_shape_tuple", "reduce_window_shape_tuple", "conv_general_dilated_local"]


def conv_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads, batch_group_count: int = 1) -> tuple[int, ...]:
    """The shape of the convolution of lhs (batch, features, spatial …) with rhs (output features, input features, window …).

    pads: a name ("SAME", "VALID", "SAME_LOWER") or pairs. Raises TypeError for numbers of dimensions that don't fit, ValueError for a batch
    that batch_group_count does not divide.
    """
    lhs_shape, rhs_shape = tuple(map(operator.index, lhs_shape)), tuple(map(operator.index, rhs_shape))
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    pads = pad_pairs("conv_shape_tuple", pads)
    if not len(lhs_shape) == len(rhs_shape) == len(pads) + 2 == len(strides) + 2:
        raise TypeError(f"conv_shape_tuple: shapes {lhs_shape} and {rhs_shape} need {len(lhs_shape) - 2} strides and pairs of padding, got "
                        f"{len(strides)} and {len(pads)}")
    if lhs_shape[0] % batch_group_count:
        raise ValueError(f"conv_shape_tuple: batch_group_count={batch_group_count} must divide the batch, {lhs_shape[0]}")
    places = [window_places(*sizes) for sizes in zip(lhs_shape[2:], rhs_shape[2:], strides, pads)]
    return lhs_shape[0] // batch_group_count, rhs_shape[0], *places


def conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers: tuple[str, str, str]) -> tuple[int, ...]:
    """`conv_shape_tuple` for operands with dimensions as dimension_numbers says, such as ("NHWC", "HWIO", "NHWC")."""
    lhs_spec, rhs_spec, out_spec = conv_general_permutations(dimension_numbers)
    out = conv_shape_tuple(np.take(lhs_shape, lhs_spec), np.take(rhs_shape, rhs_spec), window_strides, padding)
    return tuple([out[i] for i in np.argsort(out_spec)])


def conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers: tuple[str, str, str]) -> tuple[int, ...]:
    """The shape of conv_transpose, with dimensions as dimension_numbers says."""
    lhs_spec, rhs_spec, out_spec = conv_general_permutations(dimension_numbers)
    lhs, rhs = np.take(lhs_shape, lhs_spec).tolist(), np.take(rhs_shape, rhs_spec).tolist()
    if isinstance(padding, str):
        sizes = [{"SAME": n * s, "VALID": n * s + max(k - s, 0)}[padding.upper()] for n, k, s in zip(lhs[2:], rhs[2:], window_strides)]
    else:
        sizes = [(n - 1) * s + low + high - k + 2 for n, k, s, (low, high) in zip(lhs[2:], rhs[2:], window_strides, padding)]
    out = lhs[0], rhs[0], *sizes
    return tuple([out[i] for i in np.argsort(out_spec)])


def reduce_window_shape_tuple(operand_shape, window_dimensions, window_strides, padding, base_dilation=None, window_dilation=None) -> tuple[int, ...]:
    """The shape of reduce_window. padding: pairs; base_dilation, window_dilation: None is 1 everywhere."""
    ones = (1,) * len(operand_shape)
    return places_of(tuple(operand_shape), window_dimensions=tuple(window_dimensions), window_strides=tuple(window_strides),
                     padding=pad_pairs("reduce_window_shape_tuple", padding), base_dilation=tuple(base_dilation or ones),
                     window_dilation=tuple(window_dilation or ones))


def conv_general_dilated_local(lhs, rhs, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], filter_shape: Sequence[int],
                               lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
                               dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None):
    """The convolution with a kernel of its own at each place of the window ("locally connected").

    lhs: (batch, features, spatial …). rhs: (output features, features · window, places …), the features foremost, then the window's
    dimensions in their order; or both as dimension_numbers says. filter_shape: the window. The other arguments are those of
    conv_general_dilated. Raises ValueError where shapes don't fit.
    """
    a, b = typeof(lhs), typeof(rhs)
    patches = conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision)
    numbers = conv_dimension_numbers(a.shape, b.shape, dimension_numbers)
    out_spec, rhs_spec = numbers.out_spec, numbers.rhs_spec
    places = [typeof(patches).shape[d] for d in out_spec[2:]]
    want = (typeof(patches).shape[out_spec[1]], *places)
    if tuple([b.shape[d] for d in rhs_spec[1:]]) != want:
        raise ValueError(f"lax.conv_general_dilated_local({a}, {b}): for {want[0]} entries under the window, in {tuple(places)} places, rhs must have shape "
                         f"{('output', *want)} in the order output, input, places")
    batch, rhs_batch = tuple(out_spec[2:]), tuple(rhs_spec[2:])
    out = dot_general(patches, rhs, (((out_spec[1],), (rhs_spec[1],)), (batch, rhs_batch)), precision)            # (places …, batch, output)
    n = len(places)
    return transpose(transpose(out, (n, n + 1, *range(n))), np.argsort(out_spec).tolist())
