#include "autoencoders.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "hooks/listening.h"
#include "hooks/spliced_model.h"
#include "io/sae_registry.h"
#include "io/stored_tensor.h"
#include "ops/context.h"
#include "sae/autoencoder.h"
#include "sae/sae_file.h"
#include "sae/transcoder_set.h"
#include "signals.h"

namespace vitrine::python {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// An autoencoder with threads of its own, for one call at a time.
struct Autoencoder {
  explicit Autoencoder(SparseAutoencoder read) : sae(std::move(read)) {}
  SparseAutoencoder sae;
  std::mutex mutex;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Context> ctx;

  // f(context), without the interpreter's lock and alone.
  template <class F>
  auto run(F&& f) {
    const nb::gil_scoped_release unlocked;
    const std::lock_guard alone(mutex);
    if (!pool) {
      pool = std::make_unique<ThreadPool>();
      ctx = std::make_unique<Context>(*pool);
    }
    const auto frame = ctx->frame();
    return f(*ctx);
  }
};
using Shared = std::shared_ptr<Autoencoder>;

// f(first row, rows) for a few rows at a time, between which Ctrl-C is heard.
template <class F>
void each_part(int64_t rows, int64_t d_sae, F&& f) {
  const int64_t most = std::max<int64_t>(1, (int64_t{1} << 24) / d_sae);
  for (int64_t first = 0; first < rows; first += most) {
    try {
      f(first, std::min(most, rows - first));
    } catch (const RunError& e) {  // which names a row of the part
      if (first == 0) throw;
      throw RunError(std::string(e.what()) + " (counted from row " + std::to_string(first) + ")");
    }
    check_signals();
  }
}

void check_columns(const Matrix& x, int64_t expected, const char* what) {
  if (static_cast<int64_t>(x.shape(1)) != expected)
    throw ShapeError("an array whose last size is " + std::to_string(x.shape(1)) + " was given; expected " + what + ", " +
                     std::to_string(expected));
}

// Rows of all features. Errors: as require_memory.
FloatVector all_features(const SparseAutoencoder& sae, int64_t rows) {
  const auto count = static_cast<size_t>(rows) * static_cast<size_t>(sae.d_sae);
  require_memory(count * sizeof(float), 0, "All features of " + std::to_string(rows) + " rows",
                 "Take fewer rows at a time, or encode_sparse(), which gives the active ones alone");
  return FloatVector(count);
}

// [rows, columns] without the axis in front.
nb::object table(FloatVector values, int64_t rows, int64_t columns) {
  return nb::cast(batch_of_one(std::move(values), {rows, columns}))[nb::int_(0)];
}

nb::object encode_rows(const Shared& a, const Matrix& x) {
  check_columns(x, a->sae.d_in, "d_in");
  const auto rows = static_cast<int64_t>(x.shape(0));
  FloatVector dense = all_features(a->sae, rows);
  each_part(rows, a->sae.d_sae, [&](int64_t first, int64_t n) {
    a->run([&](Context& ctx) {
      to_dense(encode(ctx, a->sae, x.data() + first * a->sae.d_in, n), a->sae.d_sae, dense.data() + first * a->sae.d_sae);
    });
  });
  return table(std::move(dense), rows, a->sae.d_sae);
}

nb::tuple encode_sparse(const Shared& a, const Matrix& x) {
  check_columns(x, a->sae.d_in, "d_in");
  SparseFeatures all;
  all.begin.push_back(0);
  each_part(static_cast<int64_t>(x.shape(0)), a->sae.d_sae, [&](int64_t first, int64_t n) {
    const SparseFeatures part = a->run([&](Context& ctx) { return encode(ctx, a->sae, x.data() + first * a->sae.d_in, n); });
    const auto before = static_cast<int64_t>(all.index.size());
    for (size_t r = 1; r < part.begin.size(); ++r) all.begin.push_back(before + part.begin[r]);
    all.index.insert(all.index.end(), part.index.begin(), part.index.end());
    all.value.insert(all.value.end(), part.value.begin(), part.value.end());
  });
  return nb::make_tuple(all.begin, all.index, all.value);
}

nb::object pre_activation_rows(const Shared& a, const Matrix& x) {
  check_columns(x, a->sae.d_in, "d_in");
  const auto rows = static_cast<int64_t>(x.shape(0));
  FloatVector pre = all_features(a->sae, rows);
  each_part(rows, a->sae.d_sae, [&](int64_t first, int64_t n) {
    a->run([&](Context& ctx) {
      pre_activations(ctx, a->sae, x.data() + first * a->sae.d_in, n, pre.data() + first * a->sae.d_sae);
    });
  });
  return table(std::move(pre), rows, a->sae.d_sae);
}

// x: the input, whose norm is undone and which W_skip reads.
nb::object decode_rows(const Shared& a, const Matrix& features, const std::optional<Matrix>& x) {
  const SparseAutoencoder& sae = a->sae;
  check_columns(features, sae.d_sae, "d_sae");
  const auto rows = static_cast<int64_t>(features.shape(0));
  if (x) check_columns(*x, sae.d_in, "d_in");
  if (x && static_cast<int64_t>(x->shape(0)) != rows)
    throw ShapeError("x has " + std::to_string(x->shape(0)) + " rows and the features " + std::to_string(rows));
  const bool norm = sae.input_norm != SparseAutoencoder::InputNorm::none && !sae.transcoder;
  if (!x && (norm || !sae.W_skip.empty()))
    throw UsageError("this one needs its input to decode, for " + std::string(norm ? "its norm" : "W_skip") +
                     "; call decode(features, x)");
  FloatVector y(static_cast<size_t>(rows * sae.d_out));
  a->run([&](Context& ctx) {
    const SparseFeatures of_x = norm ? encode(ctx, sae, x->data(), rows) : SparseFeatures{};
    decode(ctx, sae, to_sparse(features.data(), rows, sae.d_sae, norm ? &of_x : nullptr), x ? x->data() : nullptr, y.data());
  });
  return table(std::move(y), rows, sae.d_out);
}

// The elements where they lie, read-only; the array keeps the autoencoder alive.
nb::object parameter(const Shared& a, const std::string& name) {
  const SparseAutoencoder& s = a->sae;
  const auto view = [&](const FloatVector& w, std::vector<size_t> shape) -> nb::object {
    if (w.empty()) return nb::none();
    auto kept = std::make_unique<Shared>(a);
    const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<Shared*>(p); });
    kept.release();
    return nb::cast(nb::ndarray<nb::numpy, const float>(w.data(), shape.size(), shape.data(), owner));
  };
  const auto in = static_cast<size_t>(s.d_in), n = static_cast<size_t>(s.d_sae), out = static_cast<size_t>(s.d_out);
  if (name == "W_enc") return view(s.W_enc, {in, n});
  if (name == "W_dec") return view(s.W_dec, {n, out});
  if (name == "b_enc") return view(s.b_enc, {n});
  if (name == "b_dec") return view(s.b_dec, {out});
  if (name == "threshold") return view(s.threshold, {n});
  if (name == "r_mag") return view(s.r_mag, {n});
  if (name == "b_mag") return view(s.b_mag, {n});
  if (name == "b_gate") return view(s.b_gate, {n});
  if (name == "W_skip") return view(s.W_skip, {out, in});
  throw UsageError("an autoencoder has no parameter \"" + name + "\"");
}

