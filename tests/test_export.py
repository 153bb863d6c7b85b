"""jax.export: what is exported computes what the function does, here, in jit, under grad, after it was stored, and in a process without the function."""
import os
import subprocess
import sys

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import export as E

W = jnp.arange(6.0).reshape(3, 2)
X = np.random.default_rng(0).uniform(0.5, 1.5, (4, 3)).astype(np.float32)
P = {"a": np.float32(2.0), "names": [np.int32(3), None]}


def f(p, x, *, shift):
    solved = jnp.linalg.solve(jnp.eye(2) * p["a"], (x @ W).T)                              # by LAPACK, with a captured array
    return {"y": solved.sum(0) + shift, "s": (jax.jit(jnp.sin)(x) * p["names"][0], p["names"][0])}


EXPORTED = E.export(jax.jit(f))(P, X, shift=1.0)
STORED = EXPORTED.serialize(vjp_order=1)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), a, b)


@pytest.mark.parametrize("exported", [EXPORTED, E.deserialize(STORED)], ids=["exported", "stored"])
def test_it_computes_what_the_function_does_and_its_derivative(exported):
    assert exported.fun_name == "f" and exported.platforms == ("cpu",) and exported.has_vjp() and exported.nr_devices == 1
    assert [str(t) for t in exported.in_avals] == ["f32[]", "i32[]", "f32[4,3]", "f32[]"] and len(exported.out_avals) == 3
    same(exported.call(P, X, shift=1.0), f(P, X, shift=1.0))
    twice = lambda g: lambda p, x: g(p, x, shift=0.5)["y"] + g(p, 2 * x, shift=0.5)["y"]
    same(jax.jit(twice(exported.call))(P, X), twice(f)(P, X))
    loss = lambda g: lambda p, x: (g(p, x, shift=1.0)["y"] ** 2).sum() + g(p, x, shift=1.0)["s"][0].sum()
    found, wanted = [jax.jit(jax.grad(loss(g), (0, 1), allow_int=True))(P, X) for g in (exported.call, f)]
    same([found[0]["a"], found[1]], [wanted[0]["a"], wanted[1]])
    assert found[0]["names"][0].dtype == jax.float0


def test_a_program_that_calls_it_twice_holds_it_once():
    text = jax.jit(lambda x: [EXPORTED.call(P, x, shift=s)["y"] for s in (1.0, 2.0)]).lower(X).as_text()
    assert text.count("func.call @f_main") == 2 and text.count("func.func private @f_main") == 1 and text.count("dense<[[0.0") == 0
    assert EXPORTED.mlir_module().startswith("module @jit_f") and EXPORTED.mlir_module_serialized.decode() == EXPORTED.mlir_module()


def test_it_is_called_in_a_process_without_the_function(tmp_path):
    (tmp_path / "f.bin").write_bytes(STORED), np.save(tmp_path / "x.npy", X)
    code = ("import numpy as np\nfrom mini_jax import export\n"
            "e = export.deserialize(open('f.bin', 'rb').read())\n"
            "print(e.call({'a': np.float32(2), 'names': [np.int32(3), None]}, np.load('x.npy'), shift=1.0)['y'].tolist())")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(eval(done.stdout), f(P, X, shift=1.0)["y"], rtol=1e-5)


def test_there_may_be_a_program_for_each_of_several_platforms():
    both = E.export(jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos)), platforms=("tpu", "cpu"))(jax.ShapeDtypeStruct((2,), jnp.float32))
    assert both.platforms == ("tpu", "cpu") and "cosine" in both.mlir_module()
    again = E.deserialize(both.serialize())
    same(again.call(np.ones(2, np.float32)), jnp.sin(jnp.ones(2)))
    assert E.default_export_platform() == "cpu"


@pytest.mark.parametrize("call, error, words", [
    (lambda: E.export(f), ValueError, "export takes what jit returns, got <function f"),
    (lambda: EXPORTED.call(P, X), TypeError, "the exported function f takes arguments of the structure"),
    (lambda: EXPORTED.call(P, X[:2], shift=1.0), ValueError, r"f takes f32\[4,3\] for \(args, kwargs\)\[0\]\[1\], got f32\[2,3\]"),
    (lambda: EXPORTED.call(P, X.astype(int), shift=1.0), ValueError, r"f takes f32\[4,3\].*got i32\[4,3\]"),
    (lambda: jax.vmap(lambda x: EXPORTED.call(P, x, shift=1.0))(X[None]), NotImplementedError, "vmap of the exported function f"),
    (lambda: jax.grad(lambda x: E.deserialize(EXPORTED.serialize()).call(P, x, shift=1.0)["y"].sum())(X), ValueError, r"no derivative: store it with serialize\(vjp_order=1\)"),
    (lambda: E.export(jax.jit(jnp.sin), platforms=["tpu"])(1.0).call(1.0), ValueError, "exported for tpu, and is called on cpu"),
    (lambda: E.export(jax.jit(lambda x: jax.pure_callback(np.sin, x, x)))(X), NotImplementedError, "calls Python functions"),
    (lambda: E.export(jax.jit(jax.random.split))(jax.random.key(0)), NotImplementedError, "random keys.*key_data"),
    (lambda: E.export(jax.jit(jax.pmap(jnp.sin)))(jnp.ones((2, 1))), NotImplementedError, "runs on 2 devices"),
    (lambda: E.deserialize(b"pickle"), ValueError, "these 6 bytes are no exported function"),
    (lambda: E.deserialize(STORED[:200]), ValueError, "are no exported function"),
    (lambda: E.export(jax.jit(lambda x: {1.5: x}))(1.0).serialize(), NotImplementedError, "structures of tuples, lists, dictionaries"),
])
def test_what_can_not_be_done_is_said(call, error, words):
    with pytest.raises(error, match=words):
        call()
