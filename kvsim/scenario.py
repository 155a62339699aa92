"""What a comparison is: a validated set of settings, from options or from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvsim.errors import ConfigError, unknown
from kvsim.generate import load_workload
from kvsim.generate.sessions import Turn
from kvsim.generate.workload import USERS, generator
from kvsim.models import Device, Model, default_kv_pool, get_device, get_model, paper_kv_pool
from kvsim.names import ALLOCATORS
from kvsim.requests import RequestStream
from kvsim.traces import read
from kvsim.units import format_size, parse_size

DEFAULT_BACKLOG = 7200
DEFAULT_SESSION_SECONDS = 3600.0

Positive = Annotated[int, Field(ge=1, lt=2**31)]
Rate = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
TRACE_SUFFIXES = {".csv", ".json", ".jsonl", ".gz", ".zst", ".parquet", ".txt", ".toml"}


class Scenario(BaseModel):
    """Everything that a comparison of allocators depends on, but the seed of each replicate.

    Attributes
    ----------
    workload : str
        A named workload, a workload's TOML file, or a trace.
    model, gpu : str
        Names, or files (see ``kvsim.models``). ``gpu`` may count: ``4xA100-40GB``.
    pool : str, optional
        Size of the KV pool, with its unit. By default the paper's, or what the device has left beside the weights.
    num_blocks : int, optional
        Size of the pool in blocks, instead.
    rate : float, optional
        Requests a second.
    backlog : bool
        All requests wait at time 0. The default where neither a rate nor a trace's own times are given.
    requests : int, optional
        Requests; 7,200 for a backlog if nothing is said.
    duration : float, optional
        Seconds of arrivals.
    stop_at : float, optional
        Simulated seconds after which a run is broken off.
    allocator : list of str
        Names from ``kvsim.names.ALLOCATORS``.
    placement : {"buddy", "first-fit", "best-fit"}
        Of the contiguous ones.
    block_size : int
        Slots a block.
    max_model_len : int, optional
        Longest request in tokens; the model's own by default.
    max_num_seqs : int
        Most sequences in an iteration.
    max_num_batched_tokens : int, optional
        Most running sequences + prompt tokens in an iteration; max(2560, max_model_len) by default.
    watermark : float
        Share of the blocks kept free at admission.
    scheduler : {"paper", "static"}
        When requests run. ``static`` serves ``max`` only.
    static_batch : int, optional
        Most requests in a static batch.
    headroom : int
        Blocks kept free at admission for every sequence that runs already; the paper tells of none.
    latency : str
        How long an iteration lasts: a name of ``kvsim.latency.CHOICES``, or a CSV file of step times.
    kernel_table : str, optional
        What a block size costs in the attention kernel: ``figure-18``, or a CSV file of factors. Nothing if not given.
    engine : {"auto", "step", "leap"}
        What runs the iterations; results do not depend on it.
    seed : int
        Seed of the first replicate.
    seeds : int
        Replicates.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload: str = "sharegpt"
    model: str = "OPT-13B"
    gpu: str = "A100-40GB"
    pool: str | None = None
    num_blocks: Positive | None = None
    rate: Rate | None = None
    backlog: bool = False
    requests: Positive | None = None
    duration: Seconds | None = None
    stop_at: Seconds | None = None
    allocator: list[str] = ["max", "pow2", "oracle", "paged"]
    placement: Literal["buddy", "first-fit", "best-fit"] = "buddy"
    block_size: Positive = 16
    max_model_len: Positive | None = None
    max_num_seqs: Positive = 256
    max_num_batched_tokens: Positive | None = None
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.01
    scheduler: Literal["paper", "static"] = "paper"
    static_batch: Positive | None = None
    headroom: Annotated[int, Field(ge=0)] = 0
    latency: str = "fitted"
    kernel_table: str | None = None
    engine: Literal["auto", "step", "leap"] = "auto"
    seed: Annotated[int, Field(ge=0)] = 0
    seeds: Positive = 1

    @model_validator(mode="after")
    def _no_contradiction(self) -> Scenario:
        if self.rate is not None and self.backlog:
            raise ValueError("rate and backlog exclude one another")
        if self.pool is not None and self.num_blocks is not None:
            raise ValueError("pool and num_blocks exclude one another")
        if self.backlog and self.duration is not None:
            raise ValueError("duration needs arrivals over time: a backlog has none")
        if not self.allocator:
            raise ValueError("allocator: at least one name is expected")
        if len(set(self.allocator)) < len(self.allocator):
            raise ValueError("allocator: each name may stand once")
        if self.static_batch is not None and self.scheduler != "static":
            raise ValueError("static_batch needs scheduler 'static'")
        for name in self.allocator:
            if name not in ALLOCATORS:
                raise unknown("allocator", name, ALLOCATORS)
        if self.scheduler == "static" and set(self.allocator) != {"max"}:
            raise ValueError("scheduler 'static' reserves the maximum length: it takes allocator 'max' only")
        return self

    @property
    def is_file(self) -> bool:
        """Whether the workload is a trace."""
        path = Path(self.workload)
        if path.suffix in TRACE_SUFFIXES and not path.exists():
            raise ConfigError(f"{self.workload}: no such file")
        return path.suffix != ".toml" and path.is_file()


