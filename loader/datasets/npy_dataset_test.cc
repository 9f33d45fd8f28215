#include "lockstep/loader/datasets/npy_dataset.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>  // NOLINT: many readers at once are what is tested
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

// Written by NumPy: testdata/generate/npy_files.py.
std::string Golden(const std::string& name) {
  return absl::StrCat("testdata/npy/", name, ".npy");
}

absl::StatusOr<std::shared_ptr<NpyDataset>> Open(
    std::vector<NpyFile> files, NpyAccess access = NpyAccess::kMapped) {
  NpyDatasetOptions options;
  options.files = std::move(files);
  options.access = access;
  return NpyDataset::Create(std::move(options));
}

absl::StatusOr<std::shared_ptr<NpyDataset>> OpenOne(
    const std::string& path, NpyAccess access = NpyAccess::kMapped) {
  return Open({{"x", path}}, access);
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string WriteFile(const std::string& name, const std::string& content) {
  std::string path = testing::TempDir() + "/npy_dataset_test_" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// Returns element k of the goldens, counted in C order.
template <typename T>
T Golden(int64_t k) {
  if constexpr (DTypeOf<T>() == DType::kBool) {
    return k % 3 == 0;
  } else if constexpr (std::is_class_v<T> || std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<float>(k) / 4 - 2);
  } else {
    return static_cast<T>(std::is_signed_v<T> ? k - 5 : k);
  }
}

template <typename T>
void ExpectGolden(const std::string& name, std::vector<int64_t> shape,
                  NpyAccess access) {
  SCOPED_TRACE(name);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenOne(Golden(name), access));
  ASSERT_EQ(dataset->size(), 4);
  const FieldSpec spec = {"x", DTypeOf<T>(), std::move(shape)};
  ASSERT_THAT(dataset->fields(), ElementsAre(spec));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  int64_t k = 0;
  for (int64_t i = 0; i < 4; ++i) {
    LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, i));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const absl::Span<T> x,
                                  buffer->row().Written<T>(0));
    for (const T value : x) {
      ASSERT_EQ(static_cast<float>(value), static_cast<float>(Golden<T>(k)));
      ++k;
    }
  }
  int64_t elements = 4;
  for (const int64_t dimension : spec.shape) elements *= dimension;
  EXPECT_EQ(k, elements);
}

TEST(NpyDataset, ReadsWhatNumPyWrites) {
  for (const NpyAccess access : {NpyAccess::kMapped, NpyAccess::kRead}) {
    ExpectGolden<double>("f8", {2, 3}, access);
    ExpectGolden<float>("f4", {2, 3}, access);
    ExpectGolden<Float16>("f2", {2, 3}, access);
    ExpectGolden<int8_t>("i1", {2, 3}, access);
    ExpectGolden<int16_t>("i2", {2, 3}, access);
    ExpectGolden<int32_t>("i4", {2, 3}, access);
    ExpectGolden<int64_t>("i8", {2, 3}, access);
    ExpectGolden<uint8_t>("u1", {2, 3}, access);
    ExpectGolden<uint16_t>("u2", {2, 3}, access);
    ExpectGolden<uint32_t>("u4", {2, 3}, access);
    ExpectGolden<uint64_t>("u8", {2, 3}, access);
    ExpectGolden<bool>("bool", {2, 3}, access);
    ExpectGolden<int32_t>("version_1", {3}, access);
    ExpectGolden<int32_t>("version_2", {3}, access);
    ExpectGolden<int32_t>("version_3", {3}, access);
    ExpectGolden<int64_t>("scalars", {}, access);
    ExpectGolden<float>("empty_rows", {0}, access);
  }
}

TEST(NpyDataset, ReadsFortranOrder) {
  ExpectGolden<float>("fortran_2d", {5}, NpyAccess::kMapped);
  ExpectGolden<uint16_t>("fortran_3d", {2, 3}, NpyAccess::kMapped);
  ExpectGolden<double>("fortran_4d", {2, 1, 3}, NpyAccess::kMapped);
  EXPECT_THAT(OpenOne(Golden("fortran_3d"), NpyAccess::kRead),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("fortran_3d.npy"),
                             HasSubstr("ascontiguousarray"))));
}

