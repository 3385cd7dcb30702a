"""Feature vectors on the training rows' scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import Vector
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.inputs.scaling import CHUNK_ROWS, Scale
from ssmlbench.inputs.splits import Inputs, SplitInputs, StoredInputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve


def inputs_of(values: torch.Tensor) -> Inputs:
    return Inputs(values, vector_views())


def test_columns_are_standardised_by_the_training_rows_and_rows_get_one_length() -> None:
    # Columns: mean 2 and 10, deviation 1 and 5. The row (4, 10) is (2, 0) deviations away from
    # the mean, of length 2; two features mean a length of √2.
    scale = Scale.of(inputs_of(torch.tensor([[1.0, 5.0], [3.0, 15.0]])))
    assert scale(torch.tensor([[4.0, 10.0]])).tolist() == [[pytest.approx(2**0.5), 0.0]]
    # (3, 15) is (1, 1): its length is √2 already.
    assert scale(torch.tensor([[3.0, 15.0]])).tolist() == [[pytest.approx(1.0)] * 2]


def test_a_column_that_never_varies_and_a_row_at_the_mean_stay_finite() -> None:
    scale = Scale.of(inputs_of(torch.tensor([[7.0, -1.0], [7.0, 1.0]])))
    assert scale(torch.tensor([[7.0, 0.0], [7.0, 2.0]])).tolist() == [
        [0.0, 0.0],
        [0.0, pytest.approx(2**0.5)],
    ]


def test_the_scale_is_that_of_numpy_however_many_chunks_there_are() -> None:
    values = torch.randn(CHUNK_ROWS + 100, 3, generator=torch.Generator().manual_seed(0)) * 5 + 100
    scale = Scale.of(inputs_of(values))
    np.testing.assert_allclose(scale.mean, values.double().numpy().mean(0))
    np.testing.assert_allclose(scale.deviation, values.double().numpy().std(0))
    lengths = torch.linalg.vector_norm(scale(values), dim=1)
    np.testing.assert_allclose(lengths, 3**0.5, rtol=1e-5)


def test_a_rotation_keeps_distances_and_spreads_each_column_over_all() -> None:
    values = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    plain, rotated = (Scale.of(inputs_of(values), rotate) for rotate in (False, True))
    before, after = plain(values), rotated(values)
    torch.testing.assert_close(after @ after.T, before @ before.T)
    # One standardised column alone, of length √20: no entry of the rotated row has all of it.
    row = torch.zeros(1, 20)
    row[0, 3] = 1
    spread = Scale(torch.zeros(20), torch.ones(20), rotated.signs)(row)
    assert spread.norm() == pytest.approx(20**0.5)
    assert spread.abs().max() < 0.4 * 20**0.5
    assert (spread.abs() > 1e-3).sum() > 15


def test_a_rotated_row_does_not_depend_on_the_rows_beside_it() -> None:
    values = torch.randn(37, 61, generator=torch.Generator().manual_seed(1))
    scale = Scale.of(inputs_of(values), rotate=True)
    one_by_one = torch.cat([scale(row[None]) for row in values])
    assert torch.equal(scale(values), one_by_one)


def test_a_scale_is_equal_to_the_one_made_from_its_state() -> None:
    values = torch.randn(9, 4, generator=torch.Generator().manual_seed(2))
    for rotate in (False, True):
        scale = Scale.of(inputs_of(values), rotate)
        assert torch.equal(Scale(**scale.state)(values), scale(values))


def stored(values: torch.Tensor) -> SplitInputs:
    return StoredInputs(len(values), lambda rows: values[torch.from_numpy(rows)], vector_views())


def cached(values: torch.Tensor) -> SplitInputs:
    return CachedInputs({"plain": values, "weak": values, "strong": values}, 1)


class Splits(SplitLoader):
    """A loader of splits that are in memory already."""

    def __init__(self, splits: dict[str, SplitInputs]):
        spec = RunSpec("bce", "tiny", scaling="standard")
        super().__init__(spec, Vector, None, torch.device("cpu"))  # type: ignore[arg-type]
        self.splits = splits

    def unscaled(self, split: str) -> SplitInputs:
        return self.splits[split]


@pytest.mark.parametrize("kept", [inputs_of, stored, cached])
def test_test_rows_are_put_on_the_scale_of_the_training_rows(
    kept: Callable[[torch.Tensor], SplitInputs],
) -> None:
    generator = torch.Generator().manual_seed(1)
    splits = {
        "train": torch.randn(50, 4, generator=generator) * torch.tensor([1.0, 10, 100, 1000]),
        "test": torch.randn(20, 4, generator=generator) + 3,
    }
    expected = Scale.of(inputs_of(splits["train"]))
    for order in (("train", "test"), ("test", "train")):
        loader = Splits({name: kept(values) for name, values in splits.items()})
        for split in order:
            seen = loader.load(split).view(np.arange(5), "plain", generator)
            torch.testing.assert_close(seen, expected(splits[split][:5]))


def test_features_and_vectors_are_scaled_by_default_and_other_inputs_cannot_be() -> None:
    plugins = Plugins(())
    fields = {"method": "bce", "dataset": "multidigits", "pi": 0.05}
    frozen = resolve(plugins, {}, **fields, freeze=True)
    assert frozen.scaling == "standard"
    unscaled = resolve(plugins, {}, **fields, freeze=True, scaling="none")
    assert unscaled == dataclasses.replace(frozen, scaling="none")
    assert resolve(plugins, {}, **fields).scaling is None
    with pytest.raises(UserError, match="--scaling is for feature vectors"):
        resolve(plugins, {}, **fields, scaling="standard")
    with pytest.raises(UserError, match="--scaling maybe: no such choice"):
        resolve(plugins, {}, **fields, freeze=True, scaling="maybe")
