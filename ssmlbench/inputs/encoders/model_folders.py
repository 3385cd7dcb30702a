"""The files of a Hugging Face model, and their digest. No file is loaded here."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import from_home
from ssmlbench.core.plain_text import line_of
from ssmlbench.inputs.encoders.sentence import SENTENCE_FILES
from ssmlbench.inputs.encoders.weights import file_digest

TOKENIZER_FILES = (
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
)
VOCABULARY_FILES = ("tokenizer.json", "vocab*", "*.model")
"""A tokenizer has one of these."""
IMAGE_FILES = ("config.json", "preprocessor_config.json", "processor_config.json")
WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin")  # the first of these that exists


def has_model(name: str) -> bool:
    """Whether a model is on this machine: a folder, or in Hugging Face's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    folder = from_home(name)
    if not folder.is_dir():
        try:
            config = try_to_load_from_cache(name, "config.json")
        except HFValidationError:
            return False
        if not isinstance(config, str):
            return False
        folder = Path(config).parent
    return any(True for kind in WEIGHT_FILES for _ in folder.glob(kind))


@lru_cache
def model_folder(name: str) -> Path:
    """The folder of a model's files: a local one, or the hub's in Hugging Face's cache."""
    folder = from_home(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"--backbone {name}: no config.json in that folder; expected a model saved in "
                "Hugging Face's format (save_pretrained)"
            )
        _check_files(name, folder)
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        for kind in WEIGHT_FILES:
            wanted = [*TOKENIZER_FILES, *IMAGE_FILES, *SENTENCE_FILES, kind]
            try:  # prefer the local copy: a new revision must not arrive in the middle of a grid
                snapshot = snapshot_download(name, allow_patterns=wanted, local_files_only=True)
            except OSError:
                snapshot = snapshot_download(name, allow_patterns=wanted, etag_timeout=10)
            if any(Path(snapshot).glob(kind)):
                return Path(snapshot)
        raise UserError(f"--backbone {name}: the hub's repository holds no weights for torch")
    except HFValidationError:
        raise UserError(
            f"--backbone {name}: neither a folder nor a Hugging Face model id"
        ) from None
    except UserError:
        raise
    except Exception as error:  # the hub's errors share no base class with the network's
        reason = f"{type(error).__name__}: {line_of(error)}"
        raise UserError(
            f"--backbone {name}: no such folder, and the model is not available from the Hugging Face "
            f"hub ({reason}). Where there is a network, `hf download {name}`; then copy that "
            "machine's HF_HOME folder here and set HF_HOME, or name a local folder as --backbone"
        ) from None


def _check_files(name: str, folder: Path) -> None:
    """A UserError if something in the folder would be waited on for ever, or has no end."""
    for file in sorted(folder.rglob("*")):
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise UserError(
                f"--backbone {name}: {file.relative_to(folder)} is a pipe or a device; expected a file of "
                "a model saved in Hugging Face's format (save_pretrained)"
            )


def model_digest(name: str, with_weights: bool, others: tuple[str, ...] = TOKENIZER_FILES) -> str:
    """A digest of the names and bytes of the files that determine the model's outputs.

    others: such files besides the weights and config.json.
    """
    folder = model_folder(name)
    patterns = ("config.json", *others, *(WEIGHT_FILES if with_weights else ()))
    files = sorted({file for pattern in patterns for file in folder.glob(pattern)})
    own = [file for file in files if file.parent == folder]
    if with_weights and not any(file.match(p) for file in own for p in WEIGHT_FILES):
        raise UserError(
            f"--backbone {name}: no weights in {folder} ({' or '.join(WEIGHT_FILES)}); put them "
            "there, or train from scratch with --weights none"
        )
    digest = hashlib.sha256()
    for file in files:
        name_inside = file.relative_to(folder).as_posix()
        digest.update(name_inside.encode() + bytes.fromhex(file_digest(file)))
    return digest.hexdigest()[:12]
