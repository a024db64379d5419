//! The C functions `steadycast_sender_…`, which call a `steadycast_sender::MediaSender`. It consists of a controller,
//! a pacer, a frame queue and retransmissions.

use crate::{
    Handle, Named, STEADYCAST_NEVER, STEADYCAST_NO_NUMBER, STEADYCAST_NULL, STEADYCAST_OK, STEADYCAST_SIZE,
    STEADYCAST_VALUE, SteadycastBounds, SteadycastDecision, SteadycastFate, bounds_from, flag, hand_over, nanos,
    read_bounds, read_decision, release, text, time, told, with,
};
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use steadycast_control::FeedbackFormat;
use steadycast_remote::{Bytes, FrameEdge, Rate, Span, Stream};
use steadycast_sender::{
    Departure, FrameRole, MediaPacket, MediaSender, MediaSettings, Output, PacketName, RepairSettings, StreamId,
    StreamKind, StreamSettings,
};
use steadycast_wire::rtp::set_transport_number;

/// Feedback format: the program reads feedback and calls `steadycast_sender_feedback`.
pub const STEADYCAST_JOINED: u32 = 0;
/// Feedback format of `steadycast_sender_rtcp`: transport-wide.
pub const STEADYCAST_TRANSPORT_WIDE: u32 = 1;
/// Feedback format of `steadycast_sender_rtcp`: RFC 8888.
pub const STEADYCAST_RFC8888: u32 = 2;

/// Kind of a stream: audio, sent at once.
pub const STEADYCAST_AUDIO: u32 = 1;
/// Kind of a stream: video, at the pacing rate.
pub const STEADYCAST_VIDEO: u32 = 2;
/// Kind of a stream: parity from the program, sent at the pacing rate and before video.
pub const STEADYCAST_PARITY_STREAM: u32 = 3;

/// Role of a frame: a key frame.
pub const STEADYCAST_FRAME_KEY: u32 = 1;
/// Role of a frame: later frames depend on it.
pub const STEADYCAST_FRAME_REFERENCE: u32 = 2;
/// Role of a frame: no frame depends on it.
pub const STEADYCAST_FRAME_DISPOSABLE: u32 = 3;

/// Result of `steadycast_sender_poll`: wait until `at_ns` or the next event.
pub const STEADYCAST_WAIT: c_int = 0;
/// Result of `steadycast_sender_poll`: send the packet `id` now.
pub const STEADYCAST_SEND: c_int = 1;
/// Result of `steadycast_sender_poll`: the packet `id` is not sent; free it.
pub const STEADYCAST_DROPPED: c_int = 2;

/// Name of a packet in feedback: the transport-wide sequence number.
pub const STEADYCAST_NAME_TRANSPORT: u32 = 1;
/// Name of a packet in feedback: the SSRC and the RTP sequence number.
pub const STEADYCAST_NAME_RTP: u32 = 2;
/// Name of a packet in feedback: the program's number, for example QUIC's.
pub const STEADYCAST_NAME_OWN: u32 = 3;

/// The handle of a sender's kit: a controller with a pacer, a frame queue, retransmissions, probes and RTCP feedback.
pub struct SteadycastSender {
    sender: MediaSender,
    packet: u64,
    broken: bool,
}

impl Handle for SteadycastSender {
    fn broken(&mut self) -> &mut bool {
        &mut self.broken
    }
}

/// The settings of a sender's kit. `STEADYCAST_SENDER_SETTINGS` initializes them for transport-wide feedback.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastSenderSettings {
    /// `sizeof(SteadycastSenderSettings)`.
    pub size: usize,
    /// The feedback format: `STEADYCAST_JOINED`, `STEADYCAST_TRANSPORT_WIDE` or `STEADYCAST_RFC8888`.
    pub format: u32,
    /// 1 if feedback covers retransmissions, else 0. Pion and libwebrtc leave most of them out.
    pub retransmissions_covered: u32,
    /// 1 if the program can send padding, else 0.
    pub padding: u32,
    /// The queue's limit in ms at the pacing rate. Frames beyond it are skipped.
    pub max_backlog_ms: u32,
    /// The longest delay of `steadycast_sender_poll` that the pacer makes up for, in ms.
    pub credit_ms: u32,
}

