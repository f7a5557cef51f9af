// A file that is cut while it is mapped: the process ends with a message that names it, where SIGBUS would say nothing.
#include "base/cut_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "base/mapped_file.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

bool has_own_handler() {  // of a sanitizer
  struct sigaction now = {};
  ::sigaction(SIGBUS, nullptr, &now);
  return now.sa_handler != SIG_DFL;
}

class CutFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (has_own_handler()) GTEST_SKIP() << "something else reports SIGBUS here";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  Scratch scratch_;
};

// Reads the last byte of what was mapped.
void touch(const MappedFile& file) {
  const volatile std::byte* const last = file.bytes().data() + file.bytes().size() - 1;
  static_cast<void>(*last);
}

TEST_F(CutFiles, AreNamed) {
  const std::string path = scratch_.write("model.safetensors", std::string(100000, 'x'));
  EXPECT_EXIT(
      {
        report_cut_files();
        const MappedFile other = MappedFile::open(scratch_.write("other", std::string(100000, 'x')));
        const MappedFile file = MappedFile::open(path);
        touch(file);
        if (::truncate(path.c_str(), 10) != 0) ::_exit(9);
        touch(file);
        ::_exit(8);
      },
      testing::ExitedWithCode(1),
      "model\\.safetensors: became shorter while it was read: it had 100000 bytes, and has 10\\. Leave a model's files alone");
}

TEST_F(CutFiles, AreNotBlamedForOtherSignals) {
  const std::string path = scratch_.write("model.safetensors", std::string(100000, 'x'));
  EXPECT_EXIT(
      {
        report_cut_files();
        const MappedFile file = MappedFile::open(path);
        ::raise(SIGBUS);
        ::_exit(8);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace vitrine
