// Sends video from one PeerConnection to another over a virtual link of 2 Mb/s, which has 0.5 Mb/s from the 10th to the
// 20th second, and prints the encoder's rate: go run ./example
package main

import (
	"fmt"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4/pkg/media"
	steadycast "github.com/steadycast/steadycast/integrations/pion"
	"github.com/steadycast/steadycast/integrations/pion/internal/peers"
	"github.com/steadycast/steadycast/integrations/pion/kit"
)

func main() {
	link := peers.NewLink(2_000_000, 200*time.Millisecond, 25*time.Millisecond, 0)
	// peers.New replaces pion's own estimator by this one. NACK and RTX are pion's.
	estimator := peers.Must(steadycast.New(kit.Config{Floor: 100_000, Cap: 4_000_000}))
	sender, receiver := peers.New(link.Sender, estimator), peers.New(link.Receiver, nil)
	track := peers.AddVideo(sender)
	peers.OnPacket(receiver, func(*rtp.Packet) bool { return true })
	peers.Connect(sender, receiver)

	for n := 0; n < 750; n++ {
		time.Sleep(40 * time.Millisecond)
		rate, skip, _ := estimator.Encoder() // the third value says whether a key frame is needed
		if !skip {
			frame := make([]byte, max(16, rate/25/8)) // in place of an encoder's frame of this size
			peers.Check(track.WriteSample(media.Sample{Data: frame, Duration: 40 * time.Millisecond}))
		}
		if n%25 == 24 {
			fmt.Printf("%2d s  %4d kb/s  %v\n", n/25+1, rate/1000, estimator.GetStats()["why"])
		}
		switch n {
		case 250:
			link.Queue.SetRate(500_000)
		case 500:
			link.Queue.SetRate(2_000_000)
		}
	}
	peers.Check(sender.Close())
}
