"""Series: independent plans that run in one native call, each on addresses that the call brings.

A `Table` is made once and run often; a series is made for one run, out of plans that were laid out before. Its words
are those of a table (`pool_text`): the steps of plans for all threads, one after the other, and then one step whose
tasks are the plans for one thread, whole. Start at `run`.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence

from samebits.codegen import isa as isas
from samebits.codegen.vocabulary import FunctionSpec
from samebits.frozen import dataclass
from samebits.kernels.plan import Operand, Plan, in_lines
from samebits.native import scratch
from samebits.native.table import HEADER, STEP, alone, grain


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

    compile.link([spec for step in plan.steps if step.tasks for spec in step.needs])
    steps, arguments, operands = [], array("q"), []
    for step in plan.steps:
        if step.tasks:
            kernel = compile.address(step.spec)
            steps.append((kernel, len(arguments), step.tasks, grain(step.tasks, plan.threads)))
            for x in step.arguments:
                if isinstance(x, Operand):
                    operands.append((len(arguments), x.index, x.offset_bytes))
                    arguments.append(0)
                elif isinstance(x, FunctionSpec):
                    arguments.append(compile.address(x))
                else:
                    arguments.append(x)
    return Laid(plan, tuple(steps), arguments, tuple(operands))


def run(parts: Sequence[tuple[Laid, Sequence[int]]], threads: int) -> None:
    """Perform plans, each with one address an operand, on memory that no two of them share but to read.

    A plan for `threads` threads is shared by them; those for one are taken by whoever is free, in their order, and each
    has a workspace of its own.
    """
    if not parts:
        return
    plans = [laid.plan for laid, _ in parts]
    behind = max([in_lines(plan.workspace_bytes) for plan in plans if plan.threads == threads], default=0)
    workspace = scratch.take(behind + sum(in_lines(x.workspace_bytes) for x in plans if x.threads != threads))
    size_bytes = max(in_lines(plan.scratch_bytes) for plan in plans)
    block = scratch.take(size_bytes * threads)
    try:
        if not plans[0].isa.compiled:
            for laid, addresses in parts:
                alone(laid.plan).run([*addresses, workspace.address])
        else:
            _run_native(parts, threads, workspace.address, workspace.address + behind, block.address, size_bytes)
    finally:
        scratch.give(block)
        scratch.give(workspace)


def _run_native(
    parts: Sequence[tuple[Laid, Sequence[int]]], threads: int, workspace: int, behind: int, block: int, size_bytes: int
) -> None:
    from samebits.native import pool

    steps, own, whole, arguments = array("q"), array("q"), array("q"), array("q")
    for laid, addresses in parts:
        shared = laid.plan.threads == threads
        start, places = len(arguments), (*addresses, workspace if shared else behind)
        arguments.extend(laid.arguments)
        for position, operand, offset in laid.operands:
            arguments[start + position] = places[operand] + offset
        if not shared:
            whole.extend((len(own), len(laid.steps)))
            behind += in_lines(laid.plan.workspace_bytes)
        into = steps if shared else own
        for kernel, at, tasks, each in laid.steps:
            into.extend((kernel, start + at, tasks, each))
    for words, stride, base in ((steps, STEP, arguments), (own, STEP, arguments), (whole, 2, own)):
        begin = base.buffer_info()[0]
        for i in range(int(words is not whole), len(words), stride):
            words[i] = begin + 8 * words[i]
    if whole:
        steps.extend((_parts(), whole.buffer_info()[0], len(whole) // 2, 1))
    workers = pool.pool(threads).address if threads > 1 else 0
    table = array("q", [len(steps) // STEP, threads, block, size_bytes, workers, *[0] * (HEADER - 5)])
    table.extend(steps)
    pool.run_function()(table.buffer_info()[0])


@functools.cache
def _parts() -> int:
    """The address of `parts`."""
    from samebits.native import compile

    host = next(row for row in isas.ROWS if row.compiled and row.available)
    return compile.addresses(compile.module_unit(_TEXT, host.target()), ("parts",))[0]


# A kernel whose arguments are two words a task: where steps as in a table begin, and how many of them it performs.
_TEXT = """
define void @parts(ptr %list, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %part, label %done
part:
  %t = phi i64 [ %begin, %entry ], [ %t1, %after ]
  %place = shl i64 %t, 1
  %steps.at = getelementptr i64, ptr %list, i64 %place
  %steps = load ptr, ptr %steps.at
  %count.at = getelementptr i64, ptr %steps.at, i64 1
  %count = load i64, ptr %count.at
  br label %next
next:
  %i = phi i64 [ 0, %part ], [ %i1, %step ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %step, label %after
step:
  %offset = shl i64 %i, 2
  %step.at = getelementptr i64, ptr %steps, i64 %offset
  %kernel = load ptr, ptr %step.at
  %arguments.at = getelementptr i64, ptr %step.at, i64 1
  %arguments = load ptr, ptr %arguments.at
  %tasks.at = getelementptr i64, ptr %step.at, i64 2
  %tasks = load i64, ptr %tasks.at
  call void %kernel(ptr %arguments, i64 0, i64 %tasks, ptr %scratch)
  %i1 = add i64 %i, 1
  br label %next
after:
  %t1 = add i64 %t, 1
  %again = icmp slt i64 %t1, %end
  br i1 %again, label %part, label %done
done:
  ret void
}
"""
