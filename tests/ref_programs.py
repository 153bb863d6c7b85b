"""Random programs of reads, writes and accumulations, each with two meanings: on refs with control flow, and on plain arrays with Python's loops.

A program is a list of statements, drawn by `program(seed)`. `Run` gives them meaning: it is written once, over a store (`Refs` or
`Plain`) that knows how to read, to write and to add, and a control that knows how to repeat and to choose (`Staged` or `Unrolled`).
"""
from __future__ import annotations

import random

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax

SHAPES = {"s": (), "v": (4,), "m": (3, 4)}
START = {"s": 0.3, "v": np.float32([0.5, -0.2, 0.1, 0.7]), "m": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


# --- programs -------------------------------------------------------------------------------------------------------------------------

def _index(rng: random.Random, name: str, depth: int):
    """An index of a ref; "i" stands for the loop's counter, modulo the size."""
    shape = SHAPES[name]
    if not shape:
        return ...
    pick = lambda n: rng.choice([rng.randrange(-n, n), "i" if depth else 0])
    kinds = ["all", "one", "slice", "one", "array", "mask"] + (["row", "column", "none"] if name == "m" else [])
    kind = rng.choice(kinds)
    if kind == "all":
        return ...
    if kind == "one":
        return tuple([pick(n) for n in shape]) if len(shape) > 1 else pick(shape[0])
    if kind == "slice":
        return rng.choice([slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2)])
    if kind == "array":
        return np.array(rng.choice([[0, 2], [-1, 1, 0], [2]]))                 # no index twice: NumPy's sums and writes differ there
    if kind == "mask":
        return np.array([True, False, True, False][:shape[0]])
    return {"row": pick(shape[0]), "column": (slice(None), pick(4)), "none": (None, ..., pick(4))}[kind]


def _term(rng: random.Random, depth: int, refs):
    kind = rng.choice(["read", "read", "product", "x", "smooth", "custom"])
    name = rng.choice(refs)
    read = ("read", name, _index(rng, name, depth))
    if kind == "x":
        return ("x", rng.randrange(3))
    if kind == "product":
        other = rng.choice(refs)
        return ("product", read, ("read", other, _index(rng, other, depth)))
    return read if kind == "read" else (kind, read)


def _statements(rng: random.Random, count: int, depth: int, refs) -> list:
    out = []
    for _ in range(count):
        kinds = ["set", "add", "add", "addupdate", "swap"]
        if depth < 2:
            kinds += ["scan", "fori", "while", "cond", "jit", "checkpoint", "local", "rows"] * 2
        kind, name = rng.choice(kinds), rng.choice(refs)
        if kind == "rows" and refs != list(SHAPES):
            kind = "cond"
        if kind in ("set", "add", "addupdate", "swap"):
            out.append((kind, name, _index(rng, name, depth), _term(rng, depth, refs)))
        elif kind in ("scan", "fori", "while"):
            out.append((kind, rng.randrange(1, 4), _statements(rng, rng.randrange(1, 3), depth + 1, refs)))
        elif kind == "cond":
            out.append((kind, _term(rng, depth, refs), _statements(rng, 1, depth + 1, refs), _statements(rng, rng.randrange(2), depth + 1, refs)))
        elif kind == "rows":
            out.append((kind, _statements(rng, 1, 2, ["v"])))
        else:
            out.append((kind, _statements(rng, rng.randrange(1, 3), depth + 1, refs)))
    return out


def program(seed: int) -> list:
    """The statements of the program of this number. Every third has while loops, which have no reverse mode, every other a function with a
    custom_vjp rule, which has no forward mode."""
    rng = random.Random(seed)
    return _without(_statements(rng, rng.randrange(3, 6), 0, list(SHAPES)),
                    {"while": "fori"} if seed % 3 else {}, {"custom": "smooth"} if seed % 2 else {})


def _without(body, *changes: dict):
    """A program with some words replaced."""
    if isinstance(body, (list, tuple)):
        return type(body)([_without(part, *changes) for part in body])
    for change in changes:
        body = change.get(body, body) if isinstance(body, str) else body
    return body


def holds(body, word: str) -> bool:
    """Is there a statement or a term of this kind in a program?"""
    return any([holds(s, word) if isinstance(s, (list, tuple)) else isinstance(s, str) and s == word for s in body])


# --- their meaning ----------------------------------------------------------------------------------------------------------------------

@jax.custom_vjp
def _custom(x):
    return jnp.sin(x)


def _custom_forward(x):
    kept = jax.new_ref(jnp.zeros_like(x))                # rules may use refs, too
    kept[...] = jnp.cos(x)
    return jnp.sin(x), kept[...]


_custom.defvjp(_custom_forward, lambda c, g: (g * c,))


class Refs:
    """The store whose entries are refs."""
    new, read, write = staticmethod(jax.new_ref), staticmethod(lambda r, i: r[i]), staticmethod(lambda r, i, v: r.__setitem__(i, v))
    addupdate, swap = staticmethod(jax.ref.addupdate), staticmethod(jax.ref.swap)

    @staticmethod
    def add(r, i, v):
        r[i] += v


class Box:
    def __init__(self, value):
        self.value = jnp.asarray(value)


class Plain:
    """The store whose entries are boxes with arrays, read and written by the functional forms."""
    new = Box
    read = staticmethod(lambda b, i: b.value[i])

    @staticmethod
    def write(b, i, v):
        b.value = b.value.at[i].set(v)

    @staticmethod
    def add(b, i, v):
        b.value = b.value.at[i].add(v)

    addupdate = add

    @staticmethod
    def swap(b, i, v):
        old = b.value[i]
        b.value = b.value.at[i].set(v)
        return old


