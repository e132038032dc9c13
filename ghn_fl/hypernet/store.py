"""A hypernetwork on disk: one safetensors file, its config and version in the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ghn_fl.errors import GHNError
from ghn_fl.files import write_atomic
from ghn_fl.hypernet.config import GHNConfig

FORMAT = "ghnfl-hypernetwork"
VERSION = 1
FILE_NAME = "ghn.safetensors"


def save(path: str | Path, config: GHNConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write the file; either all of it is there afterwards or what was there before."""
    metadata = {"format": FORMAT, "version": str(VERSION), "config": config.to_json()}
    whole = to_bytes({name: t.detach().contiguous() for name, t in tensors.items()}, metadata)
    write_atomic(path, whole)


def load(path: str | Path) -> tuple[GHNConfig, dict[str, Tensor]]:
    """Config and tensors of a file, or of the one in a run folder."""
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise GHNError(f"there is no hypernetwork at {file}: expected a file or a run folder")
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            config = _config(file, metadata)
            names = opened.keys()
            # cloned: mapped memory is not aligned, and kernels then round differently
            return config, {name: opened.get_tensor(name).clone() for name in names}
    except SafetensorError as err:
        raise GHNError(f"{file} is not a whole safetensors file: {err}") from err


def _config(file: Path, metadata: Mapping[str, str]) -> GHNConfig:
    if metadata.get("format") != FORMAT:
        raise GHNError(f"{file} holds no hypernetwork: its metadata lacks format={FORMAT!r}")
    version = metadata.get("version", "")
    if version != str(VERSION):
        raise GHNError(
            f"{file} is of version {version!r}, this ghnfl reads {VERSION}; "
            "use the ghnfl that wrote it, or a newer one"
        )
    return GHNConfig.from_json(metadata.get("config", ""))


def check_tensors(
    path: str | Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> None:
    """Names and shapes must be exactly those of the config's hypernetwork."""
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        raise GHNError(f"{path} does not fit its config: lacks {missing[:3]}, has {extra[:3]} more")
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            raise GHNError(
                f"{path}: {name} must be {tensor.dtype} of shape {tuple(tensor.shape)}, "
                f"got {found[name].dtype} of shape {tuple(found[name].shape)}"
            )
