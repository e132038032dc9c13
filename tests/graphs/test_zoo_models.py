"""Every registered model is traced; its graph covers exactly its parameters and its classifier."""

import pytest
import torch

import graphs
import zoo
from graphs import Role


@pytest.mark.parametrize("name", zoo.names())
def test_graphs_of_the_zoo(name: str) -> None:
    specs = [name, f"{name}-exits"] if zoo.FAMILIES[name].exits else [name]
    for spec in specs:
        with torch.device("meta"):
            model, example = zoo.build(spec), zoo.example_input(spec)
        graph = graphs.trace(model, example)
        assert graph.parameters() == {n: tuple(p.shape) for n, p in model.named_parameters()}
        assert not graph.report.orphans and not graph.report.other
        heads = {
            n.rpartition(".")[0]
            for node in graph.nodes
            for n, role in node.roles.items()
            if role in (Role.CLASSIFIER, Role.CLASSIFIER_BIAS)
        }
        assert model.classifier_name in heads
        assert all(head.endswith(".classifier") for head in heads)
        assert len(heads) == (len(model.stages) if spec.endswith("-exits") else 1)
