"""Laws of the transformations: each alone, and in any order and depth."""
import gc
import threading
import weakref
from functools import partial

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core.check import check_jaxpr


def close(x, y, tol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol), x, y)


X = np.array([0.3, -1.2, 2.0], np.float32)
M = np.arange(6, dtype=np.float32).reshape(2, 3) / 5


def f(x):
    return jnp.sum(jnp.sin(x) * x + jnp.exp(-x * x))


def df(x):
    return np.cos(x) * x + np.sin(x) - 2 * x * np.exp(-x * x)


def ddf(x):
    return 2 * np.cos(x) - x * np.sin(x) + (4 * x * x - 2) * np.exp(-x * x)


# --- derivatives -----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("transform", [lambda g: g, jax.jit], ids=["eager", "jit"])
def test_gradient_in_both_modes_and_second_order(transform):
    g = transform(f)
    close(jax.grad(g)(X), df(X))
    close(jax.jvp(g, (X,), (np.ones_like(X),))[1], df(X).sum())
    close(jax.jacfwd(g)(X), df(X))
    close(jax.jacrev(g)(X), df(X))
    for hessian in (jax.hessian(g), jax.jacfwd(jax.jacfwd(g)), jax.jacrev(jax.jacrev(g)), jax.jacrev(jax.jacfwd(g)), jax.jit(jax.hessian(g))):
        close(hessian(X), np.diag(ddf(X)), 1e-4)


def test_derivatives_of_any_order():
    tanh = lambda x: (1.0 - jnp.exp(-2.0 * x)) / (1.0 + jnp.exp(-2.0 * x))
    t = np.tanh(1.0)
    close(jax.grad(tanh)(1.0), 1 - t * t)
    close(jax.grad(jax.grad(jax.grad(tanh)))(1.0), (1 - t * t) * (6 * t * t - 2), 1e-4)


def test_grad_takes_argnums_aux_and_pytrees():
    loss = lambda p, x, y: (jnp.sum(p["w"] * x) + p["b"] * y, {"twice": 2 * x})
    p = {"w": X, "b": jnp.float32(2.0)}
    (g, gx), aux = jax.grad(loss, argnums=(0, 1), has_aux=True)(p, X, 3.0)
    close(g, {"w": X, "b": 3.0})
    close(gx, X)
    close(aux["twice"], 2 * X)
    (value, _), gradient = jax.value_and_grad(loss, has_aux=True)(p, X, y=3.0)
    close(value, (X * X).sum() + 6.0)
    close(gradient["b"], 3.0)


def test_the_gradient_in_a_python_number_gives_way_in_promotion_as_the_number_does():
    narrow, f = jnp.ones(2, jnp.bfloat16), lambda x, y: jnp.sin(x) * y
    for x in (2.0, np.float32(2), jnp.float32(2)):
        weak = type(x) is float
        gradients = jax.grad(f)(x, 3.0), jax.value_and_grad(f)(x, jnp.float32(3))[1], jax.jit(jax.grad(f))(x, 3.0), jax.vjp(f, x, jnp.ones(()))[1](jnp.ones(()))[0]
        for gradient in gradients:
            assert gradient.weak_type is weak and gradient.dtype == np.float32
            assert (gradient * narrow).dtype == (jnp.bfloat16 if weak else np.float32)
    assert jax.grad(lambda x: 1.0)(2.0).weak_type and jax.grad(jax.grad(jnp.sin))(1.0).weak_type


def test_the_angle_of_the_origin_has_no_gradient_and_raises_nothing():
    for x in (0.0, np.float32(0)):
        assert all(map(np.isnan, jax.grad(jnp.arctan2, (0, 1))(x, 0.0)))


def test_integer_inputs_get_float0_gradients_where_allowed():
    g = jax.grad(lambda n, x: n * x, argnums=(0, 1), allow_int=True)(3, 2.0)
    assert g[0].dtype == jax.dtypes.float0 and g[1] == 3.0


def test_complex_derivatives():
    with jax.enable_x64(True):
        z = np.complex128(0.3 + 0.4j)
        close(jax.grad(jnp.sin, holomorphic=True)(z), np.cos(z))
        out, f_vjp = jax.vjp(lambda z: jnp.real(z * z), z)
        close(f_vjp(np.float64(1.0))[0], 2 * z)                     # the linear transpose, without conjugation
        close(jax.grad(lambda z: jnp.abs(z) ** 2)(z), 2 * np.conj(z))


