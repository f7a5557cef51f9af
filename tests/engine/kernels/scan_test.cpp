// The recurrence of a state over rows: against its definition in double, and the bits of a row however the rows are cut.
#include "kernels/reference/scan.h"

#include "support.h"

namespace vitrine {
namespace {

using ScanTest = EveryTarget;

/// Inputs with room between rows, and a state with zeros where it has no columns.
struct ScanProblem {
  ScanProblem(size_t rows, size_t d_key, size_t columns, bool corrects)
      : q(random_values(rows * (d_key + 3), 1)),
        k(random_values(rows * (d_key + 3), 2, 0.3f)),
        v(random_values(rows * (columns + 1), 3)),
        decay(rows * 2),
        beta(rows * 2, 0.7f),
        state(d_key * kScanColumns) {
    for (size_t r = 0; r < decay.size(); ++r) decay[r] = 0.5f + 0.5f * float(r % 5) / 5;
    const std::vector<float> begin = random_values(state.size(), 4);
    for (size_t i = 0; i < state.size(); ++i) state[i] = i % kScanColumns < columns ? begin[i] : 0;
    shape.key_stride = d_key + 3;
    shape.v_stride = columns + 1;
    shape.gate_stride = 2;
    shape.rows = rows;
    shape.d_key = d_key;
    shape.columns = columns;
    shape.corrects = corrects;
    shape.z_stride = columns;
  }
  std::vector<float> q, k, v, decay, beta, state;
  ScanBlock shape = {};
};

TEST_P(ScanTest, EqualsReferenceAndBitsDoNotDependOnCuts) {
  for (const bool corrects : {true, false})
    for (const size_t columns : {1, 5, 8, 16, 19, 32})
      for (const size_t rows : {1, 2, 9}) {
        const size_t d_key = 13;
        const ScanProblem p(rows, d_key, columns, corrects);
        std::vector<double> q = as_double(p.q), k = as_double(p.k), v = as_double(p.v), decay = as_double(p.decay),
                            beta = as_double(p.beta), state = as_double(p.state), z(rows * columns);
        scan_reference<double>({q.data(), k.data(), p.shape.key_stride, v.data(), p.shape.v_stride, decay.data(), beta.data(), 2,
                                rows, d_key, columns, corrects, state.data(), z.data(), columns});
        const auto run = [&](size_t at_once, Guarded<float>& S, Guarded<float>& out) {
          const Guarded<float> queries(std::vector<float>(p.q.begin(), p.q.end() - 3)),
              keys(std::vector<float>(p.k.begin(), p.k.end() - 3)), values(std::vector<float>(p.v.begin(), p.v.end() - 1));
          for (size_t r = 0; r < rows; r += at_once) {
            ScanBlock b = p.shape;
            b.q = queries.data() + r * b.key_stride;
            b.k = keys.data() + r * b.key_stride;
            b.v = values.data() + r * b.v_stride;
            b.decay = p.decay.data() + 2 * r;
            b.beta = p.beta.data() + 2 * r;
            b.rows = std::min(at_once, rows - r);
            b.state = S.data();
            b.z = out.data() + r * columns;
            table->scan(b);
          }
          EXPECT_TRUE(S.intact() && out.intact());
        };
        Guarded<float> S(p.state), out(rows * columns), S_cut(p.state), out_cut(rows * columns);
        run(rows, S, out);
        run(1, S_cut, out_cut);
        for (size_t i = 0; i < z.size(); ++i) ASSERT_NEAR(out[i], z[i], 3e-5) << corrects << " " << columns << " " << rows;
        for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(S[i], state[i], 1e-5);
        EXPECT_TRUE(same_bits(out.data(), out_cut.data(), z.size()));
        EXPECT_TRUE(same_bits(S.data(), S_cut.data(), state.size()));
      }
}

VITRINE_FOR_EVERY_TARGET(ScanTest);

}  // namespace
}  // namespace vitrine
