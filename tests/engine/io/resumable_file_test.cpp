#include "io/resumable_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

bool is_empty(const Scratch& scratch) { return std::filesystem::is_empty(scratch.path()); }

void leave_behind(const std::string& path, const std::string& made_from, const std::string& bytes) {
  ResumableFile file(path, made_from);
  file.append(as_bytes(bytes));
}

TEST(ResumableFile, GoesOnBehindTheBytesOfARunThatWasStopped) {
  const Scratch scratch;
  const std::string path = scratch / "file";
  leave_behind(path, "recipe", "first, ");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(ResumableFile::left_behind(path), 7u);
  ResumableFile file(path, "recipe");
  EXPECT_EQ(file.written(), 7u);
  EXPECT_FALSE(file.began_anew());
  EXPECT_TRUE(file.begins_with(as_bytes("first")));
  EXPECT_FALSE(file.begins_with(as_bytes("First")));
  EXPECT_FALSE(file.begins_with(as_bytes("first, and more")));
  file.cut(5);
  file.append(as_bytes(" second"));
  file.finish();
  EXPECT_EQ(read_file(path), "first second");
  EXPECT_FALSE(std::filesystem::exists(ResumableFile::work_folder(path)));
}

TEST(ResumableFile, NeverGoesOnWithWhatWasMadeFromSomethingElse) {
  const Scratch scratch;
  leave_behind(scratch / "file", "recipe", "bytes");
  ResumableFile file(scratch / "file", "another recipe");
  EXPECT_EQ(file.written(), 0u);
  EXPECT_TRUE(file.began_anew());
  file.discard();
  EXPECT_TRUE(is_empty(scratch));
}

// The record begins with the number of the boot; a crash of the machine may lose bytes that a crash of the program does not.
TEST(ResumableFile, BeginsAnewAfterTheMachineWasStartedAnew) {
  const Scratch scratch;
  leave_behind(scratch / "file", "recipe", "bytes");
  const std::string record = scratch / ".converting-file/made-from";
  std::string text = read_file(record);
  text[0] = text[0] == 'a' ? 'b' : 'a';
  scratch.write(".converting-file/made-from", text);
  EXPECT_TRUE(ResumableFile(scratch / "file", "recipe").began_anew());
}

TEST(ResumableFile, IsWrittenByOneProcessAtATime) {
  const Scratch scratch;
  const ResumableFile file(scratch / "file", "recipe");
  EXPECT_CONTAINS(message_of<UsageError>([&] { ResumableFile(scratch / "file", "recipe"); }),
                  "is being written by another process");
}

TEST(ResumableFile, RefusesALinkInThePlaceOfItsFolder) {
  const Scratch scratch;
  scratch.link(".converting-file", scratch.path());
  EXPECT_CONTAINS(message_of<InputError>([&] { ResumableFile(scratch / "file", "recipe"); }), "is a link; remove it");
}

TEST(ResumableFile, KeepsWhatADiskThatIsFullHasTaken) {
  const Scratch scratch;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  {
    ResumableFile file(scratch / "file", "recipe");
    const rlimit small = {1000, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string message = message_of<RunError>([&] { file.append(as_bytes(std::string(1500, 'x'))); });
    ::setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_CONTAINS(message, "cannot be written at byte 1000");
    EXPECT_CONTAINS(message, "the same command continues from there");
  }
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(ResumableFile(scratch / "file", "recipe").written(), 1000u);
}

}  // namespace
}  // namespace vitrine
