"""Every choice about the hypernetwork, with what the paper says and what its authors' code does."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from ghn_fl.errors import GHNError
from zoo.registry import unknown


@dataclass(frozen=True, kw_only=True)
class GHNConfig:
    """The hypernetwork's design.

    Attributes:
        num_classes: length of a label histogram; also one of the bins of the shape encoding.
        descriptor: what tells clients apart. `histogram`: the label mix of their training data
            (paper, authors' code, default; it is private information, see the README). `id`: an
            embedding of the client's number (mentioned in the paper). `none`.
        num_clients: rows of the embedding with `descriptor="id"`, else 0. A run fills it in.
        descriptor_in: decoders that see the descriptor. `all` (paper, default), or `classifier`
            only (authors' code). The paper concatenates it to a decoder's input and the authors
            add it after their first layer; for a linear first layer both are the sum used here.
        width: size H of a node's embedding (authors: 128).
        decoder_width: hidden units of a decoder (authors: 256).
        sweeps: forward and backward sweeps of the GatedGNN, the paper's tau (authors: 1).
        virtual_edges: nodes also hear from those that reach them in up to `cutoff` steps, with
            weight 1/steps (authors' code, default); off: neighbours only (paper).
        cutoff: longest distance of a virtual edge (authors: 50).
        features: how operator, shape and values make a node's features: `sum` (authors' code,
            default) or `concat`, mixed by a linear layer (the paper's [l_v, q_v]).
        value_length: most numbers of a parameter that its encoding reads (authors: 128).
        patch: neighbouring values that the encoding reads as one token (authors: 1; default 4: the
            same 128 values at a quarter of the tokens).
        pooling: how longer parameters are shortened. `adaptive`: means over equal parts, every
            value counts (default); `chunk`: chunk means without the tail (authors' code). The
            paper says nothing.
        dropout: in the encoding of the values (authors: 0.5; default 0, so that generation is
            the same function in training and afterwards; with dropout, the server's step
            differentiates another draw than the one that was sent).
        tiling: how weights of any shape are made. `positional`: distinct tiles, a decoder is told
            the place (ours, default); `repeat`: one tile, repeated (GHN-2, GHN-3); `full`: one
            tile as large as `full_shapes` say, cut down (authors' code).
        full_shapes: with tiling `full`, (decoder family, shape of its tile) pairs, as
            `ghn_fl.hypernet.decode.full_shapes` finds them for a fleet's graphs. A run does that.
        norm_bias: also generate the biases of norm layers (default); off: clients keep theirs
            (authors' code; the paper says nothing).
        head_match: what counts as a classifier. `role`: what the graph says (default); `name`:
            names that begin with "classifier." or "heads." (authors' code, which misses the heads
            of its own depth-scaled models).
    """

    num_classes: int = 10
    descriptor: Literal["histogram", "id", "none"] = "histogram"
    num_clients: int = 0
    descriptor_in: Literal["all", "classifier"] = "all"
    width: int = 128
    decoder_width: int = 256
    sweeps: int = 1
    virtual_edges: bool = True
    cutoff: int = 50
    features: Literal["sum", "concat"] = "sum"
    value_length: int = 128
    patch: int = 4
    pooling: Literal["adaptive", "chunk"] = "adaptive"
    dropout: float = 0.0
    tiling: Literal["positional", "repeat", "full"] = "positional"
    full_shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    norm_bias: bool = True
    head_match: Literal["role", "name"] = "role"

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), get_args(hints[field.name])
            if choices and isinstance(choices[0], str) and value not in choices:
                raise GHNError(f"{field.name} must be one of {', '.join(choices)}, got {value!r}")
        counts = ("num_classes", "width", "decoder_width", "sweeps", "cutoff", "value_length")
        for name in (*counts, "patch"):
            if getattr(self, name) < 1:
                raise GHNError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % 4:
            raise GHNError(f"width must be a multiple of 4, got {self.width}")
        if not 0 <= self.dropout < 1:
            raise GHNError(f"dropout must be from 0 to below 1, got {self.dropout}")
        if self.num_clients < 0 or (self.num_clients and self.descriptor != "id"):
            raise GHNError(
                "num_clients goes with descriptor='id' and must be at least 1 there, "
                f"got descriptor={self.descriptor!r} and num_clients={self.num_clients}"
            )
        if self.full_shapes and self.tiling != "full":
            raise GHNError(f"full_shapes goes with tiling='full', got tiling={self.tiling!r}")

    def check_complete(self) -> None:
        """Refuse a design that still lacks what only a fleet tells."""
        if self.descriptor == "id" and not self.num_clients:
            raise GHNError("descriptor='id' needs num_clients of 1 or more, got 0")
        if self.tiling == "full" and not self.full_shapes:
            raise GHNError(
                "tiling='full' needs full_shapes: take those of hypernet.decode.full_shapes"
            )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> GHNConfig:
        """The config that `to_json` wrote; unknown or missing keys and wrong types are errors."""
        try:
            values: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError as err:
            raise GHNError(f"the hypernetwork's config is not JSON: {err}") from err
        known = {field.name: field for field in dataclasses.fields(cls)}
        if not isinstance(values, dict):
            raise GHNError(f"the hypernetwork's config must be an object, got {type(values)}")
        for name in values:
            if name not in known:
                raise GHNError(unknown("setting of the hypernetwork", name, tuple(known)))
        for name, field in known.items():
            wanted = type(field.default)
            if name not in values:
                raise GHNError(f"the hypernetwork's config lacks {name!r}")
            if wanted is tuple:
                values[name] = _tuples(values[name])
            elif wanted is float and type(values[name]) is int:
                values[name] = float(values[name])
            if type(values[name]) is not wanted:
                raise GHNError(f"{name} must be {wanted.__name__}, got {values[name]!r}")
        return cls(**values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
