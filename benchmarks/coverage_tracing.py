"""Which models become a graph: every timm name, torchvision, transformers, PyG, and our own.

    python -m benchmarks.coverage_tracing            # all suites; goes on where it stopped
    python -m benchmarks.coverage_tracing own pyg    # some of them
    python -m benchmarks.coverage_tracing --again    # forget earlier results first

A model is covered when its graph is valid, lists exactly the model's parameters, and the trainable
parameters on nodes with a path to the output are exactly those that autograd reaches in a forward
pass of the untraced model (those that the graph reports as used without a gradient aside).
Every finished model is a line of `results/coverage_tracing.jsonl`; the report is made from it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

import graphs
from benchmarks import results_file
from benchmarks.tracing_suites import SUITES, Case
from graphs.example import arguments, outputs, prepared

RESULTS = Path(__file__).parent / "results"
LINES = RESULTS / "coverage_tracing.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="*", default=list(SUITES))
    parser.add_argument("--again", action="store_true", help="forget earlier results first")
    parser.add_argument("--report", action="store_true", help="only write the report again")
    parser.add_argument("--only", default="", help="only names that contain this")
    options = parser.parse_args()
    if options.report:
        return write_report()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    if options.again:
        LINES.unlink(missing_ok=True)
    commit = results_file.commit()
    done = {(r["suite"], r["name"]) for r in _lines() if r["covered"]}
    for suite in options.suites:
        for case in SUITES[suite]():
            if (suite, case.name) not in done and options.only in case.name:
                result = {"suite": suite, "name": case.name, "commit": commit, **examine(case)}
                with LINES.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                if not result["covered"]:
                    print(f"{suite} {case.name}: {result['reason']}", flush=True)
    write_report()


def examine(case: Case) -> dict[str, Any]:
    """What became of one model."""
    result: dict[str, Any] = {"covered": False, "reason": ""}
    started = time.perf_counter()
    try:
        model, example = case.build()
    except Exception as err:
        return result | {"reason": f"cannot be built: {_short(err)}"}
    built = time.perf_counter()
    try:
        graph = graphs.trace(model, example)
        traced = time.perf_counter()
        result |= {"build_s": round(built - started, 4), "trace_s": round(traced - built, 4)}
        result |= {"nodes": len(graph.nodes), "edges": len(graph.edges)}
        result |= {"front_end": graph.front_end, "orphans": len(graph.report.orphans)}
        result |= {"other": dict(graph.report.other)}
        result |= {"gradient_free": len(graph.report.gradient_free)}
        reached = reached_by_autograd(model, example)
        result["checked"] = reached is not None
        result["reason"] = difference(graph, model, reached)
    except Exception as err:
        result["reason"] = _short(err)
    return result | {"covered": not result["reason"]}


def difference(graph: graphs.Graph, model: nn.Module, reached: set[str] | None) -> str:
    """What is wrong with a graph, given what autograd reaches; nothing if it is right."""
    graph.validate()
    names = {n: tuple(p.shape) for n, p in model.named_parameters()}
    if graph.parameters(frozen=True) != names:
        return f"other parameters: {sorted(set(graph.parameters(frozen=True)) ^ set(names))[:3]}"
    attached = {n for node in graph.nodes if not node.orphan for n in node.parameters}
    attached -= graph.frozen | set(graph.report.gradient_free)
    if reached is not None and attached != reached:
        return f"missed {sorted(reached - attached)[:3]}, excess {sorted(attached - reached)[:3]}"
    return ""


def reached_by_autograd(model: nn.Module, example: object) -> set[str] | None:
    """The parameters behind the outputs of a plain forward pass; None when it cannot be run."""
    call = prepared(arguments(example), _like(model))
    if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
        model(*call.args, **call.kwargs)
    torch.manual_seed(0)
    names = {id(p): n for n, p in model.named_parameters()}
    model.eval()
    flag = torch.compiler._is_exporting_flag
    for exporting in (False, True):
        torch.compiler._is_exporting_flag = exporting
        try:
            result = model(*call.args, **call.kwargs)
            break
        except Exception:
            if exporting:
                return None
        finally:
            torch.compiler._is_exporting_flag = flag
    main, side = outputs(result)
    return _walk([t for t in main + side if t.requires_grad], names)


def _like(model: nn.Module) -> Callable[[Tensor], Tensor]:
    first = next(model.parameters())

    def change(tensor: Tensor) -> Tensor:
        kind = first.dtype if tensor.is_floating_point() else tensor.dtype
        return torch.empty_like(tensor, device=first.device, dtype=kind).copy_(tensor)

    return change


def _walk(tensors: list[Tensor], names: dict[int, str]) -> set[str]:
    found = {names[id(t)] for t in tensors if id(t) in names}
    todo: list[Any] = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(todo)
    while todo:
        for function, _ in todo.pop().next_functions:
            if function is not None and function not in seen:
                seen.add(function)
                todo.append(function)
                variable = getattr(function, "variable", None)
                if variable is not None and id(variable) in names:
                    found.add(names[id(variable)])
    return found


def write_report() -> None:
    """Write results/coverage_tracing.md and .json from the lines."""
    latest = {(r["suite"], r["name"]): r for r in _lines()}
    commits = sorted({r["commit"] for r in latest.values()})
    summary: dict[str, Any] = {"commits": commits, "suites": {}, "misses": []}
    rows = []
    for suite, cases in SUITES.items():
        wanted = {c.name for c in cases()}
        results = [r for (s, n), r in latest.items() if s == suite and n in wanted]
        covered = [r for r in results if r["covered"]]
        times = sorted(r["trace_s"] for r in results if "trace_s" in r)
        if not times:
            continue
        p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
        entry = {"names": len(wanted), "tried": len(results), "covered": len(covered)}
        entry |= {"median_s": statistics.median(times), "p95_s": p95, "max_s": times[-1]}
        entry |= {"median_nodes": statistics.median(r["nodes"] for r in covered)}
        entry["front_ends"] = _counts(r["front_end"] for r in covered)
        entry["checked"] = sum(r.get("checked", False) for r in covered)
        entry["with_orphans"] = sum(r["orphans"] > 0 for r in covered)
        entry["with_other"] = sum(bool(r["other"]) for r in covered)
        summary["suites"][suite] = entry
        summary["misses"] += [(suite, r["name"], r["reason"]) for r in results if not r["covered"]]
        summary["misses"] += [
            (suite, n, "not tried yet") for n in sorted(wanted - {r["name"] for r in results})[:50]
        ]
        rows.append(
            f"| {suite} | {len(covered)} / {len(wanted)} "
            f"| {100 * len(covered) / len(wanted):.2f} % "
            f"| {entry['median_s']:.3f} | {p95:.3f} | {times[-1]:.2f} "
            f"| {entry['median_nodes']:.0f} | {entry['checked']} "
            f"| {entry['with_orphans']} | {entry['with_other']} |"
        )
    (RESULTS / "coverage_tracing.json").write_text(json.dumps(summary, indent=1) + "\n")
    front_ends = [
        f"- {suite}: " + ", ".join(f"{n} {name}" for name, n in entry["front_ends"].items())
        for suite, entry in summary["suites"].items()
    ]
    others = _counts(name for r in latest.values() for name in r.get("other", {}))
    text = [
        f"Measured at {', '.join(commits)}, one thread. Covered: the graph is valid, lists exactly "
        "the model's parameters, and the attached trainable ones are exactly those that autograd "
        "reaches in a plain forward pass.",
        "",
        "| suite | covered | share | median s | p95 s | max s | median nodes "
        "| checked by a plain pass | with orphans | with `other` |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "A few models cannot run a plain pass as they are built here (meta tensors, and they ask "
        "for values); for them the check is the tracer's own, on the pass that it recorded. "
        "timm and torchvision models are built on the meta device (no weights), the others on CPU "
        "tensors. Times are of `graphs.trace` alone.",
        "",
        "## Misses",
        "",
        *([f"- {s} `{n}`: {reason}" for s, n, reason in summary["misses"]] or ["None."]),
        "",
        "## Front ends",
        "",
        *front_ends,
        "",
        "## Functions without an operator type (models that have them)",
        "",
        ", ".join(f"`{n}` {k}" for n, k in others.items()) or "None.",
    ]
    results_file.write("coverage_tracing", "Which models become a graph", "\n".join(text))


def _counts(names: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def _short(err: Exception) -> str:
    return f"{type(err).__name__}: {str(err).strip().splitlines()[0][:300] if str(err) else ''}"


if __name__ == "__main__":
    sys.exit(main())
