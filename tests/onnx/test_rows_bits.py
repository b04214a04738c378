"""Rows that are made of several operations, by loops over the elements in the order of numerics.md."""

from typing import Any

import numpy as np
import onnx_edges
import protos
import pytest

from samebits import ieee, onnx
from samebits.errors import ShapeError
from samebits.runtime import cpu

Array = np.ndarray[Any, np.dtype[Any]]
F = np.float32
R = np.random.default_rng(3)


def run(
    op: str, arrays: list[Array], attributes: dict[str, Any], fixed: tuple[int, ...] = (), opset: int = 13
) -> Array:
    """What the interpreted session gives; the rows' own tests compare it with what is compiled."""
    proto, feed = protos.one(op, arrays, attributes, fixed, 1, opset, symbolic=False)
    (made,) = cpu.prepare(onnx.load(proto), isa="numpy", threads=1).run(feed).values()
    return made


def drawn(*shape: int) -> Array:
    return R.standard_normal(shape).astype(F)


def chain(pairs: list[tuple[Any, Any]]) -> Any:
    """The sum of section 2: fma in chunks of 128, whose sums are added."""
    total = None
    for start in range(0, len(pairs), 128):
        part = F(0)
        for a, b in pairs[start : start + 128]:
            part = ieee.fma(F(a), F(b), part)
        total = part if total is None else total + part
    total = (F(0) if total is None else total) + F(0)
    return F(np.nan) if np.isnan(total) else total  # the canonical one


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (3, 2), (2, 3), (3, 1)])
def test_a_transposed_convolution_sums_what_reaches_an_element(stride: int, dilation: int) -> None:
    """Ascending in (input channel, place); infinite weights reach no element beside theirs."""
    x, w = drawn(1, 40, 5), drawn(40, 2, 4)
    w[7, 1, 2] = np.inf
    made = run("ConvTranspose", [x, w], {"strides": [stride], "dilations": [dilation]})
    for out in range(made.shape[2]):
        places = [k for k in range(4) if (out - k * dilation) % stride == 0]
        for channel in range(2):
            pairs = [(x[0, c, i] if 0 <= (i := (out - k * dilation) // stride) < 5 else 0, w[c, channel, k])
                     for c in range(40) for k in places]  # fmt: skip
            assert made[0, channel, out].tobytes() == np.asarray(chain(pairs), F).tobytes()


def test_windows_of_many_places() -> None:
    """A convolution, and the largest, of more places than can be operands of one kernel."""
    x, w = drawn(1, 2, 30, 31), drawn(3, 2, 19, 18)
    made = run("Conv", [x, w], {"strides": [6, 9]})
    for filter, row, column in np.ndindex(3, 2, 2):
        seen = x[0, :, 6 * row : 6 * row + 19, 9 * column : 9 * column + 18]
        due = chain(list(zip(w[filter].flat, seen.flat, strict=True)))
        assert made[0, filter, row, column].tobytes() == due.tobytes()
    largest = run("MaxPool", [x], {"kernel_shape": [19, 18], "strides": [6, 9]})
    windows = np.lib.stride_tricks.sliding_window_view(x, (19, 18), (2, 3))[:, :, ::6, ::9]
    assert (largest == windows.max((4, 5))).all()


@pytest.mark.parametrize("kernel", [(4, 6), (2, 2)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 2), (2, 3), (5, 1)])
def test_an_average_sums_its_window_in_row_order(kernel: tuple[int, int], stride: int, dilation: int) -> None:
    """Whether or not elements that windows look at often are copied next to each other first."""
    x = drawn(1, 2, 14, 23)
    x[0, 1, 3, 4] = np.inf
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [1, 1, 1, 0], "kernel_shape": kernel}
    made = run("AveragePool", [x], {**attributes, "count_include_pad": 0}, (), 22)
    for channel, row, column in np.ndindex(made.shape[1:]):
        places = [(row * stride + i * dilation - 1, column * stride + j * dilation - 1)
                  for i in range(kernel[0]) for j in range(kernel[1])]  # fmt: skip
        found = [x[0, channel, i, j] for i, j in places if 0 <= i < 14 and 0 <= j < 23]
        total: Any = F(-0.0)
        for value in found:
            total += value
        assert made[0, channel, row, column].tobytes() == (total / F(len(found))).tobytes()


def test_linear_resizing_weighs_two_places_by_fma() -> None:
    x = drawn(2, 7)
    made = run("Resize", [x, drawn(0), F([1, 1.6])], {"mode": "linear"}, (1, 2))
    for row in range(2):
        for out in range(made.shape[1]):
            at = (out + 0.5) / float(F(1.6)) - 0.5
            low = int(np.floor(at))
            ends, part = np.clip([low, low + 1], 0, 6), at - low
            due = ieee.fma(x[row, ends[1]], F(1 - abs(low + 1 - at)), x[row, ends[0]] * F(1 - part))
            assert made[row, out].tobytes() == np.asarray(due, F).tobytes()


def test_nearest_before_opset_11_rounds_down_to_make_more_and_up_to_make_less() -> None:
    """As the case of ONNX at opset 10 has it; what falls on a place stays there."""
    x = np.arange(12, dtype=F).reshape(2, 6)
    assert run("Resize", [x, F([1, 0.6])], {}, (1,), 10).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert run("Resize", [x, F([1.5, 0.75])], {}, (1,), 10).tolist() == [[0, 2, 3, 4], [0, 2, 3, 4], [6, 8, 9, 10]]


