"""verify finds what depends on anything but a row's own input, says by which axis, and passes what does not."""

import json

import models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import samebits as sb
from samebits import driver, samples
from samebits.codegen import isa as isas
from samebits.kernels import fold, reduce, reduce_text, row_kernel
from samebits.runtime import cpu
from samebits.verification import rows as rows_
from samebits.verification import sizes, verify
from samebits.verification.rows import LAYOUTS

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
# Bounds the batches in which threads have something to share: the models here are small, and tests are not to wait.
SMALL = 1 << 14
BEST = isas.best().name
COMPILED = [row.name for row in isas.isas() if row.available and row.compiled]
node = helper.make_node


def program(path, nodes, inputs, outputs, constants=None):
    return sb.onnx.load(models.save(path / "model.onnx", nodes, inputs, outputs, constants))


def wrong(found):
    """What differs: axis, inputs and name."""
    return {(c.axis, c.inputs, c.name) for c in found.configurations if not c.agrees}


def wrong_axes(found):
    return {axis for axis, _, _ in wrong(found)}


def tried(found, axis):
    return next(x.values for x in found.axes if x.name == axis)


def total(name, made):
    """Nodes that sum over the batch, and the constant that they need."""
    return [node("ReduceSum", [name, "batch_axes"], [made], keepdims=1)], {"batch_axes": np.array([0], np.int64)}


# -- models that depend on nothing ------------------------------------------------------------------------------------
def test_equal_bits_everywhere_are_ok(tmp_path):
    found = sb.verify(models.classifier(tmp_path / "classifier.onnx"), interpreter=True)
    assert (found.ok, found.same, found.exit_code, found.unvaried, found.difference) == (True, True, 0, (), None)
    assert {axis.name: bool(axis.values) for axis in found.axes} == dict.fromkeys(verify.AXES, True)
    assert tried(found, "threads") == ("1", *map(str, sorted({2, 3, driver.usable_cores() + 1})))
    assert set(tried(found, "isa")) == {*COMPILED, "numpy"}
    assert tried(found, "process") == tuple(COMPILED)
    assert tried(found, "strides") == tuple(LAYOUTS)
    assert tried(found, "batch") == ("2", "3", "8", "17", "64")
    assert tried(found, "neighbours") == ("other rows", *samples.POISONS)
    first = [c for c in found.configurations if c.inputs == "sensible" and not c.name.startswith("numpy")]
    assert len({c.digest for c in first}) == 1
    assert found.verdict == f"all {len(found.configurations)} configurations that were tried gave the same bits"


def test_rows_that_lie_interleaved_are_found(tmp_path):
    found = sb.verify(program(tmp_path, *merging(quantise=False)), most_elements=SMALL)
    assert found.same
    found = sb.verify(program(tmp_path, *merging(quantise=True)), most_elements=SMALL)
    assert not found.same
    assert found.difference is not None
    assert found.difference.node == "quantise"


