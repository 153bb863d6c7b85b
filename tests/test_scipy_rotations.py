"""scipy.spatial.transform: rotations and interpolation between them as SciPy's, derivatives at no rotation."""
import numpy as np
import pytest
from scipy.spatial import transform as reference

import mini_jax as jax
from mini_jax.scipy.spatial.transform import Rotation, Slerp
from mini_jax.test_util import check_grads

RNG = np.random.default_rng(0)
QUATS, OTHERS, VECTORS = RNG.normal(size=(6, 4)), RNG.normal(size=(6, 4)), RNG.normal(size=(6, 3))
SEQUENCES = ("xyz", "zyx", "XYZ", "ZYX", "zxz", "ZYZ", "yxz", "YZX")


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def views(cls, quats, others, vectors):
    """What can be asked of rotations, by class."""
    r, s = cls.from_quat(quats), cls.from_quat(others)
    back = [cls.from_matrix(r.as_matrix()), cls.from_rotvec(r.as_rotvec()), cls.from_rotvec(30 * vectors, degrees=True), cls.from_mrp(r.as_mrp()),
            *[cls.from_euler(seq, vectors[:, :len(seq)]) for seq in (*SEQUENCES, "xy", "Z")], cls.from_euler("x", 20.0, degrees=True), r * s, r.inv(), cls.concatenate([r, s])]
    return {"matrix": r.as_matrix(), "rotvec": [r.as_rotvec(), r.as_rotvec(degrees=True)], "mrp": r.as_mrp(), "euler": [r.as_euler(seq) for seq in SEQUENCES],
            "quat": [r.as_quat(canonical=True), r.as_quat(canonical=True, scalar_first=True)], "apply": [r.apply(vectors), r.apply(vectors[0]), r[2].apply(vectors, inverse=True)],
            "magnitude": r.magnitude(), "mean": [r.mean().as_matrix(), r.mean(np.arange(1.0, 7)).as_matrix()], "back": [x.as_matrix() for x in back]}


def test_rotations_are_scipys():
    got = jax.jit(lambda *xs: views(Rotation, *xs))(QUATS, OTHERS, VECTORS)
    for name, wanted in views(reference.Rotation, QUATS, OTHERS, VECTORS).items():
        for g, w in zip(jax.tree.leaves(got[name]), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(g, w, atol=1e-10, err_msg=name)
    r = Rotation.from_quat(QUATS)
    assert len(r) == 6 and not r.single and r[1].single and Rotation.identity(3).quat.shape == (3, 4) and Rotation.random(jax.random.key(0), 2).quat.shape == (2, 4)


def test_interpolation_is_scipys():
    times, at = np.array([0.0, 1, 2.5, 3, 4, 7]), np.array([0.0, 0.3, 1.0, 2.7, 6.9, 7.0])
    ours, theirs = Slerp.init(times, Rotation.from_quat(QUATS)), reference.Slerp(times, reference.Rotation.from_quat(QUATS))
    np.testing.assert_allclose(jax.jit(lambda s, t: s(t).as_matrix())(ours, at), theirs(at).as_matrix(), atol=1e-12)
    with pytest.raises(ValueError):
        Slerp.init(times[:3], Rotation.from_quat(QUATS))


def test_derivatives_at_and_away_from_no_rotation():
    for v in (VECTORS[0], np.zeros(3), np.full(3, 1e-5)):
        check_grads(jax.jit(lambda v: [Rotation.from_rotvec(v).apply(VECTORS[1]), Rotation.from_rotvec(v).as_rotvec()]), (v,), 1)
    with pytest.raises(ValueError, match="axes"):
        Rotation.from_euler("xxz", VECTORS)
