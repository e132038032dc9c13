"""ModelSpec: which architecture, how deep, how wide; a value that has a text form.

FAMILY[-dDEPTH][-wWIDTH][-exits]      resnet18   resnet18-d1   resnet18-w0.2   lenet5-d1-exits
timm:NAME                             timm:vit_tiny_patch16_224
hf:FOLDER_OR_ID[-dDEPTH]              hf:models/minilm-d3
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from zoo.errors import SpecError

MIN_WIDTH = 0.001
_SUFFIX = re.compile(r"-(?:d(?P<depth>\d{1,4})|w(?P<width>\d*\.?\d+)|(?P<exits>exits))$")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PREFIXED = re.compile(r"[a-z]+:\S+")
FORM = "expected FAMILY[-dDEPTH][-wWIDTH][-exits], for example resnet18-w0.2 or lenet5-d1"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One architecture: a family and how far it is scaled down.

    Attributes:
        family: a registered name, or `timm:NAME`, or `hf:FOLDER_OR_ID`.
        depth: number of blocks kept, counted from the input; None keeps all.
        width: share of the channels (units, cells) kept in every hidden layer.
        exits: also has a classifier after every earlier block (DepthFL).

    >>> str(ModelSpec(family="resnet18", width=0.2))
    'resnet18-w0.2'
    >>> ModelSpec.parse("resnet18-d1")
    ModelSpec(family='resnet18', depth=1, width=1.0, exits=False)
    """

    family: str
    depth: int | None = None
    width: float = 1.0
    exits: bool = False

    def __post_init__(self) -> None:
        if not (_NAME.fullmatch(self.family) or _PREFIXED.fullmatch(self.family)):
            raise SpecError(f"cannot read the model {self.family!r}: {FORM}")
        if _SUFFIX.search(self.family):
            raise SpecError(
                f"the name {self.family!r} ends like a scaling suffix; rename the folder, "
                "or give the scaling in depth, width and exits"
            )
        if not MIN_WIDTH <= self.width <= 1:
            raise SpecError(
                f"width must be from {MIN_WIDTH} to 1, got {self.width:g} for {self.family}"
            )
        if self.depth is not None and self.depth < 1:
            raise SpecError(f"depth must be at least 1, got {self.depth} for {self.family}")

    def __str__(self) -> str:
        depth = "" if self.depth is None else f"-d{self.depth}"
        width = "" if self.width == 1 else f"-w{self.width!r}"
        return f"{self.family}{depth}{width}{'-exits' if self.exits else ''}"

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """The spec that `text` names; scaling suffixes may come in any order, each once."""
        family, found = text, dict[str, str]()
        while match := _SUFFIX.search(family):
            kind = match.lastgroup
            assert kind is not None
            if kind in found:
                raise SpecError(f"cannot read the model {text!r}: it gives {kind} twice")
            found[kind] = match[kind]
            family = family[: match.start()]
        if "-" in family and ":" not in family:
            name, rest = family.split("-", 1)
            raise SpecError(f"cannot read '-{rest}' after {name!r} in {text!r}: {FORM}")
        return cls(
            family=family,
            depth=int(found["depth"]) if "depth" in found else None,
            width=float(found.get("width", 1.0)),
            exits="exits" in found,
        )


SpecLike: TypeAlias = ModelSpec | str


def as_spec(spec: SpecLike) -> ModelSpec:
    """The spec itself, or the one that the text names."""
    return spec if isinstance(spec, ModelSpec) else ModelSpec.parse(spec)
