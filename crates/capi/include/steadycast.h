/* Steadycast's rate controllers for C and C++: see docs/embedding.md.
 *
 * Made from crates/capi/src by cbindgen (integrations/c); a test there says when it is stale.
 */

#ifndef STEADYCAST_H
#define STEADYCAST_H

#include <stddef.h>
#include <stdint.h>

/* Bounds from a floor to a cap, in bit/s: packets of 1,200 bytes, no ECN, no probes, seed 0, calls at the send time. */
#define STEADYCAST_BOUNDS(floor, cap) { sizeof(SteadycastBounds), (floor), (cap), 1200, 0, 0, 0, 0, 0, 0 }

/* Transport-wide feedback without retransmissions, no padding, a second of backlog, 20 ms of credit. */
#define STEADYCAST_SENDER_SETTINGS { sizeof(SteadycastSenderSettings), 1, 0, 0, 1000, 20 }


// The version of this interface, for `steadycast_new`. Programs of an earlier version are accepted. Version 2 has
// added `steadycast_sender_…`.
#define STEADYCAST_ABI 2

// The call has succeeded.
#define STEADYCAST_OK 0

// A handle or another required pointer is null.
#define STEADYCAST_NULL -1

// A fault of the library has ended the handle. Free it and continue without it.
#define STEADYCAST_BROKEN -2

// The `size` of a struct is wrong for this version.
#define STEADYCAST_SIZE -3

// A value is not valid for its field.
#define STEADYCAST_VALUE -4

// The packet number of an invalid call or an unknown packet.
#define STEADYCAST_NO_NUMBER UINT64_MAX

// The arrival time is not in the feedback.
#define STEADYCAST_NO_TIME INT64_MIN

// The packet had not arrived when the feedback was written.
#define STEADYCAST_MISSING INT64_MAX

// The ECN field is not in the feedback.
#define STEADYCAST_NO_ECN -1

// No timer is needed.
#define STEADYCAST_NEVER INT64_MAX

// Stream of `steadycast_sent_extra`: retransmissions (RFC 4588).
#define STEADYCAST_REPAIR 1

// Stream of `steadycast_sent_extra`: parity.
#define STEADYCAST_PARITY 2

// Stream of `steadycast_sent_extra`: padding.
#define STEADYCAST_PADDING 3

// Flag of `steadycast_sent`: the first packet of a frame.
#define STEADYCAST_FRAME_FIRST 1

// Flag of `steadycast_sent`: the last packet of a frame.
#define STEADYCAST_FRAME_LAST 2

// Flag of `steadycast_sent`: the queue is empty after the packet, so the encoder limits the rate.
#define STEADYCAST_DATA_LIMITED 4

// Flag of `steadycast_sent`, and of `stream` in `steadycast_sent_extra`: feedback does not cover the packet. The
// controller never counts this packet as lost.
#define STEADYCAST_UNCOVERED 8

// Feedback format: the program reads feedback and calls `steadycast_sender_feedback`.
#define STEADYCAST_JOINED 0

// Feedback format of `steadycast_sender_rtcp`: transport-wide.
#define STEADYCAST_TRANSPORT_WIDE 1

// Feedback format of `steadycast_sender_rtcp`: RFC 8888.
#define STEADYCAST_RFC8888 2

// Kind of a stream: audio, sent at once.
#define STEADYCAST_AUDIO 1

// Kind of a stream: video, at the pacing rate.
#define STEADYCAST_VIDEO 2

// Kind of a stream: parity from the program, sent at the pacing rate and before video.
#define STEADYCAST_PARITY_STREAM 3

// Role of a frame: a key frame.
#define STEADYCAST_FRAME_KEY 1

// Role of a frame: later frames depend on it.
#define STEADYCAST_FRAME_REFERENCE 2

// Role of a frame: no frame depends on it.
#define STEADYCAST_FRAME_DISPOSABLE 3

// Result of `steadycast_sender_poll`: wait until `at_ns` or the next event.
#define STEADYCAST_WAIT 0

// Result of `steadycast_sender_poll`: send the packet `id` now.
#define STEADYCAST_SEND 1

// Result of `steadycast_sender_poll`: the packet `id` is not sent; free it.
#define STEADYCAST_DROPPED 2

// Name of a packet in feedback: the transport-wide sequence number.
#define STEADYCAST_NAME_TRANSPORT 1

// Name of a packet in feedback: the SSRC and the RTP sequence number.
#define STEADYCAST_NAME_RTP 2

