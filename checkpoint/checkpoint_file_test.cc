#include "lockstep/checkpoint/checkpoint_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Sections = std::vector<std::pair<std::string, std::string>>;

class CheckpointFile : public testing::Test {
 protected:
  CheckpointFile() : path_(testing::TempDir() + "/checkpoint") {
    std::remove(path_.c_str());
  }
  ~CheckpointFile() override { std::remove(path_.c_str()); }

  static absl::Status Write(const std::string& path, const Sections& sections) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
                              CheckpointWriter::Create(path));
    for (const auto& [name, bytes] : sections) {
      LOCKSTEP_RETURN_IF_ERROR(writer->Begin(name, 1));
      LOCKSTEP_RETURN_IF_ERROR(writer->Append(bytes));
    }
    return writer->Finish();
  }

  static absl::StatusOr<Sections> Read(const std::string& path) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(path));
    Sections sections;
    for (const CheckpointSection& section : reader->sections()) {
      std::string bytes(section.bytes, '\0');
      LOCKSTEP_RETURN_IF_ERROR(reader->Read(section, 0, absl::MakeSpan(bytes)));
      sections.emplace_back(section.name, bytes);
    }
    return sections;
  }

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Put(absl::string_view bytes) const {
    std::ofstream(path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  const std::string path_;
};

TEST_F(CheckpointFile, HoldsWhatWasWritten) {
  const std::string large(3 << 20, 'x');
  const Sections sections = {{"step", "12"}, {"empty", ""}, {"large", large}};
  LOCKSTEP_ASSERT_OK(Write(path_, sections));
  EXPECT_THAT(Read(path_), IsOkAndHolds(sections));
  // The file has 128 bytes of its own, and each section has 64 and its name.
  size_t bytes = 128;
  for (const auto& [name, value] : sections) {
    bytes += 64 + name.size() + value.size();
  }
  EXPECT_EQ(Bytes().size(), bytes);
}

TEST_F(CheckpointFile, IsTheSameWhateverThePieces) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"a", std::string((1 << 20) + 7, 'x')}}));
  const std::string whole = Bytes();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto writer, CheckpointWriter::Create(path_));
  LOCKSTEP_ASSERT_OK(writer->Begin("a", 1));
  int64_t left = (1 << 20) + 7;
  for (int64_t piece = 1; left > 0; piece = piece * 3 + 1) {
    const int64_t taken = std::min(piece, left);
    LOCKSTEP_ASSERT_OK(writer->Append(std::string(taken, 'x')));
    left -= taken;
  }
  LOCKSTEP_ASSERT_OK(writer->Finish());
  EXPECT_EQ(Bytes(), whole);
}

TEST_F(CheckpointFile, ReadsParts) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"a", "0123"}, {"b", "4567"}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader,
                                CheckpointReader::Open(path_));
  const CheckpointSection* const b = reader->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->version, 1);
  EXPECT_EQ(b->dtype, std::nullopt);
  EXPECT_EQ(reader->Find("c"), nullptr);
  std::string two(2, '\0');
  LOCKSTEP_ASSERT_OK(reader->Read(*b, 1, absl::MakeSpan(two)));
  EXPECT_EQ(two, "56");
  EXPECT_THAT(reader->Read(*b, 3, absl::MakeSpan(two)),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("section 'b' has 4 bytes")));
}

TEST_F(CheckpointFile, KnowsTheTypesOfElements) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto writer, CheckpointWriter::Create(path_));
  LOCKSTEP_ASSERT_OK(writer->Begin("a", 1, DType::kBF16));
  LOCKSTEP_ASSERT_OK(writer->Append("0123"));
  LOCKSTEP_ASSERT_OK(writer->Begin("b", 1, static_cast<DType>(14)));
  LOCKSTEP_ASSERT_OK(writer->Finish());
  EXPECT_THAT(CheckpointReader::Open(path_).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("section 'b' of the checkpoint")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(writer, CheckpointWriter::Create(path_));
  LOCKSTEP_ASSERT_OK(writer->Begin("a", 1, DType::kBF16));
  LOCKSTEP_ASSERT_OK(writer->Finish());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader,
                                CheckpointReader::Open(path_));
  EXPECT_EQ(reader->Find("a")->dtype, DType::kBF16);
}

