"""Read a model from a Hugging Face ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvsim.errors import ConfigError
from kvsim.models.model import Experts, Family, FieldError, LatentAttention, Model, Quantization, check_whole

# model_type -> family of models.toml
FAMILIES = {
    "opt": "opt",
    "gpt2": "gpt",
    "falcon": "falcon",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "phi3": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek3",
}
# our field -> the names that configurations use for it, in order of preference
KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "max_model_len": ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
    "window": ("sliding_window", "attention_chunk_size"),
    "count": ("num_local_experts", "num_experts", "n_routed_experts"),
    "per_token": ("num_experts_per_tok", "experts_per_token"),
}
KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
    "mamba": "linear",
}


def model_type_family(model_type: str) -> str:
    """Return the family of a ``model_type``; one that is not known counts as LLaMA-like."""
    return FAMILIES.get(model_type, "llama")


def model_from_config(path: Path, family_of: Callable[[str], Family]) -> Model:
    """Read a model from a ``config.json``.

    Parameters
    ----------
    path : Path
        The file.
    family_of : callable
        From ``model_type`` to what its family shares.

    Raises
    ------
    ConfigError
        Not JSON; a field is missing, is no size, or contradicts another: the message names file and field.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: a JSON object is expected")
    reader = _Reader(config)
    try:
        return reader.model(path, family_of(reader.model_type))
    except FieldError as error:
        message = error.template
        for field, key in reader.names.items():
            message = message.replace(f"{{{field}}}", key)
        raise ConfigError(f"{path}: {message.replace('{', '').replace('}', '')}") from error


