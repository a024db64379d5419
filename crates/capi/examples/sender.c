/* Audio and video over a link of 2 Mb/s that loses each 100th packet, with the sender's kit.
 *
 *   cc sender.c $(pkg-config --cflags --libs steadycast) && ./a.out steady */
#include "steadycast.h"

#include <stdio.h>

#define MS INT64_C(1000000)
#define MOST 4096

int main(int count, char **words) {
    const char *controller = count > 1 ? words[1] : "steady";
    char error[256];
    SteadycastBounds bounds = STEADYCAST_BOUNDS(100000, 10000000);
    SteadycastSenderSettings settings = STEADYCAST_SENDER_SETTINGS;
    SteadycastSender *sender =
        steadycast_sender_new(STEADYCAST_ABI, controller, NULL, &bounds, &settings, error, sizeof error);
    if (sender == NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    SteadycastStream sound = {sizeof sound, STEADYCAST_AUDIO, 2, 0, 0, 0, 40000};
    SteadycastStream film = {sizeof film, STEADYCAST_VIDEO, 1, 1, 0, 0, 0};
    uint32_t audio = (uint32_t)steadycast_sender_stream(sender, &sound);
    uint32_t video = (uint32_t)steadycast_sender_stream(sender, &film);

    /* The packets that were sent, and when each arrives; 0: it is lost. */
    static struct { SteadycastOutput packet; int64_t arrives; } sent[MOST];
    static SteadycastFate fates[MOST];
    uint64_t first = 0, next = 0, carried = 0;
    uint16_t seqs[2] = {0, 0};
    int64_t idle = 0;
    for (int64_t now = 0; now < 30000 * MS; now += MS) {
        /* 1. Each 20 ms the encoder makes a frame at the rate that it is given, unless too much waits. */
        if (now % (20 * MS) == 0) {
            SteadycastPacket word = {0, 100, STEADYCAST_FRAME_FIRST | STEADYCAST_FRAME_LAST, seqs[0]++};
            steadycast_sender_push(sender, now, audio, &word);
            SteadycastEncoder plan = {.size = sizeof plan};
            steadycast_sender_encoder(sender, now, video, &plan);
            uint32_t role = plan.key_frame ? STEADYCAST_FRAME_KEY : STEADYCAST_FRAME_REFERENCE;
            if (!plan.skip && steadycast_sender_frame(sender, now, video, role) == 1) {
                uint64_t bytes = plan.rate_bps / 400 + 60, packets = (bytes + 1199) / 1200;
                for (uint64_t n = 0; n < packets; n++) {
                    uint32_t flags = (n == 0 ? STEADYCAST_FRAME_FIRST : 0) |
                                     (n + 1 == packets ? STEADYCAST_FRAME_LAST : 0);
                    SteadycastPacket part = {n, (uint32_t)(bytes / packets), flags, seqs[1]++};
                    steadycast_sender_push(sender, now, video, &part);
                }
            }
        }
        /* 2. Packets are sent when the pacer says so. */
        SteadycastOutput output = {.size = sizeof output};
        int said;
        while ((said = steadycast_sender_poll(sender, now, &output)) != STEADYCAST_WAIT) {
            if (said != STEADYCAST_SEND) continue;
            uint64_t size = output.stream == audio ? 100 : 1200;
            idle = (idle > now ? idle : now) + (int64_t)(size * 4000);
            sent[next % MOST].packet = output;
            sent[next % MOST].arrives = next % 100 == 99 ? 0 : idle + 25 * MS;
            next++;
        }
        /* 3. Each 50 ms feedback tells the fates of what has arrived, and NACKs request what has not. */
        if (now % (50 * MS) == 0) {
            size_t told = 0;
            while (first < next && sent[first % MOST].arrives <= now - 25 * MS) {
                int64_t arrives = sent[first % MOST].arrives;
                SteadycastOutput packet = sent[first++ % MOST].packet;
                /* Receivers leave retransmissions out of transport-wide feedback. */
                if (packet.kind == 0) {
                    int64_t at = arrives == 0 ? STEADYCAST_MISSING : arrives;
                    fates[told++] = (SteadycastFate){packet.number, at, STEADYCAST_NO_ECN};
                    carried += arrives == 0 ? 0 : packet.stream == audio ? 100 : 1200;
                }
                if (arrives == 0) steadycast_sender_resend(sender, now, packet.stream, packet.seq);
            }
            steadycast_sender_feedback(sender, now, fates, told);
        }
        if (now % (1000 * MS) == 0) {
            SteadycastDecision decision = {.size = sizeof decision};
            steadycast_sender_decision(sender, &decision);
            printf("%llu %llu %s\n", (unsigned long long)decision.target_bps, (unsigned long long)carried, decision.why);
        }
    }
    steadycast_sender_free(sender);
    return 0;
}
