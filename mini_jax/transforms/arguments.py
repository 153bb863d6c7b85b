"""Arguments of transformed functions: their names and paths, positions given by number or name, checks that they are arrays."""
from __future__ import annotations

import functools
import inspect
import types
import weakref
from typing import Callable, Sequence

from mini_jax.core.program import ProgramInfo, function_name
from mini_jax.core.pytree import PyTreeDef, keystr, tree_flatten_with_path
from mini_jax.core.refs import RefLike, described
from mini_jax.core.trace import is_value, typeof


def signature_of(fun: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


def resolve_positions(fun: Callable, argnums, argnames, what: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """static_ or donate_ argnums and argnames, each completed from the other by the function's signature.

    Raises ValueError for a position or a name that the function does not have.
    """
    argnums = () if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(argnums)
    argnames = () if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if not argnums and not argnames:
        return (), ()
    for name in argnames:
        if not isinstance(name, str):
            raise TypeError(f"{what}_argnames takes strings, got {name!r}")
    for position in argnums:
        if not isinstance(position, int):
            raise TypeError(f"{what}_argnums takes ints, got {position!r}")
    signature = signature_of(fun)
    if signature is None:
        return argnums, argnames
    parameters = list(signature.parameters.values())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    star_star = any(p.kind is p.VAR_KEYWORD for p in parameters)
    numbers = set()
    for position in argnums:
        if not star and not -len(positional) <= position < len(positional):
            raise ValueError(f"{what}_argnums={argnums}: {function_name(fun)} takes {len(positional)} positional arguments, "
                             f"so {position} names none of them")
        if star and position < 0:
            raise ValueError(f"{what}_argnums={argnums}: {function_name(fun)} takes any number of arguments (*), so a position can't be counted from "
                             "the end; count it from the start")
        numbers.add(position + len(positional) if position < 0 else position)
    names = set(argnames)
    for name in argnames:
        if name not in signature.parameters and not star_star:
            raise ValueError(f"{what}_argnames={argnames}: {function_name(fun)} has no argument {name!r}; "
                             f"its arguments are {', '.join(signature.parameters)}")
        if name in positional:
            numbers.add(positional.index(name))
    keyword = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    names.update(positional[n] for n in numbers if n < len(positional) and positional[n] in keyword)
    return tuple(sorted(numbers)), tuple(sorted(names))


def keyable(fun: Callable) -> Callable:
    """`fun`, or for a callable that can't be hashed or referred to weakly, what calls it: its method, or a function made here."""
    try:
        hash(fun), weakref.ref(fun)
        return fun
    except TypeError:
        if type(fun.__call__) is types.MethodType:
            return fun.__call__
        return functools.update_wrapper(lambda *args, **kwargs: fun(*args, **kwargs), fun, updated=())


def weakly(fun: Callable) -> Callable[[], Callable | None]:
    """A reference to a function for what is kept with it, and so must not keep it. To a method: to its object."""
    try:
        return weakref.WeakMethod(fun) if type(fun) is types.MethodType else weakref.ref(fun)
    except TypeError:                                # no reference to the object
        return weakref.ref(fun)


def argument_name(fun: Callable, position: int) -> str:
    signature = signature_of(fun)
    names = list(signature.parameters.values()) if signature is not None else []
    if position < len(names) and names[position].kind is not inspect.Parameter.VAR_POSITIONAL:
        return names[position].name
    star = next((p.name for p in names if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
    return f"{star}[{position}]"


def argument_paths(fun: Callable, tree: PyTreeDef, positions: Sequence[int] | None = None) -> list[str]:
    """For each flat argument its path, as the user would write it: `params['w'][0]`."""
    args, kwargs = tree.unflatten([object() for _ in range(tree.num_leaves)])
    paths = []
    for i, arg in enumerate(args):
        name = argument_name(fun, i if positions is None else positions[i])
        paths += [name + keystr(path) for path, _ in tree_flatten_with_path(arg)[0]]
    for key in sorted(kwargs):
        paths += [key + keystr(path) for path, _ in tree_flatten_with_path(kwargs[key])[0]]
    return paths


def argument_types(leaves: Sequence, info: ProgramInfo) -> tuple:
    """The types of flat arguments; TypeError names the argument that is no array."""
    try:
        return tuple([typeof(leaf) for leaf in leaves])
    except (TypeError, OverflowError):
        for position, leaf in enumerate(leaves):
            try:
                typeof(leaf)
            except OverflowError as error:
                raise OverflowError(f"argument {info.path(position)} of {info.name}: {error}") from None
            except TypeError:
                raise TypeError(f"argument {info.path(position)} of {info.name} is {leaf!r:.200} of type {type(leaf).__name__}, which is not "
                                f"an array, a number or a pytree of them. Under {info.transformation} pass it as a static argument "
                                "(static_argnums, static_argnames) or register its class as a pytree.") from None
        raise


def check_no_refs(outs: Sequence, out_tree: PyTreeDef, info: ProgramInfo) -> None:
    """ValueError for a ref among the results of a transformed function."""
    for position, out in enumerate(outs):
        if isinstance(out, RefLike):
            path = keystr(tree_flatten_with_path(out_tree.unflatten(range(len(outs))))[0][position][0])
            raise ValueError(f"{info.transformation}: {info.name} returned {described(out)}{f' at result{path}' if path else ''}. Refs are no results of "
                             "transformed functions: return ref[...] or freeze(ref), or make the ref outside and pass it in")


def checked_outputs(outs: Sequence, out_tree: PyTreeDef, info: ProgramInfo) -> Sequence:
    """The results of a traced function; TypeError names one that is no array."""
    check_no_refs(outs, out_tree, info)
    for position, out in enumerate(outs):
        if not is_value(out):
            path = keystr(tree_flatten_with_path(out_tree.unflatten(range(len(outs))))[0][position][0])
            raise TypeError(f"{info.name} returned {out!r:.200} of type {type(out).__name__}{f' at result{path}' if path else ''}: "
                            f"a function under {info.transformation} returns arrays, numbers and pytrees of them")
    return outs


