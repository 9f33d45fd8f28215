#include "lockstep/loader/datasets/dataset_conformance.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

// The rows of a batch, without a loader.
// Thread-safety: thread-compatible.
class Rows {
 public:
  Rows(Dataset& dataset, absl::Span<const int64_t> indices, int worker)
      : written_(indices.size()) {
    worker_.id = worker;
    const absl::Status status = internal_loader::MakeLayout(
        dataset.fields(), static_cast<int64_t>(indices.size()), layout_);
    EXPECT_THAT(status, IsOk());
    // A dataset is unlikely to write this byte by chance.
    memory_.resize(layout_.bytes, '\xa5');
    const int64_t shapes_of_row = layout_.ragged_fields * kMaxDimensions;
    shapes_.resize(indices.size() * shapes_of_row, -7);
    for (size_t i = 0; i < indices.size(); ++i) {
      rows_.emplace_back(layout_, memory_.data(), static_cast<int64_t>(i),
                         shapes_.data() + i * shapes_of_row, &written_[i]);
      contexts_.emplace_back(worker_, RandomKey(0, 0, 0), /*epoch=*/0,
                             indices[i], /*position=*/indices[i]);
    }
  }

  absl::Span<SampleRow> rows() { return absl::MakeSpan(rows_); }
  absl::Span<SampleContext> contexts() { return absl::MakeSpan(contexts_); }

  absl::StatusOr<std::string> Text(size_t row) {
    std::string text;
    for (int field = 0; field < rows_[row].fields(); ++field) {
      LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> bytes,
                                rows_[row].WrittenBytes(field));
      absl::StrAppend(&text, "[", absl::StrJoin(rows_[row].shape(field), ","),
                      "]", absl::string_view(bytes.data(), bytes.size()));
    }
    // The next random number shows how many were drawn.
    absl::StrAppend(&text, contexts_[row].rng()());
    return text;
  }

 private:
  WorkerInfo worker_;
  internal_loader::BatchLayout layout_;
  std::vector<char> memory_;
  std::vector<int64_t> shapes_;
  std::vector<uint64_t> written_;
  std::vector<SampleRow> rows_;
  std::vector<SampleContext> contexts_;
};

absl::StatusOr<std::string> ReadOn(Dataset& dataset, int64_t index,
                                   int worker) {
  Rows rows(dataset, {index}, worker);
  LOCKSTEP_RETURN_IF_ERROR(
      dataset.Read(index, rows.contexts()[0], rows.rows()[0]));
  return rows.Text(0);
}

absl::StatusOr<std::vector<std::string>> ReadManyOn(
    Dataset& dataset, absl::Span<const int64_t> indices, int worker) {
  Rows rows(dataset, indices, worker);
  LOCKSTEP_RETURN_IF_ERROR(
      dataset.ReadMany(indices, rows.contexts(), rows.rows()));
  std::vector<std::string> texts;
  for (size_t i = 0; i < indices.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::string text, rows.Text(i));
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<int64_t> Shuffled(Dataset& dataset, uint64_t seed) {
  std::vector<int64_t> indices(dataset.size());
  std::iota(indices.begin(), indices.end(), 0);
  Random(seed).Shuffle(absl::MakeSpan(indices));
  return indices;
}

// Reads all samples, `bulk` at a time, and expects the texts of `expected`.
void ExpectSamples(Dataset& dataset, const std::vector<int64_t>& indices,
                   size_t bulk, const std::vector<std::string>& expected,
                   int worker) {
  for (size_t first = 0; first < indices.size(); first += bulk) {
    const absl::Span<const int64_t> some =
        absl::MakeConstSpan(indices).subspan(first, bulk);
    const auto texts = ReadManyOn(dataset, some, worker);
    ASSERT_THAT(texts, IsOk());
    for (size_t i = 0; i < some.size(); ++i) {
      ASSERT_EQ((*texts)[i], expected[some[i]]) << "sample " << some[i];
    }
  }
}

std::vector<std::string> ReadAll(Dataset& dataset) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const auto text = ReadSample(dataset, i);
    EXPECT_THAT(text, IsOk()) << "sample " << i;
    texts.push_back(text.value_or(""));
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::string> ReadSample(Dataset& dataset, int64_t index) {
  return ReadOn(dataset, index, /*worker=*/0);
}

absl::StatusOr<std::vector<std::string>> ReadSamples(
    Dataset& dataset, absl::Span<const int64_t> indices) {
  return ReadManyOn(dataset, indices, /*worker=*/0);
}

void ExpectConforms(Dataset& dataset) {
  ASSERT_THAT(ValidateFields(dataset.fields()), IsOk());
  ASSERT_GE(dataset.size(), 0);
  ASSERT_GE(dataset.max_bulk(), 1);
  const std::vector<std::string> expected = ReadAll(dataset);
  for (const int64_t bulk : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{64},
                             int64_t{1024}, dataset.max_bulk()}) {
    if (bulk > std::max<int64_t>(dataset.max_bulk(), 1)) continue;
    ExpectSamples(dataset, Shuffled(dataset, bulk), static_cast<size_t>(bulk),
                  expected, /*worker=*/0);
  }
  const int64_t size = dataset.size();
  for (const int64_t index :
       {int64_t{-1}, size, size + 1, INT64_MIN, INT64_MAX}) {
    EXPECT_THAT(ReadSample(dataset, index),
                StatusIs(absl::StatusCode::kOutOfRange))
        << index;
    EXPECT_THAT(ReadSamples(dataset, {index}),
                StatusIs(absl::StatusCode::kOutOfRange))
        << index;
  }
  // A dataset must accept every hint.
  dataset.Hint({});
  dataset.Hint(Shuffled(dataset, 1));
}

void ExpectThreadSafe(Dataset& dataset) {
  const std::vector<std::string> expected = ReadAll(dataset);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&dataset, &expected, worker] {
      const std::vector<int64_t> indices = Shuffled(dataset, worker);
      dataset.Hint(indices);
      for (const int64_t index : indices) {
        ASSERT_THAT(ReadOn(dataset, index, worker),
                    IsOkAndHolds(expected[index]));
      }
      ExpectSamples(dataset, indices, static_cast<size_t>(dataset.max_bulk()),
                    expected, worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lockstep
