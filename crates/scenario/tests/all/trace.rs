//! Trace files of links, and the recipe of `scenarios/traces/lte-synthetic.mahi`.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use proptest::prelude::*;
use std::fmt::Write;
use std::path::Path;
use steadycast_scenario::{
    Direction, Document, Fault, Loaded, Problems, Quantity, RateSpec, Recorded, Rows, Scenario, recorded,
};
use steadycast_units::{Rate, Seed, Span};

/// Generates 30 s in steps of 100 ms: the logarithm of the rate varies around that of 3.3 Mb/s (mean rate 4.5 Mb/s),
/// with two fades.
fn recipe() -> String {
    let mut chance = Seed(36).part("lte-synthetic");
    let (mut wander, mut credit, mut text) = (0.0, 0.0, String::new());
    for ms in 0..30_000u32 {
        if ms % 100 == 0 {
            // An autoregressive step with a correlation time of about 2 s.
            wander = 0.95 * wander + 0.18 * (chance.unit() + chance.unit() + chance.unit() - 1.5) * 2.0;
        }
        let fade = (9_000..9_500).contains(&ms) || (21_000..21_500).contains(&ms);
        let mbps = if fade { 0.2 } else { (3.3 * libm::exp(wander)).clamp(1.0, 12.0) };
        credit += mbps * 1e6 / 8.0 / 1000.0 / 1500.0;
        while credit >= 1.0 {
            credit -= 1.0;
            let _ = writeln!(text, "{}", ms + 1);
        }
    }
    // The last line is the period.
    text.push_str("30000\n");
    text
}

#[test]
fn the_synthetic_trace_is_what_its_recipe_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/traces/lte-synthetic.mahi");
    let made = recipe();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), made, "UPDATE_SNAPSHOTS=1 writes it");
    let mbps = made.lines().count() as f64 * 12_000.0 / 30.0 / 1e6;
    assert!((4.0..5.0).contains(&mbps), "{mbps} Mb/s on average");
}

#[test]
fn a_trace_may_begin_with_a_byte_order_mark_and_an_empty_one_is_said_to_be() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traces");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bom.mahi"), b"\xef\xbb\xbf10\n20\n").unwrap();
    std::fs::write(folder.join("empty.mahi"), b"").unwrap();
    let of = |trace: &str| {
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ trace = \"{trace}\" }}\n\
             [[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n"
        );
        steadycast_scenario::Scenario::parse(&text, &folder.join("it.toml")).map(|loaded| loaded.scenario)
    };
    let rate = of("bom.mahi").unwrap().links.iter().filter_map(|link| link.forward.rate.mean()).min();
    assert_eq!(rate, Some(steadycast_units::Rate::bps(1_200_000)));
    let said = of("empty.mahi").unwrap_err().to_string();
    assert!(said.contains("the trace \"empty.mahi\" is empty; name a file that has content"), "{said}");
}

/// The format of a table: header and units, divider, line ends, byte order mark, remarks.
#[derive(Clone, Copy, Debug)]
struct Form {
    header: Option<(&'static str, f64, &'static str, f64)>,
    between: &'static str,
    end: &'static str,
    mark: bool,
    remark: bool,
    /// With a header: unused columns before, between and after; quotation marks; and the value column first.
    more: [bool; 3],
}

fn form() -> impl Strategy<Value = Form> {
    let times = prop::sample::select(vec![("t_s", 1.0), ("t_ms", 1e3)]);
    let units = prop::sample::select(vec![("mbps", 1e-6), ("kbps", 1e-3), ("bps", 1.0), ("Mbps", 1e-6)]);
    let header = prop::option::of((times, units).prop_map(|((t, to), (unit, of))| (t, to, unit, of)));
    let between = prop::sample::select(vec!["\t", ",", " ", ";", ", ", " \t"]);
    (header, between, prop::sample::select(vec!["\n", "\r\n"]), any::<bool>(), any::<bool>(), any::<[bool; 3]>())
        .prop_map(|(header, between, end, mark, remark, more)| Form { header, between, end, mark, remark, more })
}

/// Writes a table of milliseconds and kb/s in this format.
fn written(rows: &[(u64, u64)], form: Form) -> String {
    let Form { header, between, end, mark, remark, more } = form;
    let [more, quoted, swapped] = more.map(|more| more && header.is_some());
    let line = |time: String, value: String| {
        let (first, second) = if swapped { (value, time) } else { (time, value) };
        let cells = if more { vec!["7".into(), first, "x".into(), second, "0".into()] } else { vec![first, second] };
        let mark = if quoted { "\"" } else { "" };
        cells.iter().map(|cell| format!("{mark}{cell}{mark}")).collect::<Vec<_>>().join(between)
    };
    let (_, to, _, of) = header.unwrap_or(("", 1.0, "", 1e-6));
    let mut lines = Vec::new();
    lines.extend(remark.then(|| "# measured on a tram".to_owned()));
    lines.extend(header.map(|(time, _, unit, _)| line(time.into(), unit.into())));
    lines.extend(
        rows.iter().map(|(ms, kbps)| line((*ms as f64 * to / 1e3).to_string(), (*kbps as f64 * 1e3 * of).to_string())),
    );
    format!("{}{}{end}", if mark { "\u{feff}" } else { "" }, lines.join(end))
}

/// Generates increasing times, and rates of which at least one is above 0.
fn rows() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1u64..5_000, 0u64..100_000), 2..50).prop_map(|steps| {
        let mut now = 1_000;
        let mut rows: Vec<_> = steps
            .into_iter()
            .map(|(step, kbps)| {
                now += step;
                (now, kbps)
            })
            .collect();
        rows[0].1 += 1;
        rows
    })
}

fn read(text: &str) -> Result<Rows, Fault> {
    match recorded(text.as_bytes(), "it.csv", Quantity::Rate)? {
        Recorded::Rows(rows) => Ok(rows),
        other => panic!("{other:?} of {text}"),
    }
}

