"""The small modules beside numpy, random and nn: ops, image, profiler, monitoring, dlpack, guards of transfers, pictures of shardings, older names."""
import glob
import os
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import image, monitoring, ops, profiler, stages
from mini_jax.core import config
from mini_jax.errors import JaxRuntimeError
from mini_jax.sharding import NamedSharding, PartitionSpec as P, auto_axes, explicit_axes

MESH = jax.make_mesh((4, 2), ("x", "y"))


def host(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


# --- ops --------------------------------------------------------------------------------------------------------------------

LOOPS = {ops.segment_sum: (np.add, 0), ops.segment_prod: (np.multiply, 1), ops.segment_max: (np.maximum, -np.inf), ops.segment_min: (np.minimum, np.inf)}


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_segments_are_reduced_row_by_row(function):
    combine, start = LOOPS[function]
    data, ids = host(7, 2), np.array([0, 2, 2, -1, 5, 0, 3])
    expected = np.full((4, 2), start, np.float32)
    for row, i in zip(data, ids):
        if 0 <= i < 4:
            expected[i] = combine(expected[i], row)
    np.testing.assert_allclose(function(data, ids, 4), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda d, i: function(d, i, num_segments=4))(data, ids), expected, rtol=1e-6)
    grid = function(data.reshape(7, 2)[:6].reshape(2, 3, 2), ids[:6].reshape(2, 3), 6)                 # ids of two dimensions
    np.testing.assert_allclose(grid, function(data[:6], ids[:6], 6), rtol=1e-6)
    assert function(data, np.abs(ids)).shape == (6, 2)                       # as many segments as the ids need
    numbers = function(np.arange(1, 5, dtype=np.int8), np.array([0, 0, 2, 2]), 3)
    assert numbers.dtype == np.int8
    empty = {ops.segment_sum: 0, ops.segment_prod: 1, ops.segment_max: -128, ops.segment_min: 127}[function]
    assert numbers.tolist() == [combine(1, 2), empty, combine(3, 4)]
    half = function(data.astype(ml_dtypes.bfloat16), ids, 4)
    np.testing.assert_allclose(half.astype(np.float32), expected, rtol=2e-2, atol=2e-2)


def test_segments_differentiate_and_batch():
    data, ids = host(6, 2), np.array([0, 1, 1, 0, 2, 9])
    weights = host(3, 2, seed=1)
    loss = lambda d: (ops.segment_sum(d, ids, 3) * weights).sum()
    np.testing.assert_allclose(jax.grad(loss)(data), np.concatenate([weights, np.zeros((7, 2))])[ids], rtol=1e-6)
    most = jax.grad(lambda d: (ops.segment_max(d, ids, 3) * weights).sum())(data)
    expected = np.zeros((6, 2))
    for k in range(3):
        for c in range(2):
            rows = np.flatnonzero(ids == k)
            expected[rows[np.argmax(data[rows, c])], c] = weights[k, c]
    np.testing.assert_allclose(most, expected, rtol=1e-6)
    both = np.stack([ids, ids[::-1]])
    np.testing.assert_allclose(jax.vmap(lambda d, i: ops.segment_sum(d, i, 3), (None, 0))(data, both),
                               np.stack([ops.segment_sum(data, i, 3) for i in both]), rtol=1e-6)


