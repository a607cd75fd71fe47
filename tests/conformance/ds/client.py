"""The Python client of Durable Streams, 0.1.0, against `LEAT_URL`: over threads, and over asyncio.

It is older than the protocol served here. What that means for those who use it, and is not asked of it below:

- it knows no end of a stream: an append to a closed one is a `SeqConflictError`, and following a closed one by
  long-poll asks again at once, for ever (following by events ends);
- it knows no producers;
- it does not decode what a stream of bytes sends as events, which is base64;
- following by events ends with the connection; the caller goes on at `offset`.
"""

import asyncio
import itertools
import os
import sys
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor

from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    DurableStreamError,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    astream,
    stream,
)

WATCHDOG_S = 60
APPENDS = 50

BASE = f"{os.environ['LEAT_URL']}/v1/stream/python-{uuid.uuid4().hex[:12]}"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

STEPS = []


def step(name):
    """Registers a step; they run in the order in which they stand here."""

    def register(body):
        STEPS.append((name, body))
        return body

    return register


def refused(error, act, **expected):
    """The call raises this error with these attributes."""
    try:
        act()
    except error as raised:
        for name, value in expected.items():
            assert getattr(raised, name) == value, f"{name}: {raised!r}"
        return
    raise AssertionError(f"no {error.__name__}")


def following(reads, items, appends):
    """The first items of a live read, while another thread appends what comes after the first of them."""
    seen = [next(reads)]
    thread = threading.Thread(target=appends)
    thread.start()
    seen += itertools.islice(reads, items - 1)
    thread.join()
    return seen


@step("a stream is created, told of, and the same again is no conflict")
def _():
    created = DurableStream.create(f"{BASE}/text", content_type=TEXT, ttl_seconds=3_600)
    assert created.content_type == TEXT
    head = DurableStream.create(f"{BASE}/text", content_type=TEXT, ttl_seconds=3_600).head()
    assert (head.exists, head.content_type, head.offset) == (True, TEXT, "0" * 16), head
    assert head.etag and head.cache_control == "no-store", head


@step("a stream that is there with another type is a conflict")
def _():
    refused(StreamExistsError, lambda: DurableStream.create(f"{BASE}/text", content_type=JSON), status=409)


@step("text is appended and read, whole and from an offset")
def _():
    with DurableStream.connect(f"{BASE}/text") as handle:
        first = handle.append("größer, ")
        second = handle.append("später")
        assert first.next_offset < second.next_offset
    with stream(f"{BASE}/text", live=False) as read:
        assert read.read_text() == "größer, später"
        assert (read.offset, read.up_to_date) == (second.next_offset, True)
    with stream(f"{BASE}/text", offset=first.next_offset, live=False) as read:
        assert read.read_text() == "später"
    with stream(f"{BASE}/text", offset="now", live=False) as read:
        assert read.read_text() == ""


@step("bytes come back as they were")
def _():
    handle = DurableStream.create(f"{BASE}/bytes", body=bytes(range(256)))
    handle.append(b"\x00\xff" * 1_000)
    with handle.stream(live=False) as read:
        assert read.read_bytes() == bytes(range(256)) + b"\x00\xff" * 1_000


@step("JSON comes back value by value, a list being one value")
def _():
    handle = DurableStream.create(f"{BASE}/json", content_type=JSON)
    for value in [{"n": 1}, [2, [3]], "vier", None]:
        handle.append(value)
    with handle.stream(live=False) as read:
        assert list(read.iter_json()) == [{"n": 1}, [2, [3]], "vier", None]
    with handle.stream(live=False) as read:
        (event,) = read.iter_events("json")
        assert (event.data[0], event.next_offset, event.up_to_date) == ({"n": 1}, f"{4:016x}", True)


@step("appends of many threads share requests, and each is there once")
def _():
    handle = DurableStream.create(f"{BASE}/many", content_type=JSON)
    with ThreadPoolExecutor(max_workers=8) as threads:
        results = list(threads.map(lambda n: handle.append({"n": n}), range(APPENDS)))
    assert len({result.next_offset for result in results}) < APPENDS
    with handle.stream(live=False) as read:
        assert sorted(item["n"] for item in read.iter_json()) == list(range(APPENDS))


