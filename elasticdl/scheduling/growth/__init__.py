"""Growth of running jobs: towards target sizes where speed is measured, by fair shares where it is not."""
