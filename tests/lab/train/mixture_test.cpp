// Several folders of data in one run, each with its share.
#include <gtest/gtest.h>

#include <cstdlib>

#include "train/data/mixed_source.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

BatchOptions batches(int64_t batch, int rank = 0, int ranks = 1) {
  return {.sequence_length = 16, .batch = batch, .seed = 7, .documents = true, .rank = rank, .ranks = ranks};
}

class Mixture : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "other", 15, 3);
    small_data(scratch, "valid", 6, 2);
  }
  DataPart part(const std::string& name, double weight) { return {TokenData::open(scratch / name), weight}; }
  TrainConfig config(const std::string& out, const std::string& train) {
    std::string text = small_config(scratch, scratch / out);
    const std::string one = "train: " + scratch / "data";
    text.replace(text.find(one), one.size(), "train: " + train);
    return parse_train_config(text, "config.yaml");
  }
  std::string both(const char* first, const char* second) {
    return "[{path: " + scratch / "data" + ", weight: " + first + "}, {path: " + scratch / "other" + ", weight: " + second + "}]";
  }
  Scratch scratch;
};

TEST_F(Mixture, EachFolderHasItsShareOfEveryStretch) {
  const DataMix mix({part("data", 5), part("other", 2), part("valid", 0.5)});
  std::vector<double> given(3);
  for (size_t i = 0; i < mix.turns().size(); ++i) {
    ++given[mix.turns()[i]];
    for (size_t p = 0; p < 3; ++p) ASSERT_LE(std::abs(given[p] - mix.share(p) * static_cast<double>(i + 1)), 1.5) << i;
  }
  EXPECT_EQ(mix.path(), scratch / "data" + " and 2 others");
}

// A part's sequences are those of the part alone, in its order; with the same seed the first one's are the same numbers.
TEST_F(Mixture, GivesWhatThePartsGive) {
  const DataMix mix({part("data", 3), part("other", 1)}), data({part("data", 1)});
  MixedSource source(mix, batches(1)), alone(data, batches(1));
  for (int i = 0; i < 200; ++i) {
    const Batch got = source.next();
    if (mix.turns()[static_cast<size_t>(i)] == 0) {
      EXPECT_EQ(got.tokens, alone.next().tokens) << i;
    }
  }
  EXPECT_EQ(source.position(), (DataPosition{0, 200}));
  const std::vector<PartPosition> parts = source.parts();
  EXPECT_EQ(parts[0].sequences, 150u);
  EXPECT_EQ(parts[1].sequences, 50u);
  EXPECT_EQ(source.windows_per_epoch(), parts[0].windows + parts[1].windows);
}

TEST_F(Mixture, GoesOnFromAnyPositionAndIsSharedByRanks) {
  const DataMix mix({part("data", 3), part("other", 1.7)});
  MixedSource whole(mix, batches(6)), first(mix, batches(3, 0, 2)), second(mix, batches(3, 1, 2));
  for (int i = 0; i < 40; ++i) {
    MixedSource other(mix, batches(6));
    other.seek(whole.position());
    const Batch got = whole.next(), half = first.next(), rest = second.next();
    EXPECT_EQ(other.next().tokens, got.tokens) << i;
    std::vector<int32_t> joined = half.tokens;
    joined.insert(joined.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(joined, got.tokens) << i;
    EXPECT_EQ(other.position(), whole.position());
  }
  MixedSource far(mix, batches(1)), near(mix, batches(1));
  far.seek({0, uint64_t{1} << 52});  // takes no time
  near.seek({0, (uint64_t{1} << 52) - 1});
  near.next();
  EXPECT_EQ(far.next().tokens, near.next().tokens);
  EXPECT_CONTAINS(message_of<InputError>([&] { far.seek({1, 0}); }), "a mixture has no epoch 1");
}

TEST_F(Mixture, RefusesWeightsThatWouldNeverCount) {
  EXPECT_CONTAINS(message_of<InputError>([&] { DataMix({part("data", 1), part("other", 1e-6)}); }),
                  "its weight is less than 1/65536 of all weights together");
  EXPECT_CONTAINS(message_of<InputError>([&] { DataMix({part("data", 0)}); }), "expected a number above 0");
}

TEST_F(Mixture, ARunGoesOnToTheSameBits) {
  std::vector<TrainEvents::DataShare> told;
  TrainEvents events;
  events.started = [&](const TrainEvents::Start& start) { told = start.data; };
  train(config("whole", both("3", "1")), false, events);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].path, scratch / "other");
  EXPECT_DOUBLE_EQ(told[1].share, 0.25);
  EXPECT_GT(told[1].epochs, 0);
  EXPECT_TRUE(train_up_to(config("cut", both("3", "1")), 5).stopped);
  EXPECT_EQ(train(config("cut", both("3", "1")), true).step, 12);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut", both("3", "2")), true); }),
                  "the run has data_weights \"3.0, 1.0\", and the configuration now says \"3.0, 2.0\"");
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut", scratch / "data"), true); }),
                  "the run has learned from data of");
}

TEST_F(Mixture, IsReadFromTheConfiguration) {
  using Folder = TrainConfig::DataFolder;
  EXPECT_EQ(config("o", "[a, {path: b, weight: 2.5}]").train_data, (std::vector<Folder>{{"a", 1}, {"b", 2.5}}));
  EXPECT_EQ(config("o", "a").train_data, (std::vector<Folder>{{"a", 1}}));
  const auto refused = [&](const std::string& train) { return message_of<FileError>([&] { config("o", train); }); };
  EXPECT_CONTAINS(refused("[{path: a, weight: 0}]"), "expected a weight from 1e-9 to 1e9; leave a folder out");
  EXPECT_CONTAINS(refused("[{path: a, wait: 1}]"), "\"data.train[0].wait\" is not known. Here can stand: path, weight");
  EXPECT_CONTAINS(refused("[{weight: 1}]"), "path");
  EXPECT_CONTAINS(refused("[a, b, a]"), "is in the list twice");
  EXPECT_CONTAINS(refused("[]"), "expected a folder made by `vitrine data`, or a list");
}

}  // namespace
}  // namespace vitrine
