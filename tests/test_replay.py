"""Replay: library functions recorded again are copied, and nobody can tell: programs, sources, dtypes and errors are those of running them."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.core import replay, source
from mini_jax.runtime.dispatch import library
from tests.test_public_walk import ARRAYS, CALLS, FAMILIES, evaluator

x = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def nothing_kept():
    replay.forget()


@pytest.fixture
def ours(monkeypatch):
    """The functions of this file are the library's own: what they record is from the line that calls them."""
    monkeypatch.setitem(source._internal, __file__, True)


@pytest.fixture
def runs(ours):
    """Grows each time that `counted` runs."""
    _runs.clear()
    return _runs


_runs = []


@library
def counted(x, y=2.0):
    _runs.append(1)
    return x * float(y)


def equations(fun, *args):
    """The equations that recording `fun` makes, with where they are from."""
    program = jax.make_jaxpr(fun)(*args).jaxpr
    return str(program), [(str(source.decode(eqn.source)), eqn.source[2]) for eqn in program.eqns]


# --- everything public -------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if not family.eager])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_what_is_copied_is_what_running_records(name, wide, monkeypatch):
    run = evaluator([text for group in CALLS[name] for text in group[:8]])
    with jax.enable_x64(wide):
        once, recorded, copied = [equations(run, ARRAYS) for _ in range(3)]
        monkeypatch.setattr(replay, "_describe", lambda *_: False)
        assert once == recorded == copied == equations(run, ARRAYS)


def test_a_call_that_was_recorded_twice_does_not_run_again(runs):
    @jax.jit
    def fun(x):
        return counted(counted(x)) + counted(x)
    fun(x)
    jax.make_jaxpr(fun)(x + 1)
    assert len(runs) == 2


# --- what decides ------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("first, second", [(1, 1.0), (1, True), (0.0, -0.0), (1j, complex(-0.0, 1)), ([1, 2], (1, 2)), (np.float32(1), np.float64(1))])
def test_arguments_that_are_equal_and_differ_are_told_apart(first, second, ours):
    seen = []

    @library
    def shown(x, y):
        seen.append(repr(y))
        return x * 2.0
    jax.make_jaxpr(lambda x: [shown(x, y) for _ in range(3) for y in (first, second)])(x)
    assert seen == [repr(first), repr(second)] * 2


def test_a_function_within_may_be_copied_several_times(ours):
    @library
    def twice(x, y):
        return counted(counted(x, y), y)
    once, again, more = [equations(lambda x: twice(x, 3.0), x)[0] for _ in range(3)]
    assert once == again == more and "mul b 3.0" in once


def test_nan_is_one_argument(runs):
    jax.make_jaxpr(lambda x: [counted(x, float("nan")) for _ in range(3)])(x)
    assert len(runs) == 2


def test_what_a_function_of_the_user_records_is_not_copied(runs, monkeypatch):
    monkeypatch.setitem(source._internal, __file__, False)
    jax.make_jaxpr(lambda x: [counted(x) for _ in range(3)])(x)
    assert len(runs) == 3


def test_configuration_decides():
    for wide in (False, True) * 3:
        with jax.enable_x64(wide):
            assert jax.eval_shape(lambda k: jnp.sum(k), np.arange(3, dtype=np.int32)).dtype == (np.int64 if wide else np.int32)


def test_one_array_given_twice_is_not_two_arrays():
    def fun(x, y):
        return jnp.einsum("ij,kj->ik", x, x), jnp.einsum("ij,kj->ik", x, y), jnp.einsum("ij,kj->ik", y, y)
    for _ in range(3):
        same, other, last = jax.make_jaxpr(fun)(x, x).eqns
        assert same.invars[0] is same.invars[1] and last.invars[0] is last.invars[1] and other.invars == [same.invars[0], last.invars[0]]


# --- what a copy takes from its call -------------------------------------------------------------------------------------------------------

def test_a_copy_is_from_the_line_and_the_scope_of_its_call():
    def fun(x):
        a = jnp.var(x)
        with jax.named_scope("inner"):
            b = jnp.var(x)
        return a + b
    for _ in range(3):
        program = jax.make_jaxpr(fun)(x)
        places = {(source.decode(eqn.source).line - fun.__code__.co_firstlineno, eqn.source[2]) for eqn in program.eqns[:-1]}
        assert places == {(1, ""), (3, "inner")}


# --- what is not copied ---------------------------------------------------------------------------------------------------------------------

def test_what_holds_a_value_of_its_call_is_not_copied(ours):
    @library
    def with_array(x):
        return x + np.arange(3, dtype=np.float32)
    for _ in range(3):
        program = jax.make_jaxpr(lambda x: with_array(x))(x)
        assert len(program.consts) == 1


def test_an_argument_handed_on_stays_itself():
    seen = []
    jax.make_jaxpr(lambda x: [seen.append(jnp.clip(x) is x) for _ in range(3)] and x)(x)
    assert seen == [True] * 3


def test_what_is_no_traced_value_is_not_copied(ours):
    @library
    def shown(n):
        return n + 1, jnp.arange(3)
    seen = []
    jax.make_jaxpr(lambda: [seen.append(shown(3)[0]) for _ in range(3)] and jnp.arange(3))()
    assert seen == [4] * 3


def test_effects_and_inner_programs_are_not_copied(ours):
    @library
    def printing(x):
        jax.debug.print("{}", x)
        return jax.lax.fori_loop(0, 3, lambda i, x: x * 2, x)
    for _ in range(3):
        program = jax.make_jaxpr(lambda x: printing(x))(x)
        assert program.effects and len(program.eqns) >= 2
    assert set(replay._templates.values()) == {replay._NEVER}


def test_errors_come_each_time():
    for _ in range(3):
        with pytest.raises(TypeError):
            jax.make_jaxpr(lambda x: jnp.dot(x, x))(x)
        with pytest.raises(jax.errors.UnexpectedTracerError):
            leaked = []
            jax.make_jaxpr(lambda x: leaked.append(x) or jnp.var(x))(x)
            jnp.var(leaked[0])


def test_warnings_come_each_time():
    with jax.numpy_rank_promotion("warn"):
        for _ in range(3):
            with pytest.warns(UserWarning, match="numpy_rank_promotion"):
                jax.make_jaxpr(lambda x: x + x[0])(x)
    for _ in range(3):
        with pytest.warns(UserWarning, match="float64 was requested"):
            jax.make_jaxpr(lambda x: jnp.stack([x, x], dtype=np.float64))(x)


def test_templates_are_bounded_and_forgotten(monkeypatch, ours):
    monkeypatch.setattr(replay, "_CAPACITY", 8)
    jax.make_jaxpr(lambda x: [counted(x, n) for n in range(30)])(x)
    assert 0 < len(replay._templates) <= 8
    jax.clear_caches()
    assert not replay._templates
