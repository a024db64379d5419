//! The GStreamer element `rtpsteadycastbwe`, which runs Steadycast's rate controllers directly before `rtpsession`,
//! with transport-wide feedback.
//!
//! It paces the packets that pass through it. Its property `estimated-bitrate` is the rate that the encoder may
//! produce. The properties have the same names as those of `rtpgccbwe`. docs/gstreamer.md has pipelines.

mod bwe;
mod feedback;
mod source;

use gstreamer::glib;
use gstreamer::prelude::*;

glib::wrapper! {
    /// The element.
    pub struct RtpSteadycastBwe(ObjectSubclass<bwe::Bwe>) @extends gstreamer::Element, gstreamer::Object;
}

/// Registers the element.
///
/// # Errors
/// GStreamer refuses it.
pub fn register(plugin: Option<&gstreamer::Plugin>) -> Result<(), glib::BoolError> {
    gstreamer::Element::register(plugin, "rtpsteadycastbwe", gstreamer::Rank::NONE, RtpSteadycastBwe::static_type())
}

fn plugin_init(plugin: &gstreamer::Plugin) -> Result<(), glib::BoolError> {
    register(Some(plugin))
}

gstreamer::plugin_define!(
    steadycast,
    env!("CARGO_PKG_DESCRIPTION"),
    plugin_init,
    env!("CARGO_PKG_VERSION"),
    // GStreamer accepts only names from a fixed list. This is one of the project's two licences.
    "MIT/X11",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY"),
    env!("BUILD_REL_DATE")
);
