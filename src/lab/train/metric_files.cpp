#include "train/metric_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using Line = nlohmann::ordered_json;
constexpr const char* kEvents = "events.out.tfevents.";
// What only some lines have.
constexpr const char* kAtTimes[] = {"val_loss", "val_bits_per_byte", "val_loss_ema"};

template <class T>
std::string little_endian(T number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(static_cast<unsigned char>(number >> (8 * i)));
  return bytes;
}
template <class Bits, class T>
std::string bits_of(T number) {
  Bits bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return little_endian(bits);
}
std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(static_cast<unsigned char>(number | 0x80));
  return bytes + static_cast<char>(static_cast<unsigned char>(number));
}
// A field of protobuf that holds bytes: text or a message.
std::string bytes_field(unsigned number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

void collect(const Line& value, const std::string& name, std::vector<std::pair<std::string, float>>& to) {
  if (value.is_number()) to.emplace_back(name, value.get<float>());
  if (!value.is_object()) return;
  for (const auto& [key, child] : value.items()) collect(child, name.empty() ? key : name + "/" + key, to);
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ ((t[i] & 1) != 0 ? 0x82f63b78u : 0);
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian(static_cast<uint64_t>(bytes.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(bytes) + little_endian(masked(crc32c(bytes)));
}

std::string tensorboard_event(double wall_time, int64_t step, const std::vector<std::pair<std::string, float>>& values) {
  std::string event = varint(1 << 3 | 1) + bits_of<uint64_t>(wall_time);
  if (step != 0) event += varint(2 << 3) + varint(static_cast<uint64_t>(step));  // 0 is what an absent one means
  if (values.empty()) return event + bytes_field(3, "brain.Event:2");
  std::string summary;
  for (const auto& [tag, number] : values)
    summary += bytes_field(1, bytes_field(1, tag) + varint(2 << 3 | 5) + bits_of<uint32_t>(number));
  return event + bytes_field(5, summary);
}

std::vector<std::pair<std::string, float>> numbers_of(const Line& line) {
  std::vector<std::pair<std::string, float>> numbers;
  for (const auto& [key, value] : line.items())
    if (key != "step") collect(value, key, numbers);
  return numbers;
}

MetricFiles::MetricFiles(const std::string& folder, const MetricFormats& formats, const std::vector<std::string>& lines) {
  if (formats.csv) {
    csv_path_ = folder + "/metrics.csv";
    csv_.open(csv_path_, std::ios::binary | std::ios::trunc);
    write(csv_, csv_path_, "");
  }
  if (formats.tensorboard) {
    const std::string to = folder + "/tensorboard";
    std::error_code error;
    fs::create_directories(to, error);
    if (error) throw RunError(to + ": cannot be made: " + error.message());
    for (const auto& entry : fs::directory_iterator(to, error))  // of this run before it went on: the lines are written again
      if (entry.path().filename().string().starts_with(kEvents)) fs::remove(entry.path(), error);
    const auto nanoseconds = std::chrono::system_clock::now().time_since_epoch().count();
    events_path_ = to + "/" + kEvents + std::to_string(static_cast<int64_t>(seconds_now())) + ".vitrine." +
                   std::to_string(nanoseconds % 1'000'000'000);
    events_.open(events_path_, std::ios::binary | std::ios::trunc);
    write(events_, events_path_, tf_record(tensorboard_event(seconds_now(), 0, {})));
  }
  for (const std::string& line : lines) add(line);
}

void MetricFiles::write(std::ofstream& file, const std::string& path, const std::string& bytes) {
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.flush();
  if (!file) throw RunError(path + ": cannot be written: " + std::strerror(errno));
}

void MetricFiles::add(const std::string& text) {
  const Line line = Line::parse(text, nullptr, false);
  if (!line.is_object() || !line.contains("step") || !line.at("step").is_number_integer()) return;
  if (events_.is_open())
    if (const auto numbers = numbers_of(line); !numbers.empty())
      write(events_, events_path_, tf_record(tensorboard_event(seconds_now(), line.at("step").get<int64_t>(), numbers)));
  if (!csv_.is_open()) return;
  if (columns_.empty() && !line.contains("loss")) return waiting_.push_back(line);  // before the first step
  if (columns_.empty()) {
    for (const auto& [key, value] : line.items())
      if ((value.is_number() || value.is_null()) && key != "saved") columns_.push_back(key);
    for (const char* key : kAtTimes)
      if (std::find(columns_.begin(), columns_.end(), key) == columns_.end()) columns_.emplace_back(key);
    std::string head;
    for (const std::string& column : columns_) head += (head.empty() ? "" : ",") + column;
    write(csv_, csv_path_, head + "\n");
    for (const Line& earlier : waiting_) add_row(earlier);
    waiting_.clear();
  }
  add_row(line);
}

void MetricFiles::add_row(const Line& line) {
  std::string row;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) row += ",";
    if (line.contains(columns_[i]) && line.at(columns_[i]).is_number()) row += line.at(columns_[i]).dump();
  }
  write(csv_, csv_path_, row + "\n");
}

}  // namespace vitrine
