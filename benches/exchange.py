"""What taking a tensor in and handing it out cost, beside NumPy and torch, and cuda.core and NumKong where installed.

Nanoseconds, the best of many interleaved rounds on one thread: each is too short for anything else of the machine to
average out. The tensor is (3, 4, 5) of float32. "Python" is the method before emitted code is set in its place; a peer
is what takes the same tensor in, or hands one to the same consumer. `python benches/exchange.py`
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from _turns import bests

import samebits
from samebits.native import exchange
from samebits.tensor import Tensor

NUMBER, ROUNDS = 1000, 60
Calls = dict[str, Callable[[], object]]


def found(name: str) -> Any | None:
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def cases() -> dict[str, Calls]:
    """Operation -> who does it -> the call; ours first."""
    numpy_from, python = np.from_dlpack, exchange.REFERENCE
    slow_from, slow_any = (python[f"Tensor.{name}"].__get__(None, Tensor) for name in ("from_dlpack", "from_any"))
    x = np.zeros((3, 4, 5), np.float32)
    t = Tensor.from_any(np.zeros((3, 4, 5), np.float32))
    late = {"max_version": (1, 0)}
    rows: dict[str, Calls] = {
        "from_dlpack(NumPy array)": {"ours": lambda: Tensor.from_dlpack(x), "Python": lambda: slow_from(x)},
        "from_any(NumPy array)": {"ours": lambda: Tensor.from_any(x), "Python": lambda: slow_any(x)},
        "__dlpack__": {
            "ours": lambda: t.__dlpack__(**late),
            "Python": lambda: python["Tensor.__dlpack__"](t, **late),
            "NumPy": lambda: x.__dlpack__(**late),
        },
        "numpy.from_dlpack(tensor)": {"ours": lambda: numpy_from(t), "NumPy": lambda: numpy_from(x)},
    }
    taking: list[tuple[str, Callable[[Any], object]]] = [("NumPy", numpy_from)]
    kong, views, torch = found("numkong"), found("cuda.core.utils"), found("torch")
    if views is not None:
        view = views.StridedMemoryView.from_dlpack
        taking.append(("cuda.core", lambda a: view(a, stream_ptr=-1)))
    if kong is not None:
        taking.append(("NumKong", kong.from_dlpack))
    sources: dict[str, Any] = {"from_dlpack(NumPy array)": x}
    if torch is not None:
        y = torch.zeros(3, 4, 5)
        rows["from_dlpack(torch tensor)"] = {"ours": lambda: Tensor.from_dlpack(y), "Python": lambda: slow_from(y)}
        sources["from_dlpack(torch tensor)"] = y
        torch_from = torch.from_dlpack
        rows["torch.from_dlpack(tensor)"] = {"ours": lambda: torch_from(t), "NumPy": lambda: torch_from(x)}
        rows["__dlpack__"]["torch"] = lambda: y.__dlpack__(**late)
    for name, source in sources.items():
        for who, take in taking:
            with contextlib.suppress(Exception):  # a peer that cannot take this is left out
                take(source)
                rows[name][who] = lambda take=take, source=source: take(source)  # type: ignore[misc]
    return rows


def main() -> None:
    """Print the table and the README's figures."""
    emitted = samebits.compile_exchange()
    rows = cases()
    timed = {(name, who): call for name, calls in rows.items() for who, call in calls.items()}
    best = {key: 1e9 * took for key, took in bests(timed, ROUNDS, NUMBER).items()}
    peers = ("Python", "NumPy", "torch", "cuda.core", "NumKong")
    print(f"emitted code {'is' if emitted else 'cannot be'} set\n")
    print(f"| operation | ours, ns | {' | '.join(peers)} |\n|---{'|---' * (1 + len(peers))}|")
    for name, calls in rows.items():
        mine = best[name, "ours"]
        cells = [f"{best[name, who]:.0f}" if who in calls else "-" for who in peers]
        print(f"| {name} | {mine:.0f} | {' | '.join(cells)} |")
        others = {who: best[name, who] for who in peers[1:] if who in calls}
        # The fastest, but for a consumer that takes its own library's tensors: that is no exchange.
        rivals = {who: time for who, time in others.items() if who in ("cuda.core", "NumKong")} or others
        if rivals and "from_dlpack" in name:
            peer = min(rivals, key=rivals.__getitem__)
            print(f"figure: {name} | {mine:.0f} ns | {peer} {rivals[peer]:.0f} ns | {rivals[peer] / mine:.2f}")


if __name__ == "__main__":
    main()
