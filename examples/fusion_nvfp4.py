"""NVFP4 through one fusion: dequantise, normalise each row by its root mean square, scale, and quantise again."""

import numpy as np

import samebits as sb
from samebits.fusion import DataType, FusionDefinition

ROWS, COLUMNS = 64, 256


def define(fd: FusionDefinition) -> None:
    """Elements, scales of blocks and weights in; elements and scales out."""
    codes = fd.define_tensor(shape=[-1, COLUMNS], contiguity=True, dtype=DataType.Float4_e2m1fn)
    scales = fd.define_tensor(shape=[-1, COLUMNS // 16], contiguity=True, dtype=DataType.Float8_e4m3fn)
    weight = fd.define_tensor(shape=[COLUMNS], contiguity=True, dtype=DataType.Float)
    blocks = fd.ops.reshape(codes, [codes.size(0), COLUMNS // 16, 16])
    x = fd.ops.mul(fd.ops.cast(blocks, DataType.Float), fd.ops.broadcast(scales, [False, False, True]))
    x = fd.ops.reshape(x, [codes.size(0), COLUMNS])
    mean = fd.ops.div(fd.ops.sum(fd.ops.mul(x, x), [1], True), float(COLUMNS))
    y = fd.ops.mul(fd.ops.mul(x, fd.ops.rsqrt(fd.ops.add(mean, 1e-6))), weight)
    for made in fd.ops.nv_block_quantize(y):
        fd.add_output(made)


def main() -> None:
    """Print how many bytes went in and came out, and that the bits are those of NumPy."""
    rng = np.random.default_rng(0)
    x = sb.quantize(rng.standard_normal((ROWS, COLUMNS), np.float32), "nvfp4", global_scale=1.0)
    with FusionDefinition() as fd:
        define(fd)
    elements, scales = fd.validate([x.elements, x.scales, np.ones(COLUMNS, np.float32)])  # against NumPy, bit for bit
    print(x.elements.dtype, x.elements.shape, x.elements.nbytes + x.scales.nbytes, "bytes in")
    print(elements.dtype, elements.shape, elements.nbytes + scales.nbytes, "bytes out, the same bits as NumPy's")


if __name__ == "__main__":
    main()
