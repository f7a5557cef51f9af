// What a user reads who names hooks that are not there, or more of them than fits.
#include "hooks/hooks.h"

#include "cli/program.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

std::string trace_file(const Scratch& scratch) { return scratch / "trace.safetensors"; }

TEST(HookRequests, UnknownNamesAreRefusedWithTheNearest) {
  const Scratch scratch;
  const auto refused = [&](const std::string& hook, const std::vector<std::string>& parts) {
    expect_refused({"trace", "--tokens", "2,7", "--model", golden_model("gemma2"), "--hooks", hook, "--out", trace_file(scratch)},
                   parts);
    EXPECT_FALSE(std::filesystem::exists(trace_file(scratch))) << hook;
  };
  refused("blocks.1.hook_residpost", {"blocks.1.hook_residpost", "Did you mean \"blocks.1.hook_resid_post\"?"});
  refused("blocks.*.attn.hook_patern", {"Did you mean \"blocks.*.attn.hook_pattern\"?"});
  refused("blocks.9.attn.hook_q", {"The model has 4 layers, 0 to 3"});
  refused("*nothing*", {"no hook of this gemma2 model fits \"*nothing*\"", "vitrine info --hooks"});
  refused("hook_pos_embed", {"no hook of this gemma2 model"});  // other families have it
  refused("blocks.0.attn.hook_q[heads=4]", {"4 heads, 0 to 3"});
  refused("blocks.0.attn.hook_q[heads=0", {"has a [ without its ]"});
  refused("[heads=1]", {"the hook request \"[heads=1]\" has no name; expected PATTERN"});
  refused("[hook_embed,logits]", {"the hook request \"[hook_embed,logits]\" has no name"});
}

// A flag that may be repeated takes one value each time: the word behind it is the prompt.
TEST(HookRequests, LeaveThePromptBehindThem) {
  const Scratch scratch;
  const Outcome outcome =
      vitrine({"trace", "--out", trace_file(scratch), "--hooks", "hook_embed", "--hooks", "logits", "The king"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(open_safetensors(trace_file(scratch)).tensors().size(), 2u);
}

TEST(HookRequests, MoreThanMemoryHoldsIsRefusedWithNumbersBeforeTheRun) {
  constexpr int64_t kTokens = 60000;  // 230 GB of scores and patterns; this decoder has a context of any length
  if (available_memory() > size_t{200} << 30)
    GTEST_SKIP() << "left out: a capture larger than memory; this machine would hold it";
  const Scratch scratch;
  std::string ids = "5";
  for (int64_t i = 1; i < kTokens; ++i) ids += ",5";
  const Outcome outcome =
      vitrine({"trace", "--tokens", ids, "--model", golden_model("classic_pre"), "--hooks", "blocks.*.attn.hook_attn_scores",
               "--hooks", "blocks.*.attn.hook_pattern", "--out", trace_file(scratch)});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_CONTAINS(outcome.err, "would take 219727 MiB of memory;");  // 2 layers · 2 · 4 heads · 60000² · 4 bytes
  EXPECT_CONTAINS(outcome.err, "MiB are left");
  EXPECT_CONTAINS(outcome.err, "slices");
  EXPECT_FALSE(std::filesystem::exists(trace_file(scratch)));
}

}  // namespace
}  // namespace vitrine
