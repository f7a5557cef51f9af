#pragma once
// The metrics of a run in the formats of other programs, beside metrics.jsonl: metrics.csv, and event files for TensorBoard.
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace vitrine {

/// CRC-32C (Castagnoli, polynomial 0x1EDC6F41) of bytes.
uint32_t crc32c(std::string_view bytes);

/// One record of a TFRecord file: length (u64), its masked checksum, the bytes, their masked checksum; little-endian
/// (tensorflow/core/lib/io/record_writer.h).
std::string tf_record(std::string_view bytes);

/// A TensorBoard event as serialized protobuf (tensorboard/compat/proto/event.proto): numbers with their tags at a step; without
/// any the first event of a file, which says its version. wall_time: seconds since 1970.
std::string tensorboard_event(double wall_time, int64_t step, const std::vector<std::pair<std::string, float>>& values);

/// All numbers of a line of metrics.jsonl but the step, with "/" between the names of objects within objects.
std::vector<std::pair<std::string, float>> numbers_of(const nlohmann::ordered_json& line);

struct MetricFormats {
  bool csv = false, tensorboard = false;
};

/// Written anew with the lines that a run goes on from, then line by line. Errors: RunError from the disk.
class MetricFiles {
 public:
  /// folder: of the run. lines: of metrics.jsonl.
  MetricFiles(const std::string& folder, const MetricFormats& formats, const std::vector<std::string>& lines);
  void add(const std::string& line);

 private:
  void add_row(const nlohmann::ordered_json& line);
  void write(std::ofstream& file, const std::string& path, const std::string& bytes);

  std::string csv_path_, events_path_;
  std::ofstream csv_, events_;
  std::vector<std::string> columns_;             // of the table, once a step's line has said which there are
  std::vector<nlohmann::ordered_json> waiting_;  // lines before that
};

}  // namespace vitrine
