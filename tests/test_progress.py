"""The line that shows on a terminal while a program compiles for long, and that log_compiles writes for each program."""
import io
import logging
import re
import sys
import threading
import time

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.core import config
from mini_jax.runtime import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """A terminal in place of stderr, on which lines come after 0.2 s. (No fixture: pytest sets stderr anew after those.)"""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "AFTER", 0.2)
    monkeypatch.setattr(progress, "EVERY", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    return sys.stderr


def compile_for(seconds, words="step (train.py:31, 4,812 equations)"):
    with progress.compiling(lambda: words):
        time.sleep(seconds)


def test_a_long_compilation_shows_a_line_and_erases_it(monkeypatch):
    terminal = on_terminal(monkeypatch)
    compile_for(0.8)
    written = terminal.getvalue()
    assert "\rcompiling step (train.py:31, 4,812 equations): 0 s" in written
    shown = written.rsplit("\r", 2)[1]
    assert written.endswith("\r") and set(shown) == {" "}, "what was written is overwritten by blanks at the end"


def test_a_short_one_shows_nothing_and_costs_little(monkeypatch):
    terminal = on_terminal(monkeypatch)
    times = []
    for _ in range(100):
        began = time.perf_counter()
        compile_for(0)
        times.append(time.perf_counter() - began)
    assert min(times) < 200e-6 and terminal.getvalue() == ""


def test_what_compiles_while_python_ends_which_starts_no_more_threads_compiles(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    monkeypatch.setattr(progress, "_thread", None)
    monkeypatch.setattr(threading.Thread, "start", refused)
    progress._start()


def test_of_two_at_once_the_older_has_the_line(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with progress.compiling(lambda: "outer"):
        time.sleep(0.35)
        compile_for(0.35, "inner")
    assert "outer" in terminal.getvalue() and "inner" not in terminal.getvalue()


@pytest.mark.parametrize("why", ["no terminal", "option", "dumb", "no stderr", "closed"])
def test_nothing_is_written_elsewhere(monkeypatch, why):
    terminal = on_terminal(monkeypatch)
    if why == "no terminal":
        monkeypatch.setattr(sys, "stderr", io.StringIO())
    if why == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    if why == "no stderr":
        monkeypatch.setattr(sys, "stderr", None)
    if why == "closed":
        terminal.close()
    with config.compile_progress(why != "option"):
        compile_for(0.4)
    assert why == "closed" or terminal.getvalue() == ""


def test_a_compiling_program_says_its_name_its_place_and_its_size(monkeypatch):
    terminal = on_terminal(monkeypatch)
    from mini_jax.runtime import xla
    compile_ = xla.compile
    monkeypatch.setattr(xla, "compile", lambda *args, **kwargs: (time.sleep(0.5), compile_(*args, **kwargs))[1])

    @jax.jit
    def very_slow_step(x):
        return jnp.sin(x) + 3.25
    very_slow_step(1.0)
    assert re.search(r"compiling very_slow_step \(test_progress\.py:\d+, 2 equations\): \d s", terminal.getvalue())


# --- log_compiles -----------------------------------------------------------------------------------------------------------------------

def told(caplog, call):
    caplog.clear()
    with jax.log_compiles(True), caplog.at_level(logging.WARNING, "mini_jax"):
        call()
    return [record.getMessage() for record in caplog.records if record.name == "mini_jax"]


def test_operations_and_library_functions_are_placed_where_they_are_called(caplog):
    x = np.arange(17.0, dtype=np.float32)
    lines = told(caplog, lambda: (jax.lax.sin(x), jnp.std(x)))
    assert [re.sub(r"\d\.\d+", "T", line.replace(__file__, "here")).split("T s, ") for line in lines] == [
        [re.sub(r"\d+\)", f"{_line(lines[0])})", "compiled sin (here:0): traced in "), "lowered in ", "compiled in ", "1 equation"],
        [f"compiled _std (here:{_line(lines[1])}): traced in ", "lowered in ", "compiled in ", lines[1].rsplit(", ", 1)[1]]]


def _line(text):
    return re.search(r"test_progress\.py:(\d+)", text)[1]


def test_what_outlining_leaves_is_counted_once(caplog):
    def deep(ws, x):
        for w in ws:
            x = jnp.tanh(x @ w) * 2 + x
        return x
    with config.outline("eager"):
        line, = told(caplog, lambda: jax.jit(deep)([np.ones((2, 2), np.float32)] * 9, np.ones((3, 2), np.float32)))
    before, after = map(int, re.search(r"(\d+) equations, (\d+) as written$", line).groups())
    assert before == 36 and after < 20


