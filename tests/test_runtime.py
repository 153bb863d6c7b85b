"""The runtime on hand-written StableHLO: what C++ does with each kind of argument, where arrays lie, what they show."""
import copy
import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import numpy as np
import pytest

from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.runtime import devices, xla
from mini_jax.runtime.array import Array, device_get, device_put, host_value
from mini_jax.runtime.executable import Executable
from mini_jax.runtime.sharding import PmapSharding, on_device, pmap_sharding

DEVICES = devices.devices("cpu")
FIRST = on_device(DEVICES[0])
LEAF = xla.registry.flatten(0)[1]
f32 = dtypes.float32
four_devices = pytest.mark.skipif(len(DEVICES) < 4, reason="needs --xla_force_host_platform_device_count=4 or more")


def type_of(x):
    if type(x) is xla.ArrayImpl:
        return x.aval
    host, weak = host_value(x)
    return array_type(host.shape, host.dtype, weak)


def main(types, body, out):
    """A module whose @main takes %a0, %a1, … and returns %out."""
    args = ", ".join(f"%a{i}: {t.mlir}" for i, t in enumerate(types))
    return f"module @m {{ func.func public @main({args}) -> {out.mlir} {{\n{body}\nreturn %out : {out.mlir} }} }}"


def summing(*, static=(), consts=(), fun=None, device=0, committed=False, **options):
    """A tiny jit: adds its constants and arguments, all of one shape, in the dtype of the first. → function, its misses."""
    misses = []

    def miss(*args, **kwargs):
        misses.append((args, kwargs))
        flat, _ = xla.registry.flatten((args, {k: v for k, v in kwargs.items() if k not in static}))
        types = [type_of(x) for x in flat]
        inputs = [c.aval for c in consts] + types
        body, last = [], "%a0"
        for i, t in enumerate(inputs[1:], 1):
            body.append(f"%c{i} = stablehlo.convert %a{i} : ({t.mlir}) -> {inputs[0].mlir}\n"
                        f"%s{i} = stablehlo.add {last}, %c{i} : {inputs[0].mlir}")
            last = f"%s{i}"
        body.append(f"%out = stablehlo.convert {last} : {inputs[0].mlir}")
        where = on_device(DEVICES[device])
        executable = Executable(xla.compile(main(inputs, "\n".join(body), inputs[0]), DEVICES[device:device + 1]),
                                types, [inputs[0]], [where] * len(types), [where], devices=DEVICES[device:device + 1],
                                const_args=consts, committed=committed)
        return executable(flat)[0], executable.fastpath(LEAF), False

    return xla.dispatcher("summing", fun or (lambda *a, **k: a), miss, static_argnames=static, **options), misses


def one_output(text, types, out, **options):
    """A dispatcher over one program, whatever its arguments. → function, its misses."""
    misses = []
    executable = Executable(xla.compile(text, DEVICES[:1]), types, [out], [FIRST] * len(types), [FIRST], devices=DEVICES[:1],
                            **options)

    def miss(*args):
        misses.append(args)
        return executable(args)[0], executable.fastpath(LEAF), False

    return xla.dispatcher("program", lambda *a: a, miss), misses


def answers_twice(function, misses, *args):
    """The first answer (from Python) and the second (from C++), which must be a hit."""
    first, before = function(*args), len(misses)
    second = function(*args)
    assert len(misses) == before, "the second call was a miss"
    return first, second


# ---- the dispatcher, by kind of argument -----------------------------------------------------------------------------

x3 = np.arange(3, dtype="f4")


@pytest.mark.parametrize("argument", [
    x3, x3 * 2, np.arange(6, dtype="f4")[::2], x3[::-1], np.asfortranarray(np.ones((2, 3), "f4")), np.ones((3, 2), "f4").T,
    np.float32(2), np.zeros((0, 3), "f4"), x3.astype(dtypes.bfloat16), x3.astype(np.float16), x3.astype("i1"), x3.astype("u4"),
    x3.astype("c8"), x3.astype(dtypes.float8_e4m3fn), x3.astype("f8"), x3.astype("i8"), x3.astype("c16"), np.float64(2), np.int64(3),
    2.5, 3, 2j], ids=lambda a: f"{type(a).__name__}-{getattr(a, 'dtype', '')}-{getattr(a, 'strides', '')}")
def test_a_value_from_the_host_gives_the_same_from_python_and_from_cpp(argument):
    add, misses = summing()
    first, second = answers_twice(add, misses, argument, argument)
    expected = np.asarray(argument) + np.asarray(argument)
    for out in (first, second):
        assert out.dtype == dtypes.canonicalize(expected.dtype)
        np.testing.assert_array_equal(np.asarray(out).astype(expected.dtype), expected)
        assert out.weak_type == (type(argument) in (int, float, complex))


def test_read_only_numpy_arguments_are_taken():
    frozen = x3.copy()
    frozen.setflags(write=False)
    add, misses = summing()
    for out in answers_twice(add, misses, frozen, frozen):
        np.testing.assert_array_equal(out, x3 + x3)


