// vitrine verify: this model's numbers against those of a reference implementation.
#include "inspect/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"

namespace vitrine::cli {
namespace {

struct VerifyArguments {
  ModelOptions model;
  std::string reference;
};

void print_report(const VerifyReport& report) {
  std::vector<std::string> names;
  int widest = 8;
  for (const VerifiedQuantity& q : report.quantities) {
    names.push_back(q.name());
    widest = std::max(widest, width_of(names.back()));
  }
  print("{}\n",
        dim(fmt::format("{}{:>12}{:>12}{:>12}{:>10}", pad_right("quantity", widest), "largest", "mean", "relative", "of limit")));
  for (size_t i = 0; i < names.size(); ++i) {
    const VerifiedQuantity& q = report.quantities[i];
    const std::string share = fmt::format("{:.3g}", q.worst.share_of_tolerance);
    print("{}{:>12.3g}{:>12.3g}{:>12.3g}  {:>8}\n", pad_right(names[i], widest), q.max_abs, q.mean_abs, q.relative,
          q.held ? share : bold(share));
  }
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

}  // namespace

Action define_verify(CLI::App& app) {
  auto o = std::make_shared<VerifyArguments>();
  app.add_option("--reference", o->reference,
                 "A folder or safetensors file with the reference's numbers (docs/numerics.md describes the forms)")
      ->type_name("DIR")
      ->required();
  add_model_options(app, o->model);
  return [o] { run_verify(*o); };
}

}  // namespace vitrine::cli
