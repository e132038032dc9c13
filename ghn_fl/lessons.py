"""Lessons: images that nobody took, and what a trained fleet answers to them.

A server has trained weights and no data. It draws patterns, bends them until its networks are
clear about them, every class as often, and keeps what the networks answer. A network of any
architecture can learn from that before it has seen a single image of anybody (`study`).

    answers(x) = log softmax of sum_t share_t log p_t(x)                               ask
    x = pattern(f),   f <- f along d/df answers(x)[wanted class]                       imagine
    theta <- theta along -d/dtheta KL(softmax(answers / T) || softmax(model(x) / T))   study

Weights come without BatchNorm statistics, so teachers and pupils use those of the batch at hand.

Suffixes: N images, C channels, G side of a field's grid, Y x X an image, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from ghn_fl.errors import GHNError
from ghn_fl.files import write_atomic
from ghn_fl.hypernet import initialize
from ghn_fl.local import logits_of

FILE_NAME = "lessons.safetensors"
FORMAT, VERSION = "ghnfl-lessons", "1"
_BATCH = 100  # images that share BatchNorm statistics
_SIZES = (4, 5, 6, 8, 10)  # random numbers along the side of a field: how fine a pattern is
_BENDS, _BEND_RATE = 10, 0.2  # steps of Adam on a field, and their size
_STUDY_BATCH, _STUDY_RATE, _TEMPERATURE = 64, 6e-3, 4.0


@dataclass(frozen=True)
class Teacher:
    """A trained network; `share` is its say among the others."""

    model: nn.Module
    weights: Mapping[str, Tensor]
    share: float = 1.0


@dataclass(frozen=True)
class Lessons:
    """Images, and the log probabilities that the fleet's networks agree on.

    Shapes: images (N, C, Y, X), normalised as a model reads them; answers (N, K).
    """

    images: Tensor
    answers: Tensor

    def save(self, path: str | Path) -> None:
        """Write both into one safetensors file, all or nothing; images with half precision."""
        tensors = {"images": self.images.half(), "answers": self.answers.float()}
        write_atomic(path, to_bytes(tensors, {"format": FORMAT, "version": VERSION}))

    @classmethod
    def load(cls, path: str | Path) -> Lessons:
        """The lessons of a .safetensors file, or of a run folder."""
        file = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise GHNError(
                f"there are no lessons at {file}: expected a file, or the folder of a finished "
                "run of recipfl with lessons above 0"
            )
        try:
            with safe_open(file, framework="pt") as opened:
                found = opened.metadata() or {}
                if (found.get("format"), found.get("version")) != (FORMAT, VERSION):
                    raise GHNError(
                        f"{file} must be {FORMAT!r} of version {VERSION}, "
                        f"got {found.get('format')!r} of version {found.get('version')}"
                    )
                return cls(*(opened.get_tensor(n).float() for n in ("images", "answers")))
        except SafetensorError as err:
            raise GHNError(f"{file} is not a whole file of lessons: {err}") from err


def make_lessons(
    teachers: Sequence[Teacher],
    shape: tuple[int, int, int],
    num_classes: int,
    count: int,
    generator: torch.Generator,
) -> Lessons:
    """`count` lessons by some teachers; `shape` is that of an image, (C, Y, X)."""
    images = imagine(teachers, shape, num_classes, count, generator)
    images = images[torch.randperm(count, generator=generator)]
    with torch.no_grad():
        answers = torch.cat([ask(teachers, batch) for batch in images.split(_BATCH)])
    return Lessons(images, answers)


def imagine(
    teachers: Sequence[Teacher],
    shape: tuple[int, int, int],
    num_classes: int,
    count: int,
    generator: torch.Generator,
) -> Tensor:
    """Patterns, bent until the teachers see a class in each of them; classes by lot."""
    done = []
    for start in range(0, count, _BATCH):
        size = min(_BATCH, count - start)
        field = draw_fields(size, shape[0], generator).requires_grad_()
        kind = torch.randint(4, (size, 1, 1, 1), generator=generator)
        level = torch.empty(size, 1, 1, 1).uniform_(-0.5, 1.5, generator=generator)
        wanted = torch.randint(num_classes, (size,), generator=generator)
        optimizer = torch.optim.Adam([field], lr=_BEND_RATE)
        for _ in range(_BENDS):
            optimizer.zero_grad()
            F.nll_loss(ask(teachers, pattern(field, kind, level, shape)), wanted).backward()
            optimizer.step()
        done.append(pattern(field.detach(), kind, level, shape))
    return torch.cat(done)


def draw_fields(count: int, channels: int, generator: torch.Generator) -> Tensor:
    """Smooth random fields, coarse ones and fine ones by turns; shape (N, C, G, G)."""
    grid = max(_SIZES)
    fields = torch.empty(count, channels, grid, grid)
    for i, size in enumerate(_SIZES):
        own = fields[i :: len(_SIZES)]
        noise = torch.randn(len(own), channels, size, size, generator=generator)
        own.copy_(F.interpolate(noise, size=(grid, grid), mode="bicubic", align_corners=False))
    return fields


def pattern(field: Tensor, kind: Tensor, level: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Images of a field (N, C, G, G): itself (kind 0), where it is high (1), its contours (2, 3).

    Every image has mean 0 and deviation 1, as normalised data have on average.
    """
    x = F.interpolate(field, size=shape[1:], mode="bicubic", align_corners=False)
    x = _standard(x)
    area = torch.sigmoid(8 * (x - level))
    line = torch.sigmoid(8 * (0.35 - (x - level).abs()))
    return _standard(torch.where(kind == 0, x, torch.where(kind == 1, area, line)))


