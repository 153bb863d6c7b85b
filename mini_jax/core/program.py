"""Programs: typed, immutable, in A-normal form, as every transformation reads and writes them.

    Jaxpr     { lambda constvars ; invars . let eqns in outvars }
    JaxprEqn  outvars = primitive[params] invars
    Var, Literal   what equations name
"""
from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

from mini_jax.core.types import AbstractValue

NO_EFFECTS: frozenset = frozenset()


class Var:
    """A name bound once, by a program's inputs or by one equation. Identity is what counts."""
    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue):
        self.aval = aval

    def __repr__(self):
        return f"Var(id={id(self):#x}):{self.aval}"


class Literal:
    """A scalar written into the program itself."""
    __slots__ = ("val", "aval")

    def __init__(self, val, aval: AbstractValue):
        self.val, self.aval = val, aval

    def __repr__(self):
        return f"Literal({self.val})"


class JaxprEqn:
    """One application of a primitive. `source` is what `core.source` captured of the user's line, undecoded."""
    __slots__ = ("primitive", "invars", "outvars", "params", "effects", "source")

    def __init__(self, primitive, invars: list, outvars: list, params: dict[str, Any], effects: frozenset, source):
        self.primitive, self.invars, self.outvars = primitive, invars, outvars
        self.params, self.effects, self.source = params, effects, source

    in_types = property(lambda self: [v.aval for v in self.invars])
    out_types = property(lambda self: [v.aval for v in self.outvars])

    def replace(self, **changes) -> "JaxprEqn":
        fields = {name: getattr(self, name) for name in JaxprEqn.__slots__} | changes
        return JaxprEqn(**fields)

    @property
    def source_info(self):
        """The user's frames behind this equation, decoded."""
        from mini_jax.core import source
        return source.describe(self.source)


class Kept(dict):
    """What is kept with something for as long as that lives: a dictionary that can be referred to weakly."""
    __slots__ = ("__weakref__",)


class Jaxpr:
    """A program.

    Immutable. What is derived from it (its derivative, its batched form, its text) is kept in `memo`, and so
    lives exactly as long as the program; use `memoized`.
    """
    __slots__ = ("constvars", "invars", "eqns", "outvars", "effects", "info", "memo", "__weakref__")

    def __init__(self, constvars: Sequence[Var], invars: Sequence[Var], eqns: Sequence[JaxprEqn], outvars: Sequence,
                 effects: frozenset = NO_EFFECTS, info: "ProgramInfo | None" = None):
        self.constvars, self.invars, self.eqns, self.outvars = tuple(constvars), tuple(invars), tuple(eqns), tuple(outvars)
        self.effects, self.info = effects, info
        self.memo = Kept()

    in_types = property(lambda self: [v.aval for v in self.invars])
    out_types = property(lambda self: [v.aval for v in self.outvars])
    in_avals, out_avals = in_types, out_types

    def replace(self, **changes) -> "Jaxpr":
        fields = {name: getattr(self, name) for name in ("constvars", "invars", "eqns", "outvars", "effects", "info")} | changes
        return Jaxpr(**fields)

    def hoisted(self) -> "Jaxpr":
        """The same program with its constants as leading inputs."""
        return self.replace(constvars=(), invars=self.constvars + self.invars) if self.constvars else self


class ClosedJaxpr:
    """A program together with the values of its constants."""
    __slots__ = ("jaxpr", "consts", "__weakref__")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence = ()):
        assert len(consts) == len(jaxpr.constvars)
        self.jaxpr, self.consts = jaxpr, list(consts)

    literals = property(lambda self: self.consts)
    eqns = property(lambda self: self.jaxpr.eqns)
    effects = property(lambda self: self.jaxpr.effects)
    in_avals = property(lambda self: self.jaxpr.in_types)
    out_avals = property(lambda self: self.jaxpr.out_types)

    def __repr__(self):
        return repr(self.jaxpr)

    __str__ = pretty_print = __repr__


class ProgramInfo:
    """Whose program it is, for people: the transformation, the user's function and the paths of its arguments.

    Paths are decoded only when a message or a printed program asks for them. refs: while the program is being recorded, for
    each flat argument that is a ref where that was created.
    """
    __slots__ = ("transformation", "name", "code", "_paths", "refs")

    def __init__(self, transformation: str, fun: Callable | None = None, paths: "Callable[[], list[str]] | None" = None,
                 name: str | None = None):
        self.transformation = transformation
        self.name = name or function_name(fun)
        self.code = getattr(_unwrapped(fun), "__code__", None)
        self._paths, self.refs = paths, {}

    @property
    def location(self) -> str | None:
        """`file.py:12`: where the function stands."""
        return None if self.code is None else f"{self.code.co_filename}:{self.code.co_firstlineno}"

    def path(self, index: int) -> str | None:
        """The path of the index-th flat argument, e.g. `params['w'][0]`."""
        paths = self._paths() if callable(self._paths) else self._paths
        return paths[index] if paths is not None and index < len(paths) else None


def _unwrapped(fun):
    while True:
        inner = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None)     # decorators; functools.partial
        if inner is None or inner is fun:
            return fun
        fun = inner


