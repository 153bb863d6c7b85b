"""Every primitive keeps its promises: a walk over the table of all primitives, on the samples of tests/samples.

A primitive that lacks a rule or a sample fails by name. Values are compared with NumPy's, derivatives with finite differences,
batching with a Python loop, transposes with the identity <ct, f(t)> = <transpose(ct), t>.
Values are those of compiled kernels, in every dtype; the programs of derivatives, batches and transposes, dozens of results each, are folded.
"""
import itertools
from pathlib import Path

import numpy as np
import pytest

import mini_jax as jax
from lowering.emit import rules
from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Refused, Zero
from mini_jax.core.primitive import table
from mini_jax.core.trace import typeof
from mini_jax.runtime import xla
from tests.folded import folded
from tests.samples import Sample, collect

# Families whose primitives take programs, devices or effects, and the file that tests them.
ELSEWHERE = {
    "higher_order": "test_transforms.py",
    "callbacks": "test_callbacks.py",
    "collectives": "test_collectives.py",
    "checks": "test_checkify.py",
    "refs": "test_refs.py",
    "shards": "test_sharding.py",
    "foreign": "test_ffi.py",
    "walls": "test_outline.py",
}
BATCH = 4                                   # unlike every size of a sample, so that a confusion of axes shows
STEP = 3e-4                                 # of the differences; their error is of the order STEP⁴ and eps / STEP


SAMPLES = collect()
PRIMITIVES = {name: p for name, p in sorted(table.items()) if p.facts.get("family") not in ELSEWHERE}
CASES = [pytest.param(PRIMITIVES[name], sample, id=f"{name}-{i}" if len(samples) > 1 else name)
         for name, samples in sorted(SAMPLES.items()) if name in PRIMITIVES for i, sample in enumerate(samples)]


def each_case(*conditions):
    """Parametrise a test by the primitives and samples for which the conditions hold."""
    cases = [case for case in CASES if all(holds(*case.values) for holds in conditions)]
    return pytest.mark.parametrize("primitive, sample", cases)


# --- samples at work --------------------------------------------------------------------------------------------------

def dtypes_of(primitive, sample) -> list:
    declared = sample.dtypes if sample.dtypes is not None else primitive.facts.get("dtypes", [dtypes.float32])
    return [d for d in dtypes.all_dtypes if d in declared]


def usual_dtype(primitive, sample):
    """The one dtype to test in where one is enough."""
    declared = dtypes_of(primitive, sample)
    return next((d for d in (dtypes.float32, dtypes.complex64, dtypes.int32, dtypes.uint32) if d in declared), declared[0])


def derivative_dtypes(primitive, sample) -> list:
    declared = dtypes_of(primitive, sample)
    return [wide for wide, narrow in ((dtypes.float64, dtypes.float32), (dtypes.complex128, dtypes.complex64))
            if wide in declared or narrow in declared]


