"""A file of events as TensorBoard's own writer makes it: events.tfevents.

usage: make.py   (tensorboard 2.x)
"""
import pathlib
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

with open(pathlib.Path(__file__).with_name("events.tfevents"), "wb") as file:
    writer = RecordWriter(file)
    writer.write(Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString())
    for step, values in [(0, {"val_loss": 5.5}), (300, {"loss": 2.25, "layer_grad_norm/blocks.0": -1e-3}), (1 << 40, {"lr": 0.0})]:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=x) for tag, x in values.items()])
        writer.write(Event(wall_time=1.7e9 + step / 8, step=step, summary=summary).SerializeToString())
