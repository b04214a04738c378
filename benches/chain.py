"""Long programs: seconds to load, prepare and run chains of Relu, fused and node by node.

Each in a fresh process with the user's own object cache. Time is linear in the nodes where their cost stays the same.
"""

from __future__ import annotations

import functools
import subprocess
import sys

from _turns import reported

NODES = (10_000, 50_000, 100_000, 200_000)
COLUMNS = ("all", "load", "prepare", "first", "second")
_CHAIN = """
import sys, time, numpy
from onnx import TensorProto, helper
import samebits as sb
from samebits import onnx as front
count, fuse = int(sys.argv[1]), sys.argv[2] == "fused"
nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("v0", f"v{count}")]
graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
del nodes, graph
x = {"v0": numpy.ones((3, 8), numpy.float32)}
times = [time.perf_counter()]
program = front.load(model)
times.append(time.perf_counter())
session = sb.prepare(program, threads=1, fuse=fuse)
times.append(time.perf_counter())
session.run(x)
times.append(time.perf_counter())
session.run({"v0": numpy.ones((4, 8), numpy.float32)})
times.append(time.perf_counter())
print(*[after - before for before, after in zip(times, times[1:])])
"""


def asked(count: int, form: str) -> list[float]:
    """Seconds until the first answer and of its parts, and of another size, in a fresh process."""
    command = [sys.executable, "-P", "-c", _CHAIN, str(count), form]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    load, prepare, first, second = map(float, done.stdout.split())
    return [load + prepare + first, load, prepare, first, second]


def main() -> None:
    print(f"{'nodes':>7} {'':8} {'load s':>7} {'prepare':>8} {'first run':>9} {'new size':>9} {'us a node':>9}")
    for form in ("fused", "apart"):
        for count in NODES:
            ways = {"ours": functools.partial(asked, count, form)}
            every, load, prepare, first, second = reported(ways, COLUMNS, 1)["ours"].values()
            each = every / count * 1e6
            print(f"{count:7} {form:8} {load:7.2f} {prepare:8.2f} {first:9.2f} {second:9.2f} {each:9.1f}")


if __name__ == "__main__":
    main()
