"""Programs are kept by function, for as long as it lives, and bounded all together: those used last stay."""
import functools
import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core import program, types
from mini_jax.runtime import caches, xla
from mini_jax.transforms import jit as jit_file
from mini_jax.transforms.vmap import Axis, batch_jaxpr

x = np.arange(1, 5, dtype=np.float32)


@pytest.fixture
def compiled(monkeypatch):
    """The names of the programs that XLA has been given."""
    names, compile = [], xla.compile
    monkeypatch.setattr(xla, "compile", lambda text, *args, **kwargs: names.append(text.split("@")[1].split()[0]) or compile(text, *args, **kwargs))
    return names


@pytest.fixture
def capacity():
    """What sets it. Afterwards it is what it was."""
    before = jax.config.jit_cache_size
    yield lambda count: jax.config.update("jit_cache_size", count)
    jax.config.update("jit_cache_size", before)


def counting(fun):
    """`fun` with `runs`, a list that grows each time that Python runs it."""
    runs = []

    def counted(*args):
        runs.append(1)
        return fun(*args)
    counted.runs = runs
    return counted


def named(number):
    """A function of its own name and program."""
    def fun(x):
        return x * number
    fun.__name__ = f"times_{number}"
    return fun


# --- as long as the function lives ----------------------------------------------------------------------------------------------

APPLIED = {
    "jit": lambda f: jax.jit(f)(x),
    "pmap": lambda f: jax.pmap(f)(x[None]),
    "vmap of jit": lambda f: jax.vmap(jax.jit(f))(x[None]),
    "grad of jit": lambda f: jax.grad(lambda x: jax.jit(f)(x).sum())(x),
    "hessian of jit": lambda f: jax.hessian(lambda x: jax.jit(f)(x).sum())(x),
    "jit in jit": lambda f: jax.jit(lambda x: jax.jit(f)(x))(x),
    "a call that raises first": lambda f: (pytest.raises(TypeError, jax.jit(f), "no array"), jax.jit(f)(x)),
    "lower and compile": lambda f: jax.jit(f).lower(x).compile()(x),
    "scan": lambda f: lax.scan(f.step, 0.0, x),
    "grad of scan": lambda f: jax.grad(lambda x: lax.scan(f.step, 0.0, x)[0])(x),
    "shard_map": lambda f: jax.shard_map(f, mesh=jax.make_mesh((2,), ("i",)), in_specs=jax.P("i"), out_specs=jax.P("i"))(x),
    "ref": lambda f: jax.jit(f.write)(jax.new_ref(x)),
}


def with_big_array():
    """A function that captures an array; with it the same as the body of a scan, and for a ref."""
    array = jnp.ones(1000)
    fun = counting(lambda x: jnp.sin(x) * array[0])
    fun.step = counting(lambda c, x: (c + jnp.sin(x) * array[0], c))
    fun.write = counting(lambda ref: ref.__setitem__(..., ref[...] * array[0]))
    return fun, array


def programs_of(fun):
    return [entry.value.jaxpr for entry in jit_file.programs.of(fun).values() if type(entry) is caches._Entry]


@pytest.mark.parametrize("apply", APPLIED.values(), ids=APPLIED)
def test_a_function_transformed_twice_is_traced_and_compiled_once(apply, compiled):
    fun, _ = with_big_array()
    apply(fun)
    runs = lambda: [len(f.runs) for f in (fun, fun.step, fun.write)]
    before = runs(), len(compiled)
    apply(fun)
    assert (runs(), len(compiled)) == before and sum(runs()) == 1


def with_rules(f):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * f(x),))
    return g


LET_GO = {
    **APPLIED,
    "custom_vjp": lambda f: jax.grad(jax.jit(lambda x: with_rules(f)(x).sum()))(x),
    "checkpoint": lambda f: jax.grad(jax.jit(jax.checkpoint(lambda x: jnp.sin(f(x)).sum())))(x),
    "cond of vmap": lambda f: jax.vmap(lambda x: lax.cond(x > 2, f, lambda x: x, x))(x),
    "a call that returns no array": lambda f: pytest.raises(TypeError, jax.jit(lambda x: f), x),
}


@pytest.mark.parametrize("apply", LET_GO.values(), ids=LET_GO)
def test_with_a_function_all_that_was_made_of_it_goes_at_once(apply):
    apply(with_big_array()[0])                       # what is shared is there now
    gc.collect()
    before = len(caches.recorded), len(caches.executables)
    gc.disable()
    try:
        fun, array = with_big_array()
        apply(fun)
        gone = [weakref.ref(fun), weakref.ref(array), *[weakref.ref(found) for found in programs_of(fun)]]
        del fun, array
        assert [reference() for reference in gone] == [None] * len(gone)
    finally:
        gc.enable()
    assert (len(caches.recorded), len(caches.executables)) == before


