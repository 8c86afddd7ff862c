#include "fathom/checkpoint/piece_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

// A file of `count` pieces of `bytes` each, one after the other, behind a head that no page boundary likes.
class PieceStreamTest : public testing::Test {
 protected:
  static constexpr int64_t kHead = 1000;

  void make(int32_t count, int64_t bytes) {
    path_ = testing::TempDir() + "fathom_pieces_" + std::to_string(::getpid());
    std::vector<char> content(size_t(kHead + count * bytes));
    for (size_t i = 0; i < content.size(); ++i) content[i] = char(i * 2654435761u >> 24);
    std::ofstream(path_, std::ios::binary).write(content.data(), std::streamsize(content.size()));
    const int descriptor = ::open(path_.c_str(), O_RDONLY);  // what is not on the disk yet cannot leave the page cache
    ::fsync(descriptor);
    ::close(descriptor);
    auto file = MappedFile::open(path_);
    ASSERT_TRUE(file.ok());
    file_.emplace(std::move(*file));
    for (int32_t i = 0; i < count; ++i) {
      pieces_.push_back({{&*file_, file_->bytes().subspan(size_t(kHead + i * bytes), size_t(bytes))}});
    }
  }
  ~PieceStreamTest() override { std::filesystem::remove(path_); }

  // Mapped pages of the file, from the kernel's table.
  int64_t mapped_bytes() const {
    std::ifstream maps("/proc/self/smaps");
    bool ours = false;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(path_) != std::string::npos) ours = true;
      if (ours && line.starts_with("Rss:")) return 1024 * std::stoll(line.substr(4));
    }
    return -1;
  }

  std::string path_;
  std::optional<MappedFile> file_;
  std::vector<std::vector<MappedRange>> pieces_;
};

std::vector<int32_t> take_all(PieceStream& stream) {
  std::vector<int32_t> out;
  for (int32_t piece = stream.next(); piece >= 0; piece = stream.next()) {
    out.push_back(piece);
    stream.release(piece);
  }
  return out;
}

