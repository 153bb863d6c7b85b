"""The programs that newcomers run first do run, from a shell, as they are documented."""
import os
import re
import struct
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.examples import language_model, neural_ode, vae

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


def run_here(monkeypatch, capsys, program, *arguments):
    """What the program prints, and its exit status, run in this process, where its constants can be made smaller."""
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    return program.main(), capsys.readouterr().out


def agrees_with_differences(function, args, rng, step=1e-6):
    """The derivative of a function of float64 pytrees along a random direction: by `grad`, and by central differences."""
    along = jax.tree.map(lambda x: rng.normal(size=x.shape), args)
    moved = jax.tree.map(lambda x, v: np.stack([x + step * v, x - step * v]), args, along)
    gradient, (plus, minus) = jax.jit(lambda args, moved: (jax.grad(function)(args), jax.vmap(function)(moved)))(args, moved)
    slope = sum(np.vdot(g, v) for g, v in zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True))
    np.testing.assert_allclose(slope, (plus - minus) / (2 * step), rtol=1e-5)
    return gradient


def test_the_language_model_learns_and_writes_with_the_letters_it_has_read(monkeypatch, capsys):
    """A smaller one, in 100 steps, comes from 4.7 to 2.9; with the layers as they were at random, and only letters learnt, to 3.2."""
    monkeypatch.setattr(language_model, "init", partial(language_model.init, width=32, heads=2, layers=2, context=32))
    monkeypatch.setattr(language_model, "CONTEXT", 32)
    status, printed = run_here(monkeypatch, capsys, language_model, "--steps", 100, "--letters", 60)
    losses = [float(number) for number in re.findall(r"held-out loss ([0-9.]+)", printed)]
    assert losses[0] > 4 and losses[-1] < 3.05
    assert status == 1 and "FAILED" in printed                        # it needs more steps to beat pairs of letters
    given, written = re.search(r"-It is given-+\n(.*)\n-+and goes on-+\n(.*)\n-{80}\n", printed, re.DOTALL).groups()
    text, held_out, alphabet = language_model.load()
    assert given == "".join(alphabet[i] for i in held_out[:32])
    assert len(written) == 60 and set(written) <= set(alphabet) and len(set(written)) > 10


def test_the_language_model_has_the_gradient_of_differences_sees_no_later_letter_and_writes_without_dropout(monkeypatch):
    monkeypatch.setattr(language_model, "DROPOUT", 0.5)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        key = jax.random.key(1)
        shapes = jax.eval_shape(partial(language_model.init, letters=7, width=8, heads=2, layers=3, context=6), key)
        params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape) / 2, shapes)
        tokens = rng.integers(0, 7, (3, 7))
        # through dropout and checkpoint
        gradient = agrees_with_differences(lambda params: language_model.loss(params, tokens, key), params, rng)
        assert all(np.any(row) for leaf in jax.tree.leaves(gradient["layers"]) for row in leaf)      # every layer learns

        predict, window = jax.jit(language_model.predict), tokens[0, :6]
        scores, changed = predict(params, window), predict(params, np.where(np.arange(6) == 4, (window + 1) % 7, window))
        np.testing.assert_array_equal(scores[:4], changed[:4])
        assert np.all(np.any(scores[4:] != changed[4:], axis=1))

        assert np.abs(predict(params, window, key) - scores).max() > 1e-3                           # dropout does something
        written = language_model.generate(params, key, window, 30)
        for letter, key in zip(written, jax.random.split(key, 30), strict=True):                    # and is off here
            assert letter == jax.random.categorical(key, predict(params, window)[-1])
            window = np.append(window[1:], letter)


