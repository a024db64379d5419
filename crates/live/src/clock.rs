#![allow(clippy::disallowed_methods, reason = "this is the only file that reads the clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use steadycast_units::Time;
use steadycast_wire::ntp::NtpEpoch;

/// A monotonic clock that starts at zero when it is created. Copies share this zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall: Duration,
}

impl Clock {
    /// Creates a clock whose time zero is now.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), wall }
    }

    /// Creates a clock whose zero was an hour ago.
    #[cfg(test)]
    pub(crate) fn old() -> Self {
        let clock = Self::start();
        Self { start: clock.start.checked_sub(Duration::from_secs(3_600)).unwrap_or(clock.start), ..clock }
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the clock's zero.
    pub const fn zero(&self) -> Instant {
        self.start
    }

    /// Converts a time to an instant.
    pub fn instant(&self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.as_nanos())
    }

    /// Converts an instant to this clock's time. An instant before the clock's zero becomes zero.
    pub fn time(&self, instant: Instant) -> Time {
        let since = instant.saturating_duration_since(self.start).as_nanos();
        Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Returns the wall-clock time of the clock's zero, for NTP timestamps.
    pub fn epoch(&self) -> NtpEpoch {
        let fraction = (u64::from(self.wall.subsec_nanos()) << 32) / 1_000_000_000;
        let whole = NtpEpoch::from_unix_secs(self.wall.as_secs());
        NtpEpoch(whole.0.wrapping_add(fraction))
    }

    /// Converts a wall-clock time, such as the kernel's receive timestamp. Returns `None` if it is in the future or at
    /// least a second ago. Reads both clocks at each call, because the wall clock may have been set meanwhile.
    pub fn of_wall(&self, stamp: Duration) -> Option<Time> {
        let now = self.now();
        let age = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.checked_sub(stamp)?;
        let age = u64::try_from(age.as_nanos()).ok().filter(|ns| *ns < 1_000_000_000)?;
        Some(Time::from_nanos(now.as_nanos().saturating_sub(age)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_stamp_of_just_now_is_a_time_between_start_and_now() {
        let clock = Clock::start();
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let time = clock.of_wall(stamp).unwrap();
        assert!(time <= clock.now());
        assert_eq!(clock.of_wall(stamp + Duration::from_secs(60)), None, "of the future");
        assert_eq!(clock.of_wall(stamp.checked_sub(Duration::from_secs(60)).unwrap()), None, "of long ago");
    }

    #[test]
    fn the_epoch_is_the_wall_clocks_time_at_zero() {
        let clock = Clock::start();
        let ntp = clock.epoch().ntp(Time::ZERO);
        let seconds = (ntp >> 32) as f64 + (ntp & 0xffff_ffff) as f64 / 4_294_967_296.0 - 2_208_988_800.0;
        let wall = clock.wall.as_secs_f64();
        assert!((seconds - wall).abs() < 1e-3, "{seconds} against {wall}");
    }
}
