// The structs by which a batch reports samples that could not be read.
//
//   for (const SampleError& error : batch.errors()) {
//     Log("sample ", error.index, ": ", error.status);
//   }
#ifndef LOCKSTEP_LOADER_SAMPLE_ERROR_H_
#define LOCKSTEP_LOADER_SAMPLE_ERROR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

// A sample that could not be read.
struct SampleError {
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t part = 0;  // of the step
  int64_t row = 0;   // the row that it would have had in its batch
  int64_t index = 0;
  int64_t position = 0;
  int worker = 0;
  absl::Status status;
  int64_t shard = -1;  // of the step (BatchView::shard)
};

// A sample that was read instead of one that could not be read.
struct Substitution {
  int64_t row = 0;
  int64_t wanted = 0;  // the index that failed
  int64_t used = 0;    // the index that was read instead
  absl::Status why;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_SAMPLE_ERROR_H_
