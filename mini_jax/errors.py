"""The error classes of `jax.errors`."""
from mini_jax.core.errors import (                                                                               # noqa: F401
    ConcretizationTypeError, InconclusiveDimensionOperation, JAXIndexError, JaxRuntimeError, JAXTypeError, KeyReuseError,
    NonConcreteBooleanIndexError, ShardingTypeError, TracerArrayConversionError, TracerBoolConversionError, TracerIntegerConversionError,
    TypePromotionError, UnexpectedTracerError)
