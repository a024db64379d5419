//! The C library: a rate controller at the sender that works with per-packet feedback.
//!
//! A handle has a [`steadycast_remote::Remote`] or a [`steadycast_sender::MediaSender`]. `Remote` is the controller
//! alone; `MediaSender` adds a pacer and a frame queue. The library sends nothing, and has no threads or callbacks.
//!
//! Times are in nanoseconds on one clock of the calling program. Rates are in bit/s, and sizes are bytes of IP packets.
//! Only one thread at a time may use a handle.
//!
//! An invalid call returns a code below zero and changes nothing. A fault of the library ends the handle: every later
//! call returns [`STEADYCAST_BROKEN`].

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

/// The version of this interface, for `steadycast_new`. Programs of an earlier version are accepted. Version 2 has
/// added `steadycast_sender_…`.
pub const STEADYCAST_ABI: u32 = 2;

/// The call has succeeded.
pub const STEADYCAST_OK: c_int = 0;
/// A handle or another required pointer is null.
pub const STEADYCAST_NULL: c_int = -1;
/// A fault of the library has ended the handle. Free it and continue without it.
pub const STEADYCAST_BROKEN: c_int = -2;
/// The `size` of a struct is wrong for this version.
pub const STEADYCAST_SIZE: c_int = -3;
/// A value is not valid for its field.
pub const STEADYCAST_VALUE: c_int = -4;

/// The packet number of an invalid call or an unknown packet.
pub const STEADYCAST_NO_NUMBER: u64 = u64::MAX;
/// The arrival time is not in the feedback.
pub const STEADYCAST_NO_TIME: i64 = i64::MIN;
/// The packet had not arrived when the feedback was written.
pub const STEADYCAST_MISSING: i64 = i64::MAX;
/// The ECN field is not in the feedback.
pub const STEADYCAST_NO_ECN: i32 = -1;
/// No timer is needed.
pub const STEADYCAST_NEVER: i64 = i64::MAX;

/// Stream of `steadycast_sent_extra`: retransmissions (RFC 4588).
pub const STEADYCAST_REPAIR: u32 = 1;
/// Stream of `steadycast_sent_extra`: parity.
pub const STEADYCAST_PARITY: u32 = 2;
/// Stream of `steadycast_sent_extra`: padding.
pub const STEADYCAST_PADDING: u32 = 3;

/// Flag of `steadycast_sent`: the first packet of a frame.
pub const STEADYCAST_FRAME_FIRST: u32 = 1;
/// Flag of `steadycast_sent`: the last packet of a frame.
pub const STEADYCAST_FRAME_LAST: u32 = 2;
/// Flag of `steadycast_sent`: the queue is empty after the packet, so the encoder limits the rate.
pub const STEADYCAST_DATA_LIMITED: u32 = 4;

/// Flag of `steadycast_sent`, and of `stream` in `steadycast_sent_extra`: feedback does not cover the packet. The
/// controller never counts this packet as lost.
pub const STEADYCAST_UNCOVERED: u32 = 8;

/// A controller's handle.
pub struct SteadycastRemote {
    remote: Remote,
    packet: u64,
    broken: bool,
}

/// A controller's limits. `STEADYCAST_BOUNDS(floor, cap)` initializes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastBounds {
    /// `sizeof(SteadycastBounds)`.
    pub size: usize,
    /// The lower limit of the rate, in bit/s.
    pub floor_bps: u64,
    /// The upper limit of the rate, in bit/s.
    pub cap_bps: u64,
    /// The size of a full packet in bytes, with IP and UDP headers.
    pub packet_bytes: u32,
    /// The ECN field of sent packets: 0 none, 1 ECT(1), 2 ECT(0).
    pub ecn: u32,
    /// 1 if the program sends the probes of `steadycast_probe`, else 0.
    pub probes: u32,
    /// The seed of random numbers.
    pub seed: u64,
    /// 1 if `steadycast_sent` is called only when the packet's feedback arrives, else 0. With 1, a controller with a
    /// window is rejected. 0 for a program compiled without this field.
    pub late: u32,
    /// The longest interval between feedback messages in ms; 0 if unknown. A controller that needs feedback more often
    /// is rejected: some need it every 100 ms, others every 250 ms.
    pub interval_ms: u32,
    /// 1 if all packets of a feedback message have one arrival time, else 0. With 1, a controller that needs the time
    /// between arrivals is rejected. 0 for a program compiled without this field.
    pub acknowledged: u32,
}

