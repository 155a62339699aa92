"""``kvsim memory``: weights, KV cache, what fits, what training needs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsim.cli import NearestGroup
from kvsim.cli.memory_options import (
    CACHE,
    MODEL,
    OUTPUT,
    PARALLEL,
    SIZES,
    WEIGHTS,
    chosen_cache,
    chosen_device,
    chosen_model,
    chosen_pool,
    chosen_weights,
    size_or_none,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kvsim.models import Model

USUAL_BITS = (32, 16, 8, 4)


@click.group(cls=NearestGroup, invoke_without_command=True)
@click.pass_context
def memory(ctx: click.Context) -> None:
    """Weights, KV cache, what fits a device, and what training needs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@memory.command()
@MODEL
@WEIGHTS
@OUTPUT
def weights(explain: bool, out: Path | None, as_json: bool, **options: Any) -> None:
    """What weights take: parameters x bits, and constants."""
    from kvsim.cli.memory_text import print_weights
    from kvsim.memory import explain_terms

    model = _model_or_count(options)
    chosen = chosen_weights(model, options)
    rows = [chosen]
    if options["bits"] is None and not options["weights_file"]:
        rows = [chosen_weights(model, options, bits) for bits in USUAL_BITS]
        rows += [] if chosen in rows else [chosen]
    name = f"{chosen.parameters:,} parameters" if isinstance(model, int) else model.name
    if as_json:
        _print_json({"model": name} | _plain(chosen) | {"by_bits": [_plain(row) for row in rows]})
    else:
        print_weights(model, name, rows)
        _explain(explain, explain_terms(term for row in rows for term in row.terms))
    if out:
        from kvsim.plots.memory import plot_weights

        _save(plot_weights(rows, name), out / "memory-weights.png", quiet=as_json)


@memory.command()
@MODEL
@WEIGHTS
@CACHE
@PARALLEL
@click.option("--context", "--max-model-len", "context", type=int, metavar="N", help="Tokens of a sequence.")
@click.option("--sequences", type=int, default=1, show_default=True, metavar="N", help="Sequences at once.")
@click.option("--in-flight", type=int, default=1, show_default=True, metavar="N", help="Tokens an iteration may add.")
@click.option(
    "--pad", type=int, default=1, show_default=True, metavar="N", help="Cells to which a contiguous window is padded."
)
@click.option("--kv-tokens", type=int, metavar="N", help="What a pool of so many tokens takes.")
@OUTPUT
def kv(explain: bool, out: Path | None, as_json: bool, **options: Any) -> None:
    """What keys and values take: a token, a sequence."""
    from kvsim.cli.memory_text import kv_facts, print_kv
    from kvsim.memory import explain_kv, kv_cache

    model = chosen_model(options)
    cache = kv_cache(
        model,
        model.max_model_len if options["context"] is None else options["context"],
        cache=chosen_cache(options),
        sequences=options["sequences"],
        block_size=options["block_size"],
        sliding=options["sliding"],
        in_flight=options["in_flight"],
        tensor_parallel=_or_one(options["tp"]),
        pipeline_parallel=_or_one(options["pp"]),
    )
    facts = kv_facts(model, cache, options)
    if as_json:
        _print_json({"model": model.name, "kv_dtype": options["kv_dtype"]} | _plain(cache) | facts)
    else:
        print_kv(model, cache, facts, options)
        _explain(explain, explain_kv(cache))
    if out:
        from kvsim.plots.memory import plot_kv

        _save(plot_kv(cache, model.name), out / "memory-kv.png", quiet=as_json)