class _Reader:
    """One configuration, and under which of its names each field was found."""

    def __init__(self, config: dict[str, Any]) -> None:
        nested = config.get("text_config")
        self.multimodal = isinstance(nested, dict)
        self.config: dict[str, Any] = config | nested if isinstance(nested, dict) else config
        self.model_type = str(self.config.get("model_type", ""))
        self.names = {field: keys[0] for field, keys in KEYS.items()}
        self.names |= {"pattern": "layer_types", "dense_layers": "first_k_dense_replace"}

    def size(self, field: str, default: int | None = None) -> int:
        """Return a size under whichever of its names is there.

        Without a default the field is required.
        """
        for key in KEYS.get(field, (field,)):
            value = self.config.get(key)
            if value is not None:
                self.names[field] = key
                check_whole(field, value, least=0 if default == 0 else 1)
                return int(value)
        if default is None:
            raise FieldError(f"{{{field}}} is missing")
        return default

    def model(self, path: Path, family: Family) -> Model:
        """Build the model."""
        layers, hidden, heads = self.size("layers"), self.size("hidden"), self.size("heads")
        head_dim = self.size("head_dim", 0) or self.derived_head_dim(hidden, heads)
        experts = self.experts(layers)
        pattern, window = self.pattern(layers)
        return Model(
            name=str(self.config.get("_name_or_path") or path.resolve().parent.name or path.stem),
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self.kv_heads(heads),
            head_dim=head_dim,
            intermediate=self.intermediate(hidden),
            vocabulary=self.size("vocabulary", 0),
            max_model_len=self.size("max_model_len", 2048),
            family=self.family(family),
            tied_embeddings=bool(self.config.get("tie_word_embeddings", family.tied_embeddings)),
            window=window,
            pattern=pattern,
            experts=experts,
            latent=self.latent(),
            quantization=self.quantization(),
            source=str(path),
            notes=tuple(self.notes()),
        )

    def derived_head_dim(self, hidden: int, heads: int) -> int:
        """Return ``hidden / heads``, where the configuration gives no head dimension of its own."""
        if "kv_lora_rank" in self.config:
            return self.size("qk_nope_head_dim", 0) + self.size("qk_rope_head_dim")
        if hidden % heads:
            raise FieldError(
                f"{{hidden}} = {hidden} is no multiple of {{heads}} = {heads}, and {{head_dim}} is missing"
            )
        return hidden // heads

    def kv_heads(self, heads: int) -> int:
        """Return the key-value heads: given, one for multi-query attention, else as many as query heads."""
        if self.config.get("multi_query") and not self.config.get("new_decoder_architecture"):
            return 1
        return self.size("kv_heads", heads)

    def intermediate(self, hidden: int) -> int:
        """Return the width of the MLP; GPT-2 and Falcon leave out four times the hidden size."""
        return self.size("intermediate", 0) or (4 * hidden if self.model_type in ("gpt2", "falcon") else 0)

    def family(self, family: Family) -> Family:
        """Return the family, with the biases that the configuration switches on or off itself."""
        switches: dict[str, bool] = {}
        if "attention_bias" in self.config and self.model_type != "qwen2":
            bias = bool(self.config["attention_bias"])
            switches |= {"qkv_bias": bias, "output_bias": bias}
        if "mlp_bias" in self.config:
            switches["mlp_bias"] = bool(self.config["mlp_bias"])
        return replace(family, **switches)

    def pattern(self, layers: int) -> tuple[tuple[str, ...], int]:
        """Return the kinds of the layers and the window; 0 where no layer has one."""
        kinds, window = self.layer_kinds(layers), self.size("window", 0)
        switched_off = not window or self.config.get("use_sliding_window") is False
        if switched_off and not self.config.get("layer_types"):
            kinds = tuple("full" if kind == "sliding" else kind for kind in kinds)
        return kinds, window if "sliding" in kinds else 0

    def layer_kinds(self, layers: int) -> tuple[str, ...]:
        """Return the kinds of the layers, by list, by period, or all alike."""
        listed = self.config.get("layer_types")
        if listed is not None:
            return self.listed_kinds(listed, layers)
        period = self.config.get("full_attention_interval") or self.config.get("sliding_window_pattern")
        if period is not None:
            check_whole("sliding_window_pattern", period)
            other = "linear" if "full_attention_interval" in self.config else "sliding"
            return (*[other] * (min(period, layers) - 1), "full")
        if self.config.get("use_sliding_window") and self.config.get("max_window_layers") is not None:
            first = min(self.size("max_window_layers", 0), layers)
            return (*["full"] * first, *["sliding"] * (layers - first))
        if self.model_type in ("gemma2", "gpt_oss"):
            return ("sliding", "full")
        if self.model_type.startswith("gemma3"):
            return (*["sliding"] * 5, "full")
        return ("sliding",) if self.model_type in ("mistral", "mixtral", "phi3", "qwen2") else ("full",)

    def listed_kinds(self, listed: object, layers: int) -> tuple[str, ...]:
        """Return the kinds of a ``layer_types`` list."""
        if not isinstance(listed, list) or not all(isinstance(kind, str) for kind in listed):
            raise FieldError("{pattern} must be a list of names")
        if len(listed) != layers:
            raise FieldError(f"{{pattern}} names {len(listed)} layers, {{layers}} says {layers}")
        strange = sorted(set(listed) - set(KINDS))
        if strange:
            raise FieldError(f"{{pattern}} names {strange[0]!r}; known: {', '.join(KINDS)}")
        return tuple(KINDS[kind] for kind in listed)

    def experts(self, layers: int) -> Experts | None:
        """Return the mixture of experts, if there is one."""
        count = self.size("count", 0)
        if count <= 1:
            return None
        width = self.size("moe_intermediate_size", 0) or self.size("intermediate")
        shared = self.size("n_shared_experts", 0) * width or self.size("shared_expert_intermediate_size", 0)
        dense = self.size("first_k_dense_replace", 0)
        step = self.size("decoder_sparse_step", 1)
        skipped = set(self.config.get("mlp_only_layers") or ())
        if step > 1 or skipped:
            dense = sum((layer + 1) % step != 0 or layer in skipped for layer in range(layers))
        return Experts(count, self.size("per_token"), width, shared, dense)

    def latent(self) -> LatentAttention | None:
        """Return the ranks of latent attention, if the model has it; then none of them may be missing."""
        if self.config.get("kv_lora_rank") is None:
            return None
        return LatentAttention(
            kv_lora_rank=self.size("kv_lora_rank"),
            qk_rope_head_dim=self.size("qk_rope_head_dim"),
            qk_nope_head_dim=self.size("qk_nope_head_dim", 0),
            v_head_dim=self.size("v_head_dim", 0),
            q_lora_rank=self.size("q_lora_rank", 0),
        )

    def quantization(self) -> Quantization | None:
        """Return how the weights are stored, where the configuration says it in a way that is known."""
        stored = self.config.get("quantization_config")
        if not isinstance(stored, dict):
            return None
        method = str(stored.get("quant_method", ""))
        if method == "mxfp4":
            return Quantization(4, block=32, scale_bits=8, covers="experts")
        if method == "fp8":
            rows, columns = (stored.get("weight_block_size") or (0, 0))[:2]
            return Quantization(8, block=rows * columns, covers="linear")
        if method in ("gptq", "awq"):
            group = stored.get("group_size", 128)
            bits = stored.get("bits", 4)
            return Quantization(bits, block=max(group, 0), scale_bits=16, zero_bits=bits, covers="linear")
        if stored.get("load_in_4bit") or stored.get("_load_in_4bit"):
            double = 256 if stored.get("bnb_4bit_use_double_quant") else 0
            return Quantization(4, block=64, double_block=double, covers="linear")
        if stored.get("load_in_8bit") or stored.get("_load_in_8bit"):
            return Quantization(8, covers="linear")
        return None

    def notes(self) -> list[str]:
        """Return what a reader should know about what was read."""
        notes = []
        if self.model_type not in FAMILIES:
            notes.append(
                f"model_type {self.model_type!r} is not known: parameters are counted as for a LLaMA-like model"
            )
        if self.multimodal:
            notes.append("only the text part of the model is counted")
        if not any(self.config.get(key) is not None for key in KEYS["max_model_len"]):
            notes.append(f"no {KEYS['max_model_len'][0]} in the configuration: 2,048 is assumed")
        if self.config.get("quantization_config") and not self.quantization():
            notes.append("quantization_config is of a kind that is not known: 16 bits are assumed")
        return notes
