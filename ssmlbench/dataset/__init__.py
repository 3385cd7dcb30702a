"""Data sets: the adapter contract, the task an adapter is turned into once, and one's own files.

What each data set is stands in datasets/, one file each; views and encoders are elsewhere.
"""

from ssmlbench.dataset.adapter import (
    SPLITS,
    BadRow,
    DatasetAdapter,
    Hub,
    Kind,
    Published,
    Row,
    label_string,
    numbered_lines,
)
from ssmlbench.dataset.task import Card, Task, cache_root
from ssmlbench.dataset.writing import check_source, is_prepared, prepare

__all__ = [
    "SPLITS",
    "BadRow",
    "Card",
    "DatasetAdapter",
    "Hub",
    "Kind",
    "Published",
    "Row",
    "Task",
    "cache_root",
    "check_source",
    "is_prepared",
    "label_string",
    "numbered_lines",
    "prepare",
]
