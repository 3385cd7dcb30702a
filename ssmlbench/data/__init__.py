"""Data sets: the adapter contract, the prepared task of an adapter, and users' own files.

The data sets themselves are in datasets/, one file each; views and encoders are in inputs/.
"""

from ssmlbench.core.paths import cache_root
from ssmlbench.data.adapter import (
    SPLITS,
    BadRow,
    DatasetAdapter,
    Hub,
    Kind,
    PublishedStatistics,
    Row,
    label_string,
    numbered_lines,
)
from ssmlbench.data.prepare import (
    check_source,
    is_prepared,
    prepare,
    prepare_whole,
    recomputed_fingerprint,
)
from ssmlbench.data.task import Card, Task

__all__ = [
    "SPLITS",
    "BadRow",
    "Card",
    "DatasetAdapter",
    "Hub",
    "Kind",
    "PublishedStatistics",
    "Row",
    "Task",
    "cache_root",
    "check_source",
    "is_prepared",
    "label_string",
    "numbered_lines",
    "prepare",
    "prepare_whole",
    "recomputed_fingerprint",
]
