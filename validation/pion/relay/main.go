// Command relay sends one stream to many viewers with pion, without rate control, for comparison with "steadycast
// serve".
//
//	relay HOST:PORT FILM.ivf
//
// It prints its address, answers offers at /whep/video, and repeats the film of VP8 until it is interrupted. Each viewer
// has pion's default interceptors: retransmissions, reports and transport-wide numbers.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/ivfreader"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// newAPI returns an API whose viewers share one UDP port, as an ICE-lite end and a DTLS server.
func newAPI(host string) *webrtc.API {
	engine := &webrtc.MediaEngine{}
	check(engine.RegisterDefaultCodecs())
	registry := &interceptor.Registry{}
	check(webrtc.RegisterDefaultInterceptors(engine, registry))
	check(webrtc.ConfigureTWCCHeaderExtensionSender(engine, registry))
	socket := must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(host)}))
	settings := webrtc.SettingEngine{}
	settings.SetLite(true)
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	settings.SetICEUDPMux(webrtc.NewICEUDPMux(nil, socket))
	check(settings.SetAnsweringDTLSRole(webrtc.DTLSRoleServer))
	return webrtc.NewAPI(
		webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(registry), webrtc.WithSettingEngine(settings))
}

// answer returns the answer to a viewer's offer.
func answer(api *webrtc.API, track webrtc.TrackLocal, offer string) (string, error) {
	connection, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return "", err
	}
	sender, err := connection.AddTrack(track)
	if err != nil {
		return "", err
	}
	go func() { // pion's interceptors process only RTCP that is read
		for bytes := make([]byte, 1500); ; {
			if _, _, err := sender.Read(bytes); err != nil {
				return
			}
		}
	}()
	if err := connection.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return "", err
	}
	made, err := connection.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(connection)
	if err := connection.SetLocalDescription(made); err != nil {
		return "", err
	}
	<-gathered
	return connection.LocalDescription().SDP, nil
}

// film reads the frames of a film, and their interval.
func film(path string) ([][]byte, time.Duration) {
	file := must(os.Open(path))
	defer file.Close()
	reader, header, err := ivfreader.NewWith(file)
	check(err)
	interval := time.Second * time.Duration(header.TimebaseNumerator) / time.Duration(header.TimebaseDenominator)
	var frames [][]byte
	for {
		frame, _, err := reader.ParseNextFrame()
		if err == io.EOF {
			return frames, interval
		}
		check(err)
		frames = append(frames, frame)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "relay HOST:PORT FILM.ivf")
		os.Exit(2)
	}
	host, _, err := net.SplitHostPort(os.Args[1])
	check(err)
	api := newAPI(host)
	frames, interval := film(os.Args[2])
	track := must(webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8}, "video", "film"))
	go func() {
		ticker := time.NewTicker(interval)
		for n := 0; ; n++ {
			<-ticker.C
			check(track.WriteSample(media.Sample{Data: frames[n%len(frames)], Duration: interval}))
		}
	}()
	var lock sync.Mutex // offers are answered one at a time
	http.HandleFunc("/whep/video", func(out http.ResponseWriter, request *http.Request) {
		offer := must(io.ReadAll(request.Body))
		lock.Lock()
		defer lock.Unlock()
		text, err := answer(api, track, string(offer))
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		out.Header().Set("content-type", "application/sdp")
		out.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(out, text)
	})
	fmt.Printf("http://%s/#token=none\n", os.Args[1])
	check(http.ListenAndServe(os.Args[1], nil))
}
