"""`jax.example_libraries.optimizers`: optimizers as triples of functions, and schedules of step sizes.

An Optimizer is (init_fn, update_fn, params_fn): init_fn(params) -> state, update_fn(step, grads, state) -> state, params_fn(state) -> params. It is
written for one array and made to take trees by the decorator `optimizer`. step_size is a number, or a function of the step.

    >>> init, update, params_of = adam(1e-3)
    >>> state = init(params)
    >>> state = update(i, grad(loss)(params_of(state)), state)
"""
from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple, Sequence

import mini_jax.numpy as jnp
from mini_jax.core.pytree import register_pytree_node, tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten

__all__ = ["JoinPoint", "Optimizer", "OptimizerState", "adagrad", "adam", "adamax", "clip_grads", "constant", "exponential_decay", "inverse_time_decay",
           "l2_norm", "make_schedule", "momentum", "nesterov", "optimizer", "pack_optimizer_state", "piecewise_constant", "polynomial_decay", "rmsprop",
           "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state"]


class OptimizerState(NamedTuple):
    """The state of an optimizer. packed_state: the leaves of the state of each array; tree_def: of the params; subtree_defs: of each array's state."""
    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(OptimizerState, lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
                     lambda defs, packed: OptimizerState(packed[0], *defs))


class Optimizer(NamedTuple):
    """init_fn(params) -> state, update_fn(step, grads, state) -> state, params_fn(state) -> params."""
    init_fn: Callable
    update_fn: Callable
    params_fn: Callable


def optimizer(opt_maker: Callable[..., tuple[Callable, Callable, Callable]]) -> Callable[..., Optimizer]:
    """Decorator: opt_maker(...) -> (init(x), update(step, g, state), get_params(state)), about one array, as an Optimizer of trees of arrays."""
    @functools.wraps(opt_maker)
    def of_trees(*args, **kwargs) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def packed(states, tree) -> OptimizerState:
            leaves, defs = zip(*map(tree_flatten, states)) if states else ((), ())
            return OptimizerState(tuple(map(tuple, leaves)), tree, tuple(defs))

        def states_of(state: OptimizerState) -> list:
            return [tree_unflatten(d, leaves) for d, leaves in zip(state.subtree_defs, state.packed_state)]

        def init_fn(params):
            leaves, tree = tree_flatten(params)
            return packed([init(x) for x in leaves], tree)

        def update_fn(step, grads, state):
            leaves, tree = tree_flatten(grads)
            if tree != state.tree_def:
                raise TypeError(f"the gradients' tree must be that of the params: {tree} is not {state.tree_def}")
            new = packed([update(step, g, s) for g, s in zip(leaves, states_of(state))], tree)
            if new.subtree_defs != state.subtree_defs:
                raise TypeError(f"an optimizer's update must keep the structure of its state: {new.subtree_defs} is not {state.subtree_defs}")
            return new

        def params_fn(state):
            return tree_unflatten(state.tree_def, [get_params(s) for s in states_of(state)])
        return Optimizer(init_fn, update_fn, params_fn)
    return of_trees


# --- optimizers ---------------------------------------------------------------------------------------------------------------------------

_first = lambda state: state[0]


@optimizer
def sgd(step_size):
    """x ← x − a g."""
    step_size = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - step_size(i) * g, lambda x: x


@optimizer
def momentum(step_size, mass: float):
    """v ← mass v + g, x ← x − a v. (Polyak 1964)"""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, v = state
        v = mass * v + g
        return x - step_size(i) * v, v
    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def nesterov(step_size, mass: float):
    """v ← mass v + g, x ← x − a (mass v + g). (Nesterov 1983)"""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, v = state
        v = mass * v + g
        return x - step_size(i) * (mass * v + g), v
    return lambda x: (x, jnp.zeros_like(x)), update, _first


def _inverse_root(x):
    """1 / √x, and 0 of 0."""
    return jnp.where(x > 0, 1 / jnp.sqrt(jnp.where(x > 0, x, 1)), 0)