@memory.command()
@MODEL
@WEIGHTS
@CACHE
@PARALLEL
@click.option("--gpu", metavar="NAME|PATH", help="A device, or several: A100-40GB, 4xA100-40GB, or a TOML table.")
@click.option("--memory", "device_memory", metavar="SIZE", help="Memory of each device, in place of --gpu.")
@click.option("--ram", metavar="SIZE", help="Memory of a laptop, in place of --gpu.")
@click.option("--system", metavar="SIZE", default="4GiB", show_default=True, help="What the laptop's system keeps.")
@click.option(
    "--gpu-memory-utilization", type=float, metavar="X", help="Share of memory for the engine; 0.9 if not given."
)
@click.option("--overhead", metavar="SIZE", help="Activations, workspaces, graphs on each device; 1GiB if not given.")
@click.option("--used", metavar="SIZE", help="Memory that others hold on each device.")
@click.option("--pool", metavar="SIZE", help="KV pool of all devices together, in place of what is left.")
@click.option("--pool-per-gpu", metavar="SIZE", help="KV pool of each device, likewise.")
@click.option("--num-gpu-blocks", type=int, metavar="N", help="Blocks of the pool, likewise.")
@click.option("--max-model-len", "--context", "max_model_len", type=int, metavar="N", help="Longest request in tokens.")
@click.option(
    "--concurrency", type=int, default=1, show_default=True, metavar="N", help="Such requests wanted at once."
)
@click.option("--max-num-seqs", type=int, default=256, show_default=True, metavar="N", help="Requests at once at most.")
@click.option("--swap-space", metavar="SIZE", help="Host memory for blocks, on each device.")
@click.option("--no-kv", is_flag=True, help="Serve without a KV cache.")
@OUTPUT
def fit(explain: bool, out: Path | None, as_json: bool, **options: Any) -> None:
    """Whether a model fits a device, and how many requests."""
    from kvsim.cli.memory_text import print_fit
    from kvsim.memory import Serving, explain_fit
    from kvsim.memory import fit as fit_model

    model = chosen_model(options)
    device, tp, pp = chosen_device(options)
    serving = Serving(
        max_model_len=model.max_model_len if options["max_model_len"] is None else options["max_model_len"],
        concurrency=options["concurrency"],
        max_num_seqs=options["max_num_seqs"],
        block_size=options["block_size"],
        cache=None if options["no_kv"] else chosen_cache(options),
        sliding=options["sliding"],
        gpu_memory_utilization=options["gpu_memory_utilization"],
        overhead_bytes=size_or_none(options["overhead"]),
        used_bytes=size_or_none(options["used"]) or 0,
        tensor_parallel=tp,
        pipeline_parallel=pp,
    )
    result = fit_model(
        model,
        chosen_weights(model, options, needed=device is not None),
        serving,
        device=device,
        pool_bytes=chosen_pool(options, tp * pp),
        num_blocks=options["num_gpu_blocks"],
    )
    swap_bytes = size_or_none(options["swap_space"])
    swap_blocks = None if swap_bytes is None else result.capacity.blocks_in(swap_bytes)
    if as_json:
        swap = {} if swap_blocks is None else {"swap_blocks": swap_blocks}
        settings = {"kv_dtype": options["kv_dtype"]} | _plain(serving)
        _print_json({"model": model.name, "device": str(device or ""), "serving": settings} | _plain(result) | swap)
    else:
        print_fit(model, device, result, swap_blocks)
        _explain(explain, explain_fit(result))
    if out:
        from kvsim.plots.memory import plot_fit

        _save(plot_fit(result, model.name, str(device or "")), out / "memory-fit.png", quiet=as_json)


@memory.command()
@MODEL
@click.option("--method", multiple=True, metavar="NAME", help="full, lora or qlora; all three if not given.")
@click.option("--rank", type=int, default=8, show_default=True, metavar="N", help="Rank of the adapters.")
@click.option(
    "--targets", default="q,v", show_default=True, metavar="LIST", help="Adapted matrices: q,k,v,o,gate,up,down or all."
)
@click.option("--devices", type=int, default=1, show_default=True, metavar="N", help="Devices that train together.")
@click.option("--zero", type=int, default=0, show_default=True, metavar="0..3", help="ZeRO stage.")
@click.option(
    "--gradients", metavar="KIND", help="fp16, fp32, or released (freed as applied); fp16, with offload fp32."
)
@click.option("--optimizer", default="adam", show_default=True, metavar="KIND", help="adam, adam-half or adam-8bit.")
@click.option("--offload", default="none", show_default=True, metavar="KIND", help="none, optimizer, or parameters.")
@click.option("--buffer-factor", type=float, default=1.5, show_default=True, help="Room for buffers in host memory.")
@click.option("--activations", default="none", show_default=True, metavar="KIND", help="none, stored or checkpointed.")
@click.option("--batch", type=int, default=1, show_default=True, metavar="N", help="Sequences on each device.")
@click.option("--sequence-length", type=int, default=1024, show_default=True, metavar="N", help="Tokens of each.")
@click.option("--double-quant/--no-double-quant", default=True, show_default=True, help="QLoRA's constants in 8 bits.")
@click.option("--gpu", metavar="NAME|PATH", help="Say which methods fit this device.")
@click.option("--memory", "device_memory", metavar="SIZE", help="Say which methods fit in so much memory.")
@OUTPUT
def train(explain: bool, out: Path | None, as_json: bool, **options: Any) -> None:
    """What training needs: full, LoRA and QLoRA."""
    from kvsim.cli.memory_text import print_train
    from kvsim.memory import METHODS, explain_terms
    from kvsim.memory import train as train_model

    model, recipe = chosen_model(options), _recipe(options)
    methods = [train_model(model, method, recipe) for method in options["method"] or METHODS]
    room = _room(options)
    if as_json:
        settings = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
        rows = [_plain(row) | {"fits": None if room is None else row.total_bytes <= room} for row in methods]
        _print_json({"model": model.name, "parameters": model.parameters} | settings | {"methods": rows})
    else:
        print_train(model, recipe, methods, room)
        for row in methods:
            _explain(explain, explain_terms(row.terms), title=row.method)
    if out:
        from kvsim.plots.memory import plot_train

        _save(plot_train(methods, model.name, room), out / "memory-train.png", quiet=as_json)


