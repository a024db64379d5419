// The handler over a link with loss and a queue, in virtual time, with libdatachannel's messages and chain.
#include "receiver.hpp"
#include "steadycast.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>

namespace {

constexpr uint32_t SSRC = 7;
int failed = 0;

void expect(bool holds, const char *what) {
    if (!holds)
        std::printf("FAILED: %s\n", what), failed = 1;
}

rtc::message_ptr packet(uint16_t seq, uint32_t stamp, bool marker, size_t payload, bool extended) {
    auto message = rtc::make_message(12 + (extended ? 8 : 0) + payload);
    auto rtp = reinterpret_cast<rtc::RtpHeader *>(message->data());
    rtp->preparePacket();
    rtp->setPayloadType(96), rtp->setSsrc(SSRC), rtp->setSeqNumber(seq), rtp->setTimestamp(stamp), rtp->setMarker(marker);
    if (extended) { // one element, as the packetizers of libdatachannel write for a MID
        const unsigned char element[8] = {0xBE, 0xDE, 0, 1, 0x30, '0', 0, 0};
        rtp->setExtension(true);
        std::memcpy(message->data() + 12, element, sizeof element);
    }
    return message;
}

struct Result {
    double payload_bps, missing, delay_p95_s;
    uint64_t again;
};

// 30 frames per second for 40 s at the rate that the handler says; counted from the tenth second on.
Result call(double link_bps, double queue_s, double way_s, double loss, uint64_t cap, bool extended) {
    double now = 0, idle = 0;
    auto sender = std::make_shared<steadycast::Sender>(steadycast::Config{
        SSRC, 5, 50'000, cap, "steady", true, [&now] { return static_cast<int64_t>(now * 1e9); }});
    Receiver receiver;
    std::mt19937 chance(1);
    std::deque<std::pair<double, rtc::message_ptr>> there;
    std::deque<std::pair<double, rtc::binary>> back;
    std::vector<double> delays;
    std::map<uint32_t, double> made;
    rtc::message_callback send = [&](rtc::message_ptr message) {
        if (chance() % 10'000 < loss * 10'000 || idle - now > queue_s)
            return;
        idle = std::max(idle, now) + static_cast<double>(message->size() + 38) * 8 / link_bps;
        there.emplace_back(idle + way_s, message);
    };
    uint16_t seq = 65'000; // it wraps
    uint64_t before = 0;
    for (int ms = 0; ms < 40'000; ms++) {
        now = ms / 1e3;
        if (ms % 33 == 0) {
            auto plan = sender->encoder();
            if (!plan.skip && sender->frame(plan.key_frame || ms == 0)) {
                auto stamp = static_cast<uint32_t>(ms) * 90;
                made[stamp] = now;
                auto left = static_cast<size_t>(static_cast<double>(plan.rate_bps) * 0.033 / 8) + 1;
                for (; left > 0; left -= std::min<size_t>(left, 1100)) {
                    rtc::message_vector one = {packet(seq++, stamp, left <= 1100, std::min<size_t>(left, 1100), extended)};
                    sender->outgoingChain(one, send);
                    expect(one.empty(), "a packet leaves only when the kit says so");
                }
            }
        }
        sender->poll();
        for (; !there.empty() && there.front().first <= now; there.pop_front()) {
            auto rtp = reinterpret_cast<const rtc::RtpHeader *>(there.front().second->data());
            receiver.arrived(*there.front().second, now);
            if (ms >= 10'000 && rtp->marker())
                delays.push_back(now - made[rtp->timestamp()]);
        }
        if (ms % 50 == 0)
            if (auto report = receiver.report(); !report.empty())
                back.emplace_back(now + way_s, report);
        for (; !back.empty() && back.front().first <= now; back.pop_front()) {
            rtc::message_vector one = {rtc::make_message(back.front().second.begin(), back.front().second.end(),
                                                         rtc::Message::Control)};
            sender->incomingChain(one, send);
        }
        if (ms == 10'000)
            before = receiver.bytes;
    }
    std::sort(delays.begin(), delays.end());
    double missing = static_cast<double>(receiver.missing.size()) / static_cast<double>(receiver.packets);
    return {static_cast<double>(receiver.bytes - before) * 8 / 30, missing, delays[delays.size() * 95 / 100],
            receiver.again};
}

} // namespace

int main() {
    // The bounds are those of the same links in integrations/pion. 2 Mb/s with 1 % of loss and 100 ms of queue: 1.2 to
    // 1.85 Mb/s of payload, a frame in 25 ms of way, 40 ms of pacing and half of the queue, 2 in 1,000 packets missing.
    for (bool extended : {false, true}) {
        auto lossy = call(2e6, 0.1, 0.025, 0.01, 2'500'000, extended);
        std::printf("1 %% loss: %.2f Mb/s, %.0f ms, %.2f %% missing, %lu again\n", lossy.payload_bps / 1e6,
                    lossy.delay_p95_s * 1e3, lossy.missing * 100, static_cast<unsigned long>(lossy.again));
        expect(lossy.payload_bps > 1.2e6 && lossy.payload_bps < 1.85e6, "the rate with loss");
        expect(lossy.delay_p95_s < 0.115, "the delay with loss");
        expect(lossy.missing < 0.002 && lossy.again >= 20, "what is lost comes again");
    }
    // 5 Mb/s with 500 ms of queue: 3.75 to 4.9 Mb/s, and at most 100 ms of queue.
    auto deep = call(5e6, 0.5, 0.05, 0, 6'250'000, false);
    std::printf("500 ms of queue: %.2f Mb/s, %.0f ms\n", deep.payload_bps / 1e6, deep.delay_p95_s * 1e3);
    expect(deep.payload_bps > 3.75e6 && deep.payload_bps < 4.9e6, "the rate over a long queue");
    expect(deep.delay_p95_s < 0.19 && deep.missing == 0, "a long queue stays short");
    try {
        steadycast::Sender wrong({SSRC, 5, 1, 2, "stedy"});
        expect(false, "an unknown controller is refused");
    } catch (const std::invalid_argument &error) {
        expect(std::strstr(error.what(), "steady") != nullptr, "an unknown name is told with a remedy");
    }
    return failed;
}
