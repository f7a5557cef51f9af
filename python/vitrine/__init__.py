"""vitrine runs transformer language models and shows every intermediate.

>>> import vitrine
>>> model = vitrine.load()  # the shipped model; or a Hugging Face directory, a .gguf file, an id in the local cache
>>> model.predict("Once upon a time")[-1].top[0].piece
'▁there'
>>> logits, cache = model.run_with_cache("Once upon a time")
>>> cache["pattern", 0].shape
(1, 4, 5, 5)

docs/python.md shows the rest. Names and conventions are those of TransformerLens; values are NumPy arrays.
"""

from . import head_detector, metrics, patching
from ._vitrine import TextStream, Tokenizer
from ._vitrine import version as __version__
from .arrays import Floats, Ids
from .attribution_graphs import AttributionGraph, Transcoders, load_transcoders
from .autoencoders import SparseAutoencoder, load_sae, train_sae
from .cache import ActivationCache
from .collecting import Activations
from .curves import TrainingCurves
from .editing import EditableWeight, Weights
from .errors import Error, FileError, InputError, MissingFileError, RunError, ShapeError, UsageError
from .factored_matrix import FactoredMatrix
from .hook_backward import torch_hook
from .hook_functions import HookPoint, get_act_name
from .merging import merge, merge_plan
from .model import Model, load
from .program import run, train
from .results import (
    AttentionPatterns, Attribution, Config, Effects, Generation, Generations, Hypothesis, NextToken, Prediction, Predictions, TokenLosses,
)
from .running import KeyValueCache

__all__ = [
    "ActivationCache", "Activations", "AttentionPatterns", "Attribution", "AttributionGraph", "Config", "EditableWeight",
    "Effects", "Error", "FactoredMatrix", "FileError", "Floats", "Generation", "Generations", "HookPoint", "Hypothesis", "Ids",
    "InputError", "KeyValueCache", "MissingFileError", "Model", "NextToken", "Prediction", "Predictions", "RunError", "ShapeError",
    "SparseAutoencoder", "TextStream", "TokenLosses", "Tokenizer", "TrainingCurves", "Transcoders", "UsageError", "Weights",
    "__version__", "get_act_name", "head_detector", "load", "load_sae", "load_transcoders", "merge", "merge_plan", "metrics", "patching", "run", "torch_hook",
    "train", "train_sae",
]
