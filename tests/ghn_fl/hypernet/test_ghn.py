"""The hypernetwork as a whole: what it returns, for whom, and what it refuses."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import graphs
import zoo
from ghn_fl import GHN, GHNConfig, Request, initialize
from ghn_fl.errors import GHNError, GhnFlError
from graphs import Graph, GraphError, Node, Role
from tests.ghn_fl.hypernet.examples import make, request

MODELS = ["lenet5", "lenet5-d1-exits", "resnet18-w0.1", "densenet121-d1", "bert_tiny-d1", "lstm"]


@pytest.mark.parametrize("spec", MODELS)
def test_returns_exactly_the_trainable_parameters(spec: str) -> None:
    model, example = zoo.build(spec), zoo.example_input(spec)
    weights = make().generate(model, example)
    assert {n: w.shape for n, w in weights.items()} == {
        n: p.shape for n, p in model.named_parameters()
    }
    assert all(w.dtype == torch.float32 and not w.requires_grad for w in weights.values())
    assert all(torch.isfinite(w).all() for w in weights.values())
    logits = zoo.run(
        initialize(model, weights).train(), zoo.example_input(spec, batch_size=2)
    ).logits
    assert torch.isfinite(logits).all()


def test_frozen_parameters_are_not_generated() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    assert list(make().generate(model, torch.zeros(1, 4))) == ["2.weight", "2.bias"]


def test_half_precision_models_get_float32_weights() -> None:
    model = nn.Linear(4, 3).to(torch.bfloat16)
    weights = make().generate(model, torch.zeros(1, 4, dtype=torch.bfloat16))
    assert {w.dtype for w in weights.values()} == {torch.float32}


def test_a_graph_from_json_gives_what_the_model_gives() -> None:
    ghn, model = make(), zoo.build("lenet5")
    text = graphs.trace(model, zoo.example_input("lenet5")).to_json()
    current = dict(model.named_parameters())
    from_graph = ghn.generate(graph=Graph.from_json(text), current=current)
    from_model = ghn.generate(model, zoo.example_input("lenet5"))
    assert from_graph.keys() == from_model.keys()
    assert all(torch.equal(from_graph[n], w) for n, w in from_model.items())


def test_a_graph_alone_is_enough() -> None:
    weights = make().generate(graph=request().graph)
    assert weights.keys() == request().graph.parameters().keys()


def test_generation_is_deterministic_and_differentiable() -> None:
    ghn, r = make(), request()
    first, second = ghn.generate_many([r])[0], ghn.generate_many([r])[0]
    assert all(torch.equal(first[n], w) for n, w in second.items())
    live = ghn.generate(graph=r.graph, client=r.client, current=r.current, grad=True)
    assert all(torch.equal(first[n], w) for n, w in live.items())
    grads = torch.autograd.grad(sum(w.sum() for w in live.values()), ghn.decoders.place.weight)
    assert grads[0].abs().sum() > 0


def test_clients_of_one_batch_do_not_disturb_each_other() -> None:
    ghn = make()
    requests = [request("lenet5"), request("lenet5-d1"), request("lenet5", seed=1)]
    together = ghn.generate_many(requests)
    for r, weights in zip(requests, together, strict=True):
        for name, w in ghn.generate_many([r])[0].items():
            torch.testing.assert_close(weights[name], w, rtol=1e-4, atol=1e-5)


def differing(ghn: GHN, a: object, b: object, ids: bool = False) -> set[str]:
    r = request()
    one, two = (
        ghn.generate_many([Request(graph=r.graph, current=r.current, client=c)])[0]  # type: ignore[arg-type]
        for c in (a, b)
    )
    return {name for name in one if not torch.equal(one[name], two[name])}


def test_the_descriptor_reaches_the_decoders_it_should() -> None:
    even, skewed = [0.1] * 10, [0.91] + [0.01] * 9
    names = set(request().graph.parameters())
    heads = {n for n in names if "classifier" in n}
    assert differing(make(descriptor_in="classifier"), even, skewed) == heads
    assert differing(make(descriptor_in="all"), even, skewed) == names
    assert differing(make(descriptor="id", num_clients=3), 0, 2) == names
    assert differing(make(descriptor="none"), None, None) == set()
    assert differing(make(), None, even) == set()  # no histogram stands for the uniform one


def test_the_authors_head_match_goes_by_name() -> None:
    # Our head is called exits.1.classifier: a prefix test misses it, as it missed theirs.
    ghn = make(descriptor_in="classifier", head_match="name")
    assert differing(ghn, [0.1] * 10, [0.91] + [0.01] * 9) == set()


def test_the_current_parameters_matter() -> None:
    ghn, a, b = make(), request(seed=0), request(seed=1)
    one, two = ghn.generate_many([a, b])
    assert all(not torch.equal(one[n], two[n]) for n in one)


def test_norm_biases_can_be_the_clients_own() -> None:
    ghn, r = make(norm_bias=False), request()
    weights = ghn.generate_many([r])[0]
    biases = {n for node in r.graph.nodes for n, k in node.roles.items() if k is Role.NORM_BIAS}
    assert biases and weights.keys() == r.graph.parameters().keys()
    assert all(torch.equal(weights[n], r.current[n]) for n in biases)
    alone = ghn.generate(graph=r.graph)
    assert all(not alone[n].any() for n in biases)


def test_shared_parameters_are_generated_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.out = nn.Linear(8, 20, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.out(self.words(ids))

    weights = make().generate(Tied(), torch.zeros(1, 3, dtype=torch.long))
    assert list(weights) == ["words.weight"]


class Unusual(nn.Module):
    """Biases and norm scales that are not vectors, and a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm([3, 5, 5])
        self.conv = nn.Conv2d(3, 70, 5)
        self.weight = nn.Parameter(torch.randn(70, 4))
        self.bias = nn.Parameter(torch.zeros(1, 4))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv(self.norm(x)).flatten(1)
        return torch.addmm(self.bias, h, self.weight) * self.scale


