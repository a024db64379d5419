// Package steadycast is a bandwidth estimator for pion with a pacer: Steadycast's sender kit.
//
// It is used in a chain of interceptors like pion's own estimator (cc.NewInterceptor). Audio is sent immediately;
// retransmissions and video are sent at the pacing rate. A packet is retransmitted at most once per round trip.
package steadycast

import (
	"cmp"
	"encoding/binary"
	"io"
	"strings"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/steadycast/steadycast/integrations/pion/kit"
)

const (
	transportURI = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
	overhead     = 20 + 8 + 10 // bytes that IP, UDP and SRTP add to an RTP packet
	audioRate    = 64_000      // bit/s that are reserved for each audio stream
)

type packet struct {
	header     rtp.Header
	payload    []byte
	attributes interceptor.Attributes
}

type stream struct {
	id, ssrc       uint32
	extension      uint8 // of the transport-wide number
	err            error // why the kit refuses the stream
	writer         interceptor.RTPWriter
	repairs        map[uint16]*packet // retransmissions that wait, by their original's number
	begun, inFrame bool
	newest         uint16
}

// Estimator is a cc.BandwidthEstimator. The pacer's lock guards all its fields.
type Estimator struct {
	*kit.Pacer
	streams   []*stream
	video     *stream
	waiting   map[uint64]*packet
	next      uint64
	rate      int
	skip, key bool
	onChange  func(int)
}

// New makes an estimator and starts its pacer, which Close ends.
func New(config kit.Config) (*Estimator, error) {
	e := &Estimator{waiting: map[uint64]*packet{}}
	made := make(chan struct{})
	pacer, err := kit.NewPacer(config, e.take, func() { <-made; e.update() })
	e.Pacer = pacer
	close(made)
	return e, err
}

// AddStream adds a stream, whose packets are passed to writer at the pacing rate. If the kit refuses the stream, each
// write returns the reason.
func (e *Estimator) AddStream(info *interceptor.StreamInfo, writer interceptor.RTPWriter) interceptor.RTPWriter {
	s := &stream{ssrc: info.SSRC, writer: writer, repairs: map[uint16]*packet{}}
	for _, extension := range info.RTPHeaderExtensions {
		if extension.URI == transportURI {
			s.extension = uint8(extension.ID)
		}
	}
	e.Do(func(sender *kit.Sender, _ time.Duration) {
		kind, rate := kit.Video, 0
		if strings.HasPrefix(info.MimeType, "audio/") {
			kind, rate = kit.Audio, audioRate
		} else if e.video == nil {
			e.video = s
		}
		s.id, s.err = sender.Add(kind, info.SSRC, s.extension != 0, rate)
		e.streams = append(e.streams, s)
	})
	return interceptor.RTPWriterFunc(func(h *rtp.Header, payload []byte, a interceptor.Attributes) (int, error) {
		p := &packet{h.Clone(), append([]byte(nil), payload...), a}
		if s.err != nil || !e.Do(func(sender *kit.Sender, now time.Duration) { e.push(sender, now, s, p) }) {
			return 0, cmp.Or(s.err, io.ErrClosedPipe)
		}
		e.Poke()
		return h.MarshalSize() + len(payload), nil
	})
}

// push queues a packet, or requests its retransmission.
func (e *Estimator) push(sender *kit.Sender, now time.Duration, s *stream, p *packet) {
	seq := p.header.SequenceNumber
	again := s.begun && int16(seq-s.newest) <= 0
	if p.header.SSRC != s.ssrc && len(p.payload) > 1 {
		again, seq = true, binary.BigEndian.Uint16(p.payload) // RFC 4588: the original's number comes first
	}
	if again {
		if sender.Resend(now, s.id, seq) {
			s.repairs[seq] = p
		}
		return
	}
	size, last := p.header.MarshalSize()+len(p.payload)+overhead, p.header.Marker
	if sender.Push(now, s.id, kit.Packet{ID: e.next, Size: size, Seq: seq, First: !s.inFrame, Last: last}) {
		e.waiting[e.next] = p
		e.next++
	}
	s.begun, s.newest, s.inFrame = true, seq, !last
}

// take returns the function that sends a packet that is due.
func (e *Estimator) take(out kit.Output) func() (uint16, bool) {
	s, p := e.streams[out.Stream], e.waiting[out.ID]
	delete(e.waiting, out.ID)
	if out.Repair {
		p = s.repairs[out.Seq]
		delete(s.repairs, out.Seq)
	}
	if out.Dropped || p == nil {
		return nil
	}
	return func() (transport uint16, named bool) {
		_, err := s.writer.Write(&p.header, p.payload, p.attributes)
		// An interceptor before or after this one has numbered the packet.
		if number := p.header.GetExtension(s.extension); err == nil && len(number) == 2 {
			transport, named = binary.BigEndian.Uint16(number), true
		}
		return
	}
}

// update reads the encoder's target, and calls onChange if the rate has changed.
func (e *Estimator) update() (after int) {
	before, changed := 0, func(int) {}
	e.Do(func(sender *kit.Sender, now time.Duration) {
		if e.video != nil {
			rate, skip, key := sender.Encoder(now, e.video.id)
			before, after = e.rate, rate*19/20 // headers are a twentieth of full packets
			e.rate, e.skip, e.key, changed = after, skip, e.key || key, e.onChange
		}
	})
	if after != before && changed != nil {
		changed(after)
	}
	return after
}

// Encoder returns the rate of the first video stream in bit/s, whether its next frame should be skipped (the queue is
// too long), and whether its next frame has to be a key frame (a frame was skipped).
func (e *Estimator) Encoder() (rate int, skip, key bool) {
	e.update()
	e.Do(func(*kit.Sender, time.Duration) { rate, skip, key, e.key = e.rate, e.skip, e.key, false })
	return
}

// WriteRTCP processes transport-wide feedback.
func (e *Estimator) WriteRTCP(packets []rtcp.Packet, _ interceptor.Attributes) error {
	for _, p := range packets {
		if feedback, is := p.(*rtcp.TransportLayerCC); is {
			if bytes, err := feedback.Marshal(); err == nil {
				e.Do(func(sender *kit.Sender, now time.Duration) { sender.Feedback(now, bytes) })
				e.Poke()
			}
		}
	}
	return nil
}

// GetTargetBitrate returns the rate of the first video stream, in bit/s without headers.
func (e *Estimator) GetTargetBitrate() int { return e.update() }

// OnTargetBitrateChange sets the function that is called when the target bitrate changes.
func (e *Estimator) OnTargetBitrateChange(f func(bitrate int)) {
	e.Do(func(*kit.Sender, time.Duration) { e.onChange = f })
}

// GetStats returns the controller's target and pacing rate, and the rule that set them.
func (e *Estimator) GetStats() (stats map[string]any) {
	e.Do(func(s *kit.Sender, _ time.Duration) { stats = s.Decision() })
	return
}
