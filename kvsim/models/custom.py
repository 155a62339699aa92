"""A model by its sizes: a named one with some changed, or one of nothing but numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvsim.errors import ConfigError
from kvsim.models.model import CEILINGS, FieldError, Model, check_whole
from kvsim.models.named import get_model

# Where only a number of parameters is given, layers and width are those of the model nearest to it.
SHAPES = (
    "TinyLlama-1.1B",
    "GPT-2-1.5B",
    "Llama-3.2-3B",
    "LLaMA-7B",
    "LLaMA-13B",
    "LLaMA-33B",
    "LLaMA-65B",
    "GPT-3-175B",
    "Llama-3.1-405B",
)
USUAL_HEAD_DIM = 128


def custom_model(base: Model | None = None, **sizes: int | None) -> Model:
    """Return a model with given sizes.

    Parameters
    ----------
    base : Model or None
        A model to start from.
    **sizes : int or None
        Fields of ``Model`` (``layers``, ``hidden``, ``heads``, ``kv_heads``, ``head_dim``, ``intermediate``,
        ``vocabulary``, ``max_model_len``, ``window``, ``nominal_parameters``) and ``full_every``: every so many layers
        one has full attention, and the others a window, or without ``window`` none. None stands for not given.

    Returns
    -------
    Model
        Without a base the width may follow from heads, or heads of 128 values from the width; with nothing but
        ``nominal_parameters`` the shape is that of the nearest model of ``SHAPES``, and a note says so.

    Raises
    ------
    ConfigError
        Sizes are missing, absurd, or contradict one another.
    """
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    for name, size in given.items():
        check_whole(name, size)
    full_every = given.pop("full_every", None)
    if base is None:
        base = _shape_of(given.get("nominal_parameters")) if not given.keys() - {"nominal_parameters"} else _bare(given)
    elif given.keys() - {"nominal_parameters", "max_model_len"}:
        given = {"nominal_parameters": 0, "name": f"{base.name}, changed"} | given
    if full_every is not None:
        return replace(base, **given, pattern=_pattern(full_every, "window" in given or base.window > 0))
    if "window" in given and "sliding" not in base.pattern:
        return replace(base, **given, pattern=("sliding",))
    return replace(base, **given)


def _pattern(full_every: int, windowed: bool) -> tuple[str, ...]:
    if full_every > CEILINGS["layers"]:
        raise FieldError(f"{{full_every}} = {full_every:,} is absurd: at most {CEILINGS['layers']:,}")
    return (*["sliding" if windowed else "linear"] * (full_every - 1), "full")


def _shape_of(parameters: int | None) -> Model:
    """Return the model of ``SHAPES`` nearest in size."""
    if parameters is None:
        raise ConfigError("which model? Name one, or a config.json, or give its number of parameters or its sizes")
    nearest = min(map(get_model, SHAPES), key=lambda model: abs(model.parameters - parameters))
    note = f"only the number of parameters was given: layers, width and heads are those of {nearest.name}"
    return replace(nearest, name=f"a {parameters / 1e9:g} B model", notes=(note,), quantization=None)


def _bare(given: dict[str, Any]) -> Model:
    """Return a model of nothing but the given sizes, with what follows from them."""
    if "layers" not in given:
        raise ConfigError("a model by its sizes needs layers")
    hidden, heads, head_dim = (given.get(name) for name in ("hidden", "heads", "head_dim"))
    heads_known = heads or given.get("kv_heads")
    if hidden is None and not (heads_known and head_dim):
        raise ConfigError("a model by its sizes needs its hidden size, or its heads and their dimension")
    if hidden is None:
        hidden = (heads_known or 1) * (head_dim or 1)
    if heads is None:
        heads = hidden // (head_dim or USUAL_HEAD_DIM) or 1
    kv_heads = given.get("kv_heads", heads)
    if "heads" not in given and heads % kv_heads:
        heads = kv_heads
    if head_dim is None:
        if hidden % heads:
            raise ConfigError(f"hidden = {hidden} is no multiple of heads = {heads}: give head_dim")
        head_dim = hidden // heads
    return Model("the model", given["layers"], hidden, heads, kv_heads, head_dim)
