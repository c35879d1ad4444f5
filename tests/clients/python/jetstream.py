"""What nats-py's own tests ask of JetStream, buckets and object stores, in one run: jetstream.py URL. Prints each step.

The server of URL need not have JetStream itself: it may be a leaf node of one that has."""

import asyncio
import sys

import nats
from nats.errors import TimeoutError as NoMessage
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import (
    APIError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    NotFoundError,
    ObjectNotFoundError,
)


async def refused(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def heard(call):
    """What a stream is asked for first: a leaf node hears of its subjects with it, or a moment later."""
    for _ in range(100):
        try:
            return await call()
        except NoStreamResponseError:
            await asyncio.sleep(0.05)
    return await call()


async def streams(js):
    info = await js.add_stream(name="S", subjects=["s.>"], max_msgs=1000)
    assert info.config.name == "S" and info.state.messages == 0
    again = await js.add_stream(name="S", subjects=["s.>"], max_msgs=1000)
    assert again.created == info.created, "the same once more is no other"
    assert await js.find_stream_name_by_subject("s.a") == "S"
    first = await heard(lambda: js.publish("s.a", b"one", headers={"Nats-Msg-Id": "1"}))
    assert (first.stream, first.seq, first.duplicate) == ("S", 1, None)
    twice = await js.publish("s.a", b"one", headers={"Nats-Msg-Id": "1"})
    assert (twice.seq, twice.duplicate) == (1, True)
    await refused(APIError, js.publish("s.a", b"x", headers={"Nats-Expected-Last-Sequence": "7"}))
    await refused(APIError, js.publish("s.a", b"x", stream="other"))
    second = await js.publish("s.b", b"two", headers={"Nats-Expected-Last-Sequence": "1", "X-Own": "kept"})
    assert second.seq == 2
    stored = await js.get_msg("S", 2)
    assert (stored.subject, stored.data, stored.headers["X-Own"]) == ("s.b", b"two", "kept")
    assert (await js.get_last_msg("S", "s.a")).data == b"one"
    for n in range(50):
        await js.publish_async("s.many", str(n).encode())
    await js.publish_async_completed()
    assert (await js.stream_info("S")).state.messages == 52
    assert await js.delete_msg("S", 1)
    await refused(NotFoundError, js.get_msg("S", 1))
    changed = await js.update_stream(name="S", subjects=["s.>", "t.>"], max_msgs=2000)
    assert changed.config.max_msgs == 2000
    assert (await heard(lambda: js.publish("t.a", b"t"))).seq == 53
    await js.purge_stream("S", subject="s.many")
    assert (await js.stream_info("S")).state.messages == 2
    assert [info.config.name for info in await js.streams_info()] == ["S"]
    await js.purge_stream("S")
    assert (await js.stream_info("S")).state.messages == 0


async def pulled(js):
    for n in range(20):
        await js.publish("s.p", str(n).encode())
    wanted = ConsumerConfig(ack_wait=1, max_deliver=3, ack_policy=AckPolicy.EXPLICIT)
    sub = await js.pull_subscribe("s.p", "puller", config=wanted)
    first = await sub.fetch(5, timeout=5)
    assert [message.data for message in first] == [str(n).encode() for n in range(5)]
    assert [message.metadata.sequence.consumer for message in first] == [1, 2, 3, 4, 5]
    await asyncio.gather(*(message.ack() for message in first[:3]))
    await first[3].nak()
    await first[4].term()
    rest = []
    while len(rest) < 16:
        rest += await sub.fetch(16 - len(rest), timeout=5)
    again = next(message for message in rest if message.data == b"3")
    assert again.metadata.num_delivered == 2
    slow = rest[-1] if rest[-1] is not again else rest[-2]
    for message in rest:
        if message is not slow:
            await message.ack_sync()
    # It is worked on for longer than it may wait.
    for _ in range(4):
        await asyncio.sleep(0.4)
        await slow.in_progress()
    await slow.ack_sync()
    await refused(NoMessage, sub.fetch(1, timeout=0.3))
    info = await sub.consumer_info()
    assert (info.num_pending, info.num_ack_pending) == (0, 0)
    # Who waits gets what comes.
    waiting = asyncio.ensure_future(sub.fetch(1, timeout=5))
    await asyncio.sleep(0.2)
    await js.publish("s.p", b"late")
    late = (await waiting)[0]
    assert late.data == b"late"
    await late.ack_sync()
    # Not acknowledged, it comes again.
    await js.publish("s.p", b"twice")
    assert (await sub.fetch(1, timeout=5))[0].metadata.num_delivered == 1
    more = (await sub.fetch(1, timeout=5))[0]
    assert (more.data, more.metadata.num_delivered) == (b"twice", 2)
    await more.ack_sync()
    names = [info.name for info in await js.consumers_info("S")]
    assert names == ["puller"], names
    await sub.unsubscribe()
    assert await js.delete_consumer("S", "puller")
    await refused(NotFoundError, js.consumer_info("S", "puller"))


async def pushed(js):
    got = []

    async def keep(message):
        got.append(message.data)
        await message.ack()

    first = await js.subscribe("s.q", queue="workers", durable="workers", cb=keep, manual_ack=True)
    second = await js.subscribe("s.q", queue="workers", durable="workers", cb=keep, manual_ack=True)
    for n in range(40):
        await js.publish("s.q", str(n).encode())
    for _ in range(100):
        if len(got) == 40:
            break
        await asyncio.sleep(0.05)
    assert sorted(got, key=int) == [str(n).encode() for n in range(40)], len(got)
    await first.unsubscribe()
    await second.unsubscribe()
    # Many and large, paced by flow control, with heartbeats, in order.
    large = b"x" * 8000
    for n in range(400):
        await js.publish_async("s.f", str(n).encode() + large)
    await js.publish_async_completed()
    paced = await js.subscribe("s.f", config=ConsumerConfig(flow_control=True, idle_heartbeat=0.5))
    for n in range(400):
        message = await paced.next_msg(timeout=5)
        assert message.data == str(n).encode() + large
        await message.ack()
    await paced.unsubscribe()
    ordered = await js.subscribe("s.f", ordered_consumer=True)
    for n in range(400):
        assert (await ordered.next_msg(timeout=5)).data.startswith(str(n).encode())
    await ordered.unsubscribe()
    last = await js.subscribe("s.>", deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)
    seen = {(await last.next_msg(timeout=5)).subject for _ in range(3)}
    assert seen == {"s.p", "s.q", "s.f"}, seen
    await last.unsubscribe()
    queue = await js.add_stream(StreamConfig(name="W", subjects=["w"], retention=RetentionPolicy.WORK_QUEUE))
    assert queue.config.retention == RetentionPolicy.WORK_QUEUE
    await heard(lambda: js.publish("w", b"job"))
    worker = await js.pull_subscribe("w", "w")
    await (await worker.fetch(1, timeout=5))[0].ack_sync()
    assert (await js.stream_info("W")).state.messages == 0, "done is gone"
    assert await js.delete_stream("W")


async def buckets(js):
    await refused(BucketNotFoundError, js.key_value("none"))
    kv = await js.create_key_value(bucket="B", history=5)
    watcher = await kv.watchall()
    assert await watcher.updates(timeout=5) is None, "nothing is there yet"
    one = await heard(lambda: kv.put("k", b"one"))
    two = await kv.update("k", b"two", last=one)
    await refused(KeyWrongLastSequenceError, kv.update("k", b"three", last=one))
    await refused(KeyWrongLastSequenceError, kv.create("k", b"four"))
    entry = await kv.get("k")
    assert (entry.value, entry.revision, two) == (b"two", two, one + 1)
    assert (await kv.get("k", revision=one)).value == b"one"
    await kv.create("other.key", b"5")
    await kv.delete("k")
    await refused(KeyNotFoundError, kv.get("k"))
    await refused(KeyNotFoundError, kv.get("never"))
    assert await kv.keys() == ["other.key"]
    assert [each.value for each in await kv.history("k")][:2] == [b"one", b"two"]
    seen = [await watcher.updates(timeout=5) for _ in range(4)]
    assert [each.key for each in seen] == ["k", "k", "other.key", "k"]
    await watcher.stop()
    await kv.purge("k")
    assert len(await kv.history("k")) == 1
    assert (await kv.status()).values == 2
    assert await js.delete_key_value("B")


async def objects(js):
    store = await js.create_object_store("O")
    content = bytes(range(256)) * 2000
    info = await heard(lambda: store.put("large", content))
    assert (info.name, info.size, info.chunks) == ("large", len(content), 4)
    found = await store.get("large")
    assert found.data == content
    await store.put("small", b"s")
    assert sorted(each.name for each in await store.list()) == ["large", "small"]
    await store.delete("small")
    await refused(ObjectNotFoundError, store.get("small"))
    assert await js.delete_object_store("O")


async def main(url):
    nc = await nats.connect(url, connect_timeout=20)
    js = nc.jetstream(timeout=20)
    account = await js.account_info()
    assert account.streams == 0
    for step in [streams, pulled, pushed, buckets, objects]:
        await step(js)
        print(step.__name__, flush=True)
    assert await js.delete_stream("S")
    assert await js.streams_info() == []
    await nc.close()
    print("ok")


asyncio.run(main(sys.argv[1]))