def test_python_and_numpy_scalars_have_signatures_of_their_own():
    add, misses = summing()
    a = device_put(np.float32(1))
    for scalar in (2.0, np.float32(2), 2, np.int32(2), True):
        before = len(misses)
        add(a, scalar)
        assert len(misses) == before + 1, scalar
    add(a, 7.0), add(a, np.float64(3)), add(a, np.int64(3)), add(a, -5)
    assert len(misses) == 5


def test_an_int_beyond_32_bits_is_an_error_at_every_call():
    add, misses = summing()
    add(1, 2)
    for _ in range(2):
        with pytest.raises(OverflowError, match="2199023255552"):
            add(2 ** 41, 2)
    assert int(add(3, 4)) == 7


def test_64_bits_when_asked_for():
    add, misses = summing()
    assert add(np.ones(3), np.ones(3)).dtype == "f4"
    saved = xla.Config.enable_x64.swap_local(True)
    try:
        for out in answers_twice(add, misses, np.ones(3), np.ones(3)):
            assert out.dtype == "f8"
        assert int(add(2 ** 40, 1)) == 2 ** 40 + 1
    finally:
        xla.Config.enable_x64.set_local(saved)
    assert add(np.ones(3), np.ones(3)).dtype == "f4"


def test_a_big_endian_array_is_converted_where_python_sees_it():
    # C++ ignores the byte order, in jax too: a hit on the signature of the native dtype reads wrong numbers
    np.testing.assert_array_equal(device_put(x3.astype(">f4")), x3)
    add, _ = summing()
    np.testing.assert_array_equal(add(x3.astype(">f4"), x3), x3 + x3)


class Unknown:
    pass


@pytest.mark.parametrize("argument", [Unknown(), "text", len, np.array(["a"]), np.array(["2020-01-01"], "M8[D]"),
                                      np.zeros(3, dtypes.float0), np.ones(2, np.longdouble)], ids=repr)
def test_what_cpp_does_not_know_reaches_python_every_time(argument):
    calls = []
    function = xla.dispatcher("f", lambda *a: a, lambda *a: (calls.append(a) or "from Python", None, False))
    assert function(argument) == function(argument) == "from Python"
    assert len(calls) == 2 and calls[0][0] is argument


def test_trees_kwargs_and_none_are_part_of_the_signature():
    add, misses = summing()
    a = device_put(x3)
    np.testing.assert_array_equal(add({"u": a, "v": (a, [a, None])}, w=a), 4 * x3)
    add({"u": a, "v": (a, [a, None])}, w=a)
    assert len(misses) == 1
    add({"u": a, "v": (a, [a])}, w=a)
    assert len(misses) == 2


def test_static_arguments_are_compared_by_type_and_value():
    add, misses = summing(static=("axis",))
    a = device_put(x3)
    for axis, count in [(0, 1), (0, 1), (1, 2), (True, 3), (1.0, 4), ("s", 5), ((1, 2), 6), ((1, 2), 6), (None, 7), (1, 7)]:
        add(a, axis=axis)
        assert len(misses) == count, axis
    with pytest.raises(ValueError, match="[Nn]on-hashable static"):
        add(a, axis=[1])


def test_a_static_argument_by_position_reaches_python_as_it_is():
    function = xla.dispatcher("f", lambda a, b: a, lambda *a, **k: ((a, k), None, False), static_argnums=(1,), static_argnames=("b",))
    a, thing = device_put(x3), Unknown()
    assert function(a, thing) == ((a, thing), {})
    assert function(a, b=thing) == ((a,), {"b": thing})


# ---- the dispatcher as a function ------------------------------------------------------------------------------------------

def test_no_entry_made_while_staging_is_seen_outside_and_the_other_way_round():
    add, misses = summing()
    a, log = device_put(x3), []

    def miss(*args):
        log.append(xla.staging.value)
        return ("traced", None, False) if xla.staging.value else (*_run(args), False)

    def _run(args):
        executable = Executable(xla.compile(main([a.aval], "%out = stablehlo.add %a0, %a0 : tensor<3xf32>", a.aval), DEVICES[:1]),
                                [a.aval], [a.aval], [FIRST], [FIRST], devices=DEVICES[:1])
        return executable(args)[0], executable.fastpath(LEAF)

    function = xla.dispatcher("f", lambda a: a, miss)
    xla.staging.set_local(True)
    assert [function(a), function(a)] == ["traced", "traced"]
    xla.staging.set_local(None)
    np.testing.assert_array_equal(function(a), 2 * x3)
    np.testing.assert_array_equal(function(a), 2 * x3)
    xla.staging.set_local(True)
    assert function(a) == "traced"
    xla.staging.set_local(xla.unset)
    np.testing.assert_array_equal(function(a), 2 * x3)
    assert log == [True, True, None, True]


