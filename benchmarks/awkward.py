"""Small modules that are hard to trace, each for one reason; tests and the benchmark use them.

`MODULES` maps a name to a function that builds (module, example input).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune, rnn

Build = Callable[[], tuple[nn.Module, Any]]
MODULES: dict[str, Build] = {}


def add(build: type[nn.Module] | Build) -> Any:
    """Register a module class (its `example` says the input) or a builder under its name."""
    name = build.__name__
    if isinstance(build, type):
        MODULES[name] = lambda: (build(), build.example())  # type: ignore[attr-defined]
    else:
        MODULES[name] = build
    return build


def rows(n: int = 2, width: int = 8) -> Tensor:
    """An input of n rows."""
    return torch.linspace(-1, 1, n * width).reshape(n, width)


def sequence() -> Tensor:
    """An input of 2 sequences of 5 steps of 8 features."""
    return torch.linspace(-1, 1, 80).reshape(2, 5, 8)


def image() -> Tensor:
    """A batch of 2 images of 3 channels, 8 by 8."""
    return torch.linspace(-1, 1, 384).reshape(2, 3, 8, 8)


# --- recurrent ---------------------------------------------------------------------------------


class _Recurrent(nn.Module):
    def __init__(self, core: nn.Module, width: int) -> None:
        super().__init__()
        self.core = core
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        result = self.core(x)[0]
        return self.head(result[:, -1])  # type: ignore[no-any-return]


@add
def lstm() -> tuple[nn.Module, Any]:
    return _Recurrent(nn.LSTM(8, 6, batch_first=True), 6), sequence()


@add
def lstm_two_layers_both_ways() -> tuple[nn.Module, Any]:
    core = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, proj_size=4)
    return _Recurrent(core, 8), sequence()


@add
def gru() -> tuple[nn.Module, Any]:
    return _Recurrent(nn.GRU(8, 6, batch_first=True), 6), sequence()


@add
def rnn_plain() -> tuple[nn.Module, Any]:
    return _Recurrent(nn.RNN(8, 6, batch_first=True, nonlinearity="relu"), 6), sequence()


@add
class packed_sequences(nn.Module):
    example = staticmethod(lambda: (sequence(), torch.tensor([5, 3])))

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
        states, _ = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(states.mean(1))


@add
class packed_input(nn.Module):
    example = staticmethod(
        lambda: rnn.pack_padded_sequence(sequence(), torch.tensor([5, 3]), batch_first=True)
    )

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, packed: rnn.PackedSequence) -> Tensor:
        return self.head(self.gru(packed)[1][-1])


@add
class learned_first_state(nn.Module):
    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, 1, 6))
        self.gru = nn.GRU(8, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x, self.first.expand(1, len(x), 6).contiguous())[0]


@add
class cell_in_a_loop(nn.Module):
    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(len(x), 6)
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
        return self.head(h)


# --- shared and computed weights -----------------------------------------------------------------


@add
class tied_embedding(nn.Module):
    example = staticmethod(lambda: torch.arange(6).reshape(2, 3))

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(tokens)).relu())


@add
class tied_transposed(nn.Module):
    """An autoencoder whose decoder is the transposed encoder."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x).relu(), self.encoder.weight.t(), self.bias)


@add
class one_layer_used_three_times(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layer(x).relu()
        return self.head(x)


@add
class one_module_two_names(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = self.a

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


@add
def weight_norm() -> tuple[nn.Module, Any]:
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 4)), nn.Linear(4, 2)), rows()


@add
def weight_norm_of_old() -> tuple[nn.Module, Any]:
    return nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 4, 3)), nn.Flatten()), image()


@add
def spectral_norm() -> tuple[nn.Module, Any]:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 4)), nn.Linear(4, 2)), rows()


@add
def spectral_norm_of_old() -> tuple[nn.Module, Any]:
    return nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), nn.Flatten()), image()


@add
def orthogonal() -> tuple[nn.Module, Any]:
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)), nn.Linear(8, 2)), rows()


@add
class weight_standardised(nn.Module):
    """A convolution whose weight goes through a batch norm with its own gain."""

    example = staticmethod(image)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.conv.weight.reshape(1, 4, -1)
        weight = F.batch_norm(flat, None, None, self.gain, training=True).view_as(self.conv.weight)
        return F.conv2d(x, weight, self.conv.bias)


@add
class low_rank_sum(nn.Module):
    """LoRA: a frozen weight plus the product of two small trainable ones."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 6).requires_grad_(False)
        self.down = nn.Parameter(torch.ones(2, 8))
        self.up = nn.Parameter(torch.zeros(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.base.weight + self.up @ self.down, self.base.bias)


@add
class adapter_on_frozen(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head(x + self.adapter(x))


@add
class weights_by_a_network(nn.Module):
    """A hypernetwork: one linear layer computes the weight of the next."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.ones(1, 4))
        self.generator = nn.Linear(4, 8 * 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.generator(self.code).view(3, 8))


