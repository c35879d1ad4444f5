"""nats-py against a server: python client.py URL SCENARIO (see ../README.md)."""
import asyncio, os, ssl, sys
import nats
from nats.errors import NoRespondersError

SECONDS = 20


def options():
    given = {"connect_timeout": SECONDS, "allow_reconnect": False}
    for name, key in [("FEED_USER", "user"), ("FEED_PASSWORD", "password"), ("FEED_TOKEN", "token")]:
        if name in os.environ:
            given[key] = os.environ[name]
    if "FEED_SEED" in os.environ:
        given["nkeys_seed_str"] = os.environ["FEED_SEED"]
    if "FEED_CA" in os.environ:
        given["tls"] = ssl.create_default_context(cafile=os.environ["FEED_CA"])
    return given


async def basics(url):
    client, other = await nats.connect(url, **options()), await nats.connect(url, **options())
    # Order, by one's own subscription and by a wildcard.
    one, all_below = await client.subscribe("a.b"), await client.subscribe("a.>")
    await client.flush()
    for n in range(1000):
        await other.publish("a.b", str(n).encode())
    for subscription in (one, all_below):
        for n in range(1000):
            message = await subscription.next_msg(SECONDS)
            assert message.data == str(n).encode() and message.subject == "a.b", (n, message)
    # No more than so many.
    few = []

    async def count_few(message):
        few.append(message.data)
    subscription = await client.subscribe("few", cb=count_few)
    await subscription.unsubscribe(limit=2)
    await client.flush()
    for n in range(5):
        await other.publish("few", str(n).encode())
    await other.flush()
    await client.flush()
    await asyncio.sleep(0.1)
    assert few == [b"0", b"1"], few
    # Each message to one member of the group.
    seen = [0, 0]

    def member(n):
        async def count(_):
            seen[n] += 1
        return count

    for n, connection in enumerate((client, other)):
        await connection.subscribe("work", queue="workers", cb=member(n))
        await connection.flush()
    for _ in range(400):
        await client.publish("work", b"x")
    await client.flush()
    for _ in range(SECONDS * 20):
        if sum(seen) == 400:
            break
        await asyncio.sleep(0.05)
    assert sum(seen) == 400 and min(seen) > 40, seen
    # Request and reply, with headers both ways.
    async def answer(message):
        await other.publish(message.reply, message.data.upper(), headers={"Seen": message.headers["Ask"]})
    await other.subscribe("ask", cb=answer)
    await other.flush()
    reply = await client.request("ask", b"word", timeout=SECONDS, headers={"Ask": "why: so"})
    assert reply.data == b"WORD" and reply.headers["Seen"] == "why: so", reply
    try:
        await client.request("nobody", b"", timeout=SECONDS)
        raise AssertionError("somebody answered")
    except NoRespondersError:
        pass
    # What was taken is dealt with before a drained connection closes.
    dealt = []

    async def slowly(message):
        await asyncio.sleep(0.002)
        dealt.append(message.data)
    await other.subscribe("last", cb=slowly)
    await other.flush()
    for n in range(50):
        await client.publish("last", str(n).encode())
    await client.flush()
    await other.flush()
    await other.drain()
    assert dealt == [str(n).encode() for n in range(50)], len(dealt)
    await client.close()


async def let_in(url):
    client = await nats.connect(url, **options())
    subscription = await client.subscribe("echo")
    await client.publish("echo", b"x")
    assert (await subscription.next_msg(SECONDS)).data == b"x"
    await client.close()


async def turned_away(url):
    try:
        await nats.connect(url, max_reconnect_attempts=1, **options())
    except Exception as error:  # the library wraps it differently from version to version
        assert "uthorization" in str(error) or "no servers" in str(error).lower(), error
        return
    raise AssertionError("was let in")


async def denied(url):
    told = asyncio.get_running_loop().create_future()

    async def on_error(error):
        if not told.done():
            told.set_result(str(error))
    client = await nats.connect(url, error_cb=on_error, **options())
    subscription = await client.subscribe("open.x")
    await client.publish("closed", b"x")
    assert "permissions violation" in (await asyncio.wait_for(told, SECONDS)).lower()
    await client.publish("open.x", b"x")
    await subscription.next_msg(SECONDS)
    await client.close()


async def reconnect(url):
    back = asyncio.Event()

    async def on_back():
        back.set()
    given = options() | {"allow_reconnect": True, "reconnect_time_wait": 0.05, "max_reconnect_attempts": -1}
    client = await nats.connect(url, reconnected_cb=on_back, **given)
    subscription = await client.subscribe("again")
    await client.flush()
    print("ready", flush=True)
    await asyncio.wait_for(back.wait(), SECONDS)
    await client.publish("again", b"x")
    assert (await subscription.next_msg(SECONDS)).data == b"x"
    await client.close()


url, scenario = sys.argv[1:3]
asyncio.run(asyncio.wait_for(globals()[scenario.replace("-", "_")](url), 3 * SECONDS))
print("ok")
