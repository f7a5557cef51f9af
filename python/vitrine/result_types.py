"""The types of results that are dicts. Written by the test ResultTypes.OfPythonAreThoseOfTheCode."""

from __future__ import annotations

from typing import TypedDict

from .arrays import Complexes, Doubles


class TokenLogprob(TypedDict):
    token: int
    piece: str | None
    logprob: float
    prob: float


class Spectrum(TypedDict):
    rank: int
    frobenius: float
    singular_values: Doubles


class HeadSpectra(TypedDict):
    layer: int
    head: int
    copying: float
    eigenvalues: Complexes
    qk: Spectrum
    ov: Spectrum


class Composition(TypedDict):
    from_layer: int
    from_head: int
    to_layer: int
    to_head: int
    q: float
    k: float
    v: float


class CircuitTable(TypedDict):
    heads: list[HeadSpectra]
    composition: list[Composition]


class ComparedModel(TypedDict):
    model: str
    dtypes: list[str]


class StreamDifference(TypedDict):
    point: str
    layer: int | None
    cosine: float
    distance: float
    worst_position: int
    relative: float
    attention_mean: float
    attention_most: float
    attention_head: int
    attention_query: int


class PredictionDifference(TypedDict):
    position: int
    kl: float
    a: TokenLogprob
    b: TokenLogprob


class ModelComparison(TypedDict):
    a: ComparedModel
    b: ComparedModel
    threshold: float
    first_beyond: str | None
    kl_mean: float
    kl_most: float
    same_top: float
    layers: list[StreamDifference]
    predictions: list[PredictionDifference]
