// A Dataset reads samples by index, straight into the rows of a batch.
//
//   class Squares : public Dataset {
//    public:
//     int64_t size() const override { return 1000; }
//     absl::Span<const FieldSpec> fields() const override { return fields_; }
//     absl::Status Read(int64_t index, SampleContext& context,
//                       SampleRow& row) override {
//       LOCKSTEP_ASSIGN_OR_RETURN(absl::Span<float> x, row.Mutable<float>(0));
//       for (float& value : x) value = context.rng().Uniform();
//       return row.Set<int64_t>(1, index * index);
//     }
//
//    private:
//     const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {16}},
//                                             {"y", DType::kI64, {}}};
//   };
//
// Read is called from many workers at once. It may return any error, or throw:
// the loader delivers either at its place, with the sample's index. The numbers
// that Read draws from context.rng() are the same on any worker and rank, and
// after any restart.
#ifndef LOCKSTEP_LOADER_DATASET_H_
#define LOCKSTEP_LOADER_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/field.h"

namespace lockstep {

namespace internal_loader {
// Returns a text with the name of T. It needs no RTTI.
template <typename T>
const char* TextOf() {
  return __PRETTY_FUNCTION__;
}
// Ends the process with both types in a message; `held` is nullptr if there is
// no state.
[[noreturn]] void NoSuchState(const char* wanted, const char* held);
}  // namespace internal_loader

// An object of any type that the user attaches to a worker.
// Thread-safety: thread-compatible.
class WorkerState {
 public:
  WorkerState() = default;
  WorkerState(std::nullptr_t) {}  // NOLINT: implicit by design
  template <typename T>
  WorkerState(std::shared_ptr<T> state)  // NOLINT: implicit by design
      : state_(std::move(state)), type_(internal_loader::TextOf<T>()) {}

  // Returns the object. Ends the process if it is not a T.
  template <typename T>
  T& As() const {
    const char* const wanted = internal_loader::TextOf<T>();
    if (state_ == nullptr ||
        (type_ != wanted && std::strcmp(type_, wanted) != 0)) {
      internal_loader::NoSuchState(wanted, state_ == nullptr ? nullptr : type_);
    }
    return *static_cast<T*>(state_.get());
  }

 private:
  std::shared_ptr<void> state_;
  const char* type_ = nullptr;
};

// A worker, as Read sees it. It is not a thread: several threads may
// serve it, one after the other.
struct WorkerInfo {
  int id = 0;           // from 0; also 0 if there are no workers
  int num_workers = 0;  // 0: on the thread that calls Next

  // base_seed + id, as in PyTorch's workers. Numbers that are drawn from this
  // seed depend on the number of workers and on which worker reads which
  // sample; those of context.rng() do not.
  uint64_t seed = 0;

  // An object of the user's, which worker_init sets: a decoder, a file handle,
  // scratch memory.
  //
  //   options.worker_init = [](WorkerInfo& worker) {
  //     worker.state = std::make_shared<Decoder>(worker.seed);
  //     return absl::OkStatus();
  //   };
  WorkerState state;

  // Returns the state, which worker_init made as a T. Ends the process with a
  // message that has both types if it made another type or nothing.
  template <typename T>
  T& State() const {
    return state.As<T>();
  }
};

// The place of a sample in the stream. It lives during one call of Read.
// Thread-safety: thread-compatible.
class SampleContext {
 public:
  // `key` is the result of RandomKey for the epoch.
  SampleContext(const WorkerInfo& worker, uint64_t key, int64_t epoch,
                int64_t index, int64_t position)
      : worker_(&worker),
        epoch_(epoch),
        index_(index),
        position_(position),
        rng_(key, static_cast<uint64_t>(position)) {}

  // Returns random numbers that belong to this place of the stream. They are
  // the same on any worker and rank and after any restart, and others if the
  // sample is repeated or stands as padding.
  Random& rng() { return rng_; }

  const WorkerInfo& worker() const { return *worker_; }
  int64_t epoch() const { return epoch_; }
  int64_t index() const { return index_; }
  int64_t position() const { return position_; }