/// A stream of a sender's kit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastStream {
    /// `sizeof(SteadycastStream)`.
    pub size: usize,
    /// The content: `STEADYCAST_AUDIO`, `STEADYCAST_VIDEO` or `STEADYCAST_PARITY_STREAM`.
    pub kind: u32,
    /// The RTP SSRC.
    pub ssrc: u32,
    /// 1 if lost packets are retransmitted on NACK, else 0.
    pub retransmission: u32,
    /// 1 if feedback does not cover the packets, else 0.
    pub uncovered: u32,
    /// The rate below which a video layer is paused, in bit/s; 0 for never.
    pub least_bps: u64,
    /// The reserved rate of audio or parity, or the maximum rate of video (0 for none), in bit/s.
    pub most_bps: u64,
}

/// A packet for the queue. The program keeps its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastPacket {
    /// The program's identifier of the packet, for example a pointer.
    pub id: u64,
    /// The IP size in bytes.
    pub size_bytes: u32,
    /// The position in the frame: `STEADYCAST_FRAME_FIRST`, `STEADYCAST_FRAME_LAST`, both, or 0.
    pub flags: u32,
    /// The RTP sequence number. Packets are added in its order.
    pub seq: u16,
}

/// An encoder's task for its next frame.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastEncoder {
    /// `sizeof(SteadycastEncoder)`, set by the caller.
    pub size: usize,
    /// The stream's rate in bit/s of IP packets, with headers.
    pub rate_bps: u64,
    /// 1 if the next frame should be skipped because of the queue, else 0.
    pub skip: u32,
    /// 1 if the next frame has to be a key frame, else 0.
    pub key_frame: u32,
}

/// The output of `steadycast_sender_poll`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SteadycastOutput {
    /// `sizeof(SteadycastOutput)`, set by the caller.
    pub size: usize,
    /// The `id` of the packet. A retransmission or padding has the `id` of the repeated packet.
    pub id: u64,
    /// The packet's number. The low 16 bits are for a transport-wide header extension.
    pub number: u64,
    /// The time of the next call; `STEADYCAST_NEVER` if none is needed.
    pub at_ns: i64,
    /// The stream's number.
    pub stream: u32,
    /// 0 for media, else `STEADYCAST_REPAIR`, `STEADYCAST_PARITY` or `STEADYCAST_PADDING`.
    pub kind: u32,
    /// The RTP sequence number. A retransmission or padding has the sequence number of the repeated packet.
    pub seq: u16,
}

/// Creates a sender's kit, which is a controller with a pacer, a frame queue and retransmissions. Null `settings` mean
/// the values of `STEADYCAST_SENDER_SETTINGS`. The other arguments are as for `steadycast_new`.
///
/// # Safety
/// As for `steadycast_new`; `settings` is null or points to as many bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_new(
    abi: u32,
    controller: *const c_char,
    params: *const c_char,
    bounds: *const SteadycastBounds,
    settings: *const SteadycastSenderSettings,
    error: *mut c_char,
    room: usize,
) -> *mut SteadycastSender {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let settings = unsafe { read_settings(settings) };
    let make = |(controller, params, bounds): Named<'_>| {
        let packet = bounds.packet.get();
        let mut made = MediaSettings::new(bounds);
        if let Some(given) = settings? {
            made.format = match given.format {
                STEADYCAST_JOINED => FeedbackFormat::Own,
                STEADYCAST_TRANSPORT_WIDE => FeedbackFormat::TransportWide,
                STEADYCAST_RFC8888 => FeedbackFormat::Rfc8888,
                other => return Err(format!("settings.format: {other} is none; give STEADYCAST_TRANSPORT_WIDE")),
            };
            made.retransmissions_covered = flag("settings.retransmissions_covered", given.retransmissions_covered)?;
            made.padding = flag("settings.padding", given.padding)?;
            made.max_backlog = Span::millis(given.max_backlog_ms.into());
            made.credit = Span::millis(given.credit_ms.into());
        }
        let sender = MediaSender::new(controller, &params, made).map_err(|problem| problem.to_string())?;
        Ok(SteadycastSender { sender, packet, broken: false })
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe {
        let (controller, params, bounds) = (text::read(controller), text::read(params), read_bounds(bounds));
        hand_over(error, room, || make(bounds_from(abi, controller, params, bounds)?))
    }
}

/// Reads the settings. Returns `None` if `settings` is null.
///
/// # Safety
/// `settings` is null, or points to as many bytes as its first field says.
unsafe fn read_settings(settings: *const SteadycastSenderSettings) -> Result<Option<SteadycastSenderSettings>, String> {
    if settings.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees that the pointer is valid, and the size is the first field.
    let (size, whole) = (unsafe { settings.cast::<usize>().read() }, size_of::<SteadycastSenderSettings>());
    if size != whole {
        return Err(format!("settings: its size is {size}, not {whole}; begin with STEADYCAST_SENDER_SETTINGS"));
    }
    // SAFETY: the caller's struct has the size of this type.
    Ok(Some(unsafe { settings.read() }))
}

