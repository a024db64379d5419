// A controller over a link of 2 Mb/s with 40 ms of round trip, in C++: its decision at each report.
//
// c++ -std=c++17 link.cpp $(pkg-config --cflags --libs steadycast) -o link && ./link steady
#include <algorithm>
#include <cstdio>
#include <deque>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <steadycast.h>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t ms = 1'000'000;

/// A controller that frees itself, and throws what the library says.
class Controller {
public:
    Controller(const std::string& name, const SteadycastBounds& bounds)
    {
        std::string error(256, '\0');
        handle.reset(steadycast_new(STEADYCAST_ABI, name.c_str(), nullptr, &bounds, error.data(), error.size()));
        if (!handle)
            throw std::invalid_argument(error.c_str());
    }
    std::uint64_t sent(std::int64_t now, std::uint32_t size) { return steadycast_sent(handle.get(), now, size, 0); }
    void feedback(std::int64_t now, const std::vector<SteadycastFate>& fates)
    {
        steadycast_feedback(handle.get(), now, fates.data(), fates.size());
    }
    void timer(std::int64_t now) { steadycast_timer(handle.get(), now); }
    std::int64_t wake() { return steadycast_wake(handle.get()); }
    SteadycastDecision decision()
    {
        SteadycastDecision decision{};
        decision.size = sizeof decision;
        steadycast_decision(handle.get(), &decision);
        return decision;
    }

private:
    struct Free {
        void operator()(SteadycastRemote* remote) const { steadycast_free(remote); }
    };
    std::unique_ptr<SteadycastRemote, Free> handle;
};

struct Flight {
    std::int64_t told_at;
    SteadycastFate fate;
};

std::int64_t span(std::uint64_t bps) { return static_cast<std::int64_t>(UINT64_C(9'600'000'000'000) / bps); }

void run(const std::string& name)
{
    Controller controller(name, STEADYCAST_BOUNDS(100'000, 10'000'000));
    std::deque<Flight> under_way;
    std::int64_t idle = 0, send = 0, report = 50 * ms;
    for (;;) {
        const auto wake = controller.wake();
        const auto now = std::min({wake, send, report});
        if (now >= 60'000 * ms)
            return;
        if (now == wake) {
            controller.timer(now);
        } else if (now == send) {
            const auto number = controller.sent(now, 1200);
            const bool lost = idle - now > 200 * ms; // there is room for 200 ms
            if (!lost)
                idle = std::max(idle, now) + span(2'000'000);
            const auto arrived = (lost ? now : idle) + 20 * ms;
            under_way.push_back({arrived, {number, lost ? STEADYCAST_MISSING : arrived, STEADYCAST_NO_ECN}});
            send = now + span(controller.decision().pacing_bps);
        } else {
            std::vector<SteadycastFate> fates;
            for (; !under_way.empty() && under_way.front().told_at <= now - 20 * ms; under_way.pop_front())
                fates.push_back(under_way.front().fate);
            controller.feedback(now, fates);
            const auto decision = controller.decision();
            std::cout << now / ms << ' ' << decision.target_bps << ' ' << decision.pacing_bps << ' ' << decision.why
                      << '\n';
            report = now + 50 * ms;
        }
    }
}

} // namespace

int main(int words, char** word)
try {
    run(words > 1 ? word[1] : "tfrc");
} catch (const std::invalid_argument& wrong) {
    std::cerr << wrong.what() << '\n';
    return 2;
}
