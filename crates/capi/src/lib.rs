//! The C library: both halves of a rate controller at the sender, on per-packet feedback. It is for products in C, C++,
//! Go, Swift or any language that calls C.
//!
//! There are two kinds of handle. One contains a [`steadycast_remote::Remote`], which is a controller alone. The other
//! contains a [`steadycast_sender::MediaSender`], which adds a pacer and a frame queue. A product calls the functions
//! of its handle for each packet that it sends and each report that arrives, and reads the rates for its encoder and
//! its pacer. The library sends nothing, reads no clock, starts no thread and has no callbacks. Times are nanoseconds
//! of one clock of the product; rates are bit/s of IP packets; sizes are bytes of IP packets. A handle may be used by
//! one thread at a time.
//!
//! Each function rejects an invalid call (no handle, a struct of another size, a value out of range) with a code below
//! zero, and changes nothing. A fault of the library ends the handle, not the program: every later call returns
//! [`STEADYCAST_BROKEN`].

#![allow(unsafe_code, reason = "C hands over pointers: each use says what the caller promises")]

mod sender;
mod text;

pub use sender::*;

use std::ffi::{c_char, c_int};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use steadycast_remote::{
    Bounds, Bytes, Decision, Ecn, FrameEdge, Given, Limit, MediaQueue, Need, Packet, PacketArrival, PacketResult,
    PeerTime, Rate, Remote, Seed, Span, Stream, Time, Window,
};

/// The version of this interface, which the program passes to `steadycast_new`. The library also accepts programs that
/// were compiled for an earlier version. Version 2 has added the functions `steadycast_sender_…` to version 1.
pub const STEADYCAST_ABI: u32 = 2;

/// The call has succeeded.
pub const STEADYCAST_OK: c_int = 0;
/// A handle or another required pointer is null.
pub const STEADYCAST_NULL: c_int = -1;
/// A fault of the library has ended this handle. Free it and continue without it.
pub const STEADYCAST_BROKEN: c_int = -2;
/// The `size` of a struct is not the size that the struct has in this version.
pub const STEADYCAST_SIZE: c_int = -3;
/// A value is not valid for its field.
pub const STEADYCAST_VALUE: c_int = -4;

/// Returned in place of a packet number if the call is invalid or the packet is unknown.
pub const STEADYCAST_NO_NUMBER: u64 = u64::MAX;
/// An arrival time that is not in the feedback.
pub const STEADYCAST_NO_TIME: i64 = i64::MIN;
/// The packet had not arrived when the feedback was written.
pub const STEADYCAST_MISSING: i64 = i64::MAX;
/// An ECN field that is not in the feedback.
pub const STEADYCAST_NO_ECN: i32 = -1;
/// The wake time if no timer is needed.
pub const STEADYCAST_NEVER: i64 = i64::MAX;

/// Stream of `steadycast_sent_extra`: retransmissions of lost media packets (RFC 4588).
pub const STEADYCAST_REPAIR: u32 = 1;
/// Stream of `steadycast_sent_extra`: parity.
pub const STEADYCAST_PARITY: u32 = 2;
/// Stream of `steadycast_sent_extra`: packets without content, for a probe.
pub const STEADYCAST_PADDING: u32 = 3;

/// Flag of `steadycast_sent`: the packet is the first of its frame.
pub const STEADYCAST_FRAME_FIRST: u32 = 1;
/// Flag of `steadycast_sent`: the packet is the last of its frame.
pub const STEADYCAST_FRAME_LAST: u32 = 2;
/// Flag of `steadycast_sent`: the queue is empty after the packet, so that the encoder limits the rate instead of the
/// controller.
pub const STEADYCAST_DATA_LIMITED: u32 = 4;

/// Flag of `steadycast_sent`, and of the stream of `steadycast_sent_extra`: no feedback will cover the packet, so it
/// never counts as lost. For example, browsers leave retransmissions out of transport-wide feedback, and QUIC does not
/// acknowledge packets that only contain acknowledgements.
pub const STEADYCAST_UNCOVERED: u32 = 8;

