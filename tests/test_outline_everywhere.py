"""The outliner at its most eager on what the other tests are about: almost every primitive on its samples, derivatives of control flow, and refs.

Each program does everything twice, the second time on other values, so that all of it becomes functions; it must compute what it computes
without. (With MINI_JAX_OUTLINE=eager the whole suite runs so.)
"""
import numpy as np
import pytest

import mini_jax as jax
from mini_jax.core import config, dtypes
from tests import test_control_flow_laws as control_flow
from tests.ref_programs import of_refs, program as program_of_refs
from tests.test_primitives import CASES, application, draw, usual_dtype

PIECE = 40                                  # samples in one program
TIMES = 2
SERIES = {"igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta", "polygamma", "zeta"}    # seconds to compile
FIRST = {case.values[0].name: case.values for case in reversed(CASES)}      # one sample of each; MINI_JAX_OUTLINE=eager pytest runs all
SAMPLES = [values for name, values in FIRST.items() if name not in SERIES]


def both(fun, *args):
    """What a function computes without the outliner, and with it at its most eager; some of it must have become functions."""
    with config.outline("off"):
        without = jax.jit(fun)(*args)
    with config.outline("eager"):
        assert "// outlined: " in jax.jit(fun).lower(*args).as_text()
        return jax.jit(fun)(*args), without


def assert_same(have, want, rounding=64):
    for a, b in zip(jax.tree.leaves(have), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        if dtypes.is_floating(a.dtype) or dtypes.is_complex(a.dtype):
            eps = rounding * float(dtypes.finfo(a.dtype).eps)
            wide = np.complex128 if dtypes.is_complex(a.dtype) else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=eps, atol=eps)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("first", range(0, len(SAMPLES), PIECE))
def test_every_primitive(first):
    cases = SAMPLES[first:first + PIECE]
    operands = [[draw(sample, usual_dtype(primitive, sample), seed) for seed in range(TIMES)] for primitive, sample in cases]

    def everything(operands):
        out = []
        for k in range(TIMES):
            for (primitive, sample), values in zip(cases, operands):
                out += application(primitive, sample)(*values[k])
        return out
    assert_same(*both(everything, operands))


@pytest.mark.parametrize("seed, name", list(enumerate(["scan > cond", "fori > switch", "checkpointed scan > jit", "map > scan"])))
def test_derivatives_of_control_flow(seed, name):
    rng = np.random.default_rng(seed)
    _, run = control_flow.program(rng, name.split(" > "))
    derive = control_flow.reverse_derivatives(lambda w, state: run(control_flow.LAX, w, state))
    points = [jax.tree.map(np.float32, control_flow.draw(rng)) for _ in range(TIMES)]
    directions = [jax.tree.map(np.float32, control_flow.draw(rng)) for _ in range(TIMES)]
    assert_same(*both(lambda points, directions: [derive(p, k, d) for k, (p, d) in enumerate(zip(points, directions))], points, directions),
                rounding=1000)


@pytest.mark.parametrize("seed", [0, 24])
def test_programs_of_refs(seed):
    of = of_refs(program_of_refs(seed))
    xs = [np.float32([0.4, 0.8, -0.3]), np.float32([0.2, -0.4, 0.5])]
    assert_same(*both(lambda xs: [of(x) for x in xs], xs), rounding=1000)
