"""`jax.extend.core`: primitives of one's own, made of a function that computes them; and the classes that programs consist of.

    >>> scaled_p = Primitive("scaled")
    >>> scaled_p.def_impl(lambda x, *, by: x * by)
    >>> jit(grad(lambda x: scaled_p.bind(x, by=3.0)))(1.0)
    Array(3., dtype=float32, weak_type=True)
"""
from __future__ import annotations

from typing import Any, Callable

from lowering.emit import rules
from mini_jax.core import dtypes, primitive, staging
from mini_jax.core.errors import ConcretizationTypeError, TracerArrayConversionError
from mini_jax.core.program import ClosedJaxpr as ClosedJaxpr, Jaxpr as Jaxpr, JaxprEqn as JaxprEqn, Literal as Literal, Var as Var, dce  # noqa: F401
from mini_jax.core.trace import typeof
from mini_jax.core.types import AbstractValue, array_type
from mini_jax.transforms.jvp import jvp_flat
from mini_jax.transforms.vmap import batch_flat

__all__ = ["Primitive", "ClosedJaxpr", "Jaxpr", "JaxprEqn", "Literal", "Var", "jaxpr_as_fun"]


class Primitive(primitive.Primitive):
    """An operation of one's own. `bind(*arrays, **params)` runs its impl where nothing is traced; in programs it stands as one equation of this
    name, and jit, grad and vmap take it for what its impl computes, which then must be written in mini_jax.numpy or lax.

    multiple_results = True, set on it, says that impl returns a list. Raises NotImplementedError where it is used and what is needed was not
    given with def_impl or def_abstract_eval.
    """
    __slots__ = ()

    def __init__(self, name: str, multiple_results: bool = False):
        super().__init__(name, multiple_results=multiple_results, memoize=False, listed=False, facts={"family": "user"})
        self.impl, self.type_rule = self._lacks_impl, self._types_of_impl
        self.jvp, self.batch = self._jvp, self._batch

    def def_impl(self, impl: Callable) -> Callable:
        """impl(*arrays, **params) -> an array (a list, if multiple_results): what it computes. Returns impl."""
        self.impl = impl
        rules[self] = self._lower
        return impl

    def def_abstract_eval(self, rule: Callable) -> Callable:
        """rule(*types, **params) -> a ShapedArray or ShapeDtypeStruct (a list, if multiple_results): the types of its results, which otherwise
        are those of what impl returns. Returns rule."""
        self.type_rule = lambda *types, **params: self._each(lambda t: _type(t, self.name), rule(*types, **params))
        return rule

    def _each(self, fun: Callable, results):
        return [fun(x) for x in results] if self.multiple_results else fun(results)

    def _flat(self, params: dict) -> Callable:
        return lambda *xs: list(self._traced(*xs, **params)) if self.multiple_results else [self._traced(*xs, **params)]

    def _given(self, found):
        return found if self.multiple_results else found[0]

    def _lacks_impl(self, *_, **__):
        raise NotImplementedError(f"the primitive {self.name!r} has no impl: say with {self.name}_p.def_impl(fun) what it computes")

    def _traced(self, *args, **params):
        try:
            return self.impl(*args, **params)
        except (ConcretizationTypeError, TracerArrayConversionError) as error:
            error.add_note(f"while the impl of the primitive {self.name!r} was traced: for jit, grad and vmap it must be written in mini_jax.numpy or "
                           "mini_jax.lax; around a function on NumPy arrays put pure_callback")
            raise

    def _types_of_impl(self, *types, **params):
        return self._given(list(staging.stage(self._flat(params), types)[0].out_types))

    def _lower(self, e, eqn, *operands):
        jaxpr, consts = staging.stage(self._flat(eqn.params), eqn.in_types)
        if consts:
            raise TypeError(f"the impl of the primitive {self.name!r} captures an array of type {typeof(consts[0])}: make it an argument")
        told = [v.aval for v in eqn.outvars]
        if [(t.shape, t.dtype) for t in jaxpr.out_types] != [(t.shape, t.dtype) for t in told]:
            raise TypeError(f"the impl of the primitive {self.name!r} returns {', '.join(map(str, jaxpr.out_types))}, but its abstract_eval says "
                            f"{', '.join(map(str, told))}")
        return self._given(e.inline(dce(jaxpr), operands))

    def _jvp(self, primals, tangents, **params):
        outs, outs_dot = jvp_flat(self._flat(params), primals, tangents)
        return self._given(outs), self._given(outs_dot)

    def _batch(self, axis, args, dims, **params):
        outs, out_dims = batch_flat(self._flat(params), axis, args, dims)
        return self._given(outs), self._given(out_dims)


def _type(found: Any, name: str) -> AbstractValue:
    if isinstance(found, AbstractValue):
        return found
    try:
        return array_type(tuple(found.shape), dtypes.canonicalize(dtypes.as_dtype(found.dtype)))
    except AttributeError:
        raise TypeError(f"the abstract_eval of the primitive {name!r} must return a ShapedArray, got {found!r:.200}") from None


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable:
    """The function (flat arrays -> list of arrays) that a program is."""
    return lambda *args: staging.eval_jaxpr(closed.jaxpr, closed.consts, *args)