def test_real_functions_of_complex_arguments_have_gradients():
    z, x = np.array([1 + 2j, 3 - 1j], np.complex64), np.float32(2)
    gradients = jax.grad(lambda z, x: jnp.sum(z.real * z.imag) * x, argnums=(0, 1))(z, x)
    close(gradients[0], 2 * (z.imag - 1j * z.real))
    close(gradients[1], -1.0)
    close(jax.jacrev(lambda z: jnp.abs(z) ** 2)(z), np.diag(2 * np.conj(z)))
    close(jax.value_and_grad(lambda z: jnp.sum(z.imag))(z)[1], [-1j, -1j])
    with pytest.raises(TypeError, match="requires real-valued outputs"):
        jax.grad(lambda z: jnp.sum(z))(z)
    with pytest.raises(TypeError, match="jacfwd: argument z of <lambda> is .*holomorphic=True.*jacrev"):
        jax.jacfwd(lambda z: jnp.abs(z))(z)


def test_vjp_may_be_called_many_times_and_mapped():
    y, f_vjp = jax.vjp(lambda x: jnp.outer(x, x), X)
    rows = jax.vmap(f_vjp)(np.eye(9, dtype=np.float32).reshape(9, 3, 3))[0]
    close(rows.reshape(3, 3, 3), jax.jacrev(lambda x: jnp.outer(x, x))(X))
    close(f_vjp(np.ones((3, 3), np.float32))[0], 2 * X.sum() * np.ones(3))


def test_linearize_gives_the_derivative_as_a_function():
    y, f_jvp = jax.linearize(jnp.sin, X)
    close(y, np.sin(X))
    close(f_jvp(np.ones_like(X)), np.cos(X))
    close(jax.vmap(f_jvp)(np.eye(3, dtype=np.float32)), np.diag(np.cos(X)))


@pytest.mark.parametrize("name, fun", [("sin", jnp.sin), ("mul", lambda x: x * x), ("dot_general", lambda x: x @ x), ("select_n", lambda x: jnp.where(x > 0, x, 0)),
                                       ("div", lambda x: 1 / x), ("cumprod", jnp.cumprod), ("reduce_max", jnp.max), ("sort", jnp.sort)])
def test_what_is_not_linear_has_no_transpose(name, fun):
    x = np.ones(3, np.float32)
    with pytest.raises(NotImplementedError, match=f"{name} has no transpose.* not linear in"):
        jax.linear_transpose(fun, x)(fun(x))


def test_linear_transpose():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    transpose = jax.linear_transpose(lambda x: jnp.dot(a, x), jax.ShapeDtypeStruct((3,), np.float32))
    close(transpose(np.array([1, 2], np.float32))[0], a.T @ [1, 2])


def test_python_control_flow_on_concrete_values():
    def g(x):
        return x * x if x > 0 else -x
    assert jax.grad(g)(3.0) == 6.0 and jax.grad(g)(-3.0) == -1.0
    assert jax.jvp(g, (3.0,), (1.0,))[1] == 6.0


def test_a_value_that_is_not_used_has_a_zero_gradient():
    g = jax.grad(lambda x, y: x * 2.0, argnums=1)(1.0, jnp.ones(3))
    close(g, np.zeros(3))


def test_derivatives_are_arrays_even_of_constant_slope():
    f = lambda x: x * 2.0
    for result in (jax.grad(f)(0.5), jax.jvp(f, (0.5,), (1.0,))[1], jax.vjp(f, 0.5)[1](1.0)[0], jax.linearize(f, 0.5)[1](1.0), jax.grad(lambda x: x)(0.5)):
        assert isinstance(result, jax.Array) and result.dtype == np.float32


def test_stop_gradient():
    close(jax.grad(lambda x: jnp.sum(lax.stop_gradient(x) * x))(X), X)


# --- calls stay calls ----------------------------------------------------------------------------------------------------------------

