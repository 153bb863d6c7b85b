"""Errors: the class that JAX users know, what was wrong, which argument or line is theirs, and what to do instead."""
import traceback

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.errors import (ConcretizationTypeError, NonConcreteBooleanIndexError, TracerArrayConversionError, TracerBoolConversionError,
                             TracerIntegerConversionError, UnexpectedTracerError)

X = np.ones(3, np.float32)


def message(error_class, fun, *args, **kwargs) -> str:
    with pytest.raises(error_class) as info:
        fun(*args, **kwargs)
    return str(info.value)


def test_classes_are_related_as_in_jax():
    assert issubclass(TracerBoolConversionError, ConcretizationTypeError) and issubclass(ConcretizationTypeError, TypeError)
    assert issubclass(NonConcreteBooleanIndexError, IndexError) and issubclass(UnexpectedTracerError, TypeError)
    assert issubclass(TracerArrayConversionError, TypeError) and issubclass(TracerIntegerConversionError, TypeError)


@pytest.mark.parametrize("function, argument, call", [
    ("jnp.zeros", "shape", lambda n: jnp.zeros(n)), ("jnp.full", "shape", lambda n: jnp.full((2, n), 1.0)), ("jnp.arange", "stop", lambda n: jnp.arange(n)),
    ("jnp.arange", "step", lambda n: jnp.arange(0, 5, n)), ("jnp.reshape", "shape", lambda n: jnp.ones(3).reshape(n, -1)),
    ("jnp.eye", "N", lambda n: jnp.eye(n)), ("jnp.tile", "reps", lambda n: jnp.tile(X, n)), ("jnp.repeat", "repeats", lambda n: jnp.repeat(X, n)),
    ("jnp.broadcast_to", "shape", lambda n: jnp.broadcast_to(1.0, (n,))), ("jnp.split", "indices_or_sections", lambda n: jnp.split(X, n)),
    ("nn.one_hot", "num_classes", lambda n: jax.nn.one_hot(jnp.array([1]), n))])
def test_a_traced_size_names_the_function_its_argument_ours_and_the_way_out(function, argument, call):
    text = message(ConcretizationTypeError, jax.jit(call), 3)
    assert f"the shape of what {function} returns depends on the value of {argument}, which is traced" in text
    assert "the argument n of" in text and "static_argnames=('n',)" in text and "static_argnums" in text


def test_shapes_that_do_not_go_together_are_the_errors_of_jax_and_of_numpy():
    for call in (lambda: jnp.ones(3) + jnp.ones(7), lambda: jnp.maximum(jnp.ones((2, 3)), jnp.ones((3, 2))), lambda: np.ones(3) < jnp.ones(7),
                 lambda: jnp.where(X > 0, jnp.ones(7), X), lambda: X.reshape(1, 3) @ jnp.ones((3, 2)) + jnp.ones(7), lambda: lax.dot(X, jnp.ones(7)),
                 lambda: lax.reshape(X, (7,))):
        for error_class in (TypeError, ValueError):
            message(error_class, call)
    for error_class in (ValueError, IndexError):
        assert "axis 2 is out of bounds" in message(error_class, jnp.swapaxes, X, 0, 2)


def test_a_branch_on_a_traced_value_names_the_argument_and_the_way_out():
    def sign_of(params):
        if params["w"][0] > 0:
            return 1.0
        return -1.0
    text = message(TracerBoolConversionError, jax.jit(sign_of), {"w": X, "b": X})
    assert "params['w']" in text and "params['b']" not in text
    assert "bool[]" in text and "sign_of" in text and "test_errors.py" in text and "jit" in text
    assert "jnp.where" in text and "lax.cond" in text


@pytest.mark.parametrize("use, error, word", [
    (lambda x: float(x[0]), ConcretizationTypeError, "astype(float)"),
    (lambda x: int(x[0]), ConcretizationTypeError, "int"),
    (lambda x: x[0].item(), ConcretizationTypeError, "item"),
    (lambda x: np.sin(x), TracerArrayConversionError, "mini_jax.numpy"),
    (lambda x: np.asarray(x), TracerArrayConversionError, "mini_jax.numpy"),
    (lambda x: range(jnp.argmax(x)), TracerIntegerConversionError, "fori_loop"),
    (lambda x: [1, 2, 3][jnp.argmax(x)], TracerIntegerConversionError, "asarray"),
    (lambda x: x[x > 0], NonConcreteBooleanIndexError, "jnp.where"),
])
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f)), jax.make_jaxpr], ids=["jit", "vmap", "jit vmap", "make_jaxpr"])
def test_values_that_are_not_known_yet(transform, use, error, word):
    text = message(error, transform(use), np.ones((3, 3), np.float32))
    assert word in text and "<lambda>" in text


