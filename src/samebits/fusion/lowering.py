"""A definition as a Program: extents become symbols, operations become nodes of our rows.

Scalars that sizes depend on are numbers by then: a program is made for their values. Start at `lowered`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samebits import dtypes
from samebits.dtypes import DType
from samebits.fusion import datatypes, promotion
from samebits.fusion.graph import Expr, Fusion, Number, Scalar, TensorView, Val
from samebits.fusion.ops import LOWERED
from samebits.fusion.refusals import REFUSALS, refused
from samebits.fusion.views import returned
from samebits.operations import dim
from samebits.operations.dim import Size, SymbolicShape
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program

__all__ = ["SEED", "Lowering", "UnknownSize", "lowered", "size_scalars"]

# The input of a program whose numbers are drawn by a seed of the run.
SEED = "seed"


class UnknownSize(Exception):
    """A size is computed in a way that symbols do not follow: the program must be made for known extents."""


class Lowering:
    """A program under construction.

    Attributes:
        b: What it is built with.
        fusion: What it is built from.
        wide: For values without the axes that they were reduced along: the values with them, and the axes.
    """

    def __init__(self, fusion: Fusion, known: Mapping[Scalar, Number], extents: Mapping[Scalar, int]) -> None:
        self.b, self.fusion = ProgramBuilder("fusion"), fusion
        self._known, self._extents = known, extents
        self.wide: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._names: dict[Val, str] = {}
        for x in fusion.inputs:
            if isinstance(x, TensorView):
                self._names[x] = self.b.input(f"T{x.name}", row(x), self.shape(x))
            elif isinstance(x, Scalar) and x not in known:
                self._names[x] = self.b.input(f"S{x.name}", row(x), ())

    # -- what lowering of operations asks for ----------------------------------------------------------------------
    def value(self, x: Any) -> str:
        """The name of a value in the program."""
        found = self._names.get(x)
        if found is None:
            # What is read is made first: definitions may be longer than Python's stack is deep.
            stack = [x]
            while stack:
                missing = [each for each in self._read(stack[-1]) if each not in self._names]
                if missing:
                    stack += reversed(missing)
                    continue
                made = stack.pop()
                if made not in self._names:
                    self._names[made] = self._made(made)
            found = self._names[x]
        return found

    def operand(self, x: Val, dtype: DType) -> str:
        """The name of a value in a format: a scalar is rounded to it once."""
        if isinstance(x, Scalar):
            known = self._number(x)
            if known is not None:
                number = promotion.number_as(known, x.dtype, datatypes.data_type_of(dtype))
                return self.b.scalar(number, dtype)
        return self.b.as_dtype(self.value(x), dtype)

    def size(self, x: Scalar) -> Size:
        """An extent.

        Raises:  UnknownSize if symbols do not follow how it is computed.
        """
        root = self.fusion.root(x)
        known = self._number(root)
        if known is not None:
            return int(known)
        if root in self._extents:
            return self._extents[root]
        if root.definition is None:
            return dim.symbol(f"i{root.name}")
        name = self.value(root)
        found, array = self.b.integers(name), self.b.array(name)
        if found is not None:
            return found[0]
        if array is None:
            raise UnknownSize
        return int(array)

    def seed(self) -> str:
        """The run's own seed, an input behind those of the fusion."""
        return SEED if SEED in self.b.facts else self.b.input(SEED, dtypes.uint64, ())

    def shape(self, x: Val) -> SymbolicShape:
        """The extents of a tensor."""
        assert isinstance(x, TensorView)
        return tuple(self.size(axis.length) for axis in x.axes)

    def number(self, call: str, x: Scalar) -> int:
        """A size that must be a number.

        Raises:  UnknownSize if it follows from extents that are open.
        """
        found = self.size(x)
        if isinstance(found, dim.Dim):
            raise UnknownSize
        return found

    # -- inside ----------------------------------------------------------------------------------------------------
    def _read(self, x: Val) -> list[Val]:
        """The values that the operation which makes x reads, but for those that are inputs or numbers."""
        if x.definition is None or self._is_number(x):
            return []
        return [each for each in x.definition.inputs if each.definition is not None and not self._is_number(each)]

    def _is_number(self, x: Val) -> bool:
        return isinstance(x, Scalar) and self._number(x) is not None

    def _number(self, x: Scalar) -> Number | None:
        return x.value if x.value is not None else self._known.get(x)

    def _made(self, x: Val) -> str:
        if isinstance(x, Scalar):
            known = self._number(x)
            if known is not None:
                return self.b.constant(promotion.element("fusion", known, x.dtype))
            if x.definition is None:
                size = self.size(x)
                return self.b.dims((size,), scalar=True)
        assert x.definition is not None  # inputs have names from the start
        if isinstance(x, Scalar):
            found = self._divided(x.definition)
            if found is not None:
                return found
        # What it reads is lowered meanwhile, each under its own name.
        outer, self.b.origin = self.b.origin, (f"{'T' if isinstance(x, TensorView) else 'S'}{x.name}",)
        try:
            names = LOWERED[x.definition.op](self, x.definition)
        except REFUSALS as error:
            raise refused(x.definition.op, error) from None
        self.b.origin = outer
        self._names.update(zip(x.definition.outputs, names, strict=True))
        return self._names[x]

    def _divided(self, expr: Expr) -> str | None:
        """The quotient of two sizes that are known, symbols allowed, and not negative."""
        if expr.op != "div":
            return None
        names = [self.value(x) for x in expr.args]
        known = [self.b.integers(name) for name in names]
        if any(size is None or len(size) != 1 or not dim.is_never_negative(size[0]) for size in known):
            return None
        if any(self.b.facts[name].dtype is not dtypes.int64 for name in names) or known[1] == (0,):
            return None
        x, y = [size[0] for size in known if size is not None]
        return self.b.dims((dim.floor_divide(x, y),), scalar=True)


