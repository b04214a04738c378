"""Programs on the CPU: `prepare` makes a Session, whose `run` is one native call.

For each set of shapes a Session specialises the program once (symbols bound, sizes folded, memory planned, kernels
resolved, all in one table) and keeps the result, least recently used out first. Lowering is done once for all shapes
that compare alike: it leaves a blueprint, which is bound to each of them. Start at `prepare`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from samebits import hot
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.errors import OptionError, SamebitsError, in_short, message, printable
from samebits.frozen import dataclass
from samebits.kernels.gemm.contraction import SB1, Spec
from samebits.kernels.plan import Plan
from samebits.kinds import ArrayKind, kind_of, narrow_storage, to_kind
from samebits.memory import address_of
from samebits.native.table import check_threads
from samebits.operations import dim
from samebits.operations.fact import Fact
from samebits.operations.operation import Array
from samebits.operations.strided import dense_strides
from samebits.program.constants import Value
from samebits.program.graph import Program
from samebits.program.transform import ALIKE, ROWS, UNFUSED, optimise
from samebits.runtime import inputs as inputs_
from samebits.runtime.ahead import Ahead
from samebits.runtime.blueprint import NOTHING, Blueprint, Lowered, Packed
from samebits.runtime.buffers import aligned, empty
from samebits.runtime.recent import keep
from samebits.runtime.specialised import Specialised, rebound, record
from samebits.tensor import Tensor

if TYPE_CHECKING:
    from samebits.runtime.known import KnownCalls

__all__ = ["Session", "Traced", "load", "plan_text", "prepare"]

# Shapes that a session remembers, and ways of lowering them.
_CACHE = 64
_BLUEPRINTS = 16

_Key = tuple[Any, ...]
_Symbols = Mapping[str, int]
_Strides = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Traced:
    """One value of a run: its fact with symbols, its elements, and what messages call the node that makes it."""

    fact: Fact
    array: Array
    node: str


def prepare(
    program: Program,
    *,
    isa: str | Isa | None = None,
    threads: int | None = None,
    fuse: bool = True,
    alike: bool = False,
) -> Session:
    """A session that runs `program`; constants are folded and packed here or at the first run.

    Args:
        program: What to run.
        isa: The Isa row; default the one in force (`use_isa`).
        threads: At most so many; default every usable core.
        fuse: False keeps every node a kernel of its own. No choice changes a bit.
        alike: Kernels take numbers of the program as arguments, so that programs which differ in them have the same.

    Raises:
        OptionError: It is no program, the row is unknown or not available here, or `threads` is no count.
        ModelError: The program reads a value that nothing makes.
    """
    given: object = program
    if not isinstance(given, Program):
        remedy = "pass samebits.onnx.load(model), or call samebits.load(model)"
        raise OptionError("prepare", "program", "", type(given).__name__, "a Program", remedy)
    row = isas.current() if isa is None else isas.given("prepare", isa)
    count = check_threads("prepare", threads)
    given.check()
    return Session(optimise(program, (ALIKE if alike else ROWS) if fuse else UNFUSED), row, count)


def load(
    source: object, *, bindings: Mapping[str, int] | None = None, isa: str | Isa | None = None,
    threads: int | None = None, spec: Spec = SB1,
) -> Session:  # fmt: skip
    """The session of an ONNX model.

    Args:    source: a path, bytes, a binary file or a ModelProto.
             bindings: sizes of symbols in the shapes of inputs, {"H": 224}, which are fixed in the session; of images
             convolutions need them.   isa: an Isa row or its name; default the one in force.
             threads: at most so many; default every usable core.   spec: the order of the model's sums of products.
    Raises:  ModelError, as `samebits.onnx.load`; OptionError, as it and as `prepare`.
    """
    from samebits import onnx

    row = isas.current() if isa is None else isas.given("load", isa)
    count = check_threads("load", threads)
    return Session(optimise(onnx.load(source, bindings=bindings, spec=spec)), row, count)


class Session:
    """A program that is ready to run; safe to use from many threads at once.

    Attributes:
        program: What runs, transformed.
        isa: The Isa row.
        threads: How many threads share the work, at most.
    """

    def __init__(self, program: Program, isa: Isa, threads: int) -> None:
        self.program, self.isa, self.threads = program, isa, threads
        self._kept: dict[Any, Array] = {}
        self._blueprints: tuple[Blueprint, ...] = ()
        self._cache: OrderedDict[_Key, Specialised] = OrderedDict()
        self._ahead = Ahead()
        self._order = program.input_names
        self._names = frozenset(program.input_names)
        narrow = {name for name, fact in program.facts.items() if fact.dtype.width_bits < 8}
        self._narrow = frozenset(narrow.intersection(program.output_names))
        self._has_narrow = not narrow.isdisjoint((*program.input_names, *program.output_names))
        # Runs that emitted code knows, from the first one like one before; and whether there may be such.
        self._calls: KnownCalls | None = None
        self._learns = isa.compiled and not self._has_narrow

    def __repr__(self) -> str:
        program = self.program
        inputs, outputs = (
            ", ".join([f"{name}: {fact}" for name, fact in facts.items()])
            for facts in (program.inputs, program.outputs)
        )
        return f"Session({in_short(inputs)} -> {in_short(outputs)}; isa {self.isa.name}, threads {self.threads})"

    def __reduce__(self) -> NoReturn:
        """Pickles and copies, refused: compiled code belongs to this process, which threads may share a session in.

        Raises:  TypeError, always.
        """
        remedy = "load the model in each process, or share the session among threads"
        raise TypeError(message("pickle", "session", "", "bound to this process", "what another can hold", remedy))

    @property
    def input_names(self) -> tuple[str, ...]:
        """What `run` must be given; `program.inputs` has the format and the extents of each."""
        return self.program.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """What `run` gives; `program.outputs` has the format and the extents of each."""
        return self.program.output_names

    def run(self, given: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """The outputs for these inputs, as the kind of array that the first input is.

        Elements of fewer than 8 bits are taken as they lie: packed in a Tensor, or a byte each, as NumPy has them.
        Outputs of such elements have a byte each in arrays of NumPy and JAX, and are packed in others.

        Args:
            given: One array for each input of the program, by name.
            outputs: The names of those to return; default all.

        Raises:
            OptionError: No mapping is given, or a name is missing, unknown, or not an output.
            DTypeError: An input has another element format, or an output one that its kind of array has not.
            ShapeError: An input has another rank or extent, two extents of one symbol differ, or an index is out of
                range.
            ExchangeError: An input's library does not share its memory.
            MemoryError: There is no room for the outputs.
        """
        found: Any = b""
        if self._calls is not None and outputs is None and type(given) is dict:
            found = self._calls.answer((), given)
            if type(found) is not bytes:
                names = self.program.output_names
                return dict(zip(names, found, strict=True)) if type(found) is tuple else {names[0]: found}
        values = self._values(given)
        wanted = self.program.output_names if outputs is None else inputs_.check_outputs(self.program, outputs)
        first = next(iter(given.values()), None)
        if type(first) is np.ndarray or first is None:
            specialised = self._specialised(values)
            made: dict[str, Any] = specialised.run(values)
            made = {name: made[name] for name in wanted}
        else:
            kind = kind_of(first)
            is_packed = self._narrow and narrow_storage(kind) == "packed"
            specialised = self._specialised(values, self._narrow if is_packed else frozenset())
            # JAX takes no memory that is less aligned, and a Tensor may become its array.
            made = specialised.run(values, empty if kind in ("numpy", "torch") else aligned)
            made = {name: _converted(name, made[name], kind) for name in wanted}
        if self._learns and outputs is None and type(given) is dict:
            self._learn(found, given, values, specialised, made)
        return made

    def bound(self, given: Mapping[str, Any], packed: bool = False) -> Specialised:
        """What `run` runs for inputs that lie as these do.

        Args:    packed: whether outputs of fewer than 8 bits are packed; else they have a byte an element.
        Raises:  as `run`.
        """
        return self._specialised(self._values(given), self._narrow if packed else frozenset())

    def trace(self, given: Mapping[str, Any]) -> dict[str, Traced]:
        """Every value that a kernel makes for these inputs, in the order they are made.

        Raises:  as `run`.
        """
        values = self._values(given)
        symbols, strides = self._lies(values)
        packed = Packed(_packed(self._order, values))
        _, lowered = self._recorded(symbols, strides, packed, reuse=False, runs=True)
        found = Specialised(lowered, self.threads).trace(values)
        producers = self.program.producers
        return {name: Traced(self.program.facts[name], array, producers[name].label) for name, array in found.items()}

    def planned(self, given: Mapping[str, Any]) -> list[tuple[str, Plan]]:
        """For inputs that lie as these do each kernel that runs: the nodes of the model that it stands for, its plan.

        Raises:  as `run`.
        """
        values = self._values(given)
        symbols, strides = self._lies(values)
        packed = Packed(_packed(self._order, values)) if self._has_narrow else NOTHING
        lowered = self._lowered(symbols, strides, packed)
        return [(origin, plan) for origin, (plan, _) in zip(lowered.origins, lowered.calls, strict=True)]

    def plans(self, bindings: Mapping[str, int]) -> Iterator[str]:
        """What runs when the symbols have these values: the plan of every kernel, as text.

        Raises:
            OptionError: A symbol has no value, or one that is no size; or there is no such symbol.
            ShapeError: The program cannot have these sizes.
        """
        lowered = self._dense("plans", bindings)
        for origin, (plan, _) in zip(lowered.origins, lowered.calls, strict=True):
            yield plan_text(origin, plan)

    def shared_steps(self, bindings: Mapping[str, int]) -> int:
        """How many steps of a run are shared by several threads when the symbols have these values.

        Raises:  as `plans`.
        """
        calls = self._dense("shared_steps", bindings).calls
        return sum(step.tasks > 1 for plan, _ in calls if plan.threads > 1 for step in plan.steps)

    # -- inside -----------------------------------------------------------------------------------------------------
    def _values(self, given: Mapping[str, Any]) -> list[Value]:
        """The inputs, in order."""
        if type(given) is not dict or given.keys() != self._names:
            inputs_.check_names(self.program, given)
        return [self._value(name, given[name]) for name in self._order]

    def _value(self, name: str, x: Any) -> Value:
        """An input: packed, or a NumPy array whose elements are aligned and whose strides are whole elements."""
        array = x if type(x) is np.ndarray else inputs_.as_value(self.program, name, x)
        if isinstance(array, Tensor):
            return array
        try:
            if not array.flags.aligned or any(step % array.itemsize for step in array.strides):
                array = np.array(array, order="C")
        except ZeroDivisionError:  # elements of no bytes: a format that is refused with the others
            pass
        return array

    def _learn(
        self, key: bytes, given: dict[str, Any], values: list[Value], specialised: Specialised, made: dict[str, Any]
    ) -> None:
        """Let emitted code know runs like this one, if one like it came before and its arrays are taken as they lie."""
        if not specialised.ran:
            specialised.ran = True
            return
        if self._calls is None:
            from samebits.runtime.known import KnownCalls  # which a program without such runs does without

            self._calls = KnownCalls()
        if not self._calls.takes(specialised):
            self._learns = False
        elif not key:
            hot.count_call()
        elif all(map(_lies_as, values, inputs := [given[name] for name in self._order])):
            operands = list(zip(map([*given].index, self._order), inputs, strict=True))
            self._calls.learn(key, (), given, operands, specialised, tuple(made.values()))

    def _dense(self, call: str, bindings: Mapping[str, int]) -> Lowered:
        """What would run on dense inputs; nothing is compiled."""
        bindings = inputs_.check_bindings(call, self.program, bindings)
        strides = {
            name: dense_strides(dim.bind_shape(fact.shape, bindings)) for name, fact in self.program.inputs.items()
        }
        return self._lowered(bindings, strides)

    def _specialised(self, values: list[Value], outputs: frozenset[str] = frozenset()) -> Specialised:
        """The program for these inputs; `outputs` are those to be packed."""
        key: _Key = tuple([(x.dtype, x.shape, x.strides) for x in values])
        packed = NOTHING
        if self._has_narrow:
            packed = Packed(_packed(self._order, values), outputs)
            key = packed, key
        found = self._cache.get(key)
        if found is not None:
            try:  # noqa: SIM105 - contextlib.suppress takes longer than the rest of this look-up
                self._cache.move_to_end(key)
            except KeyError:  # another thread let it go meanwhile
                pass
            return found
        found = self._bound(values, packed)
        keep(self._cache, key, found, _CACHE)
        return found

    def _bound(self, values: list[Value], packed: Packed) -> Specialised:
        """The program for these inputs, new."""
        symbols, strides = self._lies(values)
        lowered = self._lowered(symbols, strides, packed, texts=False)
        blueprint = self._blueprints[0]
        made = Specialised(lowered, self.threads)
        if self.isa.compiled:
            self._ahead.met(blueprint, symbols)
        return made

    def _lies(self, values: list[Value]) -> tuple[_Symbols, _Strides]:
        """The sizes of inputs, and how they lie."""
        given = dict(zip(self._order, values, strict=True))
        return inputs_.bind_symbols(self.program, given), {name: _strides(x) for name, x in given.items()}

    def _lowered(self, symbols: _Symbols, strides: _Strides, packed: Packed = NOTHING, texts: bool = True) -> Lowered:
        """The program with these sizes: by a blueprint that serves them, one used last first, or else by a new one.

        Args:    texts: whether its plans are asked for what they say of themselves too, and not run.
        """
        for blueprint in self._blueprints:
            lowered = rebound(blueprint, symbols, strides, texts) if blueprint.packed == packed else None
            if lowered is not None:
                break
        else:
            blueprint, lowered = self._recorded(symbols, strides, packed, runs=not texts)
        if self._blueprints[:1] != (blueprint,):
            # Threads that do this at once keep what the last of them saw, which is only slower.
            others = [each for each in self._blueprints if each is not blueprint]
            self._blueprints = (blueprint, *others[: _BLUEPRINTS - 1])
        return lowered

    def _recorded(
        self, symbols: _Symbols, strides: _Strides, packed: Packed, reuse: bool = True, runs: bool = False
    ) -> tuple[Blueprint, Lowered]:
        """The program lowered for these sizes, and bound to them."""
        blueprint = record(self.program, self.isa, self.threads, symbols, strides, self._kept, reuse, packed, runs)
        lowered = rebound(blueprint, symbols, strides)
        assert lowered is not None  # what was recorded compares as it did
        return blueprint, lowered


def plan_text(origin: str, plan: Plan) -> str:
    """A kernel's plan, under the nodes of the model that it stands for."""
    return "\n  ".join([printable(origin), *str(plan).split("\n")])


def _packed(names: Sequence[str], values: Sequence[Value]) -> frozenset[str]:
    """The names of those that are packed."""
    return frozenset([name for name, x in zip(names, values, strict=True) if type(x) is Tensor])


def _lies_as(x: Value, given: Any) -> bool:
    """Whether x is an input as it is given: an array in its memory, and no copy."""
    if x is given or isinstance(given, np.ndarray):
        return x is given
    return isinstance(x, np.ndarray) and address_of(x) == Tensor.from_any(given).address


def _strides(x: Value) -> tuple[int, ...]:
    """Strides in elements."""
    return x.strides if isinstance(x, Tensor) else tuple([step // x.itemsize for step in x.strides])


def _converted(name: str, value: Value, kind: ArrayKind) -> Any:
    """An output as an array of that kind."""
    try:
        return to_kind(Tensor.from_any(value), kind)
    except SamebitsError as error:
        raise error.renamed("run", f"output {name!r}") from None
