//! Compares this project's sender with a bare loop that waits for a timer and calls `send`. Both send at the same rate
//! to a port on this machine that nobody reads. `pace bare|ours RATE_MBPS SECONDS` prints one line of JSON.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures the machine, and may stop")]

use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Given, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_endpoints::VideoSource;
use steadycast_live::{Clock, Loop, Pair, PairOptions, Payloads, SocketSource};
use steadycast_session::{Identity, Media, Profile, RtcpSettings, SenderSettings};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};

const PACKET: u64 = 1_000;

fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Returns how far the gaps between `times` deviate from `gap`, as the median and the 99th percentile in µs.
fn errors(times: &[u64], gap: f64) -> (f64, f64) {
    let mut off: Vec<f64> = times.windows(2).map(|w| ((w[1] - w[0]) as f64 - gap).abs() / 1e3).collect();
    off.sort_by(f64::total_cmp);
    let at = |q: f64| off.get((off.len() as f64 * q) as usize).copied().unwrap_or(f64::NAN);
    (at(0.5), at(0.99))
}

fn bare(to: SocketAddr, gap: u64, seconds: u64) -> Vec<u64> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
    let spec = Timespec { tv_sec: 0, tv_nsec: gap as i64 };
    let every = Itimerspec { it_interval: spec, it_value: spec };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every).unwrap();
    let clock = Clock::start();
    let (packet, mut times, mut ticks) = ([0; PACKET as usize - 28], Vec::new(), [0; 8]);
    while clock.now() < Time::ZERO + Span::secs(seconds) {
        rustix::io::read(&timer, &mut ticks).unwrap();
        for _ in 0..u64::from_ne_bytes(ticks) {
            let _ = socket.send(&packet);
            times.push(clock.now().as_nanos());
        }
    }
    times
}

/// Writes payloads of zeros and records when each packet is sent.
struct Noted(Clock, Arc<std::sync::Mutex<Vec<u64>>>);

impl Payloads for Noted {
    fn write(&mut self, media: &Media, out: &mut Vec<u8>) {
        self.1.lock().unwrap().push(self.0.now().as_nanos());
        out.resize(out.len() + usize::from(media.header.payload_len), 0);
    }
}

fn ours(to: SocketAddr, rate: Rate, seconds: u64) -> Vec<u64> {
    let clock = Clock::start();
    let given: Vec<(String, Given)> = vec![("rate".into(), Given::Text(format!("{}bps", rate.as_bps())))];
    let factory = Chosen::shared("fixed", Mode::Repaired, &given).unwrap();
    let rtcp = RtcpSettings::new(Profile::Rfc3550, Rate::mbps(2));
    let settings = SenderSettings {
        credit: Span::millis(4),
        greedy: true,
        epoch: clock.epoch(),
        ..SenderSettings::new(
            Identity { ssrc: 7, cname: "sender".into() },
            rtcp,
            Bytes::new(PACKET),
            factory.terms().app,
        )
    };
    let setup = Setup {
        packet: Bytes::new(PACKET),
        mode: Mode::Repaired,
        floor: Rate::ZERO,
        cap: Rate::mbps(100_000),
        capped: true,
        session_bandwidth: Rate::mbps(2),
        group: false,
        id: ReceiverId(7),
        chance: Seed(1).part("half"),
        pictures: None,
        ecn: Ecn::NotEct,
        probes: true,
    };
    let source = VideoSource::new(settings, factory, setup, None, false, Seed(1).part("rtcp"), Time::ZERO);
    let times = Arc::new(std::sync::Mutex::new(Vec::new()));
    let source = SocketSource::new(source, Box::new(Noted(clock, Arc::clone(&times))));
    let mut driver = Loop::new(clock).unwrap();
    let ix = driver.add(source, Pair::sender(to, &PairOptions::default()).unwrap()).unwrap();
    driver.call(ix, SocketSource::start);
    driver.run(Time::ZERO + Span::secs(seconds), |_| true).unwrap();
    std::mem::take(&mut times.lock().unwrap())
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, who, mbps, seconds] = &words[..] else {
        eprintln!("pace bare|ours RATE_MBPS SECONDS");
        std::process::exit(2);
    };
    let (rate, seconds) = (Rate::bps((mbps.parse::<f64>().unwrap() * 1e6) as u64), seconds.parse().unwrap());
    // Bind the port, so that datagrams to it are not rejected. They are never read.
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _reports = UdpSocket::bind(("127.0.0.1", listener.local_addr().unwrap().port() + 1));
    let to = listener.local_addr().unwrap();
    let gap = Bytes::new(PACKET).at(rate).as_nanos();
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).unwrap();
    let before = cpu_seconds();
    let times = if who == "bare" { bare(to, gap.max(1), seconds) } else { ours(to, rate, seconds) };
    let used = cpu_seconds() - before;
    let (p50, p99) = errors(&times, gap as f64);
    println!(
        "{{\"who\":\"{who}\",\"mbps\":{mbps},\"packets\":{},\"cpu_s_per_million\":{:.2},\
         \"gap_error_us\":{{\"p50\":{p50:.1},\"p99\":{p99:.1}}}}}",
        times.len(),
        used / times.len() as f64 * 1e6,
    );
}
