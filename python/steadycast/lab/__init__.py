"""The lab: a local page with sliders for a scenario's values, which shows the results immediately."""