class Resolved:
    """A scenario with its names looked up and its defaults filled in.

    Parameters
    ----------
    scenario : Scenario
        What was asked for.

    Attributes
    ----------
    scenario : Scenario
        The same.
    model : Model
        With the layers and the length that matter.
    device : Device
        Or several alike.
    max_model_len : int
        Longest request in tokens.
    pool_bytes : int
        Bytes of the KV pool; -1 where it was given in blocks.
    pool_source : str
        Where that size comes from, in words.
    capacity : int
        Slots of the pool.
    backlog : bool
        All requests wait at time 0.

    Raises
    ------
    ConfigError
        A name is unknown, or the pool is smaller than a block.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.model: Model = get_model(scenario.model)
        self.device: Device = get_device(scenario.gpu)
        self.max_model_len = scenario.max_model_len or self.model.max_model_len
        self.slot_bytes = self.model.kv_bytes_per_token()
        self.pool_bytes, self.pool_source = self._pool()
        self.capacity = self._capacity()
        if self.capacity < scenario.block_size:
            pool = f"a pool of {self.capacity} slots ({self.pool_source})"
            raise ConfigError(f"{pool} is smaller than one block of {scenario.block_size}")
        self._workload = None if scenario.is_file else load_workload(scenario.workload)
        self.backlog = scenario.backlog or (self._workload is not None and self._untimed())
        self._last: tuple[int, RequestStream] | None = None
        self._check_sessions()

    def _untimed(self) -> bool:
        """Whether neither the scenario nor the workload says when requests come."""
        assert self._workload is not None
        timed = self._workload.rate_per_s is not None or self._workload.sessions is not None
        return self.scenario.rate is None and not timed and self.scenario.duration is None

    def _check_sessions(self) -> None:
        if self.closed_loop and (self.scenario.rate is not None or self.scenario.requests is not None):
            name = self.scenario.workload
            raise ConfigError(
                f"workload {name!r} is users in a closed loop: it takes a duration, not a rate or a number"
            )

    @property
    def closed_loop(self) -> bool:
        """Whether requests come from users who wait for answers."""
        return self._workload is not None and self._workload.sessions is not None and not self.backlog

    @property
    def session_seconds(self) -> float:
        """Seconds for which users in a closed loop ask."""
        return self.scenario.duration or DEFAULT_SESSION_SECONDS

    def users(self, seed: int) -> list[Iterator[Turn]]:
        """Return what each user of a closed loop does."""
        assert self._workload is not None
        sessions = self._workload.sessions
        assert sessions is not None
        return [sessions.user(generator(seed, USERS, index)) for index in range(sessions.users)]

    def _pool(self) -> tuple[int, str]:
        scenario = self.scenario
        if scenario.num_blocks is not None:
            return -1, f"{scenario.num_blocks} blocks of {scenario.block_size}"
        if scenario.pool is not None:
            return parse_size(scenario.pool), f"given: {scenario.pool}"
        paper = paper_kv_pool(self.model, self.device)
        if paper is not None:
            return paper, f"{format_size(paper)}, vLLM paper, Table 1"
        left = default_kv_pool(self.model, self.device)
        return left, f"{format_size(left)}, what {self.device} has left beside the weights"

    def _capacity(self) -> int:
        if self.scenario.num_blocks is not None:
            return self.scenario.num_blocks * self.scenario.block_size
        return self.pool_bytes // self.slot_bytes

    def stream(self, seed: int) -> RequestStream:
        """Return the requests of one replicate; the last one is kept.

        Raises
        ------
        TraceError
            The trace cannot be read.
        ConfigError
            It is not said when requests come.
        """
        if self._last is None or self._last[0] != seed:
            self._last = seed, self._draw(seed)
        return self._last[1]

    def _draw(self, seed: int) -> RequestStream:
        scenario = self.scenario
        if self._workload is None:
            stream = read(
                scenario.workload,
                num_requests=scenario.requests,
                rate_per_s=scenario.rate,
                backlog=scenario.backlog,
                seed=seed,
            )
            return stream if scenario.duration is None else stream.first_seconds(scenario.duration)
        num_requests = scenario.requests
        if num_requests is None and scenario.duration is None:
            num_requests = DEFAULT_BACKLOG
        return self._workload.sample(
            num_requests=num_requests,
            duration_s=scenario.duration,
            rate_per_s=scenario.rate,
            backlog=self.backlog,
            seed=seed,
            max_model_len=self.max_model_len,
        )

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, with what was filled in."""
        settings = self.scenario.model_dump()
        settings.update(
            max_model_len=self.max_model_len,
            backlog=self.backlog,
            pool_bytes=None if self.pool_bytes < 0 else self.pool_bytes,
            pool_source=self.pool_source,
            capacity=self.capacity,
            slot_bytes=self.slot_bytes,
        )
        return settings


def make_scenario(settings: dict[str, Any], where: str = "") -> Scenario:
    """Validate settings, saying in one line what is wrong.

    Parameters
    ----------
    settings : dict
        Keys as the attributes of ``Scenario``.
    where : str
        A file's name, to begin an error with.

    Raises
    ------
    ConfigError
        A key is not known (the nearest is named), or a value cannot be meant.
    """
    prefix = f"{where}: " if where else ""
    for key in settings:
        if key not in Scenario.model_fields:
            raise ConfigError(prefix + str(unknown("setting", key, Scenario.model_fields)))
    try:
        return Scenario(**settings)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        found = f", not {problem['input']!r}" if field else ""
        raise ConfigError(f"{prefix}{field}{': ' if field else ''}{message[0].lower()}{message[1:]}{found}") from None


def read_settings(path: str | Path) -> dict[str, Any]:
    """Read a scenario's settings from a TOML file; keys may be written with dashes.

    Raises
    ------
    ConfigError
        The file cannot be read, or is not TOML.
    """
    try:
        with Path(path).open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error} (a trace goes to --workload)") from None
    settings = {key.replace("-", "_"): value for key, value in table.items()}
    if "allocator" in settings and not isinstance(settings["allocator"], list):
        settings["allocator"] = [settings["allocator"]]
    return settings
