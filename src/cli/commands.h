#pragma once
// Each command's define function (see command.h), named here once for the table.
#include "cli/command.h"

namespace vitrine::cli {

Action define_completion(CLI::App& app);
Action define_manual(CLI::App& app);

}  // namespace vitrine::cli
