"""An erasure: withdraw, judge, prove or roll back, rebuild, delete, report."""
