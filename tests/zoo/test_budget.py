import pytest
import torch
import torch.nn.functional as F

import zoo
from zoo import Device, SpecError


def test_flops_of_a_forward_pass_by_hand() -> None:
    # lenet5, one image; 2 FLOPs a multiply-add, convolutions and dense layers only:
    # conv1 24x24 places x 6 filters x 25; conv2 8x8 x 16 x 150; 256x120, 120x84, 84x10
    multiply_adds = 24 * 24 * 6 * 25 + 8 * 8 * 16 * 150 + 256 * 120 + 120 * 84 + 84 * 10
    assert zoo.budget("lenet5", 1).forward_flops == 2 * multiply_adds


def test_bytes_of_the_weights_by_hand() -> None:
    # 44,470 floats, running mean and variance of 6 + 16 channels, and two int64 counters
    assert zoo.budget("lenet5", 1).weight_bytes == 4 * (44_470 + 2 * 22) + 2 * 8


def test_costs_grow_with_the_batch() -> None:
    small, large = zoo.budget("lenet5", 8), zoo.budget("lenet5", 16)
    assert large.step_flops == 2 * small.step_flops
    assert small.training_bytes < large.training_bytes < 2 * small.training_bytes
    assert small.parameters == large.parameters and small.weight_bytes == large.weight_bytes


def peak_reported_by_torch(spec: str, batch_size: int) -> int:
    """Most bytes that torch's allocator held in a real training step, by torch's profiler."""
    model = zoo.build(spec).train()
    inputs = zoo.example_input(spec, batch_size=batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = inputs if isinstance(inputs, torch.Tensor) else inputs["input_ids"]
    held = sum(t.nbytes for t in (*model.parameters(), *model.buffers(), images))
    with torch.profiler.profile(profile_memory=True) as profile:
        logits = zoo.run(model, inputs).logits
        loss = F.cross_entropy(logits, torch.zeros(batch_size, dtype=torch.long))
        del logits
        loss.backward()
        optimizer.step()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return held + peak


@pytest.mark.parametrize(
    ("spec", "batch_size"), [("lenet5", 64), ("resnet18", 8), ("bert_tiny", 8)]
)
def test_memory_is_what_torch_reports_within_a_quarter(spec: str, batch_size: int) -> None:
    estimate = zoo.budget(spec, batch_size).training_bytes
    assert estimate == pytest.approx(peak_reported_by_torch(spec, batch_size), rel=0.25)


def test_fit_finds_the_largest_that_fits() -> None:
    def fitted(memory: float) -> int:
        device = Device(memory=memory, flops=1e12, bandwidth=1e9)
        return zoo.num_parameters(zoo.fit("heterofl_cnn", device, batch_size=8))

    sizes = [fitted(memory) for memory in (1e6, 5e6, 1e9)]
    assert sizes[0] < sizes[1] < sizes[2] == zoo.num_parameters("heterofl_cnn")


def test_fit_respects_memory_compute_and_bandwidth() -> None:
    roomy = {"memory": 1e12, "flops": 1e15, "bandwidth": 1e12}
    tight = {"memory": 4e6, "flops": 1e8, "bandwidth": 5e3}
    for name, value in tight.items():
        device = Device(**roomy | {name: value})
        spec = zoo.fit("lenet5", device, batch_size=128)
        assert spec != zoo.ModelSpec(family="lenet5"), f"{name} had no effect"
        cost = zoo.budget(spec, 128)
        assert cost.training_bytes <= device.memory
        seconds = 50 * cost.step_flops / device.flops + 2 * cost.weight_bytes / device.bandwidth
        assert seconds <= device.round_seconds


def test_fit_of_an_already_scaled_spec_does_not_grow_it() -> None:
    device = Device(memory=1e12, flops=1e15, bandwidth=1e12)
    assert str(zoo.fit("resnet18-d2-w0.5", device, batch_size=2)) == "resnet18-d2-w0.5"


def test_bad_budgets() -> None:
    tiny = Device(memory=1000, flops=1e9, bandwidth=1e6)
    with pytest.raises(SpecError, match=r"no model of lenet5 fits: the smallest, .* MB of memory"):
        zoo.fit("lenet5", tiny)
    with pytest.raises(SpecError, match="a device's flops must be above 0, got 0"):
        Device(memory=1, flops=0, bandwidth=1)
    with pytest.raises(SpecError, match="batch_size must be at least 1, got 0"):
        zoo.budget("lenet5", 0)
