// Datasets that are made of other datasets.
//
//   // Each image flipped half of the time, in place:
//   auto flipped = MapDataset::Create(
//       images, [](SampleContext& context, SampleRow& row) -> absl::Status {
//         LOCKSTEP_ASSIGN_OR_RETURN(absl::Span<float> x,
//                                   row.Written<float>(0));
//         if (context.rng().Below(2) == 1) std::reverse(x.begin(), x.end());
//         return absl::OkStatus();
//       });
//
//   // Other fields than the inner dataset has:
//   auto sums = MapDataset::Create(
//       images, {{"sum", DType::kF32, {}}},
//       [](SampleContext& context, SampleRow& from,
//          SampleRow& to) -> absl::Status {
//         LOCKSTEP_ASSIGN_OR_RETURN(absl::Span<float> x,
//                                   from.Written<float>(0));
//         return to.Set<float>(0, std::accumulate(x.begin(), x.end(), 0.0f));
//       });
//
//   auto odd = SubsetDataset::Create(images, {1, 3, 5, 7});
//   auto both = ConcatDataset::Create({images_2024, images_2025});
//   auto pairs = ZipDataset::Create({images, labels});
//
// Columns (Dataset::ReadColumn) are those of the inner datasets, without the
// changes of a MapDataset.
//
// An inner dataset gets the context of the outer one: its index() and
// position() are those of the stream, and its rng() goes on after the numbers
// that other layers drew for the sample. So all layers draw the same numbers
// everywhere, in the order in which they read.
//
// All these datasets keep their inner datasets alive, pass hints on, and read
// many samples at a time if an inner dataset does. A null pointer is
// INVALID_ARGUMENT, and an index that does not exist is OUT_OF_RANGE. They are
// thread-safe if their inner datasets are.
#ifndef LOCKSTEP_LOADER_DATASETS_COMBINATORS_H_
#define LOCKSTEP_LOADER_DATASETS_COMBINATORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

// Applies a function to each sample of an inner dataset.
// Requires: the function is thread-safe, since many threads call it at once. It
// may return any error, or throw.
// Thread-safety: thread-safe.
class MapDataset : public Dataset {
 public:
  // Changes a row in place, after the inner dataset has written it.
  using Change =
      std::function<absl::Status(SampleContext& context, SampleRow& row)>;
  static absl::StatusOr<std::shared_ptr<MapDataset>> Create(
      std::shared_ptr<Dataset> inner, Change change);

  // Writes all fields of `to`, which are `fields`, from the fields of the inner
  // dataset. The memory of inner rows is kept from sample to sample: there are
  // as many rows as there were calls of Read at once.
  using Make = std::function<absl::Status(SampleContext& context,
                                          SampleRow& from, SampleRow& to)>;
  static absl::StatusOr<std::shared_ptr<MapDataset>> Create(
      std::shared_ptr<Dataset> inner, std::vector<FieldSpec> fields, Make make);
};

// Has the inner dataset's samples indices[0], indices[1] and so on. An index
// may occur several times. SubsetOrder does the same for an order.
// Thread-safety: thread-safe.
class SubsetDataset : public Dataset {
 public:
  static absl::StatusOr<std::shared_ptr<SubsetDataset>> Create(
      std::shared_ptr<Dataset> inner, std::vector<int64_t> indices);

  int64_t size() const override {
    return static_cast<int64_t>(indices_.size());
  }
  absl::Span<const FieldSpec> fields() const override {
    return inner_->fields();
  }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override;
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;
  void Hint(absl::Span<const int64_t> indices) override;
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;
  void AddTo(Fingerprint& fingerprint) const override {
    inner_->AddTo(fingerprint);
  }
  std::string Describe() const override { return inner_->Describe(); }
  std::string PlaceOf(int64_t index, int field) const override;

 private:
  SubsetDataset(std::shared_ptr<Dataset> inner, std::vector<int64_t> indices)
      : inner_(std::move(inner)), indices_(std::move(indices)) {}

  const std::shared_ptr<Dataset> inner_;
  const std::vector<int64_t> indices_;
};

// Has the samples of several datasets, one dataset after the other. All must
// have the same fields; a ragged field gets the largest of their max_elements.
// The datasets are the parts() of this one.
// Thread-safety: thread-safe.
class ConcatDataset : public Dataset {
 public:
  static absl::StatusOr<std::shared_ptr<ConcatDataset>> Create(
      std::vector<std::shared_ptr<Dataset>> parts);

  int64_t size() const override { return ends_.back(); }
  std::vector<int64_t> parts() const override;
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;

  // Neighbours that belong to the same part are read together.
  int64_t max_bulk() const override { return max_bulk_; }
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;
  void Hint(absl::Span<const int64_t> indices) override;
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;
  void AddTo(Fingerprint& fingerprint) const override;
  std::string Describe() const override;
  std::string PlaceOf(int64_t index, int field) const override;

  // Returns the number of the part that has the sample. Requires 0 <= index <
  // size().
  int PartOf(int64_t index) const;

 private:
  ConcatDataset(std::vector<std::shared_ptr<Dataset>> parts,
                std::vector<int64_t> ends, std::vector<FieldSpec> fields);

  int64_t StartOf(int part) const {
    return part == 0 ? 0 : ends_[static_cast<size_t>(part) - 1];
  }

  const std::vector<std::shared_ptr<Dataset>> parts_;
  const std::vector<int64_t> ends_;  // the first index after each part
  const std::vector<FieldSpec> fields_;
  int64_t max_bulk_ = 1;
};

// Has the fields of several datasets of equal size: sample i has the fields of
// sample i of each dataset. The datasets are read in their order.
// Thread-safety: thread-safe.
class ZipDataset : public Dataset {
 public:
  // Returns INVALID_ARGUMENT if sizes differ, if two datasets have a field of
  // the same name, or if there are more fields than kMaxFields.
  static absl::StatusOr<std::shared_ptr<ZipDataset>> Create(
      std::vector<std::shared_ptr<Dataset>> parts);

  int64_t size() const override { return parts_[0]->size(); }
  std::vector<int64_t> parts() const override { return parts_[0]->parts(); }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override { return max_bulk_; }
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;
  void Hint(absl::Span<const int64_t> indices) override;
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;
  void AddTo(Fingerprint& fingerprint) const override;
  std::string Describe() const override;
  std::string PlaceOf(int64_t index, int field) const override;

 private:
  ZipDataset(std::vector<std::shared_ptr<Dataset>> parts,
             std::vector<FieldSpec> fields);

  const std::vector<std::shared_ptr<Dataset>> parts_;
  const std::vector<FieldSpec> fields_;
  int64_t max_bulk_ = 1;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_COMBINATORS_H_
