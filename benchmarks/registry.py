"""What a benchmark is: a function of the framework (mini_jax or jax) that returns measured values, each with its budget.

Both frameworks run literally the same function, each call in a process of its own.
"""
from __future__ import annotations

import dataclasses
import math
import resource
import time
from typing import Any, Callable


@dataclasses.dataclass(frozen=True)
class Benchmark:
    name: str                          # the function's name: what one types to choose it
    measures: dict[str, float | None]  # what is measured -> its budget (largest ratio of mini_jax to jax), None for none.
                                       # Empty: whatever run returns, each at most 1.0
    run: Callable[[Any], dict]         # framework -> what is measured -> value in seconds or, for memory, bytes
    quick: bool                        # belongs to the quick selection
    devices: int
    full_only: bool = False            # takes minutes: only with --full or by name
    awaits: str = ""                   # what its budgets rest on and mini_jax does not have yet
    of_itself: bool = False            # its budget bounds mini_jax's value, a number of times, and not the ratio to jax's


BENCHMARKS: dict[str, Benchmark] = {}


def call(what, at_most=None, *, quick=False, devices=1, of_itself=False):
    """Register a function that returns how many seconds one thing takes, or of_itself, how many times another."""
    def register(function):
        BENCHMARKS[function.__name__] = Benchmark(
            function.__name__, {what: at_most}, lambda jax: {what: function(jax)}, quick, devices, of_itself=of_itself)
        return function
    return register


def workload(what, *, first_step=None, step=1.0, memory=1.0, quick=False, devices=1, full_only=False, awaits=""):
    """Register a program that works in steps: the function returns one that takes no argument, does a step and waits for it."""
    names = [f"{what}: time to first step", f"{what}: step", f"{what}: peak memory"]

    def register(function):
        def run(jax):
            do_step = function(jax)
            first, again = elapsed(do_step), min(timed(lambda: elapsed(do_step), total=1.5))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            return dict(zip(names, [first, again, peak]))
        BENCHMARKS[function.__name__] = Benchmark(
            function.__name__, dict(zip(names, [first_step, step, memory])), run, quick, devices, full_only, awaits)
        return function
    return register


def programs(function):
    """Register a function that returns programs by name, each a function without arguments that runs it and waits. Measured are the
    first call of each, which traces and compiles, and the fastest call after it; none is to take longer than with jax."""
    def run(jax):
        loop = lambda x: jax.lax.fori_loop(0, 2, lambda i, x: jax.numpy.sin(x), x)
        jax.block_until_ready(jax.jit(jax.grad(loop))(1.0))                 # what is loaded and made only once a process
        values, named = {}, function(jax)
        for name, program in named.items():
            values[f"{name}: first call"], values[f"{name}: call"] = elapsed(program), math.inf
        for _ in range(3):                                                  # some time apart, since others use the machine too
            for name, program in named.items():
                fastest = min(timed(lambda: elapsed(program), total=0.1, at_least=2, at_most=300))
                values[f"{name}: call"] = min(values[f"{name}: call"], fastest)
        return values
    BENCHMARKS[function.__name__] = Benchmark(function.__name__, {}, run, False, 1)
    return function


def per_call(f, wait=lambda result: None, block=0.002, total=0.4):
    """Seconds that one call of f takes: the best of many blocks of calls, each block waited for at its end.

    Blocks are short, so that some fall between what else the machine does.
    """
    def seconds(calls):
        began = time.perf_counter()
        for _ in range(calls):
            result = f()
        wait(result)
        return time.perf_counter() - began
    seconds(3)
    calls = max(1, int(block / (seconds(5) / 5)))
    return min(timed(lambda: seconds(calls), total)) / calls


def best(f, total=0.6):
    """The shortest time that a call of f took."""
    return min(timed(lambda: elapsed(f), total))


def elapsed(f):
    began = time.perf_counter()
    f()
    return time.perf_counter() - began


def timed(measure, total, at_least=5, at_most=1000):
    """What `measure` gives, in seconds, time after time until it has given `total` seconds."""
    times = []
    while len(times) < at_least or (sum(times) < total and len(times) < at_most):
        times.append(measure())
    return times