def test_a_jitted_function_called_twice_is_one_program_and_its_derivative_is_derived_once():
    traced = []

    @jax.jit
    def layer(x):
        traced.append(1)
        return jnp.sin(x) * 2.0
    g = jax.jit(jax.grad(lambda x: jnp.sum(layer(layer(layer(x))))))
    text = g.lower(X).as_text()
    assert len(traced) == 1
    assert text.count("func.call @layer") == 6 and text.count("func.func private @layer") <= 3
    close(g(X), jax.grad(lambda x: jnp.sum(2 * jnp.sin(2 * jnp.sin(2 * jnp.sin(x)))))(X))


def test_inline_splices_the_equations():
    inner = jax.jit(lambda x: jnp.sin(x), inline=True)
    assert [e.primitive.name for e in jax.make_jaxpr(inner)(1.0).eqns] == ["sin"]
    assert [e.primitive.name for e in jax.make_jaxpr(jax.jit(jnp.sin))(1.0).eqns] == ["jit"]


def test_only_what_the_backward_pass_reads_is_saved():
    from mini_jax.transforms.linearize import linearize_jaxpr
    program = jax.make_jaxpr(lambda x: jnp.sin(x) + 3.0 * x)(X).jaxpr
    parts = linearize_jaxpr(program, (True,))
    assert len(parts.sources) == 1


@pytest.mark.parametrize("build", [
    lambda: (f, X),
    lambda: (jax.grad(f), X),
    lambda: (jax.jit(jax.grad(jax.jit(f))), X),
    lambda: (jax.vmap(jax.grad(f)), M),
    lambda: (jax.hessian(lambda x: jnp.sum(jax.jit(jnp.tanh)(x) ** 3)), X),
    lambda: (jax.grad(jax.checkpoint(f)), X),
])
def test_programs_are_well_formed(build):
    fun, x = build()
    check_jaxpr(jax.make_jaxpr(fun)(x))


# --- vmap -------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("in_axis", [0, 1, -1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
def test_vmap_is_a_loop(in_axis, out_axis):
    g = lambda x: jnp.stack([jnp.sum(x), jnp.max(x) * x[0]])
    examples = np.moveaxis(M, in_axis, 0)
    close(jax.vmap(g, in_axes=in_axis, out_axes=out_axis)(M), np.stack([g(e) for e in examples], out_axis))


def test_vmap_axes_are_prefixes_of_the_arguments_structure():
    g = lambda p, x, scale=1.0: (p["w"] * x + p["b"]) * scale
    p = {"w": np.float32(2.0), "b": X}
    close(jax.vmap(g, in_axes=({"w": None, "b": 0}, None))(p, 3.0), 6.0 + X)
    close(jax.vmap(g, in_axes=(None, 0))({"w": 2.0, "b": 1.0}, X), 2 * X + 1)
    close(jax.vmap(g, in_axes=(None, 0))({"w": 2.0, "b": 1.0}, X, scale=X), (2 * X + 1) * X)
    close(jax.vmap(lambda: 1.0, axis_size=3, out_axes=0)(), np.ones(3))
    assert jax.vmap(lambda x: 5.0, out_axes=None)(X) == 5.0


def test_vmap_and_grad_commute_with_jit():
    per_example = np.stack([df(row) for row in M])
    for g in (jax.vmap(jax.grad(f)), jax.jit(jax.vmap(jax.grad(f))), jax.vmap(jax.jit(jax.grad(f))), jax.vmap(jax.grad(jax.jit(f)))):
        close(g(M), per_example)
    close(jax.grad(lambda m: jnp.sum(jax.vmap(f)(m)))(M), per_example)
    nested = jax.vmap(jax.vmap(lambda a, b: a * b, (None, 0)), (0, None))
    close(nested(X, X), np.outer(X, X))


# --- jit --------------------------------------------------------------------------------------------------------------------------------

def test_static_arguments_select_programs():
    traced = []

    @partial(jax.jit, static_argnames=("n", "mode"))
    def power(x, n, mode="plain"):
        traced.append((n, mode))
        return x ** n if mode == "plain" else -(x ** n)
    close(power(X, 2), X ** 2)
    close(power(X, n=2), X ** 2)
    close(power(X, 3, mode="minus"), -X ** 3)
    assert set(traced) == {(2, "plain"), (3, "minus")}
    close(jax.jit(lambda n, x: x * n, static_argnums=0)(3, X), 3 * X)
    close(jax.grad(lambda x: jnp.sum(power(x, 2)))(X), 2 * X)


