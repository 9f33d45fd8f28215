#include "lockstep/sampler/packed.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"

namespace lockstep {
namespace {

// Finds the first row that has room. It is a tree whose leaves are the rows and
// whose nodes have the most room below them. Rows that were not begun are
// empty, so there is always one with room.
// Thread-safety: thread-compatible.
class FirstFit {
 public:
  FirstFit(size_t most_rows, int64_t row_length) {
    while (leaves_ < most_rows) leaves_ *= 2;
    room_.assign(2 * leaves_, static_cast<int32_t>(row_length));
  }

  // Takes room in the first row that has it, and returns the row's number.
  // Requires: `room` is at most the length of a row.
  size_t Take(int32_t room) {
    size_t node = 1;
    while (node < leaves_) node = 2 * node + (room_[2 * node] < room ? 1 : 0);
    const size_t row = node - leaves_;
    room_[node] -= room;
    while (node > 1) {
      node /= 2;
      const int32_t most = std::max(room_[2 * node], room_[2 * node + 1]);
      if (room_[node] == most) break;  // the nodes above stay too
      room_[node] = most;
    }
    return row;
  }

 private:
  size_t leaves_ = 1;
  std::vector<int32_t> room_;  // rows are shorter than 2^31
};

// Returns the samples of a window that has `rows` rows.
int64_t PositionsOf(const PackedOptions& options, int64_t rows) {
  const auto samples = static_cast<int64_t>(options.lengths.size());
  __int128 total = 0;
  for (const int64_t length : options.lengths) {
    total += std::clamp<int64_t>(length, 1, options.row_length);
  }
  if (total == 0) return rows;
  const __int128 positions =
      static_cast<__int128>(rows) * options.row_length * samples / total;
  constexpr __int128 kMost = int64_t{1} << 32;
  return static_cast<int64_t>(std::clamp<__int128>(positions, rows, kMost));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PackedOrder>> PackedOrder::Create(
    PackedOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckWindow("packed", options.window, options.lengths, "lengths"));
  // A position in a row is an i32.
  if (options.row_length < 1 || options.row_length >= int64_t{1} << 31) {
    return absl::InvalidArgumentError(
        absl::StrCat("packed: row_length should be set to the elements of a "
                     "row, from 1 to 2^31 - 1, but got row_length=",
                     options.row_length));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckLengths("packed", options.lengths, kMaxSize));
  const auto longest =
      std::max_element(options.lengths.begin(), options.lengths.end());
  if (!options.cut && longest != options.lengths.end() &&
      *longest > options.row_length) {
    const auto longer = std::count_if(
        options.lengths.begin(), options.lengths.end(),
        [&options](int64_t length) { return length > options.row_length; });
    return absl::InvalidArgumentError(absl::StrCat(
        "packed: ", longer, " of ", options.lengths.size(),
        " samples are longer than row_length=", options.row_length,
        "; the longest is sample ", longest - options.lengths.begin(), " with ",
        *longest,
        ". Set cut, so that they lose their ends, or make rows longer"));
  }
  const int64_t positions = PositionsOf(
      options, options.window.global_batch * options.window.batches);
  return std::shared_ptr<const PackedOrder>(
      new PackedOrder(std::move(options.window), std::move(options.lengths),
                      positions, {options.row_length, options.cut}));
}

// An empty sample takes one element, so that a row has at most as many samples
// as elements.
int64_t PackedOrder::RoomFor(int64_t index) const {
  return std::clamp<int64_t>(ValueOf(index), 1, packing_.row_length);
}

void PackedOrder::Rearrange(uint64_t key, Plan& plan) const {
  std::vector<int32_t> rooms;
  rooms.reserve(plan.indices.size());
  int64_t total = 0;
  for (const int64_t index : plan.indices) {
    rooms.push_back(static_cast<int32_t>(RoomFor(index)));
    total += rooms.back();
  }
  // Any two rows that follow each other take more than row_length together, so
  // there are at most so many.
  const int64_t most_rows = 2 * (total / packing_.row_length) + 2;
  FirstFit fit(std::min(plan.indices.size(), static_cast<size_t>(most_rows)),
               packing_.row_length);
  std::vector<uint32_t> row_of;  // each sample
  row_of.reserve(plan.indices.size());
  std::vector<int64_t> sizes;  // of the rows
  for (const int32_t room : rooms) {
    const size_t row = fit.Take(room);
    if (row == sizes.size()) sizes.push_back(0);
    ++sizes[row];
    row_of.push_back(static_cast<uint32_t>(row));
  }
  std::vector<uint32_t> shuffled(sizes.size());
  std::iota(shuffled.begin(), shuffled.end(), 0);
  Random(key).Shuffle(absl::MakeSpan(shuffled));
  std::vector<size_t> next(sizes.size());  // the place of the row's next sample
  size_t begin = 0;
  for (const uint32_t row : shuffled) {
    next[row] = begin;
    begin += static_cast<size_t>(sizes[row]);
    plan.row_sizes.push_back(sizes[row]);
  }
  std::vector<int64_t> packed(plan.indices.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    packed[next[row_of[i]]++] = plan.indices[i];
  }
  plan.indices = std::move(packed);
  plan.segments.push_back({static_cast<int64_t>(plan.indices.size())});
}

std::string PackedOrder::Details() const {
  return absl::StrCat(",row_length:", packing_.row_length,
                      ",cut:", packing_.cut ? 1 : 0);
}

std::string PackedOrder::Explain() const {
  const std::string inner = WindowedOrder::Explain();
  const int64_t size = Describe().size;
  int64_t cut = 0;
  __int128 lost = 0;
  for (int64_t index = 0; index < size; ++index) {
    const int64_t more = ValueOf(index) - packing_.row_length;
    if (more > 0) {
      ++cut;
      lost += more;
    }
  }
  std::string text = absl::StrCat(inner, inner.empty() ? "" : ", packed into ",
                                  "rows of ", packing_.row_length, " elements");
  if (cut > 0) {
    absl::StrAppend(&text, "; ", cut, " samples are longer and lose ",
                    static_cast<double>(lost), " elements at their ends");
  }
  // More samples may take long to shuffle.
  constexpr int64_t kMostMeasured = int64_t{1} << 24;
  if (size > kMostMeasured) return text;
  const auto stream = Open(0);
  if (!stream.ok() || (*stream)->size() == 0) return text;
  const auto segment = (*stream)->SegmentAt(0);
  if (!segment.ok()) return text;
  std::vector<int64_t> indices(static_cast<size_t>(segment->end));
  const auto rows = static_cast<double>(segment->row_ends.size());
  if (!(*stream)->Read(0, 1, absl::MakeSpan(indices)).ok()) return text;
  double filled = 0;
  for (const int64_t index : indices) {
    filled +=
        static_cast<double>(std::min(ValueOf(index), packing_.row_length));
  }
  absl::StrAppend(
      &text, "; the first window packs ", indices.size(), " samples into ",
      rows, " rows, of which ",
      100 * (1 - filled / (rows * static_cast<double>(packing_.row_length))),
      " % stay empty");
  return text;
}

}  // namespace lockstep
