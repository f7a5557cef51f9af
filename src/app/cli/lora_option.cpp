#include "cli/lora_option.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "cli/options.h"

namespace vitrine::cli {

LoraWord parse_lora(std::string_view word) {
  LoraWord parsed{std::string(word), 1};
  if (const size_t colon = word.rfind(':'); colon != std::string_view::npos) {
    const std::string_view number = word.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), parsed.scale);
    if (error == std::errc() && end == number.data() + number.size())
      parsed.path = word.substr(0, colon);
    else
      parsed.scale = 1;
  }
  if (parsed.path.empty() || !std::isfinite(parsed.scale))
    throw UsageError("--lora is " + std::string(word) +
                     "; expected the folder of an adapter, and after a colon its scale if it is not 1");
  return parsed;
}

void add_lora_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--lora", options.lora,
                 "The folder of a LoRA adapter to run with the model, and after a colon its scale (default 1). May be repeated")
      ->type_name("FOLDER[:SCALE]")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
}

}  // namespace vitrine::cli
