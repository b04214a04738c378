"""LLVM text to an object file, in this process or in a compiler process (`native.compiler`), which imports no more.

LLVM's loop and SLP vectorisers stay off: the order of operations and the width of vectors are the text's. It is loaded
by the first call, not by importing this: a process that finds its objects does without. Start at `object_code`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple


class Processor(NamedTuple):
    """What LLVM compiles for, in its own words."""

    triple: str
    cpu: str
    features: str


@functools.cache
def llvm() -> Any:
    """LLVM, which knows every processor."""
    import llvmlite.binding

    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    return llvmlite.binding


@functools.cache
def machine(processor: Processor) -> Any:
    """LLVM's target machine."""
    return (
        llvm()
        .Target.from_triple(processor.triple)
        .create_target_machine(cpu=processor.cpu, features=processor.features, opt=3, reloc="pic", codemodel="small")
    )


def optimised(text: str, processor: Processor) -> Any:
    """The parsed and optimised module.

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
    builder.getModulePassManager().run(parsed, builder)
    return parsed


def object_code(text: str, processor: Processor) -> bytes:
    """The object file of a text.

    Raises:  RuntimeError, with LLVM's reason, if it refuses the text.
    """
    return bytes(machine(processor).emit_object(optimised(text, processor)))
