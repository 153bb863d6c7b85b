"""Primitives: the words of the language, and the rules that say all that is known of each.

A rule is an attribute of the primitive; its signature is the contract that every transformation relies on:

    type_rule(*types, **params) -> type | [types]
    jvp(primals, tangents, **params) -> (out, tangent_out) | ([outs], [tangents_out])      a tangent may be a Zero
    transpose(ct, *args, **params)          linear args are Accumulators: `arg.add(cotangent)`; [cts] if multiple_results
    batch(axis, args, dims, **params) -> (out, dim) | ([outs], [dims])                     dim None: not batched
    effects_rule(types, params) -> frozenset
    impl(*args, **params)                   how to run it on values; by default it is compiled on its own
    linearize(primals, nonzero, **params) -> (outs, out_nonzero, linear)                   see transforms/linearize.py
    stage(trace, args, params)              how to record it, where that is more than appending an equation

A primitive that is an elementwise function, a reduction or the like gets its rules from a row of its family's
table in mini_jax/lax. How it is written as StableHLO stands in lowering/rules, in the file of the same family.
"""
from __future__ import annotations

from typing import Any, Callable

from mini_jax.core.errors import ref_operand
from mini_jax.core.program import NO_EFFECTS
from mini_jax.core.state import state
from mini_jax.core.types import RefType

table: dict[str, "Primitive"] = {}          # every primitive by name; the tests walk it


class Primitive:
    """A named operation. Calling code binds it: `sin_p.bind(x)`."""
    __slots__ = ("name", "multiple_results", "type_rule", "jvp", "transpose", "batch", "linearize", "stage", "impl",
                 "effects_rule", "format_eqn", "dispatcher", "types_memo", "memoize", "facts", "__weakref__")

    def __init__(self, name: str, *, type_rule: Callable | None = None, jvp: Callable | None = None,
                 transpose: Callable | None = None, batch: Callable | None = None, linearize: Callable | None = None,
                 stage: Callable | None = None, impl: Callable | None = None, effects_rule: Callable | None = None,
                 format_eqn: Callable | None = None, multiple_results: bool = False, memoize: bool = True,
                 listed: bool = True, facts: dict[str, Any] | None = None):
        """memoize: whether types may be remembered by (types, params); off where params hold programs or functions. listed: in `table`; off
        for those of users, whose names may be any.
        facts: what tests and tools may ask about the primitive, e.g. the dtypes a row declares."""
        self.name, self.multiple_results = name, multiple_results
        self.type_rule, self.jvp, self.transpose, self.batch = type_rule, jvp, transpose, batch
        self.linearize, self.stage, self.impl = linearize, stage, impl
        self.effects_rule, self.format_eqn = effects_rule, format_eqn
        self.memoize, self.types_memo, self.dispatcher = memoize, {}, None
        self.facts = facts or {}
        if listed:
            table[name] = self

    def bind(self, *args, **params):
        """Apply to values; what that means is up to the current trace."""
        return state.trace.process(self, args, params)

    def types(self, types: tuple, params: dict):
        """The types of the results (a list if multiple_results) of applying this to values of `types`."""
        if not self.memoize:
            return self._types(types, params)
        key = (types, *params.items()) if params else types
        found = self.types_memo.get(key)
        if found is None:
            if len(self.types_memo) > 4096:
                self.types_memo.clear()
            found = self.types_memo[key] = self._types(types, params)
        return found

    def _types(self, types, params):
        if "discharge" not in self.facts:
            for position, t in enumerate(types):
                if type(t) is RefType:
                    raise ref_operand(self.name, str(t), position=position)
        out = self.type_rule(*types, **params)
        varying = NO_EFFECTS.union(*[t.varying for t in types if hasattr(t, "varying")])
        if not varying or self.facts.get("named_axes"):      # collectives say themselves what varies
            return out
        if "varying" in self.facts:                          # so do programs, in which there may be collectives
            return self.facts["varying"](types, params)
        if self.multiple_results:
            return [t.update(varying=t.varying | varying) for t in out]
        return out.update(varying=out.varying | varying)

    def effects(self, types, params) -> frozenset:
        return NO_EFFECTS if self.effects_rule is None else self.effects_rule(types, params)

    def __repr__(self):
        return self.name
