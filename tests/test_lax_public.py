"""lax: every public name of JAX 0.10.2 is there, but for those listed here with their reason; and the functions that are made of primitives."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.lax import linalg

LAX = """
AccuracyMode ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers DotAlgorithm DotAlgorithmPreset DotDimensionNumbers FftType
GatherDimensionNumbers GatherScatterMode Precision PrecisionLike RaggedDotDimensionNumbers RandomAlgorithm RoundingMethod
ScatterDimensionNumbers Tolerance abs abs_p acos acos_p acosh acosh_p add add_p after_all after_all_p all_gather all_gather_p all_to_all
all_to_all_p and_p approx_max_k approx_min_k approx_top_k_p argmax argmax_p argmin argmin_p asin asin_p asinh asinh_p associative_scan atan
atan2 atan2_p atan_p atanh atanh_p axis_index axis_index_p axis_size batch_matmul bessel_i0e bessel_i0e_p bessel_i1e bessel_i1e_p betainc
bitcast_convert_type bitcast_convert_type_p bitwise_and bitwise_not bitwise_or bitwise_xor broadcast broadcast_in_dim broadcast_in_dim_p
broadcast_like broadcast_shapes broadcast_to_rank broadcasted_iota cbrt cbrt_p ceil ceil_p clamp clamp_p clz clz_p collapse complex
complex_p composite concatenate concatenate_p cond cond_p conj conj_p conv conv_dimension_numbers conv_general_dilated
conv_general_dilated_local conv_general_dilated_p conv_general_dilated_patches conv_general_permutations conv_general_shape_tuple
conv_shape_tuple conv_transpose conv_transpose_shape_tuple conv_with_general_padding convert_element_type convert_element_type_p copy_p cos
cos_p cosh cosh_p create_token create_token_p cumlogsumexp cumlogsumexp_p cummax cummax_p cummin cummin_p cumprod cumprod_p cumsum cumsum_p
custom_linear_solve custom_root dce_sink dce_sink_p device_put_p digamma digamma_p div div_p dot dot_general dot_general_p dtype
dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_slice_p dynamic_update_index_in_dim dynamic_update_slice
dynamic_update_slice_in_dim dynamic_update_slice_p empty eq eq_p eq_to_p erf erf_inv erf_inv_p erf_p erfc erfc_p exp exp2 exp2_p exp_p
expand_dims expm1 expm1_p fft fft_p floor floor_p fori_loop full full_like gather gather_p ge ge_p gt gt_p igamma igamma_grad_a
igamma_grad_a_p igamma_p igammac igammac_p imag imag_p index_in_dim index_take integer_pow integer_pow_p iota iota_p is_finite is_finite_p
le le_p le_to_p lgamma lgamma_p linear_solve_p log log1p log1p_p log_p logistic logistic_p lt lt_p lt_to_p map max max_p min min_p mul mul_p
mulhi mulhi_p ne ne_p neg neg_p nextafter nextafter_p not_p optimization_barrier optimization_barrier_p or_p pad pad_p padtype_to_pads
pbroadcast pcast platform_dependent pmax pmax_p pmean pmin pmin_p polygamma polygamma_p population_count population_count_p pow pow_p
ppermute ppermute_p precv psend pshuffle psum psum_p psum_scatter pswapaxes ragged_all_to_all ragged_all_to_all_p ragged_dot
ragged_dot_general random_gamma_grad real real_p reciprocal reduce reduce_and reduce_and_p reduce_max reduce_max_p reduce_min reduce_min_p
reduce_or reduce_or_p reduce_p reduce_precision reduce_precision_p reduce_prod reduce_prod_p reduce_sum reduce_sum_p reduce_window
reduce_window_max_p reduce_window_min_p reduce_window_p reduce_window_shape_tuple reduce_window_sum_p reduce_xor reduce_xor_p
regularized_incomplete_beta_p rem rem_p reshape reshape_p rev rev_p rng_bit_generator rng_bit_generator_p rng_uniform rng_uniform_p round
round_p rsqrt rsqrt_p scaled_dot scan scan_p scatter scatter_add scatter_add_p scatter_apply scatter_max scatter_max_p scatter_min
scatter_min_p scatter_mul scatter_mul_p scatter_p scatter_sub scatter_sub_p select select_and_gather_add_p select_and_scatter_add_p
select_and_scatter_p select_n select_n_p shape_as_value sharding_constraint_p shift_left shift_left_p shift_right_arithmetic
shift_right_arithmetic_p shift_right_logical shift_right_logical_p sign sign_p sin sin_p sinh sinh_p slice slice_in_dim slice_p sort
sort_key_val sort_p split split_p sqrt sqrt_p square square_p squeeze squeeze_p stack stack_p stage stage_p stop_gradient stop_gradient_p
sub sub_p switch tan tan_p tanh tanh_p tile tile_p top_k top_k_p transpose transpose_p unstack unstack_p while_loop while_p
with_sharding_constraint xor_p zeta zeta_p
""".split()

LINALG = """
EigImplementation EighImplementation SvdAlgorithm cholesky cholesky_p cholesky_update cholesky_update_p eig eig_p eigh eigh_p hessenberg
hessenberg_p householder_product householder_product_p lu lu_p lu_pivots_to_permutation lu_pivots_to_permutation_p ormqr ormqr_p qdwh qr
qr_p schur schur_p svd svd_p symmetric_product symmetric_product_p triangular_solve triangular_solve_p tridiagonal tridiagonal_p
tridiagonal_solve tridiagonal_solve_p
""".split()

ABSENT = {
    "sharding, and communication whose sizes are known only when it runs": "precv psend ragged_all_to_all ragged_all_to_all_p sharding_constraint_p with_sharding_constraint".split(),
    "tokens, which programs don't have: effects are ordered without them": "after_all after_all_p create_token create_token_p".split(),
    "of JAX's own tracing": "dce_sink dce_sink_p stage stage_p index_take".split(),
    "primitives that are here made of others": "approx_top_k_p device_put_p linear_solve_p select_and_scatter_p stack_p symmetric_product_p tile_p unstack_p".split(),
}


@pytest.mark.parametrize("module, names", [(lax, LAX), (linalg, LINALG)], ids=["lax", "linalg"])
def test_every_public_name_is_there(module, names):
    missing = [name for name in names if not hasattr(module, name)]
    assert set(missing) <= {name for names in ABSENT.values() for name in names}


def test_shapes_made_to_fit():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    assert lax.broadcast_shapes((2, 1), (3,), (1, 1, 1)) == (1, 2, 3) and lax.broadcast_shapes() == () and lax.broadcast_shapes((0, 1), (1,)) == (0, 1)
    assert lax.broadcast_to_rank(x, 5).shape == (1, 1, 2, 3, 4) and lax.broadcast_to_rank(x, 1).shape == x.shape
    np.testing.assert_array_equal(lax.broadcast_like(x[0, :, :1], x), np.broadcast_to(np.asarray(x)[0, :, :1], x.shape))
    assert [lax.collapse(x, *a).shape for a in ((0, 2), (1,), (-2, 3), (0, None), (1, 1), (3,))] == [(6, 4), (2, 12), (2, 12), (24,), (2, 1, 3, 4), (2, 3, 4, 1)]
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(lax.stack([x[0], x[1]], axis), np.stack(np.asarray(x), axis))
        np.testing.assert_array_equal(np.stack(lax.unstack(x, axis), axis), x)
    assert lax.unstack(jnp.zeros((2, 0)), 1) == () and lax.empty((2, 3), jnp.int8).dtype == np.int8
    assert lax.dtype(1.0) == lax.dtype("float32") == lax.dtype(x) == np.float32 and lax.shape_as_value((2, 3)).tolist() == [2, 3]
    for bad, kind in [(lambda: lax.broadcast_shapes((2,), (3,)), ValueError), (lambda: lax.broadcast_like(x, x[0]), ValueError), (lambda: lax.collapse(x, 2, 1), ValueError),
                      (lambda: lax.stack([]), ValueError), (lambda: lax.stack([x, x[0]]), ValueError), (lambda: lax.stack([x, x.astype(int)]), TypeError),
                      (lambda: lax.stack([x], 9), ValueError), (lambda: lax.unstack(x, 3), ValueError), (lambda: lax.unstack(1.0), ValueError),
                      (lambda: lax.dtype("nothing"), TypeError), (lambda: lax.broadcast_shapes((-1,)), TypeError)]:
        with pytest.raises(kind):
            bad()


def test_shapes_of_results_are_those_of_the_results():
    lhs, rhs, spec = jnp.ones((2, 10, 9, 3)), jnp.ones((3, 2, 3, 4)), ("NHWC", "HWIO", "NHWC")
    for padding in ("SAME", "VALID", ((1, 0), (2, 1))):
        assert lax.conv_general_shape_tuple(lhs.shape, rhs.shape, (1, 2), padding, spec) == jax.eval_shape(
            lambda: lax.conv_general_dilated(lhs, rhs, (1, 2), padding, dimension_numbers=spec)).shape
    for padding in ("SAME", "VALID"):
        assert lax.conv_transpose_shape_tuple(lhs.shape, rhs.shape, (2, 2), padding, spec) == jax.eval_shape(
            lambda: lax.conv_transpose(lhs, rhs, (2, 2), padding, dimension_numbers=spec)).shape
    assert lax.conv_shape_tuple((2, 3, 10, 10), (4, 3, 3, 3), (1, 2), ((0, 0), (1, 1))) == (2, 4, 8, 5)
    assert lax.reduce_window_shape_tuple((4, 5), (2, 2), (1, 2), ((0, 0), (1, 1)), (2, 1), (1, 2)) == (6, 3)
    with pytest.raises(TypeError):
        lax.conv_shape_tuple((2, 3, 4), (4, 3), (1,), ((0, 0),))
    with pytest.raises(ValueError, match="divide"):
        lax.conv_shape_tuple((3, 3, 4), (4, 3, 1), (1,), ((0, 0),), 2)


def test_a_local_convolution_with_equal_kernels_is_a_convolution():
    rng = np.random.default_rng(0)
    lhs = rng.normal(size=(2, 7, 6, 3)).astype(np.float32)
    kernel = rng.normal(size=(3, 2, 3, 4)).astype(np.float32)
    spec = ("NHWC", "HWIO", "NWHC")
    expected = lax.conv_general_dilated(lhs, kernel, (2, 1), ((1, 0), (0, 1)), rhs_dilation=(1, 2), dimension_numbers=spec)
    places = expected.shape[2], expected.shape[1]
    unshared = np.broadcast_to(kernel.transpose(2, 0, 1, 3).reshape(1, 1, 18, 4), (*places, 18, 4))
    local = jax.jit(lambda lhs, rhs: lax.conv_general_dilated_local(lhs, rhs, (2, 1), ((1, 0), (0, 1)), (3, 2), rhs_dilation=(1, 2), dimension_numbers=spec))
    np.testing.assert_allclose(local(lhs, unshared), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="entries under the window"):
        local(lhs, unshared[:, :, 1:])


def test_ragged_products_are_those_of_the_groups():
    rng = np.random.default_rng(0)
    lhs, rhs = rng.normal(size=(7, 3)), rng.normal(size=(4, 3, 2))
    sizes = np.array([2, 0, 3, 1])
    group = np.repeat(np.arange(4), sizes)

    def expected(lhs, rhs):
        return np.concatenate([np.stack([lhs[i] @ rhs[g] for i, g in enumerate(group)]), np.zeros((1, 2))])
    of_contracted, of_batch = [lax.RaggedDotDimensionNumbers(dot, [0], []) for dot in ((((0,), (0,)), ((), ())), (((1,), (1,)), ((0,), (0,))))]
    f = lambda a, b: lax.ragged_dot(a, b, sizes)

    @jax.jit
    def results(lhs, rhs, other):
        return (f(lhs, rhs), jax.grad(lambda a: f(a, rhs).sum())(lhs), jax.vmap(f, (0, None))(jnp.stack([lhs, 2 * lhs]), rhs),
                lax.ragged_dot_general(lhs, other, sizes, of_contracted), lax.ragged_dot_general(lhs, lhs, sizes, of_batch))
    with jax.enable_x64(True):
        other = rng.normal(size=(7, 2))
        out, slope, many, parts, batches = map(np.asarray, results(lhs, rhs, other))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    close(out, expected(lhs, rhs))
    close(slope, [*rhs[group].sum(-1), np.zeros(3)])
    close(many, [out, 2 * out])
    close(parts, [lhs[:6][group == g].T @ other[:6][group == g] for g in range(4)])
    close(batches, [*(lhs[:6] ** 2).sum(-1), 0])
    for args, kind in [((lhs, rhs[0], sizes), TypeError), ((lhs, rhs[:3], sizes), TypeError), ((lhs, rhs, sizes * 1.0), TypeError),
                       ((lhs[:, :2], rhs, sizes), TypeError), ((lhs, rhs, sizes[None]), TypeError)]:
        with pytest.raises(kind):
            lax.ragged_dot(*args)
    with pytest.raises(NotImplementedError, match="group_offset"):
        lax.ragged_dot(lhs, rhs, sizes, group_offset=np.array([1]))


def test_scaled_products_scale_blocks():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 8)).astype(jnp.float8_e4m3fn), rng.normal(size=(8, 2)).astype(jnp.float8_e4m3fn)
    s, t = 2.0 ** rng.integers(-2, 3, (3, 2)), 2.0 ** rng.integers(-2, 3, (4, 2))
    wide = lambda a, scale, axis: np.asarray(a, np.float64) * np.repeat(scale, 8 // scale.shape[axis], axis)
    out = lax.scaled_dot(x, y, lhs_scale=s.astype(jnp.float8_e8m0fnu), rhs_scale=t.astype(jnp.float8_e8m0fnu), preferred_element_type=np.float32)
    np.testing.assert_allclose(out, wide(x, s, 1) @ wide(y, t, 0), rtol=1e-5)
    assert lax.scaled_dot(x, y).dtype == jnp.bfloat16
    for kwargs in ({"lhs_scale": s[:, :1][:2]}, {"lhs_scale": s[0]}, {"lhs_scale": np.ones((3, 3))}, {"preferred_element_type": np.float16}, {"lhs_scale": np.ones((3, 2), int)}):
        with pytest.raises(TypeError):
            lax.scaled_dot(x, y, **kwargs)


def test_approximate_top_k_is_here_exact():
    x = np.random.default_rng(0).permutation(12).astype(np.float32).reshape(3, 4)
    values, indices = lax.approx_max_k(x, 2, reduction_dimension=0)
    np.testing.assert_array_equal(values, -np.sort(-x, 0)[:2])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(indices), 0), values)
    values, indices = lax.approx_min_k(x, 2)
    np.testing.assert_array_equal(values, np.sort(x, 1)[:, :2])
    assert lax.approx_max_k(x, 1, aggregate_to_topk=False)[0].shape == (3, 4)
    np.testing.assert_array_equal(jax.grad(lambda x: lax.approx_min_k(x, 1)[0].sum())(x), x == x.min(1, keepdims=True))
    for kwargs in ({"k": 5}, {"k": -1}, {"k": 1, "recall_target": 2}, {"k": 1, "reduction_dimension": 2}, {"k": 1, "reduction_input_size_override": 2}):
        with pytest.raises(ValueError):
            lax.approx_max_k(x, **kwargs)
    with pytest.raises(ValueError, match="floating"):
        lax.approx_max_k(x.astype(int), 1)


def test_stateful_random_numbers_lie_between_their_bounds_and_differ():
    a, b = jax.jit(lambda: (lax.rng_uniform(2.0, 3.0, (100,)), lax.rng_uniform(2.0, 3.0, (100,))))()
    assert (a >= 2).all() and (a < 3).all() and (a != b).any()
    n = lax.rng_uniform(0, 4, (100,))
    assert n.dtype == np.int32 and set(np.asarray(n).tolist()) == {0, 1, 2, 3}
    lows = jnp.arange(3.0)
    drawn = jax.vmap(lambda low: lax.rng_uniform(low, low + 1, (50,)))(lows)
    assert (np.floor(drawn) == np.arange(3)[:, None]).all()
    for args in ((jnp.int32(0), jnp.float32(1), ()), (jnp.zeros(2), jnp.zeros(2), ())):
        with pytest.raises(ValueError):
            lax.rng_uniform(*args)


def test_functions_for_platforms_are_chosen_when_the_program_is_compiled():
    f = lambda x: lax.platform_dependent(x, cpu=lambda x: x * 3, default=lambda x: x)
    for transformed in (f, jax.jit(f), jax.vmap(f), jax.jit(jax.vmap(f))):
        np.testing.assert_array_equal(transformed(jnp.arange(3.0)), [0, 3, 6])
    assert jax.jit(jax.grad(f))(1.0) == 3 and jax.jit(lambda x: lax.platform_dependent(x, cuda=jnp.cos, default=lambda x: x + 1))(1.0) == 2
    for g in (lambda: lax.platform_dependent(1.0, cuda=jnp.cos), jax.jit(lambda: lax.platform_dependent(1.0, gpu=jnp.cos))):
        with pytest.raises(NotImplementedError, match="no function for the platform cpu"):
            g()
    with pytest.raises(TypeError, match="needs a function"):
        lax.platform_dependent(1.0)


def test_a_composite_is_a_function_of_its_name_in_the_program():
    scaled = lax.composite(lambda x, *, k: x * k, "my.scale", 2)
    assert scaled(2.0, k=3.0) == 6 and jax.grad(lambda x: scaled(x, k=3.0))(1.0) == 3
    assert "@my.scale" in jax.jit(lambda x: scaled(x, k=3.0)).lower(1.0).as_text()


def test_pswapaxes_exchanges_a_dimension_with_the_named_axis():
    x = jnp.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(jax.vmap(lambda row: lax.pswapaxes(row, "i", 0), axis_name="i")(x), x.T)


# --- linalg -------------------------------------------------------------------------------------------------------------------------------

def test_the_polar_decomposition_multiplies_to_the_matrix():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.complex64):
        x = rng.normal(size=(5, 4)).astype(dtype) * dtype(1 + 0.5j if dtype is np.complex64 else 1)
        u, h, count, converged = jax.jit(linalg.qdwh)(x)
        np.testing.assert_allclose(u @ h, x, atol=1e-5)
        np.testing.assert_allclose(np.conj(u.T) @ u, np.eye(4), atol=1e-6)
        assert converged and 0 < count <= 6 and np.linalg.eigvalsh(h).min() > 0
    assert not jax.jit(lambda x: linalg.qdwh(x, max_iterations=1))(x)[3]
    for bad, kind in ((x.T, ValueError), (x[None], TypeError), (x.real.astype(np.float16), TypeError)):
        with pytest.raises(kind):
            linalg.qdwh(bad)


def test_a_symmetric_product_is_symmetric_where_it_is_asked():
    a, c = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32), np.ones((2, 3, 3), np.float32)
    expected = 2 * a @ a.swapaxes(1, 2) + 0.5 * c
    out = linalg.symmetric_product(a, c, alpha=2, beta=0.5, symmetrize_output=True)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    np.testing.assert_array_equal(out, out.swapaxes(1, 2))


def test_new_decompositions_take_the_smallest_matrices_and_refuse_what_does_not_fit():
    for n in (0, 1):
        x, d = jnp.ones((n, n)), jnp.ones(n)
        h, _ = linalg.hessenberg(x)
        t, diagonal, beside, _ = linalg.tridiagonal(x)
        assert h.shape == t.shape == (n, n) and diagonal.shape == (n,) and beside.shape == (0,)
        np.testing.assert_allclose(linalg.cholesky_update(x, d), np.sqrt(2) * x, rtol=1e-6)
        np.testing.assert_array_equal(linalg.tridiagonal_solve(d, d, d, x), x)
        assert linalg.ormqr(x, d * 0, x).shape == (n, n)
    x, d, z = jnp.ones((3, 3)), jnp.ones(3), jnp.zeros(3)
    assert np.isnan(linalg.tridiagonal_solve(z, z, z, x)).all() and np.isfinite(linalg.tridiagonal_solve(z, z, z, x, perturb_singular=True)).all()
    assert np.isnan(linalg.hessenberg(x * np.nan)[0]).any()
    np.testing.assert_array_equal(linalg.cholesky_update(x * 0, z), x * 0)
    for bad, kind in [(lambda: linalg.hessenberg(x[:2]), ValueError), (lambda: linalg.tridiagonal(d), TypeError), (lambda: linalg.ormqr(x, d[:2], x), ValueError),
                      (lambda: linalg.ormqr(x, d, x[:2]), ValueError), (lambda: linalg.ormqr(x, d, x.astype(complex)), TypeError),
                      (lambda: linalg.cholesky_update(x, d[:2]), ValueError), (lambda: linalg.cholesky_update(x.astype(complex), d.astype(complex)), TypeError),
                      (lambda: linalg.tridiagonal_solve(d, d, d, d), TypeError), (lambda: linalg.tridiagonal_solve(d, d, d[:2], x), ValueError),
                      (lambda: linalg.tridiagonal_solve(d.astype(int), d, d, x), TypeError), (lambda: linalg.symmetric_product(x, x[:2, :2]), ValueError),
                      (lambda: linalg.hessenberg(x.astype(jnp.float16)), TypeError),
                      (lambda: jax.grad(lambda x: linalg.hessenberg(x)[0].sum())(x), NotImplementedError),
                      (lambda: jax.grad(lambda a: linalg.ormqr(a, d, x).sum())(x), NotImplementedError)]:
        with pytest.raises(kind):
            bad()
