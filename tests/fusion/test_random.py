"""Random numbers in fusions: those of the eager functions, seeded by the run or by what it is given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition
from samebits.fusion.cache import key_of

ROWS = [row.name for row in rows.without_dots(rows.AVAILABLE)]
FORMATS = {
    DataType.Double: "float64", DataType.Float: "float32", DataType.Half: "float16", DataType.BFloat16: "bfloat16",
}  # fmt: skip


def made(define: Callable[[FusionDefinition], Any]) -> FusionDefinition:
    with FusionDefinition() as fd:
        found = define(fd)
        for output in found if isinstance(found, list) else [found]:
            fd.add_output(output)
    return fd


def seeded(fd: FusionDefinition, name: str, dtype: DataType) -> Any:
    """Numbers of [-1.5, 3.7), or of that mean and deviation, by a seed and an offset that are inputs."""
    x = fd.define_tensor([-1, -1], contiguity=True)
    words = [fd.define_scalar(None, DataType.Int) for _ in range(2)]
    return getattr(fd.ops, name)(-1.5, 3.7, x.shape(), rng_seed=words[0], rng_offset=words[1], dtype=dtype)


@pytest.mark.parametrize("isa", ROWS)
@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_numbers_by_a_seed_are_the_eager_ones(name: str, isa: str) -> None:
    for dtype, kind in FORMATS.items():
        with sb.use_isa(isa):
            fd = made(lambda fd, dtype=dtype: seeded(fd, name, dtype))
            for shape, seed, offset in (((3, 7), 5, 0), ((0, 2), 6, 1), ((70, 33), (1 << 63) - 1, 1 << 40)):
                (found,) = fd.validate([np.zeros(shape, np.float32), seed, offset])
                due = getattr(sb, name)(-1.5, 3.7, shape, seed=seed, offset=offset, dtype=kind)
                assert found.dtype == due.dtype
                assert found.tobytes() == due.tobytes()


@pytest.mark.parametrize("isa", ROWS)
def test_numbers_are_drawn_where_they_are_read(isa: str) -> None:
    """A dropout and a noise, each one kernel, with the bits of the numbers drawn first and of NumPy's walk."""

    def define(fd: FusionDefinition) -> list[Any]:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        z, row = (fd.define_tensor([-1] * rank, contiguity=True) for rank in (2, 1))
        kept = fd.ops.lt(fd.ops.uniform(0.0, 1.0, x.shape(), rng_seed=5, rng_offset=6), 0.75)
        noise = fd.ops.normal(0.0, 2.0, z.shape(), rng_seed=7, rng_offset=8)
        return [
            fd.ops.where(kept, fd.ops.mul(x, 1.25), 0.0),
            fd.ops.add(z, fd.ops.mul(noise, fd.ops.broadcast(row, [True, False]))),
        ]

    r = np.random.default_rng(0)
    with sb.use_isa(isa):
        fd = made(define)
        for shape in ((3, 37), (1, 1), (0, 5)) if isa == "numpy" else ((70, 33), (1, 1), (0, 5)):
            x, row = r.standard_normal(shape).astype("bfloat16"), r.standard_normal(shape[1]).astype(np.float32)
            z = r.standard_normal(shape).astype(np.float32)
            dropped, noisy = fd.validate([x, z, row])
            kept = sb.uniform(0, 1, shape, seed=5, offset=6, dtype="float32") < np.float32(0.75)
            assert dropped.tobytes() == np.where(kept, x.astype(np.float32) * np.float32(1.25), 0).tobytes()
            noise = sb.normal(0, 2, shape, seed=7, offset=8, dtype="float32")
            assert noisy.tobytes() == (z + noise * row).tobytes()
        text = fd.fec.get_scheduled_ir([x, z, row])
    assert text.count("= random(") == 2
    assert "map(" not in text
    assert "cut" not in text


def test_negative_seeds_and_offsets_are_their_bits() -> None:
    fd = made(lambda fd: seeded(fd, "uniform", DataType.Float))
    (found,) = fd.execute([np.zeros((2, 3), np.float32), -1, -(1 << 63) + 9])
    assert (found == sb.uniform(-1.5, 3.7, (2, 3), seed=2**64 - 1, offset=9)).all()


def test_another_extent_or_seed_is_no_other_program() -> None:
    fd = made(lambda fd: seeded(fd, "normal", DataType.Float))
    for n in range(2, 9):
        fd.execute([np.zeros((n, 3), np.float32), n, 0])
    assert fd.fec is not None
    assert len(fd.fec._sessions) == 1


def unseeded(fd: FusionDefinition) -> list[Any]:
    x = fd.define_tensor([-1], contiguity=True)
    return [fd.ops.rand_like(x), fd.ops.mul(x, fd.ops.normal(0.0, 1.0, shape=x.shape())), fd.ops.randn_like(x)]


