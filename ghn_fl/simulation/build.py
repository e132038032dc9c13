"""The world of a run: its data shared out among clients, and their models' weights and graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch

import graphs
import zoo
from ghn_fl.data import Dataset, PartitionTier, hold_out, partition
from ghn_fl.methods import METHODS
from ghn_fl.random import numpy_stream
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import Tier
from ghn_fl.simulation.public import HELDOUT, public_data
from ghn_fl.simulation.world import World
from ghn_fl.types import Client, Setting, Weights
from zoo import ModelSpec


def build_world(
    config: RunConfig, dataset: Dataset, tiers: Sequence[Tier], data_dir: Path | None = None
) -> tuple[World, tuple[Client, ...]]:
    """Data, partition and clients: the same for every method, given the same public data."""
    entry = METHODS[config.method]
    public, pool = public_data(
        config.public or (HELDOUT if entry.public else ""), dataset, config.seed, data_dir
    )
    shares = partition(
        dataset.y_train[pool],
        dataset.y_test,
        [
            PartitionTier(
                count=t.count,
                share=t.share,
                alpha=t.alpha or None,
                classes_per_client=t.classes or None,
            )
            for t in tiers
        ],
        num_classes=dataset.num_classes,
        seed=config.seed,
    )
    shares = tuple(dataclasses.replace(share, train=pool[share.train]) for share in shares)
    others = public.others if public is not None and entry.public else 0
    task = {
        "num_classes": dataset.num_classes + others,
        "in_channels": dataset.in_channels,
        "image_size": dataset.image_size,
    }
    if config.validation:
        shares = tuple(hold_out(s, config.validation, config.seed, i) for i, s in enumerate(shares))
    world = World(
        dataset=dataset,
        shares=shares,
        config=config.local(),
        seed=config.seed,
        task=task,
        validation=config.validation > 0,
        public=public,
    )
    total = sum(len(share.train) for share in shares)
    policy, settings = entry.models, config.method_config()
    fleet = [tier.model for tier in tiers]
    owners = [tier for tier in tiers for _ in range(tier.count)]
    clients = tuple(
        Client(
            id=i,
            tier=tier.name,
            models=policy(settings, tier.model, fleet),
            samples=len(share.train),
            share=len(share.train) / total,
            mix=share.mix,
        )
        for i, (tier, share) in enumerate(zip(owners, shares, strict=True))
    )
    return world, clients


def setting_of(config: RunConfig, world: World, clients: Sequence[Client]) -> Setting:
    """Initial weights and graph of every distinct model."""
    initial: dict[ModelSpec, Weights] = {}
    traced = {}
    for spec in sorted({spec for client in clients for spec in client.models}, key=str):
        with torch.random.fork_rng(devices=[]):
            stream = numpy_stream(config.seed, f"initial weights of {spec}")
            torch.manual_seed(int(stream.integers(2**31)))
            model = zoo.build(spec, **world.task)
        initial[spec] = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        example = {k: v for k, v in world.task.items() if k != "num_classes"}
        traced[spec] = graphs.trace(model, zoo.example_input(spec, **example))
    return Setting(
        clients=tuple(clients),
        num_classes=world.dataset.num_classes,
        initial=initial,
        graphs=traced,
        task=world.task,
        seed=int(numpy_stream(config.seed, "method").integers(2**31)),
        epochs=config.epochs,
        public_labels=None if world.public is None else world.public.y,
    )
