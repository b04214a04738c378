"""Running a fusion: its program is made once, and once more for other values of scalars that sizes depend on.

Start at `FusionExecutorCache.execute`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from samebits import hot
from samebits.errors import FusionError
from samebits.fusion import arguments, datatypes, direct, groups, inspection, promotion
from samebits.fusion.graph import Fusion, Number, Scalar, TensorView, Val
from samebits.fusion.lowering import SEED, UnknownSize, distinct, lowered, size_scalars, slowest_first
from samebits.fusion.random import fresh_seed, has_fresh
from samebits.fusion.refusals import REFUSALS, refused
from samebits.fusion.views import returned
from samebits.kinds import ArrayKind, kind_of, narrow_storage, note_written, to_kind
from samebits.ops.move import copy
from samebits.program.graph import Program
from samebits.runtime import reference
from samebits.runtime.cpu import Session, prepare
from samebits.runtime.known import KnownCalls
from samebits.runtime.recent import keep
from samebits.tensor import Tensor

__all__ = ["FusionExecutorCache"]

# What asks to be told of each run: profilers.
watchers: list[Callable[[int, list[str]], None]] = []

# Programs that a fusion keeps, for other values of what decides sizes; extents that it knows to have run.
_PROGRAMS = 64
_RUNS = 4096


class FusionExecutorCache:
    """What runs a fusion; safe to use from many threads at once."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._inputs = list(fusion.inputs)
        self._tensors = [(place, x) for place, x in enumerate(self._inputs) if isinstance(x, TensorView)]
        self._numbers = [(place, x) for place, x in enumerate(self._inputs) if isinstance(x, Scalar)]
        self._places = frozenset(map(self._inputs.index, size_scalars(fusion)))
        self._by_extents = False
        self._draws = has_fresh(fusion)
        self._has_groups = groups.has_groups(fusion)
        self._direct: OrderedDict[Hashable, direct.Direct] = OrderedDict()
        self._sessions: OrderedDict[Any, Session] = OrderedDict()
        self._recent: Program | None = None
        self._ran: OrderedDict[Any, None] = OrderedDict()
        self._aliases: dict[TensorView, list[TensorView]] = {}
        for output in fusion.outputs:
            if output.alias is not None:
                self._aliases.setdefault(output.tensor, []).append(output.alias)
        self._written = sorted({self._inputs.index(x) for aliases in self._aliases.values() for x in aliases})
        self._made = distinct(fusion)
        self._views = returned(fusion)
        self._turned = {
            x: tuple(np.argsort(slowest_first(x.stride_order)).tolist())
            for x in self._made
            if x.stride_order is not None
        }
        self._writes = [
            (self._made.index(x), self._inputs.index(alias)) for x in self._aliases for alias in self._aliases[x]
        ]
        self._returned = self._places_returned()
        self._calls = KnownCalls(True) if self._gives_new_arrays() else None

    def fusion(self) -> Fusion:
        """The definition."""
        return self._fusion

    def execute(
        self,
        inputs: Sequence[Any],
        *,
        device: object = None,
        _enable_options: Sequence[str] = (),
        _disable_options: Sequence[str] = (),
        _seed: int | None = None,
    ) -> list[Any]:
        """The outputs, as the kind of array that the first tensor among the inputs is.

        Args:
            inputs: A tensor or a number for each input, lists of numbers for vectors.
            device: Taken, and of no effect: what runs does so on the host.

        Raises:
            FusionError: There are not as many as the fusion has, or one is no tensor, or no number, or has another
                element format, rank or extent, or an operation does not take what it is given.
        """
        try:
            return self._executed(inputs, self.seed() if _seed is None else _seed)
        except FusionError:
            raise
        except REFUSALS as error:
            arguments.check(self._fusion, self._given(inputs))  # which says what of an input is wrong, if one is
            raise refused("execute", error) from None

    def _executed(self, inputs: Sequence[Any], seed: int | None) -> list[Any]:
        arguments.check_listed(inputs)
        if direct.modes() or direct.is_scripted():
            direct.check_traced()
        told, calls = b"", None if watchers else self._calls
        if calls is not None:
            told = calls.answer(tuple(inputs), {})
            if type(told) is not bytes:
                return [*told] if type(told) is tuple else [told]
        key = self._key(inputs)
        known = self._direct.get(key)
        if known is not None and not watchers:
            self._recent = known.program
            self._check_written(inputs)
            made = known.run(inputs, seed)
            if calls is not None and not any(known.packings):
                if not calls.takes(known.bound):
                    self._calls = None
                elif not told:
                    hot.count_call()
                else:
                    arrays = [x for x, kind in zip(inputs, known.scalars, strict=True) if kind is None]
                    calls.learn(told, tuple(inputs), {}, [*enumerate(arrays)], known.bound, made)
            if self._returned is None:
                return self._results(inputs, made)
            return [inputs[place] if is_input else made[place] for is_input, place in self._returned]
        direct.learn(inputs)
        given = self._given(inputs)
        self._check_written(given)
        made = self._run(given, self._key(inputs), seed)
        for watch in watchers:
            watch(id(self), self.kernels(inputs))
        return self._results(given, made)

    def _key(self, inputs: Sequence[Any]) -> Hashable:
        """What a call is like; None where that is not all of it: groups have the sizes that a tensor says."""
        return None if self._has_groups else direct.key_of(self._places, inputs)

    def seed(self) -> int | None:
        """A seed for a run; None where none is drawn."""
        return fresh_seed() if self._draws else None

    def _run(self, given: list[Any], key: Hashable, seed: int | None) -> list[Any]:
        """Every tensor that is computed; a call like this one takes the short way from now on."""
        if not self._made:
            arguments.check(self._fusion, given)
            return []
        session, values = self._session(given, seed)
        made = session.run(values)
        self._recent = session.program
        if key is not None:
            bound = session.bound(values, packed=narrow_storage(self._kind(given)) == "packed")
            writes = () if self._returned is None else self._writes
            found = direct.made_for(self._inputs, self._places, given, session.program, bound, made, writes)
            if found is not None:
                keep(self._direct, key, found, _PROGRAMS)
        return [made[f"O{place}"] for place in range(len(self._made))]

    def kernels(self, inputs: Sequence[Any]) -> list[str]:
        """The plan of each kernel that runs for these inputs, as text."""
        return inspection.plan_texts(self._planned(inputs))

    def llvm_ir(self, inputs: Sequence[Any]) -> str:
        """The LLVM IR of the kernels that run for these inputs, as it is emitted.

        Raises:  FusionError if the Isa row is interpreted.
        """
        return inspection.ir("llvm_ir", self._planned(inputs))

    def assembly(self, inputs: Sequence[Any]) -> str:
        """The assembly of the kernels that run for these inputs.

        Raises:  FusionError if the Isa row is interpreted.
        """
        return inspection.assembly("assembly", self._planned(inputs))

    def get_scheduled_ir(self, inputs: Sequence[Any], tensor_transforms: bool = False) -> str:
        """The program that runs for these inputs, a node a kernel, and why kernels that feed each other are not one.

        Args:
            inputs: As `execute` takes them.
            tensor_transforms: Whether the plan of each kernel follows.
        """
        session, _ = self._session(self._given(inputs), 0)
        return "\n".join([inspection.scheduled(session.program), *(self.kernels(inputs) if tensor_transforms else ())])

    def get_most_recent_scheduled_ir(self) -> str:
        """The program that ran last, as `get_scheduled_ir` has it.

        Raises:  FusionError if nothing was computed yet.
        """
        if self._recent is None:
            remedy = "call execute first"
            raise FusionError("get_most_recent_scheduled_ir", "run", "", "missing", "one that came before", remedy)
        return inspection.scheduled(self._recent)

    def get_cuda_kernel(self, inputs: Sequence[Any], intrinsic_code: bool = False, device: int = 0) -> str:
        """Refused: no kernel of a fusion is CUDA.

        Raises:  FusionError, always.
        """
        remedy = "call llvm_ir or assembly, which have what runs"
        raise FusionError("get_cuda_kernel", "kernel", "", "no CUDA", "machine code of the host", remedy)

    def _planned(self, inputs: Sequence[Any]) -> inspection.Ran:
        session, values = self._session(self._given(inputs), 0)
        return session.planned(values) if self._made else []

    def reference(self, inputs: Sequence[Any], seed: int | None = None) -> list[Any]:
        """The outputs by the NumPy meaning of every operation: NumPy arrays."""
        given = self._given(inputs)
        _, values = self._session(given, seed)
        arrays = {name: Tensor.from_any(x).numpy(copy=True) for name, x in values.items()}
        try:
            made = reference.run(self._program(given), arrays)
        except REFUSALS as error:
            raise refused("validate", error) from None
        return [np.transpose(made[f"O{i}"], self._turned.get(x, range(x.ndim))) for i, x in enumerate(self._made)]

    def is_compiled(self, inputs: Sequence[Any]) -> bool:
        """Whether tensors of these extents were run before: then nothing is compiled for them."""
        return self._facts(self._given(inputs)) in self._ran

    def visible(self, arrays: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Of one array for each tensor that is computed, those that a run gives back, and its views of the inputs."""
        values = self._given(inputs)
        given = {x: Tensor.from_any(values[place]).numpy(copy=True) for place, x in self._tensors}
        found = dict(zip(self._made, arrays, strict=True)) | {x: view.of(given) for x, view in self._views.items()}
        return [found[x.tensor] for x in self._fusion.outputs if x.alias is None]

    # -- inputs ----------------------------------------------------------------------------------------------------
    def _given(self, given: Sequence[Any]) -> list[Any]:
        return arguments.taken(self._inputs, given, self._written)

    def _check_written(self, given: Sequence[Any]) -> None:
        for place in self._written:
            arguments.check_written(place, given[place])
            note_written(given[place])

    def _kind(self, given: Sequence[Any]) -> ArrayKind:
        if self._tensors:
            return kind_of(given[self._tensors[0][0]])
        return "torch" if "torch" in sys.modules else "numpy"

    def _facts(self, given: Sequence[Any]) -> Any:
        """What is_compiled asks: extents and formats of tensors, and the scalars that decide sizes."""
        arrays = [given[place] for place, _ in self._tensors]
        return tuple([(tuple(x.shape), getattr(x, "dtype", None)) for x in arrays]), self._sizes(given)

    def _sizes(self, given: Sequence[Any]) -> Hashable:
        """The scalars that decide sizes: a program is prepared for their values."""
        numbers = [direct.number_key(given[place]) for place in sorted(self._places)]
        return (*numbers, *self._counts(given).values())

    def _counts(self, given: Sequence[Any]) -> dict[Scalar, Number]:
        """How many groups there are: a program is prepared for that number."""
        return groups.counts(self._fusion, self._named(given)) if self._has_groups else {}

    def _named(self, given: Sequence[Any]) -> dict[Val, Any]:
        return dict(zip(self._inputs, given, strict=True))

    # -- programs --------------------------------------------------------------------------------------------------
    def _session(self, given: Sequence[Any], seed: int | None) -> tuple[Session, dict[str, Any]]:
        """What runs these inputs, and what it is given."""
        facts = self._facts(given)
        key = facts if self._by_extents else self._sizes(given)
        session = self._sessions.get(key)
        if session is None:
            arguments.check(self._fusion, given)
            session = prepare(self._program(given), alike=True)
            if self._sessions:
                self._calls = None  # a run says which program it was of, as emitted code does not
            keep(self._sessions, facts if self._by_extents else key, session, _PROGRAMS)
        if facts not in self._ran:
            arguments.check(self._fusion, given)
            keep(self._ran, facts, None, _RUNS)
        return session, self._values(given, seed)

    def _values(self, given: Sequence[Any], seed: int | None) -> dict[str, Any]:
        """Inputs by name, tensors first, as the program takes them."""
        values = {f"T{x.name}": given[place] for place, x in self._tensors}
        for place, x in self._numbers:
            if place not in self._places:
                values[f"S{x.name}"] = promotion.element("execute", given[place], x.dtype)
        if self._draws:
            values[SEED] = np.asarray(seed, np.uint64)
        if self._has_groups:
            values |= groups.values(self._fusion, self._named(given), self._extents(given))
        return values

    def _program(self, given: Sequence[Any]) -> Program:
        """The program for these values of scalars, and for these extents where symbols do not serve."""
        known = {x: given[place] for place, x in self._numbers if place in self._places} | self._counts(given)
        try:
            return lowered(self._fusion, known, self._extents(given) if self._by_extents else {})
        except UnknownSize:
            self._by_extents = True
            return lowered(self._fusion, known, self._extents(given))

    def _extents(self, given: Sequence[Any]) -> dict[Scalar, int]:
        """The number that each open extent has."""
        found: dict[Scalar, int] = {}
        for place, x in self._tensors:
            for axis, extent in zip(x.axes, Tensor.from_any(given[place]).shape, strict=True):
                found[self._fusion.root(axis.length)] = extent
        return found

    # -- outputs ---------------------------------------------------------------------------------------------------
    def _places_returned(self) -> list[tuple[bool, int]] | None:
        """Where a run's results are: among inputs or not, and which; None where they are views of something."""
        if self._turned or self._views:
            return None
        back = {x: (False, place) for place, x in enumerate(self._made)}
        back |= {x: (True, self._inputs.index(aliases[0])) for x, aliases in self._aliases.items()}
        return [back[output.tensor] for output in self._fusion.outputs if output.alias is None]

    def _gives_new_arrays(self) -> bool:
        """Whether a run is of arrays alone, but for what sizes depend on, and gives all that it makes: whole bytes."""
        made = [(False, place) for place in range(len(self._made))]
        if self._draws or self._has_groups or self._aliases or not made or self._returned != made:
            return False
        are_arrays = len(self._numbers) == len(self._places)
        return are_arrays and all(datatypes.is_whole_bytes(x.dtype) for x in self._made)

    def _results(self, given: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        kind = self._kind(given)
        inputs = dict(zip(self._inputs, given, strict=True))
        arrays = dict(inputs)
        writes: list[tuple[Any, TensorView]] = []
        for x, array in zip(self._made, made, strict=True):
            if kind == "torch" and isinstance(array, np.ndarray):
                array = to_kind(Tensor.from_any(array), kind)
            if x in self._turned:
                array = (
                    array.permute(self._turned[x]) if kind in ("torch", "tensor") else array.transpose(self._turned[x])
                )
            writes += [(array, alias) for alias in self._aliases.get(x, ())]
            arrays[x] = inputs[self._aliases[x][0]] if x in self._aliases else array
        for array, alias in writes:
            arguments.check_fits(self._inputs.index(alias), array, inputs[alias])
        for array, alias in writes:
            try:
                copy(array, out=inputs[alias])
            except REFUSALS as error:
                raise refused("execute", error, f"input {self._inputs.index(alias)}") from None
        for x, view in self._views.items():
            arrays[x] = view.of(arrays)
        return [arrays[output.tensor] for output in self._fusion.outputs if output.alias is None]
