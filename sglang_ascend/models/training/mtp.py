"""The multi-token-prediction module of DeepSeek-V3 (technical report, section 2.2), depth one.

At position i it reads the main model's normed last hidden state and the embedding of token i + 1,
and predicts token i + 2. Embedding and output head are the main model's.
"""

from __future__ import annotations

import torch
from torch import nn


class MtpModule(nn.Module):
    """``eh_proj([enorm(embedding), hnorm(hidden)])``, one MoE decoder layer, ``shared_head.norm``.

    The concatenation order is that of the published checkpoints: the embedding comes first.
    """

    def __init__(self, config):
        super().__init__()
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
            DeepseekV3DecoderLayer,
            DeepseekV3RMSNorm,
        )

        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = DeepseekV3RMSNorm(hidden, eps=eps)
        self.hnorm = DeepseekV3RMSNorm(hidden, eps=eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = DeepseekV3DecoderLayer(config, config.num_hidden_layers)
        self.shared_head = nn.Module()
        self.shared_head.norm = DeepseekV3RMSNorm(hidden, eps=eps)

    @torch.no_grad()
    def start_from(self, main) -> None:
        """Begin as the main model's last layer over the mean of both inputs, a near-identity."""
        self.layer.load_state_dict(main.model.layers[-1].state_dict())
        self.shared_head.norm.weight.copy_(main.model.norm.weight)
        half = 0.5 * torch.eye(self.eh_proj.out_features)
        self.eh_proj.weight.copy_(torch.cat([half, half], dim=1))

    def forward(self, embeddings, hidden, rotary_emb, attention_mask=None) -> torch.Tensor:
        """Hidden states for the main model's output head.

        Args:
            embeddings: [batch, length, hidden_size], of tokens 1 .. length.
            hidden: [batch, length, hidden_size], after the main model's final norm, of tokens
                0 .. length - 1.
            rotary_emb: the main model's rotary embedding.
            attention_mask: additive, broadcastable to [batch, heads, length, length]; None leaves
                causality to the attention implementation.
        """
        positions = torch.arange(hidden.shape[1]).unsqueeze(0)
        mixed = self.eh_proj(torch.cat([self.enorm(embeddings), self.hnorm(hidden)], dim=-1))
        output = self.layer(
            mixed,
            attention_mask=attention_mask,
            position_ids=positions,
            position_embeddings=rotary_emb(mixed, positions),
        )
        return self.shared_head.norm(output)
