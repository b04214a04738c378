"""The kernel text of row reductions: a pass over the row for each depth of reductions, then one that stores.

A pass computes what it reduces from the row's inputs, from the results of earlier passes, and from heavy values that an
earlier pass kept in scratch; cheap values are computed again. Start at `text`; the order of additions is in `fold`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.frozen import dataclass
from samebits.kernels import code_tables, convert, exact_blocks, fold, row_quotients, values
from samebits.kernels.expression import REDUCTIONS, Expression, Term
from samebits.kernels.passes import Pass, needed, passes, uniform
from samebits.kernels.walk import NIBBLES, PAIRED, Cursor, Stretch, stretches

# Bytes ahead at which codes of four bits are fetched: more than memory takes to answer at the 10 GB/s that they are
# reduced at. From beyond the caches the two would else take turns (512 MiB on Emerald Rapids: 92 ms, memory alone 40).
_AHEAD = 8192


@dataclass(frozen=True, slots=True)
class ReduceText:
    """What specialises the kernel.

    Attributes:
        expression: What to compute.
        classes: Each operand's class along the row, inputs then outputs (walk.Walk.classes).
        above: Whether axes lie above the stretches of rows.
        levels: How often the sum rule is applied, for rows of up to 2048 ** levels elements. (As an argument it costs
            14 ns of the 53 that a sum of 2049 takes.)
        repeated: Inputs that are the same for every row: loaded once for two rows that are stored side by side.
        spanned: Whether rows are long and share an input.
        exact: The value that is looked up and of whose blocks some sums need no rounding (exact_blocks); None if none.

    What `code_tables` cut out of the expression is in the memory that an argument names, `table` and the value.
    """

    expression: Expression
    classes: tuple[str, ...]
    above: bool
    levels: int
    repeated: tuple[int, ...]
    spanned: bool
    exact: int | None = None


def text(b: Builder, d: ReduceText) -> None:
    """A task is some rows; of several passes, rows are taken in groups that do not leave a stretch.

    Of the arguments, `group` is how many rows are reduced before any is stored: rows that are taken together overlap in
    the pipeline, so that the latency of trees, divisions and roots is hidden. Where rows are long and share an input, a
    pass takes `near` of them before the next pass does, and `span` elements of each are stored before more of any, so
    that the next row finds that input in the first cache.
    """
    e, rows_per_task = d.expression, b.index("rows_per_task")
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
    is_uniform = uniform(e, d.classes)
    plan = passes(e, is_uniform)
    group = b.index("group") if len(plan) > 1 else 1
    near, span = (b.index("near"), b.index("span")) if d.spanned else (None, None)
    for task in b.tasks():
        first = task * rows_per_task
        for stretch in stretches(b, d.classes, types, d.above, first, b.min(first + rows_per_task, b.index("rows"))):
            for begin, end in parts(b, stretch.begin, stretch.end, group):
                rows = RowGroup(b, d, stretch, is_uniform, plan, begin, end)
                for start, stop in parts(b, begin, end, near):
                    rows.reduce(start, stop, group if near is None else near)
                for start, stop in parts(b, 0, b.index("n"), span) if not plan[-1].reductions else ():
                    rows.store(start, stop)
                if not plan[-1].reductions:
                    rows.store_uniforms()


def parts(b: Builder, start: Index, stop: Index, size: Index | None) -> Iterator[tuple[Index, Index]]:
    """start .. stop in parts of a size, or whole."""
    if size is None:
        yield start, stop
        return
    for begin in b.loop(start, stop, size):
        yield begin, b.min(begin + size, stop)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows begin .. end-1 of a stretch, and the passes over them."""

    b: Builder
    d: ReduceText
    stretch: Stretch
    uniform: Sequence[bool]
    passes: Sequence[Pass]
    begin: Index
    end: Index

    def row(self, r: Index, number: int) -> _Row:
        """Row r of the stretch, in pass `number`."""
        return _Row(self.b, self.d, self.stretch.row(r), self.uniform, self.passes[:number], r - self.begin)

    def reduce(self, start: Index, stop: Index, ahead: Index, outputs: Sequence[int] = ()) -> None:
        """Every pass that reduces, over rows start .. stop-1; meanwhile rows so far ahead are fetched.

        Args:    outputs: what is fetched beside the inputs.
        """
        b, last = self.b, len(self.passes) - 1
        for number, a_pass in enumerate(self.passes):
            if not a_pass.reductions:
                continue
            fetched = self._fetched(number, outputs)
            for r in b.loop(start, stop) if last else (start,):
                row = self.row(r, number)
                following = self._following(r, ahead) if fetched else None
                row.reduce(a_pass, following, fetched, number < last)
                if number == last:
                    row.store_uniforms()

    def _fetched(self, number: int, outputs: Sequence[int]) -> tuple[int, ...]:
        """The operands of which a pass fetches later rows.

        While a pass computes for long, the second cache is free to bring them: the first one that is heavy (a gradient
        of log_softmax, 512 x 768, in the last pass, which has an exponential: 210 us, in the sum: 265), else the last
        sum. Where outputs are fetched too these are many, and passes that sum share them (512 x 768, three operands of
        float32, all in the last sum: 276 us, one in each: 260).
        """
        last, d = len(self.passes) - 1, self.d
        if self.passes[last].reductions or not last:
            return ()
        inputs = [k for k in range(len(d.expression.inputs)) if d.classes[k] == "unit" and k not in d.repeated]
        if outputs:
            return (*inputs, *outputs)[number::last]
        # Of long rows that share an input, parts of several are stored in turn.
        heavy = [k for k, a_pass in enumerate(self.passes[: last + (not d.spanned)]) if a_pass.is_heavy]
        return tuple(inputs) if number == (heavy or [last - 1])[0] else ()

    def _following(self, r: Index, ahead: Index) -> Cursor:
        """The row that is so far ahead of row r, or the last one."""
        return self.stretch.row(self.b.min(r + ahead, self.b.index("stretch") - 1))

    def store(self, start: Index, stop: Index, totals: Mapping[int, Pointer] | None = None) -> None:
        """The last pass: positions start .. stop-1 of the outputs that vary along the row.

        Args:    totals: by its number among the outputs where one is added up over the rows, one after another.
        """
        b, number, side = self.b, len(self.passes) - 1, 2 if self.d.repeated else 1
        paired, fetched = self.begin + (self.end - self.begin) // side * side, self._fetched(number, ())

        def store(begin: Index, end: Index, side: int) -> None:
            for r in b.loop(begin, end, side):
                rows = [self.row(r + j, number) for j in range(side)]
                ahead = [self._following(r + j, b.index("group")) for j in range(side)] if fetched else []
                fetch = [(row, k) for row in ahead for k in fetched]
                _store(rows, self.passes[number], start, stop, totals or {}, fetch)

        store(self.begin, paired, side)
        if side > 1:
            store(paired, self.end, 1)

    def store_uniforms(self) -> None:
        """The outputs that do not, if there are any."""
        has_uniforms = any(self.uniform[k] for k in self.d.expression.outputs)
        for r in self.b.loop(self.begin, self.end) if has_uniforms else ():
            self.row(r, len(self.passes) - 1).store_uniforms()


