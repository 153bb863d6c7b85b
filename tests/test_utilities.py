"""ravel_pytree, check_grads, print_saved_residuals."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.ad_checkpoint import Recompute, Saveable, checkpoint_name, print_saved_residuals
from mini_jax.flatten_util import ravel_pytree
from mini_jax.test_util import check_grads, check_jvp


def test_ravel_and_back():
    tree = {"a": jnp.arange(6.0).reshape(2, 3), "b": (jnp.int32(7), jnp.array([True, False]))}
    flat, unravel = ravel_pytree(tree)
    assert flat.shape == (9,) and flat.dtype == np.float32
    again = unravel(flat)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y), tree, again)
    assert [x.dtype for x in jax.tree.leaves(again)] == [x.dtype for x in jax.tree.leaves(tree)]
    gradient = jax.grad(lambda v: jnp.sum(unravel(v)["a"] ** 2))(flat)
    np.testing.assert_allclose(gradient, [0, 2, 4, 6, 8, 10, 0, 0, 0])
    with pytest.raises(ValueError, match="9 elements"):
        unravel(flat[:3])
    assert ravel_pytree({})[0].shape == (0,)
    with pytest.raises(TypeError, match="dtype float32"):
        unravel(jnp.arange(9))


def test_an_unravel_of_one_dtype_keeps_that_of_the_vector():
    flat, unravel = ravel_pytree({"a": jnp.ones(2), "b": jnp.ones((1, 2))})
    for dtype in (np.float32, np.float16, np.int32, np.complex64):
        assert [x.dtype for x in jax.tree.leaves(unravel(flat.astype(dtype)))] == [dtype, dtype]


def test_check_grads_passes_right_derivatives_and_fails_wrong_ones():
    x = np.array([0.3, 1.2], np.float32)
    check_grads(lambda x: jnp.sum(jnp.sin(x) ** 2), (x,), order=2)
    check_grads(lambda z: z * z, (np.complex64(0.3 + 0.2j),), order=1)

    @jax.custom_jvp
    def wrong(x):
        return jnp.sin(x)
    wrong.defjvp(lambda primals, tangents: (wrong(*primals), 1.5 * jnp.cos(primals[0]) * tangents[0]))
    for mode in ("fwd", "rev"):
        with pytest.raises(AssertionError, match="finite differences"):
            check_grads(wrong, (x,), order=1, modes=mode)
    with pytest.raises(ValueError, match="modes"):
        check_grads(wrong, (x,), 1, modes="backwards")


def test_print_saved_residuals_says_what_is_saved_and_where_it_comes_from(capsys):
    w = jnp.ones(3)

    def f(params, x):
        return jnp.sum(jnp.sin(checkpoint_name(x * params["a"], "product")) * w)
    args = {"a": jnp.ones(3)}, jnp.ones(3)
    named = jax.checkpoint_policies.save_and_offload_only_these_names(names_which_can_be_saved=[], names_which_can_be_offloaded=["product"],
                                                                      offload_src="device", offload_dst="pinned_host")
    verdict = lambda primitive, *_, **__: Saveable if primitive.name == "sin" else Recompute
    lines = []
    for g in (f, jax.checkpoint(f), jax.checkpoint(f, policy=named), jax.checkpoint(f, policy=verdict)):
        print_saved_residuals(g, *args)
        lines.append(capsys.readouterr().out.splitlines())
    plain, nothing, offloaded, chosen = lines
    assert "f32[3] from the argument params['a']" in plain and any("output of cos at " in line and "test_utilities.py" in line for line in plain)
    assert sorted(nothing) == ["f32[3] from a constant", "f32[3] from the argument params['a']", "f32[3] from the argument x"]
    assert len(offloaded) == len(nothing) + 1 and len(chosen) == len(nothing)
    with pytest.raises(ValueError, match="both"):
        jax.checkpoint_policies.save_and_offload_only_these_names(names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"], offload_src="", offload_dst="")


def test_check_jvp_says_what_it_is_told_to():
    with pytest.raises(AssertionError, match="of my function"):
        check_jvp(jnp.sin, lambda primals, tangents: (jnp.sin(*primals), tangents[0]), (1.0,), err_msg="of my function")
