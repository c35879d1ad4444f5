// Mailinator's own client for JavaScript against our service. MAIL_URL says where it is, MAIL_TOKEN what its token is.
"use strict";

const assert = require("node:assert/strict");
const mailinator = require("mailinator-client");
// The client knows one server. Its HTTP clients are shared by all its requests, so the address is changed there.
for (const name of ["MailinatorRestClient", "MailinatorHttpClient"]) {
  const shared = require(`mailinator-client/lib/${name}`).default;
  const http = shared.client ?? shared;
  const request = http.request.bind(http);
  http.request = (verb, url, ...rest) =>
    request(verb, url.replace("https://api.mailinator.com", process.env.MAIL_URL), ...rest);
}

async function main() {
  const client = new mailinator.MailinatorClient(process.env.MAIL_TOKEN);
  const ask = async (request) => {
    const answer = await client.request(request);
    assert.equal(answer.statusCode ?? 200, 200);
    return answer.result ?? answer;
  };
  const posted = await ask(
    new mailinator.PostMessageRequest("public", "js", new mailinator.MessageToPost("Your code", "Shop", "It is 493021: https://shop.test/c")),
  );
  assert.equal(posted.status, "ok");
  const inbox = await ask(new mailinator.GetInboxRequest("public", "js", 0, 10, "descending", true));
  assert.deepEqual([inbox.domain, inbox.to, inbox.msgs.length], ["night.test", "js", 1]);
  const [entry] = inbox.msgs;
  assert.deepEqual([entry.id, entry.subject], [posted.id, "Your code"]);
  assert.ok(entry.seconds_ago >= 0 && entry.time > 1.7e12);
  const message = await ask(new mailinator.GetMessageRequest("public", entry.id));
  assert.match(message.parts[0].body, /493021/);
  assert.equal(message.headers.subject, "Your code");
  const links = await ask(new mailinator.GetMessageLinksRequest("public", entry.id));
  assert.deepEqual(links.links, ["https://shop.test/c"]);
  const full = await ask(new mailinator.GetMessageLinksFullRequest("public", entry.id));
  assert.equal(full.links[0].link, "https://shop.test/c");
  const attachments = await ask(new mailinator.GetMessageAttachmentsRequest("public", entry.id));
  assert.deepEqual(attachments.attachments, []);
  const log = await ask(new mailinator.GetMessageSmtpLogRequest("public", entry.id));
  assert.ok(log.log.length > 0);
  const summary = await ask(new mailinator.GetMessageSummaryRequest("public", entry.id));
  assert.equal(summary.summary.subject, "Your code");
  const text = await ask(new mailinator.GetMessageTextRequest("public", entry.id));
  assert.match(text.text, /493021/);
  const headers = await ask(new mailinator.GetMessageHeadersRequest("public", entry.id));
  assert.equal(headers.headers.subject, "Your code");
  const raw = await ask(new mailinator.GetMessageRawRequest("public", entry.id));
  assert.match(JSON.stringify(raw), /493021/);
  const latest = await ask(new mailinator.GetLatestInboxMessagesRequest("public", "js"));
  assert.equal(latest.msgs[0].id, entry.id);
  const all = await ask(new mailinator.GetInboxRequest("public", "j*"));
  assert.equal(all.msgs.length, 1);
  const gone = await ask(new mailinator.DeleteMessageRequest("public", "js", entry.id));
  assert.deepEqual([gone.status, gone.count], ["ok", 1]);
  const waited = ask(new mailinator.GetInboxRequest("public", "js", 0, 10, "descending", true, undefined, undefined, undefined, "20s"));
  await ask(new mailinator.PostMessageRequest("public", "js", new mailinator.MessageToPost("Late", "Shop", "x")));
  assert.equal((await waited).msgs[0].subject, "Late");
  const emptied = await ask(new mailinator.DeleteInboxMessagesRequest("public", "js"));
  assert.equal(emptied.count, 1);
  console.log("ok mailinator-client (npm)");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