@pytest.mark.parametrize("call, error, words", [
    (lambda: ops.segment_sum(np.ones(3), np.ones(3)), TypeError, "segment_ids must be integers"),
    (lambda: ops.segment_sum(np.ones(3), np.ones(2, int), 2), ValueError, "must start with the dimensions"),
    (lambda: ops.segment_sum(np.ones(3), np.ones(3, int), -1), ValueError, "at least 0"),
    (lambda: jax.jit(lambda i: ops.segment_sum(np.ones(3), i))(np.ones(3, int)), Exception, "num_segments"),
    (lambda: image.resize(np.ones((3, 3)), (3,), "linear"), ValueError, "as many dimensions"),
    (lambda: image.resize(np.ones(3), (3,), "sharp"), ValueError, "unknown resize method 'sharp'"),
    (lambda: image.scale_and_translate(np.ones(3), (3,), (0,), np.ones(1), np.ones(1), "nearest"), ValueError, "no kernel"),
    (lambda: image.scale_and_translate(np.ones((3, 3)), (3, 4), (0,), np.ones(1), np.ones(1), "linear"), ValueError, "none of spatial_dims"),
    (lambda: image.scale_and_translate(np.ones(3), (3,), (0,), np.ones(2), np.ones(1), "linear"), ValueError, "one entry"),
    (lambda: monitoring.register_event_listener(3), TypeError, "a function"),
    (lambda: profiler.stop_trace(), RuntimeError, "no profiler trace is running"),
    (lambda: profiler.stop_server(), ValueError, "no profiler server"),
    (lambda: jax.debug.visualize_sharding((2, 2, 2), NamedSharding(MESH, P())), ValueError, "one or two dimensions"),
    (lambda: jax.jit(lambda x: jax.debug.visualize_array_sharding(x))(np.ones(3)), NotImplementedError, "XLA chooses when the program is compiled"),
    (lambda: jax.debug.inspect_array_sharding(3, callback=print), TypeError, "expected an array"),
])
def test_what_cannot_be_is_said(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- image --------------------------------------------------------------------------------------------------------------------

SQUARES = np.array([0, 1, 4, 9, 16], np.float32)
RESIZED = {                                                # of SQUARES, by jax 0.10.2
    ("nearest", 3): [0.0, 4.0, 16.0],
    ("nearest", 8): [0.0, 0.0, 1.0, 4.0, 4.0, 9.0, 16.0, 16.0],
    ("linear", 3): [0.42857, 4.44444, 13.0],
    ("linear", 8): [0.0, 0.4375, 1.1875, 3.0625, 5.5625, 8.6875, 12.9375, 16.0],
    ("cubic", 3): [0.16923, 4.19535, 13.33846],
    ("cubic", 8): [-0.07196, 0.24375, 1.12891, 2.84766, 5.34766, 8.62891, 13.48818, 16.50369],
    ("lanczos3", 3): [0.10329, 4.0, 13.5305],
    ("lanczos3", 8): [-0.00855, 0.19521, 1.11012, 2.92855, 5.04124, 8.49301, 13.74597, 16.55913],
    ("lanczos5", 3): [0.1804, 3.9136, 13.58405],
    ("lanczos5", 8): [-0.00669, 0.04913, 1.21193, 3.42878, 4.5513, 8.39937, 13.8499, 16.60056],
}


def test_images_are_resampled_as_jax_does():
    found = jax.jit(lambda x: [(image.resize(x, (size,), method), image.resize(jnp.stack([x, 2 * x]), (2, size), image.ResizeMethod.from_string(method)))
                               for method, size in RESIZED])(SQUARES)
    for expected, (once, twice) in zip(RESIZED.values(), found):
        np.testing.assert_allclose(once, expected, atol=2e-5)
        np.testing.assert_allclose(twice, np.stack([expected, 2 * np.array(expected)]), atol=4e-5)
    for method, expected in {"linear": [0.33333, 4.0, 13.66667], "cubic": [0.17241, 4.0, 14.24138], "lanczos3": [0.1093, 4.0, 14.43742]}.items():
        np.testing.assert_allclose(image.resize(SQUARES, (3,), method, antialias=False), expected, atol=2e-5)
    moved = image.scale_and_translate(SQUARES, (6,), (0,), jnp.array([1.5]), jnp.array([-0.5]), "linear")
    np.testing.assert_allclose(moved, [0.16667, 0.83333, 2.5, 4.83333, 8.16667, 12.5], atol=2e-5)
    both = image.scale_and_translate(np.outer(SQUARES, SQUARES[:3]), (4, 2), (0, 1), jnp.array([1.5, .6]), jnp.array([-0.5, .3]), "cubic")
    np.testing.assert_allclose(both, [[-0.00031, 0.19425], [-0.00263, 1.67453], [-0.00849, 5.39828], [-0.01772, 11.26307]], atol=2e-5)


def test_resizing_is_linear_keeps_constants_and_differentiates():
    a, b, ones = host(5, 4, 3), host(5, 4, 3, seed=1), np.ones((5, 4, 3), np.float32)

    @jax.jit
    def laws():
        f = lambda x: image.resize(x, (7, 2, 3), "lanczos3")
        loss = lambda x: (f(x) * f(b)).sum()
        stretched = lambda s: image.scale_and_translate(SQUARES, (5,), (0,), s[None], jnp.zeros(1), "linear").sum()
        return (f(a + 2 * b), f(a) + 2 * f(b), f(ones), (jax.grad(loss)(a) * a).sum(), loss(a),
                jax.grad(stretched)(jnp.float32(1.2)), (stretched(jnp.float32(1.201)) - stretched(jnp.float32(1.199))) / 2e-3)
    whole, parts, constant, along, value, slope, quotient = laws()
    np.testing.assert_allclose(whole, parts, atol=1e-4)
    np.testing.assert_allclose(constant, np.ones((7, 2, 3)), atol=1e-5)
    np.testing.assert_allclose(along, value, rtol=1e-3)
    np.testing.assert_allclose(slope, quotient, rtol=1e-2)
    assert image.resize(np.arange(4), (8,), "linear").dtype == np.float32 and image.resize(np.arange(4), (8,), "nearest").dtype == np.int32
    np.testing.assert_array_equal(image.resize(a, a.shape, "cubic"), a)


# --- profiler, monitoring -------------------------------------------------------------------------------------------------------------

def test_traces_are_written(tmp_path):
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        with profiler.TraceAnnotation("named"), profiler.StepTraceAnnotation("train", step_num=3):
            jnp.ones((50, 50)).sum().block_until_ready()
        assert profiler.annotate_function(lambda x: x + 1, name="f")(1) == 2
        with pytest.raises(RuntimeError, match="already running"):
            profiler.start_trace(tmp_path)
    assert glob.glob(str(tmp_path / "plugins" / "profile" / "*" / "perfetto_trace.json.gz"))
    profiler.start_trace(tmp_path / "second")
    profiler.stop_trace()
    assert os.listdir(tmp_path / "second")
    assert profiler.device_memory_profile()[:2] == b"\x1f\x8b"


def test_listeners_hear_of_events():
    heard = []
    try:
        monitoring.register_event_listener(lambda event, **more: heard.append((event, more)))
        monitoring.register_event_duration_secs_listener(lambda event, duration, **more: heard.append((event, duration)))
        monitoring.register_scalar_listener(lambda event, value, **more: heard.append((event, value)))
        monitoring.register_event_time_span_listener(lambda event, start, end, **more: heard.append((event, start, end)))
        monitoring.record_event("a", b=1)
        monitoring.record_event_duration_secs("c", 0.5)
        monitoring.record_scalar("d", 2.0)
        monitoring.record_event_time_span("e", 1.0, 2.0)
        assert heard == [("a", {"b": 1}), ("c", 0.5), ("d", 2.0), ("e", 1.0, 2.0)]
    finally:
        monitoring.clear_event_listeners()
    monitoring.record_event("unheard")
    assert len(heard) == 4


# --- transfers ----------------------------------------------------------------------------------------------------------------------

def test_guards_refuse_implicit_transfers_and_let_explicit_ones_pass(capfd):
    f, x = jax.jit(lambda x: x + 1), jnp.arange(3.)
    value = np.ones(3, np.float32)
    f(value), f(x)
    with jax.transfer_guard("disallow"):
        for transfer in (lambda: f(value), lambda: jnp.sin(value), lambda: x + 1):
            with pytest.raises(JaxRuntimeError, match="Disallowed host-to-device transfer"):
                transfer()
        assert f(jax.device_put(value)).tolist() == [2, 2, 2] and jax.device_get(x).tolist() == [0, 1, 2]
        with jax.transfer_guard_host_to_device("allow"):
            assert f(value).tolist() == [2, 2, 2]
    with jax.transfer_guard_host_to_device("disallow_explicit"), pytest.raises(JaxRuntimeError, match="Disallowed"):
        jax.device_put(value)
    with jax.transfer_guard("log"):
        f(value)
    assert "host-to-device transfer" in capfd.readouterr().err
    try:
        config.config.update("jax_transfer_guard", "disallow")
        with pytest.raises(JaxRuntimeError, match="Disallowed"):
            f(value)
    finally:
        config.config.update("jax_transfer_guard", None)
    assert f(value).tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="transfer_guard cannot be 'never'"):
        jax.transfer_guard("never")


