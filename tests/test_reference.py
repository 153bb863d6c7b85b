"""The API reference and the page of differences hold what the code says now, and the table of names that projects use is covered."""
import contextlib
import importlib
import inspect
import io
import random
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
sys.path.insert(0, str(DOCS))
import coverage
import reference

AGAIN = "; run `python docs/reference.py`"
ENTRY = re.compile(r"^## (\S+)\n\n```\n(.*?)\n```\n\n(.*?)(?=^## \S+\n\n```\n|\Z)", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"```\n(>>> .*?)\n```", re.DOTALL)


def entries(module: str) -> dict[str, tuple[str, str, list[str]]]:
    """name -> signature, text, example, as the module's page has them."""
    found = {}
    for name, signature, rest in ENTRY.findall((DOCS / "reference" / f"{module}.md").read_text()):
        example = EXAMPLE.search(rest)
        found[name] = signature, (rest[:example.start()] if example else rest).strip(), example[1].splitlines() if example else []
    return found


@pytest.mark.parametrize("module", reference.MODULES)
def test_every_public_name_has_its_entry_with_signature_docstring_and_example(module):
    written, there = entries(module), dict(reference.public(importlib.import_module(module)))
    assert list(written) == list(there), f"{set(written) ^ set(there)}{AGAIN}"
    for name, found in there.items():
        signature, text, example = written[name]
        assert signature == reference.heading(module, name, found), f"{module}.{name}{AGAIN}"
        assert text == reference.described(found), f"{module}.{name}{AGAIN}"
        assert len(text) > 5 and not text.startswith("partial("), f"{module}.{name} has no docstring"
        assert example or inspect.isclass(found) or name.endswith("_p"), f"{module}.{name} has no example: write one in docs/examples.py"


def test_the_page_of_differences_is_what_would_be_written_now():
    assert (DOCS / "differences_from_jax.md").read_text() == reference.differences(), AGAIN


def same(got: list[str], wanted: list[str], what: str) -> None:
    """The same text, numbers up to rounding."""
    parts = [re.split(r"(-?\d+\.?\d*(?:e[-+]?\d+)?)", " ".join(" ".join(lines).split())) for lines in (got, wanted)]
    assert len(parts[0]) == len(parts[1]) and [re.sub(r"\s", "", t) for t in parts[0][::2]] == [re.sub(r"\s", "", t) for t in parts[1][::2]], what
    assert [float(x) for x in parts[0][1::2]] == pytest.approx([float(x) for x in parts[1][1::2]], rel=1e-3, abs=1e-5), what


def test_examples_give_what_the_pages_say():
    every = [(module, name, example) for module in reference.MODULES for name, (_, _, example) in entries(module).items() if example]
    assert len(every) > 800
    stable = [(m, n, e) for m, n, e in every if m in ("mini_jax.numpy", "mini_jax.lax", "mini_jax.nn", "mini_jax", "mini_jax.tree")]
    for module, name, example in random.Random(6).sample(stable, 12):
        same(reference.example(module, name, getattr(importlib.import_module(module), name)), example, f"{module}.{name}{AGAIN}")


def test_examples_are_of_names_that_there_are():
    there = {f"{reference.shortest(module)}.{name}" for module in reference.MODULES for name, _ in reference.public(importlib.import_module(module))}
    assert not set(reference.BY_HAND) - there


def test_the_table_of_names_that_projects_use_is_covered():
    found = coverage.cover()
    assert found.share() >= 0.99, [row.name for row in found.missing]
    assert len(found.rows) > 1000


def test_the_script_prints_shares_names_and_keywords_of_any_table(tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("name\tuses\tprojects\ttop_keywords\tkind\njax.numpy.sum\t30\t5\taxis:3 nonsense:2\tpublic\njax.numpy.nowhere\t10\t4\t\tpublic\n"
                     "jax._src.core\t9\t9\t\tinternal\nArray.at[].set\t60\t2\tmode:3\tmethod\n")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        coverage.main(str(table))
    text = printed.getvalue()
    assert "90.00 % of 100 uses; 2 of 3 names; 1 of the 2 names" in text and "jax.numpy.nowhere  (4 projects, 10 uses)" in text
    assert "jax.numpy.sum: nonsense (2 uses)" in text and "internal" not in text
