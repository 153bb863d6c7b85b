"""The programs that newcomers run first do run, from a shell, as they are documented."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_value_of_the_tour_is_as_expected():
    result = run("docs/tour/transformations.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("Everything is as it should be.\n")