/// The feedback about one packet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastFate {
    /// The packet's number, from `steadycast_sent`.
    pub number: u64,
    /// The arrival time on the receiver's clock, in ns; `STEADYCAST_MISSING` without an arrival, `STEADYCAST_NO_TIME`
    /// if unknown.
    pub arrived_ns: i64,
    /// The ECN field on arrival, 0 to 3; or `STEADYCAST_NO_ECN`.
    pub ecn: i32,
}

/// A controller's decision.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastDecision {
    /// `sizeof(SteadycastDecision)`, set by the caller.
    pub size: usize,
    /// The encoder's target in bit/s of IP packets, with headers.
    pub target_bps: u64,
    /// The pacing rate, in bit/s of IP packets.
    pub pacing_bps: u64,
    /// The IP bytes that may be sent before the next report; -1 without a limit.
    pub window_bytes: i64,
    /// The limit of the rate: 0 the start, 1 the network, 2 the cap, 3 the floor.
    pub limit: u32,
    /// The rule that set the rate, in English, NUL-terminated and truncated.
    pub why: [c_char; 64],
}

/// A burst that a controller requests: queued media first, then padding.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastProbe {
    /// `sizeof(SteadycastProbe)`, set by the caller.
    pub size: usize,
    /// The identifier. Each probe is sent once.
    pub id: u32,
    /// The minimum number of packets.
    pub packets: u32,
    /// The minimum number of IP bytes.
    pub bytes: u64,
    /// The send rate in bit/s of IP packets.
    pub rate_bps: u64,
    /// 1 if sending pauses after the probe until the average is back at the pacing rate, else 0.
    pub within: u32,
}

/// Converts a time in ns. Times before 0 count as 0.
fn time(ns: i64) -> Time {
    Time::from_nanos(ns.max(0).unsigned_abs())
}

fn nanos(at: Time) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(STEADYCAST_NEVER)
}

/// A handle that has a flag for a panic in the library. After a panic, calls do nothing. They return
/// `STEADYCAST_BROKEN`, or the value that they return for an invalid call.
trait Handle {
    fn broken(&mut self) -> &mut bool;
}

impl Handle for SteadycastRemote {
    fn broken(&mut self) -> &mut bool {
        &mut self.broken
    }
}

/// Runs a call on a handle. If the call panics, the handle can't be used any more.
///
/// Returns the result of `wrong`, given the error code, if the handle is null or broken, or if the call panics.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_new` or `steadycast_sender_new`. It has not been freed, and no other
/// thread uses it.
unsafe fn with<H: Handle, T>(handle: *mut H, wrong: impl FnOnce(c_int) -> T, call: impl FnOnce(&mut H) -> T) -> T {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return wrong(STEADYCAST_NULL) };
    if *handle.broken() {
        return wrong(STEADYCAST_BROKEN);
    }
    catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or_else(|_| {
        *handle.broken() = true;
        wrong(STEADYCAST_BROKEN)
    })
}

/// Creates a controller.
///
/// `abi` is `STEADYCAST_ABI`. `controller` is a name from `steadycast_controllers`. `params` is null, or a JSON object
/// with the parameters that differ from their defaults, for example `{"probes": false}`.
///
/// On an error it returns null and writes problem and remedy to `error`, which has `room` bytes with the NUL.
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
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe {
        let (controller, params, bounds) = (text::read(controller), text::read(params), read_bounds(bounds));
        hand_over(error, room, || make(bounds_from(abi, controller, params, bounds)?))
    }
}

/// Creates a handle with `make`. If this fails or panics, writes the problem to `error` and returns null.
///
/// # Safety
/// `error` is null or has `room` bytes.
unsafe fn hand_over<H>(error: *mut c_char, room: usize, make: impl FnOnce() -> Result<H, String>) -> *mut H {
    let made =
        catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| Err("a fault of the library; please report it".into()));
    match made {
        Ok(handle) => Box::into_raw(Box::new(handle)),
        Err(problem) => {
            // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
            unsafe { text::write(&problem, error, room) };
            ptr::null_mut()
        }
    }
}