def merging(quantise: bool):
    """A batch that is moved behind another axis and merged into it, so that its rows lie interleaved."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2], name="move"),
        node("Reshape", ["t", "flat"], ["m"], name="merge"),
        node("Exp", ["m"], ["e"], name="exp"),
    ]
    if quantise:
        nodes += [
            node("DynamicQuantizeLinear", ["e"], ["q", "scale", "zero"], name="quantise"),
            node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="back"),
        ]
    inputs, outputs = {"x": (FLOAT, ["batch", 3, 4])}, {"y" if quantise else "e": (FLOAT, ["rows", 4])}
    return nodes, inputs, outputs, {"flat": np.array([-1, 4], np.int64)}


# -- the batch --------------------------------------------------------------------------------------------------------
def test_scale_that_spans_the_batch_is_named(tmp_path):
    found = sb.verify(sb.onnx.load(models.quantising(tmp_path / "quantising.onnx")), most_elements=SMALL)
    assert found.exit_code == 1
    assert {"batch", "neighbours"} <= wrong_axes(found)
    assert found.difference is not None
    assert (found.difference.axis, found.difference.name) == ("batch", "batches of 2")
    assert found.difference.node == "quantise"


def test_sum_over_the_batch_is_named(tmp_path):
    nodes = [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0, name="total")]
    constants = {"axes": np.array([0], np.int64)}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 4])}, {"y": (FLOAT, [4])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert found.exit_code == 1
    assert found.verdict.endswith("moved by batch (batches of 2, sensible)")
    assert "first at node total" in found.verdict


@pytest.mark.parametrize("number", [5, 12345])
def test_number_that_only_the_model_names_is_tried(tmp_path, number):
    """Whether any row has the number is added to all rows."""
    nodes = [
        node("Equal", ["x", "number"], ["found"]),
        node("Cast", ["found"], ["one"], to=FLOAT),
        node("ReduceMax", ["one"], ["any"], axes=[0], keepdims=1),
        node("Cast", ["x"], ["float"], to=FLOAT),
        node("Add", ["float", "any"], ["y"]),
    ]
    inputs, outputs = {"x": (INT64, ["batch", 4])}, {"y": (FLOAT, ["batch", 4])}
    made = program(tmp_path, nodes, inputs, outputs, {"number": np.array(number)})
    found = sb.verify(made, most_elements=SMALL)
    assert "batch" in wrong_axes(found)


def test_rows_that_pick_each_other_are_found(tmp_path):
    inputs = {"x": (FLOAT, ["batch", 4]), "rows": (INT64, ["batch"])}
    nodes = [node("Gather", ["x", "rows"], ["y"], axis=0)]
    found = sb.verify(program(tmp_path, nodes, inputs, {"y": (FLOAT, ["batch", 4])}), most_elements=SMALL)
    assert "batch" in wrong_axes(found)


def test_model_that_refuses_our_extents_says_which_to_give(tmp_path):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["n"]),
        node("Range", ["zero", "n", "one"], ["places"]),
        node("Gather", ["table", "places"], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "table": np.ones(10, np.float32)}
    value = (FLOAT, ["batch", "n"])
    made = program(tmp_path, nodes, {"x": value}, {"y": value}, constants)
    with pytest.raises(
        sb.ShapeError, match="verify: bindings is n=16 unless it is given, must be sizes that the model takes"
    ):
        sb.verify(made, most_elements=SMALL)
    assert sb.verify(made, bindings={"n": 10}, most_elements=SMALL).same


def sums_from(first, path):
    """y = x + sum(x[first:]) over the batch: nothing is mixed in batches of `first` rows."""
    summed, constants = total("late", "sum")
    nodes = [node("Slice", ["x", "from", "to", "axes"], ["late"]), *summed, node("Add", ["x", "sum"], ["y"])]
    bounds = {"from": first, "to": 2**62, "axes": 0}
    constants |= {name: np.array([value], np.int64) for name, value in bounds.items()}
    return program(path, nodes, {"x": (FLOAT, ["batch", 2])}, {"y": (FLOAT, ["batch", 2])}, constants)


@pytest.mark.parametrize("first", [17, 100, 1500])
def test_batches_go_beyond_every_bound_of_a_slice(tmp_path, first):
    found = sb.verify(sums_from(first, tmp_path), most_elements=SMALL)
    assert ("batch", "sensible", f"batches of {first + 1}") in wrong(found)
    rows = [int(name.removeprefix("batches of ")) for axis, _, name in wrong(found) if axis == "batch"]
    assert min(rows) == first + 1


def test_batches_go_beyond_what_sizes_are_compared_with(tmp_path):
    """The slice begins at the 250th element, which 126 rows of 2 have; no constant of the model says 126."""
    summed, constants = total("late", "sum")
    nodes = [
        node("Reshape", ["x", "flat"], ["elements"]),
        node("Slice", ["elements", "from", "to", "axes"], ["late"]),
        *summed,
        node("Add", ["x", "sum"], ["y"]),
    ]
    bounds = {"flat": -1, "from": 250, "to": 2**62, "axes": 0}
    constants |= {name: np.array([value], np.int64) for name, value in bounds.items()}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 2])}, {"y": (FLOAT, ["batch", 2])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert min(int(name.split()[-1]) for axis, _, name in wrong(found) if axis == "batch") == 126


def test_a_bound_that_was_not_reached_is_said(tmp_path):
    found = sb.verify(sums_from(5000, tmp_path), most_elements=2000)
    assert found.same
    assert ("batch", "sizes of the model change where batch is 5001, more than 2000 elements allow") in found.unvaried
    assert found.exit_code == 2
    assert "no sizes were tried for which a run has more than 2000 elements in all its values" in str(found)


@pytest.mark.parametrize("compare", ["Greater", "Equal"])
def test_batches_go_beyond_constants_that_a_size_is_compared_with(tmp_path, compare):
    summed, constants = total("x", "sum")
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"]),
        node(compare, ["rows", "limit"], ["many"]),
        *summed,
        node("Where", ["many", "sum", "nothing"], ["mixed"]),
        node("Add", ["x", "mixed"], ["y"]),
    ]
    constants |= {"zero": np.array(0), "limit": np.array(90), "nothing": np.zeros((), np.float32)}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 2])}, {"y": (FLOAT, ["batch", 2])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    n = 91 if compare == "Greater" else 90
    assert ("batch", "sensible", f"batches of {n}") in wrong(found)


def test_every_place_of_a_batch_is_compared(tmp_path):
    table = np.zeros((200, 1), np.float32)
    table[40:] = 1  # added to the rows by their place
    nodes = [
        node("Shape", ["x"], ["rows"], start=0, end=1),
        node("Slice", ["table", "zero", "rows", "zero"], ["places"]),
        node("Add", ["x", "places"], ["y"]),
    ]
    constants = {"table": table, "zero": np.array([0], np.int64)}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 1])}, {"y": (FLOAT, ["batch", 1])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert ("batch", "sensible", "batches of 64") in wrong(found)
    assert ("batch", "sensible", "batches of 17") not in wrong(found)


# -- inputs -----------------------------------------------------------------------------------------------------------
def test_integers_are_not_zeros_and_ones_alone(tmp_path):
    summed, constants = total("large", "sum")
    nodes = [
        node("Greater", ["n", "one"], ["more"]),
        node("Cast", ["more"], ["large"], to=FLOAT),
        *summed,
        node("Cast", ["n"], ["own"], to=FLOAT),
        node("Add", ["own", "sum"], ["y"]),
    ]
    constants |= {"one": np.array(1)}
    made = program(tmp_path, nodes, {"n": (INT64, ["batch", 3])}, {"y": (FLOAT, ["batch", 3])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert "wide" in {inputs for axis, inputs, _ in wrong(found) if axis == "batch"}
    assert "sensible" not in {inputs for axis, inputs, _ in wrong(found) if axis == "batch"}


@pytest.mark.parametrize(("compare", "limit"), [("Greater", 1e20), ("Less", -1e20), ("tiny", 1e-30)])
def test_floats_have_every_magnitude(tmp_path, compare, limit):
    summed, constants = total("flag", "sum")
    measure = node("Abs", ["x"], ["size"]) if compare == "tiny" else node("Identity", ["x"], ["size"])
    nodes = [
        measure,
        node("Less" if compare == "tiny" else compare, ["size", "limit"], ["far"]),
        node("Cast", ["far"], ["flag"], to=FLOAT),
        *summed,
        node("Add", ["x", "sum"], ["y"]),
    ]
    constants |= {"limit": np.array(limit, np.float32)}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 3])}, {"y": (FLOAT, ["batch", 3])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    batch = {inputs for axis, inputs, _ in wrong(found) if axis == "batch"}
    assert batch == {"wide"}


def test_integers_that_the_model_refuses_are_kept_to_what_it_takes(tmp_path):
    nodes = [
        node("Add", ["ids", "shift"], ["moved"]),
        node("Gather", ["table", "moved"], ["y"], name="look_up"),
    ]
    constants = {"table": models.weights(64, 2), "shift": np.array(5)}
    made = program(tmp_path, nodes, {"ids": (INT64, ["batch", 3])}, {"y": (FLOAT, ["batch", 3, 2])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert found.same
    assert tried(found, "inputs") == ("sensible", "wide")
    assert next(x.note for x in found.axes if x.name == "inputs") == (
        "integers within 16: the model refuses larger ones"
    )


def test_an_output_that_is_always_empty_is_not_shown(tmp_path):
    nodes = [
        node("Slice", ["x", "from", "to", "axes"], ["tail"]),
        node("Exp", ["x"], ["y"]),
    ]
    constants = {name: np.array([v], np.int64) for name, v in {"from": 5000, "to": 2**62, "axes": 0}.items()}
    outputs = {"y": (FLOAT, ["batch", 2]), "tail": (FLOAT, ["rest", 2])}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 2])}, outputs, constants)
    found = sb.verify(made, most_elements=2000)
    assert (found.same, found.exit_code) == (True, 2)
    assert ("outputs", "'tail' is empty at every size that was tried: not shown") in found.unvaried
    found = sb.verify(made)
    assert found.exit_code == 1
    assert ("batch", "sensible", "batches of 5001") in wrong(found)


def test_an_output_that_is_always_nan_is_not_shown(tmp_path):
    nodes = [node("Sub", ["x", "x"], ["zero"]), node("Div", ["zero", "zero"], ["y"])]
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 2])}, {"y": (FLOAT, ["batch", 2])})
    found = sb.verify(made, most_elements=SMALL)
    assert ("outputs", "'y' is NaN wherever it was tried: not shown") in found.unvaried


# -- extents ----------------------------------------------------------------------------------------------------------
def mixes_from(first, path):
    """The sum of x[:, first:] over the batch: an output without elements below that extent."""
    summed, constants = total("late", "tail")
    nodes = [node("Slice", ["x", "from", "to", "axes"], ["late"]), *summed, node("Exp", ["x"], ["y"])]
    constants |= {name: np.array([v], np.int64) for name, v in {"from": first, "to": 2**62, "axes": 1}.items()}
    outputs = {"y": (FLOAT, ["batch", "n"]), "tail": (FLOAT, [1, "rest"])}
    return program(path, nodes, {"x": (FLOAT, ["batch", "n"])}, outputs, constants)


def mixes_at(extent, path):
    """y = x + the sum over the batch, if n is that extent."""
    summed, constants = total("x", "sum")
    nodes = [
        node("Shape", ["x"], ["n"], start=1, end=2),
        node("Equal", ["n", "extent"], ["is"]),
        *summed,
        node("Where", ["is", "sum", "nothing"], ["mixed"]),
        node("Add", ["x", "mixed"], ["y"]),
    ]
    constants |= {"extent": np.array([extent]), "nothing": np.zeros((), np.float32)}
    return program(path, nodes, {"x": (FLOAT, ["batch", "n"])}, {"y": (FLOAT, ["batch", "n"])}, constants)


@pytest.mark.parametrize(
    ("make", "extent"), [(mixes_from, 40), (mixes_from, 200), (mixes_at, 1), (mixes_at, sizes.ODD), (mixes_at, 30)]
)
def test_other_extents_are_tried(tmp_path, make, extent):
    found = sb.verify(make(extent, tmp_path), most_elements=SMALL)
    at = extent + 1 if make is mixes_from else extent
    inputs = {inputs for axis, inputs, _ in wrong(found) if axis == "batch"}
    assert inputs == {f"wide, n={at}"}
    assert f"n={at}" in tried(found, "extents")


def test_extents_that_are_given_are_not_varied(tmp_path):
    found = sb.verify(mixes_from(40, tmp_path), bindings={"n": 5}, most_elements=SMALL)
    assert found.same
    assert tried(found, "extents") == ("n=5",)


def test_an_extent_beyond_the_bound_is_said(tmp_path):
    found = sb.verify(mixes_from(40, tmp_path), most_elements=1000)
    why = "sizes of the model change where n is 41, more than 1000 elements allow"
    assert ("extents", why) in found.unvaried


def test_extents_that_the_model_refuses_are_told(tmp_path):
    nodes = [
        node("Shape", ["x"], ["n"], start=1, end=2),
        node("Slice", ["table", "zero", "n", "zero"], ["places"]),
        node("Add", ["x", "places"], ["y"]),
    ]
    constants = {"table": models.weights(40), "zero": np.array([0], np.int64)}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", "n"])}, {"y": (FLOAT, ["batch", "n"])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert found.same
    assert next(x.note for x in found.axes if x.name == "extents") == "refused by the model: n=41"


# -- neighbours -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["NaN", "infinities"])
def test_neighbours_are_poisoned(tmp_path, what):
    """y = x + whether the largest of the batch is NaN, or infinite: only such a neighbour moves it."""
    test = [node("IsNaN", ["top"], ["bad"])] if what == "NaN" else [node("Equal", ["top", "infinity"], ["bad"])]
    nodes = [
        node("ReduceMax", ["x"], ["top"], axes=[0], keepdims=1),
        *test,
        node("Cast", ["bad"], ["flag"], to=FLOAT),
        node("Add", ["x", "flag"], ["y"]),
    ]
    constants = {"infinity": np.array(np.inf, np.float32)}
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", 3])}, {"y": (FLOAT, ["batch", 3])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    assert wrong(found) == {("neighbours", inputs, f"each between {what}") for inputs in ("sensible", "wide")}
    assert found.difference is not None
    assert found.difference.axis == "neighbours"


def test_neighbours_have_integers_at_both_ends(tmp_path):
    """y = n + how many rows of the batch are the least int64."""
    summed, constants = total("flag", "sum")
    nodes = [
        node("Equal", ["n", "least"], ["is"]),
        node("Cast", ["is"], ["flag"], to=FLOAT),
        *summed,
        node("Cast", ["n"], ["own"], to=FLOAT),
        node("Add", ["own", "sum"], ["y"]),
    ]
    constants |= {"least": np.array(-(2**63))}
    made = program(tmp_path, nodes, {"n": (INT64, ["batch", 1])}, {"y": (FLOAT, ["batch", 1])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    names = {name for axis, inputs, name in wrong(found) if (axis, inputs) == ("neighbours", "sensible")}
    assert names == {"each between NaN", "each between largest values"}


# -- threads, rows, strides, processes: the program is right, and something below it is not ---------------------------
def _thirty_two_lanes(b, d):
    """The text of row reductions with the wrong number of lanes."""
    kept, fold.LANES = fold.LANES, 32
    try:
        reduce_text.text(b, d)
    finally:
        fold.LANES = kept


@pytest.fixture
def softmax(tmp_path):
    return sb.onnx.load(models.classifier(tmp_path / "classifier.onnx"))


@pytest.fixture
def break_softmax(monkeypatch):
    """Says for which Isa row and threads the reductions of softmax are planned with the wrong number of lanes."""
    plan = reduce.plan.__wrapped__

    def broken(when):
        def planned(expression, inputs, outputs, axes, isa, threads=1):
            with monkeypatch.context() as patch:
                if when(isa, threads):
                    patch.setattr(row_kernel, "text", _thirty_two_lanes)
                return plan(expression, inputs, outputs, axes, isa, threads)

        monkeypatch.setattr(reduce, "plan", planned)

    return broken


@pytest.mark.parametrize("row", [row for row in COMPILED if row != BEST])
def test_kernel_that_differs_on_one_row_is_caught(softmax, break_softmax, row):
    break_softmax(lambda isa, threads: isa.name == row)
    found = sb.verify(softmax, most_elements=SMALL)
    assert wrong(found) == {("isa", inputs, row) for inputs in ("sensible", "wide")}
    assert found.difference is not None
    assert (found.difference.axis, found.difference.node) == ("isa", "softmax")


def test_kernel_that_differs_between_threads_is_caught(softmax, break_softmax):
    break_softmax(lambda isa, threads: threads > 1)
    found = sb.verify(softmax)
    assert wrong_axes(found) == {"threads"}
    counts = {name.partition(" ")[0] for _, _, name in wrong(found)}
    assert counts == {str(n) for n in (2, 3, driver.usable_cores() + 1)}
    assert found.difference is not None
    assert found.difference.node == "softmax"


def spoil(monkeypatch, when):
    """Every output of a session is one off where `when(session, inputs)` says so."""
    run = cpu.Session.run

    def spoiled(self, given, outputs=None):
        made = run(self, given, outputs)
        return {name: x + 1 for name, x in made.items()} if when(self, given) else made

    monkeypatch.setattr(cpu.Session, "run", spoiled)


@pytest.mark.parametrize("threads", sorted({2, 3, driver.usable_cores() + 1}))
def test_every_thread_count_is_run(softmax, monkeypatch, threads):
    spoil(monkeypatch, lambda session, given: session.threads == threads)
    found = sb.verify(softmax)
    assert wrong_axes(found) == {"threads"}
    assert {name.partition(" ")[0] for _, _, name in wrong(found)} == {str(threads)}
    assert found.difference is None
    assert "at no single node when run again, moved by threads" in found.verdict


def test_more_threads_than_cores_are_run(softmax, monkeypatch):
    monkeypatch.setattr(driver, "usable_cores", lambda: 5)
    spoil(monkeypatch, lambda session, given: session.threads == 6)
    found = sb.verify(softmax)
    assert tried(found, "threads") == ("1", "2", "3", "6")
    assert {name.partition(" ")[0] for _, _, name in wrong(found)} == {"6"}


def test_threads_that_share_nothing_are_not_varied(tmp_path):
    found = sb.verify(sb.onnx.load(models.fixed(tmp_path / "fixed.onnx")))
    why = "not varied: no step has enough to do to be shared, within the sizes that were tried"
    assert ("threads", why) in found.unvaried
    assert tried(found, "threads") == ()


def test_thread_counts_share_steps(softmax):
    found = sb.verify(softmax)
    names = [c.name for c in found.configurations if c.axis == "threads" and c.inputs == "sensible"]
    assert all(" threads share 2 steps of " in name for name in names)
    rows = int(names[0].split(" of ")[1].split()[0])
    shared = {n: cpu.prepare(softmax, threads=n).shared_steps({"batch": rows}) for n in (1, 2, 3)}
    assert shared == {1: 0, 2: 2, 3: 2}


@pytest.mark.parametrize(
    ("layout", "when"),
    [
        ("every axis reversed", lambda x: x.strides[0] < 0),
        ("every second element of every axis", lambda x: x.strides[-1] == 8),
        ("the first axis fastest", lambda x: x.strides[0] == 4),
        ("one element off", lambda x: x.flags.c_contiguous and x.ctypes.data % 16 == 4),
    ],
)
def test_every_layout_of_inputs_is_run(softmax, monkeypatch, layout, when):
    spoil(monkeypatch, lambda session, given: len(given["x"]) > 1 and when(given["x"]))
    found = sb.verify(softmax, most_elements=SMALL)
    assert wrong(found) == {("strides", inputs, layout) for inputs in ("sensible", "wide")}


@pytest.mark.parametrize("row", COMPILED)
def test_second_process_runs_every_row(tmp_path, monkeypatch, row):
    start = driver.start_python
    monkeypatch.setattr(
        driver, "start_python", lambda module, *rest, **options: start("spoiled_process", *rest, **options)
    )
    monkeypatch.setenv("SPOILED_ROW", row)
    found = sb.verify(models.classifier(tmp_path / "classifier.onnx"), most_elements=SMALL)
    assert wrong(found) == {("process", inputs, f"a second process, {row}") for inputs in ("sensible", "wide")}


def test_second_process_that_ends_is_an_axis_that_could_not_be_varied(tmp_path, monkeypatch):
    start = driver.start_python
    monkeypatch.setattr(driver, "start_python", lambda module, *rest, **options: start("nonesuch", *rest, **options))
    found = sb.verify(models.classifier(tmp_path / "classifier.onnx"), most_elements=SMALL)
    assert found.same
    (why,) = [why for axis, why in found.unvaried if axis == "process"]
    assert why.startswith("it ended with code 1 and said: ")
    assert why.endswith("No module named nonesuch")
    assert tried(found, "process") == ()


def test_names_that_numpy_keeps_for_itself_reach_the_second_process(tmp_path):
    nodes = [node("Exp", ["file"], ["allow_pickle"], name="exp")]
    path = models.save(
        tmp_path / "m.onnx", nodes, {"file": (FLOAT, ["batch", 4])}, {"allow_pickle": (FLOAT, ["batch", 4])}
    )
    found = sb.verify(path, most_elements=SMALL)
    assert found.same
    assert tried(found, "process") == tuple(COMPILED)


# -- what is refused, and what is said --------------------------------------------------------------------------------
def test_what_cannot_be_varied_is_exit_code_2(tmp_path):
    found = sb.verify(sb.onnx.load(models.fixed(tmp_path / "fixed.onnx")))
    assert found.exit_code == 2
    assert dict(found.unvaried) == {
        "batch": "not varied: no symbol is the first axis of every input, and only that",
        "threads": "not varied: no step has enough to do to be shared, within the sizes that were tried",
        "process": "not varied: a Program has no file that another process could load",
    }


def test_symbol_on_two_axes_of_an_input_is_no_batch(tmp_path):
    nodes = [node("Exp", ["x"], ["y"], name="exp")]
    found = sb.verify(program(tmp_path, nodes, {"x": (FLOAT, ["n", "n"])}, {"y": (FLOAT, ["n", "n"])}))
    assert dict(found.unvaried)["batch"] == "not varied: no symbol is the first axis of every input, and only that"


def test_a_row_that_is_refused_beside_others_is_a_difference(tmp_path):
    """The index of every row is the sum over the batch: alone it is one of the table's, together it is not."""
    summed, constants = total("ids", "sum")
    nodes = [node("Cast", ["n"], ["ids"], to=FLOAT), *summed, node("Cast", ["sum"], ["at"], to=INT64)]
    nodes += [node("Gather", ["table", "at"], ["y"])]
    constants |= {"table": models.weights(2, 3)}
    made = program(tmp_path, nodes, {"n": (BOOL, ["batch", 1])}, {"y": (FLOAT, [1, 1, 3])}, constants)
    found = sb.verify(made, most_elements=SMALL)
    refused = {(c.axis, c.inputs, c.name) for c in found.configurations if c.digest == "refused"}
    assert ("batch", "sensible", "batches of 17") in refused
    assert refused <= wrong(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"bindings": {"batch": 3}},
            "bindings symbol is 'batch' (3), must be one of ['n']; leave it out, verify varies it",
        ),
        ({"bindings": {"m": 3}}, "bindings symbol is 'm' (3), must be one of ['n']; see samebits dump"),
        ({"bindings": {"n": -1}}, "bindings extent of 'n' is -1, must be an integer in [0, 2**63); give a size"),
        ({"bindings": {"n": True}}, "bindings extent of 'n' is True, must be an integer in [0, 2**63); give a size"),
        ({"bindings": 5}, "bindings type is int, must be Mapping; write {'H': 224} for a symbol H"),
        ({"most_elements": 0}, "most_elements is 0, must be an integer from 1 on; leave it out for what takes seconds"),
    ],
)  # fmt: skip
def test_options_are_checked(tmp_path, options, said):
    nodes = [node("Exp", ["x"], ["y"], name="exp")]
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", "n"])}, {"y": (FLOAT, ["batch", "n"])})
    with pytest.raises(sb.OptionError) as caught:
        sb.verify(made, **options)
    assert str(caught.value) == f"verify: {said}"


