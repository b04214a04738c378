"""Presets give the bits of the libraries that they are named after, NaN included: ml_dtypes, torch, and CUDA's headers.

Here the libraries meet the NumPy meaning of a preset; `tests/kernels/test_rounding.py` has kernels meet that.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats import every_code

from samebits import dtypes
from samebits.conversions import PRESETS, SB1, Conversion
from samebits.dtypes import DType
from samebits.kernels.functions import exact

Array = np.ndarray[Any, Any]
BY_NAME = {preset.name: preset for preset in PRESETS}
FLOATS = tuple(row for row in dtypes.ROWS if row.is_float)


@functools.cache
def numbers(source: DType) -> Array:
    """All codes of a format of 16 bits or fewer; of a wider one the upper halves with their neighbours, and others."""
    if source.kind == "bool":
        return np.array([False, True])
    if source.width_bits <= 16:
        return every_code(source)
    random = np.random.default_rng(1)
    if not source.is_float:
        wide = random.integers(source.min, source.max, 20000, dtype=source.numpy, endpoint=True)
        return wide >> random.integers(0, source.width_bits, wide.size).astype(source.numpy)
    halves = np.arange(1 << 16, dtype=np.uint32) << 16
    codes = np.concatenate([halves, halves + 1, halves - 1, halves + 0x8000, random.integers(0, 1 << 32, 1 << 16)])
    # Next to 2^-127, and to half way from 2^-127 to 2^-126.
    around = np.concatenate([np.arange(0x3FFFF0, 0x400010), np.arange(0x5FFFF0, 0x600010)])
    single = np.concatenate([codes, around]).astype(np.uint32).view(np.float32)
    if source is dtypes.float32:
        return single
    with np.errstate(all="ignore"):
        wide = single.astype(np.float64)
        payloads = random.integers(0x7FF0 << 48, 0x7FFF << 48, 3000, dtype=np.uint64).view(np.float64)
        return np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf), payloads, -payloads])


def meant(x: Array, target: DType, how: Conversion) -> Array:
    """The codes that a conversion gives, by NumPy."""
    with np.errstate(all="ignore"):
        return exact.cast(target, x, how).view(f"u{target.element_bytes}")


def pairs(name: str) -> list[tuple[DType, DType, Conversion]]:
    """The formats that a preset converts between, and how."""
    found = []
    for source in dtypes.ROWS:
        for target in dtypes.ROWS:
            how = BY_NAME[name].conversion(source, target)
            if how is not None and source is not target:
                found.append((source, target, how))
    return found


def assert_equal(ours: Array, theirs: Array, x: Array, about: object) -> None:
    wrong = np.flatnonzero(ours != theirs)
    assert not wrong.size, (about, x[wrong[:3]], ours[wrong[:3]], theirs[wrong[:3]])


def test_ml_dtypes() -> None:
    tried = 0
    for source, target, how in pairs("ml_dtypes"):
        x = numbers(source)
        with np.errstate(all="ignore"):
            theirs = x.astype(target.numpy).view(f"u{target.element_bytes}")
        assert_equal(meant(x, target, how), theirs, x, (source, target))
        tried += 1
    assert tried > 250


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13") or torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("not torch 2.13 with AVX-512, whose bits the preset gives")
    codes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    for source, target, how in pairs("torch-2.13"):
        # Of float64 torch converts what is left behind whole vectors by other code, whose NaN in bfloat16 differs.
        x = np.resize(numbers(source), -(-numbers(source).size // 64) * 64)
        given = torch.from_numpy(x.view(f"i{source.element_bytes}").copy()).view(getattr(torch, source.name))
        made = given.to(getattr(torch, target.name)).view(codes[target.element_bytes]).numpy()
        assert_equal(meant(x, target, how), made.view(f"u{target.element_bytes}"), x, (source, target))


CUDA_SOURCE = """
#include <cuda_fp8.h>
#include <cuda_fp6.h>
#include <cuda_fp4.h>
#define EACH(NAME, T, CALL) extern "C" void NAME(const T *x, unsigned char *y, long n, int finite) { \\
    __nv_saturation_t s = finite ? __NV_SATFINITE : __NV_NOSAT; (void)s; for (long i = 0; i < n; i++) y[i] = CALL; }
