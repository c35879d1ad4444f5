#!/bin/sh
# What a purge by tag costs among many objects, and what a ban costs hits that it does not hold of:
#     sh bench/invalidation.sh PROGRAM [OBJECTS] [TAGS] [ROUNDS]
# Prints the server's processor time for a purge of a tag, each tag once, beside that of a question to the same port that
# does nothing; whether each purge held at once, for what it names and nothing else; what is known of an object, in bytes; and
# the processor time of a hit without bans and with one that stays, in turns, and of a hit on a page with 500 tags, 16 KiB of
# them, beside one without. Needs nginx (the origin), wrk, python3.
set -eu
program=${1:?the program: target/dist/nighttrain}
objects=${2:-1000000}
tags=${3:-1000}
rounds=${4:-9}
directory=$(mktemp -d)
chmod 755 "$directory"
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || :; done; rm -rf "$directory"' EXIT INT TERM

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$directory/nginx.conf" <<END
daemon off;
worker_processes 1;
pid $directory/nginx.pid;
error_log $directory/error.log crit;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 1000000000;
    server {
        listen 127.0.0.1:$port backlog=1024;
        location ~ ^/tagged/(?<tag>\d+)/ {
            add_header Cache-Control "max-age=86400";
            add_header Surrogate-Key "everything-of-\$tag";
            return 200 "a page of two hundred bytes, as many as a small answer of an interface has: a name, a number, a price, what is left of it, when it came, and where from; nothing else is to be said of it here, so it ends.";
        }
        location /plain/ {
            add_header Cache-Control "max-age=86400";
            add_header X-Kind "article";
            return 200 "a page";
        }
    }
}
END
nginx -c "$directory/nginx.conf" -p "$directory" -e "$directory/error.log" &
pids="$pids $!"

# One that holds the objects, and two that answer hits: the second has a ban.
for name in full bare banned; do
	"$program" cache --origin "http://127.0.0.1:$port" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --memory 1GiB \
		>"$directory/$name" 2>&1 &
	pids="$pids $!"
	echo $! >"$directory/$name.pid"
	until grep -qs '^admin:' "$directory/$name"; do sleep 0.1; done
done

cat >"$directory/measure.py" <<'END'
import http.client, http.server, os, re, socket, statistics, subprocess, sys, threading, time, urllib.parse
directory, objects, tags, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
TICK = os.sysconf("SC_CLK_TCK")

