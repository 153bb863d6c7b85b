"""Derivatives for users: jvp, linearize, vjp, grad, value_and_grad, linear_transpose, jacfwd, jacrev, hessian."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core import linear as derivatives
from mini_jax.core.linear import Carried, Refused, Zero
from mini_jax.core.program import Jaxpr, ProgramInfo, function_name
from mini_jax.core.pytree import PyTreeDef, broadcast_prefix, keystr, register_pytree_node, register_static, tree_flatten_with_path
from mini_jax.core.refs import WHOLE, addupdate_p, described, is_ref, refuse_refs, replace, whole
from mini_jax.core.state import current_trace, reducing, state
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary, boundary_of
from mini_jax.core.staging import eval_jaxpr
from mini_jax.lax import shapes
from mini_jax.runtime import xla
from mini_jax.transforms.arguments import argument_name, checked_outputs
from mini_jax.transforms.jvp import LinearTrace, jvp_flat
from mini_jax.transforms.linearize import Linear, linearize_flat, transpose_flat
from mini_jax.transforms.vmap import vmap

_flatten = xla.registry.flatten


# --- arguments --------------------------------------------------------------------------------------------------------------

def _info(transformation: str, fun: Callable, tree: PyTreeDef, positions: Sequence[int] | None = None) -> ProgramInfo:
    """tree: the structure of the tuple of the arguments, of those at `positions` if given."""
    def paths():
        out = []
        for i, arg in enumerate(tree.unflatten([object() for _ in range(tree.num_leaves)])):
            name = argument_name(fun, i if positions is None else positions[i])
            out += [name + keystr(path) for path, _ in tree_flatten_with_path(arg)[0]]
        return out
    return ProgramInfo(transformation, fun, paths)


def _check_differentiable(leaves: Sequence, info: ProgramInfo, *, holomorphic: bool = False, allow_int: bool = False,
                          reverse: bool = True) -> None:
    """TypeError for an input that the derivative can't be taken in, naming it.
    reverse: the derivative is taken backwards, from a result that must be real, so inputs may be complex.
    """
    for position, leaf in enumerate(leaves):
        try:
            dtype = typeof(leaf).dtype
        except TypeError:
            raise TypeError(f"{info.transformation}: argument {info.path(position)} of {info.name} is {leaf!r:.200} of type "
                            f"{type(leaf).__name__}; derivatives are taken in arrays and numbers") from None
        if not (dtypes.is_complex(dtype) if holomorphic else dtypes.is_inexact(dtype) if reverse else dtypes.is_floating(dtype)):
            problem = _no_derivative(dtype, info, holomorphic, allow_int)
            if problem:
                raise TypeError(f"{info.transformation}: argument {info.path(position)} of {info.name} is {typeof(leaf)}{problem}")


def _no_derivative(dtype, info: ProgramInfo, holomorphic: bool, allow_int: bool) -> str | None:
    """Why the derivative can't be taken in an input of this dtype, if it can't."""
    if holomorphic:
        return "; with holomorphic=True inputs must be complex"
    if dtypes.is_complex(dtype):
        return f", complex; pass holomorphic=True if {info.name} is holomorphic, or use jacrev (for a real result) or jvp"
    if not allow_int:
        return ("; derivatives are taken in floating-point inputs. Convert it to float, choose other arguments with argnums, or pass "
                "allow_int=True, which gives it a float0 gradient.")
    return None


def _positions(argnums, count: int, fun: Callable, transformation: str) -> tuple[int, ...]:
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)                                # the usual case
    numbers = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
    out = []
    for n in numbers:
        if not isinstance(n, (int, np.integer)):
            raise TypeError(f"{transformation}: argnums must be an int or a tuple of ints, got {argnums!r}")
        if not -count <= n < count:
            raise ValueError(f"{transformation}: argnums={argnums} asks for the derivative in argument {n}, but {function_name(fun)} was called with "
                             f"{count} positional arguments")
        out.append(n % count)
    if len(set(out)) != len(out):
        raise ValueError(f"{transformation}: argnums={argnums} names an argument twice")
    return tuple(out)


def axis_names(reduce_axes, transformation: str) -> tuple:
    """The names in reduce_axes; TypeError where they are not a sequence of hashable ones."""
    if isinstance(reduce_axes, str):
        return (reduce_axes,)
    try:
        names = tuple(reduce_axes)
        hash(names)
    except TypeError:
        raise TypeError(f"{transformation}: reduce_axes must be a sequence of axis names, got {reduce_axes!r:.100}") from None
    return names


def _check_callable(fun, transformation: str):
    if not callable(fun):
        raise TypeError(f"{transformation} takes a function, got {fun!r:.200} of type {type(fun).__name__}")


def instantiate(value):
    """A Zero as an array of zeros (float0 for the tangents of integers), a number as an array. Arrays as they are."""
    if type(value) is Zero:
        if value.aval.dtype == dtypes.float0:
            return np.zeros(value.aval.shape, dtypes.float0)
        return shapes.broadcast_in_dim(np.zeros((), value.aval.dtype)[()], value.aval.shape, ())
    if hasattr(value, "aval") or isinstance(value, np.ndarray) and value.dtype == dtypes.float0:
        return value
    return shapes.broadcast_in_dim(value, typeof(value).shape, tuple(range(typeof(value).ndim)))


def _gradients(cotangents: Sequence, types: Sequence) -> list:
    """Cotangents of arguments as arrays, that of a Python number as weakly typed as the number: it gives way in promotion as that does."""
    arrays = [instantiate(ct) for ct in cotangents]
    return [shapes.convert_element_type(ct, t.dtype, True) if t.weak_type and dtypes.is_inexact(t.dtype) and not typeof(ct).weak_type else ct
            for ct, t in zip(arrays, types)]


def _as_tangent(value, type_, what: Callable[[], str]):
    """A tangent or cotangent given by the user, as a value or a Zero; TypeError or ValueError where it doesn't fit `type_`."""
    if type(value) is Zero:
        return value
    want = type_.tangent()
    have = typeof(value)
    if have.shape != want.shape:
        raise ValueError(f"{what()} has shape {have.shape}, but the value that it belongs to has type {type_}")
    if want.dtype == dtypes.float0:
        if have.dtype == dtypes.float0 or not dtypes.is_inexact(have.dtype) and not np.any(np.asarray(value)):
            return Zero(want)
        raise TypeError(f"{what()} is {have}, but belongs to a value of type {type_}, whose tangents have dtype float0: "
                        "np.zeros(shape, float0)")
    if have.dtype != want.dtype:
        if have.weak_type and dtypes.promote_pair(want.dtype, False, have.dtype, True)[0] == want.dtype:
            return shapes.convert_element_type(value, want.dtype)
        raise TypeError(f"{what()} has dtype {have.dtype}, but the value that it belongs to has type {type_}: convert it first")
    return value


