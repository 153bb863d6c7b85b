"""What is prepared beside a compilation, and what is paused for it."""
import gc
import threading

import pytest

import mini_jax as jax
from mini_jax.core.collector import paused
from mini_jax.runtime import warmup, xla

PRODUCT = "%2 = stablehlo.dot_general %0, %1, contracting_dims = [{0}] x [0] : (tensor<4x4x{1}>, tensor<4x4x{1}>) -> tensor<4x4x{1}>\n"
EIGENS = {xla.YNNPACK_RUNS: "LIBRARY_FUSION_TYPE_REDUCE"}


def started(text, options):
    """The thread that `warmup.products` starts."""
    before = set(threading.enumerate())
    warmup.products(text, options, jax.devices("cpu")[0])
    return [thread for thread in threading.enumerate() if thread not in before]


@pytest.fixture
def anew(monkeypatch):
    monkeypatch.setattr(warmup, "_begun", threading.Lock())
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    yield
    assert not raised


@pytest.mark.parametrize("text, options", [(PRODUCT.format(0, "f32"), {}), (PRODUCT.format(1, "f32"), EIGENS)])
def test_a_product_is_run_beside_the_first_long_compilation_of_one_by_eigen(anew, text, options):
    long = text * (1 + warmup.LONG // len(text))
    thread, = started(long, options)
    thread.join(60)
    assert not thread.is_alive() and started(long, options) == []


@pytest.mark.parametrize("text, options", [(PRODUCT.format(1, "f32"), {}), (PRODUCT.format(0, "f64"), EIGENS), ("%0 = stablehlo.add\n", EIGENS)])
def test_none_is_run_where_no_product_is_by_eigen(anew, text, options):
    assert started(text * (1 + warmup.LONG // len(text)), options) == []


def test_none_is_run_for_short_programs(anew):
    assert started(PRODUCT.format(0, "f32"), EIGENS) == []


def test_guards_of_transfers_are_not_about_it(anew):
    jax.config.update("jax_transfer_guard", "disallow_explicit")
    try:
        thread, = started(PRODUCT.format(0, "f32") * warmup.LONG, {})
        thread.join(60)
    finally:
        jax.config.update("jax_transfer_guard", None)


def test_what_compiles_while_python_ends_which_starts_no_more_threads_compiles_without_it(anew, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert started(PRODUCT.format(0, "f32") * warmup.LONG, {}) == [] and warmup._begun.locked()


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_of_cycles_is_paused_and_left_as_it_was(before):
    was = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        seen = []

        def traced(x):
            seen.append(gc.isenabled())
            return x + 1
        jax.jit(traced)(1.0)
        with pytest.raises(ZeroDivisionError), paused():
            1 / 0
        assert seen == [False] and gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
