"""The operator of ONNX Runtime that multiplies by weights of few bits: `MatMulNBits` (numerics.md section 4).

Weights are constants, so that their codes become elements of the format that has as many bits, and stay packed. Start
at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits import dtypes
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, Unsupported
from samebits.onnx.rows_product import product
from samebits.operations.operation import Array, Shape
from samebits.operations.product import Options
from samebits.operations.sharing import Block
from samebits.tensor import Tensor

__all__ = ["ROWS"]

_DOMAIN = "com.microsoft"


def _matmul_nbits(call: NodeCall) -> Sequence[str]:
    """a @ ((codes - zero points) * scales)^T, plus a bias; a is not quantised, whatever `accuracy_level` allows."""
    b, x = call.b, call.fact(0)
    n, k, bits, size = (call.attributes[name] for name in ("N", "K", "bits", "block_size"))
    if size < 16 or size & (size - 1) or n < 1 or k < 1:
        raise Unsupported(
            f"N = {n}, K = {k}, block_size = {size}: must be positive, the last a power of two from 16 on"
        )
    if call.optional(4) is not None:
        raise Unsupported("input 4, g_idx, which is deprecated, is given")
    if not x.rank or x.dtype not in _FLOATS or x.shape[-1] != k:
        raise Unsupported(f"input 0 is {x}, must be {' or '.join(map(str, _FLOATS))} [..., {k}]")
    blocks = -(-k // size)
    codes = _of_bytes(call, 1, (n, blocks, size * bits // 8)).reshape(n, -1)
    scale, given = b.transpose(_of_blocks(call, 2, (n, blocks)), (1, 0)), dict[str, str]()
    if call.optional(5) is not None:
        given["bias"] = b.reshape(call[5], (n,))
    if call.optional(3) is not None and call.fact(3).dtype is not dtypes.uint8:
        weight = _dequantised(call, _weight(call, codes, f"uint{bits}", k), scale, size)
        return (product(call, call[0], weight, given, Options(out_dtype=x.dtype)),)
    if call.optional(3) is None:  # a zero point in the middle: the same codes as signed integers
        weight = _weight(call, codes ^ np.uint8(_MIDDLE[bits]), f"int{bits}", k)
    else:
        weight = _weight(call, codes, f"uint{bits}", k)
        points = _apart(_of_bytes(call, 3, (n, -(-blocks * bits // 8))), bits)[:, :blocks]
        given["b_zero_point"] = b.transpose(b.constant(points), (1, 0))
    options = Options(b_group=Block(size), out_dtype=x.dtype)
    return (product(call, call[0], weight, {"b_scale": scale, **given}, options),)


_FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
# The highest bit of every code in a byte.
_MIDDLE = {2: 0xAA, 4: 0x88, 8: 0x80}


def _of_bytes(call: NodeCall, index: int, shape: Shape) -> Array:
    """Input `index` as bytes of that shape, of which the model may have fewer axes."""
    array = call.array(index)
    if array.dtype != np.uint8 or array.size != np.prod(shape):
        raise Unsupported(f"input {index} is {call.fact(index)}, must be uint8{list(shape)}")
    return array.reshape(shape)


def _of_blocks(call: NodeCall, index: int, shape: Shape) -> str:
    """Input `index` as one number a block, of which the model may have one axis."""
    fact = call.fact(index)
    if fact.shape not in (shape, (shape[0] * shape[1],)) or not fact.dtype.is_float:
        raise Unsupported(f"input {index} is {fact}, must be floats {list(shape)}")
    return call.b.reshape(call[index], shape)


def _weight(call: NodeCall, codes: Array, dtype: str, k: int) -> str:
    """Packed codes [N, bytes] as [K, N] elements of a format, without what fills the last block."""
    b, found = call.b, Tensor.from_any(np.ascontiguousarray(codes)).view(dtype)
    name = b.constant(found)
    return b.transpose(b.slice(name, (0, 0), (codes.shape[0], k), (1, 1)), (1, 0))


def _apart(packed: Array, bits: int) -> Array:
    """Codes of a byte each as bytes; the first of a byte lies lowest."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    codes = packed[..., None] >> places & np.uint8(2**bits - 1)
    return codes.reshape(packed.shape[0], -1)


def _dequantised(call: NodeCall, weight: str, scale: str, size: int) -> str:
    """(codes - zero points) * scales in float32, each step rounded, where zero points are floats."""
    b = call.b
    k, n = b.facts[weight].shape

    def spread(values: str) -> str:
        blocks, lines = b.facts[values].shape
        whole = b.expand(b.reshape(values, (blocks, 1, lines)), (blocks, size, lines))
        return b.slice(b.reshape(whole, (blocks * size, lines)), (0, 0), (k, n), (1, 1))

    points = b.transpose(_of_blocks(call, 3, (n, b.facts[scale].shape[0])), (1, 0))  # type: ignore[arg-type]
    points, scale = (call.converted(spread(x), dtypes.float32) for x in (points, scale))
    return b.apply("mul", b.apply("sub", call.converted(weight, dtypes.float32), points), scale)


ROWS: tuple[OnnxRow, ...] = (
    OnnxRow(
        "MatMulNBits",
        1,
        _matmul_nbits,
        (
            Attribute("K"),
            Attribute("N"),
            Attribute("accuracy_level", 0, allowed=(0, 1, 2, 3, 4)),
            Attribute("bits", 4, allowed=(2, 4, 8)),
            Attribute("block_size"),
            Attribute("weight_prepacked", 0, allowed=(0,)),
        ),
        inputs=6,
        until=1,
        domain=_DOMAIN,
        limits="`g_idx`, weights that are no constants, weights that are prepacked for a device",
    ),
)
