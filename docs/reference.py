"""Writes the API reference, docs/reference/*.md, from the docstrings: for each public function its signature, what it says of itself, and an
example with its true result; and docs/differences_from_jax.md, from docs/api_usage.tsv and the names that are there.

    python docs/reference.py [MODULE ...]

MODULE: write the pages of these alone, beside the page of differences. Examples that can't be guessed stand in docs/examples.py. A test holds what is written against the code, so neither can go stale.
"""
from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import sys
import warnings
from typing import Any, Iterator

if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):      # examples with meshes need two devices
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import coverage
from examples import EXAMPLES

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = ["mini_jax", "mini_jax.lax", "mini_jax.lax.linalg", "mini_jax.numpy", "mini_jax.numpy.linalg", "mini_jax.numpy.fft", "mini_jax.random", "mini_jax.nn",
           "mini_jax.nn.initializers", "mini_jax.scipy.special", "mini_jax.scipy.linalg", "mini_jax.scipy.stats", "mini_jax.scipy.signal",
           "mini_jax.scipy.ndimage", "mini_jax.scipy.optimize", "mini_jax.scipy.sparse.linalg", "mini_jax.scipy.integrate", "mini_jax.scipy.interpolate",
           "mini_jax.scipy.fft", "mini_jax.tree", "mini_jax.tree_util", "mini_jax.ref", "mini_jax.ad", "mini_jax.sharding", "mini_jax.debug", "mini_jax.ops",
           "mini_jax.image", "mini_jax.experimental.checkify", "mini_jax.experimental.jet", "mini_jax.experimental.maps", "mini_jax.experimental.multihost_utils", "mini_jax.ffi", "mini_jax.custom_batching", "mini_jax.custom_derivatives",
           "mini_jax.ad_checkpoint", "mini_jax.flatten_util", "mini_jax.test_util", "mini_jax.profiler", "mini_jax.monitoring", "mini_jax.dlpack", "mini_jax.scipy.cluster.vq",
           "mini_jax.dtypes", "mini_jax.stages", "mini_jax.memory", "mini_jax.distributed", "mini_jax.export", "mini_jax.extend.core", "mini_jax.experimental.ode",
           "mini_jax.example_libraries.stax", "mini_jax.example_libraries.optimizers"]
NESTED = ["mini_jax.scipy.stats"]                       # whose page has what stands in its modules, too: `norm.pdf`
SHORT = {"mini_jax": "jax", "mini_jax.numpy": "jnp", "mini_jax.lax": "lax"}


