"""The epilogue: what happens to t after the last chunk, on a microtile that is still in the first cache.

Sources have one of four classes by their column stride: a full row, a value a row, anything else, or an immediate.
Columns are walked outside and rows inside, so that what is the same for every row is loaded once. What is computed from
that alone is computed once too: what `values.first` knows by the text, the rest by LLVM where registers are left.
With no expression the function only moves a finished tile to where it belongs.
Where it is the columns of out whose elements lie side by side, a tile is transposed first, and its columns are the rows
of what is said here. Start at `Epilogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import DType, float32
from samebits.frozen import dataclass
from samebits.kernels import convert, values
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import Contraction, Immediate, Source
from samebits.kernels.plan import LINE_BYTES, Operand

ROW, REPEATED, STRIDED, IMMEDIATE = "row", "repeated", "strided", "immediate"
_IMMEDIATE_BYTES = 8
# What is the same for every row: sources, None where they are not, and what is computed from these alone, by value.
_Prepared = tuple[list[Vector | None], Mapping[int, values.First]]


def _class(source: Source, is_turned: bool) -> str:
    """How a source is read along N, or along M."""
    if isinstance(source, Immediate):
        return IMMEDIATE
    step = source.row if is_turned else source.column
    return REPEATED if step == 0 else ROW if step == 1 else STRIDED


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What specialises the text: the dtype of t, the expression (None: t itself), how its sources and out lie.

    `sources`: for each its class, whether it is the same for every row, its dtype. One that is a float of at most 16
    bits is widened exactly; out may be float16 or bfloat16 where the result is float32. `turned`: the rows that tiles
    have at most, where they are transposed; else 0.
    """

    total: DType
    expression: Expression | None
    sources: tuple[tuple[str, bool, DType], ...]
    out: str
    out_dtype: DType
    turned: int = 0

    @classmethod
    def of(cls, c: Contraction, total: DType, rows: int = 0) -> Epilogue:
        """That of a contraction.

        Args:    rows: those that a tile has at most, if tiles may be transposed.
        """
        out = c.out.values
        is_turned = rows > 0 and out.row == 1 != out.column and not c.accumulates
        sources = tuple(
            (_class(s, is_turned), isinstance(s, Immediate) or (s.column if is_turned else s.row) == 0, s.dtype)
            for s in c.inputs
        )
        kind = ROW if is_turned or out.column == 1 else STRIDED
        return cls(total, c.epilogue, sources, kind, c.out.dtype, rows if is_turned else 0)

    @property
    def result(self) -> DType:
        """What the expression gives, before the conversion to out."""
        e = self.expression
        return e.dtype(e.outputs[0]) if e else self.total

    @property
    def plain(self) -> bool:
        """Whether t is the result and out has contiguous rows."""
        return self.expression is None and self.out == ROW and self.out_dtype is self.total and not self.turned

    @property
    def converts(self) -> DType | None:
        """The narrower floats that t becomes, where that is all and out has contiguous rows."""
        is_plain = self.expression is None and self.out == ROW and not self.turned
        return self.out_dtype if is_plain and self.total is float32 is not self.out_dtype else None

    @property
    def operands(self) -> dict[str, DType]:
        """Names of what lies in memory and what it is read as: `out`, then the matrix sources `s0`, `s1`, ..."""
        out = self.out_dtype if self.out_dtype is self.result else convert.stored(self.out_dtype)
        return {"out": out} | {
            f"s{i}": self.read(i) for i, (kind, _, _) in enumerate(self.sources) if kind != IMMEDIATE
        }

    @property
    def parameters(self) -> list[str]:
        """Argument names, without batch strides."""
        names = ["out", "out_row", "out_column", "scratch_s"]
        for i, (kind, _, _) in enumerate(self.sources):
            names += [f"s{i}"] if kind == IMMEDIATE else [f"s{i}", f"s{i}_row", f"s{i}_column"]
        return names

    def read(self, source: int) -> DType:
        """What the elements of a source are read as."""
        dtype = self.sources[source][2]
        return dtype if dtype is self.taken(source) else convert.stored(dtype)

    def taken(self, source: int) -> DType:
        """The dtype of the expression's input that a source is."""
        assert self.expression is not None  # sources are its inputs
        return self.expression.inputs[source + 1]


def scratch_bytes(c: Contraction) -> int:
    """Where the immediates are kept while the kernel runs."""
    return _IMMEDIATE_BYTES * len(c.inputs)


