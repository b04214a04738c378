"""Contraction: what one matrix product is, as a frozen value. Nothing here knows tiles, threads or instructions.

`out[m, n] = epilogue(sum_k a[m, k] * b[k, n], sources...)`, with batch dimensions in front, each operand by its own
strides. The order of the sum is `Spec` (numerics.md section 2). Operands of a plan are numbered: a, b, the sources that
are matrices in their order, out. Start at `Contraction`; `fused` builds the usual epilogue.

`out` may overlap no operand, with one exception: a source that is exactly `out` (same address and strides), which
`in_place` declares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from samebits import driver
from samebits.dtypes import DType, float32
from samebits.errors import OptionError, message
from samebits.kernels.expression import Expression, Node


@dataclass(frozen=True, slots=True)
class Spec:
    """The order of a contraction: chunks of `chunk` along K, K cut into `segments` joined by a binary tree."""

    chunk: int = 128
    segments: int = 1

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise OptionError(message("Spec", "chunk", "", self.chunk, "at least 1", "leave it at 128, which is sb1"))
        if self.segments < 1 or self.segments & (self.segments - 1):
            raise OptionError(message("Spec", "segments", "", self.segments, "a power of two", "use 1, 2, 4 or 8"))

    def bounds(self, k: int) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of k that the segments cover; the last ones may be empty."""
        size = -(-k // (self.segments * self.chunk)) * self.chunk
        return tuple((min(k, s * size), min(k, (s + 1) * size)) for s in range(self.segments))


SB1 = Spec()


@dataclass(frozen=True, slots=True)
class Matrix:
    """How a matrix operand lies: strides in elements, 0 where it repeats; one batch stride for each batch dimension."""

    row: int
    column: int
    batch: tuple[int, ...] = ()
    dtype: DType = float32

    @property
    def transposed(self) -> Matrix:
        """Rows and columns exchanged."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Panels:
    """A right operand that is already in panels [panel][k][nr] (`packed.PackedMatrix`); batches lie `batch` apart."""

    nr: int
    batch: tuple[int, ...] = ()
    dtype: DType = float32


@dataclass(frozen=True, slots=True)
class Immediate:
    """A scalar source whose value is part of the plan: the element's bits."""

    code: int
    dtype: DType = float32

    @classmethod
    def of(cls, value: float) -> Immediate:
        """value rounded to float32, whatever the caller's rounding mode; infinite where it is too large."""
        with driver.default_float_environment(), np.errstate(over="ignore"):
            return cls(int(np.float32(value).view(np.int32)))


Source = Matrix | Immediate


@dataclass(frozen=True, slots=True)
class Contraction:
    """One product and its epilogue.

    `epilogue` takes t as input 0 and `sources` as inputs 1, 2, ...; each source is a full matrix, or repeats along
    rows (`row=0`: a bias over N), along columns (`column=0`), or both; None stores t.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix | Panels
    out: Matrix
    batch: tuple[int, ...] = ()
    epilogue: Expression | None = None
    sources: tuple[Source, ...] = ()
    in_place: bool = False
    spec: Spec = SB1

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the plan's operands in order; a matrix source is called by its input number."""
        matrices = [f"source {i}" for i, s in enumerate(self.sources, 1) if isinstance(s, Matrix)]
        return ("a", "b", *matrices, "out")

    @property
    def transposed(self) -> Contraction:
        """out^T = b^T a^T: the same bits, because products commute and NaN is canonical."""
        assert isinstance(self.b, Matrix)  # panels hold no other order
        return replace(
            self, m=self.n, n=self.m, a=self.b.transposed, b=self.a.transposed, out=self.out.transposed,
            sources=tuple(s.transposed if isinstance(s, Matrix) else s for s in self.sources),
        )  # fmt: skip

    def __str__(self) -> str:
        batch = f" batch {list(self.batch)}" if self.batch else ""
        right = "packed" if isinstance(self.b, Panels) else "b"
        return f"matmul a[{self.m},{self.k}] {right}[{self.k},{self.n}]{batch}, chunk {self.spec.chunk}"


def fused(
    *,
    alpha: float | None = None,
    beta: float | None = None,
    c: Matrix | None = None,
    bias: Matrix | None = None,
    activation: Expression | None = None,
) -> tuple[Expression | None, tuple[Source, ...]]:
    """activation(t * alpha + beta * c + bias) as (epilogue, sources), in the order of section 2 step 4.

    Matrix sources come in the order c, bias. `beta=None` adds c as it is (which has the bits of beta = 1);
    `activation` is an Expression of one float32 input.
    """  # fmt: skip
    sources: list[Source] = []
    steps: list[tuple[str, int]] = []  # (op, source number) applied to the running value
    if alpha is not None:
        sources.append(Immediate.of(alpha))
        steps.append(("mul", len(sources)))
    scaled = None
    if c is not None:
        sources.append(c)
        steps.append(("add", len(sources)))
        if beta is not None:
            sources.append(Immediate.of(beta))
            scaled = (len(sources) - 1, len(sources))
    if bias is not None:
        sources.append(bias)
        steps.append(("add", len(sources)))
    first = 1 + len(sources)
    nodes: list[Node] = []
    value = 0
    for op, source in steps:
        if scaled is not None and source == scaled[0]:
            nodes.append(Node("mul", (scaled[1], scaled[0]), float32))
            source = first + len(nodes) - 1
        nodes.append(Node(op, (value, source), float32))
        value = first + len(nodes) - 1
    if activation is not None:
        shift = first + len(nodes) - 1
        for node in activation.nodes:
            moved = tuple(value if x == 0 else x + shift for x in node.arguments)
            nodes.append(replace(node, arguments=moved))
        output = activation.outputs[0]
        value = output + shift if output else value
    if not nodes:
        return None, ()
    return Expression((float32, *(s.dtype for s in sources)), tuple(nodes), (value,)), tuple(sources)
