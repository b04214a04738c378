"""MX scales in the tiles that tensor cores read: where each one lies, and moving them there with NumPy."""

import numpy as np

import samebits as sb
from samebits.layout import TiledLayout, coalesce, tma_violations


def main() -> None:
    """Pack one scale for each 32 elements of a 256 x 512 matrix."""
    rows, columns, block = 256, 512, 32
    scales = np.arange(rows * columns // block, dtype=np.uint8).reshape(rows, columns // block)

    tiles = TiledLayout.scales_128x4(*scales.shape)
    of_elements = TiledLayout.scales_128x4(rows, columns, block=block)
    print("scale (130, 5) is byte", tiles.element(130, 5), "of", tiles.required_bytes)
    print("element (130, 170) finds it there:", of_elements.element(130, 170) == tiles.element(130, 5))

    # One stride for each piece of an axis: a view that NumPy can write through.
    view = tiles.affine()
    stored = np.zeros(tiles.required_bytes, np.uint8)
    np.ndarray(view.shape, np.uint8, stored, strides=view.strides_bytes)[...] = scales.reshape(view.shape)
    print("axes", view.shape, "by strides", view.strides, "unique:", view.is_unique())
    print("stored there:", stored[tiles.element(130, 5)] == scales[130, 5])

    a = sb.Layout.dense((64, 1, 96), width_bits=4)
    print("packed float4 coalesces to", coalesce([a])[0].shape, "and", a.max_vector_bits(), "bits are read at once")
    for violation in tma_violations(a.squeeze()[:, 1:], (64, 32)):
        print("TMA:", violation)


if __name__ == "__main__":
    main()
