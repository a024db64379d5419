//! Tests this crate with two event logs of Chromium, with captures, and with calls over a modelled queue.

mod datagrams;
mod files;
mod paths;
