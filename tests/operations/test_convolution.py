"""The operation `convolve`: its bits are those of section 2, element by element, whichever way it is planned."""

from __future__ import annotations

import functools
import itertools
from types import SimpleNamespace
from typing import Any

import aarch64
import guard
import launch
import ml_dtypes
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import replace
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.gemm.contraction import Spec
from samebits.kernels.gemm.machine import DEFAULT
from samebits.native import table
from samebits.operations import convolution_plans
from samebits.operations.convolution import Convolution
from samebits.operations.operation import PlanTarget
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.spec import by_spec
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16 = np.float32, ml_dtypes.bfloat16
TORCH = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}

# By name: batch, channels, image; filters, kernel; strides, dilations, before, behind, groups.
CASES: dict[str, tuple[Any, ...]] = {
    "one by one": (2, 5, (4, 7), 6, (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "one by one in steps": (2, 5, (4, 7), 6, (1, 1), (2, 3), (1, 1), (0, 0), (0, 0), 1),
    "inside": (1, 3, (6, 9), 5, (3, 2), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "padded": (2, 4, (6, 5), 7, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "padded more than it reaches": (1, 2, (2, 3), 9, (2, 2), (1, 1), (1, 1), (3, 0), (2, 4), 1),
    "phases": (1, 3, (9, 10), 8, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 1),
    "phases of different axes": (2, 3, (11, 10), 8, (5, 4), (3, 2), (1, 1), (2, 1), (1, 2), 1),
    "more steps than places": (1, 3, (11, 10), 8, (2, 2), (3, 4), (1, 1), (0, 1), (0, 0), 1),
    "so many steps that there is one window": (1, 3, (4, 5), 8, (2, 3), (1 << 40, 2), (1, 1), (0, 1), (0, 1), 1),
    "so many steps, few filters": (1, 3, (4, 5), 3, (2, 3), (2, 1 << 40), (1, 1), (1, 0), (0, 0), 1),
    "so many steps that there is one row": (1, 4, (3, 14), 4, (1, 3), (1 << 40, 1), (1, 1), (0, 1), (0, 1), 4),
    "rows passed by": (1, 4, (7, 14), 4, (1, 3), (3, 1), (1, 1), (0, 1), (0, 1), 4),
    "apart": (1, 3, (11, 12), 6, (3, 2), (1, 2), (2, 3), (2, 1), (2, 1), 1),
    "rows of windows in parts": (1, 32, (40, 33), 8, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "phases in parts": (2, 3, (41, 38), 14, (3, 3), (2, 2), (1, 1), (1, 1), (3, 2), 1),
    "apart in parts": (2, 4, (33, 40), 12, (3, 2), (1, 2), (5, 1), (6, 1), (4, 1), 2),
    "a line in parts": (2, 6, (501,), 9, (7,), (3,), (1,), (3,), (5,), 1),
    "a volume in parts": (2, 2, (9, 8, 10), 7, (3, 2, 3), (2, 1, 1), (1, 2, 1), (2, 1, 1), (1, 0, 1), 1),
    "groups": (2, 12, (5, 6), 15, (3, 3), (1, 2), (1, 1), (1, 1), (0, 1), 3),
    "depth": (2, 40, (7, 18), 40, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 40),
    "depth in parts": (1, 40, (60, 70), 40, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 40),
    "depth inside": (2, 8, (9, 20), 8, (3, 2), (1, 1), (1, 1), (0, 0), (0, 0), 8),
    "depth in phases": (1, 6, (12, 35), 12, (5, 5), (2, 2), (1, 1), (2, 2), (1, 2), 6),
    "two channels a group": (2, 8, (5, 19), 8, (3, 3), (2, 1), (1, 2), (1, 2), (1, 2), 4),
    "depth of long sums": (1, 3, (20, 37), 6, (13, 11), (1, 1), (1, 1), (6, 5), (6, 5), 3),
    "depth of long sums in phases": (2, 2, (31, 40), 2, (12, 11), (2, 3), (1, 1), (5, 5), (5, 6), 2),
    "depth of wide rows": (1, 2, (19, 530), 2, (3, 3), (1, 1), (1, 2), (1, 2), (1, 2), 2),
    "depth of wide rows in phases": (1, 2, (33, 601), 2, (2, 4), (2, 2), (1, 1), (1, 1), (0, 2), 2),
    "one window of few filters": (2, 30, (3, 4), 3, (3, 4), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "depth of one window": (2, 19, (4, 3), 19, (4, 3), (1, 1), (1, 1), (0, 0), (0, 0), 19),
    "depth of few rows by steps": (1, 2, (5, 301), 2, (2, 3), (2, 1), (1, 1), (0, 1), (0, 1), 2),
    "depth of far places": (1, 5, (14, 23), 5, (2, 3), (1, 3), (9, 7), (9, 7), (0, 7), 5),
    "depth of one column": (2, 3, (70, 1), 3, (4, 1), (1, 3), (1, 1), (2, 0), (1, 0), 3),
    "depth of one column beside the image": (1, 2, (40, 1), 2, (3, 1), (2, 3), (1, 1), (0, 2), (1, 0), 2),
    "depth of far rows": (1, 4, (130, 5), 4, (2, 3), (33, 1), (1, 1), (0, 1), (1, 1), 4),
    "depth of a long line": (2, 3, (4500,), 3, (4,), (1,), (1,), (3,), (0,), 3),
    "depth of a long line in phases": (1, 2, (5000,), 4, (9,), (5,), (3,), (11,), (12,), 2),
    "one window of a line": (3, 19, (4,), 38, (4,), (1,), (1,), (0,), (0,), 19),
    "one window within": (2, 6, (7, 9), 6, (2, 3), (9, 9), (3, 2), (0, 0), (0, 0), 3),
    "one window beyond": (2, 6, (2, 3), 6, (3, 3), (1, 1), (1, 1), (0, 0), (1, 0), 6),
    "three filters of many channels": (1, 50, (9, 11), 3, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "long sums": (1, 20, (5, 6), 3, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "a line": (2, 3, (40,), 5, (7,), (2,), (1,), (3,), (2,), 1),
    "a volume": (1, 2, (5, 4, 6), 3, (2, 3, 2), (1, 2, 1), (2, 1, 1), (1, 1, 0), (1, 0, 1), 1),
    "a deep volume": (1, 4, (5, 4, 6), 4, (2, 2, 2), (2, 1, 1), (1, 1, 2), (1, 1, 0), (1, 0, 1), 4),
    "depth of four axes": (1, 2, (3, 4, 3, 5), 2, (2,) * 4, (1, 2, 1, 1), (1, 1, 1, 2), (1, 1, 0, 1), (0, 1, 1, 1), 2),
    "no channels": (2, 0, (5, 6), 8, (3, 3), (1, 2), (1, 1), (1, 1), (1, 1), 1),
    "no channels of few filters": (1, 0, (5, 6), 3, (2, 2), (1, 1), (1, 1), (0, 1), (0, 0), 1),
    "no places": (1, 3, (10, 9), 8, (0, 3), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "no windows": (1, 3, (0, 6), 5, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "long sums of few windows": (1, 64, (6, 8), 4, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "long sums of many filters": (1, 90, (9, 5), 26, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "narrow rows of windows": (2, 9, (50, 3), 6, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "wide rows of windows": (1, 7, (3, 150), 14, (3, 3), (1, 1), (2, 3), (2, 3), (2, 3), 1),
    "one window a row": (1, 3, (33, 3), 5, (3, 3), (1, 1), (1, 1), (1, 0), (1, 0), 1),
    "a volume of many windows": (1, 3, (5, 6, 7), 4, (2, 3, 2), (1, 1, 1), (1, 1, 1), (1, 1, 0), (0, 1, 1), 1),
    "nothing in the batch": (0, 3, (6, 9), 5, (3, 2), (1, 1), (1, 1), (1, 0), (0, 0), 1),
}


# What the interpreter takes long for.
LONG = ("rows of windows in parts", "phases in parts", "apart in parts", "a line in parts", "a volume in parts",
        "depth in parts", "long sums of few windows", "long sums of many filters",
        "narrow rows of windows", "wide rows of windows", "depth of wide rows", "depth of wide rows in phases",
        "depth of a long line", "depth of a long line in phases", "three filters of many channels")  # fmt: skip


def drawn(kind: Any, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(kind)


def made(name: str) -> tuple[Convolution, tuple[int, ...], tuple[int, ...]]:
    """The attributes, and the shapes of image and weights."""
    batch, channels, image, filters, kernel, strides, dilations, before, behind, groups = CASES[name]
    axes = zip(image, kernel, strides, dilations, before, behind, strict=True)
    out = tuple((n + low + high - (k - 1) * apart - 1) // step + 1 for n, k, step, apart, low, high in axes)
    attributes = Convolution(strides, dilations, before, out, groups)
    return attributes, (batch, channels, *image), (filters, channels // groups, *kernel)


def program(attributes: Convolution, x: Any, w: Any, dtype: Any = dtypes.float32) -> Program:
    b = ProgramBuilder("convolve")
    return b.build({"y": b.add("convolve", (b.input("x", dtype, x), b.input("w", dtype, w)), attributes)[0]})


def padded(name: str, x: Array) -> Array:
    """The image with all that windows look at, and a little more, in a type that torch adds exactly in."""
    behind = CASES[name][8]
    around = zip(CASES[name][7], behind, strict=True)
    return np.pad(x, [(0, 0), (0, 0), *around])


def by_chains(name: str, x: Array, w: Array) -> Array:
    """Section 2, one term after the other: the elements of a filter, whose windows look elsewhere, side by side."""
    attributes, _, _ = made(name)
    image, (filters, depth, *kernel) = padded(name, x).astype(F32), w.shape
    found = np.empty((len(x), filters, *attributes.out), x.dtype)
    terms = list(itertools.product(range(depth), *map(range, kernel)))
    for f in range(filters):
        first = f // (filters // attributes.groups) * depth
        total: Any = None
        for start in range(0, max(len(terms), 1), 128):
            part = np.zeros((len(x), *attributes.out), F32)
            for d, *place in terms[start : start + 128]:
                slid = zip(attributes.out, attributes.strides, place, attributes.dilations, strict=True)
                where = np.ix_(*[np.arange(o) * step + k * apart for o, step, k, apart in slid])
                part = ieee.fma(F32(w[(f, d, *place)]), image[:, first + d][:, *where], part)
            total = part if total is None else total + part
        total = total + F32(0)
        found[:, f] = np.where(np.isnan(total), F32(np.nan), total)
    return found


@functools.cache
def meant(name: str) -> bytes:
    """What the reference makes of a case, for every row."""
    attributes, x, w = made(name)
    return reference.run(program(attributes, x, w), {"x": drawn(F32, *x), "w": drawn(F32, *w)})["y"].tobytes()


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_reference(isa: Any, name: str) -> None:
    attributes, x, w = made(name)
    of = program(attributes, x, w)
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    for threads in (1, 2) if isa.compiled or name not in LONG else (2,):
        found = cpu.prepare(of, isa=isa, threads=threads).run(given)["y"]
        assert found.tobytes() == meant(name)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(
    "name", ["rows of windows in parts", "phases in parts", "apart in parts", "a line in parts", "a volume in parts"]
)
def test_large_images_are_copied_a_part_at_a_time(isa: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_plans, "_NEAR", 2048)
    monkeypatch.setattr(convolution_plans, "_LEAST", 40)
    attributes, x, w = made(name)
    of = program(attributes, x, w)
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    for threads in (1, 2) if isa.compiled else (2,):
        session = cpu.prepare(of, isa=isa, threads=threads)
        assert session.run(given)["y"].tobytes() == meant(name)
        ((_, plan),) = session.planned(given)
        assert "of a copied image at a time" in dict(plan.facts)["by"]


@pytest.mark.parametrize("name", CASES)
def test_the_reference_sums_each_element_in_its_order(name: str) -> None:
    attributes, x, w = made(name)
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    given["x"].flat[::17] = np.inf
    given["w"].flat[::29] = -0.0
    with np.errstate(invalid="ignore"):
        due = by_chains(name, **given)
    assert reference.run(program(attributes, x, w), given)["y"].tobytes() == due.tobytes()


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if not name.startswith("no ") and len(case[2]) in TORCH]
)  # torch refuses the others
def test_torch_has_the_same_where_sums_are_exact(name: str) -> None:
    attributes, x, w = made(name)
    given = {key: np.round(4 * drawn(F32, *shape)) for key, shape in (("x", x), ("w", w))}
    due = TORCH[len(attributes.out)](
        torch.from_numpy(padded(name, given["x"])), torch.from_numpy(given["w"]), stride=attributes.strides,
        dilation=attributes.dilations, groups=attributes.groups,
    )  # fmt: skip
    assert (cpu.prepare(program(attributes, x, w)).run(given)["y"] == due.numpy()).all()


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", ["padded", "depth", "depth in phases", "one by one"])
@pytest.mark.parametrize("kind", [np.float64, BF16, np.float16])
def test_other_formats(isa: Any, name: str, kind: Any) -> None:
    attributes, x, w = made(name)
    of = program(attributes, x, w, dtypes.of(kind))
    given = {"x": drawn(kind, *x), "w": drawn(kind, *w)}
    given["x"].flat[::31] = np.nan
    found = cpu.prepare(of, isa=isa, threads=1).run(given)["y"]
    assert found.tobytes() == reference.run(of, given)["y"].tobytes()


@pytest.mark.parametrize("spec", [Spec(chunk=8), Spec(chunk=9, segments=2), Spec(chunk=256), Spec(order="pairs32")])
@pytest.mark.parametrize("name", ["padded", "depth", "depth of long sums", "long sums"])
def test_another_order_of_sums(spec: Spec, name: str) -> None:
    attributes, x, w = made(name)
    plain = program(attributes, x, w)
    of = by_spec(plain, spec)
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    found = cpu.prepare(of, threads=1).run(given)["y"].tobytes()
    assert found == reference.run(of, given)["y"].tobytes()
    if name in ("long sums", "depth of long sums") or spec.chunk == 8:
        assert found != reference.run(plain, given)["y"].tobytes()


def epilogue(count: int) -> Expression:
    """The product times input 1 (if there is one), plus the others, and what is below zero 0."""
    chain = Chain()
    t, *others = (chain.input(dtypes.float32) for _ in range(1 + count))
    for k, x in enumerate(others):
        t = chain.apply("add" if k else "mul", t, x)
    return chain.finish(chain.apply("maximum", t, chain.constant(0.0, dtypes.float32)))


def followed(attributes: Convolution, x: Any, w: Any, beside: Any) -> Program:
    b = ProgramBuilder("convolve and more")
    given = [b.input(name, dtypes.float32, shape) for name, shape in (("x", x), ("w", w), *beside.items())]
    return b.build({"y": b.add("convolve", given, replace(attributes, epilogue=epilogue(len(beside))))[0]})


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(
    "name",
    [
        "one by one", "one by one in steps", "padded", "phases", "groups", "apart", "a line", "a volume", "depth",
        "depth in phases", "two channels a group", "a deep volume", "one window within",
        "depth of a long line in phases", "depth of four axes",
    ],
)  # fmt: skip
def test_what_follows_is_computed_on_the_way_out(isa: Any, name: str) -> None:
    attributes, x, w = made(name)
    batch, filters, ones = x[0], w[0], (1,) * len(attributes.out)
    whole = (batch, filters, *attributes.out)
    beside = {"scale": (filters, *ones), "bias": (), "residual": whole, "images": (batch, 1, *ones),
              "windows": (1, 1, *attributes.out)}  # fmt: skip
    of = followed(attributes, x, w, beside)
    given = {name: drawn(F32, *shape) for name, shape in {"x": x, "w": w, **beside}.items()}
    due = reference.run(of, given)["y"].tobytes()
    plain = reference.run(program(attributes, x, w), {"x": given["x"], "w": given["w"]})["y"]
    last = plain * given["scale"] + given["bias"] + given["residual"] + given["images"] + given["windows"]
    assert due == np.maximum(last, F32(0)).tobytes()
    for threads in (1, 2):
        session = cpu.prepare(of, isa=isa, threads=threads)
        assert session.run(given)["y"].tobytes() == due
    for residual, windows in zip(lying(given["residual"]), lying(given["windows"]), strict=True):
        assert session.run(given | {"residual": residual, "windows": windows})["y"].tobytes() == due


def test_kept_weights_have_what_follows_too() -> None:
    attributes, x, w = made("padded")
    beside = {"scale": (w[0], 1, 1), "residual": (x[0], w[0], *attributes.out)}
    given = {name: drawn(F32, *shape) for name, shape in {"x": x, "w": w, **beside}.items()}
    b = ProgramBuilder("kept")
    operands = [b.input("x", dtypes.float32, x), b.constant(given["w"]),
                *[b.input(name, dtypes.float32, shape) for name, shape in beside.items()]]  # fmt: skip
    of = b.build({"y": b.add("convolve", operands, replace(attributes, epilogue=epilogue(2)))[0]})
    due = reference.run(followed(attributes, x, w, beside), given)["y"].tobytes()
    del given["w"]
    assert cpu.prepare(of, threads=1).run(given)["y"].tobytes() == due


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((5, 8), "epilogue operands shapes is .* must be with an element for all windows or one for each of"),
        ((3, 5, 1, 1), "epilogue operands shapes is .* must be within"),
        ((1, 5, 1, 8), "must be with an element for all windows or one for each of"),
    ],
)
def test_what_does_not_fit_windows_is_refused(shape: Any, said: str) -> None:
    attributes, x, w = made("inside")
    with pytest.raises(ShapeError, match=said):
        followed(attributes, x, w, {"scale": shape})


def lying(x: Array) -> list[Array]:
    """Equal arrays that lie otherwise."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    return [np.asfortranarray(x), wide[..., ::2], np.ascontiguousarray(x[..., ::-1])[..., ::-1], channels_last]


@pytest.mark.parametrize(
    "name", ["one by one", "inside", "padded", "phases", "depth", "depth in phases", "depth inside", "a line"]
)
def test_operands_may_lie_in_any_way(name: str) -> None:
    attributes, x, w = made(name)
    session = cpu.prepare(program(attributes, x, w), threads=1)
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    due = session.run(given)["y"].tobytes()
    for image, weights in itertools.product(lying(given["x"]), lying(given["w"])):
        assert session.run({"x": image, "w": weights})["y"].tobytes() == due


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", ["padded", "depth inside", "depth in phases", "a deep volume", "depth of a long line"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_no_number_is_canonical(isa: Any, name: str, kind: Any) -> None:
    """Infinities of both signs, and NaN with a sign and bits of their own, in the image and in the weights."""
    attributes, x, w = made(name)
    of = program(attributes, x, w, dtypes.of(kind))
    for where, every in (("x", 41), ("w", 7)):
        given = {"x": drawn(kind, *x), "w": drawn(kind, *w)}
        for start, value in enumerate((np.inf, -np.inf, -np.nan)):
            given[where].flat[2 + 3 * start :: every] = value
        code = given[where].reshape(-1).view(f"u{given[where].itemsize}")
        code[np.isnan(given[where].flat)] += 5
        with np.errstate(invalid="ignore"):
            due = reference.run(of, given)["y"]
        assert np.isnan(due).any()
        assert cpu.prepare(of, isa=isa, threads=1).run(given)["y"].tobytes() == due.tobytes()


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("depth", "two channels", "a deep"))])
def test_chains_touch_nothing_beside_their_operands_and_scratch(
    isa: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a thread is given lies beside forbidden pages, and scratch holds NaN before it is written."""
    attributes, x, w = made(name)
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    session = cpu.prepare(program(attributes, x, w), isa=isa, threads=1)
    ((_, plan),) = session.planned(given)
    due = session.run(given)["y"]

    def take(size_bytes: int) -> Any:
        block = guard.array(np.full(size_bytes, 0xFF, np.uint8), at_start=at_start)
        return SimpleNamespace(address=block.ctypes.data, block=block)

    monkeypatch.setattr(table, "scratch", SimpleNamespace(take=take, give=lambda block: None))
    for at_start in (False, True):
        out = guard.empty(due.shape, F32, at_start=at_start)
        operands = [guard.array(array, at_start=at_start) for array in given.values()]
        launch.run_plan(plan, [*operands, out])
        assert out.tobytes() == due.tobytes()


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("far", ["strides", "dilations", "both"])
def test_windows_and_places_beyond_the_image_are_zero_however_far(isa: Any, far: str) -> None:
    """Steps of 2^62, several of which leave 64 bits, have the bits of steps that just lead beyond the image."""
    x, w = (1, 2, 5, 6, 7), (2, 2, 3, 2, 3)
    beyond = Convolution((1, 2, 1), (2, 1, 1), (1, 2, 1), (2, 4, 3))
    farther = beyond
    for name in ("strides", "dilations"):
        if far in (name, "both"):
            beyond, farther = replace(beyond, **{name: (9, 9, 9)}), replace(farther, **{name: (1 << 62,) * 3})
    given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
    due = reference.run(program(beyond, x, w), given)["y"]
    assert cpu.prepare(program(farther, x, w), isa=isa, threads=2).run(given)["y"].tobytes() == due.tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_places_that_scratch_cannot_reach_are_refused(axis: int) -> None:
    dilations, before = [1, 1], [0, 0]
    dilations[axis] = before[axis] = 1 << 62
    attributes = Convolution((1, 1), tuple(dilations), tuple(before), (3, 3))
    session = cpu.prepare(program(attributes, (1, 3, 5, 7), (3, 3, 2, 2)))
    with pytest.raises(ShapeError, match=r"^run: memory of all values size in bytes is .*; give smaller inputs$"):
        session.run({"x": drawn(F32, 1, 3, 5, 7), "w": drawn(F32, 3, 3, 2, 2)})


def test_threads_share_long_sums_of_a_small_image() -> None:
    """There is less of the image than threads share to copy it, and more products."""
    attributes = Convolution((1,), (1,), (2,), (600,))
    session = cpu.prepare(program(attributes, (1, 12, 600), (4, 12, 5)), threads=2)
    ((_, plan),) = session.planned({"x": drawn(F32, 1, 12, 600), "w": drawn(F32, 4, 12, 5)})
    assert dict(plan.facts)["by"] == "chains of elements"
    assert plan.threads == 2
    assert plan.steps[0].tasks > 1


def test_images_of_a_batch_are_independent_and_batches_may_be_open() -> None:
    from samebits.operations import dim

    attributes, x, w = made("phases")
    session = cpu.prepare(program(attributes, (dim.symbol("n"), *x[1:]), w), threads=1)
    images, weights = drawn(F32, 5, *x[1:]), drawn(F32, *w)
    whole = session.run({"x": images, "w": weights})["y"]
    for n in range(5):
        assert session.run({"x": images[n : n + 1], "w": weights})["y"].tobytes() == whole[n].tobytes()


def test_what_lies_before_and_behind_an_image_is_not_read() -> None:
    """Neighbours are NaN, also those of rows and channels that windows pass by."""
    for name in (
        "padded",
        "phases",
        "depth",
        "depth in phases",
        "a deep volume",
        "more steps than places",
        "wide rows of windows",
    ):
        attributes, x, w = made(name)
        session = cpu.prepare(program(attributes, x, w), threads=1)
        given = {"x": drawn(F32, *x), "w": drawn(F32, *w)}
        due = session.run(given)["y"]
        around = np.full([n + 2 for n in x], np.nan, F32)
        inner = around[tuple(slice(1, -1) for _ in x)]
        inner[...] = given["x"]
        assert np.isfinite(due).all()
        assert session.run(given | {"x": inner})["y"].tobytes() == due.tobytes()


@pytest.mark.parametrize(
    ("x", "w", "groups", "said"),
    [
        (
            (1, 4, 5),
            (3, 2, 3),
            1,
            "convolve: operands is .*, must be channels and filters in 1 groups",
        ),
        ((1, 4, 5), (3, 2, 3), 2, "must be channels and filters in 2 groups"),
        ((1, 4, 5, 6), (3, 4, 3, 3), 1, "convolve: operands rank is 4 and 4, must be of 3 axes"),
    ],
)
def test_operands_that_do_not_fit_are_refused(x: Any, w: Any, groups: int, said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        program(Convolution((1,), (1,), (0,), (3,), groups), x, w)


@pytest.mark.parametrize("filters", [2, 8])
@pytest.mark.parametrize(
    ("x", "w"),
    [
        (dtypes.float32, dtypes.float16),
        (dtypes.float16, dtypes.float32),
        (dtypes.float8_e4m3fn, dtypes.float8_e4m3fn),
    ],
)
def test_operands_and_their_product_have_one_format(x: Any, w: Any, filters: int) -> None:
    b = ProgramBuilder("convolve")
    operands = b.input("x", x, (1, 1, 4)), b.input("w", w, (filters, 1, 3))
    said = f"operands dtypes is {x.name} and {w.name}, must be integers, or of one format, which their product has too"
    with pytest.raises(DTypeError, match=said):
        b.add("convolve", operands, Convolution((1,), (1,), (0,), (2,)))


def test_groups_of_few_filters_are_chains_but_for_single_elements_or_windows_of_many_channels() -> None:
    for name, by in (
        ("depth", "chains of elements"),
        ("depth of long sums", "chains of elements"),
        ("one window of a line", "elements of one window"),
        ("one window beyond", "chains of elements"),
        ("three filters of many channels", "chains of elements"),
        ("groups", "columns"),
    ):
        attributes, x, w = made(name)
        ((_, plan),) = cpu.prepare(program(attributes, x, w)).planned({"x": drawn(F32, *x), "w": drawn(F32, *w)})
        assert dict(plan.facts)["by"].startswith(by), name
    attributes = Convolution((1, 1), (1, 1), (0, 0), (9, 9))
    session = cpu.prepare(program(attributes, (1, 30, 9, 9), (2, 30, 1, 1)))
    ((_, plan),) = session.planned({"x": drawn(F32, 1, 30, 9, 9), "w": drawn(F32, 2, 30, 1, 1)})
    assert dict(plan.facts)["by"] == "1 x 1"
    attributes = Convolution((1, 1), (1, 1), (0, 0), (1, 1))
    session = cpu.prepare(program(attributes, (1, 30, 3, 3), (2, 30, 3, 3)))
    ((_, plan),) = session.planned({"x": drawn(F32, 1, 30, 3, 3), "w": drawn(F32, 2, 30, 3, 3)})
    assert dict(plan.facts)["by"].startswith("columns")


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_chains_on_aarch64(isa: Isa) -> None:
    plan = convolution_plans.ROWS[0].plan
    assert plan is not None
    for name in ("depth in phases", "two channels a group", "a deep volume", "one window of a line"):
        attributes, *shapes = made(name)
        arrays = [drawn(F32, *shape) for shape in shapes]
        due = reference.run(program(attributes, *shapes), dict(zip("xw", arrays, strict=True)))["y"]
        found = np.empty_like(due)
        views = [(dtypes.float32, x.shape, tuple(step // 4 for step in x.strides)) for x in (*arrays, found)]
        aarch64.run_plan(plan(attributes, tuple(views), PlanTarget(isa, 1, DEFAULT)), [*arrays, found])
        assert found.tobytes() == due.tobytes(), name


def test_threads_share_the_products_of_a_small_image() -> None:
    attributes = Convolution((1, 1), (1, 1), (1, 1), (12, 12))
    session = cpu.prepare(program(attributes, (1, 8, 12, 12), (16, 8, 3, 3)), threads=2)
    ((_, plan),) = session.planned({"x": drawn(F32, 1, 8, 12, 12), "w": drawn(F32, 16, 8, 3, 3)})
    assert dict(plan.facts)["by"].startswith("windows")
    assert plan.threads == 2
