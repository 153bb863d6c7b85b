"""Pictures of shardings, drawn with characters: which device holds which part of an array of one or two dimensions."""
from __future__ import annotations

from typing import Callable, Sequence

from mini_jax.core.trace import Tracer
from mini_jax.runtime.array import ArrayImpl

__all__ = ["visualize_sharding", "visualize_array_sharding", "inspect_array_sharding"]


def visualize_sharding(shape: Sequence[int], sharding, *, use_color: bool = True, scale: float = 1.0, min_width: int = 9, max_width: int = 80,
                       color_map=None) -> None:
    """Print how an array of `shape`, of one or two dimensions, is spread: a cell for each part, with the devices that hold it.

    min_width, max_width: of a cell, and of the picture as far as cells may shrink, in characters; scale: times those of the names.
    use_color and color_map are there for jax's sake: the picture is plain text. Raises ValueError for other numbers of dimensions.
    """
    shape = tuple(shape)
    if not 1 <= len(shape) <= 2:
        raise ValueError(f"visualize_sharding draws arrays of one or two dimensions, not shape {shape}")
    held: dict[tuple, list] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        place = tuple([s.start or 0 for s in index])
        held.setdefault(place if len(place) == 2 else (0, *place), []).append(device)
    rows, columns = (sorted({place[d] for place in held}) for d in range(2))
    texts = [[_names(held[row, column]) for column in columns] for row in rows]
    longest = max([len(text) for line in texts for text in line])
    width = max(min_width, min(int((longest + 2) * scale), max(max_width // len(columns) - 1, longest + 2)))
    rule = lambda left, cross, right: left + cross.join(["─" * width] * len(columns)) + right
    lines = [rule("┌", "┬", "┐")]
    for i, line in enumerate(texts):
        lines += [rule("├", "┼", "┤")] * (i > 0) + ["│" + "│".join([text.center(width) for text in line]) + "│"]
    print("\n".join([*lines, rule("└", "┴", "┘")]))


def _names(devices: list) -> str:
    return f"{devices[0].platform.upper()} {','.join([str(d.id) for d in devices])}"


def visualize_array_sharding(arr, **kwargs) -> None:
    """Print how an array is spread; keywords as for visualize_sharding. NotImplementedError for a traced value, as inspect_array_sharding."""
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **kwargs))


def inspect_array_sharding(value, *, callback: Callable) -> None:
    """callback(sharding) with that of an array.

    NotImplementedError for a traced value, whose sharding is XLA's to choose after tracing: return the value and look at it, or at
    f.lower(…).compile().output_shardings.
    """
    if isinstance(value, Tracer):
        raise NotImplementedError(f"how a traced value ({value.aval}) is spread is not known while tracing: XLA chooses when the program is compiled. "
                                  "Return the value and look at its sharding, or say with lax.with_sharding_constraint what it shall be")
    if not isinstance(value, ArrayImpl):
        raise TypeError(f"expected an array, got {value!r:.100} of type {type(value).__name__}")
    callback(value.sharding)
