#include "lockstep/loader/images/image_dataset.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/inner_dataset.h"
#include "lockstep/loader/datasets/lender.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/image_reader.h"
#include "lockstep/loader/images/test_image.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using internal_loader::CheckIndex;
using internal_loader::CheckInner;
using internal_loader::DigestOfTestImage;
using internal_loader::ImageReader;
using internal_loader::Lender;

constexpr int64_t kDefaultMaxPixels = 100'000'000;

// The largest max_pixels: more than any memory has room for, and so small that
// the bytes of the pixels do not overflow.
constexpr int64_t kMostPixels = int64_t{1} << 40;

// The largest height and width of a result.
constexpr int64_t kMaxSide = internal_loader::kMaxImageSide;

// The largest aspect ratio of a random rectangle. The smallest is 1 divided by
// it, so that no side of a rectangle overflows.
constexpr double kMostAspect = 1000.0;

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("image: ", parts...));
}

absl::Status CheckSizes(const ImageOptions& options) {
  const bool has_size = options.height != 0 || options.width != 0;
  if (has_size && (options.height < 1 || options.height > kMaxSide ||
                   options.width < 1 || options.width > kMaxSide)) {
    return Wrong("height and width should both be from 1 to ", kMaxSide,
                 ", or both be 0 if images keep their sizes, but got height=",
                 options.height, ", width=", options.width);
  }
  if (!has_size && options.crop != ImageCrop::kNone) {
    return Wrong(
        "height and width should be given, since only with crop=none can "
        "images keep their sizes");
  }
  if (options.max_pixels < 0 || options.max_pixels > kMostPixels) {
    return Wrong("max_pixels should be from 1 to ", kMostPixels,
                 ", or 0 for the default, but got ", options.max_pixels);
  }
  if (options.max_pixels == 0 && !has_size) {
    return Wrong(
        "max_pixels should be given if images keep their sizes (height and "
        "width are 0): the most pixels of an image, for which each row of a "
        "batch has memory");
  }
  const int64_t larger = std::max(options.height, options.width);
  if (options.resize == 0 || options.crop != ImageCrop::kCenter) {
    if (options.resize == 0) return absl::OkStatus();
    return Wrong("resize=", options.resize,
                 " is only for crop=center; leave it out");
  }
  if (options.resize >= larger && options.resize <= kMaxSide) {
    return absl::OkStatus();
  }
  return Wrong("resize should be from ", larger,
               ", the larger one of height and width, to ", kMaxSide,
               ", but got ", options.resize);
}

absl::Status CheckArea(const ImageOptions& options) {
  const double min = options.min_area;
  const double max = options.max_area;
  if (min > 0 && min <= max && max <= 1) return absl::OkStatus();
  return Wrong(
      "min_area and max_area should be above 0, at most 1, and in this order, "
      "but got min_area=",
      min, ", max_area=", max);
}

absl::Status CheckAspect(const ImageOptions& options) {
  const double min = options.min_aspect;
  const double max = options.max_aspect;
  if (min >= 1 / kMostAspect && min <= max && max <= kMostAspect) {
    return absl::OkStatus();
  }
  return Wrong("min_aspect and max_aspect should be from ", 1 / kMostAspect,
               " to ", kMostAspect,
               ", and in this order, but got min_aspect=", min,
               ", max_aspect=", max);
}

absl::Status CheckNormalization(const ImageOptions& options) {
  if (options.dtype != DType::kU8 && options.dtype != DType::kF32) {
    return Wrong("dtype should be u8 or f32, but got ", Name(options.dtype));
  }
  for (const auto& [name, values] :
       {std::make_pair("mean", &options.mean),
        std::make_pair("deviation", &options.deviation)}) {
    if (values->empty()) continue;
    if (options.dtype != DType::kF32) {
      return Wrong(name, " is only for dtype=f32; leave it out, or set dtype");
    }
    if (values->size() != 3) {
      return Wrong(name,
                   " should have 3 values, for red, green and blue, but has ",
                   values->size());
    }
    const bool is_mean = values == &options.mean;
    for (const double value : *values) {
      if (is_mean ? std::abs(value) <= 1
                  : value >= std::numeric_limits<float>::min() &&
                        value <= std::numeric_limits<float>::max()) {
        continue;
      }
      return Wrong(name, " should have numbers ",
                   is_mean
                       ? "from -1 to 1, since pixels are from 0 to 1 before "
                         "it is subtracted,"
                       : "above 0 that are finite as f32,",
                   " but has ", value);
    }
  }
  return absl::OkStatus();
}