// Name of a packet in feedback: the program's number, for example QUIC's.
#define STEADYCAST_NAME_OWN 3

// A controller's handle.
typedef struct SteadycastRemote SteadycastRemote;

// The handle of a sender's kit: a controller with a pacer, a frame queue, retransmissions, probes and RTCP feedback.
typedef struct SteadycastSender SteadycastSender;

// A controller's limits. `STEADYCAST_BOUNDS(floor, cap)` initializes them.
typedef struct {
  // `sizeof(SteadycastBounds)`.
  size_t size;
  // The lower limit of the rate, in bit/s.
  uint64_t floor_bps;
  // The upper limit of the rate, in bit/s.
  uint64_t cap_bps;
  // The size of a full packet in bytes, with IP and UDP headers.
  uint32_t packet_bytes;
  // The ECN field of sent packets: 0 none, 1 ECT(1), 2 ECT(0).
  uint32_t ecn;
  // 1 if the program sends the probes of `steadycast_probe`, else 0.
  uint32_t probes;
  // The seed of random numbers.
  uint64_t seed;
  // 1 if `steadycast_sent` is called only when the packet's feedback arrives, else 0. With 1, a controller with a
  // window is rejected. 0 for a program compiled without this field.
  uint32_t late;
  // The longest interval between feedback messages in ms; 0 if unknown. A controller that needs feedback more often
  // is rejected: some need it every 100 ms, others every 250 ms.
  uint32_t interval_ms;
  // 1 if all packets of a feedback message have one arrival time, else 0. With 1, a controller that needs the time
  // between arrivals is rejected. 0 for a program compiled without this field.
  uint32_t acknowledged;
} SteadycastBounds;

// The feedback about one packet.
typedef struct {
  // The packet's number, from `steadycast_sent`.
  uint64_t number;
  // The arrival time on the receiver's clock, in ns; `STEADYCAST_MISSING` without an arrival, `STEADYCAST_NO_TIME`
  // if unknown.
  int64_t arrived_ns;
  // The ECN field on arrival, 0 to 3; or `STEADYCAST_NO_ECN`.
  int32_t ecn;
} SteadycastFate;

// A controller's decision.
typedef struct {
  // `sizeof(SteadycastDecision)`, set by the caller.
  size_t size;
  // The encoder's target in bit/s of IP packets, with headers.
  uint64_t target_bps;
  // The pacing rate, in bit/s of IP packets.
  uint64_t pacing_bps;
  // The IP bytes that may be sent before the next report; -1 without a limit.
  int64_t window_bytes;
  // The limit of the rate: 0 the start, 1 the network, 2 the cap, 3 the floor.
  uint32_t limit;
  // The rule that set the rate, in English, NUL-terminated and truncated.
  char why[64];
} SteadycastDecision;

// A burst that a controller requests: queued media first, then padding.
typedef struct {
  // `sizeof(SteadycastProbe)`, set by the caller.
  size_t size;
  // The identifier. Each probe is sent once.
  uint32_t id;
  // The minimum number of packets.
  uint32_t packets;
  // The minimum number of IP bytes.
  uint64_t bytes;
  // The send rate in bit/s of IP packets.
  uint64_t rate_bps;
  // 1 if sending pauses after the probe until the average is back at the pacing rate, else 0.
  uint32_t within;
} SteadycastProbe;

// The settings of a sender's kit. `STEADYCAST_SENDER_SETTINGS` initializes them for transport-wide feedback.
typedef struct {
  // `sizeof(SteadycastSenderSettings)`.
  size_t size;
  // The feedback format: `STEADYCAST_JOINED`, `STEADYCAST_TRANSPORT_WIDE` or `STEADYCAST_RFC8888`.
  uint32_t format;
  // 1 if feedback covers retransmissions, else 0. Pion and libwebrtc leave most of them out.
  uint32_t retransmissions_covered;
  // 1 if the program can send padding, else 0.
  uint32_t padding;
  // The queue's limit in ms at the pacing rate. Frames beyond it are skipped.
  uint32_t max_backlog_ms;
  // The longest delay of `steadycast_sender_poll` that the pacer makes up for, in ms.
  uint32_t credit_ms;
} SteadycastSenderSettings;

