"""Every public function of the libraries: it is documented, agrees with NumPy and SciPy on a grid of shapes and axes in float32, float64
and bfloat16, differentiates as finite differences do, and batches like a loop. The calls stand in tests/samples/library.py.
"""
import importlib
import inspect
import types

import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.core import dtypes
from tests.folded import folded
from tests.samples import library
from tests.samples.library import ARRAYS, EDGES
from tests.samples.library_references import nn as nn_reference, ops as ops_reference
from tests.test_primitives import direction, same

STEP = 1e-5                                  # of central differences: their error is of the order STEP² and eps / STEP
SCIPY = {"special": "special", "slinalg": "linalg", "signal": "signal", "sfft": "fft", "stats": "stats", "ndimage": "ndimage", "integrate": "integrate",
         "optimize": "optimize", "sparse": "sparse.linalg", "vq": "cluster.vq"}
OURS = {"np": jnp, "nn": jax.nn, "ops": jax.ops} | {name: importlib.import_module(f"mini_jax.scipy.{module}") for name, module in SCIPY.items()}
LIBRARIES = OURS | {"np.linalg": jnp.linalg, "np.fft": jnp.fft}
FAMILIES = library.FAMILIES | {f"scipy {name}": family for name, family in library.SCIPY.items()}


def references(name: str) -> dict:
    """The modules in which the expressions of a family are evaluated for reference."""
    found = {"np": np, "nn": nn_reference, "ops": ops_reference}
    if name.startswith("scipy "):
        pytest.importorskip("scipy")
        found |= {short: importlib.import_module(f"scipy.{module}") for short, module in SCIPY.items()}
    return found


