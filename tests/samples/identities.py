"""Samples of operations that leave values as they are."""
from mini_jax.lax.rows import COMPLEX, FLOATS
from tests.samples import Sample, uniform

SAMPLES = {
    "stop_gradient": [Sample((uniform(),), dtypes=FLOATS | COMPLEX, reference=lambda x: x, order=0)],
    "name": [Sample((uniform(),), {"name": "here"}, reference=lambda x, name: x)],
    "copy": [Sample((uniform(),), reference=lambda x: x, linear=((0,),))],
    "optimization_barrier": [Sample((uniform(), uniform(shape=(3,))), reference=lambda x, y: [x, y])],
}
