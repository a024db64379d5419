//! Invalid files and their messages: the table is in `tests/data/bad.txt`.

use std::path::Path;
use steadycast_control::registry;
use steadycast_scenario::{Document, Problems, Scenario};

/// A valid scenario. Each wrong line replaces the line with the same beginning, or is added.
const GOOD: &str = r#"duration = "80s"
nodes = ["s", "a", "b", "r[1-3]", "alone"]
[[link]]
name = "mid"
between = ["a", "b"]
rate = "4Mbps"
queue = { limit = "50p" }
loss = { kind = "bernoulli", p = 0.02 }
jitter = { mean = "2ms" }
arq = { tries = 7, per_try = "1ms" }
[[link]]
between = ["s", "a"]
[[link]]
between = ["b", "r[1-3]"]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
from = "s"
to = ["r[1-3]"]
encode = { size = "cif" }
[[flow]]
name = "tcp"
kind = "tcp"
from = "s"
to = "r1"
[[flow]]
name = "noise"
kind = "onoff"
rate = "400kbps"
on = { dist = "pareto", mean = "5s" }
off = { mean = "5s" }
from = "s"
to = "r1"
[[event]]
at = "50s"
join = "video.r2"
[[expect]]
that = "flows.tcp.share_of_fair"
min = 0.8
"#;

