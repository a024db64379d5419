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


// The version of this interface, which the program passes to `steadycast_new`. The library also accepts programs that
// were compiled for an earlier version. Version 2 has added the functions `steadycast_sender_…` to version 1.
#define STEADYCAST_ABI 2

// The call has succeeded.
#define STEADYCAST_OK 0

// A handle or another required pointer is null.
#define STEADYCAST_NULL -1

// A fault of the library has ended this handle. Free it and continue without it.
#define STEADYCAST_BROKEN -2

// The `size` of a struct is not the size that the struct has in this version.
#define STEADYCAST_SIZE -3

// A value is not valid for its field.
#define STEADYCAST_VALUE -4

// Returned in place of a packet number if the call is invalid or the packet is unknown.
#define STEADYCAST_NO_NUMBER UINT64_MAX

// An arrival time that is not in the feedback.
#define STEADYCAST_NO_TIME INT64_MIN

// The packet had not arrived when the feedback was written.
#define STEADYCAST_MISSING INT64_MAX

// An ECN field that is not in the feedback.
#define STEADYCAST_NO_ECN -1

// The wake time if no timer is needed.
#define STEADYCAST_NEVER INT64_MAX

// Stream of `steadycast_sent_extra`: retransmissions of lost media packets (RFC 4588).
#define STEADYCAST_REPAIR 1

// Stream of `steadycast_sent_extra`: parity.
#define STEADYCAST_PARITY 2

// Stream of `steadycast_sent_extra`: packets without content, for a probe.
#define STEADYCAST_PADDING 3

// Flag of `steadycast_sent`: the packet is the first of its frame.
#define STEADYCAST_FRAME_FIRST 1

// Flag of `steadycast_sent`: the packet is the last of its frame.
#define STEADYCAST_FRAME_LAST 2

// Flag of `steadycast_sent`: the queue is empty after the packet, so that the encoder limits the rate instead of the
// controller.
#define STEADYCAST_DATA_LIMITED 4

// Flag of `steadycast_sent`, and of the stream of `steadycast_sent_extra`: no feedback will cover the packet, so it
// never counts as lost. For example, browsers leave retransmissions out of transport-wide feedback, and QUIC does not
// acknowledge packets that only contain acknowledgements.
#define STEADYCAST_UNCOVERED 8

// Feedback format: the program reads feedback itself, and passes the packets' fates to `steadycast_sender_feedback`.
#define STEADYCAST_JOINED 0

// Feedback format of `steadycast_sender_rtcp`: transport-wide.
#define STEADYCAST_TRANSPORT_WIDE 1

// Feedback format of `steadycast_sender_rtcp`: RFC 8888.
#define STEADYCAST_RFC8888 2

// Kind of a stream: audio, which is sent at once.
#define STEADYCAST_AUDIO 1

// Kind of a stream: video, which is sent at the pacing rate.
#define STEADYCAST_VIDEO 2

// Kind of a stream: parity that the program makes, which is sent at the pacing rate before video.
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

// Name of a packet in feedback: a transport-wide sequence number.
#define STEADYCAST_NAME_TRANSPORT 1

// Name of a packet in feedback: a sequence number of RTP, of the source `ssrc`.
#define STEADYCAST_NAME_RTP 2

// Name of a packet in feedback: a number of the program's own, for example QUIC's packet number.
#define STEADYCAST_NAME_OWN 3

// The handle of a controller.
typedef struct SteadycastRemote SteadycastRemote;

// The handle of a sender's kit: a controller with a pacer, a frame queue, retransmissions, probes and RTCP feedback.
typedef struct SteadycastSender SteadycastSender;

