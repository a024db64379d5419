//! Tells the plug-in its version and date.

fn main() {
    gst_plugin_version_helper::info();
}
