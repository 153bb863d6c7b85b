"""Calls of every public function of the libraries (numpy, numpy.linalg, numpy.fft, nn, ops, scipy), for the walk in tests/test_public_walk.py.

A family is functions that are called alike. Its lines are expressions with fields: {f} each of its functions, {a} each of its arrays,
{axis} None and every axis of that array, {dim} every axis of it, other fields each of the family's options. An array's name is its
kind and its rank: `r2` is real numbers of shape (2, 3), `re` is empty. A line's first call is also differentiated and batched.
"""
from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import numpy as np

SHAPES = {"2": (2, 3), "3": (2, 3, 4), "1": (5,), "0": (), "e": (0, 3)}     # in the order in which calls take them


def _arrays() -> dict[str, np.ndarray]:
    """Real numbers are distinct by 1/6 at least and that far from multiples of 1/2 that differences see no kink."""
    rng, out = np.random.default_rng(6), {}
    for rank, shape in SHAPES.items():
        size = int(np.prod(shape))
        place = lambda: rng.permutation(size).reshape(shape)
        step = 1 / 6 if size > 8 else 1 / 2
        out["r" + rank] = (place() - size // 2) * step + 1 / 12                              # real
        out["y" + rank] = (place() - size // 2) * step + 1 / 8                               # real, never equal to those
        out["p" + rank] = place() * step + 1 / 3                                             # positive
        out["u" + rank] = (place() + 0.5) / max(size, 1) * 1.8 - 0.9                         # in (-1, 1)
        out["q" + rank] = (place() + 0.5) / max(size, 1)                                     # in (0, 1)
        out["c" + rank] = out["r" + rank] + 1j * out["y" + rank]                             # complex
        out["i" + rank] = rng.integers(-5, 6, shape)                                         # integers
        out["k" + rank] = rng.integers(1, 7, shape)                                          # positive integers
        out["b" + rank] = (place() % 2).astype(bool)                                         # booleans
    square = lambda *shape: rng.uniform(-1, 1, shape) + 2 * np.eye(shape[-1])
    out |= {"A": square(3, 3), "AA": square(2, 3, 3), "B": square(3, 3), "V": rng.uniform(-1, 1, 3), "W": rng.uniform(-1, 1, 3), "M": rng.uniform(-1, 1, (3, 2))}
    out |= {"S": out["A"] @ out["A"].T, "SS": out["AA"] @ out["AA"].mT}                      # symmetric, positive definite
    out["T"] = rng.uniform(-1, 1, 32)                                                        # a signal
    out["edges"] = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -2.0])
    out["holes"] = np.where(out["b3"] & (out["i3"] > 0), np.nan, out["r3"])
    return out


ARRAYS = _arrays()
EDGES = ("edges", "holes")                    # no derivatives there


class Family(NamedTuple):
    """Functions that are called alike."""
    lines: str
    functions: str = ""
    arrays: str = "r2 r3 r1 r0 re"
    options: dict[str, list] = {}
    tolerance: float = 64
    """Allowed error of values, in units of eps, relative (absolute below 1)."""
    smooth: bool = True
    """Does it have derivatives that differences can see?"""
    eager: bool = False
    """Shapes of results depend on values: called one by one, neither traced, differentiated nor batched."""
    batched: bool = True
    bfloat16: bool = True

    def calls(self) -> list[list[str]]:
        """For each line and function, the calls that it makes."""
        out = []
        for line in self.lines.strip().splitlines():
            line = line.strip()
            for f in self.functions.split() if "{f}" in line else [""]:
                found = []
                for a in self.arrays.split() if "{a}" in line else [""]:
                    axes = list(range(ARRAYS[a].ndim)) if a else []
                    fields = {"axis": [None, *axes, *([-1] if axes else [])], "dim": [*axes, *([-1] if axes else [])], **self.options}
                    used = [name for name in fields if f"{{{name}}}" in line]
                    for values in itertools.product(*[fields[name] for name in used]):
                        text = line.replace("{f}", f).replace("{a}", a)
                        for name, value in zip(used, values):
                            text = text.replace(f"{{{name}}}", value if isinstance(value, str) else repr(value))
                        found.append(text)
                out.append(found)
        return out


