"""Block formats in programs: bits of the eager functions and of the reference, rows that keep to themselves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.operations import dim
from samebits.operations.product import Options
from samebits.operations.sharing import Block
from samebits.program import blocks
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16 = np.float32, ml_dtypes.bfloat16
M, K, N = 3, 64, 24
ROWS = [row.name for row in isas.isas() if row.available]


def drawn(*shape: int, seed: int = 0, kind: Any = F32) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(kind)


def run(p: Program, feed: dict[str, Array], isa: str | None = None) -> dict[str, Array]:
    """Of the session, which are the reference's in every bit."""
    found, due = cpu.prepare(p, threads=1, isa=isa).run(feed), reference.run(p, feed)
    for name, x in found.items():
        assert x.dtype == due[name].dtype
        assert x.tobytes() == np.ascontiguousarray(due[name]).tobytes(), name
    return found


def array(x: Any) -> Array:
    return sb.to_padded(x).numpy() if isinstance(x, sb.Tensor) else np.asarray(x)


# Format, dialect, dtype of x: every width of elements, global scales that multiply and divide.
CASES = [
    ("nvfp4", None, BF16), ("nvfp4", "nvfp4/te-2", F32), ("mxfp6-e2m3", None, F32), ("mxfp8-e4m3", "mx/ceil", BF16),
    ("int8-group32", None, F32), ("mxint8", None, BF16),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dialect", "kind"), CASES)
def test_bits_are_those_of_the_eager_functions(name: str, dialect: str | None, kind: Any) -> None:
    x, w = drawn(M, K, kind=kind), sb.quantize(drawn(N, K, seed=1), name, dialect=dialect)
    b = ProgramBuilder("p")
    given = b.input("x", dtypes.of(x.dtype), (dim.symbol("n"), K))
    q, weight = blocks.quantized(b, given, name, dialect), blocks.constant(b, w)
    outputs = {
        "both": blocks.linear(b, q, weight), "one": blocks.linear(b, given, weight), "back": blocks.dequantized(b, q),
        "weight": blocks.dequantized(b, weight, dtypes.bfloat16), "elements": q.elements, "scales": q.scales,
    }  # fmt: skip
    found = run(b.build(outputs), {"x": x}, ROWS[CASES.index((name, dialect, kind)) % len(ROWS)])
    whole = {"global_scale": "row"} if w.global_scale is not None else {}
    due = sb.quantize(x, name, dialect=dialect, **whole)
    eager = {
        "both": sb.linear(due, w), "one": sb.linear(x, w), "back": due.dequantize(),
        "weight": w.dequantize("bfloat16"), "elements": due.elements, "scales": due.scales,
    }  # fmt: skip
    for output, value in eager.items():
        assert found[output].tobytes() == np.ascontiguousarray(array(value)).tobytes(), output


@pytest.mark.parametrize("name", ["nvfp4-16x16", "fp8-128x128", "uint4-group32-zero", "int8-row"])
def test_weights_of_every_kind_of_block_are_constants(name: str) -> None:
    x, w = drawn(M, 96), sb.quantize(drawn(32, 96, seed=1), name)
    b = ProgramBuilder("p")
    given, weight = b.input("x", dtypes.float32, (M, 96)), blocks.constant(b, w)
    outputs = {"y": blocks.linear(b, given, weight), "w": blocks.dequantized(b, weight)}
    found = run(b.build(outputs), {"x": x})
    assert found["y"].tobytes() == sb.linear(x, w).tobytes()
    assert found["w"].tobytes() == w.dequantize().numpy().tobytes()


def test_elements_of_four_bits_stay_packed_as_constants() -> None:
    w, b = sb.quantize(drawn(N, K, seed=1), "nvfp4"), ProgramBuilder("p")
    weight = blocks.constant(b, w)
    p = b.build({"y": blocks.linear(b, b.input("x", dtypes.float32, (M, K)), weight)})
    (elements,) = [x for x in p.constants.values() if isinstance(x, sb.Tensor)]
    assert elements.nbytes == N * K // 2


@pytest.mark.parametrize(("i", "name"), [*enumerate(["nvfp4", "int4-group32", "mxfp4", "int8-group64"])])
def test_a_weight_beside_what_is_quantised_is_packed_once(i: int, name: str) -> None:
    w, b, rows = sb.quantize(drawn(70, 192, seed=1), name), ProgramBuilder("p"), dim.symbol("n")
    isa = ROWS[-1 - i % len(ROWS)]
    x = blocks.quantized(b, b.input("x", dtypes.float32, (rows, 192)), name)
    p = b.build({"y": blocks.linear(b, x, blocks.constant(b, w))})
    plans = "".join(cpu.prepare(p, threads=1, isa=isa).plans({"n": 3}))
    sums_bytes = {"dot4_uint8_int8", "dot4_int8"} & {*isas.named(isa).instructions}
    assert ("packed[192,70]" in plans) == bool(sums_bytes)
    for m in (1, 3, 40):
        run(p, {"x": drawn(m, 192)}, isa)


def test_a_global_scale_is_an_operand() -> None:
    x, b = drawn(M, K), ProgramBuilder("p")
    given, whole = b.input("x", dtypes.float32, (M, K)), b.input("g", dtypes.float32, (M, 1))
    q = blocks.quantized(b, given, "nvfp4", global_scale=whole)
    scales = np.array([[0.5], [1.0], [0.25]], F32)
    found = run(b.build({"e": q.elements, "s": q.scales}), {"x": x, "g": scales})
    due = sb.quantize(x, "nvfp4", global_scale=scales)
    assert np.array_equal(found["e"].view(np.uint8), array(due.elements).view(np.uint8))
    assert found["s"].tobytes() == array(due.scales).tobytes()


@pytest.mark.parametrize("name", [row.name for row in dtypes.ROWS if row.width_bits <= 8 and row is not dtypes.bool_])
def test_a_constant_weight_of_any_format_has_the_bits_of_the_eager_product(name: str) -> None:
    """Those that no panels hold the codes of stay as they are."""
    random, dtype = np.random.default_rng(5), dtypes.of(name)
    w = random.integers(0, 1 << dtype.width_bits, (50, N)).astype(np.uint8).view(dtype.numpy)
    scale, x = random.standard_normal((4, N)).astype(F32), drawn(M, 50)
    b = ProgramBuilder("p")
    given = b.input("x", dtypes.float32, (dim.symbol("n"), 50))
    y = b.contract(given, b.constant(w), Options(b_group=Block(16)), b_scale=b.constant(scale))
    found = run(b.build({"y": y}), {"x": x})
    assert found["y"].tobytes() == sb.matmul(x, w, b_scale=scale, b_group=16).tobytes()


@pytest.mark.parametrize("line", [True, False])
def test_rows_depend_on_the_batch_only_by_a_global_scale_of_everything(line: bool) -> None:
    b = ProgramBuilder("p")
    q = blocks.quantized(b, b.input("x", dtypes.float32, (dim.symbol("batch"), K)), "nvfp4", line=line)
    p = b.build({"y": blocks.dequantized(b, q)})
    (proof,) = sb.verify(p, most_elements=1 << 12).proofs
    assert proof.proved == line


def test_what_no_kernel_makes_is_refused_with_what_would_do() -> None:
    b = ProgramBuilder("p")
    x, short = b.input("x", dtypes.float32, (M, K)), b.input("short", dtypes.float32, (M, 40))
    lines = "must be a format of lines of blocks, without zero points and code books"
    whole = b.scalar(1.0, dtypes.float32)
    cases: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((x, "fp8-128x128"), sb.OptionError,
         f"quantize: format is fp8-128x128, {lines}; quantise it before, with samebits.quantize"),
        ((short, "mxfp8-e4m3"), sb.ShapeError,
         "quantize: x is float32[3, 40], must be [..., a multiple of 32]; pad it with zeros first"),
        ((x, "mxfp8-e4m3", None, whole), sb.ShapeError,
         "quantize: global_scale is float32[], must be left out for mxfp8-e4m3; reshape it, or leave it out"),
    ]  # fmt: skip
    for arguments, kind, said in cases:
        with pytest.raises(kind) as error:
            blocks.quantized(b, *arguments)
        assert str(error.value) == said
    with pytest.raises(sb.OptionError) as error:
        blocks.constant(b, sb.quantize(drawn(K, N), "nvfp4", axis=-2))
    assert str(error.value) == "program.constant: q axis is -2, must be -1; quantise along the last axis"
    with pytest.raises(sb.OptionError) as error:
        blocks.dequantized(b, blocks.constant(b, sb.quantize(drawn(N, K), "nf4")))
    assert str(error.value).startswith("program.dequantized: x format is nf4, must be without a code book")
