"""Series: plans that run one after the other in one native call, each on addresses that the call brings.

A `Table` is made once and run often; a series is made for one run, out of plans that were laid out before. Its words
are those of a table (`pool_text`). Start at `run`.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from samebits.kernels.plan import Operand, Plan
from samebits.native import scratch
from samebits.native.table import HEADER, STEP, Table, grain

_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Laid:
    """A plan as words: of each step its kernel, where its arguments begin, its tasks and its grain; the arguments; and
    which of them are operands: position, operand, offset in bytes."""

    plan: Plan
    steps: tuple[tuple[int, int, int, int], ...]
    arguments: array[int]
    operands: tuple[tuple[int, int, int], ...]


def lay(plan: Plan) -> Laid:
    """The plan's words.

    Raises:  NativeError if a kernel cannot be compiled.
    """
    if not plan.isa.compiled:
        return Laid(plan, (), array("q"), ())
    from samebits.native import compile  # LLVM is needed for compiled rows alone

    steps, arguments, operands = [], array("q"), []
    for step in plan.steps:
        if step.tasks:
            kernel = compile.address(step.spec)
            steps.append((kernel, len(arguments), step.tasks, grain(step.tasks, plan.threads)))
            for x in step.arguments:
                if isinstance(x, Operand):
                    operands.append((len(arguments), x.index, x.offset_bytes))
                arguments.append(0 if isinstance(x, Operand) else x)
    return Laid(plan, tuple(steps), arguments, tuple(operands))


def run(parts: Sequence[tuple[Laid, Sequence[int]]], threads: int) -> None:
    """Perform plans of `threads` threads in their order, each with one address an operand; they share a workspace."""
    if not parts:
        return
    plans = [laid.plan for laid, _ in parts]
    workspace = scratch.take(max(plan.workspace_bytes for plan in plans))
    size_bytes = max(-(-plan.scratch_bytes // _LINE_BYTES) * _LINE_BYTES for plan in plans)
    block = scratch.take(size_bytes * threads)
    try:
        if plans[0].isa.compiled:
            _run_native(parts, threads, workspace.address, block.address, size_bytes)
        else:
            for laid, addresses in parts:
                _table(laid.plan).run([*addresses, workspace.address])
    finally:
        scratch.give(block)
        scratch.give(workspace)


def _run_native(
    parts: Sequence[tuple[Laid, Sequence[int]]], threads: int, workspace: int, block: int, size_bytes: int
) -> None:
    from samebits.native import pool

    steps, arguments, shares = array("q"), array("q"), 0
    for laid, addresses in parts:
        start, places = len(arguments), (*addresses, workspace)
        arguments.extend(laid.arguments)
        for position, operand, offset in laid.operands:
            arguments[start + position] = places[operand] + offset
        for kernel, at, tasks, each in laid.steps:
            steps.extend((kernel, start + at, tasks, each))
            shares |= tasks > 1
    base = arguments.buffer_info()[0]
    for i in range(1, len(steps), STEP):
        steps[i] = base + 8 * steps[i]
    workers = pool.pool(threads).address if shares and threads > 1 else 0
    words = array("q", [len(steps) // STEP, threads, block, size_bytes, workers, *[0] * (HEADER - 5)])
    words.extend(steps)
    pool.run_function()(words.buffer_info()[0])


@functools.lru_cache(maxsize=64)
def _table(plan: Plan) -> Table:
    slots = len(plan.operands) + 1
    return Table([(plan, range(slots))], slots, plan.threads)
