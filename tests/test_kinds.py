"""Any array in, the same kind of array out."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from samebits.kinds import kind_of, narrow_storage, to_kind
from samebits.tensor import Tensor


def test_the_kind_is_that_of_the_array() -> None:
    assert kind_of(Tensor.zeros((2,))) == "tensor"
    for x in (np.zeros(2), np.float32(1), 1.5, [1, 2], (True,)):
        assert kind_of(x) == "numpy"
    for x in (torch.zeros(2), torch.nn.Parameter(torch.zeros(2))):
        assert kind_of(x) == "torch"
    assert kind_of(jnp.zeros(2)) == "jax"

    class Exporter:
        def __dlpack__(self) -> object:
            return None

    assert kind_of(Exporter()) == "tensor"


def test_narrow_elements_lie_as_their_kind_of_array_has_them() -> None:
    assert [narrow_storage(kind) for kind in ("tensor", "torch", "numpy", "jax")] == ["packed"] * 2 + ["padded"] * 2


def test_a_result_is_the_kind_asked_for_and_shares_memory() -> None:
    t = Tensor.zeros((2, 3))
    assert to_kind(t, "tensor") is t
    assert isinstance(to_kind(t, "numpy"), np.ndarray)
    assert to_kind(t, "numpy").__array_interface__["data"][0] == t.address
    assert isinstance(to_kind(t, "torch"), torch.Tensor)
    assert to_kind(t, "torch").data_ptr() == t.address
    assert isinstance(to_kind(t, "jax"), jax.Array)
    assert to_kind(t, "jax").unsafe_buffer_pointer() == t.address