/// The handle of a controller.
pub struct SteadycastRemote {
    remote: Remote,
    packet: u64,
    broken: bool,
}

/// The limits of a controller. `STEADYCAST_BOUNDS(floor, cap)` initializes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastBounds {
    /// `sizeof(SteadycastBounds)`.
    pub size: usize,
    /// The lower limit of the rate, in bit/s.
    pub floor_bps: u64,
    /// The upper limit of the rate, in bit/s.
    pub cap_bps: u64,
    /// The size of a full packet in bytes, including IP and UDP headers.
    pub packet_bytes: u32,
    /// The ECN field with which packets are sent: 0 none, 1 ECT(1), 2 ECT(0).
    pub ecn: u32,
    /// 1 if the program sends the probes of `steadycast_probe`, otherwise 0.
    pub probes: u32,
    /// The seed of the controller's random numbers.
    pub seed: u64,
    /// 1 if the program calls `steadycast_sent` for a packet only when the feedback about it arrives, 0 if the program
    /// calls it when the packet is sent. With 1 a controller with a window is rejected, because the bytes in flight are
    /// unknown. For a program that was compiled without this field, the value is 0.
    pub late: u32,
    /// The longest interval between two feedback messages in ms; 0 if it is unknown. Above 100 a controller whose
    /// window is clocked by acknowledgements is rejected.
    pub interval_ms: u32,
    /// 1 if all packets of a feedback message share one arrival time (when the message was written or arrived),
    /// otherwise 0. With 1 a controller that measures the time between two arrivals is rejected. For a program that was
    /// compiled without this field, the value is 0.
    pub acknowledged: u32,
}

/// The feedback about one packet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastFate {
    /// The packet's number, as returned by `steadycast_sent`.
    pub number: u64,
    /// The arrival time on the receiver's clock, in ns. It is `STEADYCAST_MISSING` for a packet that has not arrived,
    /// and `STEADYCAST_NO_TIME` for an arrival without a known time.
    pub arrived_ns: i64,
    /// The ECN field on arrival, 0 to 3, or `STEADYCAST_NO_ECN`.
    pub ecn: i32,
}

/// A controller's decision, with its reason.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastDecision {
    /// `sizeof(SteadycastDecision)`, set by the caller.
    pub size: usize,
    /// The target rate for the encoder, in bit/s of IP packets. Subtract the headers.
    pub target_bps: u64,
    /// The pacing rate, in bit/s of IP packets.
    pub pacing_bps: u64,
    /// The number of IP bytes that may be sent before the next report; -1 if there is no limit.
    pub window_bytes: i64,
    /// What limits the rate: 0 the start, 1 the network, 2 the cap, 3 the floor.
    pub limit: u32,
    /// The rule that set the rate, in English, truncated to the array and terminated by a NUL.
    pub why: [c_char; 64],
}

/// A burst that a controller requests. Its packets are sent at the probe's rate, queued media first and then padding.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastProbe {
    /// `sizeof(SteadycastProbe)`, set by the caller.
    pub size: usize,
    /// The identifier of the probe. Each probe is sent once.
    pub id: u32,
    /// The minimum number of packets.
    pub packets: u32,
    /// The minimum number of IP bytes.
    pub bytes: u64,
    /// The rate at which the packets are sent, in bit/s of IP packets.
    pub rate_bps: u64,
    /// 1 if nothing is sent after the probe until the average sending rate is back at the pacing rate, otherwise 0.
    pub within: u32,
}

/// Converts a time from C. Times before 0 count as 0.
fn time(ns: i64) -> Time {
    Time::from_nanos(ns.max(0).unsigned_abs())
}

/// Converts a time for C.
fn nanos(at: Time) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(STEADYCAST_NEVER)
}

/// A handle with the flag that a panic in the library sets. Later calls on the handle then return `STEADYCAST_BROKEN`.
trait Handle {
    fn broken(&mut self) -> &mut bool;
}

impl Handle for SteadycastRemote {
    fn broken(&mut self) -> &mut bool {
        &mut self.broken
    }
}

