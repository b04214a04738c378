"""Plan, Step and Operand: what every kernel room's `plan()` returns and `native.Table` runs.

A plan is pure data: nothing below it chooses, and printing it shows what runs and what was rejected and why.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.frozen import dataclass, replace

LINE_BYTES = 64
# Work below which a second thread costs more than it gives (about 20 us of one core): elements, or what `work` of a
# contraction counts (one row of float32 and 768 x 768, 2.4 MB, microseconds by one thread and two: 57 and 30).
SMALL = {"elements": 1 << 16, "products": 1 << 20}
# The same in a program, whose workers are awake from one step to the next (softmax of 12 x 32 x 32, microseconds by one
# thread and two: 13.5 and 9.4; 12 products 8 x 8 x 32: 2.7 and 3.0).
SMALL_AWAKE = {"elements": 1 << 13, "products": 1 << 17}


def sized(threads: int, work: int, unit: str = "elements") -> int:
    """How many of the threads share this much work: one where a second would cost more than it gives."""
    return threads if work >= SMALL[unit] else 1


def in_lines(size_bytes: int) -> int:
    """size_bytes rounded up to whole cache lines."""
    return -(-size_bytes // LINE_BYTES) * LINE_BYTES


@dataclass(frozen=True, slots=True)
class Operand:
    """The address of the plan's `index`-th operand plus `offset_bytes`."""

    index: int
    offset_bytes: int = 0

    def behind(self, count: int) -> Operand:
        """The address so many bytes behind."""
        return Operand(self.index, self.offset_bytes + count)


# What a step passes to its kernel.
Argument = int | Operand | FunctionSpec


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel over `tasks` independent tasks; `arguments` in the order of `spec.parameters`, then unnamed ones; a
    function stands for its address."""

    spec: KernelSpec
    tasks: int
    arguments: tuple[Argument, ...]

    @property
    def needs(self) -> tuple[KernelSpec | FunctionSpec, ...]:
        """What is compiled for it: the functions that the kernel calls, then the kernel."""
        found = [x for x in self.arguments if type(x) is FunctionSpec]
        return (*dict.fromkeys(found), self.spec) if found else (self.spec,)

    def on(self, *operands: Operand) -> Step:
        """The step with other operands: its i-th becomes `operands[i]`, counted from where that begins."""

        def moved(x: Argument) -> Argument:
            if not isinstance(x, Operand):
                return x
            place = operands[x.index]
            return Operand(place.index, place.offset_bytes + x.offset_bytes)

        return replace(self, arguments=tuple(map(moved, self.arguments)))


@dataclass(frozen=True, slots=True)
class Plan:
    """How something is computed: steps run in order with a barrier between. Prints itself, with what was rejected.

    Attributes:
        what: The description that it is for, as text.
        isa: The instruction set of its kernels.
        threads: How many share the tasks of a step, at most.
        steps: Kernels with their arguments.
        operands: Names of what it is run on, in order; after them comes the workspace.
        scratch_bytes: Temporary memory of a thread.
        workspace_bytes: Temporary memory that all threads share.
        facts: Choices by name, as they are printed.
        rejected: Candidates that were not taken, each with the reason.
    """

    what: str
    isa: Isa
    threads: int
    steps: tuple[Step, ...]
    operands: tuple[str, ...]
    scratch_bytes: int = 0
    workspace_bytes: int = 0
    facts: tuple[tuple[str, str], ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()

    @property
    def workspace(self) -> int:
        """The operand number of the shared temporary."""
        return len(self.operands)

    def __str__(self) -> str:
        lines = [f"{self.what}", f"  isa {self.isa.name}, threads {self.threads}"]
        lines += [f"  {name}: {value}" for name, value in self.facts]
        lines.append(f"  scratch {self.scratch_bytes} bytes a thread, workspace {self.workspace_bytes} bytes")
        lines += [f"  step {i}: {s.spec.name}, tasks {s.tasks}" for i, s in enumerate(self.steps)]
        lines += [f"  rejected {candidate}: {reason}" for candidate, reason in self.rejected]
        return "\n".join(lines)


def chained(first: Plan, then: Plan, size_bytes: int) -> Plan:
    """`then` on what `first` makes as its only result: the operands of `first`, then the further ones of `then`.

    Args:    size_bytes: of that result, with which the workspace begins.
    """
    inputs, workspace = len(first.operands) - 1, len(first.operands) + len(then.operands) - 2
    made, behind = Operand(workspace), Operand(workspace, in_lines(size_bytes))
    before, after = map(Operand, range(inputs)), map(Operand, range(inputs, workspace))
    of_first, of_then = (*before, made, behind), (made, *after, behind)
    steps = *[x.on(*of_first) for x in first.steps], *[x.on(*of_then) for x in then.steps]
    return replace(
        then,
        what=f"{first.what}; {then.what}",
        threads=max(first.threads, then.threads),
        steps=steps,
        operands=(*first.operands[:-1], *then.operands[1:]),
        scratch_bytes=max(first.scratch_bytes, then.scratch_bytes),
        workspace_bytes=behind.offset_bytes + max(first.workspace_bytes, then.workspace_bytes),
    )
