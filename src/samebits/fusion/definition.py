"""FusionDefinition: a fusion is defined within `with`, and run on arrays of any library.

Start there.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from samebits.errors import FusionError, FusionTypeError, UndefinedFusionError
from samebits.fusion import datatypes, descriptor, ops, printing, promotion, scripts, validation
from samebits.fusion.cache import SHARED
from samebits.fusion.datatypes import DataType
from samebits.fusion.execution import FusionExecutorCache
from samebits.fusion.graph import Fusion, Number, Output, Scalar, TensorView, entered, integer
from samebits.fusion.pytorch_utils import torch_dtype_to_nvfuser_dtype
from samebits.fusion.refusals import REFUSALS, refused
from samebits.tensor import Tensor

__all__ = ["FusionDefinition"]


class FusionDefinition:
    """A fusion: defined by what is called within `with`, or by `definition` of a subclass; then run.

    ```
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.relu(fd.ops.add(x, 1.0)))
    (y,) = fd.execute([array])
    ```

    Attributes:
        ops: The operations.
        fec: What runs it, once it ran or a cache gave it.
    """

    ops = ops
    fec: FusionExecutorCache | None = None
    # Here, as subclasses need not call `__init__`.
    _fusion: Fusion | None = None
    _last: Sequence[str] | None = None

    @property
    def fusion(self) -> Fusion:
        """The definition.

        Raises:  UndefinedFusionError if there is none yet.
        """
        if self._fusion is not None:
            return self._fusion
        if self.fec is None:
            raise _undefined()
        return self.fec.fusion()

    def definition(self) -> None:
        """Define the fusion: subclasses say how, and need no `with` then."""
        raise _undefined()

    # -- defining --------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self._fusion, self.fec = Fusion(), None
        entered().append(self._fusion)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fusion is not None and self._fusion in entered():
            entered().remove(self._fusion)
            self._fusion.is_finished = True
            if kind is not None:
                self._fusion = None  # what there is of it is no definition

    def __getstate__(self) -> dict[str, Any]:
        """The definition without what runs it: copies and pickles look that up when they run."""
        state = dict(self.__dict__)
        if self.fec is not None:
            state |= {"fec": None, "_fusion": self.fusion}
        return state

    def define_tensor(self, *args: Any, **kwargs: Any) -> TensorView:
        """An input, in one of three ways.

        - `shape, contiguity, dtype=DataType.Float, is_cpu=False, stride_order=[]`: extents, -1 where they are open;
          contiguity for each axis from the slowest on, None of a broadcast axis;
        - the same with one bool for the contiguity of all;
        - `sizes, strides, dtype=DataType.Float, static_sizes=False, is_cpu=False`: of a tensor that is at hand.

        Formats of fewer than 8 bits have extents in elements, but for `Float4_e2m1fn_x2`, whose extents count bytes.

        Raises:  FusionError if what is given does not fit together.
        """
        fusion, given = self._open("define_tensor"), descriptor.named(args, kwargs)
        return descriptor.add_tensor(fusion, descriptor.describe(**given))

    def define_scalar(self, value: Number | DataType | None = None, dtype: DataType | None = None) -> Scalar:
        """A scalar: an input without a value, else a constant.

        Args:
            value: A number; a DataType in this place is `dtype`.
            dtype: Its format; default Double of an input, Bool, Int or Double of a constant.

        Raises:  FusionError if the value is no real number, or the format none.
        """
        fusion = self._open("define_scalar")
        if isinstance(value, DataType):
            value, dtype = None, value
        if dtype is not None:
            datatypes.row_of("define_scalar", "dtype", dtype)
            dtype = DataType.Int if dtype is DataType.Index else dtype
        if value is not None:
            found = promotion.as_val("define_scalar", fusion, value, dtype)
            assert isinstance(found, Scalar)
            return found
        made = Scalar(fusion, dtype or DataType.Double)
        fusion.inputs.append(made)
        return made

    def define_vector(self, size: int) -> list[Scalar]:
        """So many inputs of format Int, which a run may be given as one list.

        Raises:  FusionError if it is no count.
        """
        if (count := integer("define_vector", "size", size)) < 0:
            raise FusionError("define_vector", "size", "", count, "0 or more", "give a count")
        return [self.define_scalar(None, DataType.Int) for _ in range(count)]

    def from_pytorch(self, tensor: Any, static_sizes: bool = False) -> TensorView:
        """An input like a tensor of torch: its format and order of axes; its extents too with `static_sizes`.

        Raises:  FusionError if it is none, or of a format that is not computed with.
        """
        if not hasattr(tensor, "stride"):
            return self.from_any(tensor, static_sizes)
        dtype = torch_dtype_to_nvfuser_dtype(tensor.dtype)
        return self._like("from_pytorch", tensor.size(), tensor.stride(), dtype, static_sizes)

    def from_any(self, array: Any, static_sizes: bool = False) -> TensorView:
        """An input like an array of any library.

        Raises:  FusionError if it is of a format that is not computed with.
        """
        try:
            x = Tensor.from_any(array)
        except REFUSALS as error:
            raise refused("from_any", error, "array") from None
        return self._like("from_any", x.shape, x.strides, datatypes.data_type_of(x.dtype), static_sizes)

    def _like(
        self, call: str, sizes: Sequence[int], strides: Sequence[int], dtype: DataType, static_sizes: bool
    ) -> TensorView:
        """An input like an array at hand."""
        found = descriptor.describe(
            sizes=list(sizes), strides=list(strides), dtype=dtype, static_sizes=static_sizes, is_cpu=not sizes
        )
        return descriptor.add_tensor(self._open(call), found)

    def add_output(self, tv: TensorView, alias_input: TensorView | None = None) -> None:
        """Make a tensor an output; with `alias_input` it is written into that input, and not given back.

        Raises:  FusionError if it is no tensor of this fusion, or the other no input of its format and rank.
        """
        fusion = self._open("add_output")
        for name, x in (("tv", tv), ("alias_input", alias_input)):
            if x is None and name == "alias_input":
                continue
            if not isinstance(x, TensorView):
                given = "a scalar" if isinstance(x, Scalar) else type(x).__name__
                raise FusionTypeError("add_output", name, "", given, "a tensor of the fusion", "use full to make one")
            fusion.check("add_output", x)
        if alias_input is not None and alias_input not in fusion.inputs:
            expected, remedy = "an input of the fusion", "leave alias_input out"
            raise FusionError("add_output", "alias_input", "", "another tensor", expected, remedy)
        if alias_input is not None:
            for fact, own, due in (("dtype", alias_input.dtype, tv.dtype), ("rank", alias_input.ndim, tv.ndim)):
                if own != due:
                    expected = f"{due} as the output that is written into it"
                    raise FusionError("add_output", "alias_input", fact, own, expected, "cast or reshape the output")
            if any(each.alias is alias_input and each.tensor is not tv for each in fusion.outputs):
                actual, expected = "an input that another output is written into", "one for each output"
                raise FusionError("add_output", "alias_input", "", actual, expected, "leave alias_input out here")
        fusion.outputs.append(Output(tv, alias_input))

    def _open(self, call: str) -> Fusion:
        """The fusion that is being defined.

        Raises:  FusionError outside of `with`.
        """
        if self._fusion is None or self._fusion not in entered():
            expected, remedy = "inside of its definition", "call it within `with FusionDefinition() as fd:`"
            raise FusionError(call, "call", "", "outside of the definition", expected, remedy)
        return self._fusion

    # -- running ---------------------------------------------------------------------------------------------------
    def execute(
        self,
        inputs: Sequence[Any],
        *,
        device: object = None,
        save_repro_inputs: bool = False,
        _enable_options: Sequence[str] = (),
        _disable_options: Sequence[str] = (),
    ) -> list[Any]:
        """The outputs for these inputs, as the kind of array that the first tensor among them is.

        Args:
            inputs: A tensor for each tensor that is defined, a number for each scalar, a list for a vector.
            device: Taken for nvFuser's sake; what runs does so on the host.
            save_repro_inputs: Whether `last_repro_script` is to know the inputs.

        Raises:
            UndefinedFusionError: Nothing is defined, or nothing is an output.
            FusionError: An input is not what was defined.
        """
        if save_repro_inputs:
            self._last = [scripts.described(x) for x in inputs]
        return (self.fec or self._executor()).execute(inputs)

    def manual_execute(self, inputs: Sequence[Any], heuristic_params: object = None) -> list[Any]:
        """As `execute`: there is nothing to schedule."""
        del heuristic_params
        return self.execute(inputs)

    def validate(
        self,
        inputs: Sequence[Any],
        reference_outputs: Sequence[Any] | None = None,
        device: object = None,
        **kwargs: Any,
    ) -> list[Any]:
        """The outputs, after a comparison: bit for bit with the NumPy meaning of every operation, or with given ones
        within what their format resolves.

        Raises:  AssertionError if they differ.
        """
        fec = self._executor()
        seed = fec.seed()  # which both draw by
        expected = fec.reference(inputs, seed) if reference_outputs is None else None
        made = fec.execute(inputs, device=device, _seed=seed, **kwargs)
        if reference_outputs is not None:
            validation.check_close(made, reference_outputs)
        else:
            assert expected is not None
            validation.check_bits(made, fec.visible(expected, inputs))
        return made

    def manual_validate(self, inputs: Sequence[Any], reference_outputs: Sequence[Any] | None = None) -> list[Any]:
        """As `validate`."""
        return self.validate(inputs, reference_outputs)

    def validate_definition(self) -> tuple[bool, str | None]:
        """Whether it can be run, and else why not."""
        try:
            self._defined()
        except UndefinedFusionError as error:
            return False, str(error)
        return True, None

    def _executor(self) -> FusionExecutorCache:
        if self.fec is None:
            self.fec = SHARED.cache_compile(self._defined())
        return self.fec

    def _defined(self) -> Fusion:
        """The definition, which gives something.

        Raises:  UndefinedFusionError if it does not.
        """
        if self._fusion is None and self.fec is None:
            if type(self).definition is FusionDefinition.definition:
                raise _undefined()
            with self:
                self.definition()
        fusion = self.fusion
        if not fusion.is_finished:
            actual, remedy = "not finished", "leave `with FusionDefinition() as fd:` before"
            raise UndefinedFusionError("execute", "definition", "", actual, "finished", remedy)
        if not fusion.outputs:
            actual, remedy = "empty (Fusion is empty!)", "call add_output within the definition"
            raise UndefinedFusionError("execute", "fusion", "", actual, "one with outputs", remedy)
        return fusion

    # -- text ------------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        """Python that defines the fusion again."""
        return printing.python(self.fusion)

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """A script that defines the fusion, and runs it on inputs like these."""
        return scripts.script(repr(self), None if inputs is None else [scripts.described(x) for x in inputs])

    def last_repro_script(self) -> str:
        """A script that defines the fusion, and runs it on inputs like the last ones.

        Raises:  AssertionError unless `execute` was called with `save_repro_inputs=True`.
        """
        if self._last is None:
            raise AssertionError(
                "fd.last_repro_script() cannot provide a repro because"
                " fd.execute(inputs, save_repro_inputs=True) was not executed!"
            )
        return scripts.script(repr(self), self._last)


def _undefined() -> UndefinedFusionError:
    remedy = "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."
    return UndefinedFusionError("execute", "fusion", "", "undefined", "defined", remedy)
