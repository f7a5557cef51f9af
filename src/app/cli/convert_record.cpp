#include "cli/convert_record.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "model/adapter.h"
#include "model/fingerprint.h"
#include "vitrine/version.h"

namespace vitrine::cli {
namespace {

std::string file_line(const std::string& what, const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) throw RunError(file + " cannot be looked at: " + std::strerror(errno));
  std::error_code error;
  return what + " " + std::filesystem::absolute(file, error).string() + " " + std::to_string(status.st_size) + " " +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) + "\n";
}

// The program encodes: a development version may do it otherwise under the same number.
std::string program_line() { return std::string("version ") + version() + "\n" + file_line("program", "/proc/self/exe"); }

uint64_t fingerprint_of_importances(const GgufPlan& plan, const GgufEncoding& encoding) {
  uint64_t sum = 0;
  if (!encoding.importance) return sum;
  for (const TensorPlan& tensor : plan.tensors) {
    const int64_t matrices = tensor.shape.size() > 2 ? tensor.shape.front() : 1;
    for (int64_t i = 0; i < matrices; ++i)
      if (const float* means = encoding.importance(tensor.name, i))
        sum = add_to_fingerprint(sum, std::as_bytes(std::span(means, static_cast<size_t>(tensor.shape.back()))));
  }
  return sum;
}

}  // namespace

std::string conversion_record(const OpenedModel& opened, const GgufPlan& plan, const GgufEncoding& encoding) {
  std::string text = program_line();
  for (const MappedFile& file : opened.checkpoint.files()) text += file_line("weights", file.path());
  if (opened.adapter != nullptr)
    for (const std::string& file : opened.adapter->files()) text += file_line("adapter", file);
  text += "configuration " + opened.files.config.dump() + "\n";
  return text + "importances " + hexadecimal(fingerprint_of_importances(plan, encoding)) + "\n";
}

}  // namespace vitrine::cli