def test_methods_are_kept_with_their_object(compiled):
    class Layer:
        def __init__(self, scale):
            self.scale, self.runs = scale, 0

        def __eq__(self, other):                     # so it has no hash
            return True

        def apply(self, x):
            self.runs += 1
            return x * self.scale

        __call__ = apply

    one, two = Layer(jnp.float32(3)), Layer(jnp.float32(5))
    for _ in range(2):
        assert jax.jit(one.apply)(x)[0] == 3 and jax.jit(two.apply)(x)[0] == jax.jit(two)(x)[0] == 5
    assert (one.runs, two.runs) == (1, 1)
    gone, recorded = weakref.ref(one), len(caches.recorded)
    del one
    assert gone() is None and len(caches.recorded) == recorded - 1


def test_callable_objects_are_kept_as_they_compare():
    class Scaled:
        runs = 0

        def __init__(self, by):
            self.by = by

        def __hash__(self):
            return hash(self.by)

        def __eq__(self, other):
            return self.by == other.by

        def __call__(self, x):
            Scaled.runs += 1
            return x * self.by

    first = Scaled(2.0)
    assert jax.jit(first)(x)[1] == jax.jit(Scaled(2.0))(x)[1] == 4 and jax.jit(Scaled(3.0))(x)[1] == 6
    assert Scaled.runs == 2


# --- made anew -----------------------------------------------------------------------------------------------------------------------

MADE_ANEW = {
    "jit": lambda c: jax.jit(lambda x: jnp.cos(x) * c)(x),
    "partial": lambda c: jax.jit(functools.partial(lambda c, x: jnp.cos(x) * c, c))(x),
    "jit of grad": lambda c: jax.jit(jax.grad(lambda x: (jnp.cos(x) * c).sum()))(x),
    "pmap": lambda c: jax.pmap(lambda x: jnp.cos(x) * c)(x[None]),
    "scan": lambda c: lax.scan(lambda carry, x: (carry + x * c, carry), 0.0, x)[0],
    "ref": lambda c: (ref := jax.new_ref(x), jax.jit(lambda ref: ref.__setitem__(..., ref[...] * c))(ref), ref[...])[2],
}


@pytest.mark.parametrize("make", MADE_ANEW.values(), ids=MADE_ANEW)
def test_a_function_made_anew_each_time_is_compiled_once(make, compiled):
    two, three = jnp.float32(2), jnp.float32(3)
    first = np.asarray(make(two))
    count = len(compiled)
    np.testing.assert_allclose(make(three), first * 1.5, rtol=1e-6)
    assert len(compiled) == count                    # though what it captures has another value


def test_what_differs_in_anything_but_captured_values_has_code_of_its_own(compiled):
    device = jax.devices()[1]
    for make in (lambda: jax.jit(lambda x: x * 2.5), lambda: jax.jit(lambda x: x * 3.5), lambda: jax.jit(lambda x: x * 2.5, donate_argnums=0),
                 lambda: jax.jit(lambda x: x * 2.5, device=device), lambda: jax.jit(lambda x: x * 2.5, compiler_options={"xla_cpu_enable_fast_min_max": True})):
        for _ in range(2):
            make()(jnp.asarray(x))
    assert compiled.count("jit__lambda_") == 5


def test_functions_of_python_that_programs_call_are_each_programs_own():
    def run(add):
        return jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) + add, x, x))(x)
    assert run(np.float32(1))[0] == 2 and run(np.float32(5))[0] == 6


# --- bounded together ---------------------------------------------------------------------------------------------------------------------

def test_the_least_recently_used_goes_first(capacity, compiled):
    array = jax.device_put(x)
    capacity(3)
    one, two, three, four = [jax.jit(named(n)) for n in (1, 2, 3, 4)]
    one(array), two(array), three(array)
    for _ in range(5):
        one(array)                                   # most of them by C++, behind Python's back
    four(array)
    del compiled[:]
    one(array), three(array), four(array)
    assert compiled == []
    np.testing.assert_array_equal(two(array), 2 * x)
    assert compiled == ["jit_times_2"]


def test_what_is_in_use_stays_whatever_else_comes(capacity, compiled):
    array = jax.device_put(x)
    capacity(16)
    hot = jax.jit(named(99))
    for n in range(60):
        hot(array), hot(array)
        jax.make_jaxpr(named(n))(array)              # and what is only recorded
        if n % 2:
            jax.jit(named(n))(array)
    assert compiled.count("jit_times_99") == 1 and len(compiled) > 2 * 16 - 3


def test_the_bound_holds_for_many_functions_of_many_shapes(capacity):
    capacity(40)
    functions = [(lambda x: x * 2.5) for _ in range(1000)]
    for i, fun in enumerate(functions):
        for n in (1, 2):
            jax.eval_shape(fun, jax.ShapeDtypeStruct((n,), np.float32))
        if i % 10 == 0:
            jax.jit(fun)(x[:1 + i % 2])
    assert len(caches.recorded) <= 40 and len(caches.executables) <= 40
    assert sum([len(programs_of(fun)) for fun in functions]) <= 40
    capacity(10)
    assert len(caches.recorded) <= 10 >= len(caches.executables)          # others may have gone with what other tests left


