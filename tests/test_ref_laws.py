"""Laws of refs, on random programs (ref_programs.py): with refs they compute what plain arrays do, under every transformation."""
import functools

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.ad import DidntWant, DontWant, GradRef, GradValue
from mini_jax.core.check import check_jaxpr
from mini_jax.core.program import subprograms
from mini_jax.core.refs import discharged, uses_refs
from mini_jax.core.staging import eval_jaxpr
from tests.ref_programs import START, holds, loss, of_arrays, of_refs, on_arrays, program, with_refs

F32 = np.float32
X, V = F32([0.4, 0.8, -0.3]), F32([0.3, -1.0, 0.5])
XS = np.stack([X, X * 0.5, -X])
SEEDS = [0, 3, 24, 39, 46, 49]


def agree(have, want, tol: float = 2e-4) -> None:
    assert jax.tree.structure(have) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(have), jax.tree.leaves(want)):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=tol, rtol=tol)


def first(tree):
    """Of a batch the first example."""
    return jax.tree.map(lambda x: x[0], tree)


def at_top_level(values=START, x=X):
    """The refs with which a program begins, made here."""
    return {k: jax.new_ref(v * x[1]) for k, v in values.items()}


def values(refs):
    return {k: r[...] for k, r in refs.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_with_refs_compute_what_plain_arrays_do(seed):
    body = program(seed)
    f, g = of_refs(body), of_arrays(body)
    batch = jax.jit(jax.vmap(g))(XS)
    single = first(batch)

    @jax.jit
    def all_ways(x, xs):
        return jax.jit(f)(x), jax.checkpoint(f)(x), jax.vmap(f)(xs), lax.scan(lambda c, x: (c, f(x)), 0, xs)[1]
    for have, want in zip(all_ways(X, XS), (single, single, batch, batch)):
        agree(have, want)

    # refs from outside: passed, captured, mapped
    passed, captured = at_top_level(), at_top_level()
    jax.jit(lambda refs, x: with_refs(body, refs, x))(passed, X)
    jax.jit(lambda x: with_refs(body, captured, x))(X)
    agree(values(passed), single[1])
    agree(values(captured), single[1])
    mapped = {k: jax.new_ref(jnp.stack([v * x[1] for x in XS], axis=min(np.ndim(v), 1))) for k, v in START.items()}
    axes = {k: min(np.ndim(v), 1) for k, v in START.items()}
    jax.jit(jax.vmap(lambda refs, x: with_refs(body, refs, x), in_axes=(axes, 0)))(mapped, XS)
    agree({k: jnp.moveaxis(v, axes[k], 0) for k, v in values(mapped).items()}, batch[1])

    # the discharged program
    recorded = jax.make_jaxpr(lambda refs, x: with_refs(body, refs, x))(at_top_level(), X)
    check_jaxpr(recorded)
    pure = discharged(recorded.jaxpr.hoisted())
    check_jaxpr(pure.jaxpr)
    assert not uses_refs(pure.jaxpr) and not pure.jaxpr.effects
    start = [jnp.asarray(START[k] * X[1], F32) for k in sorted(START)]
    outs = jax.jit(lambda *args: eval_jaxpr(pure.jaxpr, (), *args))(*recorded.consts, *start, X)
    state = dict(zip(sorted(START), start)) | {sorted(START)[i - len(recorded.consts)]: out for i, out in zip(pure.written, outs)}
    agree(state, single[1])


@pytest.mark.parametrize("seed", [s for s in SEEDS if not holds(program(s), "while")])
def test_derivatives_of_programs_with_refs(seed):
    body = program(seed)
    f, g = [lambda x, fun=fun: fun(x)[0] for fun in (of_refs(body), of_arrays(body))]
    twice = not holds(program(seed), "custom")                         # a custom_vjp rule has no derivative in forward mode

    def second(f):
        return (jax.jvp(jax.grad(f), (X,), (V,)), jax.hessian(f)(X) if seed == 46 else 0) if twice else ()
    batch, second_order = jax.jit(lambda xs: (jax.vmap(jax.value_and_grad(g))(xs), second(g)))(XS)
    gradient = batch[1][0]

    @jax.jit
    def all_ways(x, xs):
        return (second(f), jax.vmap(jax.value_and_grad(f))(xs), jax.grad(jax.checkpoint(jax.jit(f)))(x), jax.grad(lambda xs: jnp.sum(jax.vmap(f)(xs)))(xs),
                lax.scan(lambda c, x: (c, jax.grad(f)(x)), 0, xs)[1])
    for have, want in zip(all_ways(X, XS), (second_order, batch, gradient, batch[1], batch[1])):
        agree(have, want)

    step = 1e-2                                                        # finite differences, of the function on refs
    near = jax.jit(jax.vmap(f))(np.concatenate([X + step * np.eye(3, dtype=F32), X - step * np.eye(3, dtype=F32)]))
    np.testing.assert_allclose((near[:3] - near[3:]) / (2 * step), gradient, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("seed", [s for s in SEEDS if not holds(program(s), "while")])
def test_derivatives_with_respect_to_refs(seed):
    body = program(seed)

    def of_refs(refs, x):
        with_refs(body, refs, x)
        return loss(values(refs))

    def plain(start, x):
        end = on_arrays(body, start, x)
        return loss(end), end

    @jax.jit
    def expected(start):
        out, vjp, end = jax.vjp(plain, start, X, has_aux=True)
        return out, vjp(jnp.float32(1)), end
    start = {k: jnp.asarray(v * X[1], F32) for k, v in START.items()}
    want, (want_refs, want_x), end = expected(start)

    @jax.jit
    def actual(refs, grads):
        out, vjp = jax.vjp(of_refs, refs, X)
        told = vjp.with_refs(grads, GradValue())(jnp.float32(1))
        return out, told[1], vjp(jnp.float32(1))
    refs, grads = at_top_level(), {k: jax.new_ref(jnp.zeros_like(v)) for k, v in start.items()}
    out, of_x, (plain_refs, plain_x) = actual(refs, grads)
    agree((out, values(refs)), (want, end))
    agree((of_x, values(grads), plain_refs, plain_x), (want_x, want_refs, want_refs, want_x))


# --- with_refs ----------------------------------------------------------------------------------------------------------------------------

def _f(a, b, c):
    return jnp.sum(jnp.sin(a) * b["k"]) + jnp.sum(jnp.tanh(c[1:] * a[0]))


ARGS = (jnp.arange(3.), {"k": jnp.ones(3)}, jnp.linspace(-1, 1, 5))


def _equations(jaxpr) -> int:
    return sum([1 + sum([_equations(p) for _, p in subprograms(eqn.params)]) for eqn in jaxpr.eqns])


def test_with_refs_accumulates_what_plain_vjp_returns():
    out, vjp = jax.vjp(_f, *ARGS)
    want = vjp(jnp.float32(2))
    refs = jax.tree.map(lambda x: jax.new_ref(jnp.ones_like(x)), ARGS)
    told = vjp.with_refs(*refs)(jnp.float32(2))
    assert told == (GradRef(), {"k": GradRef()}, GradRef())
    agree(jax.tree.map(lambda r: r[...] - 1, refs), want)
    vjp.with_refs(*refs)(jnp.float32(2))                                # once more: added
    agree(jax.tree.map(lambda r: r[...] - 1, refs), jax.tree.map(lambda g: 2 * g, want))
    told = vjp.with_refs(DontWant(), {"k": refs[0]}, GradValue())(jnp.float32(2))
    assert told[:2] == (DidntWant(), {"k": GradRef()})
    agree(told[2], want[2])
    for wrong in (lambda: vjp.with_refs(*refs[:2]), lambda: vjp.with_refs(refs[0], {"k": refs[0]}, GradValue()),
                  lambda: vjp.with_refs(refs[2], GradValue(), GradValue())):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError):
        vjp.with_refs(None, GradValue(), GradValue())


@pytest.mark.parametrize("around", ["nothing", "jit", "checkpoint", "scan"])
def test_dont_want_skips_the_work(around):
    def layers(w, x):
        return jnp.sum(jnp.tanh(x @ w) @ w)
    wrapped = {"nothing": lambda f: f, "jit": jax.jit, "checkpoint": jax.checkpoint,
               "scan": lambda f: lambda w, x: lax.scan(lambda c, _: (c + f(w, x), None), 0., None, length=2)[0]}[around](layers)
    w, x = jnp.ones((3, 3)), jnp.ones((2, 3))

    def program_of(*wishes):
        return jax.make_jaxpr(lambda w, x: jax.vjp(wrapped, w, x)[1].with_refs(*wishes)(jnp.float32(1)))(w, x)
    dots = lambda jaxpr: sum([(eqn.primitive.name == "dot_general") + sum([dots(p) for _, p in subprograms(eqn.params)]) for eqn in jaxpr.eqns])
    both, only_w, only_x = [program_of(*wishes).jaxpr for wishes in ((GradValue(), GradValue()), (GradValue(), DontWant()), (DontWant(), GradValue()))]
    assert _equations(only_w) < _equations(both) and _equations(only_x) < _equations(both)
    assert dots(only_w) == dots(both) - 1 and dots(only_x) == dots(both) - 2


def test_gradients_are_accumulated_in_place_over_microbatches():
    w, xs = jnp.linspace(-1, 1, 6).reshape(3, 2), jnp.linspace(0, 1, 12).reshape(4, 3)

    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w))
    want = jax.grad(lambda w: sum([loss(w, x) for x in xs]))(w)

    def accumulated(w, xs):
        grad = jax.new_ref(jnp.zeros_like(w))

        def body(_, x):
            value, vjp = jax.vjp(loss, w, x)
            vjp.with_refs(grad, DontWant())(jnp.float32(1))
            return _, value
        lax.scan(body, None, xs)
        return jax.freeze(grad)
    agree(jax.jit(accumulated)(w, xs), want, 1e-5)
    assert "[...] += " in str(jax.make_jaxpr(accumulated)(w, xs))
    grad = jax.new_ref(jnp.zeros_like(w))                              # a ref from outside, one call for each microbatch

    @jax.jit
    def step(w, x):
        jax.vjp(loss, w, x)[1].with_refs(grad, DontWant())(jnp.float32(1))
    place = None
    for x in xs:
        step(w, x)
        assert place in (None, grad.unsafe_buffer_pointer())
        place = grad.unsafe_buffer_pointer()
    agree(grad[...], want, 1e-5)


