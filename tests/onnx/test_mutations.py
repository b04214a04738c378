"""Damaged models: the right answer or one sentence of ours; no other exception, no crash, no wait.

A mutation is of the bytes (flips, cuts, pieces moved) or of the message: any field of any part of a model takes a value
that is odd for it, a part is left out, there twice, elsewhere, or another's. Start at `outcome`.
"""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx as onnx_package
import protos
import pytest
from onnx import helper
from onnx_cases import CASES, OPSETS, attention
from sentences import check_sentence

from samebits import onnx, samples
from samebits.errors import SamebitsError
from samebits.operations import dim
from samebits.program import dead
from samebits.runtime import cpu, reference

# A mutation that takes more of the processor hangs, and one that does not end within minutes.
SECONDS, MOST_SECONDS = 20, 600
# Elements of all values together that a test computes.
LARGEST = 1 << 22


def bases() -> list[bytes]:
    """Models to damage: one of each row's cases, of symbolic and of fixed shapes, and one of many nodes."""
    made = [attention()]
    for i, (name, (op, arrays, attributes, fixed, outputs)) in enumerate(CASES.items()):
        operands = [np.asarray(array) for array in arrays]
        proto, _ = protos.one(op, operands, attributes, fixed, outputs, OPSETS.get(name, 19), i % 2 == 0)
        made.append(proto.SerializeToString())
    x, y = protos.value("x", np.float32, ["n", 4]), protos.value("y", np.float32, ["n", 4])
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["m"]),
        helper.make_node("Where", ["mask", "m", "d"], ["y"]),
    ]
    constants = {"w": np.eye(4, dtype=np.float32), "mask": np.array([True, False, True, True])}
    made.append(protos.model(nodes, [x], [y], constants).SerializeToString())
    return made


# -- mutations ----------------------------------------------------------------------------------------------------

ODD_INTEGERS = [0, 1, 2, 3, -1, -2, 7, 9, 16, 64, 65, 100, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63)]
ODD_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("nan")]
ODD_TEXTS = ["", "x", "y", "%1", "a\nb", "\0", "n*m", "3", "ai.onnx", "é" * 40, " "]


def parts(message: Any) -> Iterator[Any]:
    """Every message in a message, itself first."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from parts(each)


def texts(model: Any) -> list[str]:
    """Every string that is in a model."""
    found = []
    for part in parts(model):
        for field, value in part.ListFields():
            if field.type == field.TYPE_STRING:
                found += list(value) if field.is_repeated else [value]
    return found


def odd(field: Any, words: list[str], noise: random.Random) -> Any:
    """A value of a field's type that it hardly ever has."""
    if field.type == field.TYPE_STRING:
        return noise.choice(words)
    if field.type == field.TYPE_BYTES:
        return noise.randbytes(noise.choice([0, 1, 4, 8, 16]))
    if field.type == field.TYPE_ENUM:
        return noise.choice([value.number for value in field.enum_type.values])
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return noise.choice(ODD_FLOATS)
    if field.type == field.TYPE_BOOL:
        return noise.random() < 0.5
    value = noise.choice(ODD_INTEGERS)
    if field.type in (field.TYPE_INT32, field.TYPE_SINT32):
        return max(-(2**31), min(value, 2**31 - 1))
    return abs(value) if field.type == field.TYPE_UINT64 else value


def change_scalars(part: Any, field: Any, words: list[str], noise: random.Random) -> None:
    """One element of a repeated field, or the field itself."""
    if not field.is_repeated:
        setattr(part, field.name, odd(field, words, noise))
        return
    values = list(getattr(part, field.name))
    way, place = noise.randrange(4), noise.randrange(len(values) + 1)
    if way == 0 or not values:
        values.insert(place, odd(field, words, noise))
    elif way == 1:
        del values[place - 1]
    elif way == 2:
        noise.shuffle(values)
    else:
        values[place - 1] = odd(field, words, noise)
    del getattr(part, field.name)[:]
    getattr(part, field.name).extend(values)


