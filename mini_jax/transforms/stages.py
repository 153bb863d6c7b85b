"""Stages: what a jitted function is on its way to the device, each to be looked at: Traced → Lowered → Compiled."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple

from lowering.program import Lowered as LoweredProgram
from mini_jax.core.program import ClosedJaxpr
from mini_jax.core.pytree import PyTreeDef
from mini_jax.core.trace import register_type, typeof
from mini_jax.core.types import array_type, ref_type
from mini_jax.core import dtypes
from mini_jax.runtime import dispatch, xla
from mini_jax.runtime.executable import Executable
from mini_jax.transforms.refs import InPlace, check_aliases


class ShapeDtypeStruct:
    """The shape and dtype of an array, without the array: for `eval_shape`, `jit(f).trace` and `lower`. is_ref: of a ref."""
    __slots__ = ("shape", "dtype", "sharding", "weak_type", "is_ref")

    def __init__(self, shape, dtype, *, sharding=None, weak_type: bool = False, vma=None, is_ref: bool = False):
        if dtype is None:
            raise TypeError("ShapeDtypeStruct: dtype must be given")
        self.shape, self.dtype = tuple(shape), dtype if dtypes.is_extended(dtype) else dtypes.as_dtype(dtype)
        self.sharding, self.weak_type, self.is_ref = sharding, weak_type, is_ref

    ndim = property(lambda self: len(self.shape))

    @property
    def aval(self):
        """The type of such an array, or of a ref to one."""
        inner = array_type(self.shape, dtypes.canonicalize(self.dtype), self.weak_type)
        return ref_type(inner) if self.is_ref else inner

    @property
    def size(self) -> int:
        return self.aval.size

    def __len__(self):
        return len(self.aval)

    def update(self, **changes) -> "ShapeDtypeStruct":
        """The same with `shape`, `dtype`, `sharding` or `weak_type` changed."""
        facts = {"shape": self.shape, "dtype": self.dtype, "sharding": self.sharding, "weak_type": self.weak_type, "is_ref": self.is_ref} | changes
        return ShapeDtypeStruct(facts.pop("shape"), facts.pop("dtype"), **facts)

    def __eq__(self, other):
        return (isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype, self.sharding, self.weak_type, self.is_ref)
                == (other.shape, other.dtype, other.sharding, other.weak_type, other.is_ref))

    def __hash__(self):
        return hash((self.shape, self.dtype, self.weak_type))

    def __repr__(self):
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={getattr(self.dtype, 'name', self.dtype)}{sharding}{', weak_type=True' if self.weak_type else ''}{', is_ref=True' if self.is_ref else ''})"


register_type(ShapeDtypeStruct, lambda struct: struct.aval)


class ArgInfo(NamedTuple):
    """What is known of one argument."""
    shape: tuple
    dtype: Any
    donated: bool


class Traced:
    """A function recorded for given argument types. `jaxpr` is its program."""

    def __init__(self, recorded, call, name: str, lowering: Callable, refs: InPlace | None = None):
        """lowering(platform or None) -> (the lowered program, load), load(compiler_options) -> Executable. refs: where it takes refs, how it
        is run."""
        self._recorded, self._call, self.fun_name, self._lowering, self._refs = recorded, call, name, lowering, refs
        self.jaxpr = ClosedJaxpr(recorded.jaxpr, recorded.consts)
        self.out_tree: PyTreeDef = recorded.out_tree
        self.in_tree: PyTreeDef = call.tree

    @property
    def in_avals(self):
        return self.in_tree.unflatten(self.jaxpr.in_avals)

    @property
    def out_info(self):
        """The structure of the result with a ShapeDtypeStruct for each array."""
        return self.out_tree.unflatten([ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in self.jaxpr.out_avals])

    @property
    def effects(self):
        return self.jaxpr.effects

    def lower(self, *, lowering_platforms=None) -> "Lowered":
        """The program as StableHLO."""
        return Lowered(*self._lowering(lowering_platforms[0] if lowering_platforms else None), self)

    def __repr__(self):
        return f"Traced({self.fun_name}, {len(self.jaxpr.eqns)} equations)"


class Lowered:
    """A program written as StableHLO."""

    def __init__(self, program: LoweredProgram, load: Callable[[dict], Executable], traced: Traced):
        self._program, self._load, self._traced = program, load, traced
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree

    out_info = property(lambda self: self._traced.out_info)

    @property
    def args_info(self):
        types = self._traced.jaxpr.in_avals
        donated = self._traced._call.donated or (False,) * len(types)
        return self.in_tree.unflatten([ArgInfo(t.shape, t.dtype, d) for t, d in zip(types, donated)])

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The StableHLO text; with debug_info each operation's name stack and place in the user's code.

        dialect: "stablehlo" (default) or "hlo": XLA's own form of the same, before its optimisations.
        """
        if dialect in (None, "stablehlo"):
            return self._program.located_text if debug_info else self._program.text
        if dialect == "hlo":
            return xla.hlo_of(self._program.text)
        raise ValueError(f"as_text: dialect is 'stablehlo' or 'hlo', got {dialect!r}")

    def compiler_ir(self, dialect: str | None = None):
        """The module as an MLIR object (jaxlib's bindings); dialect "hlo": XLA's own form as text."""
        return self.as_text("hlo") if dialect == "hlo" else xla.parse_module(self._program.located_text)

    def compile(self, compiler_options: dict | None = None) -> "Compiled":
        """Let XLA optimise it and make it executable."""
        return Compiled(self._load(compiler_options or {}), self)

    def cost_analysis(self) -> dict:
        """XLA's estimate of flops, bytes accessed and the like (it compiles the program to know)."""
        return self.compile().cost_analysis()

    def __repr__(self):
        return f"Lowered({self._program.name})"


