"""How much of JAX's public interface, as projects use it, mini_jax has.

    python docs/coverage.py [TABLE]

TABLE: tab-separated, with the columns name, uses, projects, top_keywords ("axis:12 dtype:3") and kind; default: docs/api_usage.tsv, which
counts 119 public projects. Names of kind `public` and `method` count. A name is covered when it resolves and takes the keywords counted.
"""
from __future__ import annotations

import csv
import importlib
import inspect
import os
import sys
from typing import Any, Callable, NamedTuple

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "api_usage.tsv")


class Row(NamedTuple):
    """One name of the table: how often it is used, by how many projects, and with which keywords."""
    name: str
    uses: int
    projects: int
    keywords: dict[str, int]
    kind: str


def read(path: str) -> list[Row]:
    """The rows of kind `public` and `method`."""
    with open(path) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    pairs = [[(word, int(count)) for word, _, count in (pair.rpartition(":") for pair in row["top_keywords"].split())] for row in rows]
    return [Row(row["name"], int(row["uses"]), int(row["projects"]), dict(words), row["kind"]) for row, words in zip(rows, pairs)
            if row["kind"] in ("public", "method")]


def resolve(name: str) -> Any:
    """The object that a public name of JAX is here. LookupError where there is none."""
    package, *parts = name.split(".")
    found, path = importlib.import_module("mini_jax"), "mini_jax"
    if parts[-1:] == ["*"]:
        parts.pop()
    for part in parts:
        path += f".{part}"
        try:
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
        except ImportError:
            raise LookupError(name) from None
    return found


def holders() -> list:
    """One object of each class whose methods the table counts."""
    import mini_jax as jax
    import mini_jax.numpy as jnp
    from mini_jax.custom_batching import custom_vmap
    from mini_jax.extend.core import Primitive
    x, jitted = jnp.ones(2), jax.jit(lambda x: x)
    traced, program = jitted.trace(x), jax.make_jaxpr(lambda x: x + 1)(x)
    lowered = traced.lower()
    return [x, jitted, traced, lowered, lowered.compile(), program, program.jaxpr, program.eqns[0], program.eqns[0].primitive, program.eqns[0].invars[0],
            x.sharding, jax.devices()[0], jax.custom_vjp(lambda x: x), jax.custom_jvp(lambda x: x), custom_vmap(lambda x: x), Primitive("p"), x.at[0]]


def method(name: str, objects: list) -> Any:
    """What the name of a method is on the object that has it. LookupError where none has."""
    owner, _, attribute = name.rpartition(".")
    candidates = objects[-1:] if owner.startswith("Array.at") else objects
    for candidate in candidates:
        if hasattr(type(candidate), attribute) or hasattr(candidate, attribute):
            return getattr(type(candidate), attribute, None) or getattr(candidate, attribute)
    raise LookupError(name)


def refused(fun: Callable, keywords: dict[str, int]) -> list[str]:
    """The keywords that a function does not take."""
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return []
    if any([p.kind is p.VAR_KEYWORD for p in parameters.values()]):
        return []
    return [word for word in keywords if word != "**" and word not in parameters]


class Coverage(NamedTuple):
    """missing: rows whose name is not there; partly: (row, keywords that it does not take)."""
    rows: list[Row]
    missing: list[Row]
    partly: list[tuple[Row, list[str]]]

    def share(self) -> float:
        """The share of all counted uses whose name is there."""
        return 1 - sum([row.uses for row in self.missing]) / sum([row.uses for row in self.rows])


def cover(path: str = TABLE) -> Coverage:
    """Hold the table against mini_jax."""
    rows, missing, partly, objects = read(path), [], [], holders()
    for row in rows:
        try:
            found = method(row.name, objects) if row.kind == "method" else resolve(row.name)
        except LookupError:
            missing.append(row)
            continue
        words = refused(found, row.keywords) if callable(found) and row.name != "jax.config.update" else []
        if words:
            partly.append((row, words))
    return Coverage(rows, missing, partly)


def main(path: str = TABLE) -> None:
    found = cover(path)
    often = [row for row in found.rows if row.projects >= 3]
    lacking = [row for row in found.missing if row.projects >= 3]
    print(f"{100 * found.share():.2f} % of {sum([r.uses for r in found.rows])} uses; {len(found.rows) - len(found.missing)} of {len(found.rows)} names; "
          f"{len(often) - len(lacking)} of the {len(often)} names that three projects or more use")
    for title, rows in (("Missing, used by three projects or more", lacking), ("Missing, used by fewer", [r for r in found.missing if r.projects < 3])):
        print(f"\n{title}:")
        for row in sorted(rows, key=lambda r: (-r.projects, -r.uses)):
            print(f"  {row.name}  ({row.projects} projects, {row.uses} uses)")
    print("\nKeywords not taken:")
    for row, words in found.partly:
        print(f"  {row.name}: " + ", ".join([f"{word} ({row.keywords[word]} uses)" for word in words]))


if __name__ == "__main__":
    main(*sys.argv[1:])
