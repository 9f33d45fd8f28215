#include "lockstep/loader/datasets/tfrecord_dataset.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>  // NOLINT: many readers at once are what is tested
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The files that TensorBoard wrote (testdata/generate/tfrecord_files.py). They
// have records 0 to 4, none, and 5 to 11.
constexpr char kFirst[] = "testdata/tfrecord/first.tfrecord";
constexpr char kEmpty[] = "testdata/tfrecord/empty.tfrecord";
constexpr char kSecond[] = "testdata/tfrecord/second.tfrecord";

std::string Record(int64_t i) {
  std::string bytes(i * i, '\0');
  for (int64_t j = 0; j < i * i; ++j) {
    bytes[j] = static_cast<char>(7 * i + 3 * j);
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<TfRecordDataset>> Open(
    std::vector<std::string> files, bool verify = true,
    int64_t max_record_bytes = 0) {
  TfRecordDatasetOptions options;
  options.files = std::move(files);
  options.verify = verify;
  options.max_record_bytes = max_record_bytes;
  return TfRecordDataset::Create(std::move(options));
}

absl::StatusOr<std::string> Read(TfRecordDataset& dataset, int64_t index) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto buffer,
                            RowBuffer::Create(dataset.fields()));
  LOCKSTEP_RETURN_IF_ERROR(buffer->Read(dataset, index));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> bytes,
                            buffer->row().WrittenBytes(0));
  return std::string(bytes.data(), bytes.size());
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string WriteFile(const std::string& name, const std::string& content) {
  std::string path = testing::TempDir() + "/tfrecord_test_" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// Returns a record in the frame of TFRecord.
std::string Frame(const std::string& data) {
  const auto append = [](std::string& out, const auto& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string frame;
  append(frame, static_cast<uint64_t>(data.size()));
  append(frame, internal_base::MaskCrc32c(internal_base::Crc32c(frame)));
  frame += data;
  append(frame, internal_base::MaskCrc32c(internal_base::Crc32c(data)));
  return frame;
}

TEST(TfRecordDataset, ReadsWhatTensorBoardWrites) {
  for (const bool verify : {true, false}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto dataset,
        Open({kEmpty, kFirst, kEmpty, kEmpty, kSecond, kEmpty}, verify));
    ASSERT_EQ(dataset->size(), 12);
    const FieldSpec spec = {"record", DType::kU8, {-1}, /*max_elements=*/121};
    EXPECT_THAT(dataset->fields(), ElementsAre(spec));
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_THAT(Read(*dataset, i), IsOkAndHolds(Record(i)));
    }
  }
}

TEST(TfRecordDataset, NoRecords) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open({kEmpty}));
  EXPECT_EQ(dataset->size(), 0);
  EXPECT_THAT(Read(*dataset, 0), StatusIs(absl::StatusCode::kOutOfRange));
}

// Records that are read in one piece, in several, and with gaps between.
TEST(TfRecordDataset, RecordsOfAnyLength) {
  Random random(1);
  std::vector<std::string> records;
  std::string file;
  for (int i = 0; i < 300; ++i) {
    const int64_t scale = int64_t{1} << random.Below(17);
    records.emplace_back(random.Below(scale + 1), static_cast<char>(i));
    file += Frame(records.back());
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                Open({WriteFile("lengths", file)}));
  ASSERT_EQ(dataset->size(), 300);
  for (int64_t i = 0; i < 300; ++i) {
    ASSERT_THAT(Read(*dataset, i), IsOkAndHolds(records[i]));
  }
}

TEST(TfRecordDataset, Bound) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                Open({kFirst}, true, /*max_record_bytes=*/16));
  EXPECT_EQ(dataset->fields()[0].max_elements, 16);
  EXPECT_THAT(Open({kFirst}, true, 15),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(kFirst), HasSubstr("record 4"),
                             HasSubstr("16 bytes, more than "
                                       "max_record_bytes=15"))));
  EXPECT_THAT(Open({kFirst}, true, -1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_record_bytes is -1")));
}

TEST(TfRecordDataset, IndicesHaveARange) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open({kFirst}));
  for (const int64_t index : {int64_t{-1}, int64_t{5}, INT64_MIN, INT64_MAX}) {
    EXPECT_THAT(Read(*dataset, index),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr(absl::StrCat("no sample ", index))));
  }
}