def _flat_fun(fun: Callable, in_tree: PyTreeDef, info: ProgramInfo, has_aux: bool = False):
    """`fun` on flat arguments, and a dict that receives the structure of its result (and its aux value)."""
    result: dict[str, Any] = {}

    def flat(*leaves):
        out = fun(*in_tree.unflatten(leaves))
        if has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(f"{info.transformation}(…, has_aux=True): {info.name} must return a pair (value, aux), "
                                f"got {out!r:.200} of type {type(out).__name__}")
            out, aux = out
            aux_leaves, result["aux_tree"] = _flatten(aux)
            result["count"] = len(aux_leaves)
        leaves, result["tree"] = _flatten(out)
        checked_outputs(leaves, result["tree"], info)
        return [*leaves, *aux_leaves] if has_aux else leaves
    return flat, result


# --- forward mode ---------------------------------------------------------------------------------------------------------------

@boundary
def jvp(fun: Callable, primals, tangents, has_aux: bool = False):
    """(fun(*primals), ∂fun(primals)·tangents): a Jacobian-vector product, by forward mode.

    primals, tangents: tuples of the same structure, shapes and dtypes (float0 for integer primals).
    has_aux: fun returns (value, aux) and so does the result: (value, tangent, aux).
    Raises TypeError or ValueError where they don't fit.
    """
    _check_callable(fun, "jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(f"jvp: primals and tangents are tuples of arguments, got {type(primals).__name__} and {type(tangents).__name__}")
    leaves, tree = _flatten(tuple(primals))
    tangent_leaves, tangent_tree = _flatten(tuple(tangents))
    if tree != tangent_tree:
        raise TypeError(f"jvp: primals and tangents must have one structure, got {tree} and {tangent_tree}")
    info = _info("jvp", fun, tree)
    tangent_leaves = [_as_tangent(t, typeof(p), lambda i=i: f"jvp: the tangent of argument {info.path(i)}")
                      for i, (p, t) in enumerate(zip(leaves, tangent_leaves))]
    flat, result = _flat_fun(fun, tree, info, has_aux)
    outs, outs_dot = jvp_flat(flat, leaves, tangent_leaves, info)
    count = len(outs) - result.get("count", 0)
    value, tangent = result["tree"].unflatten(outs[:count]), result["tree"].unflatten([instantiate(t) for t in outs_dot[:count]])
    return (value, tangent, result["aux_tree"].unflatten(outs[count:])) if has_aux else (value, tangent)


@boundary
def linearize(fun: Callable, *primals, has_aux: bool = False):
    """(fun(*primals), f_jvp): the value, and the derivative there as a function of tangents that doesn't redo the primal work.

    Raises as jvp does.
    """
    _check_callable(fun, "linearize")
    leaves, tree = _flatten(primals)
    info = _info("linearize", fun, tree)
    flat, result = _flat_fun(fun, tree, info, has_aux)
    outs, linear = linearize_flat(flat, leaves, info)
    count = len(outs) - result.get("count", 0)
    out_tree = result["tree"]
    atoms = linear.outs[:count]
    program = Jaxpr(list(linear.residuals), [v for v in linear.invars if v is not None], linear.eqns, [a for a in atoms if a is not None])
    residuals = list(linear.residuals.values())

    def f_jvp(*tangents):
        tangent_leaves, tangent_tree = _flatten(tangents)
        if tangent_tree != tree:
            raise TypeError(f"the linearized {info.name} takes tangents of structure {tree}, got {tangent_tree}")
        given = [_as_tangent(t, type_, lambda i=i: f"the tangent of argument {info.path(i)}")
                 for i, (t, type_) in enumerate(zip(tangent_leaves, linear.in_types))]
        live = iter(eval_jaxpr(program, residuals, *[instantiate(t) for t, v in zip(given, linear.invars) if v is not None]))
        return out_tree.unflatten([next(live) if a is not None else instantiate(Zero(t.tangent())) for a, t in zip(atoms, linear.out_types)])
    value = out_tree.unflatten(outs[:count])
    return (value, f_jvp, result["aux_tree"].unflatten(outs[count:])) if has_aux else (value, f_jvp)


# --- reverse mode ------------------------------------------------------------------------------------------------------------------

class VJP:
    """The transposed derivative of a function at a point: call it with a cotangent of the result for those of the arguments.

    May be called many times; it holds the residuals of the forward pass, and is a pytree of these, so it can be saved, returned and carried.
    """
    __slots__ = ("_linear", "in_tree", "out_tree", "_info", "_reduce_axes", "_program", "__weakref__")

    def __init__(self, linear: Linear, in_tree: PyTreeDef, out_tree: PyTreeDef, info: ProgramInfo, reduce_axes: tuple = ()):
        self._linear, self.in_tree, self.out_tree, self._info, self._reduce_axes, self._program = linear, in_tree, out_tree, info, reduce_axes, None

    def _flattened(self):
        """Its residuals, and itself without them."""
        if self._program is None:
            self._program = self._of(self, [None] * len(self._linear.residuals))
        return list(self._linear.residuals.values()), self._program

    @staticmethod
    def _of(program: "VJP", residuals: Sequence) -> "VJP":
        linear = program._linear._replace(residuals=dict(zip(program._linear.residuals, residuals)))
        out = VJP(linear, program.in_tree, program.out_tree, program._info, program._reduce_axes)
        out._program = program
        return out

    @boundary
    def __call__(self, cotangent):
        with reducing(self._reduce_axes):
            return self.in_tree.unflatten(_gradients(transpose_flat(self._linear, self._cotangents(cotangent)), self._linear.in_types))

    def _cotangents(self, cotangent) -> list:
        """A cotangent given by the user, flat."""
        leaves, tree = _flatten(cotangent)
        if tree != self.out_tree:
            raise ValueError(f"the vjp of {self._info.name} takes a cotangent of the structure of its result, {self.out_tree}, got {tree}")
        return [_as_tangent(ct, type_, lambda i=i: f"the cotangent of result {i} of {self._info.name}")
                for i, (ct, type_) in enumerate(zip(leaves, self._linear.out_types))]

    def with_refs(self, *wanted) -> Callable:
        """The same function, saying for each argument what becomes of its cotangent.

        wanted: for each argument, or in a structure that is a prefix of it, a ref, to which the cotangent is added in place, and GradRef()
        stands in the result; GradValue(), which returns it; or DontWant(), which spares computing it, and DidntWant() stands in the result.
        For an argument that is a ref, the ref given holds the cotangent of its value: at the end of the function before the call, and
        at the beginning of it after the call.
        Raises ValueError where structures, shapes or dtypes don't fit.
        """
        if len(wanted) != len(self.in_tree.children()):
            raise ValueError(f"with_refs of {self._info.name} takes one entry for each of its {len(self.in_tree.children())} arguments, got {len(wanted)}")
        what = broadcast_prefix(tuple(wanted), self.in_tree, _is_wish, "with_refs")
        linear, info = self._linear, self._info
        for i, (wish, type_) in enumerate(zip(what, linear.in_types)):
            _check_wish(wish, type_, i, info)
        repeated = [wish for i, wish in enumerate(what) if is_ref(wish) and any([wish is other for other in what[:i]])]
        if repeated:
            raise ValueError(f"with_refs of {info.name}: {described(repeated[0])} is given for two arguments, whose gradients would mix; make one for each")

        @boundary
        def backward(cotangent):
            cts, atoms, accumulators = self._cotangents(cotangent), list(linear.outs), []
            for i, (wish, type_) in enumerate(zip(what, linear.in_types)):
                if i in linear.refs and is_ref(wish):
                    accumulators.append(None)
                    atoms.append(linear.refs[i])
                    cts.append(whole(wish))
                else:
                    accumulators.append(InRef(type_.tangent(), wish) if is_ref(wish) else Refused(type_.tangent()) if type(wish) is DontWant else None)
            known = [(a, ct) for a, ct in zip(atoms, cts) if a is not None]
            with reducing(self._reduce_axes):
                found = transpose_flat(linear._replace(outs=[a for a, _ in known]), [ct for _, ct in known], accumulators)
            results = []
            for i, (wish, ct) in enumerate(zip(what, found)):
                if i in linear.refs and is_ref(wish):
                    replace(wish, instantiate(ct))
                results.append(GradRef() if is_ref(wish) else DidntWant() if type(wish) is DontWant else instantiate(ct))
            return self.in_tree.unflatten(results)
        return backward

    def __repr__(self):
        return f"<vjp of {self._info.name}>"


register_pytree_node(VJP, VJP._flattened, VJP._of)


# --- what becomes of a gradient -------------------------------------------------------------------------------------------------

class _Word:
    """A word without contents: all of a class are equal."""
    __slots__ = ()

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def __repr__(self):
        return f"{type(self).__name__}()"


class GradValue(_Word):
    """To `with_refs`: return the gradient."""
    __slots__ = ()


@register_static
class GradRef(_Word):
    """From `with_refs`: the gradient was added to the ref that was given for it."""
    __slots__ = ()


class DontWant(_Word):
    """To `with_refs`: don't compute this gradient."""
    __slots__ = ()


@register_static
class DidntWant(_Word):
    """From `with_refs`: this gradient was not computed."""
    __slots__ = ()


def _is_wish(x) -> bool:
    return x is None or is_ref(x) or isinstance(x, _Word)


def _check_wish(wish, type_, position: int, info: ProgramInfo) -> None:
    """Raise where an entry of `with_refs` doesn't fit the argument."""
    if is_ref(wish):
        wish.check_live()
        have, want = typeof(wish).inner, type_.tangent()
        want = getattr(want, "inner", want)
        if have.shape != want.shape or have.dtype != want.dtype:
            raise ValueError(f"with_refs of {info.name}: {described(wish)} can't hold the gradient of argument {info.path(position)}, of type {want}")
    elif type(wish) not in (GradValue, DontWant):
        raise TypeError(f"with_refs of {info.name}: for argument {info.path(position)} give a ref, GradValue() or DontWant(), not {wish!r:.100}")


class InRef(Carried):
    """An accumulator that is a ref: what is added is added there."""
    __slots__ = ("ref",)
    partial = False

    def __init__(self, aval, ref):
        self.aval, self.value, self.ref = aval, None, ref

    def add(self, cotangent) -> None:
        if cotangent is not None and type(cotangent) is not Zero:
            if state.reduced is not None:
                cotangent = derivatives.reduce_cotangent(self, cotangent)
            addupdate_p.bind(self.ref, cotangent, structure=WHOLE)

    def update(self, change: Callable) -> None:
        replace(self.ref, change(whole(self.ref)))


@boundary
def vjp(fun: Callable, *primals, has_aux: bool = False, reduce_axes: Sequence = ()):
    """(fun(*primals), f_vjp): the value, and the function from a cotangent of it to a tuple of cotangents of the arguments.

    f_vjp computes vᵀ·∂fun(primals), by reverse mode. has_aux: fun returns (value, aux); the result is (value, f_vjp, aux).
    reduce_axes: as for `grad`; they must be in scope where f_vjp is called.
    Raises TypeError for arguments that are no arrays; f_vjp raises for cotangents that don't fit.
    """
    _check_callable(fun, "vjp")
    reduce_axes = axis_names(reduce_axes, "vjp")
    leaves, tree = _flatten(primals)
    info = _info("vjp", fun, tree)
    flat, result = _flat_fun(fun, tree, info, has_aux)
    outs, linear = linearize_flat(flat, leaves, info)
    count = len(outs) - result.get("count", 0)
    linear = linear._replace(outs=linear.outs[:count], out_types=linear.out_types[:count])
    value = result["tree"].unflatten(outs[:count])
    f_vjp = VJP(linear, tree, result["tree"], info, reduce_axes)
    return (value, f_vjp, result["aux_tree"].unflatten(outs[count:])) if has_aux else (value, f_vjp)


def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, reduce_axes: Sequence = ()) -> Callable:
    """The function that returns (fun(*args), gradient in the arguments `argnums`), with `fun` real and scalar.

    argnums: an int, or a tuple of ints for a tuple of gradients; each has the structure of its argument.
    has_aux: fun returns (value, aux), and the result is ((value, aux), gradient).
    holomorphic: fun is complex and holomorphic. allow_int: integer arguments are allowed and get float0 gradients.
    reduce_axes: as for `grad`.
    The gradient in a complex argument x + iy is ∂/∂x - i ∂/∂y, the conjugate of the direction in which fun grows.
    Raises TypeError where the value is no real scalar or an argument has no derivatives.
    """
    _check_callable(fun, "value_and_grad")
    reduce_axes = axis_names(reduce_axes, "value_and_grad")

    @boundary_of(fun)
    def value_and_grad_fun(*args, **kwargs):
        return _value_and_grad("value_and_grad", fun, args, kwargs, argnums, has_aux, holomorphic, allow_int, reduce_axes)
    return value_and_grad_fun


