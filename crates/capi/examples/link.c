/* A controller over a link of 2 Mb/s with 40 ms of round trip: its decision at each report.
 *
 * A program that learns of packets with their feedback alone sets bounds.late, and calls steadycast_sent right before
 * steadycast_feedback, each with the time at which the packet left. One that knows that feedback will not tell of a
 * packet sends it with STEADYCAST_UNCOVERED, or calls steadycast_forget with its number.
 *
 * cc -std=c11 link.c $(pkg-config --cflags --libs steadycast) -o link && ./link steady
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <steadycast.h>

#define MS INT64_C(1000000)
#define PACKETS 65536 /* as many as the program remembers; numbers go round in it */

static const uint64_t capacity = 2000000;
static const uint32_t packet = 1200;

/* How long that many bytes take at a rate. */
static int64_t span(uint64_t bytes, uint64_t bps) { return (int64_t)(bytes * UINT64_C(8000000000) / bps); }

int main(int words, char **word)
{
    static SteadycastFate under_way[PACKETS];
    static int64_t told_at[PACKETS]; /* when the report may speak of it */
    uint64_t first = 0, next = 0;
    int64_t idle = 0, send = 0, report = 50 * MS;
    char error[256];
    SteadycastBounds bounds = STEADYCAST_BOUNDS(100000, 10000000);
    SteadycastDecision decision = {.size = sizeof decision};
    SteadycastRemote *remote =
        steadycast_new(STEADYCAST_ABI, words > 1 ? word[1] : "tfrc", "{}", &bounds, error, sizeof error);

    if (!remote) {
        fprintf(stderr, "%s\n", error);
        return 2;
    }
    for (;;) {
        int64_t wake = steadycast_wake(remote);
        int64_t now = wake < send ? wake : send;
        now = now < report ? now : report;
        if (now >= 60000 * MS)
            break;
        if (now == wake) {
            steadycast_timer(remote, now);
        } else if (now == send) {
            /* The packet waits for its turn on the link, where there is room for 200 ms. */
            uint64_t number = steadycast_sent(remote, now, packet, 0);
            bool lost = idle - now > 200 * MS;
            if (!lost)
                idle = (idle > now ? idle : now) + span(packet, capacity);
            told_at[next % PACKETS] = (lost ? now : idle) + 20 * MS;
            under_way[next % PACKETS] =
                (SteadycastFate){number, lost ? STEADYCAST_MISSING : idle + 20 * MS, STEADYCAST_NO_ECN};
            next++;
            steadycast_decision(remote, &decision);
            send = now + span(packet, decision.pacing_bps);
        } else {
            /* What had arrived when the report was written, one way ago. */
            uint64_t from = first;
            while (first < next && first - from < 1024 && first % PACKETS >= from % PACKETS
                   && told_at[first % PACKETS] <= now - 20 * MS)
                first++;
            steadycast_feedback(remote, now, &under_way[from % PACKETS], (size_t)(first - from));
            steadycast_decision(remote, &decision);
            printf("%" PRId64 " %" PRIu64 " %" PRIu64 " %s\n", now / MS, decision.target_bps,
                   decision.pacing_bps, decision.why);
            report = now + 50 * MS;
        }
    }
    steadycast_free(remote);
    return 0;
}
