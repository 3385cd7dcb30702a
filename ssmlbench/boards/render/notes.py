"""The notes below the tables of a board. No number is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ssmlbench.boards.board import Board
from ssmlbench.boards.columns import Column
from ssmlbench.core.counts import and_more, counted, first_of
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import CONVENTIONS
from ssmlbench.protocol.regimes import REGIMES

OTHER_DATA = "§"
"""Marks a data set that is not the one that papers describe."""
MOST_LISTED = 6
"""Cells and runs that a note lists."""


def marked_dataset(dataset: str, other: bool) -> str:
    """The name of a data set in a heading. other: whether it is not the published data."""
    return f"{dataset} {OTHER_DATA}" if other else dataset


def rule_mark(decision: str, metric: Column) -> str:
    """The decision rule's mark, at the metrics that it feeds."""
    return RULES[decision].mark if metric.uses_decision else ""


def rule_text(decision: str) -> str:
    """The footnote on the decision rule, with its mark."""
    rule = RULES[decision]
    return f"{rule.mark} {rule.text}".lstrip()


def footnotes(board: Board) -> list[str]:
    """The notes that a reader of the numbers needs."""
    notes = data_notes(board)
    if any(metric.uses_decision for metric in board.metrics):
        notes.append(f"{rule_text(board.decision)}.")
    if board.selection == "oracle":
        notes.append("† the epoch was selected on the test set (oracle).")
    if board.selection == "val":
        notes.append("The epoch was selected on held-out labelled rows (val).")
    if board.setting["judged_on"] == "held-out":
        notes.append("Trials of a study, judged on held-out labelled rows: not on the test set.")
    if CONVENTIONS[board.convention]:
        notes.append(CONVENTIONS[board.convention])
    over = (
        f"{board.setting['folds']} folds of the labelled rows"
        if board.setting["folds"]
        else "seeds"
    )
    notes.append(f"{setting_text(board)}; mean ± std over {over}; rows by average rank.")
    if any(cell.interval for row in board.rows for cell in row.cells.values()):
        notes.append(
            "In brackets: 95 % bootstrap interval of the mean over test rows (the luck of the test set, "
            "not of training)."
        )
    notes += _learner_notes(board)
    notes += _version_notes(board)
    if note := tuning_note(board):
        notes.append(note)
    for kind, counts in board.mixed.items():
        parts = ", ".join(f"{name}: {counted(count, 'run')}" for name, count in counts.items())
        notes.append(f"Warning: the runs were made with different {kind} ({parts}).")
    if cells := board.mixed_cells:
        listed = ", ".join(cells[:MOST_LISTED]) + and_more(cells, MOST_LISTED)
        notes.append(f"Warning: devices differ within one mean: {listed}.")
    if cells := board.repeated_seeds:
        listed = "; ".join(cells[:MOST_LISTED]) + and_more(cells, MOST_LISTED)
        notes.append(
            f"Warning: several runs of one seed count in one mean: {listed}; "
            "`ssmlbench runs list` tells them apart."
        )
    notes += [f"Not available: {line}." for line in board.unavailable]
    if board.diverged:
        notes.append(f"Diverged, without scores: {'; '.join(board.diverged)}.")
    if board.missing:
        listed = "; ".join(board.missing[:MOST_LISTED]) + and_more(board.missing, MOST_LISTED)
        notes.append(f"Missing: {listed}.")
    return notes


def data_notes(board: Board) -> list[str]:
    """The differences of the data to those that papers describe."""
    if not board.unlike_published:
        return []
    facts = "; ".join(board.unlike_published)
    return [f"{OTHER_DATA} Warning: not the published {board.dataset} ({facts})."]


def _learner_notes(board: Board) -> list[str]:
    """Notes on the training rows of each row, on estimators, and on the comparison."""
    notes = []
    uses = [row.uses for row in board.rows]
    if REGIMES[board.regime].has_unlabelled_rows and "labelled rows" in uses:
        others = "use both pools" if all(uses) else "use both pools or are old"
        notes.append(f"° learns from labelled rows only; the other rows {others}.")
    if estimators := sorted(row.name for row in board.rows if row.is_estimator):
        notes.append(
            f"Fitted in one call, without the options of training: {', '.join(estimators)}; their "
            "s/epoch is the whole fit."
        )
    if note := _difference_note(board):
        notes.append(note)
    return notes


