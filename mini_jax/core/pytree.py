"""Trees of values: nested lists, tuples, dicts and registered classes, and how they are taken apart and put together.

The work is done by the registry of jaxlib, which the call dispatcher uses too. Inside the package use `flatten` and
`PyTreeDef.unflatten`, which are C++ functions, without a layer; the functions called `tree_…` are the public ones.
"""
from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from typing import Any, Callable, Hashable, Iterable, Iterator, Sequence, TypeVar

from mini_jax.runtime import xla

default_registry = xla.registry
PyTreeDef = xla.pytree.PyTreeDef
DictKey = xla.pytree.DictKey
SequenceKey = xla.pytree.SequenceKey
GetAttrKey = xla.pytree.GetAttrKey
FlattenedIndexKey = xla.pytree.FlattenedIndexKey
KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]
Leaf = Any
_Class = TypeVar("_Class", bound=type)

flatten = default_registry.flatten
"""flatten(tree, is_leaf=None, /) -> (leaves, treedef), in C++. treedef.unflatten(leaves) is its inverse."""
flatten_with_path = default_registry.flatten_with_path
"""flatten_with_path(tree, is_leaf=None, /) -> ([(path, leaf), …], treedef), in C++; is_leaf takes (path, value)."""

_MISSING: Any = object()


# ---------------------------------------------------------------------------------------------------------------------
# Taking apart and putting together.

def tree_flatten(tree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list, PyTreeDef]:
    """The leaves of a tree, in order, and its structure.

    Dicts are ordered by key; OrderedDicts keep their order. None is a tree without leaves.
    is_leaf(value): true for values to be taken as leaves although they are trees.
    Raises ValueError for a dict whose keys cannot be sorted, and whatever a registered class raises.
    """
    try:
        return flatten(tree, is_leaf)
    except (ValueError, SystemError) as error:
        raise _explained(error, tree, is_leaf) from error.__cause__


def tree_leaves(tree, is_leaf: Callable[[Any], bool] | None = None) -> list:
    """The leaves of a tree, in order. See `tree_flatten`."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf: Callable[[Any], bool] | None = None) -> PyTreeDef:
    """The structure of a tree: what it is without its leaves. See `tree_flatten`."""
    return tree_flatten(tree, is_leaf)[1]


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable) -> Any:
    """The tree of that structure with those leaves. Raises ValueError when their number differs."""
    return treedef.unflatten(leaves)


def _explained(error: Exception, tree, is_leaf) -> Exception:
    """What C++ raised, said so that one can act on it: which dict has keys that cannot be sorted, or too deep a tree."""
    if isinstance(error.__cause__, RecursionError):
        return RecursionError("the tree is nested deeper than Python's stack allows (sys.setrecursionlimit raises that)")
    if "sorting" in str(error):
        for path, node in _nodes(tree, is_leaf):
            if isinstance(node, dict) and not isinstance(node, collections.OrderedDict) and not _sortable(node):
                kinds = ", ".join(sorted({type(key).__name__ for key in node}))
                return ValueError(f"the keys of the dict at {keystr(path) or 'the top of the tree'} cannot be sorted, so its "
                                  f"leaves have no order: they are of types {kinds}. Use keys of one type, or an OrderedDict.")
    return error


def _sortable(values) -> bool:
    try:
        sorted(values)
        return True
    except TypeError:
        return False


def _nodes(tree, is_leaf, path=()) -> Iterator[tuple[tuple, Any]]:
    """All nodes with their paths, from the top, as far as they can be taken apart."""
    yield path, tree
    if is_leaf is not None and is_leaf(tree):
        return
    if isinstance(tree, dict):
        level = [(DictKey(key), value) for key, value in tree.items()]
    else:
        level = flatten_one_level_with_keys(tree)[0] if is_tree_node(type(tree)) else ()
    for key, child in level:
        yield from _nodes(child, is_leaf, (*path, key))


# ---------------------------------------------------------------------------------------------------------------------
# Functions of trees.

def tree_map(f: Callable[..., Any], tree, *rest, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree of f(x, *xs), for each leaf x of `tree` and the subtrees xs of `rest` at the same place.

    Raises ValueError, naming the place, when `tree` is not a prefix of one of `rest`.
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    if not rest:
        return treedef.unflatten(map(f, leaves))
    return treedef.unflatten(map(f, leaves, *_matched("tree_map", tree, treedef, rest, is_leaf)))


def _matched(where: str, tree, treedef: PyTreeDef, rest, is_leaf) -> list[list]:
    """The subtrees of each of `rest` at the leaves of `treedef`."""
    try:
        return [treedef.flatten_up_to(other) for other in rest]
    except (ValueError, TypeError) as error:
        for i, other in enumerate(rest):
            found = next(prefix_errors(tree, other, is_leaf, "the first tree", f"tree {i + 2}"), None)
            if found:
                raise ValueError(f"{where}: {found}") from None
        raise error


def tree_map_with_path(f: Callable[..., Any], tree, *rest, is_leaf: Callable[..., bool] | None = None,
                       is_leaf_takes_path: bool = False) -> Any:
    """As `tree_map`, with the leaf's path as the first argument of `f`."""
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    one = is_leaf if not is_leaf_takes_path else None
    columns = zip(*pairs) if pairs else ((), ())
    return treedef.unflatten(map(f, *columns, *_matched("tree_map_with_path", tree, treedef, rest, one)))


