"""Named workloads: a TOML file says how lengths and arrivals are drawn, where it comes from, and who may use it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from kvsim.errors import ConfigError, unknown
from kvsim.generate.arrivals import Arrivals, Backlog, Poisson, Replay, draw_times, replay_times
from kvsim.generate.joint import Copula, Fitted, Independent
from kvsim.generate.lengths import LONGEST, LengthTable, Marginal, Table, Tokens, tabulate
from kvsim.generate.sessions import Sessions, open_loop
from kvsim.requests import IntArray, RequestStream

# purposes of random numbers: each has a stream of its own, so that drawing more of one leaves the others alone
PROMPT, OUTPUT, ARRIVAL, COMPONENT, USERS = range(5)

PACKAGED = Path(__file__).parents[1] / "_workloads"
CHECKOUT = Path(__file__).parents[2] / "workloads"


class Limits(Table):
    """Bounds on lengths, all included.

    ``total`` bounds prompt + output; ``"max_model_len"`` takes the bound from whoever samples.
    """

    min_prompt: Tokens = 1
    max_prompt: Tokens | None = None
    min_output: Tokens = 1
    max_output: Tokens | None = None
    total: Tokens | Literal["max_model_len"] | None = None


class Workload(Table):
    """What is asked of a server.

    One of three kinds: ``prompt`` and ``output`` (lengths drawn for each request), ``sessions`` (users in a closed
    loop), or ``mix`` (each request comes from one of several named workloads).

    Attributes
    ----------
    name, summary, source, license : str
        For people. ``source`` says where the numbers come from.
    prompt, output : Marginal
        Distributions of the two lengths, in tokens.
    joint : {"independent", "fitted", "copula"}
        How they go together; ``fitted`` needs ``limits.total``, ``copula`` needs ``spearman``.
    spearman : float, optional
        Rank correlation of prompt and output.
    limits : Limits
        Bounds on lengths.
    arrivals : Arrivals
        When requests come; a process without ``rate_per_s`` asks the caller for a rate.
    published : dict of str to float
        Published values to show beside the computed ones; nothing is computed from them.
    """

    name: str
    summary: str
    source: str
    license: str
    prompt: Marginal | None = None
    output: Marginal | None = None
    joint: Literal["independent", "fitted", "copula"] = "independent"
    spearman: Annotated[float, Field(ge=-1, le=1)] | None = None
    limits: Limits = Limits()
    arrivals: Arrivals = Poisson(process="poisson")
    sessions: Sessions | None = None
    mix: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = None
    published: dict[str, float] = Field(default_factory=dict)
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _one_kind(self) -> Workload:
        lengths = self.prompt is not None and self.output is not None
        if (self.prompt is None) != (self.output is None):
            raise ValueError("prompt and output come together")
        if lengths + (self.sessions is not None) + bool(self.mix) != 1:
            raise ValueError("exactly one of [prompt] with [output], [sessions] and [mix] is expected")
        if self.joint == "fitted" and self.limits.total is None:
            raise ValueError("joint = 'fitted' needs limits.total")
        if (self.joint == "copula") != (self.spearman is not None):
            raise ValueError("joint = 'copula' and spearman come together")
        return self

    @property
    def rate_per_s(self) -> float | None:
        """Requests a second that the workload itself names, if any."""
        return getattr(self.arrivals, "rate_per_s", None)

    @property
    def pace(self) -> str:
        """How requests arrive, in a few words."""
        if self.sessions is not None:
            return f"{self.sessions.users} users in sessions"
        rate = f", {self.rate_per_s:.4g}/s" if self.rate_per_s is not None else ""
        return f"{self.arrivals.process}{rate}"

    def means(self) -> tuple[float, float]:
        """Return the mean lengths of prompt and output: exact, or of a fixed sample where draws are rejected."""
        if self.prompt is not None and self.limits.total != "max_model_len":
            joint = self.joint_lengths()
            if not isinstance(joint, Copula):
                return joint.means()
            if joint.total is None:
                return joint.prompt.mean, joint.output.mean
        limit = LONGEST if self.limits.total == "max_model_len" else None
        sample = self.sample(num_requests=20_000, backlog=True, max_model_len=limit)
        return float(sample.prompt.mean()), float(sample.output.mean())

    def with_joint(self, joint: Literal["independent", "fitted"]) -> Workload:
        """Return the same marginals joined in another way."""
        return parse_workload(self.model_dump(exclude_none=True) | {"joint": joint}, self.name, self._folder)

    def length_tables(self, total: int | None = None) -> tuple[LengthTable, LengthTable]:
        """Return the tables of prompt and output that draws are made from (before pairs above a limit are refused).

        Under ``total``, lengths that leave no room for any partner are left out.
        """
        if self.prompt is None or self.output is None:
            raise ConfigError(f"workload {self.name!r} draws its lengths from parts: sample it")
        limits = self.limits
        try:
            prompt = tabulate(self.prompt, limits.min_prompt, limits.max_prompt)
            output = tabulate(self.output, limits.min_output, limits.max_output)
            if total is None:
                return prompt, output
            most = (total - output.first, total - prompt.first)
            return prompt.up_to(most[0]), output.up_to(most[1])
        except ValueError as error:
            raise ConfigError(f"workload {self.name!r}: {error}") from None

    def joint_lengths(self, max_model_len: int | None = None) -> Independent | Copula | Fitted:
        """Return what draws pairs of lengths."""
        total = max_model_len if self.limits.total == "max_model_len" else self.limits.total
        if self.limits.total == "max_model_len" and total is None:
            raise ConfigError(f"workload {self.name!r} limits lengths to max_model_len: say what it is")
        return _joint(self.joint, *self.length_tables(total), total, self.spearman)

    def sample(
        self,
        *,
        num_requests: int | None = None,
        duration_s: float | None = None,
        rate_per_s: float | None = None,
        backlog: bool = False,
        seed: int = 0,
        max_model_len: int | None = None,
    ) -> RequestStream:
        """Draw a stream of requests.

        The same seed gives the same lengths and, stretched by the rate, the same arrivals whatever the rate; the first
        requests of a longer stream are those of a shorter one.

        Parameters
        ----------
        num_requests : int, optional
            Requests to draw.
        duration_s : float, optional
            Seconds to draw arrivals for; with ``num_requests`` too, whichever ends first.
        rate_per_s : float, optional
            Requests a second, where the workload's own is not wanted.
        backlog : bool
            All requests wait at time 0.
        seed : int
            Seed of all draws, 0 or more.
        max_model_len : int, optional
            Tokens of prompt and output that a model takes; only a workload whose limits name it looks at it.

        Returns
        -------
        RequestStream

        Raises
        ------
        ConfigError
            A combination that cannot be meant, or a rate that nobody gave.
        """
        _check_sample(num_requests, duration_s, rate_per_s, backlog, seed)
        if self.sessions is not None:
            return self._open_loop(num_requests, duration_s, rate_per_s, backlog, seed)
        times = self._times(num_requests, duration_s, rate_per_s, backlog, seed)
        prompt, output = self._lengths(len(times), (seed,), max_model_len)
        return RequestStream(times, prompt, output, source=f"workload {self.name}")

    def _open_loop(
        self, num: int | None, duration_s: float | None, rate_per_s: float | None, backlog: bool, seed: int
    ) -> RequestStream:
        """Return what the sessions would ask of a server that answers at once."""
        if rate_per_s is not None:
            raise ConfigError(f"workload {self.name!r} paces itself by its sessions: change their users, not the rate")
        assert self.sessions is not None
        users = [self.sessions.user(generator(seed, USERS, index)) for index in range(self.sessions.users)]
        arrival, prompt, output = open_loop(users, num, duration_s).T
        notices = ("sessions drawn as if every answer took no time",)
        stream = RequestStream(arrival, prompt, output, source=f"workload {self.name}", notices=notices)
        return stream.as_backlog() if backlog else stream

    def _times(
        self, num: int | None, duration_s: float | None, rate_per_s: float | None, backlog: bool, seed: int
    ) -> IntArray:
        if backlog or isinstance(self.arrivals, Backlog):
            if num is None or rate_per_s is not None:
                raise ConfigError("a backlog takes a number of requests, and neither a rate nor a duration alone")
            return np.zeros(num, dtype=np.int64)
        if isinstance(self.arrivals, Replay):
            return replay_times(self.arrivals, self._folder, num=num, duration_s=duration_s, rate_per_s=rate_per_s)
        rate = rate_per_s or self.arrivals.rate_per_s
        if rate is None:
            raise ConfigError(f"workload {self.name!r} has no rate of its own: give a rate, or ask for a backlog")
        return draw_times(self.arrivals, generator(seed, ARRIVAL), rate, num=num, duration_s=duration_s)

    def _lengths(self, num: int, key: tuple[int, ...], max_model_len: int | None) -> tuple[IntArray, IntArray]:
        if self.mix is None:
            joint = self.joint_lengths(max_model_len)
            return joint.draw(num, generator(*key, PROMPT), generator(*key, OUTPUT))
        weights = np.array(list(self.mix.values()))
        which = np.searchsorted(np.cumsum(weights / weights.sum()), generator(*key, COMPONENT).random(num), "right")
        which = np.minimum(which, len(weights) - 1)
        prompt, output = np.empty(num, dtype=np.int64), np.empty(num, dtype=np.int64)
        for index, part in enumerate(self.parts()):
            mine = which == index
            prompt[mine], output[mine] = part._lengths(int(mine.sum()), (*key, COMPONENT, index), max_model_len)
        return prompt, output

    def parts(self) -> list[Workload]:
        """Return the workloads of a mix."""
        parts = [load_workload(name, folder=self._folder) for name in self.mix or ()]
        for part in parts:
            if part.sessions is not None or part.mix is not None:
                raise ConfigError(f"workload {self.name!r} mixes {part.name!r}, which is not drawn request by request")
        return parts


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """Return the random numbers of one purpose under a seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=purpose))