// A stream of a sender's kit.
typedef struct {
  // `sizeof(SteadycastStream)`.
  size_t size;
  // The content: `STEADYCAST_AUDIO`, `STEADYCAST_VIDEO` or `STEADYCAST_PARITY_STREAM`.
  uint32_t kind;
  // The RTP SSRC.
  uint32_t ssrc;
  // 1 if lost packets are retransmitted on NACK, else 0.
  uint32_t retransmission;
  // 1 if feedback does not cover the packets, else 0.
  uint32_t uncovered;
  // The rate below which a video layer is paused, in bit/s; 0 for never.
  uint64_t least_bps;
  // The reserved rate of audio or parity, or the maximum rate of video (0 for none), in bit/s.
  uint64_t most_bps;
} SteadycastStream;

// An encoder's task for its next frame.
typedef struct {
  // `sizeof(SteadycastEncoder)`, set by the caller.
  size_t size;
  // The stream's rate in bit/s of IP packets, with headers.
  uint64_t rate_bps;
  // 1 if the next frame should be skipped because of the queue, else 0.
  uint32_t skip;
  // 1 if the next frame has to be a key frame, else 0.
  uint32_t key_frame;
} SteadycastEncoder;

// A packet for the queue. The program keeps its bytes.
typedef struct {
  // The program's identifier of the packet, for example a pointer.
  uint64_t id;
  // The IP size in bytes.
  uint32_t size_bytes;
  // The position in the frame: `STEADYCAST_FRAME_FIRST`, `STEADYCAST_FRAME_LAST`, both, or 0.
  uint32_t flags;
  // The RTP sequence number. Packets are added in its order.
  uint16_t seq;
} SteadycastPacket;

// The output of `steadycast_sender_poll`.
typedef struct {
  // `sizeof(SteadycastOutput)`, set by the caller.
  size_t size;
  // The `id` of the packet. A retransmission or padding has the `id` of the repeated packet.
  uint64_t id;
  // The packet's number. The low 16 bits are for a transport-wide header extension.
  uint64_t number;
  // The time of the next call; `STEADYCAST_NEVER` if none is needed.
  int64_t at_ns;
  // The stream's number.
  uint32_t stream;
  // 0 for media, else `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or `STEADYCAST_PADDING`.
  uint32_t kind;
  // The RTP sequence number. A retransmission or padding has the sequence number of the repeated packet.
  uint16_t seq;
} SteadycastOutput;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Creates a controller.
//
// `abi` is `STEADYCAST_ABI`. `controller` is a name from `steadycast_controllers`. `params` is null, or a JSON object
// with the parameters that differ from their defaults, for example `{"probes": false}`.
//
// On an error it returns null and writes problem and remedy to `error`, which has `room` bytes with the NUL.
//
// # Safety
// `controller`, `params` and `bounds` are null or point to what their types say, texts ended by a NUL; `error` is null
// or has `room` bytes.
SteadycastRemote *steadycast_new(uint32_t abi,
                                 const char *controller,
                                 const char *params,
                                 const SteadycastBounds *bounds,
                                 char *error,
                                 size_t room);

// Frees a controller. Null is permitted.
//
// # Safety
// `handle` is null, or comes from `steadycast_new` and is not used again.
void steadycast_free(SteadycastRemote *handle);

// Records a media packet sent at `at_ns`. Returns the packet's number, or `STEADYCAST_NO_NUMBER` for an invalid call.
//
// Numbers count from 0 over all streams. The low 16 bits are for a transport-wide header extension.
//
// A program that learns send times from feedback calls this right before `steadycast_feedback`, with the send time.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_sent(SteadycastRemote *handle,
                         int64_t at_ns,
                         uint32_t size_bytes,
                         uint32_t flags);

// As `steadycast_sent`, for another stream: `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or `STEADYCAST_PADDING`.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_sent_extra(SteadycastRemote *handle, int64_t at_ns, uint32_t size_bytes, uint32_t stream);

// Declares that no feedback will cover packet `number`: the packet is neither in flight nor lost. If a later report
// covers this packet, the report counts.
//
// If feedback covers later packets but not this packet, the call is not needed. Older versions of the library lack
// this function. To run with them, look it up with `dlsym`.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_forget(SteadycastRemote *handle,
                      uint64_t number);

// Finds the newest packet whose number has these low 16 bits; `STEADYCAST_NO_NUMBER` if it is not in the history.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_number(SteadycastRemote *handle,
                           uint16_t low);

