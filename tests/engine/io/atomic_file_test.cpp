#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(AtomicFile, ReplacesTheFileWhenItIsComplete) {
  const Scratch scratch;
  const std::string path = scratch / "numbers";
  write_file_atomically(path, "before");
  {
    AtomicFile file(path);
    file.write_at(0, std::as_bytes(std::span("half", 4)));
    EXPECT_EQ(read_file(path), "before");
  }
  EXPECT_EQ(read_file(path), "before");
  write_file_atomically(path, "after");
  EXPECT_EQ(read_file(path), "after");
  EXPECT_EQ(files_in(scratch.path()), 1u);  // nothing temporary is left
}

TEST(AtomicFile, FollowsALink) {
  const Scratch scratch;
  write_file_atomically(scratch / "file", "before");
  std::filesystem::create_symlink("file", scratch / "link");
  write_file_atomically(scratch / "link", "after");
  EXPECT_TRUE(std::filesystem::is_symlink(scratch / "link"));
  EXPECT_EQ(read_file(scratch / "file"), "after");
}

TEST(AtomicFile, RefusesWhatIsNoRegularFile) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("nothing", scratch / "dangling");
  std::filesystem::create_symlink("pipe", scratch / "to_pipe");
  for (const std::string& path : {scratch / "pipe", scratch / "dangling", scratch / "to_pipe", scratch.path()})
    EXPECT_THROW(write_file_atomically(path, "text"), InputError) << path;
  EXPECT_EQ(files_in(scratch.path()), 3u);
  EXPECT_THROW(write_file_atomically(scratch / "no/such/folder", "text"), RunError);
}

TEST(AtomicFile, SeveralAreReplacedTogetherOrNot) {
  const Scratch scratch;
  write_files_atomically({{scratch / "a", "old"}, {scratch / "b", "old"}});
  std::filesystem::create_symlink("nothing", scratch / "dangling");
  EXPECT_THROW(write_files_atomically({{scratch / "a", "new"}, {scratch / "dangling", "new"}}), InputError);
  EXPECT_EQ(read_file(scratch / "a"), "old");
  EXPECT_EQ(files_in(scratch.path()), 3u);
  write_files_atomically({{scratch / "a", "new"}, {scratch / "b", "new"}});
  EXPECT_EQ(read_file(scratch / "a") + read_file(scratch / "b"), "newnew");
}

}  // namespace
}  // namespace vitrine
