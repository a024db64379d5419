//! The C library, called from C, from C++, and with invalid arguments.

#![allow(unsafe_code, clippy::unwrap_used, reason = "the tests call as C does")]

mod calls;
mod programs;

use std::ffi::{CString, c_char};
use steadycast::{STEADYCAST_ABI, SteadycastBounds, SteadycastRemote, steadycast_new};

/// Bounds as the header's macro makes them.
fn bounds(floor: u64, cap: u64) -> SteadycastBounds {
    SteadycastBounds {
        size: size_of::<SteadycastBounds>(),
        floor_bps: floor,
        cap_bps: cap,
        packet_bytes: 1_200,
        ecn: 0,
        probes: 0,
        seed: 0,
        late: 0,
        interval_ms: 0,
        acknowledged: 0,
    }
}

/// Makes a controller as C would, or returns the library's error.
fn new(abi: u32, controller: &[u8], params: &str, bounds: &SteadycastBounds) -> Result<*mut SteadycastRemote, String> {
    let (name, params) = (CString::new(controller).unwrap(), CString::new(params).unwrap());
    let mut error = [0 as c_char; 256];
    // SAFETY: all pointers are of this frame.
    let made = unsafe { steadycast_new(abi, name.as_ptr(), params.as_ptr(), bounds, error.as_mut_ptr(), error.len()) };
    if made.is_null() { Err(text(&error)) } else { Ok(made) }
}

/// Makes a controller with bounds of 100 kb/s and 10 Mb/s.
fn made(controller: &str, params: &str) -> *mut SteadycastRemote {
    new(STEADYCAST_ABI, controller.as_bytes(), params, &bounds(100_000, 10_000_000)).unwrap()
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8(bytes).unwrap()
}