def _full_size_operations(jaxpr, shape) -> list:
    """The operations in bodies of scans, but updates in place, whose result has this shape."""
    out = []
    for eqn in jaxpr.eqns:
        for _, body in subprograms(eqn.params):
            if eqn.primitive.name == "scan":
                out += [e.primitive.name for e in body.eqns if any([t.shape == shape for t in e.out_types])]
            out += _full_size_operations(body, shape)
    return [name for name in out if name not in ("dynamic_update_slice", "scatter_add", "scatter", "jit", "scan")]


def test_sparse_cotangents_add_an_element_in_place():
    table, ids = jnp.linspace(-1, 1, 1600).reshape(400, 4), jnp.array([3, 7, 3, 399, 0])

    def loss(table):
        def body(c, i):
            return jnp.tanh(c + table[i]), jnp.sum(table[0] * c)
        c, ys = lax.scan(body, jnp.zeros(4), ids)
        return jnp.sum(c) + jnp.sum(ys)

    def unrolled(table):
        c, total = jnp.zeros(4), 0.
        for i in range(5):
            total += jnp.sum(table[0] * c)
            c = jnp.tanh(c + table[ids[i]])
        return total + jnp.sum(c)
    agree(jax.jit(jax.grad(loss))(table), jax.jit(jax.grad(unrolled))(table), 1e-5)
    assert _full_size_operations(jax.make_jaxpr(jax.grad(loss))(table).jaxpr, table.shape) == []

    grad = jax.new_ref(jnp.zeros_like(table))
    into = lambda t: jax.vjp(lambda t: jnp.sum(jnp.sin(t[5])) + t[7, 1] + jnp.sum(t[2:4]), t)[1].with_refs(grad)(jnp.float32(1))
    jax.jit(into)(table)
    want = np.zeros((400, 4), F32)
    want[5], want[7, 1], want[2:4] = np.cos(table[5]), 1, 1
    agree(grad[...], want, 1e-6)
    text = str(jax.make_jaxpr(into)(table))
    assert "add_any" not in text or "f32[400,4] = add_any" not in text


