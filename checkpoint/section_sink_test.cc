#include "lockstep/checkpoint/section_sink.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep::internal_checkpoint {
namespace {

// The sections have all sizes and alignments, with and without a call of
// Reserve.
TEST(SectionSink, KeepsWhatItWasGiven) {
  constexpr int kSections = 200;
  const char places[kSections] = {};
  const std::string path = testing::TempDir() + "/sink";
  const auto content = [](int size) {
    return std::string(size, static_cast<char>('0' + size % 10));
  };
  for (const bool reserves : {true, false}) {
    for (const bool copies : {true, false}) {
      SectionSink sink;
      if (reserves) sink.Reserve(3, 100);
      if (!copies) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto file,
                                      CheckpointWriter::Create(path));
        sink.Start(std::move(file));
      }
      for (int size = 0; size < kSections; ++size) {
        LOCKSTEP_ASSERT_OK(
            sink.Begin(absl::StrCat("section ", size), {}, &places[size]));
        LOCKSTEP_ASSERT_OK(sink.Put(content(size)));
        LOCKSTEP_ASSERT_OK(sink.Put(content(size)));
      }
      if (copies) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file,
                                      CheckpointWriter::Create(path));
        LOCKSTEP_ASSERT_OK(sink.WriteTo(*file));
        LOCKSTEP_ASSERT_OK(file->Finish());
      } else {
        LOCKSTEP_ASSERT_OK(sink.writer()->Finish());
      }
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader,
                                    CheckpointReader::Open(path));
      ASSERT_EQ(reader->sections().size(), kSections);
      for (int size = 0; size < kSections; ++size) {
        std::string bytes(reader->sections()[size].bytes, '\0');
        LOCKSTEP_ASSERT_OK(
            reader->Read(reader->sections()[size], 0, absl::MakeSpan(bytes)));
        EXPECT_EQ(bytes, content(size) + content(size));
      }
    }
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace lockstep::internal_checkpoint
