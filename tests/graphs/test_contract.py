"""What holds for every model: awkward ones of our own, and a sample of the world's."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin

import graphs
from benchmarks.awkward import MODULES
from benchmarks.coverage_tracing import difference, reached_by_autograd
from benchmarks.tracing_suites import SUITES, Case

SAMPLE = {
    "timm": (
        "resnet18", "convnext_atto", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224",
        "levit_128s", "efficientnet_b0", "mobilenetv3_small_050", "mixer_s32_224", "nfnet_f0",
        "regnetx_002", "xcit_nano_12_p16_224", "fastvit_t8", "edgenext_xx_small", "repvgg_a0",
    ),
    "torchvision": ("densenet121", "googlenet", "swin_t", "shufflenet_v2_x0_5", "vit_b_16"),
    "transformers": (
        "bert", "distilbert", "albert", "deberta-v2", "xlnet", "gpt2", "t5", "llama", "mixtral",
        "mamba", "swin", "perceiver", "whisper", "wav2vec2", "clip", "longformer", "bigbird",
    ),
    "pyg": ("GCN", "GAT", "GraphSAGE", "GIN", "PNA", "GraphUNet", "ChebConv", "TransformerConv"),
}  # fmt: skip


def sample() -> Iterator[Any]:
    for suite, names in SAMPLE.items():
        cases = {case.name: case for case in SUITES[suite]()}
        for name in names:
            yield pytest.param(cases[name], id=f"{suite}-{name}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(sample()))
def test_a_sample_of_the_world_is_covered(case: Case) -> None:
    model, example = case.build()
    graph = graphs.trace(model, example)
    assert difference(graph, model, reached_by_autograd(model, example)) == ""
    assert graphs.Graph.from_json(graph.to_json()) == graph
    assert sum(graph.report.other.values()) < len(graph.nodes) / 4


@pytest.mark.parametrize("name", MODULES)
def test_an_awkward_module_is_covered(name: str) -> None:
    model, example = MODULES[name]()
    graph = graphs.trace(model, example)
    assert difference(graph, model, reached_by_autograd(model, example)) == ""
    assert graphs.Graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("name", MODULES)
def test_two_traces_are_equal(name: str) -> None:
    model, example = MODULES[name]()
    first = graphs.trace(model, example)
    torch.rand(3)  # another random state must not matter
    second = graphs.trace(model, example)
    assert second == first and second.to_json() == first.to_json()


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_the_model_is_left_as_it_was(name: str, mode: bool) -> None:
    model, example = MODULES[name]()
    model.train(mode)
    for parameter in model.parameters():
        if parameter.requires_grad and not isinstance(parameter, UninitializedTensorMixin):
            parameter.grad = torch.ones_like(parameter)
    before = snapshot(model, example)
    graphs.trace(model, example)
    assert snapshot(model, example) == before


def snapshot(model: nn.Module, example: object) -> list[Any]:
    """All that a trace could have changed, by value and by identity."""
    found: list[Any] = [torch.get_rng_state().tolist(), random.getstate()]
    found.append(np.random.get_state()[1].tolist())  # type: ignore[index]
    found.append(torch.is_grad_enabled())
    found += [value(t) for t in graphs.example.tensors(example)]
    for name, module in model.named_modules():
        found.append((name, type(module), module.training))
        for key, entry in sorted(vars(module).items()):
            if key in ("_parameters", "_buffers"):
                found += [(k, id(t), value(t), state(t)) for k, t in entry.items()]
            elif isinstance(entry, dict):
                found.append((key, list(entry), [id(v) for v in entry.values()]))
            elif isinstance(entry, (int, float, str, bool, type(None))):
                found.append((key, entry))
            else:
                found.append((key, id(entry)))
    return found


def value(tensor: Tensor | None) -> Any:
    if tensor is None or tensor.is_meta or isinstance(tensor, UninitializedTensorMixin):
        return None
    return tensor.detach().float().tolist() if not tensor.is_complex() else str(tensor.tolist())


def state(tensor: Tensor | None) -> Any:
    if tensor is None or isinstance(tensor, UninitializedTensorMixin):
        return None
    grad = None if tensor.grad is None else (id(tensor.grad), value(tensor.grad))
    return tensor.requires_grad, tensor._version, grad


@pytest.mark.parametrize(
    "name", ["cached_in_evaluation", "weight_norm", "spectral_norm", "write_into_own_buffer"]
)
def test_a_model_that_has_been_used_gives_the_same_graph(name: str) -> None:
    model, example = MODULES[name]()
    fresh = graphs.trace(model, example)
    model.eval()
    model(example)  # fills its caches
    assert graphs.trace(model, example) == fresh
    with torch.no_grad():
        model(example)
    assert graphs.trace(model, example) == fresh


def test_tracing_under_no_grad_and_inference_is_the_same() -> None:
    model, example = MODULES["transformer_layers"]()
    fresh = graphs.trace(model, example)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            traced = graphs.trace(model, example.clone())
        assert traced == fresh and traced.report == fresh.report


def test_a_deep_copy_gives_the_same_graph() -> None:
    model, example = MODULES["class_token_and_positions"]()
    assert graphs.trace(copy.deepcopy(model), example) == graphs.trace(model, example)
