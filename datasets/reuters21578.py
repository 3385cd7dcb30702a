"""Reuters-21578: newswire stories of 1987 with their topics, from the SGML files or JSON."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ssmlbench.api import (
    BadRow,
    DatasetAdapter,
    PublishedStatistics,
    Row,
    UserError,
    read_records,
    western_text,
)

STORY = re.compile(
    r"<REUTERS(?P<head>[^>]*)>(?P<inside>.*?)(?P<end></REUTERS>|(?=<REUTERS)|\Z)", re.DOTALL
)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
SPLIT_OF = {"TRAIN": "train", "TEST": "test", "NOT-USED": ""}
"""LEWISSPLIT → the split of the ModApté division."""
USED = {"YES": True, "NO": False, "BYPASS": False}
"""TOPICS → whether a story counts: whether its topics were looked at."""


@dataclass(frozen=True)
class Story:
    """One story of the collection."""

    split: str  # "train", "test", or "" when it is in neither
    id: str
    topics: tuple[str, ...]
    text: str
    where: str


class Reuters21578(DatasetAdapter):
    """Newswire stories, the 90 topics with a story in both parts of the ModApté split."""

    name = "reuters21578"
    kind = "text"
    backbone = "bert-base-uncased"
    citation = "Lewis, Reuters-21578 Text Categorization Collection, Distribution 1.0, 1997"
    licence = "free for research only (Reuters, Carnegie Group)"
    download = "reuters21578.tar.gz from archive.ics.uci.edu (data set 137)"
    layout = """
reut2-000.sgm … reut2-021.sgm
or
*.json, *.jsonl      stories with: title, body (or text), topics (a list of names),
                     lewis_split (TRAIN or TEST), id
"""
    published = PublishedStatistics(
        "NLTK's corpus: the ModApté split, only topics with a story in both of its parts, only "
        "stories with such a topic",
        7769,
        3019,
        90,
    )
    notes = (
        "stories without one of the 90 topics are left out (the whole ModApté split has 9,603 and "
        "3,299 stories)",
        "text is title and body",
    )

    @cached_property
    def _topics(self) -> list[str]:
        """A topic counts when it has a story to learn from and one to be tested on."""
        found: dict[str, set[str]] = {"train": set(), "test": set(), "": set()}
        bad: BadRow | None = None
        for story in self._stories():
            if isinstance(story, Story):
                found[story.split].update(story.topics)
            else:
                bad = bad or story
        topics = sorted(found["train"] & found["test"])
        if bad and not topics:
            raise UserError(f"data set {self.name}: {bad.where}: {bad.reason}")
        return topics

    def label_names(self) -> list[str]:
        return self._topics

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        positions = {topic: k for k, topic in enumerate(self._topics)}
        for story in self._stories():
            if isinstance(story, BadRow):
                if split == "train":  # the files hold both splits: report once
                    yield story
            elif story.split == split:
                labels = tuple(positions[topic] for topic in story.topics if topic in positions)
                if labels:
                    yield Row(story.text, labels, story.id, story.where)

    def _stories(self) -> Iterator[Story | BadRow]:
        folder = self.path(".")
        sgml = _files(folder, ".sgm", ".sgml")
        files = sgml or _files(folder, ".json", ".jsonl")
        if not files:
            raise self.missing("there is no .sgm, .json or .jsonl file")
        for file in files:
            yield from self._sgml(file) if sgml else self._json(file)

    def _sgml(self, file: Path) -> Iterator[Story | BadRow]:
        content = western_text(file)
        line, counted = 1, 0
        if not STORY.search(content):
            yield BadRow(self.where(file), "no <REUTERS> in it")
        for match in STORY.finditer(content):
            line, counted = line + content.count("\n", counted, match.start()), match.start()
            where = self.where(file, line)
            facts = dict(ATTRIBUTE.findall(match["head"]))
            if not match["end"]:
                yield BadRow(where, "<REUTERS> is not closed")
            elif "LEWISSPLIT" not in facts or "NEWID" not in facts:
                yield BadRow(where, "<REUTERS> without LEWISSPLIT or NEWID")
            elif facts["LEWISSPLIT"] not in SPLIT_OF or facts.get("TOPICS") not in USED:
                yield BadRow(
                    where, f"LEWISSPLIT or TOPICS is none of {', '.join([*SPLIT_OF, *USED])}"
                )
            elif "<TOPICS" not in match["inside"]:
                yield BadRow(where, "<REUTERS> without <TOPICS>")
            else:
                used = USED[facts["TOPICS"]]
                inside = match["inside"]
                listed = re.findall(r"<D>(.*?)</D>", element(inside, "TOPICS"), re.DOTALL)
                topics = [topic.strip() for topic in listed]
                title, body = element(inside, "TITLE"), element(inside, "BODY")
                # stories of type BRIEF and UNPROC have no BODY: their TEXT is the story
                text = body or re.sub(r"<[^>]*>", " ", element(inside, "TEXT").replace(title, ""))
                split = SPLIT_OF[facts["LEWISSPLIT"]] if used else ""
                yield Story(split, facts["NEWID"], tuple(topics), tidy(title, text), where)

    def _json(self, file: Path) -> Iterator[Story | BadRow]:
        lines = file.suffix.lower() == ".jsonl"
        for number, story in read_records(file) if lines else read_list(file):
            where = self.where(file, number)
            if isinstance(story, BadRow):
                yield BadRow(where, story.reason)
                continue
            if not story.get("lewis_split"):
                yield BadRow(where, "no lewis_split (TRAIN or TEST) in it")
                continue
            # some exports keep the SGML's quotes inside the values
            lewis = str(story["lewis_split"]).strip('" ').upper()
            if fault := json_fault(story, lewis):
                yield BadRow(where, fault)
                continue
            identity = str(story.get("id", story.get("new_id", ""))).strip('"')
            text = tidy(story.get("title") or "", story.get("body") or story.get("text") or "")
            topics = (topic.strip() for topic in story.get("topics") or ())
            yield Story(SPLIT_OF[lewis], identity, tuple(topics), text, where)


def _files(folder: Path, *endings: str) -> list[Path]:
    """The files with one of these endings, in upper or lower case."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in endings)


def json_fault(story: dict[str, Any], lewis: str) -> str:
    """What is wrong with a story of a JSON file; empty if nothing is. lewis: its part."""
    if lewis not in SPLIT_OF:
        return f"lewis_split {story['lewis_split']!r} is none of {', '.join(SPLIT_OF)}"
    for name in ("title", "body", "text"):
        if not isinstance(story.get(name) or "", str):
            return f"{name} is not a text"
    topics = story.get("topics") or []
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        return f"topics {str(topics)[:40]!r} are not a list of names"
    return ""


def read_list(file: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """Read (number, story) pairs of a file that is one JSON list: not streamed."""
    try:
        stories = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        yield 1, BadRow("", f"not JSON ({error})")
        return
    for number, story in enumerate(stories if isinstance(stories, list) else [stories], start=1):
        yield number, story if isinstance(story, dict) else BadRow("", "not a JSON object")


def element(text: str, name: str) -> str:
    """The content of the first element of that name, empty where there is none."""
    found = re.search(rf"<{name}\b[^>]*>(.*?)</{name}>", text, re.DOTALL)
    return found[1] if found else ""


def tidy(title: str, body: str) -> str:
    r"""One line, entities resolved, without the \x03 that ends a story on the wire."""
    return " ".join(html.unescape(f"{title}\n{body}").replace("\x03", " ").split())
