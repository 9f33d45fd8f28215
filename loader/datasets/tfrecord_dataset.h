// The records of TFRecord files, as they are: what is in them, such as a
// tf.train.Example, is for a dataset on top to decode.
//
//   TfRecordDatasetOptions options;
//   options.files = {"train-0.tfrecord", "train-1.tfrecord"};
//   absl::StatusOr<std::shared_ptr<TfRecordDataset>> dataset =
//       TfRecordDataset::Create(std::move(options));
//
// Samples are numbered through the files in their order. The one field is
// "record", u8[-1].
#ifndef LOCKSTEP_LOADER_DATASETS_TFRECORD_DATASET_H_
#define LOCKSTEP_LOADER_DATASETS_TFRECORD_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

struct TfRecordDatasetOptions {
  // Not compressed. Each stays open.
  std::vector<std::string> files;

  // Whether each read checks the CRC of the record's data. Those of the lengths
  // are checked in any case, when the files are opened.
  bool verify = true;

  // The bound of the field, and so the memory that a sample takes in a batch: a
  // longer record is an error of Create. 0: the longest record of the files.
  int64_t max_record_bytes = 0;
};

class TfRecordDataset : public Dataset {
 public:
  // Walks through all files, reading some bytes a record, to learn where the
  // records are: 12 bytes of memory each. Errors name the file: NOT_FOUND and
  // PERMISSION_DENIED as the system has it, INVALID_ARGUMENT for options and
  // compressed files, and DATA_LOSS, with the record and its byte, for files
  // that are torn or corrupt.
  static absl::StatusOr<std::shared_ptr<TfRecordDataset>> Create(
      TfRecordDatasetOptions options);

  ~TfRecordDataset() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  // DATA_LOSS names the file, the record in it and its byte, if the data are
  // not what was written or the file was truncated.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;

 private:
  struct Shard;

  explicit TfRecordDataset(TfRecordDatasetOptions options);
  absl::Status Open();
  absl::Status OpenShard(const std::string& path);

  const TfRecordDatasetOptions options_;
  int64_t size_ = 0;
  int64_t longest_ = 0;
  std::vector<FieldSpec> fields_;
  std::vector<Shard> shards_;  // one for each file
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TFRECORD_DATASET_H_