def change_messages(part: Any, field: Any, every: list[Any], noise: random.Random) -> None:
    """A part left out, there twice, in another order, or replaced by one of its kind from elsewhere."""
    others = [each for each in every if each.DESCRIPTOR is field.message_type] or [None]
    other = type(others[0]).FromString(noise.choice(others).SerializeToString()) if others[0] is not None else None
    if not field.is_repeated:
        if other is None or noise.random() < 0.5:
            part.ClearField(field.name)
        else:
            getattr(part, field.name).CopyFrom(other)
        return
    values = [type(each).FromString(each.SerializeToString()) for each in getattr(part, field.name)]
    way, place = noise.randrange(4), noise.randrange(len(values) + 1)
    if other is not None and (way == 0 or not values):
        values.insert(place, other)
    elif way == 1 and values:
        del values[place - 1]
    elif way == 2:
        noise.shuffle(values)
    elif other is not None:
        values[place - 1] = other
    del getattr(part, field.name)[:]
    getattr(part, field.name).extend(values)


def mutate_message(data: bytes, noise: random.Random) -> bytes:
    """A few fields of a model changed."""
    model = onnx_package.ModelProto.FromString(data)
    for _ in range(noise.choice([1, 1, 1, 2, 4])):
        every = list(parts(model))
        words = texts(model) + ODD_TEXTS
        part = noise.choice(every)
        # Mostly fields that are set; any other as well.
        given = [field for field, _ in part.ListFields()]
        fields = given if given and noise.random() < 0.8 else list(part.DESCRIPTOR.fields)
        field = noise.choice(fields)
        if field.message_type is None:
            change_scalars(part, field, words, noise)
        else:
            change_messages(part, field, every, noise)
    made: bytes = model.SerializeToString()
    return made


def mutate_bytes(data: bytes, noise: random.Random) -> bytes:
    """Bytes flipped, cut, doubled, moved or made of what is no text."""
    made = bytearray(data)
    way = noise.randrange(5)
    start = noise.randrange(len(made))
    stop = min(len(made), start + noise.choice([1, 2, 4, 16]))
    if way == 0:
        return bytes(made[:start])
    if way == 1:
        del made[start:stop]
    elif way == 2:
        made[start:start] = made[start:stop] * noise.choice([1, 2])
    elif way == 3:
        made[start:stop] = b"\xff" * (stop - start)
    else:
        for _ in range(noise.choice([1, 1, 2, 8])):
            made[noise.randrange(len(made))] = noise.randrange(256)
    return bytes(made)


# -- what becomes of it -----------------------------------------------------------------------------------------------


class TooLongError(BaseException):
    """Not an Exception: nothing may catch it."""


def outcome(data: bytes) -> str:
    """`refused`, `right`, or `loaded` where its values are too large to be computed by a test.

    Raises:  AssertionError where bits are not the reference's or an error is not a sentence; whatever else is raised.
    """

    def expired(*_: object) -> None:
        raise TooLongError

    before = [(number, signal.signal(number, expired)) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.alarm(MOST_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        program = onnx.load(data)
        symbols = dict.fromkeys(program.symbols, 3)
        shapes = [dim.bind_shape(fact.shape, symbols) for fact in program.facts.values()]
        # An input of no elements must still be one that NumPy holds.
        counts = [math.prod(max(extent, 1) for extent in shape) for shape in shapes]
        if sum(counts) > LARGEST:
            return "loaded"
        feed = samples.feeds(program, symbols, 0)
        made = cpu.prepare(program, threads=1).run(feed)
        for name, x in reference.run(dead.remove_dead(program), feed).items():
            assert (made[name].shape, made[name].dtype) == (x.shape, x.dtype)
            assert made[name].tobytes() == np.ascontiguousarray(x).tobytes()
    except SamebitsError as error:
        check_sentence(error)
        return "refused"
    except MemoryError as error:
        if ", must be at most " not in str(error):
            raise
        return "refused"
    else:
        return "right"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before:
            signal.signal(number, handler)


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Damaged models."""
    noise, models = random.Random(seed), bases()
    for number in range(count):
        data = noise.choice(models)
        mutate = mutate_bytes if number % 3 == 0 else mutate_message
        yield mutate(data, noise)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the reference's arithmetic
def test_a_damaged_model_is_right_or_one_sentence() -> None:
    found = [outcome(data) for data in mutations(300, seed=100)]
    assert {"refused", "right"} <= set(found)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(10))
def test_5000_damaged_models_are_right_or_one_sentence(seed: int) -> None:
    found = [outcome(data) for data in mutations(500, seed=101 + seed)]
    assert {"refused", "right"} <= set(found)
