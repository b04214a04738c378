"""Random small programs over every primitive that computes, and inputs with every kind of float."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from samebits import dtypes
from samebits.kernels import composites
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program

UNARY = ("neg", "abs", "exp", "erf", "sqrt")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
ODD = np.array([0.0, -0.0, 1e-42, -1e-42, np.inf, -np.inf, np.nan, 3.4e38, 1.0, -2.5], np.float32)


def floats(shape: tuple[int, ...], seed: int, odd: bool = True) -> np.ndarray:
    """Normal numbers, here and there an odd one."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape).astype(np.float32)
    if odd:
        x[random.random(shape) < 0.1] = random.choice(ODD)
    return x


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of up to twelve nodes over x float32[n, 4, 3] and y float32[n, 1, 3]."""
    b = ProgramBuilder("random")
    n = dim.symbol("n")
    values = [b.input("x", dtypes.float32, (n, 4, 3)), b.input("y", dtypes.float32, (n, 1, 3))]
    steps: list[Callable[[], str]] = [
        lambda: b.apply(draw(st.sampled_from(UNARY)), pick(values)),
        lambda: b.apply(draw(st.sampled_from(BINARY)), pick(values), pick(values)),
        lambda: b.apply("mul", pick(values), b.scalar(draw(st.sampled_from([0.5, -3.0, 0.0])), dtypes.float32)),
        lambda: b.apply("add", pick(values), b.constant(floats((3,), 1))),
        lambda: masked(b, pick(values)),
        lambda: b.rows(composites.softmax(), pick(values))[0],
        lambda: b.rows(composites.layer_norm(True, True, 1e-5), pick(values), *weights(b))[0],
        lambda: b.contract(pick(values), b.constant(floats((3, 3), 2))),
        lambda: there_and_back(b, pick(values), draw(st.booleans())),
    ]

    def pick(among: list[str]) -> str:
        return draw(st.sampled_from(among))

    for _ in range(draw(st.integers(1, 12))):
        values.append(draw(st.sampled_from(steps))())
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=2, unique=True))
    return b.build({f"out{i}": name for i, name in enumerate([values[-1], *outputs])})


def weights(b: ProgramBuilder) -> tuple[str, str]:
    """A gamma and a beta."""
    return b.constant(floats((3,), 3, odd=False)), b.constant(floats((3,), 4, odd=False))


def masked(b: ProgramBuilder, x: str) -> str:
    """x with its NaNs replaced."""
    return b.apply("where", b.apply("is_nan", x), b.scalar(0.0, dtypes.float32), x)


def there_and_back(b: ProgramBuilder, x: str, scaled: bool) -> str:
    """x split, transposed, perhaps scaled, and put together again."""
    fact = b.facts[x]
    rows = fact.shape[1]
    moved = b.transpose(b.reshape(x, (fact.shape[0], rows, 3, 1)), (0, 2, 1, 3))
    if scaled:
        moved = b.apply("mul", moved, b.scalar(0.75, dtypes.float32))
    return b.reshape(b.transpose(moved, (0, 2, 1, 3)), fact.shape)
