//! The GStreamer element `rtpsteadycastbwe`: Steadycast's rate controllers right before `rtpsession`, on transport-wide
//! feedback.
//!
//! It paces what passes through it and says in `estimated-bitrate` what the encoder may produce, with the names of
//! properties that `rtpgccbwe` has. docs/gstreamer.md has pipelines.

mod bwe;
mod feedback;
mod pacing;

use gstreamer::glib;
use gstreamer::prelude::*;

glib::wrapper! {
    /// The element.
    pub struct RtpSteadycastBwe(ObjectSubclass<bwe::Bwe>) @extends gstreamer::Element, gstreamer::Object;
}

/// Makes the element known.
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
    // GStreamer knows a list of words; this is the MIT licence's, one of the two.
    "MIT/X11",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY"),
    env!("BUILD_REL_DATE")
);
