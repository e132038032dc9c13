"""Who comes late: architectures that nobody has trained, and clients that were never sampled.

(i) A device joins a trained fleet of LeNets with a network of its own, and 200 images that were
kept away from the fleet. It gets weights in several ways; they are tested at once, with BatchNorm
statistics from its images, and after one epoch on them. (ii) Half of the weak devices are never
there in training and are known by their label histogram only; in a second run the other half is
absent, so that every device is compared with itself.

    python -m benchmarks.newcomers --seeds 0
    python -m benchmarks.newcomers --dataset mnist --rounds 100 --data-dir DIR

Every run has a folder under --runs; finished ones, and finished architectures, are kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphs
import zoo
from benchmarks.cropped import Trained, cropped
from benchmarks.experiments import perform, spread, table, write_fleet
from benchmarks.results_file import write
from ghn_fl import GHN, Lessons, RunConfig, initialize, study
from ghn_fl.data import DATASETS, load, normalise
from ghn_fl.errors import USER_ERRORS
from ghn_fl.files import write_atomic
from ghn_fl.lessons import Teacher, ask
from ghn_fl.report.paired import Pair, paired_test
from ghn_fl.report.read import Run, read_run
from ghn_fl.simulation import checkpoint
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.grid import Cell

OWN, PUBLIC = 200, 600  # images of the device that joins, and unlabelled ones for distillation
STEPS = 300  # of `study`, and of the distillation that it is compared with
NEVER = 1e-12  # the availability of devices that are never there
Task = Mapping[str, int]


@dataclass(frozen=True)
class Newcomer:
    """An architecture that nobody has trained."""

    family: str
    build: Callable[[Task], nn.Module]


def plain(
    channels: Sequence[int], kernels: Sequence[int], dense: int, norm: bool = True
) -> Callable[[Task], nn.Module]:
    """Convolutions, halving the image twice; a dense layer and the classifier."""

    def build(task: Task) -> nn.Module:
        layers: list[nn.Module] = []
        inp = task["in_channels"]
        for i, (out, kernel) in enumerate(zip(channels, kernels, strict=True)):
            layers.append(nn.Conv2d(inp, out, kernel, padding=kernel // 2))
            layers += [nn.BatchNorm2d(out)] if norm else []
            layers += [nn.ReLU(), nn.MaxPool2d(2)] if i < 2 else [nn.ReLU()]
            inp = out
        layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(inp * 16, dense), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(dense, task["num_classes"]))

    return build


def mlp(*widths: int) -> Callable[[Task], nn.Module]:
    """Dense layers."""

    def build(task: Task) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        inp = task["in_channels"] * task["image_size"] ** 2
        for out in widths:
            layers += [nn.Linear(inp, out), nn.ReLU()]
            inp = out
        return nn.Sequential(*layers, nn.Linear(inp, task["num_classes"]))

    return build


def mixer(task: Task) -> nn.Module:
    """An MLP-Mixer of timm: patches of 4, 3 blocks."""
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(**_patches(task), patch_size=4, embed_dim=40, num_blocks=3)


def vit(task: Task) -> nn.Module:
    """A ViT of timm: patches of 4, 3 blocks."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(**_patches(task), patch_size=4, embed_dim=40, depth=3, num_heads=4)


def _patches(task: Task) -> dict[str, int]:
    names = {"num_classes": "num_classes", "in_chans": "in_channels", "img_size": "image_size"}
    return {theirs: task[ours] for theirs, ours in names.items()}


def spec(name: str) -> Callable[[Task], nn.Module]:
    return lambda task: zoo.build(name, **task)