def tree_flatten_with_path(tree, is_leaf: Callable[..., bool] | None = None,
                           is_leaf_takes_path: bool = False) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """The (path, leaf) pairs of a tree, in order, and its structure. A path is a tuple of keys; `keystr` prints it.

    is_leaf_takes_path: call is_leaf(path, value) instead of is_leaf(value).
    """
    predicate = is_leaf if is_leaf is None or is_leaf_takes_path else lambda _, value: is_leaf(value)
    try:
        return flatten_with_path(tree, predicate)
    except (ValueError, SystemError) as error:
        raise _explained(error, tree, None) from error.__cause__


def tree_leaves_with_path(tree, is_leaf: Callable[..., bool] | None = None,
                          is_leaf_takes_path: bool = False) -> list[tuple[KeyPath, Any]]:
    """The (path, leaf) pairs of a tree, in order. See `tree_flatten_with_path`."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


generate_key_paths = tree_leaves_with_path


def tree_reduce(function: Callable[[Any, Any], Any], tree, initializer: Any = _MISSING,
                is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """function(…function(function(initializer, leaf0), leaf1)…): functools.reduce over the leaves, left to right.
    Raises TypeError for a tree without leaves when there is no initializer.
    """
    leaves = tree_leaves(tree, is_leaf)
    return functools.reduce(function, leaves) if initializer is _MISSING else functools.reduce(function, leaves, initializer)


def tree_reduce_associative(operation: Callable[[Any, Any], Any], tree, *, identity: Any = _MISSING,
                            is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves combined pairwise, in a balanced tree of depth log2(n); `operation` must be associative.
    A tree without leaves gives `identity`, or raises TypeError when there is none.
    """
    def combine(values):
        half = len(values) // 2
        return operation(combine(values[:half]), combine(values[half:])) if half else values[0]
    leaves = tree_leaves(tree, is_leaf)
    if leaves:
        return combine(leaves)
    if identity is _MISSING:
        raise TypeError("tree_reduce_associative of a tree without leaves needs an identity")
    return identity


