"""The lab: a local page on which a scenario's values are moved and what comes of them is seen at once."""