def test_a_signature_whose_first_miss_gave_no_fastpath_stays_with_python():
    add, _ = summing()
    count = []

    def miss(a):
        count.append(a)
        return add(a), add._cache_miss(a)[1] if len(count) > 1 else None, False

    function, a = xla.dispatcher("f", lambda a: a, miss), device_put(x3)
    for _ in range(4):
        np.testing.assert_array_equal(function(a), x3)
    assert len(count) == 4
    function._clear_cache()
    function(a), function(a)
    assert len(count) == 5


def test_so_does_one_whose_first_miss_raised_unless_that_clears_the_entries():
    add, _ = summing()
    count = []

    def miss(a):
        count.append(a)
        if len(count) == 1:
            function._clear_cache()
            raise KeyError("once")
        return add(a), add._cache_miss(a)[1], False

    function, a = xla.dispatcher("f", lambda a: a, miss), device_put(x3)
    with pytest.raises(KeyError):
        function(a)
    function(a), function(a), function(a)
    assert len(count) == 2


def test_an_error_in_python_passes_through_and_is_not_remembered():
    def miss(a):
        raise KeyError("as raised")
    function = xla.dispatcher("f", lambda a: a, miss)
    for _ in range(2):
        with pytest.raises(KeyError, match="as raised"):
            function(device_put(x3))


def test_it_serves_as_operator_and_as_bound_method():
    add, misses = summing()
    a = device_put(x3)
    xla.ArrayImpl.plus = add
    try:
        np.testing.assert_array_equal(a.plus(a), 2 * x3)
        np.testing.assert_array_equal(a.plus(a), 2 * x3)
        assert len(misses) == 1
    finally:
        del xla.ArrayImpl.plus


def test_it_carries_the_attributes_of_a_function():
    def user(a, b=2):
        "What it does."
    function = functools.wraps(user)(xla.dispatcher("user", user, lambda *a: (0, None, False)))
    import inspect
    assert (function.__name__, function.__doc__, function.__wrapped__) == ("user", "What it does.", user)
    assert str(inspect.signature(function)) == "(a, b=2)"
    assert weakref.ref(function)() is function
    assert function in {function}


def test_it_is_copied_and_pickled_like_a_function(monkeypatch):
    function = functools.wraps(Unknown)(xla.dispatcher("Unknown", Unknown, lambda *a: (0, None, False)))
    assert copy.copy(function) is function and copy.deepcopy([function])[0] is function
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(function)
    function.remake = (divmod, (7, 2))
    assert pickle.loads(pickle.dumps(function)) == (3, 1)
    monkeypatch.setitem(globals(), "Unknown", function)
    assert pickle.loads(pickle.dumps(function)) is function


def test_clearing_forgets_the_entries():
    add, misses = summing()
    a = device_put(x3)
    add(a), add(a)
    assert add._cache_size() == 1
    add._clear_cache()
    assert add._cache_size() == 0
    np.testing.assert_array_equal(add(a), x3)
    assert len(misses) == 2


def test_a_dropped_function_is_freed_with_all_it_captured():
    def make(cycle):
        big = Unknown()
        big.array = device_put(x3)

        def user(a):
            return big
        function, _ = summing(consts=(big.array,), fun=user)
        function(device_put(x3)), function(device_put(x3))
        if cycle:
            user.function, function.__wrapped__, big.function = function, user, function
        return function, weakref.ref(big), weakref.ref(function), weakref.ref(big.array)

    for cycle in (False, True):
        function, *references = make(cycle)
        del function
        gc.collect()
        assert [reference() for reference in references] == [None] * 3


def test_functions_with_one_key_share_entries():
    def user(a):
        return a
    (f, f_misses), (g, g_misses) = [summing(fun=user, key=("same",)) for _ in range(2)]
    f(device_put(x3)), g(device_put(x3))
    assert (len(f_misses), len(g_misses)) == (1, 0)


def test_threads_share_a_function():
    add, misses = summing()
    a, wrong = device_put(x3), []

    def work():
        for _ in range(200):
            if not np.array_equal(add(a, a), 2 * x3):
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


# ---- constants, unused arguments, donation ---------------------------------------------------------------------------------

def test_captured_arrays_come_first():
    text = main([array_type((3,), f32)] * 2, "%out = stablehlo.subtract %a0, %a1 : tensor<3xf32>", array_type((3,), f32))
    captured = device_put(np.full(3, 10, "f4"))
    executable = Executable(xla.compile(text, DEVICES[:1]), [captured.aval], [captured.aval], [FIRST], [FIRST],
                            devices=DEVICES[:1], const_args=[captured])
    function = xla.dispatcher("f", lambda a: a, lambda a: (executable([a])[0], executable.fastpath(LEAF), False))
    for _ in range(2):
        np.testing.assert_array_equal(function(device_put(x3)), 10 - x3)