def _value_and_grad(transformation, fun, args, kwargs, argnums, has_aux, holomorphic, allow_int, reduce_axes):
    positions, chosen, of_chosen = _chosen(fun, argnums, args, kwargs, transformation)
    leaves, tree = _flatten(chosen)
    info = _info(transformation, fun, tree, positions)
    _check_differentiable(leaves, info, holomorphic=holomorphic, allow_int=allow_int)
    flat, result = _flat_fun(of_chosen, tree, info, has_aux)
    outs, linear = linearize_flat(flat, leaves, info)
    count = len(outs) - result.get("count", 0)
    _check_scalar(outs[:count], result["tree"], info, holomorphic)
    with reducing(reduce_axes):                          # of the value, the first result; aux has no cotangents
        gradient = _gradients(transpose_flat(linear, [linear.out_types[0].dtype.type(1)]), linear.in_types)
    value = result["tree"].unflatten(outs[:count])
    gradients = tree.unflatten(gradient)
    gradients = gradients[0] if isinstance(argnums, (int, np.integer)) else gradients
    return ((value, result["aux_tree"].unflatten(outs[count:])) if has_aux else value), gradients


def _check_scalar(outs: Sequence, tree: PyTreeDef, info: ProgramInfo, holomorphic: bool) -> None:
    if len(outs) != 1 or tree.num_nodes != 1:
        raise TypeError(f"{info.transformation} takes the derivative of a function with a scalar result; {info.name} returned a value of "
                        f"structure {tree}. If it returns (value, aux), pass has_aux=True.")
    aval = typeof(outs[0])
    if aval.shape != ():
        raise TypeError(f"Gradient only defined for scalar-output functions. {info.name} returned {aval}. "
                        f"Sum or average it first; for all derivatives of an array-valued function use jacrev or jacfwd.")
    if holomorphic:
        if not dtypes.is_complex(aval.dtype):
            raise TypeError(f"{info.transformation}(holomorphic=True): {info.name} returned {aval}; it must be complex")
    elif not dtypes.is_floating(aval.dtype):
        raise TypeError(f"{info.transformation} requires real-valued outputs (a floating-point scalar); {info.name} returned {aval}."
                        + (" For holomorphic functions pass holomorphic=True; otherwise use vjp." if dtypes.is_complex(aval.dtype) else ""))


