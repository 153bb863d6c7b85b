"""Rotations of space, as unit quaternions, and interpolation between them. Pytrees, differentiable, single or many."""
from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

import numpy as np

from mini_jax import numpy as jnp
from mini_jax import random
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_shape
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact

__all__ = ["Rotation", "Slerp"]


def _floats(name: str, x):
    return as_array(promote_dtypes_inexact(*arraylike(name, jnp.asarray(x)))[0])


def _length(x):
    """|x| along the last axis, kept; its derivative at 0 is 0."""
    square = jnp.sum(x * x, -1, keepdims=True)
    zero = square == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, square)))


def _unit(quat):
    return quat / _length(quat)


def _product(p, q):
    """The quaternion product p q, scalars last: first rotate by q, then by p."""
    pv, ps, qv, qs = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    return jnp.concatenate([ps * qv + qs * pv + jnp.cross(pv, qv), ps * qs - jnp.sum(pv * qv, -1, keepdims=True)], -1)


def _from_rotvec(rotvec):
    """(sin(θ/2)/θ · v, cos(θ/2)) for θ = |v|."""
    square = jnp.sum(rotvec * rotvec, -1, keepdims=True)
    small = square < 1e-6
    angle = jnp.sqrt(jnp.where(small, 1, square))
    near = jnp.where(small, square, 0)
    scale = jnp.where(small, 0.5 - near / 48 + near * near / 3840, jnp.sin(angle / 2) / angle)
    return jnp.concatenate([scale * rotvec, jnp.where(small, 1 - near / 8 + near * near / 384, jnp.cos(angle / 2))], -1)


def _elementary(axis: int, angle):
    """The quaternions of rotations about a coordinate axis."""
    half = angle / 2
    parts = [jnp.zeros_like(half)] * 3 + [jnp.cos(half)]
    parts[axis] = jnp.sin(half)
    return jnp.stack(parts, -1)


def _axes(seq: str) -> tuple[list[int], bool]:
    """The axes that a sequence names, and whether they turn with the body (capital letters)."""
    intrinsic = seq.isupper()
    if not 1 <= len(seq) <= 3 or not (intrinsic or seq.islower()) or set(seq.lower()) - set("xyz"):
        raise ValueError(f"Expected axes to be up to three of 'x', 'y', 'z' (fixed) or 'X', 'Y', 'Z' (turning), got {seq!r}")
    if any([a == b for a, b in zip(seq, seq[1:])]):
        raise ValueError(f"Expected consecutive axes to be different, got {seq!r}")
    return ["xyz".index(a) for a in seq.lower()], intrinsic


