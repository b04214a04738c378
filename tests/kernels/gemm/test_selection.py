"""Which engine a product runs on, by its formats, its Isa row and its machine; the plan says why not the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gemm_run import contraction
from rows import PRODUCT_ROWS, row_named

from samebits.dtypes import bfloat16, float8_e4m3fn, float16, float32, float64, int8, int16, uint8
from samebits.errors import DTypeError, OptionError
from samebits.kernels.gemm import Contraction, Matrix, Panels, Spec, engine
from samebits.kernels.gemm.machine import DEFAULT, SAPPHIRE_RAPIDS
from samebits.kernels.gemm.selection import candidates, engine_for, of_operands, packer_for
from samebits.kernels.gemm.tuned import Preferred

BF16 = row_named("avx512_bf16")
PAIRS = ((float32, float32), (bfloat16, bfloat16), (float64, float32), (int8, int8), (uint8, int8), (bfloat16, float32))


def test_the_engine_of_two_formats() -> None:
    for a, b, name in (
        (float32, float32, "fma float32"), (bfloat16, bfloat16, "bfloat16 pairs"), (bfloat16, float32, "fma float32"),
        (float8_e4m3fn, bfloat16, "bfloat16 pairs"), (float64, float32, "fma float64"),
        (uint8, int8, "uint8 x int8 quads"), (int8, uint8, "int8 x uint8 quads"),
    ):  # fmt: skip
        assert engine_for(a, b, BF16, DEFAULT).name == name, (a, b)
    assert engine_for(bfloat16, bfloat16, row_named("avx512"), DEFAULT).name == "fma float32"
    assert engine_for(bfloat16, bfloat16, BF16, DEFAULT, Spec(33)).name == "fma float32"
    assert engine_for(bfloat16, bfloat16, BF16, SAPPHIRE_RAPIDS).name == "fma float32"
    with pytest.raises(DTypeError) as caught:
        engine_for(int16, int8, BF16, DEFAULT)
    assert str(caught.value).endswith("b dtype is int8, must be one that multiplies with int16; convert a to float32")


def test_what_packs_keeps_codes_of_16_bits_where_sums_are_of_float32() -> None:
    for a, b, name in (
        (bfloat16, bfloat16, "bfloat16 codes"), (float32, bfloat16, "bfloat16 codes"),
        (float16, float16, "float16 codes"), (bfloat16, float16, "float16 codes"), (float16, float32, "fma float32"),
        (float32, float8_e4m3fn, "fma float32"), (float64, bfloat16, "fma float64"),
    ):  # fmt: skip
        assert packer_for(a, b, BF16, SAPPHIRE_RAPIDS).name == name, (a, b)
    assert packer_for(bfloat16, bfloat16, BF16, DEFAULT) is engine.PAIRS
    for row in PRODUCT_ROWS:
        widens = "float16" in row.instructions
        assert packer_for(float16, float16, row, DEFAULT).name == ("float16 codes" if widens else "fma float32")
        if "dot2_bfloat16" not in row.instructions:
            assert packer_for(bfloat16, bfloat16, row, DEFAULT).name == "bfloat16 codes"


def test_candidates_are_what_an_engine_is_chosen_from() -> None:
    for row in PRODUCT_ROWS:
        for a, b in PAIRS:
            found = candidates(a, b, row)
            chosen = engine_for(a, b, row, DEFAULT)
            assert chosen in found or (row.has_tiles and chosen.tile)
            for one in found:
                assert one.is_native(row)
                machine = replace(DEFAULT, preferred=(Preferred(a.name, b.name, one.name),))
                chosen = engine_for(a, b, row, machine)
                # Of engines of unlike signs the one that suits the operands stays.
                assert chosen is one or one.unsigned or chosen.tile, (a, b, one.name)


def described(m: int, a: Matrix, b: Matrix | Panels) -> Contraction:
    return contraction(m, 64, 256, a, b, Matrix(64, 1))


def test_what_was_passed_over_is_told_in_the_order_of_the_rows() -> None:
    c = described(100, Matrix(256, 1, (), bfloat16), Matrix(64, 1, (), bfloat16))
    assert of_operands(c, BF16, DEFAULT, None, None) == (engine.PAIRS, ())
    slower = (("bfloat16 pairs", "slower than fma float32 on sapphirerapids"),)
    assert of_operands(c, BF16, SAPPHIRE_RAPIDS, None, None) == (engine.FMA32, slower)
    missing = (("bfloat16 pairs", "Isa row avx512 has no dot2_bfloat16"),)
    for machine in (DEFAULT, SAPPHIRE_RAPIDS):
        assert of_operands(c, row_named("avx512"), machine, None, None) == (engine.FMA32, missing)
    # What is asked for by name is taken wherever it is slow.
    assert of_operands(c, BF16, SAPPHIRE_RAPIDS, "bfloat16 pairs", None) == (engine.PAIRS, ())
    with pytest.raises(OptionError, match="'int32' for bfloat16 and bfloat16"):
        of_operands(c, BF16, DEFAULT, "int32", None)


def test_panels_name_their_engine_on_every_machine() -> None:
    panels = Panels(32, (), bfloat16, "bfloat16 pairs")
    c = described(100, Matrix(256, 1, (), bfloat16), panels)
    assert of_operands(c, BF16, SAPPHIRE_RAPIDS, None, None) == (engine.PAIRS, ())


def test_few_rows_take_weights_as_they_are_read() -> None:
    weights = Panels(32, (), int8, "int8 weights")
    for m, name in ((12, "fma float32"), (13, "bfloat16 pairs")):
        found, rejected = of_operands(described(m, Matrix(256, 1, (), bfloat16), weights), BF16, DEFAULT, None, None)
        assert found.name == name
        assert bool(rejected) == (m == 12)
