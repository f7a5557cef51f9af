"""Rates of schedules with restarts: schedule.json. transformers' cosine with hard restarts, which falls to 0, and torch's
CosineAnnealingWarmRestarts, which falls to a minimum.

usage: make_schedule.py   (torch 2.15.0, transformers 5.24.0)
"""
import json, pathlib
import torch
from transformers import get_cosine_with_hard_restarts_schedule_with_warmup

PEAK, MINIMUM, LENGTH, CYCLES = 1e-3, 1e-4, 64, 4


def rates(make, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    schedule, told = make(optimizer), []
    for _ in range(steps):
        told.append(optimizer.param_groups[0]["lr"])
        optimizer.step(), schedule.step()
    return told


told = {"peak": PEAK, "minimum": MINIMUM, "length": LENGTH, "cycles": CYCLES,
        "to_zero": rates(lambda o: get_cosine_with_hard_restarts_schedule_with_warmup(o, 0, LENGTH, CYCLES), LENGTH),
        "to_minimum": rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, LENGTH // CYCLES, eta_min=MINIMUM), LENGTH)}
pathlib.Path(__file__).with_name("schedule.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
