//! The claims of this crate, on two logs of Chromium's, captures and calls over a made-up queue.

mod datagrams;
mod files;
mod paths;
