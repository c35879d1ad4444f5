/*
 * The floor under a relayed message: what the kernel and the copying alone ask for. One epoll loop on one thread
 * reads what one producer sends, makes of each PUB the MSG that a consumer expects, and writes the batch to every
 * consumer. No handshake, no subjects, no queues: whatever a server costs above this is its own doing.
 *
 * The first CONSUMERS connections are consumers, the next one is the producer; when the producer leaves, all leave
 * and the next round begins. A consumer that reads nothing holds up everybody: the floor has no buffers beyond its
 * batch, which is what makes it the floor.
 *
 * usage: relay PORT CONSUMERS       (loopback only)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A PUB grows by two bytes when it becomes a MSG (" 1"), and is at least ten bytes long: twice the input is enough. */
enum { INPUT_BYTES = 256 << 10, OUTPUT_BYTES = 2 * INPUT_BYTES, LINE_BYTES_MAX = 128, CONSUMERS_MAX = 1024 };

static char input[INPUT_BYTES], output[OUTPUT_BYTES];

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* Rewrites the whole messages among `have` bytes of input; says how many bytes of it were used and made. */
static size_t rewrite(size_t have, size_t *made) {
    char *from = input, *end = input + have, *to = output;
    while (end - from > 10) {
        size_t left = (size_t)(end - from), line_max = left < LINE_BYTES_MAX ? left : LINE_BYTES_MAX;
        char *newline = memchr(from, '\n', line_max);
        if (newline == NULL) {
            if (left < LINE_BYTES_MAX) break;
            fprintf(stderr, "relay: a line without end\n");
            exit(1);
        }
        char *space = memchr(from + 4, ' ', (size_t)(newline - from - 4));
        if (memcmp(from, "PUB ", 4) != 0 || space == NULL) {
            fprintf(stderr, "relay: not a PUB\n");
            exit(1);
        }
        size_t payload = 0;
        for (char *digit = space + 1; *digit >= '0' && *digit <= '9'; digit++) payload = 10 * payload + (size_t)(*digit - '0');
        size_t whole = (size_t)(newline + 1 - from) + payload + 2, subject = (size_t)(space - from) - 4;
        if (left < whole) {
            if (whole > INPUT_BYTES) {
                fprintf(stderr, "relay: a message of %zu bytes\n", whole);
                exit(1);
            }
            break;
        }
        memcpy(to, "MSG ", 4);
        memcpy(to + 4, from + 4, subject);
        memcpy(to + 4 + subject, " 1", 2);
        memcpy(to + 6 + subject, space, whole - 4 - subject);
        to += whole + 2;
        from += whole;
    }
    *made = (size_t)(to - output);
    return (size_t)(from - input);
}

/* Relays until the producer leaves, or a consumer does. */
static void relay(int producer, const int *consumers, int count) {
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, producer, &event) < 0) die("epoll");
    size_t have = 0;
    for (;;) {
        if (epoll_wait(poll, &event, 1, -1) < 1) continue;
        ssize_t got = read(producer, input + have, INPUT_BYTES - have);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) break;
        have += (size_t)got;
        size_t made, used = rewrite(have, &made);
        have -= used;
        memmove(input, input + used, have);
        for (int i = 0; i < count; i++)
            for (size_t sent = 0; sent < made;) {
                ssize_t wrote = write(consumers[i], output + sent, made - sent);
                if (wrote < 0 && errno == EINTR) continue;
                if (wrote <= 0) goto left;
                sent += (size_t)wrote;
            }
    }
left:
    close(poll);
}

int main(int argc, char **argv) {
    int port = argc == 3 ? atoi(argv[1]) : 0, count = argc == 3 ? atoi(argv[2]) : -1, yes = 1;
    if (port < 1 || port > 65535 || count < 0 || count > CONSUMERS_MAX) {
        fprintf(stderr, "usage: relay PORT CONSUMERS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* a consumer that left is an error of write(), not the end */
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, CONSUMERS_MAX) < 0) die("listen");
    for (;;) {
        int sockets[CONSUMERS_MAX + 1];
        for (int i = 0; i <= count; i++) {
            if ((sockets[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) die("accept");
            setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        }
        relay(sockets[count], sockets, count);
        for (int i = 0; i <= count; i++) close(sockets[i]);
    }
}
