"""What every test runs under: an object cache of the checkout's own, kept from run to run, and short collections."""

import collections
import gc
import os
import pathlib
from collections.abc import Iterable

import drawing  # noqa: F401 - what it says holds from the first test on
import pytest

# Where test processes share the cores, the libraries beside ours compute on one thread, unless a test asks for more:
# several, which look for work without pause, take five times as long for what is small.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

_FOLDER = "samebits-tests"
# The files that take longest where nothing is compiled yet, the longest first: they are begun first, so that at the end
# no process works on one of them while the others have nothing left.
LONGEST = (
    "ops/test_public_functions.py",
    "kernels/quantize/test_plan.py",
    "test_readme.py",
    "operations/test_convolution.py",
    "cli/test_process.py",
    "kernels/test_reduce.py",
    "kernels/gemm/test_types.py",
    "onnx/test_backend_nodes.py",
    "kernels/gemm/test_stream.py",
    "codegen/test_words.py",
    "onnx/test_rows.py",
    "test_conformance.py",
    "test_hot.py",
    "tools/test_block_formats.py",
    "kernels/test_rounding.py",
    "kernels/test_convert.py",
    "kernels/gemm/test_packed.py",
    "torch/test_functions.py",
    "operations/test_matmul.py",
    "torch/test_products.py",
    "onnx/test_wire.py",
    "test_exchange_safety.py",
    "native/test_exchange_lifetimes.py",
    "kernels/gemm/test_blocks.py",
    "kernels/gemm/test_tiles.py",
    "kernels/gemm/test_integers.py",
    "kernels/gemm/test_scaled_blocks.py",
    "kernels/test_elementwise.py",
    "kernels/test_values.py",
    "fusion/test_scaled.py",
    "verification/test_verify.py",
    "operations/test_sharing.py",
    "codegen/test_vocabulary.py",
    "runtime/test_blueprint.py",
    "kernels/gemm/test_scaled_weights.py",
    "kernels/gemm/test_nibbles.py",
    "fusion/test_memory.py",
    "kernels/gemm/test_bits.py",
    "kernels/quantize/test_dialects.py",
    "kernels/gemm/test_plan.py",
    "cli/test_command.py",
    "cli/test_converting.py",
    "kernels/gemm/test_reference.py",
    "torch/test_operator.py",
    "kernels/gemm/test_orders.py",
    "runtime/test_low_precision_models.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Point the object cache (and that of every subprocess) into pytest's own ignored directory.

    One that was chosen gets a folder of its own below, so that what a user tuned there plans no test. And what tests
    start finds the package's bytecode: where none is written, each of some hundred processes compiles every module.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    chosen = os.environ.get("SAMEBITS_CACHE_DIR", str(config.rootpath / ".pytest_cache"))
    if chosen:
        folder = pathlib.Path(chosen)
        if folder.name != _FOLDER:
            folder /= _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        os.environ["SAMEBITS_CACHE_DIR"] = str(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first; leave to `make exhaustive` what a row leaves to the others."""
    places = {config.rootpath / "tests" / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in left_to_others(items):
        item.add_marker(pytest.mark.exhaustive)


def left_to_others(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of tests that compiled rows share, what a row leaves to the others.

    A row runs with every third set of other parameters that it is paired with, the next row with the next ones; that of
    a set's widest registers always does. So each row runs each test, and each set of parameters runs, but not all
    pairs: a kernel takes long to compile. A test that has no parameter but rows runs on every third of these, the next
    test of its file on the next ones. What a text does where a row has few instructions is interpreted with every set.
    Tests of the vocabulary, where each word is other instructions on each row, and those that choose by themselves, are
    left as they are.
    """
    from samebits.codegen import isa

    found: list[pytest.Item] = []
    of_rows_alone = collections.Counter[pathlib.Path]()
    tests: dict[object, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec") and item.path.parent.name != "codegen":
            tests.setdefault((item.path, item.parent, getattr(item, "originalname", "")), []).append(item)
    for same in tests.values():
        path = same[0].path
        if any(item.get_closest_marker("exhaustive") for item in same):
            continue
        shared: dict[object, list[tuple[isa.Isa, pytest.Item]]] = {}
        for item in same:
            spec = item.callspec  # type: ignore[attr-defined]
            rows = {name: x for name, x in spec.params.items() if isinstance(x, isa.Isa) and x.compiled}
            if len(rows) == 1:
                rest = tuple((name, id(x)) for name, x in spec.params.items() if name not in rows)
                shared.setdefault(rest, []).append((*rows.values(), item))
        sets: dict[isa.Isa, list[pytest.Item]] = {}
        for alike in shared.values():
            widest = max((row for row, _ in alike), key=lambda row: (row.lanes, len(row.instructions)))
            for row, item in alike:
                if row != widest:
                    sets.setdefault(row, []).append(item)
        of_rows_alone[path] += len(shared) == 1
        for at, given in enumerate(sets.values()):
            turns, first = min(len(given), 3), 0
            if len(shared) == 1:
                turns, first = 3, of_rows_alone[path]
            found += [item for number, item in enumerate(given, first) if (number + at) % turns]
    return found


def pytest_collection() -> None:
    """Walk nothing for garbage while all tests are made: what is made stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests and what they import out of every later walk: a full one took half a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _nothing_ahead() -> None:
    """Sessions look at no sizes to come, which compiles what no test asks for, but those of `runtime/test_ahead.py`."""
    from samebits.runtime import ahead

    ahead._LOOKS = 0


@pytest.fixture(scope="session", autouse=True)
def _no_helpers() -> None:
    """Where test processes share the cores, kernels are compiled in them: others would take a tenth of a second to
    start, again and again, and find no core free. Those of `native/test_compilers.py`, and commands, have them."""
    from samebits.native import compilers

    if "PYTEST_XDIST_WORKER" in os.environ:
        compilers.MOST = 0


@pytest.fixture(scope="module")
def short_collections() -> None:
    """Leave what the tests before have made out of every later walk, for a module that asks for many."""
    gc.collect()
    gc.freeze()