def read_png(file):
    """The grey picture in a PNG file of lines stored as they are. Each chunk has its length, and the check sum of what it holds."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, position = {}, 8
    while position < len(file):
        length, kind = struct.unpack(">I4s", file[position:position + 8])
        chunks[kind] = file[position + 8:position + 8 + length]
        assert struct.unpack(">I", file[position + 8 + length:position + 12 + length])[0] == zlib.crc32(kind + chunks[kind])
        position += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    columns, rows, *form = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert form == [8, 0, 0, 0, 0]                                    # eight bits of grey
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(rows, columns + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def test_the_autoencoder_learns_and_draws_digits(monkeypatch, capsys, tmp_path):
    """A smaller one, in 250 steps, comes from 9 bits to 2.48; if the encoder does not learn, to 2.70."""
    monkeypatch.setattr(vae, "init", partial(vae.init, hidden=64, latent=8))
    status, printed = run_here(monkeypatch, capsys, vae, "--steps", 250, "--out", tmp_path)
    losses = [float(number) for number in re.findall(r"held out ([0-9.]+)", printed)]
    assert losses[0] > 6 and losses[-1] < 2.58
    at_most, sampled = map(float, re.search(r"take ([0-9.]+) bits per pixel by the bound, ([0-9.]+)", printed).groups())
    assert at_most == losses[-1] and 0 < at_most - sampled < 0.2
    assert status == 1 and "FAILED" in printed                        # not yet better enough than histograms
    picture = read_png((tmp_path / "digits.png").read_bytes())
    assert picture.shape == (8 * 40, 15 * 40) and picture.min() < 50
    assert (picture.reshape(8, 40, 15, 40)[:, [0, -1]] == 255).all()  # the margins
    few = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(read_png(vae.png(few)), few)


def test_the_autoencoder_has_the_gradient_of_differences_and_bounds_the_integral_over_z():
    """With one z, log p(x) and the expected bound are integrals that a sum over a fine grid gives to many digits."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        image, key = np.array([0.0, 5.0, 16.0]), jax.random.key(1)
        params = jax.jit(partial(vae.init, pixels=3, hidden=6, latent=1))(jax.random.key(0))
        agrees_with_differences(lambda params: vae.bound(params, key, image), params, rng)

        levels = jnp.arange(vae.LEVELS)[:, None]
        everything = jnp.exp(vae.log_probability(levels, jnp.array([0.0, 3.3, 16.0, 40.0]), jnp.array([-3.0, 0.5, 3.0, 1.0]))).sum(0)
        np.testing.assert_allclose(everything, 1, rtol=1e-12)         # the levels of a pixel are all that it can be

        @jax.jit
        def integrals(params, keys):
            z = jnp.linspace(-12, 12, 4001)
            mean, log_deviation = vae.encode(params, image)
            log_q, log_prior = jax.scipy.stats.norm.logpdf(z, mean, jnp.exp(log_deviation)), jax.scipy.stats.norm.logpdf(z)
            log_joint = jax.vmap(lambda z: vae.log_probability(image, *vae.decode(params, z)).sum())(z[:, None]) + log_prior
            bounds = jax.vmap(lambda key: vae.bound(params, key, image))(keys)
            return (jnp.log(jnp.trapezoid(jnp.exp(log_joint), z)), vae.log_likelihood(params, keys[0], image, 20000),
                    jnp.trapezoid(jnp.exp(log_q) * (log_joint - log_q), z), bounds.mean(), bounds.std() / np.sqrt(len(bounds)))
        log_p, sampled, expected, mean, error = map(float, integrals(params, jax.random.split(key, 20000)))
        assert abs(sampled - log_p) < 0.02 and abs(mean - expected) < 4 * error and expected < log_p - 0.01


@pytest.mark.parametrize("program", ["language_model", "vae"])
def test_programs_refuse_no_steps(program):
    result = run("-m", f"mini_jax.examples.{program}", "--steps", 0)
    assert result.returncode == 2 and "at least 1" in result.stderr


def test_the_page_on_the_programs_shows_what_they_say():
    page, *programs = [Path(file).read_text() for file in (ROOT / "docs/programs.md", language_model.__file__, vae.__file__)]
    shown = [block for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if '"""' in block]
    assert len(shown) >= 8 and not [block for block in shown if not any(block in program for program in programs)]
    assert read_png((ROOT / "docs/vae_digits.png").read_bytes()).shape == (320, 600)
