#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/options.h"
#include "cli/output.h"
#include "vitrine/version.h"

namespace vitrine::cli {
namespace {

struct Entry {
  const char *name, *what;
};
constexpr Entry kExitCodes[] = {
    {"0", "Done."},
    {"1", "The run failed, for example on NaN in the weights or a full disk."},
    {"2",
     "The input or the flags are wrong: a missing or damaged file, an unknown architecture, a bad id, a prompt longer than the "
     "context, an output file that cannot be made."},
};
constexpr Entry kEnvironment[] = {
    {"VITRINE_TARGET",
     "Forces the kernels of one instruction set: reference; on x86-64 avx2, avx512, avx512_bf16 or amx; on 64-bit Arm "
     "neon, neon_dot, neon_i8mm or neon_bf16. --version lists what this machine has."},
    {"HF_HOME, HF_HUB_CACHE",
     "Where the local Hugging Face cache lies, which pull writes and --model reads ids such as google/gemma-2b from."},
    {"HF_TOKEN, HF_TOKEN_PATH",
     "For pull: a token of the hub, or the file that holds one; default: the file `token` in HF_HOME, which `hf auth login` "
     "writes."},
    {"HF_ENDPOINT", "For pull: another hub than https://huggingface.co. A token goes to it and to no other address."},
    {"HF_HUB_OFFLINE", "If 1, pull and info --hub fetch nothing. Other commands never use the network."},
    {"SSL_CERT_FILE", "For pull: the certificates to trust instead of the system's. HTTPS_PROXY and NO_PROXY count, too."},
    {"BROWSER", "For explain --open: the program that shows the page; default: open on macOS, xdg-open elsewhere."},
    {"NO_COLOR", "If set and not empty, no colors are written to a terminal."},
};
constexpr const char* kOverview =
    "Runs decoder-only transformer language models from Hugging Face "
    "directories and GGUF files, and shows every intermediate by name. Results go to standard output, everything else to "
    "standard error; with --json one machine-readable document comes out. Without --model the small model that ships with "
    "vitrine is used.";

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// Text for troff: backslashes, hyphens and a dot or quote at a line's start mean something there.
std::string troff(const std::string& text) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\'')) safe += "\\&";
    if (text[i] == '\\') {
      safe += "\\e";
    } else if (text[i] == '-') {
      safe += "\\-";
    } else {
      safe += text[i];
    }
  }
  return safe;
}

/// Text in a table cell of Markdown.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '<') safe += '\\';
    safe += c == '\n' ? ' ' : c;
  }
  return safe;
}

std::string usage(const CommandText& command) {
  std::string text = "vitrine " + command.name + " [OPTIONS]";
  for (const OptionText& option : command.options)
    if (option.positional) text += " [" + option.flags.front() + "]";
  return text;
}

}  // namespace

std::string manual_page() {
  std::string page = fmt::format(
      ".TH VITRINE 1 \"\" \"vitrine {}\" \"User Commands\"\n"
      ".SH NAME\nvitrine \\- run transformer language models and show their inside\n"
      ".SH SYNOPSIS\n.B vitrine\n.I COMMAND\n[OPTIONS]\n.br\n.B vitrine \\-\\-version\n"
      ".SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      version(), troff(kOverview));
  for (const CommandText& command : describe_commands()) {
    page += fmt::format(".SS {}\n{}.\n{}\n", troff(usage(command)), troff(command.summary), troff(command.details));
    for (const OptionText& option : command.options)
      page += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", troff(joined(option.flags, ", ")),
                          option.value.empty() ? "" : " \\fI" + troff(option.value) + "\\fR", troff(option.what));
    page += fmt::format(".PP\nExample:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", troff(command.example));
  }
  page += ".SH EXIT STATUS\n";
  for (const Entry& entry : kExitCodes) page += fmt::format(".TP\n.B {}\n{}\n", entry.name, troff(entry.what));
  page += ".SH ENVIRONMENT\n";
  for (const Entry& entry : kEnvironment) page += fmt::format(".TP\n.B {}\n{}\n", entry.name, troff(entry.what));
  return page;
}

std::string manual_markdown() {
  std::string page = fmt::format(
      "# The command line\n\n"
      "Written by `vitrine manual --format markdown` from the program's own tables; a test compares the two.\n\n{}\n\n"
      "| exit code | meaning |\n| --- | --- |\n",
      kOverview);
  for (const Entry& entry : kExitCodes) page += fmt::format("| {} | {} |\n", entry.name, cell(entry.what));
  page += "\n| environment | meaning |\n| --- | --- |\n";
  for (const Entry& entry : kEnvironment) page += fmt::format("| `{}` | {} |\n", entry.name, cell(entry.what));
  for (const CommandText& command : describe_commands()) {
    page += fmt::format("\n## vitrine {}\n{}.\n\n{}\n\n```sh{}\n", command.name, command.summary, command.details,
                        command.example_needs.empty() ? "" : " skip=\"needs " + command.example_needs + "\"");
    std::string line;
    for (const char c : command.example + std::string("\n")) {
      if (c != '\n') {
        line += c;
        continue;
      }
      page += (line.rfind("vitrine ", 0) == 0 ? "build/release/" : "") + line + "\n";
      line.clear();
    }
    page += "```\n\n| argument | meaning |\n| --- | --- |\n";
    for (const OptionText& option : command.options)
      page += fmt::format("| `{}{}` | {} |\n", joined(option.flags, ", "), option.value.empty() ? "" : " " + cell(option.value),
                          cell(option.what));
  }
  return page;
}

Action define_manual(CLI::App& app) {
  auto format = std::make_shared<std::string>("man");
  add_choice(app, "--format", *format, "man|markdown", "A page for man(1), or Markdown (default man)");
  return [format] { print("{}", *format == "man" ? manual_page() : manual_markdown()); };
}

}  // namespace vitrine::cli
