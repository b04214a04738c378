"""Constants that are packed: they stay so in a program, are shared, and outlive the buffer that they came from."""

from __future__ import annotations

import numpy as np
import pytest
from narrow import codes, codes_of, packed

import samebits as sb
from samebits import dtypes
from samebits.layout import Layout
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder
from samebits.program.constants import array_of, given
from samebits.program.graph import Program
from samebits.program.transform import optimise


def program(weight: object) -> Program:
    """A product with a constant."""
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (dim.symbol("n"), 3))
    return b.build({"y": b.contract(x, b.constant(weight, "w"))})  # type: ignore[arg-type]


def test_a_dense_tensor_stays_where_it_is_and_read_only() -> None:
    own = sb.copy(packed(codes_of(dtypes.int4, 3, 5), dtypes.int4))
    kept = given(own)
    assert isinstance(kept, sb.Tensor)
    assert kept.address == own.address
    assert (kept.read_only, own.read_only) == (True, False)
    due = codes(own)
    own.buffer.close()
    assert np.array_equal(codes(kept), due)
    assert np.array_equal(array_of(kept).view(np.uint8) & 15, due)


def test_what_is_not_dense_is_copied_and_what_has_bytes_becomes_an_array() -> None:
    x = packed(codes_of(dtypes.int4, 4, 5), dtypes.int4)
    part = given(x[1:, 1:4])
    assert isinstance(part, sb.Tensor)
    assert part.layout == Layout.dense((3, 3), width_bits=4)
    assert np.array_equal(codes(part), codes(x)[1:, 1:4])
    apart = given(sb.to_padded(x))
    assert isinstance(apart, np.ndarray)
    assert np.array_equal(apart.view(np.uint8) & 15, codes(x))
    between = sb.Tensor(sb.Tensor.from_any(np.arange(6, dtype=np.uint8)).buffer, Layout((3,), (12,), 0, 8), dtypes.int8)
    whole = given(between)
    assert isinstance(whole, np.ndarray)
    assert whole.tolist() == between.tolist()


def test_a_program_digests_its_packed_constants() -> None:
    numbers = codes_of(dtypes.int4, 3, 5)
    weight = packed(numbers, dtypes.int4)
    first, same = program(weight), program(sb.copy(weight))
    assert first.digest() == same.digest()
    other = numbers.copy()
    other[2, 4] ^= 1
    assert program(packed(other, dtypes.int4)).digest() != first.digest()
    assert isinstance(optimise(first).constants["w"], sb.Tensor)


def test_nodes_of_packed_constants_are_folded() -> None:
    weight = packed(codes_of(dtypes.uint4, 3, 5), dtypes.uint4)
    b = ProgramBuilder("g")
    w = b.constant(weight)
    scaled = b.apply("mul", b.apply("cast", w, cast_to=dtypes.float32), b.scalar(0.5, dtypes.float32))
    made = b.build({"y": b.apply("add", b.input("x", dtypes.float32, (3, 5)), scaled)})
    session = sb.prepare(made)
    assert len(session.program.nodes) == 1
    x = np.ones((3, 5), np.float32)
    assert np.array_equal(session.run({"x": x})["y"], 1 + codes(weight) / 2)


def test_views_of_packed_constants_stay_views() -> None:
    """A weight [N, K] is turned for the product, and neither the builder nor a transform nor a run spreads it."""
    for n in (5, 700):
        weight = packed(codes_of(dtypes.int4, n, 3), dtypes.int4)
        b = ProgramBuilder("g")
        turned = b.transpose(b.constant(weight, "w"), (1, 0))
        made = b.build({"y": b.contract(b.input("x", dtypes.float32, (dim.symbol("n"), 3)), turned)})
        session = sb.prepare(made)
        assert "constant w: int4[" in str(session.program)
        assert "packed" in str(session.program)
        x = np.random.default_rng(n).standard_normal((2, 3)).astype(np.float32)
        assert session.run({"x": x})["y"].tobytes() == np.asarray(sb.linear(x, weight)).tobytes()
        assert [*session.program.constants] == ["w"]
        assert "b: int4 within bytes, unpacked" in "".join(session.plans({"n": 2}))


def test_a_scalar_constant_may_be_packed() -> None:
    for dtype in (dtypes.int4, dtypes.float4_e2m1fn):
        one = packed(np.array(5), dtype)
        b = ProgramBuilder("g")
        x = b.input("x", dtypes.bool_, (7,))
        y = b.apply("where", x, b.constant(one), b.constant(packed(np.array(2), dtype)))
        holds = np.arange(7) % 2 == 0
        found = sb.prepare(b.build({"y": y})).run({"x": holds})["y"]
        assert np.array_equal(found.view(np.uint8) & 15, np.where(holds, 5, 2))


def test_a_constant_elsewhere_than_on_the_host_is_refused() -> None:
    buffer = sb.Buffer(4096, 16, None, sb.Device("cuda"))
    away = sb.Tensor(buffer, Layout.dense((3, 5), width_bits=4), dtypes.int4)
    with pytest.raises(sb.DeviceError, match="x device is cuda:0, must be the host; copy it to the host"):
        program(away)
