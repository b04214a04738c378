"""Random models of symbolic shapes: near ONNX Runtime in value, the reference's in bits, however they are run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import protos
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, helper

from samebits import onnx
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, Any]
EPS = np.finfo(np.float32).eps
onnxruntime.set_default_logger_severity(4)


class Growing:
    """A model under construction; each value has the shape that it will have for the sizes drawn."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.extents = {name: draw(st.sampled_from([1, 1, 2, 3, 5])) for name in ("n", "m")}
        self.feed: dict[str, Array] = {}
        self.inputs = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.random = np.random.default_rng(draw(st.integers(0, 1000)))
        for name, shape in {"x": ("n", "m", 4), "z": ("n", 1, 4), "u": ("m", 4), "s": ()}.items():
            extents = tuple(self.extents.get(size, size) for size in shape)
            self.feed[name] = np.asarray(self.random.standard_normal(extents), np.float32)
            self.inputs.append(protos.value(name, np.float32, shape))
            self.shapes[name] = extents

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = shape

    def pick(self, least_rank: int = 0) -> str:
        return self.draw(st.sampled_from([name for name, shape in self.shapes.items() if len(shape) >= least_rank]))

    def axis(self, name: str) -> int:
        return self.draw(st.integers(0, len(self.shapes[name]) - 1))

    # -- one step each ------------------------------------------------------------------------------------------
    def unary(self) -> None:
        x = self.pick()
        self.add(self.draw(st.sampled_from(["Neg", "Abs", "Erf", "Relu", "Identity"])), [x], self.shapes[x])

    def binary(self) -> None:
        x, op = self.pick(), self.draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min"]))
        others = []
        for name, shape in self.shapes.items():
            try:
                others.append((name, np.broadcast_shapes(shape, self.shapes[x])))
            except ValueError:
                continue
        y, shape = self.draw(st.sampled_from(others))
        self.add(op, [x, y] if self.draw(st.booleans()) else [y, x], shape)

    def transpose(self) -> None:
        x = self.pick(1)
        order = self.draw(st.permutations(range(len(self.shapes[x]))))
        self.add("Transpose", [x], tuple(self.shapes[x][axis] for axis in order), perm=order)

    def reshape(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        at = self.draw(st.integers(0, len(shape) - 1))
        flat = (*shape[:at], math.prod(shape[at:]))
        self.add("Reshape", [x, self.constant(np.array([*[0] * at, -1]))], flat)

    def split(self) -> None:
        x = self.pick(1)
        shape = self.shapes[x]
        if shape[-1] % 2 == 0 and len(shape) < 5:
            target = np.array([*[0] * (len(shape) - 1), 2, -1])
            # A zero copies; the last but one new axis has no axis to copy, so it is a number.
            self.add("Reshape", [x, self.constant(target)], (*shape[:-1], 2, shape[-1] // 2))

    def unsqueeze(self) -> None:
        x = self.pick()
        if len(self.shapes[x]) < 4:
            axis = self.draw(st.integers(0, len(self.shapes[x])))
            shape = (*self.shapes[x][:axis], 1, *self.shapes[x][axis:])
            self.add("Unsqueeze", [x, self.constant(np.array([axis]))], shape)

    def slice(self) -> None:
        x = self.pick(1)
        axis, start = self.axis(x), self.draw(st.sampled_from([0, 0, 1, -1, -2]))
        kept = range(self.shapes[x][axis])[start:]
        shape = tuple(len(kept) if i == axis else size for i, size in enumerate(self.shapes[x]))
        if 0 not in shape:
            bounds = [np.array([start]), np.array([2**40]), np.array([axis])]
            self.add("Slice", [x, *map(self.constant, bounds)], shape)

    def concat(self) -> None:
        x = self.pick(1)
        axis = self.axis(x)
        alike = [
            name
            for name, shape in self.shapes.items()
            if len(shape) == len(self.shapes[x])
            and all(a == b for i, (a, b) in enumerate(zip(shape, self.shapes[x], strict=True)) if i != axis)
        ]
        names = [x, *self.draw(st.lists(st.sampled_from(alike), min_size=1, max_size=2))]
        total = sum(self.shapes[name][axis] for name in names)
        shape = tuple(total if i == axis else size for i, size in enumerate(self.shapes[x]))
        if math.prod(shape) < 4000:
            self.add("Concat", names, shape, axis=axis)

    def gather(self) -> None:
        x = self.pick(1)
        axis = self.axis(x)
        extent = self.shapes[x][axis]
        indices = self.random.integers(-extent, extent, self.draw(st.sampled_from([(), (2,), (1, 2)])))
        shape = (*self.shapes[x][:axis], *np.shape(indices), *self.shapes[x][axis + 1 :])
        if len(shape) < 5 and math.prod(shape) < 4000:
            self.add("Gather", [x, self.constant(indices)], shape, axis=axis)

    def reduce(self) -> None:
        x = self.pick(1)
        axes = sorted(self.draw(st.sets(st.integers(0, len(self.shapes[x]) - 1), min_size=1)))
        keep = self.draw(st.integers(0, 1))
        shape = [1 if i in axes else size for i, size in enumerate(self.shapes[x]) if keep or i not in axes]
        op = self.draw(st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"]))
        self.add(op, [x, self.constant(np.array(axes))], tuple(shape), keepdims=keep)

    def normalise(self) -> None:
        x = self.pick(1)
        if self.draw(st.booleans()):
            self.add("Softmax", [x], self.shapes[x], axis=self.axis(x))
        elif self.shapes[x][-1] == 4:
            gamma, beta = self.constant(small(self, 4)), self.constant(small(self, 4))
            self.add("LayerNormalization", [x, gamma, beta], self.shapes[x], axis=-1, epsilon=1e-2)

    def product(self) -> None:
        x = self.pick(2)
        k = self.shapes[x][-1]
        if k < 40 and self.draw(st.booleans()):
            fixed = k == 4
            w = self.constant(small(self, k, 4)) if fixed else None
            if w:
                self.add("MatMul", [x, w], (*self.shapes[x][:-1], 4))
        else:
            turned = f"t{len(self.nodes)}"
            rank = len(self.shapes[x])
            order = [*range(rank - 2), rank - 1, rank - 2]
            self.nodes.append(helper.make_node("Transpose", [x], [turned], perm=order))
            self.shapes[turned] = tuple(self.shapes[x][axis] for axis in order)
            self.add("MatMul", [x, turned], (*self.shapes[x][:-1], self.shapes[x][-2]))


STEPS = (
    Growing.unary, Growing.unary, Growing.binary, Growing.binary, Growing.transpose, Growing.reshape, Growing.split,
    Growing.unsqueeze, Growing.slice, Growing.concat, Growing.gather, Growing.reduce, Growing.normalise,
    Growing.product,
)  # fmt: skip


def small(model: Growing, *shape: int) -> Array:
    """Small normal numbers, so that products stay small."""
    return (model.random.standard_normal(shape) / 2).astype(np.float32)


@st.composite
def models(draw: st.DrawFn) -> tuple[ModelProto, dict[str, Array]]:
    """A model of up to fourteen nodes and inputs for it."""
    model = Growing(draw)
    for _ in range(draw(st.integers(1, 14))):
        draw(st.sampled_from(STEPS))(model)
    made = [name for name in model.shapes if name not in model.feed]
    if not made:
        model.unary()
        made = [name for name in model.shapes if name not in model.feed]
    chosen = {made[-1], *draw(st.lists(st.sampled_from(made), max_size=3))}
    outputs = [
        protos.value(name, np.float32, [f"{name}.{i}" for i in range(len(model.shapes[name]))]) for name in chosen
    ]
    return protos.model(model.nodes, model.inputs, outputs, model.constants, opset=19), model.feed


def odd(feed: dict[str, Array]) -> dict[str, Array]:
    """The inputs with NaN of odd codes, infinities, zeros of both signs and subnormals among them."""
    codes = np.array(
        [0x7FC00000, 0xFFC00001, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 0, 1, 0x80000003], np.uint32
    )
    random = np.random.default_rng(1)
    changed = {}
    for name, x in feed.items():
        picked = random.choice(codes, x.shape).astype(np.uint32).view(np.float32)
        changed[name] = np.where(random.random(x.shape) < 0.3, picked, x)
    return changed


@examples(60)
@given(models())
def test_near_onnxruntime_and_the_bits_of_the_reference(case: tuple[ModelProto, dict[str, Array]]) -> None:
    proto, feed = case
    program = onnx.load(proto)
    session = cpu.prepare(program, threads=1)
    sessions = [session, cpu.prepare(program, threads=2, fuse=False)]
    theirs = protos.session(proto)
    ours = session.run(feed)
    for (name, x), y in zip(ours.items(), theirs.run(None, feed), strict=True):
        assert x.shape == y.shape
        # Theirs takes other orders and other functions: a few ulp a node, multiplied by differences that cancel.
        scale = max(1.0, float(np.abs(y).max(initial=0)))
        np.testing.assert_allclose(x, y, rtol=1024 * EPS, atol=1024 * EPS * scale, err_msg=name)
    for given_ in (feed, odd(feed)):
        due = reference.run(program, given_)
        for each in sessions:
            for name, x in each.run(given_).items():
                assert x.shape == due[name].shape
                assert x.tobytes() == np.ascontiguousarray(due[name]).tobytes(), name
        for name, traced in session.trace(given_).items():
            if name in due:
                assert traced.array.tobytes() == np.ascontiguousarray(due[name]).tobytes(), name