NEWCOMERS: Mapping[str, Newcomer] = {
    "lenet5-w0.4": Newcomer("LeNet", spec("lenet5-w0.4")),
    "lenet5-w0.7": Newcomer("LeNet", spec("lenet5-w0.7")),
    "lenet5-d1-w0.5": Newcomer("LeNet", spec("lenet5-d1-w0.5")),
    "conv 12-20, kernels 7-3, dense 64": Newcomer("CNN", plain((12, 20), (7, 3), 64)),
    "conv 6-10-14, kernels 3-3-5, dense 48": Newcomer("CNN", plain((6, 10, 14), (3, 3, 5), 48)),
    "conv 10-16, kernels 5-5, no norm": Newcomer("CNN", plain((10, 16), (5, 5), 56, norm=False)),
    "heterofl_cnn-d3-w0.2": Newcomer("CNN", spec("heterofl_cnn-d3-w0.2")),
    "resnet18-d1-w0.2": Newcomer("ResNet", spec("resnet18-d1-w0.2")),
    "resnet18-w0.1": Newcomer("ResNet", spec("resnet18-w0.1")),
    "dense 128": Newcomer("MLP", mlp(128)),
    "dense 96-64-32": Newcomer("MLP", mlp(96, 64, 32)),
    "MLP-Mixer, 3 blocks of 40": Newcomer("tokens", mixer),
    "ViT, 3 blocks of 40": Newcomer("tokens", vit),
}
GENERATED, TAUGHT = "generated", "generated, lessons"
RANDOM, RANDOM_TAUGHT = "random", "random, lessons"
CROPPED, DISTILLED = "cropped", "distilled"
WAYS = (GENERATED, TAUGHT, RANDOM, RANDOM_TAUGHT, CROPPED, DISTILLED)
Row = dict[str, Any]  # parameters, and for every way its accuracy at once and after an epoch, in %


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="mnist5k")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/newcomers"))
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = options.runs / options.dataset
    try:
        wanted = cells(options.dataset, options.rounds, options.seeds, runs)
        found = perform(wanted, runs, options.data_dir)
        joined = {
            seed: architectures(runs / f"fleet-{seed}", options.data_dir, NEWCOMERS)
            for seed in options.seeds
            if f"fleet-{seed}" in found
        }
    except USER_ERRORS as err:
        sys.exit(f"newcomers: {err}")
    pairs = {
        seed: late_clients(read_run(runs / f"first-{seed}"), read_run(runs / f"second-{seed}"))
        for seed in options.seeds
        if {f"first-{seed}", f"second-{seed}"} <= found.keys()
    }
    name = "newcomers" if options.dataset == "mnist5k" else f"newcomers_{options.dataset}"
    about = (
        f"{options.dataset}, recipfl with its defaults, 2:100 (LeNet-5 and its small model), "
        f"{options.rounds} rounds, seeds {', '.join(map(str, options.seeds))}."
    )
    body = f"{about}\n\n{text(joined, pairs, NEWCOMERS)}"
    path = write(name, "Newcomers: architectures and clients that training has not seen", body)
    print(f"\n{path.read_text()}\n{path}")


def cells(dataset: str, rounds: int, seeds: Sequence[int], runs: Path) -> list[Cell]:
    """For every seed the fleet that architectures join, and two with half of the weak absent."""
    base = RunConfig(dataset=dataset, rounds=rounds, eval_every=rounds, skew="2:100")
    held = f"heldout:{(OWN + PUBLIC) / DATASETS[dataset].num_train:g}"
    half: dict[str, Any] = {"count": 50, "model": "lenet5-d1", "share": 0.25, "alpha": 0.5}
    strong = {"name": "strong", "count": 2, "model": "lenet5", "share": 0.5}
    there, absent = {"name": "weak"} | half, {"name": "late", "availability": NEVER} | half
    fleets = {
        "first": write_fleet(runs / "first.toml", (strong, there, absent)),
        "second": write_fleet(runs / "second.toml", (strong, absent, there)),
    }
    found = []
    for seed in seeds:
        fleet = dataclasses.replace(base, seed=seed, public=held)
        found.append(Cell(name=f"fleet-{seed}", config=fleet))
        for name, path in fleets.items():
            # 20 of 102, about half of them absent: ten answers a round, as with everybody there
            config = dataclasses.replace(base, seed=seed, fleet=path, sample=20)
            found.append(Cell(name=f"{name}-{seed}", config=config))
    return found


def architectures(
    folder: Path, data_dir: Path | None, newcomers: Mapping[str, Newcomer]
) -> dict[str, Row]:
    """The rows of a run's newcomers; those in its newcomers.json are taken from there."""
    file = folder / "newcomers.json"
    rows: dict[str, Row] = json.loads(file.read_text()) if file.exists() else {}
    missing = [name for name in newcomers if name not in rows]
    if missing:
        place = Place.of(folder, data_dir)
        for name in missing:
            rows[name] = join(place, newcomers[name])
            write_atomic(file, json.dumps(rows, indent=1) + "\n")
            shown = ", ".join(f"{way} {rows[name][way][0]:.1f}" for way in WAYS)
            print(f"{folder.name}, {name}: {shown}", flush=True)
    return {name: rows[name] for name in newcomers}


