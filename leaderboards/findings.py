"""The tables of docs/findings.md, from the files of `measured/` alone.

    python leaderboards/findings.py TABLE

Differences are paired by seed; intervals are 95 % t intervals over the seeds.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd
from scipy.stats import kendalltau

from ssmlbench.boards.published import read_published
from ssmlbench.boards.significance import friedman, nemenyi_difference
from ssmlbench.core.intervals import mean_with_interval

MEASURED = Path(__file__).resolve().parent / "measured"
MAP = "default.map"
LABELLED_ONLY = "labelled rows"
CONTROL = "unlabelled_weight=0"  # in the name of a variant that learns from labelled rows only
USUAL = 0.75  # share of printed cells that makes an order of two methods a usual one
ALPHA = 0.05
QUIET = ("ohsumed", 0.2)  # the cell that was made one run at a time, alone on its core
Interval = tuple[float, tuple[float, float]]
Tables = dict[tuple[str, float], pd.DataFrame]  # seeds × methods, by data set and level


def runs_of(part: str) -> pd.DataFrame:
    """The runs of one part of make.sh, one row each, with their data set and what they were asked for."""
    files = sorted((MEASURED / part).glob("*.csv"))
    frames = [pd.read_csv(file, comment="#").assign(dataset=file.stem) for file in files]
    runs = pd.concat(frames, ignore_index=True)
    specs = runs["spec"].map(json.loads)
    return runs.assign(
        selection=specs.str["selection"], recipe=specs.str["recipe"], learner=specs.str["learner"]
    )


def cells(runs: pd.DataFrame, regime: str = "semi") -> Tables:
    """The mAP of each data set and level of a regime."""
    chosen = runs[runs["regime"] == regime].fillna({"level": 0.0})  # a regime without a number
    return {
        place: members.pivot(index="seed", columns="method", values=MAP)
        for place, members in chosen.groupby(["dataset", "level"], sort=True)
    }


def with_every_method(tables: Tables) -> Tables:
    """The tables of all methods.

    The largest data sets have the estimators and ten methods only: a rank among those is another thing.
    """
    most = max(len(table.columns) for table in tables.values())
    return {place: table for place, table in tables.items() if len(table.columns) == most}


def ranks_of(means: pd.Series) -> pd.Series:
    """The ranks of means, 1 for the highest; equal ones share a rank.

    Rounded, since versions of pandas give means of the same numbers that differ in the last bit.
    """
    return means.round(9).rank(ascending=False)


def mean_ranks(tables: Tables) -> pd.Series:
    """Each method's mean rank, best first, over the tables of all methods."""
    whole = with_every_method(tables).values()
    ranked = [ranks_of(table.mean()) for table in whole]
    return pd.concat(ranked, axis=1).mean(axis=1).sort_values()


def labelled_only_methods(runs: pd.DataFrame) -> set[str]:
    """The methods that learn from labelled rows only."""
    return set(runs.loc[runs["uses"] == LABELLED_ONLY, "method"])


def difference(table: pd.DataFrame, ours: str, theirs: str) -> Interval:
    """The mean difference of two methods over their common seeds, with its interval."""
    return mean_with_interval((table[ours] - table[theirs]).dropna().tolist())


def above_and_below(intervals: Iterable[Interval]) -> tuple[int, int]:
    """How many differences are clearly above zero, and how many below."""
    bounds = [ends for _, ends in intervals]
    return sum(low > 0 for low, _ in bounds), sum(high < 0 for _, high in bounds)


def written(interval: Interval) -> str:
    """The difference as a table shows it."""
    mean, (low, high) = interval
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]], text_columns: int) -> str:
    """A table whose first columns are text."""
    rule = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


# ------------------------------------------------------------------------- what unlabelled rows add


