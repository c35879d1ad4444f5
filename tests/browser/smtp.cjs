// Hands a mail to the service by SMTP, at MAIL_SMTP.
"use strict";

const net = require("node:net");

/** Sends `mail` to one address or several; its lines may end as they like. */
function send(to, mail) {
  const [host, port] = process.env.MAIL_SMTP.split(":");
  const recipients = [to].flat().map((address) => `RCPT TO:<${address}>`);
  const lines = ["EHLO test", "MAIL FROM:<test@sender.test>", ...recipients, "DATA", null, "QUIT"];
  const data = mail.replace(/\r?\n/g, "\r\n").replace(/^\./gm, "..") + "\r\n.\r\n";
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), host);
    let heard = "";
    socket.setEncoding("utf8");
    socket.on("error", reject);
    socket.on("data", (text) => {
      heard += text;
      const end = heard.match(/^(\d)\d\d(?: .*)?\r\n$/m);
      if (!end || !heard.endsWith("\r\n") || /^\d{3}-[^\n]*\n$/.test(heard.split("\r\n").slice(-2).join("\r\n"))) return;
      if (!["2", "3"].includes(end[1])) return reject(new Error(heard));
      heard = "";
      if (lines.length === 0) return resolve();
      const line = lines.shift();
      socket.write(line === null ? data : `${line}\r\n`);
    });
    socket.on("close", resolve);
  });
}

module.exports = { send };