def test_einsum_joins_from_the_left_and_sums_by_the_sections() -> None:
    """c and d of the first two are one k, row-major; e is of the last alone, and summed before."""
    a, b, c = drawn(3, 20, 9), drawn(9, 20, 4), drawn(4, 5)
    made = run("Einsum", [a, b, c], {"equation": "acd,dcb,be->ab"})
    for i in range(3):
        for j in range(4):
            first = chain([(a[i, k // 9, k % 9], b[k % 9, k // 9, j]) for k in range(180)])
            assert made[i, j].tobytes() == (first * _summed(c[j])).tobytes()


def _summed(row: Array) -> Any:
    """The sum of section 6 of fewer elements than there are lanes: a tree over halves."""
    lanes = list(row)
    for step in (32, 16, 8, 4, 2, 1):
        lanes = [x + lanes[i + step] if i < step and i + step < len(lanes) else x for i, x in enumerate(lanes)]
    return lanes[0]


def test_einsum_broadcasts_an_ellipsis() -> None:
    x, y = R.integers(-9, 9, (2, 1, 3, 4)).astype(F), R.integers(-9, 9, (5, 4, 2)).astype(F)
    assert np.array_equal(run("Einsum", [x, y], {"equation": "...ij,...jk->...ik"}), x @ y)


def test_a_recurrent_layer_takes_operands_of_one_batch_by_whatever_name() -> None:
    proto, feed = protos.one("LSTM", onnx_edges.recurrent("LSTM"), {"hidden_size": 3}, (1, 2, 3), 1, 14, symbolic=False)
    own, lengths, state, cell = feed
    for name, axis, symbol in ((own, 1, "n"), (lengths, 0, "m"), (state, 1, "k"), (cell, 1, "n")):
        (found,) = (each for each in proto.graph.input if each.name == name)
        found.type.tensor_type.shape.dim[axis].Clear()
        found.type.tensor_type.shape.dim[axis].dim_param = symbol
    session = cpu.prepare(onnx.load(proto), isa="numpy", threads=1)
    (made,) = session.run(feed).values()
    assert made.tobytes() == run("LSTM", onnx_edges.recurrent("LSTM"), {"hidden_size": 3}, (1, 2, 3), 14).tobytes()
    remedy = "give inputs of other sizes"
    for name, others, place in ((lengths, feed[lengths][:1], 4), (state, feed[state][:, :1], 5)):
        with pytest.raises(ShapeError) as error:
            session.run({**feed, name: others.copy()})
        given, due = list(others.shape), list(feed[name].shape)
        assert str(error.value).endswith(f", input {place}' shape is {given}, must be one that fits {due}; {remedy}")


def test_an_lstm_is_its_formulas() -> None:
    """One step, without biases: gates in the order i, o, f, c."""
    x, w, r, *_ = onnx_edges.recurrent("LSTM", full=False)
    made = run("LSTM", [x[:2], w, r], {"hidden_size": 3})
    h = c = np.zeros((2, 3), F)
    for step in range(2):
        total = np.empty((2, 12), F)
        for n, u in np.ndindex(2, 12):
            given = chain(list(zip(x[step, n], w[0, u], strict=True)))
            total[n, u] = given + chain(list(zip(h[n], r[0, u], strict=True)))
        i, o, f = (run("Sigmoid", [total[:, 3 * g : 3 * g + 3].copy()], {}) for g in range(3))
        c = f * c + i * run("Tanh", [total[:, 9:].copy()], {})
        h = o * run("Tanh", [c], {})
        assert made[step, 0].tobytes() == h.tobytes()


@pytest.mark.parametrize(("op", "products"), [("RNN", 2), ("GRU", 3), ("LSTM", 2)])
def test_steps_share_the_weights(op: str, products: int) -> None:
    """A session keeps them in panels once, not once a step; the gates of a GRU are products of their own."""
    arrays = onnx_edges.recurrent(op)
    fixed = tuple(number for number in (1, 2, 3) if number < len(arrays))
    proto, _ = protos.one(op, arrays, {"hidden_size": 3}, fixed, 1, 14, symbolic=False)
    program = cpu.prepare(onnx.load(proto)).program
    weights = [node.inputs[1] for node in program.nodes if node.operation == "contract"]
    assert len(weights) > len(set(weights)) == products


@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "pads"),
    [
        ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
        ((3, 2), (1, 2), (1, 3), (1, 2, 0, 1)),
        ((5, 4), (1, 1), (1, 1), (4, 3, 4, 3)),  # many windows look beyond the image
        ((2, 4), (3, 1), (2, 2), (1, 0, 1, 0)),
        ((9, 1), (1, 1), (1, 1), (4, 0, 4, 0)),  # all do
    ],
)
def test_windows_that_look_beyond_the_image_have_the_largest_of_what_is_there(
    kernel: Any, strides: Any, dilations: Any, pads: Any
) -> None:
    x = drawn(2, 3, 7, 10)
    x[0, 1, ::3, ::4] = np.nan
    x[1, :, 0] = -np.inf
    slid = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    found = run("MaxPool", [x], {name: list(value) for name, value in slid.items()})
    due = np.full_like(found, -np.inf)
    for n, c, h, w, i, j in np.ndindex(*found.shape, *kernel):
        row, column = h * strides[0] - pads[0] + i * dilations[0], w * strides[1] - pads[1] + j * dilations[1]
        if 0 <= row < 7 and 0 <= column < 10:
            due[n, c, h, w] = np.maximum(due[n, c, h, w], x[n, c, row, column])
    assert found.tobytes() == due.tobytes()