def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
         allow_int: bool = False, reduce_axes: Sequence = ()) -> Callable:
    """The gradient of `fun`, a function with a real scalar result, in the arguments `argnums`.

    As value_and_grad, without the value; with has_aux the result is (gradient, aux).
    reduce_axes: named axes (of vmap, pmap, shard_map) around the call. The gradient in an argument that is the same along such an axis is that
        of the sum of fun over the axis, itself the same along it; no gradient of one index is ever computed along an axis of vmap, and along
        axes of devices there is one communication, at the end. In an argument that differs along the axis, and along all other axes, it is
        the gradient of each index. Names that are not in scope mean nothing.
    """
    _check_callable(fun, "grad")
    reduce_axes = axis_names(reduce_axes, "grad")

    @boundary_of(fun)
    def grad_fun(*args, **kwargs):
        value, gradient = _value_and_grad("grad", fun, args, kwargs, argnums, has_aux, holomorphic, allow_int, reduce_axes)
        return (gradient, value[1]) if has_aux else gradient
    return grad_fun


@boundary
def linear_transpose(fun: Callable, *primals, reduce_axes: Sequence = ()) -> Callable:
    """The transpose of a function that is linear in its arguments: from a cotangent of the result to a tuple of cotangents.

    primals give the types only (arrays or ShapeDtypeStructs). Raises NotImplementedError where fun is not linear.
    reduce_axes: as for `grad`.
    """
    _check_callable(fun, "linear_transpose")
    reduce_axes = axis_names(reduce_axes, "linear_transpose")
    leaves, tree = _flatten(primals)
    info = _info("linear_transpose", fun, tree)
    refuse_refs("linear_transpose", leaves)
    types = [typeof(leaf) for leaf in leaves]
    for i, t in enumerate(types):
        if not dtypes.is_inexact(t.dtype):
            raise TypeError(f"linear_transpose: argument {info.path(i)} of {info.name} is {t}; linear functions take floating-point arguments")
    flat, result = _flat_fun(fun, tree, info)
    trace = LinearTrace(info, state.trace)
    try:
        inputs = [trace.new_input(t) for t in types]
        with current_trace(trace):
            outs = flat(*inputs)
        atoms = [trace.atom(out) for out in outs]
    finally:
        trace.end()
    linear = Linear(trace.eqns, dict(zip(trace.constvars, trace.consts)), trace.invars, atoms, types, [a.aval for a in atoms])
    f_transpose = VJP(linear, tree, result["tree"], info, reduce_axes)
    return f_transpose


