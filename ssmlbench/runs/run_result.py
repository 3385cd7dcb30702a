"""Finished runs as objects for Python and notebooks: metrics, scores, history, folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ssmlbench.core.csv_cells import cell_text
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import CONVENTIONS, METRICS
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.metric_values import Unavailable, metric_value
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    import pandas as pd


class RunResult:
    """One finished run. Files are read when they are first needed."""

    def __init__(self, run: Finished):
        self._run = run

    @property
    def spec(self) -> RunSpec:
        """Everything that can change the run's number, with every default filled in."""
        return self._run.spec

    @property
    def folder(self) -> Path:
        """The folder with the run's files."""
        return self._run.folder

    def metrics(
        self, decision: str = "calibrated", convention: str = "default"
    ) -> dict[str, float]:
        """Return the metrics on the test set, by key (`map`, `micro_f1`, …), under a decision rule.

        convention: `default`, or `released` (labels without a test positive count 0). Metrics that
        were added after the run was made are computed from its scores, if those are stored.
        """
        if decision not in RULES:
            raise UserError(f"decision {decision!r}: no such rule.{did_you_mean(decision, RULES)}")
        if convention not in CONVENTIONS:
            close = did_you_mean(convention, CONVENTIONS)
            raise UserError(f"convention {convention!r}: no such convention.{close}")
        if self.spec.judged_on == "nothing":
            return {}
        values, reasons = {}, {}
        for key, metric in METRICS.items():
            try:
                values[key] = metric_value(self._run, key, decision, convention)
            except Unavailable as error:
                reasons[metric.uses_decision] = str(error)
        if not any(METRICS[key].uses_decision for key in values) and True in reasons:
            raise UserError(f"decision {decision!r}: {reasons[True]}")
        return values

    def per_label(self) -> pd.DataFrame:
        """Return support, precision, recall, F1, AP and threshold of each label (calibrated)."""
        import pandas as pd

        found = self._run.per_label
        if found is None:
            raise UserError(
                f"{self.folder} has no results per label: it was judged on nothing, or made before they "
                "were stored"
            )
        columns = {name: values for name, values in found.items() if name != "rule"}
        return pd.DataFrame(columns).set_index("label")

    @property
    def cost(self) -> dict[str, float]:
        """The cost of the run: `seconds`, `seconds_per_epoch`, `peak_memory_mb`."""
        return dict(self._run.result["cost"])

    @property
    def notes(self) -> list[str]:
        """Remarks that a reader of the numbers must know, e.g. bad rows that were left out."""
        return list(self._run.result.get("notes", ()))

    @cached_property
    def scores(self) -> StoredScores:
        """The scores of the test rows, their true labels, and the decision rules' parameters."""
        try:
            return StoredScores.read(self.folder)
        except FileNotFoundError as error:
            raise UserError(
                f"{error.filename or self.folder} is missing: the run's scores were deleted or not "
                "copied"
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(str(error)) from None

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row for each epoch: losses, seconds, and how good the pseudo-labels were."""
        import pandas as pd

        file = self.folder / "history.csv"
        if not file.is_file():
            raise UserError(f"{file} is missing: the run's history was deleted or not copied")
        RunFolder(self.folder).verify(file.name)
        return pd.read_csv(file).rename(columns=cell_text)

    def __repr__(self) -> str:
        return f"<RunResult {self.spec}: {_shown(self.metrics())}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(key)}</td><td>{value:.4f}</td></tr>"
            for key, value in self.metrics().items()
        )
        return f"<p><b>{escape(str(self.spec))}</b> (calibrated)</p><table>{rows}</table>"


class RunResults(Sequence[RunResult]):
    """The finished runs of a grid, in the order of the request, and those that failed."""

    def __init__(self, runs: Iterable[RunResult], failed: Iterable[tuple[RunSpec, str]] = ()):
        self._runs = tuple(runs)
        self.failed = tuple(failed)
        """The runs that failed, each with the reason."""

    @overload
    def __getitem__(self, index: int) -> RunResult: ...

    @overload
    def __getitem__(self, index: slice) -> RunResults: ...

    def __getitem__(self, index: int | slice) -> RunResult | RunResults:
        return RunResults(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def to_pandas(self, decision: str = "calibrated", convention: str = "default") -> pd.DataFrame:
        """Return one row for each run: method, data set, regime, its number, seed, the metrics."""
        import pandas as pd

        return pd.DataFrame.from_records(
            [
                {
                    "method": run.spec.variant,
                    "dataset": run.spec.dataset,
                    "regime": run.spec.regime,
                    "level": run.spec.regime_number,
                    "seed": run.spec.seed,
                    **run.metrics(decision, convention),
                }
                for run in self
            ]
        )

    def __repr__(self) -> str:
        lines = [f"  {run.spec}: {_shown(run.metrics())}" for run in self]
        lines += [f"  {spec}: failed: {text}" for spec, text in self.failed]
        return "\n".join([f"<RunResults, {len(self)} runs", *lines]) + ">"

    def _repr_html_(self) -> str:
        return str(self.to_pandas().to_html(index=False, float_format=lambda v: f"{v:.4f}"))


def _shown(metrics: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.4f}" for key, value in metrics.items())
