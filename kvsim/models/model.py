"""A language model as its memory sees it: sizes, heads, layers, and the parameters that they amount to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from math import ceil

from kvsim.errors import ConfigError

LAYER_KINDS = ("full", "sliding", "linear")
# Beyond these a number is a slip of the keyboard: nobody builds it, and it would only print nonsense.
CEILINGS = {
    "layers": 10_000,
    "hidden": 1_000_000,
    "heads": 100_000,
    "kv_heads": 100_000,
    "head_dim": 1_000_000,
    "intermediate": 100_000_000,
    "vocabulary": 100_000_000,
    "max_model_len": 1_000_000_000,
    "window": 1_000_000_000,
    "nominal_parameters": 10**15,
    "count": 100_000,
}


class FieldError(ConfigError):
    """A field that cannot be meant, worded with ``{field}`` where a reader's own name for the field goes."""

    def __init__(self, template: str) -> None:
        self.template = template
        super().__init__(template.replace("{", "").replace("}", ""))


def check_whole(name: str, value: object, *, least: int = 1) -> None:
    """Refuse a size that is not a whole number in its range.

    Raises
    ------
    FieldError
        ``value`` is no int (a bool or a float is none), is below ``least``, or beyond any model that exists.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldError(f"{{{name}}} must be a whole number, not {value!r}")
    if value < least:
        raise FieldError(f"{{{name}}} must be at least {least}, not {value}")
    if value > CEILINGS.get(name, 10**9):
        raise FieldError(f"{{{name}}} = {value:,} is absurd: at most {CEILINGS.get(name, 10**9):,}")


@dataclass(frozen=True)
class Family:
    """What the models of one family share beyond their sizes.

    Attributes
    ----------
    gated_mlp : bool
        Three matrices (gate, up, down) rather than two (up, down).
    qkv_bias, output_bias, mlp_bias, norm_bias : bool
        Which parts carry a bias vector; ``mlp_bias`` holds for experts too.
    norms_per_layer : int
        Norms over the hidden size in each layer.
    qk_norm : bool
        A norm over the head dimension on queries and on keys.
    learned_positions : bool
        A table of ``max_model_len + position_offset`` position embeddings.
    position_offset : int
        Rows of that table that stand for no position.
    sinks : bool
        One learned attention sink a head.
    router_bias : bool
        One bias an expert in each router.
    tied_embeddings : bool
        The usual answer where a configuration does not give one.
    """

    gated_mlp: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    norms_per_layer: int = 2
    qk_norm: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    sinks: bool = False
    router_bias: bool = False
    tied_embeddings: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture of experts.

    Attributes
    ----------
    count, per_token : int
        Experts in a layer, and how many of them a token visits.
    intermediate : int
        Width of one expert.
    shared_intermediate : int
        Width of what every token passes through beside its experts.
    dense_layers : int
        Layers that have an ordinary MLP instead.
    """

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        for name, least in {"count": 1, "per_token": 1, "intermediate": 1}.items():
            check_whole(name, getattr(self, name), least=least)
        for name in ("shared_intermediate", "dense_layers"):
            check_whole(name, getattr(self, name), least=0)
        if self.per_token > self.count:
            raise FieldError(f"{{per_token}} = {self.per_token} is more than {{count}} = {self.count}")


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA): keys and values of all heads come from one stored latent.

    Attributes
    ----------
    kv_lora_rank : int
        Values of the latent.
    qk_rope_head_dim : int
        Values of the rotary part of the key, stored beside it.
    qk_nope_head_dim, v_head_dim : int
        Head dimensions without rotary part; 0 where only the cache is of interest.
    q_lora_rank : int
        Rank of the query's own compression; 0 for none.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    q_lora_rank: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            required = field.name in ("kv_lora_rank", "qk_rope_head_dim")
            check_whole(field.name, getattr(self, field.name), least=int(required))


@dataclass(frozen=True)
class Quantization:
    """How weights are stored in fewer bits, constants included.

    Attributes
    ----------
    bits : int
        Bits of a quantized weight.
    block : int
        Weights that share one scale; 0 for scales too few to count.
    scale_bits, zero_bits : int
        Bits of the scale, and of the zero point beside it.
    double_block : int
        Double quantization: scales are held in 8 bits and this many of them share a 32-bit constant; 0 for none.
    covers : str
        ``"all"`` parameters, the ``"linear"`` matrices of the layers, or the ``"experts"`` only; the rest has 16 bits.
    """

    bits: int
    block: int = 0
    scale_bits: int = 32
    zero_bits: int = 0
    double_block: int = 0
    covers: str = "all"

    def __post_init__(self) -> None:
        check_whole("bits", self.bits)
        for name in ("block", "scale_bits", "zero_bits", "double_block"):
            check_whole(name, getattr(self, name), least=0)
        if self.bits > 64:
            raise FieldError(f"{{bits}} = {self.bits} is absurd: at most 64")
        if self.covers not in ("all", "linear", "experts"):
            raise FieldError(f"{{covers}} must be all, linear or experts, not {self.covers!r}")

    @property
    def overhead_bits(self) -> Fraction:
        """Bits of scales and zero points, a quantized weight.

        32-bit scales over blocks of 64 are 0.5 bit; double quantization makes that 8/64 + 32/(64 x 256) = 0.127
        (QLoRA, section 3).
        """
        if not self.block:
            return Fraction(0)
        if not self.double_block:
            return Fraction(self.scale_bits + self.zero_bits, self.block)
        return Fraction(8 + self.zero_bits, self.block) + Fraction(32, self.block * self.double_block)


