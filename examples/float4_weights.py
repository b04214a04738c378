"""Float4 weights from torch through JAX to NumPy: two elements a byte all the way, and the name never lost."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

import samebits as sb


def main() -> None:
    """Print what each library holds."""
    codes = torch.randint(0, 256, (64, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    weights = codes.view(torch.float4_e2m1fn_x2)  # the shape counts pairs, and torch computes nothing with them
    print("torch   ", weights.dtype, tuple(weights.shape), weights.nbytes, "bytes")

    t = sb.Tensor.from_any(weights)
    print("samebits", t.dtype, t.shape, "on torch's memory:", t.address == weights.data_ptr())

    x = t.jax()  # a copy, because JAX imports nothing so narrow
    print("JAX     ", x.dtype, x.shape, "on", jax.default_backend())
    row_sums = jnp.sum(x.astype(jnp.float32), axis=1)

    back = sb.Tensor.from_any(x)
    y = back.numpy(copy=True)  # a copy, because NumPy has no element of less than a byte
    print("NumPy   ", y.dtype, y.shape)
    assert y.dtype == ml_dtypes.float4_e2m1fn
    assert back.equal_bits(t)
    assert np.array_equal(y.astype(np.float32).sum(1), row_sums)

    name = sb.Tensor.from_any(y).dtype
    print("and back in torch:", sb.Tensor.from_any(x).torch(copy=True).dtype, "still", name)


if __name__ == "__main__":
    main()
