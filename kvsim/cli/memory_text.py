"""What ``kvsim memory`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kvsim.cli.memory_options import chosen_weights
from kvsim.cli.memory_tables import WIDTH, print_table, print_terms, size_row
from kvsim.memory import UNBOUNDED, outgrows_weights_at, window_cells
from kvsim.units import format_size, plural

if TYPE_CHECKING:
    from kvsim.memory import Fit, KVCache, Recipe, Training, Weights
    from kvsim.models import Device, Model

SIZE_COLUMNS = ("", "bytes", "powers of 10", "powers of 2")


def say(*lines: str) -> None:
    """Print lines, those that are not empty, wrapped to the width of the tables."""
    for line in filter(None, lines):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        click.echo(textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False))


def print_weights(model: Model | int, name: str, rows: Sequence[Weights]) -> None:
    """Print a row for each number of bits."""
    cells = [
        (
            row.label,
            f"{row.weights_bytes:,}",
            f"{row.overhead_bytes:,}",
            f"{row.total_bytes:,}",
            format_size(row.total_bytes, binary=False),
            format_size(row.total_bytes),
        )
        for row in rows
    ]
    columns = ("", "weights, bytes", "constants, bytes", "total, bytes", "powers of 10", "powers of 2")
    print_table(columns, cells, title=f"Weights of {name}")
    if isinstance(model, int):
        return
    say(f"{rows[0].parameters:,} parameters. {_counted(model)}", *notes(model))
    if rows[-1].bits not in (32, 16, 8, 4) or len(rows[-1].terms) > 1:
        print_terms(f"Made of, at {rows[-1].label}", rows[-1].terms)


def _counted(model: Model) -> str:
    """Return what the architecture counts, where it can be counted."""
    if model.uncountable:
        return f"They cannot be counted from the architecture {model.uncountable}."
    parts = model.parameters_by_part()
    words = ", ".join(f"{part} {count:,}" for part, count in parts.items())
    total = sum(parts.values())
    given = f"The architecture has {total:,}: " if total != model.parameters else "Of these "
    return f"{given}{words}."


def notes(model: Model) -> list[str]:
    """Return the notes and the source of a model, as lines."""
    return [f"Note: {note}." for note in model.notes] + ([f"Source: {model.source}."] if model.source else [])


def kv_facts(model: Model, cache: KVCache, options: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from a cache and its options: windows, slots, the context that outgrows the weights."""
    facts: dict[str, Any] = {}
    shape = cache.shape
    if shape.sliding_layers:
        paged = {
            way: shape.paged(cache.context, cache.block_size, windows=way == "window") for way in ("full", "window")
        }
        facts |= {f"sequence_bytes_{way}": num_bytes for way, num_bytes in paged.items()}
    if model.window:
        shared = {"sequences": cache.sequences, "in_flight": options["in_flight"], "pad": options["pad"]}
        facts["window_cells"] = window_cells(model.window, **shared)
    if options["kv_tokens"] is not None:
        facts |= {"kv_tokens": options["kv_tokens"], "kv_pool_bytes": options["kv_tokens"] * cache.bytes_per_token}
    if options["weights_file"] or model.nominal_parameters or not model.uncountable:
        weights_bytes = chosen_weights(model, options).total_bytes
        facts["weights_bytes"] = weights_bytes
        facts["outgrows_weights_at"] = outgrows_weights_at(weights_bytes, cache.replica_bytes_per_token)
    return facts


def print_kv(model: Model, cache: KVCache, facts: dict[str, Any], options: dict[str, Any]) -> None:
    """Print the bytes of a token and of the sequences."""
    print_table(SIZE_COLUMNS, _kv_rows(cache, facts), title=_kv_title(model, cache, options))
    wasted = plural(cache.wasted_slots, "slot")
    say(f"{plural(cache.blocks_per_sequence, 'block')} a sequence, {wasted} of the last empty.", _ratio(model, cache))
    if "outgrows_weights_at" in facts:
        weights_size = format_size(facts["weights_bytes"], binary=False)
        tokens = facts["outgrows_weights_at"]
        say(f"The cache outgrows the weights ({weights_size}) at {tokens:,} tokens, every layer charged in full.")
    if "window_cells" in facts:
        say(f"A contiguous cache of the windows has {facts['window_cells']:,} cells.")
    say(*notes(model))


def _kv_title(model: Model, cache: KVCache, options: dict[str, Any]) -> str:
    ranks = f", one rank of tp {options['tp'] or 1} x pp {options['pp'] or 1}" if options["tp"] or options["pp"] else ""
    sequences = f"{plural(cache.sequences, 'sequence')} of {cache.context:,} tokens"
    return f"KV cache of {model.name}, {options['kv_dtype']}, {sequences}, blocks of {cache.block_size}{ranks}"