/// Frees a sender's kit. Null is permitted.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_sender_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_free(handle: *mut SteadycastSender) {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { release(handle) }
}

/// Adds a stream. Returns the stream's number from 0, or a code below zero. It is `STEADYCAST_VALUE` if a field is out
/// of its range, if another stream has the same SSRC, or if the stream could never be sent: its reserved rate is above
/// the cap, or its minimum is above its maximum or above the cap. Several streams may have the SSRC 0, for a transport
/// without RTP.
///
/// Video streams get their rates in the order in which they are added, so the base layer is added first.
///
/// # Safety
/// As for `steadycast_sender_poll`; `stream` is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_stream(
    handle: *mut SteadycastSender,
    stream: *const SteadycastStream,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let Some(given) = (unsafe { stream.as_ref() }) else { return STEADYCAST_NULL };
    if given.size != size_of::<SteadycastStream>() {
        return STEADYCAST_SIZE;
    }
    let mut settings = StreamSettings::video(given.ssrc);
    settings.kind = match given.kind {
        STEADYCAST_AUDIO => StreamKind::Audio,
        STEADYCAST_VIDEO => StreamKind::Video,
        STEADYCAST_PARITY_STREAM => StreamKind::Parity,
        _ => return STEADYCAST_VALUE,
    };
    if given.retransmission > 1 || given.uncovered > 1 {
        return STEADYCAST_VALUE;
    }
    settings.retransmission = (given.retransmission == 1).then(RepairSettings::default);
    settings.covered = given.uncovered == 0;
    settings.least = Rate::bps(given.least_bps);
    if given.most_bps > 0 || settings.kind != StreamKind::Video {
        settings.most = Rate::bps(given.most_bps);
    }
    let add = |own: &mut SteadycastSender| {
        let added = own.sender.try_add_stream(settings).ok();
        added.and_then(|stream| c_int::try_from(stream.0).ok()).unwrap_or(STEADYCAST_VALUE)
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, add) }
}

/// Fills `encoder`, whose `size` the caller has set: the rate, and whether the next frame is skipped or is a key frame.
/// A request for a key frame is passed on only once. Returns `STEADYCAST_VALUE` if there is no such stream.
///
/// # Safety
/// As for `steadycast_sender_poll`; `encoder` is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_encoder(
    handle: *mut SteadycastSender,
    now_ns: i64,
    stream: u32,
    encoder: *mut SteadycastEncoder,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let Some(encoder) = (unsafe { encoder.as_mut() }) else { return STEADYCAST_NULL };
    if encoder.size != size_of::<SteadycastEncoder>() {
        return STEADYCAST_SIZE;
    }
    let read = |own: &mut SteadycastSender, stream| {
        let target = own.sender.encoder(time(now_ns), stream);
        encoder.rate_bps = target.rate.as_bps();
        (encoder.skip, encoder.key_frame) = (target.skip.into(), target.key_frame.into());
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { on_stream(handle, stream, read) }
}

/// Begins an encoded frame. `role` is `STEADYCAST_FRAME_KEY`, `STEADYCAST_FRAME_REFERENCE` or
/// `STEADYCAST_FRAME_DISPOSABLE`. Returns 1, or 0 if the frame has to be skipped, or `STEADYCAST_VALUE`
/// for another role or if there is no such stream. The call is optional.
///
/// # Safety
/// As for `steadycast_sender_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_frame(
    handle: *mut SteadycastSender,
    now_ns: i64,
    stream: u32,
    role: u32,
) -> c_int {
    let role = match role {
        STEADYCAST_FRAME_KEY => FrameRole::Key,
        STEADYCAST_FRAME_REFERENCE => FrameRole::Reference,
        STEADYCAST_FRAME_DISPOSABLE => FrameRole::Disposable,
        _ => return STEADYCAST_VALUE,
    };
    let begin = |own: &mut SteadycastSender, stream| own.sender.frame(time(now_ns), stream, role).into();
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { on_stream(handle, stream, begin) }
}

/// Adds a packet. Returns 1 if it is queued, or 0 if its frame is skipped, the queue is full, or its size is 0. Returns
/// `STEADYCAST_VALUE` if there is no such stream. Poll afterwards.
///
/// # Safety
/// As for `steadycast_sender_poll`; `packet` is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_push(
    handle: *mut SteadycastSender,
    now_ns: i64,
    stream: u32,
    packet: *const SteadycastPacket,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let Some(given) = (unsafe { packet.as_ref() }) else { return STEADYCAST_NULL };
    let edge = FrameEdge {
        first: given.flags & crate::STEADYCAST_FRAME_FIRST != 0,
        last: given.flags & crate::STEADYCAST_FRAME_LAST != 0,
    };
    let packet = MediaPacket { id: given.id, size: Bytes::new(given.size_bytes.into()), edge, seq: given.seq };
    let push = |own: &mut SteadycastSender, stream| own.sender.push(time(now_ns), stream, &packet).into();
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { on_stream(handle, stream, push) }
}

