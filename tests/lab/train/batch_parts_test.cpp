#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "train/data/batch_source.h"

namespace vitrine {
namespace {

TEST(Batches, GoInPartsOfWholeSequences) {
  Batch batch;
  batch.lengths = {3, 5, 2, 9, 1, 4};
  batch.first_row = 100;
  batch.sampled = true;
  batch.teacher.k = 2;
  for (int32_t row = 0; row < 24; ++row) {
    batch.tokens.push_back(row);
    batch.labels.push_back(row + 1);
    for (int32_t i = 0; i < 2; ++i) batch.teacher.tokens.push_back(10 * row + i);
    for (int32_t i = 0; i < 3; ++i) batch.teacher.logprobs.push_back(static_cast<float>(-10 * row - i));
  }
  for (const int64_t most : {1, 2, 7, 10, 23, 24, 1000}) {
    SCOPED_TRACE(most);
    Batch joined;
    for (const Batch& part : parts_of(batch, most)) {
      ASSERT_FALSE(part.lengths.empty());
      EXPECT_EQ(part.first_row, 100 + joined.tokens.size());
      EXPECT_TRUE(part.sampled);
      EXPECT_EQ(part.teacher.k, 2);
      EXPECT_EQ(part.tokens.size(), std::accumulate(part.lengths.begin(), part.lengths.end(), size_t{0}));
      EXPECT_LT(part.tokens.size(), most + 9);  // all but one sequence
      const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
      append(joined.lengths, part.lengths);
      append(joined.tokens, part.tokens);
      append(joined.labels, part.labels);
      append(joined.teacher.tokens, part.teacher.tokens);
      append(joined.teacher.logprobs, part.teacher.logprobs);
    }
    EXPECT_EQ(joined.lengths, batch.lengths);
    EXPECT_EQ(joined.tokens, batch.tokens);
    EXPECT_EQ(joined.labels, batch.labels);
    EXPECT_EQ(joined.teacher.tokens, batch.teacher.tokens);
    EXPECT_EQ(joined.teacher.logprobs, batch.teacher.logprobs);
  }
  EXPECT_EQ(parts_of(batch, 24).size(), 1u);
  EXPECT_TRUE(parts_of(Batch{}, 24).empty());

  // Windows of one length are shared evenly: 5 of 256 rows give 3 and 2, not 4 and 1.
  for (const auto& [windows, length, most, largest] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
           {5, 256, 1024, 768}, {16, 256, 1024, 1024}, {3, 2000, 1024, 2000}, {7, 10, 1024, 70}}) {
    Batch even;
    even.lengths.assign(static_cast<size_t>(windows), length);
    even.tokens.resize(static_cast<size_t>(windows * length));
    even.labels = even.tokens;
    size_t rows = 0;
    for (const Batch& part : parts_of(even, most)) rows = std::max(rows, part.tokens.size());
    EXPECT_EQ(rows, static_cast<size_t>(largest));
    EXPECT_EQ(rows_of_part(windows * length, length, most), largest);
  }
}

}  // namespace
}  // namespace vitrine
