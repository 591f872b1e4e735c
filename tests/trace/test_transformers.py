"""Models of transformers, made from a config: nothing is fetched."""

from __future__ import annotations

import pytest
import torch
from profile_orders import by_gradient, by_need, sound

from relaxc.schedule.trace import trace

transformers = pytest.importorskip("transformers", reason="no package `transformers`")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TOKENS = torch.arange(16).reshape(2, 8)


def within(parts: list[str], layers: str) -> list[str]:
    return [f"{layers}.{layer}.{part}" for layer in range(2) for part in parts]


def test_bert() -> None:
    model = transformers.BertModel(transformers.BertConfig(vocab_size=50, **SMALL))
    profile = trace(model, {"input_ids": TOKENS}, runs=2)
    assert profile.how == "torch.export" and profile.why[0].startswith("torch.fx: ") and sound(profile)
    order = by_need(profile)
    heads = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    rest = ["attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]
    assert sorted(order[:3]) == [
        f"embeddings.{kind}_embeddings" for kind in ("position", "token_type", "word")
    ]  # fmt: skip
    assert order[3:] == ["embeddings.LayerNorm", *within([*heads, *rest], "encoder.layer"), "pooler.dense"]
    assert by_gradient(profile)[0] == "pooler.dense" and "embeddings" in by_gradient(profile)[-1]


def test_gpt2_with_its_tied_head() -> None:
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=1
    )
    model = transformers.GPT2LMHeadModel(config)
    assert model.lm_head.weight is model.transformer.wte.weight
    profile = trace(model, {"input_ids": TOKENS, "labels": TOKENS}, runs=2)
    assert len(profile.why) == {"torch.export": 1, "recorded": 2}[profile.how] and sound(profile)
    block = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
    blocks = [f"transformer.{name}" for name in within(block, "h")]
    assert by_need(profile) == ["transformer.wte", "transformer.wpe", *blocks, "transformer.ln_f"]
    assert by_gradient(profile)[0] == "transformer.ln_f"
    assert set(by_gradient(profile)[-2:]) == {"transformer.wte", "transformer.wpe"}


def test_vit() -> None:
    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=8, **SMALL))
    profile = trace(model, (torch.randn(2, 3, 16, 16),), runs=2)
    assert sound(profile) and all(p.ready is not None and p.needed is not None for p in profile.parameters)
    order = by_need(profile)
    assert order[0] == "embeddings.patch_embeddings.projection" and order[-1] == "pooler.dense"
    first = {p.name: p.needed for p in profile.parameters}
    assert first["embeddings.cls_token"] < first["embeddings.position_embeddings"] < first["layernorm.weight"]
    assert by_gradient(profile)[0] == "pooler.dense"
    assert by_gradient(profile)[-1] == "embeddings.patch_embeddings.projection"
