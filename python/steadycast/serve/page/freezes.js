// Freezes, by the rule of the W3C (webrtc-stats, freezeCount), of the times in ms at which pictures were shown.

const RECENT = 30;

export function freezes() {
  const recent = [];
  return {
    count: 0, time: 0, last: null,
    shown(at) {
      if (this.last !== null) {
        const span = at - this.last;
        recent.push(span);
        if (recent.length > RECENT) recent.shift();
        const mean = recent.reduce((sum, one) => sum + one, 0) / recent.length;
        if (span >= Math.max(3 * mean, mean + 150)) {
          this.count += 1;
          this.time += span / 1000;
        }
      }
      this.last = at;
    },
  };
}