def _kv_rows(cache: KVCache, facts: dict[str, Any]) -> list[tuple[str, ...]]:
    shape, many = cache.shape, cache.sequences > 1
    layers = shape.full_layers + shape.sliding_layers
    rows = [size_row(f"a token, all {layers} layers", cache.bytes_per_token)]
    if shape.sliding_layers:
        rows.append(size_row(f"a token, the {shape.full_layers} full layers", cache.full_bytes_per_token))
    if cache.replica_bytes_per_token != cache.bytes_per_token:
        rows.append(size_row("a token, all ranks", cache.replica_bytes_per_token))
    if shape.sliding_layers:
        rows.append(size_row("a sequence, paged, windows kept", facts["sequence_bytes_window"]))
        rows.append(size_row("a sequence, paged, every layer in full", facts["sequence_bytes_full"]))
    else:
        rows.append(size_row("a sequence, paged", cache.sequence_bytes))
    rows.append(size_row("all sequences, lower bound" if many else "lower bound", cache.lower_bound_bytes))
    if many:
        charge = f", sliding layers by {cache.sliding}" if shape.sliding_layers else ""
        rows.append(size_row(f"all sequences, paged{charge}", cache.total_bytes))
    rows.append(size_row(f"contiguous, {cache.reserved_tokens:,} tokens reserved", cache.reserved_bytes))
    if "kv_pool_bytes" in facts:
        rows.append(size_row(f"a pool of {facts['kv_tokens']:,} tokens", facts["kv_pool_bytes"]))
    return rows


def _ratio(model: Model, cache: KVCache) -> str:
    """Say what sharing heads saves."""
    if model.kv_heads == model.heads and not model.latent:
        return "Multi-head attention: every query head has keys and values of its own."
    kind = "Multi-query" if model.kv_heads == 1 else "Grouped-query"
    who = "Latent attention" if model.latent else f"{kind} attention, {model.heads} heads on {model.kv_heads} KV heads"
    return f"{who}: 1/{cache.mha_bytes_per_token / cache.whole_bytes_per_token:.3g} of multi-head attention's bytes."


def print_fit(model: Model, device: Device | None, result: Fit, swap_blocks: int | None) -> None:
    """Print what is asked for, what there is, and how many requests that makes."""
    where = f" on {device}" if device else ""
    print_terms(f"{model.name}{where}: asked for", result.terms)
    if result.device_terms:
        label = " (as labelled)" if result.pool_source == "paper" else ""
        print_terms(f"Memory of {device}{label}", result.device_terms, total_name="memory")
    say(f"{'FITS' if result.fits else 'DOES NOT FIT'}: {result.reason}.")
    if not result.weights_bytes:
        say(f"The weights are not counted: parameters of {model.name} are not known (--params).")
    if result.num_blocks:
        _print_capacity(result, swap_blocks)
    if result.spill:
        spill = result.spill
        say(
            f"With offloading, {spill.layers_on_device} of {model.layers} layers stay on the device and "
            f"{spill.layers_on_host} go to host memory: {format_size(spill.spilled_bytes)}, "
            f"{format_size(spill.layer_bytes)} a layer with its part of the cache."
        )
    if result.outgrows_weights_at:
        say(f"The cache outgrows the weights at {result.outgrows_weights_at:,} tokens.")
    if model.source:
        _say_what_it_is_made_for(model, result)
    say(*notes(model))


def _say_what_it_is_made_for(model: Model, result: Fit) -> None:
    """Compare what memory allows, and what is asked for, with the length that the model itself can take."""
    longest, asked = model.max_model_len, result.serving.max_model_len
    if asked > longest:
        say(f"Note: {model.name} is made for {longest:,} tokens, not {asked:,}.")
    elif longest < result.largest_context < UNBOUNDED:
        say(f"Memory allows contexts beyond the {longest:,} tokens that {model.name} is made for.")


def _print_capacity(result: Fit, swap_blocks: int | None) -> None:
    held, serving = result.capacity, result.serving
    sources = {
        "paper": "the vLLM paper's Table 1",
        "computed": "what is left on the device",
        "given": "given",
        "blocks": "given in blocks",
    }
    ranks = f" on each of {serving.ranks} devices" if serving.ranks > 1 else ""
    say(
        f"KV pool: {format_size(result.kv_pool_bytes)} ({sources[result.pool_source]}) = {held.num_blocks:,} blocks of "
        f"{serving.block_size} tokens of {result.bytes_per_token:,} B{ranks}; in one piece, {held.slots:,} slots.",
        *result.log,
    )
    at_once = f"requests of {serving.max_model_len:,} tokens at once"
    rows = [
        (at_once, f"{held.paged_requests:,}", f"{held.contiguous_requests:,}"),
        (
            f"longest context, {serving.concurrency:,} at once",
            f"{held.largest_context:,}" if held.largest_context < UNBOUNDED else "no limit",
            f"{held.contiguous_context:,}",
        ),
    ]
    print_table(("", "in blocks", "in one piece"), rows)
    cap = min(held.paged_requests, serving.max_num_seqs)
    if held.bound_by == "sequence cap":
        say(f"Limited by the sequence cap: memory has room for {held.paged_requests:,}, max_num_seqs is {cap:,}.")
        use = f"{held.peak_blocks:,} of {held.num_blocks:,} blocks are ever in use ({held.peak_utilization:.2%})"
        say(f"At most {use}.")
    if serving.sliding == "window":
        pool = f"{held.num_blocks:,} blocks of {held.block_bytes:,} B"
        say(f"With windows kept such a request takes {held.request_bytes:,} B: {pool} hold {held.max_concurrency:.2f}.")
    if held.wasted_slots:
        say(f"{plural(held.wasted_slots, 'slot')} of such a request's last block stay empty.")
    if swap_blocks is not None:
        say(f"Host memory holds {swap_blocks:,} blocks.")