/// Returns `STEADYCAST_SEND`, `STEADYCAST_DROPPED` or `STEADYCAST_WAIT`, with the details in `output`, whose `size`
/// the caller has set.
///
/// Call it after every call of another function of this sender, and at `at_ns`. Repeat the call until it returns
/// `STEADYCAST_WAIT`. After a late call, the pacer catches up for at most `credit_ms`.
///
/// # Safety
/// `handle` is null, or comes from `steadycast_sender_new`, has not been freed, and no other thread uses it; `output`
/// is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_poll(
    handle: *mut SteadycastSender,
    now_ns: i64,
    output: *mut SteadycastOutput,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let Some(output) = (unsafe { output.as_mut() }) else { return STEADYCAST_NULL };
    if output.size != size_of::<SteadycastOutput>() {
        return STEADYCAST_SIZE;
    }
    let poll = |own: &mut SteadycastSender| match own.sender.poll(time(now_ns)) {
        Output::Send(Departure { stream, id, seq, number, kind, .. }) => {
            (output.id, output.number, output.stream, output.seq) = (id, number, stream.0, seq);
            output.kind = match kind {
                // There is no extra value for audio, because the caller recognises audio by its stream.
                Stream::Media | Stream::Audio => 0,
                Stream::Repair => crate::STEADYCAST_REPAIR,
                Stream::Parity => crate::STEADYCAST_PARITY,
                Stream::Padding => crate::STEADYCAST_PADDING,
            };
            STEADYCAST_SEND
        }
        Output::Dropped(stream, id) => {
            (output.id, output.stream) = (id, stream.0);
            STEADYCAST_DROPPED
        }
        Output::Wait(wake) => {
            output.at_ns = wake.map_or(STEADYCAST_NEVER, |wake| nanos(wake.at));
            STEADYCAST_WAIT
        }
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, poll) }
}

/// Reads a decrypted RTCP compound: feedback, NACKs and key-frame requests. Returns `STEADYCAST_VALUE` if it is not
/// RTCP. Poll afterwards.
///
/// # Safety
/// As for `steadycast_sender_poll`; `bytes` has `len` bytes, or is null when `len` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_rtcp(
    handle: *mut SteadycastSender,
    now_ns: i64,
    bytes: *const u8,
    len: usize,
) -> c_int {
    if bytes.is_null() && len > 0 {
        return STEADYCAST_NULL;
    }
    // SAFETY: the caller guarantees that there are `len` bytes. An empty slice needs no memory.
    let bytes = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes, len) } };
    let read = |own: &mut SteadycastSender| match own.sender.on_rtcp(time(now_ns), bytes) {
        Ok(_) => STEADYCAST_OK,
        Err(_) => STEADYCAST_VALUE,
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, read) }
}

/// As `steadycast_feedback`. Poll afterwards.
///
/// # Safety
/// As for `steadycast_sender_poll`; `fates` has `count` entries, or is null when `count` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_feedback(
    handle: *mut SteadycastSender,
    now_ns: i64,
    fates: *const SteadycastFate,
    count: usize,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let fates = match unsafe { crate::read_fates(fates, count) } {
        Ok(fates) => fates,
        Err(code) => return code,
    };
    let tell = |own: &mut SteadycastSender| {
        own.sender.feedback(time(now_ns), fates.iter().map(told));
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Requests the retransmission of a packet, as a NACK does. Poll afterwards. Returns 1 if the packet is now queued, and
/// `STEADYCAST_VALUE` if there is no such stream.
///
/// Returns 0 if the packet is already queued, was sent less than a round trip ago, is not cached, or would arrive too
/// late. Also returns 0 if retransmissions have used up their share of the rate, or if the controller is at its lower
/// limit and the packet does not belong to a key frame.
///
/// # Safety
/// As for `steadycast_sender_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_resend(
    handle: *mut SteadycastSender,
    now_ns: i64,
    stream: u32,
    seq: u16,
) -> c_int {
    let resend = |own: &mut SteadycastSender, stream| own.sender.resend(time(now_ns), stream, seq).into();
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { on_stream(handle, stream, resend) }
}

