"""Words that the parser accepts and that were misunderstood without a word: one line, exit code 2."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import planned_run
from tests.cli.test_usage_mistakes import line_of

Call = Callable[..., "subprocess.CompletedProcess[str]"]
RUN = "run --method bce --dataset mine --pi 0.5"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for part in ("train", "test"):
        rows = [f"{part} text {i},{'ab'[i % 2]}" for i in range(20)]
        (folder / f"{part}.csv").write_text("\n".join(["text,labels", *rows]) + "\n")
    return folder


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (f"{RUN} --method cap", "--method is given twice, with bce and with cap"),
        (f"{RUN} --pi=0.1", "--pi is given twice, with 0.5 and with 0.1"),
        ("compare --dataset a --dataset b", "--dataset is given twice, with a and with b"),
        (f"{RUN} --results=", "--results is empty"),
        (f"{RUN} --set loss=bce --set loss=asl", "--set loss is given twice"),
        (f"{RUN} --seed 0-99999999999", "at most 100,000 numbers"),
        (f"{RUN} --holdout 0.2 --holdout-seed 4294967296", "expected 0 to 4,294,967,295"),
        (f"{RUN} --text-column labels", "'labels'"),
        (f"{RUN} --text-column text --image-column labels", "are both given"),
        (f"{RUN} --split-column labels", "'labels'"),
        ("run --method bce --dataset mine --pi 1e-9 --quiet", "data set mine: --pi 1e-09 of 20"),
        ("run --method bce --dataset mine --pi 0.05 --selection val --quiet", "need at least 2"),
        ("run --method bce --dataset mine?holdout --pi 0.5", "expected option=value"),
        ("run --method bce --dataset mine?drop-leaks=maybe --pi 0.5", "must be true or false"),
        ("run --method bce --dataset multidigits --pi 0.5 --holdout 0.2", "--holdout is for your"),
        ("data prepare multidigits --text-column x", "--text-column is for your own data"),
        ("recommend --dataset multidigits --label-column x", "--label-column is for your own"),
        ("recommend --dataset mine --out mine/train.csv", "the inputs are read from this file"),
        ("data prepare mine --from results", "read where it lies"),
        ("data prepare multidigits --from mine", "has no raw folder"),
        ("cache clear --dataset no-such-set", "no-such-set: no such data set"),
        ("runs list --method no_such_method", "no run here has it"),
        ("runs list --dataset no-such-set", "no run here has it"),
        ("predict --best --out x.csv --decision top-k", "--decision top-k: no such choice"),
        ("predict --best --out x.csv --input nowhere.csv", "nowhere.csv: no such file"),
        ("predict --best --out x.csv --device nowhere", "--device nowhere"),
        ("predict --best --out x.csv --column text", "--column text is for --input"),
        ("predict --run ab --out x.csv --dataset mine", "--dataset is for --best"),
        ("predict --best --out mine/test.csv --input mine/test.csv", "read from this file"),
        ("compare --export x --format latex", "--format changes nothing in what --export gives"),
        ("compare --export x --stats", "--stats changes nothing in what --export gives"),
        ("compare --export x --digits 3", "--layout and the like changes nothing"),
        ("compare --audit --export x", "--audit changes nothing in what --export gives"),
        ("compare --audit --stats", "--stats changes nothing in what --audit gives"),
        ("compare --over seeds", "--over seeds is for --stats"),
        ("predict --best --out x.csv --metric seconds_per_epoch", "no such metric"),
        (
            "analyse sensitivity --method bbam --dataset mine --pi 0.5 --param scale "
            "--values scale=1,2 --values scale=3",
            "--values scale is given twice, with 1,2 and with 3",
        ),
        (f"{RUN} --seed 3-1", "--seed 3-1: the first number must be the lower one"),
        ("status --watch --format json", "keep one"),
        ("methods bce --markdown", "leave NAME and --long out"),
        ("run --method bce --dataset mine --pi ٣", "must be numbers"),
        (f"{RUN} --time-limit ٣s", "expected a time"),
        ("run --method bce --dataset mine --pi 0_1", "--pi 0_1: must be numbers"),
        (f"{RUN} --seed 1_0", "--seed 1_0: must be whole numbers"),
        (f"{RUN} --lr 0_1", "--lr 0_1: must be a number, without _"),
        (f"{RUN} --batch-size 99999999999", "--batch-size 99999999999: must lie in [1, 1048576]"),
        (f"{RUN} --epoch-steps 99999999999", "must lie in [1, 1000000]"),
        ("run --method BCE --dataset mine --pi 0.5", "Did you mean bce?"),
        ("run --method mine.py --dataset mine --pi 0.5", "unknown method 'mine.py'"),
        (f"{RUN} --epochs=1_0", "--epochs 1_0: must be a number, without _"),
        ("run --method cap --dataset mine --pi 0.5 --set positive_share=0_5", "must be a number"),
        ("run --method cap --dataset mine --pi 0.5 --set positive_share=٣", "must be a number"),
        ("analyse theory --alpha 0_1", "--alpha 0_1: must be numbers"),
        (f"{RUN} --threads 1000001", "at most 1,024"),
        (f"{RUN} --epochs 9223372036854775808", "at most 18 digits"),
        ("tune --method bce --dataset mine --pi 0.5 --trials 1000001", "1 to 10,000"),
        ("runs delete --failed", "--failed: there is no failed run"),
    ],
)
def test_it_is_one_line(
    ssmlbench: Call, tmp_path: Path, mine: Path, typed: str, named: str
) -> None:
    (tmp_path / "results").mkdir()
    before = (mine / "test.csv").read_bytes()
    assert named in line_of(ssmlbench(*typed.split()))
    assert (mine / "test.csv").read_bytes() == before
    assert not any((tmp_path / "results").iterdir())


@pytest.mark.parametrize("words", [("data", "prepare"), ("show",), ("check",), ("new", "method")])
def test_an_empty_argument_is_not_the_working_folder(ssmlbench: Call, words: tuple[str]) -> None:
    assert "an argument is empty" in line_of(ssmlbench(*words, ""))


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u2003"])
def test_a_blank_path_is_no_folder(ssmlbench: Call, tmp_path: Path, blank: str) -> None:
    assert "--results is empty" in line_of(ssmlbench(*RUN.split(), "--results", blank))
    assert not any(not each.name.strip() for each in tmp_path.iterdir())


def test_the_same_word_twice_is_no_mistake(ssmlbench: Call, mine: Path) -> None:
    made = ssmlbench(*RUN.split(), "--pi", "0.5", "--dry-run", "--dry-run")
    assert made.returncode == 0, made


def test_of_an_option_that_is_no_list_the_last_value_counts(ssmlbench: Call, mine: Path) -> None:
    made = ssmlbench(*RUN.split(), "--epochs", "5", "--epochs", "0")
    assert "--epochs 0" in line_of(made)


def test_a_known_data_set_without_cached_features_is_no_mistake(ssmlbench: Call) -> None:
    made = ssmlbench("cache", "clear", "--dataset", "voc2012")
    assert (made.returncode, made.stdout) == (0, "removed 0, 0 MB\n")


def test_switches_of_an_address_are_read_as_words_for_true_and_false() -> None:
    for word in ("true", "True", "yes", "1"):
        assert DataAddress.parse(f"a?drop-leaks={word}").options.drop_leaks
    for word in ("false", "False", "no", "0"):
        assert not DataAddress.parse(f"a?drop-leaks={word}").options.drop_leaks
    for query in ("drop-leaks", "holdout=", "holdout=0.1&holdout=0.2", "drop-leaks=on-off"):
        with pytest.raises(UserError):
            DataAddress.parse(f"a?{query}")


def test_an_address_may_be_longer_than_the_name_of_a_file() -> None:
    columns = ",".join(f"label {k}" for k in range(100))
    address = DataAddress("mine.csv", DataOptions(label_column=columns))
    assert DataAddress.parse(address.text) == address


def test_a_setting_of_one_method_wins_over_that_of_all_whatever_the_order(plugins: Plugins) -> None:
    for settings in ({"loss": "asl", "cap.loss": "bce"}, {"cap.loss": "bce", "loss": "asl"}):
        planned = planned_run(plugins, settings, method="cap", dataset="multidigits", pi=0.1)
        assert planned.spec.config["loss"] == "bce"
