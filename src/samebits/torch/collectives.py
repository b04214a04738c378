"""Sums across processes in an order that their number does not change: `ordered_all_reduce`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from samebits.errors import OptionError
from samebits.torch.accumulate import joined
from samebits.torch.arguments import listed
from samebits.torch.operator import check_tensor

__all__ = ["ordered_all_reduce"]


@torch.no_grad()
def ordered_all_reduce(tensors: Iterable[Tensor], group: Any = None) -> None:
    """Each tensor becomes the sum over the processes of a group, joined by the tree of numerics.md section 2.

    Process r holds the r-th of as many neighbouring segments: partial products of a weight whose rows are split, or
    gradients of a part of the batch. Where each has joined S / W segments of its own, the result is that of one process
    with S. Partial sums are gathered and added by every process, so that no backend has a say in the order.

    Args:    tensors: floats on the host, the same shapes in each process; overwritten.   group: of torch.distributed;
             default all processes. Their number must be a power of two.
    Raises:  OptionError, DTypeError, LayoutError, DeviceError.
    """
    if not dist.is_initialized():
        expected, remedy = "one of torch.distributed", "call its init_process_group first"
        raise OptionError("ordered_all_reduce", "group", "", "none", expected, remedy)
    count = dist.get_world_size(group)
    if count.bit_count() != 1:
        remedy = "run on 1, 2, 4 or 8 processes"
        raise OptionError("ordered_all_reduce", "group", "size", count, "a power of two", remedy)
    for i, x in enumerate(listed("ordered_all_reduce", "tensors", tensors)):
        check_tensor("ordered_all_reduce", f"tensors[{i}]", x)
        given = x.detach().contiguous()
        parts = [torch.empty_like(given) for _ in range(count)]
        dist.all_gather(parts, given, group=group)
        x.copy_(joined(parts))
