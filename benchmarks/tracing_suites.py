"""The models that tracing is measured on, suite by suite, each with an example input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import awkward
from zoo.torchvision_fix import install

install()


@dataclass(frozen=True)
class Case:
    """A name, and how to build the model and its example."""

    name: str
    build: Callable[[], tuple[nn.Module, Any]]


def timm_cases() -> Iterator[Case]:
    """Every name that timm lists, built without weights on the meta device."""
    import timm

    def build(name: str) -> tuple[nn.Module, Tensor]:
        with torch.device("meta"):
            model = timm.create_model(name)
        return model, torch.empty(1, *model.pretrained_cfg["input_size"], device="meta")

    for name in timm.list_models():
        yield Case(name, lambda name=name: build(name))


def torchvision_cases() -> Iterator[Case]:
    """Every classification model of torchvision."""
    import torchvision

    def build(name: str) -> tuple[nn.Module, Tensor]:
        with torch.device("meta"):
            try:
                model = torchvision.models.get_model(name)
            except Exception:  # some regnets compute with values while being built
                model = None
        size = 299 if name == "inception_v3" else 224
        if model is None:
            return torchvision.models.get_model(name), torch.randn(1, 3, size, size)
        return model, torch.empty(1, 3, size, size, device="meta")

    for name in torchvision.models.list_models(module=torchvision.models):
        yield Case(name, lambda name=name: build(name))


def transformers_cases() -> Iterator[Case]:
    """Tiny configurations of the architectures of transformers."""
    for name, (model, config, example) in _transformers().items():
        yield Case(name, lambda m=model, c=config, e=example: (_hf(m, c), e()))


def _hf(model: str, config: dict[str, Any]) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, model)
    built: nn.Module = kind(kind.config_class(**config))
    return built.eval()


_BERT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
_LLAMA = _BERT | {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 32,
    "patch_size": 8,
}


def _tokens() -> dict[str, Tensor]:
    ids = torch.arange(2, 18).reshape(2, 8)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _long_tokens() -> dict[str, Tensor]:
    ids = torch.arange(64).remainder(90).reshape(1, 64) + 2
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _both() -> dict[str, Tensor]:
    return {**_tokens(), "decoder_input_ids": torch.arange(2, 14).reshape(2, 6)}


def _image(size: int = 32) -> Callable[[], dict[str, Tensor]]:
    return lambda: {
        "pixel_values": torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size)
    }


def _sound() -> dict[str, Tensor]:
    return {"input_values": torch.linspace(-1, 1, 2048).reshape(1, 2048)}


def _transformers() -> dict[str, tuple[str, dict[str, Any], Callable[[], dict[str, Tensor]]]]:
    bart = {
        "vocab_size": 99,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
        "max_position_embeddings": 64,
    }
    t5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
    gpt2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    swin = {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [1, 2],
        "num_heads": [2, 4],
        "window_size": 4,
    }
    wav = _BERT | {
        "conv_dim": (16, 16),
        "conv_stride": (4, 4),
        "conv_kernel": (8, 8),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
    }
    clip_text = {k: v for k, v in _BERT.items()} | {"projection_dim": 32, "eos_token_id": 98}
    clip_image = _VISION | {"projection_dim": 32}
    return {
        "bert": ("BertForSequenceClassification", _BERT, _tokens),
        "bert-mlm": ("BertForMaskedLM", _BERT, _tokens),
        "distilbert": (
            "DistilBertForSequenceClassification",
            {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
            _tokens,
        ),
        "roberta": ("RobertaForSequenceClassification", _BERT | {"pad_token_id": 1}, _tokens),
        "xlm-roberta": ("XLMRobertaForTokenClassification", _BERT | {"pad_token_id": 1}, _tokens),
        "camembert": ("CamembertForSequenceClassification", _BERT | {"pad_token_id": 1}, _tokens),
        "albert": ("AlbertForSequenceClassification", _BERT | {"embedding_size": 16}, _tokens),
        "electra": ("ElectraForSequenceClassification", _BERT | {"embedding_size": 16}, _tokens),
        "deberta": (
            "DebertaForSequenceClassification",
            _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
            _tokens,
        ),
        "deberta-v2": (
            "DebertaV2ForSequenceClassification",
            _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
            _tokens,
        ),
        "mpnet": ("MPNetForSequenceClassification", _BERT, _tokens),
        "xlnet": (
            "XLNetForSequenceClassification",
            {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 37},
            _tokens,
        ),
        "gpt2": ("GPT2LMHeadModel", gpt2, _tokens),
        "gpt2-classifier": ("GPT2ForSequenceClassification", gpt2 | {"pad_token_id": 0}, _tokens),
        "gpt-neo": (
            "GPTNeoForCausalLM",
            {
                "vocab_size": 99,
                "hidden_size": 32,
                "num_layers": 2,
                "num_heads": 4,
                "attention_types": [[["global", "local"], 1]],
                "max_position_embeddings": 64,
            },
            _tokens,
        ),
        "gpt-neox": ("GPTNeoXForCausalLM", _BERT, _tokens),
        "opt": (
            "OPTForCausalLM",
            _BERT | {"ffn_dim": 37, "word_embed_proj_dim": 32, "do_layer_norm_before": True},
            _tokens,
        ),
        "bloom": (
            "BloomForCausalLM",
            {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
            _tokens,
        ),
        "llama": ("LlamaForCausalLM", _LLAMA, _tokens),
        "mistral": ("MistralForCausalLM", _LLAMA, _tokens),
        "qwen2": ("Qwen2ForCausalLM", _LLAMA, _tokens),
        "gemma": ("GemmaForCausalLM", _LLAMA, _tokens),
        "phi": ("PhiForCausalLM", _BERT, _tokens),
        "mixtral": (
            "MixtralForCausalLM",
            _LLAMA | {"num_local_experts": 4, "intermediate_size": 64},
            _tokens,
        ),
        "falcon": ("FalconForCausalLM", _BERT, _tokens),
        "mamba": (
            "MambaForCausalLM",
            {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
            lambda: {"input_ids": _tokens()["input_ids"]},
        ),
        "t5": ("T5ForConditionalGeneration", t5, _both),
        "mt5": ("MT5ForConditionalGeneration", t5, _both),
        "bart": ("BartForConditionalGeneration", bart, _both),
        "mbart": ("MBartForConditionalGeneration", bart, _both),
        "pegasus": ("PegasusForConditionalGeneration", bart, _both),
        "vit": ("ViTForImageClassification", _VISION, _image()),
        "deit": ("DeiTForImageClassification", _VISION, _image()),
        "beit": (
            "BeitForImageClassification",
            _VISION | {"use_relative_position_bias": True, "out_indices": [0, 1]},
            _image(),
        ),
        "dinov2": ("Dinov2ForImageClassification", _VISION | {"mlp_ratio": 2}, _image()),
        "swin": ("SwinForImageClassification", swin, _image()),
        "swinv2": ("Swinv2ForImageClassification", swin, _image()),
        "convnext": (
            "ConvNextForImageClassification",
            {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2},
            _image(),
        ),
        "convnextv2": (
            "ConvNextV2ForImageClassification",
            {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2},
            _image(),
        ),
        "resnet": (
            "ResNetForImageClassification",
            {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "layer_type": "basic"},
            _image(),
        ),
        "segformer": (
            "SegformerForImageClassification",
            {
                "num_encoder_blocks": 2,
                "depths": [1, 1],
                "sr_ratios": [2, 1],
                "hidden_sizes": [8, 16],
                "num_attention_heads": [1, 2],
                "patch_sizes": [3, 3],
                "strides": [2, 2],
                "mlp_ratios": [2, 2],
            },
            _image(),
        ),
        "perceiver": (
            "PerceiverModel",
            {"d_model": 32, "num_latents": 8, "d_latents": 16, "num_self_attends_per_block": 1}
            | {"num_blocks": 2, "num_self_attention_heads": 2, "num_cross_attention_heads": 2},
            lambda: {"inputs": torch.linspace(-1, 1, 320).reshape(1, 10, 32)},
        ),
        "whisper": (
            "WhisperForConditionalGeneration",
            bart
            | {
                "num_mel_bins": 8,
                "max_source_positions": 16,
                "max_target_positions": 16,
                "decoder_start_token_id": 1,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
            lambda: {
                "input_features": torch.linspace(-1, 1, 256).reshape(1, 8, 32),
                "decoder_input_ids": torch.arange(2, 8).reshape(1, 6),
            },
        ),
        "wav2vec2": ("Wav2Vec2ForSequenceClassification", wav, _sound),
        "hubert": ("HubertForSequenceClassification", wav, _sound),
        "clip": (
            "CLIPModel",
            {"text_config": clip_text, "vision_config": clip_image, "projection_dim": 32},
            lambda: {**_tokens(), **_image()()},
        ),
        "clip-classifier": (
            "CLIPForImageClassification",
            {"text_config": clip_text, "vision_config": clip_image, "projection_dim": 32},
            _image(),
        ),
        "mobilebert": (
            "MobileBertForSequenceClassification",
            _BERT | {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
            _tokens,
        ),
        "squeezebert": (
            "SqueezeBertForSequenceClassification",
            _BERT | {"embedding_size": 32, "intermediate_size": 64},
            _tokens,
        ),
        "funnel": (
            "FunnelForSequenceClassification",
            {
                "vocab_size": 99,
                "block_sizes": [1, 1],
                "num_decoder_layers": 1,
                "d_model": 32,
                "n_head": 4,
                "d_head": 8,
                "d_inner": 37,
            },
            _tokens,
        ),
        "longformer": (
            "LongformerForSequenceClassification",
            _BERT | {"attention_window": 8, "max_position_embeddings": 128},
            _long_tokens,
        ),
        "bigbird": (
            "BigBirdForSequenceClassification",
            _BERT | {"block_size": 4, "num_random_blocks": 1, "max_position_embeddings": 128},
            _long_tokens,
        ),
        "modernbert": (
            "ModernBertForSequenceClassification",
            _BERT | {"pad_token_id": 0, "local_attention": 4},
            _tokens,
        ),
        "nystromformer": (
            "NystromformerForSequenceClassification",
            _BERT | {"num_landmarks": 4, "segment_means_seq_len": 8},
            _tokens,
        ),
        "convbert": ("ConvBertForSequenceClassification", _BERT | {"embedding_size": 32}, _tokens),
        "fnet": (
            "FNetForSequenceClassification",
            _BERT,
            lambda: {"input_ids": _tokens()["input_ids"]},
        ),
        "reformer": (
            "ReformerForSequenceClassification",
            {
                "vocab_size": 99,
                "hidden_size": 32,
                "attention_head_size": 8,
                "num_attention_heads": 4,
                "attn_layers": ["local", "local"],
                "local_attn_chunk_length": 4,
                "feed_forward_size": 37,
                "axial_pos_shape": [4, 2],
                "axial_pos_embds_dim": [16, 16],
                "max_position_embeddings": 8,
                "is_decoder": False,
            },
            _tokens,
        ),
    }


def pyg_cases() -> Iterator[Case]:
    """Graph networks of torch-geometric on a small graph."""
    import torch_geometric.nn as gnn

    def edges() -> tuple[Tensor, Tensor]:
        ring = torch.arange(12)
        edge_index = torch.stack([ring, (ring + 1) % 12])
        return torch.linspace(-1, 1, 12 * 8).reshape(12, 8), torch.cat(
            [edge_index, edge_index.flip(0)], 1
        )

    class Stack(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            for layer in self.layers:
                x = layer(x, edge_index).relu()
            return self.head(x)

    def mlp(i: int, o: int) -> nn.Module:
        return nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))

    def pna() -> nn.Module:
        options = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
        degrees = torch.tensor([0, 0, 12])
        return Stack(gnn.PNAConv(8, 16, deg=degrees, **options))

    models: dict[str, Callable[[], nn.Module]] = {
        "GCN": lambda: gnn.GCN(8, 16, 2, 3),
        "GAT": lambda: gnn.GAT(8, 16, 2, 3, heads=2),
        "GATv2": lambda: gnn.GAT(8, 16, 2, 3, v2=True),
        "GraphSAGE": lambda: gnn.GraphSAGE(8, 16, 2, 3),
        "GIN": lambda: gnn.GIN(8, 16, 2, 3),
        "PNA": pna,
        "GraphUNet": lambda: gnn.GraphUNet(8, 16, 3, depth=2),
        "EdgeCNN": lambda: gnn.EdgeCNN(8, 16, 2, 3),
        "ChebConv": lambda: Stack(gnn.ChebConv(8, 16, 3), gnn.ChebConv(16, 16, 3)),
        "TransformerConv": lambda: Stack(gnn.TransformerConv(8, 16), gnn.TransformerConv(16, 16)),
        "SGConv": lambda: Stack(gnn.SGConv(8, 16, K=2)),
        "TAGConv": lambda: Stack(gnn.TAGConv(8, 16)),
        "ARMAConv": lambda: Stack(gnn.ARMAConv(8, 16, num_stacks=2)),
        "GINConv with BatchNorm": lambda: Stack(gnn.GINConv(mlp(8, 16)), gnn.GINConv(mlp(16, 16))),
        "GatedGraphConv": lambda: Stack(gnn.GatedGraphConv(16, 2)),
        "ResGatedGraphConv": lambda: Stack(gnn.ResGatedGraphConv(8, 16)),
        "GENConv": lambda: Stack(gnn.GENConv(8, 16)),
        "APPNP": lambda: Stack(
            gnn.Sequential(
                "x, e", [(gnn.Linear(8, 16), "x -> x"), (gnn.APPNP(2, 0.1), "x, e -> x")]
            )
        ),
        "FiLMConv": lambda: Stack(gnn.FiLMConv(8, 16)),
        "SuperGAT": lambda: Stack(gnn.SuperGATConv(8, 16, heads=1)),
    }
    for name, make in models.items():
        yield Case(name, lambda make=make: (make(), edges()))


def own_cases() -> Iterator[Case]:
    """The awkward modules of this project."""
    for name, build in awkward.MODULES.items():
        yield Case(name, build)


SUITES: dict[str, Callable[[], Iterator[Case]]] = {
    "own": own_cases,
    "pyg": pyg_cases,
    "transformers": transformers_cases,
    "torchvision": torchvision_cases,
    "timm": timm_cases,
}
