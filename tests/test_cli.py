"""`python -m mini_jax dump` on a file of the reader's own, for every stage and option."""
import os
import subprocess
import sys

import pytest

from mini_jax.__main__ import argument, main

SOURCE = """
import mini_jax as jax
import mini_jax.numpy as jnp

def loss(p, x):
    return jnp.mean(jnp.tanh(x @ p["w"] + p["b"]) ** 2)

def double(x, times=1):
    return 2 * x * times

@jax.jit
def jitted(x):
    return jnp.sin(x)

step = jax.pmap(lambda x: x / jax.lax.psum(x, "i"), axis_name="i")
not_a_function = 3
"""
PARAMS = "{'w': f32[3,4], 'b': f32[4]}"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return str(path)


def dump(capsys, *words):
    code = main(["dump", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("stage, found", [("jaxpr", "dot_general"), ("stablehlo", "func.func public @main"), ("hlo", "HloModule")])
@pytest.mark.parametrize("flags", [(), ("--grad",)])
def test_every_stage(capsys, file, stage, found, flags):
    code, out, _ = dump(capsys, f"{file}:loss", PARAMS, "f32[8,3]", "--stage", stage, *flags)
    assert code == 0 and found in out


def test_vmap_and_grad_together_and_locations(capsys, file):
    code, out, _ = dump(capsys, f"{file}:loss", "{'w': f32[5,3,4], 'b': f32[5,4]}", "f32[5,8,3]", "--grad", "--vmap", "--stage", "stablehlo", "--locations")
    assert code == 0 and "tensor<5x" in out and "model.py" in out


def test_arguments_by_name_numbers_and_jitted_functions(capsys, file):
    assert dump(capsys, f"{file}:double", "bf16[4]", "times=3")[0] == 0
    assert "sin" in dump(capsys, f"{file}:jitted", "f32[]")[1]


@pytest.mark.parametrize("words, hint", [
    (("nowhere.py:f", "f32[]"), "no file nowhere.py"),
    (("loss", "f32[]"), "FILE_OR_MODULE:function"),
    (("{file}:lost", "f32[]"), "its functions are: loss, double"),
    (("{file}:not_a_function",), "not a function"),
    (("{file}:double", "g32[3]"), "unknown dtype g32"),
    (("{file}:double", "f32[3"), "not a type such as f32[8,128]"),
    (("no_such_module_here:f", "f32[]"), "no module"),
])
def test_words_that_make_no_sense(capsys, file, words, hint):
    code, _, err = dump(capsys, *[w.replace("{file}", file) for w in words])
    assert code == 2 and hint in err


def test_types_and_trees_of_them():
    tree = argument("[f32[2,3], (i32[], {'k': bf16[4]}), 5]")
    assert tree[0].shape == (2, 3) and tree[1][0].shape == () and tree[1][1]["k"].dtype.name == "bfloat16" and tree[2] == 5


def test_from_the_shell_with_devices(file):
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-m", "mini_jax", "dump", f"{file}:step", "f32[4]", "--devices", "4", "--stage", "stablehlo"],
                          capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "num_replicas = 4" in done.stdout and "all_reduce" in done.stdout