// An array of any shape as the elements of a parameter; SparseAutoencoder::check sees to their number.
Shared make(const std::string& config, const nb::dict& arrays) {
  SparseAutoencoder s = [&] {
    try {
      return sae_without_weights(parse_json(config, "the configuration"), "the configuration");
    } catch (const FileError& e) {  // there is no file
      throw InputError(e.what());
    }
  }();
  const std::pair<const char*, std::pair<FloatVector*, std::vector<int64_t>>> all[] = {
      {"W_enc", {&s.W_enc, {s.d_in, s.d_sae}}},  {"W_dec", {&s.W_dec, {s.d_sae, s.d_out}}},
      {"b_enc", {&s.b_enc, {s.d_sae}}},          {"b_dec", {&s.b_dec, {s.d_out}}},
      {"threshold", {&s.threshold, {s.d_sae}}},  {"r_mag", {&s.r_mag, {s.d_sae}}},
      {"b_mag", {&s.b_mag, {s.d_sae}}},          {"b_gate", {&s.b_gate, {s.d_sae}}},
      {"W_skip", {&s.W_skip, {s.d_out, s.d_in}}}};
  for (const auto& [key, value] : arrays) {
    const std::string name = nb::cast<std::string>(key);
    const auto* found = std::find_if(std::begin(all), std::end(all), [&](const auto& one) { return name == one.first; });
    if (found == std::end(all)) throw InputError("an autoencoder has no parameter \"" + name + "\"");
    const auto given = nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(value);
    std::vector<int64_t> shape;
    for (size_t i = 0; i < given.ndim(); ++i) shape.push_back(static_cast<int64_t>(given.shape(i)));
    const auto& [to, expected] = found->second;
    if (shape != expected)
      throw ShapeError(name + " is " + shape_text(shape) + "; expected " + shape_text(expected) + " from the configuration");
    to->assign(given.data(), given.data() + given.size());
  }
  s.check("the autoencoder");
  return std::make_shared<Autoencoder>(std::move(s));
}

// From now on this thread's runs go through these; none: through none.
void splice(Session& session, const std::vector<std::pair<Shared, bool>>& saes) {
  std::vector<SplicedSae> places;
  for (const auto& [a, keep_error] : saes) places.push_back({std::shared_ptr<const SparseAutoencoder>(a, &a->sae), keep_error});
  session.splice(places.empty() ? nullptr : std::make_shared<const SplicedModel>(session.base(), places));
}

std::string path_of(const nb::bytes& path) { return {path.c_str(), path.size()}; }

}  // namespace

void bind_splicing(nb::class_<Session>& session) {
  session.def("splice", &splice, nb::arg("saes"),
              nb::sig("def splice(self, saes: collections.abc.Sequence[tuple[Autoencoder, bool]]) -> None"),
              "The autoencoders that this thread's runs go through from now on, each with whether its error is kept.");
}

