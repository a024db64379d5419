/* Steadycast's rate controllers for C and C++: see docs/embedding.md.
 *
 * Made from crates/capi/src/lib.rs by cbindgen (integrations/c); a test there says when it is stale.
 */

#ifndef STEADYCAST_H
#define STEADYCAST_H

#include <stddef.h>
#include <stdint.h>

/* Bounds from a floor to a cap, in bit/s: packets of 1,200 bytes, no ECN, no probes, seed 0, calls at the send time. */
#define STEADYCAST_BOUNDS(floor, cap) { sizeof(SteadycastBounds), (floor), (cap), 1200, 0, 0, 0, 0, 0 }


// The version of this interface, which the program passes to `steadycast_new`. New functions and flags do not change
// it, so existing programs continue to work.
#define STEADYCAST_ABI 1

// The call has succeeded.
#define STEADYCAST_OK 0

// A handle or another required pointer is null.
#define STEADYCAST_NULL -1

// A fault of the library has ended this handle. Free it and continue without it.
#define STEADYCAST_BROKEN -2

// A struct's `size` is not the one of this version.
#define STEADYCAST_SIZE -3

// A value is not valid for its field.
#define STEADYCAST_VALUE -4

// The packet number of an invalid call.
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

// Flag of `steadycast_sent`, and of the stream of `steadycast_sent_extra`: feedback does not cover the packet.
// Browsers leave out retransmissions in transport-wide feedback, and QUIC never acknowledges acknowledgements. No
// feedback is expected for it, and it is never lost.
#define STEADYCAST_UNCOVERED 8

// The handle of a controller.
typedef struct SteadycastRemote SteadycastRemote;

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
  // 1 if `steadycast_sent` is only called with the feedback about a packet, not when it is sent, otherwise 0. With 1
  // a controller with a window is rejected. For a program that was compiled without this field it is 0.
  uint32_t late;
  // The longest interval between two feedback messages in ms; 0 if it is unknown. Above 100 a controller whose
  // window is clocked by acknowledgements is rejected.
  uint32_t interval_ms;
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
  // 1 if nothing is sent after the probe until the average is back at the pacing rate, otherwise 0.
  uint32_t within;
} SteadycastProbe;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Creates a controller, by its name in `steadycast controllers`.
//
// `abi` is `STEADYCAST_ABI`. `params` is a JSON object of parameters over the defaults, or null: `{"probes": false}`.
// On an error the function returns null and writes the problem and the remedy to `error`, which has `room` bytes,
// including the NUL.
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

// Declares that no feedback will cover packet `number`: it is no longer in flight, and not lost. A fate that is
// reported nevertheless counts. There is no need to call this for packets that feedback has skipped. If the library
// may be older than this function, look the function up at run time (`dlsym`).
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
uint64_t steadycast_number(SteadycastRemote *handle, uint16_t low);

// Reports a change of the pacer's queue: `waiting_bytes` of frames are queued without headers, the oldest since
// `age_ns`. `frame_bytes` is the size of a frame that was just queued, or -1.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEADYCAST_H */
