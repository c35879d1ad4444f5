/* Preloaded into the program under test: a disk that does not answer for as long as a file exists.
 *
 * Reads of a file's segments (from byte 65536 on: headers come before) wait while the file that BAD_DAY_GATE names is
 * there, and writes while that is there which BAD_DAY_WRITE_GATE names. So a test says when a start or a store may go on, and
 * no test depends on how long something takes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define SEGMENTS_AT 65536

static void wait_at_gate(const char *gate, off_t offset)
{
    const struct timespec pause = { .tv_sec = 0, .tv_nsec = 5000000 };
    while (gate && offset >= SEGMENTS_AT && access(gate, F_OK) == 0)
        nanosleep(&pause, NULL);
}

typedef ssize_t (*reader)(int, void *, size_t, off_t);
typedef ssize_t (*writer)(int, const void *, size_t, off_t);

ssize_t pread64(int file, void *into, size_t bytes, off_t offset)
{
    wait_at_gate(getenv("BAD_DAY_GATE"), offset);
    return ((reader)dlsym(RTLD_NEXT, "pread64"))(file, into, bytes, offset);
}

ssize_t pread(int file, void *into, size_t bytes, off_t offset)
{
    wait_at_gate(getenv("BAD_DAY_GATE"), offset);
    return ((reader)dlsym(RTLD_NEXT, "pread"))(file, into, bytes, offset);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off_t offset)
{
    wait_at_gate(getenv("BAD_DAY_WRITE_GATE"), offset);
    return ((writer)dlsym(RTLD_NEXT, "pwrite64"))(file, from, bytes, offset);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset)
{
    wait_at_gate(getenv("BAD_DAY_WRITE_GATE"), offset);
    return ((writer)dlsym(RTLD_NEXT, "pwrite"))(file, from, bytes, offset);
}
