"""Texts as TF-IDF vectors in a space of few dimensions: fitted on the training texts, no weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions, FittedState
from ssmlbench.inputs.views import View, plain_views

DIMENSIONS = 256
TERMS = 20_000
"""The size of the vocabulary: the most frequent words."""
RARE_AND_COMMON = {"min_df": 2, "max_df": 0.5}
"""Words of a single text, or of more than half of them, are left out."""
ROTATED_TOGETHER = 32
"""Columns of the SVD that are mixed with each other."""
FEW_TEXTS = 100
"""Fewer texts than this keep every word."""


class TfIdf(Encoder):
    """TF-IDF of words, reduced by a truncated SVD (latent semantic analysis), in rows of one length.

    The SVD's columns are rotated at random within groups, each of which has major and minor columns.
    Linear models with an L2 penalty and distances do not change. Adam and feature dropout treat all
    columns alike, and do worse on columns that differ as much as those of an SVD (docs/recipe.md).

    Vocabulary, document frequencies and SVD come from the training texts, labelled or not.
    """

    name = "tfidf"
    kinds = {"text"}
    always_frozen = True
    fitted = True
    threads = 1
    version = 2  # 1: columns were not rotated
    scaling = "none"  # standardised, the many minor columns would weigh as much as the first
    vectorizer: ClassVar[Any] = None  # of a class with a state

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        self.features = example.shape[0]

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the vectors: `prepare` has done the work."""
        return vectors

    @classmethod
    def fit(cls, raws: Iterable[Any], options: EncoderOptions) -> FittedState:
        """Vocabulary (one text, a term a line), idf (T) and SVD (T × D) of the texts."""
        from sklearn.decomposition import TruncatedSVD
        from threadpoolctl import threadpool_limits

        texts = list(raws)
        vectorizer, matrix = cls._fit_words(texts)
        width = max(1, min(DIMENSIONS, *matrix.shape))
        svd = np.ones((1, 1), np.float32)
        if matrix.shape[1] > 1:  # scikit-learn refuses to reduce a single column
            # Threads would change the last bits; equal texts have no variance to explain.
            with threadpool_limits(limits=1), np.errstate(invalid="ignore"):
                fitted = TruncatedSVD(width, n_iter=4, random_state=0).fit(matrix)
                rotated = fitted.components_.T @ _rotation(width)
            svd = np.ascontiguousarray(rotated.astype(np.float32))
        terms = "\n".join(vectorizer.get_feature_names_out())
        return {
            "vocabulary": np.frombuffer(terms.encode(), dtype=np.uint8),
            "idf": vectorizer.idf_.astype(np.float32),
            "svd": svd,
        }

    @classmethod
    def _fit_words(cls, texts: list[str]) -> tuple[Any, Any]:
        """The vectorizer and the matrix of the texts; all words are used if the filter leaves none."""
        chosen = {"stop_words": "english", **(RARE_AND_COMMON if len(texts) >= FEW_TEXTS else {})}
        for options in (chosen, {}):
            vectorizer = _vectorizer(max_features=TERMS, **options)
            try:
                return vectorizer, vectorizer.fit_transform(texts)
            except ValueError:  # no word is left
                continue
        raise UserError(
            f"--backbone {cls.name}: the training texts hold no words; name another encoder, e.g. "
            "--backbone FOLDER of a Hugging Face model"
        )

    @classmethod
    def with_state(cls, state: FittedState) -> type[Self]:
        """The encoder with the state that `fit` returned."""
        made = super().with_state(state)
        terms = state["vocabulary"].tobytes().decode().split("\n")
        made.vectorizer = _vectorizer(vocabulary={term: i for i, term in enumerate(terms)})
        made.vectorizer.idf_ = state["idf"]
        return made

    @classmethod
    def prepare(cls, raws: Sequence[Any], options: EncoderOptions) -> Tensor:
        """Texts → N × D."""
        if cls.vectorizer is None:
            raise RuntimeError(f"{cls.__name__} is not fitted: call fit and with_state first")
        matrix = cls.vectorizer.transform([str(raw) for raw in raws])
        vectors: Tensor = torch.from_numpy(np.asarray(matrix @ cls.state["svd"], np.float32))
        length: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        one_length: Tensor = vectors * (vectors.shape[1] ** 0.5 / length.clamp(min=1e-6))
        return one_length

    @classmethod
    def views(cls, kind: str, flips: bool, options: EncoderOptions) -> dict[str, View]:
        """The row itself: feature dropout in each step makes the strong view."""
        return plain_views()


def _rotation(width: int) -> np.ndarray[Any, Any]:
    """An orthogonal matrix that mixes each group of columns at random, the same in every process."""
    random = np.random.default_rng(0)
    rotation = np.zeros((width, width))
    groups = max(width // ROTATED_TOGETHER, 1)
    for first in range(groups):
        group = np.arange(first, width, groups)  # every so many columns: major and minor ones
        gaussian = random.normal(size=(len(group), len(group)))
        rotation[np.ix_(group, group)] = np.linalg.qr(gaussian)[0]
    return rotation


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = r"(?u)\b\w+\b"  # words of one letter too: some scripts have many
    return TfidfVectorizer(sublinear_tf=True, token_pattern=words, dtype=np.float32, **options)
