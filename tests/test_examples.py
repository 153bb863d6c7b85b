"""The programs that newcomers run first do run, from a shell, as they are documented."""
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.examples import neural_ode

ROOT = Path(__file__).parent.parent


def run(*args, **kwargs):
    # Each program asks for its own number of devices, so it does not get the one of these tests.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run([sys.executable, *map(str, args)], cwd=ROOT, env=environment, text=True, capture_output=True, timeout=600)


def test_digits_learns_to_read_alike_on_one_and_on_several_devices_and_writes_its_program(tmp_path):
    result = run("-m", "mini_jax.examples.digits", "--steps", 60, "--devices", 4, "--out", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Done: 9" in result.stdout
    assert "pmap" in (tmp_path / "step.jaxpr.txt").read_text()
    program = (tmp_path / "step.stablehlo.mlir").read_text()
    assert "mhlo.num_replicas = 4" in program and "stablehlo.all_reduce" in program
    assert "HloModule" in (tmp_path / "step.hlo.txt").read_text()


def test_digits_says_so_and_fails_when_it_has_not_learnt_enough(tmp_path):
    result = run("-m", "mini_jax.examples.digits", "--steps", 1, "--devices", 1, "--out", tmp_path)
    assert result.returncode == 1 and "FAILED: held-out accuracy" in result.stdout


@pytest.mark.parametrize("arguments, complaint", [(["--devices", 7], "must divide"), (["--steps", 0], "at least 1")])
def test_digits_refuses_what_it_cannot_do(arguments, complaint):
    result = run("-m", "mini_jax.examples.digits", *arguments)
    assert result.returncode == 2 and complaint in result.stderr


def test_the_neural_ode_finds_the_spiral_and_draws_it(tmp_path):
    result = run("-m", "mini_jax.examples.neural_ode", "--out", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    losses = [float(number) for number in re.findall(r"mean square distance ([0-9.]+)", result.stdout)]
    assert losses[0] > 1 and losses[-1] < 0.01 and "Done: from the first point on, the trajectory passes the others at 0.0" in result.stdout
    picture = ElementTree.parse(tmp_path / "spiral.svg").getroot()
    tags = [element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in picture.iter()]
    assert tags[0] == "svg" and tags.count("circle") == neural_ode.POINTS and tags.count("polyline") == 1
    for line in picture.iter("{http://www.w3.org/2000/svg}polyline"):
        drawn = np.array([list(map(float, at.split(","))) for at in line.get("points").split()])
        assert len(drawn) == 300 and (drawn >= 0).all() and (drawn <= 400).all() and np.ptp(drawn, axis=0).min() > 200


def test_the_adjoint_method_gives_the_gradient_of_backpropagation_through_small_steps_and_of_differences():
    """In the parameters, the first point and the times; and a motion that no step can follow ends in NaN."""
    def by_small_steps(params, y, times):
        def interval(y, duration):
            step = lambda y, _: (neural_ode.one_step(partial(neural_ode.network, params), y, duration / 100)[0], None)
            y = jax.lax.scan(step, y, length=100)[0]
            return y, y
        return jnp.concatenate([y[None], jax.lax.scan(interval, y, jnp.diff(times))[1]])

    number = lambda path: lambda args: jnp.sum(jnp.sin(path(*args)) * jnp.arange(1, 7).reshape(3, 2))
    adaptive = number(partial(neural_ode.trajectory, neural_ode.network, tolerance=1e-8))
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        args = jax.tree.map(lambda x: rng.normal(size=x.shape) * 0.3, (neural_ode.init(jax.random.key(0)), jnp.zeros(2), jnp.zeros(3)))
        args = *args[:2], np.array([0.0, 0.5, 1.3])
        along = jax.tree.map(lambda x: rng.normal(size=x.shape), args)
        moved = [jax.tree.map(lambda x, v: x + h * v, args, along) for h in (1e-3, -1e-3)]
        (value, gradient), (expected, backpropagated), plus, minus = jax.jit(lambda args, moved: (
            jax.value_and_grad(adaptive)(args), jax.value_and_grad(number(by_small_steps))(args), *map(adaptive, moved)))(args, moved)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(backpropagated), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        slope = sum(np.vdot(g, v) for g, v in zip(jax.tree.leaves(gradient), jax.tree.leaves(along)))
        np.testing.assert_allclose(slope, (plus - minus) / 2e-3, rtol=1e-4)
    assert np.isnan(neural_ode.solve(lambda y: y * y, jnp.array([1.0]), 2.0, 1e-4))            # 1 / (1 - t) has a pole at 1


def test_the_neural_ode_refuses_no_steps():
    result = run("-m", "mini_jax.examples.neural_ode", "--steps", 0)
    assert result.returncode == 2 and "at least 1" in result.stderr


def test_every_value_of_the_tour_is_as_expected():
    result = run("docs/tour/transformations.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("Everything is as it should be.\n")


def test_state_passed_on_and_state_in_refs_give_the_same_numbers():
    result = run("-m", "mini_jax.examples.stateful")
    assert result.returncode == 0, result.stdout + result.stderr
    apart = [float(number) for number in re.findall(r"differ by (\S+) at most", result.stdout)]
    assert len(apart) == 4 and max(apart) < 1e-5                      # params, stats, adam, metrics
    assert "Done: 9" in result.stdout