def named(text: str) -> set[str]:
    """The functions that an expression calls, as 'np.linalg.inv'."""
    return set(re.findall(r"\b(?:np|nn|ops|special|slinalg|signal|sfft|stats|ndimage|integrate)(?:\.\w+)+", text))


FAMILIES = {
    # --- elementwise ------------------------------------------------------------------------------------------------------------------
    "real": Family("np.{f}({a})", "sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 cbrt rad2deg deg2rad degrees radians sinc negative positive abs absolute "
                   "fabs sign square floor ceil trunc rint real imag conj conjugate angle atan asinh round around i0", "r2 r3 r1 r0 re edges"),
    "positive": Family("np.{f}({a})", "log log2 log10 log1p sqrt reciprocal", "p2 p3 p1 p0 pe edges"),
    "above one": Family("np.{f}({a} + 1)", "arccosh acosh", "p2 p1 p0 pe"),
    "unit": Family("np.{f}({a})", "arcsin arccos arctanh asin acos atanh", "u2 u3 u1 u0 ue edges"),
    "predicates": Family("np.{f}({a})", "isnan isinf isfinite isposinf isneginf signbit logical_not isreal iscomplex", "r2 r1 r0 re edges", smooth=False),
    "parts": Family("np.{f}({a})", "modf frexp spacing", "r2 r3 r1 r0 re", smooth=False, bfloat16=False),
    "complex": Family("np.{f}({a})", "sin cos tan sinh cosh tanh exp log sqrt abs conj real imag angle square reciprocal negative sign", "c2 c0 ce", tolerance=256, bfloat16=False),
    "integers": Family("np.{f}({a})", "abs negative sign square invert bitwise_not bitwise_invert bitwise_count", "i2 i3 i1 i0 ie", smooth=False),
    "two reals": Family("np.{f}({a}, y2)\nnp.{f}({a}, y0)", "add subtract multiply divide true_divide maximum minimum fmax fmin logaddexp logaddexp2 arctan2 atan2 hypot "
                        "copysign heaviside fmod remainder mod floor_divide divmod", "r2 r0"),
    "two reals, compared": Family("np.{f}({a}, y2)\nnp.{f}({a}, y0)", "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor isclose nextafter",
                                  "r2 r0", smooth=False, bfloat16=False),
    "edges of two": Family("np.{f}(edges[:, None], edges)", "add subtract multiply divide maximum minimum fmax fmin arctan2 hypot copysign logaddexp fmod remainder "
                           "floor_divide equal less greater_equal isclose power", smooth=False, bfloat16=False),
    "powers": Family("np.{f}({a}, y2)\nnp.{f}({a}, 2)", "power pow float_power", "p2 p0", tolerance=256),
    "two integers": Family("np.{f}({a}, k2)", "bitwise_and bitwise_or bitwise_xor gcd lcm left_shift right_shift bitwise_left_shift bitwise_right_shift floor_divide remainder "
                           "add multiply subtract", "k2 k0", smooth=False),
    "ldexp, nan_to_num": Family("np.ldexp({a}, 2)\nnp.nan_to_num({a})"),
    "comparing all": Family("np.{f}({a}, {a})", "allclose array_equal array_equiv", "r2 r1 r0 re", smooth=False),
    "choosing": Family("""
        np.where(b2, {a}, y0)
        np.clip({a}, -0.3, 0.8)
        np.select([b2, ~b2], [{a} * 2, y2], 0.5)
        np.choose(b2.astype(int), [{a}, y2], mode='clip')
        np.piecewise({a}, [{a} < 0, {a} >= 0.5], [-1.5, lambda t: t * t, 2.0])
    """, arrays="r2"),
    # --- reductions -------------------------------------------------------------------------------------------------------------------
    "reductions": Family("np.{f}({a}, axis={axis}, keepdims={keep})", "sum prod mean", options={"keep": [True, False]}),
    "spreads": Family("np.{f}({a}, axis={axis}, keepdims={keep})", "std var max min amax amin ptp median", "r3 r2 r1", {"keep": [True, False]}, tolerance=256),
    "several axes": Family("np.{f}({a}, axis=(0, -1))", "sum prod mean std var max min median", "r3 r2", tolerance=256),
    "truths, several axes": Family("np.{f}({a}, axis=(0, -1))", "any all count_nonzero", "b3 r2", smooth=False),
    "truths": Family("np.{f}({a}, axis={axis}, keepdims=True)", "any all count_nonzero", "b3 b2 b1 b0 be i2", smooth=False),
    "places": Family("np.{f}({a}, axis={axis})", "argmax argmin", "r3 r2 r1", smooth=False),
    "leaving nan out": Family("np.{f}({a}, axis={axis}, keepdims=True)", "nansum nanprod nanmean nanstd nanvar nanmax nanmin nanmedian", "r2 r3 holes", tolerance=256),
    "places of numbers": Family("np.{f}({a}, axis={axis})", "nanargmax nanargmin", "r3 r2 r1", smooth=False),
    "cumulative": Family("np.{f}({a}, axis={axis})", "cumsum cumprod nancumsum nancumprod", tolerance=128),
    "cumulative, of the standard": Family("np.{f}({a}, axis={dim}, include_initial=True)", "cumulative_sum cumulative_prod", "r2 r3 r1"),
    "quantiles": Family("np.{f}({a}, {q}, axis={axis})", "quantile percentile nanquantile nanpercentile", "r2", {"q": ["0.3", "y0 * 0 + np.array([0.2, 0.9])"]}, bfloat16=False),
    "averages": Family("""
        np.average({a}, axis={axis})
        np.average({a}, axis={axis}, weights={a} * {a})
        np.trapezoid({a}, axis={dim})
        np.trapezoid({a}, dx=0.5, axis={dim})
    """, arrays="r2 r3 r1", tolerance=256),
    "covariances": Family("np.cov({a})\nnp.corrcoef({a})\nnp.cov({a}, rowvar=False, bias=True)", arrays="r2 r1", tolerance=512, bfloat16=False),
    "differences": Family("""
        np.diff({a}, axis={dim})
        np.diff({a}, n=2, axis={dim}, prepend=0.5)
        np.gradient({a}, axis={dim})
        np.ediff1d({a}, to_begin=1.0)
        np.unwrap(3 * {a}, axis={dim})
    """, arrays="r2 r3 r1", bfloat16=False),
    "gradients": Family("np.gradient({a}, 0.5)", arrays="r1 r2"),
    # --- shapes -----------------------------------------------------------------------------------------------------------------------
    "shapes": Family("""
        np.reshape({a}, (-1, 1))
        np.ravel({a}, order='F')
        np.transpose({a})
        np.flip({a}, axis={axis})
        np.roll({a}, 2, axis={axis})
        np.repeat({a}, 2, axis={axis})
        np.tile({a}, (2, 1))
        np.squeeze({a}[None], 0)
        np.copy({a})
        np.array({a}, ndmin=2)
        np.asarray({a})
        np.resize({a}, (3, 2))
        np.broadcast_to({a}, (2, *{a}.shape))
        np.broadcast_arrays({a}, y0)
        np.diagflat({a})
        np.concatenate([{a}.ravel(), y1])
        np.append({a}, y2)
        np.append({a}, {a}, axis={axis})
    """, arrays="r2 r3 r1 r0"),
    "shapes of the empty": Family("""
        np.reshape(re, (3, 0))
        np.transpose(re)
        np.flip(re)
        np.roll(re, 1)
        np.repeat(re, 2, axis=1)
        np.tile(re, 2)
        np.concatenate([re, r2])
        np.broadcast_to(re, (2, 0, 3))
    """),
    "at least": Family("np.{f}({a})", "atleast_1d atleast_2d atleast_3d"),
    "an axis": Family("""
        np.expand_dims({a}, {dim})
        np.swapaxes({a}, {dim}, -1)
        np.moveaxis({a}, {dim}, 0)
        np.rollaxis({a}, {dim})
        np.unstack({a}, axis={dim})
        np.stack([{a}, 2 * {a}], axis={dim})
        np.concat([{a}, {a}], axis={dim})
        np.delete({a}, 1, axis={dim})
        np.insert({a}, 1, 9.5, axis={dim})
        np.take({a}, np.array([1, 0, 1]), axis={dim})
        np.array_split({a}, 2, axis={dim})
        np.split({a}, [1], axis={dim})
        np.apply_along_axis(lambda t: np.sum(t * t), {dim}, {a})
        np.compress(np.array([True, True]), {a}, axis={dim})
    """, arrays="r2 r3 r1"),
    "matrices": Family("""
        np.matrix_transpose({a})
        np.permute_dims({a}, tuple(range({a}.ndim))[::-1])
        np.fliplr({a})
        np.flipud({a})
        np.rot90({a}, {k})
        np.triu({a}, {k})
        np.tril({a}, {k})
        np.diagonal({a}, {k})
        np.trace({a}, {k})
        np.hsplit({a}, [1])
        np.vsplit({a}, [1])
        np.apply_over_axes(np.sum, {a}, [0, 1])
    """, arrays="r2 r3", options={"k": [1, -1, 0]}),
    "joining": Family("""
        np.{f}([{a}, {a}])
    """, "np.hstack np.vstack np.dstack np.column_stack np.block".replace("np.", ""), "r2 r1"),
    "others of shape": Family("""
        np.dsplit(r3, 2)
        np.diag({v}, {k})
        np.pad({v}, 2, mode={mode})
        np.pad(r2, ((1, 2), (0, 1)), constant_values=0.5)
        np.meshgrid(r1, y1, indexing='ij')
        np.kron(r2, y2)
        np.vander(r1, 4)
    """, options={"v": ["r2", "r1"], "k": [0, 1, -2], "mode": ["'constant'", "'edge'", "'reflect'", "'symmetric'", "'wrap'", "'linear_ramp'", "'maximum'", "'mean'"]}),
    "creation": Family("""
        np.{f}_like({a})
        np.full_like({a}, 2.5)
        np.{f}((2, 3))
        np.full((2, 0), 1.5)
        np.eye(3, 4, {k})
        np.identity(3)
        np.tri(3, 4, {k}) * r0
        np.linspace(0.5, 2.0, 7, endpoint={endpoint})
        np.logspace(0.5, 2.0, 7, endpoint={endpoint})
        np.geomspace(0.5, 2.0, 7, endpoint={endpoint})
        np.arange(0.5, 3.0, 0.5)
        np.arange(7)
        np.empty((0, 2))
        np.empty_like(re)
        np.indices((2, 3))
        np.bartlett({M})
        np.blackman({M})
        np.hamming({M})
        np.hanning({M})
        np.kaiser({M}, 2.0)
        np.fromfunction(lambda i, j: i + 2 * j, (2, 3))
        np.diag_indices(3)
        np.diag_indices_from(A)
        np.tril_indices(3, {k}, 4)
        np.triu_indices(3, {k}, 4)
        np.tril_indices_from(A, {k})
        np.triu_indices_from(A, {k})
        np.ix_(np.array([0, 1]), np.array([2, 0, 1]))
        np.array([[1.5, 2.0], [3.0, 4.0]])
    """, "ones zeros", "r2 re r0", {"k": [0, 1, -1], "endpoint": [True, False], "M": [0, 1, 5]}, smooth=False, batched=False, bfloat16=False, tolerance=256),
    # --- order ------------------------------------------------------------------------------------------------------------------------
    "sorted": Family("np.sort({a}, axis={dim})\nnp.take(np.partition({a}, 1, axis={dim}), 1, axis={dim})\nnp.sort({a}, axis=None)", arrays="r2 r3 r1"),
    "orders": Family("np.argsort({a}, axis={axis})\nnp.sort_complex({a})\nnp.take(np.take_along_axis({a}, np.argpartition({a}, 1, axis={dim}), axis={dim}), 1, axis={dim})",
                     arrays="r2 r3 r1", smooth=False),
    "searches": Family("""
        np.searchsorted(np.sort(r1), {a}, side={side})
        np.digitize({a}, np.sort(r1))
        np.isin(i2, np.array([1, 2, -3]))
        np.lexsort((i1, r1))
        np.histogram_bin_edges({a}, 4)
        np.ravel_multi_index((np.array([1, 0]), np.array([2, 1])), (2, 3))
        np.unravel_index(np.array([1, 5, 3]), (2, 3))
        np.argsort({a}.ravel())
        np.astype(i2, np.float32)
        np.packbits(b2, axis=1)
        np.unpackbits(k2.astype(np.uint8), axis=1)
    """, arrays="y2 y3", options={"side": ["'left'", "'right'"]}, smooth=False, bfloat16=False),
    "histograms": Family("np.histogram({a}, 4)[0] * 1.0\nnp.histogram2d({a}.ravel(), y2.ravel(), 3)[0]\nnp.histogramdd([r1, y1], 3)[0]", arrays="r2", smooth=False, bfloat16=False),
    "shapes by value": Family("""
        np.{f}(i2)
        np.sort(np.unique_values(i2))
        np.bincount(k1, minlength=8)
        np.{g}(i1, k1)
        np.trim_zeros(np.array([0, 1, 0, 2, 0]))
        np.extract(b2, i2)
        np.polydiv(r1, p1[:2])[0]
        np.unique(i2, return_index=True, return_counts=True)
    """, "unique unique_counts unique_all unique_inverse nonzero flatnonzero argwhere",
                              options={"g": ["intersect1d", "union1d", "setdiff1d", "setxor1d"]}, smooth=False, eager=True),
    # --- products ---------------------------------------------------------------------------------------------------------------------
    "products": Family("""
        np.{f}(A, B)
        np.{f}(V, W)
        np.{f}(A, V)
    """, "dot matmul inner", tolerance=64),
    "more products": Family("""
        np.matmul(AA, B)
        np.outer(r1, y2)
        np.vdot(r2, y2)
        np.vecdot(r2, y2)
        np.matvec(AA, V)
        np.vecmat(V, AA)
        np.tensordot(r3, y3, axes={axes})
        np.einsum('ij,kj->ik', r2, y2)
        np.einsum('ijk->ki', r3)
        np.cross(A, V)
        np.convolve(r1, V, mode={mode})
        np.correlate(r1, V, mode={mode})
        np.take_along_axis(r2, k2 % 2, axis=0)
    """, options={"axes": ["3", "([0, 1], [0, 1])", "([2], [2])"], "mode": ["'full'", "'same'", "'valid'"]}),
    "interpolation": Family("np.interp({a}, np.array([-2.0, -0.5, 0.6, 2.0]), np.array([1.0, -1.0, 2.5, 0.0]))", arrays="y2 y3 y1 y0 ye", bfloat16=False),
    "polynomials": Family("""
        np.polyval(V, r2)
        np.polyadd(V, r1)
        np.polysub(V, r1)
        np.polymul(V, r1)
        np.polyder(r1, 2)
        np.polyint(r1, 2)
        np.poly(V)
    """, tolerance=256),
    "polynomials, by decompositions": Family("np.polyfit(r1, y1, 2)\nnp.sort(np.roots(np.array([1.0, -6.0, 11.0, -6.0])).real)",
                                             tolerance=2e4, bfloat16=False, smooth=False),
    # --- linalg -----------------------------------------------------------------------------------------------------------------------
    "linalg": Family("np.linalg.{f}({a})", "det inv slogdet matrix_transpose norm trace diagonal matrix_norm vector_norm pinv svdvals", "A AA", tolerance=4096, bfloat16=False),
    "linalg of symmetric": Family("np.linalg.{f}({a})", "cholesky eigvalsh", "S SS", tolerance=4096, bfloat16=False),
    "linalg up to signs": Family("""
        np.abs(np.linalg.qr({a})[1])
        np.abs(np.linalg.eigh({a})[1])
        np.linalg.svd({a})[1]
        np.sort(np.abs(np.linalg.eigvals({a})), axis=-1)
    """, arrays="S SS", tolerance=4096, bfloat16=False),
    "eig": Family("np.sort(np.abs(np.linalg.eig({a})[0]), axis=-1)", arrays="A AA", tolerance=4096, smooth=False, bfloat16=False),
    "linalg of two": Family("""
        np.linalg.solve(A, V)
        np.linalg.solve(AA, B)
        np.linalg.lstsq(A, V)[0]
        np.linalg.multi_dot([A, B, M])
        np.linalg.matrix_power(A, {n})
        np.linalg.cross(V, W)
        np.linalg.matmul(A, B)
        np.linalg.outer(V, W)
        np.linalg.vecdot(A, B)
        np.linalg.tensordot(A, B, axes=1)
        np.linalg.tensorinv(A, ind=1)
        np.linalg.tensorsolve(A, V)
        np.linalg.norm(r2, ord={ord}, axis={axis})
        np.linalg.cond(A)
    """, options={"n": [3, -2, 0], "ord": ["1", "np.inf", "2"], "axis": ["0", "-1"]}, tolerance=4096, bfloat16=False),
    "rank": Family("np.linalg.matrix_rank({a})", arrays="A AA", smooth=False, bfloat16=False),
    # --- fft --------------------------------------------------------------------------------------------------------------------------
    "fft": Family("np.fft.{f}({a}, axis={dim}, norm={norm})", "fft ifft rfft ihfft", "r2 r1", {"norm": ["None", "'ortho'"]}, bfloat16=False),
    "fft to real": Family("np.fft.{f}({a}, axis={dim})", "irfft hfft", "c2 c1", bfloat16=False),
    "fft, several axes": Family("np.fft.{f}({a})", "fftn ifftn rfftn fft2 ifft2 rfft2 fftshift ifftshift", "r2 r3", bfloat16=False),
    "fft, several axes to real": Family("np.fft.{f}({a})", "irfftn irfft2", "c2 c3", bfloat16=False),
    "frequencies": Family("np.fft.{f}({n}, 0.5)", "fftfreq rfftfreq", options={"n": [4, 5]}, smooth=False, batched=False, bfloat16=False),
    # --- nn ---------------------------------------------------------------------------------------------------------------------------
    "activations": Family("nn.{f}({a})", "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish relu relu6 selu sigmoid silu "
                          "soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh", "r3 y3", tolerance=256),
    "log1mexp": Family("nn.log1mexp({a})", arrays="p2 p3 p1 p0 pe"),
    "softmax": Family("nn.{f}({a}, axis={axis})", "softmax log_softmax logsumexp logmeanexp standardize", "r2 r3 r1", tolerance=1024),
    "of nn": Family("nn.one_hot(k2, 7)\nnn.one_hot(k1, 7, axis=0)", smooth=False, bfloat16=False),
    "attention": Family("nn.dot_product_attention(r3[None] * 2, y3[None], p3[None])", tolerance=256),
    "segments": Family("ops.{f}({a}, np.array([0, 1, 0, 1, 1])[:{a}.shape[0]], 2)", "segment_sum segment_max segment_min", "p1 p2 p3"),
    "segments without rows": Family("ops.{f}({a}, np.array([0, 3, 0, 2, -1])[:{a}.shape[0]], 5)", "segment_prod segment_sum segment_max segment_min", "p1 p2 p3", smooth=False),
}

