"""Frameworks as rows: how each makes a tensor of a format, what it says it holds, how it takes ours and gives its own.

A row never imports its framework: the module is handed in, so that nothing is loaded that is not tried. `make` and
`read` use the framework alone, and are the witness against whom exchange is checked; `take`, `give` and `put` are what
a user would write.
"""

from __future__ import annotations

from samebits.doctor import arrays, runtimes
from samebits.doctor.framework import Framework

__all__ = ["ROWS", "named"]

ROWS: tuple[Framework, ...] = (
    Framework("numpy", "numpy", "numpy", make=arrays.make_own, read=arrays.read_array, take=arrays.take_array),
    Framework(
        "ml_dtypes", "ml_dtypes", "ml_dtypes", make=arrays.make_added, read=arrays.read_array, take=arrays.take_array
    ),
    Framework(
        "torch",
        "torch",
        "torch",
        make=arrays.make_torch,
        read=arrays.read_torch,
        take=arrays.take_torch,
        give=arrays.give_torch,
        put=arrays.put_torch,
    ),
    Framework(
        "jax",
        "jax",
        "jax",
        make=arrays.make_jax,
        read=arrays.read_jax,
        take=arrays.take_jax,
        give=arrays.give_jax,
        put=arrays.put_jax,
        prepare=arrays.prepare_jax,
    ),
    Framework(
        "numkong",
        "numkong",
        "numkong",
        make=runtimes.make_numkong,
        read=runtimes.read_numkong,
        take=runtimes.take_numkong,
        give=runtimes.give_numkong,
        put=runtimes.put_numkong,
    ),
    Framework(
        "cuda.core",
        "cuda-core",
        "cuda.core.utils",
        make=runtimes.make_view,
        read=runtimes.read_view,
        take=runtimes.take_view,
        give=runtimes.give_view,
    ),
    Framework(
        "onnxruntime",
        "onnxruntime",
        "onnxruntime",
        make=runtimes.make_ort,
        read=runtimes.read_ort,
        take=runtimes.take_ort,
        give=runtimes.give_ort,
        put=runtimes.put_ort,
    ),
    Framework(
        "pyarrow",
        "pyarrow",
        "pyarrow",
        make=runtimes.make_arrow,
        read=runtimes.read_arrow,
        take=runtimes.take_arrow,
    ),
    Framework(
        "tvm_ffi",
        "apache-tvm-ffi",
        "tvm_ffi",
        make=runtimes.make_tvm,
        read=runtimes.read_tvm,
        take=runtimes.take_tvm,
        put=runtimes.put_tvm,
    ),
    Framework(
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow",
        make=runtimes.make_tensorflow,
        read=runtimes.read_tensorflow,
        take=runtimes.take_tensorflow,
        give=runtimes.give_tensorflow,
        put=runtimes.put_tensorflow,
    ),
)


def named(name: str) -> Framework:
    """The row of that name; KeyError without one."""
    return {row.name: row for row in ROWS}[name]