TEST(NpyDataset, BFloat16) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                Open({{"x", Golden("bf16"), /*bf16=*/true}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  const uint16_t bits[] = {0x3f80, 0xc000, 0x0000, 0x7f80};
  for (int i = 0; i < 4; ++i) {
    LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, i));
    EXPECT_EQ((*buffer->row().Written<BFloat16>(0))[0].bits(), bits[i]);
  }
  EXPECT_THAT(
      OpenOne(Golden("bf16")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("bf16.npy"), HasSubstr("set the option bf16"))));
}

TEST(NpyDataset, NoRows) {
  for (const NpyAccess access : {NpyAccess::kMapped, NpyAccess::kRead}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  OpenOne(Golden("no_rows"), access));
    EXPECT_EQ(dataset->size(), 0);
  }
}

// Returns a file with a dictionary as NumPy writes it, followed by `data`.
std::string Npy(const std::string& dictionary, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\0", 8);
  bytes += static_cast<char>(dictionary.size());
  bytes += '\0';
  return bytes + dictionary + data;
}

TEST(NpyDataset, OddFiles) {
  // Data at an odd byte, and more of it than the header says.
  std::string dictionary =
      "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2)}";
  if (dictionary.size() % 2 == 0) dictionary += ' ';
  const std::string path = WriteFile(
      "odd", Npy(dictionary, std::string("\1\0\2\0\3\0\4\0more", 12)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, OpenOne(path));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 1));
  EXPECT_THAT(*buffer->row().Written<int16_t>(0), ElementsAre(2, 4));

  // Other bytes than 0 and 1 are true.
  const std::string bools =
      WriteFile("bools", Npy("{'descr': '|b1', 'fortran_order': False, "
                             "'shape': (1, 3)}",
                             std::string("\0\xff\2", 3)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto booleans, OpenOne(bools));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto row,
                                RowBuffer::Create(booleans->fields()));
  LOCKSTEP_ASSERT_OK(row->Read(*booleans, 0));
  EXPECT_THAT(*row->row().WrittenBytes(0), ElementsAre(0, 1, 1));
}

TEST(NpyDataset, ManyFilesAndReadMany) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      Open({{"image", Golden("fortran_3d")}, {"label", Golden("scalars")}}));
  ASSERT_GT(dataset->max_bulk(), 4);
  const int64_t indices[] = {2, 0, 3, 2, 1};
  std::vector<std::unique_ptr<RowBuffer>> buffers;
  std::vector<SampleRow> rows;
  std::vector<SampleContext> contexts;
  const WorkerInfo worker;
  for (const int64_t index : indices) {
    buffers.push_back(*RowBuffer::Create(dataset->fields()));
    rows.push_back(buffers.back()->row());
    contexts.emplace_back(worker, /*key=*/0, /*epoch=*/0, index,
                          /*position=*/index);
  }
  LOCKSTEP_ASSERT_OK(dataset->ReadMany(indices, absl::MakeSpan(contexts),
                                       absl::MakeSpan(rows)));
  for (size_t i = 0; i < rows.size(); ++i) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const absl::Span<uint16_t> image,
                                  rows[i].Written<uint16_t>(0));
    for (int k = 0; k < 6; ++k) EXPECT_EQ(image[k], 6 * indices[i] + k);
    EXPECT_THAT(*rows[i].Written<int64_t>(1), ElementsAre(indices[i] - 5));
  }
  const int64_t bad[] = {0, 4};
  EXPECT_THAT(
      dataset->ReadMany(bad, absl::MakeSpan(contexts), absl::MakeSpan(rows)),
      StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(NpyDataset, ManyThreads) {
  for (const NpyAccess access : {NpyAccess::kMapped, NpyAccess::kRead}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  OpenOne(Golden("i4"), access));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&dataset, t] {
        const auto buffer = *RowBuffer::Create(dataset->fields());
        for (int64_t round = 0; round < 200; ++round) {
          const int64_t index = (round + t) % 4;
          LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, index));
          ASSERT_EQ((*buffer->row().Written<int32_t>(0))[5], 6 * index + 5 - 5);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(NpyDataset, IndicesHaveARange) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, OpenOne(Golden("i4")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  for (const int64_t index : {int64_t{-1}, int64_t{4}, INT64_MIN, INT64_MAX}) {
    EXPECT_THAT(
        buffer->Read(*dataset, index),
        StatusIs(absl::StatusCode::kOutOfRange,
                 HasSubstr(absl::StrCat("no sample ", index, "; it has 4"))));
  }
}

TEST(NpyDataset, TruncatedWhileOpen) {
  const std::string content = Content(Golden("f8"));
  for (const NpyAccess access : {NpyAccess::kMapped, NpyAccess::kRead}) {
    const std::string path = WriteFile("truncated", content);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, OpenOne(path, access));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                  RowBuffer::Create(dataset->fields()));
    LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 3));
    ASSERT_EQ(truncate(path.c_str(), 300), 0);
    EXPECT_THAT(buffer->Read(*dataset, 3),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(path), HasSubstr("ends at byte 300"),
                               HasSubstr("320"))));
    ASSERT_EQ(truncate(path.c_str(), 0), 0);
    EXPECT_THAT(
        buffer->Read(*dataset, 0),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ends at byte 0")));
  }
}

