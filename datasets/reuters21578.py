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

from ssmlbench.api import BadRow, DatasetAdapter, PublishedStatistics, Row, read_records

STORY = re.compile(
    r"<REUTERS(?P<head>[^>]*)>(?P<inside>.*?)(?P<end></REUTERS>|(?=<REUTERS)|\Z)", re.DOTALL
)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


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
        for story in self._stories():
            if isinstance(story, Story):
                found[story.split].update(story.topics)
        return sorted(found["train"] & found["test"])

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
        sgml = sorted(folder.glob("*.sgm"))
        files = sgml or sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")])
        if not files:
            raise self.missing("there is no .sgm, .json or .jsonl file")
        for file in files:
            yield from self._sgml(file) if sgml else self._json(file)

    def _sgml(self, file: Path) -> Iterator[Story | BadRow]:
        content = file.read_text(encoding="latin-1")
        line, counted = 1, 0
        for match in STORY.finditer(content):
            line, counted = line + content.count("\n", counted, match.start()), match.start()
            where = self.where(file, line)
            facts = dict(ATTRIBUTE.findall(match["head"]))
            if not match["end"]:
                yield BadRow(where, "<REUTERS> is not closed")
            elif "LEWISSPLIT" not in facts or "NEWID" not in facts:
                yield BadRow(where, "<REUTERS> without LEWISSPLIT or NEWID")
            else:
                used = facts.get("TOPICS") == "YES"
                inside = match["inside"]
                topics = re.findall(r"<D>(.*?)</D>", element(inside, "TOPICS"))
                title, body = element(inside, "TITLE"), element(inside, "BODY")
                # stories of type BRIEF and UNPROC have no BODY: their TEXT is the story
                text = body or re.sub(r"<[^>]*>", " ", element(inside, "TEXT").replace(title, ""))
                split = {"TRAIN": "train", "TEST": "test"}.get(facts["LEWISSPLIT"], "")
                yield Story(
                    split if used else "", facts["NEWID"], tuple(topics), tidy(title, text), where
                )

    def _json(self, file: Path) -> Iterator[Story | BadRow]:
        for number, story in read_records(file) if file.suffix == ".jsonl" else read_list(file):
            where = self.where(file, number)
            if isinstance(story, BadRow):
                yield BadRow(where, story.reason)
                continue
            if not story.get("lewis_split"):
                yield BadRow(where, "no lewis_split (TRAIN or TEST) in it")
                continue
            # some exports keep the SGML's quotes inside the values
            lewis = str(story["lewis_split"]).strip('"').upper()
            split = {"TRAIN": "train", "TEST": "test"}.get(lewis, "")
            identity = str(story.get("id", story.get("new_id", ""))).strip('"')
            text = tidy(story.get("title") or "", story.get("body") or story.get("text") or "")
            yield Story(split, identity, tuple(story.get("topics") or ()), text, where)


def read_list(file: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """Read (number, story) pairs of a file that is one JSON list: not streamed."""
    try:
        stories = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
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