/// Requests a key frame, as PLI and FIR do. Returns `STEADYCAST_VALUE` if there is no such stream.
///
/// # Safety
/// As for `steadycast_sender_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_key_frame(handle: *mut SteadycastSender, stream: u32) -> c_int {
    let request = |own: &mut SteadycastSender, stream| {
        own.sender.request_key_frame(stream);
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { on_stream(handle, stream, request) }
}

/// Calls `call` with a stream of the sender. Returns `STEADYCAST_VALUE` if there is no such stream.
///
/// # Safety
/// As for `steadycast_sender_poll`.
unsafe fn on_stream(
    handle: *mut SteadycastSender,
    stream: u32,
    call: impl FnOnce(&mut SteadycastSender, StreamId) -> c_int,
) -> c_int {
    let checked = |own: &mut SteadycastSender| match (stream as usize) < own.sender.streams() {
        true => call(own, StreamId(stream)),
        false => STEADYCAST_VALUE,
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, checked) }
}

fn packet_name(kind: u32, ssrc: u32, name: u64) -> Option<PacketName> {
    match kind {
        STEADYCAST_NAME_TRANSPORT => u16::try_from(name).ok().map(PacketName::Transport),
        STEADYCAST_NAME_RTP => u16::try_from(name).ok().map(|seq| PacketName::Rtp { ssrc, seq }),
        STEADYCAST_NAME_OWN => Some(PacketName::Own(name)),
        _ => None,
    }
}

/// Sets the name that feedback uses for a sent packet. `kind` is `STEADYCAST_NAME_TRANSPORT`, `STEADYCAST_NAME_RTP` or
/// `STEADYCAST_NAME_OWN`. Returns `STEADYCAST_VALUE` for another kind, or for a number above 65535 in the first two.
///
/// The call is needed if the program has its own transport-wide numbers or does not use RTP. With RFC 8888 feedback,
/// the call is needed for each retransmission.
///
/// # Safety
/// As for `steadycast_sender_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_sent_as(
    handle: *mut SteadycastSender,
    number: u64,
    kind: u32,
    ssrc: u32,
    name: u64,
) -> c_int {
    let Some(name) = packet_name(kind, ssrc, name) else { return STEADYCAST_VALUE };
    let tell = |own: &mut SteadycastSender| {
        own.sender.sent_as(number, name);
        STEADYCAST_OK
    };
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |code| code, tell) }
}

/// Finds the number of the packet with this name; `STEADYCAST_NO_NUMBER` if unknown.
///
/// # Safety
/// As for `steadycast_sender_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_number(
    handle: *mut SteadycastSender,
    kind: u32,
    ssrc: u32,
    name: u64,
) -> u64 {
    let Some(name) = packet_name(kind, ssrc, name) else { return STEADYCAST_NO_NUMBER };
    let find = |own: &mut SteadycastSender| own.sender.number(name).unwrap_or(STEADYCAST_NO_NUMBER);
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { with(handle, |_| STEADYCAST_NO_NUMBER, find) }
}

/// Reads the decision into `decision`, whose `size` the caller has set.
///
/// # Safety
/// As for `steadycast_sender_poll`; `decision` is null or points to a struct of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_sender_decision(
    handle: *mut SteadycastSender,
    decision: *mut SteadycastDecision,
) -> c_int {
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    unsafe { read_decision(handle, decision, |own| (own.sender.decision(), own.packet)) }
}

/// Writes a transport-wide sequence number into the element `id` of an unencrypted RTP packet, or adds the element
/// (RFC 8285). Returns the new length, at most 8 bytes more. Returns `STEADYCAST_VALUE`, without a change, if the
/// packet is not RTP, its extension can't carry the element, or `room` is too small.
///
/// # Safety
/// `packet` is null, or has `len` bytes of RTP and `room` bytes of memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steadycast_transport_number(
    packet: *mut u8,
    len: usize,
    room: usize,
    id: u8,
    number: u16,
) -> c_int {
    if packet.is_null() {
        return STEADYCAST_NULL;
    }
    if len > room {
        return STEADYCAST_VALUE;
    }
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let mut bytes = unsafe { std::slice::from_raw_parts(packet, len) }.to_vec();
    let wrote = catch_unwind(AssertUnwindSafe(|| set_transport_number(&mut bytes, id, number).is_ok()));
    match c_int::try_from(bytes.len()) {
        Ok(long) if wrote.unwrap_or(false) && bytes.len() <= room => {
            // SAFETY: `packet` has room for `bytes`, and `bytes` is a copy, so they do not overlap.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), packet, bytes.len()) };
            long
        }
        _ => STEADYCAST_VALUE,
    }
}