def row(x: Val) -> DType:
    """The format of a value."""
    return datatypes.row_of("fusion", str(x.name), x.dtype)


def size_scalars(fusion: Fusion) -> tuple[Scalar, ...]:
    """The scalar inputs that sizes depend on: the program is made for their values."""
    found: dict[Scalar, None] = {}
    seen: set[Val] = set()
    stack: list[Val] = []
    for expr in fusion.sorted_exprs():
        stack += [x for x in _sizes(expr) if isinstance(x, Val)]
    for x in fusion.inputs:
        if isinstance(x, TensorView):
            stack += [fusion.root(axis.length) for axis in x.axes]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if isinstance(x, Scalar) and x in fusion.inputs:
            found[x] = None
        if isinstance(x, Scalar) and fusion.root(x) is not x:
            stack.append(fusion.root(x))
        if x.definition is not None:
            stack += list(x.definition.inputs)
    return tuple(x for x in fusion.inputs if x in found)


# What operations are given that decides sizes, beside the extents of their results.
_SIZES = {"slice": ("start_indices", "end_indices"), "pad": ("pad_widths",), "iota": ("length",), "topk": ("k",)}


def _sizes(expr: Expr) -> list[Any]:
    found: list[Any] = []
    for name in _SIZES.get(expr.op, ()):
        each = expr.option(name)
        found += each if isinstance(each, list) else [each]
    for made in expr.outputs:
        if isinstance(made, TensorView):
            found += [axis.length for axis in made.axes]
    return found


def lowered(fusion: Fusion, known: Mapping[Scalar, Number], extents: Mapping[Scalar, int]) -> Program:
    """The program of a definition; its outputs are `O0`, `O1`, ..., those of different tensors in their order.

    Args:
        fusion: The definition.
        known: The values of the scalars that sizes depend on.
        extents: The extents of the inputs, where symbols do not serve; else empty.

    Raises:  UnknownSize; and what rows raise of operands that they do not take.
    """
    low = Lowering(fusion, known, extents)
    outputs: dict[str, str] = {}
    for place, x in enumerate(distinct(fusion)):
        name = low.value(x)
        if x.stride_order is not None:
            name = low.b.transpose(name, slowest_first(x.stride_order))
        outputs[f"O{place}"] = name
    return low.b.build(outputs)


def distinct(fusion: Fusion) -> list[TensorView]:
    """The tensors that a run computes, each once, in the order of outputs: all but views of inputs."""
    views = returned(fusion)
    return [x for x in dict.fromkeys(output.tensor for output in fusion.outputs) if x not in views]


def slowest_first(stride_order: tuple[int, ...]) -> tuple[int, ...]:
    """The axes from the one that varies slowest."""
    return tuple(sorted(range(len(stride_order)), key=lambda axis: -stride_order[axis]))
