/*
 * The floor under a crowd that waits for one page: whoever asks first is sent on to the origin, everybody else waits, and
 * what the origin answers is written to each of them in turn. One epoll loop on one thread; nothing is parsed but the
 * length of the answer, nothing is stored.
 *
 * usage: crowd PORT ORIGIN_PORT      (loopback only; heads must arrive within one read)
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_MAX = 16384, EVENTS_MAX = 512, REQUEST_BYTES = 8192, ANSWER_BYTES_MAX = 1 << 20 };

static int waiting[CLIENTS_MAX];
static size_t waiters;
static char request[REQUEST_BYTES];
static char answer[ANSWER_BYTES_MAX + 1];
static size_t answer_bytes;
static int origin = -1;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in loopback(const char *port) {
    char *end;
    long number = strtol(port, &end, 10);
    if (*port == 0 || *end != 0 || number < 1 || number > 65535) {
        fprintf(stderr, "crowd: %s is no port\n", port);
        exit(2);
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)number)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
}

/* The first of those who wait asks the origin, in its own words. */
static void ask(int epoll, const struct sockaddr_in *address, size_t bytes) {
    origin = socket(AF_INET, SOCK_STREAM, 0);
    if (origin < 0 || connect(origin, (const struct sockaddr *)address, sizeof *address) < 0) die("the origin");
    if (send(origin, request, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) die("send to the origin");
    answer_bytes = 0;
    watch(epoll, origin);
}

/* Whether head and body are there. */
static int is_whole(void) {
    answer[answer_bytes] = 0;
    const char *end = strstr(answer, "\r\n\r\n");
    const char *length = strcasestr(answer, "\r\ncontent-length:");
    if (end == NULL || length == NULL || length > end) return 0;
    return answer_bytes >= (size_t)(end + 4 - answer) + strtoul(length + 17, NULL, 10);
}

static void take(void) {
    ssize_t got = recv(origin, answer + answer_bytes, ANSWER_BYTES_MAX - answer_bytes, 0);
    if (got <= 0) die("the origin's answer");
    answer_bytes += (size_t)got;
    if (!is_whole()) return;
    for (size_t at = 0; at < waiters; at++) {
        /* A client that has gone is no concern of the others; an answer that does not fit a fresh socket is too long. */
        (void)send(waiting[at], answer, answer_bytes, MSG_NOSIGNAL);
    }
    waiters = 0;
    close(origin);
    origin = -1;
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: crowd PORT ORIGIN_PORT\n");
        return 2;
    }
    struct sockaddr_in here = loopback(words[1]), there = loopback(words[2]);
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) die("socket");
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0) die("SO_REUSEADDR");
    if (bind(listener, (struct sockaddr *)&here, sizeof here) < 0) die("bind");
    if (listen(listener, 4096) < 0) die("listen");
    int epoll = epoll_create1(0);
    if (epoll < 0) die("epoll_create1");
    watch(epoll, listener);
    static struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int at = 0; at < ready; at++) {
            int fd = events[at].data.fd;
            if (fd == listener) {
                int client = accept(listener, NULL, NULL);
                if (client < 0) continue;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                watch(epoll, client);
            } else if (fd == origin) {
                take();
            } else {
                ssize_t got = recv(fd, request, sizeof request, 0);
                if (got <= 0 || waiters == CLIENTS_MAX) {
                    close(fd);
                    continue;
                }
                waiting[waiters++] = fd;
                if (origin < 0) ask(epoll, &there, (size_t)got);
            }
        }
    }
}
