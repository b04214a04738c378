"""An int8 layer: activations are quantised by row on the way in, weights by column, results exactly on the way out.

Run: `python examples/int8_layer.py`.
"""

import numpy as np

import samebits as sb

rng = np.random.default_rng(0)
x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((8, 256), (256, 64)))
w_scale = np.abs(w).max(axis=0) / np.float32(127)
weights = np.rint(w / w_scale).astype(np.int8)
x_scale = np.abs(x).max(axis=1) / np.float32(127)

y = sb.matmul(x, weights, a_dtype="int8", a_scale=x_scale, b_scale=w_scale)
error = np.abs(y - x @ w).max() / np.abs(y).max()
print(f"{y.dtype}, largest error {error:.2%} of the largest result")

# A scale for each row keeps a row's answer apart from its batch.
for row, scale, due in zip(x, x_scale, y, strict=True):
    assert np.array_equal(sb.matmul(row, weights, a_dtype="int8", a_scale=scale, b_scale=w_scale), due)

# The rational sum * a_scale * b_scale / out_scale rounds once, which float32 arithmetic gets wrong near ties.
z = sb.matmul(x, weights, a_dtype="int8", a_scale=x_scale, b_scale=w_scale, out_scale=0.5, out_zero_point=3)
packed = sb.matmul(
    x, sb.pack(weights), a_dtype="int8", a_scale=x_scale, b_scale=w_scale, out_scale=0.5, out_zero_point=3, threads=2
)
assert z.dtype == np.int8
assert np.array_equal(z, packed)
print(f"int8 from {z.min()} to {z.max()}, the same from packed weights and with two threads")