/// Runs a call on a handle. A panic ends the handle.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_new` or `steadycast_sender_new`, has not been freed, and no other thread
/// uses it.
unsafe fn with<H: Handle, T>(handle: *mut H, wrong: impl FnOnce(c_int) -> T, call: impl FnOnce(&mut H) -> T) -> T {
    // SAFETY: as the caller promises.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return wrong(STEADYCAST_NULL) };
    if *handle.broken() {
        return wrong(STEADYCAST_BROKEN);
    }
    catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or_else(|_| {
        *handle.broken() = true;
        wrong(STEADYCAST_BROKEN)
    })
}

/// Creates a controller, by its name in `steadycast controllers`.
///
/// `abi` is `STEADYCAST_ABI`. `params` is null or a JSON object of parameters that override the defaults, for example
/// `{"probes": false}`. On an error the function returns null and writes the problem and the remedy to `error`, which
/// has `room` bytes, including the NUL.
///
/// # Safety
/// `controller`, `params` and `bounds` are null or point to what their types say, texts ended by a NUL; `error` is null
/// or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_new(
    abi: u32,
    controller: *const c_char,
    params: *const c_char,
    bounds: *const SteadycastBounds,
    error: *mut c_char,
    room: usize,
) -> *mut SteadycastRemote {
    // SAFETY: as the caller promises.
    let (controller, params, bounds) = unsafe { (text::read(controller), text::read(params), read_bounds(bounds)) };
    let made = catch_unwind(AssertUnwindSafe(|| make(abi, controller, params, bounds)))
        .unwrap_or_else(|_| Err("a fault of the library; please report it".into()));
    match made {
        Ok(handle) => Box::into_raw(Box::new(handle)),
        Err(problem) => {
            // SAFETY: as the caller promises.
            unsafe { text::write(&problem, error, room) };
            ptr::null_mut()
        }
    }
}

/// Reads bounds of this version or of an earlier one. The struct of an earlier version ended before `late` or before
/// `acknowledged`.
unsafe fn read_bounds(bounds: *const SteadycastBounds) -> Result<SteadycastBounds, String> {
    if bounds.is_null() {
        return Err("bounds: it is null; give STEADYCAST_BOUNDS(floor, cap)".into());
    }
    // SAFETY: as the caller promises; the size is the first field.
    let size = unsafe { bounds.cast::<usize>().read() };
    let whole = size_of::<SteadycastBounds>();
    let earlier = [offset_of!(SteadycastBounds, late), offset_of!(SteadycastBounds, acknowledged)];
    if size != whole && !earlier.contains(&size) {
        return Err(format!("bounds: its size is {size}, not {whole}; begin with STEADYCAST_BOUNDS(floor, cap)"));
    }
    let mut read = SteadycastBounds {
        size,
        floor_bps: 0,
        cap_bps: 0,
        packet_bytes: 0,
        ecn: 0,
        probes: 0,
        seed: 0,
        late: 0,
        interval_ms: 0,
        acknowledged: 0,
    };
    // SAFETY: the caller's bounds have `size` bytes, and `read` has as many or more.
    unsafe { ptr::copy_nonoverlapping(bounds.cast::<u8>(), ptr::from_mut(&mut read).cast::<u8>(), size) };
    Ok(read)
}

fn make(
    abi: u32,
    controller: Result<Option<&str>, String>,
    params: Result<Option<&str>, String>,
    bounds: Result<SteadycastBounds, String>,
) -> Result<SteadycastRemote, String> {
    let (controller, params, bounds) = bounds_from(abi, controller, params, bounds)?;
    let remote = Remote::new(controller, &params, &bounds).map_err(|problem| problem.to_string())?;
    Ok(SteadycastRemote { remote, packet: bounds.packet.get(), broken: false })
}

/// The name of a controller, its parameters, and its bounds.
type Named<'a> = (&'a str, Vec<(String, Given)>, Bounds);

