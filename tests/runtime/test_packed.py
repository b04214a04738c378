"""Sessions on elements packed within bytes: inputs, constants and outputs as they lie, views at any bit of them."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from narrow import KEYS, NARROW, codes, codes_of, draw, packed
from rows import COMPILED_ROWS

import samebits as sb
from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels import composites
from samebits.operations import dim
from samebits.operations.moves import AxisGather, Concat
from samebits.operations.product import Options
from samebits.operations.sharing import Block
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import limits, reference

Array = np.ndarray[Any, Any]
EVERY = pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
N, M = dim.symbol("n"), dim.symbol("m")
PLACES = np.array([2, 0, -1])


def moving(dtype: DType) -> Program:
    """Views of a matrix at bits that sizes decide, what is joined and picked of it, and what is computed of it."""
    b = ProgramBuilder("moving")
    x, ids = b.input("x", dtype, (N, M)), b.input("ids", dtypes.int64, (3,))
    part = b.slice(x, (1, 1), (N - 1, M - 2), (1, 1))
    row = b.slice(x, (0, 1), (1, M - 1), (1, 1))
    number = b.apply("cast", part, cast_to=dtypes.float32)
    return b.build({
        "same": x, "part": part, "turned": b.transpose(part, (1, 0)), "flat": b.reshape(part, ((N - 1) * (M - 2),)),
        "backwards": b.slice(x, (N - 1, M - 1), (N, M), (-1, -1)), "repeated": b.expand(row, (3, M - 1)),
        "joined": b.add("concat", (x, x), Concat(1))[0], "picked": b.add("gather", (x, ids), AxisGather(0))[0],
        "number": number, "back": b.apply("cast", number, cast_to=dtype),
        "largest": b.rows(composites.reduction("row_max", dtype), part)[0],
    })  # fmt: skip


def check(program: Program, session: sb.Session, given: dict[str, Any], narrow: str) -> None:
    """Every output of a run is the reference's; those of narrow elements lie so."""
    due = reference.run(program, given)
    for name, found in session.run(given).items():
        tensor = sb.Tensor.from_any(found)
        assert tensor.shape == due[name].shape, name
        assert np.array_equal(codes(tensor) if tensor.dtype.width_bits < 8 else found, _bits(due[name], tensor)), name
        if tensor.dtype.width_bits < 8:
            assert tensor.layout.storage == narrow, name


def _bits(due: Array, like: sb.Tensor) -> Array:
    """The reference's output, by its codes where elements are narrow."""
    narrow = like.dtype.width_bits < 8
    return np.ascontiguousarray(due).view(np.uint8) & ((1 << like.dtype.width_bits) - 1) if narrow else due