# --- Jacobians ---------------------------------------------------------------------------------------------------------------------

def _standard_basis(leaves: Sequence):
    """For each flat input one array of unit vectors: the rows of the identity, split and shaped as the inputs."""
    sizes = [typeof(leaf).size for leaf in leaves]
    total, start, out = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes):
        aval = typeof(leaf)
        rows = np.zeros((total, size), aval.dtype)
        rows[np.arange(start, start + size), np.arange(size)] = 1
        out.append(rows.reshape(total, *aval.shape))
        start += size
    return out


def _split_rows(array, leaves: Sequence, axis: int) -> list:
    """Split a dimension that runs over all inputs' elements, and shape each part as its input."""
    from mini_jax.lax.slicing import slice_in_dim
    shape, start, out = typeof(array).shape, 0, []
    for leaf in leaves:
        aval = typeof(leaf)
        part = slice_in_dim(array, start, start + aval.size, axis=axis)
        out.append(shapes.reshape(part, (*shape[:axis], *aval.shape, *shape[axis + 1:])))
        start += aval.size
    return out


def _chosen(fun, argnums, args, kwargs, transformation):
    """(the positions of the arguments chosen by argnums, these arguments, fun as a function of them)"""
    positions = _positions(argnums, len(args), fun, transformation)
    chosen = tuple([args[p] for p in positions])

    def of_chosen(*values):
        full = list(args)
        for p, v in zip(positions, values):
            full[p] = v
        return fun(*full, **kwargs)
    return positions, chosen, of_chosen


def jacfwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """The Jacobian of `fun` in the arguments `argnums`, column by column, by forward mode (good for few inputs).

    The result has the structure of fun's result, with at each leaf the structure of the argument, and arrays of shape
    result.shape + argument.shape.
    """
    _check_callable(fun, "jacfwd")

    @boundary_of(fun)
    def jacfun(*args, **kwargs):
        positions, chosen, of_chosen = _chosen(fun, argnums, args, kwargs, "jacfwd")
        leaves, tree = _flatten(chosen)
        info = _info("jacfwd", fun, tree, positions)
        _check_differentiable(leaves, info, holomorphic=holomorphic, reverse=False)
        flat, result = _flat_fun(of_chosen, tree, info, has_aux)

        def push(*tangents):
            outs, outs_dot = jvp_flat(flat, leaves, tangents, info)
            count = len(outs) - result.get("count", 0)
            return [instantiate(t) for t in outs_dot[:count]], outs[:count], outs[count:]
        columns, outs, aux = vmap(push, out_axes=(-1, None, None))(*_standard_basis(leaves))
        for out in outs:
            if holomorphic or not dtypes.is_complex(typeof(out).dtype):          # columns of complex numbers are what they are; rows are not
                _check_output(typeof(out), info, holomorphic)
        jacobian = result["tree"].unflatten([_argument_tree(tree, argnums, _split_rows(column, leaves, typeof(column).ndim - 1)) for column in columns])
        return (jacobian, result["aux_tree"].unflatten(aux)) if has_aux else jacobian
    return jacfun


