"""Whatever arrives is read or refused: thousands of odd messages, no crash, no nonsense taken for an answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fedstein.flower import records as as_records
from fedstein.flower.messages import (
    DTYPES,
    FORMAT,
    OK,
    STATUSES,
    Envelope,
    InvalidMessage,
    RawArray,
    check_arrays,
    check_reply,
    digest,
    from_raw,
    shapes_of,
    to_raw,
)
from fedstein.flower.node.handlers import handle
from fedstein.flower.node.rows import Node
from fedstein.flower.records import ARRAYS, FIELDS, HEAD, RAW, arrays_content, from_record, to_record

ARRAY = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=3))
)
SCALAR = st.one_of(
    st.text(max_size=12), st.integers(-(2**40), 2**40), st.floats(), st.booleans(), st.binary(max_size=8)
)
EXPECTED = {"particles": ((2, 3), "float32"), "eta": ((3,), "float32")}
REQUEST = Envelope({"format": FORMAT, "run": "r1", "kind": "train", "round": 4, "client": 2}, {})


@given(st.dictionaries(st.text(min_size=1, max_size=8), ARRAY, max_size=4), st.sampled_from([-1, 2**16]))
def test_arrays_come_back_as_they_were(arrays, small):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(as_records, "SMALL", small)  # -1: every array in a record of its own
        record = to_record({"kind": "ask"}, arrays_content(arrays))
    assert set(record) == ({HEAD, ARRAYS} if small < 0 else {HEAD})
    back = from_record(
        RecordDict({name: type(each).inflate(each.deflate(), each.children) for name, each in record.items()})
    )
    assert back.head == {"kind": "ask"}
    assert set(back.arrays) == set(arrays)
    for name, array in arrays.items():
        assert (back.arrays[name].dtype, back.arrays[name].shape) == (array.dtype, array.shape)
        assert back.arrays[name].tobytes() == np.ascontiguousarray(array).tobytes()
    assert digest(back.arrays) == digest(arrays)


@given(st.dictionaries(st.sampled_from("abc"), ARRAY, min_size=1), st.data())
def test_the_digest_sees_every_change(arrays, data):
    name = data.draw(st.sampled_from(sorted(arrays)))
    raw = to_raw(arrays[name])
    at = data.draw(st.integers(0, len(raw.data) - 1))
    flipped = raw.data[:at] + bytes([raw.data[at] ^ data.draw(st.integers(1, 255))]) + raw.data[at + 1 :]
    other = {**arrays, name: from_raw(name, raw._replace(data=flipped))}
    assert digest(other) != digest(arrays)
    assert digest({**arrays, "d": arrays[name]}) != digest(arrays)
    assert digest({**arrays, name: arrays[name][None]}) != digest(arrays)


SHAPE = st.lists(st.integers(-3, 2**62), max_size=4).map(tuple)
RAWS = st.builds(
    RawArray,
    st.one_of(st.sampled_from([*DTYPES, "O", "object", "float128", "", "V8"]), st.text(max_size=6)),
    SHAPE,
    st.binary(max_size=64),
)


@settings(max_examples=1000, deadline=None)
@given(RAWS)
def test_odd_arrays_are_read_or_refused(raw):
    try:
        array = from_raw("a", raw)
    except InvalidMessage:
        return
    assert array.dtype.name == raw.dtype
    assert array.shape == raw.shape
    assert array.tobytes() == raw.data
    assert array.flags.writeable or not array.size


LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "format": st.one_of(st.just(FORMAT), SCALAR),
        "run": st.one_of(st.just("r1"), SCALAR),
        "kind": st.one_of(st.just("train"), SCALAR),
        "round": st.one_of(st.just(4), st.just(4.0), st.just(True), SCALAR),
        "client": st.one_of(st.just(2), SCALAR),
        "status": st.one_of(st.sampled_from(STATUSES), SCALAR),
    },
)
ANSWER = st.fixed_dictionaries(
    {},
    optional={
        "particles": st.one_of(arrays_of.arrays(np.float32, (2, 3)), ARRAY),
        "eta": st.one_of(arrays_of.arrays(np.float32, (3,)), ARRAY),
        "more": ARRAY,
    },
)


@settings(max_examples=1000, deadline=None)
@given(LIKELY, ANSWER)
def test_odd_replies_are_taken_only_when_they_answer_the_request(head, arrays):
    reply = Envelope(head, arrays)
    try:
        check_reply(REQUEST, reply)
        if head["status"] == OK:
            check_arrays(arrays, EXPECTED)
    except InvalidMessage:
        return
    assert {key: head[key] for key in REQUEST.head} == REQUEST.head
    assert all(type(head[key]) in (int, float, str) for key in REQUEST.head)
    if head["status"] == OK:
        assert shapes_of(arrays) == EXPECTED
        assert all(np.isfinite(array).all() for array in arrays.values())


LISTS = st.one_of(
    *(st.lists(kind, max_size=2) for kind in (st.text(max_size=4), st.binary(max_size=8), st.integers(0, 9)))
)
SMALL = st.fixed_dictionaries(
    {},
    optional={
        FIELDS[0]: st.one_of(st.just(["a"]), LISTS, SCALAR),
        FIELDS[1]: st.one_of(st.just(["float32"]), st.just(["object"]), LISTS, SCALAR),
        FIELDS[2]: st.one_of(st.sampled_from([["2"], ["1,2"], [""], ["-1"], ["9" * 30], ["1,"], ["²"]]), LISTS, SCALAR),
        FIELDS[3]: st.one_of(st.sampled_from([[b"12345678"], [b"1234"]]), LISTS, SCALAR),
    },
)
RECORD = st.one_of(
    st.builds(ConfigRecord, st.dictionaries(st.text(max_size=6), SCALAR, max_size=3)),
    st.builds(ConfigRecord, SMALL),
    st.builds(MetricRecord, st.dictionaries(st.text(max_size=6), st.floats(), max_size=3)),
    st.builds(
        lambda raws: ArrayRecord(
            {k: Array(dtype=r.dtype, shape=r.shape, stype=s, data=r.data) for k, (r, s) in raws.items()}
        ),
        st.dictionaries(
            st.text(max_size=6), st.tuples(RAWS, st.sampled_from([RAW, "numpy.ndarray", "pickle", ""])), max_size=3
        ),
    ),
)


@settings(max_examples=800, deadline=None)
@given(st.dictionaries(st.one_of(st.sampled_from([HEAD, ARRAYS]), st.text(max_size=5)), RECORD, max_size=3))
def test_odd_records_are_read_or_refused(records):
    try:
        envelope = from_record(RecordDict(records))
    except InvalidMessage:
        return
    assert set(records) in ({HEAD}, {HEAD, ARRAYS})
    assert all(array.dtype.name in DTYPES for array in envelope.arrays.values())
    assert not set(FIELDS) & set(envelope.head)


@settings(max_examples=400, deadline=None)
@given(SMALL)
def test_odd_arrays_beside_a_head_are_read_or_refused(values):
    try:
        arrays = from_record(RecordDict({HEAD: ConfigRecord(values)})).arrays
    except InvalidMessage:
        return
    assert [array.tobytes() for array in arrays.values()] == values.get(FIELDS[3], [])


def test_arrays_stand_in_one_place():
    with pytest.raises(InvalidMessage, match="got both"):
        from_record(RecordDict({HEAD: ConfigRecord({FIELDS[0]: ["a"]}), ARRAYS: ArrayRecord()}))


REQUEST_HEAD = st.fixed_dictionaries(
    {},
    optional={
        "format": st.one_of(st.just(FORMAT), SCALAR),
        "kind": st.one_of(st.sampled_from(["hello", "sums", "ask", "train", "evaluate"]), SCALAR),
        "run": st.one_of(st.sampled_from(["r1", "../../etc", "/", ""]), SCALAR),
        "round": SCALAR,
        "client": SCALAR,
        "config": st.one_of(st.just(""), st.just("seed = 1"), st.text(max_size=30), SCALAR),
        "setup": SCALAR,
    },
)


@settings(max_examples=800, deadline=None)
@given(REQUEST_HEAD, ANSWER)
def test_a_node_answers_odd_requests_with_a_reason(tmp_path_factory, head, arrays):
    folder = tmp_path_factory.getbasetemp() / "fuzzed-node"
    reply = handle(Envelope(head, arrays), Node("n", folder, 0))
    assert reply.head["status"] != OK
    assert reply.head["reason"]
    assert not reply.arrays
    assert not folder.exists(), "nothing was written for a request that is none"


def test_what_does_not_travel():
    with pytest.raises(TypeError, match="cannot be sent"):
        to_raw(np.array(["text"]))
    with pytest.raises(InvalidMessage, match="not finite"):
        check_arrays({"a": np.array([math.nan])}, {"a": ((1,), "float64")})
