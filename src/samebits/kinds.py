"""Any array in, the same kind of array out: which kind an array is, and a tensor as an array of that kind."""

import sys
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from samebits.errors import ExchangeError
from samebits.layout import Storage
from samebits.tensor import Tensor

__all__ = [
    "UNTRACED",
    "ArrayKind",
    "check_untraced",
    "is_traced",
    "kind_of",
    "narrow_storage",
    "note_written",
    "to_kind",
]

ArrayKind = Literal["tensor", "numpy", "torch", "jax"]
# What remedies a call on torch's tensors within what torch traces.
UNTRACED = "call functions of samebits.torch there, which are operators of torch"


def kind_of(x: object) -> ArrayKind:
    """Which kind of array x is: what `to_kind` should make of a result computed from it.

    Returns:
        `torch` or `jax` for their arrays, `tensor` for a Tensor and for any other exporter of DLPack, `numpy` for NumPy
        arrays and whatever NumPy makes an array of.
    """
    cls: type = type(x)
    return _kind_of_type(cls)


@lru_cache(maxsize=1024)
def _kind_of_type(cls: type) -> ArrayKind:
    """The kind of a type's instances, by the package that it or a base comes from: nothing is imported to ask."""
    if issubclass(cls, Tensor):
        return "tensor"
    if issubclass(cls, np.ndarray | np.generic) or not hasattr(cls, "__dlpack__"):
        return "numpy"
    packages = {base.__module__.partition(".")[0] for base in cls.__mro__}
    return "torch" if "torch" in packages else "jax" if packages & {"jax", "jaxlib"} else "tensor"


def narrow_storage(kind: ArrayKind) -> Storage:
    """How new elements of fewer than 8 bits lie in an array of that kind: a byte each in NumPy and JAX, else packed."""
    return "padded" if kind in ("numpy", "jax") else "packed"


def note_written(x: object) -> None:
    """Let torch know that x is written, if it is a tensor of torch's: backward refuses what was kept of it before."""
    torch = sys.modules.get("torch")
    # While another thread imports torch, the module is there and the class is not.
    if isinstance(x, getattr(torch, "Tensor", ())) and not x.is_inference():  # type: ignore[attr-defined]
        torch.autograd.graph.increment_version(x)  # type: ignore[union-attr]


def is_traced() -> bool:
    """Whether torch records operators to run them again: it sees that memory is made, not what is computed in it."""
    tracing = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if tracing is not None and tracing.get_proxy_mode() is not None:
        return True
    torch = sys.modules.get("torch.jit")
    return torch is not None and bool(torch.is_tracing())


def check_untraced(call: str) -> None:
    """Raise ExchangeError where torch records what a call on its tensors computes."""
    if is_traced():
        raise ExchangeError(call, "call", "", "within what torch traces", "outside of it", UNTRACED)


def to_kind(tensor: Tensor, kind: ArrayKind) -> Any:
    """The tensor as the array of that kind, sharing its memory; of fewer than 8 bits JAX gets a copy.

    Raises:
        ExchangeError: The kind cannot take it without copying.
        DTypeError: The kind has no such dtype.
        LayoutError: NumPy cannot hold elements that are packed within bytes.
    """
    if kind == "numpy":
        return tensor.numpy()
    if kind == "tensor":
        return tensor
    return tensor.torch() if kind == "torch" else tensor.jax()
