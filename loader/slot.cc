#include "lockstep/loader/slot.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/sampler/cut.h"

namespace lockstep::internal_loader {

void Slot::Plan(const BatchIndices& of_step, int64_t part_number,
                int64_t part_count, uint64_t epoch_key) {
  epoch = of_step.epoch;
  step = of_step.step;
  part = part_number;
  parts = part_count;
  key = epoch_key;
  const bool packs = !of_step.splits.empty();
  indices.clear();
  positions.clear();
  splits.assign(packs ? 1 : 0, 0);
  valid = 0;
  shard = -1;
  const int64_t parts_of_shard = part_count / of_step.most_shards;
  const int64_t place = part_number / parts_of_shard;
  if (place < static_cast<int64_t>(of_step.shards.size())) {
    const ShardRows& rows_of = of_step.shards[place];
    shard = rows_of.shard;
    // The rows of the shard, its padding last.
    const auto [begin, end] =
        RowsOfPart(rows_of.valid + rows_of.padding, parts_of_shard,
                   part_number % parts_of_shard);
    const int64_t data_end = std::min(end, rows_of.valid);
    valid = std::max<int64_t>(data_end - begin, 0);
    if (valid > 0) {
      Append(of_step, rows_of.begin + begin, rows_of.begin + data_end);
    }
    const int64_t padding = rows_of.padding_begin - rows_of.valid;
    if (valid < end - begin) {
      Append(of_step, padding + std::max(begin, rows_of.valid), padding + end);
    }
  }
  filled.store(0, std::memory_order_relaxed);
  first_position = positions.empty() ? 0 : positions.front();
  left.store(rows(), std::memory_order_relaxed);
}

// Appends the rows [begin, end) of a step.
void Slot::Append(const BatchIndices& of_step, int64_t begin, int64_t end) {
  const int64_t first = of_step.SamplesBefore(begin);
  const int64_t last = of_step.SamplesBefore(end);
  if (!splits.empty()) {
    const int64_t before = static_cast<int64_t>(indices.size()) - first;
    for (int64_t row = begin + 1; row <= end; ++row) {
      splits.push_back(before + of_step.splits[row]);
    }
  }
  indices.insert(indices.end(), of_step.indices.begin() + first,
                 of_step.indices.begin() + last);
  positions.insert(positions.end(), of_step.positions.begin() + first,
                   of_step.positions.begin() + last);
}

int64_t Slot::SamplesRead() const {
  if (!is_packed() || errors.empty()) return samples();
  // Those of packed rows that were not read keep their places.
  return samples() -
         std::count(indices.begin(), indices.begin() + samples(), -1);
}

std::string Slot::Place() const {
  return absl::StrCat(
      "epoch ", epoch, ", step ", step,
      parts > 1 ? absl::StrCat(", part ", part) : "",
      has_shard_name && shard >= 0 ? absl::StrCat(", shard ", shard) : "");
}

absl::Status Slot::AtStep(absl::string_view what, absl::Status status) const {
  if (status.ok()) return status;
  return Annotate(status, absl::StrCat(Place(), ": ", what, " failed"));
}

void Slot::Complete() {
  if (!errors.empty()) {
    std::stable_sort(
        errors.begin(), errors.end(),
        [](const auto& a, const auto& b) { return a.row < b.row; });
    if (!is_packed()) CloseUp();
  }
  if (substitutions.size() > 1) {
    std::stable_sort(
        substitutions.begin(), substitutions.end(),
        [](const auto& a, const auto& b) { return a.row < b.row; });
  }
  if (is_packed()) return;
  for (int64_t row = rows(); row > valid && indices[row - 1] < 0; --row) {
    ZeroRow(row - 1);
  }
  if (layout->ragged_fields == 0) return;
  for (size_t field = 0; field < layout->fields.size(); ++field) {
    if (layout->fields[field].ragged) Pack(static_cast<int>(field));
  }
}

// Moves the rows that were read to the front and keeps their order.
void Slot::CloseUp() {
  auto failed = errors.begin();
  int64_t to = 0;
  const int64_t data = valid;
  for (int64_t row = 0; row < rows(); ++row) {
    if (failed != errors.end() && failed->row == row) {
      ++failed;
      if (row < data) --valid;
      continue;
    }
    if (to != row) {
      for (const FieldLayout& field : layout->fields) {
        char* const first = memory + field.offset;
        std::memcpy(first + to * field.row_bytes, first + row * field.row_bytes,
                    field.row_bytes);
      }
      std::copy_n(RowShapes(row), layout->ragged_fields * kMaxDimensions,
                  RowShapes(to));
      indices[to] = indices[row];
      positions[to] = positions[row];
      for (Substitution& substitution : substitutions) {
        if (substitution.row == row) substitution.row = to;
      }
    }
    ++to;
  }
  for (; to < rows(); ++to) {
    indices[to] = -1;
    positions[to] = -1;
  }
}

void Slot::ZeroRow(int64_t row) {
  for (const FieldLayout& field : layout->fields) {
    if (!field.ragged) {
      std::memset(memory + field.offset + row * field.row_bytes, 0,
                  field.row_bytes);
      continue;
    }
    int64_t* const shape =
        RowShapes(row) + field.ragged_number * kMaxDimensions;
    for (size_t i = 0; i < field.spec->shape.size(); ++i) {
      shape[i] = std::max<int64_t>(field.spec->shape[i], 0);
    }
  }
}

void Slot::Pack(int field) {
  const FieldLayout& packed = layout->fields[field];
  const int64_t element = SizeOf(packed.spec->dtype);
  char* const first = memory + packed.offset;
  int64_t* const ends = Splits(packed);
  ends[0] = 0;
  for (int64_t row = 0; row < rows(); ++row) {
    const int64_t* const shape =
        RowShapes(row) + packed.ragged_number * kMaxDimensions;
    const int64_t elements = CountElements({shape, packed.spec->shape.size()});
    std::memmove(first + ends[row] * element, first + row * packed.row_bytes,
                 elements * element);
    ends[row + 1] = ends[row] + elements;
  }
  padded[packed.ragged_number] = -1;
}

}  // namespace lockstep::internal_loader