@dataclass(frozen=True)
class Matrix:
    """Linear maps of one shape.

    Attributes
    ----------
    part : str
        The part of the model that they belong to: attention, mlp, experts, shared experts, routers.
    target : str
        What an adapter calls them: q, k, v, o, gate, up, down, ...
    inputs, outputs, copies : int
        Shape, and how many there are in the whole model.
    bias : bool
        Whether each has a bias vector of ``outputs`` values.
    """

    part: str
    target: str
    inputs: int
    outputs: int
    copies: int
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Weights of all copies, biases not counted."""
        return self.inputs * self.outputs * self.copies


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer.

    Attributes
    ----------
    name : str
        For people.
    layers, hidden, heads, kv_heads, head_dim : int
        Layers, width, query heads, key-value heads, and values a head; ``heads * head_dim`` may differ from ``hidden``.
    intermediate, vocabulary : int
        Width of the MLP and tokens known; 0 when not given, and then parameters cannot be counted.
    max_model_len : int
        Longest sequence in tokens.
    family : Family
        Biases, norms, positions.
    tied_embeddings : bool
        The output head is the token embedding.
    window : int
        Tokens that a sliding layer looks back at, itself included; 0 when there is no such layer.
    pattern : tuple of str
        Kinds of the layers (full, sliding, linear), repeated over the depth.
    experts : Experts or None
        Mixture of experts.
    latent : LatentAttention or None
        Multi-head latent attention.
    quantization : Quantization or None
        How the weights are published, when in fewer than 16 bits.
    nominal_parameters : int
        A count to use in place of the architecture's own; 0 for none.
    source : str
        Where the sizes come from.
    notes : tuple of str
        What a reader should know.

    Raises
    ------
    ConfigError
        A size is missing, absurd, or contradicts another.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int = 0
    vocabulary: int = 0
    max_model_len: int = 2048
    family: Family = Family()
    tied_embeddings: bool = False
    window: int = 0
    pattern: tuple[str, ...] = ("full",)
    experts: Experts | None = None
    latent: LatentAttention | None = None
    quantization: Quantization | None = None
    nominal_parameters: int = 0
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "max_model_len"):
            check_whole(name, getattr(self, name))
        for name in ("intermediate", "vocabulary", "window", "nominal_parameters"):
            check_whole(name, getattr(self, name), least=0)
        if self.heads % self.kv_heads:
            raise FieldError(f"{{kv_heads}} = {self.kv_heads} does not divide {{heads}} = {self.heads}")
        self._check_pattern()
        if self.experts and self.experts.dense_layers > self.layers:
            raise FieldError(f"{{dense_layers}} = {self.experts.dense_layers} is more than {{layers}} = {self.layers}")

    def _check_pattern(self) -> None:
        if not self.pattern or not set(self.pattern) <= set(LAYER_KINDS):
            raise FieldError(f"{{pattern}} must consist of {', '.join(LAYER_KINDS)}, not {list(self.pattern)}")
        if len(self.pattern) > self.layers:
            raise FieldError(f"{{pattern}} names {len(self.pattern)} layers, {{layers}} says {self.layers}")
        if "sliding" in self.pattern and not self.window:
            raise FieldError("{pattern} has sliding layers, yet {window} is not given")

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """Kind of every layer: the pattern repeated over the depth."""
        turns = ceil(self.layers / len(self.pattern))
        return (self.pattern * turns)[: self.layers]

    def layers_of(self, kind: str) -> int:
        """Count the layers of one kind (full, sliding, linear)."""
        return self.layer_kinds.count(kind)

    @property
    def attention_layers(self) -> int:
        """Layers that hold keys and values: all but the linear ones."""
        return self.layers - self.layers_of("linear")

    def kv_values_per_layer(self, tensor_parallel: int = 1) -> int:
        """Values that one layer of one rank keeps for a token.

        ``2 x KV heads x head_dim`` with KV heads a rank ``max(1, kv_heads / tp)``; with latent attention the latent and
        the rotary key, once, on every rank.
        """
        if self.latent:
            return self.latent.kv_lora_rank + self.latent.qk_rope_head_dim
        return 2 * max(1, self.kv_heads // tensor_parallel) * self.head_dim

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        """Bytes of keys and values of one token in all attention layers, windows not considered."""
        return self.attention_layers * self.kv_values_per_layer() * dtype_bytes

    @property
    def parameters(self) -> int:
        """Parameters: the nominal count where there is one, else the architecture's.

        Raises
        ------
        ConfigError
            Neither can be known.
        """
        return self.nominal_parameters or self.architecture_parameters

    @property
    def architecture_parameters(self) -> int:
        """Parameters counted from the architecture."""
        return sum(self.parameters_by_part().values())

    def weights_bytes(self, bits: float = 16) -> int:
        """Bytes of all weights at so many bits each, rounded up."""
        return ceil(self.parameters * Fraction(bits) / 8)

    def parameters_by_part(self) -> dict[str, int]:
        """Count the parameters of each part.

        Returns
        -------
        dict
            embeddings, positions, attention, mlp, experts, shared experts, routers, biases, norms, head; parts
            that the model does not have are left out.

        Raises
        ------
        ConfigError
            The vocabulary or a width is not given, or a layer is of a kind that has no formula here.
        """
        if self.uncountable:
            raise ConfigError(f"parameters of {self.name} cannot be counted {self.uncountable}; give their number")
        parts = {"embeddings": self.vocabulary * self.hidden}
        if self.family.learned_positions:
            parts["positions"] = (self.max_model_len + self.family.position_offset) * self.hidden
        biases = self.heads * self.layers if self.family.sinks else 0
        for matrix in self.matrices():
            parts[matrix.part] = parts.get(matrix.part, 0) + matrix.parameters
            biases += matrix.outputs * matrix.copies if matrix.bias else 0
        parts |= {"biases": biases, "norms": self._norm_parameters()}
        parts["head"] = 0 if self.tied_embeddings else self.vocabulary * self.hidden
        return {part: count for part, count in parts.items() if count}

    @property
    def uncountable(self) -> str:
        """Why the parameters cannot be counted from the architecture; empty when they can."""
        if "linear" in self.pattern:
            return "with linear-attention layers, whose shape is not known here"
        missing = [name for name in ("vocabulary", "intermediate") if not getattr(self, name)]
        if self._sparse_layers == self.layers and "intermediate" in missing:
            missing.remove("intermediate")
        if self.latent and not self.latent.v_head_dim:
            missing.append("v_head_dim")
        return f"without {' and '.join(missing)}" if missing else ""

    @property
    def _sparse_layers(self) -> int:
        return self.layers - self.experts.dense_layers if self.experts else 0

    def _norm_parameters(self) -> int:
        per_layer = self.family.norms_per_layer * self.hidden
        final = self.hidden
        vectors = (self.layers * per_layer + final) * (2 if self.family.norm_bias else 1)
        heads = 2 * self.head_dim * self.layers if self.family.qk_norm else 0
        latent = (self.latent.q_lora_rank + self.latent.kv_lora_rank) * self.layers if self.latent else 0
        return vectors + heads + latent

    def matrices(self) -> Iterator[Matrix]:
        """Yield every linear map of the layers: attention, MLP, experts, routers."""
        yield from self._latent_matrices(self.latent) if self.latent else self._attention_matrices()
        yield from self._mlp_matrices("mlp", self.intermediate, self.layers - self._sparse_layers)
        if self.experts:
            sparse = self._sparse_layers
            yield from self._mlp_matrices("experts", self.experts.intermediate, sparse * self.experts.count)
            yield from self._mlp_matrices("shared experts", self.experts.shared_intermediate, sparse)
            yield Matrix("routers", "router", self.hidden, self.experts.count, sparse, self.family.router_bias)

    def _attention_matrices(self) -> Iterator[Matrix]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        copies, family = self.attention_layers, self.family
        for target, outputs in (("q", queries), ("k", keys), ("v", keys)):
            yield Matrix("attention", target, self.hidden, outputs, copies, family.qkv_bias)
        yield Matrix("attention", "o", queries, self.hidden, copies, family.output_bias)

    def _latent_matrices(self, latent: LatentAttention) -> Iterator[Matrix]:
        queries = self.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
        shapes = [("q", self.hidden, queries)]
        if latent.q_lora_rank:
            shapes = [("q_a", self.hidden, latent.q_lora_rank), ("q_b", latent.q_lora_rank, queries)]
        shapes += [
            ("kv_a", self.hidden, latent.kv_lora_rank + latent.qk_rope_head_dim),
            ("kv_b", latent.kv_lora_rank, self.heads * (latent.qk_nope_head_dim + latent.v_head_dim)),
            ("o", self.heads * latent.v_head_dim, self.hidden),
        ]
        for target, inputs, outputs in shapes:
            yield Matrix("attention", target, inputs, outputs, self.attention_layers)

    def _mlp_matrices(self, part: str, width: int, copies: int) -> Iterator[Matrix]:
        if not width or not copies:
            return
        for target in ("gate", "up") if self.family.gated_mlp else ("up",):
            yield Matrix(part, target, self.hidden, width, copies, self.family.mlp_bias)
        yield Matrix(part, "down", width, self.hidden, copies, self.family.mlp_bias)
