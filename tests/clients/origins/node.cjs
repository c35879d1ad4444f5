// Node's HTTP server; with `lax`, its parser takes what it otherwise refuses.
const http = require("node:http");

const lax = process.argv[2] === "lax";
const server = http.createServer({ insecureHTTPParser: lax }, (request, response) => {
  let bytes = 0;
  request.on("data", (piece) => (bytes += piece.length));
  request.on("end", () => {
    const line = `${request.method} ${request.url} ${request.headers.host ?? "-"} ${bytes}`;
    console.log(line);
    response.setHeader("Cache-Control", request.url === "/stored" ? "max-age=600" : "no-store");
    response.end(line);
  });
});
server.keepAliveTimeout = 600_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
