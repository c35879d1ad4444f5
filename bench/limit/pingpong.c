// The limit of loopback latency: one byte there and back by plain C, one message under way at a time. What
// `nighttrain lab loopback-latency` compares its own loop with, in the same run.
//
// usage: pingpong RATE COUNT SERVER_CPU CLIENT_CPU
// Message i is due at start + i / RATE. Prints, in nanoseconds: corrected p50 p90 p99 worst, uncorrected p50 p90 p99
// worst, and messages a second.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 5000 };

static int listener, server_cpu;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void prepare(int socket) {
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

static int take(int socket, char *byte) {
    for (;;) {
        ssize_t got = recv(socket, byte, 1, 0);
        if (got == 1) return 1;
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) return 0;
    }
}

static void *serve(void *unused) {
    char byte;
    pin(server_cpu);
    int peer = accept(listener, NULL, NULL);
    prepare(peer);
    while (take(peer, &byte) && send(peer, &byte, 1, 0) == 1) {}
    close(peer);
    return unused;
}

static int ascending(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static void print(long long *times, int count) {
    qsort(times, count, sizeof *times, ascending);
    double shares[] = { 0.5, 0.9, 0.99 };
    for (int i = 0; i < 3; i++) printf("%lld ", times[(int)((count - 1) * shares[i])]);
    printf("%lld ", times[count - 1]);
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: pingpong RATE COUNT SERVER_CPU CLIENT_CPU\n"), 2;
    double interval = 1e9 / atof(argv[1]);
    int count = atoi(argv[2]);
    server_cpu = atoi(argv[3]);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) return perror("listen"), 1;
    getsockname(listener, (void *)&address, &length);
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    pin(atoi(argv[4]));
    int peer = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(peer, (void *)&address, length)) return perror("connect"), 1;
    prepare(peer);
    long long *corrected = calloc(count, sizeof *corrected), *uncorrected = calloc(count, sizeof *uncorrected);
    char byte = 'x';
    for (int i = 0; i < WARM_UP; i++) { send(peer, &byte, 1, 0); take(peer, &byte); }
    long long start = now() + 1000, end = start;
    for (int i = 0; i < count; i++) {
        long long due = start + (long long)(i * interval), sent;
        while ((sent = now()) < due) {}
        send(peer, &byte, 1, 0);
        take(peer, &byte);
        end = now();
        corrected[i] = end - due;
        uncorrected[i] = end - sent;
    }
    print(corrected, count);
    print(uncorrected, count);
    printf("%.0f\n", count * 1e9 / (end - start));
    shutdown(peer, SHUT_RDWR);
    pthread_join(thread, NULL);
    return 0;
}
