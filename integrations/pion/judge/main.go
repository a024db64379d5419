// Sends video from one PeerConnection to another for `steadycast judge`: judge send FOLDER ESTIMATOR and judge receive
// FOLDER. ESTIMATOR is steady, or gcc, which is pion's own. Offer and answer are files in FOLDER. The frames have the
// size that the estimator allows, 30 in a second; NACK and RTX are pion's.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/cc"
	"github.com/pion/interceptor/pkg/gcc"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	steadycast "github.com/steadycast/steadycast/integrations/pion"
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
		send(words[1], words[2])
	case len(words) == 2 && words[0] == "receive":
		receive(words[1])
	default:
		panic("judge send FOLDER ESTIMATOR, or judge receive FOLDER")
	}
}

func send(folder, name string) {
	var own *steadycast.Estimator
	var estimator cc.BandwidthEstimator
	if name == "gcc" {
		estimator = must(gcc.NewSendSideBWE(
			gcc.SendSideBWEInitialBitrate(300_000), gcc.SendSideBWEMinBitrate(floor), gcc.SendSideBWEMaxBitrate(limit)))
	} else {
		own = must(steadycast.New(kit.Config{Controller: name, Floor: floor, Cap: limit}))
		estimator = own
	}
	sender := peer(func(engine *webrtc.MediaEngine, chain *interceptor.Registry) {
		chain.Add(must(cc.NewInterceptor(func() (cc.BandwidthEstimator, error) { return estimator, nil })))
		check(webrtc.ConfigureTWCCHeaderExtensionSender(engine, chain))
	})
	track := must(webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8}, "v", "v"))
	sending := must(sender.AddTrack(track))
	go func() {
		for buffer := make([]byte, 1500); ; {
			if _, _, err := sending.Read(buffer); err != nil {
				return
			}
		}
	}()
	connected := make(chan struct{})
	sender.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected {
			close(connected)
		}
	})
	describe(sender, must(sender.CreateOffer(nil)), filepath.Join(folder, "offer.json"))
	check(sender.SetRemoteDescription(described(filepath.Join(folder, "answer.json"))))
	<-connected

	ticks := time.NewTicker(interval)
	for n := 0; ; n++ {
		<-ticks.C
		rate := estimator.GetTargetBitrate()
		if n%30 == 0 {
			fmt.Println(rate, "bit/s")
		}
		if own != nil {
			if _, skip, _ := own.Encoder(); skip {
				continue
			}
		}
		frame := make([]byte, max(16, int(float64(rate)*interval.Seconds()/8)))
		check(track.WriteSample(media.Sample{Data: frame, Duration: interval}))
	}
}

func receive(folder string) {
	receiver := peer(nil)
	receiver.OnTrack(func(remote *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			if _, _, err := remote.ReadRTP(); err != nil {
				return
			}
		}
	})
	fmt.Println("waiting")
	check(receiver.SetRemoteDescription(described(filepath.Join(folder, "offer.json"))))
	describe(receiver, must(receiver.CreateAnswer(nil)), filepath.Join(folder, "answer.json"))
	select {}
}

func peer(more func(*webrtc.MediaEngine, *interceptor.Registry)) *webrtc.PeerConnection {
	var engine webrtc.MediaEngine
	check(engine.RegisterDefaultCodecs())
	var chain interceptor.Registry
	if more != nil {
		more(&engine, &chain)
	}
	check(webrtc.RegisterDefaultInterceptors(&engine, &chain))
	return must(webrtc.NewAPI(webrtc.WithMediaEngine(&engine), webrtc.WithInterceptorRegistry(&chain)).
		NewPeerConnection(webrtc.Configuration{}))
}

// describe writes the description of a peer with all its candidates into a file.
func describe(peer *webrtc.PeerConnection, description webrtc.SessionDescription, place string) {
	gathered := webrtc.GatheringCompletePromise(peer)
	check(peer.SetLocalDescription(description))
	<-gathered
	check(os.WriteFile(place+".part", must(json.Marshal(peer.LocalDescription())), 0o644))
	check(os.Rename(place+".part", place))
}

// described waits for a file with a description.
func described(place string) (description webrtc.SessionDescription) {
	for {
		if text, err := os.ReadFile(place); err == nil {
			check(json.Unmarshal(text, &description))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](made T, err error) T {
	check(err)
	return made
}