/// Frees a handle. Null is permitted.
///
/// # Safety
/// `handle` is null, or comes from [`hand_over`] and is not used again.
unsafe fn release<H>(handle: *mut H) {
    if !handle.is_null() {
        // SAFETY: the handle comes from `Box::into_raw`, and is not used again.
        let handle = unsafe { Box::from_raw(handle) };
        // Catch a panic, because it must not end the caller's program.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// Reads bounds of any version of this struct. In earlier versions, the struct ended before `late` or before
/// `acknowledged`.
///
/// # Safety
/// `bounds` is null, or points to as many bytes as its first field says.
unsafe fn read_bounds(bounds: *const SteadycastBounds) -> Result<SteadycastBounds, String> {
    if bounds.is_null() {
        return Err("bounds: it is null; give STEADYCAST_BOUNDS(floor, cap)".into());
    }
    // SAFETY: the caller guarantees that the pointer is valid, and the size is the first field.
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
    // SAFETY: the caller's bounds have `size` bytes, and `read` has at least `size` bytes.
    unsafe { ptr::copy_nonoverlapping(bounds.cast::<u8>(), ptr::from_mut(&mut read).cast::<u8>(), size) };
    Ok(read)
}

fn make((controller, params, bounds): Named<'_>) -> Result<SteadycastRemote, String> {
    let remote = Remote::new(controller, &params, &bounds).map_err(|problem| problem.to_string())?;
    Ok(SteadycastRemote { remote, packet: bounds.packet.get(), broken: false })
}

/// Name of a controller, its parameters and its bounds.
type Named<'a> = (&'a str, Vec<(String, Given)>, Bounds);

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
    bounds.offers = if flag("bounds.probes", given.probes)? { vec![Need::Probes] } else { Vec::new() };
    bounds.seed = Seed(given.seed);
    bounds.feedback.late = flag("bounds.late", given.late)?;
    bounds.feedback.interval = Span::millis(given.interval_ms.into());
    bounds.feedback.acknowledged = flag("bounds.acknowledged", given.acknowledged)?;
    Ok((controller, text::params(params?.unwrap_or("{}"))?, bounds))
}

/// Returns a field that is 0 or 1. Another value is an error, because it is probably meant for another field.
fn flag(name: &str, value: u32) -> Result<bool, String> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("{name}: {other} is neither 0 nor 1; give 1 for yes, 0 for no")),
    }
}

/// Frees a controller. Null is permitted.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_free(handle: *mut SteadycastRemote) {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { release(handle) }
}

/// Records a media packet sent at `at_ns`. Returns the packet's number, or `STEADYCAST_NO_NUMBER` for an invalid call.
///
/// Numbers count from 0 over all streams. The low 16 bits are for a transport-wide header extension.
///
/// A program that learns send times from feedback calls this right before `steadycast_feedback`, with the send time.
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
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, tell) }
}

/// As `steadycast_sent`, for another stream: `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or `STEADYCAST_PADDING`.
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
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, tell) }
}

/// Declares that no feedback will cover packet `number`: the packet is neither in flight nor lost. If a later report
/// covers this packet, the report counts.
///
/// If feedback covers later packets but not this packet, the call is not needed. Older versions of the library lack
/// this function. To run with them, look it up with `dlsym`.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_forget(handle: *mut SteadycastRemote, number: u64) -> c_int {
    let tell = |own: &mut SteadycastRemote| {
        own.remote.forget(number);
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Finds the newest packet whose number has these low 16 bits; `STEADYCAST_NO_NUMBER` if it is not in the history.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_number(handle: *mut SteadycastRemote, low: u16) -> u64 {
    let find = |own: &mut SteadycastRemote| own.remote.number(low).unwrap_or(STEADYCAST_NO_NUMBER);
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, find) }
}

