"""What a GPU's bulk copy engine (TMA, from compute capability 9.0 on) would refuse about a layout, without a GPU.

Start at `tma_violations`. The rules are those of cuTensorMapEncodeTiled
(https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html, CUDA 13.0), whose axes run from the
fastest to the slowest; here they are in the layout's order. The driver says only that a value is invalid; this
says which and what to do about it.

Driver 580.159 was asked the same on an H200, of compute capability 9.0. It also refuses boxes that are larger than the
shared memory, and inner ones of no multiple of 16 bytes with interleaving too: these are rules here. On that device it
takes none of 16U4_ALIGN8B to 16U6_ALIGN16B and of the swizzles 128B_ATOM_*. It takes swizzles other than 32B with
interleave 32B, which its documentation forbids, and counts of a box the whole steps alone: these stay rules.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, SupportsIndex

from samebits.errors import LayoutError, OptionError, message, shown
from samebits.frozen import dataclass
from samebits.layout.affine import Layout
from samebits.shapes import check_integers, check_type

__all__ = ["TmaViolation", "tma_violations"]

Swizzling = Literal["none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]
Interleave = Literal["none", "16B", "32B"]


@dataclass(frozen=True, slots=True)
class _Elements:
    """A row of what CUtensorMapDataType counts: width in global memory, bits each takes in shared memory."""

    width_bits: int
    shared_bits: int
    # Multiples that the innermost extent and, where given, exactly this innermost box must have.
    extent_unit: int = 1
    box: int | None = None
    # Bytes that address and strides must be multiples of.
    alignment: int = 16
    swizzles: tuple[str, ...] | None = None


_WIDE_SWIZZLES = ("none", "128B", "128B_ATOM_32B")
_TYPES = {
    **{f"{width}bit": _Elements(width, width) for width in (8, 16, 32, 64)},
    "16U4_ALIGN8B": _Elements(4, 4, extent_unit=2),
    "16U4_ALIGN16B": _Elements(4, 8, 128, 128, 32, _WIDE_SWIZZLES),
    "16U6_ALIGN16B": _Elements(6, 8, 128, 128, 32, (*_WIDE_SWIZZLES, "128B_ATOM_64B")),
}
_OF_WIDTH = {4: "16U4_ALIGN8B", 6: "16U6_ALIGN16B", 8: "8bit", 16: "16bit", 32: "32bit", 64: "64bit"}
_SWIZZLE_BYTES = {
    "none": 0,
    "32B": 32,
    "64B": 64,
    "128B": 128,
    "128B_ATOM_32B": 128,
    "128B_ATOM_32B_FLIP_8B": 128,
    "128B_ATOM_64B": 128,
}
_INTERLEAVES = ("none", "16B", "32B")
# Shared memory of a multiprocessor of compute capability 9.0 and 10.0.
_SHARED_BYTES = 228 << 10


@dataclass(frozen=True, slots=True)
class TmaViolation:
    """One rule that is broken: `<rule>: <operand> is <actual>, must be <expected>; <remedy>`.

    Attributes:
        rule: Its name: `rank`, `address`, `extent`, `stride`, `innermost`, `box`, `step`, `swizzle`, `interleave`,
            `width`, `storage`.
        operand: What breaks it: `axis 0 stride in bytes`.
        actual: What that is.
        expected: What would be accepted.
        remedy: The next thing to try.
    """

    rule: str
    operand: str
    actual: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return message(self.rule, self.operand, "", self.actual, self.expected, self.remedy)


def tma_violations(
    layout: Layout,
    box: Sequence[SupportsIndex],
    *,
    address: SupportsIndex = 0,
    steps: Sequence[SupportsIndex] | None = None,
    swizzle: Swizzling = "none",
    interleave: Interleave = "none",
    type: str | None = None,
) -> tuple[TmaViolation, ...]:
    """Every rule of a tiled tensor map that layout, box and modes break; empty if a map can be encoded.

    Args:
        layout: The tensor in global memory, slowest axis first.
        box: Extents of what one copy moves, one for each axis of the layout.
        address: Where the layout's buffer begins.
        steps: Steps from one element copied to the next along each axis; all 1 if left out.
        swizzle: Suffix of CU_TENSOR_MAP_SWIZZLE_.
        interleave: Suffix of CU_TENSOR_MAP_INTERLEAVE_.
        type: `8bit` to `64bit` for elements of whole bytes, `16U4_ALIGN8B`, `16U4_ALIGN16B` or `16U6_ALIGN16B`; if
            left out, by the layout's width, with `16U4_ALIGN8B` for 4 bits.

    Raises:
        LayoutError: box or steps are not one integer for each axis.
        OptionError: A mode or type is unknown.
    """
    check_type("tma_violations", "layout", layout, Layout, "pass the layout of a tensor")
    extents = _one_each("box", box, layout.ndim)
    moves = (1,) * layout.ndim if steps is None else _one_each("steps", steps, layout.ndim)
    (start,) = check_integers("tma_violations", "address", (address,))
    _check_option("swizzle", swizzle, tuple(_SWIZZLE_BYTES))
    _check_option("interleave", interleave, _INTERLEAVES)
    name = _OF_WIDTH.get(layout.width_bits) if type is None else type
    if name is None:
        widths = ", ".join(str(width) for width in _OF_WIDTH)
        return (TmaViolation("width", "layout width_bits", str(layout.width_bits), f"one of {widths}", "use repack"),)
    _check_option("type", name, tuple(_TYPES))
    elements = _TYPES[name]
    return (
        *_of_memory(layout, start, name, elements, interleave),
        *_of_box(extents, moves, elements),
        *_of_modes(extents, name, elements, swizzle, interleave),
    )


def _of_memory(
    layout: Layout, address: int, name: str, elements: _Elements, interleave: Interleave
) -> Iterator[TmaViolation]:
    """Rules about the tensor in global memory."""
    if layout.width_bits != elements.width_bits:
        actual, expected = str(layout.width_bits), f"{elements.width_bits} as in {name}"
        yield TmaViolation("width", "layout width_bits", actual, expected, "name another type or use repack")
    if layout.pitch_bits != layout.width_bits:
        yield TmaViolation("storage", "layout storage", "padded", "packed", "pack the elements first")
    fewest = 1 if interleave == "none" else 3
    if not fewest <= layout.ndim <= 5:
        remedy = "merge axes with coalesce" if layout.ndim > 5 else "use unsqueeze"
        yield TmaViolation("rank", "layout rank", str(layout.ndim), f"in [{fewest}, 5]", remedy)
    unit = 32 if interleave == "32B" else elements.alignment
    first = address * 8 + layout.offset_bits
    if first % (unit * 8):
        actual = f"{first // 8:#x}" + (f" and {first % 8} bits" if first % 8 else "")
        remedy = "slice at a multiple, or allocate aligned"
        yield TmaViolation("address", "address of element 0", actual, f"a multiple of {unit} bytes", remedy)
    last = layout.ndim - 1
    for axis, (extent, stride) in enumerate(zip(layout.shape, layout.strides_bits, strict=True)):
        if not 1 <= extent <= 1 << 32:
            remedy = "skip the copy" if extent < 1 else "split the axis"
            yield TmaViolation("extent", f"axis {axis} extent", str(extent), "in [1, 2**32]", remedy)
        if axis == last:
            if extent % elements.extent_unit:
                expected = f"a multiple of {elements.extent_unit} for {name}"
                yield TmaViolation("extent", f"axis {axis} extent", str(extent), expected, "pad the rows")
            if extent > 1 and stride != layout.width_bits:
                actual, expected = f"{stride} bits", f"{layout.width_bits} bits, one element"
                yield TmaViolation("innermost", f"axis {axis} stride", actual, expected, "permute or copy first")
        elif extent > 1 and (stride % (unit * 8) or not 0 <= stride < 1 << 43):
            # The stride of an axis of extent 1 is free, and an encoder picks one that is allowed.
            actual = str(stride // 8) if stride % 8 == 0 else f"{stride} bits"
            expected = f"a multiple of {unit} in [0, 2**40)"
            remedy = "use flip" if stride < 0 else "pad the rows" if stride % (unit * 8) else "use less"
            yield TmaViolation("stride", f"axis {axis} stride in bytes", actual, expected, remedy)


def _of_box(box: tuple[int, ...], steps: tuple[int, ...], elements: _Elements) -> Iterator[TmaViolation]:
    """Rules about what one copy moves."""
    last = len(box) - 1
    for axis, extent in enumerate(box):
        if not 1 <= extent <= 256:
            remedy = "copy at least one element" if extent < 1 else "use several copies"
            yield TmaViolation("box", f"axis {axis} box", str(extent), "in [1, 256]", remedy)
        # Of the innermost axis too, whose step is ignored without interleaving: the driver looks at it all the same.
        if not 1 <= steps[axis] <= 8:
            yield TmaViolation("step", f"axis {axis} step", str(steps[axis]), "in [1, 8]", "slice the layout instead")
    if not box:
        return
    # Every s-th element of an axis of step s.
    taken = math.prod(-(-extent // max(step, 1)) for extent, step in zip(box, steps, strict=True))
    size_bytes = taken * elements.shared_bits // 8
    if min(box) > 0 and size_bytes > _SHARED_BYTES:
        expected = f"at most {_SHARED_BYTES}, the shared memory of a multiprocessor"
        yield TmaViolation("box", "box in bytes", str(size_bytes), expected, "use several copies")
    if elements.box is not None and box[last] != elements.box:
        yield TmaViolation("box", f"axis {last} box", str(box[last]), f"{elements.box}", "use that, or 16U4_ALIGN8B")
    bits = box[last] * elements.shared_bits
    if bits % 128:
        expected = "a multiple of 16"
        remedy = f"use a multiple of {128 // elements.shared_bits} elements"
        yield TmaViolation("box", f"axis {last} box in bytes", f"{bits / 8:g}", expected, remedy)


def _of_modes(
    box: tuple[int, ...], name: str, elements: _Elements, swizzle: Swizzling, interleave: Interleave
) -> Iterator[TmaViolation]:
    """Rules about swizzle and interleave."""
    if interleave == "32B" and swizzle != "32B":
        yield TmaViolation("swizzle", "swizzle", swizzle, "32B with interleave 32B", "use that")
    if name == "16U6_ALIGN16B" and interleave != "none":
        yield TmaViolation("interleave", "interleave", interleave, f"none for {name}", "use that")
    if elements.swizzles is not None and swizzle not in elements.swizzles:
        yield TmaViolation(
            "swizzle", "swizzle", swizzle, f"one of {', '.join(elements.swizzles)} for {name}", "use one"
        )
    bits, limit = (box[-1] if box else 0) * elements.shared_bits, _SWIZZLE_BYTES[swizzle]
    if interleave == "none" and limit and bits > limit * 8:
        remedy = f"use at most {limit * 8 // elements.shared_bits} elements, or a wider swizzle"
        actual = f"{bits / 8:g}"
        yield TmaViolation("swizzle", f"axis {len(box) - 1} box in bytes", actual, f"at most {limit}", remedy)


def _one_each(name: str, values: Sequence[SupportsIndex], ndim: int) -> tuple[int, ...]:
    """The values as ints, one for each axis."""
    found = check_integers("tma_violations", name, values)
    if len(found) != ndim:
        raise LayoutError("tma_violations", name, "length", len(found), ndim, "give one for each axis")
    return found


def _check_option(name: str, value: object, known: tuple[str, ...]) -> None:
    """The value is one of those known."""
    if not isinstance(value, str) or value not in known:
        raise OptionError("tma_violations", name, "", shown(value), f"one of {', '.join(known)}", "name one")