@add
class parameter_list(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.ones(8, 8), torch.ones(8, 8)])
        self.scales = nn.ParameterDict({"a": torch.ones(8), "b": torch.ones(8)})

    def forward(self, x: Tensor) -> Tensor:
        for weight, scale in zip(self.weights, self.scales.values(), strict=True):
            x = (x @ weight).tanh() * scale
        return x


@add
class cut_from_one_vector(nn.Module):
    """All weights are slices of one flat parameter."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.linspace(-1, 1, 8 * 4 + 4 * 2))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.flat.split([32, 8])
        return F.linear(F.linear(x, first.view(4, 8)).relu(), second.view(2, 4))


# --- stand-alone parameters --------------------------------------------------------------------


@add
class class_token_and_positions(nn.Module):
    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.positions = nn.Parameter(torch.zeros(1, 6, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.attention(x, x, x)[0][:, 0])


@add
class learned_queries(nn.Module):
    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.ones(3, 8))
        self.norm = nn.LayerNorm(8)
        self.keys = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            self.norm(self.queries).expand(len(x), -1, -1), self.keys(x), x
        )


@add
class layer_scale(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.gamma = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(x, self.layer(x), self.gamma)


@add
class hand_written_norms(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.shift = nn.Parameter(torch.zeros(8))
        self.rms = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        centred = x - x.mean(-1, keepdim=True)
        x = (
            centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.scale
            + self.shift
        )
        x = self.rms * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        return self.head(x)


@add
class position_network_on_constants(nn.Module):
    """A small network turns fixed coordinates into an attention bias."""

    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("coordinates", torch.linspace(-1, 1, 50).reshape(5, 5, 2))
        self.bias = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.transpose(1, 2) + self.bias(self.coordinates).squeeze(-1)
        return self.head(scores.softmax(-1) @ x)


# --- writes ------------------------------------------------------------------------------------


@add
def inplace_activations() -> tuple[nn.Module, Any]:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Hardswish(True), nn.Conv2d(4, 2, 3)
    ), image()


@add
class write_into_buffer_views(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        room = x.new_zeros(len(x), 12)
        room[:, :4].copy_(self.a(x))
        room[:, 4:8] = self.b(x)
        view = room.narrow(1, 8, 4)
        view += self.c(x)
        return room


@add
class write_into_own_buffer(nn.Module):
    """A cache that the pass fills: the caller's must stay empty."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("cache", torch.zeros(2, 4))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.cache.copy_(self.layer(x))
        return self.cache * 2


@add
class write_into_parameter(nn.Module):
    """Clips its weight in place before using it."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.layer.weight.clamp_(-0.01, 0.01)
        return self.layer(x)


@add
class write_into_input(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2.0)
        return self.layer(x)


@add
class batch_statistics_always(nn.Module):
    """A norm that goes on updating its statistics when evaluating."""

    example = staticmethod(image)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        return F.batch_norm(
            self.conv(x), norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1
        )


@add
class out_argument(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        room = torch.empty(4)
        torch.mul(self.frozen, 2.0, out=room)
        return self.layer(x) + room


# --- control flow that depends on values -----------------------------------------------------


@add
class branch_on_a_value(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.yes, self.no = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.yes(x) if x.sum() > -1e9 else self.no(x)


@add
class loop_until(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        steps = 0
        while steps < 3 and x.norm().item() > 1e-9:
            x, steps = self.layer(x), steps + 1
        return x


@add
class mixture_of_experts(nn.Module):
    example = staticmethod(lambda: rows(6))

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        nn.init.normal_(self.router.weight, generator=torch.Generator().manual_seed(1))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, slot = torch.where(chosen == i)
            if len(row):
                result.index_add_(0, row, expert(x[row]) * weights[row, slot, None])
        return result


@add
class random_depth(nn.Module):
    """Draws a number at every pass: traces must still be equal, and the caller's state kept."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if torch.rand(()) > 0.5:
                x = layer(x)
        return self.layers[0](x)


# --- what a recorder does not see into -----------------------------------------------------------


@torch.jit.script  # type: ignore[untyped-decorator]
def _scripted(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.linear(x, weight, bias))