/// Reports a change of the pacer's queue: the queued frames' bytes without headers, the oldest one's waiting time,
/// and the bytes of a frame that was just queued, or -1.
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
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Processes feedback that arrives at `at_ns`. The entries in `fates` can have any order. Entries of unknown packets
/// and repeated entries are ignored.
///
/// A packet with `STEADYCAST_MISSING` is lost. A packet without an entry does not count as lost.
///
/// If all packets have the same arrival time, this time is valid for the newest packet only.
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
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let fates = match unsafe { read_fates(fates, count) } {
        Ok(fates) => fates,
        Err(code) => return code,
    };
    let tell = |own: &mut SteadycastRemote| {
        own.remote.feedback(time(at_ns), fates.iter().map(told));
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Reads the entries of a feedback message.
///
/// # Errors
/// Returns the error code for C if `fates` is null although `count` is not 0, or if an ECN field is invalid.
///
/// # Safety
/// `fates` has `count` entries, or is null if `count` is 0.
unsafe fn read_fates<'a>(fates: *const SteadycastFate, count: usize) -> Result<&'a [SteadycastFate], c_int> {
    if fates.is_null() && count > 0 {
        return Err(STEADYCAST_NULL);
    }
    // SAFETY: the caller guarantees that there are `count` entries. An empty slice needs no memory.
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

/// Returns the time of the next `steadycast_timer`; `STEADYCAST_NEVER` if none is needed.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_wake(handle: *mut SteadycastRemote) -> i64 {
    let ask = |own: &mut SteadycastRemote| own.remote.wake().map_or(STEADYCAST_NEVER, |wake| nanos(wake.at));
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |_| STEADYCAST_NEVER, ask) }
}

/// Handles timers at `now_ns`. The call does nothing before the time that `steadycast_wake` returns.
///
/// # Safety
/// As for `steadycast_decision`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_timer(handle: *mut SteadycastRemote, now_ns: i64) -> c_int {
    let tell = |own: &mut SteadycastRemote| {
        own.remote.timer(time(now_ns));
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Reads the decision into `decision`, whose `size` the caller has set.
///
/// Read it after each `steadycast_sent` and each `steadycast_feedback`: the pacing rate and the window may change with
/// each packet.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_new`, has not been freed, and no other thread uses it; `decision` is
/// null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_decision(
    handle: *mut SteadycastRemote,
    decision: *mut SteadycastDecision,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { read_decision(handle, decision, |own| (own.remote.decision(), own.packet)) }
}

/// Reads a handle's decision into `decision`. `read` returns the decision and the size of a full packet in bytes.
///
/// # Safety
/// As for [`with`]; `decision` is null or points to a struct of its type.
unsafe fn read_decision<H: Handle>(
    handle: *mut H,
    decision: *mut SteadycastDecision,
    read: impl FnOnce(&H) -> (Decision, u64),
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let Some(decision) = (unsafe { decision.as_mut() }) else { return STEADYCAST_NULL };
    if decision.size != size_of::<SteadycastDecision>() {
        return STEADYCAST_SIZE;
    }
    let tell = |own: &mut H| {
        let (wanted, packet) = read(own);
        let window = wanted.window.filter(|window| *window != Window::UNLIMITED).map(|window| match window {
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
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Fills `probe`, whose `size` the caller has set, with the probe that has to be sent. Returns 1 if there is a probe,
/// else 0.
///
/// # Safety
/// As for `steadycast_decision`; `probe` is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_probe(handle: *mut SteadycastRemote, probe: *mut SteadycastProbe) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
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
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Writes the controllers' names into `names`, one per line, NUL-terminated and truncated to `room` bytes. Returns
/// the bytes that the whole list needs.
///
/// # Safety
/// `names` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_controllers(names: *mut c_char, room: usize) -> usize {
    let all = text::names();
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
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
        let named = bounds_from(STEADYCAST_ABI, Ok(Some("tfrc")), Ok(None), Ok(bounds)).unwrap();
        let mut own = make(named).unwrap();
        // SAFETY: the handle is a local variable of this function.
        unsafe {
            assert_eq!(with(&mut own, |code| code, |_| panic!("a fault")), STEADYCAST_BROKEN);
            assert_eq!(steadycast_timer(&mut own, 5), STEADYCAST_BROKEN);
            assert_eq!(steadycast_sent(&mut own, 5, 1_200, 0), STEADYCAST_NO_NUMBER);
        }
    }
}
