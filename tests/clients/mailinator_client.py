"""Mailinator's own client for Python against our service. MAIL_URL says where it is, MAIL_TOKEN what its token is."""

import os
import smtplib
from email.message import EmailMessage

from mailinator import (
    DeleteInboxMessagesRequest,
    DeleteMessageRequest,
    GetInboxMessageAttachmentRequest,
    GetInboxMessageAttachmentsRequest,
    GetInboxMessageRequest,
    GetInboxRequest,
    GetMessageAttachmentRequest,
    GetMessageAttachmentsRequest,
    GetMessageHeadersRequest,
    GetMessageLinksRequest,
    GetMessageRawRequest,
    GetMessageRequest,
    GetMessageSmtpLogRequest,
    GetMessageTextPlainRequest,
    ListDomainMessagesRequest,
    Mailinator,
    PostMessage,
    PostMessageRequest,
)
from mailinator.base import RequestData

# The client knows one server; every request takes its address from here.
RequestData._base_url = os.environ["MAIL_URL"] + "/api/v2"

client = Mailinator(os.environ["MAIL_TOKEN"])
ask = client.request

ask(PostMessageRequest("public", "py", PostMessage(**{"from": "Shop", "subject": "Your code", "text": "It is 493021: https://shop.test/c"})))
inbox = ask(GetInboxRequest("public", "py"))
assert (inbox.domain, inbox.to, len(inbox.msgs)) == ("night.test", "py", 1), inbox
entry = inbox.msgs[0]
assert entry.subject == "Your code" and entry.seconds_ago >= 0
for request in (GetMessageRequest("public", entry.id), GetInboxMessageRequest("public", "py", entry.id)):
    message = ask(request)
    assert "493021" in message.parts[0].body, message
    assert message.headers["subject"] == "Your code"
assert ask(GetMessageLinksRequest("public", entry.id)).links == ["https://shop.test/c"]
assert ask(GetMessageAttachmentsRequest("public", entry.id)).attachments == []
# As text, which the client hands on as it came.
raw = ask(GetMessageRawRequest("public", entry.id))
assert raw.text.startswith("Received: ") and "493021" in raw.text, raw
assert ask(GetMessageSmtpLogRequest("public", entry.id)).smtp_logs
assert ask(GetMessageHeadersRequest("public", entry.id)).headers["subject"] == "Your code"
assert "493021" in ask(GetMessageTextPlainRequest("public", entry.id)).text_plain
assert len(ask(ListDomainMessagesRequest("public")).msgs) == 1
assert ask(DeleteMessageRequest("public", "py", entry.id))["count"] == 1
assert ask(DeleteInboxMessagesRequest("public", "py"))["status"] == "ok"
assert ask(GetInboxRequest("public", "py", wait="1s")).msgs == []
mail = EmailMessage()
mail["From"], mail["To"], mail["Subject"] = "shop@x.test", "py@night.test", "Your order"
mail.set_content("see the list")
mail.add_attachment("one,two\n", subtype="csv", filename="order 7.csv")
with smtplib.SMTP(*os.environ["MAIL_SMTP"].rsplit(":", 1)) as server:
    server.send_message(mail)
entry = ask(GetInboxRequest("public", "py", wait="10s")).msgs[0]
attachment = ask(GetInboxMessageAttachmentsRequest("public", "py", entry.id)).attachments[0]
assert (attachment.filename, attachment.content_type) == ("order 7.csv", "text/csv"), attachment
for called in (attachment.attachment_id, attachment.filename):
    for request in (
        GetMessageAttachmentRequest("public", entry.id, called),
        GetInboxMessageAttachmentRequest("public", "py", entry.id, called),
    ):
        assert ask(request).text.strip() == "one,two", called
print("ok mailinator (PyPI)")