def test_unused_arguments_are_not_passed():
    t = array_type((3,), f32)
    text = main([t, t], "%out = stablehlo.subtract %a0, %a1 : tensor<3xf32>", t)
    function, misses = one_output(text, [t, t, t], t, kept=(True, False, True))
    a, b, c = device_put(x3), device_put(x3 * 100), device_put(np.ones(3, "f4"))
    for out in answers_twice(function, misses, a, b, c):
        np.testing.assert_array_equal(out, x3 - 1)


def test_a_donated_argument_is_deleted_and_says_so(capfd):
    t = array_type((3,), f32)
    text = main([t], "%out = stablehlo.add %a0, %a0 : tensor<3xf32>", t).replace(
        "%a0: tensor<3xf32>", "%a0: tensor<3xf32> {tf.aliasing_output = 0 : i32}")
    function, misses = one_output(text, [t], t)
    first = device_put(x3).copy()
    repr(first), float(np.asarray(first)[0])        # having been looked at does not hold the buffer
    second = function(first)
    third = function(second)
    assert first.is_deleted() and second.is_deleted() and len(misses) == 1
    np.testing.assert_array_equal(third, 4 * x3)
    for use in (np.asarray, device_get, str, lambda a: a.item(), lambda a: a.copy(), copy.copy, pickle.dumps,
                lambda a: a.addressable_shards, lambda a: device_put(a, DEVICES[-1])):
        with pytest.raises(RuntimeError, match=r"Array has been deleted.*float32\[3\]"):
            use(first)
    assert repr(first) == "Array(shape=(3,), dtype=float32, deleted)"
    executable = Executable(xla.compile(text, DEVICES[:1]), [t], [t], [FIRST], [FIRST], devices=DEVICES[:1])
    with pytest.raises(RuntimeError, match=r"Array has been deleted.*float32\[3\]") as caught:
        executable([first])
    assert caught.value.__context__ is None and capfd.readouterr().err == ""                      # nothing that XLA logs
    mine = np.ones(3, "f4")
    for _ in range(2):
        function(mine)
    np.testing.assert_array_equal(mine, np.ones(3))


def test_arguments_on_other_devices():
    if len(DEVICES) < 2:
        pytest.skip("needs two devices")
    add, misses = summing()
    here, there = device_put(x3), device_put(x3, DEVICES[1])
    with pytest.raises(ValueError, match="committed to cpu:1.*cpu:0"):
        add(here, there)
    loose = xla.array_from_shards(there.aval, there.sharding, there._arrays, False)
    for out in answers_twice(add, misses, here, loose):
        assert out.devices() == {DEVICES[0]}
        np.testing.assert_array_equal(out, 2 * x3)
    on_second, misses = summing(device=1, committed=True)
    for out in answers_twice(on_second, misses, there, there):
        assert (out.device, out.committed) == (DEVICES[1], True)


def test_float0_values_are_bool_inside_and_float0_outside():
    t = array_type((3,), dtypes.float0)
    executable = Executable(xla.compile(main([t], "%out = stablehlo.not %a0 : tensor<3xi1>", t), DEVICES[:1]),
                            [t], [t], [FIRST], [FIRST], devices=DEVICES[:1])
    [out] = executable([np.zeros(3, dtypes.float0)])
    assert out.dtype == dtypes.float0 and out.shape == (3,)
    assert executable.fastpath(LEAF) is None


# ---- compiling -----------------------------------------------------------------------------------------------------------------

ADD = main([array_type((3,), f32)] * 2, "%out = stablehlo.add %a0, %a1 : tensor<3xf32>", array_type((3,), f32))


def test_xla_and_mlir_errors_keep_their_messages():
    bad = ADD.replace("%a0, %a1 : tensor<3xf32>", "%a0, %nowhere : tensor<3xf32>")
    with pytest.raises(xla.XlaRuntimeError, match="undeclared SSA value"):
        xla.compile(bad, DEVICES[:1])
    with pytest.raises(ValueError, match="(?s)nowhere"):
        xla.parse_module(bad)
    assert "stablehlo.add" in str(xla.parse_module(ADD))


def test_xla_flags_are_taken_per_program():
    xla.compile(ADD, DEVICES[:1], options={"xla_backend_optimization_level": 0, "xla_cpu_enable_fast_math": False})
    with pytest.raises(xla.XlaRuntimeError, match="xla_no_such_flag"):
        xla.compile(ADD, DEVICES[:1], options={"xla_no_such_flag": True})


def test_inspection():
    executable = xla.compile(ADD, DEVICES[:1])
    assert "add" in xla.hlo_text(executable)
    assert xla.cost_analysis(executable)["flops"] == 3
    assert xla.memory_analysis(executable).output_size_in_bytes == 12


def test_an_executable_survives_serialisation():
    blob = xla.serialize_executable(xla.compile(ADD, DEVICES[:1]))
    t = array_type((3,), f32)
    executable = Executable(xla.deserialize_executable(blob, DEVICES[:1]), [t, t], [t], [FIRST] * 2, [FIRST], devices=DEVICES[:1])
    np.testing.assert_array_equal(executable([x3, x3])[0], 2 * x3)


