// Sends video from one PeerConnection to another over a virtual link of 2 Mb/s, which has 0.5 Mb/s from the 10th to the
// 20th second, and prints the rate that the encoder is told: go run ./example
package main

import (
	"fmt"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/cc"
	"github.com/pion/logging"
	"github.com/pion/transport/v5/vnet"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	steadycast "github.com/steadycast/steadycast/integrations/pion"
	"github.com/steadycast/steadycast/integrations/pion/kit"
)

func main() {
	left, right, queue := network()

	// What a program needs: the estimator takes pion's place in the chain, and NACK and RTX are pion's own.
	estimator := must(steadycast.New(kit.Config{Floor: 100_000, Cap: 4_000_000}))
	sender := peer(left, func(engine *webrtc.MediaEngine, chain *interceptor.Registry) {
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
	receiver := peer(right, nil)
	receiver.OnTrack(func(remote *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			if _, _, err := remote.ReadRTP(); err != nil {
				return
			}
		}
	})
	connect(sender, receiver)

	for n := 0; n < 750; n++ {
		time.Sleep(40 * time.Millisecond)
		rate, skip, _ := estimator.Encoder() // the third says when a key frame is needed
		if !skip {
			frame := make([]byte, max(16, rate/25/8)) // where an encoder would make one of this size
			check(track.WriteSample(media.Sample{Data: frame, Duration: 40 * time.Millisecond}))
		}
		if n%25 == 24 {
			fmt.Printf("%2d s  %4d kb/s  %v\n", n/25+1, rate/1000, estimator.GetStats()["why"])
		}
		switch n {
		case 250:
			queue.SetRate(500_000)
		case 500:
			queue.SetRate(2_000_000)
		}
	}
	check(sender.Close())
}

func network() (left, right *vnet.Net, queue *vnet.TBFQueue) {
	router := must(vnet.NewRouter(&vnet.RouterConfig{CIDR: "10.0.0.0/24", LoggerFactory: logging.NewDefaultLoggerFactory()}))
	left = must(vnet.NewNet(&vnet.NetConfig{StaticIPs: []string{"10.0.0.1"}}))
	right = must(vnet.NewNet(&vnet.NetConfig{StaticIPs: []string{"10.0.0.2"}}))
	queue = vnet.NewTBFQueue(2_000_000, 1500, 50_000)
	check(router.AddNet(must(vnet.NewDelayFilter(left, vnet.WithDelay(25*time.Millisecond)))))
	there := must(vnet.NewDelayFilter(right, vnet.WithDelay(25*time.Millisecond)))
	check(router.AddNet(must(vnet.NewQueue(there, queue))))
	check(router.Start())
	return
}

func peer(net *vnet.Net, more func(*webrtc.MediaEngine, *interceptor.Registry)) *webrtc.PeerConnection {
	var settings webrtc.SettingEngine
	settings.SetNet(net)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	var engine webrtc.MediaEngine
	check(engine.RegisterDefaultCodecs())
	var chain interceptor.Registry
	if more != nil {
		more(&engine, &chain)
	}
	check(webrtc.RegisterDefaultInterceptors(&engine, &chain))
	api := webrtc.NewAPI(
		webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(&engine), webrtc.WithInterceptorRegistry(&chain))
	return must(api.NewPeerConnection(webrtc.Configuration{}))
}

func connect(from, to *webrtc.PeerConnection) {
	describe := func(one, other *webrtc.PeerConnection, description webrtc.SessionDescription) {
		gathered := webrtc.GatheringCompletePromise(one)
		check(one.SetLocalDescription(description))
		<-gathered
		check(other.SetRemoteDescription(*one.LocalDescription()))
	}
	describe(from, to, must(from.CreateOffer(nil)))
	describe(to, from, must(to.CreateAnswer(nil)))
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