/// Pairs of a line and the wrong line that replaces it.
const WRONG: &[(&str, &str)] = &[
    ("duration = \"80s\"", ""),
    ("duration = \"80s\"", "duraton = \"80s\""),
    ("duration = \"80s\"", "duration = 80"),
    ("duration = \"80s\"", "duration = \"80\""),
    ("duration = \"80s\"", "duration = \"-80s\""),
    ("duration = \"80s\"", "duration = \"0s\""),
    ("duration = \"80s\"", "duration = \"80s\"\nduration = \"90s\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\necn = \"ect2\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\necn = 1"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nfeedback = \"twcc\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nfeedback = \"nack\""),
    ("kind = \"tcp\"", "kind = \"tcp\"\necn = \"ect1\""),
    ("kind = \"tcp\"", "kind = \"tcp\"\nfeedback = \"own\""),
    ("rate = \"4Mbps\"", "policer = { rate = \"4Mbps\" }"),
    ("rate = \"4Mbps\"", "policer = { rate = \"0bps\", burst = \"30kB\" }"),
    ("rate = \"4Mbps\"", "policer = { rate = \"4Mbps\", burst = \"1kB\" }"),
    ("rate = \"4Mbps\"", "policer = \"4Mbps\""),
    ("rate = \"4Mbps\"", "shaper = { rate = \"4Mbps\" }"),
    ("rate = \"4Mbps\"", "shaper = { rate = \"4Mbps\", burst = \"1kB\" }"),
    ("limit = \"50p\"", "kind = \"dualpi2\", classic_share = 1"),
    ("limit = \"50p\"", "kind = \"codel\", ce_threshold = \"soon\""),
    ("duration = \"80s\"", "duration = \"80s\"\nwarmup = \"80s\""),
    ("duration = \"80s\"", "duration = \"80s\"\nformat = 2"),
    ("duration = \"80s\"", "duration = \"80s\"\nseed = -1"),
    ("duration = \"80s\"", "duration = \"80s\"\nname = \"My Scenario\""),
    ("duration = \"80s\"", "duration = \"80s"),
    ("duration = \"80s\"", "duration = 80s"),
    ("\"r[1-3]\", \"alone\"", "\"r[1-3]\", \"r2\""),
    ("\"r[1-3]\", \"alone\"", "\"r[3-1]\""),
    ("\"r[1-3]\", \"alone\"", "\"r[1-3000000]\""),
    ("\"r[1-3]\", \"alone\"", "\"r[1-3]\", \"\""),
    ("\"r[1-3]\", \"alone\"", "\"r[1-3]\", \"R9\""),
    ("between = [\"a\", \"b\"]", "between = [\"a\", \"a\"]"),
    ("between = [\"a\", \"b\"]", "between = [\"a\", \"bb\"]"),
    ("between = [\"a\", \"b\"]", "between = [\"a\"]"),
    ("between = [\"a\", \"b\"]", "between = [\"r[1-2]\", \"r[1-3]\"]"),
    ("between = [\"s\", \"a\"]", "name = \"mid\"\nbetween = [\"s\", \"a\"]"),
    ("between = [\"s\", \"a\"]", "name = \"midd\"\nrate = \"1Mbps\""),
    ("between = [\"s\", \"a\"]", "name = \"mid\"\ndelay = \"1ms\""),
    ("rate = \"4Mbps\"\nqueue = { limit = \"50p\" }", "rate = \"0bps\"\nqueue = { limit = \"100ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = { limit = \"500B\" }"),
    ("rate = \"4Mbps\"", "rate = \"2000Gbps\""),
    ("rate = \"4Mbps\"", "rate = \"4MB/s\""),
    ("rate = \"4Mbps\"", "rate = nan"),
    ("rate = \"4Mbps\"", "rate = [\"4Mbps\"]"),
    ("rate = \"4Mbps\"", "rate = \"4Mbps\"\nrat = \"4Mbps\""),
    ("rate = \"4Mbps\"", "trace = \"no-such.mahi\""),
    ("rate = \"4Mbps\"", "rate = \"4Mbps\"\nloop = true"),
    ("rate = \"4Mbps\"", "rate = \"4Mbps\"\nmtu = \"10B\""),
    ("rate = \"4Mbps\"", "rate = \"4Mbps\"\nmtu = \"576B\""),
    ("queue = { limit = \"50p\" }", "queue = { limit = 50 }"),
    ("queue = { limit = \"50p\" }", "queue = { limit = \"0p\" }"),
    ("queue = { limit = \"50p\" }", "queue = { limit = \"2.5p\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"coddle\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"codel\", flows = 64 }"),
    ("between = [\"s\", \"a\"]", "between = [\"s\", \"a\"]\nqueue = { kind = \"dualpi2\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"codel\", target = \"100ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"codel\", target = \"0ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"fq-codel\", flows = 0 }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"fq-codel\", quantum = \"1B\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"red\", interval = \"100ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = { limit = \"50p\", min = \"5p\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"red\", min = \"15p\", max = \"5p\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"red\", min = \"5p\", max = \"64kB\" }"),
    ("queue = { limit = \"50p\" }", "queue = { kind = \"red\", max_p = 1.5 }"),
    ("between = [\"s\", \"a\"]", "between = [\"s\", \"a\"]\nqueue = { kind = \"red\" }"),
    ("p = 0.02", "p = 2"),
    ("p = 0.02", "p = -0.02"),
    ("p = 0.02", "p = nan"),
    ("p = 0.02", "mean = \"50p\""),
    ("kind = \"bernoulli\", p = 0.02", "kind = \"gilbert\", p_bad = 0.1"),
    ("kind = \"bernoulli\", p = 0.02", "kind = \"list\", packets = [0, 7]"),
    ("kind = \"bernoulli\", p = 0.02", "kind = \"run\", mean = \"0.5p\""),
    ("kind = \"bernoulli\", p = 0.02", "p = 0.02"),
    ("kind = \"bernoulli\", p = 0.02", "kind = \"bernoulli\", p = 0.02, direction = \"up\""),
    ("mean = \"2ms\" }", "dist = \"normal\" }"),
    ("mean = \"2ms\" }", "mean = \"2ms\", dist = \"gaussian\" }"),
    ("tries = 7", "tries = 0"),
    ("tries = 7, per_try = \"1ms\"", "tries = 7"),
    ("name = \"tcp\"", ""),
    ("name = \"tcp\"", "name = \"video\""),
    ("name = \"tcp\"", "name = \"tcp\"\nwindw = \"20p\""),
    ("name = \"tcp\"", "name = \"tcp\"\ncontroller = \"asmp\""),
    ("name = \"tcp\"", "name = \"tcp\"\ncongestion = \"cubik\""),
    ("name = \"tcp\"", "name = \"tcp\"\npreset = \"ns3\""),
    ("name = \"tcp\"", "name = \"tcp\"\nwindow = \"0p\""),
    ("name = \"tcp\"", "name = \"tcp\"\nmin_rto = \"200s\""),
    ("name = \"tcp\"", "name = \"tcp\"\nrate = \"1Mbps\""),
    ("name = \"tcp\"", "name = \"tcp\"\ncast = \"multicast\""),
    ("name = \"tcp\"", "name = \"tcp\"\nsack = false\ncongestion = \"sack\""),
    ("kind = \"tcp\"", "kind = \"udp\""),
    ("to = [\"r[1-3]\"]", "to = [\"r[1-4]\"]"),
    ("to = [\"r[1-3]\"]", "to = [\"alone\"]"),
    ("to = [\"r[1-3]\"]", "to = [\"s\"]"),
    ("to = [\"r[1-3]\"]", "to = [\"r1\", \"r1\"]"),
    ("to = [\"r[1-3]\"]", "to = []"),
    ("to = [\"r[1-3]\"]", "receivers = 3"),
    ("controller = \"fixed\"", ""),
    ("controller = \"fixed\"", "controller = \"fixd\""),
    ("controller = \"fixed\"", "controller = 7"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nparams.fixed = { rate = \"4\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nparams.fixed = { rat = \"4Mbps\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nparams.nada = { gamma_max = 0.3 }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nparams.fixd = { rate = \"4Mbps\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nparams = 7"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmode = \"fixed\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nclip = [\"no-such.mkv\"]"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"clip\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nbytes = \"1MB\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"map001\"\nmap001 = { exponent = 0, intra = 900 }"),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nmedia = \"rfc8593\"\nrfc8593 = { k_d = 1, k_b = \"2B\", scale_t = 7 }",
    ),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"rfc8593\"\nrfc8593 = { r_min = \"2Mbps\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"rfc8593\"\ntrace = \"frames.csv\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"greedy\"\nbuffer = { size = \"16KiB\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\npacket = \"9000B\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\npacket = \"20B\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nplayout = \"0ms\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nbuffer = { consume = \"8kbps\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nrtcp = { profile = \"rfc3551\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nfloor = \"2Mbps\"\ncap = \"1Mbps\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nstart = \"9s\"\nstop = \"5s\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nstart = { uniform = [\"5s\", \"1s\"] }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nvbr = \"ladder\"\nbucket = 2"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nvbr = \"frame\"\nbucket = 2\nwait = \"1ms\"\nroom = 0.5"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nwait = \"100ms\"\nroom = 2"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nplayout = \"adaptiv\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nplayout = { most = \"1s\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nplayout = { kind = \"adaptive\", least = \"1s\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nplayout = { kind = \"adaptive\", most = \"2min\" }"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nemit = true"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nrepair = \"fec\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nrepair = \"rtx\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\npadding = true"),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\ncast = \"unicast\"\nrtcp = { profile = \"asmp\" }\nrepair = \"rtx\"",
    ),
    ("encode = { size = \"cif\" }", "encode = { size = \"351x288\" }"),
    ("encode = { size = \"cif\" }", "encode = { size = \"cif\" }\nclock = { ahead = \"300min\" }"),
    ("encode = { size = \"cif\" }", "encode = { size = \"cif\" }\nclock = { ahead = \"1s\", behind = \"1s\" }"),
    ("encode = { size = \"cif\" }", "encode = { size = \"cif\" }\nclock = { drift = 20000 }"),
    ("encode = { size = \"cif\" }", "encode = { size = \"cif\" }\nrtp = { seq = 65536 }"),
    ("encode = { size = \"cif\" }", "encode = { size = \"cif\" }\ndefences = \"yes\""),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = { kind = \"bernoulli\", p = 0.02 }\nduplicate = 2"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = { kind = \"bernoulli\", p = 0.02 }\nreorder = { p = 0.1 }"),
    (
        "loss = { kind = \"bernoulli\", p = 0.02 }",
        "loss = { kind = \"bernoulli\", p = 0.02 }\nreorder = { p = 0.1, by = \"0ms\" }",
    ),
    (
        "loss = { kind = \"bernoulli\", p = 0.02 }",
        "loss = { kind = \"bernoulli\", p = 0.02 }\nreorder = { by = \"20ms\" }",
    ),
    ("join = \"video.r2\"", "set = { link = \"mid\", direction = \"back\" }"),
    ("encode = { size = \"cif\" }", "encode = { size = \"clip\" }"),
    ("encode = { size = \"cif\" }", "encode = { fps = 0 }"),
    ("encode = { size = \"cif\" }", "encode = { gop = 2, bframes = 3 }"),
    ("encode = { size = \"cif\" }", "encode = { q = \"31-2\" }"),
    ("encode = { size = \"cif\" }", "encode = { codec = \"h263\", bframes = 2 }"),
    ("encode = { size = \"cif\" }", "encode = { codec = \"vp9\", q = \"10-64\", bframes = 1 }"),
    ("encode = { size = \"cif\" }", "vbr = \"frame\"\nencode = { codec = \"av1\" }"),
    ("encode = { size = \"cif\" }", "encode = { q = \"2-47\" }"),
    ("dist = \"pareto\", mean", "dist = \"pareto\", shape = 1, mean"),
    ("off = { mean = \"5s\" }", ""),
    ("rate = \"400kbps\"", ""),
    ("at = \"50s\"", ""),
    ("join = \"video.r2\"", ""),
    ("join = \"video.r2\"", "join = \"video.r9\""),
    ("join = \"video.r2\"", "join = \"vidio.r2\""),
    ("join = \"video.r2\"", "join = \"video.r2\"\nleave = \"video.r2\""),
    ("join = \"video.r2\"", "start = \"tpc\""),
    ("join = \"video.r2\"", "set = { link = \"mid\" }"),
    ("join = \"video.r2\"", "set = { link = \"middle\", rate = \"1Mbps\" }"),
    ("join = \"video.r2\"", "jion = \"video.r2\""),
    ("that = \"flows.tcp.share_of_fair\"", ""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.tpc.share_of_fair\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flow.tcp.share_of_fair\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows..share_of_fair\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.tcp.share\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.tcp\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.video.receivers.r1.delay_ms\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.video.receivers.r9.delay_ms.p95\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.video.receivers.r1.delay_ms.p96\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.tcp.receivers.r1.loss_frac\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.tcp.limited_by_frac.cap\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"flows.video.controller\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"links.mid.back.utilization_frac\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"links.middle.forward.drop_frac\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"emulation.late\""),
    ("that = \"flows.tcp.share_of_fair\"", "that = \"complete\""),
    (
        "encode = { size = \"cif\" }",
        "media = \"greedy\"\n[[expect]]\nthat = \"flows.video.receivers.r2.mos.mean\"\nmin = 3",
    ),
    ("min = 0.8", ""),
    ("min = 0.8", "min = 0.8\nmax = 0.1"),
    ("min = 0.8", "min = inf"),
    ("[[expect]]", "[expect]"),
    ("[[expect]]", "[topology]\nshape = \"star\"\nbottleneck = {}\n[[expect]]"),
    ("[[expect]]", "[topology]\nshape = \"tree\"\nlevels = [{ fanout = 1000 }, { fanout = 1000 }]\n[[expect]]"),
    ("[[expect]]", "[topology]\nshape = \"ring\"\n[[expect]]"),
    ("[[expect]]", "[record]\ninterval = \"0s\"\npackets = [\"vido\"]\npcap = [\"md\"]\n[[expect]]"),
];