def tree_all(tree, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves are true."""
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose) -> Any:
    """An outer tree of inner trees becomes an inner tree of outer trees: [{'a': 1}, {'a': 2}] gives {'a': [1, 2]}.

    inner_treedef None: the structure of the first inner tree.
    Raises TypeError when the tree has not as many leaves as the two structures together; as in JAX, only these count.
    """
    if inner_treedef is None:
        inner_trees = outer_treedef.flatten_up_to(pytree_to_transpose)
        if not inner_trees:
            raise TypeError("tree_transpose: an outer structure without leaves says nothing of the inner one; give inner_treedef")
        inner_treedef = tree_structure(inner_trees[0])
    leaves, treedef = tree_flatten(pytree_to_transpose)
    outer, inner = outer_treedef.num_leaves, inner_treedef.num_leaves
    if len(leaves) != outer * inner:
        raise TypeError(f"tree_transpose: the tree has the structure {treedef} with {len(leaves)} leaves; it should have that "
                        f"of {outer_treedef.compose(inner_treedef)}, with {outer} times {inner}")
    return inner_treedef.unflatten([outer_treedef.unflatten(leaves[i::inner]) for i in range(inner)])


def tree_broadcast(prefix_tree, full_tree, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree with the structure of `full_tree` in which each leaf of `prefix_tree` stands for all leaves below its place.
    Raises ValueError, naming the place, when `prefix_tree` is not a prefix.
    """
    treedef = tree_structure(full_tree)
    return treedef.unflatten(broadcast_prefix(prefix_tree, treedef, is_leaf, "prefix_tree"))


def all_leaves(iterable: Iterable, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every element is a leaf."""
    if is_leaf is None:
        return xla.pytree.all_leaves(default_registry, iterable)
    values = list(iterable)
    leaves = tree_leaves(values, is_leaf)
    return len(leaves) == len(values) and all(map(operator.is_, leaves, values))


# ---------------------------------------------------------------------------------------------------------------------
# Structures.

def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees of those structures."""
    return xla.pytree.treedef_tuple(default_registry, list(treedefs))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures one level below the top."""
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether there is nothing below the top: a leaf, or None."""
    return treedef.num_nodes == 1


default_registry.__module__, default_registry.__name__ = __name__, "default_registry"   # structures are pickled with it
leaf_treedef: PyTreeDef = flatten(0)[1]         # the structure of a single leaf


def is_tree_node(typ: type) -> bool:
    """Whether instances of `typ` are taken apart: Python's containers, namedtuples and registered classes."""
    return default_registry.is_node(typ)


def flatten_one_level(tree) -> tuple[Iterable, Hashable]:
    """The children of a node and its metadata, without going further. Raises ValueError for a leaf."""
    level = default_registry.flatten_one_level(tree)
    if level is None:
        raise ValueError(f"a value of type {type(tree).__name__} is a leaf: it has no level to flatten")
    return level


def flatten_one_level_with_keys(tree) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """The (key, child) pairs of a node and its metadata, without going further. Raises ValueError for a leaf."""
    level = default_registry.flatten_one_level_with_keys(tree)
    if level is None:
        raise ValueError(f"a value of type {type(tree).__name__} is a leaf: it has no level to flatten")
    if level[1] is type(tree) and hasattr(tree, "_fields"):    # jaxlib 0.10.2 gives every field the name of the first
        return list(zip(map(GetAttrKey, tree._fields), tree)), level[1]
    return level


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A path as text: "['a'][1].b"; with simple=True the bare keys, joined by `separator`: "a/1/b"."""
    return separator.join(map(_bare_key if simple else str, keys))


def _bare_key(key) -> str:
    if isinstance(key, (DictKey, FlattenedIndexKey)):
        return str(key.key)
    if isinstance(key, SequenceKey):
        return str(key.idx)
    return key.name if isinstance(key, GetAttrKey) else str(key)


# ---------------------------------------------------------------------------------------------------------------------
# Prefixes: in_axes=(0, {'w': None, 'b': 1}) says something of each leaf of the arguments.

def broadcast_prefix(prefix_tree, treedef: PyTreeDef, is_leaf: Callable[[Any], bool] | None = None,
                     name: str = "the prefix", full_name: str = "the tree") -> list:
    """For each leaf of `treedef`, the leaf of `prefix_tree` that stands at its place or above it.

    is_leaf says which values of `prefix_tree` are leaves, such as `lambda x: x is None`.
    name: what the prefix is called in the error: "vmap in_axes". full_name: what that of which it is one is called there.
    Raises ValueError, naming the place, when `prefix_tree` is not a prefix of `treedef`.
    """
    leaves, prefix_def = tree_flatten(prefix_tree, is_leaf)
    if prefix_def == treedef:
        return leaves
    if prefix_def == leaf_treedef:
        return leaves * treedef.num_leaves
    broadcast, remaining = [], iter(leaves)

    def walk(prefix: PyTreeDef, full: PyTreeDef) -> bool:
        if prefix == leaf_treedef:
            broadcast.extend([next(remaining)] * full.num_leaves)
            return True
        if _differs(prefix, full):
            return False
        return all(map(walk, prefix.children(), full.children()))

    if not walk(prefix_def, treedef):
        raise ValueError(next(_prefix_errors(prefix_def, treedef, name, full_name, ())))
    return broadcast


def flatten_axes(name: str, treedef: PyTreeDef, axis_tree) -> list:
    """`broadcast_prefix` for trees of axes, in which None is a leaf."""
    return broadcast_prefix(axis_tree, treedef, _is_none, name)


def _is_none(x) -> bool:
    return x is None


def prefix_errors(prefix_tree, full_tree, is_leaf: Callable[[Any], bool] | None = None, prefix_name: str = "the prefix",
                  full_name: str = "the full tree") -> Iterator[str]:
    """Sentences, each about one place where `prefix_tree` differs from `full_tree`; none when it is a prefix."""
    return _prefix_errors(tree_structure(prefix_tree, is_leaf), tree_structure(full_tree), prefix_name, full_name, ())


def _differs(prefix: PyTreeDef, full: PyTreeDef) -> bool:
    """Whether two nodes differ at their top."""
    return full == leaf_treedef or prefix.node_data() != full.node_data() or len(prefix.children()) != len(full.children())


def _prefix_errors(prefix: PyTreeDef, full: PyTreeDef, prefix_name, full_name, path) -> Iterator[str]:
    if prefix == leaf_treedef:
        return
    if not _differs(prefix, full):
        keys = _keys(prefix)
        for key, below_prefix, below_full in zip(keys, prefix.children(), full.children()):
            yield from _prefix_errors(below_prefix, below_full, prefix_name, full_name, (*path, key))
        return
    at = f"at {keystr(path)} " if path else ""
    yield f"{at}{prefix_name} has {_described(prefix)} where {full_name} has {_described(full)}{_key_difference(prefix, full)}"


def _keys(treedef: PyTreeDef) -> list:
    """The keys of the top node's children."""
    try:
        return [key for key, _ in flatten_one_level_with_keys(treedef.unflatten([object()] * treedef.num_leaves))[0]]
    except Exception:                            # a class that refuses such leaves
        return [FlattenedIndexKey(i) for i in range(len(treedef.children()))]


def _described(treedef: PyTreeDef) -> str:
    if treedef == leaf_treedef:
        return "a leaf"
    kind, data = treedef.node_data()
    if kind is type(None):
        return "None"
    children = len(treedef.children())
    if kind is tuple and isinstance(data, type):
        kind, data = data, None
    name = kind.__name__
    if kind in (list, tuple):
        return f"a {name} of length {children}"
    if kind is dict or issubclass(kind, dict):
        return f"a {name} with keys {{{', '.join(map(repr, _dict_keys(kind, data)))}}}"
    return f"a {name}" + (f" with metadata {data!r}" if data not in (None, (), kind) else "")


def _dict_keys(kind, data) -> Sequence:
    return data[1] if kind is collections.defaultdict else data


def _key_difference(prefix: PyTreeDef, full: PyTreeDef) -> str:
    if full == leaf_treedef or prefix.node_data()[0] is not full.node_data()[0] or not issubclass(prefix.node_data()[0], dict):
        return ""
    ours, theirs = (_dict_keys(*treedef.node_data()) for treedef in (prefix, full))
    said = [f"{which}: {', '.join(map(repr, keys))}" for which, keys in (
        ("missing", [k for k in theirs if k not in ours]), ("not wanted", [k for k in ours if k not in theirs])) if keys]
    return f" ({'; '.join(said)})" if said else ""


# ---------------------------------------------------------------------------------------------------------------------
# Registering classes.

def register_pytree_node(nodetype: type, flatten_func: Callable[[Any], tuple[Iterable, Hashable]],
                         unflatten_func: Callable[[Any, Iterable], Any],
                         flatten_with_keys_func: Callable[[Any], tuple[Iterable, Hashable]] | None = None) -> None:
    """Make instances of `nodetype` trees.

    flatten_func(x) -> (children, metadata): metadata must be hashable and comparable; it is part of the structure.
    unflatten_func(metadata, children) -> x. It may be given any objects as children.
    flatten_with_keys_func(x) -> ((key, child) pairs, metadata), for paths.
    Raises ValueError when the class is registered already.
    """
    for registry in (default_registry, xla.call_registry):
        registry.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_with_keys(nodetype: type, flatten_with_keys: Callable[[Any], tuple[Iterable, Hashable]],
                              unflatten_func: Callable[[Any, Iterable], Any],
                              flatten_func: Callable[[Any], tuple[Iterable, Hashable]] | None = None) -> None:
    """As `register_pytree_node`, for classes that name their children; `flatten_func` is the faster form without names."""
    def without_keys(x):
        pairs, metadata = flatten_with_keys(x)
        return [child for _, child in pairs], metadata
    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: _Class) -> _Class:
    """Class decorator: a tree by its methods tree_flatten(self) -> (children, metadata) and
    classmethod tree_unflatten(cls, metadata, children)."""
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: _Class) -> _Class:
    """Class decorator: a tree by its methods tree_flatten_with_keys(self) -> ((key, child) pairs, metadata) and
    classmethod tree_unflatten(cls, metadata, children); tree_flatten, if there is one, is the faster form."""
    register_pytree_with_keys(cls, operator.methodcaller("tree_flatten_with_keys"), cls.tree_unflatten,
                              operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None)
    return cls


