/* Any calls in any order, each with memory of exactly the size that it is told, which is gone after the call. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <steadycast.h>

static uint64_t state = 1;

/* A number below a bound (Knuth's linear congruential generator). */
static uint64_t below(uint64_t bound)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % bound;
}

/* A time that goes on, goes back, or is at an end of what can be told. */
static int64_t any_time(int64_t now)
{
    const int64_t ends[] = {INT64_MIN, -1, 0, INT64_MAX - 1, INT64_MAX};
    return below(20) ? now - (int64_t)below(50000000) : ends[below(5)];
}

static void *room(size_t size)
{
    void *made = malloc(size);
    if (!made)
        exit(3);
    return made;
}

static void call(SteadycastRemote *remote, int64_t now)
{
    size_t count = below(4) ? below(40) : 0;
    SteadycastFate *fates = room(count * sizeof *fates + !count);
    SteadycastDecision *decision = room(sizeof *decision);
    SteadycastProbe *probe = room(sizeof *probe);
    decision->size = below(9) ? sizeof *decision : below(100);
    probe->size = below(9) ? sizeof *probe : below(100);
    for (size_t n = 0; n < count; n++) {
        fates[n].number = below(10) ? below(3000) : UINT64_MAX - below(9);
        fates[n].arrived_ns = below(5) ? any_time(now) : STEADYCAST_MISSING;
        fates[n].ecn = (int32_t)below(7) - 2;
    }
    switch (below(8)) {
    case 0: case 1: case 2: steadycast_sent(remote, any_time(now), (uint32_t)below(3000), (uint32_t)below(9)); break;
    case 3: steadycast_sent_extra(remote, any_time(now), (uint32_t)below(3000), (uint32_t)below(6)); break;
    case 4: steadycast_feedback(remote, any_time(now), below(30) ? fates : NULL, count); break;
    case 5: steadycast_timer(remote, any_time(now)); break;
    case 6: steadycast_queued(remote, any_time(now), below(2) ? below(99999) : UINT64_MAX, any_time(now), now); break;
    default: steadycast_number(remote, (uint16_t)below(65536));
    }
    steadycast_wake(remote);
    steadycast_decision(remote, below(30) ? decision : NULL);
    steadycast_probe(remote, below(30) ? probe : NULL);
    free(fates);
    free(decision);
    free(probe);
}

int main(void)
{
    size_t needed = steadycast_controllers(NULL, 0);
    char *names = room(needed);
    steadycast_controllers(names, needed);
    for (char *name = strtok(names, "\n"); name; name = strtok(NULL, "\n")) {
        SteadycastBounds *bounds = room(sizeof *bounds);
        size_t size = 1 + below(60);
        char *error = room(size), *own = room(strlen(name) + 1);
        *bounds = (SteadycastBounds)STEADYCAST_BOUNDS(100000, 10000000);
        bounds->probes = 1;
        strcpy(own, name);
        if (steadycast_new(STEADYCAST_ABI, own, "{\"nobody\": 1}", bounds, error, size) || !memchr(error, 0, size))
            return 1;
        SteadycastRemote *remote = steadycast_new(STEADYCAST_ABI, own, "{}", bounds, error, size);
        free(bounds);
        free(error);
        free(own);
        if (!remote)
            return 1;
        for (int64_t n = 0; n < 3000; n++)
            call(below(50) ? remote : NULL, n * 1000000);
        steadycast_free(remote);
    }
    free(names);
    return 0;
}