def _store(
    rows: Sequence[_Row], a_pass: Pass, start: Index, stop: Index, totals: Mapping[int, Pointer],
    fetched: Sequence[tuple[Cursor, int]],
) -> None:  # fmt: skip
    """The outputs that vary along the row, of rows side by side, from start to stop; some are added up instead.

    Args:    fetched: operands of later rows.
    """
    b, d, e = rows[0].b, rows[0].d, rows[0].e
    lanes, places = b.isa.lanes, [(j, k) for j, k in enumerate(e.outputs) if not rows[0].uniform[k]]
    splats = [row.splats(a_pass)[lanes] for row in rows]
    divisors = [row.divisors(a_pass) for row in rows]

    def store(i: Index, count: Index | None) -> None:
        for later, k in fetched:
            later.prefetch(k, i)
        repeated = {k: rows[0].cursor.load(k, i, lanes, count) for k in d.repeated}
        given = zip(rows, splats, divisors, strict=True)
        found = [row.values(i, lanes, count, own | repeated, by) for row, own, by in given]
        values = [(row, j, x.get if j in totals else x.stored, k)
                  for row, x in zip(rows, found, strict=True) for j, k in places]  # fmt: skip
        results = [(row, j, value(k)) for row, j, value, k in values]
        sums = {j: b.load(total, i, lanes) for j, total in totals.items()}
        for row, j, result in results:
            if j in totals:
                sums[j] = b.add(sums[j], result)
            else:
                row.cursor.store(len(e.inputs) + j, i, result, count)
        for j, total in totals.items():
            b.store(total, i, sums[j])  # whole vectors: the room is padded

    # From the end: there the row is still in the first cache, and a store does not push out an element that is yet to
    # be read where the output begins a little further into a page than the input, as allocators have it.
    whole = start + (stop - start) // lanes * lanes
    for i in b.loop(whole, stop, lanes):
        store(i, stop - i)
    for i in b.loop(start, whole, lanes):
        store(start + (whole - lanes) - i, None)


