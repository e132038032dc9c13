"""What a model costs a device: parameters, FLOPs, bytes and training memory; what fits it.

A training step (forward, backward, SGD) runs on the meta device: shapes are real, nothing is
computed or allocated. FLOPs are counted by torch; memory is the largest sum of live tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode

from zoo.build import build, example_input, run
from zoo.errors import SpecError
from zoo.family import find
from zoo.scaling import num_parameters
from zoo.spec import ModelSpec, SpecLike, as_spec

WIDTHS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.2, 0.15, 0.1, 0.05)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a spec costs at a batch size.

    Attributes:
        parameters: trainable parameters.
        forward_flops: floating-point operations of one forward pass of the batch.
        step_flops: of one training step (forward and backward).
        weight_bytes: parameters and buffers in float32: what travels.
        training_bytes: estimated peak memory of a training step with plain SGD.
    """

    parameters: int
    forward_flops: int
    step_flops: int
    weight_bytes: int
    training_bytes: int


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device that trains, and how long a round may take it.

    Attributes:
        memory: bytes free for training.
        flops: floating-point operations a second.
        bandwidth: bytes a second, down and up alike.
        round_seconds: the longest that download, training and upload may take together.
    """

    memory: float
    flops: float
    bandwidth: float
    round_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("memory", "flops", "bandwidth", "round_seconds"):
            value = getattr(self, name)
            if not value > 0:
                raise SpecError(f"a device's {name} must be above 0, got {value}")


def budget(spec: SpecLike, batch_size: int = 32, **task: int | None) -> Budget:
    """What training the model of `spec` costs at this batch size.

    >>> budget("lenet5", 1).parameters
    44470
    """
    if batch_size < 1:
        raise SpecError(f"batch_size must be at least 1, got {batch_size}")
    with torch.device("meta"):
        model = build(spec, **task).train()
        inputs = example_input(spec, batch_size=batch_size, **task)
    if isinstance(inputs, dict):  # texts of full length need no mask; its values can't be read here
        inputs.pop("attention_mask", None)
    tensors = [*model.parameters(), *model.buffers()]
    with _LiveBytes((*tensors, *tree_iter(inputs))) as live:
        try:
            forward, step = _train_step(model, inputs)
        except ValueError as err:  # BatchNorm cannot train on a single value a channel
            raise SpecError(f"{spec} cannot train with batch_size {batch_size}: {err}") from err
    return Budget(
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        forward_flops=forward,
        step_flops=step,
        weight_bytes=sum(t.nbytes for t in tensors),
        training_bytes=live.peak,
    )


def fit(
    family: str,
    device: Device,
    *,
    batch_size: int = 32,
    steps: int = 50,
    **task: int | None,
) -> ModelSpec:
    """The scaled spec of `family` with the most parameters that the device can train.

    It can if the training memory fits, and `steps` training steps with download and upload take
    no longer than `device.round_seconds`.

    >>> phone = Device(memory=2e6, flops=1e9, bandwidth=1e6)
    >>> str(fit("lenet5", phone))
    'lenet5-w0.75'
    """
    specs = sorted(_scaled(family), key=lambda s: num_parameters(s, **task), reverse=True)
    for spec in specs:
        cost = budget(spec, batch_size, **task)
        obstacle = _obstacle(cost, device, steps)
        if obstacle is None:
            return spec
    raise SpecError(f"no model of {family} fits: the smallest, {spec}, needs {obstacle}")


def _scaled(family: str) -> Iterator[ModelSpec]:
    full = as_spec(family)
    kind = find(full)
    top = full.depth or kind.depth
    depths = [None, *range(1, top)] if kind.depth else [None]
    for depth in depths:
        for width in WIDTHS if kind.width else (1.0,):
            yield replace(full, depth=depth or full.depth, width=full.width * width)


def _obstacle(cost: Budget, device: Device, steps: int) -> str | None:
    if cost.training_bytes > device.memory:
        return f"{cost.training_bytes / 1e6:.1f} MB of memory, there are {device.memory / 1e6:.1f}"
    seconds = steps * cost.step_flops / device.flops + 2 * cost.weight_bytes / device.bandwidth
    if seconds > device.round_seconds:
        return f"{seconds:.1f} s for a round, there are {device.round_seconds:.1f}"
    return None


def _train_step(model: nn.Module, inputs: Any) -> tuple[int, int]:
    """FLOPs of the forward pass and of the whole step; runs one step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with FlopCounterMode(display=False) as flops:
        logits = run(model, inputs).logits
        loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device="meta"))
        forward = flops.get_total_flops()
        del logits
        loss.backward()
        optimizer.step()
    return forward, flops.get_total_flops()


class _LiveBytes(TorchDispatchMode):
    """Sums the storage of all tensors that operators make, while they live; `peak` is the most."""

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()
        self._count(tensors)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._count(tree_iter(out))
        return out

    def _count(self, tensors: Any) -> None:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            key = id(storage)  # a storage's Python object lives as long as the storage does
            if key not in self._known:
                self._known.add(key)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._release, key, storage.nbytes())

    def _release(self, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self.live -= nbytes