@dataclass(frozen=True)
class Place:
    """What a trained fleet has for newcomers, and the newcomer's own images.

    Attributes:
        ghn: the run's hypernetwork.
        lessons: the run's.
        trained: graph and weights of every architecture of the fleet.
        public: the same as `lessons`, but on unlabelled images of the real kind.
        task: what models are built for.
        own: the newcomer's images and labels.
        test: the test set.
        seed: the run's.
    """

    ghn: GHN
    lessons: Lessons
    trained: tuple[Trained, ...]
    public: Lessons
    task: Task
    own: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    seed: int

    @classmethod
    def of(cls, folder: Path, data_dir: Path | None) -> Place:
        config = RunConfig(**json.loads((folder / "config.json").read_text())["config"])
        dataset = load(config.dataset, data_dir)
        world, clients = build_world(config, dataset, tiers_of(config, dataset.in_channels))
        setting = setting_of(config, world, clients)
        saved = checkpoint.load(folder)
        assert saved is not None and world.public is not None
        mean = saved[1]["mean"]
        order = torch.randperm(
            len(world.public.y), generator=torch.Generator().manual_seed(config.seed)
        )
        x, y = normalise(world.public.x[order], dataset), world.public.y[order]
        teachers = [
            Teacher(zoo.build(s, **world.task), mean[str(s)], share)
            for s in setting.graphs
            for share in (sum(c.samples for c in clients if s in c.models),)
        ]
        with torch.no_grad():
            answers = torch.cat([ask(teachers, part) for part in x[OWN:].split(100)])
        return cls(
            ghn=GHN.load(folder),
            lessons=Lessons.load(folder),
            trained=tuple((graph, mean[str(s)]) for s, graph in setting.graphs.items()),
            public=Lessons(x[OWN:], answers),
            task=world.task,
            own=(x[:OWN], y[:OWN]),
            test=(normalise(dataset.x_test, dataset), dataset.y_test),
            seed=config.seed,
        )


def join(place: Place, newcomer: Newcomer, steps: int = STEPS) -> Row:
    """A newcomer's row: weights in every way, tested at once and after an epoch."""
    torch.manual_seed(place.seed)
    model = newcomer.build(place.task).eval()
    x, y = place.own
    fresh = {name: p.detach().clone() for name, p in model.named_parameters()}
    mix = torch.bincount(y, minlength=place.task["num_classes"]) / len(y)
    made = place.ghn.generate(model, x[:1], client=mix)
    weights = {
        GENERATED: made,
        TAUGHT: study(model, made, place.lessons, steps=steps),
        RANDOM: fresh,
        RANDOM_TAUGHT: study(model, fresh, place.lessons, steps=steps),
        CROPPED: cropped(graphs.trace(model, x[:1]), fresh, place.trained),
        DISTILLED: study(model, fresh, place.public, steps=steps),
    }
    row: Row = {"parameters": sum(p.numel() for p in model.parameters())}
    for way in WAYS:
        at_once = initialize(model, weights[way], x.split(50))
        tuned = one_epoch(at_once, x, y)
        row[way] = [accuracy(at_once, *place.test), accuracy(tuned, *place.test)]
    return row


def one_epoch(model: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """The model after an epoch of SGD, batches of 20; its BatchNorm statistics are collected anew.

    The argument stays as it is.
    """
    trained = initialize(model, dict(model.named_parameters())).train()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01, momentum=0.9)
    for part in torch.arange(len(y)).split(20):
        optimizer.zero_grad()
        F.cross_entropy(trained(x[part]), y[part]).backward()
        optimizer.step()
    return initialize(trained, dict(trained.named_parameters()), x.split(50))


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """In %."""
    model.eval()
    with torch.no_grad():
        hits = [
            (model(a).argmax(1) == b).double()
            for a, b in zip(x.split(1000), y.split(1000), strict=True)
        ]
    return 100 * float(torch.cat(hits).mean())


def late_clients(first: Run, second: Run) -> dict[str, list[Pair]]:
    """For both measures a pair a device: with the device in training, and without it.

    Devices of the trained half that happened never to answer are left out.
    """
    pairs: dict[str, list[Pair]] = {"own": [], "whole": []}
    for there, away in ((first, second), (second, first)):
        answered = {
            client
            for record in there.rounds
            for client in set(record.sampled) - {r.client for r in record.rejected}
        }
        took_part, absent = there.rounds[-1].clients, away.rounds[-1].clients
        for device in there.fleet:
            if device.tier == "weak" and device.id in answered:
                a, b = took_part[device.id], absent[device.id]
                assert a.accuracy is not None and b.accuracy is not None
                assert a.accuracy_full is not None and b.accuracy_full is not None
                pairs["own"].append((a.accuracy, b.accuracy))
                pairs["whole"].append((a.accuracy_full, b.accuracy_full))
    return pairs


