"""Reading and writing refs: what an index means there, the methods of refs, and `new_ref`, `freeze`, `swap`, `addupdate`, …

Indices are those of arrays, taken apart into structure and operands by subscripts.py. In a program they print as they are written:

    b:f32[] <- a[1]        a[1] <- b        a[1] += b
"""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.errors import ref_operand
from mini_jax.core.program import JaxprEqn, Literal
from mini_jax.core.refs import (FROZEN, WHOLE, RefLike, addupdate_p, described, freeze_p, get_p, is_ref, load, new_ref_p, set_p, store)
from mini_jax.core.source import describe
from mini_jax.core.staging import StagingTrace, StagingTracer, stage
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, eval_trace, is_value, leaked, typeof
from mini_jax.core.types import RefType
from mini_jax.numpy.promotion import converted
from mini_jax.numpy.reading import _read_int, read, read_eagerly
from mini_jax.numpy.subscripts import ARRAY, FALSE, FULL, INT, TRUE, expanded, for_dispatch, is_boolean, parse
from mini_jax.numpy.updates import _broadcast_value, _lone_mask, write, write_masked
from mini_jax.runtime import refs, xla
from mini_jax.runtime.array import device_put
from mini_jax.runtime.dispatch import library
from mini_jax.runtime.refs import Ref
from mini_jax.runtime.xla import ArrayImpl

__all__ = ["new_ref", "freeze", "empty_ref", "free_ref", "get", "set", "swap", "addupdate", "Ref", "AbstractRef"]

AbstractRef = RefType
MASK = "mask"                                        # an index that is one traced mask, from a dimension on: (MASK, dimension)


# --- indices ---------------------------------------------------------------------------------------------------------------------

def _split(ref, index, writing: bool) -> tuple[tuple, list]:
    """The structure and operands of an index of a ref. IndexError for one that is known to be out of bounds."""
    if index is Ellipsis:
        return WHOLE, []
    shape = ref.shape
    entries = expanded(shape, index)
    if writing and (found := _lone_mask(shape, entries)) is not None and isinstance(found[0], Tracer):
        return (MASK, found[1]), [found[0]]
    d = 0
    for i in entries:
        if i is not None and not is_boolean(i):
            _check_inside(ref, i, d)
        d += 0 if i is None else i.ndim if is_boolean(i) else 1
    structure, operands = parse(shape, entries)
    return (WHOLE, []) if structure.count(FULL) == len(structure) else (structure, operands)


def _check_inside(ref, i, d: int) -> None:
    size = ref.shape[d]
    if type(i) is int:
        if not -size <= i < size:
            raise _outside(ref, i, d)
    elif type(i) is not slice and not isinstance(i, Tracer):
        values = np.asarray(i)
        wrong = (values < -size) | (values >= size)
        if wrong.any():
            raise _outside(ref, values[wrong].flat[0], d)


def _outside(ref, i, d: int) -> IndexError:
    return IndexError(f"index {i} is out of bounds for axis {d} with size {ref.shape[d]} of {described(ref)}")


def _is_mask(structure) -> bool:
    return bool(structure) and structure[0] is MASK


# --- what the words mean -------------------------------------------------------------------------------------------------------------

def _value_at(value, operands: Sequence, structure):
    return value if structure == WHOLE else read(value, operands, structure)


def _updated(value, new, operands: Sequence, structure, op: str):
    """`value` after an assignment or an addition at an index, cast and broadcast as NumPy assigns."""
    aval = typeof(value)
    if _is_mask(structure):
        return write_masked(value, operands[0], converted(new, aval.dtype), structure[1], op)
    new = converted(new, aval.dtype)
    if typeof(new).shape[:1] == (1,):
        new = _fitting(new, _selected(aval, [*map(typeof, operands)], structure).ndim)
    if structure == WHOLE:
        new = _broadcast_value(new, aval.shape)
        return lax.add(value, new) if op == "add" else lax.convert_element_type(new, aval.dtype, False)
    return write(value, new, operands, structure, op)


def _selected(aval, types: Sequence, structure):
    """The type of what an index, its operands being of `types`, takes of an array."""
    if structure == WHOLE:
        return aval
    return stage(lambda x, *xs: [read(x, xs, structure)], [aval, *types])[0].out_types[0].strong


def _fitting(new, ndim: int):
    """Leading axes of size 1 beyond `ndim` are dropped, as NumPy does."""
    shape = typeof(new).shape
    extra = len(shape) - ndim
    return lax.squeeze(new, range(extra)) if extra > 0 and all([n == 1 for n in shape[:extra]]) else new


_updated_in_place = library(_updated, static_argnames=("structure", "op"), donated=(True, False, False))


_NUMBERS = frozenset([ArrayImpl, float, int, bool, complex])


