"""What must not matter to a product's bits: everything but its operands' values. `gemm_cases.py` draws the cases.

The default run takes a sample; `exhaustive` has every M of 0..70, 127..129 and 512 on every row and kind of operands.
"""

from __future__ import annotations

import pytest
from gemm_cases import KINDS, Kind, cases
from rows import PRODUCT_ROWS, rows_of_engines

from samebits.codegen.isa import Isa


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sample_has_the_bits_of_the_reference(kind: Kind) -> None:
    """One row of the kind, another for the next kind; a few M."""
    i = KINDS.index(kind)
    isa = PRODUCT_ROWS[i % len(PRODUCT_ROWS)]
    wrong = [case for case in cases(kind, isa, (i % 3, 5 + i % 13, 70 - i % 29)) if not case.run(rows=70)]
    assert wrong == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "isa"),
    [pytest.param(kind, row, id=f"{kind}-{row.name}") for kind in KINDS for row in rows_of_engines(kind.a, kind.b)],
)
def test_every_m_has_the_bits_of_the_reference(kind: Kind, isa: Isa, capsys: pytest.CaptureFixture[str]) -> None:
    ran, wrong = 0, []
    for case in sorted(cases(kind, isa), key=lambda case: case.k):
        ran += 1
        if not case.run():
            wrong.append(case)
    with capsys.disabled():
        print(f"\n{kind} on {isa.name}: {ran} products, wrong = {len(wrong)}", end=" ")
    assert wrong == []