/// Converts the arguments of a constructor from C.
fn bounds_from<'a>(
    abi: u32,
    controller: Result<Option<&'a str>, String>,
    params: Result<Option<&str>, String>,
    bounds: Result<SteadycastBounds, String>,
) -> Result<Named<'a>, String> {
    if abi == 0 || abi > STEADYCAST_ABI {
        return Err(format!(
            "abi: the program was made for version {abi}, this library has {STEADYCAST_ABI}; \
             compile it with this library's steadycast.h"
        ));
    }
    let controller = controller?.ok_or("controller: it is null; give a name, for example \"steady\"")?;
    let given = bounds?;
    let mut bounds = Bounds::new(Rate::bps(given.floor_bps), Rate::bps(given.cap_bps));
    bounds.packet = Bytes::new(given.packet_bytes.into());
    bounds.ecn = match given.ecn {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        other => return Err(format!("bounds.ecn: {other} is no field to send with; give 0, 1 (ECT(1)) or 2 (ECT(0))")),
    };
    bounds.offers = if given.probes == 0 { Vec::new() } else { vec![Need::Probes] };
    bounds.seed = Seed(given.seed);
    bounds.feedback.late = given.late != 0;
    bounds.feedback.interval = Span::millis(given.interval_ms.into());
    bounds.feedback.acknowledged = given.acknowledged != 0;
    Ok((controller, text::params(params?.unwrap_or("{}"))?, bounds))
}

/// Frees a controller. Null is permitted.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_free(handle: *mut SteadycastRemote) {
    if !handle.is_null() {
        // SAFETY: it came from `Box::into_raw`, and is not used again.
        let handle = unsafe { Box::from_raw(handle) };
        // A panic in the destructor would otherwise end the program.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// Records a media packet that is sent, or was sent, at `at_ns`. Returns its number; packets of all streams are
/// numbered together, from 0. The low 16 bits of the number go into a transport-wide header extension. An invalid call
/// returns `STEADYCAST_NO_NUMBER`.
///
/// A program that learns send times only from feedback calls this right before `steadycast_feedback`. `at_ns` is then
/// the send time, even if it is earlier than the previous call.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sent(
    handle: *mut SteadycastRemote,
    at_ns: i64,
    size_bytes: u32,
    flags: u32,
) -> u64 {
    let edge = FrameEdge { first: flags & STEADYCAST_FRAME_FIRST != 0, last: flags & STEADYCAST_FRAME_LAST != 0 };
    let data_limited = flags & STEADYCAST_DATA_LIMITED != 0;
    let packet = Packet { size: Bytes::new(size_bytes.into()), edge, data_limited };
    let tell = |own: &mut SteadycastRemote| match flags & STEADYCAST_UNCOVERED {
        0 => own.remote.sent(time(at_ns), &packet),
        _ => own.remote.sent_uncovered(time(at_ns), Stream::Media, packet.size),
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, tell) }
}

/// Records a packet of another stream that is sent: `stream` is `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or
/// `STEADYCAST_PADDING`. Returns its number as `steadycast_sent` does.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sent_extra(
    handle: *mut SteadycastRemote,
    at_ns: i64,
    size_bytes: u32,
    stream: u32,
) -> u64 {
    let uncovered = stream & STEADYCAST_UNCOVERED != 0;
    let stream = match stream & !STEADYCAST_UNCOVERED {
        STEADYCAST_REPAIR => Stream::Repair,
        STEADYCAST_PARITY => Stream::Parity,
        STEADYCAST_PADDING => Stream::Padding,
        _ => return STEADYCAST_NO_NUMBER,
    };
    let size = Bytes::new(size_bytes.into());
    let tell = |own: &mut SteadycastRemote| match uncovered {
        false => own.remote.sent_extra(time(at_ns), stream, size),
        true => own.remote.sent_uncovered(time(at_ns), stream, size),
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, tell) }
}

/// Declares that no feedback will cover packet `number`. The packet is then no longer in flight, and does not count as
/// lost. If feedback reports its fate nevertheless, this fate counts. There is no need to call this for packets that
/// feedback has skipped. If the library may be older than this function, look the function up at run time (`dlsym`).
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_forget(handle: *mut SteadycastRemote, number: u64) -> c_int {
    let tell = |own: &mut SteadycastRemote| {
        own.remote.forget(number);
        STEADYCAST_OK
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |code| code, tell) }
}

