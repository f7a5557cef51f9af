// vitrine verify: this model's numbers against those of a reference implementation.
#include "inspect/verify.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/text_table.h"

namespace vitrine::cli {
namespace {

struct VerifyArguments {
  ModelOptions model;
  std::string reference;
};

void print_report(const VerifyReport& report) {
  TextTable table{{{"quantity", true}, {"largest"}, {"mean"}, {"relative"}, {"of limit"}}, {}};
  const auto rounded = [](double value) { return fmt::format("{:.3g}", value); };
  for (const VerifiedQuantity& q : report.quantities) {
    const std::string share = rounded(q.worst.share_of_tolerance);
    table.rows.push_back({q.name(), rounded(q.max_abs), rounded(q.mean_abs), rounded(q.relative), q.held ? share : bold(share)});
  }
  print_table(table);
  for (const VerifiedQuantity& q : report.quantities) {
    if (q.kl_mean)
      print("{}: KL {:.3g} mean, {:.3g} largest; the most likely token is the same at {} of positions\n", q.quantity, *q.kl_mean,
            q.kl_max.value_or(0), percent(q.top1_agreement.value_or(0)));
    if (!q.held) print("{}: furthest at {}: {:g}, the reference has {:g}\n", q.hook, q.worst.at, q.worst.ours, q.worst.reference);
  }
  for (const std::string& name : report.not_compared) log("not compared: {}", name);
  log("{}, {}; allowed {:g} + {:g} |reference| ({}); kernels {}", plural(report.sequences, "sequence"),
      plural(report.tokens, "token"), report.tolerance_abs, report.tolerance_rel, report.tolerance_from, report.kernels);
  if (!report.note.empty()) log("{}", report.note);
  print("{}\n", verdict(report));  // the last line of the result, after all that is said about it
}

void run_verify(const VerifyArguments& o) {
  Engine engine = open_engine(o.model);
  const VerifyReport report = verify(engine, o.reference);
  if (o.model.json) {
    print_json(to_json(report));
  } else {
    print_report(report);
  }
  if (report.held) return;
  throw RunError("differs from the reference");
}

Action define_verify(CLI::App& app) {
  auto o = std::make_shared<VerifyArguments>();
  app.add_option("--reference", o->reference,
                 "A folder or safetensors file with the reference's numbers (docs/numerics.md describes the forms)")
      ->type_name("DIR")
      ->required();
  add_model_options(app, o->model);
  return [o] { run_verify(*o); };
}

}  // namespace

const Command verify_command = {
    "verify", "Compare results with those of a reference implementation",
    "Prints the largest and mean distance of logits, hidden states and attention patterns, the KL divergence and how "
    "often the most likely token agrees. The last line is \"agrees\", or \"differs\" with the first difference. The exit "
    "code is 1 if a difference exceeds the tolerance in docs/numerics.md.",
    "vitrine verify --reference tests/golden/tales9m --compute f32", define_verify};

}  // namespace vitrine::cli