@memory.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def models(as_json: bool) -> None:
    """The models known by name."""
    from kvsim.cli.memory_text import print_models
    from kvsim.models import MODELS, get_model

    known = [get_model(name) for name in MODELS]
    if not as_json:
        return print_models(known)
    rows = {
        model.name: {
            "parameters": model.parameters,
            "layers": model.layers,
            "bytes_per_token": model.kv_bytes_per_token(),
        }
        for model in known
    }
    return _print_json({"models": rows})


@memory.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def devices(as_json: bool) -> None:
    """The devices known by name."""
    from kvsim.cli.memory_text import print_devices
    from kvsim.models import DEVICES, get_device

    known = [get_device(name) for name in DEVICES]
    if as_json:
        return _print_json({"devices": {device.name: _plain(device) for device in known}})
    return print_devices(known)


def _or_one(value: int | None) -> int:
    return 1 if value is None else value


def _model_or_count(options: dict[str, Any]) -> Model | int:
    """Return a model, or the bare number of parameters where nothing else was given; 0 for a file's unknown ones."""
    from kvsim.units import parse_count

    if options["model"] or any(options[name] is not None for name in SIZES):
        return chosen_model(options)
    if options["params"] is None and options["weights_file"]:
        return 0
    return parse_count(options["params"], "--params") if options["params"] else chosen_model(options)


def _recipe(options: dict[str, Any]) -> Any:
    from kvsim.memory import Recipe

    gradients = options["gradients"] or ("fp16" if options["offload"] == "none" else "fp32")
    same = (
        "rank",
        "devices",
        "zero",
        "optimizer",
        "offload",
        "buffer_factor",
        "activations",
        "batch",
        "sequence_length",
    )
    return Recipe(
        targets=tuple(options["targets"].split(",")),
        gradients=gradients,
        double_quantization=options["double_quant"],
        **{name: options[name] for name in same},
    )


def _room(options: dict[str, Any]) -> int | None:
    """Return the memory of one device that training may use, where a device or a size is given."""
    from kvsim.models import get_device

    if options["gpu"]:
        device = get_device(options["gpu"])
        return device.memory_bytes - device.system_bytes
    return size_or_none(options["device_memory"])


def _plain(result: Any) -> dict[str, Any]:
    """Return a result as JSON holds it: fields and properties, terms as objects, parts among the other keys."""
    from kvsim.memory import Capacity, Spill

    names = [field.name for field in fields(result)]
    names += [name for name, value in vars(type(result)).items() if isinstance(value, property)]
    plain: dict[str, Any] = {}
    for name in names:
        value = getattr(result, name)
        if isinstance(value, Capacity | Spill):
            plain |= _plain(value)
        elif isinstance(value, tuple):
            plain[name] = [item if isinstance(item, str) else _plain(item) for item in value]
        elif value is None or isinstance(value, int | float | str):
            plain[name] = value
    return plain


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, allow_nan=False))


def _explain(wanted: bool, lines: Iterable[str], title: str = "") -> None:
    if wanted:
        click.echo("\n".join(["", f"Formulas{f', {title}' if title else ''}:", *(f"  {line}" for line in lines)]))


def _save(figure: Figure, path: Path, *, quiet: bool) -> None:
    from kvsim.plots.style import save

    save(figure, path)
    click.echo(f"wrote {path}", err=quiet)
