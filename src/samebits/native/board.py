"""Where a process and its compiler processes meet: a file of slots that has no name, and two pipes of slot numbers.

Who has work writes it into a free slot and the slot's number, one byte, into the pipe `asked`. Whoever reads that byte
does the work, so that nothing is done twice and nobody shares it out; the asking process reads there too. A compiler
puts the object into the same slot and the number into the pipe `answered`. Neither end ever waits for the other: the
pipes hold more bytes than there are slots. Once the asking process is gone, a read of `asked` says so.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence

SLOTS = 256
# Bytes of a slot: a head of two numbers, the sizes of what was asked and of the answer; then each in one half. They are
# only places in a file with holes. What does not fit is compiled by whoever asks.
_SLOT, _HEAD, _ANSWER = 8 << 20, 16, 4 << 20
# Descriptors 0, 1 and 2 are a child's standard streams, even where this process has closed its own.
_FIRST = 3


def _apart(descriptor: int) -> int:
    """The same file under a number that no standard stream has; not inherited."""
    import fcntl

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        os.close(descriptor)


def nameless() -> int:
    """A descriptor, which is no standard stream's, of an empty file that only its descriptors lead to."""
    if hasattr(os, "memfd_create"):
        return _apart(os.memfd_create("samebits"))
    import tempfile  # which takes as long to import as all else that a compiler needs, but LLVM

    with tempfile.TemporaryFile() as file:
        return _apart(os.dup(file.fileno()))


def _is_readable(descriptor: int, seconds: float) -> bool:
    asked = select.poll()  # `select.select` takes no descriptor past 1023
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(1000 * seconds))


class Board:
    """Slots and pipes, by their descriptors."""

    def __init__(self, file: int, asked: int, answered: int, ends: tuple[int, ...] = ()) -> None:
        """A compiler's view: `asked` is read and `answered` written. `ends` are the other ends, which `opened` adds."""
        self.file, self.asked, self.answered, self.ends = file, asked, answered, ends

    @classmethod
    def opened(cls) -> Board:
        """A new board of this process.

        Raises:  OSError if the system has no room or no such calls.
        """
        held: list[int] = []
        try:
            held.append(nameless())
            for _ in range(2):
                held += os.pipe()
            for i, end in enumerate(held[1:], 1):
                held[i] = -1
                held[i] = _apart(end)
                os.set_blocking(held[i], False)
        except BaseException:
            for descriptor in held:
                if descriptor >= 0:
                    os.close(descriptor)
            raise
        file, asked, ask, answers, answered = held
        return cls(file, asked, answered, (ask, answers))

    @property
    def inherited(self) -> tuple[int, int, int]:
        """What a compiler needs: the file, where it is asked, and where it answers."""
        return self.file, self.asked, self.answered

    def close(self) -> None:
        """Let go of it in this process."""
        for descriptor in (*self.inherited, *self.ends):
            os.close(descriptor)

    # -- who asks ----------------------------------------------------------------------------------------------------
    def ask(self, slot: int, parts: Sequence[str]) -> bool:
        """Write work into a slot and offer it; False where it does not fit or there is no room."""
        data = "\0".join(parts).encode()
        if len(data) > _ANSWER - _HEAD:
            return False
        try:
            self._write(slot * _SLOT, len(data).to_bytes(8, "little") + bytes(8) + data)
            return os.write(self.ends[0], bytes([slot])) == 1
        except OSError:
            return False

    def offer_again(self, slot: int) -> None:
        """Put a slot back that was taken and not worked on."""
        os.write(self.ends[0], bytes([slot]))

    def answers(self) -> bytes:
        """The numbers of slots that have been answered since this was asked last."""
        try:
            return os.read(self.ends[1], SLOTS)
        except BlockingIOError:
            return b""

    def wait_for_answers(self, seconds: float) -> bool:
        """Whether something was answered, within so long at the latest."""
        return _is_readable(self.ends[1], seconds)

    def code(self, slot: int) -> bytes:
        """The object in a slot that was answered; empty where there is none."""
        size = int.from_bytes(os.pread(self.file, 8, slot * _SLOT + 8), "little")
        return os.pread(self.file, size, slot * _SLOT + _ANSWER) if size else b""

    def clear(self) -> None:
        """Give the memory of the slots back; nobody may be working."""
        os.ftruncate(self.file, 0)

    # -- whoever works -----------------------------------------------------------------------------------------------
    def take(self) -> int | None:
        """The number of a slot that nobody has begun, which is the caller's now; None where there is none.

        Raises:  EOFError if the asking process is gone.
        """
        try:
            found = os.read(self.asked, 1)
        except BlockingIOError:
            return None
        if not found:
            raise EOFError
        return found[0]

    def wait_for_work(self, seconds: float) -> bool:
        """Whether something was asked, or nobody asks any more, within so long at the latest."""
        return _is_readable(self.asked, seconds)

    def work(self, slot: int) -> list[str]:
        """What was written into a slot."""
        size = int.from_bytes(os.pread(self.file, 8, slot * _SLOT), "little")
        return os.pread(self.file, size, slot * _SLOT + _HEAD).decode().split("\0")

    def answer(self, slot: int, code: bytes) -> None:
        """Put an object into a slot, nothing for none or where there is no room for it, and say so."""
        if len(code) > _SLOT - _ANSWER:
            code = b""
        # A file may be full, or not be allowed to grow so far; the head was written by who asked and still holds 0.
        with contextlib.suppress(OSError):
            self._write(slot * _SLOT + _ANSWER, code)
            self._write(slot * _SLOT + 8, len(code).to_bytes(8, "little"))
        os.write(self.answered, bytes([slot]))

    def _write(self, at: int, data: bytes) -> None:
        while data:
            written = os.pwrite(self.file, data, at)
            at, data = at + written, data[written:]
