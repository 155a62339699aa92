"""Sessions, clients and mixes: the generators that draw more than one request at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from test_generate import table

from kvsim.errors import ConfigError
from kvsim.generate import generator, load_workload, parse_workload, workload_names
from kvsim.generate.clients import Clients
from kvsim.generate.toml import workload_toml
from kvsim.traces.servegen import LengthWindow, Window, read_client_lengths, read_client_rates


def fixed(tokens):
    return {"family": "fixed", "tokens": tokens}


def sessions(**changes):
    base = {
        "users": 3,
        "turns": fixed(3),
        "first_prompt": fixed(100),
        "added": fixed(20),
        "output": fixed(7),
        "think_s": fixed(10),
        "max_context": 1000,
    }
    plain = table(sessions=base | changes)
    return parse_workload({key: value for key, value in plain.items() if key not in ("prompt", "output")}, "w")


def turns_of(workload, num, seed=0):
    return list(itertools.islice(workload.sessions.user(generator(seed, 9)), num))


def test_context_grows_by_what_was_said():
    turns = turns_of(sessions(), 7)
    assert [turn.prompt for turn in turns] == [100, 127, 154, 100, 127, 154, 100]
    assert [turn.opens for turn in turns] == [True, False, False, True, False, False, True]
    assert all(9 * 10**9 <= turn.think_ns <= 10 * 10**9 for turn in turns)


def test_a_conversation_ends_before_it_outgrows_the_context():
    turns = turns_of(sessions(turns=fixed(50), max_context=150), 6)
    assert [turn.prompt for turn in turns] == [100, 127, 100, 127, 100, 127]
    with pytest.raises(ConfigError, match="no room for a first turn"):
        sessions(max_context=50)


def test_between_conversations_a_user_may_pause_longer():
    turns = turns_of(sessions(between_s=fixed(1000)), 6)
    assert [turn.think_ns > 500 * 10**9 for turn in turns] == [turn.opens for turn in turns]


def test_a_user_is_the_same_whenever_the_turns_are_taken():
    workload = load_workload("chat-sessions")
    assert turns_of(workload, 300)[:100] == turns_of(workload, 100)
    assert turns_of(workload, 100) != turns_of(workload, 100, seed=1)


def test_open_loop_picture_of_sessions():
    workload = load_workload("agentic-sessions")
    stream = workload.sample(num_requests=500)
    assert len(stream) == 500
    assert any("no time" in notice for notice in stream.notices)
    assert np.array_equal(workload.sample(num_requests=100).prompt, stream.prompt[:100])
    short = workload.sample(duration_s=60)
    assert short.arrival_ns[-1] <= 60 * 10**9
    assert not workload.sample(num_requests=50, backlog=True).arrival_ns.any()
    with pytest.raises(ConfigError, match="paces itself"):
        workload.sample(num_requests=5, rate_per_s=1.0)


# --- mixes


def test_a_mix_has_the_shares_that_it_says():
    mixed = load_workload("mixed")
    stream = mixed.sample(num_requests=20_000, rate_per_s=5.0)
    parts = {part.name: part.means() for part in mixed.parts()}
    expected = sum(share * parts[name][1] for name, share in mixed.mix.items())
    assert stream.output.mean() == pytest.approx(expected, rel=0.03)
    assert np.array_equal(mixed.sample(num_requests=500, rate_per_s=5.0).prompt, stream.prompt[:500])


def test_a_mix_of_what_cannot_be_mixed():
    plain = {key: value for key, value in table(mix={"chat-sessions": 1.0}).items() if key not in ("prompt", "output")}
    with pytest.raises(ConfigError, match="not drawn request by request"):
        parse_workload(plain, "w").sample(num_requests=5, backlog=True)


# --- named workloads


@pytest.mark.parametrize("name", workload_names())
def test_every_named_workload_says_where_it_comes_from_and_draws(name):
    workload = load_workload(name)
    assert workload.source
    assert workload.license
    assert len(workload.summary) <= 80
    limit = {} if workload.sessions or workload.rate_per_s else {"rate_per_s": 1.0}
    stream = workload.sample(num_requests=200, **limit)
    assert len(stream) == 200
    mean_prompt, mean_output = workload.means()
    assert mean_prompt >= 1
    assert mean_output >= 1


def test_the_named_workloads():
    assert set(workload_names()) == {
        "sharegpt", "alpaca", "azure-conv", "azure-code", "lmsys-arena", "arxiv-summarization",
        "mooncake-conversation", "chat-sessions", "agentic-sessions", "mixed",
    }  # fmt: skip


@pytest.mark.parametrize("name", workload_names())
def test_a_workload_that_is_written_reads_as_the_same(name, tmp_path):
    workload = load_workload(name)
    (tmp_path / "w.toml").write_text(workload_toml(workload))
    again = load_workload(tmp_path / "w.toml")
    rate = {} if workload.sessions else {"rate_per_s": 1.0}
    one, two = (w.sample(num_requests=200, **rate) for w in (workload, again))
    assert np.array_equal(one.prompt, two.prompt)
    assert np.array_equal(one.output, two.output)


# --- clients


def population(pattern="gamma", shape=0.25, rate=3.0):
    windows = [Window(0.0, rate, pattern, shape), Window(600.0, 0.0, "", 0.0), Window(1200.0, 2 * rate, pattern, shape)]
    values = (np.array([5, 6]), np.array([0.5, 1.0]))
    lengths = [LengthWindow(0.0, values, values), LengthWindow(1200.0, (np.array([70]), np.array([1.0])), values)]
    return Clients({"a": windows, "b": windows}, {"a": lengths, "b": lengths})


@pytest.mark.parametrize(("pattern", "shape"), [("gamma", 0.25), ("weibull", 0.6)])
def test_clients_keep_their_rates_window_by_window(pattern, shape):
    counts = np.array(
        [
            np.histogram(population(pattern, shape).sample(1800.0, seed=seed).arrival_ns / 1e9, [0, 600, 1200, 1800])[0]
            for seed in range(40)
        ]
    )
    assert counts[:, 1].max() == 0
    assert counts[:, 0].mean() == pytest.approx(3600, rel=0.03)
    assert counts[:, 2].mean() == pytest.approx(7200, rel=0.03)


def test_gaps_of_a_client_have_the_shape_of_its_window():
    one = Clients({"a": [Window(0.0, 50.0, "gamma", 0.25)]}, load_workload("alpaca"))
    gaps = np.diff(one.sample(600.0).arrival_ns / 1e9) * 50.0
    assert stats.kstest(gaps, stats.gamma(0.25, scale=4.0).cdf).pvalue > 1e-3


def test_lengths_of_clients_follow_the_time_of_day():
    stream = population().sample(1800.0)
    late = stream.arrival_ns >= 1200 * 10**9
    assert set(stream.prompt[late].tolist()) == {70}
    assert set(stream.prompt[~late].tolist()) == {5, 6}
    assert len(population().sample(600.0, rate_per_s=1.0)) == pytest.approx(600, rel=0.25)


def test_what_clients_cannot_do():
    with pytest.raises(ConfigError, match="no client asks"):
        population().sample(100.0, start_s=700.0)
    with pytest.raises(ConfigError, match="positive"):
        population().sample(0.0)
    with pytest.raises(ConfigError, match="has no lengths"):
        Clients(population().rates, {"a": []}).sample(100.0)


def test_client_files(tmp_path):
    (tmp_path / "r.csv").write_text(
        "client,window_start_s,rate,cv,pattern,param1,param2\n0,600,2.5,1.0,Weibull,0.9,1.0\n0,0,0,0,,0,0\n"
    )
    (tmp_path / "l.jsonl").write_text(
        '{"client":0,"window_start_s":0,"input_tokens":"{5: 0.25, 6: 0.75}","output_tokens":"{7: 1.0}"}\n'
        '{"client":0,"window_start_s":600,"input_tokens":"{}","output_tokens":"{}"}\n'
    )
    assert read_client_rates(tmp_path / "r.csv")["0"] == [Window(0.0, 0.0, "", 0.0), Window(600.0, 2.5, "weibull", 0.9)]
    (window,) = read_client_lengths(tmp_path / "l.jsonl")["0"]
    assert window.prompt[0].tolist() == [5, 6]
    assert window.prompt[1].tolist() == [0.25, 1.0]