def draw(sample: Sample, dtype, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    return [make(rng, dtype) for make in sample.operands]


def application(primitive, sample: Sample):
    """The function of the operands that the sample is about; it returns a list of results."""
    def apply(*operands):
        out = sample.call(*operands) if sample.call is not None else primitive.bind(*operands, **sample.params)
        return list(out) if isinstance(out, (tuple, list)) else [out]
    return apply


def differentiable(sample: Sample, operands) -> tuple[int, ...]:
    return tuple(i for i, x in enumerate(operands) if dtypes.is_inexact(np.asarray(x).dtype)
                 and (sample.differentiable is None or i in sample.differentiable))


def direction(seed: int, like):
    """A random array of the shape and dtype of `like`, for tangents and cotangents."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 1.5, like.shape) * rng.choice([-1, 1], like.shape)
    return (x + 1j * rng.uniform(-1, 1, like.shape) if dtypes.is_complex(like.dtype) else x).astype(like.dtype)


def same(actual, expected, tolerance: float, what: str) -> None:
    """Equal up to `tolerance`, relative, and absolute below 1. What is no float is equal."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if not dtypes.is_inexact(actual.dtype):
        assert np.array_equal(actual, expected), f"{what}: {actual}\nexpected {expected}"
        return
    wide = np.complex128 if dtypes.is_complex(actual.dtype) else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        good = (a == b) | (np.abs(a - b) <= tolerance * np.maximum(1, np.abs(b))) | (np.isnan(a) & np.isnan(b))
    assert good.all(), f"{what}: {actual[~good]}\nexpected {expected[~good]}\nerror {np.abs(a - b)[~good]}, allowed {tolerance}"


# --- completeness -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", PRIMITIVES)
def test_has_every_rule_and_a_sample(name):
    primitive = PRIMITIVES[name]
    assert primitive.type_rule is not None, f"{name} has no type rule"
    assert primitive.batch is not None, f"{name} has no batching rule"
    assert primitive in rules, f"{name} has no lowering rule in lowering/rules"
    assert name in SAMPLES, f"{name} has no sample in tests/samples"
    declared = {d for sample in SAMPLES[name] for d in dtypes_of(primitive, sample)}
    missing = set(primitive.facts.get("dtypes", ())) - declared
    assert not missing, f"{name} declares {dtypes_of(primitive, Sample((), dtypes=frozenset(missing)))}, which no sample tries"
    if primitive.facts.get("differentiable", True):
        assert primitive.jvp is not None, f"{name} has no jvp rule"


def test_every_sample_is_of_a_primitive_that_there_is():
    assert set(SAMPLES) <= set(table)


@pytest.mark.parametrize("family", ELSEWHERE)
def test_families_tested_elsewhere_are(family):
    exists = any(primitive.facts.get("family") == family for primitive in table.values())
    assert (Path(__file__).parent / ELSEWHERE[family]).exists() or not exists


# --- values -----------------------------------------------------------------------------------------------------------

_WIDE_INTEGERS = {dtypes.int2: np.int8, dtypes.int4: np.int8, dtypes.uint2: np.uint8, dtypes.uint4: np.uint8}


def widened(x):
    """An operand as references take it."""
    x = np.asarray(x)
    if dtypes.is_inexact(x.dtype):
        return x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64)
    return x.astype(_WIDE_INTEGERS.get(x.dtype, x.dtype))


def narrowed(x, dtype):
    """A reference's result in the dtype of the primitive's; wide integers wrap."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if dtypes.is_integer(dtype) and (dtype in _WIDE_INTEGERS or x.dtype == object):
            bits, signed = dtypes.itemsize_bits(dtype), dtypes.is_signed(dtype)
            wrapped = [int(v) & (1 << bits) - 1 for v in x.ravel()]
            wrapped = [v - (1 << bits) if signed and v >> bits - 1 else v for v in wrapped]
            return np.array(wrapped, np.int64 if signed else np.uint64).astype(dtype).reshape(x.shape)
        return x.astype(dtype)


def dtypes_to_try(primitive, sample) -> list:
    """The dtypes that no earlier sample of the primitive tries, and the usual one."""
    earlier = itertools.takewhile(lambda other: other is not sample, SAMPLES[primitive.name])
    tried = {dtype for other in earlier for dtype in dtypes_of(primitive, other)} - {usual_dtype(primitive, sample)}
    return [dtype for dtype in dtypes_of(primitive, sample) if dtype not in tried]


def in_every_dtype(apply, tried, drawn) -> list:
    """The results on the operands of each dtype. A kernel takes jaxlib 0.12 three times as long to make as 0.10; so there the programs of all but the
    usual dtype, which runs eagerly too, are evaluated by XLA (not those of float8_e8m0fnu and float8_e3m4, which it evaluates wrongly)."""
    compiled = [k for k, dtype in enumerate(tried) if xla.jaxlib_version < (0, 11) or dtype in (dtypes.float8_e8m0fnu, dtypes.float8_e3m4)]
    rest = [k for k in range(len(tried)) if k not in compiled]
    results = {}
    for how, chosen in ((jax.jit, compiled), (folded, rest)):
        if chosen:
            results |= zip(chosen, how(lambda drawn: [apply(*operands) for operands in drawn])([drawn[k] for k in chosen]))
    return [results[k] for k in range(len(tried))]


@each_case()
def test_values_are_the_references_in_every_dtype_eager_and_compiled(primitive, sample):
    apply, tried = application(primitive, sample), dtypes_to_try(primitive, sample)
    with jax.enable_x64(True):
        drawn = [draw(sample, dtype) for dtype in tried]
        results = in_every_dtype(apply, tried, drawn)
        usual = draw(sample, usual_dtype(primitive, sample))
        eager = apply(*usual)
        jaxpr = jax.make_jaxpr(apply)(*usual)
    assert any(eqn.primitive is primitive for eqn in jaxpr.eqns), f"the sample does not apply {primitive}: {jaxpr}"
    same_as_compiled = results[tried.index(usual_dtype(primitive, sample))]
    for one, other in zip(eager, same_as_compiled, strict=True):
        assert one.dtype == other.dtype
        same(one, other, 4 * _eps(one.dtype), "eager and compiled")
    if sample.reference is None:
        return
    for dtype, operands, out in zip(tried, drawn, results, strict=True):
        with np.errstate(all="ignore"):
            expected = sample.reference(*map(widened if sample.wide else np.asarray, operands), **sample.params)
        expected = expected if isinstance(expected, (list, tuple)) else [expected]
        for actual, value in zip(out, expected, strict=True):
            actual = np.asarray(actual)
            same(actual, narrowed(value, actual.dtype), sample.tolerance * _eps(actual.dtype), f"{primitive} in {dtype}")


def _eps(dtype) -> float:
    if not dtypes.is_inexact(dtype):
        return 0.0
    eps = float(dtypes.finfo(dtypes.to_real(dtype)).eps)
    return 8 * eps if dtypes.to_real(dtype) == dtypes.float64 else eps


# --- derivatives ------------------------------------------------------------------------------------------------------

def has_derivative(primitive, sample) -> bool:
    return sample.order > 0 and primitive.jvp is not None and bool(derivative_dtypes(primitive, sample))


def differences(four):
    """The derivatives of lists of lists of arrays, from their values at -2, -1, 1 and 2 STEPs, of fourth order."""
    at = [[[np.asarray(y) for y in ys] for ys in values] for values in four]
    return [[(8 * (c - b) - (d - a)) / (12 * STEP) for a, b, c, d in zip(*ys)] for ys in zip(*at)]


def paired(xs, ys):
    """Re Σ xs · ys: what cotangents do with tangents."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        product = jax.lax.mul(x, y)
        product = jax.lax.real(product) if dtypes.is_complex(typeof(product).dtype) else product
        total = total + jax.lax.reduce_sum(product, tuple(range(typeof(product).ndim)))
    return total