def _joint(
    kind: str, prompt: LengthTable, output: LengthTable, total: int | None, spearman: float | None
) -> Independent | Copula | Fitted:
    if kind == "fitted" and total is not None:
        return Fitted(prompt, output, total)
    if kind == "copula" and spearman is not None:
        return Copula(prompt, output, spearman, total)
    return Independent(prompt, output, total)


def _check_sample(
    num_requests: int | None, duration_s: float | None, rate_per_s: float | None, backlog: bool, seed: int
) -> None:
    if num_requests is None and duration_s is None:
        raise ConfigError("how much? give a number of requests or a duration")
    if num_requests is not None and num_requests < 1:
        raise ConfigError(f"the number of requests must be at least 1, not {num_requests}")
    if backlog and rate_per_s is not None:
        raise ConfigError("a rate and a backlog exclude one another")
    for name, value, unit in (("duration", duration_s, "s"), ("rate", rate_per_s, "requests/s")):
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"the {name} must be a positive number of {unit}, not {value}")
    if seed < 0:
        raise ConfigError(f"a seed is a whole number from 0 up, not {seed}")


def workload_names() -> list[str]:
    """Return the names of the workloads that come with kvsim."""
    return sorted(path.stem for path in _home().glob("*.toml"))


def load_workload(name_or_path: str | Path, *, folder: Path | None = None) -> Workload:
    """Read a workload by name, or from a TOML file.

    Parameters
    ----------
    name_or_path : str or Path
        A name of ``workload_names()``, or the path of a file that ends in ``.toml``.
    folder : Path, optional
        Where a relative path starts; the working directory by default.

    Raises
    ------
    ConfigError
        Unknown name (the nearest is offered), no such file, or a file that does not describe a workload.
    """
    text = str(name_or_path)
    if text.endswith(".toml"):
        return _read(Path(folder or "", text))
    if text not in workload_names():
        raise unknown("workload", text, workload_names())
    return _read(_home() / f"{text}.toml")