def register_dataclass(nodetype: _Class, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None,
                       drop_fields: Sequence[str] = ()) -> _Class:
    """Make a class with named fields a tree; also a class decorator.

    data_fields: the fields that are children. meta_fields: those that are part of the structure, hashable and comparable.
    For a dataclass both may be left out: fields declared by `tree.static(…)` are meta, the others data.
    drop_fields: fields that are in neither, and take their defaults when a tree is put together.
    Raises TypeError when the fields of a class that is no dataclass are not given, ValueError when they do not fit the class.
    """
    if (data_fields is None) != (meta_fields is None):
        raise TypeError("register_dataclass: give both data_fields and meta_fields, or neither")
    declared = dataclasses.fields(nodetype) if dataclasses.is_dataclass(nodetype) else None
    if data_fields is None:
        if declared is None:
            raise TypeError(f"register_dataclass: {nodetype.__name__} is no dataclass; give data_fields and meta_fields")
        data_fields = [f.name for f in declared if not f.metadata.get("static", False) and f.name not in drop_fields]
        meta_fields = [f.name for f in declared if f.metadata.get("static", False) and f.name not in drop_fields]
    data, meta = set(data_fields), set(meta_fields)
    if data & meta:
        raise ValueError(f"register_dataclass: {_names(data & meta)} cannot be both data and metadata")
    if declared is not None:
        names = {f.name for f in declared if f.init}
        if data | meta != names - set(drop_fields):
            missing, unknown = names - data - meta - set(drop_fields), (data | meta) - (names - set(drop_fields))
            said = [f"{_names(missing)} of {nodetype.__name__} must be in data_fields, meta_fields or drop_fields"] if missing else []
            said += [f"{nodetype.__name__} has no field {_names(unknown)} that its constructor takes; drop_fields leaves fields out"] if unknown else []
            raise ValueError("register_dataclass: " + "; ".join(said))
    for registry in (default_registry, xla.call_registry):
        registry.register_dataclass_node(nodetype, list(data_fields), list(meta_fields))
    return nodetype


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def static_field(**kwargs) -> Any:
    """A dataclass field that `register_dataclass` takes as part of the structure. Arguments: those of dataclasses.field."""
    return dataclasses.field(**{**kwargs, "metadata": {**(kwargs.get("metadata") or {}), "static": True}})


