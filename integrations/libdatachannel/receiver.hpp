// A receiver that behaves like a browser, for the test and the example: transport-wide feedback every 50 ms, and NACKs.
#pragma once

#include <rtc/rtc.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>

class Receiver {
  public:
    uint64_t bytes = 0, packets = 0, again = 0;
    std::set<uint16_t> missing; // RTP numbers that have not arrived

    // Processes an RTP packet, whose transport-wide number is the last element of its extension.
    void arrived(const rtc::Message &packet, double at_s) {
        auto rtp = reinterpret_cast<const rtc::RtpHeader *>(packet.data());
        if (!rtp->extension())
            return;
        size_t end = 12 + 4 * rtp->csrcCount() + 4 + rtp->getExtensionHeader()->headerLength() * 4;
        auto low = static_cast<uint16_t>(word(packet, end - 3));
        int64_t number = newest + static_cast<int16_t>(static_cast<uint16_t>(low - newest));
        if (!begun)
            begin = number;
        newest = std::max(newest, number);
        arrivals[number] = at_s;
        uint16_t seq = rtp->seqNumber();
        if (begun && static_cast<int16_t>(seq - last) <= 0) {
            again += missing.erase(seq);
        } else {
            for (uint16_t lost = last + 1; begun && lost != seq; lost++)
                missing.insert(lost);
            last = seq;
        }
        ssrc = rtp->ssrc(), begun = true;
        bytes += packet.size() - end, packets++;
    }

    // Returns feedback on the packets that arrived since the last call, with NACKs; empty if none arrived.
    rtc::binary report() {
        rtc::binary all;
        if (arrivals.empty())
            return all;
        begin = std::min(begin, arrivals.begin()->first);
        auto count = static_cast<uint16_t>(newest + 1 - begin);
        auto ticks = [](double at) { return static_cast<int64_t>(std::llround(at / 250e-6)); };
        int64_t reference = ticks(arrivals.begin()->second) / 256, before = reference * 256;
        rtc::binary chunks, deltas;
        for (uint16_t n = 0; n < count; n += 7) {
            uint16_t chunk = 0xC000;
            for (int place = 0; place < 7 && n + place < count; place++)
                if (auto found = arrivals.find(begin + n + place); found != arrivals.end()) {
                    chunk |= 2 << 2 * (6 - place); // a delta of two bytes
                    put(deltas, static_cast<uint64_t>(ticks(found->second) - before), 2);
                    before = ticks(found->second);
                }
            put(chunks, chunk, 2);
        }
        rtc::binary body;
        put(body, 1, 4), put(body, ssrc, 4), put(body, static_cast<uint64_t>(begin), 2), put(body, count, 2);
        put(body, static_cast<uint64_t>(reference), 3), put(body, index++, 1);
        body.insert(body.end(), chunks.begin(), chunks.end()), body.insert(body.end(), deltas.begin(), deltas.end());
        body.resize((body.size() + 3) / 4 * 4);
        rtcp(all, 15, body);
        rtc::binary nack;
        put(nack, 1, 4), put(nack, ssrc, 4);
        for (uint16_t seq : missing)
            put(nack, seq, 2), put(nack, 0, 2);
        if (!missing.empty() && missing.size() < 200)
            rtcp(all, 1, nack);
        begin = newest + 1, arrivals.clear();
        return all;
    }

  private:
    static unsigned word(const rtc::Message &packet, size_t at) {
        return std::to_integer<unsigned>(packet[at]) << 8 | std::to_integer<unsigned>(packet[at + 1]);
    }
    static void put(rtc::binary &to, uint64_t value, int bytes) {
        while (bytes-- > 0)
            to.push_back(static_cast<std::byte>(value >> 8 * bytes));
    }
    static void rtcp(rtc::binary &to, uint8_t format, const rtc::binary &body) {
        put(to, 0x80 | format, 1), put(to, 205, 1), put(to, body.size() / 4, 2);
        to.insert(to.end(), body.begin(), body.end());
    }

    std::map<int64_t, double> arrivals;
    int64_t begin = 0, newest = 0;
    uint16_t last = 0;
    uint8_t index = 0;
    uint32_t ssrc = 0;
    bool begun = false;
};
