"""What the thread pool costs: a fork-join of two threads inside a table, from Python, and with the workers asleep.

A step has two tasks of a few microseconds, one for each thread. Its cost is its time beyond that of one task alone on
one thread. The best of many rounds: a latency is a property of the code, what comes on top is the machine's other
business. `python benches/fork_join.py`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _turns import bests

from samebits import driver
from samebits.codegen import isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import float64
from samebits.kernels.plan import Operand, Plan, Step
from samebits.native import pool
from samebits.native.table import Table

STEPS, ROUNDS = 400, 40
TURNS = 2000  # dependent additions, about four cycles each


def chain(b: Builder, description: int) -> None:
    """A task is `description` dependent additions."""
    x = b.pointer("x", float64)
    for t in b.tasks():
        carry = [b.load(x, t * 8, 1)]
        for _ in b.loop(0, description, carry=carry):
            carry[0] = b.add(carry[0], b.constant(1.0, float64, 1))
        b.store(x, t * 8, carry[0])


def table(tasks: int, steps: int, threads: int, turns: int = TURNS) -> Callable[[], None]:
    """A call of `steps` equal steps."""
    row = isa.best()
    spec = KernelSpec(chain, turns, ("x",), row)
    plan = Plan("chain", row, threads, (Step(spec, tasks, (Operand(0),)),) * steps, ("x",))
    x = np.zeros(8 * tasks + 8)
    addresses = (x.ctypes.data,)
    found = Table([(plan, (0,))], 1, threads)

    def call(kept: np.ndarray[Any, Any] = x) -> None:  # the array lives as long as the call
        found.run(addresses)

    return call


def measured(threads: int, turns: int = TURNS, steps: int = 1, number: int = 1, pause: float = 0.0) -> list[float]:
    """Microseconds of a call with one task a step on one thread, and with one for each thread."""
    calls = {f"{steps} of {turns} on {each}": table(each, steps, each, turns) for each in (1, threads)}
    return [1e6 * took for took in bests(calls, ROUNDS, number, pause).values()]


def main() -> None:
    """Measure and print."""
    cores = driver.usable_cores()
    print(f"{cores} cores, row {isa.best().name}, a worker spins {pool._spins()} turns\n")
    one, two = (took / STEPS for took in measured(2, steps=STEPS))
    print(f"one task alone                     {one:8.3f} us")
    print(f"two tasks on two threads           {two:8.3f} us a step: fork-join {two - one:.3f} us")
    empty, _ = measured(2, turns=1, number=1000)
    call_one, call_two = measured(2, number=200)
    print(f"an empty table from Python         {empty:8.3f} us a call")
    print(f"two tasks on two threads, hot      {call_two:8.3f} us a call: fork-join {call_two - call_one:.3f} us")
    cold_one, cold_two = measured(2, turns=50 * TURNS, pause=0.005)
    print(f"the same after 5 ms of idleness    {cold_two:8.3f} us a call: waking {cold_two - cold_one:.3f} us")
    print(f"figure: fork-join of 2 threads, hot | {two - one:.2f} us | bound 2 us | {2 / max(two - one, 0.01):.1f}")


if __name__ == "__main__":
    main()
