"""explain_cache_misses: which argument of a jitted function differed from the calls before, and how."""
from __future__ import annotations

from typing import Callable, NamedTuple

from mini_jax.core import config, logs
from mini_jax.core.program import ProgramInfo
from mini_jax.core.pytree import PyTreeDef, prefix_errors
from mini_jax.runtime import xla


class Signature(NamedTuple):
    """What a recorded program is kept by."""
    types: tuple                     # of the flat arguments
    tree: PyTreeDef
    fixed: tuple                     # (position, value) of static positional arguments
    fixed_names: tuple               # (name, value) of static keyword arguments
    count: int                       # of positional arguments
    options: tuple                   # config.trace_key()
    axes: tuple                      # named axes in scope


def explain(fun: Callable, info: ProgramInfo, new: Signature, programs) -> None:
    """Log why a function is traced: what differs from the nearest signature that it has a program for. programs: those kept by function."""
    earlier = [key for key in programs.of(fun) if type(key) is Signature and key is not new and key != new]
    where = f"{info.name}" + (f" ({info.location})" if info.location else "")
    if earlier:
        nearest = min(earlier, key=lambda old: _distance(old, new))
        why = "; ".join(_differences(info, nearest, new)) or "its program was forgotten"
    else:
        again = info.code is not None and any([other is not fun and getattr(other, "__code__", None) is info.code for other in programs.functions()])
        why = ("it is a new function object of code that was traced before: programs are kept by function, so make it once, outside of the "
               "loop or function that makes it anew" if again else "it is called for the first time")
    logs.say("%s traces %s: %s", info.transformation, where, why)


def _distance(old: Signature, new: Signature) -> tuple:
    same_tree = old.tree == new.tree and len(old.types) == len(new.types)
    return (not same_tree, sum([a != b for a, b in zip(old.types, new.types)]) + sum([a != b for a, b in zip(old[2:], new[2:])]))


def _differences(info: ProgramInfo, old: Signature, new: Signature) -> list[str]:
    found = []
    if old.tree != new.tree:
        before, now = (tree.unflatten([0] * tree.num_leaves) for tree in (old.tree, new.tree))
        where = next(prefix_errors(now, before, None, "the arguments", "the arguments before"), f"they were {old.tree} and are {new.tree}")
        found.append(f"the arguments have another structure: {where}")
    else:
        found += [f"argument {info.path(i) or i} was {_shown(a, b)} and is {_shown(b, a)}" for i, (a, b) in enumerate(zip(old.types, new.types)) if a != b]
    before = {**dict(old.fixed), **dict(old.fixed_names)}
    for key, value in (*new.fixed, *new.fixed_names):
        if key not in before or before[key] != value:
            was = f"was {before[key].value!r:.80} and " if key in before else ""
            found.append(f"static argument {key if isinstance(key, str) else f'number {key}'} {was}is {value.value!r:.80}")
    if old.options != new.options:
        found += [f"the option {change}" for change in _changed_options(old.options, new.options)]
    if old.axes != new.axes:
        found.append(f"the named axes around it were {dict(old.axes)} and are {dict(new.axes)}")
    return found


def _shown(type_, other) -> str:
    """A type, with what does not show in its text where that is the difference."""
    text = str(type_)
    if text != str(other):
        return text
    return f"{text} (weakly typed)" if getattr(type_, "weak_type", False) else f"{text} (not weakly typed)"


# trace_key() has the options in the order in which their cells were made: those that C++ reads itself first.
_KEY_NAMES = [option.name for option in sorted(config.options.values(), key=lambda option: not hasattr(xla.Config, option.name)) if option.traced]


def _changed_options(old: tuple, new: tuple) -> list[str]:
    return [f"{name} was {a!r} and is {b!r}" for name, a, b in zip(_KEY_NAMES, old, new) if a != b]
