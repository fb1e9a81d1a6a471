"""The privacy account: what happened (`events`) is kept apart from what it cost (`accountants`).

`calibration` finds the noise for a figure, `budget` says when training must stop. The mathematics is in `gaussian`
(exact), `sampling` (by `dp-accounting`) and `theorem` (the paper's, as printed).
"""
