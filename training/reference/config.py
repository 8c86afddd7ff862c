"""Model configuration: reads and writes the config.json schema of DeepSeek-V4.1-Flash.

The JSON has three nested parts (text_config, vision_config, quantization_config) plus a few
top-level ids. Only the text part is modelled here; vision_config is carried through verbatim so
that a file read and written again keeps it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "image_token_id")
QUANT = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4",
}

QUANTIZED_WIDTHS = (
    "hidden_size", "head_dim", "index_head_dim", "q_lora_rank", "moe_intermediate_size", "engram_head_dim",
)  # fmt: skip


@dataclass
class Config:
    # trunk
    vocab_size: int = 129280
    hidden_size: int = 5120
    num_hidden_layers: int = 40
    rms_norm_eps: float = 1e-20
    max_position_embeddings: int = 1048576
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    attention_bias: bool = False
    attention_dropout: float = 0.0
    # attention
    num_attention_heads: int = 64
    num_key_value_heads: int = 1
    head_dim: int = 512
    qk_rope_head_dim: int = 64
    q_lora_rank: int = 1280
    o_lora_rank: int = 1024
    o_groups: int = 8
    sliding_window: int = 128
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    rope_scaling: dict[str, Any] | None = field(
        default_factory=lambda: {
            "rope_type": "yarn",
            "factor": 16,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        }
    )
    # compressed KV + sparse index; compress_ratios has one entry per backbone layer and per draft stage
    compress_ratios: list[int] = field(default_factory=lambda: [0] * 2 + [2] * 18 + [1] * 20 + [0] * 3)
    kv_source_layer_ids: list[int] = field(default_factory=lambda: [2, 8, 14, 20])
    index_source_layer_ids: list[int] = field(default_factory=lambda: [2, 8, 14, 20, 24, 28, 32, 36])
    index_n_heads: int = 32
    index_head_dim: int = 128
    index_topk: int = 512
    candidate_source_layer_id: int = 20
    candidate_topk_blocks: int = 2048
    candidate_block_size: int = 8
    # mixture of experts
    n_routed_experts: int = 384
    n_shared_experts: int = 1
    num_experts_per_tok: int = 6
    moe_intermediate_size: int = 2304
    scoring_func: str = "sqrtsoftplus"
    topk_method: str = "noaux_tc"
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.5
    swiglu_limit: float = 10.0
    # hyper-connections
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    # engram
    engram_layer_ids: list[int] = field(default_factory=lambda: [1, 14])
    engram_num_embeddings: list[int] = field(default_factory=lambda: [384006168, 384016682])
    engram_max_ngram_size: int = 4
    engram_vocab_size: int = 16000000
    engram_n_heads: int = 8
    engram_head_dim: int = 256
    engram_pad_token_id: int = 2
    engram_compressed_vocab_size: int = 99092
    # DSpark drafts
    num_nextn_predict_layers: int = 3
    dspark_block_size: int = 5
    dspark_noise_token_id: int = 128799
    dspark_target_layer_ids: list[int] = field(default_factory=lambda: [37, 38, 39])
    dspark_markov_rank: int = 256
    dspark_n_routed_experts: int = 128
    dspark_num_experts_per_tok: int = 3
    # top level
    bos_token_id: int = 0
    eos_token_id: int = 1
    pad_token_id: int = 2
    image_token_id: int = 129264
    vision_config: dict[str, Any] = field(default_factory=dict)

    # ------------------------------------------------------------------ derived
    @property
    def n_layers(self) -> int:
        return self.num_hidden_layers

    @property
    def n_encoder_layers(self) -> int:
        """Index of the first ratio-1 layer: everything before it is the causal encoder."""
        return next((i for i, r in enumerate(self.compress_ratios[: self.n_layers]) if r == 1), self.n_layers)

    def kv_source(self, layer: int) -> int:
        return max(s for s in self.kv_source_layer_ids if s <= layer)

    def index_source(self, layer: int) -> int:
        return max(s for s in self.index_source_layer_ids if s <= layer)

    def experts_of(self, layer: int) -> tuple[int, int]:
        """(number of routed experts, experts per token); draft stages are layers >= n_layers."""
        if layer < self.n_layers:
            return self.n_routed_experts, self.num_experts_per_tok
        return self.dspark_n_routed_experts, self.dspark_num_experts_per_tok

    def validate(self) -> Config:
        """Returns itself, or raises ValueError naming the first rule that the values break."""
        for holds, rule in self._rules():
            if not holds:
                raise ValueError(f"{rule} (config.json)")
        return self

    def _rules(self) -> Iterator[tuple[bool, str]]:
        n, ratios = self.n_layers, self.compress_ratios
        yield (
            len(ratios) == n + self.num_nextn_predict_layers,
            "compress_ratios covers backbone and draft stages",
        )
        yield set(ratios) <= {0, 1, 2} and not any(ratios[n:]), "ratios are 0, 1 or 2, and 0 in draft stages"
        yield (
            set(self.kv_source_layer_ids) <= set(self.index_source_layer_ids),
            "each KV source is an index source",
        )
        for layer in (i for i in range(n) if ratios[i]):
            source = self.kv_source(layer)
            yield ratios[source] == ratios[layer], f"layer {layer} shares KV with a layer of its own ratio"
            yield (
                self.kv_source(self.index_source(layer)) == source,
                f"layer {layer} indexes the KV that it reads",
            )
        candidates = self.candidate_source_layer_id
        if candidates >= 0:
            kept = self.candidate_topk_blocks * self.candidate_block_size
            yield candidates in self.index_source_layer_ids, "the candidate source is an index source"
            yield self.candidate_topk_blocks % 8 == 0, "candidate_topk_blocks is a multiple of 8"
            yield kept >= self.index_topk, "candidate blocks hold at least index_topk entries"
        for name in QUANTIZED_WIDTHS:
            yield getattr(self, name) % 32 == 0, f"{name} is a multiple of the 32-wide quantization group"
        yield (self.o_groups * self.o_lora_rank) % 32 == 0, "o_groups * o_lora_rank is a multiple of 32"
        yield self.num_attention_heads % self.o_groups == 0, "o_groups divides the attention heads"
        yield self.num_key_value_heads == 1, "all heads share one key-value row"
        yield (
            self.scoring_func == "sqrtsoftplus" and self.topk_method == "noaux_tc",
            "the gate is sqrtsoftplus, noaux_tc",
        )
        yield self.norm_topk_prob, "norm_topk_prob is true"
        yield (
            len(self.engram_layer_ids) == len(self.engram_num_embeddings),
            "each Engram layer has a table size",
        )

    # ------------------------------------------------------------------ JSON
    def to_json(self) -> dict[str, Any]:
        text = {"model_type": "deepseek_v41_text"}
        for f in dataclasses.fields(self):
            if f.name not in TOP_KEYS and f.name != "vision_config":
                text[f.name] = getattr(self, f.name)
        out: dict[str, Any] = {
            "architectures": ["DeepseekV41ForCausalLM"],
            "model_type": "deepseek_v41",
            "dtype": "bfloat16",
        }
        out.update({k: getattr(self, k) for k in TOP_KEYS})
        out["quantization_config"] = QUANT
        out["text_config"] = text
        out["vision_config"] = self.vision_config
        return out

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Config:
        names = {f.name for f in dataclasses.fields(cls)}
        text = {k: v for k, v in doc.get("text_config", doc).items() if k in names}
        top = {k: doc[k] for k in TOP_KEYS if k in doc}
        if text.get("candidate_source_layer_id", 0) is None:
            text["candidate_source_layer_id"] = -1  # both spellings switch candidate blocks off
        return cls(**{**text, **top, "vision_config": doc.get("vision_config", {})}).validate()

    def save(self, directory: str | Path) -> None:
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def load(cls, directory: str | Path) -> Config:
        return cls.from_json(json.loads((Path(directory) / "config.json").read_text()))
