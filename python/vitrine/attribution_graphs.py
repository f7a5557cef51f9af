"""Attribution graphs through transcoders: the direct effects within one prompt's run, as in circuit-tracer."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ._vitrine import Graph, TranscoderSet, make_transcoder_set, read_transcoders
from .arrays import Bools, Doubles, Floats
from .autoencoders import SparseAutoencoder
from .batches import Prompt
from .drawing import Dot, node_graph
from .errors import InputError
from .opened import OpenedModel
from .whole_numbers import INT32, INT64, within


class Transcoders:
    """A transcoder for each layer of a model, made by load_transcoders()."""

    def __init__(self, read: TranscoderSet) -> None:
        self._read = read
        self.name: str = read.name
        self.n_layers: int = read.n_layers
        self.cross_layer: bool = read.cross_layer
        self.d_sae: int = read.d_sae

    @classmethod
    def of(cls, layers: Sequence[SparseAutoencoder], name: str = "transcoders") -> Transcoders:
        """From one transcoder for each layer, in any order; their hooks determine their layers."""
        return cls(make_transcoder_set([layer._read for layer in layers], name))

    def __repr__(self) -> str:
        kind = "a cross-layer transcoder" if self.cross_layer else "transcoders"
        return f"<vitrine.Transcoders {self.name}: {kind} of {self.n_layers} layers>"


def load_transcoders(path: str | os.PathLike[str]) -> Transcoders:
    """Reads a folder with a transcoder for each layer: circuit-tracer's files (layer_0.safetensors, …, or those of a cross-layer
    transcoder), or folders of SAELens's or Gemma Scope's transcoders.

    Raises FileError naming the file, and the layer that is missing or duplicated.
    """
    return Transcoders(read_transcoders(os.fsencode(path)))


@dataclasses.dataclass(frozen=True)
class GraphNode:
    """A node: a feature, an error (the part that a transcoder does not explain), a token or a logit."""

    kind: Literal["feature", "error", "token", "logit"]
    position: int
    layer: int | None = None  # of features and errors
    feature: int | None = None  # its number
    token: int | None = None  # the id of a token or logit
    value: float | None = None  # of a feature; the probability of a logit


@dataclasses.dataclass(frozen=True)
class PrunedGraph:
    """The result of prune(). Numbers are indices into AttributionGraph.nodes."""

    node_mask: Bools  # [nodes], bool
    edges: list[tuple[int, int, float]]  # (source, target, effect)
    influence: Doubles  # [nodes]
    cumulative_scores: Doubles  # [nodes]: the share of all influence that it and the nodes above it have
    document: dict[str, Any]  # what circuit-tracer's viewer opens

    @property
    def edge_mask(self) -> Bools:
        """[target, source], bool: the remaining edges."""
        mask = np.zeros((len(self.node_mask),) * 2, bool)
        for source, target, _ in self.edges:
            mask[target, source] = True
        return mask

    def __repr__(self) -> str:
        return f"<pruned graph: {int(self.node_mask.sum())} of {len(self.node_mask)} nodes, {len(self.edges)} edges>"

    def _repr_html_(self) -> str:
        """Positions beside each other, layers above each other; of more than 400 edges the strongest."""
        pieces, nodes = self.document["metadata"]["prompt_tokens"], self.document["nodes"]
        layers = max((int(node["layer"]) - 1 for node in nodes if node["feature_type"] == "logit"), default=0)
        number = {node["node_id"]: i for i, node in enumerate(nodes)}
        in_cell = Counter((node["ctx_idx"], node["layer"]) for node in nodes)
        before: Counter[tuple[int, str]] = Counter()
        dots = []
        for node in nodes:
            cell = node["ctx_idx"], node["layer"]
            beside = (before[cell] - (in_cell[cell] - 1) / 2) * min(0.16, 0.8 / in_cell[cell])
            before[cell] += 1
            reached = node["influence"]
            dots.append(Dot(node["ctx_idx"] + beside, 0 if node["layer"] == "E" else 1 + min(int(node["layer"]), layers),
                            node["clerp"] or f"{node['feature_type']} {node['jsNodeId']}", node["token_prob"] if reached is None else 1 - reached))
        links = sorted(self.document["links"], key=lambda link: -abs(link["weight"]))[:400]
        edges = [(number[link["source"]], number[link["target"]], float(link["weight"])) for link in links]
        return node_graph(dots, edges, pieces, ["token", *(f"L{layer}" for layer in range(layers)), "logit"])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The document as text, also written to `path`. A folder gets <slug>.json and graph-metadata.json, the list that
        circuit-tracer's viewer shows.
        """
        text = json.dumps(self.document, indent=2, ensure_ascii=False) + "\n"
        if path is None:
            return text
        if not os.path.isdir(path):
            _write(Path(path), text)
            return text
        metadata = self.document["metadata"]
        _write(Path(path) / f"{metadata['slug']}.json", text)
        listed = Path(path) / "graph-metadata.json"
        graphs = json.loads(listed.read_text(encoding="utf-8"))["graphs"] if listed.exists() else []
        graphs = [graph for graph in graphs if graph["slug"] != metadata["slug"]]
        _write(listed, json.dumps({"graphs": [*graphs, metadata]}, indent=2, ensure_ascii=False) + "\n")
        return text


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