def test_nothing_holds_what_was_thrown_out(capacity):
    gc.collect()
    live = lambda: len(xla.client().live_executables())
    array = jax.device_put(x)
    capacity(4)
    functions = [jax.jit(named(n)) for n in range(9)]
    for fun in functions:
        fun(array), fun(array)
    array + array, jnp.sin(array)
    assert live() <= 4 + 1                           # XLA's code of one more is kept for what is made anew
    for n, fun in enumerate(functions):
        np.testing.assert_array_equal(fun(array), n * x)


def test_a_capacity_of_one_is_enough_to_work(capacity):
    capacity(1)
    f = lambda x: jnp.sin(x) * 2
    for _ in range(2):
        np.testing.assert_allclose(jax.jit(f)(x), 2 * np.sin(x), rtol=1e-5)
        np.testing.assert_allclose(jax.grad(lambda x: jax.jit(f)(x).sum())(x), 2 * np.cos(x), rtol=1e-5)
        np.testing.assert_allclose(jax.vmap(jax.grad(jax.jit(lambda x: f(x) * x)))(x), 2 * np.sin(x) + 2 * x * np.cos(x), rtol=1e-5)
        np.testing.assert_allclose(jax.pmap(f)(x), 2 * np.sin(x), rtol=1e-5)
        np.testing.assert_allclose(lax.while_loop(lambda v: v < 100, lambda v: v * 2, 3), 192)
        ref = jax.new_ref(x)
        jax.jit(lambda: ref.__setitem__(..., ref[...] + 1))()
        np.testing.assert_allclose(ref[...] + jnp.asarray(x)[::-1], 6)


def test_one_function_of_many_batch_sizes_keeps_a_bounded_number_of_programs(monkeypatch):
    monkeypatch.setattr(program, "_MOST", 20)
    jaxpr = jax.make_jaxpr(lambda x: x * 2.5)(x).jaxpr
    for size in range(1, 60):
        assert batch_jaxpr(jaxpr, Axis(size, None), (0,)).jaxpr.in_types[0].shape == (size, 4)
    assert len(jaxpr.memo) <= 20


def test_types_are_not_kept_for_ever():
    for n in range(20_000):
        types.array_type((n, 7), np.dtype(np.float32))
    gc.collect()
    assert len(types._recent) <= 8193 and len(types._types) <= len(types._recent) + 1000


# --- forgetting -----------------------------------------------------------------------------------------------------------------------------

def test_clear_caches_forgets_everything_and_everything_works_again(compiled):
    f = counting(lambda x: jnp.cos(x) + 0.25)
    jitted, loop = jax.jit(f), lambda: lax.fori_loop(0, 3, lambda i, v: v + 0.125, x)
    before = jitted(x), loop(), jnp.sinh(x)
    jax.clear_caches()
    assert len(caches.recorded) == len(caches.executables) == len(caches._code) == jitted._cache_size() == 0
    count = len(compiled)
    after = jitted(x), loop(), jnp.sinh(x)
    assert len(f.runs) == 2 and len(compiled) == count + 3
    np.testing.assert_array_equal(before, after)


def test_clear_cache_forgets_one_function():
    f, g = counting(lambda x: x + 1), counting(lambda x: x + 2)
    jf, jg, array = jax.jit(f), jax.jit(g), jax.device_put(x)
    jf(array), jf(array[:2]), jg(array)
    assert (jf._cache_size(), jg._cache_size()) == (2, 1)
    jf.clear_cache()
    assert (jf._cache_size(), jg._cache_size()) == (0, 1)
    jf(array), jg(array)
    assert (len(f.runs), len(g.runs), jf._cache_size()) == (3, 1, 1)


def test_a_program_that_is_forgotten_while_it_runs_runs_to_its_end():
    def clears(value):
        jax.clear_caches()
        gc.collect()
        return value

    @jax.jit
    def f(x):
        for _ in range(3):
            x = jax.pure_callback(clears, x, x) + 1
        return x
    np.testing.assert_array_equal(f(x), x + 3)


def test_a_hot_call_runs_no_python():
    array, jitted = jax.device_put(x), jax.jit(lambda x: x - 2)
    calls = lambda: (jitted(array), array + array, jnp.sin(array))
    frames = []
    calls(), calls()
    sys.setprofile(lambda frame, event, _: event == "call" and frames.append(frame.f_code.co_name))
    try:
        calls()
    finally:
        sys.setprofile(None)
    assert frames == ["<lambda>"]


@pytest.mark.parametrize("count", [2, 1000])
def test_threads_may_use_and_forget_at_the_same_time(capacity, count):
    capacity(count)
    shared, wrong = [jax.jit(named(n)) for n in range(3)], []

    def work(me):
        try:
            for turn in range(3):
                n = (me + turn) % 3
                if not np.array_equal(shared[n](x), n * x) or not np.array_equal(jax.jit(lambda x: x * 2)(x), 2 * x):
                    wrong.append((me, n))
                np.testing.assert_allclose(jax.grad(lambda x: shared[n](x).sum())(x), n)
                if me == 0 and turn == 1:
                    jax.clear_caches()
                if me == 1:
                    shared[n].clear_cache()
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == [] and not any([thread.is_alive() for thread in threads])
