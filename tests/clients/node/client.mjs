// The nats package (TCP) or nats.ws over the ws package (URLs of ws and wss) against a server:
// node client.mjs URL SCENARIO (see ../README.md).
import { readFileSync } from 'node:fs';
import { strict as assert } from 'node:assert';
import { createRequire } from 'node:module';
import * as tcp from 'nats';

const require = createRequire(import.meta.url);
const [url, scenario] = process.argv.slice(2);
const web = url.startsWith('ws');
const env = process.env;
const MS = 20000;

if (web) {
  const { WebSocket } = require('ws');
  const ca = env.FEED_CA && readFileSync(env.FEED_CA);
  globalThis.WebSocket = class extends WebSocket {
    constructor(address, protocols) { super(address, protocols, ca ? { ca } : {}); }
  };
}
const library = web ? require('nats.ws') : tcp;
const { headers, nkeyAuthenticator, StringCodec } = library;
const text = StringCodec();

function options(more = {}) {
  const given = { servers: url, timeout: MS, reconnect: false, ...more };
  if (env.FEED_USER) Object.assign(given, { user: env.FEED_USER, pass: env.FEED_PASSWORD });
  if (env.FEED_TOKEN) given.token = env.FEED_TOKEN;
  if (env.FEED_SEED) given.authenticator = nkeyAuthenticator(new TextEncoder().encode(env.FEED_SEED));
  if (env.FEED_CA && !web) given.tls = { caFile: env.FEED_CA };
  return given;
}
const connect = (more) => library.connect(options(more));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function take(subscription, count) {
  const taken = [];
  for await (const message of subscription) {
    taken.push(message);
    if (taken.length === count) break;
  }
  return taken;
}

const scenarios = {
  async basics() {
    const client = await connect(), other = await connect();
    const taking = ['a.b', 'a.>'].map((subject) => take(client.subscribe(subject), 1000));
    await client.flush();
    for (let n = 0; n < 1000; n++) other.publish('a.b', text.encode(String(n)));
    for (const messages of await Promise.all(taking)) {
      messages.forEach((message, n) => assert.equal(text.decode(message.data), String(n)));
    }
    const few = take(client.subscribe('few', { max: 2 }), 3);
    await client.flush();
    for (let n = 0; n < 5; n++) other.publish('few');
    await other.flush();
    assert.equal((await few).length, 2);
    const seen = [0, 0];
    [client, other].forEach((connection, n) => {
      connection.subscribe('work', { queue: 'workers', callback: () => { seen[n] += 1; } });
    });
    await Promise.all([client.flush(), other.flush()]);
    for (let n = 0; n < 400; n++) client.publish('work');
    await client.flush();
    for (let n = 0; n < 400 && seen[0] + seen[1] < 400; n++) await pause(50);
    assert.equal(seen[0] + seen[1], 400);
    assert.ok(Math.min(...seen) > 40, String(seen));
    other.subscribe('ask', { callback: (_, message) => {
      const said = headers();
      said.set('Seen', message.headers.get('Ask'));
      message.respond(text.encode(text.decode(message.data).toUpperCase()), { headers: said });
    } });
    await other.flush();
    const asked = headers();
    asked.set('Ask', 'why: so');
    const reply = await client.request('ask', text.encode('word'), { timeout: MS, headers: asked });
    assert.equal(text.decode(reply.data), 'WORD');
    assert.equal(reply.headers.get('Seen'), 'why: so');
    await assert.rejects(client.request('nobody', text.encode(''), { timeout: MS }), { code: '503' });
    const dealt = [];
    const last = (async () => {
      for await (const message of other.subscribe('last')) {
        await pause(1);
        dealt.push(text.decode(message.data));
      }
    })();
    await other.flush();
    for (let n = 0; n < 50; n++) client.publish('last', text.encode(String(n)));
    await client.flush();
    await other.flush();
    await other.drain();
    await last;
    assert.deepEqual(dealt, Array.from({ length: 50 }, (_, n) => String(n)));
    await client.close();
  },
  async 'let-in'() {
    const client = await connect();
    const echo = take(client.subscribe('echo'), 1);
    client.publish('echo');
    await echo;
    await client.close();
  },
  async 'turned-away'() {
    await assert.rejects(connect(), { code: 'AUTHORIZATION_VIOLATION' });
  },
  async denied() {
    const client = await connect();
    const told = (async () => {
      for await (const status of client.status()) {
        if (/PERMISSIONS_VIOLATION/i.test(String(status.data))) return;
      }
    })();
    const open = take(client.subscribe('open.x'), 1);
    client.publish('closed');
    await told;
    client.publish('open.x');
    await open;
    await client.close();
  },
  async reconnect() {
    const client = await connect({ reconnect: true, reconnectTimeWait: 50, maxReconnectAttempts: -1 });
    const again = take(client.subscribe('again'), 1);
    await client.flush();
    const back = (async () => {
      for await (const status of client.status()) if (status.type === 'reconnect') return;
    })();
    console.log('ready');
    await back;
    client.publish('again');
    await again;
    await client.close();
  },
};

const late = setTimeout(() => { console.error('not done in time'); process.exit(1); }, 3 * MS);
try {
  await scenarios[scenario]();
  console.log('ok');
  clearTimeout(late);
  process.exit(0);
} catch (error) {
  console.error(error);
  process.exit(1);
}
