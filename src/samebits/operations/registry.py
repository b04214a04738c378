"""Every operation, by name.

A row's module is imported when somebody first asks for the row: a model has few of them. Start at `ROWS`.
"""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Iterator, KeysView, ValuesView

from samebits.operations.operation import Operation

__all__ = ["ROWS"]

# The rows of each module.
_HOMES = {
    "elementwise": ("map",),
    "conversion": ("stochastic_cast", "checked_cast"),
    "quantization": ("quantize",),
    "rows": ("rows",),
    "matmul": ("contract",),
    "convolution_plans": ("convolve",),
    "views": ("reshape", "transpose", "slice", "expand"),
    "moves": ("dims", "range", "concat", "gather", "gather_nd", "scatter_nd"),
    "scans": ("scan",),
    "picks": ("order", "gather_along", "scatter_along"),
    "random": ("random",),
    "resampling": ("resample",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


class _RowsByName(dict[str, Operation]):
    """Rows by name, those that were asked for; who looks at all of them has the others imported."""

    def __missing__(self, name: str) -> Operation:
        module = importlib.import_module(f"samebits.operations.{_HOME[name]}")
        self.update({row.name: row for row in module.ROWS})
        return self[name]

    def _whole(self) -> dict[str, Operation]:
        return {name: self[name] for name in _HOME}

    def __iter__(self) -> Iterator[str]:
        return iter(_HOME)

    def __len__(self) -> int:
        return len(_HOME)

    def __contains__(self, name: object) -> bool:
        return name in _HOME

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # a view of all
        return self._whole().keys()

    def values(self) -> ValuesView[Operation]:  # type: ignore[override]
        return self._whole().values()

    def items(self) -> ItemsView[str, Operation]:  # type: ignore[override]
        return self._whole().items()


ROWS = _RowsByName()
"""Every operation, by name."""