def print_train(model: Model, recipe: Recipe, methods: Sequence[Training], room: int | None) -> None:
    """Print the methods side by side."""
    names = ("weights", "quantization constants", "adapters", "gradients", "optimizer", "activations")
    used = [{term.name: term.num_bytes for term in row.terms} for row in methods]
    rows = [
        (name, *(f"{terms[name]:,}" if name in terms else "-" for terms in used))
        for name in names
        if any(name in terms for terms in used)
    ]
    rows.append(("total, bytes", *(f"{row.total_bytes:,}" for row in methods)))
    print_table(
        ("bytes on each device", *(row.method for row in methods)), rows, title=_train_title(model, recipe), footer=True
    )
    print_table(("", *(row.method for row in methods)), _train_rows(methods), title="In short")
    say(_convention(recipe))
    say(*(f"{row.method} gives up {row.gives_up}." for row in methods))
    if room is not None:
        _print_advice(methods, room)
    say(*notes(model))


def _train_title(model: Model, recipe: Recipe) -> str:
    devices = f", {recipe.devices} devices, ZeRO stage {recipe.zero}" if recipe.devices > 1 or recipe.zero else ""
    return f"Training {model.name}: {model.parameters:,} parameters{devices}"


def _train_rows(methods: Sequence[Training]) -> list[tuple[str, ...]]:
    first = methods[0]
    rows = [
        ("total", *(format_size(row.total_bytes, binary=False) for row in methods)),
        ("", *(format_size(row.total_bytes) for row in methods)),
        ("bytes a parameter", *(f"{row.total_bytes / row.parameters:.3f}" for row in methods)),
        ("bookkeeping beside weights", *(format_size(row.bookkeeping_bytes, binary=False) for row in methods)),
        ("trained parameters", *(f"{row.trainable_parameters:,}" for row in methods)),
        ("share of the model", *(f"{row.trained_share:.4%}" for row in methods)),
        ("share of model and adapters", *(f"{row.trained_share_of_all:.4%}" for row in methods)),
        ("smallest device", *(row.smallest_device or "none known" for row in methods)),
    ]
    if len(methods) > 1:
        less = (f"{first.total_bytes / row.total_bytes:.1f}x" for row in methods)
        fewer = (f"{first.trainable_parameters / row.trainable_parameters:,.0f}x" for row in methods)
        rows += [(f"less memory than {first.method}", *less), ("fewer trained parameters", *fewer)]
    if any(row.host_bytes for row in methods):
        rows.append(("host memory", *(format_size(row.host_bytes) for row in methods)))
    return rows


def _convention(recipe: Recipe) -> str:
    activations = {
        "none": "Activations are left out: they depend on batch, length and kernels (--activations estimates them)",
        "stored": "Activations are estimated, every layer's stored",
        "checkpointed": "Activations are estimated, each layer's input stored and one layer recomputed at a time",
    }
    return f"Convention: gradients {recipe.gradients}, optimizer {recipe.optimizer}. {activations[recipe.activations]}."


def _print_advice(methods: Sequence[Training], room: int) -> None:
    say(f"In {format_size(room, binary=False)} ({format_size(room)}) a device:")
    for row in methods:
        left = room - row.total_bytes
        if left >= 0:
            say(f"  {row.method} fits, {format_size(left, binary=False)} left for activations. Advice: {row.advice}.")
        else:
            say(f"  {row.method} does not fit, by {format_size(-left, binary=False)}.")


def print_models(models: Sequence[Model]) -> None:
    """Print the models known by name."""
    rows = [
        (
            model.name,
            f"{model.parameters:,}",
            str(model.layers),
            f"{model.heads}/{'MLA' if model.latent else model.kv_heads}",
            f"{model.kv_bytes_per_token():,}",
            f"{model.max_model_len:,}",
            f"{model.window:,}" if model.window else "",
        )
        for model in models
    ]
    print_table(("model", "parameters", "layers", "heads/KV", "KV bytes/token", "longest", "window"), rows)


def print_devices(devices: Sequence[Device]) -> None:
    """Print the devices known by name."""
    rows = [
        (
            device.name,
            format_size(device.label_bytes, binary=False, digits=0),
            format_size(device.memory_bytes),
            f"{device.bandwidth_bytes_per_s / 1e9:,.0f}",
            f"{device.flops_per_s / 1e12:,.0f}",
            device.source,
        )
        for device in devices
    ]
    print_table(("device", "label", "reported", "GB/s", "TFLOP/s, 16 bit", "source"), rows)