// The limits of a controller. `STEADYCAST_BOUNDS(floor, cap)` initializes them.
typedef struct {
  // `sizeof(SteadycastBounds)`.
  size_t size;
  // The lower limit of the rate, in bit/s.
  uint64_t floor_bps;
  // The upper limit of the rate, in bit/s.
  uint64_t cap_bps;
  // The size of a full packet in bytes, including IP and UDP headers.
  uint32_t packet_bytes;
  // The ECN field with which packets are sent: 0 none, 1 ECT(1), 2 ECT(0).
  uint32_t ecn;
  // 1 if the program sends the probes of `steadycast_probe`, otherwise 0.
  uint32_t probes;
  // The seed of the controller's random numbers.
  uint64_t seed;
  // 1 if the program calls `steadycast_sent` for a packet only when the feedback about it arrives, 0 if the program
  // calls it when the packet is sent. With 1 a controller with a window is rejected, because the bytes in flight are
  // unknown. For a program that was compiled without this field, the value is 0.
  uint32_t late;
  // The longest interval between two feedback messages in ms; 0 if it is unknown. Above 100 a controller whose
  // window is clocked by acknowledgements is rejected.
  uint32_t interval_ms;
  // 1 if all packets of a feedback message share one arrival time (when the message was written or arrived),
  // otherwise 0. With 1 a controller that measures the time between two arrivals is rejected. For a program that was
  // compiled without this field, the value is 0.
  uint32_t acknowledged;
} SteadycastBounds;

// The feedback about one packet.
typedef struct {
  // The packet's number, as returned by `steadycast_sent`.
  uint64_t number;
  // The arrival time on the receiver's clock, in ns. It is `STEADYCAST_MISSING` for a packet that has not arrived,
  // and `STEADYCAST_NO_TIME` for an arrival without a known time.
  int64_t arrived_ns;
  // The ECN field on arrival, 0 to 3, or `STEADYCAST_NO_ECN`.
  int32_t ecn;
} SteadycastFate;

// A controller's decision, with its reason.
typedef struct {
  // `sizeof(SteadycastDecision)`, set by the caller.
  size_t size;
  // The target rate for the encoder, in bit/s of IP packets. Subtract the headers.
  uint64_t target_bps;
  // The pacing rate, in bit/s of IP packets.
  uint64_t pacing_bps;
  // The number of IP bytes that may be sent before the next report; -1 if there is no limit.
  int64_t window_bytes;
  // What limits the rate: 0 the start, 1 the network, 2 the cap, 3 the floor.
  uint32_t limit;
  // The rule that set the rate, in English, truncated to the array and terminated by a NUL.
  char why[64];
} SteadycastDecision;

// A burst that a controller requests. Its packets are sent at the probe's rate, queued media first and then padding.
typedef struct {
  // `sizeof(SteadycastProbe)`, set by the caller.
  size_t size;
  // The identifier of the probe. Each probe is sent once.
  uint32_t id;
  // The minimum number of packets.
  uint32_t packets;
  // The minimum number of IP bytes.
  uint64_t bytes;
  // The rate at which the packets are sent, in bit/s of IP packets.
  uint64_t rate_bps;
  // 1 if nothing is sent after the probe until the average sending rate is back at the pacing rate, otherwise 0.
  uint32_t within;
} SteadycastProbe;

// The settings of a sender's kit. `STEADYCAST_SENDER_SETTINGS` initializes them for transport-wide feedback.
typedef struct {
  // `sizeof(SteadycastSenderSettings)`.
  size_t size;
  // The format of feedback: `STEADYCAST_JOINED`, `STEADYCAST_TRANSPORT_WIDE` or `STEADYCAST_RFC8888`.
  uint32_t format;
  // 1 if feedback covers retransmissions, otherwise 0. Pion's and libwebrtc's receivers leave most of them out.
  uint32_t retransmissions_covered;
  // 1 if the program can send padding, otherwise 0.
  uint32_t padding;
  // The limit of the queue in ms: the time that its packets may take at the pacing rate. Frames that would have to
  // wait longer are skipped.
  uint32_t max_backlog_ms;
  // The longest delay that the pacer makes up for, in ms. After a late call of `steadycast_sender_poll`, the packets
  // that the pacing rate would have sent in this time are sent immediately.
  uint32_t credit_ms;
} SteadycastSenderSettings;

