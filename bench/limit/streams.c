/*
 * The floor under an HTTP/2 cache hit: what the kernel and the framing alone ask for. One epoll loop on one thread; no
 * field is decoded, nothing is looked up: each HEADERS frame is answered by the same head, encoded once without the
 * dynamic table, and BODY_BYTES of content. All answers to what one read brought leave in one writev; content is copied
 * beside its frame where it is small, and sent from where it lies where it is not.
 *
 * Kept of the protocol is what clients cannot do without: preface, SETTINGS and their ACK, PING, both windows
 * (RFC 9113 5.2), frames of 16 KiB. Left out is what protects a server: CONTINUATION, padding, bodies of requests,
 * priorities, fairness (who is next in order and has no window holds up those behind), every bound on bad clients.
 *
 * usage: streams PORT BODY_BYTES      (loopback only, prior knowledge)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 9,
    FRAME_BYTES_MAX = 16384,
    COPIED_BYTES_MAX = 4096, /* content up to this goes into the same buffer as its frame */
    STREAMS_MAX = 256,       /* a power of two: the queue is a ring */
    IN_BYTES = 64 << 10,
    OUT_BYTES = 256 << 10,
    PARTS_MAX = 512,
    EVENTS_MAX = 512,
    BODY_BYTES_MAX = 64 << 20,
};
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, WINDOW_UPDATE = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

struct stream {
    uint32_t id, sent;
    int64_t opened; /* what its own WINDOW_UPDATEs added */
    int begun;
};

struct connection {
    int fd, greeted;
    uint32_t in_bytes, out_bytes, first, count, part, parts;
    int64_t window, window_at_start;
    struct stream queue[STREAMS_MAX];
    struct iovec list[PARTS_MAX];
    uint8_t in[IN_BYTES], out[OUT_BYTES];
};

static const uint8_t preface[24] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static uint8_t *body, head[512];
static uint32_t body_bytes, head_bytes;

