"""Eager random numbers: those of the node and of the reference, of the kind that was given, refused in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits import dtypes
from samebits.kernels import random
from samebits.kernels.random import Random
from samebits.operations.random import Drawn
from samebits.ops.call import WITHIN_FLOAT64
from samebits.program.builder import ProgramBuilder
from samebits.program.fold import fold_constants
from samebits.runtime import cpu, reference

ROWS = [row.name for row in rows.without_dots(rows.AVAILABLE)]
KINDS = [row.name for row in random.FORMATS]


def meant(name: str, kind: str, first: float, second: float, shape: tuple[int, ...], seed: int, offset: int) -> Any:
    given = [np.array(x, dtypes.of(kind).numpy) for x in (first, second)]
    return random.reference(Random(name, dtypes.of(kind)), shape, *given, seed, offset)  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", ROWS)
@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_a_call_is_the_node_and_the_reference(name: str, isa: str) -> None:
    for kind in KINDS:
        for shape, seed, offset in (((3, 70), 1, 0), ((), 2**64 - 1, 2**63 - 1), ((0, 2), 5, 1), ((1, 5), 0, 9)):
            due = meant(name, kind, -1.5, 3.7, shape, seed, offset)
            b, row = ProgramBuilder("one"), dtypes.of(kind)
            given = [b.scalar(x, row) for x in (-1.5, 3.7)]
            words = [b.constant(np.array(x, np.uint64)) for x in (seed, offset)]
            made = b.add("random", (*given, *words), Drawn(Random(name, row), shape))  # type: ignore[arg-type]
            program = b.build({"y": made[0]})
            with sb.use_isa(isa):
                found = getattr(sb, name)(-1.5, 3.7, shape, seed=seed, offset=offset, dtype=kind)
            for x in (found, cpu.prepare(program, isa=isa).run({})["y"], reference.run(program, {})["y"]):
                assert x.dtype == due.dtype
                assert x.shape == due.shape
                assert x.tobytes() == due.tobytes()


def test_like_is_of_the_kind_that_it_is_like() -> None:
    x = torch.zeros(5, 3, dtype=torch.bfloat16).T
    for function, name in ((sb.rand_like, "uniform"), (sb.randn_like, "normal")):
        found = function(x, seed=3, offset=8)
        assert type(found) is torch.Tensor
        assert found.dtype is torch.bfloat16
        due = meant(name, "bfloat16", 0.0, 1.0, (3, 5), 3, 8)
        assert found.view(torch.int16).numpy().tobytes() == due.tobytes()
    assert type(sb.rand_like(sb.Tensor.zeros((2, 2)), seed=1)) is sb.Tensor
    assert type(sb.uniform(0, 1, (2,), seed=1)) is np.ndarray


def test_they_are_written_where_they_are_wanted() -> None:
    out = np.zeros((8, 6), np.float32)[::-2, ::2]
    assert sb.normal(1, 2, (4, 3), seed=5, out=out) is out
    assert (out == sb.normal(1, 2, (4, 3), seed=5)).all()
    there = torch.zeros(4, 3)
    assert sb.uniform(-1, 1, [4, 3], seed=5, out=there) is there
    assert (there.numpy() == sb.uniform(-1, 1, (4, 3), seed=5)).all()


def test_any_number_of_threads_gives_the_same_bits() -> None:
    due = sb.normal(0, 1, (100_000,), seed=2, threads=1)
    for threads in (2, 5):
        assert (sb.normal(0, 1, (100_000,), seed=2, threads=threads) == due).all()


def test_a_part_is_that_of_the_whole() -> None:
    """An element follows from its index, so the first of many are the few."""
    whole = sb.uniform(0, 1, (1000,), seed=4, dtype="float64")
    assert (sb.uniform(0, 1, (10,), seed=4, dtype="float64") == whole[:10]).all()
    assert not (sb.uniform(0, 1, (10,), seed=4, offset=1, dtype="float64") == whole[:10]).any()


def test_bounds_are_numbers_of_the_dtype() -> None:
    found = sb.uniform(1.0, 1.001, (64,), seed=1, dtype="bfloat16")  # which both are 1
    assert (found == 1).all()


def test_numbers_of_constants_are_drawn_in_a_run() -> None:
    """They would take memory in the program, which can be as large as it likes."""
    b = ProgramBuilder("one")
    words = [b.constant(np.array(x, np.uint64)) for x in (1, 2)]
    unit = b.scalar(0.0, dtypes.float32), b.scalar(1.0, dtypes.float32)
    (made,) = b.add("random", (*unit, *words), Drawn(Random("uniform", dtypes.float32), (2, 2)))
    program = fold_constants(b.build({"y": b.apply("neg", made)}))
    assert [node.operation for node in program.nodes] == ["random", "map"]


WIDEST = "3.4028234663852886e+38"
REFUSED: list[tuple[Any, str]] = [
    (lambda: sb.uniform(0, 1, (2,), seed=-1), "uniform: seed is -1, must be an integer in [0, 2**64); pass seed=0"),
    (lambda: sb.normal(0, 1, (2,), seed=1.0), "normal: seed is 1.0, must be an integer in [0, 2**64); pass seed=0"),
    (lambda: sb.rand_like(np.ones(2), seed=True),
     "rand_like: seed is True, must be an integer in [0, 2**64); pass seed=0"),
    (lambda: sb.uniform(0, 1, (2,), seed=1, offset=1 << 63),
     "uniform: offset is 9223372036854775808, must be an integer in [0, 2**63); pass offset=0"),
    (lambda: sb.uniform(1, 0, (2,), seed=1),
     f"uniform: high is 0, must be within [low, low + {WIDEST}]; give the bounds in order, or halve both"),
    (lambda: sb.uniform(-3e38, 3e38, (2,), seed=1),
     f"uniform: high is 3e+38, must be within [low, low + {WIDEST}]; give the bounds in order, or halve both"),
    (lambda: sb.uniform(0, float("inf"), (2,), seed=1),
     "uniform: high is inf, must be a finite float32; pass another number"),
    (lambda: sb.uniform(0, 1e5, (2,), seed=1, dtype="float16"),
     "uniform: high is 100000.0, must be a finite float16; pass another number"),
    (lambda: sb.uniform(0, 10**400, (2,), seed=1),
     f"uniform: high is beyond float64, must be {WITHIN_FLOAT64}; pass a smaller one"),
    (lambda: sb.uniform("0", 1, (2,), seed=1), "uniform: low is '0', must be a number; pass a float"),
    (lambda: sb.normal(0, -1, (2,), seed=1), "normal: std is -1, must be at least 0; pass its magnitude"),
    (lambda: sb.uniform(0, 1, 3, seed=1), "uniform: shape is 3, must be a tuple of integers; write it as a tuple"),
    (lambda: sb.uniform(0, 1, (-1,), seed=1), "uniform: shape is (-1,), must be extents of at least 0; count elements"),
    (lambda: sb.uniform(0, 1, (2,), seed=1, dtype="float8_e5m2"),
     "uniform: dtype is float8_e5m2, must be float64 or float32 or float16 or bfloat16; make float32, and cast it"),
    (lambda: sb.rand_like(np.ones(2, np.int32), seed=1),
     "rand_like: x dtype is int32, must be float64 or float32 or float16 or bfloat16; convert it first"),
    (lambda: sb.uniform(0, 1, (2,), seed=1, out=np.ones(3, np.float32)),
     "uniform: out shape is (3,), must be (2,); pass an array of that shape"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_refusal_says_what_is_wrong(call: Any, sentence: str) -> None:
    with pytest.raises(sb.SamebitsError) as caught:
        call()
    assert str(caught.value) == sentence


def test_operands_of_a_node_are_numbers_of_its_dtype() -> None:
    b = ProgramBuilder("one")
    words = [b.constant(np.array(x, np.uint64)) for x in (1, 2)]
    unit = b.scalar(0.0, dtypes.float32), b.scalar(1.0, dtypes.float32)
    with pytest.raises(sb.DTypeError, match="random: operands dtypes"):
        b.add("random", (*unit, *words), Drawn(Random("uniform", dtypes.float64), (2, 2)))
    with pytest.raises(sb.DTypeError, match="random: dtype is int8"):
        b.add("random", (*unit, *words), Drawn(Random("uniform", dtypes.int8), (2, 2)))
    wide = b.constant(np.zeros(2, np.float32))
    with pytest.raises(sb.ShapeError, match=r"random: an operand shape is \(2,\)"):
        b.add("random", (unit[0], wide, *words), Drawn(Random("uniform", dtypes.float32), (2, 2)))
