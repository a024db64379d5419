/* Steadycast's rate controllers for C and C++: see docs/embedding.md.
 *
 * Made from crates/capi/src/lib.rs by cbindgen (integrations/c); a test there says when it is stale.
 */

#ifndef STEADYCAST_H
#define STEADYCAST_H

#include <stddef.h>
#include <stdint.h>

/* Bounds from a floor to a cap, in bit/s: packets of 1,200 bytes, no ECN, no probes, seed 0, told on time. */
#define STEADYCAST_BOUNDS(floor, cap) { sizeof(SteadycastBounds), (floor), (cap), 1200, 0, 0, 0, 0, 0 }


// The version of this interface, which the program gives to `steadycast_new`. Functions and flags that are added leave
// it as it is: programs made before go on unchanged.
#define STEADYCAST_ABI 1

// The call was carried out.
#define STEADYCAST_OK 0

// A handle or another pointer that has to be there is null.
#define STEADYCAST_NULL -1

// A fault of the library has ended this handle; free it, and go on without.
#define STEADYCAST_BROKEN -2

// A struct's `size` is not the one of this version.
#define STEADYCAST_SIZE -3

// A value is none of those that the field may have.
#define STEADYCAST_VALUE -4

// A packet number that stands for none.
#define STEADYCAST_NO_NUMBER UINT64_MAX

// A time of arrival that the feedback does not tell.
#define STEADYCAST_NO_TIME INT64_MIN

// The packet had not arrived when the feedback was written.
#define STEADYCAST_MISSING INT64_MAX

// An ECN field that the feedback does not tell.
#define STEADYCAST_NO_ECN -1

// No time: there is nothing to wake for.
#define STEADYCAST_NEVER INT64_MAX

// Stream of `steadycast_sent_extra`: lost packets of the media, sent again (RFC 4588).
#define STEADYCAST_REPAIR 1

// Stream of `steadycast_sent_extra`: parity.
#define STEADYCAST_PARITY 2

// Stream of `steadycast_sent_extra`: packets without content, for a probe.
#define STEADYCAST_PADDING 3

// Flag of `steadycast_sent`: the packet is the first of its frame.
#define STEADYCAST_FRAME_FIRST 1

// Flag of `steadycast_sent`: the packet is the last of its frame.
#define STEADYCAST_FRAME_LAST 2

// Flag of `steadycast_sent`: nothing waits behind the packet; the encoder, not the controller, limits the rate.
#define STEADYCAST_DATA_LIMITED 4

// Flag of `steadycast_sent`, and of the stream of `steadycast_sent_extra`: feedback does not cover the packet, as that
// of a browser leaves out retransmissions, and QUIC never acknowledges acknowledgements. None is awaited for it, and
// its silence is no loss.
#define STEADYCAST_UNCOVERED 8

// A controller in use.
typedef struct SteadycastRemote SteadycastRemote;

// What a controller is to keep to. `STEADYCAST_BOUNDS(floor, cap)` fills one in.
typedef struct {
  // `sizeof(SteadycastBounds)`.
  size_t size;
  // The rate never goes below this, in bit/s.
  uint64_t floor_bps;
  // The rate never goes above this, in bit/s.
  uint64_t cap_bps;
  // The size of a full packet in bytes, IP and UDP headers included.
  uint32_t packet_bytes;
  // The ECN field with which packets are sent: 0 none, 1 ECT(1), 2 ECT(0).
  uint32_t ecn;
  // 1 if the program sends what `steadycast_probe` asks for, else 0.
  uint32_t probes;
  // The seed of the random numbers that a controller draws.
  uint64_t seed;
  // 1 if `steadycast_sent` is called with the feedback about a packet, and not when it leaves, else 0: a controller
  // with a window is then refused. A program made before there was this field goes on with 0.
  uint32_t late;
  // The longest time between two feedbacks in ms; 0 where it is not known. Above 100 a controller whose window is
  // clocked by acknowledgements is refused.
  uint32_t interval_ms;
} SteadycastBounds;

// What feedback tells of one packet.
typedef struct {
  // The packet's number, as `steadycast_sent` gave it.
  uint64_t number;
  // When it arrived on the receiver's clock, in ns; `STEADYCAST_MISSING`, or `STEADYCAST_NO_TIME` when it
  // arrived at a time that is not told.
  int64_t arrived_ns;
  // Its ECN field on arrival, 0 to 3, or `STEADYCAST_NO_ECN`.
  int32_t ecn;
} SteadycastFate;

// What a controller wants, and why.
typedef struct {
  // `sizeof(SteadycastDecision)`, filled in by the caller.
  size_t size;
  // The rate for the encoder, in bit/s of IP packets: take the headers off.
  uint64_t target_bps;
  // The rate for the pacer, in bit/s of IP packets.
  uint64_t pacing_bps;
  // How many IP bytes may leave before the next report; -1 where there is no such limit.
  int64_t window_bytes;
  // What limits the rate: 0 the start, 1 the network, 2 the cap, 3 the floor.
  uint32_t limit;
  // The rule behind the rate, in English, cut to what has room, and ended by a NUL.
  char why[64];
} SteadycastDecision;