def test_donated_buffers_are_given_away():
    x = jnp.arange(8.0) + 1
    out = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and out[0] == 2.0
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        x + 1


def test_two_wrappers_of_one_function_share_programs():
    count = []

    def g(x):
        count.append(1)
        return x * 2
    jax.jit(g)(X), jax.jit(g)(X), jax.jit(g)(X)
    assert len(count) == 1


def test_a_dropped_function_is_freed_with_what_it_captured():
    class Big:
        pass

    def use(transform):
        held = Big()
        array = jnp.arange(1000.0)

        def g(x):
            held
            return jnp.sum(x * array[:3])
        transform(g)
        return weakref.ref(held), weakref.ref(g)
    for transform in (lambda g: jax.jit(g)(X), lambda g: jax.grad(g)(X), lambda g: jax.jit(jax.grad(jax.jit(g)))(X),
                      lambda g: jax.vmap(jax.jit(g))(M), lambda g: jax.make_jaxpr(g)(X), lambda g: jax.jit(jax.checkpoint(g))(X)):
        refs = use(transform)
        gc.collect()
        assert [r() for r in refs] == [None, None]


def test_captured_arrays_are_arguments_not_text():
    big = jnp.arange(100_000.0)
    g = jax.jit(lambda x: x + big)
    assert len(g.lower(jnp.float32(1.0)).as_text()) < 2_000
    close(g(1.0)[-1], 100_000.0)


def test_sixteen_threads_compile_once():
    traced = []

    @jax.jit
    def g(x):
        traced.append(1)
        return jnp.cos(x) + 1
    results = []
    barrier = threading.Barrier(16)

    def run():
        barrier.wait()
        results.append(np.asarray(g(X)))
    threads = [threading.Thread(target=run) for _ in range(16)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert len(traced) == 1 and len(results) == 16
    for r in results:
        close(r, np.cos(X) + 1)


def test_disable_jit_runs_python():
    seen = []

    @jax.jit
    def g(x):
        seen.append(float(x))
        return x + 1
    with jax.disable_jit():
        assert g(1.0) == 2.0 and g(5.0) == 6.0
    assert seen == [1.0, 5.0]


def test_numpy_arguments_are_never_read_after_the_call_nor_misread():
    g = jax.jit(lambda x: x * 2)
    native, swapped = np.arange(4, dtype=np.float32), np.arange(4, dtype=">f4")
    for _ in range(3):
        close(g(native), 2 * native)
        close(g(swapped), 2 * native)
        close(g(native[::-1]), 2 * native[::-1])
    source = np.ones(300_000, np.float32)
    for _ in range(10):
        out = g(source)
        source += 1
        expected = 2 * (source - 1)
        close(out, expected)


# --- stages and inspection -------------------------------------------------------------------------------------------------------------

def test_stages():
    traced = jax.jit(f).trace(X)
    assert traced.jaxpr.in_avals[0].shape == (3,)
    lowered = traced.lower()
    assert "stablehlo.sine" in lowered.as_text() and "loc(" not in lowered.as_text()
    assert "test_transforms.py" in lowered.as_text(debug_info=True)
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text()
    close(compiled(X), f(X))
    assert compiled.cost_analysis()["flops"] > 0 and compiled.memory_analysis() is not None
    with pytest.raises(TypeError, match=r"f32\[3\].*f32\[4\]"):
        compiled(np.ones(4, np.float32))


def test_eval_shape_computes_nothing():
    out = jax.eval_shape(lambda x, y: {"a": x @ y}, jax.ShapeDtypeStruct((2000, 3000), np.float32), jax.ShapeDtypeStruct((3000, 7), np.float32))
    assert out["a"].shape == (2000, 7) and out["a"].dtype == np.float32


def test_programs_print_in_jax_notation():
    assert str(jax.make_jaxpr(lambda x: jnp.sin(x) * 2.0)(1.0)) == (
        "{ lambda ; a:f32[]. let\n    b:f32[] = sin a\n    c:f32[] = mul b 2.0:f32[]\n  in (c,) }")


# --- custom derivatives and checkpoint -------------------------------------------------------------------------------------------------

def test_custom_jvp_replaces_the_derivative_in_both_modes():
    @jax.custom_jvp
    def g(x, y):
        return jnp.sin(x) * y

    @g.defjvp
    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return g(x, y), 10.0 * dx * y + dy
    for h in (g, jax.jit(g)):
        close(jax.grad(h, (0, 1))(2.0, 3.0), (30.0, 1.0))
        close(jax.jvp(h, (2.0, 3.0), (1.0, 0.0))[1], 30.0)
        close(jax.vmap(jax.grad(h), (0, None))(X, 3.0), 30 * np.ones(3))
        close(jax.grad(lambda x: jnp.sum(jax.vmap(h, (0, None))(x, 2.0)))(X), 20 * np.ones(3))
    close(jax.grad(jax.grad(g), 1)(2.0, 3.0), 10.0)


def test_custom_vjp_replaces_the_reverse_mode():
    @partial(jax.custom_vjp, nondiff_argnums=(1,))
    def clip_gradient(x, limit):
        return x

    clip_gradient.defvjp(lambda x, limit: (x, None), lambda limit, _, g: (jnp.clip(g, -limit, limit),))
    for h in (clip_gradient, jax.jit(clip_gradient, static_argnums=1)):
        close(jax.grad(lambda x: 100.0 * h(x, 2.0))(1.0), 2.0)
        close(jax.vmap(jax.grad(lambda x: 100.0 * x * h(x, 2.0)))(X), np.clip(100 * X, -2, 2) + 100 * X, 1e-4)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda x: clip_gradient(x, 2.0), (1.0,), (1.0,))


