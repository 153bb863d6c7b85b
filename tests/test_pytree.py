"""Trees: order of leaves, paths, registered classes, prefixes and their errors, against what jax 0.10.2 answers."""
import collections
import dataclasses
import functools
import pickle

import numpy as np
import pytest

import mini_jax.tree as tree
import mini_jax.tree_util as tree_util
from mini_jax.core import pytree

Point = collections.namedtuple("Point", "x y")


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object
    name: str = tree.static(default="layer")


@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, *children):
        self.children = children

    def tree_flatten(self):
        return self.children, "pair"

    @classmethod
    def tree_unflatten(cls, metadata, children):
        assert metadata == "pair"
        return cls(*children)


@tree_util.register_pytree_with_keys_class
class Named(Pair):
    def tree_flatten_with_keys(self):
        return [(tree_util.GetAttrKey(f"child{i}"), c) for i, c in enumerate(self.children)], "pair"


@tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Setting:
    n: int


# tree, leaves, text of its structure, text of its paths: as jax gives them
FACTS = [
    (1, [1], "*", [""]),
    (None, [], "None", []),
    ({"b": 1, "a": (2, None, [3])}, [2, 3, 1], "{'a': (*, None, [*]), 'b': *}", ["['a'][0]", "['a'][2][0]", "['b']"]),
    (collections.OrderedDict(b=1, a=2), [1, 2], "CustomNode(OrderedDict[('b', 'a')], [*, *])", ["['b']", "['a']"]),
    (collections.defaultdict(int, b=1, a=2), [2, 1], "CustomNode(defaultdict[(<class 'int'>, ('a', 'b'))], [*, *])",
     ["['a']", "['b']"]),
    (Point(1, {}), [1], "CustomNode(namedtuple[Point], [*, {}])", [".x"]),
    (Layer(1, [2]), [1, 2], "CustomNode(Layer[('layer',)], [*, [*]])", [".w", ".b[0]"]),
    (Pair(1, 2), [1, 2], "CustomNode(Pair[pair], [*, *])", ["[<flat index 0>]", "[<flat index 1>]"]),
    (Named(1, 2), [1, 2], "CustomNode(Named[pair], [*, *])", [".child0", ".child1"]),
    (Setting(3), [], "CustomNode(Setting[Setting(n=3)], [])", []),
    (tree_util.Partial(max, 1, k=3), [1, 3], "CustomNode(Partial[<built-in function max>], [(*,), {'k': *}])",
     ["[<flat index 0>][0]", "[<flat index 1>]['k']"]),
    ({(1, 2): 3, (0,): 4}, [4, 3], "{(0,): *, (1, 2): *}", ["[(0,)]", "[(1, 2)]"]),
    ([], [], "[]", []), ({}, [], "{}", []), ((1, (2,)), [1, 2], "(*, (*,))", ["[0]", "[1][0]"]),
]


@pytest.mark.parametrize("value, leaves, structure, paths", FACTS, ids=[fact[2] for fact in FACTS])
def test_taking_apart_and_putting_together(value, leaves, structure, paths):
    found, treedef = tree.flatten(value)
    assert found == leaves == tree.leaves(value)
    assert repr(treedef) == f"PyTreeDef({structure})" == repr(tree.structure(value))
    again = tree.unflatten(treedef, found)
    assert type(again) is type(value) and tree.flatten(again) == (leaves, treedef)
    with_paths, same = tree.flatten_with_path(value)
    assert [(tree_util.keystr(path), leaf) for path, leaf in with_paths] == list(zip(paths, leaves)) and same == treedef
    assert tree.leaves_with_path(value) == with_paths
    assert tree.leaves(tree.map(lambda x: x + 1, value)) == [x + 1 for x in leaves]
    assert hash(treedef) == hash(same) and treedef.num_leaves == len(leaves)


def test_is_leaf():
    is_list = lambda x: isinstance(x, list)
    assert tree.leaves([[1], (2, [3])], is_leaf=lambda x: x == [1] or x == [3]) == [[1], 2, [3]]
    assert tree.leaves(None, is_leaf=lambda x: x is None) == [None]
    assert tree.map(len, {"a": [1, 2]}, is_leaf=is_list) == {"a": 2}
    assert str(tree.structure(([1],), is_leaf=is_list)) == "PyTreeDef((*,))"
    paths = [tree_util.keystr(p) for p, _ in tree.leaves_with_path([1, [2, 3]], lambda p, x: len(p) == 1, is_leaf_takes_path=True)]
    assert paths == ["[0]", "[1]"]
    assert len(tree.leaves_with_path([1, [2, 3]], is_leaf=lambda x: x == [2, 3])) == 2