def gains() -> str:
    """The best row that uses both pools against the best labelled-only one and the oracle.

    Then the same for two rows that are chosen on the other data sets: no test row they are judged on
    has a part in their choice.
    """
    runs = runs_of("semi")
    labelled_only = labelled_only_methods(runs)
    both_pools = set(runs["method"]) - labelled_only
    tables = cells(runs)
    full = runs[runs["regime"] == "full"].groupby(["dataset", "method"])[MAP].mean()
    rows, by_set = [], defaultdict(list)
    for (dataset, level), table in tables.items():
        means = table.mean()
        floor = means[means.index.isin(labelled_only)].idxmax()
        ours = means[~means.index.isin(labelled_only)]
        best = ours.idxmax()
        chosen = [best_elsewhere(tables, dataset, left) for left in (labelled_only, both_pools)]
        fair = difference(table, *chosen)
        by_set[dataset].append(fair[0])
        gained = {name: difference(table, name, floor) for name in ours.index}
        above, below = above_and_below(gained.values())
        rows.append(
            [
                dataset,
                f"{level:g}",
                f"{floor} {means[floor]:.3f}",
                f"{best} {means[best]:.3f}",
                written(gained[best]),
                f"{' less '.join(chosen)} {written(fair)}",
                f"{above} / {below} of {len(ours)}",
                f"{full[dataset].max():.3f}" if dataset in full.index else "",
            ]
        )
    over_sets = mean_with_interval([fmean(found) for found in by_set.values()])
    rows.append([f"mean of {len(by_set)} sets", *[""] * 4, written(over_sets), "", ""])
    header = [
        "set",
        "π",
        "best labelled-only",
        "best of both pools",
        "difference",
        "both chosen on the other sets: difference",
        "above / below",
        "oracle",
    ]
    return markdown(header, rows, 1)


def best_elsewhere(tables: Tables, left_out: str, without: set[str]) -> str:
    """The method with the best mean rank on all data sets but one, among all but some methods."""
    others = {
        (dataset, level): table.drop(columns=without, errors="ignore")
        for (dataset, level), table in tables.items()
        if dataset != left_out
    }
    return str(mean_ranks(others).index[0])


# ------------------------------------------------------------------------------ a summary over sets


def summary() -> str:
    """Each row less `bce`: cells above, level and below, the mean over data sets, the mean rank."""
    whole = with_every_method(cells(runs_of("semi")))
    sets = sorted({dataset for dataset, _ in whole})
    rows = []
    for name, mean_rank in mean_ranks(whole).items():
        if name == "bce":
            rows.append([name, "", "", "", f"{mean_rank:.1f}"])
            continue
        found = {place: difference(table, name, "bce") for place, table in whole.items()}
        above, below = above_and_below(found.values())
        by_set = [
            fmean(mean for (dataset, _), (mean, _) in found.items() if dataset == wanted)
            for wanted in sets
        ]
        ahead = sum(mean > 0 for mean in by_set)
        counts = f"{above} / {len(found) - above - below} / {below}"
        over_sets = written(mean_with_interval(by_set))
        rows.append([name, counts, over_sets, f"{ahead} of {len(sets)}", f"{mean_rank:.1f}"])
    header = [
        "method",
        "above / level / below bce",
        f"less bce, mean over {len(sets)} sets",
        "sets ahead of bce",
        "mean rank",
    ]
    means = pd.DataFrame({place: table.mean() for place, table in whole.items()})
    per_set = means.T.groupby(level=0).mean()  # one block a data set: its π share rows
    test = friedman(per_set.to_numpy())
    apart = nemenyi_difference(per_set.shape[1], len(per_set), ALPHA)
    by_set_rank = per_set.apply(ranks_of, axis=1).mean().sort_values()
    level = [name for name, value in by_set_rank.items() if value - by_set_rank.iloc[0] <= apart]
    note = (
        f"Over {len(per_set)} sets (each the mean over its π) Friedman's p is {test.p:.1g}; by Nemenyi's "
        f"test at {ALPHA} ranks differ if they are {apart:.1f} apart: {len(level)} of {len(by_set_rank)} "
        f"rows are not distinguished from the first, `{by_set_rank.index[0]}`."
    )
    return f"{markdown(header, rows, 1)}\n\n{note}"


# ------------------------------------------------------------------------------- published orders


def orders() -> str:
    """Pairs of methods that papers order the same way in most cells, and what the boards say."""
    ours = {"semi": cells(runs_of("semi"))}
    if (MEASURED / "positives").is_dir():
        ours["single-positive"] = cells(runs_of("positives"), "single-positive")
    rows = []
    for regime, tables in ours.items():
        for better, worse, agreeing, printed, gap in published_pairs(regime):
            verdicts: Counter[str] = Counter()
            for table in tables.values():
                if {better, worse} <= set(table.columns):
                    _, (low, high) = difference(table, better, worse)
                    verdicts["holds" if low > 0 else "reversed" if high < 0 else "open"] += 1
            if verdicts:
                found = [verdicts[verdict] for verdict in ("holds", "open", "reversed")]
                cells_printed = f"{agreeing} of {printed}" if agreeing < printed else printed
                rows.append([regime, f"{better} > {worse}", cells_printed, f"{gap:.3f}", *found])
    header = ["regime", "order", "printed cells", "median gap", "holds", "open", "reversed"]
    return markdown(header, rows, 2)


