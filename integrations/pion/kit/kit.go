// Package kit is Steadycast's sender kit for Go, a binding of its C library: a controller, a pacer and retransmission.
// It does no network I/O and reads no clock. A Sender may be used by one goroutine at a time.
package kit

/*
#cgo pkg-config: steadycast
#include <stdlib.h>
#include <steadycast.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// Kinds of streams.
const (
	Audio  = C.STEADYCAST_AUDIO
	Video  = C.STEADYCAST_VIDEO
	Parity = C.STEADYCAST_PARITY_STREAM
)

// Config has the limits of a sender. Rates are bit/s of IP packets.
type Config struct {
	Controller string // by its name in "steadycast controllers"; "" is steady
	Floor, Cap int
	// Covered means that the peer's feedback covers retransmissions. Chromium's mostly does; pion's does not.
	Covered bool
}

// Sender is a controller with its pacer and retransmission.
type Sender struct{ handle *C.SteadycastSender }

// New makes a sender, which Close frees.
func New(config Config) (*Sender, error) {
	if config.Controller == "" {
		config.Controller = "steady"
	}
	name, message := C.CString(config.Controller), (*C.char)(C.calloc(1, 256))
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(message))
	bounds := C.SteadycastBounds{floor_bps: C.uint64_t(config.Floor), cap_bps: C.uint64_t(config.Cap), packet_bytes: 1200}
	bounds.size = C.size_t(unsafe.Sizeof(bounds))
	settings := C.SteadycastSenderSettings{format: C.STEADYCAST_TRANSPORT_WIDE, max_backlog_ms: 1000, credit_ms: 20}
	settings.size = C.size_t(unsafe.Sizeof(settings))
	if config.Covered {
		settings.retransmissions_covered = 1
	}
	handle := C.steadycast_sender_new(C.STEADYCAST_ABI, name, nil, &bounds, &settings, message, 256)
	if handle == nil {
		return nil, errors.New(C.GoString(message))
	}
	return &Sender{handle}, nil
}

// Close frees the sender.
func (s *Sender) Close() { C.steadycast_sender_free(s.handle); s.handle = nil }

// Add adds a stream, and returns its number. For audio and parity, rate is reserved; for video, rate is the maximum,
// and 0 means no maximum. Covered means that feedback covers the stream's packets. Add returns an error if another
// stream has the SSRC, or if the reserved rate is above the cap.
func (s *Sender) Add(kind int, ssrc uint32, covered bool, rate int) (uint32, error) {
	stream := C.SteadycastStream{kind: C.uint32_t(kind), ssrc: C.uint32_t(ssrc), retransmission: 1}
	stream.size, stream.most_bps = C.size_t(unsafe.Sizeof(stream)), C.uint64_t(rate)
	if !covered {
		stream.uncovered = 1
	}
	number := C.steadycast_sender_stream(s.handle, &stream)
	if number < 0 {
		return 0, fmt.Errorf("stream %d: its SSRC is taken, or its %d bit/s are above the cap", ssrc, rate)
	}
	return uint32(number), nil
}

// Packet describes a queued packet. The caller stores the packet's bytes under its ID.
type Packet struct {
	ID          uint64
	Size        int // of the IP packet, in bytes
	Seq         uint16
	First, Last bool // of its frame
}

// Push queues a packet, and returns false if the packet is not accepted.
func (s *Sender) Push(now time.Duration, stream uint32, p Packet) bool {
	made := C.SteadycastPacket{id: C.uint64_t(p.ID), size_bytes: C.uint32_t(p.Size), seq: C.uint16_t(p.Seq)}
	if p.First {
		made.flags |= C.STEADYCAST_FRAME_FIRST
	}
	if p.Last {
		made.flags |= C.STEADYCAST_FRAME_LAST
	}
	return C.steadycast_sender_push(s.handle, C.int64_t(now), C.uint32_t(stream), &made) == 1
}

// Resend requests a retransmission, and returns false if the packet will not be retransmitted: it is already queued,
// was sent less than a round trip ago, is unknown, or retransmissions have used up their share of the rate.
func (s *Sender) Resend(now time.Duration, stream uint32, seq uint16) bool {
	return C.steadycast_sender_resend(s.handle, C.int64_t(now), C.uint32_t(stream), C.uint16_t(seq)) == 1
}

// Output is a packet to send now, or a dropped packet whose bytes are no longer needed.
type Output struct {
	ID, Number uint64
	Stream     uint32
	Seq        uint16
	Dropped    bool // the packet will not be sent
	Repair     bool // the packet is a retransmission
}

// Poll returns the next packet that is due. If none is due, it returns false and the time to wait.
func (s *Sender) Poll(now time.Duration) (Output, bool, time.Duration) {
	out := C.SteadycastOutput{}
	out.size = C.size_t(unsafe.Sizeof(out))
	said := C.steadycast_sender_poll(s.handle, C.int64_t(now), &out)
	if said != C.STEADYCAST_SEND && said != C.STEADYCAST_DROPPED {
		return Output{}, false, time.Duration(min(out.at_ns-C.int64_t(now), C.int64_t(time.Second)))
	}
	found := Output{ID: uint64(out.id), Number: uint64(out.number), Stream: uint32(out.stream), Seq: uint16(out.seq)}
	found.Dropped, found.Repair = said == C.STEADYCAST_DROPPED, out.kind == C.STEADYCAST_REPAIR
	return found, true, 0
}

// SentAs sets the transport-wide number with which a packet was sent.
func (s *Sender) SentAs(number uint64, transport uint16) {
	C.steadycast_sender_sent_as(s.handle, C.uint64_t(number), C.STEADYCAST_NAME_TRANSPORT, 0, C.uint64_t(transport))
}

// Feedback processes RTCP with transport-wide feedback.
func (s *Sender) Feedback(now time.Duration, rtcp []byte) {
	C.steadycast_sender_rtcp(s.handle, C.int64_t(now), (*C.uint8_t)(unsafe.SliceData(rtcp)), C.size_t(len(rtcp)))
}

// Encoder returns the rate of a stream in bit/s of IP packets, whether its next frame should be skipped, and whether it
// has to be a key frame.
func (s *Sender) Encoder(now time.Duration, stream uint32) (rate int, skip, key bool) {
	target := C.SteadycastEncoder{}
	target.size = C.size_t(unsafe.Sizeof(target))
	C.steadycast_sender_encoder(s.handle, C.int64_t(now), C.uint32_t(stream), &target)
	return int(target.rate_bps), target.skip != 0, target.key_frame != 0
}

// Decision returns the controller's target and pacing rate in bit/s, and the rule that set them.
func (s *Sender) Decision() map[string]any {
	made := C.SteadycastDecision{}
	made.size = C.size_t(unsafe.Sizeof(made))
	C.steadycast_sender_decision(s.handle, &made)
	why := C.GoString(&made.why[0])
	return map[string]any{"target": int(made.target_bps), "pacing": int(made.pacing_bps), "why": why}
}