def test_keystr():
    path = (tree_util.DictKey("a"), tree_util.SequenceKey(1), tree_util.GetAttrKey("b"), tree_util.FlattenedIndexKey(2), "own")
    assert tree_util.keystr(path) == "['a'][1].b[<flat index 2>]own"
    assert tree_util.keystr(path, simple=True, separator="/") == "a/1/b/2/own"
    assert tree_util.keystr(()) == ""


def test_map():
    assert tree.map(lambda x, y: (x, y), [1, 2], [[3], 4]) == [(1, [3]), (2, 4)]
    assert tree.map(lambda x, y: x, None, None) is None
    assert tree.map_with_path(lambda p, x, y: (tree_util.keystr(p), x, y), [1, {"a": 2}], [3, {"a": 4}]) == [
        ("[0]", 1, 3), {"a": ("[1]['a']", 2, 4)}]
    assert tree.map_with_path(lambda p, x: x, {}) == {}
    with pytest.raises(ZeroDivisionError):
        tree.map(lambda x: 1 / x, [0])


@pytest.mark.parametrize("first, second, words", [
    ([1, 2], [3], "a list of length 2 where tree 2 has a list of length 1"),
    ({"a": 1, "c": 2}, {"b": 1, "c": 3}, r"\{'a', 'c'\} where .* \{'b', 'c'\} \(missing: 'b'; not wanted: 'a'\)"),
    ([1], (1,), "a list of length 1 where tree 2 has a tuple of length 1"),
    ({"p": [0, None]}, {"p": [0, 1]}, r"at \['p'\]\[1\] the first tree has None where tree 2 has a leaf"),
    (Point(1, [2]), Point(1, 2), r"at \.y the first tree has a list of length 1 where tree 2 has a leaf"),
    (Layer(1, 2), Layer(1, 2, "other"), r"a Layer with metadata \('layer',\) where tree 2 has a Layer with metadata \('other',\)")])
def test_errors_say_where_trees_differ(first, second, words):
    with pytest.raises(ValueError, match="tree_map: .*" + words):
        tree.map(lambda x, y: x, first, second)
    with pytest.raises(ValueError, match="tree_map_with_path: .*" + words):
        tree.map_with_path(lambda p, x, y: x, first, second)
    with pytest.raises(ValueError, match=words.replace("tree 2", "the tree")):
        pytree.broadcast_prefix(first, tree.structure(second), name="the first tree")


def test_reductions():
    add = lambda a, b: a + b
    assert tree.reduce(add, [1, (2, 3)]) == 6 and tree.reduce(add, [1], 10) == 11
    assert tree.reduce(add, [[1], [2]], [], is_leaf=lambda x: isinstance(x, list) and len(x) == 1) == [1, 2]
    with pytest.raises(TypeError):
        tree.reduce(add, [])
    with pytest.raises(TypeError):
        tree.reduce(add, [1], None)
    pair = lambda a, b: f"({a}{b})"
    assert tree.reduce_associative(pair, list("abcde")) == "((ab)(c(de)))"
    assert tree.reduce_associative(pair, list("abc"), identity="z") == "(a(bc))"
    assert tree.reduce_associative(pair, [], identity="z") == "z"
    with pytest.raises(TypeError, match="identity"):
        tree.reduce_associative(pair, [])
    assert tree.all([True, 1]) and not tree.all([0]) and tree.all([])


def test_transpose():
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0, "b": 0})
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert tree.transpose(outer, inner, rows) == tree.transpose(outer, None, rows) == {"a": [1, 3], "b": [2, 4]}
    assert tree.transpose(outer, tree.structure([]), [[], []]) == []
    for broken in (lambda: tree.transpose(outer, inner, [1, 2]), lambda: tree.transpose(tree.structure([]), None, [])):
        with pytest.raises(TypeError):
            broken()


def test_broadcast():
    assert tree.broadcast([1, 2], [{"a": 0}, (0, 0)]) == [{"a": 1}, (2, 2)]
    assert tree.broadcast(1, [0, {"a": 1}]) == [1, {"a": 1}]
    with pytest.raises(ValueError, match="prefix_tree has a list of length 2"):
        tree.broadcast([1, 2], [0])


