// Additive increase, multiplicative decrease: half the rate on loss, else a packet more per round trip.
//
//   controller = "exec:node aimd.mjs"
import { createInterface } from "node:readline";

let set = { packet: 0, floor: 0, cap: 0 };
let rate = 0;
let quiet = 0;
let why = "start";

createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.m === "end") process.exit(0);
  if (m.m === "hello") {
    console.log('{"v":1,"name":"aimd","every":100000000,"feedback":"echo"}');
    return;
  }
  if (m.m === "setup") [set, rate] = [m, m.floor];
  if (m.m === "report" && m.rtt > 0) {
    if (m.lost > 0 && m.t >= quiet) {
      [rate, quiet, why] = [rate / 2, m.t + m.rtt, "loss: halved"];
    } else if (m.lost === 0) {
      const step = ((8e9 * set.packet) / m.rtt) * Math.min(1, 100e6 / m.rtt);
      [rate, why] = [rate + step, "no loss: a packet more"];
    }
    rate = Math.min(Math.max(rate, set.floor), set.cap);
  }
  console.log(`{"rate":${Math.trunc(rate)},"why":"${why}"}`);
});
