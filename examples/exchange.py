"""A torch bfloat16 tensor seen from NumPy, and 4-bit floats as they lie in memory: no copy, no type lost."""

import ml_dtypes
import numpy as np
import torch

import samebits as sb


def main() -> None:
    """Print what each side sees of one memory."""
    t = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    x = sb.Tensor.from_any(t)
    transposed = x.T.numpy()
    t[0, 1] = 9  # written by torch, read by NumPy
    print(x.dtype, x.shape, "->", transposed.dtype, transposed.shape, "sees", transposed[1, 0])
    print("torch gets its own memory back:", x.torch().data_ptr() == t.data_ptr())

    halves = np.array([0.5, 1.5, -6.0], ml_dtypes.float4_e2m1fn)
    f = sb.Tensor.from_any(halves)
    print(f.dtype, "one element in", f.dtype.width_bits, "bits,", f.layout.storage, "as NumPy keeps it:", f.numpy())
    packed = sb.Tensor.from_bytes(b"\x21\x43\x65", f.dtype, (6,))
    print(packed.tolist(), "is to torch", packed.torch().dtype, "and to JAX", packed.jax().dtype)

    weights = sb.Tensor.zeros((2, 4), "float6_e2m3fn")  # no name in torch: its bytes, and what they are beside them
    crossing = weights.export("torch")
    print(crossing.dtype, "crosses as", tuple(crossing.bytes.shape), crossing.bytes.dtype)
    print("and comes back whole:", sb.Tensor.from_exported(crossing).equal_bits(weights))


if __name__ == "__main__":
    main()
