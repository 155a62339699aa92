"""The stream that everything is served from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import ConfigError, TraceError
from kvsim.requests import PrefixIds, RequestStream


def ragged(rows, block_size=16):
    return PrefixIds(
        np.array([number for row in rows for number in row], dtype=np.int64),
        np.cumsum([0] + [len(row) for row in rows]),
        block_size,
    )


def rows_of(prefix):
    return [prefix.ids[a:b].tolist() for a, b in zip(prefix.offsets, prefix.offsets[1:], strict=False)]


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6), st.data())
def test_take_is_a_selection_of_rows(rows, data):
    order = data.draw(st.permutations(range(len(rows))))[: data.draw(st.integers(0, len(rows)))]
    taken = ragged(rows).take(np.array(order, dtype=np.int64))
    assert rows_of(taken) == [rows[i] for i in order]


def test_prefixes_compare_by_content():
    assert ragged([[1], [2, 3]]) == ragged([[1], [2, 3]])
    assert ragged([[1], [2, 3]]) != ragged([[1, 2], [3]])
    assert ragged([[1]]) != ragged([[1]], block_size=32)
    assert ragged([[1]]) != "ragged"


def test_columns_are_checked_and_cannot_be_written():
    stream = RequestStream([0, 5], [1, 2], [3, 4])
    assert stream.arrival_ns.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        stream.prompt[0] = 9
    for columns, said in (
        (([0], [1, 2], [3]), "differ in length"),
        (([5, 0], [1, 2], [3, 4]), "must not decrease"),
        (([-1, 0], [1, 2], [3, 4]), "below 0"),
        (([0, 1], [1, 0], [3, 4]), "request 1 has 0 tokens"),
    ):
        with pytest.raises(TraceError, match=said):
            RequestStream(*columns)
    with pytest.raises(TraceError, match="1 rows of prefix ids for 2 requests"):
        RequestStream([0, 1], [1, 1], [1, 1], prefix=ragged([[1]]))


def test_head_keeps_the_ids_of_what_it_keeps():
    stream = RequestStream([0, 1, 2], [1, 2, 3], [1, 1, 1], prefix=ragged([[1], [2, 3], [4]]))
    assert rows_of(stream.head(2).prefix) == [[1], [2, 3]]
    assert len(stream.head(9)) == 3


def test_at_rate_stretches_times_that_are_there():
    stream = RequestStream([0, 10**9, 4 * 10**9], [1, 1, 1], [1, 1, 1])
    slow = stream.at_rate(0.25)
    assert slow.arrival_ns.tolist() == [0, 3 * 10**9, 12 * 10**9]
    assert len(slow) / (slow.span_ns / 1e9) == pytest.approx(0.25)
    with pytest.raises(ConfigError, match="arrive at once"):
        stream.as_backlog().at_rate(1.0)
    for rate in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="positive"):
            stream.at_rate(rate)


def test_at_rate_draws_times_that_are_not():
    stream = RequestStream([0] * 2000, [1] * 2000, [1] * 2000, timed=False)
    timed = stream.at_rate(4.0, seed=1)
    assert timed.timed
    assert timed.arrival_ns[-1] / 1e9 == pytest.approx(500, rel=0.1)
    assert np.array_equal(timed.arrival_ns, stream.at_rate(4.0, seed=1).arrival_ns)
    assert not np.array_equal(timed.arrival_ns, stream.at_rate(4.0, seed=2).arrival_ns)
    assert stream.as_backlog().timed
