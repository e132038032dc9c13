"""What a worker does: train a client's models, or fine-tune and evaluate one."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import zoo
from ghn_fl import local, public
from ghn_fl.data import augment, normalise
from ghn_fl.local import Samples
from ghn_fl.random import numpy_stream, torch_stream
from ghn_fl.simulation.world import World
from ghn_fl.types import Recipe
from zoo import ModelSpec


@dataclass
class Bench:
    """A worker's place: the world, and models that it has built once and uses again."""

    world: World
    models: dict[str, nn.Module] = field(default_factory=dict)

    def model(self, spec: str, weights: dict[str, Tensor]) -> nn.Module:
        if spec not in self.models:
            model = zoo.build(ModelSpec.parse(spec), **self.world.task)
            if self.world.task["in_channels"] > 1 and _even(model):  # a third to a half faster
                model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.models[spec] = model
        return local.load(self.models[spec], weights)


def _even(model: nn.Module) -> bool:
    """Whether channels may lie last in memory.

    Where their number is not a multiple of 8, torch 2.13 writes past its memory on processors
    without AVX-512: in the backward pass of 1x1 convolutions of stride 2.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return all(module.out_channels % 8 == 0 for module in convolutions)


def perform(bench: Bench, task: dict[str, Any]) -> dict[str, Any]:
    """Do one task; a failure of the client's own making is an answer, too."""
    world, client, number = bench.world, task["client"], task["round"]
    # Dropout and its like draw from the global generator.
    torch.manual_seed(int(numpy_stream(world.seed, task["kind"], number, client).integers(2**31)))
    generator = torch_stream(world.seed, f"batches of {task['kind']}", number, client)
    if task["kind"] == "train":
        return _train(bench, task, generator)
    return _evaluate(bench, task, generator)


def _train(bench: Bench, task: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    data = _samples(bench.world, task["client"])
    config = replace(bench.world.config, lr=task["lr"])
    trained: list[dict[str, Tensor]] = []
    metrics, extras = dict[str, float](), dict[str, Tensor]()
    for i, ((spec, weights), recipe) in enumerate(
        zip(task["models"], (Recipe(**r) for r in task["recipes"]), strict=True)
    ):
        teacher = None
        if recipe.teacher is not None:
            teacher = _teacher(bench, task["models"], recipe.teacher, trained, data)
        model = bench.model(spec, weights)
        if recipe.pretrain or recipe.digest is not None:
            metrics |= _learn_in_public(bench.world, model, recipe, generator)
        progress = local.train(
            model, data, config, generator, recipe, teacher=teacher, anchor=weights
        )
        metrics["loss" if i == 0 else f"loss_{i + 1}"] = progress.loss
        extras |= progress.extras
        if recipe.scores is not None:
            extras["scores"] = public.scores(model, _public(bench.world), recipe.scores)
        trained.append(local.unload(model))
    return {"weights": trained, "samples": len(data.y), "metrics": metrics, "extras": extras}


def _learn_in_public(
    world: World, model: nn.Module, recipe: Recipe, generator: torch.Generator
) -> dict[str, float]:
    """What comes before a client's own data: pretraining and digesting; what is to be shown."""
    data, metrics = _public(world), dict[str, float]()
    if recipe.pretrain:
        batch = world.config.batch_size
        metrics["pretrain"] = public.pretrain(model, data, recipe.pretrain, batch, generator)
    if recipe.digest is not None:
        metrics["digest"] = public.digest(model, data, recipe.digest, generator)
    return metrics


def _public(world: World) -> Samples:
    assert world.public is not None, "a method that needs public data says so in its entry"
    # normalised as the run's own images: a pixel means the same in both
    return Samples(world.public.x, world.public.y, prepare=lambda x: normalise(x, world.dataset))


def _teacher(
    bench: Bench, models: Any, place: int, trained: list[dict[str, Tensor]], data: Samples
) -> nn.Module:
    """Another of the client's models, ready to be asked: as trained, or else as given."""
    spec, given = models[place]
    # a copy: the bench has one model of a spec, and the client may train that one next
    model = copy.deepcopy(bench.model(spec, trained[place] if place < len(trained) else given))
    local.static_norm(model, data)
    return model.eval()


def _evaluate(bench: Bench, task: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Fine-tuning on a copy that is thrown away, then the client's own test samples."""
    world, dataset = bench.world, bench.world.dataset
    share, data = world.shares[task["client"]], _samples(world, task["client"])
    model = bench.model(task["spec"], task["weights"])
    untuned = None
    if task["second"] is not None and task["epochs"] and task["second"][-1]:
        untuned = copy.deepcopy(model)
        local.static_norm(untuned, data)
    local.train(
        model, data, replace(world.config, lr=task["lr"]), generator, Recipe(epochs=task["epochs"])
    )
    if task["static_norm"] or not task["epochs"]:
        local.static_norm(model, data)
    others = [] if task["second"] is None else _others(bench, task["second"], model, untuned, data)
    x, y = (
        (dataset.x_train, dataset.y_train) if world.validation else (dataset.x_test, dataset.y_test)
    )
    score = local.evaluate(
        model, normalise(x[share.test], dataset), y[share.test], dataset.num_classes, others
    )
    # a model that went astray has no loss that JSON could hold
    loss = score.loss if math.isfinite(score.loss) else None
    result: dict[str, Any] = {"accuracy": score.accuracy, "loss": loss}
    if score.exits:
        result["accuracy_exits"] = list(score.exits)
    if task["full"]:
        whole = local.evaluate(
            model, normalise(dataset.x_test, dataset), dataset.y_test, dataset.num_classes, others
        )
        # accuracy on the whole test set, every class weighted as in the client's own data
        result["accuracy_full"] = sum(
            part * right for part, right in zip(share.mix, whole.by_class, strict=True) if part > 0
        )
    return result


def _others(
    bench: Bench, second: Any, model: nn.Module, untuned: nn.Module | None, data: Samples
) -> list[tuple[nn.Module, float]]:
    """Whom a client asks beside its tuned model, each with its part of the answer.

    A second model is asked as it is served: it is there for what other clients know. Its part is
    what the client's own training samples ask for, and not less than the server says. The rest is
    shared between the own model and itself before it was tuned.
    """
    spec, weights, least, part_untuned = second
    small = bench.model(spec, weights)
    local.static_norm(small, data)
    own = local.of_labels(model, data)
    if untuned is not None:
        own = (1 - part_untuned) * own + part_untuned * local.of_labels(untuned, data)
    part = max(least, local.likeliest_part(own, local.of_labels(small, data)))
    others = [(small, part)]
    return others if untuned is None else [*others, (untuned, (1 - part) * part_untuned)]


def _samples(world: World, client: int) -> Samples:
    dataset, index = world.dataset, world.shares[client].train
    images, labels = dataset.x_train[index], dataset.y_train[index]
    if not dataset.augment:
        return Samples(normalise(images, dataset), labels)
    return Samples(
        images,
        labels,
        augment=lambda x, g: normalise(augment(x, g), dataset),
        prepare=lambda x: normalise(x, dataset),
    )
