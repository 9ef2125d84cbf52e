"""The nodes of a job of the guide, as pods or as processes of one machine."""
