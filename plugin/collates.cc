// Registers collates.
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/option_table.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

void BindOptions(PadOptions& options, OptionTable& table) {
  table.Add("field", &options.field,
            "The name of the field, of which the first dimension alone differs "
            "from sample to sample.");
  table.Add("fill", &options.fill,
            "The value of the elements that are added: a number, or true or "
            "false, that the type of the field can hold; from "
            "9223372036854775808 on as a string.");
  table.Add("multiple_of", &options.multiple_of,
            "The number to a multiple of which the length of the longest row "
            "is rounded up; the most elements of a row must be such a "
            "multiple, and if they are the number itself, all batches have the "
            "same length.");
}

namespace internal_plugin {
namespace {

absl::StatusOr<Collate> MakePadOf(const PluginContext& context,
                                  const PadOptions& options) {
  if (context.dataset == nullptr) {
    return absl::InvalidArgumentError(
        "it needs a dataset, whose fields it pads: set "
        "PluginContext::dataset");
  }
  return MakePad(context.batch_fields.empty() ? context.dataset->fields()
                                              : context.batch_fields,
                 options);
}

}  // namespace

absl::Status RegisterCollates(PluginRegistry& registry) {
  return registry.Add<Collate>(
      "pad",
      "Extends the rows of a ragged field to the length of the longest one of "
      "their batch.",
      MakePadOf);
}

}  // namespace internal_plugin
}  // namespace lockstep