 private:
  const WorkerInfo* worker_;
  int64_t epoch_;
  int64_t index_;
  int64_t position_;
  Random rng_;
};

// A sample's row in a batch. Fields are numbered in the order of
// Dataset::fields(), and every field must be written. Errors name the field and
// what is accepted.
// Thread-safety: thread-compatible. Different threads may write different rows.
class SampleRow {
 public:
  // Return the elements or bytes of a field of fixed shape, all of which must
  // be written.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Mutable(int field) {
    LOCKSTEP_RETURN_IF_ERROR(CheckType(field, DTypeOf<T>()));
    LOCKSTEP_RETURN_IF_ERROR(CheckFixed(field));
    return SpanOf<T>(field, LayoutOf(field).elements);
  }
  absl::StatusOr<absl::Span<char>> MutableBytes(int field) {
    LOCKSTEP_RETURN_IF_ERROR(CheckFixed(field));
    return absl::Span<char>(Data(field),
                            static_cast<size_t>(LayoutOf(field).row_bytes));
  }

  // Do the same for a ragged field, which gets `shape` in this row.
  template <typename T>
  absl::StatusOr<absl::Span<T>> MutableRagged(int field,
                                              absl::Span<const int64_t> shape) {
    LOCKSTEP_RETURN_IF_ERROR(CheckType(field, DTypeOf<T>()));
    LOCKSTEP_RETURN_IF_ERROR(SetShape(field, shape));
    return SpanOf<T>(field, Elements(field));
  }
  absl::StatusOr<absl::Span<char>> MutableRaggedBytes(
      int field, absl::Span<const int64_t> shape) {
    LOCKSTEP_RETURN_IF_ERROR(SetShape(field, shape));
    return absl::Span<char>(Data(field), WrittenSize(field));
  }

  // Copies a whole field. `values` must have as many elements as the shape. For
  // a ragged field with one dimension of -1, any number within the bound is
  // accepted that makes this dimension a whole number.
  template <typename T>
  absl::Status Copy(int field, absl::Span<const T> values) {
    LOCKSTEP_RETURN_IF_ERROR(CheckType(field, DTypeOf<T>()));
    LOCKSTEP_RETURN_IF_ERROR(
        SetCount(field, static_cast<int64_t>(values.size())));
    if (!values.empty()) {
      std::memcpy(Data(field), values.data(), values.size() * sizeof(T));
    }
    return absl::OkStatus();
  }

  // Writes a scalar field, or one of a single element.
  template <typename T>
  absl::Status Set(int field, T value) {
    return Copy<T>(field, absl::MakeConstSpan(&value, 1));
  }

  // Return what was written to a field, so that it can be changed. It is an
  // error if the field was not written.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Written(int field) {
    LOCKSTEP_RETURN_IF_ERROR(CheckType(field, DTypeOf<T>()));
    LOCKSTEP_RETURN_IF_ERROR(CheckWritten(field));
    return SpanOf<T>(field, Elements(field));
  }
  absl::StatusOr<absl::Span<char>> WrittenBytes(int field) {
    LOCKSTEP_RETURN_IF_ERROR(CheckWritten(field));
    return absl::Span<char>(Data(field), WrittenSize(field));
  }

  // Returns the shape of the field in this row. Requires 0 <= field < fields().
  absl::Span<const int64_t> shape(int field) const;

  int fields() const { return count_; }
  const FieldSpec& spec(int field) const { return *LayoutOf(field).spec; }

  // Returns `count` fields from `first` on as a row of their own, for datasets
  // that are made of datasets. Requires that the row has these fields.
  SampleRow Part(int first, int count) const;

  // For the loader and RowBuffer. `shapes` has kMaxDimensions numbers for each
  // ragged field.
  SampleRow(const internal_loader::BatchLayout& layout, char* memory,
            int64_t row, int64_t* shapes, uint64_t* written)
      : layout_(&layout),
        memory_(memory),
        row_(row),
        shapes_(shapes),
        written_(written),
        count_(static_cast<int>(layout.fields.size())) {}

 private:
  const internal_loader::FieldLayout& LayoutOf(int field) const {
    return layout_
        ->fields[static_cast<size_t>(first_) + static_cast<size_t>(field)];
  }
  size_t WrittenSize(int field) const {
    return static_cast<size_t>(Elements(field) *
                               SizeOf(LayoutOf(field).spec->dtype));
  }
  template <typename T>
  absl::Span<T> SpanOf(int field, int64_t elements) const {
    return absl::Span<T>(reinterpret_cast<T*>(Data(field)),
                         static_cast<size_t>(elements));
  }
  char* Data(int field) const {
    const internal_loader::FieldLayout& layout = LayoutOf(field);
    return memory_ + layout.offset + row_ * layout.row_bytes;
  }
  int64_t* Shape(int field) const {
    return shapes_ + LayoutOf(field).ragged_number * kMaxDimensions;
  }
  int64_t Elements(int field) const {
    return internal_loader::CountElements(shape(field));
  }

  absl::Status CheckType(int field, DType dtype) const {
    if (field >= 0 && field < count_ && LayoutOf(field).spec->dtype == dtype) {
      return absl::OkStatus();
    }
    return TypeError(field, dtype);
  }
  absl::Status CheckFixed(int field) {
    if (field >= 0 && field < count_ && !LayoutOf(field).ragged) {
      *written_ |= uint64_t{1} << (first_ + field);
      return absl::OkStatus();
    }
    return FixedError(field);
  }
  absl::Status CheckNumber(int field) const;
  absl::Status CheckWritten(int field) const;
  absl::Status TypeError(int field, DType dtype) const;
  absl::Status FixedError(int field) const;
  absl::Status SetShape(int field, absl::Span<const int64_t> shape);
  absl::Status SetCount(int field, int64_t elements);

  const internal_loader::BatchLayout* layout_;
  char* memory_;
  int64_t row_;
  int64_t* shapes_;
  uint64_t* written_;
  int first_ = 0;
  int count_;
};