def _home() -> Path:
    return PACKAGED if PACKAGED.is_dir() else CHECKOUT


def _read(path: Path) -> Workload:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such workload file: {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return parse_workload({"name": path.stem} | table, str(path), path.parent)


def parse_workload(table: dict[str, Any], where: str, folder: Path = Path()) -> Workload:
    """Build a workload from a table as TOML gives it.

    Parameters
    ----------
    table : dict
        Keys and values as in a file of ``workloads/``.
    where : str
        What to call it in an error.
    folder : Path
        Where relative paths in it start.
    """
    try:
        workload = Workload.model_validate(table)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error)}") from None
    workload._folder = folder
    return workload


def _first_problem(error: ValidationError) -> str:
    """Say in one line what is wrong first, with the nearest key where one is misspelt."""
    problem = error.errors()[0]
    place = ".".join(str(step) for step in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{place}: {unknown('key', str(problem['loc'][-1]), _all_keys())}"
    message = problem["msg"].removeprefix("Value error, ")
    given = problem["input"]
    shown = f", not {given!r}" if isinstance(given, str | int | float) else ""
    return f"{place}: {message}{shown}" if place else message


def _all_keys(kind: type[Table] = Table) -> set[str]:
    """Return every key that any table of a workload file may have."""
    return set(kind.model_fields).union(*(_all_keys(table) for table in kind.__subclasses__()))
