// metrics.csv, and event files against those of TensorBoard's own writer (tests/golden/tensorboard/make.py).
#include "train/metric_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

TEST(TensorBoard, EventsAreThoseOfItsOwnWriter) {
  const double begin = 1.7e9;
  std::string bytes = tf_record(tensorboard_event(begin, 0, {}));
  bytes += tf_record(tensorboard_event(begin, 0, {{"val_loss", 5.5f}}));
  bytes += tf_record(tensorboard_event(begin + 300 / 8.0, 300, {{"loss", 2.25f}, {"layer_grad_norm/blocks.0", -1e-3f}}));
  const int64_t late = int64_t{1} << 40;
  bytes += tf_record(tensorboard_event(begin + static_cast<double>(late) / 8, late, {{"lr", 0.0f}}));
  EXPECT_EQ(bytes, read_file(std::string(VITRINE_GOLDEN) + "/tensorboard/events.tfevents"));
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // RFC 3720, the check value of the catalog of CRCs
}

TEST(MetricFiles, NumbersOfALineHaveTheirPathsAsTags) {
  const auto line = nlohmann::ordered_json::parse(R"({"step": 3, "loss": 1.5, "a": {"b": {"c": 2}, "d": null}, "text": "x"})");
  const std::vector<std::pair<std::string, float>> want = {{"loss", 1.5f}, {"a/b/c", 2.0f}};
  EXPECT_EQ(numbers_of(line), want);
}

TEST(MetricFiles, ARunWritesThemAndAResumedOneGoesOn) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 10, 2);
  const TrainConfig config = parse_train_config(
      small_config(scratch, scratch / "run", "metrics: {csv: true, tensorboard: true}\nlayers_every: 6\n"), "config.yaml");
  TrainEvents events;
  int64_t at = 0;
  events.stepped = [&](const StepReport& report, const TrainEvents::Rate&) { at = report.step; };
  events.stop = [&] { return at == 5; };
  train(config, false, events);
  train(config, true);
  std::ifstream csv(scratch / "run/metrics.csv");
  std::vector<std::string> rows;
  for (std::string row; std::getline(csv, row);) rows.push_back(row);
  ASSERT_EQ(rows.size(), 14u);  // names, before the first step, 12 steps
  EXPECT_EQ(rows[0], "step,tokens,loss,lr,grad_norm,tokens_per_s,peak_share,val_loss,val_bits_per_byte,val_loss_ema");
  EXPECT_TRUE(rows[1].starts_with("0,0,,,,,,")) << rows[1];
  const std::vector<Json> lines = metrics_of(scratch / "run");
  for (size_t i = 1; i <= 12; ++i) {
    const std::string begin = std::to_string(i) + "," + lines[i].at("tokens").dump() + "," + lines[i].at("loss").dump() + ",";
    EXPECT_TRUE(rows[i + 1].starts_with(begin)) << rows[i + 1];
  }
  EXPECT_NE(rows[5].find("," + lines[4].at("val_loss").dump() + ","), std::string::npos) << rows[5];
  const std::vector<std::string> files = names_under(scratch / "run/tensorboard");
  ASSERT_EQ(files.size(), 1u);
  const std::string recorded = read_file(scratch / ("run/tensorboard/" + files[0]));
  for (const char* tag : {"val_loss", "grad_norm", "layer_grad_norm/blocks.1"})
    EXPECT_NE(recorded.find(tag), std::string::npos) << tag;
}

}  // namespace
}  // namespace vitrine