def published_pairs(regime: str) -> list[tuple[str, str, int, int, float]]:
    """(better, worse, cells in this order, printed cells, median gap) of pairs with a usual order."""
    printed: dict[tuple[str, str, str], dict[str, float]] = {}
    for value in read_published():
        wanted = value.regime == regime and value.metric == "map" and value.our_method
        if wanted and not value.our_method.settings:
            place = (value.paper.name, value.dataset, value.level)
            printed.setdefault(place, {})[value.our_method.name] = value.value
    gaps: dict[tuple[str, str], list[float]] = {}
    for cell in printed.values():
        for one, other in itertools.combinations(sorted(cell), 2):
            gaps.setdefault((one, other), []).append(cell[one] - cell[other])
    pairs = []
    for (one, other), found in gaps.items():
        for better, worse, sign in ((one, other, 1), (other, one, -1)):
            agreeing = sum(sign * gap > 0 for gap in found)
            if agreeing >= USUAL * len(found):
                gap = sign * float(pd.Series(found).median())
                pairs.append((better, worse, agreeing, len(found), gap))
    return sorted(pairs)


# ------------------------------------------------------------------------------ what moves a rank


def ranks() -> str:
    """Kendall's τ of two orders of the same methods, and how the best row and the largest move change."""
    runs = runs_of("semi")
    runs = runs[
        (runs["regime"] == "semi") & (runs["learner"] == "method") & (runs["level"] == 0.05)
    ]
    rows = []
    for dataset, members in runs.groupby("dataset", sort=True):
        for rule in ("top-k", "threshold"):
            one = members.groupby("method")["calibrated.default.micro_f1"].mean()
            other = members.groupby("method")[f"{rule}.default.micro_f1"].mean()
            rows.append([dataset, "Micro-F1", f"calibrated → {rule}", *moves(one, other)])
        table = members.pivot(index="seed", columns="method", values=MAP).dropna()
        for part, column, values in (
            ("selection", "selection", ("val", "oracle")),
            ("recipe", "recipe", ("paper",)),
        ):
            for value, changed in other_settings(part, dataset, column, values):
                common = table.loc[table.index.isin(changed.index)].mean()
                usual = "last" if column == "selection" else "features"
                rows.append([dataset, "mAP", f"{usual} → {value}", *moves(common, changed.mean())])
        one_seed = [moves(table.loc[seed], table.drop(seed).mean()) for seed in table.index]
        taus = [float(tau) for tau, *_ in one_seed]
        moved = max(int(places) for _, places, _ in one_seed)
        leaders = Counter(table.loc[seed].idxmax() for seed in table.index)
        named = ", ".join(f"{name} {count}" for name, count in leaders.most_common())
        text = f"{sum(taus) / len(taus):.2f}"
        rows.append([dataset, "mAP", "one seed → the mean of the others", text, moved, named])
    header = ["set", "metric", "change", "τ", "largest move", "best before → after"]
    return markdown(header, rows, 3)


