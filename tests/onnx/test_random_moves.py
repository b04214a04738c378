"""Random models that only move elements give NumPy's bits, on the reference and in a session; empty ones too."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import protos
import pytest
from onnx import ModelProto, NodeProto, helper

from samebits import onnx
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, Any]
EXTENTS = (0, 1, 1, 2, 2, 3, 4, 6)
TYPES = (np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_)
LARGEST = 2000


class Moves:
    """A model under construction, and beside each of its values what NumPy makes of the same moves."""

    def __init__(self, seed: int, dtype: Any = None) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        kind = self.choice(TYPES) if dtype is None else dtype
        for name in ("x", "z"):
            shape = tuple(int(self.choice(EXTENTS)) for _ in range(self.random.integers(0, 5)))
            # Small integers: whatever is added up of them is exact.
            self.values[name] = self.random.integers(0 if kind in (np.uint8, np.bool_) else -9, 10, shape).astype(kind)
        self.feed = dict(self.values)

    def choice(self, among: Any) -> Any:
        return among[int(self.random.integers(len(among)))]

    def pick(self) -> tuple[str, Array]:
        name = self.choice(list(self.values))
        return name, self.values[name]

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def add(self, op: str, inputs: list[str], made: Array, **attributes: Any) -> None:
        if made.size > LARGEST or made.ndim > 6:
            return
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.values[name] = made

    def bounds(self, extent: int) -> slice:
        """A slice along an axis, often of nothing."""
        step = int(self.choice((1, 1, 1, 2, 3, -1, -2)))
        start, stop = (int(self.random.integers(-extent - 1, extent + 2)) for _ in range(2))
        return slice(start, stop, step)

    # -- one step each ------------------------------------------------------------------------------------------
    def reshape(self) -> None:
        name, x = self.pick()
        shape, rest = [], x.size
        for _ in range(int(self.random.integers(0, 4))):
            divisors = [d for d in range(1, 13) if rest % d == 0] if rest else list(EXTENTS)
            shape.append(int(self.choice(divisors)))
            rest = rest // shape[-1] if rest else 0
        if x.size:
            shape.append(rest)
        elif 0 not in shape:
            shape.append(0)
        order = self.random.permutation(len(shape))
        shape = [shape[i] for i in order]
        self.add("Reshape", [name, self.constant(shape)], x.reshape(shape), allowzero=1)

    def open_reshape(self) -> None:
        name, x = self.pick()
        at = int(self.random.integers(0, x.ndim + 1))
        if x.size:
            shape = (*x.shape[:at], -1)
            self.add("Reshape", [name, self.constant([*[0] * at, -1])], x.reshape(shape))

    def transpose(self) -> None:
        name, x = self.pick()
        order = [int(axis) for axis in self.random.permutation(x.ndim)]
        self.add("Transpose", [name], x.transpose(order), **({"perm": order} if order else {}))

    def slice(self) -> None:
        name, x = self.pick()
        if not x.ndim:
            return
        axes = self.random.permutation(x.ndim)[: int(self.random.integers(1, x.ndim + 1))]
        cuts = {int(axis): self.bounds(x.shape[axis]) for axis in axes}
        made = x
        for axis, cut in cuts.items():
            # ONNX clamps an end before the first element to "all of it" where the step is backwards, as -extent - 1 is.
            places = range(x.shape[axis])[cut]
            if cut.step < 0 and cut.stop < -x.shape[axis]:
                places = range(x.shape[axis])[cut.start :: cut.step]
            made = made.take(list(places), axis)
        bounds = [[getattr(cut, word) for cut in cuts.values()] for word in ("start", "stop")]
        steps = [cut.step for cut in cuts.values()]
        operands = [*bounds, list(cuts), steps]
        self.add("Slice", [name, *map(self.constant, operands)], made)

    def concat(self) -> None:
        name, x = self.pick()
        if not x.ndim:
            return
        axis = int(self.random.integers(x.ndim))
        rest = [n for i, n in enumerate(x.shape) if i != axis]
        alike = [
            other
            for other, y in self.values.items()
            if y.ndim == x.ndim and [n for i, n in enumerate(y.shape) if i != axis] == rest
        ]
        names = [name, *[self.choice(alike) for _ in range(int(self.random.integers(0, 3)))]]
        self.add("Concat", names, np.concatenate([self.values[each] for each in names], axis), axis=axis - x.ndim)

    def squeeze(self) -> None:
        name, x = self.pick()
        axes = [axis for axis, extent in enumerate(x.shape) if extent == 1 and self.random.random() < 0.7]
        self.add("Squeeze", [name, self.constant(axes)], x.squeeze(tuple(axes)))

    def unsqueeze(self) -> None:
        name, x = self.pick()
        axis = int(self.random.integers(-x.ndim - 1, x.ndim + 1))
        self.add("Unsqueeze", [name, self.constant([axis])], np.expand_dims(x, axis))

    def expand(self) -> None:
        name, x = self.pick()
        more = [int(self.choice(EXTENTS)) for _ in range(int(self.random.integers(0, 2)))]
        shape = (*more, *[int(self.choice(EXTENTS)) if extent == 1 else extent for extent in x.shape])
        self.add("Expand", [name, self.constant(shape)], np.broadcast_to(x, shape))

    def flatten(self) -> None:
        name, x = self.pick()
        axis = int(self.random.integers(0, x.ndim + 1))
        shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        self.add("Flatten", [name], x.reshape(shape), axis=axis)

    def pad(self) -> None:
        name, x = self.pick()
        axes = [int(axis) for axis in self.random.permutation(x.ndim)[:4]]
        before, after = [0] * x.ndim, [0] * x.ndim
        for axis in axes:
            before[axis], after[axis] = (int(n) for n in self.random.integers(0, 3, 2))
        value = np.asarray(3, x.dtype)
        made = np.pad(x, list(zip(before, after, strict=True)), constant_values=value) if x.ndim else x
        counts = [before[axis] for axis in axes] + [after[axis] for axis in axes]
        operands = [self.constant(counts), self.constant(value, x.dtype), self.constant(axes)]
        self.add("Pad", [name, *operands], made)

    # -- what computes ------------------------------------------------------------------------------------------
    def elementwise(self) -> None:
        name, x = self.pick()
        others = [other for other, y in self.values.items() if fits(x, y)]
        other = self.choice(others)
        y = self.values[other]
        op, made = self.choice(
            [("Neg", -x), ("Abs", np.abs(x)), ("Add", x + y), ("Sub", x - y), ("Max", np.maximum(x, y))]
        )
        self.add(op, [name] if op in ("Neg", "Abs") else [name, other], made)

    def reduction(self) -> None:
        name, x = self.pick()
        axes = sorted(int(axis) for axis in self.random.permutation(x.ndim)[: int(self.random.integers(0, x.ndim + 1))])
        empty = any(x.shape[axis] == 0 for axis in axes)
        op, meaning = self.choice([("ReduceSum", np.sum)] if empty else [("ReduceSum", np.sum), ("ReduceMax", np.max)])
        keep = bool(self.random.integers(2))
        made = np.asarray(meaning(x, axis=tuple(axes), keepdims=keep))
        attributes = {"keepdims": int(keep), "noop_with_empty_axes": 1}
        self.add(op, [name, self.constant(axes)], made, **attributes)

    def model(self) -> ModelProto:
        """Its outputs: the last value, and a few others."""
        names = list(self.values)[2:]
        outputs = dict.fromkeys([names[-1], *[self.choice(names) for _ in range(2)]])
        inputs = [protos.value(name, x.dtype, x.shape) for name, x in self.feed.items()]
        values = [protos.value(name, self.values[name].dtype, self.values[name].shape) for name in outputs]
        return protos.model(self.nodes, inputs, values, self.constants, opset=19)


def fits(x: Array, y: Array) -> bool:
    """Whether two arrays broadcast together."""
    return all(a == b or 1 in (a, b) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))


MOVES: tuple[Callable[[Moves], None], ...] = (
    Moves.reshape, Moves.reshape, Moves.open_reshape, Moves.transpose, Moves.transpose, Moves.slice, Moves.slice,
    Moves.concat, Moves.squeeze, Moves.unsqueeze, Moves.expand, Moves.flatten, Moves.pad,
)  # fmt: skip


def moving(seed: int) -> Moves:
    """A model of moves."""
    made = Moves(seed)
    while not made.nodes:
        for _ in range(int(made.random.integers(1, 9))):
            made.choice(MOVES)(made)
    return made


def computing(seed: int) -> Moves:
    """A model of moves with a map and a reduction among them, and moves behind those."""
    made = Moves(seed, np.float32)
    while not made.nodes:
        for step in (None, Moves.elementwise, None, Moves.reduction, None, Moves.elementwise):
            for _ in range(int(made.random.integers(0, 4))):
                (step or made.choice(MOVES))(made)
    return made


def check(made: Moves) -> None:
    """Every output is NumPy's; the session's, fused or not, has the reference's bits."""
    proto = made.model()
    program = onnx.load(proto)
    due = reference.run(program, made.feed)
    for name, x in due.items():
        assert x.shape == made.values[name].shape
        assert np.array_equal(x, made.values[name]), name
    for fuse in (True, False):
        for name, x in cpu.prepare(program, threads=1, fuse=fuse).run(made.feed).items():
            assert x.shape == due[name].shape
            assert x.tobytes() == np.ascontiguousarray(due[name]).tobytes(), name


@pytest.mark.parametrize("seed", range(150))
def test_models_that_only_move(seed: int) -> None:
    check(moving(seed))


@pytest.mark.parametrize("seed", range(100))
def test_models_that_move_map_and_reduce(seed: int) -> None:
    check(computing(seed))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(20))
def test_many_models_that_only_move(part: int) -> None:
    for seed in range(part * 1000, (part + 1) * 1000):
        check(moving(seed))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(5))
def test_many_models_that_move_map_and_reduce(part: int) -> None:
    for seed in range(part * 1000, (part + 1) * 1000):
        check(computing(seed))