proptest! {
    #[test]
    fn a_table_reads_back_as_it_was_written_in_every_form(rows in rows(), form in form()) {
        let text = written(&rows, form);
        let read = read(&text).unwrap();
        prop_assert_eq!(read.values.len(), rows.len());
        for ((at, bps), (ms, kbps)) in read.values.iter().zip(&rows) {
            prop_assert!(at.as_nanos().abs_diff((ms - rows[0].0) * 1_000_000) <= 1, "{at} of {ms} ms in {text}");
            prop_assert!((bps - *kbps as f64 * 1e3).abs() < 1e-3, "{bps} of {kbps} kb/s in {text}");
        }
        let mut steps: Vec<_> = rows.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let sum: u64 = rows.iter().zip(&steps).map(|((_, kbps), step)| kbps * step).sum();
        steps.sort_unstable();
        let last = steps[steps.len() / 2];
        let mean = (sum + rows[rows.len() - 1].1 * last) as f64 * 1e3 / (steps.iter().sum::<u64>() + last) as f64;
        prop_assert!((read.mean() / mean - 1.0).abs() < 1e-6, "{} of {mean}", read.mean());
    }

    #[test]
    fn a_table_that_is_damaged_is_refused_with_its_line_and_a_remedy(
        rows in rows(), form in form(), at in any::<prop::sample::Index>(),
        damage in prop::sample::select(vec![
            "nan 1", "T inf", "-1 5", "T -5", "T", "T 1 2", "T 1 2 3 4", "x 1", "T x", "0 1", "T 1e30", "T 0,5", "{}",
            "T \u{0}", "1e11 5",
        ]),
    ) {
        let text = written(&rows, Form { more: [false; 3], ..form });
        let mut lines: Vec<&str> = text.trim_end().lines().collect();
        let above = usize::from(form.remark) + usize::from(form.header.is_some()) + at.index(rows.len());
        let time = lines[above].split([',', ';', ' ', '\t']).next().unwrap_or_default().trim_start_matches('\u{feff}');
        let (damage, place) = (damage.replace('T', time), above + 2);
        lines.insert(above + 1, &damage);
        let (what, remedy) = read(&lines.join("\n")).expect_err(&damage);
        prop_assert!(what.starts_with(&format!("it.csv:{place}: ")), "{what}");
        prop_assert!(!remedy.is_empty() && !what.contains('\n') && !remedy.contains('\n'), "{what}; {remedy}");
    }

    #[test]
    fn no_bytes_stop_the_reader(
        bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9a-z{}\\[\\]\":,.\n -]{0,80}",
    ) {
        for quantity in [Quantity::Rate, Quantity::Delay, Quantity::Loss] {
            for bytes in [&bytes[..], text.as_bytes()] {
                if let Ok(Recorded::Rows(rows) | Recorded::Pattern(rows, ..)) = recorded(bytes, "it", quantity) {
                    prop_assert!(!rows.period.is_zero() && rows.mean() >= 0.0);
                    prop_assert!(rows.values.windows(2).all(|pair| pair[0].0 <= pair[1].0));
                }
            }
        }
    }
}

/// Headings of times with the number of their units in a second, and of rates with the bits of their units.
const TIMES: [(&str, f64); 8] = [
    ("time_s", 1.0),
    ("Time (ms)", 1e3),
    ("timestamp_ms", 1e3),
    ("Elapsed [s]", 1.0),
    ("seconds", 1.0),
    ("time_us", 1e6),
    ("Timestamp (sec)", 1.0),
    ("t_ms", 1e3),
];
const RATES: [(&str, f64); 12] = [
    ("throughput_kbps", 1e3),
    ("Bitrate (kbit/s)", 1e3),
    ("bandwidth (Mbps)", 1e6),
    ("DL_bitrate_kbps", 1e3),
    ("bits_per_second", 1.0),
    ("rate [Gbit/s]", 1e9),
    ("MB/s", 8e6),
    ("MBps", 8e6),
    ("Download (KiB/s)", 8192.0),
    ("bytes/s", 8.0),
    ("Mb/s", 1e6),
    ("capacity_Mbit/s", 1e6),
];

proptest! {
    #[test]
    fn a_heading_names_the_unit_as_other_programs_write_it(
        rows in rows(), time in prop::sample::select(TIMES.to_vec()), rate in prop::sample::select(RATES.to_vec()),
        between in prop::sample::select(vec![",", ";", "\t", ", "]), swapped in any::<bool>(), more in any::<bool>(),
        end in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let line = |time: String, value: String| {
            let (first, second) = if swapped { (value, time) } else { (time, value) };
            // A spreadsheet quotes a cell that contains the divider.
            let note = if more { format!("{between}\"a{between}note\"") } else { String::new() };
            format!("{first}{between}{second}{note}{end}")
        };
        let mut text = line(time.0.into(), rate.0.into());
        for (ms, kbps) in &rows {
            text += &line((*ms as f64 * time.1 / 1e3).to_string(), (*kbps as f64 * 1e3 / rate.1).to_string());
        }
        let read = read(&text).unwrap();
        for ((at, bps), (ms, kbps)) in read.values.iter().zip(&rows) {
            prop_assert!(at.as_nanos().abs_diff((ms - rows[0].0) * 1_000_000) <= 1_000, "{at} of {ms} ms in {text}");
            prop_assert!((bps - *kbps as f64 * 1e3).abs() < 1e-3, "{bps} of {kbps} kb/s in {text}");
        }
    }
}

#[test]
fn a_heading_without_a_clear_unit_is_refused_with_the_column() {
    for (header, said) in [
        ("time,mbps", "\"time\" has no unit that is known"),
        ("t_s,bandwidth", "\"bandwidth\" has no unit that is known"),
        ("Timestamp,DL_bitrate", "\"Timestamp\" has no unit that is known"),
        ("t_s,MBPS", "no column is a rate with its unit"),
        ("t_s,down_kbps,up_kbps", "\"down_kbps\" and \"up_kbps\" are both a rate"),
        ("t_s,kbps,mbps", "\"kbps\" and \"mbps\" are both a rate"),
        ("duration_s,kbps", "no column is a time with its unit"),
    ] {
        let (what, remedy) = read(&format!("{header}\n0,1,1\n1,1,1\n")).expect_err(header);
        assert_eq!(what, format!("it.csv:1: \"{header}\" is not a known header: {said}"));
        assert!(remedy.contains("time_ms,rate_kbps"), "{remedy}");
    }
    // Of several rates, the one whose heading is only a unit is taken.
    assert_eq!(read("t_s,peak_kbps,kbps\n0,9,5\n1,9,5\n").unwrap().mean(), 5e3);
    for (line, said) in [
        ("t_s;mbps\n0;1,5\n1;2\n", "decimal point"),
        ("\"t_s\",\"kbps\"\n0,\"1,200\"\n1,2\n", "without commas"),
        ("t_s,mbps\n2026-11-29T10:00:00Z,5\n", "not as a date"),
    ] {
        let (what, remedy) = read(line).expect_err(line);
        assert!(what.starts_with("it.csv:2: ") && remedy.contains(said), "{what}; {remedy}");
    }
}

