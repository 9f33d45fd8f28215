// Reads the records of TFRecord files as bytes. A dataset on top decodes what
// is in them, such as a tf.train.Example.
//
//   TfRecordDatasetOptions options;
//   options.files = {"train-0.tfrecord", "train-1.tfrecord"};
//   absl::StatusOr<std::shared_ptr<TfRecordDataset>> dataset =
//       TfRecordDataset::Create(std::move(options));
//
// Samples are numbered through all files, in the order of the files. The only
// field is "record", u8[-1].
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

// The options of a TfRecordDataset.
struct TfRecordDatasetOptions {
  // The paths of the files, which must not be compressed. All files stay open.
  std::vector<std::string> files;

  // True if each read checks the CRC of the record's data. The CRCs of the
  // lengths are always checked, when the files are opened.
  bool verify = true;

  // The bound of the field, and so the memory that a sample takes in a batch.
  // Create returns an error if a record is longer. 0: the longest record.
  int64_t max_record_bytes = 0;
};

// The records of TFRecord files.
// Thread-safety: thread-safe.
class TfRecordDataset : public Dataset {
 public:
  // Walks through all files, reading some bytes of each record, to find where
  // the records are. It keeps 12 bytes for each record. Errors name the file:
  // NOT_FOUND and PERMISSION_DENIED come from the system. INVALID_ARGUMENT
  // means wrong options or compressed files. DATA_LOSS means a file that is
  // torn or corrupt, and names the record and its byte.
  static absl::StatusOr<std::shared_ptr<TfRecordDataset>> Create(
      TfRecordDatasetOptions options);

  ~TfRecordDataset() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  // DATA_LOSS names the file, the record in it and its byte, if the data do not
  // have their CRC or the file was truncated.
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
