"""Laws of convolutions and of reductions over windows: their values over a grid of strides, paddings, dilations and groups, and bad input."""
import itertools

import numpy as np
import pytest

import mini_jax as jax
from mini_jax import lax
from mini_jax.lax.convolution import (ConvDimensionNumbers, conv, conv_dimension_numbers, conv_general_dilated, conv_general_dilated_patches,
                                      conv_transpose, conv_with_general_padding, padtype_to_pads)
from mini_jax.lax.windows import reduce_window
from tests.samples.convolution import convolved
from tests.samples.windows import over_windows, windows

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float64):
    return rng.normal(size=shape).astype(dtype)


def reference(x, w, strides, padding, lhs_dilation, rhs_dilation, numbers=None, groups=1, batch_groups=1):
    return convolved(x, w, window_strides=strides, padding=padding, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
                     dimension_numbers=conv_dimension_numbers(x.shape, w.shape, numbers), feature_group_count=groups,
                     batch_group_count=batch_groups)


# --- values and gradients over a grid -----------------------------------------------------------------------------------------------

GRID = list(itertools.product((1, 2, 3), ((0, 0), (-1, 2), (4, -2)), (1, 2), (1, 3)))


@pytest.mark.parametrize("groups, batch_groups", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("third", (0, 1, 2))
def test_values_and_gradients_are_those_of_the_sum_over_all_indices(third, groups, batch_groups):
    x, w = normal(2, 4, 7), normal(4, 4 // groups, 3)
    cases = [case for i, case in enumerate(GRID) if (i + i // 3 + groups) % 3 == third]

    def run(x, w, cts=None):
        f = lambda case: lambda x, w: conv_general_dilated(x, w, case[:1], case[1:2], case[2:3], case[3:4], None, groups, batch_groups)
        if cts is None:
            return [f(case)(x, w) for case in cases]
        return [jax.vjp(f(case), x, w)[1](ct) for case, ct in zip(cases, cts)]

    with jax.enable_x64(True):
        ys = jax.jit(run)(x, w)
        cts = [normal(*y.shape) for y in ys]
        gradients = jax.jit(run)(x, w, cts)
    for (s, pads, base, holes), *found in zip(cases, ys, cts, gradients, strict=True):
        y, ct, (gx, gw) = jax.tree.map(np.asarray, found)
        direct = lambda x, w: reference(x, w, (s,), (pads,), (base,), (holes,), None, groups, batch_groups)
        np.testing.assert_allclose(y, direct(x, w), atol=1e-12)
        dx, dw = normal(*x.shape), normal(*w.shape)                   # linear in each: the gradient is what pairs with it
        np.testing.assert_allclose(np.sum(gx * dx), np.sum(ct * direct(dx, w)), atol=1e-11)
        np.testing.assert_allclose(np.sum(gw * dw), np.sum(ct * direct(x, dw)), atol=1e-11)


def test_names_of_paddings_are_pairs():
    assert padtype_to_pads((5, 6), (3, 2), (2, 1), "SAME") == [(1, 1), (0, 1)]
    assert padtype_to_pads((5, 6), (3, 2), (2, 1), "same_lower") == [(1, 1), (1, 0)]
    assert padtype_to_pads((5, 6), (3, 2), (2, 1), "VALID") == [(0, 0), (0, 0)]
    x, w = normal(1, 2, 6, dtype=np.float32), normal(3, 2, 4, dtype=np.float32)
    for name, pads in (("SAME", (1, 2)), ("SAME_LOWER", (2, 1)), ("VALID", (0, 0))):
        one, other = conv(x, w, (1,), name), conv_with_general_padding(x, w, (1,), [pads], None, None)
        np.testing.assert_array_equal(one, other)


def test_letters_say_where_dimensions_stand():
    assert conv_dimension_numbers((1, 2, 3, 4), (1, 2, 3, 4), ("NHWC", "HWIO", "NCWH")) == ConvDimensionNumbers(
        (0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 3, 2))
    x, w = normal(2, 3, 6, 5, dtype=np.float32), normal(4, 3, 3, 2, dtype=np.float32)
    moved = conv_general_dilated(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NCWH"))
    np.testing.assert_allclose(moved, np.swapaxes(conv(x, w, (2, 1), "SAME"), 2, 3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride, window, padding", [(1, 3, "SAME"), (2, 3, "SAME"), (3, 2, "VALID"), (2, 4, ((1, 2),))])
def test_the_transposed_convolution_with_the_transposed_kernel_is_the_gradient(stride, window, padding):
    size = 6
    x, w = normal(2, size * stride, 3, dtype=np.float32), normal(window, 3, 4, dtype=np.float32)
    forward = lambda x: conv_general_dilated(x, w, (stride,), padding, dimension_numbers=("NHC", "HIO", "NHC"))
    y, back = jax.vjp(forward, x)
    ct = normal(*y.shape, dtype=np.float32)
    consistent = not isinstance(padding, str)
    z = conv_transpose(ct, w, (stride,), padding, transpose_kernel=True, use_consistent_padding=consistent)
    np.testing.assert_allclose(z, back(ct)[0][:, :z.shape[1]], rtol=1e-4, atol=1e-5)
    assert z.shape[1] == {"SAME": y.shape[1] * stride, "VALID": (y.shape[1] - 1) * stride + max(window, stride)}.get(
        str(padding), z.shape[1])


def test_patches_times_the_kernel_are_the_convolution():
    x, w = normal(2, 3, 6, 5, dtype=np.float32), normal(4, 3, 2, 3, dtype=np.float32)
    arguments = ((2, 1), ((1, 0), (-1, 2)), (1, 2), (2, 1))
    patches = conv_general_dilated_patches(x, (2, 3), *arguments)
    y = conv_general_dilated(x, w, *arguments)
    assert patches.shape == (2, 18, *y.shape[2:])
    np.testing.assert_allclose(np.einsum("nkhw,ok->nohw", patches, w.reshape(4, 18)), y, rtol=1e-4, atol=1e-5)
    last = conv_general_dilated_patches(x.transpose(0, 2, 3, 1), (2, 3), *arguments, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_array_equal(last, np.transpose(patches, (0, 2, 3, 1)))


def test_what_is_empty_gives_zeros_and_zero_gradients():
    f32 = np.float32
    for lhs, rhs in (((1, 0, 5), (3, 0, 3)), ((0, 2, 5), (3, 2, 3)), ((1, 2, 5), (0, 2, 3)), ((1, 2, 2), (3, 2, 8)), ((2, 2, 0), (3, 2, 1))):
        x, w = np.ones(lhs, f32), np.ones(rhs, f32)
        y, back = jax.vjp(lambda x, w: conv(x, w, (1,), "VALID"), x, w)
        assert not np.any(y) and y.shape == (lhs[0], rhs[0], max(lhs[2] - rhs[2] + 1, 0))
        assert [g.shape for g in back(y)] == [lhs, rhs] and not any([np.any(g) for g in back(y)])
    np.testing.assert_array_equal(conv_general_dilated(np.ones((1, 2, 0), f32), np.ones((3, 2, 3), f32), (1,), [(2, 2)]), np.zeros((1, 3, 2)))
    assert reduce_window(np.ones((3, 0), f32), 0., lax.add, (2, 1)).shape == (2, 0)
    assert reduce_window(np.ones((1, 2), f32), -np.inf, lax.max, (2, 1)).shape == (0, 2)


def test_wide_results_of_narrow_operands_and_their_gradients():
    x, w = np.full((1, 2, 5), 100, np.int8), np.full((3, 2, 3), 100, np.int8)
    y = conv(x, w, (1,), "VALID", preferred_element_type=np.int32)
    assert y.dtype == np.int32 and np.all(np.asarray(y) == 60000)
    half, kernel = normal(1, 2, 5, dtype=np.float16), normal(3, 2, 3, dtype=np.float16)
    y, back = jax.vjp(lambda x, w: conv(x, w, (1,), "VALID", preferred_element_type=np.float32), half, kernel)
    assert y.dtype == np.float32 and [g.dtype for g in back(y)] == [np.float16, np.float16]
    np.testing.assert_allclose(y, reference(*[a.astype(float) for a in (half, kernel)], (1,), ((0, 0),), (1,), (1,)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("error, lhs, rhs, more, says", [
    (TypeError, (1, 2, 5), (3, 4, 3, 3), {}, "as many dimensions"),
    (ValueError, (1, 2, 5), (3, 4, 3), {}, "2 features of lhs"),
    (ValueError, (1, 2, 5), (3, 2, 0), {}, "must not be empty"),
    (ValueError, (1, 2, 5), (3, 2, 3), {"window_strides": (1, 1)}, "window_strides=(1, 1)"),
    (ValueError, (1, 2, 5), (3, 2, 3), {"window_strides": (0,), "padding": [(0, 0)]}, "positive"),
    (ValueError, (1, 2, 5), (3, 2, 3), {"padding": [1]}, "pairs (low, high)"),
    (ValueError, (1, 2, 5), (3, 2, 3), {"padding": [(-4, -4)]}, "takes away more"),
    (TypeError, (1, 2, 5), (3, 2, 3), {"padding": [(1, 1), (0, 0)]}, "a pair (low, high) for each"),
    (RuntimeError, (1, 2, 5), (3, 2, 3), {"padding": "FOO"}, "'SAME'"),
    (ValueError, (1, 2, 5), (3, 2, 3), {"padding": "SAME", "lhs_dilation": (2,)}, "conv_transpose"),
    (ValueError, (1, 4, 5), (3, 2, 3), {"feature_group_count": 2}, "must divide the 3 output features"),
    (ValueError, (3, 4, 5), (4, 4, 3), {"batch_group_count": 2}, "must divide the batch of 3"),
    (ValueError, (4, 4, 5), (4, 2, 3), {"batch_group_count": 2, "feature_group_count": 2}, "must be 1"),
    (TypeError, (4, 4, 5), (4, 4, 3), {"dimension_numbers": ("NCW", "OIH", "NCW")}, "spatial letters"),
    (TypeError, (4, 4, 5), (4, 4, 3), {"dimension_numbers": ("NCHW", "OIH", "NCW")}, "a letter for each"),
    (TypeError, (4, 4, 5), (4, 4, 3), {"dimension_numbers": "foo"}, "three strings"),
    (TypeError, (4, 4, 5), (4, 4, 3), {"preferred_element_type": np.float16}, "narrower"),
])
def test_what_does_not_fit_is_said(error, lhs, rhs, more, says):
    arguments = {"window_strides": (1,), "padding": "VALID"} | more
    with pytest.raises(error) as raised:
        conv_general_dilated(np.ones(lhs, np.float32), np.ones(rhs, np.float32), **arguments)
    assert says in str(raised.value)


def test_operands_of_two_dtypes_are_refused():
    with pytest.raises(TypeError, match="must have one dtype"):
        conv(np.ones((1, 2, 5), np.float32), np.ones((3, 2, 3), np.float16), (1,), "VALID")


# --- windows ------------------------------------------------------------------------------------------------------------------------

WINDOWS = [windows((k, 2), (stride, 1), (pads, (0, 1)), (base, 1), (holes, 2))
           for k, stride, pads, base, holes in ((2, 2, (0, 0), 1, 1), (3, 2, (2, 1), 1, 1), (3, 1, (-1, 1), 2, 1), (2, 2, (2, 1), 2, 2),
                                                (2, 3, (-1, 1), 1, 2))]


def test_windows_of_sums_and_extrema_are_loops_and_their_gradients_pair_as_tangents():
    x, t = normal(6, 5), normal(6, 5)
    operations = ((0.0, lax.add), (-np.inf, lax.max), (np.inf, lax.min))

    def run(x, t, operation):
        init, combine = operation
        results = []
        for params in WINDOWS:
            f = lambda x: reduce_window(x, init, combine, **params)
            y, dy = jax.jvp(f, (x,), (t,))
            results.append((y, dy, jax.vjp(f, x)[1](dy)[0]))
        return results

    with jax.enable_x64(True):
        for operation, loop in zip(operations, (sum, lambda v: max(v, default=-np.inf), lambda v: min(v, default=np.inf))):
            found = jax.jit(lambda x, t: run(x, t, operation))(x, t)
            for params, (y, dy, back) in zip(WINDOWS, found, strict=True):
                np.testing.assert_allclose(y, over_windows(loop)(x, **params), atol=1e-12)
                np.testing.assert_allclose(np.sum(np.asarray(back) * t), np.sum(np.square(np.asarray(dy))), atol=1e-11)


def test_each_entry_gets_the_cotangents_of_the_windows_it_is_in():
    x = rng.integers(-4, 5, (14, 5)).astype(np.float32)
    cases = [windows(*case) for case in (((2, 2), (2, 2)), ((3, 2), (3, 2), ((1, 0), (0, 1))), ((7, 5), (7, 5)), ((3, 2), (2, 1), ((1, 1), (0, 1))),
                                         ((2, 1), (3, 2), ((-1, 0), (0, 0))), ((3, 1), (2, 1), ((2, 1), (0, 0)), (1, 1), (2, 1)))]
    sums = lambda x: [reduce_window(x, 0.0, lax.add, **params) for params in cases]
    cts = [rng.integers(-4, 5, y.shape).astype(np.float32) for y in sums(x)]
    found = jax.jit(lambda x: [jax.vjp(lambda x: reduce_window(x, 0.0, lax.add, **params), x)[1](ct)[0] for params, ct in zip(cases, cts)])(x)
    units = np.eye(x.size, dtype=np.float32).reshape(-1, *x.shape)
    for params, ct, got in zip(cases, cts, found, strict=True):
        np.testing.assert_array_equal(got, [[(over_windows(sum)(unit, **params) * ct).sum() for unit in row] for row in units.reshape(*x.shape, *x.shape)])


def test_nan_prevails_in_windows_of_many_entries():
    x = rng.normal(size=(70, 70)).astype(np.float32)
    x[3, 3] = x[20, 20] = np.nan
    found = jax.jit(lambda x: [reduce_window(x, init, f, (7, 7), (7, 7)) for init, f in ((-np.inf, lax.max), (np.inf, lax.min))])(x)
    blocks = x.reshape(10, 7, 10, 7)
    np.testing.assert_array_equal(found[0], blocks.max((1, 3)))
    np.testing.assert_array_equal(found[1], blocks.min((1, 3)))


def test_any_operation_and_any_init():
    x = normal(4, 5, dtype=np.float32)
    product = reduce_window(x, 1., lax.mul, (2, 2), (1, 2), "SAME")
    np.testing.assert_allclose(product, over_windows(np.prod)(x, **windows((2, 2), (1, 2), ((0, 1), (0, 1)))), rtol=1e-5)
    np.testing.assert_allclose(reduce_window(x, 1., lax.add, (2, 3)), 1 + over_windows(sum)(x, **windows((2, 3))), rtol=1e-5)
    np.testing.assert_array_equal(reduce_window(x > 0, False, lax.bitwise_or, (4, 5)), [[np.any(x > 0)]])
    largest, total = reduce_window((x, x), (-np.inf, 0.), lambda a, b: (lax.max(a[0], b[0]), lax.add(a[1], b[1])), (4, 1))
    np.testing.assert_allclose(largest[0], x.max(0))
    np.testing.assert_allclose(total[0], x.sum(0), rtol=1e-5)


def test_the_first_of_equal_entries_gets_the_gradient_and_padding_gets_none():
    pooled = lambda stride, padding: lambda x: reduce_window(x, -np.inf, lax.max, (2,), (stride,), padding)
    pull = lambda f, x: jax.vjp(f, x)[1](np.ones(f(x).shape, np.float32))[0]
    np.testing.assert_array_equal(pull(pooled(1, "VALID"), np.ones(4, np.float32)), [1, 1, 1, 0])
    np.testing.assert_array_equal(pull(pooled(2, "SAME"), np.full(5, -np.inf, np.float32)), [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(pull(pooled(2, [(1, 0)]), np.full(3, -np.inf, np.float32)), [1, 1, 0])
    assert np.isnan(reduce_window(np.array([1, np.nan, 2], np.float32), -np.inf, lax.max, (2,))).all()


@pytest.mark.parametrize("error, arguments, says", [
    (TypeError, ((2,),), "window_dimensions=(2,)"),
    (TypeError, ((0, 2),), "positive"),
    (TypeError, ((2, 2), (0, 1)), "window_strides=(0, 1)"),
    (ValueError, ((2, 2), (1, 1), [(0, 0)]), "a pair (low, high) for each"),
    (ValueError, ((2, 2), (1, 1), [(-3, -2), (0, 0)]), "takes away more"),
])
def test_windows_that_do_not_fit_are_refused(error, arguments, says):
    with pytest.raises(error) as raised:
        reduce_window(np.ones((4, 5), np.float32), 0., lax.add, *arguments)
    assert says in str(raised.value)