// Reports a change of the pacer's queue: the queued frames' bytes without headers, the oldest one's waiting time,
// and the bytes of a frame that was just queued, or -1.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_queued(SteadycastRemote *handle,
                      int64_t at_ns,
                      uint64_t waiting_bytes,
                      int64_t age_ns,
                      int64_t frame_bytes);

// Processes feedback that arrives at `at_ns`. The entries in `fates` can have any order. Entries of unknown packets
// and repeated entries are ignored.
//
// A packet with `STEADYCAST_MISSING` is lost. A packet without an entry does not count as lost.
//
// If all packets have the same arrival time, this time is valid for the newest packet only.
//
// # Safety
// As for `steadycast_decision`; `fates` has `count` entries, or is null when `count` is 0.
int steadycast_feedback(SteadycastRemote *handle,
                        int64_t at_ns,
                        const SteadycastFate *fates,
                        size_t count);

// Returns the time of the next `steadycast_timer`; `STEADYCAST_NEVER` if none is needed.
//
// # Safety
// As for `steadycast_decision`.
int64_t steadycast_wake(SteadycastRemote *handle);

// Handles timers at `now_ns`. The call does nothing before the time that `steadycast_wake` returns.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_timer(SteadycastRemote *handle, int64_t now_ns);

// Reads the decision into `decision`, whose `size` the caller has set.
//
// Read it after each `steadycast_sent` and each `steadycast_feedback`: the pacing rate and the window may change with
// each packet.
//
// # Safety
// `handle` is null, or comes from `steadycast_new`, has not been freed, and no other thread uses it; `decision` is
// null or points to a struct of its type.
int steadycast_decision(SteadycastRemote *handle,
                        SteadycastDecision *decision);

// Fills `probe`, whose `size` the caller has set, with the probe that has to be sent. Returns 1 if there is a probe,
// else 0.
//
// # Safety
// As for `steadycast_decision`; `probe` is null or points to a struct of its type.
int steadycast_probe(SteadycastRemote *handle,
                     SteadycastProbe *probe);

// Writes the controllers' names into `names`, one per line, NUL-terminated and truncated to `room` bytes. Returns
// the bytes that the whole list needs.
//
// # Safety
// `names` is null or has `room` bytes.
size_t steadycast_controllers(char *names,
                              size_t room);

// Creates a sender's kit, which is a controller with a pacer, a frame queue and retransmissions. Null `settings` mean
// the values of `STEADYCAST_SENDER_SETTINGS`. The other arguments are as for `steadycast_new`.
//
// # Safety
// As for `steadycast_new`; `settings` is null or points to as many bytes as its first field says.
SteadycastSender *steadycast_sender_new(uint32_t abi,
                                        const char *controller,
                                        const char *params,
                                        const SteadycastBounds *bounds,
                                        const SteadycastSenderSettings *settings,
                                        char *error,
                                        size_t room);

// Frees a sender's kit. Null is permitted.
//
// # Safety
// `handle` is null, or comes from `steadycast_sender_new` and is not used again.
void steadycast_sender_free(SteadycastSender *handle);

// Adds a stream. Returns the stream's number from 0, or a code below zero. It is `STEADYCAST_VALUE` if a field is out
// of its range, if another stream has the same SSRC, or if the stream could never be sent: its reserved rate is above
// the cap, or its minimum is above its maximum or above the cap. Several streams may have the SSRC 0, for a transport
// without RTP.
//
// Video streams get their rates in the order in which they are added, so the base layer is added first.
//
// # Safety
// As for `steadycast_sender_poll`; `stream` is null or points to a struct of its type.
int steadycast_sender_stream(SteadycastSender *handle,
                             const SteadycastStream *stream);

// Fills `encoder`, whose `size` the caller has set: the rate, and whether the next frame is skipped or is a key frame.
// A request for a key frame is passed on only once. Returns `STEADYCAST_VALUE` if there is no such stream.
//
// # Safety
// As for `steadycast_sender_poll`; `encoder` is null or points to a struct of its type.
int steadycast_sender_encoder(SteadycastSender *handle,
                              int64_t now_ns,
                              uint32_t stream,
                              SteadycastEncoder *encoder);

// Begins an encoded frame. `role` is `STEADYCAST_FRAME_KEY`, `STEADYCAST_FRAME_REFERENCE` or
// `STEADYCAST_FRAME_DISPOSABLE`. Returns 1, or 0 if the frame has to be skipped, or `STEADYCAST_VALUE`
// for another role or if there is no such stream. The call is optional.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_frame(SteadycastSender *handle, int64_t now_ns, uint32_t stream, uint32_t role);