def test_sizes_that_no_array_has_are_told(tmp_path):
    nodes = [node("Exp", ["x"], ["y"], name="exp")]
    made = program(tmp_path, nodes, {"x": (FLOAT, ["batch", "n", "m"])}, {"y": (FLOAT, ["batch", "n", "m"])})
    with pytest.raises(MemoryError) as caught:
        sb.verify(made, bindings={"n": 2**40, "m": 2**40})
    shape = (1, 2**40, 2**40)
    assert str(caught.value) == (
        f"made-up inputs: input 'x' shape is {shape}, must be fewer than 2**60 elements; give smaller sizes"
    )


def test_the_batch_symbol_of_a_model_without_others_is_refused(softmax):
    with pytest.raises(sb.OptionError) as caught:
        sb.verify(softmax, bindings={"batch": 3})
    expected = "left out: the model has no other symbol; leave it out, verify varies it"
    assert str(caught.value) == f"verify: bindings symbol is 'batch' (3), must be {expected}"


def test_a_model_is_given_in_every_form(tmp_path):
    path = models.classifier(tmp_path / "classifier.onnx")
    whole = onnx.load(path)
    with path.open("rb") as file:
        opened = [verify._opened(form, {}) for form in (path, str(path), path.read_bytes(), whole, file)]
    assert len({made.digest() for made, *_ in opened}) == 1
    assert [type(source) for _, source, _ in opened] == [type(path), type(path), bytes, bytes, bytes]
    found = sb.verify(whole, most_elements=SMALL)
    assert tried(found, "process") == tuple(COMPILED)
    assert found.same


