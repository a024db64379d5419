//! Files of other programs that are not read as a trace of a link. Each has a name and a remedy.

use serde_json::Value as Json;

/// A file that is not read as a trace.
struct Foreign {
    sign: Sign,
    /// What the file is, for messages.
    kind: &'static str,
    remedy: &'static str,
}

/// How a file of this format is recognised.
enum Sign {
    /// The file begins with one of these byte sequences.
    Begins(&'static [&'static [u8]]),
    /// The cells of the first line show it.
    Cells(fn(&[&str]) -> bool),
    /// The file is JSON, and its content shows it.
    Json(fn(&Json) -> bool),
}

/// First bytes of capture files: pcap in both byte orders, each with microseconds or nanoseconds, and pcapng.
const CAPTURES: &[&[u8]] =
    &[b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x0a\x0d\x0d\x0a"];
const FROM_UTF_16: &str = "save it as UTF-8: iconv -f UTF-16 -t UTF-8";
const FROM_SCRIPT: &str = "take the link's rate, delay and loss from the simulation's script, and write for example \
                           rate = \"2Mbps\" in place of trace; for values that change, write a table, as t_s,mbps";
const FROM_TC: &str = "take the rate, delay and loss that tc was given, and write for example rate = \"2Mbps\" in \
                       place of trace; for values that change, write a table, as t_s,mbps";

/// The formats, in the order in which a file is compared with them.
const FOREIGN: [Foreign; 17] = [
    Foreign {
        sign: Sign::Begins(CAPTURES),
        kind: "a capture: it says what was sent, not what the link could carry",
        remedy: "take a trace of the link itself, or a table of its rate over time",
    },
    Foreign { sign: Sign::Begins(&[b"\x1f\x8b"]), kind: "compressed (gzip)", remedy: "unpack it: gunzip -k FILE.gz" },
    Foreign { sign: Sign::Begins(&[b"BZh"]), kind: "compressed (bzip2)", remedy: "unpack it: bunzip2 -k FILE.bz2" },
    Foreign { sign: Sign::Begins(&[b"\xfd7zXZ\0"]), kind: "compressed (xz)", remedy: "unpack it: unxz -k FILE.xz" },
    Foreign {
        sign: Sign::Begins(&[b"PK\x03\x04"]),
        kind: "a ZIP archive or a spreadsheet",
        remedy: "unpack it, or save the spreadsheet as CSV in UTF-8",
    },
    Foreign {
        sign: Sign::Begins(&[b"\xff\xfe\0\0"]),
        kind: "a text in UTF-32",
        remedy: "save it as UTF-8: iconv -f UTF-32 -t UTF-8",
    },
    Foreign { sign: Sign::Begins(&[b"\xff\xfe", b"\xfe\xff"]), kind: "a text in UTF-16", remedy: FROM_UTF_16 },
    Foreign {
        sign: Sign::Begins(&[b"version https://git-lfs"]),
        kind: "a pointer of Git LFS in place of the file",
        remedy: "get the file itself: git lfs pull",
    },
    Foreign {
        sign: Sign::Begins(&[b"<"]),
        kind: "a page (HTML or XML)",
        remedy: "download the file itself, as \"raw\" on GitHub",
    },
    Foreign {
        sign: Sign::Begins(&[b"# mahimahi mm-"]),
        kind: "a log of Mahimahi: it says what was sent",
        remedy: "give the trace that its first line names",
    },
    Foreign {
        sign: Sign::Cells(is_ns2),
        kind: "a packet trace of ns-2: it says what was sent, not what a link could carry",
        remedy: FROM_SCRIPT,
    },
    Foreign {
        sign: Sign::Cells(is_ns3),
        kind: "an ASCII trace of ns-3: it says what was sent, not what a link could carry",
        remedy: FROM_SCRIPT,
    },
    Foreign {
        sign: Sign::Cells(is_tc),
        kind: "the output of tc: it says what was sent, not what the link could carry",
        remedy: FROM_TC,
    },
    Foreign {
        sign: Sign::Cells(is_mobile_log),
        kind: "a log of the 4G or 5G data set of University College Cork, whose times are dates",
        remedy: "write a table t_s,kbps: the seconds since the first Timestamp, and DL_bitrate or UL_bitrate",
    },
    Foreign {
        sign: Sign::Json(|json| json.get("intervals").is_some_and(Json::is_array) && json.get("start").is_some()),
        kind: "a result of iperf3: it says what a flow sent, not what the link could carry",
        remedy: "take a trace of the link itself; if the flow filled the link, write a table t_s,bps of \
                 intervals[].sum.start and .bits_per_second",
    },
    Foreign {
        sign: Sign::Json(|json| json.pointer("/0/handle").is_some_and(Json::is_string)),
        kind: "the output of tc: it says what was sent, not what the link could carry",
        remedy: FROM_TC,
    },
    Foreign {
        sign: Sign::Json(|json| json.pointer("/entries/0/entryNo").is_some()),
        kind: "an LPP network trace, which has both directions, and times that are dates",
        remedy: "write a table t_s,kbps: the seconds since the first dateTime of entries, and dlBw or ulBw",
    },
];

/// Returns the name and the remedy of a file with these first bytes.
pub(crate) fn by_bytes(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    found(|sign| matches!(sign, Sign::Begins(magics) if magics.iter().any(|magic| bytes.starts_with(magic))))
}

/// Returns the name and the remedy of a text whose first line of values has these cells.
pub(crate) fn by_cells(cells: &[&str]) -> Option<(&'static str, &'static str)> {
    found(|sign| matches!(sign, Sign::Cells(is) if is(cells)))
}

/// Returns the name and the remedy of a file with this JSON.
pub(crate) fn by_json(json: &Json) -> Option<(&'static str, &'static str)> {
    found(|sign| matches!(sign, Sign::Json(is) if is(json)))
}

fn found(is: impl Fn(&Sign) -> bool) -> Option<(&'static str, &'static str)> {
    FOREIGN.iter().find(|foreign| is(&foreign.sign)).map(|foreign| (foreign.kind, foreign.remedy))
}

fn is_number(cell: &str) -> bool {
    cell.parse::<f64>().is_ok()
}

/// Whether this is an event of ns-2: the format of wired links, those of wireless networks, or that of nam.
fn is_ns2(cells: &[&str]) -> bool {
    match cells {
        [event, "-t", ..] => event.len() == 1,
        ["s" | "r" | "d" | "D" | "f", time, node, ..] if node.starts_with('_') => is_number(time),
        ["+" | "-" | "r" | "d" | "h" | "e", time, _, _, _, _, flags, ..] => is_number(time) && flags.contains("--"),
        _ => false,
    }
}

fn is_ns3(cells: &[&str]) -> bool {
    matches!(cells, [event, time, path, ..] if event.len() == 1 && is_number(time) && path.starts_with("/NodeList/"))
}

fn is_tc(cells: &[&str]) -> bool {
    matches!(cells, ["qdisc" | "class" | "filter", _, handle, ..] if handle.contains(':'))
}

/// Whether this is the header of a log of the data sets of Raca and others (MMSys 2018 and 2020).
fn is_mobile_log(cells: &[&str]) -> bool {
    ["Timestamp", "DL_bitrate", "UL_bitrate"].iter().all(|name| cells.contains(name))
}
