"""Python's HTTP server, which reads bodies where its program does, and knows no chunks."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

printing = Lock()


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one piece: else the body waits for the head's acknowledgement.
    wbufsize = 65536

    def __getattr__(self, name):
        # A method is answered by do_METHOD.
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self):
        length = 0
        # As SimpleHTTPRequestHandler: a body of GET or HEAD is nothing to it.
        if self.command not in ("GET", "HEAD"):
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
        line = f"{self.command} {self.path} {self.headers.get('Host', '-')} {length}"
        with printing:
            print(line, flush=True)
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=600" if self.path == "/stored" else "no-store")
        self.send_header("Content-Length", str(len(line)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(line.encode())

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        # Whoever asked has gone.
        pass


server = Server(("127.0.0.1", 0), Origin)
print(server.server_address[1], flush=True)
server.serve_forever()
