// These functions bind Lockstep's options structs for OptionTable. The keys of
// the settings are the names of the fields. Fields that only a program can set,
// such as callbacks, have no keys.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       LoaderOptions options,
//       ReadOptions<LoaderOptions>("loader 'train'", config));
//   options.collate = PadToLongest;
#ifndef LOCKSTEP_PLUGIN_OPTIONS_H_
#define LOCKSTEP_PLUGIN_OPTIONS_H_

#include <optional>
#include <string>

#include "lockstep/base/config.h"
#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/datasets/cache_dataset.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tfrecord_dataset.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/metrics/sinks.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/torch_profile.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {

// In a text, a profile is written as a release of PyTorch, such as "2.1".
bool ReadOption(const Config& config, TorchProfile* value);
std::optional<Config> WriteOption(TorchProfile value);
std::string OptionAccepts(const TorchProfile*);

// These bind the settings of orders. The number of samples and the data of each
// sample come from the dataset.
void BindOptions(BlockShuffleOptions& options, OptionTable& table);
void BindOptions(NativeShuffleOptions& options, OptionTable& table);
void BindOptions(NativeWeightedOptions& options, OptionTable& table);
void BindOptions(RepeatOptions& options, OptionTable& table);
void BindOptions(TorchRandomOptions& options, OptionTable& table);
void BindOptions(TorchShuffleOptions& options, OptionTable& table);
void BindOptions(TorchWeightedOptions& options, OptionTable& table);

// Binds the tail and the last batches.
void BindOptions(CutOptions& options, OptionTable& table);

void BindOptions(PadOptions& options, OptionTable& table);
void BindOptions(LoaderOptions& options, OptionTable& table);
void BindOptions(FileFolderOptions& options, OptionTable& table);
void BindOptions(TfRecordDatasetOptions& options, OptionTable& table);
void BindOptions(TokenFilesOptions& options, OptionTable& table);
void BindOptions(TarField& options, OptionTable& table);
void BindOptions(TarFilesOptions& options, OptionTable& table);
void BindOptions(NpyFile& options, OptionTable& table);
void BindOptions(NpyDatasetOptions& options, OptionTable& table);
void BindOptions(CacheOptions& options, OptionTable& table);
void BindOptions(ImageOptions& options, OptionTable& table);
void BindOptions(TextSinkOptions& options, OptionTable& table);
void BindOptions(JsonLinesOptions& options, OptionTable& table);
void BindOptions(TensorboardOptions& options, OptionTable& table);
void BindOptions(PrometheusOptions& options, OptionTable& table);

// Binds everything except the token, since a secret must not be in a text that
// is stored and shown.
void BindOptions(WorldOptions& options, OptionTable& table);

// Binds everything except `backend`, which is the name of the part.
void BindOptions(GroupOptions& options, OptionTable& table);
void BindOptions(NcclOptions& options, OptionTable& table);

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_OPTIONS_H_
