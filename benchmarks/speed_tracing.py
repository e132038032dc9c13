"""How long tracing takes beside one plain forward pass of the same model, in the same process.

    python -m benchmarks.speed_tracing

Each round runs a plain pass, a trace, and a trace with virtual edges up to distance 50, one after
the other, so that whatever else the machine does hits all three; the figures are medians over
rounds, the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import graphs
import zoo
from benchmarks.results_file import write

ROUNDS = 15


def cases() -> dict[str, Callable[[], tuple[nn.Module, Any]]]:
    """The models, each with its example."""
    import torchvision
    import transformers

    def vision(name: str, batch: int, size: int) -> Callable[[], tuple[nn.Module, Any]]:
        return lambda: (
            torchvision.models.get_model(name).eval(),
            torch.randn(batch, 3, size, size),
        )

    def bert() -> tuple[nn.Module, Any]:
        model = transformers.BertModel(transformers.BertConfig()).eval()
        tokens = torch.arange(64).reshape(1, 64) + 1000
        return model, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    def of_zoo(spec: str) -> Callable[[], tuple[nn.Module, Any]]:
        return lambda: (zoo.build(spec).eval(), torch.randn(1, 3, 32, 32))

    return {
        "the zoo's resnet18, 1 image of 32x32": of_zoo("resnet18"),
        "the zoo's densenet121, 1 image of 32x32": of_zoo("densenet121"),
        "ResNet-18, 1 image of 32x32": vision("resnet18", 1, 32),
        "ResNet-18, 8 images of 32x32": vision("resnet18", 8, 32),
        "DenseNet-121, 1 image of 32x32": vision("densenet121", 1, 32),
        "DenseNet-121, 8 images of 32x32": vision("densenet121", 8, 32),
        "ViT-B/16, 1 image of 224x224": vision("vit_b_16", 1, 224),
        "BERT-base, 64 tokens": bert,
    }


def measure(model: nn.Module, example: Any, rounds: int) -> list[tuple[float, float, float]]:
    """Seconds of (plain pass, trace, trace with virtual edges), round by round."""

    def plain() -> Any:
        return model(**example) if isinstance(example, dict) else model(example)

    def traced() -> Any:
        return graphs.trace(model, example)

    def with_virtual_edges() -> Any:
        return graphs.virtual_edges(graphs.trace(model, example))

    for run in (plain, traced, with_virtual_edges):
        run()
    return [
        (_seconds(plain), _seconds(traced), _seconds(with_virtual_edges)) for _ in range(rounds)
    ]


def _seconds(run: Callable[[], Any]) -> float:
    gc.collect()
    started = time.perf_counter()
    result = run()
    took = time.perf_counter() - started
    del result
    return took


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, build in cases().items():
        model, example = build()
        graph = graphs.trace(model, example)
        results = measure(model, example, ROUNDS)
        plain, traced, virtual = (statistics.median(c) for c in zip(*results, strict=True))
        ratio = statistics.median(t / p for p, t, _ in results)
        ratio_virtual = statistics.median(v / p for p, _, v in results)
        rows.append(
            f"| {name} | {1e3 * plain:.1f} | {1e3 * traced:.1f} | {ratio:.2f} "
            f"| {1e3 * virtual:.1f} | {ratio_virtual:.2f} | {len(graph.nodes)} "
            f"| {graph.front_end} |"
        )
        print(rows[-1], flush=True)
    text = [
        f"One process, one thread, medians of {ROUNDS} interleaved rounds. The plain pass is "
        "`model(x)` in evaluation mode with gradients on; ratios are to it. Virtual edges: all "
        "pairs with a path of 2 to 50 edges. ResNet-18, DenseNet-121 and ViT-B/16 are "
        "torchvision's, made for 224x224: at 32x32 they compute next to nothing, and the ratio "
        "shows the bookkeeping of Python.",
        "",
        "| model | plain, ms | trace, ms | ratio | with virtual edges, ms | ratio | nodes "
        "| front end |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]
    title = "Time of a trace beside one plain forward pass"
    print(write("speed_tracing", title, "\n".join(text)))


if __name__ == "__main__":
    main()