def _standard(x: Tensor) -> Tensor:
    mean, deviation = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), keepdim=True)
    return (x - mean) / deviation.clamp(min=1e-3)


def ask(teachers: Sequence[Teacher], images: Tensor) -> Tensor:
    """What the teachers agree on: log probabilities, their logarithms' mean by share, (N, K)."""
    total = sum(teacher.share for teacher in teachers)
    mean = torch.zeros(())
    for teacher in teachers:
        logits = logits_of(functional_call(_asked(teacher.model), teacher.weights, (images,)))  # type: ignore[arg-type]
        mean = mean + teacher.share / total * logits.log_softmax(1)
    return mean.log_softmax(1)


def _asked(model: nn.Module) -> nn.Module:
    """The model without dropout and its like, BatchNorm with the statistics of the batch."""
    model.eval()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    return model


def study(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    lessons: Lessons,
    *,
    steps: int = 300,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The weights after some steps towards the fleet's answers; `model` stays as it is.

    Args:
        model: any network for the images of the lessons.
        weights: exactly its trainable parameters, generated or others.
        lessons: what the server of a run kept.
        steps: of Adam, with 64 images each.
        seed: of the order of the lessons, and of the model's dropout.
    """
    pupil = initialize(model, weights).train()
    trained = {name: p for name, p in pupil.named_parameters() if p.requires_grad}
    optimizer = torch.optim.Adam(trained.values(), lr=_STUDY_RATE)
    targets = (lessons.answers / _TEMPERATURE).softmax(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(steps):
            batch = torch.randint(len(targets), (_STUDY_BATCH,))
            logits = logits_of(pupil(lessons.images[batch]))
            if logits.shape[1:] != targets.shape[1:]:
                raise GHNError(
                    f"the lessons are about {targets.shape[1]} classes, "
                    f"the model's answers have the shape {tuple(logits.shape)}"
                )
            optimizer.zero_grad()
            F.kl_div(
                (logits / _TEMPERATURE).log_softmax(1), targets[batch], reduction="batchmean"
            ).backward()
            optimizer.step()
    return {name: p.detach() for name, p in trained.items()}
