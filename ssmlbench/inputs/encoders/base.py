"""The encoder contract: raw inputs become one tensor per row, and a batch of these becomes features.

An encoder does not decide what is trained on its features, or for how long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec, Scaling
from ssmlbench.inputs.views import View, image_views, natural_views, plain_views, vector_views

FittedState = Mapping[str, np.ndarray[Any, Any]]
"""The state that an encoder learnt from the training rows' inputs: arrays by name."""


@dataclass(frozen=True)
class EncoderOptions:
    """The options of an encoder on the command line; None if the encoder does not have the option."""

    weights: str | None = None  # "pretrained", "none" (from scratch), or a name the encoder knows
    image_size: int | None = None  # pixels: images are squashed to a square; None keeps their size
    normalise: bool | None = None  # images: by the mean and deviation that the weights expect
    max_tokens: int | None = None  # text: cut and padded to this length
    # text: "masked", "all" (as released: padding is attended to and pooled), or "own" (its folder's)
    pooling: str | None = None

    @classmethod
    def of(cls, spec: RunSpec) -> EncoderOptions:
        """The options of a run's encoder."""
        values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(cls)}
        return cls(**{**values, "weights": spec.weights.partition("@")[0] or None})


class Encoder(nn.Module):
    """Inputs → B × `features`.

    A row's input is one tensor of the same shape and type for all rows: batches of several views
    are concatenated. Images arrive in `forward` as uint8, B × C × H × W, when `options` has an
    image_size, and otherwise, for small images, as floats in 0..1.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[str] | set[str]]  # of data it can read: "image", "text", "vector"
    lr: ClassVar[float] = 1e-4  # the learning rate used when the command line names none
    options: ClassVar[Mapping[str, Any]] = {}  # the EncoderOptions it obeys, with its defaults
    batch_rows: ClassVar[int] = 512  # in a forward pass that needs no gradients
    threads: ClassVar[int | None] = None  # CPU threads it trains with; None: its share of the cores
    always_frozen: ClassVar[bool] = False  # nothing in it can be trained: --freeze is implied
    scaling: ClassVar[Scaling] = "standard"  # of its features, when the command line names none
    fitted: ClassVar[bool] = False  # it learns from the training rows' inputs: it defines `fit`
    state: ClassVar[FittedState] = {}  # of a class that `with_state` made
    version: ClassVar[int] = 1  # of a built-in one: raised when equal inputs give other features
    interpolation: ClassVar[str] = "bilinear"  # of images that are resized; also "bicubic"
    features: int
    trained: frozenset[str] | None = None  # names of the weights that are trained; None: all
    _fixed_modules: tuple[str, ...] = ()  # they stay in eval mode

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        """example: one input as `forward` takes it, without the batch dimension."""
        super().__init__()

    def blocks(self) -> Sequence[nn.Module]:
        """The blocks of the encoder in order, found by their repetition; empty if it has none.

        `--layers` trains the last of them; `--checkpoint-activations` recomputes each of them.
        """
        return list(repeated_blocks(self))

    def cut(self, views: Sequence[Tensor]) -> list[Tensor]:
        """The inputs of one pass without parts that no row needs, e.g. padding.

        Called on the host before inputs go to another device, where reading them would wait for it.
        """
        return list(views)

    def train_only(self, roots: Sequence[nn.Module], part: str = "") -> None:
        """Fix all weights but those in `roots` with `part` in their name."""
        inside = {module for root in roots for module in root.modules()}
        names = {module: name for name, module in self.named_modules()}
        self._fixed_modules = tuple(
            name
            for module, name in names.items()
            if module not in inside and not any(m in inside for m in module.modules())
        )
        weights = {
            f"{names[module]}.{name}"
            for module in inside
            for name, _ in module.named_parameters(recurse=False)
        }
        self.trained = frozenset(name for name in weights if part in name)
        self.requires_grad_()

    def fixed_names(self) -> set[str]:
        """Names of the entries of `state_dict` that training does not change."""
        if self.trained is None:
            return set()
        weights = {name for name, _ in self.named_parameters()} - self.trained
        inside = tuple(f"{name}." for name in self._fixed_modules)
        return weights | {name for name in self.state_dict() if name.startswith(inside)}

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Turn gradients of the trained weights on or off; those of fixed weights stay off."""
        for name, weight in self.named_parameters():
            weight.requires_grad_(requires_grad and (self.trained is None or name in self.trained))
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode; fixed modules stay in eval mode."""
        super().train(mode)
        for name in self._fixed_modules:
            self.get_submodule(name).training = False
        return self

    @classmethod
    def note(cls, options: EncoderOptions) -> str | None:
        """A sentence for the user about what these options do to the inputs, if it is unusual."""
        return None

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The weights it starts from, as "name@digest"; "" for an encoder that starts at random.

        It is part of the run's hash: other weights are another run. Weights that are not available
        raise a UserError here, before anything is trained. Read the files in every call: a run calls
        this again to notice weights that changed after it was planned.
        """
        return ""

    @classmethod
    def fit(cls, raws: Iterable[Any], options: EncoderOptions) -> FittedState:
        """Fit a `fitted` encoder on the raw inputs of the training rows, without labels.

        The same inputs must give the same state: it is cached with the features, and stored with
        models.
        """
        raise NotImplementedError(f"{cls.__name__} must define fit")

    @classmethod
    def with_state(cls, state: FittedState) -> type[Self]:
        """The encoder with the state that `fit` returned, as `cls.state`."""
        return type(cls.__name__, (cls,), {"name": cls.name, "state": state})

    @classmethod
    def prepare(cls, raws: Sequence[Any], options: EncoderOptions) -> Tensor:
        """Raw inputs (images as arrays or PIL, texts, vectors) → one tensor, a row each."""
        if isinstance(raws[0], str):
            raise NotImplementedError(f"{cls.__name__} must define prepare to read texts")
        if np.ndim(raws[0]) == 1:
            return torch.from_numpy(np.stack([np.asarray(r, dtype=np.float32) for r in raws]))
        if options.image_size:
            return torch.stack([square(raw, options.image_size, cls.interpolation) for raw in raws])
        images = [np.asarray(raw) for raw in raws]
        if len(shapes := {image.shape for image in images}) > 1:
            raise UserError(
                f"--backbone {cls.name} takes images of one size, these are of {len(shapes)}; "
                "use e.g. --backbone resnet50, which resizes them"
            )
        together = torch.from_numpy(np.stack(images))
        together = together[..., None] if together.ndim == 3 else together
        return together.permute(0, 3, 1, 2).contiguous()

    @classmethod
    def views(cls, kind: str, flips: bool, options: EncoderOptions) -> dict[str, View]:
        """The views of prepared inputs by name. flips: whether a mirrored image keeps its labels.

        A view that returns the row itself should be `identity`: its features are not cached twice.
        """
        if kind == "vector":
            return vector_views()
        if kind == "text":
            return plain_views()
        return natural_views(flips) if options.image_size else image_views(flips)