class _Row:
    """One row in one pass: what earlier passes left of it is in scratch, at its place in the group."""

    def __init__(
        self, b: Builder, d: ReduceText, cursor: Cursor, is_uniform: Sequence[bool], done: Sequence[Pass], place: Index
    ) -> None:
        self.b, self.d, self.e, self.cursor, self.uniform, self.place = b, d, d.expression, cursor, is_uniform, place
        self.kept = {k: self._keep(k) for a_pass in done for k in a_pass.keeps}
        self.reduced = dict[int, Vector]()
        # Results of reductions are stored without more ado: they are made canonical when they are made.
        given = {k: False for k, node in _nodes(self.e) if node.op in (*REDUCTIONS, "count")}
        self.scalars = values.Values(b, self.e, 1, self._scalar, given)

    def splats(self, a_pass: Pass) -> dict[int, dict[int, Vector]]:
        """What the pass needs that is one a row, by width: made before its loops, as the text says what is constant."""
        scalars = {k: self.scalars.get(k) for k in a_pass.uniforms}
        widths = {fold.lane_width(self.b), self.b.isa.lanes}
        return {w: {k: self.b.splat(v, w) for k, v in scalars.items()} for w in widths}

    def divisors(self, a_pass: Pass) -> dict[int, row_quotients.Divisor]:
        """Sums that the pass divides by, by the quotient."""
        b, found = self.b, dict[int, row_quotients.Divisor]()
        for k in row_quotients.found(self.e, b.isa.lanes):
            _, total = self.e.term(k).arguments
            if total in a_pass.uniforms:
                found[k] = row_quotients.divisor(b, self.scalars.get(total)).splat(b, b.isa.lanes)
        return found

    def store_uniforms(self) -> None:
        """Store the outputs that have one element a row."""
        places = [(len(self.e.inputs) + j, k) for j, k in enumerate(self.e.outputs) if self.uniform[k]]
        # Every load comes before the first store: an output may lie on an input.
        results = [(place, self.scalars.stored(k)) for place, k in places]
        for place, result in results:
            self._store_uniform(place, result)

    def _scalar(self, k: int) -> Vector:
        node = self.e.node(k)
        if k in self.reduced:
            return self.reduced[k]
        if node is None:
            return self.cursor.load_one(k)
        if node.op == "count":
            return self.b.from_index(self.b.index("n"), node.dtype)
        return self.b.load(self._result(k), self.place, 1)

    def _result(self, k: int) -> Pointer:
        """Where a reduction's results lie, one for each row of the group."""
        return self.b.scratch(self.e.dtype(k), self.b.index(f"result{k}"))

    def _keep(self, k: int) -> Pointer:
        start = self.b.scratch(self.e.dtype(k), self.b.index(f"keep{k}"))
        return self.b.offset(start, self.place * self.b.index("keep_elements"))

    def values(
        self,
        i: Index,
        width: int,
        count: Index | None,
        known: Mapping[int, Vector],
        divisors: Mapping[int, row_quotients.Divisor] | None = None,
        paired: bool = False,
    ) -> values.Values:
        """The expression at positions i .. i+width-1 of the row, of which some values are known, and of some quotients
        the divisor; if `paired`, in the order of `walk.PAIRED`."""
        divisors = divisors or {}
        decoded, tables = code_tables.decoded(self.e, self.d.classes), code_tables.tables(self.e)

        def load(k: int) -> Vector:
            if k in known:
                return known[k]
            if k in decoded:
                dtype = self.e.inputs[decoded[k]]
                return self.cursor.load_blocks(
                    decoded[k], i, width, count, lambda x: convert.by_table(self.b, x, dtype)
                )
            if k in divisors:
                return row_quotients.quotient(self.b, found.get(self.e.term(k).arguments[0]), divisors[k])
            if k in self.kept:
                return self.b.load(self.kept[k], i, width)
            if k in tables:
                return code_tables.looked_up(self.cursor, self.e, k, i, width, count, paired)
            return self.cursor.load(k, i, width, count)

        given = {k: values.may_need_canonical(self.e, k, self.b.isa) for k in (*known, *self.kept)} | dict.fromkeys(
            (*divisors, *decoded, *tables), False
        )
        found = values.Values(self.b, self.e, width, load, given)
        return found

    def _order(self, a_pass: Pass) -> tuple[int, ...] | None:
        """The places of the elements in lanes of whole vectors, where what a pass reduces is looked up in the order
        that is the quickest: nothing else that varies along the row may be read, but what a block of it has."""
        width, kept = fold.lane_width(self.b), set(self.kept)
        tables = set(code_tables.tables(self.e))
        targets = [self.e.term(k).arguments[0] for k in a_pass.reductions]
        read = set(needed(self.e, self.uniform, targets, tables | kept))
        codes = [self.e.term(k).arguments[0] for k in read & tables]
        others = [k for k in read if k < len(self.e.inputs) and not self.uniform[k]]
        serves = (
            bool(codes)
            and all(self.d.classes[k] == NIBBLES for k in codes)
            and all(code_tables.is_row_of(self.d.classes[k]) for k in others)
        )
        if not serves or a_pass.keeps or read & kept or width % len(PAIRED):
            return None
        return tuple(start + place for start in range(0, width, len(PAIRED)) for place in PAIRED)

    def reduce(
        self, a_pass: Pass, following: Cursor | None = None, fetched: Sequence[int] = (), is_asked_for: bool = True
    ) -> None:  # fmt: skip
        """Reduce what the pass reduces, and keep what it keeps; meanwhile fetch some operands of another row. The
        results go to scratch if a later pass asks for them."""
        b, splats = self.b, self.splats(a_pass)
        nodes = [self.e.term(k) for k in a_pass.reductions]
        kinds = [fold.kinds(node) for node in nodes]
        keeps = {k: self._keep(k) for k in a_pass.keeps}
        order = self._order(a_pass)

        def compute(i: Index, width: int, count: Index | None) -> list[Vector]:
            if following is not None:
                for k in fetched:
                    following.prefetch(k, i)
            found = self.values(i, width, count, splats[width], paired=order is not None and count is None)
            for k, room in keeps.items():
                b.store(room, i, found.get(k))  # whole vectors: the room is padded
            return [found.get(node.arguments[0]) for node, some in zip(nodes, kinds, strict=True) for _ in some]

        flat = [kind for some in kinds for kind in some]
        levels = self.d.levels if any(kind.ordered for kind in flat) else 1
        rooms = [b.scratch(kind.dtype, b.index(f"partial{j}")) for j, kind in enumerate(flat)] if levels > 1 else []
        known = self._known(a_pass)
        results = iter(fold.fold(b, flat, b.index("n"), levels, compute, rooms, order, self._ahead(), known))
        for k, node, some in zip(a_pass.reductions, nodes, kinds, strict=True):
            self.reduced[k] = self._finished(node, [next(results) for _ in some], splats)
            if is_asked_for:
                b.store(self._result(k), self.place, self.reduced[k])

    def _known(self, a_pass: Pass) -> fold.Known | None:
        """What sums blocks in integers where nothing rounds their sums."""
        value = self.d.exact
        if value is None or [self.e.term(k).arguments for k in a_pass.reductions] != [(value,)]:
            return None
        codes, scales = self.e.term(value).arguments
        ahead = self._ahead()
        assert ahead is not None  # as there are codes
        return lambda start, stop: exact_blocks.emit_sum(self.cursor, codes, scales, start, stop, ahead)

    def _ahead(self) -> Callable[[Index], None] | None:
        """What fetches codes of four bits that are read a few rows later."""
        codes = [k for k in range(len(self.e.inputs)) if self.d.classes[k] == NIBBLES]

        def ahead(i: Index) -> None:
            for k in codes:
                self.cursor.prefetch(k, i // 2 + _AHEAD)

        return ahead if codes else None

    def _finished(self, node: Term, results: list[Vector], splats: dict[int, dict[int, Vector]]) -> Vector:
        """The empty sum is +0; an extreme that its quick form leaves open is found again; NaN is canonical."""
        b, carry = self.b, [results[0]]
        if node.op == "row_sum":
            for _ in b.when(b.index("n") < 1, carry):
                carry[0] = b.constant(0, node.dtype, 1)
        elif len(results) > 1:
            value, nan = results

            def compute(i: Index, width: int, count: Index | None) -> list[Vector]:
                return [self.values(i, width, count, splats[width]).get(node.arguments[0])]

            for _ in b.when(b.any(b.bit_or(b.is_nan(nan), b.equal(value, b.like(value, 0)))), carry):
                carry[0] = fold.fold(b, [fold.exact(node)], b.index("n"), 1, compute, [])[0]
        return b.canonical(carry[0])

    def _store_uniform(self, place: int, result: Vector) -> None:
        """One element a row; along the row where the output has the whole shape."""
        if self.d.classes[place] == "same":
            self.cursor.store(place, 0, result)
            return
        for i in self.b.loop(0, self.b.index("n")):
            self.cursor.store(place, i, result)


def _nodes(e: Expression) -> list[tuple[int, Term]]:
    return [(len(e.inputs) + j, node) for j, node in enumerate(e.nodes)]