def jacrev(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False, reduce_axes: Sequence = ()) -> Callable:
    """The Jacobian of `fun` in the arguments `argnums`, row by row, by reverse mode (good for few outputs). As jacfwd.

    reduce_axes: as for `grad`.
    """
    _check_callable(fun, "jacrev")
    reduce_axes = axis_names(reduce_axes, "jacrev")

    @boundary_of(fun)
    def jacfun(*args, **kwargs):
        positions, chosen, of_chosen = _chosen(fun, argnums, args, kwargs, "jacrev")
        leaves, tree = _flatten(chosen)
        info = _info("jacrev", fun, tree, positions)
        _check_differentiable(leaves, info, holomorphic=holomorphic, allow_int=allow_int)
        flat, result = _flat_fun(of_chosen, tree, info, has_aux)
        outs, linear = linearize_flat(flat, leaves, info)
        count = len(outs) - result.get("count", 0)
        linear = linear._replace(outs=linear.outs[:count], out_types=linear.out_types[:count])
        for out in outs[:count]:
            _check_output(typeof(out), info, holomorphic)
        with reducing(reduce_axes):
            rows = vmap(lambda *cts: [instantiate(ct) for ct in transpose_flat(linear, cts)])(*_standard_basis(outs[:count]))
        by_input = [_split_rows(row, outs[:count], 0) for row in rows]
        jacobian = result["tree"].unflatten([_argument_tree(tree, argnums, [parts[j] for parts in by_input]) for j in range(count)])
        return (jacobian, result["aux_tree"].unflatten(outs[count:])) if has_aux else jacobian
    return jacfun


def _argument_tree(tree: PyTreeDef, argnums, leaves: list):
    chosen = tree.unflatten(leaves)
    return chosen[0] if isinstance(argnums, (int, np.integer)) else chosen


def _check_output(aval, info: ProgramInfo, holomorphic: bool) -> None:
    if holomorphic and not dtypes.is_complex(aval.dtype):
        raise TypeError(f"{info.transformation}(holomorphic=True): {info.name} returned {aval}; it must be complex")
    if not holomorphic and not dtypes.is_floating(aval.dtype):
        raise TypeError(f"{info.transformation}: {info.name} returned {aval}; its result must be real floating-point numbers"
                        + (" (for holomorphic functions pass holomorphic=True)" if dtypes.is_complex(aval.dtype) else ""))


jacobian = jacrev


def hessian(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """The Hessian of `fun`, forward over reverse: jacfwd(jacrev(fun))."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