def test_custom_vjp_residuals_structure_and_shared_arguments():
    @jax.custom_vjp
    def g(p, x):
        return {"y": p["w"] * x}

    g.defvjp(lambda p, x: (g(p, x), (p, x)), lambda res, ct: ({"w": ct["y"] * res[1]}, None))
    p = {"w": jnp.float32(2.0)}
    grads = jax.grad(lambda p, x: jnp.sum(g(p, x)["y"]), (0, 1))(p, 3.0)
    close(grads, ({"w": 3.0}, 0.0))
    total = jax.grad(lambda p: jnp.sum(jax.vmap(g, (None, 0))(p, X)["y"]))(p)
    close(total["w"], X.sum())


def test_checkpoint_changes_no_derivative_and_recomputes():
    g = lambda x: jnp.sum(jnp.sin(jnp.sin(jnp.sin(x))))
    for h in (jax.checkpoint(g), jax.jit(jax.checkpoint(g)), jax.checkpoint(jax.jit(g)), jax.checkpoint(jax.checkpoint(g)),
              jax.checkpoint(g, policy=jax.checkpoint_policies.everything_saveable)):
        close(jax.grad(h)(X), jax.grad(g)(X))
        close(jax.hessian(h)(X), jax.hessian(g)(X))
        close(jax.vmap(jax.grad(h))(M), jax.vmap(jax.grad(g))(M))
    text = str(jax.make_jaxpr(jax.grad(jax.checkpoint(g)))(X))
    assert text.count("= sin ") == 5 and str(jax.make_jaxpr(jax.grad(g))(X)).count("= sin ") == 3
    kept = str(jax.make_jaxpr(jax.grad(jax.checkpoint(g, policy=jax.checkpoint_policies.everything_saveable)))(X))
    assert kept.count("= sin ") == 3


def test_checkpoint_saves_what_is_named():
    from mini_jax.lax.identities import checkpoint_name
    g = lambda x: jnp.sum(jnp.cos(checkpoint_name(jnp.sin(jnp.exp(x)), "kept")))
    policy = jax.checkpoint_policies.save_only_these_names("kept")
    close(jax.grad(jax.checkpoint(g, policy=policy))(X), jax.grad(g)(X))


def test_ensure_compile_time_eval_runs_now():
    @jax.jit
    def g(x):
        with jax.ensure_compile_time_eval():
            n = int(jnp.sum(jnp.arange(4)))
        return x * n
    assert g(2.0) == 12.0
