"""Compares the statistics of a prepared data set with the published ones."""

from __future__ import annotations

from dataclasses import dataclass

from ssmlbench.data.adapter import PublishedStatistics
from ssmlbench.data.task import Card

MEAN_TOLERANCE = 0.01
"""Published means are rounded to two digits, some of them twice."""


@dataclass(frozen=True)
class Statistic:
    """One statistic of a data set, here and as published."""

    name: str
    published: str
    here: str
    same: bool | None  # None where nothing was published

    def __str__(self) -> str:
        return f"{self.name}: {self.here} here, {self.published} published"


def compare_statistics(card: Card, published: PublishedStatistics | None) -> list[Statistic]:
    """The statistics of a prepared data set beside those that were published."""
    here = {
        "train": card.rows["train"],
        "test": card.rows.get("test", 0),
        "labels": len(card.label_names),
    }
    lines = []
    for field, value in here.items():
        stated = getattr(published, field, None)
        name = field if field == "labels" else f"{field} rows"
        same = None if stated is None else stated == value
        shown = "not found" if stated is None else f"{stated:,}"
        lines.append(Statistic(name, shown, f"{value:,}", same))
    mean, stated = card.mean_labels(), getattr(published, "mean_labels", None)
    same = None if stated is None else abs(stated - mean) <= MEAN_TOLERANCE
    shown = "not found" if stated is None else f"{stated:.2f}"
    return [*lines, Statistic("labels a row", shown, f"{mean:.3f}", same)]


def differences_to_published(card: Card, published: PublishedStatistics | None) -> list[str]:
    """One line for each way in which the data set is not the published one."""
    found = [str(each) for each in compare_statistics(card, published) if each.same is False]
    return found + [
        f"{count:,} rows were skipped when it was prepared ({kind})"
        for kind, count in card.skipped.items()
    ]