@EVERY
def test_views_of_packed_inputs_at_any_bit(dtype: DType) -> None:
    program = moving(dtype)
    session = sb.prepare(program)
    for shape in ((3, 5), (9, 41), (4, 3), (3, 16), (7, 3)):
        x, _ = draw(dtype, *shape)
        apart = sb.to_padded(x).numpy()
        check(program, session, {"x": x, "ids": PLACES}, "packed")
        check(program, session, {"x": apart, "ids": PLACES}, "padded")
        check(program, session, {"ids": PLACES, "x": x}, "padded")
        check(program, session, {"ids": sb.Tensor.from_any(PLACES), "x": apart}, "packed")
    x, _ = draw(dtype, 9, 41)
    for key in KEYS:
        check(program, session, {"x": x[key], "ids": PLACES % 3}, "packed")


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_products_of_packed_operands_have_the_bits_of_eager_ones(isa: Any) -> None:
    """Both sides, scales of groups and zero points, given or constant; K of none, one and odd, one row, one column."""
    for m, k, n, dtype in itertools.product((1, 3), (1, 7, 24), (1, 5), (dtypes.int4, dtypes.uint2)):
        (w, _), (z, _) = draw(dtype, k, n), draw(dtype, -(-k // 4), n, seed=1)
        x = np.random.default_rng(k).standard_normal((m, k)).astype(np.float32)
        scale = np.random.default_rng(n).standard_normal((-(-k // 4), n)).astype(np.float32)
        b = ProgramBuilder("product")
        a = b.input("x", dtypes.float32, (N, k))
        right, point = b.input("w", dtype, (k, n)), b.input("z", dtype, z.shape)
        given = b.contract(a, right, Options(b_group=Block(4)), b_scale=b.constant(scale), b_zero_point=point)
        known = b.contract(
            a, b.constant(w), Options(b_group=Block(4)), b_scale=b.constant(scale), b_zero_point=b.constant(z)
        )
        exact = b.contract(b.apply("cast", a, cast_to=dtypes.int8), right)
        session = sb.prepare(b.build({"given": given, "known": known, "exact": exact}), isa=isa)
        found = session.run({"x": x, "w": w, "z": z})
        with sb.use_isa(isa):
            due = sb.matmul(x, w, b_scale=scale, b_zero_point=z, b_group=4)
            whole = sb.matmul(sb.cast(x, "int8"), w)
        for name, expected in (("given", due), ("known", due), ("exact", whole)):
            assert found[name].tobytes() == np.asarray(expected).tobytes(), (name, m, k, n, dtype)


def test_a_product_of_nothing() -> None:
    b = ProgramBuilder("empty")
    y = b.contract(b.input("x", dtypes.float32, (N, M)), b.input("w", dtypes.float4_e2m1fn, (M, 5)))
    session = sb.prepare(b.build({"y": y}))
    for n, m in ((0, 3), (2, 0), (0, 0)):
        found = session.run({"x": np.ones((n, m), np.float32), "w": draw(dtypes.float4_e2m1fn, m, 5)[0]})["y"]
        assert found.tolist() == [[0.0] * 5] * n


def test_zero_points_of_packed_left_operands() -> None:
    """Integers on both sides, a zero point for each row and each column; by Python's integers."""
    (a, x), (w, y) = draw(dtypes.uint4, 5, 9), draw(dtypes.int4, 9, 6, seed=1)
    (za, u), (zw, v) = draw(dtypes.uint4, 5, seed=2), draw(dtypes.int4, 6, seed=3)
    b = ProgramBuilder("zeros")
    names = {"a": a, "w": w, "za": za, "zw": zw}
    values = {name: b.input(name, t.dtype, t.shape) for name, t in names.items()}
    y_ = b.contract(values["a"], values["w"], a_zero_point=values["za"], b_zero_point=values["zw"])
    due = (x - u[:, None]) @ (y - v)
    found = sb.prepare(b.build({"y": y_})).run(names)["y"]
    assert found.tolist() == due.tolist()
    assert np.array_equal(sb.matmul(a, w, a_zero_point=za, b_zero_point=zw).numpy(), found.numpy())


def test_kinds_of_outputs() -> None:
    program = moving(dtypes.float4_e2m1fn)
    session = sb.prepare(program)
    x, _ = draw(dtypes.float4_e2m1fn, 4, 6)
    pairs = sb.to_packed(x).copy().torch()
    found = session.run({"x": pairs, "ids": torch.tensor(PLACES)}, ["same", "joined", "picked"])
    assert {name: y.dtype for name, y in found.items()} == dict.fromkeys(found, torch.float4_e2m1fn_x2)
    assert np.array_equal(codes(found["picked"]), codes(x)[PLACES])
    for places in (PLACES, PLACES.tolist()):
        arrays = session.run({"ids": places, "x": x}, ["same", "picked"])
        assert all(y.dtype == ml_dtypes.float4_e2m1fn for y in arrays.values())


def test_an_output_is_no_input_even_of_one_name() -> None:
    b = ProgramBuilder("back")
    program = b.build({"x": b.input("x", dtypes.int4, (N, 5))})
    session = sb.prepare(program)
    x, _ = draw(dtypes.int4, 3, 5)
    apart = sb.to_padded(x)
    for given in (x, apart):
        found = session.run({"x": given})["x"]
        assert found.layout.storage == "packed"
        assert found.address != given.address
        assert np.array_equal(codes(found), codes(x))


def test_packed_outputs_count_as_the_bytes_that_they_take() -> None:
    assert limits.bytes_of((3, 5), dtypes.int4) == 8
    assert limits.bytes_of((3, 5), dtypes.float6_e2m3fn) == 12
    assert limits.bytes_of((3, 5), np.float32) == 60


def test_a_trace_shows_a_byte_an_element() -> None:
    program = moving(dtypes.int4)
    x, _ = draw(dtypes.int4, 5, 9)
    found = sb.prepare(program, fuse=False).trace({"x": x, "ids": PLACES})
    assert np.array_equal(found["picked"].array.view(np.uint8) & 15, codes(x)[PLACES])


def test_a_packed_input_outlives_its_buffer_for_the_run() -> None:
    program = moving(dtypes.int4)
    session = sb.prepare(program)
    due = codes_of(dtypes.int4, 64, 65)
    stop = threading.Event()
    shelf: list[sb.Tensor] = []

    def close() -> None:
        while not stop.is_set():
            if shelf:
                shelf.pop().buffer.close()

    thread = threading.Thread(target=close)
    thread.start()
    try:
        for _ in range(20):
            x = sb.copy(packed(due, dtypes.int4))
            shelf.append(x)
            try:
                found = session.run({"x": x, "ids": PLACES}, ["picked"])
            except sb.ClosedError:
                continue
            assert np.array_equal(codes(found["picked"]), due[PLACES])
    finally:
        stop.set()
        thread.join()


def test_what_is_not_an_input_is_refused_by_name() -> None:
    session = sb.prepare(moving(dtypes.int4))
    away = sb.Tensor(sb.Buffer(4096, 16, None, sb.Device("cuda")), sb.Layout.dense((3, 5), width_bits=4), dtypes.int4)
    cases = {
        "run: input 'x' dtype is uint4, must be int4; convert it to int4": draw(dtypes.uint4, 3, 5)[0],
        "run: input 'x' rank is 1, must be 2 (int4[n, m]); reshape it": draw(dtypes.int4, 3)[0],
        "run: input 'x' device is cuda:0, must be the host; copy it to the host": away,
    }
    for sentence, x in cases.items():
        with pytest.raises(sb.SamebitsError) as refused:
            session.run({"x": x, "ids": PLACES})
        assert str(refused.value) == sentence
