"""`samebits.verification.process` with a fault: on one Isa row, and only in that process, every output is one off."""

import os

from samebits.runtime import cpu
from samebits.verification import process

_run = cpu.Session.run


def _spoiled(self, given, outputs=None):
    made = _run(self, given, outputs)
    return {name: x + 1 for name, x in made.items()} if self.isa.name == os.environ["SPOILED_ROW"] else made


if __name__ == "__main__":
    cpu.Session.run = _spoiled
    process.main()
