"""How NumPy, ml_dtypes, torch and JAX make, read, take and give: the functions of their rows in `frameworks`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import dtypes
from samebits.doctor.framework import CannotHold, Held, codes_in, row_of
from samebits.doctor.witness import Codes, aligned, pack, unpack
from samebits.dtypes import DType
from samebits.ops import move
from samebits.tensor import Tensor

# NumPy, with its own dtypes and with those of ml_dtypes.


def make_array(dtype: DType, codes: Codes, builtin: bool) -> NDArray[Any]:
    if dtype.numpy is None or (dtype.numpy.isbuiltin == 1) != builtin:
        raise CannotHold
    if dtype.kind == "int" and dtype.width_bits < 8:  # ml_dtypes keeps the sign in the bits above
        sign = 1 << (dtype.width_bits - 1)
        codes = ((codes ^ sign).astype(np.int8) - sign).view(np.uint8)
    return aligned(codes).view(dtype.numpy)


def make_own(module: Any, dtype: DType, codes: Codes) -> NDArray[Any]:
    return make_array(dtype, codes, True)


def make_added(module: Any, dtype: DType, codes: Codes) -> NDArray[Any]:
    return make_array(dtype, codes, False)


def read_array(module: Any, x: NDArray[Any]) -> Held:
    dtype = row_of(x.dtype.name)
    codes = codes_in(x, dtype) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, x.dtype.name, x.shape, codes, x.ctypes.data)


def take_array(module: Any, tensor: Tensor, copy: bool) -> NDArray[Any]:
    return tensor.numpy(copy=copy)


# torch: an element of its float4 dtype is a pair, and shapes count pairs.

_PAIRS = "float4_e2m1fn_x2"


def make_torch(torch: Any, dtype: DType, codes: Codes) -> Any:
    named = getattr(torch, _PAIRS if dtype is dtypes.float4_e2m1fn else dtype.name, None)
    if named is None:
        raise CannotHold
    if dtype is dtypes.float4_e2m1fn:
        codes = pack(codes, 4).reshape(*codes.shape[:-1], -1)
    return torch.from_numpy(aligned(codes).view(np.uint8)).view(named)


def read_torch(torch: Any, x: Any) -> Held:
    called = str(x.dtype).removeprefix("torch.")
    dtype = row_of(called.removesuffix("_x2"))
    raw = x.contiguous().view(torch.uint8).numpy()
    if called == _PAIRS:
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        return Held(dtype, called, shape, unpack(raw, 4, shape), x.data_ptr())
    return Held(dtype, called, tuple(x.shape), codes_in(raw, dtype) if dtype else raw, x.data_ptr())


def take_torch(torch: Any, tensor: Tensor, copy: bool) -> Any:
    return tensor.torch(copy=copy)


def give_torch(torch: Any, x: Any) -> Tensor:
    """What torch leaves open is said by us: a byte an element."""
    dtype = str(x.dtype).removeprefix("torch.")
    return Tensor.from_buffer(x.view(torch.uint8), dtype, x.shape, storage="padded")


def put_torch(torch: Any, tensor: Tensor) -> Any:
    if tensor.dtype is dtypes.float4_e2m1fn:  # elements of one byte, which torch wants in pairs
        return move.to_packed(tensor).torch()
    codes = tensor.numpy(copy=tensor.layout.storage == "packed").view(np.uint8)
    return torch.from_numpy(codes).view(getattr(torch, tensor.dtype.name))


# JAX


def prepare_jax(module: Any) -> None:
    """Without this JAX makes 32 bits of 64."""
    module.config.update("jax_enable_x64", True)


def make_jax(jax: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None:
        raise CannotHold
    try:
        made = jax.numpy.asarray(make_array(dtype, codes, dtype.numpy.isbuiltin == 1)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:  # XLA's CPU has no such type
        raise CannotHold from error
    if made.dtype != dtype.numpy:
        raise CannotHold
    return made


def read_jax(jax: Any, x: Any) -> Held:
    held = read_array(None, np.asarray(x))
    return Held(held.dtype, x.dtype.name, x.shape, held.codes, x.unsafe_buffer_pointer())


def take_jax(jax: Any, tensor: Tensor, copy: bool) -> Any:
    return tensor.jax(copy=copy)


def give_jax(jax: Any, x: Any) -> Tensor:
    return Tensor.from_any(np.asarray(x))


def put_jax(jax: Any, tensor: Tensor) -> Any:
    return jax.numpy.asarray(tensor.numpy(copy=True))
