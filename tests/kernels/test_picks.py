"""Elements that indices name along an axis: on every row, for every layout, what NumPy gives, one after the other."""

import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import picks

EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)


@EVERY_ROW
def test_gathers_and_scatters_along_an_axis(row: Isa) -> None:
    random = np.random.default_rng(1)
    for number, (shape, axis) in enumerate((((9,), 0), ((3, 37), 1), ((4, 3, 5), 1), ((7, 3), 0), ((1, 1), 0))):
        for kind in (np.float32, np.int8) if row.compiled else (np.int16,):
            x = random.integers(0, 100, shape).astype(kind)
            x = x[::-1] if number % 2 else np.asfortranarray(x)
            wide = [extent + 3 if a == axis else max(1, extent - 1) for a, extent in enumerate(shape)]
            ids, status = random.integers(-shape[axis], shape[axis], wide), np.zeros(2, np.int64)
            out, dtype = np.empty(wide, kind), dtypes.of(x.dtype)
            plan = picks.plan_gather(dtype, *launch.layouts(x, ids, out), axis, row, 2)
            launch.run_plan(plan, [x, ids, status, out], 2)
            part = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(wide))]
            launch.assert_bits(out, np.take_along_axis(part, ids, axis), (shape, row.name))
            updates, found = random.integers(0, 100, wide).astype(kind), np.empty(shape, kind)
            plan = picks.plan_scatter(dtype, *launch.layouts(x, ids, updates, found), axis, row, 2)
            launch.run_plan(plan, [x, ids, updates, status, found], 2)
            due = x.copy()
            for place in np.ndindex(*wide):
                due[(*place[:axis], ids[place], *place[axis + 1 :])] = updates[place]
            launch.assert_bits(found, due, (shape, row.name))
            assert not status.any()


@EVERY_ROW
def test_an_index_out_of_range_is_reported(row: Isa) -> None:
    x, status, out = np.arange(4, dtype=np.int32), np.zeros(2, np.int64), np.empty(2, np.int32)
    ids = np.array([-4, 4])
    launch.run_plan(picks.plan_gather(dtypes.int32, *launch.layouts(x, ids, out), 0, row), [x, ids, status, out])
    assert status.tolist() == [1, 4]