def test_what_is_no_model_is_refused():
    with pytest.raises(sb.ModelError, match="source is int, must be a path"):
        sb.verify(5)


def test_a_wrong_first_batch_is_not_hidden_by_a_later_one(softmax, monkeypatch):
    first = samples.feeds(softmax, {"batch": 1}, 0)["x"]
    stack = rows_.stack

    def spoiled(made, batch, together):
        stacked = stack(made, batch, together)
        if len(together) == 3 and together[0]["x"].tobytes() == first.tobytes():
            stacked["x"][0, 0] += 1
        return stacked

    monkeypatch.setattr(rows_, "stack", spoiled)
    assert wrong(sb.verify(softmax, most_elements=SMALL)) == {("batch", "sensible", "batches of 3")}


def test_the_result_is_a_value_that_json_has(softmax):
    found = sb.verify(softmax, most_elements=SMALL)
    assert isinstance(found, sb.Verification)
    assert found == sb.verify(softmax, most_elements=SMALL)
    with pytest.raises(sb.FrozenError):
        found.difference = None
    made = json.loads(json.dumps(found.as_dict()))
    assert (made["ok"], made["same"], made["exit_code"]) == (found.ok, found.same, found.exit_code)
    assert {axis["name"]: axis["tried"] for axis in made["axes"]} == {x.name: len(x.values) for x in found.axes}
    assert len(made["configurations"]) == len(found.configurations)