/// Short forms that users try first: the line they replace, the short form, and the long form that it stands for.
const SHORT: &[(&str, &str, &str)] = &[
    ("encode = { size = \"cif\" }", "encode = { size = \"720p\" }", "encode = { size = \"1280x720\" }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = 0.01", "loss = { kind = \"bernoulli\", p = 0.01 }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"1%\"", "loss = { kind = \"bernoulli\", p = 0.01 }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"0.5 %\"", "loss = { kind = \"bernoulli\", p = 0.005 }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"none\"", "loss = { kind = \"none\" }"),
    ("jitter = { mean = \"2ms\" }", "jitter = \"5ms\"", "jitter = { mean = \"5ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"fq-codel\"", "queue = { kind = \"fq-codel\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"codel\"", "queue = { kind = \"codel\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"100ms\"", "queue = { limit = \"100ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"64kB\"", "queue = { limit = \"64kB\" }"),
    ("off = { mean = \"5s\" }", "off = \"5s\"", "off = { mean = \"5s\" }"),
    (
        "at = \"50s\"\njoin = \"video.r2\"",
        "at = \"50s\"\nset = { link = \"mid\", loss = \"3%\" }",
        "at = \"50s\"\nset = { link = \"mid\", loss = { kind = \"bernoulli\", p = 0.03 } }",
    ),
];