#[test]
fn files_that_are_nothing_are_refused_in_one_line_with_place_and_remedy() {
    let pattern = |entries: &str| format!("{{\"uplink\": {{\"trace_pattern\": [{entries}]}}}}");
    let sabre = |entries: &str| format!("[{entries}]").into_bytes();
    let step = "{\"duration_ms\": 5, \"bandwidth_kbps\": 1}";
    let table = |rows: usize| "0 1\n".repeat(rows);
    for (content, said) in [
        (b"\xd4\xc3\xb2\xa1\0\0".to_vec(), "it is a capture: it says what was sent, not what the link could carry"),
        (b"\x1f\x8b\x08\0\0".to_vec(), "it is compressed (gzip)"),
        (b"PK\x03\x04\0".to_vec(), "it is a ZIP archive or a spreadsheet"),
        (b"\xff\xfet\0_\0s\0".to_vec(), "it is a text in UTF-16"),
        (b"\xff\xfe\0\0t\0\0\0".to_vec(), "it is a text in UTF-32"),
        (b"t\0_\0s\0,\0b\0p\0s\0".to_vec(), "it has zero bytes, as a text in UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n".to_vec(), "it is a pointer of Git LFS"),
        (b"<!DOCTYPE html>\n<html>".to_vec(), "it is a page (HTML or XML)"),
        (b"# mahimahi mm-link (uplink) [12mbps.trace] > log\n0 # 1504\n".to_vec(), "it is a log of Mahimahi"),
        (b"{\"start\": {}, \"intervals\": []}".to_vec(), "it is a result of iperf3: it says what a flow sent"),
        (b"\n\r\n# only this\n".to_vec(), "it has no line"),
        (b"t_s,mbps\n".to_vec(), "it has no values below its header"),
        (b"0 1\n".to_vec(), "it has values of one time alone"),
        (b"0 1\n0 2\n".to_vec(), "it has values of one time alone"),
        (b"0 0\n1 0\n2 0\n".to_vec(), "it never carries anything"),
        (b"t_s,speed\n0,1\n1,1\n".to_vec(), "it:1: \"t_s,speed\" is not a known header"),
        (b"time mbps\n0 1\n1 1\n".to_vec(), "it:1: \"time mbps\" is not a known header"),
        (b"0 5\n0 0\n1 5\n1 0\n2 0\n".to_vec(), "it never carries anything"),
        (b"2026-11-29T10:00:00Z,5\n2026-11-29T10:00:01Z,4\n".to_vec(), "it:1: \"2026-11-29T10:00:00Z\" is no number"),
        (b"10:00:00,5\n10:00:01,4\n".to_vec(), "it:1: \"10:00:00\" is no number"),
        (b"0 5Mbps\n1 4Mbps\n".to_vec(), "it:1: \"5Mbps\" is no number"),
        (b"0,0 1,5\n0,5 2,5\n".to_vec(), "it:1: 3 columns where there are 2"),
        (b"1 2 51.03 3.73 4040600 x\n".to_vec(), "it:1: 6 columns where there are 2"),
        (b"1453121790 51.03 3.73 40 1000\n1453121791 x 3.73 4 1000\n".to_vec(), "it:2: \"1453121791 x 3.73 4 1000\""),
        (b"1453121790 51.03 3.73 40 1000\n1453121791 51.0 3.73 4 0\n".to_vec(), "it:2: a line of 0 ms has no rate"),
        (b"1453121790 51.03 3.73 40 1000\n1453121780 51.0 3.73 4 1000\n".to_vec(), "it:2: its 1000 ms are longer than"),
        (b"1606394011000 5\n1606394011020 4\n".to_vec(), "it:1: 1606394011000 s is later than any date"),
        (b"t_s,mbps\n0,5\n1,4\n0,5\n1,4\n".to_vec(), "it:4: 0 comes after 1"),
        (b"0;1\n1;2\n2,5;3\n".to_vec(), "it:3: \"2,5\" is no number from 0"),
        (b"1606394011 5\n1606394012 5\n1609394012 5\n".to_vec(), "it:3: more than 30 days after the first line"),
        (b"0 1\n1 2000000\n".to_vec(), "it:2: 2000000 is out of range"),
        (table(2_000_001).into_bytes(), "it:2000001: more than 2000000 values"),
        (b"{\"uplink\": {\n".to_vec(), "it:2: this is no JSON"),
        (sabre("{\"duration_ms\": 5, \"bandwidth_kbps\": -5}"), "it: [1].bandwidth_kbps: \"-5\" is no number from 0"),
        (sabre("{\"duration_ms\": 5, \"bandwidth_kbps\": 1}, 7"), "it: [2] has no bandwidth_kbps"),
        (sabre("{\"duration_ms\": 0, \"bandwidth_kbps\": 1}"), "it takes no time"),
        (sabre("{\"duration_ms\": 2.6e9, \"bandwidth_kbps\": 1}"), "it: [1].duration_ms: 2600000000.0 is out of range"),
        (
            sabre("{\"duration_ms\": 5, \"bandwidth_kbps\": 2e9}"),
            "it: [1].bandwidth_kbps: 2000000000.0 is out of range",
        ),
        (
            sabre("{\"duration_ms\": 2e9, \"bandwidth_kbps\": 1}, {\"duration_ms\": 2e9, \"bandwidth_kbps\": 1}"),
            "it: [2]: ends more than 30 days after the beginning",
        ),
        (
            pattern("{\"duration\": 2e9, \"capacity\": 1}, {\"duration\": 2e9, \"capacity\": 1}").into_bytes(),
            "it: uplink.trace_pattern[2]: ends more than 30 days after the beginning",
        ),
        (b"1453121790 51.03 3.73 40 18446744073710\n".to_vec(), "it:1: ends more than 30 days after the beginning"),
        (
            b"1453121790 51.03 3.73 125000000001 1000\n".to_vec(),
            "it:1: 125000000001 bytes in 1000 ms are more than 1 Tb/s",
        ),
        (
            b"1453121790 51.03 3.73 40 1000\n1463121790 51.03 3.73 40 1000\n".to_vec(),
            "it:2: more than 30 days after the line before",
        ),
        (
            b"1453121790 51.03 3.73 40 1000\nnan 51.03 3.73 40 1000\n".to_vec(),
            "it:2: \"nan 51.03 3.73 40 1000\" is no line",
        ),
        (b"nan 51.03 3.73 40 1000\n".to_vec(), "it:1: 5 columns where there are 2"),
        (b"1 51.03 3.73 40 1\n".repeat(2_000_001), "it:2000001: more than 2000000 values"),
        (sabre(&format!("{step}{}", ", 0".repeat(2_000_000))), "it has more than 2000000 values"),
        (
            pattern(&format!("0{}", ", 0".repeat(2_000_000))).into_bytes(),
            "it: uplink.trace_pattern has more than 2000000",
        ),
        (b"[1, 2]".to_vec(), "it has no list uplink.trace_pattern"),
        (pattern("").into_bytes(), "it has no list uplink.trace_pattern"),
        (pattern("{\"capacity\": 5}").into_bytes(), "it: uplink.trace_pattern[1] has no duration"),
        (pattern("{\"duration\": 5}").into_bytes(), "it has no capacity"),
        (pattern("{\"duration\": 0, \"capacity\": 5}").into_bytes(), "it takes no time"),
        (pattern("{\"duration\": 5, \"capacity\": 0}").into_bytes(), "it never carries anything"),
        (
            pattern("{\"duration\": 5, \"capacity\": 5, \"loss\": 1.5}").into_bytes(),
            "it: uplink.trace_pattern[1].loss: 1.5 is out of range",
        ),
        (
            pattern("{\"duration\": 5, \"capacity\": \"5\"}").into_bytes(),
            "it: uplink.trace_pattern[1].capacity: \"\\\"5\\\"\" is no number from 0",
        ),
    ] {
        let (what, remedy) = recorded(&content, "it", Quantity::Rate).expect_err(said);
        assert!(what.starts_with(said), "{what}");
        assert!(!remedy.is_empty() && !what.contains('\n') && !remedy.contains('\n'), "{what}; {remedy}");
    }
}