@library(donated=(True, False, False))
def _row_in_place(x, row, index):
    return _updated(x, row, [index], (INT, *[FULL] * (typeof(x).ndim - 1)), "set")


@library(static_argnames=("shape", "dtype"))
def _filled(value, shape, dtype):
    return lax.convert_element_type(_broadcast_value(_fitting(converted(value, dtype), len(shape)), shape), dtype, False)


@library
def _copied(x):
    return lax.convert_element_type(x, typeof(x).dtype, False)


refs._copy = lambda array, aval: _copied(array)


# --- the words' rules ------------------------------------------------------------------------------------------------------------------

def _get_type(ref, *operands, structure):
    _check_ref(ref, "get")
    return _selected(ref.inner, operands, structure)


def _write_type(op: str):
    def rule(ref, value, *operands, structure):
        _check_ref(ref, "set")
        stage(lambda x, v, *xs: [_updated(x, v, xs, structure, op)], [ref.inner, value, *operands])
        return []
    return rule


def _check_ref(t, name: str) -> None:
    if type(t) is not RefType:
        raise TypeError(f"{name} takes a ref first, got a value of type {t}")


def _discharge_get(trace, args, params):
    return _value_at(load(trace, args[0]), args[1:], **params)


def _discharge_write(op: str):
    def rule(trace, args, params):
        ref, value, *operands = args
        if op == "set" and params["structure"] == WHOLE:         # what was there does not count
            t = typeof(ref).inner
            store(trace, ref, _filled(value, t.shape, t.dtype))
        else:
            store(trace, ref, _updated(load(trace, ref), value, operands, params["structure"], op))
        return []
    return rule


get_p.type_rule, set_p.type_rule, addupdate_p.type_rule = _get_type, _write_type("set"), _write_type("add")
get_p.facts |= {"discharge": _discharge_get, "meaning": _value_at}
set_p.facts["discharge"], addupdate_p.facts["discharge"] = _discharge_write("set"), _discharge_write("add")
freeze_p.facts["discharge"] = lambda trace, args, params: load(trace, args[0])


new_ref_p.impl = refs.make


def _own(ref) -> Ref:
    if type(ref) is not Ref:
        raise leaked(ref) if isinstance(ref, Tracer) else TypeError(f"{ref!r:.100} is no ref")
    return ref


def _get_now(ref, *operands, structure):
    ref = _own(ref)
    with ref.lock:
        ref.check_live()
        return _copied(ref.array) if structure == WHOLE else read_eagerly(ref.array, [for_dispatch(i) for i in operands], structure)


def _write_now(op: str):
    def write_now(ref, value, *operands, structure):
        ref = _own(ref)
        operands = [for_dispatch(i) for i in operands]
        if structure == WHOLE and op == "set":
            ref.update(lambda array: _filled(value, array.shape, array.dtype))
        else:
            ref.update(lambda array: _updated_in_place(array, value, operands, structure, op))
        return []
    return write_now


get_p.impl, set_p.impl, addupdate_p.impl = _get_now, _write_now("set"), _write_now("add")
freeze_p.impl = lambda ref: _own(ref).freeze()


# --- how they are printed -----------------------------------------------------------------------------------------------------------------

def _index_text(names, operands: Sequence, structure) -> str:
    if structure == WHOLE:
        return "..."
    if _is_mask(structure):
        return ", ".join([":"] * structure[1] + [_operand(names, operands[0])])
    given, parts = iter(operands), []
    for code in structure:
        if code is INT or code is ARRAY:
            parts.append(_operand(names, next(given)))
        elif type(code) is int:
            start = _operand(names, next(given))
            parts.append(f"{start}:{int(start) + code if start.isdigit() else f'{start}+{code}'}")
        elif type(code) is tuple:
            start, n, step = code
            stop = start + n * step
            parts.append(f"{start}:{stop if stop >= 0 else ''}{f':{step}' if step != 1 else ''}")
        else:
            parts.append({FULL: ":", None: "None", TRUE: "True", FALSE: "False"}[code])
    return ", ".join(parts)


def _operand(names, atom) -> str:
    return str(atom.val) if type(atom) is Literal else names.use(atom)


def _print_get(eqn: JaxprEqn, names) -> str:
    ref, *operands = eqn.invars
    index = _index_text(names, operands, **eqn.params)
    ref = names.use(ref)
    return f"{names.bind(eqn.outvars[0])} <- {ref}[{index}]"


def _print_write(sign: str):
    def text(eqn: JaxprEqn, names) -> str:
        ref, value, *operands = eqn.invars
        return f"{names.use(ref)}[{_index_text(names, operands, **eqn.params)}] {sign} {names.use(value)}"
    return text


get_p.format_eqn, set_p.format_eqn, addupdate_p.format_eqn = _print_get, _print_write("<-"), _print_write("+=")


_indices: dict = {}


