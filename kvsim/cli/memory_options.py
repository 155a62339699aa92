"""Options that the commands of ``kvsim memory`` share, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kvsim.memory import CacheFormat, Weights
    from kvsim.models import Device, Model, Quantization

Command = TypeVar("Command", bound=Callable[..., Any])

SIZES = {
    "layers": "Layers.",
    "hidden": "Hidden size.",
    "heads": "Query heads.",
    "kv_heads": "Key-value heads; as many as query heads if not given.",
    "head_dim": "Values a head; hidden / heads if not given.",
    "intermediate": "Width of the MLP.",
    "vocabulary": "Tokens in the vocabulary.",
    "window": "Tokens that a sliding layer looks back at.",
    "full_every": "Every N-th layer has full attention, the others a window (--window) or no cache.",
}


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def size_option(name: str, text: str) -> Callable[[Command], Command]:
    """Return an option for one size of a model."""
    return click.option(f"--{name.replace('_', '-')}", type=int, metavar="N", help=text)


MODEL = together(
    click.option("--model", metavar="NAME|PATH", help="A name (kvsim memory models), a config.json, or a TOML table."),
    click.option("--params", metavar="COUNT", help="Number of parameters (7B, 125M), in place of the model's own."),
    *(size_option(name, text) for name, text in SIZES.items()),
)
WEIGHTS = together(
    click.option(
        "--bits", type=float, metavar="N", help="Bits of a weight: 32, 16, 8, 4; 16 if nothing says otherwise."
    ),
    click.option("--quant-block", type=int, metavar="N", help="Weights that share a scale (64 for NF4, 128 for GPTQ)."),
    click.option("--scale-bits", type=int, default=32, show_default=True, metavar="N", help="Bits of that scale."),
    click.option("--zero-bits", type=int, default=0, show_default=True, metavar="N", help="Bits of its zero point."),
    click.option("--double-quant", is_flag=True, help="Scales in 8 bits, 256 of them to one 32-bit constant."),
    click.option("--keep-embeddings", is_flag=True, help="Embeddings, head and norms stay in 16 bits."),
    click.option(
        "--weights-file", type=click.Path(path_type=Path), metavar="PATH", help="Size of this file or folder."
    ),
)
CACHE = together(
    click.option(
        "--kv-dtype", "--kv-cache-dtype", default="fp16", show_default=True, help="fp32, fp16, bf16, fp8, int8 or int4."
    ),
    click.option(
        "--kv-group", type=int, metavar="N", help="Cache values that share constants; a head's vector if not given."
    ),
    click.option("--kv-scale-bits", type=int, metavar="N", help="Bits of those constants; 32 for int8 and int4."),
    click.option("--block-size", type=int, default=16, show_default=True, metavar="N", help="Tokens a block."),
    click.option(
        "--sliding",
        type=click.Choice(["full", "window"]),
        default="full",
        show_default=True,
        help="Sliding layers are charged in full, or keep their window.",
    ),
)
PARALLEL = together(
    click.option("--tp", "--tensor-parallel-size", "tp", type=int, metavar="N", help="Ranks that share the heads."),
    click.option("--pp", "--pipeline-parallel-size", "pp", type=int, metavar="N", help="Stages that share the layers."),
)
OUTPUT = together(
    click.option("--explain", is_flag=True, help="Print each formula with its numbers put in."),
    click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write a figure into this folder."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
)


def chosen_model(options: dict[str, Any]) -> Model:
    """Return the model that the options name, with the sizes that they change."""
    from kvsim.models import custom_model, get_model
    from kvsim.units import parse_count

    sizes = {name: options[name] for name in SIZES}
    params = options["params"]
    base = get_model(options["model"]) if options["model"] else None
    parameters = parse_count(params, "--params") if params else None
    return custom_model(base, **sizes, nominal_parameters=parameters)


def chosen_weights(
    model: Model | int, options: dict[str, Any], bits: float | None = None, *, needed: bool = True
) -> Weights:
    """Return the weights that the options describe, at ``bits`` where that is given; as published where nothing is.

    Weights that cannot be counted are an error only where they are ``needed``.
    """
    from kvsim.memory import unknown_weights, weights, weights_of_file

    if options["weights_file"]:
        return weights_of_file(options["weights_file"], model if isinstance(model, int) else model.parameters)
    if not needed and not isinstance(model, int) and not model.nominal_parameters and model.uncountable:
        return unknown_weights()
    bits = options["bits"] if bits is None else bits
    if bits is None and not isinstance(model, int) and model.quantization:
        return weights(model, quantization=model.quantization)
    return weights(model, 16 if bits is None else bits, chosen_quantization(options, bits))


def chosen_quantization(options: dict[str, Any], bits: float | None) -> Quantization | None:
    """Return the quantization that the options describe; None where they describe none."""
    from kvsim.errors import ConfigError
    from kvsim.models import Quantization

    block = options["quant_block"]
    if options["double_quant"] and block is None:
        block = 64
    if block is None and not options["keep_embeddings"]:
        return None
    if bits is None:
        raise ConfigError("--quant-block, --double-quant and --keep-embeddings need --bits")
    if bits != int(bits):
        raise ConfigError(f"quantized weights have a whole number of bits, not {bits}")
    if block is not None and block < 1:
        raise ConfigError(f"--quant-block must be at least 1, not {block}")
    return Quantization(
        int(bits),
        block=block or 0,
        scale_bits=options["scale_bits"],
        zero_bits=options["zero_bits"],
        double_block=256 if options["double_quant"] else 0,
        covers="linear" if options["keep_embeddings"] else "all",
    )


def chosen_cache(options: dict[str, Any]) -> CacheFormat:
    """Return the cache format that the options describe."""
    from kvsim.memory import cache_format

    return cache_format(options["kv_dtype"], group=options["kv_group"], scale_bits=options["kv_scale_bits"])


def size_or_none(text: str | None) -> int | None:
    """Return a size in bytes, or None where it is not given; ``0`` needs no unit."""
    from kvsim.units import parse_size

    if text is None or text.strip() == "0":
        return None if text is None else 0
    return parse_size(text)


def chosen_device(options: dict[str, Any]) -> tuple[Device | None, int, int]:
    """Return the devices that the options name, if they do, and how heads and layers are shared among them."""
    from kvsim.errors import ConfigError
    from kvsim.models import get_device

    given = [name for name in ("gpu", "device_memory", "ram") if options[name]]
    if len(given) > 1:
        raise ConfigError("give one of --gpu, --memory and --ram")
    device = None
    if options["gpu"]:
        device = get_device(options["gpu"])
    elif given:
        device = _unnamed_device(options)
    tp, pp = options["tp"], options["pp"]
    if tp is None and pp is None:
        tp = device.count if device else 1
    tp, pp = (1 if tp is None else tp), (1 if pp is None else pp)
    if device and device.count == 1 and tp * pp > 1:
        device = replace(device, count=tp * pp)
    return device, tp, pp


def _unnamed_device(options: dict[str, Any]) -> Device:
    """Return a device of which only the memory is known; bandwidth and speed are of no concern here."""
    from kvsim.models import Device

    memory = size_or_none(options["device_memory"] or options["ram"]) or 0
    system = size_or_none(options["system"]) or 0 if options["ram"] else 0
    name = f"a laptop with {options['ram']}" if options["ram"] else f"a device with {options['device_memory']}"
    return Device(name, memory, 1, 1, system_bytes=system)


def chosen_pool(options: dict[str, Any], ranks: int) -> int | None:
    """Return the KV pool of all devices, where the options give it."""
    from kvsim.errors import ConfigError

    given = [name for name in ("pool", "pool_per_gpu", "num_gpu_blocks") if options[name] is not None]
    if len(given) > 1:
        raise ConfigError("give one of --pool, --pool-per-gpu and --num-gpu-blocks")
    if options["no_kv"] and given:
        raise ConfigError("--no-kv leaves nothing to fill a pool with")
    if options["pool_per_gpu"] is not None:
        return (size_or_none(options["pool_per_gpu"]) or 0) * ranks
    return size_or_none(options["pool"])