/// Files of other programs that are not read as a trace: first lines, what messages call them, and a part of the
/// remedy.
const OTHERS: [(&str, &str, &str); 11] = [
    ("+ 0.1 0 2 cbr 1000 ------- 2 0.0 3.1 0 0\n- 0.1 0 2 cbr 1000 ------- 2 0.0 3.1 0 0\n", "of ns-2", "rate = "),
    ("s 10.000000000 _0_ AGT  --- 0 cbr 512 [0 0 0 0] ------- [0:0 1:0 32 0] [0] 0 0\n", "of ns-2", "rate = "),
    ("s -t 0.267662078 -Hs 0 -Hd -1 -Ni 0 -Nx 5.00 -Ny 2.00 -Nz 0.00 -Ne -1.000000 -Nl RTR\n", "of ns-2", "rate = "),
    ("V -t * -v 1.0a5 -a 0\nn -t * -a 0 -s 0 -S UP\n", "of ns-2", "rate = "),
    (
        "+ 2 /NodeList/0/DeviceList/0/$ns3::PointToPointNetDevice/TxQueue/Enqueue ns3::PppHeader (Point-to-Point)\n",
        "of ns-3",
        "rate = ",
    ),
    ("r 2.00369 /NodeList/1/DeviceList/0/$ns3::CsmaNetDevice/MacRx ns3::Ipv4Header (tos 0x0)\n", "of ns-3", "rate = "),
    ("qdisc fq_codel 0: dev eth0 root refcnt 2 limit 10240p\n Sent 1 bytes 1 pkt (dropped 0)\n", "of tc", "rate = "),
    ("class htb 1:10 root prio 0 rate 5Mbit ceil 5Mbit burst 1600b\n Sent 1 bytes 1 pkt\n", "of tc", "rate = "),
    ("[{\"kind\":\"fq_codel\",\"handle\":\"0:\",\"dev\":\"eth0\",\"bytes\":1028713}]\n", "of tc", "rate = "),
    (
        "Timestamp,Longitude,Latitude,Speed,DL_bitrate,UL_bitrate\n2019.12.16_13.40.04,-8.3,51.8,0,8,29\n",
        "University College Cork",
        "t_s,kbps",
    ),
    (
        "{\"version\": 1, \"entries\": [{\"entryNo\": 1, \"dateTime\": \"2020-10-09T08:23:00Z\", \"dlBw\": 12608}]}\n",
        "an LPP network trace",
        "t_s,kbps",
    ),
];

#[test]
fn the_files_of_other_programs_are_named_with_a_remedy_that_works() {
    for quantity in [Quantity::Rate, Quantity::Delay, Quantity::Loss] {
        for (content, name, remedy) in OTHERS {
            let (what, told) = recorded(content.as_bytes(), "it", quantity).expect_err(content);
            assert!(what.contains(name) && told.contains(remedy), "{what}; {told}");
        }
    }
    // What the remedies suggest is accepted: a constant rate in place of the trace, and a table with these headers.
    let loaded = with_files("others", &[], "rate = \"2Mbps\"").unwrap();
    assert_eq!(bottleneck(&loaded).0.rate.mean(), Some(Rate::mbps(2)));
    assert_eq!(read("t_s,mbps\n0,2\n1,2\n").unwrap().mean(), 2e6);
    assert_eq!(read("t_s,kbps\n0,2000\n1,2000\n").unwrap().mean(), 2e6);
    let whole = |rows: &str| read(rows).map(|rows| rows.mean());
    assert_eq!(whole("0 2\n1 2\n"), Ok(2e6), "a table of numbers is no trace of ns-2");
}

/// Generates the lines of a log: bytes received, and the milliseconds since the previous line.
fn logged() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..5_000_000, 500u64..3_000), 2..60).prop_map(|mut lines| {
        lines[0].0 += 1;
        lines
    })
}