# --- plumbing -----------------------------------------------------------------------------------------------------------------------------

def test_values_are_plumbed_out_of_forward_and_backward_passes():
    seen, grads = jax.new_ref(0.), jax.new_ref(0.)

    @jax.custom_vjp
    def log_grad(x, ref):
        return x
    log_grad.defvjp(lambda x, ref: (x, ref), lambda ref, g: (ref.__setitem__(..., g), (g, None))[1])

    def f(x):
        y = jnp.sin(x)
        seen[...] = lax.stop_gradient(y)
        return log_grad(y, grads) ** 2
    for transform in (jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f)), lambda f: lambda x: jax.vjp(f, x)[1](jnp.float32(1))[0]):
        for x in (1., 2.):
            got = transform(f)(x)
            agree((got, seen[...], grads[...]), (2 * np.sin(x) * np.cos(x), np.sin(x), 2 * np.sin(x)), 1e-5)
            seen[...] = grads[...] = 0.

    each = jax.new_ref(jnp.zeros(3))                                   # one for each example
    got = jax.vmap(lambda x, r: jax.grad(lambda x: log_grad(jnp.sin(x), r) ** 2)(x))(jnp.arange(3.), each)
    agree((got, each[...]), (np.sin(2 * np.arange(3.)), 2 * np.sin(np.arange(3.))), 1e-5)
    inside = jax.jit(lambda x: (lambda r: (jax.grad(lambda x: log_grad(x * x, r) * 3.)(x), jax.freeze(r)))(jax.new_ref(0.)))
    agree(inside(2.), (12., 3.))
    agree(jax.grad(lambda x: x * seen[...] + 1)(1.), seen[...])         # one that is only read is a constant


