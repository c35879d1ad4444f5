// What nats.js's own tests ask of JetStream, buckets and object stores, in one run: jetstream.mjs URL. Prints each step.
//
// The server of URL need not have JetStream itself: it may be a leaf node of one that has.
import assert from "node:assert/strict";
import { AckPolicy, connect, DeliverPolicy, Empty, RetentionPolicy, StringCodec } from "nats";

const text = StringCodec();
const refused = (promise) => assert.rejects(promise);

// What a stream is asked for first: a leaf node hears of its subjects with it, or a moment later.
async function heard(call) {
  for (let n = 0; n < 100; n++) {
    try {
      return await call();
    } catch (error) {
      if (error.code !== "503") throw error;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
  return call();
}

async function collect(messages, count, each = (message) => message.ack()) {
  const got = [];
  for await (const message of messages) {
    got.push(text.decode(message.data));
    each(message);
    if (got.length === count) break;
  }
  return got;
}

const numbers = (count) => Array.from({ length: count }, (_, n) => String(n));

const steps = {
  async streams({ js, jsm }) {
    const made = await jsm.streams.add({ name: "S", subjects: ["s.>"] });
    assert.equal(made.state.messages, 0);
    const first = await heard(() => js.publish("s.a", text.encode("one"), { msgID: "1" }));
    assert.deepEqual([first.stream, first.seq, first.duplicate], ["S", 1, false]);
    assert.equal((await js.publish("s.a", Empty, { msgID: "1" })).duplicate, true);
    await refused(js.publish("s.a", Empty, { expect: { lastSequence: 7 } }));
    await refused(js.publish("s.a", Empty, { expect: { streamName: "other" } }));
    assert.equal((await js.publish("s.b", text.encode("two"), { expect: { lastSequence: 1 } })).seq, 2);
    assert.equal((await jsm.streams.getMessage("S", { seq: 2 })).string(), "two");
    assert.equal((await jsm.streams.getMessage("S", { last_by_subj: "s.a" })).string(), "one");
    assert.equal(await jsm.streams.find("s.x"), "S");
    await jsm.streams.deleteMessage("S", 1);
    await refused(jsm.streams.getMessage("S", { seq: 1 }));
    const info = await jsm.streams.info("S", { subjects_filter: ">" });
    assert.deepEqual(info.state.subjects, { "s.b": 1 });
    assert.equal((await jsm.streams.purge("S")).purged, 1);
    assert.deepEqual((await jsm.streams.names().next()), ["S"]);
  },

  async pulled({ js, jsm }) {
    for (const n of numbers(100)) await js.publish("s.p", text.encode(n));
    await jsm.consumers.add("S", { durable_name: "p", ack_policy: AckPolicy.Explicit, filter_subject: "s.p", ack_wait: 1e9 });
    const consumer = await js.consumers.get("S", "p");
    assert.deepEqual(await collect(await consumer.fetch({ max_messages: 40 }), 40), numbers(40));
    const more = await consumer.consume({ max_messages: 25 });
    assert.deepEqual(await collect(more, 60), numbers(100).slice(40));
    more.stop();
    assert.equal(await consumer.next({ expires: 1000 }), null);
    await js.publish("s.p", text.encode("again"));
    const once = await consumer.next({ expires: 5000 });
    once.nak();
    const twice = await consumer.next({ expires: 5000 });
    assert.deepEqual([twice.string(), twice.redelivered], ["again", true]);
    assert.equal(await twice.ackAck(), true);
    const left = await consumer.info();
    assert.deepEqual([left.num_pending, left.num_ack_pending], [0, 0]);
    assert.equal(await consumer.delete(), true);
    await refused(jsm.consumers.info("S", "p"));
  },

  async ordered({ js, jsm }) {
    const consumer = await js.consumers.get("S", { filterSubjects: ["s.p"] });
    const messages = await consumer.consume({ max_messages: 30 });
    assert.deepEqual(await collect(messages, 101, () => {}), [...numbers(100), "again"]);
    messages.stop();
    const last = await js.consumers.get("S", { deliver_policy: DeliverPolicy.Last });
    assert.equal((await last.next({ expires: 5000 })).string(), "again");
    await jsm.streams.add({ name: "W", subjects: ["w"], retention: RetentionPolicy.Workqueue });
    await heard(() => js.publish("w", text.encode("job")));
    await jsm.consumers.add("W", { durable_name: "w", ack_policy: AckPolicy.Explicit });
    const worker = await js.consumers.get("W", "w");
    await (await worker.next({ expires: 5000 })).ackAck();
    assert.equal((await jsm.streams.info("W")).state.messages, 0);
    await jsm.streams.delete("W");
  },

  async buckets({ js, jsm }) {
    const kv = await js.views.kv("B", { history: 5 });
    const watch = await kv.watch();
    const one = await heard(() => kv.put("k", text.encode("one")));
    const two = await kv.update("k", text.encode("two"), one);
    await refused(kv.update("k", text.encode("three"), one));
    await refused(kv.create("k", text.encode("four")));
    assert.deepEqual([(await kv.get("k")).string(), (await kv.get("k")).revision], ["two", two]);
    await kv.create("other.key", text.encode("5"));
    await kv.delete("k");
    assert.equal((await kv.get("k")).operation, "DEL");
    assert.equal(await kv.get("never"), null);
    const keys = [];
    for await (const key of await kv.keys()) keys.push(key);
    assert.deepEqual(keys, ["other.key"]);
    const seen = [];
    for await (const entry of watch) if (seen.push(entry.key) === 4) break;
    assert.deepEqual(seen, ["k", "k", "other.key", "k"]);
    assert.equal((await kv.status()).values, 4);
    assert.equal(await kv.destroy(), true);
  },

  async objects({ js }) {
    const store = await js.views.os("O");
    const content = new Uint8Array(500_000).map((_, at) => at % 251);
    const info = await heard(() => store.putBlob({ name: "large" }, content));
    assert.deepEqual([info.size, info.chunks], [500_000, 4]);
    assert.deepEqual(await store.getBlob("large"), content);
    assert.deepEqual((await store.list()).map(({ name }) => name), ["large"]);
    await store.delete("large");
    assert.equal(await store.getBlob("large"), null);
    assert.equal(await store.destroy(), true);
  },
};

const nc = await connect({ servers: process.argv[2], timeout: 20_000 });
const [js, jsm] = [nc.jetstream({ timeout: 20_000 }), await nc.jetstreamManager({ timeout: 20_000 })];
assert.equal((await jsm.getAccountInfo()).streams, 0);
for (const [name, step] of Object.entries(steps)) {
  await step({ js, jsm });
  console.log(name);
}
assert.equal(await jsm.streams.delete("S"), true);
await nc.close();
console.log("ok");
