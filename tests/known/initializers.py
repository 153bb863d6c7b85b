"""Initial weights by initializer, shape and dtype."""
from __future__ import annotations

from tests.known import Group


def groups(jax) -> dict[str, Group]:
    """What JAX or mini_jax, given as `jax`, is asked for."""
    init, jnp = jax.nn.initializers, jax.numpy
    shape = (4, 3)

    def values():
        key = jax.random.key(3)
        found = {name: getattr(init, name)()(key, shape) for name in (
            "uniform", "normal", "truncated_normal", "glorot_uniform", "glorot_normal", "xavier_uniform", "xavier_normal", "he_uniform",
            "he_normal", "kaiming_uniform", "kaiming_normal", "lecun_uniform", "lecun_normal")}
        found |= {f"{mode} {distribution}": init.variance_scaling(2.0, mode, distribution)(key, shape)
                  for mode in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg") for distribution in ("normal", "uniform", "truncated_normal")}
        found |= {f"complex {distribution}": init.variance_scaling(2.0, "fan_in", distribution, dtype="complex64")(key, shape)
                  for distribution in ("normal", "uniform", "truncated_normal")}
        return found | {
            "scaled": init.normal(0.3)(key, shape), "between": init.truncated_normal(0.3, lower=-1.0, upper=3.0)(key, shape),
            "bfloat16": init.lecun_normal()(key, shape, jnp.bfloat16), "raw": init.normal()(jax.random.PRNGKey(3), shape),
            "convolution": init.he_normal()(key, (2, 2, 3, 1)), "axes": init.glorot_uniform(in_axis=(0, 1), out_axis=2)(key, (2, 2, 3)),
            "batch": init.glorot_uniform(batch_axis=0)(key, (1, 4, 3)), "zeros": init.zeros(key, shape), "ones": init.ones(key, shape, "int32"),
            "constant": init.constant(jnp.arange(3))(key, shape, "float16"), "by dtype": init.normal(dtype=jnp.float16)(key, shape),
            "orthogonal": init.orthogonal(2.0)(key, shape), "orthogonal wide": init.orthogonal(column_axis=0)(key, (2, 3, 2)),
            "orthogonal empty": init.orthogonal()(key, (0, 3)), "delta_orthogonal": init.delta_orthogonal()(key, (3, 2, 2, 3))}

    return {"values": Group(values)}