/// Mistakes that lead to a single message, and the place and remedy that it contains.
const ONE_LINE: &[(&str, &str, &str)] = &[
    (
        "queue = { limit = \"50p\" }",
        "queue = \"fq_codel\"",
        "bad.toml:7: link.mid.queue: \"fq_codel\" is not one of its values; did you mean \"fq-codel\"?",
    ),
    ("queue = { limit = \"50p\" }", "queue = 50", "link.mid.queue: 50 is not a table; write for example \"fq-codel\""),
    ("queue = { limit = \"50p\" }", "queue = \"50\"", "link.mid.queue"),
    ("queue = { limit = \"50p\" }", "queue = \"htb\"", "choose from: droptail, red, codel"),
    ("queue = { limit = \"50p\" }", "queue = true", "write for example \"fq-codel\""),
    ("queue = { limit = \"50p\" }", "qdisc = \"codel\"", "link.mid.qdisc: no such key; did you mean \"queue\"?"),
    (
        "queue = { limit = \"50p\" }",
        "queue = { size = \"50p\" }",
        "link.mid.queue.size: no such key; did you mean \"limit\"?",
    ),
    (
        "loss = { kind = \"bernoulli\", p = 0.02 }",
        "loss = \"a little\"",
        "link.mid.loss: \"a little\" is not one of its values; choose from: bernoulli",
    ),
    (
        "loss = { kind = \"bernoulli\", p = 0.02 }",
        "loss = 2",
        "link.mid.loss: 2 is no probability; from 0 to 1: 2 % is 0.02",
    ),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"200%\"", "link.mid.loss: 2 is no probability"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = -0.1", "link.mid.loss: -0.1 is no probability"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = [0.1]", "write for example 0.01, \"1%\""),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "packet_loss = 0.01", "did you mean \"loss\"?"),
    (
        "jitter = { mean = \"2ms\" }",
        "jitter = 5",
        "link.mid.jitter: 5 is not a time; write its unit, as \"5s\" or \"5ms\"",
    ),
    ("jitter = { mean = \"2ms\" }", "jitter = \"5\"", "link.mid.jitter: \"5\" has no unit of time"),
    ("jitter = { mean = \"2ms\" }", "jitter = \"wild\"", "link.mid.jitter: \"wild\" has no number"),
    ("rate = \"4Mbps\"", "rate = 5", "link.mid.rate: 5 is not a rate; write its unit, as \"5Mbps\" or \"5kbps\""),
    (
        "rate = \"4Mbps\"\nqueue = { limit = \"50p\" }",
        "rate = 5\nqueue = { limit = \"100ms\" }",
        "link.mid.rate: 5 is not a rate",
    ),
    (
        "rate = \"4Mbps\"\nqueue = { limit = \"50p\" }",
        "rate = \"fast\"\nqueue = \"100ms\"",
        "link.mid.rate: \"fast\" has no number",
    ),
    ("rate = \"4Mbps\"", "bandwidth = \"4Mbps\"", "link.mid.bandwidth: no such key; did you mean \"rate\"?"),
    ("rate = \"4Mbps\"", "capacity = \"4Mbps\"", "did you mean \"rate\"?"),
    (
        "rate = \"4Mbps\"",
        "rate = \"4Mbps\"\nlatency = \"10ms\"",
        "link.mid.latency: no such key; did you mean \"delay\"?",
    ),
    ("rate = \"4Mbps\"", "rate = \"4Mbps\"\nrtt = \"10ms\"", "did you mean \"delay\"?"),
    (
        "rate = \"4Mbps\"",
        "rate = \"4Mbps\"\ndelay = 10",
        "link.mid.delay: 10 is not a time; write its unit, as \"10s\" or \"10ms\"",
    ),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nmax_rate = \"2Mbps\"",
        "flow.video.max_rate: no such key; did you mean \"cap\"?",
    ),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmin_rate = \"2Mbps\"", "did you mean \"floor\"?"),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\ncodec = \"vp8\"",
        "flow.video.codec: no such key; write codec = … in encode, not beside it",
    ),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nfps = 30",
        "flow.video.fps: no such key; write fps = … in encode, not beside it",
    ),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nresolution = \"720p\"",
        "leave it out: encode.size says it already",
    ),
    ("encode = { size = \"cif\" }", "encode = { fps = \"30fps\" }", "\"30fps\" is not a finite number; write 30"),
    ("encode = { size = \"cif\" }", "encode = { gop = \"12\" }", "\"12\" is not a whole number from 0; write 12"),
    ("encode = { size = \"cif\" }", "encode = { size = \"hd\" }", "vga, 720p, 1080p, or \"640x480\""),
    ("min = 0.8", "min = \"80%\"", "expect[1].min: \"80%\" is not a finite number; write 0.8"),
    ("min = 0.8", "min = \"80 Mb/s or so\"", "write 80"),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nfec = true",
        "flow.video.fec: no such key; write repair = \"parity\"",
    ),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nplayout = 300",
        "flow.video.playout: 300 is not a time; write its unit, as \"300s\" or \"300ms\"",
    ),
    ("controller = \"fixed\"", "controller = \"fixed\"\nplayout = true", "flow.video.playout: true is not a time"),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nplayout = \"auto\"",
        "flow.video.playout: \"auto\" has no number",
    ),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nmedia = \"mine.mkv\"",
        "flow.video.media: \"mine.mkv\" is a file; write clip = \"mine.mkv\"",
    ),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"sizes.csv\"", "write trace = \"sizes.csv\""),
    ("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"movie\"", "choose from: clip, synthetic"),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nmedia = \"synthetic\"\nclip = \"mine.mkv\"",
        "flow.video.clip: a clip beside media = \"synthetic\", which plays none; \
         write media = \"clip\", or leave one of them out",
    ),
    (
        "controller = \"fixed\"",
        "controller = \"fixed\"\nmedia = \"greedy\"\ntrace = \"a.csv\"",
        "flow.video.trace: a trace beside media = \"greedy\"",
    ),
    ("controller = \"fixed\"", "cc = \"fixed\"", "flow.video.cc: no such key; did you mean \"controller\"?"),
    ("controller = \"fixed\"", "controller = \"fixed\"\nfile = \"mine.mkv\"", "did you mean \"clip\"?"),
    ("to = [\"r[1-3]\"]", "dst = [\"r[1-3]\"]", "did you mean \"to\"?"),
    (
        "name = \"tcp\"\nkind = \"tcp\"",
        "name = \"video\"\nkind = \"tcp\"",
        "flow.video.name: two flows are called \"video\"; call one of them something else",
    ),
    ("kind = \"tcp\"", "type = \"tcp\"", "did you mean \"kind\"?"),
    ("kind = \"tcp\"", "kind = \"tcp\"\ncongestion_control = \"cubic\"", "did you mean \"congestion\"?"),
    ("[[flow]]\nname = \"tcp\"", "[flow]\nname = \"tcp\"", "write [[flow]] each time, with two brackets"),
    ("[[event]]\n", "[event]\n", "event: a table where a list of them stands; write [[event]]"),
    ("[[expect]]\n", "[expect]\n", "write [[expect]]"),
    (
        "that = \"flows.tcp.share_of_fair\"",
        "that = \"flows.video.rate_score\"",
        "did you mean \"flows.video.receivers.r1.rate_score\"?",
    ),
    (
        "that = \"flows.tcp.share_of_fair\"",
        "that = \"flows.video.psnr\"",
        "did you mean \"flows.video.receivers.r1.psnr_db.raw.y\"?",
    ),
    (
        "that = \"flows.tcp.share_of_fair\"",
        "that = \"flows.video.delay\"",
        "did you mean \"flows.video.receivers.r1.delay_ms.p95\"?",
    ),
    (
        "that = \"flows.tcp.share_of_fair\"",
        "that = \"flows.video.loss_frac\"",
        "did you mean \"flows.video.receivers.r1.loss_frac\"?",
    ),
    ("that = \"flows.tcp.share_of_fair\"", "metric = \"flows.tcp.share_of_fair\"", "did you mean \"that\"?"),
    ("duration = \"80s\"", "duration = 80", "duration: 80 is not a time; write its unit, as \"80s\" or \"80ms\""),
    ("duration = \"80s\"", "length = \"80s\"", "length: no such key; did you mean \"duration\"?"),
];

