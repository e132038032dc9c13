"""Let `import torchvision` succeed beside a torch that its compiled operators don't fit.

The package index has torchvision for CUDA only. Beside a CPU build of torch its library fails to
load, two operators that it registers fakes for are missing, and `import torchvision` raises
`RuntimeError: operator torchvision::nms does not exist`; timm and parts of transformers fall with
it. `install()` puts a finder in front of the import system. It does nothing until somebody imports
torchvision; if that import raises just this error, it declares the two operators (without an
implementation: detection's `nms` stays unavailable) and imports once more. A healthy torchvision
is imported exactly as it would be without us.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")
_kept_alive: list[Any] = []  # a torch Library forgets its operators when it is collected


def install() -> None:
    """Make later imports of torchvision robust; calling it twice changes nothing."""
    if "torchvision" not in sys.modules and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def was_needed() -> bool:
    """True when torchvision's operators had to be declared in this process."""
    return bool(_kept_alive)


class _Finder(MetaPathFinder):
    """Finds the top-level torchvision package only, and hands it to a forgiving loader."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _RetryLoader(spec.loader)
        return spec


class _RetryLoader(Loader):
    """Runs the real loader; after the one known error declares the operators and runs it again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._loader.exec_module(module)
        except RuntimeError as err:
            if "operator torchvision::" not in str(err) or "does not exist" not in str(err):
                raise
            _declare_operators()
            for name in [n for n in sys.modules if n.startswith("torchvision.")]:
                del sys.modules[name]  # half-imported
            self._loader.exec_module(module)


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        library.define(operator + _SCHEMA)
    _kept_alive.append(library)
