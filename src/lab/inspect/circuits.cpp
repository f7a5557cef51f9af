#include "inspect/circuits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "hooks/listening.h"
#include "inspect/decompositions.h"
#include "inspect/factors.h"
#include "inspect/weights.h"
#include "model/abilities.h"

namespace vitrine {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;

constexpr int64_t kVocabularyChunk = 1024;

void check_place(const ModelShape& shape, std::optional<int64_t> layer, std::optional<int64_t> head) {
  const auto check = [](const char* what, std::optional<int64_t> i, int64_t n) {
    if (i && (*i < 0 || *i >= n))
      throw InputError(std::string(what) + " " + std::to_string(*i) + " does not exist; the model has " + std::to_string(n) +
                       " (0 to " + std::to_string(n - 1) + ")");
  };
  check("layer", layer, shape.n_layers);
  check("head", head, shape.n_heads);
}

[[noreturn]] void refuse_layer(int64_t layer, const LayerRecord& spec) {
  throw InputError("layer " + std::to_string(layer) + " has " + spec.instead_of_attention() +
                   " in the place of attention, so it has no heads and no QK and OV circuits. Name a layer with "
                   "attention");
}

void check_offset(const Model& model, const ModelShape& shape, int64_t offset) {
  if (offset == 0) return;
  bool turns = false;
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) turns = turns || model.layer(layer).rope;
  if (!turns)
    throw InputError("an offset of " + std::to_string(offset) + " was asked for, but the family " + shape.family +
                     (model.layer(0).attention.alibi                     ? " adds slopes to its scores"
                      : model.record().positions != AddedPositions::none ? " adds its positions to the embeddings"
                                                                         : " has no positions here") +
                     ": its QK circuits are the same at every offset. Leave it out");
  if (offset < 0 || (shape.context_length > 0 && offset >= shape.context_length))
    throw InputError("the offset " + std::to_string(offset) + " lies outside the context; expected 0 to " +
                     std::to_string(shape.context_length - 1));
}

// R [d_head, d_head] with rows = (Q R)ᵀ: whatever multiplies the rows has the same norms and singular values behind R.
MatrixXd triangle(const RowsF& rows) { return upper_triangle(rows.transpose().cast<double>()); }

// Singular values of leftᵀ right from both triangles.
Spectrum spectrum(const MatrixXd& left, const MatrixXd& right, int64_t d_model) {
  Spectrum result;
  result.singular_values = singular_values(left * right.transpose());
  const double least = result.singular_values[0] * static_cast<double>(d_model) * 0x1p-23;
  double squares = 0;
  for (const double s : result.singular_values) {
    result.rank += s > least ? 1 : 0;
    squares += s * s;
  }
  result.frobenius = std::sqrt(squares);
  return result;
}

RowsF rows_of(const RowsF& all, int64_t head, int64_t size) { return all.middleRows(head * size, size); }

std::vector<float> numbers(const RowsF& rows) { return {rows.data(), rows.data() + rows.size()}; }
RowsF rows_from(const std::vector<float>& numbers, int64_t d_head, int64_t d_model) {
  return Eigen::Map<const RowsF>(numbers.data(), d_head, d_model);
}

// W_Uᵀ W_E [d_model, d_model], the only square of the width here: every head of every layer reads the vocabulary through it,
// which is then passed over once and not once a head. Chunks of the vocabulary, expanded to f32.
RowsF vocabulary_product(Engine& engine, const Weight& W_U, const Weight& W_E) {
  RowsF sum = RowsF::Zero(W_U.in, W_E.in);
  for (int64_t first = 0; first < W_E.out; first += kVocabularyChunk) {
    const int64_t n = std::min(kVocabularyChunk, W_E.out - first);
    const auto chunk = [&](const Weight& w) {
      RowsF rows = dense(w, first, n);
      for (int64_t i = 0; i < n; ++i)
        if (!rows.row(i).allFinite())
          throw RunError("NaN or infinity in row " + std::to_string(first + i) + " of " + w.name +
                         ", through which every head reads the vocabulary. Do the weights hold NaN?");
      return rows;
    };
    sum += product_by_columns(engine.context(), chunk(W_U).transpose(), chunk(W_E));
  }
  return sum;
}

