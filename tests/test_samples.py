"""Made up inputs: seeded, within what they index, of every size where asked, and as disturbing as can be."""

import floating
import models
import numpy as np
import pytest
from onnx import TensorProto, helper

from samebits import onnx, samples

BINDINGS = {"batch": 40, "n": 40}
KINDS = {
    "f32": (TensorProto.FLOAT, np.float32),
    "f64": (TensorProto.DOUBLE, np.float64),
    "i64": (TensorProto.INT64, np.int64),
    "i8": (TensorProto.INT8, np.int8),
    "u8": (TensorProto.UINT8, np.uint8),
    "b": (TensorProto.BOOL, np.bool_),
}


@pytest.fixture
def looking_up(tmp_path):
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="look_up", axis=0)]
    inputs = {"ids": (TensorProto.INT64, ["batch", "n"])}
    outputs = {"y": (TensorProto.FLOAT, ["batch", "n", 4])}
    return onnx.load(models.save(tmp_path / "table.onnx", nodes, inputs, outputs, {"table": models.weights(3, 4)}))


@pytest.fixture
def every_kind(tmp_path):
    """An input of each kind, cast to float."""
    nodes = [helper.make_node("Cast", [name], [f"{name}_out"], to=TensorProto.FLOAT) for name in KINDS]
    inputs = {name: (kind, ["batch", "n"]) for name, (kind, _) in KINDS.items()}
    outputs = {f"{name}_out": (TensorProto.FLOAT, ["batch", "n"]) for name in KINDS}
    return onnx.load(models.save(tmp_path / "kinds.onnx", nodes, inputs, outputs))


def test_feeds_stay_within_what_they_index(looking_up):
    made = samples.feeds(looking_up, BINDINGS, 0)["ids"]
    assert made.dtype == np.int64
    assert (made.min(), made.max()) == (0, 2)


@pytest.mark.parametrize("seed", range(samples.SPREADS))
def test_wide_inputs_stay_within_what_they_index(looking_up, seed):
    made = samples.wide(looking_up, BINDINGS, seed)["ids"]
    assert (made.dtype, made.min(), made.max()) == (np.int64, 0, 2)
    for what in samples.POISONS:
        assert set(np.unique(samples.poison(looking_up, BINDINGS, what)["ids"])) <= {0, 2}


@pytest.mark.parametrize("make", [samples.feeds, samples.wide])
def test_inputs_follow_from_the_seed(every_kind, make):
    one, same, other = (make(every_kind, BINDINGS, seed) for seed in (5, 5, 6))
    for name, (_, dtype) in KINDS.items():
        assert one[name].dtype == dtype
        assert one[name].shape == (40, 40)
        assert one[name].tobytes() == same[name].tobytes()
        assert one[name].tobytes() != other[name].tobytes()


@pytest.mark.parametrize("mode", floating.MODES)
def test_inputs_are_the_same_in_every_float_environment(every_kind, mode):
    def made():
        every = [make(every_kind, BINDINGS, seed) for make in (samples.feeds, samples.wide) for seed in range(3)]
        every += [samples.poison(every_kind, BINDINGS, what) for what in samples.POISONS]
        return [x.tobytes() for inputs in every for x in inputs.values()]

    expected = made()
    with floating.environment(mode):
        found = made()
    assert found == expected


def test_wide_floats_have_every_magnitude(every_kind):
    for name, dtype in (("f32", np.float32), ("f64", np.float64)):
        near, some, every = (samples.wide(every_kind, BINDINGS, seed)[name] for seed in range(3))
        facts = np.finfo(dtype)
        for x in (near, some, every):
            assert np.isfinite(x).all()
            assert {0.0, -0.0} <= set(x[x == 0].tolist())
            assert len(set(np.signbit(x[x == 0]).tolist())) == 2
        assert np.abs(near).max() < 16
        assert np.abs(some).max() > facts.max ** (1 / 8)
        assert np.abs(some).max() < facts.max**0.5
        tiny = np.abs(every[every != 0])
        assert (tiny.min(), tiny.max()) == (facts.smallest_subnormal, facts.max)
        exponents = np.unique(np.frexp(every[every != 0])[1])
        assert len(exponents) > 200