def test_python_callbacks():
    text = main([array_type((3,), f32)], """%out = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a0)
        {has_side_effect = true, backend_config = "", mhlo.backend_config = {index = 0 : ui64}} : (tensor<3xf32>) -> tensor<3xf32>""",
                array_type((3,), f32))
    t = array_type((3,), f32)
    executable = Executable(xla.compile(text, DEVICES[:1], host_callbacks=[lambda a: (np.asarray(a) * 3,)]), [t], [t], [FIRST],
                            [FIRST], devices=DEVICES[:1])
    function = xla.dispatcher("f", lambda a: a, lambda a: (executable([a])[0], executable.fastpath(LEAF), False))
    for _ in range(2):
        np.testing.assert_array_equal(function(x3), 3 * x3)


def test_lapack():
    xla.register_lapack(), xla.register_lapack()
    t = array_type((2, 2), f32)
    text = main([t], """%r:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a0) {backend_config = "", mhlo.backend_config = {uplo = 76 : ui8},
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>],
        output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>]}
        : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
        %out = stablehlo.add %r#0, %r#0 : tensor<2x2xf32>""", t)
    matrix = np.array([[4, 2], [2, 3]], "f4")
    executable = Executable(xla.compile(text, DEVICES[:1]), [t], [t], [FIRST], [FIRST], devices=DEVICES[:1])
    np.testing.assert_allclose(np.tril(executable([matrix])[0]) / 2, np.linalg.cholesky(matrix), rtol=1e-6)


def test_user_frames_are_captured():
    def where():
        return xla.Traceback.capture()
    frames = xla.Traceback.frames(where())
    file, function, line, _ = frames[0]
    assert file == __file__ and function.endswith("where") and line == where.__code__.co_firstlineno + 1


# ---- several devices -----------------------------------------------------------------------------------------------------------

def replicas(part, groups, n):
    """n replicas: (psum over `groups` of the first argument, sum of both)."""
    t, size = array_type(part, f32).mlir, len(groups[0])
    return f"""module @p attributes {{mhlo.num_replicas = {n} : i32, mhlo.num_partitions = 1 : i32}} {{
      func.func public @main(%a: {t}, %b: {t}) -> ({t}, {t}) {{
        %r = "stablehlo.all_reduce"(%a) ({{ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
            %z = stablehlo.add %x, %y : tensor<f32>
            stablehlo.return %z : tensor<f32> }}) {{replica_groups = dense<{groups}> : tensor<{len(groups)}x{size}xi64>}} : ({t}) -> {t}
        %0 = stablehlo.add %a, %b : {t}
        return %r, %0 : {t}, {t} }} }}"""


@four_devices
@pytest.mark.parametrize("grid, dims, shape, groups, reduced", [
    ((4,), (0,), (4, 2), [[0, 1, 2, 3]], lambda x: np.broadcast_to(x.sum(0), x.shape)),
    ((2, 2), (0, 1), (2, 2, 3), [[0, 1], [2, 3]], lambda x: np.broadcast_to(x.sum(1, keepdims=True), x.shape)),
    ((2, 2), (1, 0), (2, 2), [[0, 1], [2, 3]], lambda x: np.broadcast_to(x.sum(0), x.shape)),
    ((2, 2), (0, None), (2, 2), [[0, 2], [1, 3]], lambda x: np.broadcast_to(x.sum(0), x.shape)),
    ((2, 2), (None, 0), (2, 2), [[0, 1], [2, 3]], lambda x: np.broadcast_to(x.sum(0), x.shape)),
    ((2, 2), (None, None), (2, 2), [[0, 1], [2, 3]], lambda x: 2 * x)])
def test_replicas_take_the_fast_path_in_and_out(grid, dims, shape, groups, reduced, monkeypatch):
    four = DEVICES[:4]
    split = pmap_sharding(four, grid, dims, len(shape))
    t = array_type(shape, f32)
    executable = Executable(xla.compile(replicas(split.shard_shape(shape), groups, 4), four, num_replicas=4), [t, t], [t, t],
                            [split, split], [split, split], devices=four, committed=True)
    placed, misses = [], []
    monkeypatch.setattr(xla, "_place_argument", lambda v, s, place=xla._place_argument: (placed.append(s), place(v, s))[1])
    pair = xla.registry.flatten((0, 0))[1]
    function = xla.dispatcher("f", lambda a, b: a, lambda *a: (misses.append(a) or tuple(executable(a)), executable.fastpath(pair, guarded=True), False))
    host = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    x = device_put(host, split)
    assert x.sharding is split and x.is_fully_replicated == (dims == (None, None))
    np.testing.assert_array_equal(x, host)
    _, total = function(x, x)
    out, total = function(total, x)
    assert (len(misses), len(placed)) == (1, 0)
    assert out.sharding is split and out.committed
    np.testing.assert_array_equal(out, reduced(2 * host))
    np.testing.assert_array_equal(total, 3 * host)
    function(host, host)                                        # NumPy goes through `place`, once for each argument
    out, total = function(host, host)
    np.testing.assert_array_equal(total, 2 * host)
    assert len(misses) == 2 and placed == [split] * 2


