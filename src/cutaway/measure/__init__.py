"""What a number means: metrics, splits, thresholds, baselines, intervals, calibration."""