@each_case(has_derivative)
def test_derivatives_are_limits_of_differences_forward_reverse_and_of_second_order(primitive, sample):
    apply = application(primitive, sample)
    for dtype in derivative_dtypes(primitive, sample):
        with jax.enable_x64(True):
            operands = draw(sample, dtype)
            where = differentiable(sample, operands)
            if not where:
                continue
            xs = [np.asarray(operands[i]) for i in where]
            vs = [direction(10 + i, x) for i, x in enumerate(xs)]

            def f(xs):
                args = list(operands)
                for i, x in zip(where, xs):
                    args[i] = x
                return [y for y in apply(*args) if dtypes.is_inexact(typeof(y).dtype)]

            def forward(xs):
                return jax.jvp(f, (xs,), (vs,))[1]

            ys = jax.eval_shape(f, xs)
            if not ys:
                continue
            cts = [direction(20 + i, y) for i, y in enumerate(ys)]

            def reverse(xs):
                return jax.vjp(f, xs)[1](cts)[0]

            @jax.jit                                    # traced once for the four points at which it is called
            def first(xs):
                return f(xs), reverse(xs)

            def derivatives(xs):
                found = {"forward": forward(xs), "reverse": [paired(reverse(xs), vs)], "pairing": [paired(cts, forward(xs))]}
                if sample.order > 1:
                    found["forward over reverse"] = jax.jvp(reverse, (xs,), (vs,))[1]
                    found["reverse over reverse"] = jax.vjp(reverse, xs)[1](vs)[0]
                    found["reverse over forward"] = jax.vjp(lambda xs: paired(cts, forward(xs)), xs)[1](1.0)[0]
                return found

            around = [[x + k * STEP * v for x, v in zip(xs, vs)] for k in (-2, -1, 1, 2)]
            found, four = folded(lambda xs, around: (derivatives(xs), [first(xs) for xs in around]))(xs, around)
            slopes, curvatures = differences(four)
            expected = {"forward": slopes, "reverse": found.pop("pairing")}
            for what, actual in found.items():
                for one, other in zip(actual, expected.get(what, curvatures), strict=True):
                    same(one, other, 1e-6, f"{what} in {dtype}")