class Rotation(NamedTuple):
    """Rotations of space, one or many: unit quaternions (x, y, z, w), (4) or (n, 4). r * s rotates by s first.

    Make them with the from_… functions."""

    quat: Any

    @classmethod
    def from_quat(cls, quat):
        """From quaternions (x, y, z, w), normalised first."""
        return cls(_unit(_floats("from_quat", quat)))

    @classmethod
    def from_matrix(cls, matrix):
        """From orthogonal matrices (…, 3, 3) of determinant 1: the quaternion's largest component first, from the diagonal."""
        m = _floats("from_matrix", matrix)
        trace = jnp.trace(m, axis1=-2, axis2=-1)
        diagonal = jnp.diagonal(m, 0, -2, -1)
        rows = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = [None] * 4
            parts[i], parts[j], parts[k] = 1 - trace + 2 * diagonal[..., i], m[..., j, i] + m[..., i, j], m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            rows.append(jnp.stack(parts, -1))
        rows.append(jnp.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1], 1 + trace], -1))
        largest = jnp.argmax(jnp.concatenate([diagonal, trace[..., None]], -1), -1)
        candidates = jnp.stack(rows, -2)
        return cls(_unit(jnp.take_along_axis(candidates, largest[..., None, None], -2)[..., 0, :]))

    @classmethod
    def from_rotvec(cls, rotvec, degrees: bool = False):
        """From vectors (…, 3) along the axes, as long as the angles."""
        v = _floats("from_rotvec", rotvec)
        return cls(_from_rotvec(v * (math.pi / 180) if degrees else v))

    @classmethod
    def from_mrp(cls, mrp):
        """From modified Rodrigues parameters (…, 3): tan(θ/4) along the axes."""
        mrp = _floats("from_mrp", mrp)
        square = jnp.sum(mrp * mrp, -1, keepdims=True)
        return cls(jnp.concatenate([2 * mrp, 1 - square], -1) / (1 + square))

    @classmethod
    def from_euler(cls, seq: str, angles, degrees: bool = False):
        """From angles (…, len(seq)) about the axes that seq names one after the other: fixed ones ('xyz') or such as turn with the body ('XYZ')."""
        axes, intrinsic = _axes(seq)
        angles = _floats("from_euler", angles)
        if len(axes) == 1 and (not angles.ndim or angles.shape[-1] != 1):
            angles = angles[..., None]
        if angles.shape[-1] != len(axes):
            raise ValueError(f"Expected angles to have {len(axes)} entries for the axes {seq!r}, got {angles.aval}")
        angles = angles * (math.pi / 180) if degrees else angles
        total = _elementary(axes[0], angles[..., 0])
        for i, axis in enumerate(axes[1:], 1):
            new = _elementary(axis, angles[..., i])
            total = _product(total, new) if intrinsic else _product(new, total)
        return cls(total)

    @classmethod
    def identity(cls, num: int | None = None, dtype=float):
        """No rotation, or `num` of them."""
        return cls(jnp.broadcast_to(jnp.array([0, 0, 0, 1], dtypes.requested(dtype, "Rotation.identity")), (4,) if num is None else (num, 4)))

    @classmethod
    def random(cls, random_key, num: int | None = None):
        """A rotation, or `num` of them, uniform among all."""
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    @classmethod
    def concatenate(cls, rotations: Sequence):
        """The rotations of several objects, one after the other."""
        return cls(jnp.concatenate([r.quat.reshape(-1, 4) for r in rotations]))

    @property
    def single(self) -> bool:
        """Is it one rotation, not an array of them?"""
        return self.quat.ndim == 1

    def __len__(self):
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __getitem__(self, indexer):
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __mul__(self, other):
        return Rotation(_product(self.quat, other.quat))

    def apply(self, vectors, inverse: bool = False):
        """The vectors (…, 3) rotated; inverse: rotated back."""
        matrix = self.as_matrix()
        return jnp.einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", matrix, _floats("apply", vectors))

    def inv(self):
        """The rotation back."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self):
        """The angles, between 0 and π."""
        return 2 * jnp.arctan2(_length(self.quat[..., :3])[..., 0], jnp.abs(self.quat[..., 3]))

    def as_quat(self, canonical: bool = False, scalar_first: bool = False):
        """The quaternions, (x, y, z, w) or with scalar_first (w, x, y, z); canonical: of q and -q that whose
        first entry ≠ 0 of w, x, y, z is positive."""
        q = self._canonical() if canonical else self.quat
        return jnp.roll(q, 1, -1) if scalar_first else q

    def _canonical(self):
        x, y, z, w = jnp.moveaxis(self.quat, -1, 0)
        first = jnp.where(w != 0, w, jnp.where(x != 0, x, jnp.where(y != 0, y, z)))
        return jnp.where((first < 0)[..., None], -self.quat, self.quat)

    def as_matrix(self):
        """Orthogonal matrices (…, 3, 3)."""
        x, y, z, w = jnp.moveaxis(self.quat, -1, 0)
        rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w]]
        return jnp.stack([jnp.stack(row, -1) for row in rows], -2)

    def as_rotvec(self, degrees: bool = False):
        """Vectors (…, 3) along the axes, as long as the angles, which are between 0 and π."""
        q = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        sine = _length(q[..., :3])
        small = sine < 1e-3
        safe = jnp.where(small, 1, sine)
        square = jnp.sum(q[..., :3] ** 2, -1, keepdims=True)
        scale = jnp.where(small, 2 + square / 3 + 3 * square * square / 20, 2 * jnp.arctan2(safe, q[..., 3:]) / safe)
        return scale * q[..., :3] * (180 / math.pi if degrees else 1)

    def as_mrp(self):
        """Modified Rodrigues parameters (…, 3): tan(θ/4) along the axes."""
        q = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return q[..., :3] / (1 + q[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False):
        """The three angles (…, 3) about the axes that seq names; where the first and the last axis coincide the third angle is 0.

        (Bernardes, Viollet 2022, Quaternion to Euler angles conversion)
        """
        axes, intrinsic = _axes(seq)
        if len(axes) != 3:
            raise ValueError(f"Expected 3 axes, got {seq!r}.")
        i, j, k = axes[::-1] if intrinsic else axes
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q, w = self.quat, self.quat[..., 3]
        if symmetric:
            a, b, c, d = w, q[..., i], q[..., j], q[..., k] * sign
        else:
            a, b, c, d = w - q[..., j], q[..., i] + q[..., k] * sign, q[..., j] + w, q[..., k] * sign - q[..., i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        near = jnp.abs(middle) <= 1e-7
        far = jnp.abs(middle - math.pi) <= 1e-7
        first = jnp.where(near, 2 * half_sum, jnp.where(far, 2 * half_difference * (1 if intrinsic else -1), half_sum - half_difference))
        third = jnp.where(near | far, 0, half_sum + half_difference)
        if intrinsic:
            first, third = jnp.where(near | far, 0, first), jnp.where(near, 2 * half_sum, jnp.where(far, 2 * half_difference, third))
        if not symmetric:
            third, middle = third * sign, middle - math.pi / 2
        first, third = (third, first) if intrinsic else (first, third)
        angles = jnp.stack([first, middle, third], -1)
        angles = jnp.where(angles < -math.pi, angles + 2 * math.pi, jnp.where(angles > math.pi, angles - 2 * math.pi, angles))
        return angles * (180 / math.pi) if degrees else angles

    def mean(self, weights=None):
        """The rotation that is nearest to all of them, in the sense of (weighted) least squares of matrices: the first eigenvector of Σ w q qᵀ."""
        q = self.quat.reshape(-1, 4)
        weights = jnp.ones(q.shape[0], q.dtype) if weights is None else jnp.asarray(weights, q.dtype)
        if weights.shape != (q.shape[0],):
            raise ValueError(f"Rotation.mean: weights must have one value for each of the {q.shape[0]} rotations, got {weights.aval}")
        return Rotation(jnp.linalg.eigh(jnp.einsum("i,ij,ik->jk", weights, q, q))[1][:, -1])


class Slerp(NamedTuple):
    """Interpolation between rotations at constant angular velocity. Make it with Slerp.init(times, rotations), call it with times."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times, rotations: Rotation):
        """The interpolation through `rotations`, at least two, at ascending `times`. Raises ValueError for shapes that don't fit."""
        times = _floats("Slerp", times)
        if rotations.quat.ndim != 2 or len(rotations) < 2:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        if times.shape != canonical_shape((len(rotations),)):
            raise ValueError(f"Expected times to have one entry for each of the {len(rotations)} rotations, got {times.aval}")
        start = Rotation(rotations.quat[:-1])
        return cls(times, jnp.diff(times), start, (start.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times):
        """The rotations at these times, a number or a vector."""
        at = _floats("Slerp", times)
        i = jnp.clip(jnp.searchsorted(self.times, at) - 1, 0, self.timedelta.shape[0] - 1)
        share = (at - self.times[i]) / self.timedelta[i]
        return Rotation(self.rotations.quat[i]) * Rotation.from_rotvec(self.rotvecs[i] * share[..., None])
