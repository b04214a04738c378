"""LLVM text to an object file, in this process or in a compiler process (`native.compiler`), which imports no more.

LLVM's loop and SLP vectorisers stay off: the order of operations and the width of vectors are the text's. It is loaded
by the first call, not by importing this: a process that finds its objects does without. Start at `object_code`.

A kernel's text is what it is to be run as: values in registers, loops with their tests at the end, no calls to inline.
So it has the few passes of `KERNEL_PASSES`, whose kernels are as fast as those of LLVM's whole pipeline (sorts are a
third faster) in little more than half of its time. Other modules have the whole pipeline.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

# llvmlite's names, in the order in which they run. What a loop of few steps keeps in memory becomes registers once the
# loop is unrolled, and redundant loads are gone before it is.
KERNEL_PASSES = "sroa new_gvn instruction_combine simplify_cfg loop_unroll sroa instruction_combine simplify_cfg"


# Processors, by LLVM's names, that decode 32 bytes of code anew each time if a jump crosses or touches their end
# (Intel, "Mitigations for Jump Conditional Code Erratum", 2019), and LLVM's option that pads code until none does.
# Without it the loop of a microkernel takes up to 1.3 of its time on them, by where it happens to lie.
PADDED = frozenset({"skylake", "skylake-avx512", "cascadelake"})
PADDING = "--x86-branches-within-32B-boundaries"


class Processor(NamedTuple):
    """What LLVM compiles for, in its own words; `option` is one of its command line, or nothing."""

    triple: str
    cpu: str
    features: str
    option: str = ""


@functools.cache
def llvm() -> Any:
    """LLVM, which knows every processor."""
    import llvmlite.binding

    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    return llvmlite.binding


@functools.cache
def machine(processor: Processor) -> Any:
    """LLVM's target machine, whose option is set for all that this process compiles from here on."""
    if processor.option:
        llvm().set_option("samebits", processor.option)
    return (
        llvm()
        .Target.from_triple(processor.triple)
        .create_target_machine(cpu=processor.cpu, features=processor.features, opt=3, reloc="pic", codemodel="small")
    )


def optimised(text: str, processor: Processor, passes: str = "") -> Any:
    """The parsed and optimised module.

    Args:    passes: their names, like `KERNEL_PASSES`; without names, LLVM's pipeline.
    Raises:  RuntimeError, with LLVM's reason, if it refuses the text.
    """
    target = machine(processor)
    parsed = llvm().parse_assembly(text)
    parsed.verify()
    parsed.triple, parsed.data_layout = target.triple, str(target.target_data)
    options = llvm().create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm().create_pass_builder(target, options)
    manager = llvm().create_new_module_pass_manager() if passes else builder.getModulePassManager()
    try:
        for name in passes.split():
            getattr(manager, f"add_{name}_pass")()
        manager.run(parsed, builder)
    finally:
        _dispose(manager)
    return parsed


def _dispose(manager: Any) -> None:
    """Free a pass manager and what its passes keep, which may be a third of a megabyte.

    llvmlite has a method for it that its `close` does not reach: a class before it has one of that name that does
    nothing. A version whose `close` does finds nothing left to do.
    """
    llvm().newpassmanagers.NewPassManager._dispose(manager)
    manager.detach()


def object_code(text: str, processor: Processor, passes: str = "") -> bytes:
    """The object file of a text.

    Args:    passes: as those of `optimised`.
    Raises:  RuntimeError, with LLVM's reason, if it refuses the text.
    """
    return bytes(machine(processor).emit_object(optimised(text, processor, passes)))


def assembly(text: str, processor: Processor, passes: str = "") -> str:
    """The machine code of a text as assembly text.

    Args:    passes: as those of `optimised`.
    Raises:  RuntimeError, with LLVM's reason, if it refuses the text.
    """
    return str(machine(processor).emit_assembly(optimised(text, processor, passes)))
