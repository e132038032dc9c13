"""Tracing small modules whose graphs are drawn by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import graphs
from benchmarks import awkward
from graphs import Graph, GraphError, Role, frontends
from graphs.example import arguments
from graphs.inventory import take_inventory
from graphs.simplify import simplify

W, B, S = Role.WEIGHT, Role.BIAS, Role.STANDALONE
NS, NB = Role.NORM_SCALE, Role.NORM_BIAS
C, CB = Role.CLASSIFIER, Role.CLASSIFIER_BIAS


def lines(graph: Graph) -> list[str]:
    """Every node as "op name:role ... <- sources"."""
    text = []
    for i, node in enumerate(graph.validate().nodes):
        parameters = [f"{name}:{node.roles[name]}" for name in node.parameters]
        sources = [str(u) for u, v in graph.edges if v == i]
        text.append(" ".join([node.op, *parameters, *(["<-", *sources] if sources else [])]))
    return text


def of(name: str) -> list[str]:
    """The lines of an awkward module."""
    return lines(graphs.trace(*awkward.MODULES[name]()))


class Residual(nn.Module):
    """x -> conv -> norm -> relu -> (+) -> pool -> fc, with a skip around the first three."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        x = F.relu(self.norm(self.conv(x)), inplace=True) + x
        return self.fc(F.dropout(F.adaptive_avg_pool2d(x, 1), 0.5, self.training).flatten(1))


def test_residual_block() -> None:
    #  0 input -> 1 conv -> 2 norm -> 3 sum -> 4 glob_avg -> 5 fc
    #      \__________________________/^
    graph = graphs.trace(Residual(), torch.ones(1, 4, 8, 8))
    assert lines(graph) == [
        "input",
        "conv conv.weight:weight conv.bias:bias <- 0",
        "batch_norm norm.weight:norm_scale norm.bias:norm_bias <- 1",
        "sum <- 0 2",
        "glob_avg <- 3",
        "linear fc.weight:classifier fc.bias:classifier_bias <- 4",
    ]
    assert [node.shape for node in graph.nodes] == [
        (1, 4, 8, 8),
        (1, 4, 8, 8),
        (1, 4, 8, 8),
        (1, 4, 8, 8),
        (1, 4, 1, 1),
        (1, 2),
    ]
    assert graph.nodes[1].parameters == {"conv.weight": (4, 4, 3, 3), "conv.bias": (4,)}
    assert (graph.front_end, graph.frozen, graph.ties) == ("functions", frozenset(), ())
    assert [node.module for node in graph.nodes] == ["", "conv", "norm", "", "", "fc"]


def test_adding_an_activation_changes_nothing() -> None:
    layers = nn.Linear(3, 3), nn.Linear(3, 2)
    plain = graphs.trace(nn.Sequential(*layers), torch.ones(1, 3))
    active = nn.Sequential(layers[0], layers[1], nn.ReLU(), nn.Dropout(), nn.Flatten())
    assert graphs.trace(active, torch.ones(1, 3)) == plain


def test_concatenation_is_kept() -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Any:
            return self.b(torch.cat([x, self.a(x)], 1))

    assert lines(graphs.trace(Dense(), torch.ones(1, 4))) == [
        "input",
        "linear a.weight:weight a.bias:bias <- 0",
        "concat <- 0 1",
        "linear b.weight:classifier b.bias:classifier_bias <- 2",
    ]


def test_kinds_of_convolution_and_pooling() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 4, 1, groups=2, bias=False),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, dilation=2, bias=False),
        nn.AvgPool2d(2),
        nn.ConvTranspose2d(4, 4, 2, bias=False),
    )
    graph = graphs.trace(model, torch.ones(1, 4, 16, 16))
    assert [n.op for n in graph.nodes] == [
        "input", "sep_conv", "max_pool", "dil_conv", "avg_pool", "conv_transpose",
    ]  # fmt: skip
    assert [dict(n.attributes) for n in graph.nodes if n.parameters] == [
        {"groups": 2},
        {"dilation": 2},
        {},
    ]