// Checks the bounds of random rectangles.
absl::Status CheckBounds(const ImageOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckArea(options));
  LOCKSTEP_RETURN_IF_ERROR(CheckAspect(options));
  const ImageOptions defaults;
  if (options.crop == ImageCrop::kRandom ||
      (options.min_area == defaults.min_area &&
       options.max_area == defaults.max_area &&
       options.min_aspect == defaults.min_aspect &&
       options.max_aspect == defaults.max_aspect)) {
    return absl::OkStatus();
  }
  return Wrong(
      "min_area, max_area, min_aspect and max_aspect are only for crop=random; "
      "leave them out, or set crop");
}

absl::Status CheckOptions(const ImageOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes(options));
  LOCKSTEP_RETURN_IF_ERROR(CheckBounds(options));
  return CheckNormalization(options);
}

// Returns the number of the field with the files.
absl::StatusOr<int> FindFiles(absl::Span<const FieldSpec> fields,
                              const std::string& name) {
  absl::StatusOr<int> number = FindField(fields, name);
  if (!number.ok()) return Annotate(number.status(), "image");
  const FieldSpec& field = fields[static_cast<size_t>(*number)];
  if (field.dtype == DType::kU8 && field.shape == std::vector<int64_t>{-1}) {
    return number;
  }
  return Wrong("the field should have the bytes of files, u8[-1], but is ",
               field.ToString());
}

FieldSpec PixelField(const ImageOptions& options) {
  FieldSpec field;
  field.name = options.field;
  field.dtype = options.dtype;
  const int64_t height = options.height > 0 ? options.height : -1;
  const int64_t width = options.width > 0 ? options.width : -1;
  if (options.layout == ImageLayout::kChannelsFirst) {
    field.shape = {3, height, width};
  } else {
    field.shape = {height, width, 3};
  }
  if (height < 0) field.max_elements = options.max_pixels * 3;
  return field;
}

// Copies a field to another row.
absl::Status CopyField(int field, SampleRow& from, SampleRow& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> values,
                            from.WrittenBytes(field));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const absl::Span<char> copy,
      to.spec(field).ragged() ? to.MutableRaggedBytes(field, from.shape(field))
                              : to.MutableBytes(field));
  if (!values.empty()) std::memcpy(copy.data(), values.data(), values.size());
  return absl::OkStatus();
}

// Thread-safety: thread-safe.
class Images : public ImageDataset {
 public:
  Images(std::shared_ptr<Dataset> inner, ImageOptions options, int field,
         std::string decoder)
      : inner_(std::move(inner)),
        options_(std::move(options)),
        field_(field),
        decoder_(std::move(decoder)),
        fields_(inner_->fields().begin(), inner_->fields().end()) {
    fields_[static_cast<size_t>(field)] = PixelField(options_);
  }

