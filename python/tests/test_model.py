"""Tokens, predictions and text, held to the golden numbers of other implementations."""

import json
import os
import tempfile
import unittest

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model, tales


class Predictions(Case):
    @classmethod
    def setUpClass(cls):
        cls.gold = json.loads((GOLDEN / "tales9m" / "golden.json").read_text())
        cls.model = tales()

    def test_tokens(self):
        for case in self.gold:
            self.assertEqual(self.model.to_tokens(case["text"]).tolist(), [case["ids"]])
            self.assertEqual(self.model.tokenizer.encode(case["text"]), case["ids"])
            self.assertEqual(self.model.to_str_tokens(case["text"]), case["pieces"])
            self.assertEqual(self.model.tokenizer.pieces(case["ids"]), case["pieces"])
            self.assertEqual(self.model.tokenizer.decode(case["ids"][1:]), case["text"])
            self.assertEqual(self.model.to_string(np.array(case["ids"][1:])), case["text"])
        self.assertEqual(self.model.to_tokens("Once", prepend_bos=False).tolist(), [[4330]])
        self.assertEqual(self.model.to_tokens("Once", prepend_bos=True).tolist(), [[2, 4330]])
        self.assertEqual(self.model.to_tokens("", prepend_bos=True).tolist(), [[2]])
        with self.assert_says(vitrine.InputError, "the prompt is empty and gets no BOS"):
            self.model.to_tokens("", prepend_bos=False)

    def test_next_tokens(self):
        for case in self.gold:
            (last,) = self.model.predict(case["text"])
            self.assertEqual(last.position, len(case["ids"]) - 1)
            self.assertEqual([(t.token, t.piece) for t in last.top], [(id, piece) for id, piece, _ in case["top10_next"]])
            self.assert_close([t.prob for t in last.top], [prob for _, _, prob in case["top10_next"]], 1e-5, 1e-4)
            everywhere = self.model.predict(case["ids"], top=1, all_positions=True)
            self.assertEqual([p.position for p in everywhere], list(range(len(case["ids"]))))
            self.assertEqual(everywhere[-1].top[0].token, last.top[0].token)

    def test_logits_and_loss(self):
        for case in self.gold:
            logits = self.model(case["text"])
            self.assertEqual(logits.shape, (1, len(case["ids"]), self.model.cfg.d_vocab))
            self.assert_close(self.model(case["text"], "loss"), case["mean_nll_of_tokens_1.."])
            self.assertEqual(self.model(case["text"], "loss", loss_per_token=True).shape, (1, len(case["ids"]) - 1))

    def test_exact_depends_on_no_other_row(self):
        model = vitrine.load(exact=True)
        ids = model.to_tokens("Once upon a time there was a king who had three sons, and the eldest said")[0]
        self.assertGreater(len(ids), 16)
        np.testing.assert_array_equal(model(ids)[0, :4], model(ids[:4])[0])

    def test_a_batch_runs_row_by_row(self):
        rows = np.array([[2, 4330, 694, 264], [2, 349, 560, 834]])
        logits, cache = self.model.run_with_cache(rows, "pattern.0")
        self.assertEqual(cache["pattern", 0].shape, (2, self.model.cfg.n_heads, 4, 4))
        for i, row in enumerate(rows):
            alone, kept = self.model.run_with_cache(row, "pattern.0")
            np.testing.assert_array_equal(logits[i], alone[0])
            np.testing.assert_array_equal(cache["pattern", 0][i], kept["pattern", 0][0])

    def test_config(self):
        c = self.model.cfg
        self.assertEqual((c.family, c.n_layers, c.d_model, c.n_heads, c.n_kv_heads, c.d_head, c.d_mlp, c.d_vocab, c.n_ctx, c.tied),
                         ("gemma2", 8, 256, 4, 2, 64, 1024, 6144, 1024, True))
        self.assertIn("9,445,632", repr(self.model))


