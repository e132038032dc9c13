import torch

from ghn_fl.random import stratified, torch_stream


def test_every_class_in_proportion() -> None:
    # 60, 30 and 10 of 100: ten of them are 6, 3 and 1
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[torch_stream_order(100)]
    chosen = stratified(labels, 10, torch_stream(0, "here"))
    assert torch.bincount(labels[chosen]).tolist() == [6, 3, 1]
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert not torch.equal(chosen, stratified(labels, 10, torch_stream(1, "here")))
    assert torch.equal(chosen, stratified(labels, 10, torch_stream(0, "here")))


def test_counts_are_exact_where_classes_do_not_divide() -> None:
    labels = torch.arange(40) % 4
    for count in (1, 2, 7, 39, 40):
        found = torch.bincount(labels[stratified(labels, count, torch_stream(0, "x"))], minlength=4)
        assert int(found.sum()) == count and int(found.max() - found.min()) <= 1


def torch_stream_order(count: int) -> torch.Tensor:
    return torch.randperm(count, generator=torch_stream(0, "order"))