def test_wide_integers_have_small_ones_both_ends_and_all_between(every_kind):
    for name, dtype in (("i64", np.int64), ("i8", np.int8), ("u8", np.uint8)):
        facts = np.iinfo(dtype)
        near, middle, every = (samples.wide(every_kind, BINDINGS, seed)[name] for seed in range(3))
        assert set(near.ravel().tolist()) == set(range(max(-3, facts.min), 4))
        powers = {sign << bit for sign in (-1, 1) for bit in range(facts.bits + 1)}
        assert set(middle.ravel().tolist()) <= {power + step for power in powers for step in (-1, 0, 1)} | {0}
        assert len(np.unique(middle)) > 12
        assert (every.min(), every.max()) == (facts.min, facts.max)
        assert len(np.unique(every)) > 200
    assert set(samples.wide(every_kind, BINDINGS, 2)["b"].ravel().tolist()) == {False, True}


def test_wide_integers_can_be_kept_small(every_kind):
    for seed in range(samples.SPREADS):
        made = samples.wide(every_kind, BINDINGS, seed, most=5)
        assert all(abs(made[name].astype(int)).max() <= 5 for name in ("i64", "i8", "u8"))
    poisoned = samples.poison(every_kind, BINDINGS, "largest values", most=5)
    assert set(poisoned["i64"].ravel().tolist()) == {-5, 5}


@pytest.mark.parametrize(
    ("what", "floats", "integers"),
    [
        ("NaN", {"nan"}, {-128}),
        ("infinities", {"inf", "-inf"}, {127}),
        ("largest values", {str(np.finfo(np.float32).max), str(np.finfo(np.float32).min)}, {-128, 127}),
    ],
)
def test_poison_disturbs_as_it_says(every_kind, what, floats, integers):
    made = samples.poison(every_kind, BINDINGS, what)
    assert {str(x) for x in np.unique(made["f32"])} == floats
    assert set(made["i8"].ravel().tolist()) == integers


def test_inputs_stay_within_what_they_index_where_a_symbol_says_how_much(tmp_path):
    nodes = [helper.make_node("Gather", ["x", "ids"], ["y"], axis=1)]
    inputs = {"x": (TensorProto.FLOAT, ["batch", "n"]), "ids": (TensorProto.INT64, ["n"])}
    program = onnx.load(models.save(tmp_path / "picks.onnx", nodes, inputs, {"y": (TensorProto.FLOAT, ["batch", "m"])}))
    makers = [samples.feeds, samples.wide, lambda *given: samples.poison(program, BINDINGS, samples.POISONS[1])]
    for make in makers:
        ids = [make(program, BINDINGS, seed)["ids"] for seed in range(samples.SPREADS)]
        assert np.max(ids) > 1
        assert set(np.unique(ids)) <= set(range(40))


def test_wide_inputs_have_the_numbers_that_the_model_compares_them_with(tmp_path):
    nodes = [helper.make_node("Equal", [name, f"{name}_is"], [f"{name}_out"]) for name in ("f32", "i64")]
    inputs = {name: (KINDS[name][0], ["batch", "n"]) for name in ("f32", "i64")}
    outputs = {"f32_out": (TensorProto.BOOL, [2, "batch", "n"]), "i64_out": (TensorProto.BOOL, ["batch", "n"])}
    constants = {"f32_is": np.array([0.7, -1e30], np.float32).reshape(2, 1, 1), "i64_is": np.int64(12345)}
    program = onnx.load(models.save(tmp_path / "equal.onnx", nodes, inputs, outputs, constants))
    for seed in range(samples.SPREADS):
        made = samples.wide(program, BINDINGS, seed)
        assert (made["f32"] == np.float32(0.7)).any()
        # The rows of numbers near 1 keep away from what overflows.
        assert (made["f32"] == np.float32(-1e30)).any() == (seed > 0)
        assert {12344, 12345, 12346} <= set(made["i64"].ravel().tolist())
        assert np.abs(samples.wide(program, BINDINGS, seed, most=9)["i64"].astype(float)).max() <= 9
