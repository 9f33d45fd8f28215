// A Collate changes a batch after its rows were read: it may mix rows, or pad
// them. A loader calls it (LoaderOptions::collate):
//
//   options.collate = [](BatchView& batch, Random& random) -> absl::Status {
//     LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x,
//                               batch.Values<float>("x"));
//     const float share = static_cast<float>(random.Uniform());
//     for (float& value : x) value *= share;
//     return absl::OkStatus();
//   };
//
// MakePad returns one that pads a ragged field:
//
//   PadOptions pad;
//   pad.field = "tokens";
//   pad.fill = -100;
//   pad.multiple_of = 64;
//   LOCKSTEP_ASSIGN_OR_RETURN(options.collate,
//                             MakePad(dataset->fields(), pad));
//
// A job's text has it as `collate = {name = "pad", field = "tokens"}`. Programs
// register their own (plugin/registry.h).
#ifndef LOCKSTEP_LOADER_COLLATE_H_
#define LOCKSTEP_LOADER_COLLATE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/field.h"

namespace lockstep {

// Changes a batch after its rows were read: it may mix rows, or pad them to
// the longest. The random numbers are the same in every run. An error or an
// exception fails the step. It is called on several workers at once, for
// different batches, of which some may have no rows.
using Collate = std::function<absl::Status(BatchView&, Random&)>;

struct PadOptions {
  // The field, of which the first dimension alone may differ from sample to
  // sample.
  std::string field;

  // The value of the elements that are added. It must be one of the field's
  // type: an integer that the type can hold (from 2^63 on as a string), true or
  // false (also 1 or 0), or a number, which is rounded to the nearest one of
  // the type, and may be infinite.
  Config fill = 0;

  // Rows get the length of the longest one of their batch, rounded up to the
  // next multiple of this number, and at least this number if it is above 1.
  // The most elements of a row (FieldSpec::max_elements) must have a length
  // that is such a multiple. If it is this number itself, all batches have the
  // same length.
  int64_t multiple_of = 1;
};

// Returns a Collate that pads a field by BatchView::PadToLongest, so that
// Splits and Row still tell the rows' own elements. `fields` are those of the
// dataset. The errors are:
//   NOT_FOUND         there is no such field; the message lists the fields
//   INVALID_ARGUMENT  the field can't be padded, its type has no such value, or
//                     multiple_of is below 1 or does not fit the field
absl::StatusOr<Collate> MakePad(absl::Span<const FieldSpec> fields,
                                const PadOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_COLLATE_H_