# --- weights that are computed, shared or stand alone ------------------------------------------


def test_weight_chains_are_absorbed() -> None:
    assert of("low_rank_sum") == [
        "input",
        "linear base.weight:classifier up:classifier down:classifier "
        "base.bias:classifier_bias <- 0",
    ]
    assert of("weight_standardised") == [
        "input",
        "conv conv.weight:classifier gain:standalone conv.bias:classifier_bias <- 0",
    ]
    assert of("cut_from_one_vector") == [
        "input",
        "linear flat:standalone <- 0",
        "linear flat:standalone <- 1",
    ]
    assert of("weight_norm")[1].startswith("linear 0.parametrizations.weight.original1:weight")


def test_weights_from_a_layer_are_a_join() -> None:
    #  code -> generator -> product <- input
    assert of("weights_by_a_network") == [
        "input",
        "parameter code:standalone",
        "linear generator.weight:classifier generator.bias:classifier_bias <- 1",
        "matmul <- 0 2",
    ]


def test_a_tied_tensor_is_on_both_nodes() -> None:
    graph = graphs.trace(*awkward.MODULES["tied_embedding"]())
    assert lines(graph) == [
        "input",
        "embedding embedding.weight:embedding <- 0",
        "linear body.weight:weight body.bias:bias <- 1",
        "linear embedding.weight:classifier <- 2",
    ]
    assert graph.ties == (("embedding.weight", "head.weight"),)
    assert list(graph.parameters()) == ["embedding.weight", "body.weight", "body.bias"]


def test_one_layer_used_three_times_is_three_nodes() -> None:
    assert of("one_layer_used_three_times")[1:4] == [
        f"linear layer.weight:weight layer.bias:bias <- {i}" for i in range(3)
    ]


def test_stand_alone_parameters() -> None:
    assert of("class_token_and_positions")[1:3] == [
        "token token:standalone <- 0",
        "shift positions:standalone <- 1",
    ]
    assert of("layer_scale") == [
        "input",
        "linear layer.weight:classifier layer.bias:classifier_bias <- 0",
        "scale gamma:standalone <- 0 1",
    ]
    assert of("learned_queries")[1:3] == [
        "parameter queries:standalone",
        "layer_norm norm.weight:norm_scale norm.bias:norm_bias <- 1",
    ]


def test_hand_written_norms_are_norms() -> None:
    assert of("hand_written_norms")[2:4] == [
        "layer_norm scale:norm_scale shift:norm_bias <- 1",
        "rms_norm rms:norm_scale <- 2",
    ]


def test_a_vector_added_to_a_product_is_its_bias() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w + self.b

    graph = graphs.trace(Own(), torch.ones(1, 3))
    assert lines(graph) == ["input", "linear w:classifier b:classifier_bias <- 0"]
    assert graph.nodes[1].attributes == {"transposed": 1}  # kept as (in, out)


def test_a_network_on_constants_is_a_source() -> None:
    # the bias network reads no input: it starts a branch of its own, that joins at the sum
    assert of("position_network_on_constants")[1:4] == [
        "linear bias.0.weight:weight bias.0.bias:bias",
        "linear bias.2.weight:weight bias.2.bias:bias <- 1",
        "sum <- 0 2",
    ]


def test_recurrent_layers_are_one_node() -> None:
    parameters = " ".join(
        f"core.{n}_l0:{n[:-3]}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    for op in ("lstm", "gru"):
        assert of(op) == [
            "input",
            f"{op} {parameters} <- 0",
            "linear head.weight:classifier head.bias:classifier_bias <- 1",
        ]
    assert of("packed_sequences")[1].startswith("lstm lstm.weight_ih_l0:weight")
    assert of("learned_first_state")[2].endswith("<- 0 1")


def test_attention_is_one_node() -> None:
    ops = [line.split()[0] for line in of("transformer_layers")]
    layer = ["multi_head_attention", "sum", "layer_norm", "linear", "linear", "sum", "layer_norm"]
    assert ops == ["input", *layer, *layer]


# --- classifiers -------------------------------------------------------------------------------


def classifiers(model: nn.Module, example: object) -> list[str]:
    graph = graphs.trace(model, example)
    return [n for node in graph.nodes for n, role in node.roles.items() if role is C]


def test_a_norm_at_the_end_means_no_classifier() -> None:
    assert classifiers(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), torch.ones(1, 3)) == []


