//! The list of all figures. Reports, expectations, the glossary and `docs/record.md` are derived from this list. To add
//! a figure, add an entry here, and a `put` where the figure is computed.

use crate::figure::Shown::{Compare, Flows, Links, Pauses, Quality, Receivers, Runs, Sessions, Tcp, Terminal};
use crate::figure::Unit::{Bytes, Count, Decibels, Flag, List, Millis, Number, Opinion, Rate, Seconds, Share, Text};
use crate::figure::{Figure, Of, Parts, When};

/// Declares a constant for each figure, in one module per type of object. Also declares the list of all figures.
macro_rules! figures {
    ($($(#[$doc:meta])* $owner:ident = $of:ident { $($name:ident = $figure:expr;)* })*) => {
        $(
            $(#[$doc])*
            pub mod $owner {
                use super::*;
                $(
                    #[doc = concat!("`", stringify!($name), "`: its `about` says what it is.")]
                    pub const $name: Figure = $figure.of(Of::$of);
                )*
            }
        )*
        /// All figures, grouped by type of object. This is the order in which tables show them.
        pub const FIGURES: &[Figure] = &[$($($owner::$name,)*)*];
    };
}

const fn figure(key: &'static str, unit: crate::Unit, about: &'static str) -> Figure {
    Figure::new(key, unit, about)
}

/// Creates a figure that is a distribution of times in milliseconds.
const fn spread(key: &'static str, about: &'static str) -> Figure {
    Figure::new(key, Millis, about).parts(Parts::Quantiles)
}

figures! {
    /// Figures of the run.
    run = Run {
        FORMAT = figure("format", Count, "The version of the format of summary.json.");
        SCENARIO_NAME = figure("scenario.name", Text, "The scenario's name.");
        SCENARIO_SEED = figure("scenario.seed", Count, "The seed of all random numbers of the run.");
        SCENARIO_SHA256 = figure("scenario.sha256", Text, "SHA-256 of the scenario's text and of the keys set on the \
            command line.");
        PROGRAM_VERSION = figure("program.version", Text, "The program's version.");
        PROGRAM_COMMIT = figure("program.commit", Text, "The commit of the checkout that the program ran from.");
        WORLD = figure("world", Text, "The world of the run: simulated, emulated or live.");
        COMPLETE = figure("complete", Flag, "Whether the run reached its end.");
        WARNINGS = figure("warnings", List, "Warnings that a reader has to know before using the numbers, as texts.");
        FROM = figure("from_s", Seconds, "The end of the warm-up, at which means begin.");
        TO = figure("to_s", Seconds, "The time that the run reached.");
        RECORD_SHA256 = figure("record_sha256", Text, "SHA-256 over all times, packets, decisions and outcomes of \
            frames. Two runs with the same value had the same course.");
        FLOWS = figure("flows", List, "The flows, in the scenario's order.");
        LINKS = figure("links", List, "The directions of links to which at least one packet was offered.");
        SIMULCASTS = figure("simulcasts", List, "The simulcasts.").when(When::Simulcast);
        INVARIANTS = figure("invariants", List, "The invariants of the program that were checked during the run.");
        EXPECT = figure("expect", List, "The scenario's expectations, with their results.");
        JAIN = figure("fairness.jain", Number, "Jain's index of fairness of the throughputs of videos and TCP: from \
            1/n (one flow of n has all) to 1 (all have the same). Flows whose source paused are excluded; null if \
            fewer than two flows are left.").higher().shown("Jain index", &[(Compare, ""), (Runs, "")]);
        JAIN_1S_MEAN = figure("fairness.jain_1s.mean", Number, "The mean of Jain's index in each second after the \
            warm-up, over the flows that were active throughout the second, if there were at least two.").higher();
        JAIN_1S_P05 = figure("fairness.jain_1s.p05", Number, "The 5th percentile of Jain's index in each second.")
            .higher();
        TRUSTWORTHY = figure("emulation.trustworthy", Flag, "Whether the machine's timers were accurate enough for \
            valid results.").when(When::Emulated);
        RELEASED_PACKETS = figure("emulation.released_packets", Count, "Packets that left the emulated links.")
            .when(When::Emulated);
        LATE_FRAC = figure("emulation.late_frac", Share, "The share of the released packets that left more than 1 ms \
            late.").when(When::Emulated).lower();
        LATENESS = spread("emulation.lateness_ms", "The time by which packets left the emulated links too late, \
            because of the machine.").when(When::Emulated).lower();
        ENDS_LATENESS = spread("emulation.ends_lateness_ms", "The time by which the timers of the flows' endpoints \
            expired too late, because of the machine.").when(When::Emulated).lower();
        ENDS_LATENESS_LAST = spread("emulation.ends_lateness_last_ms", "The same as ends_lateness_ms, in the last 5 % \
            of the run.").when(When::Emulated).lower();
        REFUSED_PACKETS = figure("emulation.refused_packets", Count, "Packets that a host's network device did not \
            accept.").when(When::Emulated).lower();
        ASTRAY_PACKETS = figure("emulation.astray_packets", Count, "Packets to addresses that no host of the scenario \
            has.").when(When::Emulated);
    }
    /// Figures of a flow.
    flow = Flow {
        NAME = figure("name", Text, "The flow's name.");
        KIND = figure("kind", Text, "The kind of the flow: video, tcp, cbr or onoff.");
        CONTROLLER = figure("controller", Text, "The video's rate controller.").when(When::Video);
        MODE = figure("mode", Text, "The mode of the controller: paper or repaired.").when(When::Video);
        CONGESTION = figure("congestion", Text, "TCP's congestion control.").when(When::Tcp);
        ENCODED_CODEC = figure("encoded.codec", Text, "The codec of the video's pictures.").when(When::Pictures);
        ENCODED_WIDTH = figure("encoded.width", Count, "The width of the encoded pictures, in samples. With \
            encode.size \"clip\" it is the clip's width, upright and with square samples; \"auto\" limits it.")
            .when(When::Pictures);
        ENCODED_HEIGHT = figure("encoded.height", Count, "The height of the encoded pictures, in samples.")
            .when(When::Pictures);
        ENCODED_FPS = figure("encoded.fps", Number, "Encoded pictures per second: the clip's frame rate, unless \
            encode.fps sets another.").when(When::Pictures);
        THROUGHPUT = figure("throughput_bps", Rate, "The received rate in bits of IP packets per second, without \
            duplicates, from the flow's start to its stop; the mean over its receivers, each over the time in which it \
            is a member of the group. 1 Mb/s is 1 000 000 bits per second.")
            .higher().shown("throughput", &[(Terminal, ""), (Flows, ""), (Compare, "")]);
        FAIR_SHARE = figure("fair_share_bps", Rate, "The flow's max–min fair share: the rate that the flow would have \
            if each link divided its capacity evenly among the active flows, and gave the part that a flow cannot use \
            to the others. It is the mean over the time in which the flow competes (competing_s), or over the time in \
            which it is active if it never competes. The capacity follows events, traces, policers and outages. A flow \
            is active between start and stop while it has data. Its demand is limited by the rate in its settings. In \
            a second in which the encoder's best quality or the cap limited a video's rate, the video's demand is the \
            rate that it sent, also if less arrived. The capacity of a link with link-layer retransmission is what it \
            delivers. A group uses the links to the receivers that are members at the time. A simulcast's groups have \
            no fair share.")
            .shown("fair share", &[(Flows, "")]);
        COMPETING = figure("competing_s", Seconds, "The time after the warm-up in which the flow competes: another \
            active flow uses a link of its path, and the demands of both fill that link. For a flow with a session per \
            receiver, it is the mean over the sessions. Null if the links are unknown.");
        SHARE_OF_FAIR = figure("share_of_fair", Share, "Throughput divided by the fair share, both over the time in \
            which the flow competes with another one. 100 % is fair; a video that has all that its encoder can use \
            also has 100 %. A flow above 100 % takes rate from others, a flow below 100 % yields. Null for a flow that \
            never competes (competing_s is 0), or that no link limits.")
            .shown("share of fair", &[(Terminal, ""), (Flows, ""), (Compare, ""), (Runs, "")]);
        RATE_COV = figure("rate_cov", Number, "Coefficient of variation of the throughput of each second: standard \
            deviation (over n − 1) divided by the mean. 0 is a constant rate.")
            .lower().shown("rate CoV", &[(Flows, ""), (Compare, "")]);
        RAMP_1MBPS = figure("ramp_s.1Mbps", Seconds, "The time from the flow's start until it first received 1 Mb/s \
            over a second.").lower().shown("1 Mb/s after", &[(Sessions, "")]);
        RAMP_SHARE = figure("ramp_s.share_80pct", Seconds, "The time from the flow's start until it first received 80 \
            % of its fair share over a second.").lower().shown("80 % of fair after", &[(Sessions, "")]);
        SENT_PACKETS = figure("sent_packets", Count, "Packets sent, including retransmissions and padding.")
            .shown("packets sent", &[(Sessions, "")]);
        FEEDBACK_PACKETS = figure("feedback_packets", Count, "RTCP datagrams with a report that the sender \
            accepted. Others, as for NACKs alone, do not count.")
            .when(When::Video).shown("reports", &[(Sessions, "")]);
        FEEDBACK_BPS = figure("feedback_bps", Rate, "The rate of the RTCP datagrams that feedback_packets counts, in \
            bits of IP packets per second.").when(When::Video).lower().shown("feedback", &[(Sessions, "")]);
        FEEDBACK_REFUSED = figure("feedback_refused", Count, "RTCP datagrams that the sender rejected as implausible.")
            .when(When::Video);
        KEY_FRAMES = figure("key_frame_requests", Count, "Key frames that the encoder made because receivers requested \
            them.").when(When::Live);
        REPAIR_PACKETS = figure("repair_packets", Count, "Packets that the sender retransmitted.")
            .when(When::Repaired);
        REPAIR_BPS = figure("repair_bps", Rate, "The rate of retransmissions, in bits of IP packets per second.")
            .when(When::Repaired).lower();
        REPAIR_REFUSED = figure("repair_refused_packets", Count, "Requested packets that the sender did not retransmit \
            because retransmissions had used their share of the rate.").when(When::Repaired).lower();
        REPAIR_STALE = figure("repair_stale_packets", Count, "Requested packets that the sender did not retransmit \
            because they would have arrived too late.").when(When::Repaired).lower();
        PARITY_PACKETS = figure("parity_packets", Count, "Parity packets that the sender sent.").when(When::Repaired);
        PARITY_BPS = figure("parity_bps", Rate, "The rate of parity packets, in bits of IP packets per second.")
            .when(When::Repaired).lower();
        PADDING_PACKETS = figure("padding_packets", Count, "Padding packets that were sent to complete a probe of the \
            controller.").when(When::Padded);
        PADDING_BPS = figure("padding_bps", Rate, "The rate of padding, in bits of IP packets per second.")
            .when(When::Padded).lower();
        ECN_PATH = figure("ecn_path", Text, "The path's effect on the ECN field: kept, cleared, changed, lost \
            (ECN-capable packets do not arrive), unknown (too few reports) or untold (the reports have no ECN field).")
            .when(When::EcnCapable);
        ECN_SENT = figure("ecn_sent_packets", Count, "Packets that were sent as ECN-capable.").when(When::EcnCapable);
        ECN_MARKED = figure("ecn_marked_packets", Count, "ECN-capable packets that per-packet feedback reported as \
            marked.").when(When::EcnCapable);
        SKIPPED_FRAMES = figure("skipped_frames", Count, "Frames that were not sent because the pacer's backlog was \
            too large.").when(When::Video).lower();
        BACKLOG = spread("backlog_ms", "The time for which packets waited in the sender, from their frame's readiness \
            to their departure.").when(When::Video).lower();
        LIMITED_BY_NETWORK = figure("limited_by_frac.network", Share, "The share of the time in which the network \
            limited the rate: the controller saw congestion or was recovering from it.")
            .when(When::Video).shown("limited by network", &[(Compare, "")]);
        LIMITED_BY_ENCODER = figure("limited_by_frac.encoder", Share, "The share of the time in which the encoder's \
            best quality limited the rate.").when(When::Video);
        LIMITED_BY_START = figure("limited_by_frac.start", Share, "The share of the time before the first sign of \
            congestion.").when(When::Video);
        LIMITED_BY_CAP = figure("limited_by_frac.cap", Share, "The share of the time at a configured upper limit of \
            the rate.").when(When::Video);
        RETRANSMITTED = figure("retransmitted_packets", Count, "Packets that TCP retransmitted.")
            .when(When::Tcp).lower().shown("retransmitted", &[(Tcp, "")]);
        TIMEOUTS = figure("timeouts", Count, "Retransmission time-outs of TCP.")
            .when(When::Tcp).lower().shown("time-outs", &[(Tcp, "")]);
        SRTT = spread("srtt_ms", "TCP's smoothed round-trip time.")
            .when(When::Tcp).lower().shown("RTT", &[(Tcp, "p50"), (Tcp, "p95")]);
        CWND_MEAN = figure("cwnd_packets.mean", Number, "The mean over time of TCP's congestion window, which is the \
            maximum number of packets in flight.").when(When::Tcp).shown("mean window", &[(Tcp, "")]);
        ACTIVE = figure("active_frac", Share, "The share of the flow's time in which its source had data: a transfer \
            from its start to the acknowledgement of its last byte, or an on period.")
            .when(When::Pauses).shown("active", &[(Pauses, ""), (Compare, "")]);
        ACTIVE_THROUGHPUT = figure("active_throughput_bps", Rate, "Throughput while the source had data; the mean over \
            the receivers.").when(When::Pauses).higher().shown("while active", &[(Pauses, "")]);
        TRANSFERS = figure("transfers_count", Count, "Transfers that were completed; absent before the first.")
            .when(When::Transfers).shown("transfers", &[(Pauses, ""), (Compare, "")]);
        COMPLETED = figure("completed_s", Seconds, "The time at which the first transfer was complete; absent if none \
            was.").when(When::Transfers);
        TRANSFER_MEAN = figure("transfer_mean_ms", Millis, "The duration of a transfer, such as a web page, from its \
            start to the acknowledgement of its last byte: the mean of the transfers that were completed after the \
            warm-up.").when(When::Transfers).lower().shown("mean transfer", &[(Pauses, ""), (Compare, "")]);
        TRANSFER = spread("transfer_ms", "The durations of the transfers that were completed after the warm-up.")
            .when(When::Transfers).lower().shown("transfer", &[(Pauses, "p95"), (Compare, "p95"), (Runs, "p95")]);
        SENT_BPS = figure("sent_bps", Rate, "The sent rate in bits of IP packets per second.").when(When::Live);
        PACING_LATE = spread("pacing_late_ms", "The lateness of the sender's pacing timer.").when(When::Live).lower();
        CODED_FRAMES = figure("coded_frames", Count, "Frames that were encoded.").when(When::Live);
        LEFT_OUT_FRAMES = figure("left_out_frames", Count, "Pictures that were skipped because the encoder was too \
            slow.").when(When::Live).lower();
        NO_ROOM_FRAMES = figure("no_room_frames", Count, "Pictures that were skipped because they exceeded the rate \
            even at the coarsest quantizer.").when(When::Live).lower();
        SMALLER_FRAMES = figure("smaller_frames", Count, "Frames that were encoded at a smaller size than the \
            source's. At the source's size they would have exceeded the rate even at the coarsest quantizer.")
            .when(When::Live).lower();
        SIZE_CHANGES = figure("size_changes", Count, "The number of changes of the encoded size.")
            .when(When::Live).lower();
        RECEIVERS = figure("receivers", List, "The flow's receivers, in the scenario's order.");
    }
    /// Figures of a flow's receiver.
    receiver = Receiver {
        NAME = figure("name", Text, "The receiver's node.");
        PICTURE_SCORE = figure("picture_score", Opinion, "The viewer's experience as one number, 1 (bad) to 5 \
            (excellent): the coding quality, by the PSNR of the encoded pictures, multiplied by the share that \
            playback preserves (smooth_frac). A missing picture never raises the score. The score is not an ITU MOS \
            (docs/viewing-score.md).")
            .when(When::Pictures).higher().shown("picture score", &[(Terminal, ""), (Flows, ""), (Compare, ""),
                (Runs, ""), (Receivers, "")]);
        RATE_SCORE = figure("rate_score", Opinion, "The viewer's experience as in picture_score, with the coding \
            quality estimated from the media's rate (ITU-T G.1070) instead of PSNR. It needs no decoded pictures, but \
            ignores their content. Compare it only between runs of the same clip.")
            .when(When::Frames).higher().shown("rate score", &[(Terminal, ""), (Flows, ""), (Compare, ""),
                (Runs, ""), (Receivers, "")]);
        VIEWING_SCORE = figure("viewing_score", Opinion, "The former name of both scores: picture_score, or rate_score \
            if no pictures were measured. Written for one more version.").when(When::Frames).higher();
        SCORED_BY = figure("viewing_score_by", Text, "The kind of viewing_score: pictures or rate. Written for one \
            more version.").when(When::Frames);
        SMOOTH = figure("smooth_frac", Share, "The share of the coding quality that playback preserves: each picture \
            that is not shown and each freeze lowers it.").when(When::Frames).higher();
        THROUGHPUT = figure("throughput_bps", Rate, "The received rate in bits of IP packets per second, without \
            duplicates, over the time in which the receiver is a member of its group.")
            .higher().shown("throughput", &[(Receivers, "")]);
        LOSS = figure("loss_frac", Share, "The share of the flow's packets that never arrived.")
            .when(When::Datagrams).lower().shown("loss", &[(Terminal, ""), (Flows, ""), (Compare, ""), (Runs, ""),
                (Receivers, "")]);
        LOSS_EVENT_RATE = figure("loss_event_rate", Share, "Loss events per packet as the controller counts them: all \
            losses within one round-trip time are one event.").when(When::Video).lower();
        DELAY = spread("delay_ms", "One-way delay from a packet's departure to its arrival, without its time in the \
            sender's queue.").when(When::Datagrams)
            .lower().shown("delay", &[(Terminal, "p95"), (Flows, "p95"), (Compare, "p95"), (Runs, "p95"),
                (Receivers, "p50"),
                (Receivers, "p95"), (Receivers, "p99")]);
        DELAY_MEAN = figure("delay_mean_ms", Millis, "The mean one-way delay.").when(When::Datagrams).lower();
        PSNR_Y = figure("psnr_db.raw.y", Decibels, "Peak signal-to-noise ratio of the luminance of the shown pictures \
            against the raw original. Above 37 dB looks excellent, below 25 dB poor.")
            .when(When::Pictures).higher().shown("PSNR", &[(Terminal, ""), (Flows, ""), (Compare, ""), (Runs, ""),
                (Receivers, ""), (Quality, "")]);
        PSNR_U = figure("psnr_db.raw.u", Decibels, "PSNR of the first colour plane (U) of the shown pictures against \
            the raw original.").when(When::Pictures).higher();
        PSNR_V = figure("psnr_db.raw.v", Decibels, "PSNR of the second colour plane (V) of the shown pictures against \
            the raw original.").when(When::Pictures).higher();
        PSNR_ENCODED_Y = figure("psnr_db.encoded.y", Decibels, "PSNR of the luminance of the shown pictures against \
            the pictures as the sender encoded them: the damage that the network caused. It is the mean over the \
            pictures, each with at most 60 dB, which is the value of equal pictures.")
            .when(When::Pictures).higher().shown("against sent", &[(Quality, "")]);
        PSNR_ENCODED_U = figure("psnr_db.encoded.u", Decibels, "PSNR of the first colour plane (U) against the \
            pictures as the sender encoded them.").when(When::Pictures).higher();
        PSNR_ENCODED_V = figure("psnr_db.encoded.v", Decibels, "PSNR of the second colour plane (V) against the \
            pictures as the sender encoded them.").when(When::Pictures).higher();
        SSIM = figure("ssim", Number, "Structural similarity of the shown pictures and the original; 1 is identical.")
            .when(When::Pictures).higher().shown("SSIM", &[(Receivers, ""), (Quality, "")]);
        VMAF = figure("vmaf", Number, "Picture quality by VMAF, a trained model, from 0 to 100; null if it was not \
            measured.").when(When::Pictures).higher().shown("VMAF", &[(Quality, "")]);
        MOS = figure("mos.mean", Opinion, "Mean opinion score, 1 (bad) to 5 (excellent), from each frame's PSNR: above \
            37 dB is 5, 31–37 is 4, 25–31 is 3, 20–25 is 2, below 20 is 1.")
            .when(When::Pictures).higher().shown("MOS", &[(Flows, ""), (Compare, ""), (Receivers, ""), (Quality, "")]);
        MOS_SHARE = figure("mos.share", Share, "The share of the pictures in each opinion class.")
            .parts(Parts::Grades).when(When::Pictures);
        FRAMES_SENT = figure("frames.sent", Count, "Frames sent to the receiver. Each is ok (arrived in time and was \
            decoded), lost, late or undecodable.")
            .when(When::Frames).shown("frames", &[(Receivers, "")]);
        FRAMES_OK = figure("frames.ok", Count, "Frames that were shown complete and in time.")
            .when(When::Frames).higher();
        FRAMES_OK_FRAC = figure("frames.ok_frac", Share, "The share of the frames that were shown complete and in \
            time.").when(When::Frames).higher().shown("whole and in \
                time", &[(Flows, ""), (Compare, ""), (Runs, ""), (Receivers, "")]);
        FRAMES_REPAIRED = figure("frames.repaired", Count, "Frames that were shown complete and in time after a lost \
            packet had been repaired.").when(When::Frames);
        SHOWN_FPS = figure("shown_fps", Number, "Frames shown per second, outside freezes.")
            .when(When::Frames).higher();
        HARMONIC_FPS = figure("harmonic_fps", Number, "A frame rate that long pictures lower most: the total time of \
            all pictures, divided by the sum of the squares of their durations.").when(When::Frames).higher();
        FRAMES_LOST = figure("frames.lost", Count, "Frames of which a packet never arrived, with the frames that the \
            sender skipped.")
            .when(When::Frames).lower().shown("lost", &[(Receivers, "")]);
        FRAMES_LATE = figure("frames.late", Count, "Frames that were complete only after their display time.")
            .when(When::Frames).lower().shown("late", &[(Receivers, "")]);
        FRAMES_UNDECODABLE = figure("frames.undecodable", Count, "Frames that arrived, but reference a frame that did \
            not. They are decoded with the damage of that frame, which can be hard to see.")
            .when(When::Frames).lower().shown("undecodable", &[(Receivers, "")]);
        FREEZE_COUNT = figure("freeze_count", Count, "Freezes by the W3C's definition: a picture was shown for at \
            least max(3·avg, avg + 150 ms), where avg is the mean duration of the last 30 pictures, including this \
            one. A freeze at the end of the session counts, too.")
            .when(When::Frames).lower().shown("freezes", &[(Receivers, ""), (Quality, "")]);
        FREEZE_S = figure("freeze_s", Seconds, "The total duration of the freezes.").when(When::Frames).lower();
        FREEZES_PER_MIN = figure("freezes_per_min", Number, "Freezes per minute from the first picture on.")
            .when(When::Frames).lower();
        FROZEN_FRAC = figure("frozen_frac", Share, "The share of the time from the first picture on in which the \
            picture is frozen.")
            .when(When::Frames).lower().shown("frozen", &[(Terminal, ""), (Flows, ""), (Compare, ""), (Runs, ""),
                (Receivers, ""), (Quality, "")]);
        LONGEST_FREEZE = figure("longest_freeze_ms", Millis, "The duration of the longest freeze.")
            .when(When::Frames).lower().shown("longest freeze", &[(Receivers, "")]);
        FROZEN_AT_END = figure("frozen_at_end", Flag, "Whether the last freeze lasted to the end; the W3C's definition \
            excludes it.").when(When::Frames);
        STILLS = figure("stills_count", Count, "Pictures that were shown for longer than their slot, including \
            freezes.").when(When::Frames).lower();
        STARTUP = figure("startup_ms", Millis, "The time from the receiver's join to its first picture.")
            .when(When::Frames).lower();
        PLAYOUT = spread("playout_ms", "The play-out delay of each frame, from its readiness at the sender to its \
            display; null if the receiver waits for frames without limit.")
            .when(When::Frames).lower().shown("play-out", &[(Terminal, "p95"), (Flows, "p95"), (Compare, "p95"),
                (Runs, "p95"),
                (Receivers, "p95")]);
        PLAYOUT_NEEDED = figure("playout_needed_ms", Millis, "The play-out delay with which no frame would have been \
            late.").when(When::Video).lower().shown("play-out needed", &[(Receivers, "")]);
        JITTER = figure("jitter_ms", Millis, "Interarrival jitter: the smoothed change of the delay from packet to \
            packet (RFC 3550).").when(When::Video).lower().shown("jitter", &[(Receivers, "")]);
        CUMULATIVE_JITTER_MAX = figure("cumulative_jitter_max_ms", Millis, "The largest increase of the one-way delay \
            over that of the first packet.").when(When::Video).lower();
        FEEDBACK_PACKETS = figure("feedback_packets", Count, "RTCP datagrams that the receiver sent.")
            .when(When::Video);
        ECN_CAPABLE = figure("ecn_capable_packets", Count, "Packets that arrived as ECN-capable, including marked \
            ones.").when(When::EcnCapable);
        ECN_MARKED = figure("ecn_marked_packets", Count, "Packets that arrived marked \"congestion experienced\" by a \
            queue.").when(When::EcnCapable);
        LOST_PACKETS = figure("lost_packets", Count, "Packets that were lost before repair, after the warm-up.")
            .when(When::Repaired).lower();
        REPAIRED_PACKETS = figure("repaired_packets", Count, "Lost packets that a retransmission or parity recovered, \
            after the warm-up.").when(When::Repaired);
        REPAIRED_LATE = figure("repaired_late_packets", Count, "Repaired packets that arrived after their frame's \
            display time.").when(When::Repaired).lower();
        LOSS_AFTER_REPAIR = figure("loss_after_repair_frac", Share, "The share of the flow's packets that were lost \
            even after repair.").when(When::Repaired).lower();
        NACK_PACKETS = figure("nack_packets", Count, "RTCP datagrams in which the receiver requested \
            retransmissions (NACK).").when(When::Repaired);
        NACK_REQUESTS = figure("nack_requests", Count, "Requests for a single packet in these datagrams, including \
            repeated ones.").when(When::Repaired);
        AUDIO_RECEIVED = figure("audio.received_packets", Count, "Audio packets that arrived.").when(When::Live);
        AUDIO_LOST = figure("audio.lost_packets", Count, "Audio packets that did not arrive.").when(When::Audio)
            .lower();
        AUDIO_LATE = figure("audio.late_packets", Count, "Audio packets that arrived after their play-out time. The \
            play-out delay then rises for all later ones.").when(When::Audio).lower();
        AUDIO_GAPS = figure("audio.gaps_over_20ms", Count, "Gaps of the audio that were longer than a packet of 20 ms: \
            runs of lost packets, and rises of the play-out delay.").when(When::Audio).lower();
        AUDIO_CONCEALED = figure("audio.concealed_ms_per_min", Number, "The time that a player had to conceal, in \
            milliseconds per minute of audio: 20 ms for each lost packet, and each rise of the play-out delay. The \
            play-out delay is the 95th percentile of the one-way delay in the last ten seconds plus 10 ms, at least \
            40 ms; it falls by 10 ms per second.")
            .when(When::Audio).lower();
        BUFFER_UNDERFLOWS = figure("buffer_underflows", Count, "The number of times that the play-out buffer ran \
            empty; null without a buffer.").when(When::Video).lower();
        BUFFER_OVERFLOWS = figure("buffer_overflows", Count, "The number of times that the play-out buffer was full; \
            null without a buffer.").when(When::Video).lower();
        ADDRESS = figure("address", Text, "The source address of the receiver's reports.").when(When::Live);
        RTT = figure("rtt_ms", Millis, "Round-trip time measured by RTCP.").when(When::Live).lower();
        STANDARD = figure("standard", Flag, "Whether the receiver sends only standard reports: no reports of the \
            controller and no per-packet feedback.").when(When::Live);
        ENDED_BY = figure("ended_by", Text, "The reason for the end of the session at the receiver: a BYE with its \
            address, or the sender's silence; null if the operator ended it.").when(When::Live);
        LEFT = figure("left", Flag, "Whether the receiver has left the session (RTCP BYE).").when(When::Live);
        UNUSED_PACKETS = figure("unused_packets", Count, "Packets that the receiver discarded.").when(When::Live);
        UNUSED = figure("unused", List, "The reasons for discarded packets, each with its number of packets.")
            .when(When::Live);
    }
    /// Figures of one direction of a link.
    link = Link {
        NAME = figure("name", Text, "The link's name.");
        DIRECTION = figure("direction", Text, "The direction: forward or back.");
        UTILISATION = figure("utilisation_frac", Share, "The share of the link's capacity that was used; null if the \
            link's rate is unlimited.").shown("utilisation", &[(Links, "")]);
        OFFERED = figure("offered_packets", Count, "Packets that were offered to the link.");
        PACKETS = figure("packets", Count, "Packets that reached the link's end.");
        DROPPED = figure("dropped_packets", Count, "Packets that the link did not deliver: dropped by the queue, lost \
            by the medium, or too large.").lower().shown("drops", &[(Links, "")]);
        POLICED = figure("policed_packets", Count, "Packets that the link's policer dropped.").lower();
        LOST = figure("lost_packets", Count, "Packets that the medium lost.").lower();
        REORDERED = figure("reordered_packets", Count, "Packets that arrived after one that left the link's queue \
            later, because of reordering or of jitter that lets packets overtake.");
        DUPLICATED = figure("duplicated_packets", Count, "Duplicates of packets.");
        MARKED = figure("marked_packets", Count, "Packets that the queue marked (ECN) instead of dropping them.");
        DROP_FRAC = figure("drop_frac", Share, "The share of the offered packets that the link did not deliver.")
            .lower().shown("dropped", &[(Links, "")]);
        QUEUE = spread("queue_ms", "The time for which packets waited in the link's queue.")
            .lower().shown("queue", &[(Links, "p50"), (Links, "p95"), (Links, "p99"), (Compare, "p95")]);
    }
    /// Figures of a simulcast.
    simulcast = Simulcast {
        NAME = figure("name", Text, "The simulcast's name.").when(When::Simulcast);
        FLOWS = figure("flows", List, "The names of its groups, the lowest rate first.").when(When::Simulcast);
        THROUGHPUT = figure("throughput_bps", Rate, "The received rate of all groups together; the mean over the \
            receivers.").when(When::Simulcast).higher();
        UTILISATION = figure("utilisation_frac", Share, "The sum of the receivers' throughputs divided by the sum of \
            their fair shares.").when(When::Simulcast);
        MOVES = figure("moves_count", Count, "The number of changes of receivers between groups.")
            .when(When::Simulcast);
        RECEIVERS = figure("receivers", List, "The simulcast's receivers.").when(When::Simulcast);
    }
    /// Figures of a simulcast's receiver.
    viewer = Viewer {
        NAME = figure("name", Text, "The receiver's node.").when(When::Simulcast);
        THROUGHPUT = figure("throughput_bps", Rate, "The received rate of all groups together.")
            .when(When::Simulcast).higher();
        FAIR_SHARE = figure("fair_share_bps", Rate, "The max–min share of the receiver if it were the simulcast's only \
            one.").when(When::Simulcast);
        SHARE_OF_FAIR = figure("share_of_fair", Share, "Throughput divided by the fair share.").when(When::Simulcast);
        TIME = figure("time_frac", Share, "The share of the time in each group, by the groups' names.")
            .parts(Parts::Flows).when(When::Simulcast);
        MOVES = figure("moves_count", Count, "The number of changes of the receiver between groups.")
            .when(When::Simulcast);
    }
    /// Figures of an invariant that the run has checked.
    invariant = Invariant {
        ID = figure("id", Text, "The invariant's name: the component that it belongs to, and a few words.");
        ABOUT = figure("about", Text, "The invariant in a sentence.");
        CHECKED = figure("checked", Count, "The number of checks.");
        BROKEN = figure("broken", Count, "The number of violations.").lower();
    }
    /// Figures of an expectation.
    expectation = Expectation {
        THAT = figure("that", Text, "The path of the figure in this file.");
        MIN = figure("min", Number, "The lowest value that meets the expectation; null if there is none.");
        MAX = figure("max", Number, "The highest value that meets the expectation; null if there is none.");
        VALUE = figure("value", Number, "The figure's value.");
        OK = figure("ok", Flag, "Whether the value lies within the bounds.");
    }
    /// Figures of the run's cost.
    cost = Cost {
        FORMAT = figure("format", Count, "The version of the format of cost.json.");
        CPU = figure("cpu_s", Seconds, "Processor time of the simulation.");
        WALL = figure("wall_s", Seconds, "Wall-clock time of the simulation.");
        MEDIA = figure("media_s", Seconds, "Wall-clock time of encoding.");
        QUALITY = figure("quality_s", Seconds, "Wall-clock time of measuring pictures.");
        PACKET_HOPS = figure("packet_hops", Count, "Packets that left a link: the unit of a simulation's work.");
        PEAK_MEMORY = figure("peak_memory_bytes", Bytes, "The peak memory of the process.");
    }
}

/// Returns the figure that has this path below an object of the type `of`.
pub fn find(of: Of, path: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.of == of && figure.is_at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn no_key_is_declared_twice_and_none_lies_below_another() {
        let mut seen = BTreeSet::new();
        for figure in FIGURES {
            assert!(seen.insert((figure.of, figure.key)), "{:?} {}", figure.of, figure.key);
            let below = |other: &&Figure| other.of == figure.of && other.key.starts_with(&format!("{}.", figure.key));
            assert!(FIGURES.iter().find(below).is_none(), "something lies below {}", figure.key);
        }
        assert!(seen.len() > 100, "{} figures", seen.len());
    }

    #[test]
    fn a_heading_means_one_thing() {
        let mut by_heading: BTreeMap<&str, &Figure> = BTreeMap::new();
        for figure in FIGURES {
            let Some(short) = figure.short else { continue };
            if let Some(other) = by_heading.insert(short, figure) {
                assert_eq!(other.key, figure.key, "two figures are called {short}");
            }
        }
    }

    #[test]
    fn a_key_ends_with_its_unit() {
        for figure in FIGURES.iter().filter(|f| f.unit.is_number()) {
            let units: &[_] = &[
                ("_bps", Rate),
                ("_ms", Millis),
                ("_s", Seconds),
                ("_db", Decibels),
                ("_bytes", Bytes),
                ("_frac", Share),
            ];
            for (end, unit) in units {
                if figure.head().ends_with(end) {
                    assert_eq!(figure.unit, *unit, "{}", figure.key);
                }
            }
        }
    }

    #[test]
    fn figures_are_found_by_their_paths_and_by_those_of_their_parts() {
        assert_eq!(find(Of::Receiver, "delay_ms.p95"), Some(&receiver::DELAY));
        assert_eq!(find(Of::Receiver, "mos.share.5"), Some(&receiver::MOS_SHARE));
        assert_eq!(find(Of::Viewer, "time_frac.video2"), Some(&viewer::TIME));
        for path in
            ["delay_ms", "delay_ms.p96", "delay", "delay_ms.p95.x", "psnr_db.raw", "time_frac.", "share_of_fair"]
        {
            assert_eq!(find(Of::Receiver, path), None, "{path}");
        }
    }
}
