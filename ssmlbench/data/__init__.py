"""Data sets: the adapter contract, the task an adapter is turned into once, and one's own files.

What each data set is stands in datasets/, one file each; views and encoders are elsewhere.
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
from ssmlbench.data.prepare import check_source, is_prepared, prepare
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
]
