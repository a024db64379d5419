"""The lab: a local page that has sliders for a scenario's values and shows the results immediately."""