def text(
    joined: Mapping[int, Mapping[str, Row]],
    pairs: Mapping[int, Mapping[str, Sequence[Pair]]],
    newcomers: Mapping[str, Newcomer],
) -> str:
    """Both tables, and what they are about."""
    return "\n".join(
        [
            "## Architectures that nobody has trained",
            "",
            f"Test accuracy in %, at once / after one epoch on the newcomer's {OWN} images (SGD "
            "0.01, momentum 0.9, batches of 20), which the fleet did not have. BatchNorm "
            "statistics come from the same images. *Generated*: `GHN.generate` with the images' "
            f"label histogram. *Lessons*: then {STEPS} steps of `ghn_fl.study` on what the server "
            "imagined, no data of anybody; beside it the same from random weights, so that what "
            "the hypernetwork's start adds can be seen. *Cropped*: the nearest trained model, cut "
            f"and padded (`benchmarks/cropped.py`). *Distilled*: random weights and {STEPS} steps "
            "of the same kind, but on real unlabelled public images, with answers of the same "
            "trained models.",
            "",
            newcomers_table(joined, newcomers),
            "",
            "## Clients that were never sampled",
            "",
            "100 weak devices of the same small model. In each of two runs one half is never "
            "there; the server knows its label histograms only. Every device is compared with "
            "itself; accuracy in % after the last round and the evaluation's epoch of "
            "fine-tuning, on its own test samples, and on the whole test set weighted by its "
            "label mix. The difference is given with its standard error over the devices, and p "
            "of Wilcoxon's signed-rank test.",
            "",
            late_table(pairs),
        ]
    )


def newcomers_table(
    joined: Mapping[int, Mapping[str, Row]], newcomers: Mapping[str, Newcomer]
) -> str:
    """A row a newcomer, means over the seeds; families' means and the mean of all at the end."""

    def figures(names: Sequence[str]) -> list[str]:
        def mean(way: str, i: int) -> str:
            by_seed = [statistics.fmean(r[n][way][i] for n in names) for r in joined.values()]
            return spread(by_seed, scale=1, digits=1)

        return [f"{mean(way, 0)} / {mean(way, 1)}" for way in WAYS]

    sizes = {name: row["parameters"] for r in joined.values() for name, row in r.items()}
    rows = [
        [name, one.family, f"{sizes[name]:,}", *figures([name])] for name, one in newcomers.items()
    ]
    for family in dict.fromkeys(one.family for one in newcomers.values()):
        own = [name for name, one in newcomers.items() if one.family == family]
        rows.append([f"*mean, {family}*", family, "", *figures(own)])
    rows.append(["**mean**", "", "", *figures(list(newcomers))])
    return table(["architecture", "family", "parameters", *WAYS], rows, names=2)


def late_table(pairs: Mapping[int, Mapping[str, Sequence[Pair]]]) -> str:
    """A row a seed and measure: the devices in training, the same without, and the difference."""
    rows = []
    for measure, name in (("own", "own test samples"), ("whole", "whole test set")):
        by_seed = {seed: found[measure] for seed, found in pairs.items()}
        groups = {str(seed): {seed: found} for seed, found in by_seed.items()}
        if len(by_seed) > 1:
            groups["all"] = by_seed
        for label, group in groups.items():
            every = [pair for found in group.values() for pair in found]
            changes = [100 * (b - a) for a, b in every]
            error = statistics.stdev(changes) / len(changes) ** 0.5
            test = paired_test(group)
            assert test is not None and test.p is not None
            means = [f"{100 * statistics.fmean(pair[i] for pair in every):.2f}" for i in (0, 1)]
            difference = f"{statistics.fmean(changes):+.2f} ± {error:.2f} (p {test.p:.1g})"
            rows.append([name, label, str(len(every)), *means, difference])
    header = ["accuracy on", "seed", "devices", "in training", "never sampled", "difference"]
    return table(header, rows, names=2)


if __name__ == "__main__":
    main()
