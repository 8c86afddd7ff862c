#include "fathom/base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace fathom {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "fathom_mapped_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(MappedFileTest, WhatWasWrittenIsRead) {
  const std::string text("a\0b\n\xff", 5);
  ASSERT_TRUE(write_file(path("file"), text).ok());
  const auto got = read_file(path("file"));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, text);
  EXPECT_FALSE(fs::exists(path("file.part")));
}

TEST_F(MappedFileTest, WritingReplacesTheOldFileAsAWhole) {
  ASSERT_TRUE(write_file(path("file"), "a long old text").ok());
  const auto old = MappedFile::open(path("file"));
  ASSERT_TRUE(old.ok());
  ASSERT_TRUE(write_file(path("file"), "new").ok());
  EXPECT_EQ(*read_file(path("file")), "new");
  // Whoever has the old file open goes on seeing the old one.
  EXPECT_EQ(std::string(old->bytes().begin(), old->bytes().end()), "a long old text");
}

TEST_F(MappedFileTest, AnEmptyFileMapsToNoBytes) {
  ASSERT_TRUE(write_file(path("empty"), "").ok());
  const auto file = MappedFile::open(path("empty"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(*read_file(path("empty")), "");
}

TEST_F(MappedFileTest, MovesItsMappingAndKeepsItsBytes) {
  ASSERT_TRUE(write_file(path("file"), "bytes").ok());
  auto first = MappedFile::open(path("file"));
  ASSERT_TRUE(first.ok());
  const uint8_t* data = first->bytes().data();
  MappedFile second = std::move(*first);
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ(second.path(), path("file"));
  fs::remove(path("file"));
  EXPECT_EQ(second.bytes()[0], 'b');  // the mapping outlives the name
}

TEST_F(MappedFileTest, AMissingFileIsNotFoundAndNamed) {
  const auto got = MappedFile::open(path("nothing"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::not_found);
  EXPECT_EQ(got.error().where, path("nothing"));
  // A file in the middle of the path is no folder.
  ASSERT_TRUE(write_file(path("file"), "x").ok());
  EXPECT_EQ(read_file(path("file/below")).error().code, ErrorCode::not_found);
}

TEST_F(MappedFileTest, AFolderOrAPipeIsRefusedAtOnce) {
  EXPECT_EQ(MappedFile::open(folder_.string()).error().code, ErrorCode::bad_input);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  // Opening a pipe that nobody writes would wait for ever.
  EXPECT_EQ(MappedFile::open(path("pipe")).error().code, ErrorCode::bad_input);
}

TEST_F(MappedFileTest, AFileBeyondTheLimitIsRefusedWithBothSizes) {
  ASSERT_TRUE(write_file(path("file"), "12345").ok());
  EXPECT_TRUE(read_file(path("file"), 5).ok());
  const auto got = read_file(path("file"), 4);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::bad_input);
  EXPECT_NE(to_string(got.error()).find("file of 5 bytes"), std::string::npos);
  EXPECT_NE(to_string(got.error()).find("4 bytes"), std::string::npos);
}

TEST_F(MappedFileTest, AFileThatMayNotBeReadSaysSo) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  ASSERT_TRUE(write_file(path("file"), "x").ok());
  fs::permissions(path("file"), fs::perms::none);
  const auto got = MappedFile::open(path("file"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::failed);
  EXPECT_NE(to_string(got.error()).find("permissions"), std::string::npos);
}

// Linux tells what of a file is cached only to who could write it, and calls all of it cached to others.
TEST_F(MappedFileTest, WhatIsCachedOfAnothersFileIsNotKnown) {
  ASSERT_TRUE(write_file(path("file"), std::string(100'000, 'x')).ok());
  const auto own = MappedFile::open(path("file"));
  ASSERT_TRUE(own.ok());
  own->populate(own->bytes());
  EXPECT_GE(own->cached_bytes(own->bytes()).value_or(0), 100'000);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  fs::permissions(folder_, fs::perms(0755));
  fs::permissions(path("file"), fs::perms(0644));
  ASSERT_EQ(::seteuid(65534), 0);
  const auto foreign = MappedFile::open(path("file"));
  if (foreign.ok()) foreign->populate(foreign->bytes());
  const auto cached = foreign.ok() ? foreign->cached_bytes(foreign->bytes()) : std::optional<int64_t>(-1);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_FALSE(cached.has_value());
}

TEST_F(MappedFileTest, WritingIntoAMissingFolderFailsAndNamesIt) {
  const auto got = write_file(path("missing/file"), "x");
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::not_found);
  EXPECT_NE(got.error().where.find("missing/file"), std::string::npos);
}

TEST_F(MappedFileTest, AFullDiskLeavesTheOldFileAndNoPart) {
  ASSERT_TRUE(write_file(path("file"), "old").ok());
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full to play the full disk";
  fs::create_symlink("/dev/full", path("file.part"));
  const auto got = write_file(path("file"), "new");
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::failed);
  EXPECT_NE(got.error().message.find("No space left"), std::string::npos);
  EXPECT_EQ(*read_file(path("file")), "old");
  EXPECT_FALSE(fs::exists(fs::symlink_status(path("file.part"))));
}

TEST_F(MappedFileTest, AFolderInTheTargetsPlaceIsKept) {
  fs::create_directory(path("folder"));
  ASSERT_TRUE(write_file(path("folder/inner"), "x").ok());
  EXPECT_FALSE(write_file(path("folder"), "new").ok());
  EXPECT_EQ(*read_file(path("folder/inner")), "x");
  EXPECT_FALSE(fs::exists(path("folder.part")));
}

}  // namespace
}  // namespace fathom
