"""The machine code of each row keeps to the row: its registers, its width, and the roundings of its text."""

from __future__ import annotations

import re

import pytest
import rows

from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import float32, float64, int8
from samebits.native import compile

X86 = pytest.mark.skipif(isas.host_arch() != "x86_64", reason="reads x86-64 assembly")


def element_loops(b: Builder, description: int) -> None:
    """Loops that a vectoriser would widen: a map, a sum, and straight-line copies of one statement."""
    n, x, y, z = b.index("n"), b.pointer("x", float32), b.pointer("y", float32), b.pointer("z", float64)
    width = description
    for i in b.loop(0, n, width):
        v = b.load(x, i, width)
        b.store(y, i, b.maximum(b.add(b.mul(v, v), b.sqrt(v)), b.div(v, b.neg(b.abs(v)))))
    carry = [b.constant(0.0, float64, width)]
    for i in b.loop(0, n, width, carry=carry):
        v = b.convert(b.load(y, i, width), float64)
        carry[0] = b.fma(v, v, carry[0])
    b.store(z, 0, carry[0])
    for k in range(8):
        b.store(y, k * width, b.add(b.load(x, k * width, width), b.constant(1.5, float32, width)))


def roots(b: Builder, description: None) -> None:
    """A loop that LLVM unrolls: one square root a turn."""
    x = b.pointer("x", float32)
    for i in b.loop(0, 4):
        b.store(x, i, b.sqrt(b.load(x, i, 1)))


def mul_then_add(b: Builder, description: int) -> None:
    """x * y + z and x * y - z, two roundings each."""
    width = description
    for dtype in (float32, float64):
        p = b.pointer(f"p{dtype.width_bits}", dtype)
        x, y, z = (b.load(p, k * width, width) for k in range(3))
        b.store(p, 3 * width, b.add(b.mul(x, y), z))
        b.store(p, 4 * width, b.sub(b.mul(x, y), z))
        b.store(p, 5 * width, b.sub(z, b.mul(x, y)))
        b.store(p, 6 * width, b.neg(b.add(b.mul(x, y), z)))


def fused(b: Builder, description: int) -> None:
    """x * y + z, one rounding."""
    p, width = b.pointer("p", float32), description
    b.store(p, 0, b.fma(b.load(p, 0, width), b.load(p, width, width), b.load(p, 2 * width, width)))


def narrowed(b: Builder, description: int) -> None:
    """A vector of floats as bytes."""
    b.store(b.pointer("y", int8), 0, b.convert(b.load(b.pointer("x", float32), 0, description), int8))


def instructions(spec: KernelSpec, arch: str | None = None) -> list[tuple[str, str]]:
    """(mnemonic, operands) of every instruction of a kernel."""
    found = []
    for line in compile.assembly(spec, arch).splitlines():
        words = line.split("#")[0].strip().split(None, 1)
        if words and not words[0].startswith((".", "//")) and not words[0].endswith(":"):
            found.append((words[0], words[1] if len(words) > 1 else ""))
    return found


def loops(isa: Isa, width: int) -> KernelSpec:
    """The kernel of `element_loops`."""
    return KernelSpec(element_loops, width, ("n", "x", "y", "z"), isa)


# Packed mnemonics that a scalar operation is made of: moves, sign masks of neg and abs, the NaN and zero handling of
# maximum, and the packing of neighbouring results into one store. None of them rounds.
_IDIOMS = re.compile(
    r"v?(mov\w*|xorp[sd]|andp[sd]|andnp[sd]|orp[sd]|blendvp[sd]|blendp[sd]|testp[sd]|insertps|unpck[lh]p[sd])"
)
_PACKED = re.compile(r"v?\w+p[sd]")


def named(name: str) -> Isa:
    """A row by name, whether or not this machine runs it."""
    return next(row for row in (*isas.ROWS, rows.FAKE3) if row.name == name)


@X86
def test_the_scalar_row_has_no_packed_arithmetic() -> None:
    for width in (1, 5):
        found = {m for m, _ in instructions(loops(named("scalar"), width)) if _PACKED.fullmatch(m)}
        assert [m for m in sorted(found) if not _IDIOMS.fullmatch(m)] == []