proptest! {
    #[test]
    fn a_log_of_throughput_has_the_rates_of_its_bytes_and_times(
        lines in logged(), columns in prop::sample::select(vec!["s", "ms", "s and ms", "ms and ms"]),
        between in prop::sample::select(vec![" ", "\t", ","]), gap in prop::option::of((1usize..60, 5_000u64..90_000)),
    ) {
        let gap = gap.filter(|(at, _)| *at < lines.len());
        let mut now = 0;
        let mut text = String::new();
        for (n, (bytes, ms)) in lines.iter().enumerate() {
            now += ms + gap.filter(|gap| gap.0 == n).map_or(0, |gap| gap.1);
            let date = 1_453_121_790_000 + now;
            let times = match columns {
                "s" => vec![date / 1000],
                "ms" => vec![date],
                "s and ms" => vec![date / 1000, now],
                _ => vec![date, now],
            };
            let cells = times.iter().map(u64::to_string).chain(["51.038".into(), "3.731".into()]);
            let cells: Vec<String> = cells.chain([bytes.to_string(), ms.to_string()]).collect();
            let _ = writeln!(text, "{}", cells.join(between));
        }
        let rows = read(&text).unwrap();
        let mut at = Span::ZERO;
        for ((from, bps), (bytes, ms)) in rows.values.iter().zip(&lines) {
            prop_assert_eq!(*from, at);
            prop_assert!((bps - *bytes as f64 * 8e3 / *ms as f64).abs() < 1e-3, "{bps} of {bytes} in {ms} ms");
            at += Span::millis(*ms);
        }
        prop_assert_eq!((rows.values.len(), rows.period), (lines.len(), at));
        let doubts: Vec<&str> = rows.doubts.iter().map(|doubt| &*doubt.what).collect();
        prop_assert_eq!(doubts.len(), usize::from(gap.is_some()), "{:?}", doubts);
        if let Some((line, ms)) = gap {
            let told = format!("it.csv:{}: nothing describes ", line + 1);
            prop_assert!(doubts[0].starts_with(&told), "{} of {ms} ms", doubts[0]);
        }
        for quantity in [Quantity::Delay, Quantity::Loss] {
            let (what, remedy) = recorded(text.as_bytes(), "it.csv", quantity).unwrap_err();
            prop_assert!(what.contains("is a log of throughput, and has no ") && remedy.contains("as trace"), "{what}");
        }
    }

    /// A file of durations is read if its rates and its end are within the limits of tables, and otherwise refused.
    #[test]
    fn durations_and_rates_have_the_limits_of_tables(
        steps in prop::collection::vec((1u64..1 << 10, 0u32..54, 0u64..1 << 10, 0u32..54), 1..6),
        is_log in any::<bool>(),
    ) {
        let scaled = |value: u64, by: u32| value << by.saturating_sub(20);
        let steps: Vec<(u64, u64)> =
            steps.iter().map(|(ms, by, bytes, more)| (scaled(*ms, *by), scaled(*bytes, *more))).collect();
        let mut now = 1_453_121_790_000;
        let line = |(ms, bytes): &(u64, u64)| {
            now += ms;
            if is_log {
                return format!("{now} 51.03 3.73 {bytes} {ms}\n");
            }
            format!("{{\"duration_ms\": {ms}, \"bandwidth_kbps\": {bytes}}},\n")
        };
        let text: String = steps.iter().map(line).collect();
        let text = if is_log { text } else { format!("[{}]", text.trim_end().trim_end_matches(',')) };
        let rate = |(ms, bytes): &(u64, u64)| *bytes as f64 * if is_log { 8e3 / *ms as f64 } else { 1e3 };
        let has_length = steps.iter().map(|step| step.0).sum::<u64>() <= 30 * 86_400_000;
        let has_rates = steps.iter().all(|step| rate(step) <= 1e12) && steps.iter().any(|step| step.1 > 0);
        let read = read(&text);
        prop_assert_eq!(read.is_ok(), has_length && has_rates, "{}", text);
        if let Err((what, remedy)) = read {
            prop_assert!(what.starts_with("it.csv") && !remedy.is_empty(), "{what}");
        }
    }

    #[test]
    fn a_trace_of_sabre_has_its_rates_and_leaves_its_latency_aside(
        steps in prop::collection::vec((1u64..60_000, 0u64..100_000, 0u64..500), 1..40),
    ) {
        let entry = |(ms, kbps, latency): &(u64, u64, u64)| {
            format!("{{\"duration_ms\": {ms}, \"bandwidth_kbps\": {kbps}.5, \"latency_ms\": {latency}}}")
        };
        let text = format!("[{}]", steps.iter().map(entry).collect::<Vec<_>>().join(",\n"));
        let rows = read(&text).unwrap();
        let mut at = Span::ZERO;
        for ((from, bps), (ms, kbps, _)) in rows.values.iter().zip(&steps) {
            prop_assert_eq!((*from, *bps), (at, (*kbps as f64 + 0.5) * 1e3));
            at += Span::millis(*ms);
        }
        prop_assert_eq!((rows.values.len(), rows.period), (steps.len(), at));
        let has_latency = steps.iter().any(|step| step.2 > 0);
        prop_assert_eq!(rows.doubts.len(), usize::from(has_latency));
        prop_assert!(rows.doubts.iter().all(|doubt| doubt.remedy.contains("write delay = ")));
        let (what, _) = recorded(text.as_bytes(), "it.json", Quantity::Delay).unwrap_err();
        prop_assert_eq!(what, "it.json is a trace of Sabre, and has no delay over time");
    }

    #[test]
    fn values_that_are_too_large_without_a_header_are_read_with_the_header_of_the_remedy(
        rows in prop::collection::vec(1u64..1_000_000_000, 2..20),
        quantity in prop::sample::select(vec![Quantity::Rate, Quantity::Delay]),
    ) {
        // Rates above 1 Tb/s in Mb/s, and delays above an hour in milliseconds.
        let least = if quantity == Quantity::Rate { 1_000_001 } else { 3_600_001 };
        let table = |header: &str| {
            let lines = rows.iter().enumerate().map(|(n, value)| format!("{n},{}\n", value + least));
            lines.fold(header.to_owned(), |text, line| text + &line)
        };
        let (what, remedy) = recorded(table("").as_bytes(), "it", quantity).unwrap_err();
        prop_assert!(what.contains("is out of range"), "{what}");
        let header = remedy.rsplit(' ').next().unwrap_or_default();
        let read = recorded(table(&format!("{header}\n")).as_bytes(), "it", quantity);
        let Ok(Recorded::Rows(read)) = read else { panic!("{read:?} with {header}") };
        let unit = if quantity == Quantity::Rate { 1.0 } else { 1e-6 };
        for ((_, value), row) in read.values.iter().zip(&rows) {
            prop_assert!((value / ((row + least) as f64 * unit) - 1.0).abs() < 1e-9, "{value} of {row}");
        }
    }
}

#[test]
fn json_of_delays_is_read_as_the_table_that_its_remedy_names() {
    for json in ["[{\"t\": 0, \"delay_ms\": 20}, {\"t\": 1, \"delay_ms\": 30}]", "[20, 30]", "{\"delay\": [20, 30]}"] {
        let (what, remedy) = recorded(json.as_bytes(), "it", Quantity::Delay).expect_err(json);
        assert_eq!(what, "it has no list uplink.trace_pattern");
        let headers: Vec<&str> = remedy.rsplit_once("header ").expect("a header").1.split(" or ").collect();
        assert_eq!(headers, ["t_s,ms", "time_ms,delay_ms"]);
        for header in headers {
            let read = recorded(format!("{header}\n0,20\n1,30\n").as_bytes(), "it", Quantity::Delay);
            let Ok(Recorded::Rows(rows)) = read else { panic!("{read:?}") };
            let delays: Vec<f64> = rows.values.iter().map(|row| row.1).collect();
            assert_eq!(delays, [0.02, 0.03], "{header}");
        }
    }
}

#[test]
fn a_queue_whose_direction_has_no_rate_names_this_direction() {
    let told = |keys: &str| with_files("directions", &[], keys).expect_err(keys).to_string();
    for queue in ["{ limit = \"100ms\" }", "{ kind = \"red\" }"] {
        for none in ["none", "0bps"] {
            for (keys, name) in [
                (format!("rate = \"{none}\", queue = {queue}"), "the link"),
                (
                    format!("rate = \"1Mbps\", queue = {queue}, back = {{ rate = \"{none}\" }}"),
                    "the link's back direction",
                ),
                (
                    format!("rate = \"{none}\", queue = {queue}, back = {{ rate = \"1Mbps\" }}"),
                    "the link's forward direction",
                ),
                (
                    format!("rate = \"1Mbps\", back = {{ rate = \"{none}\", queue = {queue} }}"),
                    "the link's back direction",
                ),
            ] {
                let told = told(&keys);
                assert!(
                    told.contains(&format!("the rate of {name}, which has none, or 0; give {name} a rate")),
                    "{told}"
                );
                // The remedy helps.
                assert!(with_files("directions", &[], &keys.replace(none, "1Mbps")).is_ok(), "{keys}");
            }
        }
    }
}