// A burst that a controller asks for: packets that leave at a rate of their own, from what waits and then padding.
typedef struct {
  // `sizeof(SteadycastProbe)`, filled in by the caller.
  size_t size;
  // Tells this probe from others; each is sent once.
  uint32_t id;
  // The least number of packets.
  uint32_t packets;
  // The least number of IP bytes.
  uint64_t bytes;
  // The rate at which its packets leave, in bit/s of IP packets.
  uint64_t rate_bps;
  // 1 if nothing leaves after it until its packets would have left at the pacing rate, else 0.
  uint32_t within;
} SteadycastProbe;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a controller, by the name that `steadycast controllers` lists.
//
// `abi` is `STEADYCAST_ABI`. `params` is a JSON object of parameters over the defaults, or null: `{"probes": false}`.
// Returns null when something is wrong, and then says what and what would be right in `error`, which has room for
// `room` bytes, the NUL at its end included.
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

// Frees a controller. Null is taken.
//
// # Safety
// `handle` is null, or comes from `steadycast_new` and is not used again.
void steadycast_free(SteadycastRemote *handle);

// A packet of the media leaves, or has left, at `at_ns`. Returns its number, which counts packets of all streams from
// 0 on: its low 16 bits are what a transport-wide header extension carries. `STEADYCAST_NO_NUMBER` for a wrong call.
//
// A program that learns when packets left with their feedback alone tells of them right before `steadycast_feedback`:
// `at_ns` is when each left, though that is before the last call.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_sent(SteadycastRemote *handle,
                         int64_t at_ns,
                         uint32_t size_bytes,
                         uint32_t flags);

// A packet of another stream than the media leaves: `stream` is `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or
// `STEADYCAST_PADDING`. Returns its number as `steadycast_sent` does.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_sent_extra(SteadycastRemote *handle, int64_t at_ns, uint32_t size_bytes, uint32_t stream);

// No feedback will tell of the packet called `number`: it is no longer in flight, and it is not lost. A fate that is
// told all the same counts. Packets need not be forgotten once feedback tells of later ones. Where a library may be
// older than this function, look it up when the program starts (`dlsym`).
//
// # Safety
// As for `steadycast_decision`.
int steadycast_forget(SteadycastRemote *handle,
                      uint64_t number);

// Finds the newest packet whose number ends in these 16 bits, for feedback that names packets so;
// `STEADYCAST_NO_NUMBER` when none is remembered.
//
// # Safety
// As for `steadycast_decision`.
uint64_t steadycast_number(SteadycastRemote *handle, uint16_t low);

// The pacer's queue has changed: `waiting_bytes` of frames wait without headers, the oldest for `age_ns`;
// `frame_bytes` is the size of a frame that has just come in, or -1.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_queued(SteadycastRemote *handle,
                      int64_t at_ns,
                      uint64_t waiting_bytes,
                      int64_t age_ns,
                      int64_t frame_bytes);

// Feedback has come at `at_ns` with the fates of `count` packets, in any order. What is told twice, or of packets that
// were never sent, is ignored. A packet is lost when its fate is `STEADYCAST_MISSING`: that of a packet left out,
// though later ones are told of, is unknown. Where all of a feedback's packets arrived at one time, as in
// acknowledgements, the newest alone counts as timed.
//
// # Safety
// As for `steadycast_decision`; `fates` has `count` entries, or is null when `count` is 0.
int steadycast_feedback(SteadycastRemote *handle,
                        int64_t at_ns,
                        const SteadycastFate *fates,
                        size_t count);

// When `steadycast_timer` is to be called next; `STEADYCAST_NEVER` when nothing waits.
//
// # Safety
// As for `steadycast_decision`.
int64_t steadycast_wake(SteadycastRemote *handle);

// Time has come to `now_ns`. A call before the time of `steadycast_wake` does nothing.
//
// # Safety
// As for `steadycast_decision`.
int steadycast_timer(SteadycastRemote *handle, int64_t now_ns);

// Reads what the controller wants into `decision`, whose `size` the caller has set. Read it after each call that tells
// something.
//
// # Safety
// `handle` is null, or comes from `steadycast_new`, has not been freed, and no other thread uses it; `decision` is
// null or points to a struct of its type.
int steadycast_decision(SteadycastRemote *handle,
                        SteadycastDecision *decision);

// Reads the probe that the controller wants sent into `probe`, whose `size` the caller has set. Returns 1 if there is
// one, and 0 if not.
//
// # Safety
// As for `steadycast_decision`; `probe` is null or points to a struct of its type.
int steadycast_probe(SteadycastRemote *handle,
                     SteadycastProbe *probe);

// Writes the names of the controllers that `steadycast_new` knows into `names`, a line each, ended by a NUL, and cut
// to `room` bytes. Returns the bytes that all of them need.
//
// # Safety
// `names` is null or has `room` bytes.
size_t steadycast_controllers(char *names,
                              size_t room);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEADYCAST_H */