class Texts(Case):
    @classmethod
    def setUpClass(cls):
        cls.gold = json.loads((GOLDEN / "tales9m" / "golden.json").read_text())
        cls.model = tales()

    def test_greedy_text(self):
        for case in self.gold:
            made = self.model.generate(case["text"], len(case["greedy_new_ids"]))
            self.assertEqual(made.tokens, case["greedy_new_ids"])
            self.assertEqual(made.text, case["greedy_text"])
            self.assertEqual(len(made.logprobs), len(made.tokens))

    def test_a_stream_is_the_text_that_generate_gives(self):
        for options in ({}, {"temperature": 0.9, "seed": 3}, {"top_k": 20, "top_p": 0.9, "seed": 4}, {"stop": " king"},
                        {"stop": ["was a", "nothing"]}, {"eos": [275]}, {"eos": [275], "ignore_eos": True}, {"max_tokens": 0},
                        {"max_tokens": 1}, {"repetition_penalty": 1.3, "logit_bias": {264: -5.0}}):
            options = {"max_tokens": 30, **options}
            made = self.model.generate("Once upon a time", **options)
            stream = self.model.stream("Once upon a time", **options)
            pieces = list(stream)
            self.assertNotIn("", pieces)
            self.assertEqual("".join(pieces), made.text, options)
            self.assertEqual((stream.tokens, stream.logprobs, stream.finish_reason), made[1:], options)
            self.assertEqual(list(stream), [])

    def test_drafts_change_no_token(self):
        for options in ({}, {"temperature": 0.9, "seed": 3, "repetition_penalty": 1.2}):
            plain = self.model.generate("Once upon a time", 60, **options)
            for drafts in ({"lookup": 5}, {"draft": self.model}, {"draft": vitrine.load(threads=1), "draft_tokens": 7}):
                self.assertEqual(self.model.generate("Once upon a time", 60, **options, **drafts), plain)
                stream = self.model.stream("Once upon a time", 60, **options, **drafts)
                self.assertEqual("".join(stream), plain.text)
                self.assertEqual((stream.tokens, stream.logprobs, stream.finish_reason), plain[1:])
        steps = []
        with self.model.hooks([("hook_embed", lambda value, hook: steps.append(value.shape[1]))]):
            self.model.generate("Once upon a time", 21, draft=self.model)
        self.assertEqual(steps[1:], [5, 5, 5, 5])  # the model drafts for itself, 4 tokens at a time

    def test_grammars(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0,
                  "maximum": 120}}, "required": ["name", "age"], "additionalProperties": False}
        try:
            made = self.model.generate("The hero:", 200, json_schema=schema, temperature=1.5, seed=4)
        except vitrine.UsageError as e:
            self.assertIn("built without grammars", str(e))
            self.skipTest(str(e))
        value = json.loads(made.text)
        self.assertEqual(list(value), ["name", "age"])
        self.assertEqual(made.finish_reason, "stop")
        self.assertEqual(self.model.generate("The hero:", 200, json_schema=json.dumps(schema), temperature=1.5, seed=4), made)
        self.assertRegex(self.model.generate("The king", regex="[a-z]{3}-[0-9]{2}x").text, "^[a-z]{3}-[0-9]{2}x$")
        texts = self.model.generate(["One", "Two"], grammar='root ::= "(" root ")" | "x"', temperature=1.0)
        for text in (t.text for t in texts):
            self.assertRegex(text, r"^\(*x\)*$")
            self.assertEqual(text.count("("), text.count(")"))
        self.assertEqual("".join(self.model.stream("Once", lark='start: "a" "b"')), "ab")
        for message, options in (("give one of them", {"regex": "a", "lark": "start: /a/"}), ("json_schema", {"json_schema": 3}),
                                 ("lookarounds", {"regex": "\\ba"}), ("line 1", {"grammar": "root = a"})):
            with self.assertRaisesRegex(vitrine.InputError, message):
                self.model.generate("Once", **options)

    def test_caches_of_other_types(self):
        expected = self.model.generate("Once upon a time", 20)
        narrow = vitrine.load(cache_type_k="q8_0", cache_type_v="f16").generate("Once upon a time", 20)
        self.assertEqual(narrow.tokens, expected.tokens)
        self.assertNotEqual(narrow.logprobs, expected.logprobs)
        np.testing.assert_allclose(narrow.logprobs, expected.logprobs, atol=0.02)
        with self.assertRaisesRegex(vitrine.UsageError, "cache_type_k is .q5_1.; expected f32, f16, q8_0 or q4_0"):
            vitrine.load(cache_type_k="q5_1")

    def test_drafts_that_do_not_fit_are_refused(self):
        other = vitrine.load(GOLDEN / "models" / "gemma2" / "model")
        recurrent = vitrine.load(GOLDEN / "models" / "qwen3_5" / "model")
        for error, message, call in (
            (vitrine.UsageError, "lookup and draft are both given", lambda: self.model.generate("Once", lookup=2, draft=self.model)),
            (vitrine.UsageError, "expected 1 to 7", lambda: self.model.stream("Once", lookup=8)),
            (vitrine.UsageError, "expected 1 to 7", lambda: self.model.generate("Once", draft=self.model, draft_tokens=0)),
            (vitrine.InputError, "has a vocabulary of 512", lambda: self.model.generate("Once", draft=other)),
            (vitrine.InputError, "has recurrent layers", lambda: recurrent.generate([5, 6], lookup=3)),
        ):
            with self.assertRaisesRegex(error, message):
                call()

    def test_a_stream_waits_for_its_reader(self):
        stream = self.model.stream("Once upon a time", 30)
        before = next(stream)
        self.assertEqual(len(stream.tokens), 1)
        self.assertEqual(stream.finish_reason, "")
        self.model.generate("Something else runs in between", 5)
        self.assertEqual(before + "".join(stream), self.model.generate("Once upon a time", 30).text)

    def test_seeds(self):
        first, second, other = (self.model.generate("Once", 20, temperature=1.0, seed=s).tokens for s in (1, 1, 2))
        self.assertEqual(first, second)
        self.assertNotEqual(first, other)

    def test_sampling_arguments_are_numbers(self):
        with self.assert_says(TypeError, "temperature is 'high'; expected a number"):
            tales().generate("Once", 3, temperature="high")
        tales().generate("Once", 3, temperature=np.float32(0.5), top_k=np.int64(5))

    def test_sampling_arguments_are_those_of_the_program(self):
        from vitrine._vitrine import sampling_options
        from vitrine.sampling import Sampling
        others = {"dry_sequence_breakers", "logit_bias", "seed"}
        self.assertEqual({name for name, _, _ in sampling_options()} | others, set(Sampling.__annotations__))
        for name, _, text in sampling_options():
            self.assertIn(f"{name}: {text}.", self.model.generate.__doc__)
        greedy = self.model.generate("Once upon a time", 40).tokens
        self.assertNotEqual(self.model.generate("Once upon a time", 40, dry_multiplier=5, dry_sequence_breakers=[]).tokens, greedy)
        self.assertEqual(self.model.generate("Once upon a time", 40, dry_multiplier=5, dry_allowed_length=40).tokens, greedy)
        self.assertEqual(self.model.generate("Once", 9, mirostat=2, seed=1), self.model.generate("Once", 9, mirostat=2, seed=1))
        with self.assertRaisesRegex(vitrine.InputError, "mirostat is 3; expected 1 or 2"):
            self.model.generate("Once", 9, mirostat=3)
        with self.assertRaisesRegex(TypeError, "temprature"):
            self.model.generate("Once", 9, temprature=1)

    def test_stop_strings_and_end_tokens(self):
        text, ids, whole = (self.gold[0][key] for key in ("text", "greedy_new_ids", "greedy_text"))
        word = " " + whole.split()[3]
        made = self.model.generate(text, stop=[word])
        self.assertEqual((made.text, made.finish_reason), (whole[: whole.index(word)], "stop"))
        end = ids.index(ids[2])  # the first time that it comes
        made = self.model.generate(text, eos=[ids[2]])
        self.assertEqual((made.tokens, made.finish_reason), (ids[: end + 1], "stop"))
        self.assertEqual(made.text, self.model.tokenizer.decode(ids[:end]))
        made = self.model.generate(text, 3)
        self.assertEqual((made.tokens, made.finish_reason), (ids[:3], "length"))

    def test_beams(self):
        gold = json.loads((GOLDEN / "models" / "gpt2_a" / "golden" / "generate.json").read_text())
        prompts = json.loads((GOLDEN / "models" / "gpt2_a" / "golden" / "prompts.json").read_text())
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        for case in gold["beam"]:
            ids = prompts[case["prompt"]]["input_ids"] if isinstance(prompts[case["prompt"]], dict) else prompts[case["prompt"]]
            eos = [] if case["eos_token_id"] is None else [case["eos_token_id"]]
            found = model.beams(ids, case["num_beams"], case["max_new_tokens"], n_return=len(case["new_ids"]),
                                length_penalty=case["length_penalty"], early_stopping=case["early_stopping"], eos=eos)
            self.assertEqual([h.tokens for h in found], case["new_ids"])
            self.assert_close([h.score for h in found], case["scores"])
            self.assertEqual(found[0].text, model.to_string([t for t in found[0].tokens if t not in eos]))


