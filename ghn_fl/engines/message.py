"""Messages between processes: JSON and safetensors in one run of bytes, no pickle."""

from __future__ import annotations

import json
from typing import Any

from safetensors.torch import load, save

from ghn_fl.tree import flatten, unflatten, unshared


def encode(content: Any) -> bytes:
    """Nested plain data and tensors as bytes."""
    skeleton, tensors = flatten(content)
    head = json.dumps(skeleton).encode()
    body: bytes = save(unshared(tensors))
    return len(head).to_bytes(8, "big") + head + body


def decode(message: bytes) -> Any:
    """What `encode` was given; tuples come back as lists."""
    end = 8 + int.from_bytes(message[:8], "big")
    tensors = {name: t.clone() for name, t in load(message[end:]).items()}  # aligned memory
    return unflatten(json.loads(message[8:end]), tensors)