// A stream of a sender's kit.
typedef struct {
  // `sizeof(SteadycastStream)`.
  size_t size;
  // The content of the stream: `STEADYCAST_AUDIO`, `STEADYCAST_VIDEO` or `STEADYCAST_PARITY_STREAM`.
  uint32_t kind;
  // The RTP SSRC.
  uint32_t ssrc;
  // 1 if lost packets are retransmitted on NACK, otherwise 0.
  uint32_t retransmission;
  // 1 if feedback does not cover the stream's packets, otherwise 0.
  uint32_t uncovered;
  // The rate below which a layer of video is paused, in bit/s; 0: never.
  uint64_t least_bps;
  // For audio or parity, the rate that is reserved. For video, the maximum rate; 0 if there is none. In bit/s.
  uint64_t most_bps;
} SteadycastStream;

// What an encoder has to do for its next frame.
typedef struct {
  // `sizeof(SteadycastEncoder)`, set by the caller.
  size_t size;
  // The rate of the stream, in bit/s of IP packets. Subtract the headers.
  uint64_t rate_bps;
  // 1 if the next frame should not be encoded, because the queue is too long, otherwise 0.
  uint32_t skip;
  // 1 if the next frame has to be a key frame, otherwise 0.
  uint32_t key_frame;
} SteadycastEncoder;

// A packet for the queue. The program keeps the packet's bytes.
typedef struct {
  // The program's name of the packet, for example a pointer.
  uint64_t id;
  // The IP size in bytes.
  uint32_t size_bytes;
  // The packet's position in its frame: `STEADYCAST_FRAME_FIRST`, `STEADYCAST_FRAME_LAST`, both, or 0.
  uint32_t flags;
  // The RTP sequence number. The packets of a stream are added in the order of these numbers.
  uint16_t seq;
} SteadycastPacket;

// The output of `steadycast_sender_poll`.
typedef struct {
  // `sizeof(SteadycastOutput)`, set by the caller.
  size_t size;
  // The `id` that the program gave the packet. A retransmission or padding has the `id` of the media packet that it
  // repeats.
  uint64_t id;
  // The packet's number. Its low 16 bits go into a transport-wide header extension.
  uint64_t number;
  // The time of the next call; `STEADYCAST_NEVER` if none is needed.
  int64_t at_ns;
  // The number of the packet's stream.
  uint32_t stream;
  // 0 for media, otherwise `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or `STEADYCAST_PADDING`.
  uint32_t kind;
  // The RTP sequence number of the packet. For a retransmission or padding, that of the media packet that it
  // repeats.
  uint16_t seq;
} SteadycastOutput;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Creates a controller, by its name in `steadycast controllers`.
//
// `abi` is `STEADYCAST_ABI`. `params` is null or a JSON object of parameters that override the defaults, for example
// `{"probes": false}`. On an error the function returns null and writes the problem and the remedy to `error`, which
// has `room` bytes, including the NUL.
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

// Records a media packet that is sent, or was sent, at `at_ns`. Returns its number; packets of all streams are
// numbered together, from 0. The low 16 bits of the number go into a transport-wide header extension. An invalid call
// returns `STEADYCAST_NO_NUMBER`.
//
// A program that learns send times only from feedback calls this right before `steadycast_feedback`. `at_ns` is then
// the send time, even if it is earlier than the previous call.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_sent(SteadycastRemote *handle,
                         int64_t at_ns,
                         uint32_t size_bytes,
                         uint32_t flags);

// Records a packet of another stream that is sent: `stream` is `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or
// `STEADYCAST_PADDING`. Returns its number as `steadycast_sent` does.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_sent_extra(SteadycastRemote *handle, int64_t at_ns, uint32_t size_bytes, uint32_t stream);

// Declares that no feedback will cover packet `number`. The packet is then no longer in flight, and does not count as
// lost. If feedback reports its fate nevertheless, this fate counts. There is no need to call this for packets that
// feedback has skipped. If the library may be older than this function, look the function up at run time (`dlsym`).
//
// # Safety
// As for `steadycast_decision`.
int steadycast_forget(SteadycastRemote *handle,
                      uint64_t number);