/// Reads a scenario whose bottleneck has these keys, in a folder with these files, and reads its resolved text again.
fn with_files(name: &str, files: &[(&str, &str)], keys: &str) -> Result<Loaded, Problems> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
    let text = format!(
        "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ {keys} }}\n\
         [[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n"
    );
    let loaded = Scenario::parse(&text, &folder.join("it.toml"))?;
    let text = loaded.resolved_toml();
    let again = Scenario::parse(&text, Path::new("/elsewhere/it.toml")).unwrap_or_else(|p| panic!("{p}\n{text}"));
    assert_eq!(again.scenario, loaded.scenario, "{text}");
    assert_eq!(again.resolved_toml(), text);
    Ok(loaded)
}

const TABLE: (&str, &str) = ("rates.csv", "t_ms,kbps\n0,1000\n500,0\n1000,3000\n");
const DELAYS: (&str, &str) = ("delays.csv", "0 10\n1 30\n");
const LOSSES: (&str, &str) = ("losses.csv", "0 0\n1 0.5\n");
const PATTERN: (&str, &str) = (
    "pattern.json",
    r#"{"type": "video", "downlink": {}, "uplink": {"trace_pattern": [
        {"duration": 1000, "capacity": 300, "rtt": 100, "loss": 0.1, "jitter": 4},
        {"duration": 3000, "capacity": 500, "rtt": 60, "loss": 0}]}}"#,
);

fn bottleneck(loaded: &Loaded) -> (&Direction, &Direction) {
    let link = loaded.scenario.links.iter().find(|link| link.name == "bottleneck").unwrap();
    (&link.forward, &link.back)
}

#[test]
fn rates_delays_and_losses_of_files_hold_in_both_directions_but_for_the_loss() {
    let files = [TABLE, DELAYS, LOSSES];
    let keys = "trace = \"rates.csv\", delay_trace = \"delays.csv\", loss_trace = \"losses.csv\", loop = false, \
                queue = { limit = \"100ms\" }";
    let loaded = with_files("tables", &files, keys).unwrap_or_else(|p| panic!("{p}"));
    let (forward, back) = bottleneck(&loaded);
    for way in [forward, back] {
        assert_eq!(way.rate.mean(), Some(Rate::bps(4_000_000 / 3)));
        assert_eq!((way.delay, way.delay_trace.as_ref().map(|trace| trace.looped)), (Span::millis(20), Some(false)));
    }
    assert_eq!(forward.loss_trace.as_ref().map(|trace| trace.rows.mean()), Some(0.25));
    assert_eq!(back.loss_trace, None);
    let keys = "trace = \"rates.csv\", delay_trace = \"delays.csv\", loop = false, back = { rate = \"1Mbps\", delay = \
                \"5ms\", loss_trace = \"losses.csv\" }";
    let loaded = with_files("tables", &files, keys).unwrap_or_else(|p| panic!("{p}"));
    let (forward, back) = bottleneck(&loaded);
    assert_eq!(
        (&back.rate, back.delay, &back.delay_trace),
        (&RateSpec::Constant(Rate::mbps(1)), Span::millis(5), &None)
    );
    assert!(back.loss_trace.is_some() && forward.loss_trace.is_none());
    for (keys, said) in [
        ("delay = \"5ms\", delay_trace = \"delays.csv\"", "link"),
        ("loss = 0.1, loss_trace = \"losses.csv\"", "link"),
        ("rate = \"1Mbps\", trace = \"rates.csv\"", "link"),
        ("delay_trace = \"pattern.mahi\"", "does not exist"),
        ("rate = \"1Mbps\", loop = false", "there is no trace to loop"),
    ] {
        let problems = with_files("tables", &files, keys).map(|_| ()).unwrap_err().to_string();
        let both = problems.contains("beside what it is instead of") || problems.contains("both a rate and a trace");
        assert!(problems.contains(said) || both, "{keys}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{problems}");
    }
}