// The heads' outputs as the head of the model reads them: behind the final norm's weight (and mean).
RowsF behind_final_norm(const RowsF& o, const FrozenNorm& norm) {
  RowsF result = o;
  if (norm.gain.empty()) return result;
  if (!norm.rms) result.colwise() -= result.rowwise().mean().eval();
  for (size_t i = 0; i < norm.gain.size(); ++i) result.col(static_cast<Index>(i)) *= static_cast<float>(norm.gain[i]);
  return result;
}

std::vector<std::complex<double>> eigenvalues_of(const MatrixXd& m) {
  std::vector<std::complex<double>> values = eigenvalues(m);
  const auto key = [](const std::complex<double>& z) { return std::tuple(-std::abs(z), -z.imag(), -z.real()); };
  std::sort(values.begin(), values.end(), [&](const auto& x, const auto& y) { return key(x) < key(y); });
  return values;
}

// What a layer brings to compositions. With A = leftᵀ right and leftᵀ = Q R: |A B| = |R right B|, so that only R right counts.
struct Whitened {
  RowsF writes;                          // [N·v_head, d_model]: R of V · O rows, what OV writes
  RowsF reads_q, reads_k, reads_v;       // [N·…, d_model]: what QK and OV read, weighted by the triangle of their other side
  std::vector<double> norm_qk, norm_ov;  // of each head
};

class Table {
 public:
  Table(Engine& engine, const CircuitOptions& options)
      : engine_(engine), options_(options), weights_(*engine.opened().model), shape_(engine.shape()) {}

  CircuitTable make() {
    check_place(shape_, options_.layer, options_.head);
    if (options_.spectra) require_plain_head(engine_.model(), engine_.name(), "A circuit of embedding, head and unembedding");
    if (options_.layer && !attends(*options_.layer)) refuse_layer(*options_.layer, engine_.model().layer(*options_.layer));
    require_attention(engine_.model(), engine_.name(), "A circuit");
    check_offset(engine_.model(), shape_, options_.offset);
    int64_t head_dim = 0;  // of the layer with the widest heads
    for (int64_t layer = 0; layer < shape_.n_layers; ++layer)
      head_dim = std::max(head_dim, engine_.model().layer(layer).head_dim);
    const auto width = static_cast<size_t>(shape_.d_model), rows = static_cast<size_t>(shape_.n_heads * head_dim);
    if (options_.composition) require_residual(engine_.model(), engine_.name(), "A composition of heads");
    if (options_.composition) require_own_keys();
    const size_t layers = options_.composition ? static_cast<size_t>(shape_.n_layers) : 1;
    require_memory((width * width * 2 + (layers + 12) * rows * width) * sizeof(float), options_.memory,
                   "The circuits of " + std::to_string(shape_.n_layers) + " layers", "Leave the compositions out");
    final_norm_ = frozen_norm(weights_, engine_.model().layer(0), "ln_final");
    if (options_.spectra) vocabulary_ = vocabulary_product(engine_, *engine_.model().head().weight, weights_.matrix("W_E"));
    for (int64_t layer = 0; layer < shape_.n_layers; ++layer) {
      if (!options_.composition && options_.layer && *options_.layer != layer) continue;
      if (attends(layer)) add_layer(layer);
    }
    return std::move(table_);
  }

 private:
  bool attends(int64_t layer) const { return engine_.model().layer(layer).has_attention(); }
  // A head whose keys and values were made by an earlier layer does not read what layers between the two wrote.
  void require_own_keys() const {
    for (int64_t layer = 0; layer < shape_.n_layers; ++layer)
      if (const int64_t giver = engine_.model().layer(layer).keys_of; giver >= 0)
        throw InputError("layer " + std::to_string(layer) + " of " + engine_.name() + " reads the keys and values of layer " +
                         std::to_string(giver) +
                         ", so heads of the layers between them reach its queries alone and a composition score has no one "
                         "meaning. Leave the compositions out");
  }
  bool wanted(int64_t layer, int64_t head) const {
    return (!options_.layer || *options_.layer == layer) && (!options_.head || *options_.head == head);
  }