/// Finds the newest packet whose number has these low 16 bits, for feedback that refers to packets in this way. Returns
/// `STEADYCAST_NO_NUMBER` if it is not in the history.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_number(handle: *mut SteadycastRemote, low: u16) -> u64 {
    let find = |own: &mut SteadycastRemote| own.remote.number(low).unwrap_or(STEADYCAST_NO_NUMBER);
    // SAFETY: as the caller promises.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, find) }
}

/// Reports a change of the pacer's queue: `waiting_bytes` is the size of the queued frames without headers, and
/// `age_ns` is the time for which the oldest of them has waited. `frame_bytes` is the size of a frame that was just
/// queued, or -1.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_queued(
    handle: *mut SteadycastRemote,
    at_ns: i64,
    waiting_bytes: u64,
    age_ns: i64,
    frame_bytes: i64,
) -> c_int {
    let queue = MediaQueue {
        at: time(at_ns),
        waiting: Bytes::new(waiting_bytes),
        age: Span::nanos(age_ns.max(0).unsigned_abs()),
        frame: u64::try_from(frame_bytes).ok().map(Bytes::new),
    };
    let tell = |own: &mut SteadycastRemote| {
        own.remote.queued(&queue);
        STEADYCAST_OK
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |code| code, tell) }
}

/// Processes feedback that arrives at `at_ns` with the fates of `count` packets, in any order. Repeated fates, and
/// fates of packets that were never sent, are ignored. A packet is lost if its fate is `STEADYCAST_MISSING`. A packet
/// that is left out although later ones are covered has an unknown fate. If all packets of the feedback have the same
/// arrival time, as with acknowledgements, the time is valid for the newest one only.
///
/// # Safety
/// As for `steadycast_decision`; `fates` has `count` entries, or is null when `count` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_feedback(
    handle: *mut SteadycastRemote,
    at_ns: i64,
    fates: *const SteadycastFate,
    count: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let fates = match unsafe { read_fates(fates, count) } {
        Ok(fates) => fates,
        Err(code) => return code,
    };
    let tell = |own: &mut SteadycastRemote| {
        own.remote.feedback(time(at_ns), fates.iter().map(told));
        STEADYCAST_OK
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |code| code, tell) }
}

/// Reads fates.
///
/// # Errors
/// The code of an invalid call.
///
/// # Safety
/// `fates` has `count` entries, or is null when `count` is 0.
unsafe fn read_fates<'a>(fates: *const SteadycastFate, count: usize) -> Result<&'a [SteadycastFate], c_int> {
    if fates.is_null() && count > 0 {
        return Err(STEADYCAST_NULL);
    }
    // SAFETY: as the caller promises; an empty slice needs no memory.
    let fates = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(fates, count) } };
    match fates.iter().all(|fate| (STEADYCAST_NO_ECN..=3).contains(&fate.ecn)) {
        true => Ok(fates),
        false => Err(STEADYCAST_VALUE),
    }
}

fn told(fate: &SteadycastFate) -> PacketResult {
    let at = (fate.arrived_ns != STEADYCAST_NO_TIME).then(|| PeerTime::from_nanos(fate.arrived_ns));
    let ecn = u8::try_from(fate.ecn).ok().map(Ecn::from_bits);
    let arrived = (fate.arrived_ns != STEADYCAST_MISSING).then_some(PacketArrival { at, ecn });
    PacketResult { number: fate.number, arrived }
}

/// Returns the time of the next call of `steadycast_timer`; `STEADYCAST_NEVER` if none is needed.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_wake(handle: *mut SteadycastRemote) -> i64 {
    let ask = |own: &mut SteadycastRemote| own.remote.wake().map_or(STEADYCAST_NEVER, |wake| nanos(wake.at));
    // SAFETY: as the caller promises.
    unsafe { with(handle, |_| STEADYCAST_NEVER, ask) }
}

/// Handles timers at `now_ns`. A call before the time of `steadycast_wake` does nothing.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_timer(handle: *mut SteadycastRemote, now_ns: i64) -> c_int {
    let tell = |own: &mut SteadycastRemote| {
        own.remote.timer(time(now_ns));
        STEADYCAST_OK
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |code| code, tell) }
}