@four_devices
def test_unused_and_captured_values_of_replicas_keep_their_shardings():
    four, t = DEVICES[:4], array_type((4, 2), f32)
    split, whole = pmap_sharding(four, ndim=2), pmap_sharding(four, None, (None,), 2)
    text = """module @p attributes {mhlo.num_replicas = 4 : i32, mhlo.num_partitions = 1 : i32} {
      func.func public @main(%c: tensor<2xf32>, %a: tensor<1x2xf32>) -> tensor<1x2xf32> {
        %0 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
        %1 = stablehlo.subtract %0, %a : tensor<1x2xf32>
        return %1 : tensor<1x2xf32> } }"""
    executable = Executable(xla.compile(text, four, num_replicas=4), [t, t], [t], [whole, split], [split], devices=four,
                            kept=(False, True), const_args=[device_put(np.array([100, 200], "f4"))], committed=True)
    misses = []
    function = xla.dispatcher("f", lambda *a: a, lambda *a: (misses.append(a) or executable(a)[0], executable.fastpath(LEAF, guarded=True), False))
    host = np.arange(8, dtype="f4").reshape(4, 2)
    for args in [(host, host), (device_put(host, split),) * 2, (device_put(host),) * 2, (device_put(host, DEVICES[1]),) * 2]:
        for out in answers_twice(function, misses, *args):
            np.testing.assert_array_equal(out, np.array([100, 200]) - host)


@four_devices
def test_pmap_shardings_are_interned_and_say_who_holds_what():
    a, b, c, d = four = DEVICES[:4]
    s = pmap_sharding(four, (2, 2), (1, None), 2)
    assert s is pmap_sharding(list(four), [2, 2], [1, None], 2) and isinstance(s, xla.GSPMDSharding)
    assert s == PmapSharding(tuple(four), (2, 2), (1, None), 2) and hash(s) == hash(PmapSharding(tuple(four), (2, 2), (1, None), 2))
    assert s != pmap_sharding(four, (2, 2), (0, None), 2) and s != FIRST
    assert s.shard_shape((3, 4)) == (3, 2)
    left, right = (slice(None), slice(0, 2)), (slice(None), slice(2, 4))
    assert s.devices_indices_map((3, 4)) == {a: left, b: left, c: right, d: right}
    assert s.device_set == set(four) and s.num_devices == 4 and s.is_fully_addressable and not s.is_fully_replicated
    assert s.is_equivalent_to(PmapSharding(tuple(four), (2, 2), (1, None), 2), 2) and not s.is_equivalent_to(FIRST, 2)
    assert repr(s) == (
        "PmapSharding(grid=[2:dimension 1, 2:replicated], devices=[cpu:0, cpu:1, cpu:2, cpu:3])")
    with pytest.raises(ValueError, match="cannot be split into 2"):
        s.shard_shape((2, 3))
    with pytest.raises(ValueError, match="do not fill"):
        pmap_sharding(four, (3,), (0,), 1)
    with pytest.raises(ValueError, match="different dimensions"):
        pmap_sharding(four, (2, 2), (0, 0), 2)


@four_devices
def test_shards_of_an_array():
    four = DEVICES[:4]
    host = np.arange(8, dtype="f4").reshape(2, 4)
    x = device_put(host, pmap_sharding(four, (2, 2), (0, None), 2))
    assert [(s.device, s.replica_id, s.data.device, s.data.shape) for s in x.addressable_shards] == [
        (d, r, d, (1, 4)) for d, r in zip(four, (0, 1, 0, 1))]
    for shard in x.global_shards:
        np.testing.assert_array_equal(shard.data, host[shard.index])
    np.testing.assert_array_equal(x.addressable_data(2), host[1:])
    assert x.devices() == set(four) and x.device is x.sharding
    again = device_put(x, DEVICES[1])
    np.testing.assert_array_equal(again, host)
    np.testing.assert_array_equal(device_put(x, pmap_sharding(four, None, (1,), 2)), host)
    assert float(np.asarray(x.copy())[1, 3]) == 7 and x.copy().sharding is x.sharding


# ---- arrays --------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("value, text", [
    (np.array([1, 2], "f4"), "Array([1., 2.], dtype=float32)"), (1.5, "Array(1.5, dtype=float32, weak_type=True)"),
    (3, "Array(3, dtype=int32, weak_type=True)"), (True, "Array(True, dtype=bool)"), (2j, "Array(0.+2.j, dtype=complex64, weak_type=True)"),
    (np.zeros((0, 3), "f4"), "Array([], shape=(0, 3), dtype=float32)"), (np.zeros(0, "i4"), "Array([], shape=(0,), dtype=int32)"),
    (np.arange(17), "Array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16],\n      dtype=int32)"),
    (np.ones((2, 2), dtypes.bfloat16), "Array([[1, 1],\n       [1, 1]], dtype=bfloat16)"),
    (np.arange(2000), "Array([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int32)")])
