"""Primitives whose families have tests of their own (programs, devices, effects): each has its rules, and a test that uses it."""
from pathlib import Path

import pytest

import mini_jax.custom_batching                        # noqa: F401  (primitives that are loaded when they are asked for)
import mini_jax.experimental.checkify                  # noqa: F401
import mini_jax.transforms.control.platforms           # noqa: F401
from lowering.emit import rules
from mini_jax.core.primitive import table
from tests.test_primitives import ELSEWHERE

PRIMITIVES = {name: p for name, p in sorted(table.items()) if p.facts.get("family") in ELSEWHERE}
NEEDLESS = {                                           # rules that a primitive has no use for
    "custom_lin": {"batch", "jvp"},                    # lives between linearization and transposition alone
    "platform_index": {"batch", "jvp"},                # has no operands
    "outlined": {"batch", "jvp"},                      # made while lowering, when nothing is transformed any more
    "row_major": {"batch", "jvp"},                     # likewise
    **{name: {"type_rule", "batch", "jvp", "lowering"} for name, p in PRIMITIVES.items() if p.facts["family"] == "refs"}}   # see core/refs.py
WORDS = {                                              # how tests call what binds it, where not by its name
    "row_major": "LayoutConstraint", "custom_lin": "custom_vjp", "platform_index": "platform_dependent", "debug_callback": "debug.callback", "while": "while_loop",
    "custom_jvp_call": "custom_jvp", "custom_vjp_call": "custom_vjp", "custom_vmap_call": "custom_vmap", "remat_opt": "optimize_remat"}
TESTS = "".join([path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)])


@pytest.mark.parametrize("name", PRIMITIVES)
def test_it_has_its_rules_and_a_test(name):
    primitive = PRIMITIVES[name]
    have = {"type_rule": primitive.type_rule, "batch": primitive.batch, "jvp": primitive.jvp, "lowering": rules.get(primitive)}
    missing = {rule for rule, found in have.items() if found is None} - NEEDLESS.get(name, set())
    assert not missing, f"{name} has no {', '.join(sorted(missing))}"
    if primitive.facts["family"] != "refs":
        assert WORDS.get(name, name) in TESTS, f"{name} occurs in no test"
