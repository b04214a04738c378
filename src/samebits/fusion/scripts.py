"""Scripts that show what a fusion does: its definition, and inputs like those that it ran on.

Start at `script`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samebits.fusion.graph import number

__all__ = ["described", "script"]


def described(x: Any) -> str:
    """Python that makes an input like x: of a tensor its shape, strides and format, of a number itself."""
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(described, x))}]"
    if not hasattr(x, "shape"):
        return number(x) if isinstance(x, bool | int | float) else str(x)
    shape = tuple(map(int, x.shape))
    if not hasattr(x, "stride"):
        return f"numpy.ones({shape}, dtype={str(x.dtype)!r})"
    strides = tuple(x.stride())
    if x.is_contiguous():
        return f"torch.testing.make_tensor({shape}, dtype={x.dtype}, device='{x.device}')"
    span = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if x.dtype.is_floating_point:
        made = f"torch.randn({span}, dtype={x.dtype}, device='{x.device}')"
    else:
        bound = 2 if str(x.dtype) == "torch.bool" else 10
        made = f"torch.randint(0, {bound}, ({span},), dtype={x.dtype}, device='{x.device}')"
    return f"{made}.as_strided({shape}, {strides})"


def script(definition: str, inputs: Sequence[str] | None) -> str:
    """The definition, called; and run on inputs that are described."""
    text = "import torch\nfrom samebits.fusion import FusionDefinition, DataType\n"
    if inputs is not None and any(each.startswith("numpy.") for each in inputs):
        text = "import numpy\n" + text.replace("import torch\n", "")
    text += f"{definition}with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\n"
    if inputs is None:
        return text
    return text + "\ninputs = [\n" + "".join(f"    {each},\n" for each in inputs) + "]\nfd.execute(inputs)\n"
