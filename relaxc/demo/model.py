"""A small character transformer, written the ordinary way: nothing in it knows of relaxc."""

import torch
from torch import Tensor, nn

from relaxc.demo.size import Size


class Block(nn.Module):
    """Attention, then a feed-forward layer, each on a normalised copy and added back; [batch, time, width]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1 = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.norm2 = nn.LayerNorm(size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def attend(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class CharTransformer(nn.Module):
    """Characters [batch, time] to logits of the next one [batch, time, vocabulary]; 3.2 M parameters as it stands."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embed = nn.Embedding(size.vocabulary, size.width)
        self.place = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.apply(_initialise)
        self._quieten(size.layers)

    def _quieten(self, layers: int) -> None:
        """Start the layers that add to the residual stream small: each of the 2 * layers adds a share of variance."""
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)

    def forward(self, characters: Tensor) -> Tensor:
        places = torch.arange(characters.shape[1])
        x = self.embed(characters) + self.place(places)
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


def _initialise(module: nn.Module) -> None:
    """Small weights, so that the first guess is uniform; larger embeddings, which tell characters apart."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.3)
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
