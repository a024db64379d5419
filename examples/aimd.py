"""Additive increase, multiplicative decrease: halves the rate on loss, else adds a packet per round trip."""


class Aimd:
    report_every_s = 0.1

    def __init__(self, setup):
        self.setup = setup
        self.rate = 200_000.0
        self.quiet_until_s = 0.0
        self.reason = "start"

    def on_report(self, report):
        rtt = max(report.rtt_s or 0.1, 0.01)
        if report.lost_packets and report.at_s >= self.quiet_until_s:
            self.rate /= 2
            self.quiet_until_s = report.at_s + rtt  # one loss event per round trip
            self.reason = "loss: halved"
        elif not report.lost_packets:
            packet = 8 * self.setup.packet_bytes / rtt  # a packet per round trip, in bit/s
            self.rate += packet * min(1.0, self.report_every_s / rtt)
            self.reason = "no loss: a packet more"
        self.rate = min(max(self.rate, self.setup.floor_bps), self.setup.cap_bps)

    def rate_bps(self):
        return self.rate

    def why(self):
        return self.reason