def test_repr(value, text):
    assert repr(device_put(value)) == text


def test_text():
    assert str(device_put(x3)) == "[0. 1. 2.]" and str(device_put(1.5)) == "1.5"
    assert f"{device_put(1.5):.3f}" == "1.500" and f"{device_put(x3)}" == "[0. 1. 2.]"
    with pytest.raises(TypeError):
        f"{device_put(x3):.3f}"


def test_facts_of_an_array():
    x = device_put(np.ones((2, 3), dtypes.bfloat16))
    assert (x.shape, x.ndim, x.size, x.dtype, x.itemsize, x.nbytes, len(x)) == ((2, 3), 2, 6, dtypes.bfloat16, 2, 12, 2)
    assert x.aval is array_type((2, 3), dtypes.bfloat16) and not x.weak_type
    assert x.sharding == FIRST and x.device == DEVICES[0] and x.devices() == {DEVICES[0]} and not x.committed
    assert x.is_fully_addressable and x.is_fully_replicated and x.block_until_ready() is x and x.is_ready()
    x.copy_to_host_async()
    [shard] = x.addressable_shards
    assert shard.index == (slice(None), slice(None)) and shard.replica_id == 0 and shard.data.device == DEVICES[0]
    assert isinstance(x.unsafe_buffer_pointer(), int)
    assert x.on_device_size_in_bytes() == 12 and x.platform() == "cpu"
    assert xla.ArrayImpl.__array_priority__ == 100
    assert isinstance(x, Array) and issubclass(xla.ArrayImpl, Array) and not isinstance(np.ones(3), Array)
    with pytest.raises(TypeError):
        Array()


def test_more_classes_may_be_arrays():
    class Traced:
        pass
    Array.register(Traced)
    assert isinstance(Traced(), Array) and isinstance(device_put(1), Array)


def test_conversion_to_python():
    x = device_put(np.arange(3, dtype="i4"))
    assert (x.item(1), x.tolist(), x.tobytes()) == (1, [0, 1, 2], np.arange(3, dtype="i4").tobytes())
    three = device_put(np.int32(3))
    assert (int(three), float(three), complex(three), bool(three), [0, 1, 2, 3, 4][three], range(9)[three]) == (3, 3.0, 3 + 0j, True, 3, 3)
    assert device_put(np.int32(3).astype(dtypes.int4)).__index__() == 3
    for convert in (int, float, complex):
        with pytest.raises(TypeError, match="without dimensions"):
            convert(x)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    assert bool(device_put(np.ones((1, 1))))
    for not_index in (x, device_put(1.5)):
        with pytest.raises(TypeError, match="index"):
            not_index.__index__()
    with pytest.raises(TypeError, match="len"):
        len(three)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(ValueError):
        x.item()


def test_the_host_copy_is_read_only_and_kept():
    x = device_put(x3)
    host = np.asarray(x)
    assert not host.flags.writeable and not device_get(x).flags.writeable
    own = np.array(x)
    own[0] = 9
    assert np.asarray(x)[0] == 0
    assert np.asarray(x, dtype="f8").dtype == "f8" and x.__array__(copy=True).flags.writeable
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copy"):
            np.asarray(x, dtype="i4", copy=False)
    b = device_put(x3.astype(dtypes.bfloat16))
    assert np.asarray(b).dtype == dtypes.bfloat16 and not np.asarray(b).flags.writeable
    assert device_get("text") == "text"


@pytest.mark.parametrize("size", [3, 1000, 1_000_000])
def test_what_is_written_to_the_source_later_never_shows(size):
    source = np.ones(size, "f4")
    arrays = []
    for _ in range(5):
        source[:] = 1
        arrays.append(device_put(source))
        source[:] = 2
    for x in arrays:
        assert np.all(np.asarray(x) == 1)


def test_device_put():
    assert device_put(2.0).weak_type and not device_put(np.float32(2)).weak_type and not device_put(True).weak_type
    assert device_put(np.float64(2)).dtype == f32 and device_put(np.int64(2)).dtype == "i4"
    x = device_put(x3)
    assert device_put(x) is x
    last = device_put(x, DEVICES[-1])
    assert last.device == DEVICES[-1] and last.committed and last.aval is x.aval
    np.testing.assert_array_equal(last, x3)
    assert device_put(last) is last and device_put(last, DEVICES[-1]) is last and device_put(last, on_device(DEVICES[-1])) is last
    assert device_put(x, DEVICES[0]).committed and device_put(x, "cpu").device == DEVICES[0]
    weak = device_put(device_put(2.0), DEVICES[-1])
    assert weak.weak_type and float(weak) == 2
    with pytest.raises(TypeError, match="str"):
        device_put("text")
    with pytest.raises(TypeError, match="Device"):
        device_put(1.0, 3)
    with pytest.raises(OverflowError):
        device_put(2 ** 31)