class Staged:
    """Control flow of programs."""
    scan = staticmethod(lambda n, body: lax.scan(lambda c, i: (c + 1, body(c)), 0, jnp.arange(n)))
    fori = staticmethod(lambda n, body: lax.fori_loop(0, n, lambda i, c: (body(i), c)[1], None))
    jit = staticmethod(lambda body: jax.jit(lambda: body())())
    checkpoint = staticmethod(lambda body: jax.checkpoint(lambda: body())())
    cond = staticmethod(lambda store, refs, p, yes, no: lax.cond(p, lambda: yes(), lambda: no()))

    @staticmethod
    def loop(n, body):
        lax.while_loop(lambda i: i < n, lambda i: (body(i), i + 1)[1], 0)

    @staticmethod
    def rows(ref, xs, body):
        jax.vmap(lambda row, x: body(row, x))(ref, xs)


class Unrolled:
    """Python's."""
    @staticmethod
    def scan(n, body):
        for i in range(n):
            body(i)
    fori = loop = scan
    jit = checkpoint = staticmethod(lambda body: body())

    @staticmethod
    def cond(store, refs, p, yes, no):
        before = {k: r.value for k, r in refs.items()}
        yes()
        after = {k: r.value for k, r in refs.items()}
        for k, r in refs.items():
            r.value = before[k]
        no()
        for k, r in refs.items():
            r.value = jnp.where(p, after[k], r.value)

    @staticmethod
    def rows(box, xs, body):
        rows = [Box(v) for v in box.value]
        for row, x in zip(rows, xs):
            body(row, x)
        box.value = jnp.stack([row.value for row in rows])


class Run:
    """Runs statements. x: three numbers that terms may use."""

    def __init__(self, store, control, refs: dict, x):
        self.store, self.control, self.refs, self.x = store, control, refs, x

    def index(self, name, index, i):
        """An index with the counter in its place. Where there are fewer numbers than dimensions, the last are meant."""
        if not isinstance(index, tuple):
            return i % SHAPES[name][0] if isinstance(index, str) else index
        count = len([e for e in index if isinstance(e, (int, str))])
        sizes = iter(SHAPES[name][-count:])
        return tuple([i % next(sizes) if isinstance(e, str) else (next(sizes), e)[1] if isinstance(e, int) else e for e in index])

    def read(self, name, index, i):
        return self.store.read(self.refs[name], self.index(name, index, i))

    def term(self, term, i):
        kind = term[0]
        if kind == "x":
            return self.x[term[1]]
        if kind == "read":
            return jnp.tanh(0.9 * jnp.mean(self.read(*term[1:], i)) + 0.1)          # bounded, so that nothing overflows
        if kind == "product":
            return self.term(term[1], i) * self.term(term[2], i)
        value = self.term(term[1], i)
        return _custom(value) if kind == "custom" else jnp.sin(2 * value)

    def statements(self, body, i=0):
        for s in body:
            self.statement(s, i)

    def statement(self, s, i):
        kind, c, store = s[0], self.control, self.store
        if kind in ("set", "add", "addupdate"):
            method = {"set": store.write, "add": store.add, "addupdate": store.addupdate}[kind]
            method(self.refs[s[1]], self.index(s[1], s[2], i), self.term(s[3], i))
        elif kind == "swap":
            old = store.swap(self.refs[s[1]], self.index(s[1], s[2], i), self.term(s[3], i))
            store.add(self.refs["v"], 0, jnp.mean(old))
        elif kind in ("scan", "fori", "while"):
            {"scan": c.scan, "fori": c.fori, "while": c.loop}[kind](s[1], lambda j: self.statements(s[2], j))
        elif kind == "cond":
            c.cond(store, self.refs, self.term(s[1], i) > 0.2, lambda: self.statements(s[2], i), lambda: self.statements(s[3], i))
        elif kind == "local":
            local = Run(store, c, {**self.refs, "s": store.new(self.x[0] * 0.5)}, self.x)
            local.statements(s[1], i)
            store.add(self.refs["v"], 1, store.read(local.refs["s"], ...))
        elif kind == "rows":
            c.rows(self.refs["m"], self.x, lambda row, x: Run(store, c, {"v": row}, [x] * 3).statements(s[1], 0))
        else:
            {"jit": c.jit, "checkpoint": c.checkpoint}[kind](lambda: self.statements(s[1], i))


def with_refs(body, refs: dict, x) -> None:
    """Run statements on refs."""
    Run(Refs, Staged, refs, x).statements(body)


def loss(refs: dict):
    """A number that depends on everything."""
    return sum([jnp.sum(jnp.sin(value) * (1 + k)) for k, value in enumerate(refs.values())])


def of_refs(body):
    """x -> (loss, values of the refs at the end): a pure function, which makes refs inside."""
    def fun(x):
        refs = {k: jax.new_ref(v * x[1]) for k, v in START.items()}
        with_refs(body, refs, x)
        values = {k: jax.freeze(r) for k, r in refs.items()}
        return loss(values), values
    return fun


def on_arrays(body, start: dict, x) -> dict:
    """What the arrays `start` are after the statements."""
    boxes = {k: Box(v) for k, v in start.items()}
    Run(Plain, Unrolled, boxes, x).statements(body)
    return {k: b.value for k, b in boxes.items()}


def of_arrays(body):
    """The same function as of_refs, without refs."""
    def fun(x):
        values = on_arrays(body, {k: v * x[1] for k, v in START.items()}, x)
        return loss(values), values
    return fun