  // Returns the error of the fields or of making a workspace, or OK.
  absl::Status Prepare() {
    LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields_));
    return TakeWorkspace().status();
  }

  int64_t size() const override { return inner_->size(); }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("image", index, size()));
    LOCKSTEP_ASSIGN_OR_RETURN(const Lender<Workspace>::Lease workspace,
                              TakeWorkspace());
    LOCKSTEP_RETURN_IF_ERROR(workspace->buffer->Read(*inner_, index, context));
    SampleRow& from = workspace->buffer->row();
    const absl::Status status =
        ReadPixels(workspace->reader, context, from, row);
    if (!status.ok()) {
      return Annotate(status, inner_->PlaceOf(index, field_));
    }
    if (!workspace->reader.warning().empty()) {
      Count(index, workspace->reader.warning());
    }
    for (int field = 0; field < from.fields(); ++field) {
      if (field == field_) continue;
      LOCKSTEP_RETURN_IF_ERROR(CopyField(field, from, row));
    }
    return absl::OkStatus();
  }

  void Hint(absl::Span<const int64_t> indices) override {
    inner_->Hint(indices);
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name == options_.field) return Dataset::ReadColumn(name);
    return inner_->ReadColumn(name);
  }
  std::vector<int64_t> parts() const override { return inner_->parts(); }
  std::string PlaceOf(int64_t index, int field) const override {
    return inner_->PlaceOf(index, field);
  }
  std::string Describe() const override { return inner_->Describe(); }

  void AddTo(Fingerprint& fingerprint) const override {
    inner_->AddTo(fingerprint);
    fingerprint.Add("image.options", OptionsAsText());
    fingerprint.Add("image.decoder", decoder_);
  }

  int64_t warnings() const override { return warnings_.load(); }

 private:
  struct Workspace {
    Workspace(std::unique_ptr<RowBuffer> row, const ImageOptions& options)
        : buffer(std::move(row)), reader(options) {}

    std::unique_ptr<RowBuffer> buffer;
    ImageReader reader;
  };

  absl::StatusOr<Lender<Workspace>::Lease> TakeWorkspace() {
    return workspaces_.Take(
        [this]() -> absl::StatusOr<std::unique_ptr<Workspace>> {
          LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<RowBuffer> buffer,
                                    RowBuffer::Create(inner_->fields()));
          return std::make_unique<Workspace>(std::move(buffer), options_);
        });
  }

  absl::Status ReadPixels(ImageReader& reader, SampleContext& context,
                          SampleRow& from, SampleRow& to) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> file,
                              from.WrittenBytes(field_));
    LOCKSTEP_RETURN_IF_ERROR(reader.Open(file, context.rng()));
    const std::array<int64_t, 3> shape = reader.shape();
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> pixels,
                              options_.height == 0
                                  ? to.MutableRaggedBytes(field_, shape)
                                  : to.MutableBytes(field_));
    return reader.Read(pixels.data());
  }

  void Count(int64_t index, absl::string_view warning) {
    const int64_t count = warnings_.fetch_add(1) + 1;
    if (options_.warn == nullptr) return;
    int64_t power = 1;
    while (power < count) power *= 10;
    if (power != count) return;
    const std::string place = inner_->PlaceOf(index, field_);
    options_.warn(absl::StrCat(
        "the decoder warned about ", count, count == 1 ? " image" : " images",
        " so far, and used what it could read; now about sample ", index,
        place.empty() ? "" : " (", place, place.empty() ? "" : ")", ": ",
        warning));
  }

  // Returns what tells the pixels of one dataset from those of another.
  std::string OptionsAsText() const {
    std::string text = absl::StrCat(
        options_.field, " ", options_.height, "x", options_.width, " crop ",
        static_cast<int>(options_.crop), " resize ", options_.resize, " flip ",
        options_.flip, " filter ", static_cast<int>(options_.filter),
        " scaled ", options_.scaled_decoding, " ", Name(options_.dtype),
        " layout ", static_cast<int>(options_.layout));
    for (const double bound : {options_.min_area, options_.max_area,
                               options_.min_aspect, options_.max_aspect}) {
      absl::StrAppendFormat(&text, " %a", bound);
    }
    for (const std::vector<double>* values :
         {&options_.mean, &options_.deviation}) {
      absl::StrAppend(&text, " :");
      for (const double value : *values) {
        absl::StrAppendFormat(&text, " %a", value);
      }
    }
    return text;
  }

  const std::shared_ptr<Dataset> inner_;
  const ImageOptions options_;
  const int field_;
  const std::string decoder_;
  std::vector<FieldSpec> fields_;
  Lender<Workspace> workspaces_;
  std::atomic<int64_t> warnings_{0};
};

}  // namespace

absl::StatusOr<std::shared_ptr<ImageDataset>> ImageDataset::Create(
    std::shared_ptr<Dataset> inner, ImageOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInner("image", inner.get()));
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const int field,
                            FindFiles(inner->fields(), options.field));
  if (options.max_pixels == 0) options.max_pixels = kDefaultMaxPixels;
  if (options.resize == 0) {
    options.resize = std::max(options.height, options.width) * 8 / 7;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::string decoder, DigestOfTestImage());
  auto images = std::make_shared<Images>(std::move(inner), std::move(options),
                                         field, std::move(decoder));
  LOCKSTEP_RETURN_IF_ERROR(images->Prepare());
  return images;
}

}  // namespace lockstep
