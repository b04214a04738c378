"""Whether elements share bits, decided exactly: a bounded linear Diophantine problem with a limit on the work.

Start at `is_injective` and `intersects`. Both ask whether a sum of `coefficient * x`, each x between 0 and a bound, can
lie in a window (`reaches`). Finding out is NP-complete in the number of axes (Karp's knapsack; NumPy's mem_overlap.c
meets it in `shares_memory`), so the search counts its steps and gives up, with None, past a limit; coefficients that
step through each other are joined first, which leaves one or two for the layouts that occur.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from samebits.layout.strides import Shape, span

__all__ = ["WORK", "intersects", "is_injective", "reaches"]

# Steps of about a microsecond: what looks hopeless ends within a fraction of a second.
WORK = 100_000


class _ExhaustedError(Exception):
    """The work limit is reached."""


@lru_cache(maxsize=1024)
def is_injective(shape: Shape, strides: Shape, width: int, work: int = WORK) -> bool | None:
    """Whether no two elements, each of `width` places, share one; None past `work` steps."""
    if 0 in shape:
        return True
    # Rising strides; the sign of a stride only mirrors an axis.
    axes = sorted((abs(stride), extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    reach = width
    for stride, extent in axes:
        if stride < reach:
            break
        reach += stride * (extent - 1)
    else:
        return True
    total = width + sum(stride * (extent - 1) for stride, extent in axes)
    if axes[0][0] == 0 or math.prod(extent for _, extent in axes) * width > total:
        return False
    # Two elements that meet differ by some d along each axis; along the widest axis where they do, say d >= 1.
    budget = _Budget(work)
    undecided = False
    back = 0
    terms: list[tuple[int, int]] = []
    for stride, extent in axes:
        low, high = back - stride - (width - 1), back - stride + (width - 1)
        met = _reaches([*terms, (stride, extent - 2)], low, high, budget)
        if met:
            return False
        undecided |= met is None
        back += stride * (extent - 1)
        terms.append((stride, 2 * (extent - 1)))
    return None if undecided else True


def intersects(
    first: tuple[Shape, Shape, int, int], second: tuple[Shape, Shape, int, int], work: int = WORK
) -> bool | None:
    """Whether an element of one shares a place with one of the other; None past `work` steps.

    Args:
        first: Shape, strides, offset and the places an element takes.
        second: The other's.
        work: Steps of search.
    """
    (shape, strides, offset, width), (other, steps, start, size) = first, second
    if 0 in shape or 0 in other:
        return False
    if offset - size < start < offset + width:
        return True  # the first elements meet
    low, high = span(shape, strides, offset, width)
    bottom, top = span(other, steps, start, size)
    if high <= bottom or top <= low:
        return False
    terms = [(stride, extent - 1) for extent, stride in zip(shape, strides, strict=True)]
    terms += [(-stride, extent - 1) for extent, stride in zip(other, steps, strict=True)]
    return reaches(terms, start - offset - (width - 1), start - offset + (size - 1), work)


def reaches(terms: Iterable[tuple[int, int]], low: int, high: int, work: int = WORK) -> bool | None:
    """Whether sum(coefficient * x) lies in [low, high] for some 0 <= x <= bound; None past `work` steps.

    Args:
        terms: (coefficient, bound), coefficients of either sign.
        low: First value wanted.
        high: Last value wanted, at least `low`.
        work: Steps of search.
    """
    return _reaches(terms, low, high, _Budget(work))


class _Budget:
    """Steps left."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int = 1) -> None:
        """Count steps, and stop at the limit."""
        self.left -= steps
        if self.left < 0:
            raise _ExhaustedError


def _reaches(terms: Iterable[tuple[int, int]], low: int, high: int, budget: _Budget) -> bool | None:
    """`reaches`, out of a budget that several questions share."""
    bounds: dict[int, int] = {}
    for coefficient, bound in terms:
        if coefficient < 0:
            # c * x = |c| * (bound - x) - |c| * bound.
            low, high = low - coefficient * bound, high - coefficient * bound
        if coefficient and bound:
            bounds[abs(coefficient)] = bounds.get(abs(coefficient), 0) + bound
    rows: list[tuple[int, int]] = []
    for coefficient, bound in sorted(bounds.items()):
        if not rows and coefficient <= high - low + 1:
            # Windows a coefficient apart leave no gap: together they are one wide window.
            low -= coefficient * bound
            continue
        for place, (small, room) in enumerate(rows):
            times, rest = divmod(coefficient, small)
            if not rest and times <= room + 1:
                # 0..room and steps of `times` on top of it leave no gap either.
                rows[place] = small, room + times * bound
                break
        else:
            rows.append((coefficient, bound))
    try:
        return _OverlapSearch(rows[::-1], budget).find(0, low, high)
    except _ExhaustedError:
        return None


class _OverlapSearch:
    """Depth-first over falling coefficients, cut where the rest cannot reach the window or misses it by its gcd."""

    def __init__(self, rows: Sequence[tuple[int, int]], budget: _Budget) -> None:
        self._rows = rows
        self._budget = budget
        self._failed: set[tuple[int, int]] = set()
        self._reach, self._gcd = [0], [0]
        for coefficient, bound in reversed(rows):
            self._reach.append(self._reach[-1] + coefficient * bound)
            self._gcd.append(math.gcd(self._gcd[-1], coefficient))
        self._reach.reverse()
        self._gcd.reverse()

    def find(self, level: int, low: int, high: int) -> bool:
        """Whether the rows from `level` on reach [low, high]."""
        self._budget.spend()
        reach, gcd = self._reach[level], self._gcd[level]
        if low <= 0 <= high or low <= reach <= high:
            return True
        if high < 0 or low > reach or -(-low // gcd) > high // gcd:
            return False
        left = len(self._rows) - level
        if left == 1:
            return True  # the multiple of its coefficient in the window is between 0 and its reach
        if left == 2:
            return self._find_two(low, high)
        # The window's width is the same throughout, so its low end names it.
        if (level, low) in self._failed:
            return False
        coefficient, bound = self._rows[level]
        first = max(-((self._reach[level + 1] - low) // coefficient), 0)
        for x in range(first, min(bound, high // coefficient) + 1):
            if self.find(level + 1, low - coefficient * x, high - coefficient * x):
                return True
        self._failed.add((level, low))
        return False

    def _find_two(self, low: int, high: int) -> bool:
        """a * x + b * y in the window, for the last two rows, by the extended Euclidean algorithm."""
        (a, x_bound), (b, y_bound) = self._rows[-2:]
        gcd = self._gcd[-3]
        a, b = a // gcd, b // gcd
        inverse = pow(a, -1, b)
        for target in range(-(-low // gcd), high // gcd + 1):
            self._budget.spend()
            first = max(-((b * y_bound - target) // a), 0)
            # The least x from there on with a * x = target modulo b.
            x = first + (target * inverse - first) % b
            if x <= min(x_bound, target // a):
                return True
        return False