# --- batching ---------------------------------------------------------------------------------------------------------

def is_batched(primitive, sample) -> bool:
    return sample.batched is None or bool(sample.batched)


@each_case(is_batched)
def test_batching_at_every_axis_of_every_set_of_operands_is_a_loop(primitive, sample):
    apply = application(primitive, sample)
    drawn = [draw(sample, usual_dtype(primitive, sample), seed) for seed in range(BATCH)]
    count, ranks = len(drawn[0]), [np.ndim(x) for x in drawn[0]]
    stacked = [[np.stack([operands[i] for operands in drawn], axis) for axis in range(ranks[i] + 1)] for i in range(count)]
    possible = range(count) if sample.batched is None else sample.batched
    subsets = [s for n in range(1, len(possible) + 1) for s in itertools.combinations(possible, n)]

    def axes_of(subset):
        """The same axis for all operands, and different ones, until each operand had each axis."""
        seen = {}
        for start in range(max(ranks[i] for i in subset) + 1):
            for shift in (0, 1):
                axes = tuple((start + shift * n) % (ranks[i] + 1) for n, i in enumerate(subset))
                seen[axes] = tuple(axes[subset.index(i)] if i in subset else None for i in range(count))
        return list(seen.values())

    cases = [(subset, axes) for subset in subsets for axes in axes_of(subset)]

    def batched(first, stacked):
        return [jax.vmap(apply, in_axes=axes)(*[first[i] if axis is None else stacked[i][axis] for i, axis in enumerate(axes)])
                for _, axes in cases]

    with jax.enable_x64(True):                          # as in the test of values, whose compiled operations serve again
        loops = {subset: [apply(*[operands[i] if i in subset else drawn[0][i] for i in range(count)]) for operands in drawn]
                 for subset in subsets}
        found = folded(batched)(drawn[0], stacked)
    for (subset, axes), results in zip(cases, found, strict=True):
        for k, out in enumerate(results):
            same(out, np.stack([np.asarray(each[k]) for each in loops[subset]]), max(4, sample.tolerance) * _eps(out.dtype), f"batched at {axes}")


# --- transposition ----------------------------------------------------------------------------------------------------

def is_linear(primitive, sample) -> bool:
    return primitive.transpose is not None and bool(sample.linear) and bool(derivative_dtypes(primitive, sample))


@each_case(is_linear)
def test_the_transpose_pairs_cotangents_as_the_function_pairs_tangents(primitive, sample):
    apply = application(primitive, sample)
    for dtype in derivative_dtypes(primitive, sample):
        with jax.enable_x64(True):
            operands = [np.asarray(x) for x in draw(sample, dtype)]
            inexact = [s for s in sample.linear if all(dtypes.is_inexact(operands[i].dtype) for i in s)]

            def check(operands):
                out = apply(*operands)
                cts = [direction(30 + i, y) for i, y in enumerate(out)]
                pairs = []
                for subset in inexact:
                    tangents = [operands[i] for i in subset]
                    at_zero = apply(*[np.zeros(x.shape, x.dtype) if i in subset else x for i, x in enumerate(operands)])
                    linear = [jax.lax.sub(y, constant) for y, constant in zip(out, at_zero)]
                    if sample.call is not None:
                        fun = lambda *ts: apply(*[ts[subset.index(i)] if i in subset else x for i, x in enumerate(operands)])
                        back = jax.linear_transpose(fun, *tangents)(cts)
                    else:
                        args = [Accumulator(typeof(x)) if i in subset else x for i, x in enumerate(operands)]
                        ct = cts if primitive.multiple_results else cts[0]
                        primitive.transpose(ct, *args, **sample.params)
                        back = [args[i].result() for i in subset]
                        refused = [Refused(x.aval) if isinstance(x, Accumulator) else x for x in args]
                        primitive.transpose(ct, *refused, **sample.params)
                    back = [np.zeros(x.shape, x.dtype) if type(x) is Zero else x for x in back]
                    assert [(x.shape, x.dtype) for x in back] == [(t.shape, t.dtype) for t in tangents]
                    pairs.append((paired(back, tangents), paired(cts, linear)))
                return pairs

            for subset, (one, other) in zip(inexact, folded(check)(operands), strict=True):
                same(one, other, 1e-10, f"linear in the operands {subset}, in {dtype}")