  void add_layer(int64_t layer) {
    const LayerFactors f = layer_factors(engine_, weights_, layer, options_.offset);
    const auto n = static_cast<size_t>(shape_.n_heads);
    std::vector<MatrixXd> q(n), k(n), v(n), o(n);
    ThreadPool& pool = engine_.context().pool();
    pool.run(shape_.n_heads, [&](int64_t h, int) {
      const auto i = static_cast<size_t>(h);
      q[i] = triangle(rows_of(f.q, h, f.d_head));
      o[i] = triangle(rows_of(f.o, h, f.v_head));
      if (h % f.group != 0) return;
      k[i] = triangle(rows_of(f.k, h / f.group, f.d_head));
      v[i] = triangle(rows_of(f.v, h / f.group, f.v_head));
    });
    for (size_t i = 0; i < n; ++i) {
      const size_t first = i - i % static_cast<size_t>(f.group);
      k[i] = k[first];
      v[i] = v[first];
      if (!(q[i].allFinite() && k[i].allFinite() && v[i].allFinite() && o[i].allFinite()))  // no decomposition of that ends
        throw RunError("NaN or infinity in the circuits of layer " + std::to_string(layer) + " head " + std::to_string(i) +
                       ". Do the weights hold NaN?");
    }
    if (options_.spectra) add_spectra(layer, f, q, k, v, o);
    if (options_.composition) add_compositions(layer, f, q, k, v, o);
  }

  void add_spectra(int64_t layer, const LayerFactors& f, const std::vector<MatrixXd>& q, const std::vector<MatrixXd>& k,
                   const std::vector<MatrixXd>& v, const std::vector<MatrixXd>& o) {
    std::vector<int64_t> heads;
    for (int64_t h = 0; h < shape_.n_heads; ++h)
      if (wanted(layer, h)) heads.push_back(h);
    if (heads.empty()) return;
    const RowsF through = product_by_columns(engine_.context(), behind_final_norm(f.o, final_norm_), vocabulary_);
    std::vector<HeadSpectra> made(heads.size());
    engine_.context().pool().run(static_cast<int64_t>(heads.size()), [&](int64_t i, int) {
      const int64_t h = heads[static_cast<size_t>(i)];
      const auto at = static_cast<size_t>(h);
      HeadSpectra& s = made[static_cast<size_t>(i)];
      s.layer = layer;
      s.head = h;
      s.qk = spectrum(q[at], k[at], shape_.d_model);
      s.ov = spectrum(v[at], o[at], shape_.d_model);
      s.eigenvalues = eigenvalues_of(rows_of(through, h, f.v_head).cast<double>() *
                                     rows_of(f.v, h / f.group, f.v_head).cast<double>().transpose());
      s.copying = copying_score(s.eigenvalues);
    });
    for (HeadSpectra& s : made) table_.heads.push_back(std::move(s));
  }