def arguments(c: Contraction, out: Operand, operands: Sequence[Operand], scratch: int) -> dict[str, int | Operand]:
    """The values of `Epilogue.parameters`; `operands`: the plan's for each source."""
    found: dict[str, int | Operand] = {
        "out": out, "out_row": c.out.values.row, "out_column": c.out.values.column, "scratch_s": scratch
    }  # fmt: skip
    for i, s in enumerate(c.inputs):
        if isinstance(s, Immediate):
            found[f"s{i}"] = s.code
        else:
            found |= {f"s{i}": operands[i], f"s{i}_row": s.row, f"s{i}_column": s.column}
    return found


def _turned_lanes(isa: Isa, total: DType) -> int:
    """The side of the squares that a tile is transposed by."""
    return (1 << isa.lanes.bit_length() - 1) * float32.size_bytes // total.size_bytes


class Finish:
    """The epilogue in one kernel: emits its function, and calls it on tiles; `begin` is its counterpart where t starts
    from what out holds.

    Args:    nr: columns of a vector, or of a panel.   columns: those that a tile has at most.
    """

    def __init__(self, b: Builder, d: Epilogue, nr: int, accumulates: bool = False, columns: int = 0) -> None:
        self._b, self._d, self._nr = b, d, nr
        if d.turned:
            self._nr = _turned_lanes(b.isa, d.total)
            self._pitch = -(-d.turned // self._nr) * self._nr
            self._turned = b.local(d.total, -(-columns // self._nr) * self._nr * self._pitch)
            self._turn: Function = b.function("turn", [d.total, None, None, None, d.total, None], self._turn_body)
        if accumulates:
            taken = [d.total, None, d.total, None, None, None, None]
            self._begin: Function = b.function("begin", taken, self._begin_body)
        parameters: list[DType | None] = [d.total, None, d.operands["out"], None, None, None, None]
        for i in range(len(d.sources)):
            parameters += [d.read(i), None, None]
        self._function: Function = b.function("finish", parameters, self._body)
        for i, (kind, _, dtype) in enumerate(d.sources):
            if kind == IMMEDIATE:
                b.store(self._immediate(i), 0, b.scalar(f"s{i}", dtype))

    def _immediate(self, i: int) -> Pointer:
        """Where source i, a value of the plan, lies so that it is read like any other."""
        return self._b.scratch(self._d.read(i), self._b.index("scratch_s") + _IMMEDIATE_BYTES * i)

    def call(
        self, operands: Mapping[str, Pointer], t: Pointer, t_step: Index, row: Index, column: Index, rows: Index,
        columns: Index,
    ) -> None:  # fmt: skip
        """out[row:, column:] = the expression of the tile at t; `operands` are those of the batch."""
        b, d = self._b, self._d
        inputs: list[Any] = []
        for i, (kind, _, _) in enumerate(d.sources):
            if kind == IMMEDIATE:
                inputs += [self._immediate(i), 0, 0]
            else:
                steps = b.index(f"s{i}_row"), b.index(f"s{i}_column")
                at = row * steps[0] + column * steps[1]
                inputs += [b.offset(operands[f"s{i}"], at), *(steps[::-1] if d.turned else steps)]
        place = self._place(operands, row, column)
        if d.turned:
            b.call(self._turn, t, t_step, rows, columns, self._turned, self._pitch)
            t, t_step, rows, columns = self._turned, self._pitch, columns, rows
        b.call(self._function, t, t_step, *place, rows, columns, *inputs)

    def begin(
        self, operands: Mapping[str, Pointer], t: Pointer, t_step: Index, row: Index, column: Index, rows: Index,
        columns: Index,
    ) -> None:  # fmt: skip
        """The tile at t = out[row:, column:], of the dtype of t."""
        self._b.call(self._begin, t, t_step, *self._place(operands, row, column), rows, columns)

    def ask(self, operands: Mapping[str, Pointer], row: Index, column: Index, rows: Index, columns: Index) -> None:
        """Ask for what `call` will write, where its rows are contiguous (1024 cubed of bfloat16: 1 % faster)."""
        if self._d.out == ROW and not self._d.turned:
            out, step, _ = self._place(operands, row, column)
            for i in self._b.loop(0, rows):
                for j in self._b.loop(0, columns, LINE_BYTES // out.dtype.size_bytes):
                    self._b.prefetch(out, i * step + j)

    def _place(self, operands: Mapping[str, Pointer], row: Index, column: Index) -> tuple[Pointer, Index, Index]:
        """Where out[row, column] lies, and the steps from it to the next row and column, which are turned too."""
        steps = self._b.index("out_row"), self._b.index("out_column")
        place = self._b.offset(operands["out"], row * steps[0] + column * steps[1])
        return place, *(steps[::-1] if self._d.turned else steps)

    def _turn_body(self, t: Pointer, t_step: Index, rows: Index, columns: Index, turned: Pointer, pitch: Index) -> None:
        """The transpose of a tile. Rows behind the last one are that one again; columns behind it are left over."""
        b, lanes = self._b, self._nr
        for i in b.loop(0, rows, lanes):
            lines = [b.min(i + k, rows - 1) * t_step for k in range(lanes)]
            for j in b.loop(0, columns, lanes):
                for k, x in enumerate(b.transpose([b.load(t, line + j, lanes) for line in lines])):
                    b.store(turned, (j + k) * pitch + i, x)

    def _each(
        self, rows: Index, columns: Index, prepare: Callable[[Index, Index | None], Any],
        vector: Callable[[Index, Index, Index | None, Any], None],
    ) -> None:  # fmt: skip
        """`vector(row, first column, count, prepare(first column, count))` for every vector of a tile; count is None
        where it is whole."""
        b, nr = self._b, self._nr
        whole = columns // nr * nr
        for j in b.loop(0, whole, nr):
            held = prepare(j, None)
            for i in b.loop(0, rows):
                vector(i, j, None, held)
        for _ in b.when(whole < columns):
            held = prepare(whole, columns - whole)
            for i in b.loop(0, rows):
                vector(i, whole, columns - whole, held)

    def _begin_body(
        self, t: Pointer, t_step: Index, out: Pointer, out_row: Index, out_column: Index, rows: Index, columns: Index
    ) -> None:
        b, nr = self._b, self._nr

        def vector(i: Index, j: Index, count: Index | None, held: Any) -> None:
            if self._d.out == ROW:
                x = b.load(out, i * out_row + j, nr, count)
            else:
                x = b.load_strided(out, i * out_row + j * out_column, out_column, nr, count)
            b.store(t, i * t_step + j, x)  # whole vectors: the tile is as wide

        self._each(rows, columns, lambda j, count: None, vector)

    def _body(
        self, t: Pointer, t_step: Index, out: Pointer, out_row: Index, out_column: Index, rows: Index, columns: Index,
        *inputs: Any,
    ) -> None:  # fmt: skip
        b, nr = self._b, self._nr

        def prepare(j: Index, count: Index | None) -> _Prepared:
            same = [row for _, row, _ in self._d.sources]
            held = [self._source(n, 0, j, count, inputs) if x else None for n, x in enumerate(same)]
            e = self._d.expression
            return held, values.first(b, e, [None, *held]) if e else {}

        def vector(i: Index, j: Index, count: Index | None, prepared: _Prepared) -> None:
            held, first = prepared
            x = b.load(t, i * t_step + j, nr, count)
            found = [self._source(n, i, j, count, inputs) if v is None else v for n, v in enumerate(held)]
            x = self._apply(x, found, first)
            if self._d.out == ROW:
                b.store(out, i * out_row + j, x, count)
            else:
                b.store_strided(out, i * out_row + j * out_column, out_column, x, count)

        self._each(rows, columns, prepare, vector)

    def _source(self, n: int, i: Index, j: Index, count: Index | None, inputs: tuple[Any, ...]) -> Vector:
        """One vector of source n, as the expression takes it."""
        b, nr, (kind, _, dtype) = self._b, self._nr, self._d.sources[n]
        p, row, column = inputs[3 * n : 3 * n + 3]
        at = i * row + j * column
        if kind == ROW:
            x = b.load(p, at, nr, count)
        elif kind == STRIDED:
            x = b.load_strided(p, at, column, nr, count)
        else:
            x = b.splat(b.load(p, at, 1), nr)
        return x if dtype is self._d.taken(n) else convert.decode(b, x, dtype)

    def _apply(self, t: Vector, sources: list[Vector], first: Mapping[int, values.First]) -> Vector:
        """The expression of one vector of t; `first`: what is computed of it already."""
        if self._d.expression is None:
            return self._converted(t)
        (result,) = values.emit(self._b, self._d.expression, [t, *sources], self._nr, first)
        return self._converted(result)

    def _converted(self, x: Vector) -> Vector:
        """A result as out holds it."""
        d = self._d
        if d.out_dtype is d.result:
            return x
        return convert.encode(self._b, x, d.out_dtype, canonical=d.expression is None)  # as t is