def _at_hand(index: int):
    """An index for a compiled program: where it is a small one an array, which is there already and costs nothing to hand over."""
    found = _indices.get(index)
    if found is None or found.is_deleted():
        found = np.int32(index)
        if -64 <= index < 1024:
            found = _indices[index] = device_put(found)
    return found


# --- what users write -----------------------------------------------------------------------------------------------------------------------

def _getitem(self, index):
    if type(index) is int and type(self) is Ref and self.has_row(index) and state.trace is eval_trace and not xla.staging.value:
        with self.lock:                              # the usual case, at the cost of one call of C++
            try:
                return _read_int(self.array, _at_hand(index))
            except RuntimeError:
                self.check_live()                    # says so if the value is lost
                raise
    self.check_live()
    if index is Ellipsis and type(self) is Ref and state.trace is eval_trace and not xla.staging.value:
        return _get_now(self, structure=WHOLE)
    structure, operands = _split(self, index, False)
    return get_p.bind(self, *operands, structure=structure)


def _setitem(self, index, value):
    if (type(index) is int and type(self) is Ref and self.has_row(index) and type(value) in _NUMBERS and state.trace is eval_trace
            and not xla.staging.value):
        with self.lock:
            self.check_live()                        # another thread may have frozen it by now
            try:
                new = _row_in_place(self.array, value, _at_hand(index))
            except BaseException:
                self.check_kept()
                raise
            self.take(new)
        return
    self.check_live()
    value = _assignable(self, value)
    structure, operands = _split(self, index, True)
    added = _added(self, value, operands, structure) if type(value) is StagingTracer else None
    if added is not None:
        addupdate_p.bind(self, added, *operands, structure=structure)
        return
    set_p.bind(self, value, *operands, structure=structure)


def _assignable(ref, value):
    """A value to be written. TypeError for what is no array."""
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    if is_ref(value):
        raise TypeError(f"{described(value)} can't be written to {described(ref)}: there are no refs to refs; write other[...]")
    if not is_value(value):
        raise TypeError(f"{value!r:.100} of type {type(value).__name__} can't be written to {described(ref)}: it is not an array or a number")
    have = dtypes.result_type(value) if not hasattr(value, "dtype") else value.dtype
    if dtypes.is_extended(have):
        raise TypeError(f"a value of dtype {have} can't be written to {described(ref)}")
    if isinstance(value, np.ndarray):
        value = device_put(value) if not xla.staging.value else value
    return value


def _added(ref, value, operands: Sequence, structure):
    """In `ref[i] += v`, which Python makes a read, an addition and a write: v. None where that is not what was written.

    Where an index repeats, adding differs from writing the sum, as it does in NumPy; so index arrays are left alone.
    """
    trace = state.trace
    if not isinstance(trace, StagingTrace) or value._trace is not trace or not trace.eqns or ARRAY in structure or _is_mask(structure):
        return None
    last = trace.eqns[-1]
    if last.primitive is not lax.add_p or last.outvars[0] is not value.variable:
        return None
    atoms = [trace.atom(ref), *map(trace.atom, operands)]
    for eqn in reversed(trace.eqns[:-1]):
        if eqn.primitive is get_p and eqn.outvars[0] is last.invars[0]:
            if eqn.params["structure"] != structure or not all(map(_same_atom, eqn.invars, atoms)):
                return None
            trace.superseded.append(last)
            other = last.invars[1]
            return other.val if type(other) is Literal else StagingTracer(trace, other.aval, other)
        if any([getattr(e, "ref", None) is atoms[0] and e.kind != "read" for e in eqn.effects]):
            return None
    return None


def _same_atom(a, b) -> bool:
    return a is b or type(a) is Literal and type(b) is Literal and a.val == b.val


def _refused(name: str):
    def refuse(self, *_, **__):
        raise ref_operand(name, str(typeof(self)), describe(self.created))
    return refuse


RefLike.__getitem__, RefLike.__setitem__ = _getitem, _setitem
RefLike.at = property(lambda self: _At(self), doc="ref.at[index]: a view of what an index takes, to be read and written like a ref.")
RefLike.__len__ = lambda self: len(self.aval.inner)
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"):
    setattr(RefLike, f"__{_name}__", _refused(_name))
    setattr(RefLike, f"__r{_name}__", _refused(_name))
for _name in ("neg", "pos", "abs", "invert", "bool", "int", "float", "complex", "index", "lt", "le", "gt", "ge", "iter", "contains", "round", "array"):
    setattr(RefLike, f"__{_name}__", _refused(_name))
RefLike.__eq__, RefLike.__ne__ = (lambda self, other: self is other), (lambda self, other: self is not other)


class _At:
    __slots__ = ("ref",)

    def __init__(self, ref):
        self.ref = ref

    def __getitem__(self, index) -> "RefView":
        return RefView(self.ref, index)


