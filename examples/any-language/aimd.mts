// Additive increase, multiplicative decrease: halves the rate on loss, else adds a packet per round trip.
//
//   tsc --strict --target es2022 --module es2022 aimd.mts        controller = "exec:node aimd.mjs"
//
// Node from 22.18 on takes it as it is: controller = "exec:node aimd.mts".
declare const process: { stdin: { setEncoding(name: "utf8"): AsyncIterable<string> } };

type Setup = { m: "setup"; packet: number; floor: number; cap: number };
type Report = { m: "report"; t: number; rtt: number | null; lost: number | null };
type Message = Setup | Report | { m: "hello" | "timer" | "leave" | "end" };

let set: Setup = { m: "setup", packet: 0, floor: 0, cap: 0 };
let rate = 0;
let quiet = 0;
let why = "start";

function answer(m: Message): string {
  if (m.m === "hello") return '{"v":1,"name":"aimd","every":100000000,"feedback":"echo"}';
  if (m.m === "setup") [set, rate] = [m, m.floor];
  if (m.m === "report" && m.rtt) {
    if (m.lost && m.t >= quiet) {
      [rate, quiet, why] = [rate / 2, m.t + m.rtt, "loss: halved"];
    } else if (m.lost === 0) {
      const step = ((8e9 * set.packet) / m.rtt) * Math.min(1, 100e6 / m.rtt);
      [rate, why] = [rate + step, "no loss: a packet more"];
    }
    rate = Math.min(Math.max(rate, set.floor), set.cap);
  }
  return JSON.stringify({ rate: Math.trunc(rate), why });
}

let rest = "";
for await (const chunk of process.stdin.setEncoding("utf8")) {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop() ?? "";
  for (const line of lines) {
    const m: Message = JSON.parse(line);
    if (m.m !== "end") console.log(answer(m)); // what follows "end" is the end of the input
  }
}

export {};