class Compiled:
    """An executable program. Call it with arguments of exactly the types it was made for (static ones left out)."""

    def __init__(self, executable: Executable, lowered: Lowered):
        self._executable, self._lowered = executable, lowered
        self.in_tree, self.out_tree = lowered.in_tree, lowered.out_tree

    out_info = property(lambda self: self._lowered.out_info)
    args_info = property(lambda self: self._lowered.args_info)

    @property
    def in_avals(self):
        return self._lowered._traced.jaxpr.in_avals

    @property
    def input_shardings(self):
        return self.in_tree.unflatten(list(self._executable.in_shardings[-self.in_tree.num_leaves or None:]))       # after captured refs

    @property
    def output_shardings(self):
        return self.out_tree.unflatten(list(self._executable.out_shardings[-self.out_tree.num_leaves or None:]))    # after refs' new values

    def as_text(self) -> str:
        """The optimised HLO."""
        return self._executable.hlo_text()

    def cost_analysis(self) -> dict:
        """XLA's estimate of flops, bytes accessed and the like."""
        return self._executable.cost_analysis()

    def memory_analysis(self):
        """XLA's memory plan: sizes of arguments, outputs, temporaries and code, in bytes."""
        return self._executable.memory_analysis()

    def runtime_executable(self):
        return self._executable.shown()

    def __call__(self, *args, **kwargs):
        leaves, tree = xla.registry.flatten((args, kwargs))
        if tree != self.in_tree:
            raise TypeError(f"this program was compiled for arguments of structure {self.in_tree}, not {tree}")
        traced = self._lowered._traced
        info = traced._recorded.jaxpr.info
        for position, (leaf, type_) in enumerate(zip(leaves, self.in_avals)):
            have = typeof(leaf)
            if have.shape != type_.shape or have.dtype != type_.dtype or type(have) is not type(type_):
                raise TypeError(f"this program was compiled for {type_} as argument {info.path(position)}, not {have}")
        if traced._refs is not None:
            check_aliases(info, traced._recorded.consts, leaves)
            return self.out_tree.unflatten(traced._refs.carry_out(self._executable, leaves))
        outs = self._executable(dispatch.opened(leaves))
        return self.out_tree.unflatten(dispatch.wrapped(self._executable.out_types, outs))

    def __repr__(self):
        return f"Compiled({self._lowered._program.name})"