def test_linear_functions_of_refs_transpose():
    def shifted(x):
        a = jax.new_ref(jnp.zeros_like(x))
        a[...] = x * 2
        a[0] += x[1]
        a[1:] *= 3.
        return a[...]
    want = np.array([[2, 1, 0], [0, 6, 0], [0, 0, 6.]])
    basis = jnp.eye(3)
    transposes = [jnp.stack([jax.linear_transpose(f, jnp.ones(3))(e)[0] for e in basis]) for f in (shifted, jax.jit(shifted))]
    forward = [jax.vmap(jax.linearize(f, jnp.ones(3))[1])(basis).T for f in (shifted, jax.jit(shifted), jax.checkpoint(shifted))]
    jacobians = [j(f)(jnp.ones(3)) for j in (jax.jacfwd, jax.jacrev) for f in (shifted, jax.jit(shifted))]
    for have in (*transposes, *forward, *jacobians):
        agree(have, want)


@pytest.mark.parametrize("policy", ["everything_saveable", "nothing_saveable", "dots_saveable"])
def test_checkpoint_policies_and_refs(policy):
    def f(w):
        a = jax.new_ref(w)
        for _ in range(2):
            a[...] = jnp.tanh(a[...] @ w)
        a[0] += a[1] * 2
        return jnp.sum(a[...] ** 2)
    w = jnp.linspace(-1, 1, 9).reshape(3, 3)
    wrapped = jax.checkpoint(f, policy=getattr(jax.checkpoint_policies, policy))
    agree(jax.jit(jax.grad(wrapped))(w), jax.jit(jax.grad(f))(w), 1e-5)