def test_torch_repeats_what_it_seeds() -> None:
    fd, x = made(unseeded), torch.ones(5)
    runs = []
    for _ in range(2):
        torch.manual_seed(7)
        runs.append([fd.execute([x]) for _ in range(3)])
    flat = [torch.cat([torch.cat(outputs) for outputs in run]) for run in runs]
    assert torch.equal(flat[0], flat[1])
    assert len(set(flat[0].tolist())) == 45  # no two runs, and no two operations, draw the same
    state = torch.get_rng_state()
    (first, *_), _ = fd.execute([x]), torch.set_rng_state(state)
    assert torch.equal(first, fd.execute([x])[0])


def test_operations_without_a_seed_have_offsets_in_the_order_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    fd, x = made(unseeded), np.ones(5, np.float32)
    monkeypatch.setattr("samebits.fusion.execution.fresh_seed", lambda: 11)
    for _ in range(2):  # the second run takes the short way
        found = fd.execute([x])
        assert (found[0] == sb.rand_like(x, seed=11, offset=0)).all()
        assert (found[1] == sb.randn_like(x, seed=11, offset=1)).all()
        assert (found[2] == sb.randn_like(x, seed=11, offset=2)).all()


def test_a_fusion_and_its_text_draw_the_same() -> None:
    """What no output needs draws nothing."""

    def define(fd: FusionDefinition) -> list[Any]:
        fd.ops.uniform(0.0, 1.0, shape=[4])
        return unseeded(fd)

    fd, x = made(define), torch.ones(5)
    space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), space)
    again = made(lambda fd: space["nvfuser_fusion"](fd) or [])
    assert key_of(fd.fusion) == key_of(again.fusion)
    torch.manual_seed(1)
    due = fd.execute([x])
    torch.manual_seed(1)
    assert all(map(torch.equal, due, again.execute([x])))


def test_the_text_names_the_numbers_and_the_seed() -> None:
    text = repr(made(lambda fd: seeded(fd, "uniform", DataType.Half)))
    call = "fd.ops.uniform(-1.50000, 3.70000, shape=[c0, c2], rng_seed=c3, rng_offset=c4, dtype=DataType.Half)"
    assert call in text


def test_without_torch_the_system_gives_the_seed() -> None:
    code = (
        "import sys, numpy as np\nfrom samebits.fusion import FusionDefinition\n"
        "with FusionDefinition() as fd:\n    fd.add_output(fd.ops.uniform(0.0, 1.0, shape=[8]))\n"
        "a, b = fd.execute([])[0], fd.execute([])[0]\n"
        "print('torch' in sys.modules, type(a) is np.ndarray, (a == b).any())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "False"]


def test_validate_draws_once() -> None:
    fd = made(unseeded)
    (first, *_) = fd.validate([np.ones(3, np.float32)])
    assert not (first == fd.validate([np.ones(3, np.float32)])[0]).any()


TOGETHER = "rng_seed and rng_offset must be provided together!"
FLOATS = "must be Double, Float, Half or BFloat16; draw in Float, and cast: Random distributions only create floating"
REFUSED: list[tuple[Callable[[FusionDefinition, Any], Any], str]] = [
    (lambda fd, x: fd.ops.uniform(0, 1, [2], rng_seed=1),
     f"uniform: rng_offset is None, must be given beside rng_seed; give rng_offset=0 too: {TOGETHER}"),
    (lambda fd, x: fd.ops.normal(0, 1, [2], rng_offset=1),
     f"normal: rng_seed is None, must be given beside rng_offset; give rng_seed=0 too: {TOGETHER}"),
    (lambda fd, x: fd.ops.uniform(0, 1, [2], rng_seed=1.5, rng_offset=0),
     "uniform: rng_seed dtype is DataType.Double, must be an integer format; cast it first"),
    (lambda fd, x: fd.ops.uniform(0, 1, [2], dtype=DataType.Int),
     f"uniform: dtype is DataType.Int, {FLOATS} point types!"),
    (lambda fd, x: fd.ops.rand_like(fd.ops.cast(x, DataType.Int)),
     f"rand_like: x dtype is DataType.Int, {FLOATS} point types!"),
    (lambda fd, x: fd.ops.randn_like(fd.define_scalar(1.0)),
     "randn_like: x is a scalar, must be a tensor of the fusion; define it by define_tensor"),
    (lambda fd, x: fd.ops.normal(x, 1, [2]),
     "normal: mean is a tensor, must be a number or a scalar; draw of 0 and 1, and scale that"),
    (lambda fd, x: fd.ops.uniform(0, 1, [-1]),
     "uniform: size 0 is -1, must be zero (0), broadcast (1) or static (more than 1); give another size"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_refusal_says_what_is_wrong(call: Callable[[FusionDefinition, Any], Any], sentence: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True)
        with pytest.raises(FusionError) as caught:
            call(fd, x)
    assert str(caught.value) == sentence
