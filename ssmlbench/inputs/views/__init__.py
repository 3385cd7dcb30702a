"""Views of inputs by kind: plain (the row itself), weak and strong.

Views of small images, vectors and token ids are drawn for a whole batch at once, with separate
parameters for each row. Every draw comes from the generator that is passed in: torchvision's functions
are used for large images, its random transforms are not, as they draw from a global generator.
"""

from __future__ import annotations

from ssmlbench.inputs.views.base import DrawnView, View, identity, is_identity, plain_views
from ssmlbench.inputs.views.images import PATCHES, image_views, natural_views
from ssmlbench.inputs.views.texts import text_views
from ssmlbench.inputs.views.vectors import feature_dropout, noise_and_dropout, vector_views

__all__ = [
    "PATCHES",
    "DrawnView",
    "View",
    "feature_dropout",
    "identity",
    "image_views",
    "is_identity",
    "natural_views",
    "noise_and_dropout",
    "plain_views",
    "text_views",
    "vector_views",
]