def test_custom_rules_may_use_refs():
    @jax.custom_jvp
    def square(x):
        a = jax.new_ref(x)
        a[...] *= x
        return a[...]

    @square.defjvp
    def _(primals, tangents):
        a, b = jax.new_ref(primals[0]), jax.new_ref(tangents[0])
        a[...] *= primals[0]
        b[...] *= 2 * primals[0]
        return a[...], b[...]
    for f in (square, jax.jit(square)):
        agree((jax.grad(f)(3.), jax.grad(jax.grad(f))(3.), jax.vmap(jax.grad(f))(jnp.arange(3.)), jax.hessian(f)(2.)), (6., 2., 2 * np.arange(3.), 2.))


def test_named_axes():
    def f(x, r):
        a = jax.new_ref(jnp.zeros(()))

        def body(c, y):
            a[...] += y * lax.axis_index("i")
            r[...] += lax.psum(y, "i")
            return c + 1, a[...]
        return lax.scan(body, 0, x)[1]
    xs = jnp.arange(6.).reshape(2, 3)
    want = np.stack([np.zeros(3), np.cumsum(xs[1])])
    for mapped in (jax.vmap(f, axis_name="i"), jax.jit(jax.vmap(f, axis_name="i")), jax.vmap(jax.jit(f), axis_name="i"), jax.pmap(f, axis_name="i")):
        r = jax.new_ref(jnp.zeros(2))
        agree((mapped(xs, r), r[...]), (want, F32([15, 15])))
    of_x = jax.vmap(jax.grad(lambda x: jnp.sum(f(x, jax.new_ref(0.)))), axis_name="i")(xs)
    agree(of_x - jax.vmap(jax.grad(lambda x: jnp.sum(jnp.cumsum(x)) * lax.axis_index("i")), axis_name="i")(xs), np.zeros((2, 3)))


def test_foreach_with_arbitrary_access():
    def fib(n):
        r = jax.new_ref(jnp.zeros(n, jnp.int32).at[1].set(1))

        def body(i, _):
            r[i] = r[i - 1] + r[i - 2]
        lax.fori_loop(2, n, body, None)
        return jax.freeze(r)
    assert list(jax.jit(functools.partial(fib, 10))()) == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]

    def weighted(x):                                                   # x[i] also counts for all that come after it, by halves
        r = jax.new_ref(x)
        lax.fori_loop(1, 6, lambda i, _: r.__setitem__(i, r[i] + 0.5 * r[i - 1]), None)
        return jnp.sum(jax.freeze(r))
    agree(jax.grad(weighted)(jnp.ones(6)), 2 - 0.5 ** np.arange(5, -1, -1.), 1e-6)


# --- control flow and outside refs ------------------------------------------------------------------------------------------------------------

def test_writes_happen_once_under_checkpoint():
    for transform in (lambda f: jax.grad(f), lambda f: jax.jit(jax.grad(jax.checkpoint(f))), lambda f: jax.grad(jax.jit(jax.checkpoint(jax.checkpoint(f)))),
                      lambda f: jax.grad(lambda x: lax.scan(jax.checkpoint(lambda c, _: (c + f(x), None)), 0., None, length=1)[0])):
        r = jax.new_ref(0.)

        def f(x):
            y = jnp.sin(x)
            r[...] += lax.stop_gradient(y)
            return y * y
        agree((transform(f)(1.), r[...]), (np.sin(2.), np.sin(1.)))


def test_a_batched_choice_or_loop_writes_for_its_own_examples_only():
    def f(n, r):
        lax.while_loop(lambda i: i < n, lambda i: (r.__setitem__(..., r[...] + i + 1.), i + 1)[1], 0)
        lax.switch(n, [lambda: None, lambda: r.__setitem__(..., r[...] * 10), lambda: jax.ref.addupdate(r, ..., 100.)])
        lax.cond(n > 1, lambda: r.__setitem__(..., -r[...]), lambda: None)
    for mapped in (jax.vmap(f), jax.jit(jax.vmap(f)), jax.vmap(jax.jit(jax.checkpoint(f))), jax.pmap(f)):
        r = jax.new_ref(jnp.zeros(4))
        mapped(jnp.arange(4), r)
        agree(r[...], F32([0, 10, -103, -106]))


