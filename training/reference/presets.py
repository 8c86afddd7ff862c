"""The two small configurations: the trained miniature, and the random network of the golden vectors."""

from __future__ import annotations

from training.reference.config import Config
from training.reference.primes import engram_primes


def with_engram_sizes(cfg: Config) -> Config:
    cfg.engram_num_embeddings = [sum(p) for p in engram_primes(cfg)]
    return cfg.validate()


def mini(vocab_size: int = 4096, compressed_vocab: int = 4096) -> Config:
    """Trainable miniature: every layer kind of the big model in 5 encoder + 5 decoder layers."""
    return with_engram_sizes(
        Config(
            vocab_size=vocab_size,
            hidden_size=256,
            num_hidden_layers=10,
            max_position_embeddings=8192,
            num_attention_heads=8,
            head_dim=64,
            qk_rope_head_dim=16,
            q_lora_rank=128,
            o_lora_rank=64,
            o_groups=4,
            sliding_window=32,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4,
                "beta_fast": 32,
                "beta_slow": 1,
                "original_max_position_embeddings": 2048,
            },
            compress_ratios=[0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0],
            kv_source_layer_ids=[2, 4, 5],
            index_source_layer_ids=[2, 4, 5, 7, 9],
            index_n_heads=8,
            index_head_dim=64,
            index_topk=64,
            candidate_source_layer_id=5,
            candidate_topk_blocks=16,
            candidate_block_size=8,
            n_routed_experts=16,
            num_experts_per_tok=2,
            moe_intermediate_size=96,
            engram_layer_ids=[1, 4],
            engram_num_embeddings=[0, 0],
            engram_vocab_size=600,
            engram_n_heads=4,
            engram_head_dim=32,
            engram_compressed_vocab_size=compressed_vocab,
            dspark_noise_token_id=3,
            dspark_target_layer_ids=[7, 8, 9],
            dspark_markov_rank=32,
            dspark_n_routed_experts=8,
            dspark_num_experts_per_tok=2,
            image_token_id=4,
        )
    )


def tiny(vocab_size: int = 512, compressed_vocab: int = 512) -> Config:
    """Random-weight configuration for golden vectors: small numbers everywhere, all layer kinds."""
    return with_engram_sizes(
        Config(
            vocab_size=vocab_size,
            hidden_size=128,
            num_hidden_layers=8,
            max_position_embeddings=4096,
            num_attention_heads=4,
            head_dim=64,
            qk_rope_head_dim=16,
            q_lora_rank=64,
            o_lora_rank=32,
            o_groups=2,
            sliding_window=16,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4,
                "beta_fast": 32,
                "beta_slow": 1,
                "original_max_position_embeddings": 256,
            },
            compress_ratios=[0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0],
            kv_source_layer_ids=[2, 4],
            index_source_layer_ids=[2, 4, 6],
            index_n_heads=8,
            index_head_dim=32,
            index_topk=16,
            candidate_source_layer_id=4,
            candidate_topk_blocks=8,
            candidate_block_size=4,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            engram_layer_ids=[1, 3],
            engram_num_embeddings=[0, 0],
            engram_vocab_size=61,
            engram_n_heads=2,
            engram_head_dim=32,
            engram_compressed_vocab_size=compressed_vocab,
            dspark_noise_token_id=3,
            dspark_target_layer_ids=[5, 6, 7],
            dspark_markov_rank=32,
            dspark_n_routed_experts=4,
            dspark_num_experts_per_tok=2,
            image_token_id=4,
        )
    )
