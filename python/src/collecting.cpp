#include "collecting.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "collect/collect.h"
#include "signals.h"

namespace vitrine::python {
namespace {

/// Documents that a Python function gives: rows of ids, then None. Called without the interpreter's lock, which it takes.
class PythonDocuments final : public DocumentTokens {
 public:
  explicit PythonDocuments(nb::callable next) : next_(std::move(next)) {}
  bool next(std::vector<int32_t>& ids, bool& begins) override {
    const nb::gil_scoped_acquire locked;
    const nb::object row = next_();
    if (row.is_none()) return false;
    const Ids numbers = nb::cast<Ids>(row);
    ids = token_ids(std::span<const int64_t>(numbers.data(), numbers.size()));
    begins = true;
    return true;
  }
  double share() const override { return 0; }  // who knows how long it goes on

 private:
  nb::callable next_;
};

DType type_named(const std::string& word) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    if (name_of(type) == word) return type;
  throw UsageError("type is \"" + word + "\"; expected f32, f16 or bf16");
}

nb::dict collect_to(Session& session, const std::vector<nb::str>& hooks, const nb::bytes& out,
                    const std::optional<std::vector<nb::bytes>>& files, const std::optional<nb::callable>& next,
                    const nb::str& separator, const nb::str& key, int64_t context, uint64_t max_tokens, const std::string& type,
                    uint64_t shard_bytes, bool resume, bool prepend_bos, const std::optional<nb::callable>& progress) {
  CollectOptions options;
  options.hooks = utf8(hooks);
  options.out = {out.c_str(), out.size()};
  options.type = type_named(type);
  options.context = context;
  options.special = prepend_bos;
  options.max_tokens = max_tokens;
  options.shard_bytes = shard_bytes;
  options.resume = resume;
  std::vector<std::string> paths;
  if (files)
    for (const nb::bytes& file : *files) paths.emplace_back(file.c_str(), file.size());
  TextOptions text;
  text.separator = utf8(separator);
  text.key = utf8(key);
  const auto see = [&](const CollectProgress& now) {
    check_signals();
    if (!progress) return;
    const nb::gil_scoped_acquire locked;
    (*progress)(now.tokens, now.tokens_per_s);
  };
  std::unique_ptr<DocumentTokens> documents;
  if (next) documents = std::make_unique<PythonDocuments>(*next);
  Collected made;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    if (documents == nullptr) documents = text_tokens(session.engine.tokenizer(), paths, text);
    made = collect(session.engine, *documents, options, see);
  }
  nb::dict d;
  d["tokens"] = made.manifest.tokens();
  d["contexts"] = made.manifest.contexts();
  d["shards"] = made.manifest.shards.size();
  d["computed"] = made.computed;
  d["seconds"] = made.seconds;
  d["tokens_per_s"] = made.seconds > 0 ? static_cast<double>(made.computed) / made.seconds : 0.0;
  return d;
}

}  // namespace

void bind_collecting(nb::class_<Session>& session) {
  session.def(
      "collect", &collect_to, nb::arg("hooks"), nb::arg("out"), nb::arg("files").none(), nb::arg("next").none(),
      nb::arg("separator"), nb::arg("key"), nb::arg("context"), nb::arg("max_tokens"), nb::arg("type"), nb::arg("shard_bytes"),
      nb::arg("resume"), nb::arg("prepend_bos"), nb::arg("progress").none(),
      nb::sig(
          "def collect(self, hooks: collections.abc.Sequence[str], out: bytes, files: collections.abc.Sequence[bytes] | None, "
          "next: collections.abc.Callable[[], numpy.typing.NDArray[numpy.int64] | None] | None, separator: str, key: str, "
          "context: int, max_tokens: int, type: str, shard_bytes: int, resume: bool, prepend_bos: bool, "
          "progress: collections.abc.Callable[[int, float], typing.Any] | None) -> dict[str, typing.Any]"),
      "Values at hooks over a corpus, as shards in a folder.");
}

}  // namespace vitrine::python