def test_parameters_of_unusual_rank() -> None:
    model = Unusual()
    weights = make().generate(model, torch.zeros(2, 3, 5, 5))
    assert {n: w.shape for n, w in weights.items()} == {
        n: p.shape for n, p in model.named_parameters()
    }
    different = weights["norm.weight"].flatten()
    assert len(different.unique()) > 60  # 75 numbers over two tiles, not one tile repeated


@pytest.mark.parametrize("option", [{"features": "concat"}, {"pooling": "chunk"}, {"sweeps": 2}])
def test_options_change_the_result(option: dict[str, object]) -> None:
    r = request()
    ours, other = make().generate_many([r])[0], make(**option).generate_many([r])[0]
    assert any(not torch.equal(ours[n], other[n]) for n in ours)


def test_dropout_acts_in_training_only() -> None:
    ghn, r = make(dropout=0.5), request()
    assert all(
        torch.equal(a, b)
        for a, b in zip(*(ghn.generate_many([r])[0].values() for _ in range(2)), strict=True)
    )
    ghn.train()
    one, two = (ghn.generate_many([r])[0] for _ in range(2))
    assert any(not torch.equal(one[n], two[n]) for n in one)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ([0.5, 0.5], r"must have 10 entries, got shape \(2,\)"),
        ([0.2] * 10, "must sum to 1, got 2"),
        ([-0.1, 1.1] + [0.0] * 8, "finite numbers from 0"),
        ([float("nan")] + [0.1] * 9, "finite numbers from 0"),
        (3, "must be a label histogram, got the number 3"),
    ],
)
def test_bad_histograms(client: object, says: str) -> None:
    with pytest.raises(GHNError, match=says):
        make().generate(graph=request().graph, client=client)  # type: ignore[arg-type]


def test_bad_clients() -> None:
    graph = request().graph
    with pytest.raises(GHNError, match="takes no client descriptor"):
        make(descriptor="none").generate(graph=graph, client=[0.1] * 10)
    with pytest.raises(GHNError, match="from 0 to 2, got 3"):
        make(descriptor="id", num_clients=3).generate(graph=graph, client=3)
    with pytest.raises(GHNError, match="must be a client's number, got None"):
        make(descriptor="id", num_clients=3).generate(graph=graph)


def test_bad_current_parameters() -> None:
    r, ghn = request(), make()
    name = next(iter(r.current))
    with pytest.raises(GHNError, match=f"'{name}' holds values that are not finite"):
        ghn.generate(graph=r.graph, current={**r.current, name: r.current[name] * float("nan")})
    with pytest.raises(GHNError, match=f"'{name}' must have shape"):
        ghn.generate(graph=r.graph, current={**r.current, name: torch.zeros(1)})
    with pytest.raises(GHNError, match="'nobody' is not in the graph"):
        ghn.generate(graph=r.graph, current={**r.current, "nobody": torch.zeros(1)})