#define BOTH(NAME, CALL, ...) EACH(float_##NAME, float, __nv_cvt_float_to_##CALL(x[i], __VA_ARGS__)) \\
    EACH(double_##NAME, double, __nv_cvt_double_to_##CALL(x[i], __VA_ARGS__))
BOTH(float8_e4m3fn, fp8, s, __NV_E4M3)
BOTH(float8_e5m2, fp8, s, __NV_E5M2)
BOTH(float8_e8m0fnu, e8m0, s, cudaRoundPosInf)
BOTH(float6_e2m3fn, fp6, __NV_E2M3, cudaRoundNearest)
BOTH(float6_e3m2fn, fp6, __NV_E3M2, cudaRoundNearest)
BOTH(float4_e2m1fn, fp4, __NV_E2M1, cudaRoundNearest)
"""


@pytest.fixture(scope="module")
def cuda() -> Any:
    """The host functions of CUDA 13's headers, compiled here."""
    roots = [
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        *sorted(map(str, Path("/usr/local").glob("cuda-13*"))),
    ]
    found = [Path(root) / "include" for root in roots if root and (Path(root) / "include" / "cuda_fp4.h").exists()]
    compiler = shutil.which("g++")
    if not found or compiler is None:
        pytest.skip("no g++, or no headers of CUDA 13 below CUDA_HOME, CUDA_PATH or /usr/local")
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder) / "host.cpp", Path(folder) / "host.so"
        text.write_text(CUDA_SOURCE)
        command = [compiler, "-O2", "-fPIC", "-shared", "-I", str(found[0]), str(text), "-o", str(library)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stderr
        return ctypes.CDLL(str(library))


@pytest.mark.parametrize("name", ["cuda-satfinite", "cuda-nosat"])
def test_cuda(name: str, cuda: Any) -> None:
    for source, target, how in pairs(name):
        x = numbers(source)
        with np.errstate(all="ignore"):
            given = x if source.width_bits == 64 else x.astype(np.float32)
        theirs = np.empty(x.shape, np.uint8)
        function = getattr(cuda, f"{'double' if source.width_bits == 64 else 'float'}_{target.name}")
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in (given, theirs)]
        function(*addresses, ctypes.c_long(x.size), ctypes.c_int(name == "cuda-satfinite"))
        assert_equal(meant(x, target, how), theirs, x, (name, source, target))


def test_ocp_holds_what_is_too_large() -> None:
    x = np.array([1e9, -np.inf, np.nan, 464.0, 57344.0, -1e9, 0.3], np.float32)
    for source, target, how in pairs("ocp"):
        if source is not dtypes.float32:
            continue
        values = meant(x, target, how).view(target.numpy).astype(np.float64)
        assert values[0] == target.max
        assert values[1] == values[5] == target.min
        assert np.isnan(values[2]) == (target.canonical_nan is not None)


def test_the_default_is_a_preset() -> None:
    assert all(how == SB1 for _, _, how in pairs("sb1"))


def test_conversions_that_are_alike_are_one() -> None:
    assert Conversion("nearest_even").normal(dtypes.float8_e5m2) == SB1
    assert Conversion("nearest_even").normal(dtypes.int8) == Conversion("nearest_even")
    assert Conversion("toward_zero").normal(dtypes.int8) == SB1
    assert Conversion("up", "saturate").normal(dtypes.bool_) == SB1
    assert SB1.rounding_to(dtypes.float16) == "nearest_even"
    assert SB1.rounding_to(dtypes.int4) == "toward_zero"


def test_what_depends_on_its_place() -> None:
    assert Conversion("stochastic").is_placed
    assert Conversion(overflow="error").is_placed
    assert not Conversion("up", "saturate").is_placed


def test_what_depends_on_the_code_of_a_nan() -> None:
    assert Conversion(nan_sign="always").reads_nan
    assert Conversion(nan_payload=True).reads_nan
    assert not Conversion("up", nan=3, nan_sign="overflow").reads_nan


def test_presets_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(PRESETS)
    assert all(preset.targets for preset in PRESETS)
    assert BY_NAME["ocp"].targets == tuple(
        row for row in FLOATS if row.name in ("float8_e4m3fn", "float8_e5m2") or row.width_bits in (4, 6)
    )
