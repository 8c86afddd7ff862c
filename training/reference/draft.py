"""DSpark draft stages: three small layers that propose a block of tokens from the main model's state."""

from __future__ import annotations

from torch import nn

from training.reference.block import Block
from training.reference.config import Config
from training.reference.layers import Linear, Norm
from training.reference.options import Options


class MarkovHead(nn.Module):
    def __init__(self, cfg: Config, opts: Options) -> None:
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab_size, cfg.dspark_markov_rank)
        self.head = Linear(opts, cfg.dspark_markov_rank, cfg.vocab_size, "bf16")


class ConfidenceHead(nn.Module):
    def __init__(self, cfg: Config, opts: Options) -> None:
        super().__init__()
        self.proj = Linear(opts, cfg.hidden_size + cfg.dspark_markov_rank, 1, "bf16")


class DraftStage(Block):
    """A window-only block; the first stage also owns the context projection, the last the heads."""

    def __init__(self, cfg: Config, opts: Options, stage: int) -> None:
        super().__init__(cfg, opts, cfg.n_layers + stage)
        d = cfg.hidden_size
        if stage == 0:
            self.main_proj = Linear(opts, len(cfg.dspark_target_layer_ids) * d, d, "fp8")
            self.main_norm = Norm(d, cfg.rms_norm_eps)
        if stage == cfg.num_nextn_predict_layers - 1:
            self.norm = Norm(d, cfg.rms_norm_eps)
            self.markov_head = MarkovHead(cfg, opts)
            self.confidence_head = ConfidenceHead(cfg, opts)