def is_plugin(encoder: type[Encoder]) -> bool:
    """Whether an encoder is none of this tool's."""
    return not encoder.__module__.startswith("ssmlbench.")


def square(raw: Any, size: int, interpolation: str = "bilinear", fast: bool = False) -> Tensor:
    """An image of any mode and shape → 3 × size × size uint8; the aspect ratio is not kept.

    fast: by PyTorch's filter, as under `--fast-resize`.
    """
    from PIL import Image

    from ssmlbench.data.images import squashed

    if not isinstance(raw, Image.Image):
        array = np.asarray(raw)
        raw = Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)
    return torch.from_numpy(squashed(raw, size, interpolation, fast).transpose(2, 0, 1).copy())


def repeated_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Modules of a class that a list or sequence repeats; inside stages, the modules of each stage.

    These are the bottlenecks of a ResNet, the inverted residuals of a MobileNet, the layers of a
    transformer.
    """
    children = list(module.children())
    inner = [list(repeated_blocks(child)) for child in children]
    for child, blocks in zip(children, inner, strict=True):
        if blocks or not _is_repeated(child, module, between_stages=any(inner)):
            yield from blocks
        else:
            yield child


def _is_repeated(child: nn.Module, parent: nn.Module, between_stages: bool) -> bool:
    lists = (nn.Sequential, nn.ModuleList)
    alone = not any(True for _ in child.children())
    if alone or isinstance(child, lists) or not isinstance(parent, lists):
        return False
    alike = [type(other) is type(child) for other in parent.children()]
    # A stem and a last layer may be beside blocks; modules that join stages are not blocks.
    return all(alike) or (sum(alike) > 1 and not between_stages)