TEST_F(PieceStreamTest, HandsOutWhatIsWantedOnceAndThenNothing) {
  make(16, 100'000);
  PieceStream stream(pieces_, {.limit_bytes = 8 * piece_page_bytes(pieces_[0])});
  EXPECT_EQ(stream.next(), -1);
  for (const std::vector<int32_t>& wanted : {std::vector<int32_t>{3, 1, 2}, {}, {0, 1, 15}, {7}}) {
    stream.want(wanted);
    auto got = take_all(stream), all = wanted;
    std::sort(got.begin(), got.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(got, all);
    EXPECT_EQ(stream.next(), -1);
  }
  const StreamStatistics counts = stream.statistics();
  EXPECT_EQ(counts.uses, 7);
  EXPECT_EQ(counts.hits, 1);  // piece 1, the second time
  EXPECT_EQ(counts.evictions, 0);
}

TEST_F(PieceStreamTest, MoreThanFitsComesAsOthersAreReleased) {
  make(40, 50'000);
  int64_t largest = 0;
  for (const auto& piece : pieces_) largest = std::max(largest, piece_page_bytes(piece));
  for (const int64_t room : {1, 2, 5}) {
    PieceStream stream(pieces_, {.limit_bytes = room * largest});
    std::vector<int32_t> all(40);
    std::iota(all.begin(), all.end(), 0);
    for (int turn = 0; turn < 3; ++turn) {
      stream.want(all);
      EXPECT_EQ(take_all(stream).size(), 40u);
      EXPECT_LE(stream.statistics().resident_bytes, room * largest);
    }
    EXPECT_GE(stream.statistics().evictions, 3 * 40 - 3 * room);
  }
}

TEST_F(PieceStreamTest, ResidentPiecesComeFirst) {
  make(10, 200'000);
  PieceStream stream(pieces_, {.limit_bytes = 6 * (200'000 + 8192)});
  stream.want(std::vector<int32_t>{8, 9});
  take_all(stream);
  stream.want(std::vector<int32_t>{0, 1, 8, 9});
  EXPECT_EQ(stream.next(), 8);
  stream.release(8);
  EXPECT_EQ(stream.next(), 9);
  stream.release(9);
  take_all(stream);
}

// With huge pages what is mapped is what is counted, to the page. (Below 8 MiB the kernel may map what lies in the same
// piece of its cache, up to 2 MiB around.)
TEST_F(PieceStreamTest, TheKernelMapsNoMoreThanTheLimit) {
  make(10, PieceStream::kHugePieceBytes + 54'321);
  const int64_t limit = 3 * (PieceStream::kHugePieceBytes + 2 * MappedFile::kHugePage);
  PieceStream stream(pieces_, {.limit_bytes = limit});
  int64_t sum = 0;
  for (uint32_t turn = 0; turn < 10; ++turn) {
    const auto words = philox(turn, {0, 0, 0, 0});
    stream.want(std::vector<int32_t>{int32_t(words[0] % 5), int32_t(5 + words[1] % 5)});
    for (int32_t piece = stream.next(); piece >= 0; piece = stream.next()) {
      for (size_t i = 0; i < pieces_[size_t(piece)][0].bytes.size(); i += 512)
        sum += pieces_[size_t(piece)][0].bytes[i];
      stream.release(piece);
    }
    const int64_t mapped = mapped_bytes();
    ASSERT_GT(mapped, 0);
    EXPECT_LE(mapped, limit) << "turn " << turn;
  }
  EXPECT_GT(sum, 0);
  EXPECT_GT(stream.statistics().evictions, 2);
}

TEST_F(PieceStreamTest, DropBehindEmptiesThePageCacheWhereTheFileSystemLetsIt) {
  make(32, 1 << 20);
  file_->drop(file_->bytes(), true);
  const auto left = file_->cached_bytes(file_->bytes());
  ASSERT_TRUE(left.has_value());
  if (*left > (4 << 20)) GTEST_SKIP() << "this file system keeps its pages (" << *left << " bytes)";
  const int64_t limit = 4 * piece_page_bytes(pieces_[1]);
  PieceStream stream(pieces_, {.limit_bytes = limit, .drop_behind = true});
  std::vector<int32_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  stream.want(all);
  take_all(stream);
  EXPECT_GT(stream.statistics().disk_bytes, 0);  // not all of it: the kernel reads ahead
  // What is resident, and the readahead of the kernel behind it.
  EXPECT_LE(*file_->cached_bytes(file_->bytes()), limit + (16 << 20));
}

// 8 MiB and more: pages of 2 MiB where there are some, and pieces that share one at their ends.
TEST_F(PieceStreamTest, LargePiecesReadTheSameBytes) {
  make(6, PieceStream::kHugePieceBytes + 12'345);
  EXPECT_EQ(piece_page_bytes(pieces_[2]) % MappedFile::kHugePage, 0);
  PieceStream stream(
      pieces_, {.limit_bytes = 3 * (PieceStream::kHugePieceBytes + 2 * MappedFile::kHugePage), .drop_behind = true});
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<int32_t> all(6);
    std::iota(all.begin(), all.end(), 0);
    stream.want(all);
    for (int32_t piece = stream.next(); piece >= 0; piece = stream.next()) {
      const auto bytes = pieces_[size_t(piece)][0].bytes;
      const auto first = size_t(bytes.data() - file_->bytes().data());
      for (size_t i = 0; i < bytes.size(); i += 4093) {
        ASSERT_EQ(bytes[i], uint8_t((first + i) * 2654435761u >> 24)) << piece << " at " << i;
      }
      stream.release(piece);
    }
  }
}

TEST_F(PieceStreamTest, AGuessIsReadAheadAndAWrongOneLetsGo) {
  make(20, 300'000);
  PieceStream stream(pieces_, {.limit_bytes = 4 * (300'000 + 8192)});
  std::vector<int32_t> guess = {0, 1, 2, 3, 4, 5, 6, 7};  // more than fits: the first ones are taken
  stream.expect(guess);
  stream.want(std::vector<int32_t>{2, 9});  // one of them right
  EXPECT_EQ(take_all(stream).size(), 2u);
  stream.expect(guess);
  stream.expect(std::vector<int32_t>{10, 11});  // another guess replaces it
  stream.want(std::vector<int32_t>{12, 13, 14, 15, 16});
  EXPECT_EQ(take_all(stream).size(), 5u);
  stream.expect(guess);  // and nobody wants anything before the end
}

}  // namespace
}  // namespace fathom
