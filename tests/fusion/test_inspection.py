"""What a fusion ran, as text: programs and their cuts, plans, LLVM IR, assembly."""

import numpy as np
import pytest

import samebits as sb
from samebits.fusion import FusionDefinition, FusionExecutorCache

F32 = np.float32
X = np.arange(12, dtype=F32).reshape(3, 4)


def defined(define):
    with FusionDefinition() as fd:
        define(fd)
    return fd


def two_ways(fd):
    """Sums along both axes of a difference: two kernels."""
    x = fd.define_tensor([-1, -1], True)
    y = fd.ops.sub(x, fd.ops.sum(x, dims=[1], keepdim=True))
    fd.add_output(fd.ops.sum(y, dims=[0]))


def test_kernels_and_their_cuts_are_printed():
    fd = defined(two_ways)
    with pytest.raises(sb.errors.FusionError) as error:
        FusionExecutorCache(fd.fusion).get_most_recent_scheduled_ir()
    assert str(error.value) == (
        "get_most_recent_scheduled_ir: run is missing, must be one that came before; call execute first"
    )
    fd.execute([X])
    text = fd.fec.get_scheduled_ir([X])
    assert text == fd.fec.get_most_recent_scheduled_ir()
    assert text.splitlines()[-1] == "  cut T1 | T3+T4: one reduces axes [-1], the other [-2]"
    plans = fd.fec.kernels([X])
    assert [plan.splitlines()[0] for plan in plans] == ["T1", "T3+T4"]
    assert fd.fec.get_scheduled_ir([X], tensor_transforms=True) == "\n".join([text, *plans])
    fd.execute([X])  # like the run before: by its table at once
    assert fd.fec.get_most_recent_scheduled_ir() == text


def test_kernels_are_those_of_arrays_that_lie_so():
    fd = defined(lambda fd: fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True), dims=[1])))
    x = np.ones((64, 64), F32)
    fd.execute([x])
    assert "lanes: one a row" not in fd.fec.kernels([x])[0]
    assert "lanes: one a row" in fd.fec.kernels([x.T])[0]


def test_machine_code_of_what_ran_is_text():
    fd = defined(two_ways)
    fd.execute([X])
    ir, assembly = fd.fec.llvm_ir([X]), fd.fec.assembly([X])
    assert ir.count("\ndefine ") >= 2
    assert [line for line in ir.splitlines() if line.startswith("; T")] == [
        "; T1: kernels.reduce_text.text", "; T3+T4: kernels.reduce_text.text",
    ]  # fmt: skip
    assert assembly.count("; T") == 2
    assert "ret" in assembly
    with sb.use_isa("numpy"):
        fresh = FusionExecutorCache(fd.fusion)
        for call in ("llvm_ir", "assembly"):
            with pytest.raises(sb.errors.FusionError) as error:
                getattr(fresh, call)([X])
            assert str(error.value) == (
                f"{call}: isa is numpy, must be a row that is compiled; choose another with samebits.use_isa"
            )


def test_cuda_is_refused():
    fd = defined(two_ways)
    fd.execute([X])
    with pytest.raises(sb.errors.FusionError) as error:
        fd.fec.get_cuda_kernel([X])
    assert str(error.value) == (
        "get_cuda_kernel: kernel is no CUDA, must be machine code of the host; call llvm_ir or assembly, which have"
        " what runs"
    )
