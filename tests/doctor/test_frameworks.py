"""Every framework that is installed here: what it says of what it made is what it was given."""

import importlib

import numpy as np
import pytest

from samebits import dtypes
from samebits.doctor import frameworks, report
from samebits.doctor.framework import CannotHold
from samebits.doctor.witness import codes_for

INSTALLED = [row for row in frameworks.ROWS if report.installed_version(row) is not None]
# What each must hold at the least, or its row is wrong.
HOLDS = {
    "numpy": "float32 int8 bool",
    "ml_dtypes": "bfloat16 float8_e4m3fn float6_e3m2fn float4_e2m1fn int4 uint2",
    "torch": "bfloat16 float8_e8m0fnu float4_e2m1fn int1 uint16",
    "jax": "bfloat16 float8_e3m4 float4_e2m1fn int4 uint2 float64",
    "numkong": "bfloat16 float8_e5m2 float6_e2m3fn int4 uint64",
    "cuda.core": "float16 bool",
    "onnxruntime": "bfloat16 float8_e8m0fnu float4_e2m1fn int2 bool",
    "pyarrow": "float16 uint64",
    "tvm_ffi": "float4_e2m1fn float6_e2m3fn bfloat16 int4 bool",
    "tensorflow": "bfloat16 float8_e4m3b11fnuz int4 bool",
}


def test_every_framework_has_a_least():
    assert [row.name for row in frameworks.ROWS] == list(HOLDS)


def test_the_frameworks_of_the_test_extra_are_installed():
    assert {"numpy", "ml_dtypes", "torch", "jax", "onnxruntime"} <= {row.name for row in INSTALLED}


@pytest.fixture(scope="module", params=INSTALLED, ids=lambda row: row.name)
def framework(request):
    """A row and its module."""
    row = request.param
    if row.name == "tensorflow":
        pytest.skip("loads libraries that warn; the child process of trial.attempt covers it")
    module = importlib.import_module(row.module)
    if row.name != "jax":
        row.prepare(module)
        yield row, module
        return
    with module.enable_x64(True):  # what prepare sets for good
        yield row, module


@pytest.mark.parametrize("dtype", dtypes.ROWS, ids=repr)
def test_what_it_made_is_what_it_holds(framework, dtype):
    row, module = framework
    codes = codes_for(dtype)
    must = dtype.name in HOLDS[row.name].split()
    try:
        held = row.read(module, row.make(module, dtype, codes))
    except CannotHold:
        assert not must
        return
    if held.dtype is None:
        assert not must
        return
    assert (held.dtype, held.shape) == (dtype, codes.shape)
    assert np.array_equal(held.codes, codes)
    assert held.address
