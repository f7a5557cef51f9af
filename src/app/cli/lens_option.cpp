#include "cli/lens_option.h"

#include "cli/options.h"
#include "cli/output.h"

namespace vitrine::cli {

void add_lens_option(CLI::App& app, std::string& path, const std::string& what) {
  app.add_option("--lens", path, what)->type_name("FILE")->check(not_empty());
}

std::shared_ptr<const TunedLens> open_lens(const std::string& path, const Engine& engine) {
  std::shared_ptr<const TunedLens> lens = open_tuned_lens(path, engine);
  if (!trained_on(*lens, engine))
    log("{}: was trained on other weights ({}); what it shows of these is an approximation", path, visible(lens->model));
  return lens;
}

}  // namespace vitrine::cli
