"""Bad input of the operations of lax and of control flow: an error of a class that people know, which says what was wrong; no crash, no rubbish."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax

X, M = jnp.arange(3.0), jnp.ones((3, 4))

CALLS = {
    "an accuracy that is none": (lambda: lax.exp(X, accuracy=2.0), TypeError, "AccuracyMode or a Tolerance"),
    "an accuracy that is an array": (lambda: lax.sin(X, accuracy=X), TypeError, "AccuracyMode or a Tolerance"),
    "a weak_type that is a number": (lambda: lax.convert_element_type(X, jnp.int4, 7), TypeError, "weak_type is True or False"),
    "dimension numbers of a product": (lambda: lax.dot_general(M, M, None), TypeError, "dimension_numbers must be"),
    "dimension numbers of a product that are letters": (lambda: lax.dot_general(M, M, ("NHWC", "HWIO", "NHWC")), TypeError, "dimension_numbers must be"),
    "dimension numbers of a convolution": (lambda: lax.conv_general_permutations(((1,), (1,))), TypeError, "three strings"),
    "a padding that is no name": (lambda: lax.padtype_to_pads((3,), (2,), (1,), ((0, 1),)), TypeError, "is no name"),
    "a padding of another name": (lambda: lax.padtype_to_pads((3,), (2,), (1,), "FULL"), RuntimeError, "not known"),
    "an axis name that is an array": (lambda: lax.psum(X, X), TypeError, "hashable"),
    "groups that are no lists": (lambda: jax.vmap(lambda x: lax.psum(x, "i", axis_index_groups=[1, 2]), axis_name="i")(X), TypeError, "lists of ints"),
    "a computation that is no function": (lambda: lax.reduce(X, 0.0, 3, (0,)), TypeError, "a function of two scalars"),
    "branches that are no sequence": (lambda: lax.switch(1, 3), TypeError, "sequence of functions"),
    "arrays to stack that are none": (lambda: lax.stack(1.5), TypeError, "sequence of arrays"),
    "ragged dimension numbers": (lambda: lax.ragged_dot_general(M, M, np.array([1]), 3), TypeError, "RaggedDotDimensionNumbers"),
    "a policy that is no function": (lambda: jax.checkpoint(jnp.sin, policy="dots"), TypeError, "policy is a function"),
    "a static position from the end of any number": (lambda: jax.jit(lambda *a: a, static_argnums=-1), ValueError, "count it from the start"),
    "shapes that differ": (lambda: lax.add(M, jnp.ones((3, 2))), TypeError, "shapes"),
    "numbers of dimensions that differ": (lambda: lax.add(M, jnp.ones(4)), TypeError, "shapes"),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments_are_errors_that_say_what_was_wrong(name):
    call, kind, text = CALLS[name]
    with pytest.raises(kind, match=text):
        call()


def test_operands_of_elementwise_functions_repeat_along_sizes_1():
    a, b = jnp.ones((3, 1)), jnp.arange(4.0).reshape(1, 4)
    np.testing.assert_array_equal(lax.add(a, b), np.ones((3, 4)) + np.arange(4))
    assert jax.jit(lax.betainc)(a, a, b / 8).shape == (3, 4) and lax.lt(a, b).shape == (3, 4)
    np.testing.assert_array_equal(jax.grad(lambda a: lax.mul(a, b).sum())(a), np.full((3, 1), 6))


def test_effects_barrier_waits_on_every_platform():
    jax.jit(lambda x: x + 1)(X)
    jax.effects_barrier()


def test_singular_matrices_and_nan_give_infinities_and_nan_and_end():
    singular, nan = jnp.ones((3, 3)), jnp.full((3, 3), np.nan)
    b = jnp.ones((3, 1))

    @jax.jit
    def results(x):
        l = lax.linalg
        return (l.cholesky(x), l.eigh(x), l.svd(x), l.qr(x), l.lu(x)[0], l.eig(x), l.schur(x), l.hessenberg(x), l.tridiagonal(x),
                l.triangular_solve(x * 0, b, left_side=True), l.qdwh(x)[0])
    cholesky, (v, w), (u, s, vh), (q, r), lu, *_, solved, _ = results(singular)
    np.testing.assert_allclose(w, [0, 0, 3], atol=1e-5)
    np.testing.assert_allclose(s, [3, 0, 0], atol=1e-5)
    np.testing.assert_allclose(q @ r, singular, atol=1e-5)
    assert np.isnan(np.asarray(cholesky)[2, 2]) or abs(np.asarray(cholesky)[2, 2]) < 1e-3
    assert not np.isfinite(solved).any()
    cholesky, (v, w), (u, s, vh), *_ = results(nan)
    assert np.isnan(np.tril(cholesky)[0, 0]) and np.isnan(w).all() and np.isnan(s).all()