@optimizer
def adagrad(step_size, momentum: float = 0.9):
    """s ← s + g², m ← momentum m + (1 − momentum) g / √s, x ← x − a m. (Duchi, Hazan & Singer 2011)"""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, s, m = state
        s = s + jnp.square(g)
        m = (1 - momentum) * (g * _inverse_root(s)) + momentum * m
        return x - step_size(i) * m, s, m
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop(step_size, gamma: float = 0.9, eps: float = 1e-8):
    """s ← gamma s + (1 − gamma) g², x ← x − a g / √(s + eps). (Hinton's lecture 6e)"""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, s = state
        s = gamma * s + (1 - gamma) * jnp.square(g)
        return x - step_size(i) * g / jnp.sqrt(s + eps), s
    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop_momentum(step_size, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9):
    """s as in rmsprop, v ← momentum v + a g / √(s + eps), x ← x − v."""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, s, v = state
        s = gamma * s + (1 - gamma) * jnp.square(g)
        v = momentum * v + step_size(i) * g / jnp.sqrt(s + eps)
        return x - v, s, v
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adam(step_size, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8):
    """m ← b1 m + (1 − b1) g, v ← b2 v + (1 − b2) g², x ← x − a m̂ / (√v̂ + eps), with m̂ = m / (1 − b1ⁱ⁺¹), v̂ = v / (1 − b2ⁱ⁺¹).
    (Kingma & Ba 2014, arXiv:1412.6980)"""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, m, v = state
        m, v = (1 - b1) * g + b1 * m, (1 - b2) * jnp.square(g) + b2 * v
        m_hat, v_hat = [s / (1 - jnp.asarray(b, m.dtype) ** (i + 1)) for s, b in ((m, b1), (v, b2))]
        return x - step_size(i) * m_hat / (jnp.sqrt(v_hat) + eps), m, v
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adamax(step_size, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8):
    """m as in adam, u ← max(b2 u, |g|), x ← x − a m̂ / (u + eps)."""
    step_size = make_schedule(step_size)

    def update(i, g, state):
        x, m, u = state
        m, u = (1 - b1) * g + b1 * m, jnp.maximum(b2 * u, jnp.abs(g))
        return x - step_size(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1)) * m / (u + eps), m, u
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def sm3(step_size, momentum: float = 0.9):
    """adagrad with one accumulator for each index of each dimension, the least of whose along the dimensions stands for s.
    (Anil et al. 2019, arXiv:1901.11150)"""
    step_size = make_schedule(step_size)

    def init(x):
        x = jnp.asarray(x)
        return x, jnp.zeros_like(x), [jnp.zeros((n,), x.dtype) for n in x.shape or (1,)]

    def update(i, g, state):
        x, m, accumulators = state
        rows = [v.reshape([-1 if d == axis else 1 for d in range(x.ndim)]) for axis, v in enumerate(accumulators)]
        s = functools.reduce(jnp.minimum, rows) + jnp.square(g)
        m = (1 - momentum) * (g * _inverse_root(s)) + momentum * m
        others = [tuple([d for d in range(x.ndim) if d != axis]) for axis in range(x.ndim)]
        return x - step_size(i) * m, m, [s.max(axes) for axes in others] or [s.reshape(1)]
    return init, update, _first


# --- schedules: step -> step size -----------------------------------------------------------------------------------------------------------

def constant(step_size) -> Callable:
    """Always step_size."""
    return lambda i: step_size


def exponential_decay(step_size, decay_steps, decay_rate) -> Callable:
    """step_size decay_rate^(i / decay_steps)."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size, decay_steps, decay_rate, staircase: bool = False) -> Callable:
    """step_size / (1 + decay_rate i / decay_steps), with the quotient rounded down if staircase."""
    return lambda i: step_size / (1 + decay_rate * (jnp.floor(i / decay_steps) if staircase else i / decay_steps))


def polynomial_decay(step_size, decay_steps, final_step_size, power: float = 1.0) -> Callable:
    """From step_size to final_step_size in decay_steps, by (1 − i / decay_steps)^power."""
    return lambda i: (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power * (step_size - final_step_size) + final_step_size


def piecewise_constant(boundaries: Sequence, values: Sequence) -> Callable:
    """values[k] where k of the boundaries are below i. ValueError unless there is one value more than boundaries."""
    boundaries, values = jnp.asarray(boundaries), jnp.asarray(values)
    if not boundaries.ndim == values.ndim == 1 or len(values) != len(boundaries) + 1:
        raise ValueError(f"piecewise_constant: boundaries and values must be vectors, with one value more, got {boundaries.aval} and {values.aval}")
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule) -> Callable:
    """A function of the step as it is, a number as `constant` of it."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(f"a step size is a number or a function of the step, got {scalar_or_schedule!r:.100} of type {type(scalar_or_schedule).__name__}")


# --- gradients, states ----------------------------------------------------------------------------------------------------------------------

def l2_norm(tree):
    """The root of the sum of the squares of all numbers in a tree of arrays."""
    return jnp.sqrt(sum([jnp.sum(jnp.square(jnp.abs(x))) for x in tree_leaves(tree)]))


def clip_grads(grad_tree, max_norm):
    """The tree, scaled to the norm max_norm where its own is larger."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Marks, in what unpack_optimizer_state returns, where one array's state begins: `.subtree`. It is a leaf."""
    __slots__ = ("subtree",)

    def __init__(self, subtree):
        self.subtree = subtree

    def __iter__(self):
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState):
    """A state as a tree like the params, with a JoinPoint of its state for each array: to be stored."""
    return tree_unflatten(opt_state.tree_def, [JoinPoint(tree_unflatten(d, leaves)) for d, leaves in zip(opt_state.subtree_defs, opt_state.packed_state)])


def pack_optimizer_state(marked_pytree) -> OptimizerState:
    """The state of such a tree. TypeError for leaves that are no JoinPoints."""
    marks, tree = tree_flatten(marked_pytree)
    for mark in marks:
        if not isinstance(mark, JoinPoint):
            raise TypeError(f"pack_optimizer_state: the leaves must be JoinPoints, got {mark!r:.100} of type {type(mark).__name__}")
    leaves, defs = [[tree_leaves(mark.subtree) for mark in marks], [tree_structure(mark.subtree) for mark in marks]]
    return OptimizerState(tuple(map(tuple, leaves)), tree, tuple(defs))