// The samples of a training, as the user implements them.
// Requires: size() and fields() never change.
// Thread-safety: all functions must be thread-safe, since many threads call
// them at once.
class Dataset {
 public:
  // A number for each sample, by its index.
  using Column = std::variant<std::vector<int64_t>, std::vector<double>>;

  virtual ~Dataset() = default;

  // Returns the number of samples: indices are 0 to size() - 1.
  virtual int64_t size() const = 0;

  // Returns the fields of every sample. The span must live as long as the
  // dataset.
  virtual absl::Span<const FieldSpec> fields() const = 0;

  // Writes all fields of a sample.
  virtual absl::Status Read(int64_t index, SampleContext& context,
                            SampleRow& row) = 0;

  // Returns the most samples that one call of ReadMany takes; 1: it is never
  // called. This is for datasets that read many samples together faster than
  // one by one. A call gets the rows that a worker takes at once, which need
  // about 16 us, so it helps if samples are cheap. Hint helps if they are slow.
  virtual int64_t max_bulk() const { return 1; }

  // Reads sample indices[i] into rows[i] for each i. There are at most
  // max_bulk() of them. If it fails, the loader calls Read for each sample to
  // find out which one has failed.
  virtual absl::Status ReadMany(absl::Span<const int64_t> indices,
                                absl::Span<SampleContext> contexts,
                                absl::Span<SampleRow> rows);

  // Called with the samples of a batch as soon as it is known that they will be
  // read, one call at a time, on the thread that plans: a worker, or the one in
  // Loader::Next. The dataset may start to read ahead. The call must be quick,
  // since no step is planned meanwhile. What it throws is ignored.
  virtual void Hint(absl::Span<const int64_t> /*indices*/) {}

  // Returns numbers that are known without reading the samples: for instance
  // their classes, weights or lengths. Orders that weigh or group samples ask
  // for a column by its name. NOT_FOUND if the dataset has no such column.
  virtual absl::StatusOr<Column> ReadColumn(absl::string_view name);

  // Returns the sizes of the parts of which the dataset consists, one after the
  // other, for orders that mix them. They add up to size(), which is the only
  // part unless a dataset says otherwise.
  virtual std::vector<int64_t> parts() const { return {size()}; }

  // Adds what tells these samples from others, such as digests of files. A
  // session compares it over ranks, and logs what differs after a restart.
  virtual void AddTo(Fingerprint& /*fingerprint*/) const {}

  // Returns where a field of a sample lies, for messages, such as the path of a
  // file; "" if there is nothing to say. It may read files, but should not
  // fail.
  virtual std::string PlaceOf(int64_t /*index*/, int /*field*/) const {
    return "";
  }

  // Returns what there is, and what is in no sample, in a line for people,
  // which a session logs; "" if there is nothing to say.
  virtual std::string Describe() const { return ""; }
};

// Returns dataset.ReadColumn(name), or INTERNAL if the column does not have one
// value for each sample.
absl::StatusOr<Dataset::Column> ReadWholeColumn(Dataset& dataset,
                                                absl::string_view name);

// Return the column as integers, or as numbers. Integers are converted to
// numbers. INVALID_ARGUMENT if integers are asked for and it has other numbers.
absl::StatusOr<std::vector<int64_t>> ReadIntegers(Dataset& dataset,
                                                  absl::string_view name);
absl::StatusOr<std::vector<double>> ReadNumbers(Dataset& dataset,
                                                absl::string_view name);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASET_H_
