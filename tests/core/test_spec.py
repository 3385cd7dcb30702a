"""The run spec: what is in the hash, and what `--set` accepts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Literal

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import as_typed, parse_config
from ssmlbench.core.run_options import RunOption
from ssmlbench.core.spec import FIELDS, OPTIONS, RunSpec
from ssmlbench.core.spec_checks import check_spec
from ssmlbench.core.suggestions import did_you_mean
from tests.support.run_options import another_value

SPEC = RunSpec("cap", "multidigits", pi=0.1, config={"loss": "asl"})


@pytest.mark.parametrize("option", FIELDS.values(), ids=lambda option: option.name)
def test_every_field_of_a_spec_is_in_its_hash(option: RunOption) -> None:
    changed = dataclasses.replace(SPEC, **{option.name: another_value(option)})
    assert changed.hash != SPEC.hash


def test_a_field_added_later_is_not_hashed_at_its_default() -> None:
    """Runs made before the field are found under the hash that they have always had."""
    later = {name for name, option in FIELDS.items() if option.added_later}
    assert later == {
        *("judged_on", "tuned", "scaling", "precision", "fast", "learner"),
        *("scaled_decoding", "fast_resize"),
        *("recipe", "head_start", "epoch_steps", "relative_decay", "input_dropout"),
        *("hidden_dropout", "dropout_factor", "mixed_draws", "rotate_columns"),
        *("folds", "partial_labels", "compile"),
        *("layers", "tune", "lora_rank", "lora_alpha"),
    }
    before = {name: value for name, value in SPEC.as_dict().items() if name not in later}
    text = json.dumps(before, sort_keys=True, separators=(",", ":"))
    assert SPEC.hash == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert RunSpec.from_dict(before) == SPEC


def test_the_hash_is_that_of_released_versions() -> None:
    """Written down from version 0.1: finished runs on disk lie under these names."""
    first = dataclasses.replace(SPEC, protocol=1)
    assert first.hash == "3be7e4f450bc"
    partial = dataclasses.replace(first, regime="partial-positive", pi=None, share=0.5)
    assert partial.hash == "5e04a8204aee"


@pytest.mark.parametrize(
    "option",
    [o for o in OPTIONS.values() if (o.above, o.least, o.most) != (None, None, None)],
    ids=lambda option: option.name,
)
def test_a_number_outside_its_bounds_is_refused(option: RunOption) -> None:
    outside = [option.above] if option.above is not None else []
    outside += [option.least - 1] if option.least is not None else []
    outside += [option.most + 1] if option.most is not None else []
    outside += [option.below] if option.below is not None else []
    for value in outside:
        with pytest.raises(UserError, match=f"^{option.flag} {value}: must "):
            check_spec(dataclasses.replace(SPEC, **{option.name: value}))


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS.values() if o.choices], ids=lambda option: option.name
)
def test_a_value_that_is_no_choice_is_refused_and_every_choice_is_explained(
    option: RunOption,
) -> None:
    with pytest.raises(UserError, match=f"^{option.flag} lucky: no such choice"):
        check_spec(dataclasses.replace(SPEC, **{option.name: "lucky"}))
    assert [choice for choice in option.choices if choice not in option.help] == []


def test_a_number_of_epochs_that_is_typed_as_epoch_is_sent_to_the_right_option() -> None:
    said = "^--epoch 5: expected unlabelled or labelled; for a number type --epochs 5$"
    with pytest.raises(UserError, match=said):
        check_spec(dataclasses.replace(SPEC, epoch_count="5"))  # type: ignore[arg-type]


def test_runs_that_differ_in_an_option_share_a_table_only_if_it_is_an_axis() -> None:
    assert [o.name for o in OPTIONS.values() if o.axis == o.setting] == []


def test_a_spec_survives_its_file() -> None:
    spec = dataclasses.replace(SPEC, changed=("loss",))
    assert RunSpec.from_dict(spec.as_dict()) == spec
    assert RunSpec.from_dict(spec.as_dict()).hash == spec.hash


def test_a_variant_names_what_was_changed() -> None:
    assert SPEC.variant == "cap"
    changed = dataclasses.replace(
        SPEC, changed=("balance", "loss"), config={"loss": "bce", "balance": False}
    )
    assert changed.variant == "cap (balance=false, loss=bce)"


def test_a_variant_writes_values_as_set_takes_them() -> None:
    values = {"loss": "bce", "gamma": 0.1 + 0.2, "count": 7, "balance": False, "eta": None}
    spec = dataclasses.replace(SPEC, changed=tuple(values), config=values)
    assert spec.variant == (
        "cap (loss=bce, gamma=0.30000000000000004, count=7, balance=false, eta=none)"
    )
    typed = {name: as_typed(value) for name, value in values.items()}
    assert dataclasses.asdict(parse_config(Config, typed, "x")) == values
    assert as_typed(1.0) == "1"


def test_the_regime_label_carries_its_number() -> None:
    assert SPEC.regime_label == "semi-0.1"
    assert dataclasses.replace(SPEC, regime="full", pi=None).regime_label == "full"
    partial = dataclasses.replace(SPEC, regime="partial-positive", pi=None, share=0.5)
    assert partial.regime_label == "partial-positive-0.5"


@pytest.mark.parametrize("pi", [0.0, -0.1, 1.5, None])
def test_a_labelled_fraction_outside_its_range_is_refused(pi: float | None) -> None:
    with pytest.raises(UserError, match=r"\(0, 1\]"):
        check_spec(dataclasses.replace(SPEC, pi=pi))


def test_warm_up_is_not_longer_than_the_run() -> None:
    with pytest.raises(UserError, match="--warmup-epochs 99: must lie between 0 and --epochs 40"):
        check_spec(dataclasses.replace(SPEC, warmup_epochs=99))


@dataclass(frozen=True)
class Config:
    loss: Literal["asl", "bce"] = "asl"
    gamma: float = 4.0
    count: int = 3
    balance: bool = True
    eta: float | None = 5.0


def test_settings_are_typed_by_the_config() -> None:
    made = parse_config(
        Config, {"loss": "bce", "gamma": "2", "count": "7", "balance": "false", "eta": "none"}, "x"
    )
    assert made == Config("bce", 2.0, 7, False, None)
    assert as_typed(parse_config(Config, {"gamma": "-0"}, "x").gamma) == "0"
    assert isinstance(made.gamma, float)


@dataclasses.dataclass(frozen=True)
class Numbered:
    """A choice that is no text."""

    views: Literal[1, 2] | None = None
    deep: Literal[True, "auto"] = "auto"


def test_a_choice_of_numbers_is_typed_as_a_number() -> None:
    assert parse_config(Numbered, {"views": "2", "deep": "true"}, "x") == Numbered(2, True)
    with pytest.raises(UserError, match="must be one of 1, 2, e"):
        parse_config(Numbered, {"views": "3"}, "x")


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"gama": "1"}, "Did you mean gamma"),
        ({"loss": "mse"}, "must be one of asl, bce, e.g. --set loss=asl"),
        ({"count": "2.5"}, "must be a whole number, e.g. --set count="),
        ({"gamma": "much"}, "must be a number, e.g. --set gamma="),
        ({"gamma": "nan"}, "must be a number, e.g. --set gamma="),
        ({"balance": "perhaps"}, "must be true or false, e.g. --set balance="),
    ],
)
def test_a_wrong_setting_is_answered_with_the_right_one(
    settings: dict[str, str], answer: str
) -> None:
    with pytest.raises(UserError, match=answer):
        parse_config(Config, settings, "method cap")


def test_a_name_far_from_everything_gets_the_list() -> None:
    assert did_you_mean("zzz", ["cap", "bbam"]) == " There is: bbam, cap."


def test_a_spec_that_is_read_is_one_that_was_made() -> None:
    """`from_dict` does not call the class."""
    for values in ({"method": "bce", "dataset": "toy"}, SPEC.as_dict()):
        read, made = RunSpec.from_dict(values), RunSpec(**{**values, "changed": ()})
        assert vars(dataclasses.replace(read, changed=())) == vars(made)
        assert type(read.changed) is tuple
    one, other = (RunSpec.from_dict({"method": "bce", "dataset": "toy"}) for _ in range(2))
    assert one.config is not other.config
    assert one.tuned is not other.tuned
    for wrong in ({"method": "bce"}, {**SPEC.as_dict(), "noise": 1}):
        with pytest.raises(TypeError, match=r"dataset|noise"):
            RunSpec.from_dict(wrong)