def _difference_note(board: Board) -> str:
    """A note on the table of differences to the baseline; empty if there is none."""
    differences = [d for row in board.rows for d in row.differences.values()]
    if board.compared is None or not differences:
        return ""
    unit = "fold" if board.setting["folds"] else "seed"
    text = f"Last table: {board.compared.title} less that of the row named, paired by {unit}"
    if any(d.interval for d in differences):
        text += ", with a 95 % t interval"
        if unit == "fold":
            text += (
                ", its variance corrected for the training rows that folds share (Nadeau and Bengio, "
                "2003)"
            )
    if any(d.interval is None for d in differences):
        text += f"; no interval with fewer than 3 common {unit}s"
    if any(d.over_rows for d in differences):
        text += "; in braces a 95 % bootstrap interval over test rows"
    return f"{text}."


def _version_notes(board: Board) -> list[str]:
    """Notes on rows of older code, and on hidden versions."""
    notes = []
    if older := [row for row in board.rows if row.version]:
        newest = {row.variant for row in board.rows if not row.version}
        alone = sorted({row.variant for row in older} - newest)
        text = "@ marks rows of older code, with its digest and the day of its last run"
        text += f"; the newest code has no run here: {', '.join(alone)}" if alone else ""
        notes.append(f"{text}.")
    if board.hidden:
        runs = sum(board.hidden.values())
        rows = f"{counted(len(board.hidden), 'row')} of older code"
        names = first_of(list(board.hidden), 4)
        notes.append(
            f"Hidden: {rows}, {counted(runs, 'run')} ({names}); --versions all shows them."
        )
    return notes


def tuning_note(board: Board) -> str:
    """A note on the tuning of rows, if any was tuned; a warning if their budgets differ."""
    budgets = board.budgets
    if set(budgets) <= {0}:
        return ""
    if len(budgets) == 1:
        (trials,) = budgets
        return f"Tuned, learning rate included: {trials} trials each on held-out labelled rows."
    parts = [
        f"{f'{trials} trials' if trials else 'not tuned'}: {', '.join(names)}"
        for trials, names in budgets.items()
    ]
    return f"Warning: the tuning budgets are not equal ({'; '.join(parts)})."


def setting_text(board: Board) -> str:
    """The common setting of the runs of a board, in one line."""
    setting = board.setting
    if setting["epochs"] is None:  # estimators alone
        return f"{_encoder_text(setting)}, {setting['split']} split"
    precision = "" if (kind := setting["precision"]) == RunSpec.precision else f"{kind}, "
    precision += "--fast, " if setting["fast"] else ""
    steps = f" of {setting['epoch_steps']} steps" if setting["epoch_steps"] else ""
    epochs = counted(setting["epochs"], "epoch")
    return (
        f"{_encoder_text(setting)}, {epochs}{steps} ({setting['warmup_epochs']} warm-up), batch "
        f"{setting['labelled_batch_size']} + {setting['batch_size']}, lr "
        f"{setting['lr']:g}, {_regularisation_text(board)}{precision}{setting['split']} split"
    )


def _encoder_text(setting: Mapping[str, Any]) -> str:
    """The encoder with its options, e.g. `resnet50 (frozen, 224 px)`."""
    choices = ["frozen"] if setting["freeze"] else []
    choices += ["from scratch"] if setting["weights"].partition("@")[0] == "none" else []
    choices += [f"{setting['image_size']} px"] if setting["image_size"] else []
    choices += ["scaled decoding"] if setting.get("scaled_decoding") else []
    choices += ["not normalised"] if setting["normalise"] is False else []
    choices += [f"{setting['max_tokens']} tokens"] if setting["max_tokens"] else []
    choices += ["padding pooled"] if setting["pooling"] == "all" else []
    choices += ["clean views among the draws"] if setting.get("mixed_draws") else []
    choices += ["features unscaled"] if setting["scaling"] == "none" else []
    choices += ["columns rotated"] if setting.get("rotate_columns") else []
    return str(setting["backbone"]) + (f" ({', '.join(choices)})" if choices else "")


def _regularisation_text(board: Board) -> str:
    """The recipe, and its decay and dropout if they matter.

    The recipe may scale the dropout by the number of labelled rows: what the runs have is shown.
    """
    setting = board.setting
    fixed = setting["recipe"] != RunSpec.recipe
    parts = [f"recipe {setting['recipe']}"] if fixed else []
    if setting["weight_decay"] != (0.0 if fixed else RunSpec.weight_decay):
        parts.append(f"weight decay {setting['weight_decay']:g}")
    if setting["relative_decay"]:
        parts.append(f"decay {setting['relative_decay']:g} D/n")
    if setting["input_dropout"] or setting["hidden_dropout"]:
        factors = {run.spec.dropout_factor for run in board.runs if not run.spec.is_estimator}
        applied = sorted(setting["input_dropout"] * factor for factor in factors or {1.0})
        ends = "–".join(f"{value:g}" for value in dict.fromkeys((applied[0], applied[-1])))
        parts.append(f"dropout {ends} / {setting['hidden_dropout']:g}")
    return "".join(f"{part}, " for part in parts)