def test_every_head_is_a_classifier() -> None:
    model, example = awkward.MODULES["returns_an_object"]()
    assert classifiers(model, example) == ["heads.a.weight", "heads.b.weight"]


def test_a_skip_around_the_last_layer_leads_to_no_earlier_one() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Any:
            x = self.a(x)
            return x + self.b(x)

    assert classifiers(Last(), torch.ones(1, 3)) == ["b.weight"]


def test_what_leads_to_a_cache_is_no_classifier() -> None:
    class Cache:
        def __init__(self, key: Tensor) -> None:
            self.key = key

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Any:
            key = self.key(x)
            return {"logits": self.head(x), "cache": Cache(key)}

    graph = graphs.trace(Cached(), torch.ones(1, 3))
    assert [n.role for n in graph.nodes if n.parameters] == [W, C]
    assert not graph.report.orphans  # the cache keeps the key layer alive


# --- what the pass does not use ----------------------------------------------------------------


def test_unused_parameters_are_orphans() -> None:
    graph = graphs.trace(*awkward.MODULES["unused_parts"]())
    orphans = [node for node in graph.nodes if node.orphan]
    assert [(n.op, tuple(n.parameters), n.role) for n in orphans] == [
        ("parameter", ("stray",), S),
        ("sep_conv", ("auxiliary.0.weight", "auxiliary.0.bias"), W),
        ("batch_norm", ("auxiliary.1.weight", "auxiliary.1.bias"), NS),
    ]
    assert graph.report.orphans == tuple(n for node in orphans for n in node.parameters)


def test_a_branch_not_taken_is_reported() -> None:
    report = graphs.trace(*awkward.MODULES["branch_on_a_value"]()).report
    assert report.orphans == ("no.weight", "no.bias")


def test_frozen_parameters_are_marked() -> None:
    graph = graphs.trace(*awkward.MODULES["low_rank_sum"]())
    assert graph.frozen == {"base.weight", "base.bias"}
    assert set(graph.parameters()) == {"up", "down"}


def test_use_without_a_gradient_is_reported() -> None:
    graph = graphs.trace(*awkward.MODULES["detached_branch"]())
    assert graph.report.gradient_free == ("b.weight", "b.bias")
    assert not graph.report.orphans


def test_double_precision_fits_the_example() -> None:
    assert graphs.trace(nn.Linear(3, 3).double(), torch.ones(1, 3)).front_end == "functions"


