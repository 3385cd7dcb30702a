"""Ohsumed: medical abstracts of 1991; a document is in the folder of each of its categories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssmlbench.api import BadRow, DatasetAdapter, PublishedStatistics, Row, western_text

CATEGORIES = (
    "Bacterial Infections and Mycoses",
    "Virus Diseases",
    "Parasitic Diseases",
    "Neoplasms",
    "Musculoskeletal Diseases",
    "Digestive System Diseases",
    "Stomatognathic Diseases",
    "Respiratory Tract Diseases",
    "Otorhinolaryngologic Diseases",
    "Nervous System Diseases",
    "Eye Diseases",
    "Urologic and Male Genital Diseases",
    "Female Genital Diseases and Pregnancy Complications",
    "Cardiovascular Diseases",
    "Hemic and Lymphatic Diseases",
    "Neonatal Diseases and Abnormalities",
    "Skin and Connective Tissue Diseases",
    "Nutritional and Metabolic Diseases",
    "Endocrine Diseases",
    "Immunologic Diseases",
    "Disorders of Environmental Origin",
    "Animal Diseases",
    "Pathological Conditions, Signs and Symptoms",
)


class Ohsumed(DatasetAdapter):
    """Cardiovascular abstracts of MEDLINE, 23 disease categories (Joachims, ECML 1998)."""

    name = "ohsumed"
    kind = "text"
    backbone = "bert-base-uncased"
    citation = "Hersh et al., OHSUMED, SIGIR 1994; categories and split of Joachims, ECML 1998"
    licence = (
        "for experiments only, in no clinical or library setting (National Library of Medicine)"
    )
    download = "ohsumed-first-20000-docs.tar.gz from disi.unitn.it/moschitti/corpora.htm"
    folders = ("ohsumed-first-20000-docs",)
    layout = """
training/C01/0000011   one document per file, in the folder of each of its categories
training/…/C23
test/C01 … C23
"""
    published = PublishedStatistics(
        "rows: a count of the archive, no paper's; mean: inferred from published Hamming losses",
        6286,
        7643,
        23,
        1.66,
    )

    def label_names(self) -> list[str]:
        return [f"C{k:02d} {name}" for k, name in enumerate(CATEGORIES, start=1)]

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        inside = {"train": "training", "test": "test"}[split]
        root = self.path(inside, f"ohsumed-first-20000-docs/{inside}")
        positions = {f"C{k + 1:02d}": k for k in range(len(CATEGORIES))}
        documents: dict[str, list[Path]] = {}
        for folder in sorted(root.iterdir()):
            if folder.is_dir() and folder.name not in positions:
                reason = f"folder {folder.name} is none of the categories C01..C23"
                yield BadRow(self.where(folder), reason, "unknown label")
            elif folder.is_dir():
                for file in sorted(folder.iterdir()):
                    if not file.name.startswith("."):  # such as .DS_Store
                        documents.setdefault(file.stem, []).append(file)
        for name, files in sorted(documents.items()):
            labels = tuple(positions[file.parent.name] for file in files)
            texts = [" ".join(western_text(file).split()) for file in files]
            if len(set(texts)) > 1:
                yield BadRow(
                    self.where(files[0]), f"another text is called {name} in other folders"
                )
            else:
                yield Row(texts[0], labels, name, self.where(files[0]))
