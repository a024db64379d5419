/* Additive increase, multiplicative decrease: halves the rate on loss, else adds a packet per round trip.
 *
 *   cc -O2 -ffp-contract=off -o aimd-c aimd.c        controller = "exec:./aimd-c", or "exec:./aimd-c stats"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char line[1 << 20];

/* Returns the number of a key; -1 if it is null or absent. A message's keys are unique, and no text has a quote. */
static double number(const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    if (!at || !strncmp(at + strlen(quoted), "null", 4)) return -1;
    return strtod(at + strlen(quoted), NULL);
}

int main(int words, char **word) {
    const char *feedback = words > 1 ? word[1] : "echo";
    const double every = strcmp(feedback, "stats") ? 100e6 : 1e9;
    double packet = 0, floor = 0, cap = 0, rate = 0, quiet = 0;
    const char *why = "start";
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "{\"m\":\"end\"", 10)) return 0;
        if (!strncmp(line, "{\"m\":\"hello\"", 12)) {
            printf("{\"v\":1,\"name\":\"aimd\",\"every\":100000000,\"feedback\":\"%s\"}\n", feedback);
            fflush(stdout);
            continue;
        }
        if (!strncmp(line, "{\"m\":\"setup\"", 12)) {
            packet = number("packet"), floor = number("floor"), cap = number("cap"), rate = floor;
        } else if (!strncmp(line, "{\"m\":\"report\"", 13) && number("rtt") > 0) {
            double t = number("t"), rtt = number("rtt"), lost = number("lost");
            if (lost > 0 && t >= quiet) {
                rate = rate / 2, quiet = t + rtt, why = "loss: halved";
            } else if (lost == 0) {
                double share = every / rtt < 1 ? every / rtt : 1;
                rate = rate + 8e9 * packet / rtt * share, why = "no loss: a packet more";
            }
            rate = rate < floor ? floor : rate > cap ? cap : rate;
        }
        printf("{\"rate\":%lld,\"why\":\"%s\"}\n", (long long)rate, why);
        fflush(stdout);
    }
    return 0;
}