def other_settings(
    part: str, dataset: str, column: str, values: Sequence[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The seeds × methods tables of the runs that were made with other settings."""
    if not (MEASURED / part / f"{dataset}.csv").is_file():
        return
    runs = runs_of(part)
    for value in values:
        members = runs[(runs["dataset"] == dataset) & (runs[column] == value)]
        if members.empty:
            continue
        yield value, members.pivot(index="seed", columns="method", values=MAP)


def moves(before: pd.Series, after: pd.Series) -> tuple[str, int, str]:
    """Kendall's τ, the largest change of place, and the best method before and after."""
    before, after = before.align(after, join="inner")
    places, places_after = ranks_of(before), ranks_of(after)
    tau = kendalltau(places, places_after).statistic
    return (
        f"{tau:.2f}",
        int((places - places_after).abs().max()),
        f"{before.idxmax()} → {after.idxmax()}",
    )


# ------------------------------------------------------------------------------- cost, parts, tuning


def cost() -> str:
    """Mean rank over all sets and π, and the seconds of a run where one core made nothing else."""
    runs = runs_of("semi")
    rank = mean_ranks(cells(runs))
    dataset, level = QUIET
    timed = runs[(runs["dataset"] == dataset) & (runs["level"] == level)]
    seconds = timed.groupby("method")["cost.seconds"].median()
    rows = [
        [name, f"{value:.1f}", f"{seconds[name]:.1f}", f"{seconds[name] / seconds['bce']:.1f}"]
        for name, value in rank.items()
    ]
    return markdown(["method", "mean rank", "seconds", "times bce"], rows, 1)


def parts() -> str:
    """BBAM with one ingredient changed, less BBAM, and `cap` beside it."""
    runs = runs_of("parts")
    columns = {}
    for (dataset, level), table in cells(runs).items():
        variants = [name for name in table.columns if name != "bbam" and CONTROL not in name]
        columns[f"{dataset} {level:g}"] = {
            "bbam": f"{table['bbam'].mean():.3f}",
            **{name: written(difference(table, name, "bbam")) for name in variants},
        }
    shown = pd.DataFrame(columns).fillna("")
    rows = [[name, *shown.loc[name]] for name in ["bbam", *shown.index.drop("bbam")]]
    return markdown(["variant", *shown.columns], rows, 1)


def controls() -> str:
    """Variants of BBAM beside the same without their unlabelled term, and the best labelled-only row."""
    runs = runs_of("semi")
    labelled_only = labelled_only_methods(runs)
    boards = cells(runs)
    rows = []
    for (dataset, level), table in cells(runs_of("parts")).items():
        floors = boards[dataset, level].filter(labelled_only)
        floor = floors.mean().idxmax()
        for control in (name for name in table.columns if CONTROL in name):
            variant = control.replace(f", {CONTROL}", "")
            both = table[[variant, control]].join(floors[floor])
            rows.append(
                [
                    dataset,
                    f"{level:g}",
                    variant,
                    f"{both[variant].mean():.3f}",
                    f"{both[control].mean():.3f}",
                    written(difference(both, variant, control)),
                    f"{floor} {written(difference(both, variant, floor))}",
                ]
            )
    header = ["set", "π", "variant", "mAP", "without its unlabelled term", "difference"]
    return markdown([*header, "beside the best labelled-only row"], rows, 3)


def terms() -> str:
    """Each method less the same with a weight of zero on its unlabelled term."""
    boards = cells(runs_of("semi"))
    found = {}
    for (dataset, level), table in cells(runs_of("controls")).items():
        without = table.rename(columns=lambda name: name.replace(f" ({CONTROL})", ""))
        board = boards[dataset, level]
        found[dataset, f"{level:g}"] = {
            name: written(mean_with_interval((board[name] - without[name]).dropna().tolist()))
            for name in without.columns
        }
    shown = pd.DataFrame(found).T.fillna("")
    rows = [[*cell, *shown.loc[cell]] for cell in shown.index]
    return markdown(["set", "π", *shown.columns], rows, 2)


def tuned() -> str:
    """The rows with tuned hyper-parameters less the same methods with their defaults."""
    defaults = cells(runs_of("semi"))
    rows = []
    chosen = runs_of("tuned")
    chosen["method"] = chosen["spec"].map(json.loads).str["method"]
    for (dataset, level), table in cells(chosen).items():
        base = defaults[dataset, level]
        for name in table.mean().sort_values(ascending=False).index:
            both = pd.DataFrame({"tuned": table[name], "default": base[name]})
            gained = written(difference(both, "tuned", "default"))
            means = both.dropna().mean()
            rows.append(
                [
                    dataset,
                    f"{level:g}",
                    name,
                    f"{means['default']:.3f}",
                    f"{means['tuned']:.3f}",
                    gained,
                ]
            )
    return markdown(["set", "π", "method", "default", "tuned", "difference"], rows, 3)


TABLES = {
    function.__name__: function
    for function in (gains, summary, orders, ranks, cost, parts, controls, terms, tuned)
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TABLES:
        sys.exit(f"usage: python leaderboards/findings.py {'|'.join(TABLES)}")
    sys.stdout.write(TABLES[sys.argv[1]]() + "\n")