// A wrong bit anywhere prevents the file from being read.
TEST_F(CheckpointFile, SeesEachBitThatIsFlipped) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"step", "12"}, {"weights", "0123456789"}}));
  const std::string whole = Bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    Put(damaged);
    const absl::StatusCode code = Read(path_).status().code();
    EXPECT_EQ(code, at < 4 ? absl::StatusCode::kInvalidArgument
                           : absl::StatusCode::kDataLoss)
        << at;
  }
}

TEST_F(CheckpointFile, SeesWhereItIsTorn) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"step", "12"}, {"weights", "0123456789"}}));
  const std::string whole = Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    Put(whole.substr(0, size));
    EXPECT_THAT(Read(path_).status(), StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  Put(whole + "x");
  EXPECT_THAT(Read(path_).status(), StatusIs(absl::StatusCode::kDataLoss,
                                             HasSubstr("behind its end")));
}

TEST_F(CheckpointFile, SaysWhatIsNoCheckpoint) {
  EXPECT_THAT(Read(path_).status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Read(testing::TempDir()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no regular file")));
  Put(std::string(200, 'x'));
  EXPECT_THAT(Read(path_).status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("is no checkpoint")));
}

TEST_F(CheckpointFile, RefusesNames) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto writer,
                                CheckpointWriter::Create(path_));
  EXPECT_THAT(writer->Append("x"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer->Begin("", 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer->Begin(std::string(1025, 'x'), 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer->Begin("a", 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  LOCKSTEP_EXPECT_OK(writer->Begin("a", 1));
  EXPECT_THAT(writer->Begin("a", 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("two sections have the name 'a'")));
}

// The writer refuses this, so the file is put together from two.
TEST_F(CheckpointFile, RefusesTwoSectionsOfOneName) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"step", "12"}}));
  const std::string one = Bytes();
  LOCKSTEP_ASSERT_OK(Write(path_, {{"step", "12"}, {"stop", "12"}}));
  const std::string two = Bytes();
  const std::string section = one.substr(64, 64 + 4 + 2);
  ASSERT_EQ(two.substr(64, section.size()), section);
  Put(two.substr(0, 64) + section + section + two.substr(64 + 2 * 70));
  EXPECT_THAT(Read(path_).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("a second section is called 'step'")));
}

TEST_F(CheckpointFile, IsCreatedOnce) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto first, CheckpointWriter::CreateNew(path_));
  EXPECT_THAT(CheckpointWriter::CreateNew(path_),
              StatusIs(absl::StatusCode::kAlreadyExists));
  // Another program may take the name meanwhile.
  Put("of another program");
  EXPECT_THAT(first->Finish(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Bytes(), "of another program");
  EXPECT_THAT(CheckpointWriter::CreateNew(path_),
              StatusIs(absl::StatusCode::kAlreadyExists));
  std::remove(path_.c_str());
  first = nullptr;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(first, CheckpointWriter::CreateNew(path_));
  LOCKSTEP_EXPECT_OK(first->Finish());
  EXPECT_THAT(Read(path_), IsOkAndHolds(testing::IsEmpty()));
}

TEST_F(CheckpointFile, ReadsHeadersAlone) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"step", "12"}, {"text", "abc"}}));
  std::string damaged = Bytes();
  damaged[64 + 64 + 4] = '?';  // in the content of the first section
  Put(damaged);
  EXPECT_THAT(CheckpointReader::Open(path_),
              StatusIs(absl::StatusCode::kDataLoss));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader,
                                CheckpointReader::OpenHeaders(path_));
  EXPECT_EQ(reader->sections().size(), 2);
  damaged[64] = '?';
  Put(damaged);
  EXPECT_THAT(CheckpointReader::OpenHeaders(path_),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(CheckpointFile, LeavesTheLastOneWhereItFails) {
  LOCKSTEP_ASSERT_OK(Write(path_, {{"step", "1"}}));
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto writer,
                                  CheckpointWriter::Create(path_));
    LOCKSTEP_ASSERT_OK(writer->Begin("step", 1));
  }  // it was not finished
  EXPECT_THAT(Read(path_), IsOkAndHolds(ElementsAre(Pair("step", "1"))));
  struct stat facts;
  EXPECT_NE(stat((path_ + ".new").c_str(), &facts), 0);

  // The system lets the file grow no further.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = Write(path_, {{"step", std::string(2000, 'x')}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(full.ok());
  EXPECT_THAT(full.message(), HasSubstr("can't write"));
  EXPECT_THAT(Read(path_), IsOkAndHolds(ElementsAre(Pair("step", "1"))));

  EXPECT_THAT(CheckpointWriter::Create("/nonexistent/checkpoint"),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lockstep
