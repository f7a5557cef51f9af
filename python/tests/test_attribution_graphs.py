"""Attribution graphs: the calls, against circuit-tracer's numbers (tests/golden/attribution_graphs/make.py)."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model

FOLDER = GOLDEN / "attribution_graphs"


def read(case):
    """The tensors of a safetensors file, all float32."""
    data = (FOLDER / case / "graph.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    return {name: np.frombuffer(data[8 + length:][slice(*spec["data_offsets"])], np.float32).reshape(spec["shape"])
            for name, spec in header.items() if name != "__metadata__"}


class AttributionGraphs(Case):
    def test_values_are_those_of_circuit_tracer(self):
        for case, name, limits in (("gemma2", "gemma2", {}), ("gpt2_cross_layer", "gpt2_a", {}),
                                   ("gemma2_limited", "gemma2", {"max_features": 22, "ranked_together": 6})):
            gold = read(case)
            model = vitrine.load(golden_model(name))
            graph = model.attribution_graph(gold["tokens"].astype(int), vitrine.load_transcoders(FOLDER / case / "transcoders"), **limits)
            np.testing.assert_array_equal(graph.active_features, gold["active"])
            np.testing.assert_array_equal(graph.selected_features, gold["selected"])
            np.testing.assert_array_equal(graph.logit_tokens, gold["logit_tokens"])
            self.assert_close(graph.logit_probabilities, gold["probabilities"], 0)
            self.assert_close(graph.activation_values, gold["values"], 1e-5)
            largest = np.abs(gold["adjacency"]).max(axis=1, keepdims=True)
            self.assert_close(graph.effects / largest, gold["adjacency"] / largest, 1e-5)
            self.assert_close(graph.scores(), gold["scores"], 1e-4)
            pruned = graph.prune()
            np.testing.assert_array_equal(np.flatnonzero(pruned.node_mask), gold["at 0.8 0.98: nodes"])
            np.testing.assert_array_equal(np.argwhere(pruned.edge_mask), gold["at 0.8 0.98: edges"])
            self.assert_close(pruned.influence, gold["node_influence"], 1e-7)
            self.assert_close(pruned.cumulative_scores, gold["at 0.8 0.98: cumulative"], 1e-5)

            features, logits, full = len(gold["selected"]), len(gold["logit_tokens"]), graph.adjacency
            self.assertEqual(full.shape, (len(graph.nodes),) * 2)
            np.testing.assert_array_equal(full[:features], graph.effects[:features])
            np.testing.assert_array_equal(full[-logits:], graph.effects[features:])
            self.assertFalse(full[features:-logits].any())
            self.assertEqual([node.kind for node in graph.nodes].count("error"), model.cfg.n_layers * len(gold["tokens"]))
            first = graph.nodes[0]
            self.assertEqual([first.layer, first.position, first.feature], graph.active_features[graph.selected_features[0]].tolist())

    def test_the_viewers_files(self):
        model = vitrine.load(golden_model("gemma2"))
        tokens = read("gemma2")["tokens"].astype(int)
        pruned = model.attribution_graph(tokens, FOLDER / "gemma2" / "transcoders").prune(slug="tiny")
        expected = json.loads((FOLDER / "gemma2" / "graph.json").read_text(encoding="utf-8"))
        self.assertEqual(pruned.document["metadata"], expected["metadata"])
        self.assertEqual([node["node_id"] for node in pruned.document["nodes"]], [node["node_id"] for node in expected["nodes"]])
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):  # the list holds a graph once
                pruned.to_json(folder)
            self.assertEqual(json.loads((pathlib.Path(folder) / "tiny.json").read_text(encoding="utf-8")), pruned.document)
            listed = json.loads((pathlib.Path(folder) / "graph-metadata.json").read_text(encoding="utf-8"))
            self.assertEqual(listed, {"graphs": [expected["metadata"]]})
            self.assertEqual(sorted(path.name for path in pathlib.Path(folder).iterdir()), ["graph-metadata.json", "tiny.json"])

    def test_a_set_of_loaded_transcoders(self):
        model = vitrine.load(golden_model("gemma2"))
        folder = FOLDER / "gemma2" / "transcoders"
        layers = [vitrine.load_sae(folder / f"layer_{layer}.safetensors") for layer in (2, 0, 3, 1)]
        tokens = read("gemma2")["tokens"].astype(int)
        np.testing.assert_array_equal(model.attribution_graph(tokens, layers).effects, model.attribution_graph(tokens, folder).effects)
        with self.assert_says(vitrine.InputError, "there is a transcoder of layer 2, but only 2 in all"):
            model.attribution_graph(tokens, layers[:2])
        with self.assert_says(vitrine.InputError, "slug"):
            model.attribution_graph(tokens, layers).prune(slug="../x")
        with self.assert_says(vitrine.InputError, "1 token"):
            model.attribution_graph([5], layers)

    def test_a_text_begins_with_a_control_token(self):
        model = vitrine.load(golden_model("gpt2_a"))
        graph = model.attribution_graph("hello world", FOLDER / "gpt2_cross_layer" / "transcoders", targets=[7, 9])
        self.assertEqual(graph.input_tokens.tolist(), [511, *model.to_tokens("hello world")[0]])
        self.assertEqual(graph.logit_tokens.tolist(), [7, 9])


if __name__ == "__main__":
    unittest.main()