// A file stays readable after another file was renamed over it.
TEST(NpyDataset, ReplacedWhileOpen) {
  const std::string path = WriteFile("replaced", Content(Golden("f8")));
  const std::string other = WriteFile("other", "short");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, OpenOne(path));
  ASSERT_EQ(std::rename(other.c_str(), path.c_str()), 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 3));
  EXPECT_EQ((*buffer->row().Written<double>(0))[5], Golden<double>(23));
}

TEST(NpyDataset, SaysWhatItDoesNotTake) {
  const struct {
    const char* name;
    const char* message;
  } cases[] = {
      {"big_endian", "numpy.save(path, array.astype('<f4'))"},
      {"rank_0", "is a single number"},
      {"complex", "'<c8'"},
      {"object", "Python objects"},
      {"string", "strings"},
      {"structured", "structured"},
      {"datetime", "'<M8[s]'"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(
        OpenOne(Golden(c.name)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(Golden(c.name)), HasSubstr(c.message))));
  }
}

TEST(NpyDataset, SaysWhichOptionsAreWrong) {
  EXPECT_THAT(Open({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("no files")));
  EXPECT_THAT(Open({{"", Golden("i4")}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Open({{"x", Golden("i4")}, {"x", Golden("i8")}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(Open({{"x", Golden("i4")}, {"y", Golden("no_rows")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("no_rows.npy' has 0 samples"),
                             HasSubstr("i4.npy' has 4"))));
  EXPECT_THAT(OpenOne("testdata/npy/missing.npy"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("testdata/npy/missing.npy")));
  EXPECT_THAT(
      OpenOne(Golden("i4"), static_cast<NpyAccess>(7)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("access is 7")));
  EXPECT_THAT(OpenOne("testdata/tfrecord/first.tfrecord"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no .npy file")));
}

// Every prefix of a file is DATA_LOSS, at the byte where it ends.
TEST(NpyDataset, TruncatedFiles) {
  for (const char* const name : {"i2", "version_2", "fortran_2d"}) {
    const std::string content = Content(Golden(name));
    ASSERT_FALSE(content.empty());
    for (size_t bytes = 0; bytes < content.size(); ++bytes) {
      const std::string path = WriteFile("prefix", content.substr(0, bytes));
      ASSERT_THAT(
          OpenOne(path),
          StatusIs(absl::StatusCode::kDataLoss,
                   AllOf(HasSubstr(path),
                         HasSubstr(absl::StrCat("ends at byte ", bytes)))));
    }
  }
}

// With any header, the dataset is refused or can be read in full.
TEST(NpyDataset, CorruptHeaders) {
  const std::string content = Content(Golden("fortran_3d"));
  Random random(1);
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = content;
    for (int changes = 1 + random.Below(2); changes > 0; --changes) {
      bytes[6 + random.Below(70)] = static_cast<char>(
          random.Below(2) == 0 ? random.Integer('(', ':') : random.Below(256));
    }
    const std::string path = WriteFile("corrupt", bytes);
    const auto dataset = OpenOne(path);
    if (!dataset.ok()) {
      ASSERT_THAT(dataset.status().code(),
                  AnyOf(Eq(absl::StatusCode::kDataLoss),
                        Eq(absl::StatusCode::kInvalidArgument)))
          << dataset.status();
      continue;
    }
    const auto buffer = RowBuffer::Create((*dataset)->fields());
    if (!buffer.ok()) continue;  // rows of more bytes than there can be
    for (int64_t i = 0; i < (*dataset)->size() && i < 100; ++i) {
      LOCKSTEP_ASSERT_OK((*buffer)->Read(**dataset, i));
    }
    ++read;
  }
  EXPECT_GT(read, 10);
}

}  // namespace
}  // namespace lockstep
