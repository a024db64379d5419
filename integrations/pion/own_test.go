package steadycast

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/interceptor/pkg/cc"
	"github.com/pion/interceptor/pkg/gcc"
)

// What pion's own estimator has on the links of the tests above, for which no bound is ours to set: ours may not have
// less of the link at more delay.
func TestPionsOwnEstimatorHasNoMoreRateAtLessDelay(t *testing.T) {
	for name, path := range map[string]struct {
		bps   int
		queue time.Duration
		way   time.Duration
		loss  int
	}{
		"2 Mb/s, 1 % lost": {2_000_000, 100 * time.Millisecond, 25 * time.Millisecond, 1},
		"5 Mb/s":           {5_000_000, 500 * time.Millisecond, 50 * time.Millisecond, 0},
	} {
		outcome := func(estimator func(t *testing.T) cc.BandwidthEstimator) (bps float64, delay time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				link := link(t, path.bps, path.queue, path.way, path.loss)
				video := run(t, estimator(t), link, 10*time.Second, 30*time.Second)
				bps, _, delay = video.outcome(30 * time.Second)
			})
			return
		}
		limit := path.bps * 5 / 4
		ours, delay := outcome(func(t *testing.T) cc.BandwidthEstimator { return steady(t, 50_000, limit) })
		theirs, wait := outcome(func(t *testing.T) cc.BandwidthEstimator {
			own, err := gcc.NewSendSideBWE(gcc.SendSideBWEInitialBitrate(300_000), gcc.SendSideBWEMinBitrate(50_000),
				gcc.SendSideBWEMaxBitrate(limit))
			check(t, err)
			return own
		})
		t.Logf("%s: %.2f Mb/s and %v, pion's own %.2f Mb/s and %v", name, ours/1e6, delay, theirs/1e6, wait)
		if ours < theirs && delay > wait {
			t.Errorf("%s: %.0f bit/s and %v, pion's own %.0f and %v", name, ours, delay, theirs, wait)
		}
	}
}
