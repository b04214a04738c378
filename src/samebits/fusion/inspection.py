"""What a fusion ran, as text: the program behind its kernels, their plans, their LLVM IR and their assembly.

Start at `ir` and `assembly`; `scheduled` is what nvFuser calls a scheduled fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.errors import FusionError
from samebits.kernels.plan import Plan
from samebits.program.cuts import cuts
from samebits.program.graph import Program
from samebits.runtime.cpu import plan_text

__all__ = ["Ran", "assembly", "ir", "plan_texts", "scheduled"]

Ran = Sequence[tuple[str, Plan]]
"""Kernels that ran: the values that each stands for, and its plan."""


def plan_texts(ran: Ran) -> list[str]:
    """The plan of each kernel, under the values that it makes."""
    return [plan_text(origin, plan) for origin, plan in ran]


def scheduled(program: Program) -> str:
    """The program, a node a kernel or a view, and why kernels that feed each other are not one."""
    return "\n".join([str(program), *(f"  cut {cut}" for cut in cuts(program))])


def ir(call: str, ran: Ran) -> str:
    """The LLVM IR of what ran, as it is emitted: before LLVM optimises it.

    Raises:  FusionError if the Isa row is interpreted.
    """
    from samebits.native import compile  # LLVM, which running needs alone

    return _each(call, ran, compile.module)


def assembly(call: str, ran: Ran) -> str:
    """The assembly of what ran, for the processor of the Isa row.

    Raises:  FusionError if the Isa row is interpreted.
    """
    from samebits.native import compile

    return _each(call, ran, compile.assembly)


def _each(call: str, ran: Ran, text: Callable[[KernelSpec | FunctionSpec], str]) -> str:
    """What each kernel, and each function that it calls, is as text; one that runs twice once."""
    found: dict[KernelSpec | FunctionSpec, str] = {}
    for origin, plan in ran:
        if not plan.isa.compiled:
            remedy = "choose another with samebits.use_isa"
            raise FusionError(call, "isa", "", plan.isa.name, "a row that is compiled", remedy)
        for step in plan.steps:
            for spec in step.needs if step.tasks else ():
                found.setdefault(spec, f"; {origin}: {spec.name}\n{text(spec)}")
    return "\n".join(found.values())
