"""Running recorded functions that read and write refs: in place, with the refs' buffers given to the compiled program."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from mini_jax.core import config
from mini_jax.core.program import Jaxpr, ProgramInfo, memoized
from mini_jax.core.refs import described, discharged, is_ref
from mini_jax.core.trace import Tracer, leaked
from mini_jax.core.types import RefType
from mini_jax.runtime import dispatch, nonfinite
from mini_jax.runtime.caches import executables
from mini_jax.runtime.executable import Executable
from mini_jax.runtime.refs import Delivery, Ref, begin_call, delivery_tree, note_capture
from mini_jax.transforms.shards import mesh_in


@memoized
def takes_refs(jaxpr: Jaxpr) -> bool:
    """Are there refs among a program's inputs and constants?"""
    return any([type(v.aval) is RefType for v in (*jaxpr.constvars, *jaxpr.invars)])


def check_aliases(info: ProgramInfo, consts: Sequence, leaves: Sequence) -> None:
    """Raise ValueError for a ref that reaches a function twice."""
    seen: dict[int, int | None] = {id(c): None for c in consts if is_ref(c)}
    for position, leaf in enumerate(leaves):
        if is_ref(leaf):
            if id(leaf) in seen:
                first = seen[id(leaf)]
                where = f"as its argument {info.path(position)}, and " + ("captured by it" if first is None else f"as {info.path(first)}")
                raise ValueError(f"{info.transformation} of {info.name}: {described(leaf)} is given {where}: writes to one would not show in the "
                                 "other. Pass it once" + (", or let the function use only the captured one" if first is None else ""))
            seen[id(leaf)] = position


@memoized
def _in_place(jaxpr: Jaxpr, captured: tuple[bool, ...]) -> tuple[Jaxpr, tuple[int, ...]]:
    """A discharged program with captured refs as its first inputs and the new values of refs as its first results; which inputs those are.

    captured: for each constant of the program whether it is a ref.
    """
    pure = discharged(jaxpr.hoisted()) if jaxpr.constvars else discharged(jaxpr)
    consts, inputs = pure.jaxpr.invars[:len(captured)], pure.jaxpr.invars[len(captured):]
    order = [*[v for v, c in zip(consts, captured) if c], *inputs]
    count = len(jaxpr.outvars)
    outs = pure.jaxpr.outvars
    place = {v: i for i, v in enumerate(order)}
    written = [place[pure.jaxpr.invars[i]] for i in pure.written]
    by_place = sorted(zip(written, outs[count:]), key=lambda pair: pair[0])
    program = pure.jaxpr.replace(constvars=[v for v, c in zip(consts, captured) if not c], invars=order,
                                 outvars=[*[atom for _, atom in by_place], *outs[:count]])
    return program, tuple([i for i, _ in by_place])


class InPlace(NamedTuple):
    """A recorded function that takes refs as a program that takes none: (captured refs, arguments) -> (new values of refs, results)."""
    program: Jaxpr
    values: list                     # of its constants
    captured: list[Ref]
    written: tuple[int, ...]         # which inputs the new values are those of
    donated: tuple[bool, ...]
    marks: tuple[bool, ...]          # which arguments the user donates

    def placement(self, leaves: Sequence, device=None) -> dispatch.Placement:
        """Where it runs with these arguments."""
        if device is not None:
            return dispatch.Placement(device, True)
        return dispatch.placement(_arrays([*self.captured, *leaves]), mesh_in(self.program), captured=self.values)

    def carry_out(self, executable: Executable, leaves: Sequence) -> list:
        """Run it, compiled: the refs take their new values; returns the results."""
        inputs = [*self.captured, *leaves]
        refs = [value for value in inputs if is_ref(value)]
        with _all_locked(refs):
            for ref in refs:
                ref.check_live()
                ref.busy = bool(executable.host_functions)
            try:
                outs = dispatch.wrapped(executable.out_types, executable(dispatch.opened(_arrays(inputs))))
            except BaseException:
                for ref in refs:
                    ref.check_kept()
                raise
            finally:
                for ref in refs:
                    ref.busy = False
            for i, new in zip(self.written, outs):
                inputs[i].take(new)
        nonfinite.give_away(leaves, self.marks, executable.in_shardings[len(self.captured):])
        return outs[len(self.written):]


