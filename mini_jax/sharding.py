"""`jax.sharding`: meshes, and how arrays are spread over them."""
from mini_jax.runtime.meshes import (  # noqa: F401
    AbstractMesh as AbstractMesh, AxisType as AxisType, Mesh as Mesh, NamedSharding as NamedSharding, PartitionSpec as PartitionSpec,
    get_abstract_mesh as get_abstract_mesh, get_mesh as get_mesh, set_mesh as set_mesh, use_abstract_mesh as use_abstract_mesh)
from mini_jax.runtime.memories import TransferToMemoryKind as TransferToMemoryKind  # noqa: F401
from mini_jax.runtime.sharding import PmapSharding as PmapSharding, Sharding as Sharding  # noqa: F401
from mini_jax.runtime.xla import SingleDeviceSharding as SingleDeviceSharding  # noqa: F401
from mini_jax.transforms.shards import auto_axes as auto_axes, explicit_axes as explicit_axes, reshard as reshard  # noqa: F401