def test_batched_loops_may_read_what_all_examples_share():
    r, seen = jax.new_ref(3), []

    def f(x):
        def body(c):
            a = jax.new_ref(c)
            a[...] += r[...]
            jax.debug.callback(lambda v: seen.append(int(v)), a[...])
            return jax.freeze(a)
        return lax.while_loop(lambda c: c < x * r[...], body, 0)
    agree(jax.jit(jax.vmap(f))(jnp.arange(3)), np.array([0, 3, 6]))
    jax.effects_barrier()
    assert sorted(seen) == [3, 3, 6]
    agree(jax.vmap(lambda x: lax.cond(x > 1, lambda: x * r[...], lambda: -r[...]))(jnp.arange(4)), np.array([-3, -3, 6, 9]))


def test_refs_made_in_the_body_of_a_scan():
    def on_refs(xs):
        def body(c, x):
            a, b = jax.new_ref(x), jax.new_ref(c)

            def inner(i, _):
                a[...] *= b[...]
                b[...] += 1.
            lax.fori_loop(0, 2, inner, None)
            return jax.freeze(b), jax.freeze(a)
        return lax.scan(body, 1., xs)

    def plain(xs):
        c, ys = 1., []
        for x in xs:
            ys.append(x * c * (c + 1))
            c = c + 2
        return c, jnp.stack(ys)
    for transform in (lambda f: f(X), lambda f: jax.jacrev(f)(X), lambda f: jax.jacfwd(f)(X), lambda f: jax.vmap(f)(XS)):
        agree(jax.jit(lambda: transform(on_refs))(), jax.jit(lambda: transform(plain))())


def test_values_out_of_a_backward_pass_through_a_scan():
    @jax.custom_vjp
    def log(x, ref):
        return x
    log.defvjp(lambda x, ref: (x, ref), lambda ref, g: (ref.__setitem__(..., ref[...] + g), (g, None))[1])

    def plain(xs, es):
        c = 1.
        for x, e in zip(xs, es):
            c = jnp.sin(c * x) + e
        return c
    of_x, of_e = jax.jit(jax.grad(plain, (0, 1)))(X, jnp.zeros(3))
    f = lambda xs, r: lax.scan(lambda c, x: (log(jnp.sin(c * x), r), None), 1., xs)[0]
    for transform in (jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(jax.checkpoint(f)))):
        r = jax.new_ref(0.)
        agree((transform(lambda xs: f(xs, r))(X), r[...]), (of_x, jnp.sum(of_e)))
    r = jax.new_ref(jnp.zeros(2))
    grads = jax.jit(lambda xs: jax.vmap(lambda xs, r: jax.grad(lambda xs: f(xs, r))(xs))(xs, r))(np.stack([X, X]))
    agree((grads, r[...]), (np.stack([of_x, of_x]), np.full(2, jnp.sum(of_e))))


def test_what_looks_like_an_addition_but_is_none():
    def f(r):
        v = r[0] + 1.
        r[1] = 5.                                                      # another place is written in between
        r[0] = v
        r[1] = r[1] + r[1]
        r[2] = r[2] + r[2] * 2
        q = r[0] + 1.
        r[0] = q
        r[0] = q
        z = r[1] + 2.
        if isinstance(r, np.ndarray):
            r[1] = 100.
        else:
            jax.jit(lambda a: a.__setitem__(1, 100.))(r)
        r[1] = z
        s = r[2] + 3.
        r[2] = s
        k = r[...] + np.ones(3, F32)
        r[...] = k
        return s, k
    a = F32([1, 2, 3])
    b, r, q = a.copy(), jax.new_ref(a), jax.new_ref(a)
    want = f(b)
    for have, ref in ((jax.jit(f)(r), r), (f(q), q)):
        agree((*have, ref[...]), (*want, b))
