"""EM: unannotated labels are unknown, not negative; their predictions' entropy is maximised."""

from __future__ import annotations

from ssmlbench.api import EntropyMethod


class Em(EntropyMethod):
    """Entropy maximisation: BCE on known labels; the entropy of unknown ones is maximised."""

    name = "em"
    paper = (
        "Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive "
        "Labels, ECCV 2022"
    )
    differences = (
        "made for single positives, where no negative is known. Under semi, labelled negatives "
        "keep their -log(1 - p); literal=true makes them unknown too",
        "the authors stop at the first epoch without a better validation score, and threshold EM's "
        "scores at 0.75; here every epoch is run and the decision rules are the benchmark's",
    )