# --- pictures and names -----------------------------------------------------------------------------------------------------------------

def test_shardings_are_drawn(capsys):
    jax.debug.visualize_sharding((8, 4), NamedSharding(MESH, P("y", "x")), min_width=3)
    assert capsys.readouterr().out == """\
┌───────┬───────┬───────┬───────┐
│ CPU 0 │ CPU 2 │ CPU 4 │ CPU 6 │
├───────┼───────┼───────┼───────┤
│ CPU 1 │ CPU 3 │ CPU 5 │ CPU 7 │
└───────┴───────┴───────┴───────┘
"""
    jax.debug.visualize_array_sharding(jax.device_put(np.ones((8, 2)), NamedSharding(MESH, P("x"))))
    assert capsys.readouterr().out.splitlines()[1] == "│ CPU 0,1 │"
    seen = []
    jax.debug.inspect_array_sharding(jnp.ones(3), callback=seen.append)
    assert seen == [jnp.ones(3).sharding]


def test_axes_of_explicit_programs_are_said_by_constraints():
    rows = NamedSharding(MESH, P("x"))
    assert auto_axes(lambda x: x * 2, axes="x", out_sharding=rows)(host(8)).sharding == rows
    assert auto_axes(lambda x: x * 2)(host(8), out_sharding=rows).sharding == rows
    assert jax.jit(explicit_axes(lambda x: x * 2, in_sharding=rows))(host(8)).sharding == rows