/// Reads the current decision into `decision`, whose `size` the caller has set. Read it after each call that changes
/// the state.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_new`, has not been freed, and no other thread uses it; `decision` is
/// null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_decision(
    handle: *mut SteadycastRemote,
    decision: *mut SteadycastDecision,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(decision) = (unsafe { decision.as_mut() }) else { return STEADYCAST_NULL };
    if decision.size != size_of::<SteadycastDecision>() {
        return STEADYCAST_SIZE;
    }
    let tell = |own: &mut SteadycastRemote| write_decision(decision, &own.remote.decision(), own.packet);
    // SAFETY: as the caller promises.
    unsafe { with(handle, |code| code, tell) }
}

/// Writes a decision of a controller whose packets have `packet` bytes.
fn write_decision(decision: &mut SteadycastDecision, wanted: &Decision, packet: u64) -> c_int {
    let window = wanted.window.map(|window| match window {
        Window::Packets(packets) => u64::from(packets) * packet,
        Window::Bytes(bytes) => bytes.get(),
    });
    decision.target_bps = wanted.target.as_bps();
    decision.pacing_bps = wanted.pacing.as_bps();
    decision.window_bytes = window.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    decision.limit = match wanted.limit {
        Limit::Start => 0,
        Limit::Network => 1,
        Limit::Cap => 2,
        Limit::Floor => 3,
    };
    let room = decision.why.len();
    // SAFETY: the array has `room` bytes.
    unsafe { text::write(&wanted.why.rule, decision.why.as_mut_ptr(), room) };
    STEADYCAST_OK
}

/// Reads the probe that is to be sent into `probe`, whose `size` the caller has set. Returns 1 if there is one,
/// otherwise 0.
///
/// # Safety
/// As for `steadycast_decision`; `probe` is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_probe(handle: *mut SteadycastRemote, probe: *mut SteadycastProbe) -> c_int {
    // SAFETY: as the caller promises.
    let Some(probe) = (unsafe { probe.as_mut() }) else { return STEADYCAST_NULL };
    if probe.size != size_of::<SteadycastProbe>() {
        return STEADYCAST_SIZE;
    }
    let tell = |own: &mut SteadycastRemote| {
        let Some(wanted) = own.remote.probe() else { return 0 };
        *probe = SteadycastProbe {
            size: probe.size,
            id: wanted.id,
            packets: wanted.packets,
            bytes: wanted.bytes.get(),
            rate_bps: wanted.rate.as_bps(),
            within: wanted.within.into(),
        };
        1
    };
    // SAFETY: as the caller promises.
    unsafe { with(handle, |code| code, tell) }
}

/// Writes the names of the controllers for `steadycast_new` into `names`, one per line, terminated by a NUL and
/// truncated to `room` bytes. Returns the number of bytes that the whole list needs.
///
/// # Safety
/// `names` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_controllers(names: *mut c_char, room: usize) -> usize {
    let all = text::names();
    // SAFETY: as the caller promises.
    unsafe { text::write(&all, names, room) };
    all.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_ends_the_handle_and_not_the_program() {
        let bounds = SteadycastBounds {
            size: size_of::<SteadycastBounds>(),
            floor_bps: 1,
            cap_bps: 2_000_000,
            packet_bytes: 1_200,
            ecn: 0,
            probes: 0,
            seed: 0,
            late: 0,
            interval_ms: 0,
            acknowledged: 0,
        };
        let mut own = make(STEADYCAST_ABI, Ok(Some("tfrc")), Ok(None), Ok(bounds)).unwrap();
        // SAFETY: the handle is of this frame.
        unsafe {
            assert_eq!(with(&mut own, |code| code, |_| panic!("a fault")), STEADYCAST_BROKEN);
            assert_eq!(steadycast_timer(&mut own, 5), STEADYCAST_BROKEN);
            assert_eq!(steadycast_sent(&mut own, 5, 1_200, 0), STEADYCAST_NO_NUMBER);
        }
    }
}