@step("a sequence that is not above the last one is a conflict")
def _():
    handle = DurableStream.create(f"{BASE}/seq", content_type=TEXT)
    handle.append("a", seq="0001")
    refused(SeqConflictError, lambda: handle.append("b", seq="0001"), status=409)
    handle.append("c", seq="0002")
    with handle.stream(live=False) as read:
        assert read.read_text() == "ac"


@step("a long-poll follows, through answers without news")
def _():
    # For longer than a long-poll waits here, and not at all.
    for live, quiet_s in [("long-poll", 2.3), ("auto", 0)]:
        handle = DurableStream.create(f"{BASE}/polled/{live}", content_type=JSON)
        handle.append(0)

        def appends():
            time.sleep(quiet_s)
            for value in [1, 2]:
                handle.append(value)

        with handle.stream(offset="-1", live=live) as read:
            assert following(read.iter_json(), 3, appends) == [0, 1, 2], live


@step("events follow, JSON and text, from an offset too")
def _():
    handle = DurableStream.create(f"{BASE}/events", content_type=JSON)
    offset = handle.append(0).next_offset

    def appends():
        for value in [[1], {"zwei": 2}]:
            handle.append(value)

    with stream(f"{BASE}/events", offset="-1", live="sse") as read:
        assert following(read.iter_json(), 3, appends) == [0, [1], {"zwei": 2}]
    with stream(f"{BASE}/events", offset=offset, live="sse") as read:
        assert list(itertools.islice(read.iter_json(), 2)) == [[1], {"zwei": 2}]

    text = DurableStream.create(f"{BASE}/lines", content_type=TEXT, body="eins\nzwei")
    with text.stream(offset="-1", live="sse") as read:
        assert following(read.iter_text(), 2, lambda: text.append(" drei")) == ["eins\nzwei", " drei"]


@step("asyncio: creates, appends side by side, follows by events and by long-poll")
def _():
    async def all_of_it():
        async with await AsyncDurableStream.create(f"{BASE}/async", content_type=JSON) as handle:
            await asyncio.gather(*(handle.append({"n": n}) for n in range(APPENDS)))
            for live in ["sse", "long-poll"]:
                seen = []
                async with astream(f"{BASE}/async", offset="-1", live=live) as read:
                    async for item in read.iter_json():
                        seen.append(item)
                        if len(seen) == APPENDS:
                            await handle.append({"last": live})
                        if item == {"last": live}:
                            break
                assert sorted(item["n"] for item in seen[:APPENDS]) == list(range(APPENDS)), live

    asyncio.run(all_of_it())


@step("what is asked for wrongly is refused as such")
def _():
    def read(offset):
        with stream(f"{BASE}/json", offset=offset, live=False) as answer:
            answer.read_json()

    refused(DurableStreamError, lambda: read("nonsense"), status=400, code="BAD_REQUEST")
    refused(DurableStreamError, lambda: read(f"{99:016x}"), status=400, code="BAD_REQUEST")
    wrong = DurableStream(f"{BASE}/json", content_type=JSON)
    refused(DurableStreamError, lambda: wrong.create_stream(ttl_seconds=-1), status=400, code="BAD_REQUEST")


@step("a stream that is deleted is not there for any request")
def _():
    handle = DurableStream.connect(f"{BASE}/text")
    handle.delete()
    for act in [handle.head, handle.delete, lambda: handle.append("x"), handle.stream]:
        refused(StreamNotFoundError, act, status=404)


def main():
    watchdog = threading.Timer(WATCHDOG_S, lambda: os._exit(1))
    watchdog.daemon = True
    watchdog.start()
    for number, (name, body) in enumerate(STEPS, 1):
        try:
            body()
        except Exception:
            print(f"FAILED: {name}", file=sys.stderr)
            traceback.print_exc()
            sys.exit(1)
        print(f"ok {number} {name}", flush=True)
    print(f"{len(STEPS)} steps passed", flush=True)


main()
