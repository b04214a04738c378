"""Errors carry their facts, and are worded last."""

import pickle

import pytest

from samebits import errors

FACTS = ("matmul", "b", "extent 0", 3, 4, "pass b of shape [4, N]")
CLASSES = sorted(
    (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.SamebitsError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_carries_its_fields_and_says_them_in_one_sentence(kind: type[errors.SamebitsError]) -> None:
    error = kind(*FACTS)
    assert (error.call, error.operand, error.fact, error.actual, error.expected, error.remedy) == FACTS
    assert str(error) == "matmul: b extent 0 is 3, must be 4; pass b of shape [4, N]"


@pytest.mark.parametrize("kind", CLASSES)
def test_a_renamed_error_keeps_its_class_and_its_other_fields(kind: type[errors.SamebitsError]) -> None:
    renamed = kind(*FACTS).renamed("linear", "weight")
    assert type(renamed) is kind
    assert str(renamed) == "linear: weight extent 0 is 3, must be 4; pass b of shape [4, N]"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_a_pickle(kind: type[errors.SamebitsError]) -> None:
    error = kind(*FACTS)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_the_problems_of_an_unsupported_model_stand_below_its_sentence() -> None:
    error = errors.UnsupportedModelError("load", "model", "", "a", "b", "c", ("node 'x': no", "node 'y': no"))
    assert str(error) == "load: model is a, must be b; c\n  node 'x': no\n  node 'y': no"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error.renamed("run", "it")) == "run: it is a, must be b; c\n  node 'x': no\n  node 'y': no"


def test_a_number_of_too_many_digits_is_no_error_of_its_own() -> None:
    error = errors.OptionError("f", "n", "", 10**5000, "small", "take less")
    assert str(error) == "f: n is a number of too many digits to show, must be small; take less"


def test_of_a_very_long_part_of_a_sentence_the_middle_is_left_out() -> None:
    """The error has it whole."""
    name, cut = "a" * 600 + "z" * 400 + "b" * 600, "a" * 500 + "... (1600 characters) ..." + "b" * 500
    error = errors.ModelError("load", name, "", name, name, "shorten it")
    assert str(error) == f"load: {cut} is {cut}, must be {cut}; shorten it"
    assert error.operand == error.actual == name
    whole = "a" * 1000
    assert str(errors.ModelError("load", whole, "", 3, whole, "do")) == f"load: {whole} is 3, must be {whole}; do"
    several = errors.UnsupportedModelError(*FACTS, problems=("node 'm'", name))
    assert str(several).splitlines()[1:] == ["  node 'm'", f"  {cut}"]