def test_prefixes_of_arguments():
    arguments = tree.structure(({"w": 0, "b": 0}, [0, (0, 0)], Layer(0, 0)))
    none = lambda x: x is None
    assert pytree.broadcast_prefix((0, None, Layer(1, 2)), arguments, none) == [0, 0, None, None, None, 1, 2]
    assert pytree.flatten_axes("in_axes", arguments, ({"w": 1, "b": None}, 0, None)) == [None, 1, 0, 0, 0, None, None]
    assert pytree.broadcast_prefix(7, arguments) == [7] * 7
    with pytest.raises(ValueError, match=r"at \[1\]\[1\] in_axes has a tuple of length 1 where the tree has a tuple of length 2"):
        pytree.flatten_axes("in_axes", arguments, (0, [0, (0,)], 0))
    assert list(pytree.prefix_errors((0, 1), (0, [1]))) == []
    errors = list(pytree.prefix_errors([(0,), [1], 2], [0, (1,), 2], prefix_name="out_axes", full_name="the output"))
    assert len(errors) == 2 and errors[0].startswith("at [0] out_axes") and errors[1].startswith("at [1] out_axes")


def test_prefixes_of_classes_that_refuse_placeholders():
    class Picky:
        pass

    def refuse(_, children):
        raise TypeError("numbers only")
    tree_util.register_pytree_node(Picky, lambda x: ((1, 2), None), refuse)
    treedef = tree.structure([Picky()])
    assert pytree.broadcast_prefix([5], treedef) == [5, 5]
    with pytest.raises(ValueError, match="a tuple of length 2 where the tree has a Picky"):
        pytree.broadcast_prefix([(1, 2)], treedef)


def test_structures():
    leaf = tree.structure(0)
    assert leaf == pytree.leaf_treedef and repr(tree_util.treedef_tuple([leaf, tree.structure([0])])) == "PyTreeDef((*, [*]))"
    assert tree_util.treedef_children(tree.structure([1, (2, 3)])) == [leaf, tree.structure((0, 0))]
    assert tree_util.treedef_is_leaf(leaf) and not tree_util.treedef_is_leaf(tree.structure([0]))
    assert tree_util.treedef_is_leaf(tree.structure(None))
    assert isinstance(leaf, tree_util.PyTreeDef) and tree.structure([0]) != tree.structure((0,))
    assert tree_util.all_leaves([1, 2]) and not tree_util.all_leaves([1, [2]]) and not tree_util.all_leaves([None])
    assert tree_util.all_leaves([1, [2]], is_leaf=lambda x: x == [2])
    for value in ([1, {"a": 2}], Layer(1, 2)):
        treedef = tree.structure(value)
        assert pickle.loads(pickle.dumps(treedef)) == treedef
    with pytest.raises(ValueError, match="Too few leaves"):
        tree.unflatten(tree.structure([1, 2]), [1])
    with pytest.raises(ValueError, match="Too many leaves"):
        tree.unflatten(tree.structure([1, 2]), [1, 2, 3])
    assert tree.unflatten(tree.structure([1, 2]), iter([1, 2])) == [1, 2]


def test_one_level():
    assert tree_util.flatten_one_level([1, [2]]) == ([1, [2]], None)
    children, keys = tree_util.flatten_one_level({"a": 1})
    assert (tuple(children), tuple(keys)) == ((1,), ("a",))
    pairs, metadata = tree_util.flatten_one_level_with_keys(Layer(1, 2))
    assert [(str(key), child) for key, child in pairs] == [(".w", 1), (".b", 2)] and metadata == ("layer",)
    assert [str(key) for key, _ in tree_util.flatten_one_level_with_keys(Point(1, 2))[0]] == [".x", ".y"]
    for function in (tree_util.flatten_one_level, tree_util.flatten_one_level_with_keys):
        with pytest.raises(ValueError, match="int is a leaf"):
            function(1)
    kinds = [list, int, Point, dict, type(None), Layer, collections.OrderedDict]
    assert [tree_util.is_tree_node(kind) for kind in kinds] == [True, False, True, True, True, True, True]


def test_dicts_whose_keys_cannot_be_sorted():
    value = [0, {"x": {1: 2, "a": 3}}]
    for function in (tree.flatten, tree.leaves, tree.structure, tree.leaves_with_path):
        with pytest.raises(ValueError, match=r"at \[1\]\['x'\] .*types int, str.*OrderedDict"):
            function(value)
    assert tree.leaves(collections.OrderedDict([(1, 2), ("a", 3)])) == [2, 3]


