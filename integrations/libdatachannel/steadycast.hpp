// Steadycast's sender kit for libdatachannel: a media handler, the last one in the chain of a video track.
#pragma once

#include <rtc/rtc.hpp>
#include <steadycast.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace steadycast {

constexpr auto TRANSPORT_WIDE = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

struct Config {
    uint32_t ssrc;
    uint8_t extension; // negotiated number of TRANSPORT_WIDE, 1 to 14
    uint64_t floor_bps, cap_bps;
    const char *controller = "steady";
    bool retransmissions_covered = true; // whether feedback covers retransmissions, as Chromium's does
    std::function<int64_t()> clock = {}; // for tests: nanoseconds. The program then calls `poll`; no thread runs
};

// The encoder's task for its next frame. The rate is in bit/s without headers.
struct Plan {
    uint64_t rate_bps;
    bool skip, key_frame;
};

// Paces a track's packets, numbers them, retransmits within the rate, and reads feedback, NACKs and PLIs.
class Sender final : public rtc::MediaHandler {
  public:
    explicit Sender(Config config) : config(std::move(config)) {
        SteadycastBounds bounds = STEADYCAST_BOUNDS(this->config.floor_bps, this->config.cap_bps);
        SteadycastSenderSettings settings = STEADYCAST_SENDER_SETTINGS;
        settings.retransmissions_covered = this->config.retransmissions_covered;
        char error[256];
        kit.reset(steadycast_sender_new(STEADYCAST_ABI, this->config.controller, nullptr, &bounds, &settings, error,
                                        sizeof error));
        if (!kit)
            throw std::invalid_argument(error);
        SteadycastStream video = {sizeof video, STEADYCAST_VIDEO, this->config.ssrc, 1, 0, 0, 0};
        steadycast_sender_stream(kit.get(), &video);
        if (!this->config.clock)
            thread = std::thread([this] { run(); });
    }

    ~Sender() override {
        {
            std::lock_guard lock(mutex);
            ended = true;
        }
        changed.notify_all();
        if (thread.joinable())
            thread.join();
    }

    // Call it before a frame is encoded.
    Plan encoder() {
        std::lock_guard lock(mutex);
        SteadycastEncoder plan = {sizeof plan, 0, 0, 0};
        steadycast_sender_encoder(kit.get(), now(), 0, &plan);
        return {plan.rate_bps * 19 / 20, plan.skip != 0, plan.key_frame != 0}; // headers are a twentieth
    }

    // Call it before an encoded frame is passed to the track. If it returns false, the frame must not be sent.
    bool frame(bool key) {
        std::lock_guard lock(mutex);
        return steadycast_sender_frame(kit.get(), now(), 0, key ? STEADYCAST_FRAME_KEY : STEADYCAST_FRAME_REFERENCE);
    }

    SteadycastDecision decision() {
        std::lock_guard lock(mutex);
        SteadycastDecision decision = {};
        decision.size = sizeof decision;
        steadycast_sender_decision(kit.get(), &decision);
        return decision;
    }

    void outgoing(rtc::message_vector &messages, const rtc::message_callback &send) override {
        std::lock_guard lock(mutex);
        write = send;
        rtc::message_vector others;
        for (auto &message : messages) {
            if (message->type == rtc::Message::Control || message->size() < sizeof(rtc::RtpHeader)) {
                others.push_back(message); // RTCP leaves immediately
                continue;
            }
            auto rtp = reinterpret_cast<const rtc::RtpHeader *>(message->data());
            uint32_t flags = (in_frame ? 0 : STEADYCAST_FRAME_FIRST) | (rtp->marker() ? STEADYCAST_FRAME_LAST : 0);
            in_frame = !rtp->marker();
            auto size = static_cast<uint32_t>(message->size() + OVERHEAD);
            SteadycastPacket packet = {next, size, flags, rtp->seqNumber()};
            if (steadycast_sender_push(kit.get(), now(), 0, &packet) == 1) {
                packets[next++] = message;
                if (packets.size() > KEPT)
                    packets.erase(packets.begin());
            }
        }
        messages.swap(others);
        changed.notify_all();
    }

    void incoming(rtc::message_vector &messages, const rtc::message_callback &send) override {
        std::lock_guard lock(mutex);
        write = send;
        for (const auto &message : messages)
            if (message->type == rtc::Message::Control)
                steadycast_sender_rtcp(kit.get(), now(), reinterpret_cast<const uint8_t *>(message->data()),
                                       message->size());
        changed.notify_all();
    }

    // Sends the packets that are due; returns the time of the next call.
    int64_t poll() {
        std::lock_guard lock(mutex);
        return send_due();
    }

  private:
    static constexpr size_t EXTENSION = 8; // the most that the number adds to a packet
    static constexpr size_t OVERHEAD = 20 + 8 + 10 + EXTENSION; // with IP, UDP and SRTP
    static constexpr size_t KEPT = 4096;

    int64_t now() const {
        return config.clock ? config.clock() : std::chrono::steady_clock::now().time_since_epoch() / NANOSECOND;
    }

    int64_t send_due() {
        SteadycastOutput output = {};
        output.size = sizeof output;
        for (int said; (said = steadycast_sender_poll(kit.get(), now(), &output)) > STEADYCAST_WAIT;) {
            auto found = packets.find(output.id);
            if (found == packets.end())
                continue;
            if (said == STEADYCAST_DROPPED)
                packets.erase(found);
            else if (write)
                try {
                    write(numbered(*found->second, static_cast<uint16_t>(output.number)));
                } catch (const std::runtime_error &) { // the track is not open, or not any more
                }
        }
        return output.at_ns;
    }

    // Returns a copy of a packet with its transport-wide number.
    rtc::message_ptr numbered(const rtc::Message &packet, uint16_t number) const {
        auto copy = std::make_shared<rtc::Message>(packet);
        copy->resize(packet.size() + EXTENSION);
        int size = steadycast_transport_number(reinterpret_cast<uint8_t *>(copy->data()), packet.size(), copy->size(),
                                               config.extension, number);
        copy->resize(size > 0 ? static_cast<size_t>(size) : packet.size());
        return copy;
    }

    void run() {
        std::unique_lock lock(mutex);
        while (!ended) {
            auto wait = std::min<int64_t>(send_due() - now(), 1'000'000'000);
            changed.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(wait, 0)));
        }
    }

    static constexpr std::chrono::nanoseconds NANOSECOND{1};
    const Config config;
    std::unique_ptr<SteadycastSender, decltype(&steadycast_sender_free)> kit{nullptr, steadycast_sender_free};
    std::map<uint64_t, rtc::message_ptr> packets;
    rtc::message_callback write;
    uint64_t next = 0;
    bool in_frame = false, ended = false;
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;
};

} // namespace steadycast
