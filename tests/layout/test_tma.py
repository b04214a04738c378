"""TMA rules, each broken alone; the numbers are those of cuTensorMapEncodeTiled's documentation."""

import pytest

from samebits.errors import LayoutError, OptionError
from samebits.layout import Layout, tma_violations


def matrix(*shape: int, width: int = 16) -> Layout:
    """A dense tensor."""
    return Layout.dense(shape, width_bits=width)


GOOD = {
    "a bfloat16 tile": lambda: tma_violations(matrix(4096, 4096), (128, 64), swizzle="128B"),
    "unswizzled rows of 512 bytes": lambda: tma_violations(matrix(64, 256), (64, 256)),
    "a column of one row, whose stride is free": lambda: tma_violations(matrix(1, 5), (1, 8)),
    "a box of steps": lambda: tma_violations(matrix(4, 512, 256), (4, 256, 256), steps=(2, 2, 2)),
    "the largest box": lambda: tma_violations(matrix(4, 512, 256), (2, 228, 256)),
    "five axes": lambda: tma_violations(matrix(2, 3, 4, 5, 8), (1, 1, 1, 1, 8), steps=(1, 1, 2, 4, 8)),
    "float4": lambda: tma_violations(matrix(64, 256, width=4), (64, 32)),
    "float4 with gaps": lambda: tma_violations(matrix(64, 256, width=4), (8, 128), type="16U4_ALIGN16B"),
    "float6": lambda: tma_violations(
        Layout((64, 128), (128 * 6, 6), 0, 6), (64, 128), swizzle="128B_ATOM_64B", address=64
    ),
    "an aligned slice": lambda: tma_violations(matrix(64, 64)[8:, 8:40], (8, 8), address=4096),
    "repeated rows": lambda: tma_violations(matrix(1, 64).broadcast_to((9, 64)), (8, 8)),
    "NC/8HWC8": lambda: tma_violations(matrix(2, 8, 8, 8), (1, 4, 4, 8), interleave="16B"),
    "NC/16HWC16": lambda: tma_violations(matrix(2, 8, 8, 16), (1, 4, 4, 16), interleave="32B", swizzle="32B"),
}