@X86
def test_the_scalar_row_uses_no_wide_register() -> None:
    text = " ".join(operands for _, operands in instructions(loops(named("scalar"), 5)))
    assert not re.search(r"%[yz]mm", text)


@X86
def test_a_width_of_one_stays_scalar_on_every_row() -> None:
    """LLVM's vectorisers are off: only the text widens."""
    for name in ("avx2", "avx512"):
        code = instructions(loops(named(name), 1))
        assert [m for m, _ in code if _PACKED.fullmatch(m) and not _IDIOMS.fullmatch(m)] == []
        assert {"vaddss", "vsqrtss", "vdivss"} <= {m for m, _ in code}


@X86
def test_the_avx2_row_keeps_to_sixteen_ymm() -> None:
    operands = " ".join(operands for _, operands in instructions(loops(named("avx2"), 8 * 3)))
    assert "%ymm" in operands
    assert not re.search(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]", operands)


@X86
def test_the_avx512_row_uses_zmm() -> None:
    code = instructions(loops(named("avx512"), 16))
    assert any(m == "vmulps" and "%zmm" in operands for m, operands in code)
    assert any(m.startswith("vfmadd") and "%zmm" in operands for m, operands in code)


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda r: r.name)
def test_a_product_and_a_sum_are_never_fused(isa: Isa) -> None:
    for width in (1, isa.lanes, isa.lanes + 1):
        spec = KernelSpec(mul_then_add, width, ("p32", "p64"), isa)
        assert [m for m, _ in instructions(spec) if re.match(r"vfn?m|f(n?)m(add|sub|la|ls)", m)] == []


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda r: r.name)
def test_a_product_and_a_sum_are_never_fused_on_aarch64(isa: Isa) -> None:
    for width in (1, isa.lanes, isa.lanes + 1):
        spec = KernelSpec(mul_then_add, width, ("p32", "p64"), isa)
        found = [m for m, _ in instructions(spec, "aarch64")]
        assert [m for m in found if re.match(r"fn?m(add|sub|la|ls)", m)] == []
        assert "fmul" in found


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda r: r.name)
def test_fma_is_one_instruction(isa: Isa) -> None:
    """A call of libm's fma would be right and slow."""
    code = instructions(KernelSpec(fused, isa.lanes, ("p",), isa))
    assert not [m for m, _ in code if m in ("call", "callq", "bl")]
    assert [m for m, _ in code if re.match(r"vfmadd|fm(la|add)", m)]


def test_the_neon_row_uses_four_lanes() -> None:
    code = instructions(loops(named("neon"), 4), "aarch64")
    assert any(m == "fmul" and ".4s" in operands for m, operands in code)
    assert any(m == "fmla" and ".2d" in operands for m, operands in code)


def test_the_scalar_row_has_no_vectors_on_aarch64() -> None:
    arithmetic = re.compile(r"f(add|mul|div|sqrt|mla|madd|max|min|sub)")
    for m, operands in instructions(loops(named("scalar"), 1), "aarch64"):
        assert not (arithmetic.match(m) and re.search(r"\.(2s|4s|2d)", operands)), (m, operands)


@pytest.mark.parametrize(
    ("row", "arch"), [pytest.param("avx2", "x86_64", marks=X86), ("neon", "aarch64")], ids=lambda x: str(x)
)
def test_loops_are_not_unrolled_where_the_text_does_that_itself(row: str, arch: str) -> None:
    counts = [
        sum("sqrt" in mnemonic for mnemonic, _ in instructions(KernelSpec(roots, None, ("x",), named(row), u), arch))
        for u in (True, False)
    ]
    assert counts == [4, 1]


@X86
def test_registers_of_eight_lanes_become_narrower_together() -> None:
    names = [name for name, _ in instructions(KernelSpec(narrowed, 32, ("x", "y"), rows.row_named("avx2")))]
    assert [names.count(name) for name in ("vcvttps2dq", "vpackusdw", "vpackuswb")] == [4, 2, 1]
    assert "vpshufb" not in names  # which makes one register narrower