class Server:
    def __init__(self, name):
        said = open(f"{directory}/{name}").read()
        self.pid = int(open(f"{directory}/{name}.pid").read())
        self.port = int(re.search(r"^cache: listening on http://127\.0\.0\.1:(\d+)", said, re.M)[1])
        self.admin = int(re.search(r"^admin: listening on http://127\.0\.0\.1:(\d+)", said, re.M)[1])
    def cpu_s(self):
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK
    def ask_admin(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        assert answer.status == 200, (path, answer.status, body)
        connection.close()
        return body
    def metric(self, name):
        return next(float(line.split()[-1]) for line in self.ask_admin("GET", "/metrics").splitlines() if line.startswith(name + " "))
    def is_hit(self, connection, path):
        connection.request("GET", path, headers={"Host": "a.example"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        return "hit" in answer.getheader("Cache-Status")

full, bare, banned = Server("full"), Server("bare"), Server("banned")

def fill(numbers):
    with socket.create_connection(("127.0.0.1", full.port)) as client:
        heard = b""
        for at in range(0, len(numbers), 64):
            some = numbers[at:at + 64]
            client.sendall(b"".join(b"GET /tagged/%d/%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % (n % tags, n) for n in some))
            left = len(some)
            while left:
                heard = heard[-16:] + client.recv(1 << 16)
                left -= heard.count(b"so it ends.")
                heard = heard[heard.rfind(b"so it ends.") + 1:]
begun = time.time()
fillers = [threading.Thread(target=fill, args=(range(first, objects, 8),)) for first in range(8)]
for filler in fillers: filler.start()
for filler in fillers: filler.join()
held = full.metric("store_objects")
known = full.metric("store_index_bytes") + 8 * full.metric("store_expiry_entries")
print(f"{held:.0f} objects under {tags} tags, filled in {time.time() - begun:.0f} s; index and expiry queue {known / held:.1f} bytes an object")

def cost_us(times, ask):
    before = full.cpu_s()
    for number in range(times): ask(number)
    return (full.cpu_s() - before) / times * 1e6
nothing = cost_us(tags, lambda tag: full.ask_admin("GET", "/healthz"))
purge = cost_us(tags // 2, lambda tag: full.ask_admin("POST", f"/purge?tag=everything-of-{tag}"))
print(f"a purge of a tag: {purge:.0f} us of processor time in all threads; the same question for nothing: {nothing:.0f} us")
connection = http.client.HTTPConnection("127.0.0.1", full.port)
wrong = 0
for tag in range(tags // 2, tags):
    path = f"/tagged/{tag}/{objects - tags + tag}"
    wrong += not full.is_hit(connection, path)
    full.ask_admin("POST", f"/purge?tag=everything-of-{tag}")
    wrong += full.is_hit(connection, path)
wrong += sum(full.is_hit(connection, f"/tagged/{tag}/{objects - 2 * tags + tag}") for tag in range(tags))
print(f"{tags - tags // 2} more, each with a hit before and a miss after it, and then an object of every tag: {wrong} wrong")

lua = open(f"{directory}/hits.lua", "w")
lua.write('function request()\n  return wrk.format("GET", "/plain/" .. math.random(10000))\nend\n')
lua.write('done = function(s)\n  io.write("RESULT ", s.requests, "\\n")\nend\n')
lua.close()
def load(server, seconds):
    before = server.cpu_s()
    said = subprocess.run(["wrk", "-t1", "-c64", f"-d{seconds}s", "-s", lua.name, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True).stdout
    return (server.cpu_s() - before) * 1e9 / int(re.search(r"RESULT (\d+)", said)[1])
for server in (bare, banned): load(server, 3)
# Soft ones stay, so it is asked of whatever was not found not to be meant.
class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b"a page of a kibibyte".ljust(1024)
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=86400")
        if self.path == "/tagged":
            self.send_header("Surrogate-Key", " ".join(f"tag-{n:027}" for n in range(500)))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
threading.Thread(target=pages.serve_forever, daemon=True).start()
said = open(f"{directory}/pages", "w")
origin = f"http://127.0.0.1:{pages.server_port}"
program = subprocess.Popen([sys.argv[5], "cache", "--origin", origin, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], stdout=said, stderr=said)
open(f"{directory}/pages.pid", "w").write(str(program.pid))
while "admin:" not in open(f"{directory}/pages").read(): time.sleep(0.1)
def hits(server, path, seconds):
    before = server.cpu_s()
    run = subprocess.run(["wrk", "-t1", "-c64", f"-d{seconds}s", f"http://127.0.0.1:{server.port}{path}"], capture_output=True, text=True).stdout
    return (server.cpu_s() - before) * 1e9 / int(re.search(r"(\d+) requests in", run)[1])
server = Server("pages")
for path in ("/plain", "/tagged"): hits(server, path, 1)
pairs = [(hits(server, "/plain", 2), hits(server, "/tagged", 2)) for _ in range(rounds)]
assert server.metric("cache_fetches_total") == 2
print(f"a hit on a page with 500 tags: {statistics.median(b / a for a, b in pairs):.3f} x one without (median of {rounds} pairs, {min(b / a for a, b in pairs):.3f} to {max(b / a for a, b in pairs):.3f})", flush=True)
program.terminate()
program.wait()

bans = ["obj.status == 500", "req.url ~ ^/news/", "req.url ~ [0-9]{6}", "obj.http.x-kind ~ ^video$", "req.http.cookie ~ session"]
for ban in bans:
    banned.ask_admin("POST", "/purge?" + urllib.parse.urlencode({"ban": ban}) + "&soft")
    pairs = []
    for _ in range(rounds):
        pairs.append((load(bare, 2), load(banned, 2)))
    apart = statistics.median(b - a for a, b in pairs)
    print(f"a hit {statistics.median(a for a, _ in pairs):.0f} ns; with {bans.index(ban) + 1} bans, the last {ban}: {apart:+.0f} ns (median of {rounds} pairs)", flush=True)
END
python3 "$directory/measure.py" "$directory" "$objects" "$tags" "$rounds" "$program"