class AttributionGraph:
    """Made by Model.attribution_graph(). Nodes are in circuit-tracer's order: selected features, errors [layer, position], tokens,
    logits.

    effects [features + logits, nodes]   rows are targets: what each node adds to a feature's value before its activation, or to a
                                         logit minus the mean of all logits
    active_features [n, 3]               (layer, position, feature) of all active features; activation_values [n]
    selected_features                    indices into them of those that are nodes
    input_tokens, logit_tokens, logit_probabilities
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        active = graph.active
        self.active_features = np.array([place[:3] for place in active], np.int64).reshape(-1, 3)
        self.activation_values = np.array([place[3] for place in active], np.float32)
        self.selected_features = np.array(graph.selected, np.int64)
        self.input_tokens = np.array(graph.tokens, np.int64)
        self.prompt: str = graph.prompt
        self.n_layers: int = graph.n_layers
        logits = graph.logits
        self.logit_tokens = np.array([token for token, _, _ in logits], np.int64)
        self.logit_probabilities = np.array([p for _, _, p in logits], np.float64)
        self.effects: Floats = graph.effects

    def __repr__(self) -> str:
        return f"<vitrine.AttributionGraph of {self.prompt!r}: {self.effects.shape[1]} nodes>"

    def _repr_html_(self) -> str:
        return self.prune()._repr_html_()

    @property
    def adjacency(self) -> Floats:
        """[target, source] over all nodes; rows of errors and tokens are zeros. Computed again on each access."""
        features, n = len(self.selected_features), self.effects.shape[1]
        full = np.zeros((n, n), np.float32)
        full[:features] = self.effects[:features]
        full[n - len(self.logit_tokens):] = self.effects[features:]
        return full

    @property
    def nodes(self) -> list[GraphNode]:
        positions, last = len(self.input_tokens), len(self.input_tokens) - 1
        nodes = []
        for place in self.selected_features:
            layer, position, feature = self.active_features[place].tolist()
            nodes.append(GraphNode("feature", position, layer, feature, value=float(self.activation_values[place])))
        nodes += [GraphNode("error", position, layer) for layer in range(self.n_layers) for position in range(positions)]
        nodes += [GraphNode("token", position, token=int(token)) for position, token in enumerate(self.input_tokens)]
        return nodes + [GraphNode("logit", last, token=int(token), value=float(p))
                        for token, p in zip(self.logit_tokens, self.logit_probabilities)]

    def scores(self) -> tuple[float, float]:
        """(replacement score, completeness score): how much of the computation the features explain, each from 0 to 1."""
        replacement, completeness = self._graph.scores()
        return replacement, completeness

    def prune(self, node_threshold: float = 0.8, edge_threshold: float = 0.98, slug: str = "graph") -> PrunedGraph:
        """The nodes with the largest influence on the logits that together have node_threshold of it, and the edges between them that
        carry edge_threshold. slug: the graph's name in the document.

        Raises InputError for thresholds outside 0 to 1.
        """
        if not slug or slug.startswith(".") or any(c in slug for c in "/\\"):
            raise InputError(f"slug is {slug!r}; it names a file, so it may hold no slash and not begin with a point")
        nodes, edges, influence, reached, document = self._graph.prune(float(node_threshold), float(edge_threshold), slug)
        mask = np.zeros(len(influence), bool)
        mask[nodes] = True
        return PrunedGraph(mask, edges, np.array(influence), np.array(reached), json.loads(document))


def attribution_graph(
    model: OpenedModel, prompt: Prompt, transcoders: Transcoders | Sequence[SparseAutoencoder] | str | os.PathLike[str], *,
    max_features: int = 7500, max_logits: int = 10, logit_share: float = 0.95, targets: Sequence[int | str] = (),
    ignored_positions: int = 1, ranked_together: int = 2048, memory: int = 0,
) -> AttributionGraph:
    """The direct effects of features, unexplained parts of MLPs and tokens on features and on the most likely logits, with attention
    patterns and norm scales frozen: circuit-tracer's attribute().

    prompt             a text, which gets BOS (or another control token) before it, or ids, which are used unchanged
    transcoders        load_transcoders(…), its path, or one transcoder for each layer
    max_features       maximum features that become nodes, those with the largest influence, ranked again after `ranked_together`
    max_logits, logit_share  the most likely tokens until their probabilities add up to the share
    targets            these tokens' logits instead: ids, or texts of one token
    ignored_positions  at the beginning (BOS), whose features and errors are not in the graph
    memory             maximum bytes for the effects; 0: the free memory

    Raises InputError if the transcoders do not fit the model, and for a graph that needs more memory.
    """
    read = _transcoders_of(transcoders)._read
    if isinstance(prompt, str):
        ids = np.array(model._session.graph_ids(model.to_tokens(prompt)[0]), np.int64)
    else:
        ids = model._one(prompt)
    wanted = [model.to_single_token(target) if isinstance(target, str) else within("targets", target, 0, INT32) for target in targets]
    return AttributionGraph(model._session.attribution_graph(
        read, ids, within("max_features", max_features, 1, INT64), within("max_logits", max_logits, 1, INT64), float(logit_share), wanted,
        within("ignored_positions", ignored_positions, 0, INT64), within("ranked_together", ranked_together, 1, INT64),
        within("memory", memory, 0, INT64)))


def _transcoders_of(given: Transcoders | Sequence[SparseAutoencoder] | str | os.PathLike[str]) -> Transcoders:
    if isinstance(given, Transcoders):
        return given
    if isinstance(given, (str, os.PathLike)):
        return load_transcoders(given)
    return Transcoders.of(list(given))