def function_name(fun) -> str:
    if fun is None:
        return "<unknown>"
    if getattr(fun, "__name__", None) == "__call__":             # an object's method, which is that object
        fun = getattr(fun, "__self__", fun)
    return getattr(fun, "__name__", None) or getattr(_unwrapped(fun), "__name__", None) or type(fun).__name__


_MOST = 1024                                         # kept with one program; one that is batched to many sizes, say, starts over
_ITSELF = object()                                   # stands for a program in what is kept with it, or it would wait for the garbage collector


def memoized(rule: Callable) -> Callable:
    """A function of a program and hashable arguments, computed once for each as long as the program lives."""
    def cached(jaxpr: Jaxpr, *key):
        memo_key = (rule, *key)
        found = jaxpr.memo.get(memo_key, jaxpr)          # `jaxpr` itself marks absence
        if found is jaxpr:
            found = rule(jaxpr, *key)
            if not _holds_tracers(found):
                if len(jaxpr.memo) >= _MOST:
                    jaxpr.memo.clear()
                found = jaxpr.memo.setdefault(memo_key, _ITSELF if found is jaxpr else found)
        return jaxpr if found is _ITSELF else found
    cached.__wrapped__, cached.__name__, cached.__doc__ = rule, rule.__name__, rule.__doc__
    return cached


def _holds_tracers(result) -> bool:
    """Did a function given by the user (a custom derivative) bring in a traced value? Then the result serves once."""
    return isinstance(result, tuple) and any(hasattr(const, "_trace") for part in result if type(part) is list for const in part)


def subprograms(params: dict[str, Any]) -> Iterator[tuple[str, Jaxpr]]:
    """The programs among an equation's parameters, with the parameter's name."""
    for name, value in params.items():
        if type(value) is Jaxpr:
            yield name, value
        elif type(value) is tuple:
            for item in value:
                if type(item) is Jaxpr:
                    yield name, item


@memoized
def holders(jaxpr: Jaxpr) -> list[tuple[JaxprEqn, list[Jaxpr]]]:
    """The equations of a program that hold programs, with these: one search, for all who ask something of every program in a program."""
    pairs = [(eqn, [program for _, program in subprograms(eqn.params)]) for eqn in jaxpr.eqns if eqn.params]
    return [(eqn, programs) for eqn, programs in pairs if programs]


@memoized
def primitives_in(jaxpr: Jaxpr) -> frozenset:
    """The primitives of a program's own equations."""
    return frozenset([eqn.primitive for eqn in jaxpr.eqns])


def any_in(holds: Callable[[Jaxpr], bool], jaxpr: Jaxpr) -> bool:
    """Is it true of one of the programs that a program's equations hold?"""
    return any([holds(program) for _, programs in holders(jaxpr) for program in programs])


def axes_used(primitive, params: dict) -> frozenset:
    """The named axes over which an operation communicates: a collective's own, or those of the programs it calls."""
    rule = primitive.facts.get("axes")
    used = NO_EFFECTS if rule is None else frozenset(rule(params))
    for _, program in subprograms(params):
        used |= axes_used_in(program)
    binds = primitive.facts.get("binds")
    return used if binds is None else used - frozenset(binds(params))


@memoized
def axes_used_in(jaxpr: Jaxpr) -> frozenset:
    """The named axes, bound outside of it, over which a program communicates."""
    communicates = any(["axes" in primitive.facts for primitive in primitives_in(jaxpr)])
    return NO_EFFECTS.union(*[axes_used(eqn.primitive, eqn.params)
                              for eqn in (jaxpr.eqns if communicates else [eqn for eqn, _ in holders(jaxpr)])])


def dce(jaxpr: Jaxpr, used_outputs: Sequence[bool] | None = None, *, keep_inputs: bool = True) -> Jaxpr | tuple[Jaxpr, list[bool]]:
    """Dead code elimination: the program without the equations that no used output and no effect depends on.

    An equation some of whose results are unused is asked for a smaller one, by the fact "dce": rule(eqn, which results are used) -> eqn.
    keep_inputs=False also drops unused inputs and returns which were kept.
    """
    outvars = jaxpr.outvars if used_outputs is None else [v for v, used in zip(jaxpr.outvars, used_outputs) if used]
    live = {v for v in outvars if type(v) is Var}
    kept, smaller = [], False
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not live.isdisjoint(eqn.outvars):
            if "dce" in eqn.primitive.facts and not live.issuperset(eqn.outvars):
                eqn, smaller = eqn.primitive.facts["dce"](eqn, [v in live for v in eqn.outvars]), True
            kept.append(eqn)
            live.update([v for v in eqn.invars if type(v) is Var])
    kept.reverse()
    if keep_inputs:
        if len(kept) == len(jaxpr.eqns) and used_outputs is None and not smaller:
            return jaxpr
        return jaxpr.replace(eqns=kept, outvars=outvars)
    used = [v in live for v in jaxpr.invars]
    invars = [v for v, u in zip(jaxpr.invars, used) if u]
    return jaxpr.replace(invars=invars, eqns=kept, outvars=outvars), used