def register_static(cls: _Class) -> _Class:
    """Class decorator: instances are trees without leaves; the instance itself, hashable and comparable, is the structure."""
    register_pytree_node(cls, lambda x: ((), x), lambda x, _: x)
    return cls


def _dict_pairs(x):
    return [(DictKey(key), x[key]) for key in x]


register_pytree_node(
    collections.OrderedDict, lambda x: (tuple(x.values()), tuple(x)),
    lambda keys, values: collections.OrderedDict(zip(keys, values)), lambda x: (_dict_pairs(x), tuple(x)))


def _flatten_defaultdict(x):
    keys = tuple(sorted(x))
    return tuple(x[key] for key in keys), (x.default_factory, keys)


register_pytree_node(
    collections.defaultdict, _flatten_defaultdict,
    lambda data, values: collections.defaultdict(data[0], zip(data[1], values)),
    lambda x: ([(DictKey(key), x[key]) for key in sorted(x)], (x.default_factory, tuple(sorted(x)))))


@register_pytree_node_class
class Partial(functools.partial):
    """functools.partial that is a tree: the bound arguments are its children, the function is part of the structure.

    Partial(f, *args, **kwargs) may so be an argument or a result of a transformed function.
    """
    def __new__(cls, func, /, *args, **kw):
        if isinstance(func, functools.partial):     # functools would take it apart, and its arguments become children
            func = _Whole(func)
        return super().__new__(cls, func, *args, **kw)

    def tree_flatten(self):
        return (self.args, self.keywords), self.func

    @classmethod
    def tree_unflatten(cls, func, children):
        args, kw = children
        return cls(func, *args, **kw)


class _Whole:
    """A callable that is not a functools.partial, and stands for one."""
    __slots__ = ("func",)

    def __init__(self, func):
        self.func = func

    def __call__(self, *args, **kw):
        return self.func(*args, **kw)

    def __eq__(self, other):
        return isinstance(other, _Whole) and self.func == other.func

    def __hash__(self):
        return hash(self.func)

    def __repr__(self):
        return repr(self.func)