// Finds the newest packet whose number has these low 16 bits, for feedback that refers to packets in this way. Returns
// `STEADYCAST_NO_NUMBER` if it is not in the history.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_number(SteadycastRemote *handle,
                           uint16_t low);

// Reports a change of the pacer's queue: `waiting_bytes` is the size of the queued frames without headers, and
// `age_ns` is the time for which the oldest of them has waited. `frame_bytes` is the size of a frame that was just
// queued, or -1.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_queued(SteadycastRemote *handle,
                      int64_t at_ns,
                      uint64_t waiting_bytes,
                      int64_t age_ns,
                      int64_t frame_bytes);

// Processes feedback that arrives at `at_ns` with the fates of `count` packets, in any order. Repeated fates, and
// fates of packets that were never sent, are ignored. A packet is lost if its fate is `STEADYCAST_MISSING`. A packet
// that is left out although later ones are covered has an unknown fate. If all packets of the feedback have the same
// arrival time, as with acknowledgements, the time is valid for the newest one only.
//
// # Safety
// As for `steadycast_decision`; `fates` has `count` entries, or is null when `count` is 0.
int steadycast_feedback(SteadycastRemote *handle,
                        int64_t at_ns,
                        const SteadycastFate *fates,
                        size_t count);

// Returns the time of the next call of `steadycast_timer`; `STEADYCAST_NEVER` if none is needed.
//
// # Safety
// As for `steadycast_decision`.
int64_t steadycast_wake(SteadycastRemote *handle);

// Handles timers at `now_ns`. A call before the time of `steadycast_wake` does nothing.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_timer(SteadycastRemote *handle, int64_t now_ns);

// Reads the current decision into `decision`, whose `size` the caller has set. Read it after each call that changes
// the state.
//
// # Safety
// `handle` is null, or comes from `steadycast_new`, has not been freed, and no other thread uses it; `decision` is
// null or points to a struct of its type.
int steadycast_decision(SteadycastRemote *handle,
                        SteadycastDecision *decision);

// Reads the probe that is to be sent into `probe`, whose `size` the caller has set. Returns 1 if there is one,
// otherwise 0.
//
// # Safety
// As for `steadycast_decision`; `probe` is null or points to a struct of its type.
int steadycast_probe(SteadycastRemote *handle,
                     SteadycastProbe *probe);

// Writes the names of the controllers for `steadycast_new` into `names`, one per line, terminated by a NUL and
// truncated to `room` bytes. Returns the number of bytes that the whole list needs.
//
// # Safety
// `names` is null or has `room` bytes.
size_t steadycast_controllers(char *names,
                              size_t room);

// Creates a sender's kit around a controller. If `settings` is null, the kit has transport-wide feedback without
// retransmissions, no padding, a second of backlog and 20 ms of credit. All else is as for `steadycast_new`.
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

// Adds a stream. Returns its number, from 0, or a code below zero. Video streams get their rates in the order in which
// they are added, so the base layer has to be added first.
//
// # Safety
// As for `steadycast_sender_poll`; `stream` is null or points to a struct of its type.
int steadycast_sender_stream(SteadycastSender *handle,
                             const SteadycastStream *stream);

// Writes the task for the next frame of a stream's encoder into `encoder`, whose `size` the caller has set. If a key
// frame was requested, only the first call afterwards sets `key_frame`.
//
// # Safety
// As for `steadycast_sender_poll`; `encoder` is null or points to a struct of its type.
int steadycast_sender_encoder(SteadycastSender *handle,
                              int64_t now_ns,
                              uint32_t stream,
                              SteadycastEncoder *encoder);

// Begins an encoded frame. `role` is `STEADYCAST_FRAME_KEY`, `STEADYCAST_FRAME_REFERENCE` or
// `STEADYCAST_FRAME_DISPOSABLE`. Returns 1 if the frame's packets may be added, and 0 if the frame has to be skipped.
// A program that does not know which packets form a frame need not call this function.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_frame(SteadycastSender *handle,
                            int64_t now_ns,
                            uint32_t stream,
                            uint32_t role);

