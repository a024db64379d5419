#!/usr/bin/env python3
"""Additive increase, multiplicative decrease: halves the rate on loss, else adds a packet per round trip.

controller = "exec:./aimd_exec.py"
"""

import json
import sys

EVERY = 100e6
packet = floor = cap = rate = quiet = 0.0
why = "start"
for line in sys.stdin:
    told = json.loads(line)
    if told["m"] == "end":
        break
    if told["m"] == "hello":
        print('{"v":1,"name":"aimd","every":100000000,"feedback":"echo"}', flush=True)
        continue
    if told["m"] == "setup":
        packet, floor, cap = told["packet"], told["floor"], told["cap"]
        rate = floor
    elif told["m"] == "report" and told["rtt"]:
        t, rtt, lost = told["t"], told["rtt"], told["lost"]
        if lost and t >= quiet:
            rate, quiet, why = rate / 2, t + rtt, "loss: halved"
        elif lost == 0:
            rate += 8e9 * packet / rtt * min(1.0, EVERY / rtt)
            why = "no loss: a packet more"
        rate = min(max(rate, floor), cap)
    print(json.dumps({"rate": int(rate), "why": why}), flush=True)