def test_classes_that_fail():
    class Fails:
        pass

    class Malformed:
        pass
    tree_util.register_pytree_node(Fails, lambda x: 1 / 0, lambda *_: Fails())
    tree_util.register_pytree_node(Malformed, lambda x: 5, lambda *_: Malformed())
    with pytest.raises(ZeroDivisionError):
        tree.leaves([Fails()])
    with pytest.raises(ValueError, match="children, aux_data"):
        tree.leaves([Malformed()])
    with pytest.raises(ValueError):
        tree_util.register_pytree_node(Fails, lambda x: ((), None), lambda *_: Fails())


def test_deep_trees():
    value = 1
    for _ in range(300):
        value = [value]
    assert tree.leaves(value) == [1] and tree.structure(value).num_nodes == 301
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RecursionError, match="nested"):
        tree.leaves(value)
    while isinstance(value, list):                # or freeing it would recurse as deep
        value = value.pop()


def test_register_dataclass():
    @functools.partial(tree_util.register_dataclass, data_fields=["a"], meta_fields=["b"], drop_fields=["c"])
    @dataclasses.dataclass
    class Dropping:
        a: int
        b: int
        c: int = 9
    assert tree.map(lambda x: x + 1, Dropping(1, 2, 3)) == Dropping(2, 2, 9)

    class Plain:
        def __init__(self, a):
            self.a = a
    tree_util.register_dataclass(Plain, ["a"], [])
    assert tree.map(lambda x: x + 1, Plain(1)).a == 2

    @dataclasses.dataclass
    class Two:
        a: int
        b: int
    for error, words, arguments in [
            (ValueError, "'b' of Two must be in", (["a"], [])), (ValueError, "no field 'z'", (["a", "b", "z"], [])),
            (ValueError, "'b' cannot be both", (["a", "b"], ["b"])), (TypeError, "both", (["a"],))]:
        with pytest.raises(error, match=words):
            tree_util.register_dataclass(Two, *arguments)
    with pytest.raises(TypeError, match="int is no dataclass"):
        tree_util.register_dataclass(int)

    @dataclasses.dataclass
    class Computed:
        a: int
        b: int = dataclasses.field(init=False, default=3)
    with pytest.raises(ValueError, match="no field 'b' that its constructor takes"):
        tree_util.register_dataclass(Computed)
    tree_util.register_dataclass(Computed, drop_fields=["b"])
    assert tree.leaves(Computed(1)) == [1]


def test_metadata_is_part_of_the_structure():
    assert tree.structure(Layer(1, 2)) == tree.structure(Layer(3, 4)) != tree.structure(Layer(1, 2, "other"))
    assert tree.structure(Setting(1)) == tree.structure(Setting(1)) != tree.structure(Setting(2))
    assert tree.map(lambda x: x, Layer(1, 2, "kept")).name == "kept"
    field = tree.static(default=1, metadata={"doc": "x"})
    assert dict(field.metadata) == {"doc": "x", "static": True}


def test_partial():
    f = tree_util.Partial(max, 1)
    assert f(3) == 3 and tree.map(lambda x: x + 1, f)(0) == 2
    for inner in (functools.partial(max, 1), f):       # the inner one stays whole: its arguments are no children
        outer = tree_util.Partial(inner, 2)
        assert outer(0) == 2 and tree.leaves(outer) == [2]
        assert tree.structure(outer) == tree.structure(tree_util.Partial(inner, 5))
    assert tree.structure(f) == tree.structure(tree_util.Partial(max, 7)) != tree.structure(tree_util.Partial(min, 1))


def test_arrays_are_leaves():
    x = np.ones(3)
    assert tree.leaves({"x": x})[0] is x


def test_public_names():
    names = """DictKey FlattenedIndexKey GetAttrKey KeyEntry KeyPath Partial PyTreeDef SequenceKey all_leaves default_registry
        flatten_one_level flatten_one_level_with_keys is_tree_node keystr register_dataclass register_pytree_node
        register_pytree_node_class register_pytree_with_keys register_pytree_with_keys_class register_static tree_all
        tree_broadcast tree_flatten tree_flatten_with_path tree_leaves tree_leaves_with_path tree_map tree_map_with_path
        tree_reduce tree_reduce_associative tree_structure tree_transpose tree_unflatten treedef_children treedef_is_leaf
        treedef_tuple""".split()
    assert all(hasattr(tree_util, name) for name in names)
    assert sorted(tree.__all__) == """all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce
        reduce_associative static structure transpose unflatten""".split()