def test_concrete_values_are_known_under_grad():
    assert jax.grad(lambda x: x * int(x) if float(x) > 1 else -x)(2.5) == 2.0


# --- leaks ---------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, transform", [("jit", jax.jit), ("vmap", jax.vmap), ("grad", lambda f: jax.grad(lambda x: jnp.sum(f(x)))),
                                             ("jvp", lambda f: lambda x: jax.jvp(f, (x,), (x,)))])
def test_a_leaked_tracer_names_the_function_and_the_line(name, transform):
    kept = []

    def leaks(x):
        kept.append(jnp.sin(x))          # the line that made it
        return x * 2
    transform(leaks)(X)
    text = message(UnexpectedTracerError, lambda: kept[0] + 1)
    assert name in text and ("leaks" in text or "<lambda>" in text)
    line = leaks.__code__.co_firstlineno + 1
    assert f"test_errors.py:{line}" in text
    for use in (bool, np.asarray, lambda t: jax.jit(lambda y: y + t)(1.0), lambda t: jnp.stack([t, t]), lambda t: jax.grad(lambda y: jnp.sum(y * t))(X)):
        message(UnexpectedTracerError, lambda: use(kept[0]))


# --- arguments -----------------------------------------------------------------------------------------------------------------------

def test_arguments_that_are_no_arrays_are_named():
    text = message(TypeError, jax.jit(lambda p, mode: p["w"]), {"w": X}, "train")
    assert "mode" in text and "'train'" in text and "static" in text
    text = message(TypeError, jax.jit(lambda p: p), {"w": X, "name": object()})
    assert "p['name']" in text
    assert "result" in message(TypeError, jax.jit(lambda x: {"a": x, "b": "text"}), X)


def test_static_arguments():
    text = message(ValueError, jax.jit(lambda x, shape: x, static_argnums=1), X, [1, 2])
    assert "hashable" in text.lower()
    assert "has no argument 'y'" in message(ValueError, jax.jit, lambda x: x, static_argnames="y")
    assert "positional arguments" in message(ValueError, jax.jit, lambda x: x, static_argnums=3)
    assert "static and donated" in message(ValueError, jax.jit, lambda x: x, static_argnums=0, donate_argnums=0)


def test_numbers_beyond_the_dtype():
    message(OverflowError, jax.jit(lambda x: x), 2 ** 40)
    message(OverflowError, lambda: jnp.arange(3) + 2 ** 40)


def test_vmap_sizes_and_axes():
    def pair(params, x):
        return params["w"] * x
    text = message(ValueError, jax.vmap(pair), {"w": np.ones((3, 2), np.float32)}, np.ones(4, np.float32))
    assert "params['w'] has size 3" in text and "x has size 4" in text and "f32[3,2]" in text
    assert "axis 1 of argument x" in message(ValueError, jax.vmap(lambda x: x, in_axes=1), X)
    assert "in_axes None" in message(ValueError, jax.vmap(lambda x, y: x, in_axes=(0, 0)), X, 1.0)
    assert "2 entries" in message(ValueError, jax.vmap(lambda x: x, in_axes=(0, 0)), X)
    assert "at least one" in message(ValueError, jax.vmap(lambda x: x, in_axes=None), X)
    assert "out_axes" in message(ValueError, jax.vmap(lambda x: x, out_axes=None), X)
    assert "out_axes 3" in message(ValueError, jax.vmap(lambda x: x, out_axes=3), X)
    message(TypeError, jax.vmap, lambda x: x, in_axes="0")
    assert "write in_axes=({'w': 0},)" in message(TypeError, jax.vmap, lambda p: p["w"], in_axes={"w": 0})
    assert "where the tuple of arguments has a dict" in message(ValueError, jax.vmap(lambda p: p["w"], in_axes=({"v": 0},)), {"w": X})
    assert "out_axes has a tuple of length 2 where the result has a leaf" in message(ValueError, jax.vmap(lambda x: x, out_axes=(0, 0)), X)
    text = message(ValueError, jax.vmap(lambda p: p["w"], in_axes=({"v": 0},)), {"w": X})
    assert "'v'" in text or "'w'" in text


