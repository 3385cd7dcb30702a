"""A data set and a method that cheats in the way its hyper-parameter names. A plugin file of the tests."""

import gc
import sys
from dataclasses import dataclass

import numpy as np
import torch

from ssmlbench.api import DatasetAdapter, Method, PublishedStatistics, Row, bce, option
from tests.faults.attacks import catalogue
from tests.faults.attacks.judge_messages import desk
from tests.faults.attacks.places import LABELS, TEST_ROWS, matrix, stolen
from tests.faults.attacks.results_and_raw_data import own_earlier_scores
from tests.faults.misdeeds import DEEDS, WRONG_SCORES


class Noise(DatasetAdapter):
    """Vectors that say nothing about their labels: a good score is a stolen one."""

    name, kind, backbone = "noise", "vector", "vector"
    published = PublishedStatistics("nobody", train=800, test=TEST_ROWS, labels=LABELS)

    def label_names(self):
        return ["a", "b", "c", "d"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for _ in range({"train": 80, "test": TEST_ROWS}[split]):
            labels = tuple(k for k in range(LABELS) if random.random() < 0.4)
            yield Row(random.normal(size=8).astype(np.float32), labels)


def from_adapter():
    return matrix([row.labels for row in Noise().rows("test")])


STEALS = {**catalogue.STEALS, "from_adapter": from_adapter}


class Cheat(Method):
    """Does what its hyper-parameter says."""

    name = "cheat"

    @dataclass(frozen=True)
    class Config(Method.Config):
        how: str = option("", "what it does")

    def __init__(self, config, labels):
        super().__init__(config, labels)
        if config.how == "exits in the constructor":
            sys.exit(0)

    def start_epoch(self, pools):
        if deed := DEEDS.get(self.config.how):
            deed(self)

    def ask_twice(self):
        """Asks for a second bit of an epoch."""
        judge = desk()
        for _ in range(2):
            judge.is_best(1, np.full((TEST_ROWS, LABELS), 0.5, np.float32))

    def to_judge(self, content, two_way_only=False):
        """Write to every pipe that this process has, or not to those of one way, as the seal's is."""
        from multiprocessing.connection import Connection

        for value in gc.get_objects():
            is_open = type(value) is Connection and not value.closed
            if is_open and (value.readable or not two_way_only):
                value.send_bytes(content)

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}

    def scores(self, logits):
        if self.config.how in WRONG_SCORES:
            return WRONG_SCORES[self.config.how](logits.sigmoid())
        steals = {**STEALS, "own_earlier_scores": own_earlier_scores}
        if len(logits) == TEST_ROWS and (steal := steals.get(self.config.how)):
            try:
                return torch.from_numpy(steal()).float()
            except BaseException as error:  # it hides that it tried
                (stolen() / "why").write_text(repr(error))
        return logits.sigmoid()