static uint32_t word(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* A literal field without indexing (RFC 7541 6.2.2) whose name is an entry of the static table, or spelled out. */
static void field(uint32_t entry, const char *name, const char *value) {
    size_t bytes = strlen(value);
    if (entry < 15) {
        head[head_bytes++] = (uint8_t)entry;
    } else {
        head[head_bytes++] = 15;
        head[head_bytes++] = (uint8_t)(entry - 15);
    }
    if (entry == 0) {
        head[head_bytes++] = (uint8_t)strlen(name);
        head_bytes += (uint32_t)(stpcpy((char *)head + head_bytes, name) - ((char *)head + head_bytes));
    }
    head[head_bytes++] = (uint8_t)bytes;
    memcpy(head + head_bytes, value, bytes);
    head_bytes += (uint32_t)bytes;
}

/* What a cache says of a stored object: thirteen fields. */
static void prepare(void) {
    char length[16];
    snprintf(length, sizeof length, "%u", body_bytes);
    head[head_bytes++] = 0x88; /* ":status: 200" */
    field(33, NULL, "Tue, 24 Nov 2026 12:00:00 GMT");
    field(24, NULL, "max-age=3600");
    field(34, NULL, "\"1024-0\"");
    field(44, NULL, "Sun, 01 Nov 2026 00:00:00 GMT");
    field(31, NULL, "application/octet-stream");
    field(28, NULL, length);
    field(21, NULL, "17");
    field(60, NULL, "1.1 floor");
    field(54, NULL, "floor");
    field(59, NULL, "accept-encoding");
    field(18, NULL, "bytes");
    field(0, "cache-status", "floor; hit");
    field(0, "x-content-type-options", "nosniff");
}

static void add(struct connection *c, const void *bytes, uint32_t count) {
    if (c->parts > c->part) {
        struct iovec *last = &c->list[c->parts - 1];
        if ((const uint8_t *)last->iov_base + last->iov_len == bytes) {
            last->iov_len += count;
            return;
        }
    }
    c->list[c->parts++] = (struct iovec){(void *)bytes, count};
}

static uint8_t *begin(struct connection *c, uint32_t bytes, uint8_t type, uint8_t flags, uint32_t stream) {
    uint8_t *at = c->out + c->out_bytes;
    at[0] = (uint8_t)(bytes >> 16), at[1] = (uint8_t)(bytes >> 8), at[2] = (uint8_t)bytes;
    at[3] = type, at[4] = flags;
    at[5] = (uint8_t)(stream >> 24), at[6] = (uint8_t)(stream >> 16), at[7] = (uint8_t)(stream >> 8);
    at[8] = (uint8_t)stream;
    return at + HEADER_BYTES;
}

/* A frame, its payload copied or, beyond `copied` bytes of it, sent from where it lies. */
static void frame(struct connection *c, uint32_t bytes, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
                  uint32_t copied) {
    uint8_t *at = begin(c, bytes, type, flags, stream);
    memcpy(at, payload, copied);
    add(c, at - HEADER_BYTES, HEADER_BYTES + copied);
    c->out_bytes += HEADER_BYTES + copied;
    if (copied < bytes) add(c, payload, bytes);
}

static int has_room(const struct connection *c) {
    return c->parts + 4 < PARTS_MAX && c->out_bytes + head_bytes + 2 * HEADER_BYTES + COPIED_BYTES_MAX < OUT_BYTES;
}

/* Answers in order, as far as windows and buffers allow. */
static void answer(struct connection *c) {
    while (c->count != 0 && has_room(c)) {
        struct stream *s = &c->queue[c->first];
        if (!s->begun) {
            frame(c, head_bytes, HEADERS, END_HEADERS, s->id, head, head_bytes);
            s->begun = 1;
        }
        int64_t bytes = body_bytes - s->sent, window = c->window_at_start + s->opened - s->sent;
        if (window > c->window) window = c->window;
        if (bytes > FRAME_BYTES_MAX) bytes = FRAME_BYTES_MAX;
        if (bytes > window) bytes = window;
        if (bytes <= 0 && s->sent < body_bytes) return;
        int last = s->sent + bytes == body_bytes;
        uint32_t copied = bytes <= COPIED_BYTES_MAX ? (uint32_t)bytes : 0;
        frame(c, (uint32_t)bytes, DATA, last ? END_STREAM : 0, s->id, body + s->sent, copied);
        s->sent += (uint32_t)bytes;
        c->window -= bytes;
        if (last) c->first = (c->first + 1) % STREAMS_MAX, c->count--;
    }
}

/* Returns 0 when the connection is broken. */
static int pay(struct connection *c) {
    for (;;) {
        while (c->part < c->parts) {
            ssize_t sent = writev(c->fd, c->list + c->part, (int)(c->parts - c->part));
            if (sent < 0) return errno == EAGAIN || errno == EINTR;
            while (c->part < c->parts && (size_t)sent >= c->list[c->part].iov_len) sent -= (ssize_t)c->list[c->part++].iov_len;
            if (sent > 0) {
                struct iovec *begun = &c->list[c->part];
                begun->iov_base = (uint8_t *)begun->iov_base + sent;
                begun->iov_len -= (size_t)sent;
            }
        }
        c->part = c->parts = c->out_bytes = 0;
        answer(c);
        if (c->parts == 0) return 1;
    }
}

static struct stream *find(struct connection *c, uint32_t id) {
    for (uint32_t i = 0; i < c->count; i++) {
        struct stream *s = &c->queue[(c->first + i) % STREAMS_MAX];
        if (s->id == id) return s;
    }
    return NULL;
}

/* Returns 0 when the client does what this program does not know. */
static int take(struct connection *c, uint8_t type, uint8_t flags, uint32_t id, const uint8_t *payload, uint32_t bytes) {
    struct stream *s;
    switch (type) {
    case HEADERS:
        if (c->count == STREAMS_MAX) return 0;
        c->queue[(c->first + c->count++) % STREAMS_MAX] = (struct stream){.id = id};
        return 1;
    case RST_STREAM:
        /* It counts as answered; the bench gives up no stream. */
        if ((s = find(c, id))) s->begun = 1, s->sent = body_bytes;
        return 1;
    case SETTINGS:
        if (flags & ACK) return 1;
        for (; bytes >= 6; payload += 6, bytes -= 6)
            if (payload[0] == 0 && payload[1] == 4) c->window_at_start = word(payload + 2);
        if (!has_room(c)) return 0;
        frame(c, 0, SETTINGS, ACK, 0, "", 0);
        return 1;
    case PING:
        if (flags & ACK) return 1;
        if (bytes != 8 || !has_room(c)) return 0;
        frame(c, 8, PING, ACK, 0, payload, 8);
        return 1;
    case WINDOW_UPDATE:
        if (bytes != 4) return 0;
        if (id == 0) c->window += word(payload);
        else if ((s = find(c, id))) s->opened += word(payload);
        return 1;
    default: return 1;
    }
}

/* Reads until the socket is empty. Returns 0 when the connection is over. */
static int collect(struct connection *c) {
    for (;;) {
        uint32_t room = IN_BYTES - c->in_bytes, at = 0;
        ssize_t got = read(c->fd, c->in + c->in_bytes, room);
        if (got == 0) return 0;
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        c->in_bytes += (uint32_t)got;
        if (!c->greeted) {
            if (c->in_bytes < sizeof preface) continue;
            if (memcmp(c->in, preface, sizeof preface) != 0) return 0;
            frame(c, 6, SETTINGS, 0, 0, "\0\3\0\0\1\0", 6); /* MAX_CONCURRENT_STREAMS is STREAMS_MAX */
            c->greeted = 1;
            at = sizeof preface;
        }
        while (c->in_bytes - at >= HEADER_BYTES) {
            const uint8_t *f = c->in + at;
            uint32_t bytes = word(f) >> 8;
            if (bytes > FRAME_BYTES_MAX) return 0;
            if (c->in_bytes - at < HEADER_BYTES + bytes) break;
            if (!take(c, f[3], f[4], word(f + 5) & 0x7fffffff, f + HEADER_BYTES, bytes)) return 0;
            at += HEADER_BYTES + bytes;
        }
        c->in_bytes -= at;
        memmove(c->in, c->in + at, c->in_bytes);
        if ((uint32_t)got < room) return 1;
    }
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t number(const char *text, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || value < 0 || value > most) {
        fprintf(stderr, "streams: %s is not a number up to %ld\n", text, most);
        exit(2);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: streams PORT BODY_BYTES\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)number(argv[1], 65535)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    body_bytes = number(argv[2], BODY_BYTES_MAX);
    body = malloc(body_bytes + 1);
    if (!body) die("malloc");
    memset(body, 'x', body_bytes);
    prepare();
    signal(SIGPIPE, SIG_IGN);

    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) die("listen");
    struct epoll_event event = {.events = EPOLLIN}, events[EVENTS_MAX];
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event)) die("epoll_ctl");
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c) {
                if ((events[i].events & EPOLLIN && !collect(c)) || !pay(c)) {
                    close(c->fd);
                    free(c);
                }
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            c = calloc(1, sizeof *c);
            if (!c) {
                close(fd);
                continue;
            }
            c->fd = fd;
            c->window = c->window_at_start = 65535;
            /* Edge-triggered: registered once, and an edge says when a full socket has room again. */
            event = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
            if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
        }
    }
}
