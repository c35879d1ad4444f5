// The same work as the other queues', with the C++ library's: arguments items, repeats, seed; prints the checksum of
// the keys that left, and seconds of CPU of each of the three phases.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

using item = std::pair<std::uint64_t, std::uint64_t>;

static double cpu_s() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    const std::uint64_t items = std::strtoull(argv[1], nullptr, 10);
    const std::uint64_t repeats = std::strtoull(argv[2], nullptr, 10);
    std::uint64_t random = std::strtoull(argv[3], nullptr, 10);
    auto take = [&random] {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return item(random >> 33, random);
    };
    std::priority_queue<item, std::vector<item>, std::greater<item>> queue;
    std::uint64_t sum = 0;
    auto leave = [&queue, &sum] {
        sum = (sum << 5 | sum >> 59) ^ (queue.top().first * 0x9e3779b97f4a7c15);
        queue.pop();
    };
    double phases[3] = {0, 0, 0};
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
        const double start = cpu_s();
        for (std::uint64_t n = 0; n < items; ++n) {
            queue.push(take());
        }
        const double filled = cpu_s();
        for (std::uint64_t n = 0; n < items; ++n) {
            leave();
            queue.push(take());
        }
        const double held = cpu_s();
        for (std::uint64_t n = 0; n < items; ++n) {
            leave();
        }
        phases[0] += filled - start;
        phases[1] += held - filled;
        phases[2] += cpu_s() - held;
    }
    std::printf("%llu %.9f %.9f %.9f\n", static_cast<unsigned long long>(sum), phases[0], phases[1], phases[2]);
    return 0;
}
