"""Ranking the kernels of one product, with the one that `matmul` picks marked, beside other libraries.

Candidates are screened in a few turns beside the picked one; the fastest, the picked one and the peers are then
measured longer. A lag is believed only if it is there in every one of several measurements. Start at `rank`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from samebits.bench import candidates, measure, peak
from samebits.bench.measure import Call
from samebits.bench.peers import Peer
from samebits.bench.trial import Candidate, Problem, Workbench, label
from samebits.codegen.isa import Isa
from samebits.frozen import dataclass

# How much slower than the best candidate the picked one may be.
TOLERANCE = 0.05
PICKED = "picked"
_FINALISTS, _SIZED = 8, 3
_SCREENED, _MEASURED, _AGAIN = 3, 9, 2


class Timer(Protocol):
    """`(calls, rounds, beside peers) -> seconds of each`."""

    def __call__(self, calls: Mapping[str, Call], rounds: int, *, pause: bool = False) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One candidate or peer.

    Attributes:
        name: The candidate's label, or the peer's name and version.
        seconds: Of one product; None where it was not measured, and then `note` says why.
        rate: 10^9 operations a second.
        picked: Whether `matmul` runs it.
        screened: Whether it was only measured a few times.
    """

    name: str
    seconds: float | None
    rate: float | None
    picked: bool = False
    screened: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What was found for one problem.

    Attributes:
        problem, unit: What was multiplied, and what rates count.
        isa, threads: With which row and how many threads.
        candidates: The fastest first.
        peers: The fastest first.
        lag: How much longer than the best candidate the picked one takes: 0.1 is a tenth.
        ratio: The picked one's rate over the best peer's, None without one.
        peak: The rate that the row's registers alone would allow, None where that is not known.
    """

    problem: str
    unit: str
    isa: str
    threads: int
    candidates: tuple[Entry, ...]
    peers: tuple[Entry, ...]
    lag: float
    ratio: float | None
    peak: float | None

    @property
    def picked(self) -> Entry:
        """What `matmul` runs."""
        return next(entry for entry in self.candidates if entry.picked)

    @property
    def best(self) -> Entry:
        """The fastest candidate."""
        return self.candidates[0]

    @property
    def lags(self) -> bool:
        """Whether the picked candidate is slower than it may be."""
        return self.lag > TOLERANCE

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.lags:
            return f"{self.problem}: picked {self.picked.name} lags by {self.lag:.1%} behind {self.best.name}"
        return f"{self.problem}: picked is within {TOLERANCE:.0%} of the best"


def timer(threads: int) -> Timer:
    """Medians of this machine."""

    def seconds(calls: Mapping[str, Call], rounds: int, *, pause: bool = False) -> dict[str, float]:
        waited = measure.PAUSE if pause and threads > 1 else 0.0
        return measure.medians(calls, rounds, 3, waited, least=measure.LEAST, clock=measure.clock(threads))

    return seconds


def rank(
    problem: Problem, isa: Isa, threads: int, peers: Sequence[Peer] = (), *, every: bool = False,
    progress: Callable[[str], None] = lambda done: None, time: Timer | None = None,
) -> Ranking:  # fmt: skip
    """Measure every candidate of `candidates.first` and `second`, and the peers.

    Args:    every: all forms, tiles and sizes, not only the sizes of the fastest forms and tiles.
             progress: told what is measured.   time: for tests, which never time.
    """
    bench, seconds = Workbench(threads), time or timer(threads)
    picked = label(bench.plan(problem, isa))
    screen = _Screen(bench, problem, isa, seconds, progress)
    screen.add(candidates.first(problem, isa, every))
    if not every:
        screen.add(candidates.second([screen.found[name] for name in screen.fastest()[:_SIZED]]))
    leading = [name for name in screen.fastest() if name != picked][:_FINALISTS]
    progress(f"{problem}: the fastest {len(leading)} and {len(peers)} peers")
    calls = {name: bench.call(problem, isa, screen.found[name]) for name in leading}
    calls[PICKED] = bench.call(problem, isa)
    beside = [(peer, peer.call(*bench.operands(problem), problem.packed, threads)) for peer in peers]
    took = seconds(calls | {peer.name: x for peer, x in beside if callable(x)}, _MEASURED, pause=bool(peers))
    lags = {name: took[PICKED] / took[name] - 1 for name in leading}
    for _ in range(_AGAIN):
        suspects = [name for name in leading if lags[name] > TOLERANCE]
        if suspects:
            progress(f"{problem}: measuring a lag again")
            again = seconds({name: calls[name] for name in [*suspects, PICKED]}, 2 * _MEASURED)
            lags |= {name: min(lags[name], again[PICKED] / again[name] - 1) for name in suspects}
    base = took[PICKED]
    entries = [_entry(problem, picked, base, picked=True)]
    entries += [_entry(problem, name, base / (1 + lags[name])) for name in leading]
    rest = [name for name in screen.slower if name != picked and name not in leading]
    entries += [_entry(problem, name, screen.slower[name] * base, screened=True) for name in rest]
    others = [_beside(problem, peer, call, took.get(peer.name)) for peer, call in beside]
    fastest = min((one.seconds for one in others if one.seconds is not None), default=None)
    return Ranking(
        str(problem), problem.unit, isa.name, threads, _sorted(entries), _sorted(others),
        lag=max([*lags.values(), 0.0]), ratio=fastest / base if fastest is not None else None,
        peak=peak.rate(bench.engine(problem, isa), isa, threads, seconds),
    )  # fmt: skip


def _entry(problem: Problem, name: str, took: float, *, picked: bool = False, screened: bool = False) -> Entry:
    return Entry(name, took, 1e-9 * problem.work / took, picked, screened)


def _beside(problem: Problem, peer: Peer, call: Call | str, took: float | None) -> Entry:
    if isinstance(call, str) or took is None:
        return Entry(peer.shown, None, None, note=str(call))
    return _entry(problem, peer.shown, took)


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The fastest first; what was only screened and what was not measured last."""
    return tuple(sorted(entries, key=lambda entry: (entry.seconds is None, entry.screened, entry.seconds or 0.0)))


class _Screen:
    """Candidates measured a few times, as multiples of the picked one's time in the same turns."""

    def __init__(
        self, bench: Workbench, problem: Problem, isa: Isa, seconds: Timer, progress: Callable[[str], None]
    ) -> None:
        self.bench, self.problem, self.isa = bench, problem, isa
        self.seconds, self.progress = seconds, progress
        self.found: dict[str, Candidate] = {}
        self.known: set[object] = set()
        self.slower: dict[str, float] = {}

    def add(self, several: Iterable[Candidate]) -> None:
        """Measure those that are not known."""
        new = candidates.distinct(self.bench, self.problem, self.isa, several, self.known)
        self.found |= new
        names = list(new)
        for start in range(0, len(names), _FINALISTS):
            group = names[start : start + _FINALISTS]
            self.progress(f"{self.problem}: candidates {start + 1} to {start + len(group)} of {len(names)}")
            calls = {name: self.bench.call(self.problem, self.isa, new[name]) for name in group}
            took = self.seconds(calls | {PICKED: self.bench.call(self.problem, self.isa)}, _SCREENED)
            self.slower |= {name: took[name] / took[PICKED] for name in group}

    def fastest(self) -> list[str]:
        """All that were measured, the fastest first."""
        return sorted(self.slower, key=lambda name: self.slower[name])