/// Reads a scenario of 9 s with this trace, and returns its warnings.
fn warnings(trace: &str, text: &str, keys: &str) -> Vec<String> {
    let loaded = with_files("warned", &[(trace, text)], &format!("trace = \"{trace}\"{keys}"));
    loaded.unwrap_or_else(|p| panic!("{p}")).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_table_without_a_header_whose_units_are_unlikely_is_read_with_a_warning() {
    for (table, said) in [
        ("0 1500\n1 2000\n2 900\n", Some("its values count as Mb/s, and are 1467 Mb/s on average")),
        ("0 1.5\n1000 2\n2000 0.9\n", Some("its times count as seconds, and it lasts 3000.0 s")),
        ("0 1.5\n20 2\n40 0.9\n", Some("its times count as seconds, and it lasts 60.0 s")),
        ("0 1.5\n1 2\n2 0.9\n", None),
        ("t_s,mbps\n0,1500\n1000,2000\n", None),
        // The header of a remark counts, as numpy's `savetxt` writes it.
        ("# t_s,kbps\n0,1500\n1,2000\n", None),
        ("#time(ms) rate(kbps)\n0 500\n1000 400\n", None),
    ] {
        let told = warnings("rates.csv", table, ", loop = true");
        match said {
            Some(said) => assert!(told.len() == 1 && told[0].contains(said) && told[0].contains("header"), "{told:?}"),
            None => assert!(told.is_empty(), "{told:?}"),
        }
    }
    for (key, table, said) in [
        ("delay", "0 0.05\n1 0.06\n", Some("its values count as milliseconds, and are 0.055 ms on average")),
        ("delay", "0 50\n1 60\n", None),
        ("loss", "0 0.5\n1 0.9\n", Some("its values count as probabilities, and are 0.70 on average")),
        ("loss", "0 0.05\n1 0\n", None),
    ] {
        let keys = format!("rate = \"1Mbps\", {key}_trace = \"it.csv\", loop = true");
        let loaded = with_files("unlikely", &[("it.csv", table)], &keys).unwrap_or_else(|p| panic!("{p}"));
        let told: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert!(told.len() == usize::from(said.is_some()), "{told:?}");
        assert!(said.is_none_or(|said| told[0].contains(said)), "{told:?}");
    }
}

/// The times of a table in milliseconds: steps of about a second, and one gap.
fn with_gap() -> impl Strategy<Value = (Vec<u64>, usize, u64)> {
    (prop::collection::vec(800u64..1_200, 10..60), any::<prop::sample::Index>(), 0u64..7_200_000).prop_map(
        |(steps, at, gap)| {
            let at = at.index(steps.len());
            let mut now = 1_606_394_011_000;
            let times = steps.iter().enumerate().map(|(i, step)| {
                now += step + if i == at { gap } else { 0 };
                now
            });
            (times.collect(), at, gap)
        },
    )
}

proptest! {
    #[test]
    fn a_gap_of_a_table_is_warned_of_with_the_line_before_it((times, at, gap) in with_gap(), header in any::<bool>()) {
        let (head, to) = if header { ("t_ms,mbps\n", 1.0) } else { ("", 1e3) };
        let lines: String = times.iter().enumerate().fold(head.to_owned(), |mut all, (i, ms)| {
            let _ = writeln!(all, "{},{}.5", *ms as f64 / to, i % 7);
            all
        });
        let read = read(&lines).unwrap();
        // The step before the first line is none.
        let is_gap = at > 0 && gap > 13_000;
        let said: Vec<&str> = read.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
        let said: Vec<&&str> = said.iter().filter(|what| what.contains("no value follows")).collect();
        if is_gap {
            let place = format!("it.csv:{}: no value follows for ", at + usize::from(header));
            prop_assert!(said.len() == 1 && said[0].starts_with(&place), "{said:?}, {place}");
        } else if at == 0 || gap < 8_000 {
            prop_assert!(said.is_empty(), "{said:?}");
        }
    }

    #[test]
    fn lines_of_one_time_are_warned_of_if_their_values_are_not_used(
        values in prop::collection::vec(1u64..90, 8..40), each in 1usize..5, is_step in any::<bool>(),
    ) {
        // A step is often written as two lines of one time: the value before and the value after.
        let text: String = if is_step {
            values.windows(2).enumerate().map(|(i, pair)| format!("{i} {}\n{i} {}\n", pair[0], pair[1])).collect()
        } else {
            values.iter().enumerate().map(|(i, value)| format!("{} {}\n", i / each, value * 97 % 89 + 1)).collect()
        };
        let read = read(&format!("t_s mbps\n{text}"));
        let doubts = read.map_or(Vec::new(), |rows| rows.doubts);
        let told = doubts.iter().any(|doubt| doubt.what.contains("the next line has the same"));
        // Of two equal values, none is lost.
        let differ = values.windows(2).all(|pair| pair[0] != pair[1]);
        prop_assert!(!differ || told == (!is_step && each > 1) || each >= values.len(), "{text}");
    }

    #[test]
    fn numbers_with_a_decimal_comma_are_no_times_and_rates(
        values in prop::collection::vec(0u64..4_000, 5..30), digits in 1usize..4,
    ) {
        let unit = 10u64.pow(digits as u32);
        let text: String = values.iter().map(|v| format!("{},{:0digits$}\n", v / unit, v % unit)).collect();
        let falls = values.windows(2).any(|pair| pair[1] / unit < pair[0] / unit);
        let has_zero = digits > 1 && values.iter().any(|value| value % unit < unit / 10);
        match read(&text) {
            Err((what, remedy)) => {
                let said = what.contains("with a decimal comma") && remedy.contains("decimal points");
                let is_no_trace = what.contains("of one time") || what.contains("never carries");
                prop_assert!(said || is_no_trace, "{what}; {remedy}");
            }
            Ok(rows) => {
                prop_assert!(!falls && !has_zero, "{text}");
                let repeats = values.windows(2).any(|pair| pair[1] / unit == pair[0] / unit);
                prop_assert!(!repeats || rows.doubts.iter().any(|doubt| doubt.what.contains("the comma counts")));
            }
        }
    }
}

#[test]
fn an_event_neither_starts_nor_replaces_a_trace() {
    let of = |link: &str, set: &str| {
        let event = format!(
            "{link} }}\n[[event]]\nat = \"2s\"\nset = {{ link = \"bottleneck\", {set} }}\n[topology.access]\n#"
        );
        with_files("events", &[TABLE, DELAYS, LOSSES], &event).map(|_| ()).map_err(|p| p.to_string())
    };
    let (rate, delay, loss) = (
        "trace = \"rates.csv\", loop = true",
        "delay_trace = \"delays.csv\", loop = true",
        "loss_trace = \"losses.csv\", loop = true",
    );
    for (link, set, said) in [
        ("rate = \"1Mbps\"", "trace = \"rates.csv\"", Some("set.trace: no such key; it is a key of flow, link")),
        (rate, "rate = \"1Mbps\"", Some("the link's trace holds for the whole run")),
        (delay, "delay = \"9ms\"", Some("the link's delay_trace holds for the whole run")),
        (loss, "loss = { kind = \"none\" }", Some("the link's loss_trace holds for the whole run")),
        (rate, "delay = \"9ms\"", None),
        // A loss trace is that of the first direction.
        (loss, "direction = \"back\", loss = { kind = \"bernoulli\", p = 0.1 }", None),
        (delay, "rate = \"1Mbps\"", None),
    ] {
        match (of(link, set), said) {
            (Ok(()), None) => {}
            (Err(what), Some(said)) => assert!(what.contains(said) && what.contains("it.toml:"), "{set}: {what}"),
            (other, _) => panic!("{link}, {set}: {other:?}"),
        }
    }
}

#[test]
fn a_trace_that_is_shorter_than_the_run_says_what_follows() {
    let mahi: String = (1..2_000).map(|ms| format!("{ms}\n")).collect();
    let table = "t_s,mbps\n0,5\n1,4\n";
    for (trace, text, keys, said) in [
        (
            "short.csv",
            table,
            "",
            Some("lasts 2.0 s of the run's 9.0 s, and starts again each time it ends; write loop = true"),
        ),
        ("short.csv", table, "", Some("with loop = false, its last value holds from then on")),
        ("short.mahi", &*mahi, "", Some("with loop = false, nothing leaves the link from then on")),
        ("short.mahi", &mahi, ", loop = false", Some("lasts 2.0 s of the run's 9.0 s, and nothing leaves the link")),
        ("short.csv", table, ", loop = false", None),
        ("short.csv", table, ", loop = true", None),
        ("long.csv", "t_s,mbps\n0,5\n8,4\n", "", None),
    ] {
        let told = warnings(trace, text, keys);
        assert!(told.len() == usize::from(said.is_some()), "{told:?}");
        assert!(said.is_none_or(|said| told[0].contains(said)), "{told:?}");
    }
    let gap = format!("{mahi}700000\n");
    let told = warnings("gap.mahi", &gap, "");
    assert!(told.len() == 1 && told[0].contains("gap.mahi:1999: nothing can leave the link for 698.0 s"), "{told:?}");
    // A gap behind the end of the run does not matter.
    let late: String = (1..20_000).chain([700_000]).map(|ms| format!("{ms}\n")).collect();
    assert_eq!(warnings("late.mahi", &late, ""), [""; 0]);
}

#[test]
fn alphartc_s_pattern_has_delay_and_loss_too_where_nothing_else_says_them() {
    let of = |keys: &str| with_files("patterns", &[PATTERN, DELAYS, TABLE], keys).unwrap_or_else(|p| panic!("{p}"));
    let loaded = of("trace = \"pattern.json\"");
    let (forward, back) = bottleneck(&loaded);
    // Expected: 300 kb/s for 1 s and 500 kb/s for 3 s; RTTs of 100 and 60 ms; 10 % loss in the first step.
    for way in [forward, back] {
        assert_eq!((way.rate.mean(), way.delay), (Some(Rate::kbps(450)), Span::millis(35)));
    }
    assert_eq!(forward.loss_trace.as_ref().map(|trace| trace.rows.mean()), Some(0.025));
    assert_eq!(back.loss_trace, None);
    assert!(loaded.warnings.iter().any(|warning| warning.to_string().contains("jitter of pattern.json is left")));
    let loaded = of("trace = \"pattern.json\", delay = \"5ms\", loss = { kind = \"none\" }");
    let (forward, _) = bottleneck(&loaded);
    assert_eq!((forward.delay, &forward.delay_trace, &forward.loss_trace), (Span::millis(5), &None, &None));
    let loaded = of("trace = \"pattern.json\", delay_trace = \"delays.csv\", back = { trace = \"pattern.json\" }");
    let (forward, back) = bottleneck(&loaded);
    assert_eq!(forward.delay, Span::millis(20));
    assert!(back.loss_trace.is_some(), "a pattern of its own has its loss");
    let loaded = of("trace = \"pattern.json\", back = { rate = \"1Mbps\" }");
    assert_eq!(bottleneck(&loaded).1.delay, Span::millis(35));
}

/// The keys of the three properties that can be constant or come from a file: the constant's key, its value, the file's
/// key, and the file.
const EITHER: [(&str, &str, &str, (&str, &str)); 3] = [
    ("rate", "\"1Mbps\"", "trace", TABLE),
    ("delay", "\"7ms\"", "delay_trace", DELAYS),
    ("loss", "0.25", "loss_trace", LOSSES),
];

#[test]
fn a_link_that_replaces_the_last_trace_of_the_topology_drops_its_loop() {
    let of = |looped: [&str; 2], over: &str| {
        let keys = format!("rate = \"2Mbps\"{}, back = {{ delay_trace = \"delays.csv\"{} }}", looped[0], looped[1]);
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ {keys} }}\n[[link]]\nname = \
             \"bottleneck\"\n{over}\n[[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n"
        );
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replaced");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(DELAYS.0), DELAYS.1).unwrap();
        Document::parse(&text, &folder.join("it.toml"))?.check()
    };
    for looped in [[", loop = false", ""], ["", ", loop = false"], [", loop = true", ", loop = false"]] {
        let loaded = of(looped, "back = { delay = \"7ms\" }").unwrap_or_else(|p| panic!("{looped:?}: {p}"));
        assert_eq!((bottleneck(&loaded).1.delay, &bottleneck(&loaded).1.delay_trace), (Span::millis(7), &None));
        for over in ["back = { delay = \"7ms\", loop = true }", "loop = true\nback = { delay = \"7ms\" }"] {
            let said = of(looped, over).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("there is no trace to loop"), "{looped:?} {over}: {said}");
        }
    }
}