def public(module) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module that are ours."""
    names = set(getattr(module, "__all__", ())) or {name for name in dir(module) if not name.startswith("_")}
    for name in sorted(names, key=lambda n: (n.lower(), n)):
        try:
            found = getattr(module, name)
        except AttributeError:
            continue
        home = getattr(found, "__module__", None) or ""
        documented = inspect.isroutine(found) or inspect.isclass(found) or hasattr(found, "_cache_miss")
        if documented and not inspect.ismodule(found) and home.startswith("mini_jax") and (not home.startswith("mini_jax.core") or inspect.isroutine(found)):
            yield name, found
        elif inspect.ismodule(found) and module.__name__ in NESTED and hasattr(found, "__all__") and name not in ("samples", "density_estimate"):
            yield from [(f"{name}.{inner}", getattr(found, inner)) for inner in found.__all__]


def signature(fun) -> str:
    """The parameters, as text, without annotations' module names."""
    try:
        text = str(inspect.signature(fun))
    except (TypeError, ValueError):
        return "(…)"
    text = re.sub(r"<(function|class|built-in function) '?(?:[\w.<>]*\.)?(\w+)'?[^>]*>", r"\2", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def shortest(module: str) -> str:
    return SHORT.get(module) or module.replace("mini_jax.numpy", "jnp").replace("mini_jax.lax", "lax").replace("mini_jax", "jax")


# --- examples -----------------------------------------------------------------------------------------------------------------

# Arguments to try, in this order, until a call works; x, y: floats, m: a symmetric positive definite matrix, i: integers, b: booleans.
VALUES = {"x": "jnp.array([0.5, 1.0, 2.0])", "y": "jnp.array([3.0, 1.0, 2.0])", "m": "jnp.array([[2.0, 1.0], [1.0, 3.0]])", "i": "jnp.array([3, 1, 2])",
          "b": "jnp.array([True, False, True])", "key": "jax.random.key(0)", "f": "jnp.sin", "tree": "{'w': 1.0, 'b': [2.0, 3.0]}"}
ATTEMPTS = ["x", "x, y", "m", "m, m", "i", "i, i", "b", "b, x, y", "x, y, x", "key", "key, (3,)", "key, x", "key, 0.5, (3,)", "key, x, y", "key, (3,), 0, 10", "3", "2, 3", "2.0",
            "'ab,bc->ac', m, m", "x, i", "x, 1", "x, (3,)", "x, (1, 3)", "m, 0, 1", "m, (0, 1)", "m, 0", "[x, y]", "[x, y], 0", "m, x[:2]", "0.0, 1.0, 3", "f", "f, tree", "tree", "f, x",
            "x, x, 'same'", "x, i, 3", "m, (4, 4), 'linear'", "(2, 2)", "(2, 2), 1.0", "x, 2", "1.0, 2.0, x", "x, i, i", "key, x, (3,)", "key, 2.0, 3.0, (3,)", "x, 'float32'",
            "key, -1.0, 1.0, (3,)", "f, (1.0,), (1.0,)", "x, x, x, x", "i, 2", "x, y, 'float32'", "x, 0.5", "x > 1", "x, x > 1", "f, 1.0", "2, 5, 0.3", "2, 5, 2.0, 3.0", "0.5, 1.0, 2.0, 3.0", "x / 2, y / 6, x", "'bfloat16'"]
OF_DISTRIBUTIONS = dict.fromkeys(["pmf", "logpmf"], ["1, 0.3", "2, 5, 0.3", "2, 5, 2.0, 3.0", "i, 6, jnp.array([0.2, 0.3, 0.5])"]) | dict.fromkeys(["ppf", "isf"], ["0.3", "0.3, 0.5"]) \
    | dict.fromkeys(["pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "entropy"],
                    ["0.5", "0.5, 0.3", "0.5, -1.0, 2.0", "0.5, 2.0, 3.0", "jnp.array([0.2, 0.8]), x[1:]", "x[:2], y[:2], m"])
BY_HAND = {name: text for names, text in EXAMPLES.items() for name in names.split()}


def example(module: str, name: str, fun) -> list[str]:
    """Lines of an example: the call and its result. None where no attempt at a call worked, or where it would do more than compute."""
    if name.endswith("_p"):
        return []
    import mini_jax as jax
    import mini_jax.numpy as jnp
    import numpy as np
    from mini_jax import lax
    space = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "fun": fun}
    called = f"{shortest(module)}.{name}"
    if called in BY_HAND:
        return shown(BY_HAND[called].replace("{f}", called), space)
    if inspect.isclass(fun):
        return []
    space |= {letter: eval(text, space) for letter, text in VALUES.items()}
    required, second = _required(fun), []
    for attempt in [*OF_DISTRIBUTIONS.get(name.split(".")[-1], ()), *ATTEMPTS]:
        try:
            given = eval(f"({attempt},)", space)
            if required is not None and not required[0] <= len(given) <= required[1]:
                continue
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                text = repr(eval(f"fun({attempt})", space))
        except Exception:                                # not what this function takes: try the next
            continue
        if text == "None" or " at 0x" in text or "Tracer" in text or "function" in text or len(text) > 600 or "object" in text:
            continue
        call = re.sub(r"\b(x|y|m|i|b|key|f|tree)\b(?![\w(=])", lambda found: VALUES[found.group(1)], attempt)
        lines = [f">>> {called}({call})", *text.splitlines()]
        if "nan" not in text:
            return lines
        second = second or lines                         # what lies outside of the domain shows less
    return second


def shown(source: str, space: dict) -> list[str]:
    """The statements as at the prompt, each expression with its value and whatever is printed; those that begin with # are not run."""
    if source.startswith("# "):
        return [f">>> {source[2:]}"]
    lines, out = source.splitlines(), []
    for node in ast.parse(source).body:
        first = min([node.lineno, *[d.lineno for d in getattr(node, "decorator_list", ())]])
        text = lines[first - 1:node.end_lineno]
        out += [f"{'...' if i else '>>>'} {line}" for i, line in enumerate(text)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(node, ast.Expr):
                value = eval("\n".join(text).strip(), space)
                if value is not None:
                    print(repr(value))
            else:
                exec("\n".join(text), space)
        out += printed.getvalue().splitlines()
    return out


def _required(fun) -> tuple[int, float] | None:
    """The least and greatest number of positional arguments."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any([p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters]):
        return 99, 99
    star = any([p.kind is p.VAR_POSITIONAL for p in parameters])
    return len([p for p in positional if p.default is p.empty]), float("inf") if star else len(positional)


# --- pages ----------------------------------------------------------------------------------------------------------------------

def heading(module: str, name: str, found) -> str:
    """How it is called."""
    return f"{shortest(module)}.{name}{'' if inspect.isclass(found) else signature(found)}"


def described(found) -> str:
    """What it says of itself."""
    return "\n".join((inspect.getdoc(found) or "").strip().splitlines())


def page(module_name: str) -> str:
    """One module's page."""
    module = importlib.import_module(module_name)
    lines = [f"# {module_name}", "", (inspect.getdoc(module) or "").splitlines()[0] if module.__doc__ else "", ""]
    for name, found in public(module):
        called = example(module_name, name, found)
        lines += [f"## {name}", "", "```", heading(module_name, name, found), "```", "", *described(found).splitlines(), ""]
        lines += ["```", *called, "```", ""] if called else []
    return "\n".join(lines).rstrip() + "\n"


def contents() -> str:
    """The list of pages."""
    lines = ["# API reference", "", "Written by docs/reference.py from the docstrings. `jnp` is mini_jax.numpy, `lax` mini_jax.lax, `jax` mini_jax.", "",
             "| module | |", "| --- | --- |"]
    for name in MODULES:
        lines.append(f"| [{name}]({name}.md) | {(inspect.getdoc(importlib.import_module(name)) or '').splitlines()[0]} |")
    return "\n".join(lines) + "\n"


INTRODUCTION = """# Differences from JAX

Written by docs/reference.py from docs/api_usage.tsv, the public names of jax 0.10.2 that 119 public projects use, and from the names that are here.

## What is better here

- `pmap` nests, and gradients go through nested pmaps. (JAX replicates over one axis only.)
- `reduce_axes` gives total gradients along named axes, of vmap as of devices (docs/total_gradients.md), and `xmap` maps over axes by name. (JAX removed both.)
- Programs start and trace several times faster; benchmarks/ measures both side by side: `python -m benchmarks`.
- Refs take the C++ fast path, keep every index NumPy has, raise where they can't mean anything, and a frozen one can't be read.
- One release runs on jaxlib 0.10.2 and on the newest one.
- Errors name the argument, its whole type, your line, and what to do instead.
- Repeated layers are compiled once (docs/outlining.md): deep programs start in a third to a twelfth of the time, and run in half of it.

## What behaves differently

- `make_mesh` makes axes of type Auto; types don't show shardings.
- `psum` of a value that is the same along the axis is that many times the value, and `all_gather`'s result counts as the same on all. (So in JAX inside
  `shard_map`, where such results of `all_gather` count as varying.)
- Shapes that don't go together are an error that is both JAX's TypeError and NumPy's ValueError.
- Where an array rests is no part of its type: programs take arrays from any memory of a device and leave results in its own; `device_put` moves them.
- The cache of compiled programs on disk stores programs that compile fast too, takes 4 GiB at most, and refuses a directory that others may write.
- Exported functions are stored in a form of their own; sizes in them are numbers, not symbols.
- `max` and `min` of an array that holds NaN are NaN, whatever its size. (XLA's CPU library passes over NaN in large arrays.)
- `exp` and its relatives of a NaN that a program holds as a constant (`exp(where(mask, nan, x))`) are NaN. (XLA's CPU backend makes anything of some.)
- Under `vmap`, a checkified function reports its first failing example.
- `convolve` of integers is of integers, as NumPy's (in JAX float32). Python numbers that a dtype doesn't hold are an OverflowError in `full` and `arange`
  as they are in `array`. (In JAX they wrap.)
- `PartitionSpec` prints as `PartitionSpec('x')`.

## What is missing

"""


def differences() -> str:
    """The page of differences."""
    found = coverage.cover()
    lines = [INTRODUCTION + f"{len(found.rows) - len(found.missing)} of {len(found.rows)} names are here, which is {100 * found.share():.2f} % of all counted uses. Not here:", ""]
    for row in sorted(found.missing, key=lambda r: (-r.projects, r.name)):
        lines.append(f"- `{row.name}` ({row.projects} project{'s' if row.projects != 1 else ''})")
    lines += ["", "Keywords that are not taken:", ""]
    lines += [f"- `{row.name}`: " + ", ".join([f"`{word}`" for word in words]) for row, words in found.partly]
    lines += ["", "Pallas, Mosaic, sparse arrays, `jax.interpreters` and other internals are out of scope.", ""]
    return "\n".join(lines)


def main(*modules: str) -> None:
    os.makedirs(os.path.join(HERE, "reference"), exist_ok=True)
    for module in modules or MODULES:
        with open(os.path.join(HERE, "reference", f"{module}.md"), "w") as file:
            file.write(page(module))
    with open(os.path.join(HERE, "reference", "README.md"), "w") as file:
        file.write(contents())
    with open(os.path.join(HERE, "differences_from_jax.md"), "w") as file:
        file.write(differences())


if __name__ == "__main__":
    main(*sys.argv[1:])