def test_older_names_warn():
    for name, value in (("host_id", 0), ("host_count", 1), ("host_ids", [0])):
        with pytest.warns(DeprecationWarning, match=f"{name} is the older name"):
            assert getattr(jax, name)() == value
    assert jax.process_indices() == [0] and not jax.distributed.is_initialized()
    assert jax.version.__version__ == jax.__version__ and jax.version.__version_info__ == jax.__version_info__
    assert isinstance(jax.jit(lambda x: x), stages.Wrapped) and not isinstance(lambda x: x, stages.Wrapped)
    x = {"a": jnp.ones(3)}
    assert jax.copy_to_host_async(x) is x


def test_absl_flags_set_options(monkeypatch):
    flags = pytest.importorskip("absl.flags")
    monkeypatch.setattr(sys, "argv", ["prog", "--jax_debug_nans", "--jax_default_matmul_precision=highest", "--other"])
    try:
        config.config.parse_flags_with_absl()
        assert config.config.debug_nans and config.config.default_matmul_precision == "highest"
        flags.FLAGS.jax_debug_nans = flags.FLAGS.jax_default_matmul_precision = None
    finally:
        config.config.update("jax_debug_nans", False)
        config.config.update("jax_default_matmul_precision", None)


def test_dlpack_is_a_module():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jax.dlpack.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]


# --- core -------------------------------------------------------------------------------------------------------------------

def test_core_has_what_users_ask_of_it():
    seen = []
    for transform in (jax.jit, jax.grad, jax.make_jaxpr):
        transform(lambda x: (seen.append(isinstance(x, jax.core.Tracer)), x)[1])(1.0)
    assert seen == [True] * 3 and not isinstance(jnp.ones(2), jax.core.Tracer)
    assert isinstance(jax.typeof(1.0), jax.core.ShapedArray) and issubclass(jax.core.ShapedArray, jax.core.AbstractValue)
    program = jax.make_jaxpr(lambda x: x * jnp.arange(3.0))(1.0)
    assert jax.core.eval_jaxpr(program.jaxpr, program.consts, 2.0)[0].tolist() == [0, 2, 4]
    with pytest.raises(AttributeError, match="mini_jax.core.*'nothing'"):
        jax.core.nothing
