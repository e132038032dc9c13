"""Whether one hypernetwork serves real architectures: timm's families, transformers' encoders.

    python -m benchmarks.coverage_hypernet

For the smallest model of every module of timm, and for tiny transformers encoders: the generated
weights must be exactly the trainable parameters, finite, and the model must compute finite outputs
with them (BatchNorm statistics recomputed on the example).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.results_file import write
from benchmarks.tracing_suites import transformers_cases
from ghn_fl import GHN, GHNConfig, initialize

ENCODERS = (
    "bert", "distilbert", "roberta", "albert", "electra", "deberta-v2", "mpnet", "mobilebert",
    "squeezebert", "modernbert", "convbert", "vit", "deit", "beit",
)  # fmt: skip


def smallest_of_timm() -> dict[str, str]:
    """Module of timm -> its model with the fewest parameters, counted on the meta device."""
    import timm

    best: dict[str, tuple[float, str]] = {}
    for name in timm.list_models():
        module = timm.model_entrypoint(name).__module__.rsplit(".", 1)[1]
        with torch.device("meta"):
            count = sum(p.numel() for p in timm.create_model(name).parameters())
        best[module] = min(best.get(module, (math.inf, "")), (count, name))
    return {module: name for module, (_, name) in sorted(best.items())}


def cases() -> Iterator[tuple[str, str, nn.Module, Any]]:
    """Suite, name, model and example input."""
    import timm

    for name in smallest_of_timm().values():
        model = timm.create_model(name)
        yield "timm", name, model, torch.randn(2, *model.pretrained_cfg["input_size"])
    for case in transformers_cases():
        if case.name in ENCODERS:
            model, example = case.build()
            yield "transformers", case.name, model, example


def check(ghn: GHN, model: nn.Module, example: Any) -> str:
    """Why the generated weights don't serve the model; empty if they do."""
    weights = ghn.generate(model, example)
    wanted = {n: p.shape for n, p in model.named_parameters() if p.requires_grad}
    if {n: w.shape for n, w in weights.items()} != wanted:
        return "names or shapes differ"
    if not all(bool(torch.isfinite(w).all()) for w in weights.values()):
        return "weights are not finite"
    ready = initialize(model, weights, [example]).eval()
    with torch.no_grad():
        out = ready(**example) if isinstance(example, dict) else ready(example)
    if not isinstance(out, Tensor):
        out = out[0] if isinstance(out, tuple | list) else out.logits
    return "" if torch.isfinite(out).all() else "the output is not finite"


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    ghn = GHN(GHNConfig(num_classes=1000)).eval()
    served: dict[str, list[str]] = {}
    misses, start = [], time.perf_counter()
    for suite, name, model, example in cases():
        try:
            reason = check(ghn, model, example)
        except Exception as err:
            reason = f"{type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''}"
        served.setdefault(suite, [])
        if reason:
            misses.append(f"{suite} {name}: {reason}")
            print(misses[-1], flush=True)
        else:
            served[suite].append(name)
    missed = {suite: sum(m.startswith(f"{suite} ") for m in misses) for suite in served}
    lines = ["| suite | served | of |", "|---|---|---|"]
    lines += [f"| {s} | {len(n)} | {len(n) + missed[s]} |" for s, n in served.items()]
    lines += ["", f"{time.perf_counter() - start:.0f} s.", "", "Not served:" if misses else ""]
    lines += [f"- {miss}" for miss in misses]
    lines += [f"\n{suite}: {', '.join(names)}" for suite, names in served.items()]
    title = "Architectures that one hypernetwork serves"
    print(write("coverage_hypernet", title, "\n".join(lines)))


if __name__ == "__main__":
    main()