def test_unknown_operators_are_counted() -> None:
    class Fold(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Any:
            return torch.cross(self.a(x), x, dim=1)

    graph = graphs.trace(Fold(), torch.ones(1, 3))
    assert graph.report.other == {"cross": 1} and graph.nodes[2].op == "other"


# --- writes ------------------------------------------------------------------------------------


def test_writes_into_views_are_followed() -> None:
    #  a -> write <- b,  and the sum adds c to the rest
    assert [line.split()[0] for line in of("write_into_buffer_views")] == [
        "input", "linear", "linear", "write", "linear", "sum",
    ]  # fmt: skip
    graph = graphs.trace(*awkward.MODULES["write_into_buffer_views"]())
    assert graph.edges == ((0, 1), (0, 2), (0, 4), (1, 3), (2, 3), (3, 5), (4, 5))


# --- front ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scripted_function", "scripted_module", "vmapped"])
def test_the_dispatcher_sees_what_functions_hide(name: str) -> None:
    graph = graphs.trace(*awkward.MODULES[name]())
    assert graph.front_end == "operators"
    assert graph.report.attempts[0].startswith("functions: BlindSpotError")
    assert not graph.report.orphans


def test_scripted_layers_keep_their_type() -> None:
    assert of("scripted_function")[1] == "linear layer.weight:weight layer.bias:bias <- 0"


def test_large_models_are_traced_without_values() -> None:
    graph = graphs.trace(nn.Linear(4000, 4000), torch.ones(64, 4000))
    assert graph.front_end == "functions/meta"


def test_values_are_used_where_they_are_needed() -> None:
    class Peek(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4000, 4000)

        def forward(self, x: Tensor) -> Any:
            return self.a(x) if x.sum().item() > 0 else x

    graph = graphs.trace(Peek(), torch.ones(64, 4000))
    assert graph.front_end == "functions" and len(graph.report.attempts) == 2


def test_a_meta_model_that_needs_values_gets_zeros() -> None:
    class Peek(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, device="meta")

        def forward(self, x: Tensor) -> Any:
            return self.a(x) if x.sum().item() == 0 else x

    assert graphs.trace(Peek(), torch.ones(1, 3, device="meta")).front_end == "functions/zeros"


def test_export_gives_the_same_graph() -> None:
    model, example = Residual().eval(), torch.ones(1, 4, 8, 8)
    inventory = take_inventory(model)
    recording = frontends.run(frontends.EXPORT, model, inventory, arguments(example))
    compact = simplify(recording.steps, recording.outputs, [])
    expected = graphs.trace(model, example)
    assert [n.op for n in compact.nodes] == [n.op for n in expected.nodes]
    assert tuple(compact.edges) == expected.edges
    assert [n.roles for n in compact.nodes] == [n.roles for n in expected.nodes]


def test_a_recording_is_an_fx_graph() -> None:
    recording = graphs.record(Residual(), torch.ones(1, 4, 8, 8))
    nodes = list(recording.to_fx().nodes)
    assert [n.name for n in nodes if n.op == "call_function"] == [
        "conv2d", "batch_norm", "relu", "add", "adaptive_avg_pool2d", "flatten", "linear",
    ]  # fmt: skip
    assert recording.reached == {n for n, _ in Residual().named_parameters()}


# --- bad input ---------------------------------------------------------------------------------


class NoTensor(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        return "nothing"


class Fails(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        raise KeyError("inner trouble")


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (lambda x: x, torch.ones(1), "must be a torch.nn.Module, got function"),
        (nn.ReLU(), torch.ones(1), "ReLU has no parameters: there is nothing to generate"),
        (nn.Linear(3, 3), None, "must be a tensor, a tuple .* got NoneType"),
        (nn.Linear(3, 3), "text", "got str"),
        (nn.Linear(3, 3), {}, "got dict"),
        (nn.Linear(3, 3), (1, 2), "with a tensor in it, got tuple"),
        (
            nn.Linear(3, 3),
            (torch.ones(1, 3), torch.ones(1)),
            "Linear takes other arguments: forward",
        ),
        (nn.Linear(3, 3), {"y": torch.ones(1, 3)}, "takes other arguments"),
        (
            nn.Linear(3, 3),
            torch.ones(1, 5),
            "forward pass failed on the example input: RuntimeError",
        ),
        (nn.Embedding(3, 3), torch.tensor([7]), "failed on the example input: IndexError"),
        (NoTensor(3, 3), torch.ones(1, 3), "NoTensor returned no tensor but str"),
        (Fails(3, 3), torch.ones(1, 3), "Fails: the forward pass failed .* KeyError"),
        (nn.Sequential(nn.LazyLinear(3)), torch.ones(()), "initialise its lazy modules failed"),
    ],
)
def test_bad_input_gets_a_sentence(model: Any, example: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graphs.trace(model, example)


def test_the_models_own_error_is_chained() -> None:
    with pytest.raises(GraphError) as caught:
        graphs.trace(Fails(3, 3), torch.ones(1, 3))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_empty_parameter_is_refused() -> None:
    with pytest.raises(GraphError, match="is empty"):
        graphs.trace(nn.Sequential(nn.Linear(3, 0), nn.Linear(0, 3)), torch.ones(1, 3))