def public(module) -> list[str]:
    """The names of a library's functions."""
    found = {name: getattr(module, name) for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")}
    return [name for name, f in found.items() if (inspect.isroutine(f) or hasattr(f, "_cache_miss")) and getattr(f, "__module__", "").startswith("mini_jax")
            and not f.__module__.startswith("mini_jax.core") or isinstance(f, jnp.ufunc)]


CALLS = {name: family.calls() for name, family in FAMILIES.items()}
CALLED = {f for groups in CALLS.values() for group in groups for text in group for f in library.named(text)}
ELSEWHERE = {name for names in library.ELSEWHERE.values() for name in names.split()}
EVERY = [(module, name) for module in LIBRARIES for name in public(LIBRARIES[module])]
# tests/test_scipy_stats.py walks these: values, slopes
DISTRIBUTIONS = {f"stats.{name}": module for name, module in vars(OURS["stats"]).items() if inspect.ismodule(module) and hasattr(module, "__all__")}


def test_every_public_function_is_walked():
    assert len(EVERY) > 400
    missing = [f"{module}.{name}" for module, name in EVERY if f"{module}.{name}" not in CALLED and name not in ELSEWHERE]
    assert not missing, f"no call in tests/samples/library.py: {' '.join(missing)}"


def test_what_is_walked_elsewhere_is_there():
    for name in ELSEWHERE:
        assert any([hasattr(module, name) for module in LIBRARIES.values()]), name


def test_every_public_function_has_a_signature_and_says_what_it_computes():
    assert len(DISTRIBUTIONS) > 20
    for module, name in [*EVERY, *[(module, name) for module in DISTRIBUTIONS for name in public(DISTRIBUTIONS[module])]]:
        fun = getattr((LIBRARIES | DISTRIBUTIONS)[module], name)
        doc = inspect.getdoc(fun)
        assert doc and len(doc) > 10 and doc[0].strip() and "TODO" not in doc, f"{module}.{name}"
        assert inspect.signature(fun) is not None, f"{module}.{name}"


# --- evaluating -------------------------------------------------------------------------------------------------------------------------

def leaves(value) -> list:
    """The arrays of a result, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None else [value]


def code(text: str):
    return compile(text, text, "eval")


def inputs_of(text: str) -> list[str]:
    return [name for name in code_names(text) if name in ARRAYS]


def code_names(text: str) -> set[str]:
    found = set()
    def visit(c):
        found.update(c.co_names)
        for const in c.co_consts:
            if isinstance(const, types.CodeType):
                visit(const)
    visit(code(text))
    return sorted(found)


def arrays_in(dtype) -> dict[str, np.ndarray]:
    """The inputs, floats and complex numbers in this precision."""
    out = {}
    for name, x in ARRAYS.items():
        narrow = {"c": np.complex64, "i": np.int32}
        out[name] = x.astype(dtype) if x.dtype.kind == "f" else x.astype(narrow[x.dtype.kind]) if dtype != np.float64 and x.dtype.kind in narrow else x
    return out


def widened(arrays: dict) -> dict:
    return {name: x.astype(np.complex128) if x.dtype.kind == "c" else x.astype(np.int64) if x.dtype.kind == "i" else x if x.dtype.kind == "b" else x.astype(np.float64) for name, x in arrays.items()}


def evaluator(texts):
    codes = [code(text) for text in texts]
    return lambda arrays: [leaves(eval(c, {**OURS, **arrays})) for c in codes]


def run(texts, arrays, eager=False):
    """The results of all calls, in one program."""
    if eager:
        return evaluator(texts)({name: jnp.asarray(x) for name, x in arrays.items()})
    return folded(evaluator(texts))(arrays)


def chosen(name: str, count: int | None) -> list[str]:
    """The first calls of each line and function, of numbers and without NaN; None: all calls."""
    if count is None:
        return [text for group in CALLS[name] for text in group]
    return [text for group in CALLS[name] for text in [t for t in group if inputs_of(t) and not any([e in inputs_of(t) for e in EDGES])][:count]]


def close(got, wanted, tolerance, what, problems):
    got, wanted = np.asarray(got), np.asarray(wanted)
    kind = lambda x: "i" if x.dtype.kind in "iu" else "f" if x.dtype == ml_dtypes.bfloat16 else x.dtype.kind
    if got.shape != wanted.shape or kind(got) != kind(wanted):
        problems.append(f"{what}: {got.dtype}{list(got.shape)}, wanted {wanted.dtype}{list(wanted.shape)}")
        return
    try:
        same(got, wanted, tolerance, what)
    except AssertionError as error:
        problems.append(str(error)[:300])


def precisions(name: str) -> list:
    """The dtypes of floats in which a family is evaluated; those of scipy are in float32 by their own tests."""
    family = FAMILIES[name]
    return [np.float64] + [np.float32] * (not family.eager and not name.startswith("scipy")) + [ml_dtypes.bfloat16] * family.bfloat16 * (not family.eager)


@pytest.mark.parametrize("name, dtype", [pytest.param(name, dtype, id=f"{name}-{dtype.__name__}") for name in FAMILIES for dtype in precisions(name)])
@pytest.mark.filterwarnings("ignore")
def test_values_are_those_of_numpy(name, dtype):
    family = FAMILIES[name]
    texts, eps, problems = chosen(name, 1 if dtype == ml_dtypes.bfloat16 else None), float(dtypes.finfo(np.dtype(dtype)).eps), []
    arrays, modules = {n: x for n, x in arrays_in(dtype).items() if any([n in inputs_of(t) for t in texts])}, references(name)
    with np.errstate(all="ignore"):
        wanted = [leaves(eval(code(text), {**modules, **widened(arrays)})) for text in texts]
    with jax.enable_x64(dtype == np.float64):
        got = run(texts, arrays, family.eager)
    for text, gs, ws in zip(texts, got, wanted, strict=True):
        if len(gs) != len(ws):
            problems.append(f"{text}: {len(gs)} results, wanted {len(ws)}")
            continue
        for g, w in zip(gs, ws):
            if np.asarray(w).dtype.kind == "f" and "float32" not in text and np.asarray(g).dtype != dtype:
                problems.append(f"{text}: {np.asarray(g).dtype}")
            close(g, w, family.tolerance * eps * (8 if dtype == np.float64 else 1), f"{text} in {np.dtype(dtype)}", problems)
    assert not problems, "\n".join(problems)


# --- derivatives and batches ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.smooth])
def test_derivatives_are_limits_of_differences_and_reverse_mode_pairs_with_forward(name):
    texts = chosen(name, 1)
    arrays = arrays_in(np.float64)

    def points(arrays):
        out = []
        for text in texts:
            names = [n for n in inputs_of(text) if arrays[n].dtype.kind in "fc"]
            if not names:
                continue
            c, xs = code(text), [arrays[n] for n in names]
            fixed = {n: arrays[n] for n in inputs_of(text) if n not in names}
            vs = [direction(i, x) * 0.5 for i, x in enumerate(xs)]

            def fun(*xs):
                ys = leaves(eval(c, {**OURS, **fixed, **dict(zip(names, xs))}))
                return [jnp.stack([jnp.real(y), jnp.imag(y)]) if dtypes.is_complex(y.dtype) else y for y in map(jnp.asarray, ys) if dtypes.is_inexact(y.dtype)]
            ys, slopes = jax.jvp(fun, tuple(xs), tuple(vs))
            around = [fun(*[x + k * STEP * v for x, v in zip(xs, vs)]) for k in (-1, 1)]
            cts = [jnp.asarray(direction(9 + i, y)) for i, y in enumerate(ys)]
            back = jax.vjp(fun, *xs)[1](cts)
            paired = sum([jnp.sum(jnp.real(b * v)) for b, v in zip(back, vs)]), sum([jnp.sum(s * ct) for s, ct in zip(slopes, cts)])
            out.append((text, slopes, [(above - below) / (2 * STEP) for below, above in zip(*around)], paired))
        labels[:] = [entry[0] for entry in out]
        return [entry[1:] for entry in out]

    labels, problems = [], []
    with jax.enable_x64(True):
        found = folded(points)({n: arrays[n] for n in sorted({n for t in texts for n in inputs_of(t)})})
    assert found, "no call of this family can be differentiated"
    for text, (slopes, differences, (back, forth)) in zip(labels, found, strict=True):
        for s, d in zip(slopes, differences, strict=True):
            close(s, d, 1e-6, f"{text}: derivative", problems)
        close(back, forth, 1e-9, f"{text}: reverse", problems)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.batched and not family.eager])
def test_batches_are_loops(name):
    texts, base = chosen(name, 1), arrays_in(np.float64)
    names = sorted({n for t in texts for n in inputs_of(t)})
    drawn = [{n: base[n] if i == 0 or base[n].dtype.kind in "biu" else base[n] * (1 + 0.125 * i) if np.abs(base[n]).max(initial=0) > 0.95 else base[n] ** 3
              for n in names} for i in range(2)]

    def both(drawn):
        out = []
        for j, text in enumerate(texts):
            used = inputs_of(text)
            axes = [-1 if (i + j) % 2 else 0 for i in range(len(used))]
            if len(used) > 1 and j % 3 == 2:
                axes[-1] = None
            stacked = [drawn[0][n] if a is None else np.stack([d[n] for d in drawn], a) for n, a in zip(used, axes)]
            c = code(text)
            apply = lambda *xs: [jnp.asarray(y) for y in leaves(eval(c, {**OURS, **dict(zip(used, xs))}))]
            loop = [apply(*[drawn[0][n] if a is None else d[n] for n, a in zip(used, axes)]) for d in drawn]
            out.append((jax.vmap(apply, in_axes=tuple(axes))(*stacked), [jnp.stack(pair) for pair in zip(*loop)]))
        return out

    with jax.enable_x64(True):
        found, problems = folded(lambda: both(drawn))(), []
    for text, (batched, loop) in zip(texts, found, strict=True):
        for b, l in zip(batched, loop, strict=True):
            close(b, l, 1e-9, f"{text}: batched", problems)
    assert not problems, "\n".join(problems)