  void add_compositions(int64_t layer, const LayerFactors& f, const std::vector<MatrixXd>& q, const std::vector<MatrixXd>& k,
                        const std::vector<MatrixXd>& v, const std::vector<MatrixXd>& o) {
    const int64_t heads = shape_.n_heads;
    Whitened mine;
    const auto weighted = [&](const std::vector<MatrixXd>& triangles, const RowsF& rows, int64_t size, int64_t group) {
      const Index each = triangles[0].rows();
      RowsF result(heads * each, rows.cols());
      engine_.context().pool().run(heads, [&](int64_t h, int) {
        result.middleRows(h * each, each) =
            triangles[static_cast<size_t>(h)].cast<float>() * rows.middleRows(h / group * size, size);
      });
      return result;
    };
    for (size_t h = 0; h < static_cast<size_t>(heads); ++h) {
      mine.norm_qk.push_back((q[h] * k[h].transpose()).norm());
      mine.norm_ov.push_back((v[h] * o[h].transpose()).norm());
    }
    const bool reads = !options_.layer || layer >= *options_.layer;
    if (reads && layer > 0) {
      mine.reads_q = weighted(k, f.q, f.d_head, 1);
      mine.reads_k = weighted(q, f.k, f.d_head, f.group);
      mine.reads_v = weighted(o, f.v, f.v_head, f.group);
    }
    mine.writes = weighted(v, f.o, f.v_head, 1);
    std::vector<Composition> pairs;
    for (int64_t from = 0; from < layer; ++from) {
      if (options_.layer && from != *options_.layer && layer != *options_.layer) continue;
      if (!attends(from)) continue;
      const Whitened& earlier = layers_.at(from);
      const RowsF by_q = product(engine_.context(), earlier.writes, mine.reads_q);
      const RowsF by_k = product(engine_.context(), earlier.writes, mine.reads_k);
      const RowsF by_v = product(engine_.context(), earlier.writes, mine.reads_v);
      for (int64_t a = 0; a < heads; ++a)
        for (int64_t b = 0; b < heads; ++b) {
          if (!wanted(from, a) && !wanted(layer, b)) continue;
          const auto share = [&](const RowsF& x, double reader) {
            const Index m = x.rows() / heads, n = x.cols() / heads;
            const double both = earlier.norm_ov[static_cast<size_t>(a)] * reader;
            return both > 0 ? x.block(a * m, b * n, m, n).cast<double>().norm() / both : 0;
          };
          const auto at = static_cast<size_t>(b);
          pairs.push_back(
              {from, a, layer, b, share(by_q, mine.norm_qk[at]), share(by_k, mine.norm_qk[at]), share(by_v, mine.norm_ov[at])});
        }
    }
    const auto key = [](const Composition& c) { return std::tuple(c.to_head, c.from_layer, c.from_head); };
    std::sort(pairs.begin(), pairs.end(), [&](const Composition& x, const Composition& y) { return key(x) < key(y); });
    table_.composition.insert(table_.composition.end(), pairs.begin(), pairs.end());
    mine.reads_q = mine.reads_k = mine.reads_v = RowsF();
    layers_.emplace(layer, std::move(mine));
  }

  Engine& engine_;
  const CircuitOptions& options_;
  NamedWeights weights_;
  ModelShape shape_;
  FrozenNorm final_norm_;
  RowsF vocabulary_;  // W_Uᵀ W_E
  std::map<int64_t, Whitened> layers_;
  CircuitTable table_;
};

}  // namespace

HeadCircuits head_circuits(Engine& engine, int64_t layer, int64_t head, int64_t offset) {
  const ModelShape& shape = engine.shape();
  check_place(shape, layer, head);
  if (!engine.model().layer(layer).has_attention()) refuse_layer(layer, engine.model().layer(layer));
  check_offset(engine.model(), shape, offset);
  const NamedWeights weights(*engine.opened().model);
  const LayerFactors f = layer_factors(engine, weights, layer, offset);
  const AttentionSpec attention = engine.model().layer(layer).attention;
  HeadCircuits c;
  c.layer = layer;
  c.head = head;
  c.kv_head = head / f.group;
  c.qk = {shape.d_model, f.d_head, numbers(rows_of(f.q, head, f.d_head)), numbers(rows_of(f.k, c.kv_head, f.d_head))};
  c.ov = {shape.d_model, f.v_head, numbers(rows_of(f.v, c.kv_head, f.v_head)), numbers(rows_of(f.o, head, f.v_head))};
  c.scale = attention.scale;
  c.softcap = attention.softcap;
  c.query_bias = f.query_bias;
  c.key_bias = f.key_bias;
  c.value_bias = f.value_bias;
  return c;
}

Spectrum spectrum_of(const FactoredMatrix& m) {
  return spectrum(triangle(rows_from(m.left, m.d_head, m.d_model)), triangle(rows_from(m.right, m.d_head, m.d_model)), m.d_model);
}

double copying_score(std::span<const std::complex<double>> eigenvalues) {
  double real = 0, size = 0;
  for (const std::complex<double>& value : eigenvalues) {
    real += value.real();
    size += std::abs(value);
  }
  return size > 0 ? real / size : 0;
}

CircuitTable circuit_table(Engine& engine, const CircuitOptions& options) { return Table(engine, options).make(); }

}  // namespace vitrine
