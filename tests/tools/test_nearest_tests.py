"""Which tests look at a source file: by the paths that tests mirror, and by imports."""

import pytest
from nearest_tests import STAGES, NearestTests

TEXTS = {
    "README.md": b"# no Python",
    "src/samebits/__init__.py": b"from samebits import tensor",
    "src/samebits/tensor.py": b"",
    "src/samebits/bare/thing.py": b"",
    "src/samebits/kernels/gemm/blocks.py": b"",
    "src/samebits/kernels/gemm/blocks_text.py": b"",
    "src/samebits/kernels/gemm/choice.py": b"def f():\n    from samebits.kernels.gemm import blocks",
    "src/samebits/ops/matmul.py": b"import samebits.kernels.gemm.choice",
    "tests/cases.py": b"from samebits.ops import matmul",
    "tests/conftest.py": b"",
    "tests/test_tensor.py": b"",
    "tests/test_docs.py": b"",
    "tests/kernels/test_fold.py": b"",
    "tests/kernels/gemm/test_blocks.py": b"",
    "tests/kernels/gemm/test_blocks_of_two.py": b"",
    "tests/kernels/gemm/test_blockshaped.py": b"",
    "tests/kernels/gemm/test_a.py": b"",
    "tests/kernels/gemm/test_near.py": b"from samebits.kernels.gemm.choice import f",
    "tests/ops/test_matmul.py": b"import cases",
}
ALL = {path for path in TEXTS if "/test_" in path}


def stages(path, chosen=STAGES):
    return NearestTests(TEXTS).stages(f"src/samebits/{path}", chosen)


def test_stages_are_the_mirror_then_the_room_then_all_others_the_nearest_first():
    assert stages("kernels/gemm/blocks.py") == {
        "mirror": ["tests/kernels/gemm/test_blocks.py", "tests/kernels/gemm/test_blocks_of_two.py"],
        "room": [f"tests/kernels/gemm/test_{name}.py" for name in ("near", "a", "blockshaped")],
        "all": [
            "tests/ops/test_matmul.py", "tests/kernels/test_fold.py", "tests/test_docs.py", "tests/test_tensor.py"
        ],
    }  # fmt: skip


def test_a_part_of_a_module_has_the_mirror_of_the_module():
    assert stages("kernels/gemm/blocks_text.py")["mirror"] == stages("kernels/gemm/blocks.py")["mirror"]


def test_what_no_test_mirrors_is_looked_at_by_the_nearest_folder():
    assert stages("kernels/gemm/choice.py")["mirror"][0] == "tests/kernels/gemm/test_near.py"
    assert stages("kernels/gemm/choice.py")["room"] == []
    assert stages("bare/thing.py")["mirror"] == ["tests/test_docs.py", "tests/test_tensor.py"]
    assert stages("tensor.py")["mirror"] == ["tests/test_tensor.py"]


@pytest.mark.parametrize("path", ["kernels/gemm/blocks.py", "bare/thing.py", "tensor.py", "__init__.py"])
def test_every_test_is_in_one_stage(path):
    found = [test for modules in stages(path).values() for test in modules]
    assert sorted(found) == sorted(ALL)
    assert sorted(stages(path, ["all"])["all"]) == sorted(ALL)
