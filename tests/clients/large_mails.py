"""Mails of many sizes by smtplib, and back by HTTP: each as it went, told by its digest.

MAIL_SMTP is HOST:PORT, MAIL_URL http://HOST:PORT, MAIL_SIZES bytes with commas between, MAIL_TOO_LARGE one that is refused.
"""

import hashlib
import json
import os
import smtplib
import urllib.request

host, port = os.environ["MAIL_SMTP"].rsplit(":", 1)
url = os.environ["MAIL_URL"]
LINE = b"%010d the night train leaves platform seven, and what it carries comes whole\r\n"


def mail(number, size):
    """About so many bytes, each line another."""
    head = b"From: a@client.test\r\nSubject: large %d\r\n\r\n" % number
    line = len(LINE % 0)
    lines = [LINE % at for at in range((size - len(head)) // line)]
    body = head + b"".join(lines)
    return body + b"x" * (size - len(body) - 2) + b"\r\n"


def get(path):
    with urllib.request.urlopen(url + path) as answer:
        return answer.read()


def sent_part(raw):
    """What follows the server's own field."""
    return raw[raw.index(b"\r\nFrom: ") + 2 :]


sizes = [int(size) for size in os.environ["MAIL_SIZES"].split(",")]
with smtplib.SMTP(host, int(port)) as smtp:
    smtp.ehlo()
    announced = int(smtp.esmtp_features["size"])
    for number, size in enumerate(sizes):
        smtp.sendmail("a@client.test", [f"large{number}@night.test"], mail(number, size))
    try:
        smtp.sendmail("a@client.test", ["large@night.test"], mail(99, int(os.environ["MAIL_TOO_LARGE"])))
        raise SystemExit("too large a mail was taken")
    except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as refused:
        assert refused.smtp_code == 552, refused

for number, size in enumerate(sizes):
    listed = json.loads(get(f"/inbox/large{number}@night.test/api/v1/messages"))
    (one,) = listed["messages"]
    raw = get(f"/inbox/large{number}@night.test/{one['ID']}/raw")
    assert one["Size"] == len(raw), (one["Size"], len(raw))
    wanted = hashlib.sha256(mail(number, size)).hexdigest()
    assert hashlib.sha256(sent_part(raw)).hexdigest() == wanted, size
    assert get(f"/inbox/large{number}@night.test/api/v1/message/{one['ID']}/raw") == raw
    page = get(f"/inbox/large{number}@night.test/{one['ID']}").decode()
    is_cut = "too large to be shown in full" in page
    assert is_cut == (size > 28 << 20), size
    assert f"{LINE % 0}"[2:12] in page, size

print("ok", announced, len(sizes))
