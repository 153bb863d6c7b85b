"""Options: names, values, threads, blocks, decorators, the environment, and the key of what they change."""
import os
import subprocess
import sys
import threading

import pytest

from mini_jax.core import config as module
from mini_jax.core.config import config, options


@pytest.fixture(autouse=True)
def restored():
    before = {name: option.state.get_global() for name, option in options.items()}
    yield
    for name, option in options.items():
        option.state.set_global(before.get(name, option.default))
        for watcher in option.watchers:                  # what C++ is told, say of transfers
            watcher()


def test_names_with_and_without_prefixes():
    for name in ("jax_enable_x64", "mini_jax_enable_x64", "enable_x64"):
        config.update(name, True)
        assert config.jax_enable_x64 is config.enable_x64 is config.x64_enabled is config.read("jax_enable_x64") is True
        config.update(name, False)
        assert not config.enable_x64
    config.jax_debug_nans = True
    assert config.values["jax_debug_nans"] is True


def test_unknown_names_name_near_ones():
    for act in (lambda: config.update("jax_enable_x46", True), lambda: config.enable_x46):
        with pytest.raises(AttributeError, match="enable_x64"):
            act()
    assert not hasattr(config, "zzzzzz")


def test_options_of_jax_without_meaning_here_are_accepted():
    config.update("jax_use_shardy_partitioner", True)
    assert config.jax_use_shardy_partitioner is True and "use_shardy" not in repr(config)


@pytest.mark.parametrize("name, value, error", [
    ("enable_x64", "yes", TypeError), ("enable_x64", None, TypeError), ("numpy_rank_promotion", "perhaps", ValueError),
    ("default_matmul_precision", "low", ValueError), ("jit_cache_size", "many", TypeError), ("default_prng_impl", None, ValueError)])
def test_values_are_checked(name, value, error):
    with pytest.raises(error, match=name):
        config.update(name, value)


def test_blocks_nest_and_restore_on_exceptions():
    assert config.default_matmul_precision is None
    with pytest.raises(ZeroDivisionError):
        with module.default_matmul_precision("highest"):
            with module.default_matmul_precision(None):
                assert config.default_matmul_precision is None
            assert config.default_matmul_precision == "highest"
            1 / 0
    assert config.default_matmul_precision is None
    block = module.enable_x64(True)
    with block, block:
        assert config.enable_x64
    assert not config.enable_x64


def test_as_decorator_of_recursive_functions():
    @module.numpy_rank_promotion("raise")
    def depth(n):
        assert config.numpy_rank_promotion == "raise"
        return 0 if n == 0 else 1 + depth(n - 1)
    assert depth(3) == 3 and config.numpy_rank_promotion == "allow"


def test_yes_no_options_need_no_argument():
    with module.disable_jit(), module.checking_leaks(), module.log_compiles():
        assert config.disable_jit and config.check_tracer_leaks and config.log_compiles
    with pytest.raises(TypeError):
        module.default_matmul_precision()


def test_an_option_is_not_its_value():
    with pytest.raises(TypeError, match="config.enable_x64"):
        if module.enable_x64:
            pass


def _in_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def test_threads_see_the_global_value_and_not_others_blocks():
    with module.default_prng_impl("rbg"):
        assert _in_thread(lambda: config.default_prng_impl) == "threefry2x32"
        _in_thread(lambda: config.update("default_prng_impl", "unsafe_rbg"))
        assert config.default_prng_impl == "rbg"
    assert config.default_prng_impl == "unsafe_rbg" == _in_thread(lambda: config.default_prng_impl)


def test_trace_key_is_equal_exactly_when_the_traced_options_are():
    key = module.trace_key()
    assert key == module.trace_key() and hash(key) == hash(module.trace_key())
    for name, value in [("enable_x64", True), ("default_matmul_precision", "high"), ("numpy_dtype_promotion", "strict"),
                        ("outline", "off"), ("default_device", "cpu"), ("disable_jit", True), ("debug_nans", True)]:
        before = options[name].value
        with options[name](value):
            changed = module.trace_key()
            assert changed != key
            with options[name](before):
                assert module.trace_key() == key
        assert module.trace_key() == key
    with module.log_compiles(), options["compilation_cache_dir"]("/tmp"):
        assert module.trace_key() == key
    config.update("enable_x64", True)
    assert module.trace_key() != key and _in_thread(module.trace_key) == module.trace_key()


def test_watchers_are_told_of_every_change():
    option, seen = options["transfer_guard"], []
    option.watch(lambda: seen.append(option.value))
    try:
        with option("log"):
            pass
        config.update("jax_transfer_guard", "disallow")
    finally:
        option.watchers.pop()                            # ours: the others go on telling C++
    assert seen == ["log", None, "disallow"]


def test_every_option_is_documented_and_its_default_is_allowed():
    for name, option in options.items():
        assert option.doc and option.check(option.default) == option.default, name
        assert option.doc in repr(option)


def test_environment_variables():
    code = ("from mini_jax.core.config import config as c; "
            "print(c.enable_x64, c.debug_nans, c.default_matmul_precision, c.jit_cache_size, c.platforms)")
    environment = {**os.environ, "JAX_ENABLE_X64": "1", "MINI_JAX_DEBUG_NANS": "true", "JAX_DEFAULT_MATMUL_PRECISION": "highest",
                   "JAX_JIT_CACHE_SIZE": "7", "JAX_PLATFORMS": "cpu,cuda", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.stdout.split() == ["True", "True", "highest", "7", "cpu,cuda"], run.stderr
    run = subprocess.run([sys.executable, "-c", code], env={**environment, "JAX_ENABLE_X64": "maybe"}, capture_output=True, text=True)
    assert "JAX_ENABLE_X64='maybe'" in run.stderr
