// Package peers makes pairs of PeerConnections and virtual links between them, for the tests and programs of this module.
package peers

import (
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/cc"
	"github.com/pion/logging"
	"github.com/pion/rtp"
	"github.com/pion/transport/v5/vnet"
	"github.com/pion/webrtc/v4"
)

// Check panics with an error, if there is one.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

// Must returns a value, or panics with its error.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Link is a virtual network from a sender to a receiver.
type Link struct {
	Sender, Receiver *vnet.Net
	Queue            *vnet.TBFQueue
	close            func()
}

// NewLink makes a link of this rate in bit/s, with a drop-tail queue of this length, a delay each way and random losses.
func NewLink(bps int, queue, way time.Duration, lossPercent int) *Link {
	router := Must(vnet.NewRouter(&vnet.RouterConfig{CIDR: "10.0.0.0/24", LoggerFactory: logging.NewDefaultLoggerFactory()}))
	sender := Must(vnet.NewNet(&vnet.NetConfig{StaticIPs: []string{"10.0.0.1"}}))
	receiver := Must(vnet.NewNet(&vnet.NetConfig{StaticIPs: []string{"10.0.0.2"}}))
	bucket := vnet.NewTBFQueue(bps, 1500, int64(float64(bps)*queue.Seconds()/8))
	there := Must(vnet.NewDelayFilter(receiver, vnet.WithDelay(way)))
	lossy := Must(vnet.NewLossFilter(there, lossPercent, vnet.WithLossSeed(1)))
	queued := Must(vnet.NewQueue(lossy, bucket))
	back := Must(vnet.NewDelayFilter(sender, vnet.WithDelay(way)))
	Check(router.AddNet(back))
	Check(router.AddNet(queued))
	Check(router.Start())
	return &Link{sender, receiver, bucket, func() {
		// A closed filter accepts no packets, so those in flight arrive first.
		time.Sleep(2 * time.Second)
		_ = router.Stop()
		_ = queued.Close()
		_ = there.Close()
		_ = back.Close()
	}}
}

// Close ends the link. The peers must be closed before.
func (l *Link) Close() { l.close() }

// New makes a PeerConnection with pion's default interceptors, which include NACK and RTX. If network is nil, it uses
// the machine's network. If estimator is nil, the peer can only receive video.
func New(network *vnet.Net, estimator cc.BandwidthEstimator) *webrtc.PeerConnection {
	var settings webrtc.SettingEngine
	if network != nil {
		settings.SetNet(network)
		settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	}
	var engine webrtc.MediaEngine
	Check(engine.RegisterDefaultCodecs())
	var chain interceptor.Registry
	if estimator != nil {
		chain.Add(Must(cc.NewInterceptor(func() (cc.BandwidthEstimator, error) { return estimator, nil })))
		Check(webrtc.ConfigureTWCCHeaderExtensionSender(&engine, &chain))
	}
	Check(webrtc.RegisterDefaultInterceptors(&engine, &chain))
	api := webrtc.NewAPI(
		webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(&engine), webrtc.WithInterceptorRegistry(&chain))
	return Must(api.NewPeerConnection(webrtc.Configuration{}))
}

// AddVideo adds a video track to a sender. It also reads the track's RTCP, because interceptors process only RTCP that
// the program reads.
func AddVideo(sender *webrtc.PeerConnection) *webrtc.TrackLocalStaticSample {
	track := Must(webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8}, "v", "v"))
	rtcp := Must(sender.AddTrack(track))
	go func() {
		for buffer := make([]byte, 1500); ; {
			if _, _, err := rtcp.Read(buffer); err != nil {
				return
			}
		}
	}()
	return track
}

// OnPacket calls f with each packet that a receiver reads, until f returns false.
func OnPacket(receiver *webrtc.PeerConnection, f func(*rtp.Packet) bool) {
	receiver.OnTrack(func(remote *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			if packet, _, err := remote.ReadRTP(); err != nil || !f(packet) {
				return
			}
		}
	})
}

// Frame returns a frame of the size that the estimator's rate allows, or nil if the estimator skips it. The frame is not
// encoded video.
func Frame(estimator cc.BandwidthEstimator, interval time.Duration) []byte {
	rate := estimator.GetTargetBitrate()
	if skips, is := estimator.(interface{ Encoder() (int, bool, bool) }); is {
		if _, skip, _ := skips.Encoder(); skip {
			return nil
		}
	}
	return make([]byte, max(16, int(float64(rate)*interval.Seconds()/8)))
}

// Connected returns a channel that is closed when the peer is connected.
func Connected(peer *webrtc.PeerConnection) <-chan struct{} {
	connected := make(chan struct{})
	peer.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected {
			close(connected)
		}
	})
	return connected
}

// Describe sets a peer's own description, and returns it with all its candidates.
func Describe(peer *webrtc.PeerConnection, description webrtc.SessionDescription) webrtc.SessionDescription {
	gathered := webrtc.GatheringCompletePromise(peer)
	Check(peer.SetLocalDescription(description))
	<-gathered
	return *peer.LocalDescription()
}

// Connect exchanges the descriptions of two peers, and waits until they are connected.
func Connect(sender, receiver *webrtc.PeerConnection) {
	connected := Connected(sender)
	Check(receiver.SetRemoteDescription(Describe(sender, Must(sender.CreateOffer(nil)))))
	Check(sender.SetRemoteDescription(Describe(receiver, Must(receiver.CreateAnswer(nil)))))
	<-connected
}
