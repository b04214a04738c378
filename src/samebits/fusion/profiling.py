"""What a run of a fusion consists of: `PythonProfiler`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from samebits.frozen import dataclass
from samebits.fusion import execution

__all__ = ["KernelProfile", "Profile", "PythonProfiler"]


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel that ran.

    Attributes:
        name: Its description.
        scheduler: Always `expr_eval`: nothing was scheduled by hand.
    """

    name: str
    scheduler: str = "expr_eval"


@dataclass(frozen=True, slots=True)
class Profile:
    """What ran last within a profiler.

    Attributes:
        fusion_id: Which fusion of the process.
        kernel_profiles: Its kernels, in their order.
    """

    fusion_id: int
    kernel_profiles: tuple[KernelProfile, ...]

    @property
    def segments(self) -> int:
        """How many parts the fusion was cut into: its kernels."""
        return len(self.kernel_profiles)


class PythonProfiler:
    """Within `with PythonProfiler() as prof:`, `prof.profile` says what the last fusion ran.

    Attributes:
        profile: What ran last; None before anything did.
    """

    def __init__(self, auto_scheduled: bool = True) -> None:
        self.auto_scheduled = auto_scheduled
        self.profile: Profile | None = None

    def __enter__(self) -> Self:
        execution.watchers.append(self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        execution.watchers.remove(self._watch)

    def _watch(self, number: int, kernels: list[str]) -> None:
        self.profile = Profile(number, tuple(map(KernelProfile, kernels)))
