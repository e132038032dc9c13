"""What generation and the server's step cost, for LeNet clients and for large networks.

LeNet: against visiting node by node, and against the clients' local training. Large networks:
milliseconds and memory, against decoders as large as the largest layer.

    python -m benchmarks.speed_hypernet
"""

from __future__ import annotations

import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

import graphs
import zoo
from benchmarks.results_file import write
from ghn_fl import GHN, Change, GHNConfig, Request, update
from ghn_fl.hypernet.client import check_client
from ghn_fl.hypernet.decode import full_shapes, normalise
from ghn_fl.hypernet.embed import shorten
from ghn_fl.hypernet.plan import plan as make_plan
from graphs import Graph, paths
from graphs.batch import ROLES

REPEATS = 7
LARGE = {  # name -> how to build it
    "LeNet-5": ("lenet5", {}),
    "ResNet-18": ("timm:resnet18", {"num_classes": 1000}),
    "ResNet-50": ("timm:resnet50", {"num_classes": 1000}),
    "ViT-B/16": ("timm:vit_base_patch16_224", {"num_classes": 1000}),
    "BERT-base": ("bert_base", {}),
}


def medians(**calls: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each call, interleaved."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(REPEATS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if repeat:  # the first one warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


# --- ten LeNet clients --------------------------------------------------------------------------


def lenet_requests(num_strong: int) -> list[Request]:
    made = []
    for i in range(10):
        spec = "lenet5" if i < num_strong else "lenet5-d1"
        model = zoo.build(spec)
        made.append(
            Request(
                graph=graphs.trace(model, zoo.example_input(spec)),
                client=torch.distributions.Dirichlet(torch.full((10,), 0.5)).sample(),
                current={n: p.detach() for n, p in model.named_parameters()},
            )
        )
    return made


def node_by_node(ghn: GHN, request: Request) -> dict[str, Tensor]:
    """The same weights, told as the paper tells it: every node is visited for itself.

    Its features, its messages in both directions, its update, and its weights one by one.
    """
    graph, current, config = request.graph, request.current or {}, ghn.config
    plan = make_plan(graph, config)
    h = []
    for i in range(len(graph.nodes)):
        mine = [(name, role) for name, node, role in plan.values if node == i]
        values = [shorten(current[name], config.value_length, config.pooling) for name, _ in mine]
        roles = torch.tensor([ROLES.index(role) for _, role in mine], dtype=torch.long)
        place = torch.zeros(len(mine), dtype=torch.long)
        h.append(
            ghn.nodes(plan.data.op[i : i + 1], plan.data.bins[i : i + 1], values, place, roles)
        )
    for order, heard in hearing(graph):
        for v in order:
            sources, distance, neighbours = heard[v]
            message = torch.zeros_like(h[v])
            if sources:
                near = ghn.gnn.message(torch.cat([h[u] for u in neighbours]))
                far = ghn.gnn.virtual_message(torch.cat([h[u] for u in sources]))
                message = near.sum(0, True) + (far / distance).sum(0, True)
            h[v] = ghn.gnn.gru(message, h[v])
    client = ghn.client([check_client(request.client, config)])
    weights = {}
    for slot in plan.slots:
        op, family, number, shape, transposed = slot.kind
        role = torch.tensor([ROLES.index(slot.role)])
        raw = ghn.decoders(
            ghn.gnn.norm(h[slot.node]),
            role,
            client,
            op=op,
            family=family,
            number=number,
            shape=shape,
        )
        made = normalise(raw, op=op, role=slot.role, transposed=transposed, shape=slot.shape)[0]
        weights[slot.name] = made[: slot.shape[0]]
    return weights


@lru_cache
def hearing(graph: Graph) -> list[tuple[range, list[tuple[list[int], Tensor, list[int]]]]]:
    """For both directions the order of the visit, and whom each node hears from how far."""
    table = paths.distances(graph).astype("int64")
    directions = []
    for reach, order in ((table.T, range(len(table))), (table, range(len(table))[::-1])):
        heard = []
        for row in reach:
            sources = [u for u, s in enumerate(row) if 0 < s < paths.FAR]
            distance = torch.tensor([[row[u]] for u in sources])
            heard.append((sources, distance, [u for u in sources if row[u] == 1]))
        directions.append((order, heard))
    return directions


def local_training(spec: str, samples: int) -> Callable[[], object]:
    """Five epochs of SGD as in the paper: 0.01, batches of 128."""
    model = zoo.build(spec)
    x, y = torch.randn(samples, 1, 28, 28), torch.randint(0, 10, (samples,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def epochs() -> None:
        for _ in range(5):
            for part in torch.randperm(samples).split(128):
                optimizer.zero_grad()
                F.cross_entropy(model(x[part]), y[part]).backward()
                optimizer.step()

    return epochs


def lenet_section() -> list[str]:
    torch.manual_seed(0)
    ghn = GHN(GHNConfig()).eval()
    requests = lenet_requests(num_strong=0)
    sent = ghn.generate_many(requests)
    changes = [
        Change(request=r, sent=s, trained={n: w + 0.01 * torch.randn_like(w) for n, w in s.items()})
        for r, s in zip(requests, sent, strict=True)
    ]
    weak = local_training("lenet5-d1", 300)  # 0.5 % of MNIST
    with torch.no_grad():
        for request, ours in zip(requests, sent, strict=True):
            theirs = node_by_node(ghn, request)
            assert all(torch.allclose(w, theirs[n], atol=1e-5) for n, w in ours.items())

    @torch.no_grad()
    def naive() -> None:
        for request in requests:
            node_by_node(ghn, request)

    took = medians(
        together=lambda: ghn.generate_many(requests),
        one_by_one=naive,
        update=lambda: update(ghn, changes),
        training=lambda: [weak() for _ in range(10)],
    )
    server = took["together"] + took["update"]
    return [
        "## Ten LeNet clients (the weak ones of MNIST 2:100), one thread",
        "",
        "| | median ms |",
        "|---|---|",
        f"| generation, ten clients together | {1000 * took['together']:.0f} |",
        f"| generation one client at a time, node by node | {1000 * took['one_by_one']:.0f} |",
        f"| ratio | {took['one_by_one'] / took['together']:.1f} |",
        f"| server's step (generation again, backward, Adam) | {1000 * took['update']:.0f} |",
        f"| their local training (300 images, 5 epochs each) | {1000 * took['training']:.0f} |",
        f"| server's part of the round | {100 * server / took['training']:.1f} % |",
        "",
    ]


# --- large networks -----------------------------------------------------------------------------


def large_graph(name: str) -> Graph:
    spec, task = LARGE[name]
    with torch.device("meta"):
        model, example = zoo.build(spec, **task), zoo.example_input(spec, **task)
    return graphs.trace(model, example)


def large_case(name: str, tiling: str) -> str:
    """In a process of its own, so that peak memory is this case's: parameters, ms, MB."""
    graph = large_graph(name)
    shapes = full_shapes([graph]) if tiling == "full" else ()
    size = sum(256 * torch.Size(shape).numel() for _, shape in shapes)
    if size > 2e9:
        return f"| {name} | {tiling} | {size / 1e6:,.0f} M | does not fit | |"
    ghn = GHN(GHNConfig(tiling=tiling, full_shapes=shapes)).eval()  # type: ignore[arg-type]
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = medians(generate=lambda: ghn.generate(graph=graph))["generate"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(p.numel() for p in ghn.parameters())
    return (
        f"| {name} ({graph.num_parameters / 1e6:.1f} M) | {tiling} | {count / 1e6:,.1f} M "
        f"| {1000 * took:.0f} | {(peak - before) / 1024:.0f} |"
    )


def large_section() -> list[str]:
    lines = [
        "## Networks of any size, one thread",
        "",
        "Generation from the graph alone; memory is what the process grew by at its peak, each "
        "case in a process of its own. With positional tiles one hypernetwork serves them all.",
        "",
        "| network | tiling | hypernetwork's parameters | median ms | peak MB |",
        "|---|---|---|---|---|",
    ]
    for name in LARGE:
        for tiling in ("positional", "repeat", "full"):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.speed_hypernet", name, tiling],
                capture_output=True,
                text=True,
            )
            row = done.stdout.strip().splitlines()[-1:] or [f"| {name} | {tiling} | failed | | |"]
            lines += row
            print(row[0], flush=True)
    return lines


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) == 3:
        print(large_case(sys.argv[1], sys.argv[2]))
        return
    lenet = lenet_section()
    print("\n".join(lenet), flush=True)
    lines = [f"Medians of {REPEATS} interleaved repeats.", "", *lenet, *large_section()]
    print(write("speed_hypernet", "What the hypernetwork costs", "\n".join(lines)))


if __name__ == "__main__":
    main()