def test_grad_of_what_has_no_gradient():
    text = message(TypeError, jax.grad(lambda p: jnp.sum(p["n"] * 2.0)), {"n": np.arange(3), "x": X})
    assert "p['n']" in text and "i32[3]" in text and "allow_int" in text
    assert "f32[3]" in message(TypeError, jax.grad(lambda x: x * 2), X) and "scalar" in message(TypeError, jax.grad(lambda x: x * 2), X)
    assert "has_aux" in message(TypeError, jax.grad(lambda x: (x, x)), 1.0)
    assert "real-valued" in message(TypeError, jax.grad(lambda x: jnp.argmax(x)), X)
    assert "holomorphic" in message(TypeError, jax.grad(lambda z: z), 1j)
    assert "argnums=2" in message(ValueError, jax.grad(lambda x: x, argnums=2), 1.0)
    assert "pair" in message(TypeError, jax.grad(lambda x: x, has_aux=True), 1.0)
    message(TypeError, jax.grad, 3.0)


def test_tangents_and_cotangents_that_dont_fit():
    assert "tangent of argument x" in message(ValueError, jax.jvp, lambda x: x, (X,), (np.ones(4, np.float32),))
    assert "dtype" in message(TypeError, jax.jvp, lambda x: x, (X,), (np.ones(3, np.int32),))
    message(TypeError, jax.jvp, lambda x: x, (X,), (X, X))
    _, f_vjp = jax.vjp(lambda x: x * 2, X)
    assert "cotangent" in message(ValueError, f_vjp, np.ones(4, np.float32))
    assert "structure" in message(ValueError, f_vjp, (X, X))


def test_shapes_that_dont_match_show_whole_types():
    for transform in (lambda f: f, jax.jit):
        text = message(TypeError, transform(lambda x, y: lax.add(x, y)), X, np.ones(4, np.float32))
        assert "(3,)" in text and "(4,)" in text
        message((TypeError, ValueError), transform(lambda x, y: x + y), X, np.ones(4, np.float32))
        message(TypeError, transform(lambda x, y: jnp.asarray(x) @ y), X, np.ones(4, np.float32))
        text = message(TypeError, transform(lambda x: jnp.reshape(x, (2, 2))), X)
        assert "f32[3]" in text and "(2, 2)" in text


def test_axis_names():
    text = message(NameError, jax.jit(lambda x: lax.psum(x, "i")), X)
    assert "unbound axis name" in text and "'i'" in text
    text = message(NameError, jax.vmap(lambda x: lax.psum(x, "j"), axis_name="i"), X)
    assert "'i'" in text and "'j'" in text


def test_more_devices_than_there_are():
    text = message(ValueError, jax.pmap(lambda x: x), np.ones((len(jax.devices()) + 1, 2), np.float32))
    assert str(len(jax.devices())) in text and "xla_force_host_platform_device_count" in text


# --- tracebacks ----------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("call", [
    lambda: jax.jit(lambda x: jnp.reshape(x, (5, 5)))(X),
    lambda: jax.grad(lambda x: jnp.sum(jnp.reshape(x, (5, 5))))(X),
    lambda: jax.vmap(lambda x: jnp.reshape(x, (5, 5)))(X),
    lambda: jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(jnp.reshape(x, (5, 5))))))(X),
])
def test_a_traceback_holds_the_users_frames_only(call):
    from mini_jax.core.source import is_internal
    try:
        call()
    except (TypeError, ValueError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        assert frames and not is_internal(frames[-1].filename)
        assert sum(is_internal(frame.filename) for frame in frames) == 0
    else:
        pytest.fail("no error")


def test_our_frames_are_there_when_asked_for():
    from mini_jax.core.source import is_internal
    jax.config.update("jax_traceback_filtering", "off")
    try:
        jax.jit(lambda x: jnp.reshape(x, (5, 5)))(X)
    except TypeError as error:
        assert any(is_internal(frame.filename) for frame in traceback.extract_tb(error.__traceback__))
    finally:
        jax.config.update("jax_traceback_filtering", "auto")


@pytest.mark.parametrize("line", ["jnp.concatenate([jnp.ones((2, 2)), jnp.ones(3)])", "lax.add(jnp.ones(3), jnp.ones(4))", "jnp.ones(3) + jnp.ones(4)",
                                  "threading.Thread(target=lambda: jnp.dot(jnp.ones(3), jnp.ones(4))).start()"])
def test_what_python_prints_of_an_uncaught_error_ends_in_the_users_line(tmp_path, line):
    import subprocess
    import sys
    (tmp_path / "user.py").write_text(f"import threading\nimport mini_jax.numpy as jnp\nfrom mini_jax import lax\n{line}\n")
    printed = subprocess.run([sys.executable, str(tmp_path / "user.py")], capture_output=True, text=True).stderr
    assert "Error" in printed and "user.py\", line 4" in printed and "/mini_jax/" not in printed.replace(str(tmp_path), "")


def test_importing_beside_jax_says_why_not(tmp_path):
    import subprocess
    import sys
    (tmp_path / "jax.py").write_text("")
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import jax; import mini_jax"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "ImportError" in done.stderr and "process" in done.stderr
