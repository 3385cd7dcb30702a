"""The public names of ssmlbench: what a plugin file or a notebook imports, and all that is promised.

A name is loaded when it is first used, so that nothing imports torch before something needs it. To
add a name, write it twice, in the same order: in the imports that type checkers and editors read, and
in HOMES. A test checks that they agree.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# isort: off
if TYPE_CHECKING:
    # run and compare from Python
    from ssmlbench.boards.from_python import Boards as Boards, compare as compare
    from ssmlbench.core.errors import RunFailed as RunFailed, UserError as UserError
    from ssmlbench.core.spec import RunSpec as RunSpec
    from ssmlbench.grid.from_python import run as run
    from ssmlbench.plugins.catalogue import (
        Catalogue as Catalogue,
        DatasetInfo as DatasetInfo,
        MethodInfo as MethodInfo,
        datasets as datasets,
        methods as methods,
    )
    from ssmlbench.runs.run_result import (
        RunResult as RunResult,
        RunResults as RunResults,
    )
    from ssmlbench.runs.scores import StoredScores as StoredScores

    # write a method
    from ssmlbench.core.hyperparameters import (
        between as between,
        choice as choice,
        option as option,
    )
    from ssmlbench.kit.gradient_step import GradientStep as GradientStep
    from ssmlbench.kit.heads import Network as Network
    from ssmlbench.kit.losses import (
        angles as angles,
        asymmetric_loss as asymmetric_loss,
        bce as bce,
        coded_loss as coded_loss,
        positives_penalty as positives_penalty,
        soft_loss as soft_loss,
    )
    from ssmlbench.kit.method import Method as Method
    from ssmlbench.kit.pools import (
        POOL_RATIO as POOL_RATIO,
        Batch as Batch,
        Outputs as Outputs,
        Pool as Pool,
        Pools as Pools,
        RowOutputs as RowOutputs,
        pool_weight as pool_weight,
    )
    from ssmlbench.kit.pseudo_labels import (
        class_aware_labels as class_aware_labels,
        confident_targets as confident_targets,
        consistency as consistency,
        descending as descending,
        label_blocks as label_blocks,
        momentum_at as momentum_at,
        moved_thresholds as moved_thresholds,
        nth_largest as nth_largest,
        pooled_class_aware_labels as pooled_class_aware_labels,
        tied_positives as tied_positives,
        usage as usage,
    )

    # write a method of a family: they differ in one formula
    from ssmlbench.kit.families.entropy import EntropyMethod as EntropyMethod
    from ssmlbench.kit.families.label_estimates import (
        EstimatedLabelsMethod as EstimatedLabelsMethod,
    )
    from ssmlbench.kit.families.large_loss import (
        LargeLossMethod as LargeLossMethod,
        large_losses as large_losses,
    )
    from ssmlbench.kit.families.partial import (
        KAPPA as KAPPA,
        PartialMethod as PartialMethod,
        PenalisedMethod as PenalisedMethod,
        expected_positives as expected_positives,
    )

    # write an estimator
    from ssmlbench.kit.classifiers import (
        MultiLabelEstimator as MultiLabelEstimator,
        PerLabelEstimator as PerLabelEstimator,
    )
    from ssmlbench.kit.estimator import (
        Estimator as Estimator,
        FeaturePool as FeaturePool,
        labels_that_fit as labels_that_fit,
    )
    from ssmlbench.kit.logistic import (
        LogisticModel as LogisticModel,
        choose_strength as choose_strength,
        fit_logistic as fit_logistic,
    )
    from ssmlbench.protocol.metrics import average_precision as average_precision

    # write a data set
    from ssmlbench.core.whole_numbers import whole_number as whole_number
    from ssmlbench.data.adapter import (
        SPLITS as SPLITS,
        BadRow as BadRow,
        DatasetAdapter as DatasetAdapter,
        Hub as Hub,
        PublishedStatistics as PublishedStatistics,
        Row as Row,
        label_string as label_string,
        numbered_lines as numbered_lines,
    )
    from ssmlbench.data.arrays import read_npy as read_npy
    from ssmlbench.data.records import read_records as read_records
    from ssmlbench.data.text_files import western_text as western_text

    # write an encoder
    from ssmlbench.inputs.encoders.base import Encoder as Encoder, EncoderOptions as EncoderOptions
# isort: on

HOMES = {
    # run and compare from Python
    "ssmlbench.boards.from_python": (
        "Boards",
        "compare",
    ),
    "ssmlbench.core.errors": ("RunFailed", "UserError"),
    "ssmlbench.core.spec": ("RunSpec",),
    "ssmlbench.grid.from_python": ("run",),
    "ssmlbench.plugins.catalogue": (
        "Catalogue",
        "DatasetInfo",
        "MethodInfo",
        "datasets",
        "methods",
    ),
    "ssmlbench.runs.run_result": (
        "RunResult",
        "RunResults",
    ),
    "ssmlbench.runs.scores": ("StoredScores",),
    # write a method
    "ssmlbench.core.hyperparameters": (
        "between",
        "choice",
        "option",
    ),
    "ssmlbench.kit.gradient_step": ("GradientStep",),
    "ssmlbench.kit.heads": ("Network",),
    "ssmlbench.kit.losses": (
        "angles",
        "asymmetric_loss",
        "bce",
        "coded_loss",
        "positives_penalty",
        "soft_loss",
    ),
    "ssmlbench.kit.method": ("Method",),
    "ssmlbench.kit.pools": (
        "POOL_RATIO",
        "Batch",
        "Outputs",
        "Pool",
        "Pools",
        "RowOutputs",
        "pool_weight",
    ),
    "ssmlbench.kit.pseudo_labels": (
        "class_aware_labels",
        "confident_targets",
        "consistency",
        "descending",
        "label_blocks",
        "momentum_at",
        "moved_thresholds",
        "nth_largest",
        "pooled_class_aware_labels",
        "tied_positives",
        "usage",
    ),
    # write a method of a family: they differ in one formula
    "ssmlbench.kit.families.entropy": ("EntropyMethod",),
    "ssmlbench.kit.families.label_estimates": ("EstimatedLabelsMethod",),
    "ssmlbench.kit.families.large_loss": (
        "LargeLossMethod",
        "large_losses",
    ),
    "ssmlbench.kit.families.partial": (
        "KAPPA",
        "PartialMethod",
        "PenalisedMethod",
        "expected_positives",
    ),
    # write an estimator
    "ssmlbench.kit.classifiers": (
        "MultiLabelEstimator",
        "PerLabelEstimator",
    ),
    "ssmlbench.kit.estimator": (
        "Estimator",
        "FeaturePool",
        "labels_that_fit",
    ),
    "ssmlbench.kit.logistic": (
        "LogisticModel",
        "choose_strength",
        "fit_logistic",
    ),
    "ssmlbench.protocol.metrics": ("average_precision",),
    # write a data set
    "ssmlbench.core.whole_numbers": ("whole_number",),
    "ssmlbench.data.adapter": (
        "SPLITS",
        "BadRow",
        "DatasetAdapter",
        "Hub",
        "PublishedStatistics",
        "Row",
        "label_string",
        "numbered_lines",
    ),
    "ssmlbench.data.arrays": ("read_npy",),
    "ssmlbench.data.records": ("read_records",),
    "ssmlbench.data.text_files": ("western_text",),
    # write an encoder
    "ssmlbench.inputs.encoders.base": (
        "Encoder",
        "EncoderOptions",
    ),
}
"""The module of each public name, grouped by purpose."""

_HOME_OF = {name: module for module, names in HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 (a list; ruff reads literals only)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ssmlbench.api' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
