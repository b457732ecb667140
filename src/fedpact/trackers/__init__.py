"""Runs in the tools where other runs are: `fp.solve(..., watch=fp.trackers.MLflow())`. Each needs its library, an extra."""

from fedpact.trackers.base import Tracker
from fedpact.trackers.mlflow_tracker import MLflow
from fedpact.trackers.tensorboard_tracker import TensorBoard

__all__ = ["MLflow", "TensorBoard", "Tracker"]