#[test]
fn a_short_form_is_what_its_long_form_is() {
    let read = |good: &str, other: &str| {
        assert!(GOOD.contains(good), "{good}");
        Scenario::parse(&GOOD.replacen(good, other, 1), Path::new("bad.toml"))
            .unwrap_or_else(|p| panic!("{other}: {p}"))
    };
    for (good, short, long) in SHORT {
        let (short, long) = (read(good, short), read(good, long));
        assert_eq!(short.scenario, long.scenario, "{good}");
        let again = Scenario::parse(&short.resolved_toml(), Path::new("bad.toml")).unwrap_or_else(|p| panic!("{p}"));
        assert_eq!(again.scenario, long.scenario, "{good}");
    }
}

#[test]
fn each_of_these_mistakes_is_answered_in_one_line_with_its_place_and_remedy() {
    let mut wrong = Vec::new();
    for (good, bad, expected) in ONE_LINE {
        assert!(GOOD.contains(good), "{good}");
        let said = check(&GOOD.replacen(good, bad, 1)).expect_err(bad).to_string();
        if said.lines().count() != 1 || !said.starts_with("bad.toml:") || !said.contains(expected) {
            wrong.push(format!("{bad}\n    {said}"));
        }
    }
    let shape = "duration = \"9s\"\n[topology]\nshape = \"wifi\"\nbottleneck = { rate = \"1Mbps\" }\n\
                 [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\n[[flow]]\nname = \"tcp\"\n\
         kind = \"tcp\"\n";
    for (text, expected) in [
        (shape.to_owned(), "topology.shape: \"wifi\" is not one of its values; choose from: dumbbell"),
        (shape.replace("\"wifi\"", "\"dumbbell\"").replace("\"tcp\"\nkind", "\"video\"\nkind"), "two flows are called"),
        (shape.replace("\"wifi\"", "\"dumbell\""), "did you mean \"dumbbell\"?"),
        (shape.replace("\"wifi\"", "\"dumbbell\"").replace("[[flow]]", "[flow]"), "write [[flow]] each time"),
    ] {
        let said = check(&text).expect_err(&text).to_string();
        if said.lines().count() != 1 || !said.contains(expected) {
            wrong.push(format!("{text}\n    {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ONE_LINE.len() + 4 >= 40);
}

#[test]
fn a_clip_that_the_command_line_names_is_played_whatever_the_file_s_media_is() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clip-set");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mine.mkv"), b"any").unwrap();
    let file = folder.join("a.toml");
    std::fs::write(&file, GOOD.replacen("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"synthetic\"", 1))
        .unwrap();
    let played = |sets: &[&str]| {
        let mut document = Document::read(&file).unwrap();
        for set in sets {
            document.set(set).unwrap();
        }
        document.check().map(|loaded| loaded.resolved_toml())
    };
    assert!(played(&["flow.video.clip=mine.mkv"]).unwrap().contains("mine.mkv"));
    let both = ["flow.video.clip=mine.mkv", "flow.video.media=synthetic"];
    assert!(played(&both).unwrap_err().to_string().contains("a clip beside media = \"synthetic\""));
}

fn check(text: &str) -> Result<(), Problems> {
    Document::parse(text, Path::new("bad.toml"))?.check().map(|_| ())
}

#[test]
fn the_table_of_bad_files_says_where_what_and_what_instead() {
    assert!(check(GOOD).is_ok(), "{}", check(GOOD).unwrap_err());
    let mut table = String::new();
    for (good, bad) in WRONG {
        assert!(GOOD.contains(good), "{good}");
        let said = match check(&GOOD.replacen(good, bad, 1)) {
            Ok(()) => panic!("nothing wrong found with {bad:?} for {good:?}"),
            Err(problems) => problems,
        };
        for problem in &said.0 {
            let complete = problem.line.is_some() && !problem.what.is_empty() && !problem.remedy.is_empty();
            assert!(complete && (!problem.key.is_empty() || problem.what.starts_with("not TOML")), "{problem:?}");
        }
        table.push_str(&format!(
            "{}\n",
            if bad.is_empty() { format!("(without) {good}") } else { bad.replace('\n', " ⏎ ") }
        ));
        let folder = std::path::absolute(".").unwrap().display().to_string();
        let controllers: Vec<_> = registry::ALL.iter().map(|c| c.name).collect();
        // These texts differ between machines or grow with the registry.
        let said = said.to_string().replace(&folder, "FOLDER").replace(&controllers.join(", "), "CONTROLLERS");
        for line in said.lines() {
            table.push_str(&format!("    {line}\n"));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let other = kept.lines().zip(table.lines()).find(|(kept, now)| kept != now);
    assert_eq!(other, None, "UPDATE_SNAPSHOTS=1 writes the table anew");
    assert_eq!(kept.lines().count(), table.lines().count());
}

#[test]
fn what_is_allowed_but_hardly_meant_is_a_warning() {
    let warned = |good: &str, other: &str| {
        let loaded = Scenario::parse(&GOOD.replacen(good, other, 1), Path::new("bad.toml"));
        loaded.unwrap_or_else(|p| panic!("{p}")).warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        warned("at = \"50s\"", "at = \"90s\""),
        ["bad.toml:36: event[1].at: after the end at 80s; it will never happen"]
    );
    assert_eq!(
        warned("flows.tcp.share_of_fair", "emulation.late_frac"),
        ["bad.toml:39: expect[1].that: only emulated runs have \"emulation.late_frac\"; it fails in others"]
    );
    assert_eq!(warned("min = 0.8", "min = 0.8").len(), 0);
    for (controller, warns) in [("gcc", 1), ("lda-plus", 1), ("tfrc", 0), ("steady", 0)] {
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"1Mbps\" }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{controller}\"\necn = \"ect0\"\n"
        );
        let loaded = Scenario::parse(&text, Path::new("ecn.toml")).unwrap_or_else(|p| panic!("{p}"));
        let said: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), warns, "{controller}: {said:?}");
        assert!(said.iter().all(|warning| warning.starts_with("ecn.toml:9: flow.video.ecn")), "{said:?}");
    }
}