def test_copies_and_pickles():
    x = device_put(x3)
    for y in (x.copy(), copy.copy(x), copy.deepcopy(x), copy.deepcopy({"a": [x]})["a"][0]):
        assert y is not x and y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
        np.testing.assert_array_equal(y, x3)
    weak = device_put(2.0)
    for y in (pickle.loads(pickle.dumps(weak)), weak.copy()):
        assert y.aval is weak.aval and float(y) == 2
    b = pickle.loads(pickle.dumps(device_put(x3.astype(dtypes.bfloat16))))
    assert b.dtype == dtypes.bfloat16 and not b.committed
    reference = weakref.ref(x)
    del x
    assert reference() is None


def test_dlpack():
    x = device_put(x3)
    assert tuple(x.__dlpack_device__()) == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(x), x3)
    back = xla.from_dlpack(x.__dlpack__(), DEVICES[0])
    np.testing.assert_array_equal(np.asarray(back), x3)


def test_delete():
    x = device_put(x3)
    x.delete()
    assert x.is_deleted() and x.shape == (3,)
    with pytest.raises(RuntimeError, match=r"Array has been deleted.*float32\[3\]"):
        np.asarray(x)


# ---- devices -------------------------------------------------------------------------------------------------------------------

def test_devices():
    assert devices.device_count() == len(DEVICES) == devices.local_device_count() == len(devices.local_devices())
    assert devices.process_index() == 0 and devices.process_count() == 1 and devices.default_backend() == "cpu"
    assert devices.local_devices(0) == DEVICES
    with pytest.raises(RuntimeError, match="'nowhere'.*available.*cpu"):
        devices.devices("nowhere")
    with pytest.raises(ValueError, match="process_index 3"):
        devices.local_devices(3)
    with pytest.raises(RuntimeError, match="exists already"):
        xla.set_client_options("cpu", num_devices=2)


def test_the_default_device():
    with devices.default_device(DEVICES[-1]):
        assert device_put(1.0).device == DEVICES[-1] and not device_put(1.0).committed
        with devices.default_device(None):
            assert device_put(1.0).device == DEVICES[0]
        with devices.default_device("cpu"):
            assert device_put(1.0).device == DEVICES[0]
        assert devices.current_device() == DEVICES[-1]
    assert devices.current_device() == DEVICES[0]
    devices.set_default_device(DEVICES[-1])
    try:
        seen = []
        thread = threading.Thread(target=lambda: seen.append(devices.current_device()))
        thread.start(), thread.join()
        assert seen == [DEVICES[-1]]
    finally:
        devices.set_default_device(None)


def python(code, **env):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)


def test_the_environment_chooses_platforms_and_counts():
    code = "from mini_jax.runtime import devices; print(devices.default_backend(), devices.device_count())"
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    base = {"PYTHONPATH": root, "XLA_FLAGS": ""}
    assert python(code, **base, JAX_PLATFORMS="cpu", MINI_JAX_NUM_CPU_DEVICES="3").stdout.split() == ["cpu", "3"]
    assert python(code, **{**base, "XLA_FLAGS": "--xla_force_host_platform_device_count=5"}).stdout.split() == ["cpu", "5"]
    bad = python(code, **base, MINI_JAX_PLATFORMS="warp")
    assert "unknown platform 'warp'" in bad.stderr and "available: cpu" in bad.stderr


def test_jax_is_kept_out_of_the_process(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("loaded = True\n")
    path = os.pathsep.join([root, str(tmp_path)])
    before = python("import jax, mini_jax.runtime.xla", PYTHONPATH=path)
    assert "ImportError: mini_jax and jax cannot share a process" in before.stderr
    after = python("import mini_jax.runtime.xla, importlib.util\nassert importlib.util.find_spec('jax')\nimport jax", PYTHONPATH=path)
    assert "ImportError: mini_jax and jax cannot share a process" in after.stderr


def test_importing_makes_no_client_and_loads_no_mlir():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = ("import sys; from mini_jax.runtime import xla, devices, array, executable\n"
            "assert not xla._clients, 'client'; assert not [m for m in sys.modules if m.startswith(('jaxlib.mlir', 'jaxlib.cpu'))]")
    assert python(code, PYTHONPATH=root).returncode == 0


def test_many_unfinished_collective_steps_end(tmp_path):
    """More launches than XLA lets run at once, each with a collective over all devices: none may wait for a thread forever."""
    import subprocess
    (tmp_path / "steps.py").write_text(
        "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'\n"
        "import mini_jax as jax, mini_jax.numpy as jnp\n"
        "step = jax.pmap(lambda x: x + 1e-9 * jax.lax.psum(x, 'i'), axis_name='i')\n"
        "x = jnp.ones((8, 100))\n"
        "for _ in range(500): x = step(x)\n"
        "jax.block_until_ready(x)\n")
    subprocess.run([sys.executable, str(tmp_path / "steps.py")], check=True, timeout=120)