// Adds a packet to the queue. Returns 1 if the packet is queued. Returns 0 if its frame was skipped, the queue is
// full, its size is 0, or there is no such stream. Poll afterwards.
//
// # Safety
// As for `steadycast_sender_poll`; `packet` is null or points to a struct of its type.
int steadycast_sender_push(SteadycastSender *handle,
                           int64_t now_ns,
                           uint32_t stream,
                           const SteadycastPacket *packet);

// Returns what the program has to do now, and writes the details to `output`, whose `size` the caller has set. The
// result is `STEADYCAST_SEND`, `STEADYCAST_DROPPED` or `STEADYCAST_WAIT`. After each other call, and at `at_ns`, call
// it repeatedly until it returns `STEADYCAST_WAIT`. After a late call the pacer catches up for at most `credit_ms`.
//
// # Safety
// `handle` is null, or comes from `steadycast_sender_new`, has not been freed, and no other thread uses it; `output`
// is null or points to a struct of its type.
int steadycast_sender_poll(SteadycastSender *handle,
                           int64_t now_ns,
                           SteadycastOutput *output);

// Reads a decrypted RTCP compound packet: feedback in the format of the settings, NACKs and requests for key frames.
// Returns `STEADYCAST_VALUE` if it is not RTCP. Poll afterwards.
//
// # Safety
// As for `steadycast_sender_poll`; `bytes` has `len` bytes, or is null when `len` is 0.
int steadycast_sender_rtcp(SteadycastSender *handle,
                           int64_t now_ns,
                           const uint8_t *bytes,
                           size_t len);

// Processes the fates of packets as `steadycast_feedback` does, for a program that reads feedback itself. Poll
// afterwards.
//
// # Safety
// As for `steadycast_sender_poll`; `fates` has `count` entries, or is null when `count` is 0.
int steadycast_sender_feedback(SteadycastSender *handle,
                               int64_t now_ns,
                               const SteadycastFate *fates,
                               size_t count);

// Requests that a packet is retransmitted, for a program that reads NACKs itself. Returns 1 if it will be
// retransmitted, otherwise 0: it is queued already, was sent less than a round trip ago, is no longer in the cache, or
// retransmissions have used up their share of the rate. Poll afterwards.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_resend(SteadycastSender *handle,
                             int64_t now_ns,
                             uint32_t stream,
                             uint16_t seq);

// Requests a key frame of a stream, for a program that reads PLI and FIR itself.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_key_frame(SteadycastSender *handle, uint32_t stream);

// Names a packet that was sent, as feedback will name it: `kind` is `STEADYCAST_NAME_TRANSPORT`, `STEADYCAST_NAME_RTP`
// or `STEADYCAST_NAME_OWN`. This function is for programs that assign transport-wide sequence numbers themselves, for
// the sequence numbers of retransmissions (RFC 8888), and for numbers of another protocol.
//
// # Safety
// As for `steadycast_sender_poll`.
int steadycast_sender_sent_as(SteadycastSender *handle,
                              uint64_t number,
                              uint32_t kind,
                              uint32_t ssrc,
                              uint64_t name);

// Finds the number of the packet with this name; `STEADYCAST_NO_NUMBER` if it is unknown.
//
// # Safety
// As for `steadycast_sender_poll`.
uint64_t steadycast_sender_number(SteadycastSender *handle, uint32_t kind, uint32_t ssrc, uint64_t name);

// Reads the current decision into `decision`, whose `size` the caller has set.
//
// # Safety
// As for `steadycast_sender_poll`; `decision` is null or points to a struct of its type.
int steadycast_sender_decision(SteadycastSender *handle, SteadycastDecision *decision);

// Writes a transport-wide sequence number into an unencrypted RTP packet. If the packet's header extension has an
// element `id`, the number replaces its value. Otherwise the number becomes a new element behind the others (RFC
// 8285). Returns the packet's new length, which is at most 8 bytes more. Returns `STEADYCAST_VALUE`, and leaves the
// packet unchanged, if the packet is not RTP, its extension can't carry the element, or `room` is too small.
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
