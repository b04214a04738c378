"""What a convolution is: weights times what each window of an image has (numerics.md section 2).

`Convolution` says how windows slide, `infer` refuses operands that do not fit, `reference` computes by NumPy; how it is
planned is `convolution_plans`'. Start at `Convolution`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import SB1, Spec
from samebits.kernels.gemm.engine import EXACT, span
from samebits.kernels.gemm.engine import named as engine_named
from samebits.kernels.gemm.order import CHAIN
from samebits.kernels.gemm.packed import PackedFacts
from samebits.operations import dim, matmul
from samebits.operations.axes import Axes, aligned
from samebits.operations.elementwise import check_dtypes, text
from samebits.operations.fact import Fact, dense
from samebits.operations.matmul import MatrixProduct
from samebits.operations.operation import Array, Shape
from samebits.operations.product import Options
from samebits.operations.views import text as sizes_text
from samebits.operations.windows import (
    EXTRAS,
    Slide,
)

__all__ = ["REQUANTISING", "Convolution", "axes", "by_group", "infer", "reference"]

# Filters of a group up to which each element is a chain of its own; and channels, where there is one window or windows
# are one element.
_FEW = 4
# Products of a sum up to which it is written out for images of one window.
_PLACES = 25
# What the product takes that may be one a filter.
_EACH = ("a_scale", "a_zero_point", "bias")
_ZERO_POINTS = ("a_zero_point", "b_zero_point")
# What requantising reads beside the sum, in its order; a bias may be left out.
REQUANTISING = ("bias", "a_scale", "b_scale", "out_scale", "out_zero_point")


@dataclass(frozen=True, slots=True)
class Convolution:
    """How windows slide along the spatial axes of an image, those behind its batch and channels.

    Attributes:
        strides: Steps between windows.
        dilations: Steps between places of the kernel.
        before: How far before the image the first window begins.
        out: How many windows there are; what they look at behind the image reads as +0, as before it.
        groups: Channels and filters are so many groups, which are products of their own.
        spec: The order of the sums.
        packed: The weights as the right operand [K, filters] of a product, where they are in panels already.
        weights: Their shape then, or where they are grouped.
        engine: The engine of integers for whose words constant weights are grouped: [filters, channels / depth, places
            of the kernel, depth], channels that are missing 0. Empty where they lie as they are.
        epilogue: Its input 0 is the product, which is float32 then; further operands broadcast to it, with the same
            element for all windows of an image or with one for each. None is the product itself.
        names: What each operand is: the image and the weights, then what the product takes of integers, by the names
            that `product.describe` has for them: a is the weights, b the image, whose zero point is what windows see
            beside it. Each is one number; those in `_EACH` may be one a filter. Those of the epilogue follow.
        out_dtype: What integers are requantised to.
        bias_fits: Whether no sum with the bias leaves int32, as who has its numbers knows.
    """

    strides: Shape
    dilations: Shape
    before: Shape
    out: Shape
    groups: int = 1
    spec: Spec = SB1
    packed: PackedFacts | None = None
    weights: Shape = ()
    engine: str = ""
    epilogue: Expression | None = None
    names: tuple[str, ...] = ("x", "w")
    out_dtype: DType | None = None
    bias_fits: bool = False

    def __str__(self) -> str:
        said = [f"{self.groups} groups"] if self.groups > 1 else []
        said += [f"strides {list(self.strides)}"] if set(self.strides) != {1} else []
        said += [f"dilations {list(self.dilations)}"] if set(self.dilations) != {1} else []
        said += [f"from {[-step for step in self.before]}"] if any(self.before) else []
        said += [f"with {', '.join(self.names[2:])}"] if self.names[2:] else []
        said += [f"as {self.out_dtype.name}"] if self.out_dtype else []
        return ", ".join([*said, f"windows {list(self.out)}"]) + (text(self.epilogue) if self.epilogue else "")

    @property
    def product(self) -> MatrixProduct:
        """The product of weights and columns, without what follows."""
        options = Options(spec=self.spec, out_dtype=self.out_dtype, bias_fits=self.bias_fits)
        return MatrixProduct(names=("a", "b", *self.names[2:]), options=options, packed=self.packed)

    @property
    def depth(self) -> int:
        """Channels that lie side by side where weights are grouped, else 1."""
        return engine_named(self.engine).depth if self.engine else 1

    @property
    def point(self) -> int | None:
        """The operand of a plan that windows see beside the image, unless it is +0."""
        return EXTRAS + self.names.index("b_zero_point") - 2 if "b_zero_point" in self.names else None

    def is_chained(self, w: Shape) -> bool:
        """Whether each element is a chain of its own, for weights of that shape."""
        places, filters = math.prod(w[2:]), w[0] // self.groups
        is_wide = places > 1 and math.prod(self.out) > 1
        is_alone = (is_wide or w[1] <= _FEW) and 0 not in w and filters <= _FEW
        return is_alone and self.spec.order == CHAIN.name and self.spec.segments == 1

    def is_counted(self, w: Shape, kinds: Sequence[DType]) -> bool:
        """Whether elements are sums of integers, or these requantised, by chains of float32, which counts them exactly.

        Args:    kinds: those of all operands.
        """
        image, weights, *others = kinds
        if self.epilogue is not None or not (image.is_integer and weights.is_integer and self.is_chained(w)):
            return False
        largest = span(image, zero=True) * span(weights, zero=True)
        given = {name: kind for name, kind in zip(self.names[2:], others, strict=False) if name not in _ZERO_POINTS}
        is_known = not given or {"bias", *given} == {*REQUANTISING}
        is_known = is_known and all(kind is dtypes.float32 for name, kind in given.items() if name.endswith("_scale"))
        return is_known and image.width_bits == weights.width_bits == 8 and math.prod(w[1:]) * largest <= EXACT

    def is_map(self, w: Shape) -> bool:
        """Whether there is one window of few places, so that each filter is best a lane of a vector."""
        is_short = math.prod(w[1:]) <= min(_PLACES, self.spec.chunk)
        return self.is_chained(w) and math.prod(self.out) == 1 and is_short and not any(self.before)

    def slides(self, image: Shape, kernel: Shape) -> tuple[Slide, ...]:
        """Each spatial axis."""
        facts = zip(image, kernel, self.strides, self.dilations, self.before, self.out, strict=True)
        return tuple([Slide(*each) for each in facts])


def infer(attributes: Convolution, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (x, w, *named), extras = facts[: len(attributes.names)], facts[len(attributes.names) :]
    groups, rank, epilogue = attributes.groups, len(attributes.out), attributes.epilogue
    if x.rank != rank + 2 or w.rank != x.rank:
        expected = f"of {rank + 2} axes: batch or filters, channels, and those that windows slide along"
        raise ShapeError("convolve", "operands", "rank", f"{x.rank} and {w.rank}", expected, "reshape them")
    channels, *fixed = [size for size in (*x.shape[1:], *w.shape) if isinstance(size, int)]
    filters, depth, *kernel = fixed[rank:]
    if len(fixed) != rank + w.rank or channels != depth * groups or filters % groups:
        actual, expected = f"{x} and {w}", f"channels and filters in {groups} groups"
        raise ShapeError("convolve", "operands", "", actual, expected, "check the weights")
    if not x.dtype.is_integer and attributes.names[2:]:
        actual, expected = f"{x.dtype.name} beside {', '.join(attributes.names[2:])}", "integers"
        raise DTypeError("convolve", "x", "dtype", actual, expected, "let a map follow")
    k, area = depth * math.prod(kernel), math.prod(attributes.out)
    operands = dense(w.dtype, (groups, filters // groups, k)), dense(x.dtype, (x.shape[0], groups, k, area))
    others = [
        _of_filters(attributes, name, fact, filters) for name, fact in zip(attributes.names[2:], named, strict=True)
    ]
    (made,) = matmul.ROWS[0].infer(attributes.product, (*operands, *others))
    if not (made.dtype is x.dtype is w.dtype or (x.dtype.is_integer and w.dtype.is_integer)):
        actual, expected = (
            f"{x.dtype.name} and {w.dtype.name}",
            "integers, or of one format, which their product has too",
        )
        raise DTypeError("convolve", "operands", "dtypes", actual, expected, "convert them first")
    shape = x.shape[0], filters, *attributes.out
    if epilogue is None:
        return (dense(made.dtype, shape),)
    check_dtypes("convolve", epilogue.inputs, (Fact(made.dtype, (), ()), *extras))
    if any(extra.shape[-rank:] not in ((1,) * rank, attributes.out) for extra in extras if extra.rank):
        expected = f"with an element for all windows or one for each of {list(attributes.out)}"
        raise ShapeError("convolve", "epilogue operands", "shapes", [str(e) for e in extras], expected, "expand them")
    if dim.broadcast_shapes([shape, *[extra.shape for extra in extras]]) != shape:
        expected = f"within {sizes_text(shape)}"
        raise ShapeError("convolve", "epilogue operands", "shapes", [str(e) for e in extras], expected, "expand x")
    return (dense(epilogue.dtype(epilogue.outputs[0]), shape),)


def _of_filters(attributes: Convolution, name: str, fact: Fact, filters: int) -> Fact:
    """An operand of the product, one number or one a filter, as the product has it."""
    if fact.rank == 0:
        return fact
    if fact.shape != (filters,) or name not in _EACH:
        expected = f"one number, or one for each of {filters} filters" if name in _EACH else "one number"
        raise ShapeError("convolve", name, "shape", sizes_text(fact.shape), expected, "reshape it")
    return dense(fact.dtype, by_group(attributes, name, filters))


def by_group(attributes: Convolution, name: str, filters: int) -> Shape:
    """The shape that the product takes what each filter has one of in."""
    shape = attributes.groups, filters // attributes.groups
    return (*shape, 1) if name == "bias" else shape


def reference(attributes: Convolution, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (x, w, *named), extras = arrays[: len(attributes.names)], arrays[len(attributes.names) :]
    if attributes.epilogue is not None:
        (t,) = reference(replace(attributes, epilogue=None), (x, w, *named))
        return tuple(values.reference(attributes.epilogue, [t, *extras]))
    (fact,) = infer(attributes, [dense(dtypes.of(array.dtype), array.shape) for array in arrays])
    batch, _, *image = x.shape
    filters, depth, *kernel = w.shape
    if 0 in attributes.out:
        return (np.empty((batch, filters, *attributes.out), fact.dtype.numpy),)  # no image has to hold a window then
    slides, groups = attributes.slides(tuple(image), tuple(kernel)), attributes.groups
    padding = [(s.before, max(s.total - s.before - s.extent, 0)) for s in slides]
    beside = dict(zip(attributes.names[2:], named, strict=True))
    padded = np.pad(x, [(0, 0), (0, 0), *padding], constant_values=beside.get("b_zero_point", 0))
    reach = [(s.kernel - 1) * s.dilation + 1 for s in slides]
    spatial = range(2, x.ndim)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(spatial))
    slid = [slice(0, (s.out - 1) * s.stride + 1, s.stride) for s in slides]
    windows = windows[(slice(None), slice(None), *slid, *[slice(None, None, s.dilation) for s in slides])]
    last = range(x.ndim, windows.ndim)
    k, area = depth * math.prod(kernel), math.prod(attributes.out)
    columns = windows.transpose(0, 1, *last, *spatial).reshape(batch, groups, k, area)
    left = w.reshape(groups, filters // groups, k)
    others = [v.reshape(by_group(attributes, name, filters)) if v.ndim else v for name, v in beside.items()]
    (made,) = matmul.ROWS[0].reference(attributes.product, (left, columns, *others))
    return (made.reshape(batch, filters, *attributes.out),)


def axes(attributes: Convolution, facts: Sequence[Fact]) -> Axes:
    """Images of a batch and filters are independent."""
    others = (None,) * (facts[0].rank - 1)
    named, extras = facts[2 : len(attributes.names)], facts[len(attributes.names) :]
    return Axes(((0, *others), (1, *others), *[(1,) * fact.rank for fact in named], *aligned(extras, facts[0].rank)))
