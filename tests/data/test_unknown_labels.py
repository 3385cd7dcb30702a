"""Labels that the data set itself does not know: stored, counted, and never taken for negatives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import BadRow, DatasetAdapter, Row, prepare
from ssmlbench.data.label_lists import label_list
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.resolve import check_labels, resolve

pytestmark = pytest.mark.usefixtures("empty_cache")


class Partly(DatasetAdapter):
    """Three labels; of some training rows not all of them, or none, are known."""

    name = "partly"
    kind = "vector"
    backbone = "vector"
    training = (
        Row([1.0], (0, 2), id="first"),
        Row([2.0], ()),
        Row([3.0], None),
        Row([4.0], (1,), unknown=(0,)),
        Row([5.0], (), unknown=(0, 1, 2), where="file line 5"),
    )
    judged: tuple[Row, ...] = (Row([6.0], (1,)),)

    def label_names(self) -> list[str]:
        return ["a", "b", "c"]

    def splits(self) -> tuple[str, ...]:
        return ("train", "test") if self.judged else ("train",)

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        return iter(self.training if split == "train" else self.judged)


def test_unknown_labels_are_minus_one_and_are_counted() -> None:
    task = prepare(Partly())
    assert task.truth("train").tolist() == [
        [1, 0, 1],
        [0, 0, 0],
        [-1, -1, -1],
        [-1, 1, 0],
        [-1, -1, -1],
    ]
    assert task.truth("test").tolist() == [[0, 1, 0]]
    assert task.truth("train").dtype == np.int8
    card = task.card
    assert (card.labelled, card.partly_labelled, card.unlabelled) == (
        {"train": 2, "test": 1},
        {"train": 1, "test": 0},
        {"train": 2, "test": 0},
    )
    assert card.positives == {"train": [1, 1, 1], "test": [0, 1, 0]}
    assert card.mean_labels("train") == 3 / 3  # of the rows about which something is known
    assert task.ids("train") == [
        "first",
        "train row 2",
        "train row 3",
        "train row 4",
        "file line 5",
    ]


def test_no_label_and_not_known_are_two_data_sets() -> None:
    class Known(Partly):
        """The same rows, where what is unknown above is negative."""

        training = tuple(Row(r.input, r.labels or (), id=r.id) for r in Partly.training)

    assert prepare(Partly()).card.fingerprint != prepare(Known(), overwrite=True).card.fingerprint


@pytest.mark.parametrize("row", [Row([6.0], None), Row([6.0], (1,), unknown=(0,))])
def test_a_test_row_must_be_fully_labelled(row: Row) -> None:
    class Unjudged(Partly):
        """One test row cannot be judged."""

        judged = (*Partly.judged, row)

    with pytest.raises(
        UserError, match=r"test row 2: a test row must be labelled.*\n.*`unlabelled"
    ):
        prepare(Unjudged())
    assert prepare(Unjudged(), skip_bad=True).card.rows["test"] == 1


@pytest.mark.parametrize(
    ("positive", "unknown"), [((3,), ()), ((), (3,)), ((-1,), ()), ((1,), (1,))]
)
def test_positions_that_make_no_sense_are_refused(
    positive: tuple[int, ...], unknown: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="label position"):
        label_list(positive, unknown, 3)


@pytest.mark.parametrize("regime", [name for name in REGIMES if not REGIMES[name].as_given])
def test_a_regime_that_hides_labels_asks_for_given(regime: str) -> None:
    class Unjudged(Partly):
        """All labels are known, but there is no test split."""

        name = "unjudged"
        training = Partly.training[:2]
        judged = ()

    for adapter in (Partly(), Unjudged()):
        with pytest.raises(UserError, match="--regime given"):
            check_labels(prepare(adapter).card, REGIMES[regime])


def test_a_run_is_refused_before_it_is_planned() -> None:
    plugins = Plugins()
    plugins.add(Partly)
    with pytest.raises(UserError, match="2 training rows are unlabelled and 1 partly labelled"):
        resolve(plugins, {}, method="bce", dataset="partly", pi=0.5)
