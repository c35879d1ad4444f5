/*
 * The floor under a cache hit: what the kernel alone asks for taking a request from a socket and putting a
 * response of that size into it. One epoll loop on one thread; no parsing beyond finding where requests end, no
 * lookup, no clock: the answer is prepared once. Whatever a server costs above this is its own doing.
 *
 * Edge-triggered: a connection is registered once and never again, and a short read means that nothing is left,
 * so a request costs one read and one write beside its share of epoll_wait. An answer that does not fit the
 * socket waits for the next edge with its offset; nothing spins.
 *
 * usage: limit PORT BODY_BYTES      (loopback only; a request head must arrive within one read, as wrk's do)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 16384, EVENTS_MAX = 512, SCRATCH_BYTES = 32768, BODY_BYTES_MAX = 64 << 20 };

static struct {
    size_t owed;   /* answers not yet begun */
    size_t offset; /* into the answer being sent; 0 between answers */
} connections[CONNECTIONS_MAX];

static char scratch[SCRATCH_BYTES];
static char *answer;
static size_t answer_bytes;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int number(const char *text, int most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || value < 0 || value > most) {
        fprintf(stderr, "limit: %s is not a number up to %d\n", text, most);
        exit(2);
    }
    return (int)value;
}

/* Sends what is owed until the socket is full. Returns 0 when the connection is broken. */
static int pay(int fd) {
    while (connections[fd].owed != 0) {
        size_t left = answer_bytes - connections[fd].offset;
        ssize_t sent = send(fd, answer + connections[fd].offset, left, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN || errno == EINTR;
        connections[fd].offset += (size_t)sent;
        if ((size_t)sent < left) return 1; /* full: the next edge continues */
        connections[fd].offset = 0;
        connections[fd].owed--;
    }
    return 1;
}

/* Reads until the socket is empty, counting heads. Returns 0 when the connection is over. */
static int collect(int fd) {
    for (;;) {
        ssize_t got = read(fd, scratch, sizeof scratch);
        if (got == 0) return 0;
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        char *from = scratch, *end = scratch + got, *blank;
        while ((blank = memmem(from, (size_t)(end - from), "\r\n\r\n", 4))) {
            connections[fd].owed++;
            from = blank + 4;
        }
        if ((size_t)got < sizeof scratch) return 1;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: limit PORT BODY_BYTES\n");
        return 2;
    }
    int port = number(argv[1], 65535), body_bytes = number(argv[2], BODY_BYTES_MAX), on = 1;

    answer = malloc((size_t)body_bytes + 512);
    if (!answer) die("malloc");
    int head_bytes = snprintf(answer, 512,
        "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Type: application/octet-stream\r\n"
        "Cache-Control: max-age=3600\r\nETag: \"canned\"\r\nAge: 1\r\nContent-Length: %d\r\n\r\n", body_bytes);
    memset(answer + head_bytes, 'n', (size_t)body_bytes);
    answer_bytes = (size_t)head_bytes + (size_t)body_bytes;

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0) die("socket");
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)) die("SO_REUSEADDR");
    if (bind(listener, (struct sockaddr *)&address, sizeof address)) die("bind");
    if (listen(listener, 4096)) die("listen");

    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (poll < 0) die("epoll_create1");
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_MAX];
    if (epoll_ctl(poll, EPOLL_CTL_ADD, listener, &interest)) die("epoll_ctl");

    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS_MAX, -1);
        if (ready < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (accepted < 0) continue;
                if (accepted >= CONNECTIONS_MAX) {
                    close(accepted);
                    continue;
                }
                connections[accepted].owed = connections[accepted].offset = 0;
                setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                interest = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = accepted};
                if (epoll_ctl(poll, EPOLL_CTL_ADD, accepted, &interest)) die("epoll_ctl");
                continue;
            }
            int alive = 1;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) alive = collect(fd);
            if (!alive || !pay(fd)) close(fd);
        }
    }
}
