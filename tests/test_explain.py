"""`explain`: which lines of the user's code the time goes to, and what tracing, lowering, compiling and running take."""
import re

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import explain as module
from mini_jax.__main__ import main
from mini_jax.explain import Hlo, explain
from mini_jax.runtime import xla

SOURCE = """
import mini_jax as jax
import mini_jax.numpy as jnp

def loss(w, x, times=1):
    h = jnp.tanh(x @ w)
    h = jnp.sort(h, axis=1)
    h = jax.lax.fori_loop(0, 5, lambda i, c: jnp.sin(
        c @ w), h)
    return times * jnp.mean(h ** 2)

step = jax.pmap(lambda x: x / jax.lax.psum(jnp.sin(x), "i"), axis_name="i")
"""
F32 = np.float32


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("explain") / "explained_model.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.fixture(scope="module")
def printed(file):
    """What the command prints of the gradient of the file's loss."""
    import contextlib
    import io
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["explain", f"{file}:loss", "f32[200,200]", "f32[150,200]", "times=2", "--grad"]) == 0
    return out.getvalue()


def test_stages_rates_and_memory(printed, file):
    time = r"[\d.,]+ (?:us|ms|s)"
    assert printed.startswith(f"loss ({file}:5)\n")
    for line in (rf"trace +{time} +\d+ equations", rf"lower +{time} +\d+ as written", rf"compile +{time} +HLO passes {time}, writing kernels {time}, LLVM {time}",
                 rf"run +{time} +median of \d+; by XLA's estimate, which counts loops once, [\d.]+ Mflop: [\d.]+ [kMG]flop/s; [\d.]+ [kM]B: .*/s",
                 r"memory +[\d.,]+ [kM]B +arguments 280 kB, results 160 kB, temporaries [\d.]+ [kM]B"):
        assert re.search(line, printed), line


def test_the_costliest_lines_are_the_users_with_their_text_and_operations(printed):
    assert "costliest lines, by measured time:" in printed
    shares = {int(line): float(share) for share, line in re.findall(r"^ +([\d.]+)% .*explained_model\.py:(\d+) ", printed, re.M)}
    assert max(shares, key=shares.get) == 9 and shares[6] > 0 and shares[7] > 0          # ten products are in the loop
    assert re.search(r"explained_model\.py:7 +h = jnp\.sort\(h, axis=1\) +.*sort", printed)
    assert sum(map(float, re.findall(r"^ +([\d.]+)%", printed, re.M))) == pytest.approx(100, abs=1)


def test_measured_times_add_up_to_the_run():
    def f(x):
        return jnp.sort(jnp.sort(x), axis=0)
    report = explain(f, jax.ShapeDtypeStruct((500, 500), F32))
    assert report.measured and 0.3 * report.run < sum(p.seconds for p in report.places) < 3 * report.run
    assert report.places[0].code == "return jnp.sort(jnp.sort(x), axis=0)"


def test_arguments_are_used_as_given_donated_ones_each_time_anew():
    step = jax.jit(lambda w, n: (w + n, n), donate_argnums=0)
    report = explain(step, np.ones(1000, F32), 3)
    assert report.runs == module.RUNS and report.equations >= 1


def test_replicas(file, capsys):
    assert main(["explain", f"{file}:step", "f32[8,1000]"]) == 0
    out = capsys.readouterr().out
    assert "psum" in out and "explained_model.py:12" in out


def test_without_a_profiler_lines_are_ranked_by_the_bytes_they_move(monkeypatch):
    monkeypatch.setattr(xla, "profiled", lambda run: (run(), []))

    def f(x):
        y = jnp.sort(x)
        return jax.lax.fori_loop(0, 7, lambda i, c: jnp.cumsum(c), y)
    report = explain(f, np.ones(1000, F32))
    assert not report.measured and "the bytes that their operations move" in str(report)
    assert {p.code for p in report.places} >= {"y = jnp.sort(x)"} and sum(p.share for p in report.places) == pytest.approx(1)


def test_while_somebody_else_profiles_nothing_is_measured_and_nothing_fails(tmp_path):
    jax.profiler.start_trace(tmp_path)
    try:
        assert not explain(jnp.sin, np.ones(3, F32)).measured
    finally:
        jax.profiler.stop_trace()


def test_nothing_to_compute():
    assert "XLA left nothing to compute." in str(explain(lambda x: x, np.ones(3, F32))) or "copy" in str(explain(lambda x: x, np.ones(3, F32)))


HLO = """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}
%s
%%fused (p: f32[8]) -> f32[8] {
  %%p = f32[8]{0} parameter(0)
  %%s = f32[8]{0} sine(%%p), metadata={op_name="jit_f/sin" %s}
  ROOT %%m = f32[8]{0} multiply(%%s, %%s), metadata={op_name="jit_f/mul" %s}
}

%%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %%t = (s32[], f32[8]{0}) parameter(0)
  ROOT %%e = (s32[], f32[8]{0}) custom-call(%%t), custom_call_target="x"
}

ENTRY %%main (a: f32[8]) -> f32[8] {
  %%a = f32[8]{0} parameter(0)
  %%w = (s32[], f32[8]{0}) while(%%a), condition=%%cond, body=%%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %%fusion = f32[8]{0} fusion(%%a), kind=kLoop, calls=%%fused
}
"""
TABLES = """
FileNames
1 "/home/me/train.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=7 end_column=7}
2 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=7 end_column=7}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

"""


@pytest.mark.parametrize("text", [HLO % (TABLES, "stack_frame_id=1", "stack_frame_id=2"),
                                  HLO % ("", *['source_file="/home/me/train.py" source_line=%d' % n for n in (3, 4)])])
def test_both_ways_in_which_xla_writes_places_are_read(text):
    hlo = Hlo(text)
    assert hlo.where("s") == ("/home/me/train.py", 3) and hlo.where("fusion") == hlo.where("m") == ("/home/me/train.py", 4)
    assert hlo.kinds("fusion") == ["sin", "mul"] and hlo.inside("fusion") == ["p", "s", "m"]
    assert hlo.bytes_moved() == {"e": 3 * 72, "fusion": 64}


@pytest.mark.parametrize("words, hint", [
    (("nowhere.py:f", "f32[]"), "no file nowhere.py"), (("{file}:lost", "f32[]"), "its functions are: loss"), (("{file}:loss", "g32[3]"), "unknown dtype g32")])
def test_words_that_make_no_sense(capsys, file, words, hint):
    assert main(["explain", *[w.replace("{file}", file) for w in words]]) == 2
    err = capsys.readouterr().err
    assert err.startswith("python -m mini_jax explain: ") and hint in err
