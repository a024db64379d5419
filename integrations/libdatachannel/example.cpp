// A call of some seconds between two peers of this process, over the loopback interface: example SECONDS CAP_BPS.
#include "receiver.hpp"
#include "steadycast.hpp"

#include <cstdio>
#include <cstdlib>
#include <future>

// Reports the arrived packets, as a browser does.
class Reporter final : public rtc::MediaHandler {
  public:
    Receiver receiver;
    void incoming(rtc::message_vector &messages, const rtc::message_callback &send) override {
        auto now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
        for (const auto &message : messages)
            if (message->type != rtc::Message::Control)
                receiver.arrived(*message, now);
        if (now - reported < 0.05)
            return;
        reported = now;
        if (auto report = receiver.report(); !report.empty())
            send(rtc::make_message(report.begin(), report.end(), rtc::Message::Control));
    }

  private:
    double reported = 0;
};

int main(int count, char **words) {
    int seconds = count > 1 ? std::atoi(words[1]) : 5;
    uint64_t cap = count > 2 ? std::strtoull(words[2], nullptr, 10) : 3'000'000;
    rtc::Configuration loopback;
    loopback.bindAddress = "127.0.0.1";
    rtc::PeerConnection left(loopback), right(loopback);
    left.onLocalDescription([&](rtc::Description own) { right.setRemoteDescription(own); });
    left.onLocalCandidate([&](rtc::Candidate own) { right.addRemoteCandidate(own); });
    right.onLocalDescription([&](rtc::Description own) { left.setRemoteDescription(own); });
    right.onLocalCandidate([&](rtc::Candidate own) { left.addRemoteCandidate(own); });

    auto reporter = std::make_shared<Reporter>();
    std::shared_ptr<rtc::Track> shown;
    right.onTrack([&](std::shared_ptr<rtc::Track> track) { (shown = track)->setMediaHandler(reporter); });

    constexpr uint32_t SSRC = 7;
    rtc::Description::Video video("video", rtc::Description::Direction::SendOnly);
    video.addVP8Codec(96);
    video.addSSRC(SSRC, "video");
    video.addExtMap({5, steadycast::TRANSPORT_WIDE});
    auto track = left.addTrack(video);
    auto sender = std::make_shared<steadycast::Sender>(steadycast::Config{SSRC, 5, 100'000, cap});
    track->setMediaHandler(sender); // behind a packetizer: packetizer->addToChain(sender)
    std::promise<void> open;
    track->onOpen([&] { open.set_value(); });
    left.setLocalDescription();
    if (open.get_future().wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
        std::fprintf(stderr, "example: the track did not open within 10 s\n");
        return 1;
    }

    uint16_t seq = 0;
    uint64_t before = 0;
    for (int frame = 0; frame < 30 * seconds; frame++) {
        auto plan = sender->encoder();
        if (!plan.skip && sender->frame(frame == 0 || plan.key_frame)) {
            auto left_bytes = static_cast<size_t>(plan.rate_bps / 8 / 30) + 1;
            while (left_bytes > 0) {
                auto payload = std::min<size_t>(left_bytes, 1100);
                left_bytes -= payload;
                rtc::binary packet(sizeof(rtc::RtpHeader) + payload);
                auto rtp = reinterpret_cast<rtc::RtpHeader *>(packet.data());
                rtp->preparePacket();
                rtp->setPayloadType(96), rtp->setSsrc(SSRC), rtp->setSeqNumber(seq++);
                rtp->setTimestamp(static_cast<uint32_t>(frame) * 3000), rtp->setMarker(left_bytes == 0);
                track->send(packet);
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(33));
        if (frame % 30 == 29) {
            auto decision = sender->decision();
            uint64_t bytes = reporter->receiver.bytes;
            std::printf("%2d s: target %.2f Mb/s, %.2f Mb/s of payload arrived: %s\n", frame / 30 + 1,
                        static_cast<double>(decision.target_bps) / 1e6, static_cast<double>(bytes - before) * 8 / 1e6,
                        decision.why);
            before = bytes;
        }
    }
    uint64_t arrived = reporter->receiver.packets;
    left.close(), right.close();
    return arrived > 0 ? 0 : 1;
}
