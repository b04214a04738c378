"""What `samebits doctor` reports: this machine, what it computes with, and every cell of the exchange matrix.

Start at `examine`. Frameworks are found without being imported; each is tried in a process of its own.
"""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import platform
import sys
from collections.abc import Callable, Sequence

import samebits
from samebits import cache, driver, executable, optional
from samebits.codegen import isa as isas
from samebits.doctor import frameworks
from samebits.doctor.framework import Framework
from samebits.doctor.trial import Cell, Children, attempt
from samebits.frozen import dataclass
from samebits.native import elf

__all__ = ["Diagnosis", "Platform", "Tried", "examine", "is_broken"]

_UNDERNEATH = ("numpy", "ml_dtypes", "llvmlite", "cuda-bindings")


@dataclass(frozen=True, slots=True)
class Platform:
    """What exchange and kernels run on.

    Attributes:
        samebits: Version.
        python: Version.
        platform: System and architecture.
        cores: Cores that this process may use.
        isas: `(row, whether it runs here)`, the most portable first.
        default_isa: The row that kernels use unless told otherwise.
        cache: Directory of compiled objects, None where there is no safe one.
        cache_entries: Objects in it.
        cache_bytes: Bytes that they take.
        cache_limit_bytes: Bytes that they may take.
        linker: Who makes objects of the cache runnable: `samebits`, or `LLVM` or `none`, and why.
        cuda_driver: `12.8`, None where there is no NVIDIA driver.
        versions: `(package, version)` of what samebits stands on, where installed.
    """

    samebits: str
    python: str
    platform: str
    cores: int
    isas: tuple[tuple[str, bool], ...]
    default_isa: str
    cache: str | None
    cache_entries: int
    cache_bytes: int
    cache_limit_bytes: int
    linker: str
    cuda_driver: str | None
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """One framework.

    Attributes:
        name: As in `frameworks.ROWS`.
        version: Its distribution's, None where it is not installed.
        failure: Why not every cell was tried, or none could be filled; empty where all is well, and where it is not
            installed and nobody asked for it.
        cells: What happened.
    """

    name: str
    version: str | None
    failure: str = ""
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found."""

    machine: Platform
    tried: tuple[Tried, ...]

    @property
    def broken(self) -> tuple[Cell, ...]:
        """Cells that samebits promises and that are not kept."""
        return tuple(cell for one in self.tried for cell in one.cells if is_broken(cell))

    @property
    def exit_code(self) -> int:
        """1 where something of ours is broken, 2 where a framework could not be tried to the end, otherwise 0."""
        return 1 if self.broken else 2 if any(one.failure for one in self.tried) else 0

    @property
    def verdict(self) -> str:
        """One sentence."""
        said = f"{len(self.broken)} cells are broken" if self.broken else "nothing of samebits is broken"
        untried = [one.name for one in self.tried if one.failure]
        return said + (f"; not tried to the end: {', '.join(untried)}" if untried else "")


def is_broken(cell: Cell) -> bool:
    """Whether a cell is our fault: a format that the framework holds and that is not kept.

    What the framework's row in `frameworks.ROWS` lists under `limits` is the framework's; a format that crosses with
    other bits is always ours.
    """
    if cell.outcome in ("wrong", "crashed"):
        return True
    known = frameworks.named(cell.framework).limits
    return cell.outcome in ("refused", "relabelled") and f"{cell.direction} {cell.dtype}" not in known


def examine(
    names: Sequence[str] | None = None,
    *,
    progress: Callable[[str], None] = lambda name: None,
    attempt: Callable[[Framework, Children], tuple[list[Cell], str]] = attempt,
) -> Diagnosis:
    """Try every framework that is installed, or those named.

    Args:
        names: Of `frameworks.ROWS`; None for all. One that is named and not installed is a failure.
        progress: Told the name of each framework when it has been tried.
        attempt: How a framework is tried.
    """
    rows = [row for row in frameworks.ROWS if names is None or row.name in names]
    children = Children()

    def tried(row: Framework) -> Tried:
        version = installed_version(row)
        if version is None:
            return Tried(row.name, None, "" if names is None else f"not installed; pip install {row.distribution}")
        cells, failure = attempt(row, children)
        progress(row.name)
        return Tried(row.name, version, failure, tuple(cells))

    with concurrent.futures.ThreadPoolExecutor(driver.usable_cores()) as pool:
        try:
            return Diagnosis(machine(), tuple(pool.map(tried, rows)))
        except BaseException:
            children.end()  # or the threads, which are waited for here, would wait for them
            raise


def installed_version(row: Framework) -> str | None:
    """The version of a framework that can be imported, without importing it; None where there is none."""
    if not optional.is_installed(row.module):
        return None
    version = _version_of(row.distribution)
    if version is None and "." not in row.module:
        # Who provides the first part of a longer name may provide no more than that. All packages are looked at.
        provided_by = importlib.metadata.packages_distributions().get(row.module, [])
        version = next(filter(None, map(_version_of, provided_by)), None)
    return version or "unknown"


def _version_of(distribution: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> Platform:
    """The facts of this machine; an absence is one."""
    folder = cache.directory()
    versions = [(name, version) for name in _UNDERNEATH if (version := _version_of(name)) is not None]
    return Platform(
        samebits=samebits.__version__,
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        cores=driver.usable_cores(),
        isas=tuple((row.name, row.available) for row in isas.isas()),
        default_isa=isas.current().name,
        cache=None if folder is None else str(folder),
        cache_entries=cache.entries(),
        cache_bytes=cache.size_bytes(),
        cache_limit_bytes=cache.LIMIT_BYTES,
        linker=_linker(),
        cuda_driver=driver.cuda_driver_version(),
        versions=tuple(versions),
    )


def _linker() -> str:
    other = elf.other_machine()
    if sys.platform == "linux" and (reason := executable.refusal()):
        return f"none: memory for code is refused ({reason})"
    return f"LLVM: {other}" if other else "samebits"