/// Reads a scenario whose link `bottleneck` has these keys. `place` states how the link is written. Then sets the keys
/// of `sets`, which are relative to the link.
fn set_link(place: usize, keys: &str, sets: &[String]) -> Result<Loaded, Problems> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replaced");
    std::fs::create_dir_all(&folder).unwrap();
    for (.., (name, text)) in EITHER {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let (name, nodes) = ("name = \"bottleneck\"", "[\"a\", \"b\"]");
    let (head, path) = match place {
        0 => (format!("[topology]\nshape = \"dumbbell\"\nbottleneck = {{ {keys} }}\n"), "topology.bottleneck"),
        1 => (format!("link = [{{ {name}, between = {nodes}, {keys} }}]\nnodes = {nodes}\n"), "link.bottleneck"),
        _ => {
            let topology = "[topology]\nshape = \"dumbbell\"\nbottleneck = { rate = \"9Mbps\" }\n";
            (format!("link = [{{ {name}, {keys} }}]\n{topology}"), "link.bottleneck")
        }
    };
    let ends = if place == 1 { "from = \"a\"\nto = \"b\"\n" } else { "" };
    let text = format!("duration = \"9s\"\n{head}[[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n{ends}");
    let mut document = Document::parse(&text, &folder.join("it.toml"))?;
    for set in sets {
        document.set(&format!("{path}.{set}")).map_err(|problem| Problems(vec![problem]))?;
    }
    document.check()
}

proptest! {
    #[test]
    fn set_replaces_a_files_constant_by_a_trace_and_a_trace_by_a_constant(
        (n, to_file, place) in (0..3usize, any::<bool>(), 0..3usize),
        (is_back, has_back_trace, is_looped) in (any::<bool>(), any::<bool>(), any::<bool>()),
        is_loop_outside in any::<bool>(),
    ) {
        let (constant, value, file, (name, _)) = EITHER[n];
        let (by_value, by_file) = (format!("{constant} = {value}"), format!("{file} = \"{name}\""));
        let (old, new) = if to_file { (&by_value, &by_file) } else { (&by_file, &by_value) };
        let looped = if is_looped { "" } else { ", loop = false" };
        let own = if to_file { "" } else { looped };
        let keys = if is_back {
            let (outside, inside) = if is_loop_outside { (own, "") } else { ("", own) };
            format!("rate = \"2Mbps\"{outside}, back = {{ {old}{inside} }}")
        } else {
            let traced = format!(", back = {{ delay_trace = \"{}\" }}{looped}", DELAYS.0);
            let back = if has_back_trace { &traced } else { own };
            format!("{}{old}{back}", if n == 0 { "" } else { "rate = \"2Mbps\", " })
        };
        let below = if is_back { "back." } else { "" };
        let sets = [old, new].map(|set| format!("{below}{set}"));
        let loaded = set_link(place, &keys, &sets[1..]).unwrap_or_else(|p| panic!("{keys}: {p}"));
        let (forward, back) = bottleneck(&loaded);
        let changed = if is_back { back } else { forward };
        let has_trace = [
            !matches!(changed.rate, RateSpec::Constant(_)),
            changed.delay_trace.is_some(),
            changed.loss_trace.is_some(),
        ];
        prop_assert_eq!(has_trace[n], to_file, "{}", keys);
        if has_back_trace && !is_back {
            prop_assert_eq!(back.delay_trace.as_ref().map(|trace| trace.looped), Some(is_looped), "{}", keys);
        }
        // Two values that are both set contradict each other.
        let said = set_link(place, &keys, &sets).map(|_| ()).unwrap_err().to_string();
        prop_assert!(said.contains("leave one of them out"), "{}", said);
    }
}
