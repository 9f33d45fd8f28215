#include "lockstep/sampler/cut.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

int64_t DivideUp(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Returns the fewest rows in any shard if `data` positions form the last batch.
int64_t FewestRows(const CutOptions& options, int64_t data) {
  switch (options.tail) {
    case Tail::kPad:
      return DivideUp(data, options.CountShards());
    case Tail::kDrop:
    case Tail::kUneven:
    case Tail::kMask:  // masked rows are there only for the shape
      return data / options.CountShards();
  }
  return 0;
}

// Returns true if the options allow a last batch of `data` positions.
bool IsLargeEnough(const CutOptions& options, int64_t data) {
  return FewestRows(options, data) >=
         (options.drop_last ? options.batch_size : options.min_last_batch);
}

// Returns a last batch that has as much of `rest` as the tail policy allows.
Cut LastCut(const CutOptions& options, int64_t rest) {
  if (options.tail != Tail::kDrop) return {rest, 0};
  const int64_t data = rest - rest % options.CountShards();
  return {data, rest - data};
}

}  // namespace

Cut NextCut(const CutOptions& options, int64_t rest) {
  if (options.batch_size < options.min_last_batch) return {0, rest};
  const int64_t global = options.GlobalBatch();
  const int64_t full = rest / global, tail = rest % global;
  if (full == 0) {
    return IsLargeEnough(options, rest) ? LastCut(options, rest) : Cut{0, rest};
  }
  const bool joins = full == 1 && tail > 0 && !options.drop_last &&
                     options.small_last_batch != SmallLastBatch::kDrop &&
                     !IsLargeEnough(options, tail);
  if (!joins) return {global, 0};
  if (options.small_last_batch == SmallLastBatch::kSpread) {
    const int64_t shards = options.CountShards();
    const int64_t first = DivideUp(rest, 2 * shards) * shards;
    if (IsLargeEnough(options, rest - first)) return {first, 0};
    // Two halves would be too small too, so it is one batch.
  }
  if (options.max_rows > 0 &&
      DivideUp(rest, options.CountShards()) > options.max_rows) {
    return {global, 0};  // no room to join: the rest is dropped
  }
  return LastCut(options, rest);
}

int64_t CountSteps(const CutOptions& options, int64_t rest) {
  if (options.batch_size < options.min_last_batch) return 0;
  const int64_t global = options.GlobalBatch();
  int64_t steps = 0;
  // All global batches before the last two are full.
  if (rest >= 2 * global) {
    steps = rest / global - 1;
    rest -= steps * global;
  }
  while (rest > 0) {
    const Cut cut = NextCut(options, rest);
    rest -= cut.data + cut.dropped;
    steps += cut.data > 0;
  }
  return steps;
}

Share ShareOf(const CutOptions& options, const Cut& cut, int64_t shard) {
  const int64_t shards = options.CountShards();
  const int64_t most = DivideUp(cut.data, shards);
  Share share;
  if (options.layout == Layout::kStrided) {
    share.first = shard;
    share.stride = shards;
    share.valid = cut.data / shards + (shard < cut.data % shards);
  } else if (options.tail == Tail::kUneven || options.tail == Tail::kMask) {
    const int64_t fewest = cut.data / shards, longer = cut.data % shards;
    share.first = shard * fewest + std::min(shard, longer);
    share.stride = 1;
    share.valid = fewest + (shard < longer);
  } else {
    share.first = shard * most;
    share.stride = 1;
    share.valid = std::clamp<int64_t>(cut.data - share.first, 0, most);
  }
  switch (options.tail) {
    case Tail::kPad:
    case Tail::kDrop:
      share.rows = most;
      break;
    case Tail::kUneven:
      share.rows = share.valid;
      break;
    case Tail::kMask:
      share.rows = std::max(most, options.batch_size);
      break;
  }
  return share;
}

ShardRange ShardsOf(const CutOptions& options, int64_t rank) {
  const PartRows run = RowsOfPart(options.CountShards(), options.world, rank);
  return {run.begin, run.end};
}

int64_t CountParts(int64_t most_rows, int64_t micro_batch_size) {
  if (micro_batch_size == 0) return 1;
  return std::max<int64_t>(1, DivideUp(most_rows, micro_batch_size));
}

PartRows RowsOfPart(int64_t rows, int64_t parts, int64_t part) {
  const int64_t fewest = rows / parts, longer = rows % parts;
  PartRows own;
  own.begin = part * fewest + std::min(part, longer);
  own.end = own.begin + fewest + (part < longer ? 1 : 0);
  return own;
}

int64_t MaxRows(const CutOptions& options) {
  const bool merges = options.min_last_batch > 0 && !options.drop_last &&
                      options.small_last_batch != SmallLastBatch::kDrop;
  // A joined batch has fewer than min_last_batch rows in the shard with the
  // fewest rows, and at most one more in others.
  return options.batch_size + (merges ? options.min_last_batch : 0);
}

absl::Status Validate(const CutOptions& options) {
  constexpr int64_t kMostRows = int64_t{1} << 24;
  constexpr int64_t kMostWorld = int64_t{1} << 30;
  if (options.batch_size <= 0 || options.batch_size > kMostRows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size should be a positive integer value, but got batch_size=",
        options.batch_size, "; at most 2^24 is possible"));
  }
  if (options.world <= 0 || options.world > kMostWorld) {
    return absl::InvalidArgumentError(
        absl::StrCat("world should be a positive integer value up to 2^30, "
                     "but got world=",
                     options.world));
  }
  if (options.shards != 0 && !IsShardCount(options.shards)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shards should be 0 (as many as ranks), 2^n or 3 * 2^n, such as 8, 12, "
        "16 or 24, and at most 65536, but got shards=",
        options.shards));
  }
  if (options.shards != 0 && options.world > options.shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("there should be at least as many shards as ranks with "
                     "different data, ",
                     options.world, ", but got shards=", options.shards,
                     ": set more shards, or use fewer ranks"));
  }
  if (options.shards != 0 && options.batch_size > kMostRows / options.shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "one rank may get all shards of a step, so they should have at most "
        "2^24 rows together, but got batch_size=",
        options.batch_size, " for each of shards=", options.shards));
  }
  if (options.min_last_batch < 0 ||
      options.min_last_batch > options.batch_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "min_last_batch must be from 0 to batch_size=", options.batch_size,
        options.shards > 0 ? " (the rows of a shard)" : "",
        ", but got min_last_batch=", options.min_last_batch));
  }
  const int tail = static_cast<int>(options.tail);
  const int layout = static_cast<int>(options.layout);
  const int small = static_cast<int>(options.small_last_batch);
  if (tail < 0 || tail > 3 || layout < 0 || layout > 1 || small < 0 ||
      small > 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tail, layout and small_last_batch must be enumerators, but are ", tail,
        ", ", layout, " and ", small));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