# The functions of scipy. Values have tests of their own on grids with edges (tests/test_scipy_*.py); here they are differentiated and batched too.
SCIPY = {
    "special, real": Family("special.{f}({a})", "erf erfc erfcx dawsn expit ndtr log_ndtr i0 i0e i1 i1e fresnel", "r2", tolerance=256, bfloat16=False),
    "special, positive": Family("special.{f}({a})", "gammaln gamma loggamma digamma entr exp1 expi spence sici factorial", "p2", tolerance=512, bfloat16=False),
    "special, unit": Family("special.{f}({a})", "logit ndtri erfinv", "q2 q0 qe", tolerance=512, bfloat16=False),
    "special, of two": Family("""
        special.{f}({a}, q2)
        special.xlog1py({a}, q2)
        special.polygamma(1, {a})
        special.expn(2, {a})
        special.zeta(2.5, {a} + 1.0)
        special.multigammaln({a} + 3, 2)
        special.owens_t({a}, q2)
        special.poch({a}, q2)
        special.betainc(1.5, 2.5, 0.2 * {a})
    """, "beta betaln gammainc gammaincc rel_entr kl_div xlogy boxcox boxcox1p", "p2", tolerance=4096, batched=False, bfloat16=False),
    "special, others": Family("""
        special.gammasgn(r2)
        special.hyp1f1(p2, q2 + 1.0, 0.4 * q2)
        special.hyp2f1(q2, 0.5 * q2, q2 + 1.0, 0.4 * q2)
        special.comb(k2 + 3, k2)
        special.bernoulli(5)
        special.wofz(c2)
    """, smooth=False, batched=False, tolerance=1e4, bfloat16=False),
    "special, sums": Family("special.{f}({a}, axis={axis})", "softmax log_softmax logsumexp", "r2 r3", tolerance=1024, bfloat16=False),
    "linalg": Family("""
        slinalg.{f}({a})
        slinalg.eigh(S, eigvals_only=True)
        slinalg.svd({a}, compute_uv=False)
        slinalg.cholesky(S, lower=True)
        slinalg.sqrtm(S).real
        slinalg.lu({a}, permute_l=True)
        slinalg.lu_factor({a})[0]
        np.abs(slinalg.qr({a})[1])
        slinalg.solve({a}, V)
        slinalg.solve_triangular({a}, V, lower=True)
        slinalg.cho_solve(slinalg.cho_factor(S), V)
        slinalg.lu_solve(slinalg.lu_factor({a}), V)
        slinalg.eigh_tridiagonal(V, W[:2], eigvals_only=True)
    """, "det inv expm", "A", tolerance=1e5, bfloat16=False),
    "linalg, without derivatives": Family("""
        np.sort(np.diagonal(slinalg.schur(S)[0]))
        np.abs(slinalg.hessenberg(A))
        np.abs(slinalg.qr_multiply(A, B)[1])
        slinalg.funm(S, np.exp).real
        slinalg.polar(A)
        slinalg.solve_sylvester(A, S, B)
        slinalg.expm_frechet(A, B)
        np.sort(np.abs(np.diagonal(slinalg.rsf2csf(*slinalg.schur(A))[0])))
        slinalg.dft(4)
        slinalg.hadamard(4)
        slinalg.helmert(4)
        slinalg.hilbert(3)
        slinalg.invhilbert(3) * 1.0
        slinalg.pascal(4) * 1.0
        slinalg.invpascal(4) * 1.0
    """, smooth=False, batched=False, tolerance=1e5, bfloat16=False),
    "linalg, structured": Family("""
        slinalg.{f}(V)
        slinalg.block_diag(A, M)
        slinalg.companion(p1)
        slinalg.fiedler_companion(p1)
        slinalg.convolution_matrix(V, 4, mode={mode})
        slinalg.leslie(p1, p1[:4])
    """, "toeplitz hankel circulant fiedler", options={"mode": ["'full'", "'same'", "'valid'"]}, bfloat16=False),
    "signal": Family("""
        signal.{f}(r1, V, mode={mode})
        signal.convolve2d(r2, A[:2, :2], mode={mode})
        signal.correlate2d(r2, A[:2, :2], mode={mode})
        signal.detrend(r3, axis={ax})
        signal.stft(T, nperseg=8)[2]
        signal.istft(signal.stft(T, nperseg=8)[2], nperseg=8)[1]
        signal.welch(T, nperseg=8)[1]
        signal.csd(T, T * T, nperseg=8)[1]
    """, "convolve correlate fftconvolve", options={"mode": ["'full'", "'same'", "'valid'"], "ax": [0, -1]}, tolerance=512, bfloat16=False),
    "cosine transforms": Family("sfft.{f}({a}, norm={norm})", "dct idct dctn idctn", "r2 r3", {"norm": ["None", "'ortho'"]}, tolerance=256, bfloat16=False),
    "others": Family("""
        stats.sem({a}, axis=0)
        ndimage.map_coordinates({a}, np.stack([q2, q2 * 1.5]), order={order}, mode={mode})
        integrate.trapezoid({a}, axis={dim})
    """, arrays="r2", options={"order": [1, 0], "mode": ["'nearest'", "'mirror'", "'constant'"]}, tolerance=256, bfloat16=False),
    "ranks": Family("stats.rankdata({a})\nstats.mode(i2, axis=0)[0]", arrays="r2", smooth=False, bfloat16=False),
}

# Functions of which nothing is computed from arrays, and those whose laws have tests of their own.
ELSEWHERE = {
    "test_dtypes.py or test_numpy_creation.py: dtypes, files, memory and text": """
        array_repr array_str can_cast dtype finfo iinfo isdtype issubdtype iscomplexobj isrealobj isscalar promote_types result_type
        frombuffer fromfile fromiter fromstring from_dlpack load ndim shape size broadcast_shapes einsum_path mask_indices""",
    "test_numpy_ufuncs.py, test_transforms.py: functions of functions": "frompyfunc vectorize",
    "test_indexing.py: changes of an array": "fill_diagonal place put put_along_axis",
    "test_scipy_*.py: algorithms, and what SciPy has not": "bessel_jn sph_harm_y minimize cg gmres bicgstab vq",
}
