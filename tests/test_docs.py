"""Every Python block of the README and of docs/ runs, and prints the text block that follows it."""
import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_the_page_says(page):
    blocks = BLOCK.findall(page.read_text())
    namespace = {"__name__": "docs"}
    for position, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}, block {position}", "exec"), namespace)
        if position + 1 < len(blocks) and blocks[position + 1][0] == "text":
            assert printed.getvalue().rstrip() == blocks[position + 1][1].rstrip(), f"after block {position} of {page.name}"


def test_there_are_blocks_to_run():
    assert sum(language == "python" for page in PAGES for language, _ in BLOCK.findall(page.read_text())) >= 2
