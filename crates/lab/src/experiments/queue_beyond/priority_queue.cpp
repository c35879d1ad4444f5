// The same work as the other queues', with the C++ library's: arguments key or both (what is compared), items,
// repeats, seed; prints the checksum of the keys that left, and seconds of CPU of each of the three phases.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

struct by_key {
    bool operator()(const item &a, const item &b) const { return a.first > b.first; }
};

template <class Order> static void run(std::uint64_t items, std::uint64_t repeats, std::uint64_t random) {
    auto take = [&random] {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return item(random >> 33, random);
    };
    std::priority_queue<item, std::vector<item>, Order> queue;
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
}

int main(int argc, char **argv) {
    if (argc != 5) {
        return 2;
    }
    const std::uint64_t items = std::strtoull(argv[2], nullptr, 10);
    const std::uint64_t repeats = std::strtoull(argv[3], nullptr, 10);
    const std::uint64_t seed = std::strtoull(argv[4], nullptr, 10);
    if (std::strcmp(argv[1], "key") == 0) {
        run<by_key>(items, repeats, seed);
    } else {
        run<std::greater<item>>(items, repeats, seed);
    }
    return 0;
}
