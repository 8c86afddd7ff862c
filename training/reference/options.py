"""What a run may choose about the arithmetic; nothing here is part of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Options:
    """Run-time numerics; none of it is part of the checkpoint."""

    dtype: torch.dtype = torch.float32  # residual stream and GEMM operands
    kv_quant: bool = True  # round cached rows and indexer q/k to their storage formats
    act_quant: bool = False  # FP8 activations in front of FP8/FP4 weights, as the GPU kernels do
    wo_a_act_quant: bool = False  # also in front of wo_a (DeepInfer does, the official reference code does not)
    weight_quant: bool = False  # training: fake-quantize master weights on the fly
    sparse: bool = True  # False: attend every visible compressed entry (dense warm-up of training)
    exact_ties: bool = True  # top-k ties go to the lowest index; False is faster and keeps all ties
    fast_attention: bool = False  # fused attention kernel instead of explicit softmax
    index_loss: bool = False  # collect the indexer's distillation loss
