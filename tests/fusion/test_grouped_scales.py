"""Scales of groups in tiles: an index formula, torch's undoing of tiles and `scale_tiles` of each group alone agree."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits.codegen.isa import Isa
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition
from samebits.fusion.cache import key_of

INT = DataType.Int32
# Rows in all, scales a row, and where groups start; some are empty, some whole tiles.
CASES = ((512, 9, [0, 100, 250]), (300, 4, [0, 0, 128, 128, 299]), (7, 1, [0]), (0, 5, [0, 0]), (256, 8, [0, 256]))


def places(starts: list[int], m: int) -> list[int]:
    found = [0]
    for start, end in zip(starts, [*starts[1:], m], strict=True):
        found.append(found[-1] + -(-(end - start) // 128) * 128)
    return found[:-1]


def laid(x: Any, starts: list[int]) -> Any:
    """Each element where block-scaled tensor cores look for it."""
    (m, k), g = x.shape, len(starts)
    wide, at = -(-k // 4) * 4, places(starts, m)
    out = np.zeros((m + 127 * g) // 128 * 128 * wide, x.dtype)
    for group, (start, end) in enumerate(zip(starts, [*starts[1:], m], strict=True)):
        row, column = np.ogrid[: end - start, :k]
        place = row // 128 * 128 * wide + column // 4 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
        out[at[group] * wide + place] = x[start:end]
    return out.reshape(-1, wide)


def defined(kind: DataType, offsets: DataType = INT) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=kind)
        starts, at = (fd.define_tensor([-1], contiguity=True, dtype=offsets) for _ in range(2))
        fd.add_output(fd.ops.preprocess_grouped_matmul_input_sf(x, starts, at))
    return fd


def quantising(**options: Any) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        starts, at = (fd.define_tensor([-1], contiguity=True, dtype=INT) for _ in range(2))
        for made in fd.ops.nv_grouped_block_quantize(x, starts, at, **options):
            fd.add_output(made)
    return fd


@rows.in_turn("isa, kind", ("float32", "float8_e4m3fn", "float8_e8m0fnu"), 0, among=rows.AVAILABLE)
def test_each_scale_lies_where_it_is_looked_for(isa: Isa, kind: str) -> None:
    names = {"float32": "Float", "float8_e4m3fn": "Float8_e4m3fn", "float8_e8m0fnu": "Float8_e8m0fnu"}
    fd = defined(DataType[names[kind]])
    for m, k, starts in CASES if isa.compiled else CASES[2:4]:
        codes = np.random.default_rng(m).integers(1, 120, (m, k))
        x = codes.astype(np.float32) if kind == "float32" else codes.astype(np.uint8).view(kind)
        given = [np.array(each, np.int32) for each in (starts, places(starts, m))]
        with sb.use_isa(isa):
            (found,) = fd.validate([x, *given])
        due = laid(x if kind == "float32" else x.view(np.uint8), starts)
        assert found.shape == due.shape
        assert found.tobytes() == due.tobytes(), (m, k, starts)
    assert fd.fec is not None
    assert len(fd.fec._sessions) == 1


def test_tiles_are_undone_by_torch() -> None:
    m, k, starts = CASES[0]
    x = torch.arange(m * k, dtype=torch.float32).reshape(m, k)
    at = places(starts, m)
    (found,) = defined(DataType.Float, DataType.Int).execute([x, torch.tensor(starts), torch.tensor(at)])
    for start, end, place in zip(starts, [*starts[1:], m], at, strict=True):
        down = -(-(end - start) // 128)
        tiles = found[place : place + down * 128].reshape(down, 3, 32, 4, 4)
        assert torch.equal(tiles.permute(0, 3, 2, 1, 4).reshape(down * 128, 12)[: end - start, :k], x[start:end])


def test_groups_are_quantised_as_each_alone() -> None:
    m, _, starts = CASES[1]
    x = torch.randn(m, 96, generator=torch.Generator().manual_seed(1)).bfloat16()
    g = torch.tensor(3.5)
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        first, at = (fd.define_tensor([-1], contiguity=True, dtype=INT) for _ in range(2))
        scale = fd.define_tensor([], contiguity=True)
        elements, scales = fd.ops.nv_grouped_block_quantize(given, first, at, scale)
        alone, plain = fd.ops.nv_block_quantize(given, scale)
        for made in (elements, scales, alone, fd.ops.preprocess_grouped_matmul_input_sf(plain, first, at)):
            fd.add_output(made)
    ends, where = [*starts[1:], m], places(starts, m)
    offsets = [torch.tensor(each, dtype=torch.int32) for each in (starts, where)]
    elements, scales, alone, by_hand = fd.validate([x, *offsets, g])
    assert elements.dtype is torch.float4_e2m1fn_x2
    assert torch.equal(elements.view(torch.uint8), alone.view(torch.uint8))
    assert torch.equal(scales.view(torch.uint8), by_hand.view(torch.uint8))
    for start, end, place in zip(starts, ends, where, strict=True):
        if end > start:
            alone = sb.quantize(x[start:end], "nvfp4", dialect="nvfp4/nvfuser-0.2", global_scale=np.float32(3.5))
            due = alone.scale_tiles().view("uint8").numpy().tobytes()
            down = -(-(end - start) // 128) * 128
            assert scales[place : place + down].view(torch.uint8).numpy().tobytes() == due


def test_without_a_global_scale_it_is_one() -> None:
    x, offsets = np.full((3, 32), 6, ml_dtypes.bfloat16), [np.array([0], np.int32)] * 2
    elements, scales = quantising().validate([x, *offsets])
    assert scales.shape == (128, 4)
    assert scales[:1, :2].astype(np.float32).tolist() == [[1, 1]]
    assert elements.astype(np.float32).tolist() == [[6] * 32] * 3


def test_the_text_defines_it_again() -> None:
    for fd in (defined(DataType.Float), quantising()):
        space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
        exec(repr(fd), space)
        with FusionDefinition() as again:
            space["nvfuser_fusion"](again)
        assert key_of(fd.fusion) == key_of(again.fusion)


ASCENDING = "must be ascending from 0 on, at most 7; give where each group starts"
TILED = "where groups start that take whole tiles of 128 rows; give these"


@pytest.mark.parametrize(("starts", "at", "sentence"), [
    ([0, 4, 3], [0, 128, 256], f"input 1 is [0, 4, 3], {ASCENDING}"),
    ([1, 4, 5], [0, 128, 256], f"input 1 is [1, 4, 5], {ASCENDING}"),
    ([0, 4, 8], [0, 128, 256], f"input 1 is [0, 4, 8], {ASCENDING}"),
    ([], [], f"input 1 is [], {ASCENDING}"),
    ([0, 4, 4], [0, 128, 256],
     f"input 2 is [0, 128, 256], must be [0, 128, 128], {TILED}"),
    ([0, 4], [0, 128, 128],
     "input 2 extent 0 is 3, must be 2 as extent 0 of input 1; pass tensors of extents that fit"),
], ids=str)  # fmt: skip
def test_groups_that_do_not_follow_one_another_are_refused(starts: list[int], at: list[int], sentence: str) -> None:
    x, right = np.ones((7, 3), np.float32), [np.array(each, np.int32) for each in ([0, 2, 4], [0, 128, 256])]
    fd = defined(DataType.Float)
    for _ in range(2):
        with pytest.raises(FusionError) as caught:
            fd.execute([x, *(np.array(each, np.int32) for each in (starts, at))])
        assert str(caught.value) == f"execute: {sentence}"
        fd.execute([x, *right])


SCALES, QUANTISED = "preprocess_grouped_matmul_input_sf", "nv_grouped_block_quantize"
COMPUTED = "compute it before, as a run must know its groups when it starts"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (SCALES, {"input": "v"}, "input rank is 1, must be 2; reshape it"),
    (SCALES, {"input": "i"},
     "input dtype is DataType.Int32, must be a float format of 8 bits or more; cast it first"),
    (SCALES, {"input": 3}, "input is int, must be a tensor of the fusion; define it by define_tensor"),
    (SCALES, {"input_offsets": "x"}, "input_offsets rank is 2, must be 1; reshape it"),
    (SCALES, {"output_offsets": "v"},
     "output_offsets dtype is DataType.Float, must be Int32 or Int; cast them before the run"),
    (SCALES, {"output_offsets": "sum"}, f"output_offsets is what the fusion computes, must be an input; {COMPUTED}"),
    (SCALES, {"output_offsets": "four"},
     "output_offsets extent 0 is 4, must be 3 as extent 0 of input_offsets; give one number for each group"),
    (QUANTISED, {"input": "v"}, "input rank is 1, must be 2; reshape it to a matrix"),
    (QUANTISED, {"input": "i"}, "input dtype is DataType.Int32, must be Float, BFloat16 or Half; cast it first"),
    (QUANTISED, {"input": "x"}, "input last extent is 24, must be a multiple of 16; pad it with zeros first"),
    (QUANTISED, {"global_scale": "v"},
     "global_scale is DataType.Float of rank 1, must be DataType.Float of rank 0; cast it, and squeeze it"),
    (QUANTISED, {"block_size": 32}, "block_size is 32, must be 16, that of NVFP4; leave it out"),
    (QUANTISED, {"dtype": DataType.Float8_e4m3fn},
     "dtype is DataType.Float8_e4m3fn, must be DataType.Float4_e2m1fn; leave it out, or quantise by samebits.quantize"),
    (QUANTISED, {"input_offsets": "sum"}, f"input_offsets is what the fusion computes, must be an input; {COMPUTED}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "options", "sentence"), REFUSED, ids=[sentence for _, _, sentence in REFUSED])
def test_a_refusal_says_what_is_wrong(call: str, options: dict[str, Any], sentence: str) -> None:
    with FusionDefinition() as fd:
        shapes = {"x": ([-1, 24], DataType.Float), "y": ([-1, 32], DataType.Float), "v": ([-1], DataType.Float),
                  "i": ([-1, 32], INT), "three": ([3], INT), "four": ([4], INT)}  # fmt: skip
        named = {name: fd.define_tensor(shape, contiguity=True, dtype=kind) for name, (shape, kind) in shapes.items()}
        named["sum"] = fd.ops.cast(fd.ops.cumsum(named["three"], 0), INT)
        given = {"input": "y", "input_offsets": "three", "output_offsets": "three"} | options
        with pytest.raises(FusionError) as caught:
            getattr(fd.ops, call)(**{name: named.get(x, x) for name, x in given.items()})
    assert str(caught.value) == f"{call}: {sentence}"
