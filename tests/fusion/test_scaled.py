"""`scaled_mm`: the product with scales that `matmul` has, scales of blocks in tiles, on every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition
from samebits.fusion.cache import key_of

ISAS = [row.name for row in isas.isas() if row.available]
M, K, N = 130, 160, 33
# The interpreter takes a second for a thousand products.
FEW = (3, 32, 5)


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def defined(kinds: dict[str, tuple[list[int], DataType]], **options: Any) -> FusionDefinition:
    """The product of inputs by the names of `scaled_mm`."""
    with FusionDefinition() as fd:
        given = {name: fd.define_tensor(shape, contiguity=True, dtype=dtype) for name, (shape, dtype) in kinds.items()}
        out, *nothing = fd.ops.scaled_mm(**given, **options)
        assert nothing == [None, None]
        fd.add_output(out)
    return fd


ANY, FP8, FLOAT = [-1, -1], DataType.Float8_e4m3fn, DataType.Float
MATRICES = {"mat1": (ANY, FP8), "mat2": (ANY, FP8)}


@pytest.mark.parametrize("isa", ISAS)
def test_one_scale_and_scales_of_lines(isa: str) -> None:
    m, k, n = FEW if isa == "numpy" else (13, 48, 17)
    a, b = (drawn(*shape).astype(dtypes.float8_e4m3fn.numpy) for shape in ((m, k), (k, n)))
    for shapes, scales in (
        (([], []), (np.array(0.3, np.float32), np.array(1.7, np.float32))),
        (([1, 1], [1]), (np.full((1, 1), 0.3, np.float32), np.full(1, 1.7, np.float32))),
        (([-1, 1], [1, -1]), (np.abs(drawn(m, 1)), np.abs(drawn(1, n)))),
    ):
        fd = defined(MATRICES | {"scale1": (shapes[0], FLOAT), "scale2": (shapes[1], FLOAT)}, dtype=DataType.Half)
        with sb.use_isa(isa):
            (found,) = fd.validate([a, b, *scales])
            due = sb.matmul(a, b, a_scale=scales[0], b_scale=scales[1], out_dtype="float16")
        assert found.dtype == np.float16
        assert found.tobytes() == due.tobytes()


def test_what_is_multiplied_and_added() -> None:
    a, b = (drawn(*shape).astype(dtypes.float8_e4m3fn.numpy) for shape in ((M, K), (K, N)))
    one, alpha, beta = (np.array(x, np.float32) for x in (1, 0.3, -1.7))
    half = dtypes.bfloat16.numpy
    kinds = MATRICES | {"scale1": ([], FLOAT), "scale2": ([], FLOAT), "alpha": ([], FLOAT)}
    for c in (drawn(N).astype(half), drawn(M, N).astype(half)):
        named = kinds | {"bias": ([-1] * c.ndim, DataType.BFloat16)}
        (found,) = defined(named, dtype=FLOAT).validate([a, b, one, one, alpha, c])
        wide = c.astype(np.float32)
        assert found.tobytes() == sb.matmul(a, b, alpha=0.3, bias=wide, out_dtype="float32").tobytes()
        (found,) = defined(named | {"beta": ([], FLOAT)}, dtype=FLOAT).validate([a, b, one, one, alpha, c, beta])
        assert found.tobytes() == sb.matmul(a, b, alpha=0.3, c=wide, beta=-1.7, out_dtype="float32").tobytes()


@rows.in_turn(
    "isa, block", ("nvfp4", "mxfp4", "mxfp8-e4m3", "mxfp6-e2m3"), 1, always=[isas.best()], among=rows.AVAILABLE
)
def test_scales_of_blocks_lie_in_tiles(isa: Isa, block: str) -> None:
    group = 16 if block == "nvfp4" else 32
    kinds = {
        "nvfp4": (DataType.Float4_e2m1fn, FP8), "mxfp4": (DataType.Float4_e2m1fn, DataType.Float8_e8m0fnu),
        "mxfp8-e4m3": (FP8, DataType.Float8_e8m0fnu), "mxfp6-e2m3": (DataType.Float6_e2m3fn, DataType.Float8_e8m0fnu),
    }[block]  # fmt: skip
    more = {"global_scale": 1.0} if block == "nvfp4" else {}
    fd = defined({
        "mat1": (ANY, kinds[0]), "mat2": (ANY, kinds[0]), "scale1": (ANY, kinds[1]), "scale2": (ANY, kinds[1]),
    })  # fmt: skip
    for m, k, n in ((M, K, N), (1, 32, 3)) if isa.compiled else (FEW,):
        x, w = sb.quantize(drawn(m, k), block, **more), sb.quantize(drawn(n, k, seed=1), block, **more)
        tiles = [q.scale_tiles().reshape((-(-lines // 128) * 128, -1)) for q, lines in ((x, m), (w, n))]
        with sb.use_isa(isa):
            (found,) = fd.validate([x.elements, w.elements.transpose(), *tiles])
            due = sb.matmul(
                x.elements, w.elements.transpose(), a_scale=x.scales, a_group=group, b_scale=w.scales.transpose(),
                b_group=group, out_dtype="bfloat16",
            )  # fmt: skip
        assert found.numpy().tobytes() == due.numpy().tobytes()
    assert fd.fec is not None
    assert len(fd.fec._sessions) == 1


def test_what_is_quantised_in_the_fusion_is_multiplied() -> None:
    """As nvFuser's users have it, torch's tensors; beside the product in float64."""
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor(ANY, contiguity=True, dtype=DataType.BFloat16) for _ in range(2))
        alpha = fd.define_tensor([], contiguity=True)
        (q, s), (r, t) = (fd.ops.nv_block_quantize(each, None, True) for each in (x, w))
        out, _, _ = fd.ops.scaled_mm(q, fd.ops.permute(r, [1, 0]), s, t, alpha)
        for output in (out, s, q):
            fd.add_output(output)
    a, b = (torch.from_numpy(x).to(torch.bfloat16) for x in (drawn(M, K), drawn(N, K)))
    out, s, q = fd.validate([a, b, torch.tensor(0.5)])
    xq, wq = (sb.quantize(each, "nvfp4", dialect="nvfp4/nvfuser-0.2", global_scale=1.0) for each in (a, b))
    assert s.shape == (256, 12)
    assert s.view(torch.uint8).numpy().tobytes() == xq.scale_tiles().view("uint8").numpy().tobytes()
    assert q.dtype is torch.float4_e2m1fn_x2
    values = [torch.as_tensor(np.asarray(each.dequantize("float32").numpy(), np.float64)) for each in (xq, wq)]
    # Sums of 160 products, each chain rounded in float32, and one rounding to 8 bits.
    exact = 0.5 * values[0] @ values[1].T
    bound = 2.0**-8 * exact.abs() + 160 * 2.0**-23 * (values[0].abs() @ values[1].abs().T)
    assert bool(((out.double() - exact).abs() <= bound).all())


def test_the_text_defines_it_again() -> None:
    fd = defined(MATRICES | {"scale1": ([], FLOAT), "scale2": ([], FLOAT)})
    space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), space)
    with FusionDefinition() as again:
        space["nvfuser_fusion"](again)
    assert key_of(fd.fusion) == key_of(again.fusion)


def test_tiles_of_other_extents_are_refused() -> None:
    x = sb.quantize(drawn(4, 32), "nvfp4", global_scale=1.0)
    fd = defined({
        "mat1": (ANY, DataType.Float4_e2m1fn), "mat2": (ANY, DataType.Float4_e2m1fn), "scale1": (ANY, FP8),
        "scale2": (ANY, FP8),
    })  # fmt: skip
    whole = x.scale_tiles().reshape((128, 4))
    for scales, place in (((x.scales, whole), 2), ((whole, x.scales), 3)):
        with pytest.raises(FusionError) as caught:
            fd.execute([x.elements, x.elements.transpose(), *scales])
        due = f"shape is (4, 2), must be (128, 4), whole tiles over 4 x 2 scales of mat{place - 1}; {TILES}"
        assert str(caught.value) == f"execute: input {place} {due}"
    fd.execute([x.elements, x.elements.transpose(), whole, whole])


def refused_extents(shapes: dict[str, tuple[list[int], DataType]]) -> str:
    with FusionDefinition() as fd:
        given = {name: fd.define_tensor(shape, contiguity=True, dtype=kind) for name, (shape, kind) in shapes.items()}
        with pytest.raises(FusionError) as caught:
            fd.ops.scaled_mm(**given)
    return str(caught.value)


BOTH = "permute or slice one of them: both have K"
ROW, COLUMN = "give one scale for each row of mat1", "give one scale for each column of mat2"
BIAS = "give one number for each column of mat2, or one for each element of the result"


@pytest.mark.parametrize(("name", "shape", "sentence"), [
    ("mat2", ([16, 6], FP8), f"extent 0 is 16, must be 32 as extent 1 of mat1; {BOTH}"),
    ("scale1", ([3, 1], FLOAT), f"extent 0 is 3, must be 4 as extent 0 of mat1; {ROW}"),
    ("scale1", ([4, 2], FLOAT), f"extent 1 is 2, must be 1; {ROW}"),
    ("scale2", ([1, 7], FLOAT), f"extent 1 is 7, must be 6 as extent 1 of mat2; {COLUMN}"),
    ("scale2", ([2, 6], FLOAT), f"extent 0 is 2, must be 1; {COLUMN}"),
    ("bias", ([5], FLOAT), f"extent 0 is 5, must be 6 as extent 1 of mat2; {BIAS}"),
    ("bias", ([3, 6], FLOAT), f"extent 0 is 3, must be 4 as extent 0 of mat1; {BIAS}"),
])  # fmt: skip
def test_extents_that_do_not_fit_are_named(name: str, shape: tuple[list[int], DataType], sentence: str) -> None:
    fits = {"mat1": ([4, 32], FP8), "mat2": ([32, 6], FP8), "scale1": ([4, 1], FLOAT), "scale2": ([1, 6], FLOAT)}
    assert refused_extents(fits | {name: shape}) == f"scaled_mm: {name} {sentence}"


def test_tiles_that_are_defined_of_other_extents_are_named() -> None:
    tile, four = ([128, 4], FP8), DataType.Float4_e2m1fn
    fits = {"mat1": ([4, 32], four), "mat2": ([32, 6], four), "scale1": tile, "scale2": tile}
    due = f"(128, 4), whole tiles over 6 x 2 scales of mat2; {TILES}"
    assert refused_extents(fits | {"scale2": ([6, 2], FP8)}) == f"scaled_mm: scale2 shape is (6, 2), must be {due}"


def refused(define: Callable[[FusionDefinition, Any], Any]) -> str:
    with FusionDefinition() as fd:
        kinds = {
            "a": (ANY, FP8), "b": (ANY, FP8), "s": ([], FLOAT), "v": ([-1], FLOAT), "t": (ANY, FP8),
            "i": (ANY, DataType.Int), "row": ([-1], FP8), "c": ([-1, -1, -1], FLOAT),
        }  # fmt: skip
        x = {name: fd.define_tensor(shape, contiguity=True, dtype=dtype) for name, (shape, dtype) in kinds.items()}
        with pytest.raises(FusionError) as caught:
            define(fd, x)
    return str(caught.value)


TILES = "give whole tiles, as nv_block_quantize makes them with swizzle_block_scales=True"
KINDS = "both Float, both Float8_e4m3fn or both Float8_e8m0fnu"
REFUSED: list[tuple[Callable[[FusionDefinition, Any], Any], str]] = [
    (lambda fd, x: fd.ops.scaled_mm(x["c"], x["b"], x["s"], x["s"]), "mat1 rank is 3, must be 2; reshape it"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["i"], x["s"], x["s"]),
     "mat2 dtype is DataType.Int, must be a float format; cast it first"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["t"]),
     f"scales dtypes is DataType.Float and DataType.Float8_e4m3fn, must be {KINDS}; cast one of them"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["v"], x["s"]),
     "scale1 rank is 1, must be 2, or 0 of one for everything; give it an axis of extent 1 along K"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["t"], x["row"]), f"scale2 rank is 1, must be 2; {TILES}"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["s"], alpha=x["v"]),
     "alpha is DataType.Float of rank 1, must be DataType.Float of rank 0; cast it, and squeeze it"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["s"], beta=x["s"]),
     "beta is given without bias, must be given with it; give bias too"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["s"], bias=x["c"]),
     "bias rank is 3, must be 1 or 2; reshape it to [n] or [m, n]"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["s"], bias=x["i"]),
     "bias dtype is DataType.Int, must be a float format; cast it first"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["s"], dtype=FP8),
     "dtype is DataType.Float8_e4m3fn, must be Float, Half or BFloat16; cast the result"),
    (lambda fd, x: fd.ops.scaled_mm(x["a"], x["b"], x["s"], x["s"], output_block_scale_size=16),
     "output_block_scale_size is 16, must be left out; quantise the result by nv_block_quantize"),
]  # fmt: skip


@pytest.mark.parametrize(("define", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_refusal_says_what_is_wrong(define: Callable[[FusionDefinition, Any], Any], sentence: str) -> None:
    assert refused(define) == f"scaled_mm: {sentence}"