def _arrays(values: Sequence) -> list:
    return [value.array if type(value) is Ref else value for value in values]


def in_place(jaxpr: Jaxpr, consts: Sequence, donated: Sequence[bool] = ()) -> InPlace:
    """A recorded function with refs among its constants or arguments, to be run in place. donated: which arguments the user donates."""
    captured = [c for c in consts if is_ref(c)]
    for ref in captured:
        if isinstance(ref, Tracer):
            raise leaked(ref)
    program, written = _in_place(jaxpr, tuple([is_ref(c) for c in consts]))
    marks = donated or [False] * len(jaxpr.invars)
    given = [i in written for i in range(len(captured))]
    given += [i in written if type(v.aval) is RefType else mark for i, (v, mark) in enumerate(zip(jaxpr.invars, marks), len(captured))]
    return InPlace(program, [c for c in consts if not is_ref(c)], captured, written, nonfinite.kept_for_again(tuple(given)), tuple(marks))


def run(jaxpr: Jaxpr, consts: Sequence, leaves: Sequence, out_tree, *, name: str, donated: Sequence[bool] = (), device=None,
        keep_unused: bool = False, options: tuple = (), dispatcher: Callable | None = None) -> tuple[Any, Any]:
    """Run a program with refs among its constants or arguments: its results, and where dispatcher, whose call this is, may run it
    without Python from now on, what it needs to do so."""
    fast = begin_call()
    call = in_place(jaxpr, consts, donated)
    captured, written, count = call.captured, call.written, len(call.captured)
    inputs = [*captured, *leaves]
    for ref in inputs:
        if is_ref(ref):
            if isinstance(ref, Tracer):
                raise leaked(ref)
            ref.check_live()
            fast = not ref.shared and fast
    at = call.placement(leaves, device)
    executable = executables.once(call.program.memo, (run, at, call.donated, keep_unused, options, config.trace_key()), lambda: dispatch.load(
        call.program, call.values, at, name=name, donated=call.donated, keep_unused=keep_unused, options=dict(options)))
    result = out_tree.unflatten(call.carry_out(executable, leaves))
    if not fast or dispatcher is None or jaxpr_has_other_effects(jaxpr) or dispatch.for_python(_arrays(leaves), executable):
        return result, None
    positions = [i for i, leaf in enumerate(leaves) if is_ref(leaf)]
    delivery = Delivery([inputs[i].array for i in written if i < count], [positions.index(i - count) for i in written if i >= count], len(positions))
    path = executable.fastpath(delivery_tree(delivery, out_tree), leading=[ref.array for ref in captured])
    if path is not None:
        for ref in captured:
            note_capture(ref, dispatcher)
    return result, path


@memoized
def jaxpr_has_other_effects(jaxpr: Jaxpr) -> bool:
    """Has a program effects beside those on refs?"""
    from mini_jax.core.effects import RefEffect
    return any([type(e) is not RefEffect for e in jaxpr.effects])


class _all_locked:
    """All locks of refs, taken in one order, so that no two calls wait for each other."""
    __slots__ = ("refs",)

    def __init__(self, refs: Sequence[Ref]):
        self.refs = sorted(refs, key=id)

    def __enter__(self):
        for ref in self.refs:
            ref.lock.acquire()

    def __exit__(self, *_):
        for ref in self.refs:
            ref.lock.release()


def run_call(jaxpr: Jaxpr, args: Sequence, name: str) -> list:
    """Run a closed program, refs among its arguments, where operations run at once."""
    out_tree = dispatch.list_tree(len(jaxpr.outvars))
    for arg in args:
        if isinstance(arg, Tracer):
            raise leaked(arg)
    return run(jaxpr, (), args, out_tree, name=name)[0]