#[test]
fn a_rate_that_nothing_limits_is_a_warning() {
    let said = |flow: &str| {
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"5Mbps\" }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\n{flow}\n"
        );
        let loaded = Scenario::parse(&text, Path::new("w.toml")).unwrap_or_else(|p| panic!("{p}"));
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let cap = "w.toml:8: flow.video.controller: \"fixed\" of greedy media sends at 1Gbps, whatever arrives; \
               write for example cap = \"2Mbps\"";
    assert_eq!(said("media = \"greedy\""), [cap]);
    for limited in ["cap = \"1Mbps\"", "params.fixed = { rate = \"1Mbps\" }"] {
        assert_eq!(said(&format!("media = \"greedy\"\n{limited}")), [""; 0], "{limited}");
    }
    assert_eq!(said(""), [""; 0], "an encoder limits it");
}

#[test]
fn a_stop_before_the_start_that_an_event_makes_is_said_and_a_pause_is_not() {
    let warned = |start: &str| {
        let text = format!(
            "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"1Mbps\" }}\n\
             [[flow]]\nname = \"a\"\nkind = \"tcp\"\n{start}\n\
             [[event]]\nat = \"5s\"\nstop = \"a\"\n[[event]]\nat = \"10s\"\nstart = \"a\"\n"
        );
        let loaded = Scenario::parse(&text, Path::new("bad.toml")).unwrap_or_else(|p| panic!("{p}"));
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        warned(""),
        ["bad.toml:9: event[1]: \"a\" is stopped before it runs: its first start is at 10s; \
          write start = \"0s\" in the flow, if it is to run, pause and go on"]
    );
    assert_eq!(warned("start = \"0s\"").len(), 0);
}