class BadInput(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = tales()

    def test_files(self):
        with self.assert_says(FileNotFoundError, "/no/such/model", "does not exist") as said:
            vitrine.load("/no/such/model")
        self.assertIsInstance(said.exception, vitrine.MissingFileError)
        self.assertIsInstance(said.exception, ValueError)
        with self.assert_says(FileNotFoundError, "nobody/nothing", "Hugging Face cache"):
            vitrine.load("nobody/nothing")
        with self.assert_says(vitrine.FileError, "holds no config.json") as said:
            vitrine.load(GOLDEN)
        self.assertNotIsInstance(said.exception, FileNotFoundError)

    def test_a_path_need_not_be_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(os.fsencode(folder), b"caf\xe9")
            os.symlink(golden_model("gpt2_b"), path)
            for name in (path, os.fsdecode(path)):
                self.assertEqual(vitrine.load(name).config.family, "gpt2")

    def test_options(self):
        for error, words, call in (
            (ValueError, "compute is 'f64'", lambda: vitrine.load(compute="f64")),
            (ValueError, "threads is -1", lambda: vitrine.load(threads=-1)),
            (ValueError, "top is 0", lambda: self.model.predict("Once", top=0)),
            (vitrine.UsageError, "top_p", lambda: self.model.generate("Once", top_p=2.0)),
            (vitrine.UsageError, "max_tokens is -1", lambda: self.model.generate("Once", -1)),
            (vitrine.UsageError, "max_tokens is -1", lambda: self.model.stream("Once", -1)),
            (vitrine.UsageError, "return_type is 'all'", lambda: self.model("Once", "all")),
            (ValueError, "special is \"some\"", lambda: self.model.tokenizer.encode("Once", special="some")),
            (vitrine.UsageError, "threads is 1000000; expected a whole number from 0 to 1024",
             lambda: vitrine.load(threads=10**6)),
            (vitrine.UsageError, "top is 1180591620717411303424", lambda: self.model.predict("Once", 2**70)),
            (vitrine.UsageError, "seed is -1; expected a whole number from 0", lambda: self.model.generate("Once", seed=-1)),
            (vitrine.UsageError, "seed is 18446744073709551616", lambda: self.model.generate("Once", seed=2**64)),
            (vitrine.UsageError, "max_tokens is 18446744073709551616", lambda: self.model.generate("Once", 2**64)),
            (vitrine.UsageError, "top_k is 18446744073709551616", lambda: self.model.stream("Once", top_k=2**64)),
            (vitrine.UsageError, "an end token is 1099511627776; expected a whole number from 0 to 6143",
             lambda: self.model.generate("Once", eos=[2**40])),
            (vitrine.UsageError, "an end token is 1099511627776", lambda: self.model.beams("Once", eos=[2**40])),
            (vitrine.UsageError, "n_beams is 1099511627776", lambda: self.model.beams("Once", 2**40)),
            (vitrine.UsageError, "a token of logit_bias is 1099511627776",
             lambda: self.model.generate("Once", logit_bias={2**40: 1.0})),
            (TypeError, "integer", lambda: self.model.generate("Once", 2.0)),
            (TypeError, "integer", lambda: self.model.run_with_cache("Once", "pattern", heads=1.7)),
            (TypeError, "integer", lambda: self.model.run_with_cache("Once", "pattern", heads="0")),
        ):
            with self.assert_says(error, words):
                call()

    def test_prompts(self):
        for words, prompt in (
            ("token 6144 at place 1 is outside the vocabulary", [2, 6144]),
            ("token -1 at place 0", [-1]),
            ("token 9000000000 at place 0", [9_000_000_000]),
            ("token 9223372036854775813 at place 1", np.array([2, 2**63 + 5], np.uint64)),
            ("token 9223372036854775808 at place 1", [2, 2**63]),
            ("token 18446744073709551616 at place 0", [[2, 3], [2**64, 3]]),
            ("token -9223372036854775809 at place 2", (2, 3, -(2**63) - 1)),
            ("timedelta64", np.array([1, 2], "m8[s]")),
            ("half of a surrogate pair", "a\ud800b"),
            ("no tokens", []),
            ("no tokens", np.zeros((0, 4), np.int64)),
            ("float64", [0.5]),
            ("whole numbers", np.array(["Once", "upon"])),
            ("expected [position] or [batch, position]", np.zeros((1, 1, 1), np.int64)),
            ("the context of", [2] * 1025),
        ):
            with self.assert_says(vitrine.InputError, words):
                self.model(prompt)
        with self.assert_says(ValueError, "batch of 2"):
            self.model.predict([[2, 3], [2, 3]])
        with self.assert_says(ValueError, "two tokens or more"):
            self.model([2], "loss")
        with self.assert_says(ValueError, "outside the vocabulary"):
            self.model.tokenizer.decode([6144])
        tokenizer = self.model.tokenizer
        for ids in ([4, 2**63 + 5], np.array([4, 2**63 + 5], np.uint64)):
            for call in (tokenizer.decode, tokenizer.pieces):
                with self.assert_says(vitrine.InputError, "token 9223372036854775813 at place 1 is no token id"):
                    call(ids)
        for call in (tokenizer.encode, tokenizer.find, tokenizer.single_token, self.model.to_tokens, self.model.weight,
                     lambda text: self.model.generate("Once", stop=text), lambda text: self.model.run_with_cache("Once", text)):
            with self.assert_says(vitrine.InputError, "half of a surrogate pair"):
                call("a\udc00")
        for call in (lambda: tokenizer.encode(None), lambda: tokenizer.decode([1.0]), lambda: tokenizer.decode("ab")):
            self.assertRaises(TypeError, call)

    def test_a_model_without_a_tokenizer_runs_on_ids(self):
        model = vitrine.load(golden_model("gpt2_b"))
        self.assertEqual(model.generate([1, 2, 3], 4).text, "")
        self.assertEqual(len(model.generate([1, 2, 3], 4).tokens), 4)
        self.assertEqual(model.predict([1, 2, 3])[0].top[0].piece, "")
        for call in (lambda: model.predict("Once"), lambda: model.tokenizer, lambda: model.stream([1, 2, 3])):
            with self.assert_says(vitrine.InputError, "has no tokenizer"):
                call()


if __name__ == "__main__":
    unittest.main()