@add
class scripted_function(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(_scripted(x, self.layer.weight, self.layer.bias))


@add
def scripted_module() -> tuple[nn.Module, Any]:
    inner = torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    return nn.Sequential(inner, nn.Linear(4, 2)), rows()


@add
class vmapped(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.Parameter(torch.ones(5, 3, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(lambda weight: F.linear(x, weight))(self.members).mean(0)


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return (x * 2) @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return 2 * grads[0] @ weight.t(), 2 * x.t() @ grads[0]


@add
class own_autograd_function(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(_Double.apply(x, self.weight))  # type: ignore[no-untyped-call]


@add
class checkpointed(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.utils.checkpoint.checkpoint(self.a, x, use_reentrant=False)
        return self.b(x)


@add
class detached_branch(nn.Module):
    """One layer acts on the output without a gradient."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            gate = self.b(x).sigmoid()
        return self.a(x) * gate


# --- state, hooks, copies ------------------------------------------------------------------------


@add
class cached_in_evaluation(nn.Module):
    """Keeps a computed bias between passes and forgets it only when trained."""

    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(25))
        self.cache: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> cached_in_evaluation:
        super().train(mode)
        if mode:
            self.cache = {}
        return self

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            if "bias" not in self.cache:
                self.cache["bias"] = self.table.view(5, 5) * 2
            return x.transpose(1, 2) @ self.cache["bias"]
        return x.transpose(1, 2) @ (self.table.view(5, 5) * 2)


@add
def hooks_that_change_things() -> tuple[nn.Module, Any]:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
            return output * self.scale

    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    model.add_module("gate", nn.Identity())
    gate = Gate()
    model[0].gate = gate
    model[0].register_forward_hook(gate)
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return model, rows()


@add
class holds_a_lock(nn.Module):
    """Cannot be deep-copied."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return self.layer(x)


@add
class bound_method_kept(nn.Module):
    """Keeps one of its methods: the copy's must be the copy's."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.step = self.first
        self.calls = 0

    def first(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x)


# --- inputs, outputs, kinds ----------------------------------------------------------------------


@dataclass
class Answer:
    """A returned object."""

    logits: Tensor
    extra: dict[str, list[Tensor]]


@add
class returns_an_object(nn.Module):
    example = staticmethod(lambda: {"left": rows(), "right": rows(2, 4), "scale": 2.0})

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 4), nn.Linear(4, 4)
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(4, 2)})

    def forward(
        self, left: Tensor, right: Tensor, scale: float = 1.0, mask: Tensor | None = None
    ) -> Answer:
        x = self.left(left) * self.right(right) * scale
        x = x if mask is None else x * mask
        return Answer(self.heads["a"](x), {"b": [self.heads["b"](x)]})


@add
class unused_parts(nn.Module):
    example = staticmethod(image)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)
        self.auxiliary = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4))
        self.stray = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.body(x)
        result = self.head(x.mean((2, 3)))
        return (result, self.auxiliary(x)) if self.training else result


@add
def half_precision() -> tuple[nn.Module, Any]:
    return nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.Linear(4, 2)).bfloat16(), rows()


@add
def lazily_initialised() -> tuple[nn.Module, Any]:
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)
    ), (image())


@add
def on_the_meta_device() -> tuple[nn.Module, Any]:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 2)), rows()


@add
def transformer_layers() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2), sequence()


@add
def transformer_layers_frozen() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    body = nn.TransformerEncoder(layer, 2).requires_grad_(False)
    return nn.Sequential(body, nn.Linear(8, 3)), sequence()


@add
class complex_spectrum(nn.Module):
    example = staticmethod(sequence)

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.ones(3, 8, dtype=torch.complex64))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.fft.irfft(torch.fft.rfft(x, dim=1) * self.filter, n=5, dim=1))


@add
class sparse_product(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        identity = torch.eye(2).to_sparse_csr()
        return identity @ self.layer(x)


@add
class einsum_and_bilinear(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.cube = nn.Parameter(torch.ones(8, 4, 2))
        self.bilinear = nn.Bilinear(4, 2, 3)
        self.prelu = nn.PReLU(3)

    def forward(self, x: Tensor) -> Tensor:
        product = torch.einsum("ni,ijk->njk", x, self.cube)
        return self.prelu(self.bilinear(product.mean(2), product.mean(1)))


@add
class embedding_bag_and_positions(nn.Module):
    example = staticmethod(lambda: torch.arange(6).reshape(2, 3))

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 8)
        self.tokens = nn.Embedding(10, 8)
        self.positions = nn.Embedding(3, 8)
        self.norm = nn.RMSNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        each = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.norm(each.sum(1) + self.bag(x))


@add
def pruned() -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    prune.l1_unstructured(model[0], "weight", amount=0.3)
    return model, rows()


@add
class checkpointed_again(nn.Module):
    """The older kind of checkpoint: autograd does not see what is inside."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.utils.checkpoint.checkpoint(self.a, x, use_reentrant=True))


@add
class called_with_other_weights(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.gain = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Any:
        weights = {"weight": self.layer.weight * self.gain, "bias": self.layer.bias}
        return torch.func.functional_call(self.layer, weights, (x,))


@add
class mixed_precision(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.b(self.a(x).relu())


@add
class list_in_list_out(nn.Module):
    example = staticmethod(lambda: [rows(), rows(3)])

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, batches: list[Tensor]) -> list[Tensor]:
        return [self.layer(x) for x in batches]


@add
class by_way_of_numpy(nn.Module):
    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.from_numpy(x.detach().numpy() * 2)


@add
class slope_of_a_network(nn.Module):
    """Returns the derivative of a network by its input."""

    example = staticmethod(rows)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(self.b(self.a(x).tanh()).sum(), x, create_graph=True)[0]