class RefView:
    """A part of a ref, `ref.at[index]`: view[...] reads it, view[i] = v and view[i] += v write the ref."""
    __slots__ = ("ref", "index")

    def __init__(self, ref, index):
        self.ref, self.index = ref, index
        _split(ref, index, False) if not isinstance(ref, RefView) else None

    aval = property(lambda self: typeof(self.ref[self.index]))
    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.ref.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    at = property(lambda self: _At(self))

    def __getitem__(self, index):
        value = self.ref[self.index]
        return value if index is Ellipsis else value[index]

    def __setitem__(self, index, value):
        if index is Ellipsis:
            self.ref[self.index] = value
        else:
            self.ref[self.index] = self.ref[self.index].at[index].set(value)

    def get(self):
        """What it holds."""
        return self[...]

    def set(self, value) -> None:
        """Write it."""
        self[...] = value

    def add(self, value) -> None:
        """Add to it; where its index repeats, so does the addition."""
        addupdate(self.ref, self.index, value)

    def __repr__(self):
        return f"{self.ref!r}.at[{self.index!r}]"


# --- functions --------------------------------------------------------------------------------------------------------------------------------

def _checked(ref, name: str):
    if not is_ref(ref) and not isinstance(ref, RefView):
        raise TypeError(f"{name} takes a ref, got {ref!r:.100} of type {type(ref).__name__}: make one with new_ref")
    return ref


def new_ref(init_val, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """A mutable array, with a copy of `init_val` as its first value.

    init_val: an array or a number; a Python number gives the default dtype. Inside of a transformed function the ref lives as long as
    that runs; it is no result of it. memory_space, kind: None.
    Raises TypeError for a ref, a random key, or what is no array.
    """
    if memory_space is not None or kind is not None:
        raise NotImplementedError("new_ref: refs live where arrays do; memory_space and kind must be None")
    if is_ref(init_val):
        raise TypeError(f"new_ref takes an array, got {described(init_val)}: there are no refs to refs; pass ref[...] for one that starts with its value")
    if isinstance(init_val, (list, tuple)) or not is_value(init_val):
        raise TypeError(f"new_ref takes an array or a number, got {init_val!r:.100} of type {type(init_val).__name__}")
    if isinstance(init_val, np.ndarray):
        init_val = device_put(init_val)              # later writes to it must not show
    elif isinstance(init_val, (bool, int, float, complex)):
        init_val = typeof(init_val).dtype.type(init_val)
    elif typeof(init_val).weak_type:
        init_val = lax.convert_element_type(init_val, typeof(init_val).dtype, False)
    return new_ref_p.bind(init_val)


def empty_ref(ty) -> Ref:
    """A ref of the shape and dtype of `ty`, an array or a ShapeDtypeStruct, with zeros as its first value."""
    return new_ref(lax.full(ty.shape, 0, ty.dtype))


def freeze(ref):
    """The last value of a ref, as an array, and the end of the ref: using it afterwards is an error.

    Nothing is copied. Raises ValueError where the ref was not made in the function that is running (a transformed function can freeze
    its own refs only), RuntimeError for a ref that is frozen already.
    """
    if isinstance(ref, RefView):
        raise TypeError("freeze takes a ref, not a view of one")
    _checked(ref, "freeze").check_live()
    here = state.trace is eval_trace and not xla.staging.value if type(ref) is Ref else ref.made_here and ref._trace is state.trace
    if not here:
        raise ValueError(f"freeze: {described(ref)} was made outside of the transformed function that would freeze it. Freeze it where it was made")
    out = freeze_p.bind(ref)
    ref.status = FROZEN
    return out


def free_ref(ref) -> None:
    """End a ref without keeping its value."""
    freeze(ref)


def get(ref, idx=...):
    """ref[idx]: the value that the ref holds there now, as an array."""
    return _checked(ref, "get")[... if idx is None else idx]


def set(ref, idx, value) -> None:
    """ref[idx] = value: changes what the ref holds there, in place."""
    _checked(ref, "set")[... if idx is None else idx] = value


def swap(ref, idx, value):
    """Write ref[idx] = value and return what was there."""
    idx = ... if idx is None else idx
    old = _checked(ref, "swap")[idx]
    ref[idx] = value
    return old


def addupdate(ref, idx, x) -> None:
    """Add to what an index takes, like ref[idx] += x; but where the index repeats an element, each of its values is added."""
    _checked(ref, "addupdate")
    idx = ... if idx is None else idx
    if isinstance(ref, RefView):
        if idx is Ellipsis:
            addupdate(ref.ref, ref.index, x)
        else:
            ref[...] = ref[...].at[idx].add(x)
        return
    ref.check_live()
    x = _assignable(ref, x)
    structure, operands = _split(ref, idx, True)
    addupdate_p.bind(ref, x, *operands, structure=structure)