TEST(TfRecordDataset, ManyThreads) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open({kFirst, kSecond}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&dataset, t] {
      for (int64_t round = 0; round < 100; ++round) {
        const int64_t index = (round + t) % 12;
        ASSERT_THAT(Read(*dataset, index), IsOkAndHolds(Record(index)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A file that is cut between records is a shorter file. One that is cut within
// a record is torn.
TEST(TfRecordDataset, TruncatedFiles) {
  const std::string content = Content(kFirst);
  ASSERT_EQ(content.size(), 110u);
  int64_t record = 0, begin = 0;
  for (int64_t bytes = 0; bytes < 110; ++bytes) {
    if (bytes == begin + 16 + record * record) {
      begin = bytes;
      ++record;
    }
    const std::string path = WriteFile("truncated", content.substr(0, bytes));
    const auto dataset = Open({path});
    if (bytes == begin) {
      LOCKSTEP_ASSERT_OK(dataset);
      EXPECT_EQ((*dataset)->size(), record);
    } else {
      ASSERT_THAT(
          dataset,
          StatusIs(absl::StatusCode::kDataLoss,
                   AllOf(HasSubstr(path),
                         HasSubstr(absl::StrCat("record ", record, ", at byte ",
                                                begin, ",")),
                         HasSubstr(absl::StrCat("file, at byte ", bytes)))));
    }
  }
  EXPECT_EQ(record, 4);
}

// Any changed bit is found, at the record that has it.
TEST(TfRecordDataset, CorruptFiles) {
  const std::string content = Content(kFirst);
  for (size_t byte = 0; byte < content.size(); ++byte) {
    int64_t record = 0;
    size_t begin = 0;
    while (byte >= begin + 16 + record * record) {
      begin += 16 + record * record;
      ++record;
    }
    std::string bytes = content;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1 << byte % 8);
    const std::string path = WriteFile("corrupt", bytes);
    const auto matcher =
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(path),
                       HasSubstr(absl::StrCat("record ", record, ", at byte ",
                                              begin, ",")),
                       HasSubstr("CRC")));
    const auto dataset = Open({path});
    if (byte < begin + 12) {
      ASSERT_THAT(dataset, matcher);
      continue;
    }
    LOCKSTEP_ASSERT_OK(dataset);
    for (int64_t i = 0; i < 5; ++i) {
      if (i == record) {
        ASSERT_THAT(Read(**dataset, i), matcher);
      } else {
        ASSERT_THAT(Read(**dataset, i), IsOkAndHolds(Record(i)));
      }
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto trusting,
                                  Open({path}, /*verify=*/false));
    LOCKSTEP_ASSERT_OK(Read(*trusting, record));
  }
}

TEST(TfRecordDataset, LengthsBeyondAnyFile) {
  for (const uint64_t length :
       {uint64_t{100}, uint64_t{1} << 62, ~uint64_t{0} - 15, ~uint64_t{0}}) {
    std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
    const uint32_t crc = internal_base::MaskCrc32c(internal_base::Crc32c(file));
    file.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
    file.append(20, 'x');
    EXPECT_THAT(
        Open({WriteFile("huge", file)}),
        StatusIs(absl::StatusCode::kDataLoss,
                 HasSubstr("record 0, at byte 0, goes beyond the end")));
  }
}

TEST(TfRecordDataset, TruncatedWhileOpen) {
  const std::string path = WriteFile("shrinks", Content(kFirst));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open({path}));
  LOCKSTEP_ASSERT_OK(Read(*dataset, 4));
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  EXPECT_THAT(Read(*dataset, 4),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("record 4, at byte 78"),
                             HasSubstr("ends at byte 100"))));
  EXPECT_THAT(Read(*dataset, 3), IsOkAndHolds(Record(3)));
}

TEST(TfRecordDataset, SaysWhatIsWrong) {
  EXPECT_THAT(Open({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("no files")));
  EXPECT_THAT(Open({kFirst, "testdata/tfrecord/missing"}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("testdata/tfrecord/missing")));
  EXPECT_THAT(Open({WriteFile("gzip", "\x1f\x8b" + std::string(30, 'x'))}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("compressed by gzip")));
  EXPECT_THAT(
      Open({"testdata/npy/i4.npy"}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no TFRecord file")));
}

}  // namespace
}  // namespace lockstep