#[test]
fn a_number_and_a_key_of_any_length_are_answered_in_a_line() {
    let long = "7".repeat(5_000);
    let values =
        [long.clone(), format!("\"{long}s\""), format!("1e{long}")].map(|value| format!("duration = {value}\n"));
    for text in values.into_iter().chain([format!("[[flow]]\nname = \"{long}\"\n"), format!("{long} = 1\n")]) {
        let said = Scenario::parse(&text, Path::new("bad.toml")).unwrap_err().to_string();
        assert!(said.lines().all(|line| line.len() < 1_000), "{said}");
    }
}

#[test]
fn files_that_are_no_texts_are_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-texts");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("latin1.toml");
    std::fs::write(&file, b"duration = \"1s\"\n# caf\xe9\n").unwrap();
    let said = |path: &Path| Scenario::read(path).map(|_| ()).unwrap_err().to_string();
    assert!(said(&file).ends_with("latin1.toml:2: not a text in UTF-8; save it as UTF-8"), "{}", said(&file));
    assert!(said(&folder).contains("is not a file"));
    assert!(said(&folder.join("none.toml")).contains("can't be read"));
    let large = folder.join("large.toml");
    std::fs::write(&large, "#".repeat((4 << 20) + 1)).unwrap();
    assert!(said(&large).contains("at most 4 MiB"));
}

#[test]
fn deep_and_long_texts_are_answered_and_not_died_of() {
    for text in [
        format!("{}a = 1", "a.".repeat(500_000)),
        format!("[{}a]", "a.".repeat(500_000)),
        format!("a = {}", "[".repeat(500_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        "[[flow]]\n".repeat(20_000),
        format!("nodes = [{}]", "\"r[1-200000]\",".repeat(1000)),
    ] {
        let problems = check(&text).unwrap_err();
        assert!((1..=100).contains(&problems.0.len()));
    }
    let mut json = serde_json::json!({});
    for _ in 0..100 {
        json = serde_json::json!({ "a": json });
    }
    assert!(Scenario::from_json(&json, Path::new("j")).is_err());
}