BAD = {
    "rank: layout rank is 6, must be in [1, 5]; merge axes with coalesce": lambda: tma_violations(
        matrix(2, 2, 2, 2, 2, 8), (1, 1, 1, 1, 1, 8)
    ),
    "rank: layout rank is 0, must be in [1, 5]; use unsqueeze": lambda: tma_violations(matrix(), ()),
    "rank: layout rank is 2, must be in [3, 5]; use unsqueeze": lambda: tma_violations(
        matrix(8, 8), (8, 8), interleave="16B"
    ),
    "address: address of element 0 is 0x8, must be a multiple of 16 bytes; slice at a multiple, or allocate aligned": (
        lambda: tma_violations(matrix(8, 64), (8, 8), address=8)
    ),
    "address: address of element 0 is 0x2, must be a multiple of 16 bytes; slice at a multiple, or allocate aligned": (
        lambda: tma_violations(matrix(8, 64)[:, 1:], (8, 8))
    ),
    "address: address of element 0 is 0x0 and 4 bits, must be a multiple of 16 bytes; "
    "slice at a multiple, or allocate aligned": lambda: tma_violations(matrix(8, 64, width=4)[:, 1:63], (8, 32)),
    "address: address of element 0 is 0x10, must be a multiple of 32 bytes; slice at a multiple, or allocate aligned": (
        lambda: tma_violations(matrix(4, 8, 16), (4, 8, 16), interleave="32B", swizzle="32B", address=16)
    ),
    "extent: axis 0 extent is 0, must be in [1, 2**32]; skip the copy": lambda: tma_violations(
        Layout((0, 8), (128, 16), 0, 16), (8, 8)
    ),
    f"extent: axis 0 extent is {2**32 + 1}, must be in [1, 2**32]; split the axis": lambda: tma_violations(
        matrix(2**32 + 1), (8,)
    ),
    "extent: axis 1 extent is 192, must be a multiple of 128 for 16U4_ALIGN16B; pad the rows": lambda: tma_violations(
        matrix(8, 192, width=4), (8, 128), type="16U4_ALIGN16B"
    ),
    "extent: axis 0 extent is 33, must be a multiple of 2 for 16U4_ALIGN8B; pad the rows": lambda: tma_violations(
        matrix(33, width=4), (32,)
    ),
    "innermost: axis 1 stride is 128 bits, must be 16 bits, one element; permute or copy first": lambda: tma_violations(
        matrix(8, 8).permute((1, 0))[:1], (1, 8)
    ),
    "stride: axis 0 stride in bytes is 10, must be a multiple of 16 in [0, 2**40); pad the rows": lambda: (
        tma_violations(matrix(8, 5), (8, 8))
    ),
    "stride: axis 0 stride in bytes is 36 bits, must be a multiple of 16 in [0, 2**40); pad the rows": lambda: (
        tma_violations(Layout((8, 8), (36, 4), 0, 4), (8, 32))
    ),
    "stride: axis 0 stride in bytes is 48, must be a multiple of 32 in [0, 2**40); pad the rows": lambda: (
        tma_violations(Layout((8, 8, 16), (48 * 8, 256, 16), 0, 16), (4, 4, 16), interleave="32B", swizzle="32B")
    ),
    "stride: axis 0 stride in bytes is -16, must be a multiple of 16 in [0, 2**40); use flip": lambda: tma_violations(
        matrix(8, 8).flip(0), (8, 8)
    ),
    f"stride: axis 0 stride in bytes is {2**40}, must be a multiple of 16 in [0, 2**40); use less": lambda: (
        tma_violations(Layout((2, 8), (2**43, 16), 0, 16), (1, 8))
    ),
    "box: axis 0 box is 257, must be in [1, 256]; use several copies": lambda: tma_violations(
        matrix(512, 64), (257, 8)
    ),
    "box: axis 0 box is 0, must be in [1, 256]; copy at least one element": lambda: tma_violations(
        matrix(512, 64), (0, 8)
    ),
    "box: axis 1 box in bytes is 24, must be a multiple of 16; use a multiple of 8 elements": lambda: tma_violations(
        matrix(512, 64), (8, 12)
    ),
    "box: axis 1 box in bytes is 8, must be a multiple of 16; use a multiple of 32 elements": lambda: tma_violations(
        matrix(512, 64, width=4), (8, 16)
    ),
    "box: axis 1 box is 64, must be 128; use that, or 16U4_ALIGN8B": lambda: tma_violations(
        matrix(8, 256, width=4), (8, 64), type="16U4_ALIGN16B"
    ),
    "box: axis 2 box in bytes is 28, must be a multiple of 16; use a multiple of 4 elements": lambda: tma_violations(
        matrix(2, 3, 64, width=32), (1, 1, 7), interleave="16B"
    ),
    "box: box in bytes is 262144, must be at most 233472, the shared memory of a multiprocessor; use several copies": (
        lambda: tma_violations(matrix(4, 512, 256), (2, 256, 256))
    ),
    "step: axis 0 step is 9, must be in [1, 8]; slice the layout instead": lambda: tma_violations(
        matrix(512, 64), (8, 8), steps=(9, 1)
    ),
    "step: axis 1 step is 9, must be in [1, 8]; slice the layout instead": lambda: tma_violations(
        matrix(512, 64), (8, 8), steps=(1, 9)
    ),
    "step: axis 2 step is 0, must be in [1, 8]; slice the layout instead": lambda: tma_violations(
        matrix(8, 8, 8), (8, 8, 8), steps=(1, 1, 0), interleave="16B"
    ),
    "swizzle: axis 1 box in bytes is 80, must be at most 64; use at most 32 elements, or a wider swizzle": lambda: (
        tma_violations(matrix(512, 64), (8, 40), swizzle="64B")
    ),
    "swizzle: swizzle is 128B, must be 32B with interleave 32B; use that": lambda: tma_violations(
        matrix(8, 8, 16), (8, 8, 16), interleave="32B", swizzle="128B"
    ),
    "swizzle: swizzle is 64B, must be one of none, 128B, 128B_ATOM_32B for 16U4_ALIGN16B; use one": lambda: [
        found
        for found in tma_violations(matrix(8, 128, width=4), (8, 128), type="16U4_ALIGN16B", swizzle="64B")
        if "box" not in found.operand
    ],
    "interleave: interleave is 16B, must be none for 16U6_ALIGN16B; use that": lambda: tma_violations(
        Layout.dense((4, 8, 128), width_bits=6), (4, 8, 128), interleave="16B"
    ),
    "width: layout width_bits is 12, must be one of 4, 6, 8, 16, 32, 64; use repack": lambda: tma_violations(
        matrix(8, 8, width=12), (8, 8)
    ),
    "width: layout width_bits is 16, must be 32 as in 32bit; name another type or use repack": lambda: tma_violations(
        matrix(8, 64), (8, 8), type="32bit"
    ),
    "storage: layout storage is padded, must be packed; pack the elements first": lambda: [
        found
        for found in tma_violations(Layout.dense((8, 64), width_bits=4, storage="padded"), (8, 32))
        if found.rule != "innermost"
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_the_rules_allow_has_no_violation(name: str) -> None:
    assert GOOD[name]() == ()


@pytest.mark.parametrize("text", BAD)
def test_each_broken_rule_is_named(text: str) -> None:
    assert [str(found) for found in BAD[text]()] == [text]


def test_every_broken_rule_is_listed() -> None:
    found = tma_violations(matrix(8, 5)[:, 1:], (300, 7), address=1, steps=(0, 1), swizzle="32B")
    assert [violation.rule for violation in found] == ["address", "stride", "box", "step", "box"]


def test_arguments_that_mean_nothing_are_refused() -> None:
    with pytest.raises(LayoutError) as box:
        tma_violations(matrix(8, 8), (8,))
    assert str(box.value) == "tma_violations: box length is 1, must be 2; give one for each axis"
    with pytest.raises(OptionError) as swizzle:
        tma_violations(matrix(8, 8), (8, 8), swizzle="16B")
    assert str(swizzle.value).startswith("tma_violations: swizzle is '16B', must be one of none, 32B, 64B, 128B,")
    with pytest.raises(OptionError):
        tma_violations(matrix(8, 8), (8, 8), type="bfloat16")
