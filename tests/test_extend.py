"""jax.extend: primitives of users are what their impl computes, wherever they stand."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.core import ShapedArray
from mini_jax.core.primitive import table
from mini_jax.extend.core import Primitive, jaxpr_as_fun

scaled_p = Primitive("scaled")
scaled_p.def_impl(lambda x, *, by: jnp.sin(x) * by)
scaled_p.def_abstract_eval(lambda x, *, by: ShapedArray(x.shape, x.dtype))


def scaled(x):
    return scaled_p.bind(x, by=3.0)


def test_a_primitive_is_what_its_impl_computes():
    x, f = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3), lambda x: 3 * jnp.sin(x)
    near = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6)
    near(scaled(x), f(x)), near(jax.jit(scaled)(x), f(x))
    assert "scaled[by=3.0]" in str(jax.make_jaxpr(scaled)(x)) and "scaled" not in table
    for transform in (lambda g: jax.jit(jax.grad(lambda x: g(x).sum())), lambda g: jax.vmap(g, 1, 1), lambda g: jax.vmap(jax.grad(lambda x: g(x).sum())),
                      lambda g: lambda x: jax.jvp(g, (x,), (x,))[1], lambda g: lambda x: jax.linearize(g, x)[1](x), jax.hessian):
        near(transform(scaled)(x), transform(f)(x))


def test_it_may_have_several_results_and_no_rule_of_types():
    both_p = Primitive("both", multiple_results=True)
    both_p.def_impl(lambda x, y: [x + y, jnp.sum(x) * y])
    for f in (both_p.bind, jax.jit(both_p.bind)):
        total, product = f(jnp.arange(3.0), 2.0)
        assert total.tolist() == [2, 3, 4] and product == 6
    assert jax.grad(lambda x: both_p.bind(x, 2.0)[1])(jnp.ones(3)).tolist() == [2] * 3
    a, b = jax.vmap(both_p.bind, (0, None))(jnp.ones((2, 3)), 2.0)
    assert a.shape == (2, 3) and b.tolist() == [6, 6]


def test_what_is_missing_or_wrong_is_said_with_its_name():
    lame = Primitive("lame")
    for use in (lambda: lame.bind(1.0), lambda: jax.jit(lame.bind)(1.0)):
        with pytest.raises(NotImplementedError, match="the primitive 'lame' has no impl.*def_impl"):
            use()
    lame.def_impl(lambda x: np.sin(x))
    assert lame.bind(0.0) == 0
    with pytest.raises(jax.errors.TracerArrayConversionError) as raised:
        jax.jit(lame.bind)(1.0)
    assert "impl of the primitive 'lame'" in raised.value.__notes__[0]
    lame.def_abstract_eval(lambda x: 3)
    with pytest.raises(TypeError, match="abstract_eval of the primitive 'lame' must return a ShapedArray, got 3"):
        jax.jit(lame.bind)(1.0)
    lame.def_impl(lambda x: x + 1)
    lame.def_abstract_eval(lambda x: jax.ShapeDtypeStruct((2,), x.dtype))
    with pytest.raises(TypeError, match=r"impl of the primitive 'lame' returns f32\[\], but its abstract_eval says f32\[2\]"):
        jax.jit(lame.bind)(1.0)
    table_of_values = jnp.arange(3.0)
    lame.def_impl(lambda x: x + table_of_values)
    lame.def_abstract_eval(lambda x: ShapedArray((3,), x.dtype))
    with pytest.raises(TypeError, match=r"impl of the primitive 'lame' captures an array of type f32\[3\]"):
        jax.jit(lame.bind)(1.0)


def test_a_program_is_a_function_and_a_type_is_one_object():
    closed = jax.make_jaxpr(lambda x, y: (x * y, x))(1.0, 2.0)
    assert [float(y) for y in jaxpr_as_fun(closed)(3.0, 4.0)] == [12, 3]
    assert ShapedArray((2,), np.float32) is jnp.zeros(2).aval and ShapedArray((2,), "float32", weak_type=True).weak_type


def test_older_names_of_the_parts_of_an_array():
    x = jnp.arange(3.0)
    assert x.device_buffer.tolist() == [0, 1, 2] and [b.tolist() for b in x.device_buffers] == [[0, 1, 2]]
