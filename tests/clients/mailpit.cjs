// Mailpit's client for JavaScript against our service: over everything with the token, and over one inbox without.
"use strict";

const assert = require("node:assert/strict");
const { MailpitClient } = require("mailpit-api");

async function main() {
  const everything = new MailpitClient(process.env.MAIL_URL, { auth: { username: "any", password: process.env.MAIL_TOKEN } });
  const sent = await everything.sendMessage({
    From: { Email: "shop@x.test", Name: "Shop" },
    To: [{ Email: "pit@night.test", Name: "Pit" }],
    Bcc: ["hidden@night.test"],
    Subject: "Your order",
    Text: "Two pencils.",
    HTML: "<p>Two <b>pencils</b>.</p>",
    Attachments: [{ Content: Buffer.from("one,two").toString("base64"), Filename: "order.csv", ContentType: "text/csv" }],
    Tags: ["orders"],
  });
  assert.ok(sent.ID);
  const inbox = new MailpitClient(`${process.env.MAIL_URL}/inbox/pit@night.test`);
  const list = await inbox.listMessages();
  assert.deepEqual([list.total, list.messages[0].Subject, list.messages[0].Attachments], [1, "Your order", 1]);
  assert.deepEqual(list.messages[0].From, { Name: "Shop", Address: "shop@x.test" });
  assert.deepEqual(list.messages[0].Tags, ["orders"]);
  const message = await inbox.getMessageSummary();
  assert.equal(message.HTML, "<p>Two <b>pencils</b>.</p>");
  assert.equal(message.Text.trim(), "Two pencils.");
  // An inbox is not told who else got the mail; over everything all are shown.
  assert.deepEqual(message.Bcc, []);
  const whole = await everything.listMessages();
  assert.deepEqual([whole.total, whole.messages[0].ID, whole.messages[0].Attachments], [1, message.ID, 1]);
  assert.deepEqual(whole.messages[0].To, [{ Name: "Pit", Address: "pit@night.test" }]);
  assert.deepEqual((await everything.getMessageSummary(message.ID)).Bcc, [{ Name: "", Address: "hidden@night.test" }]);
  const [attachment] = message.Attachments;
  assert.equal(attachment.Checksums.SHA1, require("node:crypto").createHash("sha1").update("one,two").digest("hex"));
  const part = await inbox.getMessageAttachment(message.ID, attachment.PartID);
  assert.equal(await part.text(), "one,two");
  const headers = await inbox.getMessageHeaders(message.ID);
  assert.deepEqual(headers.Subject, ["Your order"]);
  assert.match(await inbox.getMessageSource(message.ID), /^Received: |^From: /m);
  assert.match(await inbox.renderMessageHTML(message.ID), /<b>pencils<\/b>/);
  assert.match(await inbox.renderMessageText(message.ID), /Two pencils/);
  const found = await inbox.searchMessages({ query: "subject:order has:attachment" });
  assert.equal(found.messages_count, 1);
  const awaited = await everything.waitForMessage({ query: "to:hidden" }, { timeout: 10000, interval: 50 });
  assert.equal(awaited.Subject, "Your order");
  assert.equal((await everything.listMessages()).total, 1);
  await inbox.setReadStatus({ IDs: [message.ID], Read: false });
  assert.equal((await inbox.listMessages()).messages[0].Read, false);
  await everything.setTags({ IDs: [message.ID], Tags: ["late"] });
  assert.deepEqual((await inbox.searchMessages({ query: "tag:late" })).messages_count, 1);
  await everything.renameTag("late", "later");
  assert.ok((await everything.getTags()).includes("later"));
  await everything.deleteTag("later");
  const info = await everything.getInfo();
  assert.equal(info.Messages, 1);
  assert.equal((await everything.getConfiguration()).MessageRelay.Enabled, false);
  await assert.rejects(new MailpitClient(process.env.MAIL_URL).listMessages(), /401/);
  await assert.rejects(everything.releaseMessage(message.ID, { To: ["a@b.test"] }), /501/);
  await inbox.deleteMessages({ IDs: [message.ID] });
  assert.equal((await inbox.listMessages()).total, 0);
  // The others' stays, and over everything it goes on by its name.
  const hidden = new MailpitClient(`${process.env.MAIL_URL}/inbox/hidden@night.test`);
  assert.deepEqual((await hidden.listMessages()).messages[0].Bcc, [{ Name: "", Address: "hidden@night.test" }]);
  assert.equal((await everything.getMessageSummary(message.ID)).Subject, "Your order");
  await everything.deleteMessagesBySearch({ query: "subject:order" });
  assert.equal((await everything.listMessages()).total, 0);
  assert.equal((await hidden.listMessages()).total, 0);
  console.log("ok mailpit-api (npm)");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
