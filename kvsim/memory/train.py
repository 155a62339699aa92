"""What training needs: full fine-tuning, LoRA and QLoRA, over ZeRO's stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvsim.errors import ConfigError, unknown
from kvsim.memory.terms import Term, check_number, share_out, total
from kvsim.memory.weights import Weights, weights
from kvsim.models import DEVICES, Model, Quantization, get_device

METHODS = ("full", "lora", "qlora")
# Bytes of optimizer state a trained parameter.
OPTIMIZERS = {
    "adam": (12, "4 master copy + 4 momentum + 4 variance"),
    "adam-half": (4, "2 momentum + 2 variance"),
    "adam-8bit": (2, "1 momentum + 1 variance"),
}
# Bytes of gradient a trained parameter.
GRADIENTS = {"fp16": 2, "fp32": 4, "released": 0}
ALIASES = {"query": "q", "key": "k", "value": "v", "output": "o", "out": "o", "fc1": "up", "fc2": "down"}
# Latent attention has no q, k and v of its own; these matrices make them from the latents.
LATENT_ALIASES = {"q": "q_b", "k": "kv_b", "v": "kv_b"}
ADAPTED_PARTS = ("attention", "mlp", "experts", "shared experts")
NF4 = Quantization(4, block=64, scale_bits=32, double_block=256)
GIVES_UP = {
    "full": "nothing of the model; memory, and a checkpoint of full size for every task",
    "lora": "updates of higher rank: only low-rank changes of the adapted matrices can be learned",
    "qlora": "speed and some precision: 4-bit weights are dequantized at every pass, forward and backward",
}
ADVICE = {
    "full": "a task far from pre-training: full fine-tuning, if quality asks for it",
    "lora": "a specialised task: try LoRA first; merged into the weights it adds no inference latency",
    "qlora": "little memory: below 24 GB a model of 7 B means QLoRA",
}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes
    ----------
    rank : int
        Rank of the adapters.
    targets : tuple of str
        Matrices that have one: q, k, v, o, gate, up, down, or all.
    devices, zero : int
        Devices, and the ZeRO stage that shares state among them: 0 nothing, 1 optimizer, 2 also gradients,
        3 also weights.
    gradients : str
        ``fp16``, ``fp32``, or ``released`` (each freed as soon as it is applied).
    optimizer : str
        ``adam``, ``adam-half`` or ``adam-8bit``.
    offload : str
        ``none``, ``optimizer`` (gradients and optimizer in host memory) or ``parameters`` (weights too; stage 3).
    buffer_factor : float
        Room for buffers that the offloading engine adds in host memory.
    activations : str
        ``none`` (left out, and said), ``stored``, or ``checkpointed``.
    batch, sequence_length : int
        Sequences and their tokens on each device, for the activations.
    double_quantization : bool
        QLoRA holds the constants of its 4-bit weights in 8 bits.
    """

    rank: int = 8
    targets: tuple[str, ...] = ("q", "v")
    devices: int = 1
    zero: int = 0
    gradients: str = "fp16"
    optimizer: str = "adam"
    offload: str = "none"
    buffer_factor: float = 1.5
    activations: str = "none"
    batch: int = 1
    sequence_length: int = 1024
    double_quantization: bool = True

    def __post_init__(self) -> None:
        for name in ("rank", "devices", "batch", "sequence_length"):
            check_number(name.replace("_", " "), getattr(self, name), most=1e6)
        check_number("ZeRO stage", self.zero, least=0, most=3)
        check_number("buffer factor", self.buffer_factor, most=100, whole=False)
        choices: dict[str, Iterable[str]] = {
            "gradients": GRADIENTS,
            "optimizer": OPTIMIZERS,
            "offload": ("none", "optimizer", "parameters"),
            "activations": ("none", "stored", "checkpointed"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in tuple(known):
                raise unknown(name, getattr(self, name), known)
        self._check_offload()

    def _check_offload(self) -> None:
        if self.offload == "none":
            return
        if self.zero < 2 or (self.offload == "parameters" and self.zero < 3):
            least = 3 if self.offload == "parameters" else 2
            raise ConfigError(f"offload of {self.offload} needs ZeRO stage {least} at least, not {self.zero}")
        if self.gradients != "fp32":
            raise ConfigError("offload is counted as its engine does, with gradients in fp32: say so (gradients fp32)")


@dataclass(frozen=True)
class Training:
    """Bytes that training takes on each device.

    Attributes
    ----------
    method : str
        ``full``, ``lora`` or ``qlora``.
    parameters, trainable_parameters : int
        Of the model, and those that are trained.
    weights_bytes : int
        The model's weights.
    overhead_bytes : int
        Constants of their quantization.
    adapter_bytes : int
        Weights of the adapters.
    gradients_bytes, optimizer_bytes : int
        Gradients and optimizer states.
    activations_bytes : int
        Activations; 0 where they are left out.
    host_bytes : int
        Host memory, where state is offloaded; not in ``total_bytes``.
    smallest_device : str
        The smallest device known that holds it, laptops apart; empty when none does.
    terms : tuple of Term
        What the total is made of.
    """

    method: str
    parameters: int
    trainable_parameters: int
    weights_bytes: int
    overhead_bytes: int
    adapter_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    host_bytes: int
    smallest_device: str
    terms: tuple[Term, ...]

    @property
    def total_bytes(self) -> int:
        """Everything on one device."""
        return total(self.terms)

    @property
    def gives_up(self) -> str:
        """What the method gives up."""
        return GIVES_UP[self.method]

    @property
    def advice(self) -> str:
        """When to take it."""
        return ADVICE[self.method]

    @property
    def trained_share(self) -> float:
        """Trained parameters over the model's own."""
        return self.trainable_parameters / self.parameters

    @property
    def trained_share_of_all(self) -> float:
        """Trained parameters over the model's and its adapters'."""
        added = 0 if self.method == "full" else self.trainable_parameters
        return self.trainable_parameters / (self.parameters + added)

    @property
    def bookkeeping_bytes(self) -> int:
        """Everything beside the model's own weights."""
        return self.total_bytes - self.weights_bytes - self.overhead_bytes


def adapter_parameters(model: Model, rank: int, targets: Sequence[str]) -> tuple[int, str]:
    """Count the parameters of LoRA adapters.

    Parameters
    ----------
    model : Model
        The model; each adapted matrix of shape (inputs, outputs) gets ``rank x (inputs + outputs)`` parameters.
    rank : int
        Rank.
    targets : sequence of str
        q, k, v, o, gate, up, down (with or without ``_proj``), query, value, fc1, fc2, or all. With latent attention q
        is the matrix ``q_b``, k and v are ``kv_b``.

    Returns
    -------
    int, str
        The number, and the sum behind it.

    Raises
    ------
    ConfigError
        A target is unknown, or the rank is larger than a matrix.
    """
    matrices = [matrix for matrix in model.matrices() if matrix.part in ADAPTED_PARTS]
    known = list(dict.fromkeys(matrix.target for matrix in matrices))
    wanted = _resolve(targets, known)
    count, sums = 0, []
    for matrix in matrices:
        if matrix.target not in wanted:
            continue
        if rank > min(matrix.inputs, matrix.outputs):
            raise ConfigError(f"rank {rank} is larger than {matrix.target}, {matrix.inputs} x {matrix.outputs}")
        count += matrix.copies * rank * (matrix.inputs + matrix.outputs)
        sums.append(f"{matrix.copies:,} {matrix.target} x {rank} x ({matrix.inputs:,} + {matrix.outputs:,})")
    return count, " + ".join(sums)


def _resolve(targets: Sequence[str], known: Sequence[str]) -> set[str]:
    wanted = set()
    for given in targets:
        name = given.strip().casefold().removesuffix("_proj")
        name = ALIASES.get(name, name)
        if name in ("all", "all-linear"):
            return set(known)
        if name not in known:
            name = LATENT_ALIASES.get(name, name)
        if name not in known:
            raise unknown("target", given, (*known, "all"))
        wanted.add(name)
    if not wanted:
        raise ConfigError(f"no targets; known: {', '.join(known)}, all")
    return wanted


def train(model: Model, method: str, recipe: Recipe | None = None) -> Training:
    """Return what training a model takes on each device.

    Parameters
    ----------
    model : Model
        The model; ``model.parameters`` are trained, or frozen beside its adapters.
    method : str
        ``full``: 16-bit weights and gradients and the optimizer's state for every parameter, 2 + 2 + 12 bytes with
        Adam (ZeRO paper, section 3.1). ``lora``: frozen 16-bit weights, state for the adapters only. ``qlora``: the
        same over frozen 4-bit weights in blocks of 64.
    recipe : Recipe or None
        Everything else.

    Raises
    ------
    ConfigError
        The method is unknown, or a setting cannot be meant.

    Examples
    --------
    >>> from kvsim.models import get_model
    >>> train(get_model("LLaMA-7B"), "lora").trainable_parameters
    4194304
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    recipe = recipe or Recipe()
    trained, counted = model.parameters, "all"
    if method != "full":
        trained, counted = adapter_parameters(model, recipe.rank, recipe.targets)
    terms = _state_terms(model, method, recipe, trained, counted)
    activations = _activations(model, recipe)
    if activations:
        terms["activations"] = activations
    used = {key: term.num_bytes for key, term in terms.items()}
    return Training(
        method=method,
        parameters=model.parameters,
        trainable_parameters=trained,
        weights_bytes=used.get("weights", 0),
        overhead_bytes=used.get("constants", 0),
        adapter_bytes=used.get("adapters", 0),
        gradients_bytes=used["gradients"],
        optimizer_bytes=used["optimizer"],
        activations_bytes=used.get("activations", 0),
        host_bytes=_host_bytes(model, method, recipe, trained),
        smallest_device=_smallest_device(total(terms.values())),
        terms=tuple(terms.values()),
    )


def _state_terms(model: Model, method: str, recipe: Recipe, trained: int, counted: str) -> dict[str, Term]:
    """Return weights, adapters, gradients and optimizer states of one device."""
    parts = recipe.devices if recipe.zero >= 3 else 1
    over = f" / {parts} devices" if parts > 1 else ""
    terms = _weights_terms(model, method, recipe, parts, over)
    if method != "full" and recipe.offload != "parameters":
        adapters = f"({counted} = {trained:,}) x 2 B{over}"
        terms["adapters"] = Term("adapters", share_out(2 * trained, parts), adapters)
    terms["gradients"] = _gradients(recipe, trained)
    terms["optimizer"] = _optimizer(recipe, trained)
    return terms


def _weights_terms(model: Model, method: str, recipe: Recipe, parts: int, over: str) -> dict[str, Term]:
    """Return the model's weights on one device; of weights in host memory, the largest matrix as it passes through."""
    if recipe.offload == "parameters":
        sizes = [matrix.inputs * matrix.outputs for matrix in model.matrices()]
        largest = max(*sizes, model.vocabulary * model.hidden)
        formula = f"in host memory but for the largest matrix and its gradients, {largest:,} x (2 + 2) B"
        return {"weights": Term("weights", 4 * largest, formula)}
    keys = {"weights": "weights", "quantization constants": "constants"}
    terms = _stored(model, method, recipe).terms
    return {keys[term.name]: Term(term.name, share_out(term.num_bytes, parts), term.formula + over) for term in terms}


def _stored(model: Model, method: str, recipe: Recipe) -> Weights:
    """Return the weights as the method keeps them: 16 bits, or 4 in blocks."""
    return weights(model.parameters, quantization=_nf4(recipe) if method == "qlora" else None)


def _nf4(recipe: Recipe) -> Quantization:
    return NF4 if recipe.double_quantization else Quantization(4, block=64, scale_bits=32)


def _gradients(recipe: Recipe, trained: int) -> Term:
    """Return the gradients of one device.

    In fp32 at stage 2 the backward pass writes 16-bit gradients whole on each device, beside the 32-bit ones that are
    shared out: 2 + 4/N bytes, as the estimator of DeepSpeed counts.
    """
    each = GRADIENTS[recipe.gradients]
    if recipe.offload != "none":
        return Term("gradients", 0, "in host memory")
    if recipe.gradients == "fp32" and recipe.zero == 2:
        formula = f"{trained:,} x (2 B + 4 B / {recipe.devices} devices)"
        return Term("gradients", 2 * trained + share_out(4 * trained, recipe.devices), formula)
    parts = recipe.devices if recipe.zero >= 2 else 1
    over = f" / {parts} devices" if parts > 1 else ""
    return Term("gradients", share_out(each * trained, parts), f"{trained:,} x {each} B{over}")


def _optimizer(recipe: Recipe, trained: int) -> Term:
    """Return the optimizer states of one device."""
    if recipe.offload != "none":
        return Term("optimizer", 0, "in host memory")
    each, words = OPTIMIZERS[recipe.optimizer]
    parts = recipe.devices if recipe.zero >= 1 else 1
    over = f" / {parts} devices" if parts > 1 else ""
    return Term("optimizer", share_out(each * trained, parts), f"{trained:,} x ({words}) B{over}")


def _host_bytes(model: Model, method: str, recipe: Recipe, trained: int) -> int:
    """Return the host memory of an offloading engine, on one node that has all devices.

    As DeepSpeed's estimators count: stage 2 ``max(4 N, 16) x P x factor``; stage 3 ``16 x P x factor``, with parameters
    ``18 x P x factor`` (16 = gradients and Adam in 32 bits, 2 = weights).
    """
    if recipe.offload == "none":
        return 0
    state = 4 + OPTIMIZERS[recipe.optimizer][0]
    host = trained * (max(4 * recipe.devices, state) if recipe.zero == 2 else state)
    if recipe.offload == "parameters":
        host += _stored(model, method, recipe).total_bytes + (0 if method == "full" else 2 * trained)
    return round(host * recipe.buffer_factor)


def _activations(model: Model, recipe: Recipe) -> Term | None:
    """Estimate the activations of one device, in 16 bits.

    Stored: ``12 x layers x hidden x batch x sequence`` values (ZeRO paper, section 3.2). Checkpointed: each layer's
    input, and one layer worked out again at a time.
    """
    if recipe.activations == "none":
        return None
    inputs = model.hidden * recipe.batch * recipe.sequence_length
    shape = f"{model.hidden:,} hidden x {recipe.batch:,} sequences x {recipe.sequence_length:,} tokens x 2 B"
    if recipe.activations == "stored":
        return Term("activations", 12 * model.layers * inputs * 2, f"estimate: 12 x {model.layers} layers x {shape}")
    return Term("activations", (model.layers + 12) * inputs * 2, f"estimate: ({model.layers} layers + 12) x {shape}")


def _smallest_device(num_bytes: int) -> str:
    """Return the name of the smallest device that holds so many bytes, laptops apart."""
    devices = [device for device in map(get_device, DEVICES) if not device.system_bytes]
    holding = [device for device in devices if device.memory_bytes >= num_bytes]
    return min(holding, key=lambda device: device.memory_bytes).name if holding else ""