// Adds a packet. Returns 1 if it is queued, or 0 if its frame is skipped, the queue is full, or its size is 0. Returns
// `STEADYCAST_VALUE` if there is no such stream. Poll afterwards.
//
// # Safety
// As for `steadycast_sender_poll`; `packet` is null or points to a struct of its type.
int steadycast_sender_push(SteadycastSender *handle,
                           int64_t now_ns,
                           uint32_t stream,
                           const SteadycastPacket *packet);

// Returns `STEADYCAST_SEND`, `STEADYCAST_DROPPED` or `STEADYCAST_WAIT`, with the details in `output`, whose `size`
// the caller has set.
//
// Call it after every call of another function of this sender, and at `at_ns`. Repeat the call until it returns
// `STEADYCAST_WAIT`. After a late call, the pacer catches up for at most `credit_ms`.
//
// # Safety
// `handle` is null, or comes from `steadycast_sender_new`, has not been freed, and no other thread uses it; `output`
// is null or points to a struct of its type.
int steadycast_sender_poll(SteadycastSender *handle,
                           int64_t now_ns,
                           SteadycastOutput *output);

// Reads a decrypted RTCP compound: feedback, NACKs and key-frame requests. Returns `STEADYCAST_VALUE` if it is not
// RTCP. Poll afterwards.
//
// # Safety
// As for `steadycast_sender_poll`; `bytes` has `len` bytes, or is null when `len` is 0.
int steadycast_sender_rtcp(SteadycastSender *handle,
                           int64_t now_ns,
                           const uint8_t *bytes,
                           size_t len);

// As `steadycast_feedback`. Poll afterwards.
//
// # Safety
// As for `steadycast_sender_poll`; `fates` has `count` entries, or is null when `count` is 0.
int steadycast_sender_feedback(SteadycastSender *handle,
                               int64_t now_ns,
                               const SteadycastFate *fates,
                               size_t count);

// Requests the retransmission of a packet, as a NACK does. Poll afterwards. Returns 1 if the packet is now queued, and
// `STEADYCAST_VALUE` if there is no such stream.
//
// Returns 0 if the packet is already queued, was sent less than a round trip ago, is not cached, or would arrive too
// late. Also returns 0 if retransmissions have used up their share of the rate, or if the controller is at its lower
// limit and the packet does not belong to a key frame.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_resend(SteadycastSender *handle,
                             int64_t now_ns,
                             uint32_t stream,
                             uint16_t seq);

// Requests a key frame, as PLI and FIR do. Returns `STEADYCAST_VALUE` if there is no such stream.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_key_frame(SteadycastSender *handle, uint32_t stream);

// Sets the name that feedback uses for a sent packet. `kind` is `STEADYCAST_NAME_TRANSPORT`, `STEADYCAST_NAME_RTP` or
// `STEADYCAST_NAME_OWN`. Returns `STEADYCAST_VALUE` for another kind, or for a number above 65535 in the first two.
//
// The call is needed if the program has its own transport-wide numbers or does not use RTP. With RFC 8888 feedback,
// the call is needed for each retransmission.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_sent_as(SteadycastSender *handle,
                              uint64_t number,
                              uint32_t kind,
                              uint32_t ssrc,
                              uint64_t name);

// Finds the number of the packet with this name; `STEADYCAST_NO_NUMBER` if unknown.
//
// # Safety
// As for `steadycast_sender_poll`.
uint64_t steadycast_sender_number(SteadycastSender *handle, uint32_t kind, uint32_t ssrc, uint64_t name);

// Reads the decision into `decision`, whose `size` the caller has set.
//
// # Safety
// As for `steadycast_sender_poll`; `decision` is null or points to a struct of its type.
int steadycast_sender_decision(SteadycastSender *handle, SteadycastDecision *decision);

// Writes a transport-wide sequence number into the element `id` of an unencrypted RTP packet, or adds the element
// (RFC 8285). Returns the new length, at most 8 bytes more. Returns `STEADYCAST_VALUE`, without a change, if the
// packet is not RTP, its extension can't carry the element, or `room` is too small.
//
// # Safety
// `packet` is null, or has `len` bytes of RTP and `room` bytes of memory.
int steadycast_transport_number(uint8_t *packet,
                                size_t len,
                                size_t room,
                                uint8_t id,
                                uint16_t number);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEADYCAST_H */
