// Sends video from one PeerConnection to another for `steadycast judge`: judge send FOLDER ESTIMATOR [varied] and judge
// receive FOLDER. ESTIMATOR is steady, or gcc, which is pion's own. Offer and answer are files in FOLDER. The sender
// produces 30 frames per second of the size that the estimator allows; NACK and RTX are pion's. With "varied", the
// sizes vary like those of an encoder (RFC 8593, section 5.3): a Laplace distribution whose scale is 0.15 of the mean.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/pion/interceptor/pkg/cc"
	"github.com/pion/interceptor/pkg/gcc"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	steadycast "github.com/steadycast/steadycast/integrations/pion"
	"github.com/steadycast/steadycast/integrations/pion/internal/peers"
	"github.com/steadycast/steadycast/integrations/pion/kit"
)

// Bounds of the estimate in bit/s, and the time between two frames.
const (
	floor, limit = 100_000, 4_000_000
	interval     = time.Second / 30
)

func main() {
	switch words := os.Args[1:]; {
	case len(words) == 3 && words[0] == "send":
		send(words[1], words[2], 0)
	case len(words) == 4 && words[0] == "send" && words[3] == "varied":
		send(words[1], words[2], 0.15)
	case len(words) == 2 && words[0] == "receive":
		receive(words[1])
	default:
		panic("judge send FOLDER ESTIMATOR [varied], or judge receive FOLDER")
	}
}

func send(folder, name string, scale float64) {
	var estimator cc.BandwidthEstimator
	if name == "gcc" {
		estimator = peers.Must(gcc.NewSendSideBWE(
			gcc.SendSideBWEInitialBitrate(300_000), gcc.SendSideBWEMinBitrate(floor), gcc.SendSideBWEMaxBitrate(limit)))
	} else {
		estimator = peers.Must(steadycast.New(kit.Config{Controller: name, Floor: floor, Cap: limit}))
	}
	sender := peers.New(nil, estimator)
	track, connected := peers.AddVideo(sender), peers.Connected(sender)
	writeDescription(filepath.Join(folder, "offer.json"), peers.Describe(sender, peers.Must(sender.CreateOffer(nil))))
	peers.Check(sender.SetRemoteDescription(readDescription(filepath.Join(folder, "answer.json"))))
	<-connected

	ticks := time.NewTicker(interval)
	for n := 0; ; n++ {
		<-ticks.C
		if n%6 == 0 { // the log explains the rates of a cell
			fmt.Println(time.Now().UnixMilli(), estimator.GetTargetBitrate(), "bit/s", estimator.GetStats())
		}
		if frame := peers.Frame(estimator, interval); frame != nil {
			// The difference of two exponential variables has the Laplace distribution.
			share := max(0.1, 1+scale*(rand.ExpFloat64()-rand.ExpFloat64()))
			frame = make([]byte, int(float64(len(frame))*share))
			peers.Check(track.WriteSample(media.Sample{Data: frame, Duration: interval}))
		}
	}
}

func receive(folder string) {
	receiver := peers.New(nil, nil)
	peers.OnPacket(receiver, func(*rtp.Packet) bool { return true })
	fmt.Println("waiting")
	peers.Check(receiver.SetRemoteDescription(readDescription(filepath.Join(folder, "offer.json"))))
	answer := peers.Describe(receiver, peers.Must(receiver.CreateAnswer(nil)))
	writeDescription(filepath.Join(folder, "answer.json"), answer)
	select {}
}

// writeDescription writes a description into a file, which appears when it is complete.
func writeDescription(path string, description webrtc.SessionDescription) {
	peers.Check(os.WriteFile(path+".part", peers.Must(json.Marshal(description)), 0o644))
	peers.Check(os.Rename(path+".part", path))
}

// readDescription waits for a file with a description, and reads it.
func readDescription(path string) (description webrtc.SessionDescription) {
	for {
		if text, err := os.ReadFile(path); err == nil {
			peers.Check(json.Unmarshal(text, &description))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
