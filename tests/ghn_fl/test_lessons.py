"""Lessons: what the server imagines, what its networks answer, and what others learn from it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ghn_fl import Lessons, study
from ghn_fl.errors import GHNError
from ghn_fl.lessons import Teacher, ask, draw_fields, imagine, make_lessons, pattern

SHAPE = (1, 12, 12)


def biased(*logits: float) -> Teacher:
    """A teacher that says the same of every image."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, len(logits)))
    weights = {"1.weight": torch.zeros(len(logits), 144), "1.bias": torch.tensor(logits)}
    return Teacher(model, weights)


def halves(share: float = 1.0) -> Teacher:
    """A teacher with BatchNorm and dropout that asks which half of an image is brighter."""
    model = nn.Sequential(
        nn.BatchNorm2d(1),
        nn.AdaptiveAvgPool2d((2, 1)),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(2, 2),
    )
    weights = {n: p.detach() for n, p in model.named_parameters()}
    weights |= {"4.weight": torch.tensor([[4.0, -4.0], [-4.0, 4.0]]), "4.bias": torch.zeros(2)}
    return Teacher(model, weights, share)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_teachers_agree_by_their_shares() -> None:
    # p = (0.2, 0.8) with share 1 and (0.9, 0.1) with share 3. The log odds of class 0 are
    # ln(1/4) / 4 + 3 ln(9) / 4 = 1.3014, so p_0 = 1 / (1 + exp(-1.3014)) = 0.7861
    one = biased(0.0, 1.3862944)
    other = biased(2.1972246, 0.0)
    teachers = [one, Teacher(other.model, other.weights, 3.0)]
    answer = ask(teachers, torch.randn(2, *SHAPE)).exp()
    assert answer.flatten().tolist() == pytest.approx([0.7861, 0.2139] * 2, abs=1e-4)


def test_a_pattern_is_a_field_its_high_places_or_its_contours() -> None:
    # a ramp from left to right: bright on the right, bright beyond the level, bright along it
    field = torch.linspace(-1, 1, 10).expand(1, 1, 10, 10)
    level = torch.zeros(1, 1, 1, 1)
    row = {
        kind: pattern(field, torch.full((1, 1, 1, 1), kind), level, (1, 12, 12))[0, 0, 6]
        for kind in range(4)
    }
    assert row[0].argmax() == 11 and row[0].argmin() == 0
    assert (row[1][:4] < 0).all() and (row[1][8:] > 0).all()
    assert row[2].argmax() in (5, 6) and row[2][0] < 0 and row[2][11] < 0
    assert torch.equal(row[2], row[3])


def test_images_have_mean_0_and_deviation_1() -> None:
    field = draw_fields(10, 3, generator())
    kind = torch.arange(10).remainder(4).reshape(10, 1, 1, 1)
    x = pattern(field, kind, torch.full((10, 1, 1, 1), 0.4), (3, 20, 20))
    assert x.shape == (10, 3, 20, 20)
    assert x.mean((1, 2, 3)).tolist() == pytest.approx([0] * 10, abs=1e-5)
    assert x.std((1, 2, 3)).tolist() == pytest.approx([1] * 10, abs=1e-4)


def test_what_is_imagined_is_clearer_than_what_is_drawn() -> None:
    def certainty(x: Tensor) -> float:
        return float(ask([halves()], x).detach().exp().amax(1).mean())

    kind, level = torch.zeros(200, 1, 1, 1), torch.zeros(200, 1, 1, 1)
    drawn = pattern(draw_fields(200, 1, generator()), kind, level, SHAPE)
    imagined = imagine([halves()], SHAPE, 2, 200, generator())
    assert certainty(imagined) > certainty(drawn) + 0.1
    share = ask([halves()], imagined).argmax(1).double().mean()  # both classes were wanted
    assert 0.35 < share < 0.65


def test_lessons_depend_on_the_generator_alone() -> None:
    one = make_lessons([halves()], SHAPE, 2, 30, generator())
    torch.manual_seed(99)
    other = make_lessons([halves()], SHAPE, 2, 30, generator())
    assert torch.equal(one.images, other.images) and torch.equal(one.answers, other.answers)
    assert (one.images.shape, one.answers.shape) == ((30, *SHAPE), (30, 2))


def test_a_network_of_another_architecture_learns_what_the_teacher_knows() -> None:
    lessons = make_lessons([halves()], SHAPE, 2, 200, generator())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 2))
    before = copy.deepcopy(model.state_dict())
    weights = {n: p.detach() for n, p in model.named_parameters()}
    taught = study(model, weights, lessons, steps=60)
    assert all(torch.equal(before[n], w) for n, w in model.state_dict().items())
    # images that neither has seen: the upper half is bright, or the lower
    x = 0.3 * torch.randn(100, *SHAPE)
    x[:50, :, :6] += 1
    x[50:, :, 6:] += 1
    y = (torch.arange(100) >= 50).long()
    right = torch.func.functional_call(model, taught, (x,)).argmax(1) == y
    assert right.double().mean() > 0.9


def test_studying_is_repeatable_and_leaves_the_global_generator() -> None:
    lessons = make_lessons([halves()], SHAPE, 2, 20, generator())
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 2))
    weights = {n: p.detach() for n, p in model.named_parameters()}
    torch.manual_seed(3)
    first, drawn = study(model, weights, lessons, steps=3), torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    torch.manual_seed(4)
    again = study(model, weights, lessons, steps=3)
    other = study(model, weights, lessons, steps=3, seed=1)
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not all(torch.equal(first[n], other[n]) for n in first)


def test_no_steps_change_nothing() -> None:
    lessons = make_lessons([halves()], SHAPE, 2, 4, generator())
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
    weights = {n: torch.randn_like(p) for n, p in model.named_parameters()}
    assert all(
        torch.equal(w, weights[n]) for n, w in study(model, weights, lessons, steps=0).items()
    )


def test_a_model_with_other_classes_is_refused() -> None:
    lessons = Lessons(torch.zeros(4, *SHAPE), torch.zeros(4, 2))
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(GHNError, match="about 2 classes, the model's answers have the shape"):
        study(model, {n: p.detach() for n, p in model.named_parameters()}, lessons, steps=1)


def test_saved_and_loaded(tmp_path: Path) -> None:
    lessons = Lessons(torch.randn(3, *SHAPE), torch.randn(3, 2).log_softmax(1))
    lessons.save(tmp_path / "lessons.safetensors")
    for place in (tmp_path, tmp_path / "lessons.safetensors"):
        found = Lessons.load(place)
        assert torch.equal(found.answers, lessons.answers)
        torch.testing.assert_close(found.images, lessons.images, rtol=1e-3, atol=1e-3)


def test_files_that_are_no_lessons(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(GHNError, match="there are no lessons at"):
        Lessons.load(tmp_path)
    file = tmp_path / "lessons.safetensors"
    file.write_bytes(b"half")
    with pytest.raises(GHNError, match="is not a whole file of lessons"):
        Lessons.load(file)
    save_file({"images": torch.zeros(1)}, file)
    with pytest.raises(GHNError, match="must be 'ghnfl-lessons' of version 1, got None"):
        Lessons.load(file)