void bind_autoencoders(nb::module_& m) {
  nb::class_<Autoencoder>(m, "Autoencoder", "A sparse autoencoder or transcoder. Rows are [row, d_in], float32.")
      .def_prop_ro("architecture", [](const Autoencoder& a) { return architecture_name(a.sae); })
      .def_prop_ro("d_in", [](const Autoencoder& a) { return a.sae.d_in; })
      .def_prop_ro("d_sae", [](const Autoencoder& a) { return a.sae.d_sae; })
      .def_prop_ro("d_out", [](const Autoencoder& a) { return a.sae.d_out; })
      .def_prop_ro("k", [](const Autoencoder& a) { return a.sae.k; })
      .def_prop_ro("transcoder", [](const Autoencoder& a) { return a.sae.transcoder; })
      .def_prop_ro("hook_name", [](const Autoencoder& a) { return text(a.sae.hook_name); })
      .def_prop_ro("hook_name_out", [](const Autoencoder& a) { return text(a.sae.hook_name_out); })
      .def_prop_ro(
          "config", [](const Autoencoder& a) { return text(sae_config(a.sae).dump()); }, "SAELens's cfg.json.")
      .def("encode", &encode_rows, nb::arg("x"),
           nb::sig("def encode(self, x: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]"))
      .def("encode_sparse", &encode_sparse, nb::arg("x"),
           nb::sig("def encode_sparse(self, x: numpy.typing.NDArray[numpy.float32]) -> tuple[list[int], list[int], list[float]]"))
      .def("pre_activations", &pre_activation_rows, nb::arg("x"),
           nb::sig("def pre_activations(self, x: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]"))
      .def("decode", &decode_rows, nb::arg("features"), nb::arg("x").none(),
           nb::sig(
               "def decode(self, features: numpy.typing.NDArray[numpy.float32], x: numpy.typing.NDArray[numpy.float32] | None) "
               "-> numpy.typing.NDArray[numpy.float32]"))
      .def("parameter", &parameter, nb::arg("name"),
           nb::sig("def parameter(self, name: str) -> numpy.typing.NDArray[numpy.float32] | None"))
      .def(
          "save",
          [](const Shared& a, const nb::bytes& directory) {
            const std::string path = path_of(directory);
            const nb::gil_scoped_release unlocked;
            write_sae(path, a->sae);
          },
          nb::arg("directory"));
  nb::class_<TranscoderSet>(m, "TranscoderSet", "A transcoder for each layer of a model.")
      .def_prop_ro("name", [](const TranscoderSet& s) { return text(s.name); })
      .def_prop_ro("n_layers", &TranscoderSet::n_layers)
      .def_prop_ro("cross_layer", &TranscoderSet::cross_layer)
      .def_prop_ro("d_sae", [](const TranscoderSet& s) { return s.layers.front()->d_sae; });
  m.def(
      "read_transcoders",
      [](const nb::bytes& path) {
        const std::string from = path_of(path);
        const nb::gil_scoped_release unlocked;
        return std::make_shared<TranscoderSet>(read_transcoders(from));
      },
      nb::arg("path"));
  m.def(
      "make_transcoder_set",
      [](const std::vector<Shared>& layers, const nb::str& name) {
        std::vector<std::shared_ptr<const SparseAutoencoder>> shared;
        for (const Shared& layer : layers) shared.emplace_back(layer, &layer->sae);
        return std::make_shared<TranscoderSet>(transcoder_set(std::move(shared), utf8(name), "the transcoders"));
      },
      nb::arg("layers"), nb::arg("name"), "From one transcoder for each layer, in any order.");
  m.def("make_autoencoder", &make, nb::arg("config"), nb::arg("arrays"),
        nb::sig("def make_autoencoder(config: str, arrays: dict[str, numpy.typing.NDArray[numpy.float32]]) -> Autoencoder"),
        "From SAELens's configuration as JSON and float32 arrays.");
  m.def(
      "registered_autoencoder",
      [](const nb::bytes& registry, const std::string& release, const std::string& id) {
        const RegisteredSae found = registered_sae(path_of(registry), release, id);
        return std::pair(found.name, found.centered);
      },
      nb::arg("registry"), nb::arg("release"), nb::arg("id"));
  m.def(
      "read_autoencoder",
      [](const nb::bytes& path, const std::optional<std::string>& hook_name, const std::optional<std::string>& hook_name_out,
         bool centered) {
        const std::string from = path_of(path);
        const nb::gil_scoped_release unlocked;
        SparseAutoencoder sae = read_sae(from, hook_name.value_or(""));
        if (centered) sae = subtracting_the_mean(std::move(sae));
        if (hook_name_out) sae.hook_name_out = *hook_name_out;
        return std::make_shared<Autoencoder>(std::move(sae));
      },
      nb::arg("path"), nb::arg("hook_name").none(), nb::arg("hook_name_out").none(), nb::arg("centered") = false);
}

}  // namespace vitrine::python
