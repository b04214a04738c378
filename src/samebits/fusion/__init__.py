"""Fusions: computations of several operations that are defined once and run as few kernels, by nvFuser's Python API.

Start at `FusionDefinition`. Arrays of NumPy, PyTorch and JAX, and Tensors, come in, and the same kind comes out; the
bits are those of the operations one by one (docs/numerics.md section 11). docs/fusion.md lists what is there.
"""

from __future__ import annotations

from samebits import __version__ as _version
from samebits.fusion.cache import LRUCache, LruFusionCache
from samebits.fusion.datatypes import DataType
from samebits.fusion.definition import FusionDefinition
from samebits.fusion.descriptor import compute_tensor_descriptor
from samebits.fusion.execution import FusionExecutorCache
from samebits.fusion.graph import Fusion, Scalar, TensorView, Val
from samebits.fusion.profiling import PythonProfiler

__all__ = [
    "DataType", "Fusion", "FusionDefinition", "FusionExecutorCache", "LRUCache", "LruFusionCache", "PythonProfiler",
    "Scalar", "TensorView", "Val", "compute_tensor_descriptor", "version",
]  # fmt: skip


def version() -> str:
    """The version of samebits, whose room this is."""
    return _version