def test_too_many_parameters_are_refused() -> None:
    huge = Node(
        op="linear", parameters={"w": (100_000, 10_000)}, roles={"w": Role.WEIGHT}, shape=(1,)
    )
    graph = Graph(nodes=(Node(op="input"), huge), edges=((0, 1),))
    with pytest.raises(GHNError, match="asks for 1,000,000,000 parameters; at most 500,000,000"):
        make().generate(graph=graph)


def test_model_or_graph_but_not_both() -> None:
    with pytest.raises(GHNError, match="either a model with an example input, or a graph"):
        make().generate()
    with pytest.raises(GHNError, match="leave `current` out"):
        make().generate(nn.Linear(2, 2), torch.zeros(1, 2), current={})
    with pytest.raises(GraphError):
        make().generate(nn.Linear(2, 2), torch.zeros(1, 3))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tiling": "tiles"}, "tiling must be one of positional, repeat, full, got 'tiles'"),
        ({"width": 130}, "multiple of 4, got 130"),
        ({"sweeps": 0}, "sweeps must be at least 1, got 0"),
        ({"dropout": 1.0}, "from 0 to below 1"),
        ({"num_clients": 4}, "num_clients goes with descriptor='id'"),
        ({"descriptor": "id", "num_clients": -1}, "must be at least 1 there"),
        ({"full_shapes": (("conv", (1, 1, 1, 1)),)}, "full_shapes goes with tiling='full'"),
    ],
)
def test_bad_configs(options: dict[str, object], says: str) -> None:
    with pytest.raises(GHNError, match=says):
        GHNConfig(**options)  # type: ignore[arg-type]


def test_a_design_that_lacks_what_a_fleet_tells_is_no_hypernetwork() -> None:
    with pytest.raises(GHNError, match="descriptor='id' needs num_clients of 1 or more, got 0"):
        GHN(GHNConfig(descriptor="id"))
    with pytest.raises(GHNError, match="tiling='full' needs full_shapes"):
        GHN(GHNConfig(tiling="full"))


# --- on disk ----------------------------------------------------------------------------------


def test_save_and_load_give_the_same_hypernetwork(tmp_path: Path) -> None:
    ghn, r = make(descriptor_in="classifier"), request()
    ghn.save(tmp_path / "ghn.safetensors")
    for place in (tmp_path, tmp_path / "ghn.safetensors"):
        loaded = GHN.load(place)
        assert loaded.config == ghn.config and not loaded.training
        same = zip(ghn.generate_many([r]), loaded.generate_many([r]), strict=True)
        assert all(torch.equal(a[n], b[n]) for a, b in same for n in a)


def test_full_shapes_survive_the_disk(tmp_path: Path) -> None:
    ghn = make(tiling="full", full_shapes=(("conv", (16, 6, 5, 5)), ("matrix", (120, 256, 1, 1))))
    ghn.save(tmp_path / "g.safetensors")
    assert GHN.load(tmp_path / "g.safetensors").config == ghn.config


def test_broken_files(tmp_path: Path) -> None:
    file = tmp_path / "ghn.safetensors"
    make().save(file)
    whole = file.read_bytes()
    metadata = {"format": "ghnfl-hypernetwork", "version": "1", "config": make().config.to_json()}

    def refuses(says: str) -> None:
        with pytest.raises(GHNError, match=says):
            GHN.load(file)

    file.write_bytes(whole[: len(whole) // 2])
    refuses("not a whole safetensors file")
    file.write_bytes(b"not a file of ours")
    refuses("not a whole safetensors file")
    file.write_bytes(whole)
    tensors = load_file(file)
    save_file(tensors, file)
    refuses("holds no hypernetwork")
    save_file(tensors, file, {**metadata, "version": "2"})
    refuses("is of version '2', this ghnfl reads 1")
    save_file(tensors, file, {**metadata, "config": "{"})
    refuses("config is not JSON")
    save_file(tensors, file, {**metadata, "config": '{"widht": 3}'})
    refuses("unknown setting of the hypernetwork 'widht'; did you mean 'width'")
    save_file(tensors, file, {**metadata, "config": make(width=32).config.to_json()})
    refuses("must be torch.float32 of shape")
    save_file(dict(list(tensors.items())[1:]), file, metadata)
    refuses("does not fit its config: lacks")
    file.unlink()
    refuses("there is no hypernetwork at")


def test_writing_where_one_cannot_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(GhnFlError, match="cannot write"):
        make().save(tmp_path / "missing" / "ghn.safetensors")
    assert not list(tmp_path.iterdir())
