#include "lockstep/sampler/order_conformance.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/check_options.h"

namespace lockstep {
namespace {

void ExpectSameInPieces(IndexStream& stream,
                        const std::vector<int64_t>& expected, Random& random) {
  const int64_t size = stream.size();
  std::vector<int64_t> piece;
  for (int i = 0; i < 50 && size > 0; ++i) {
    const int64_t first = random.Integer(0, size);
    const int64_t stride = random.Integer(1, 10);
    const int64_t most = (size - 1 - first) / stride + 1;
    piece.assign(random.Integer(0, std::min<int64_t>(most, 300) + 1), -7);
    ASSERT_THAT(stream.Read(first, stride, absl::MakeSpan(piece)), IsOk());
    for (size_t k = 0; k < piece.size(); ++k) {
      ASSERT_EQ(piece[k], expected[first + static_cast<int64_t>(k) * stride])
          << "position " << first << " + " << k << " * " << stride;
    }
  }
}

// A segment whose ends of rows stay valid.
struct KeptSegment {
  IndexStream::Segment segment;
  std::vector<int64_t> row_ends;
};

// Each row ends after the one before it, and the last one ends the segment.
void ExpectRows(const IndexStream::Segment& segment, bool is_packed) {
  EXPECT_EQ(!segment.row_ends.empty(), is_packed)
      << "an order whose packing() is set has row_ends, and no other one";
  int64_t last = segment.begin;
  for (const int64_t end : segment.row_ends) {
    EXPECT_GT(end, last);
    last = end;
  }
  if (is_packed) {
    EXPECT_EQ(last, segment.end);
  }
}

std::vector<KeptSegment> SegmentsOf(IndexStream& stream, bool is_packed) {
  std::vector<KeptSegment> segments;
  for (int64_t at = 0; at < stream.size(); at = segments.back().segment.end) {
    const absl::StatusOr<IndexStream::Segment> segment = stream.SegmentAt(at);
    EXPECT_THAT(segment, IsOk());
    if (!segment.ok() || segment->end <= at) break;
    EXPECT_EQ(segment->begin, at);
    EXPECT_LE(segment->end, stream.size());
    EXPECT_GE(segment->max_rows, 0);
    ExpectRows(*segment, is_packed);
    segments.push_back(
        {*segment, {segment->row_ends.begin(), segment->row_ends.end()}});
  }
  return segments;
}

void ExpectSameSegments(IndexStream& stream,
                        const std::vector<KeptSegment>& expected,
                        Random& random) {
  for (int i = 0; i < 50 && !expected.empty(); ++i) {
    const auto& [segment, row_ends] = expected[random.Below(expected.size())];
    const absl::StatusOr<IndexStream::Segment> found =
        stream.SegmentAt(random.Integer(segment.begin, segment.end));
    ASSERT_THAT(found, IsOk());
    ASSERT_EQ(found->begin, segment.begin);
    ASSERT_EQ(found->end, segment.end);
    ASSERT_EQ(found->max_rows, segment.max_rows);
    ASSERT_EQ(found->rows, segment.rows);
    ASSERT_THAT(found->row_ends, testing::ElementsAreArray(row_ends));
  }
}

}  // namespace

std::vector<int64_t> ReadEpoch(const Order& order, int64_t epoch) {
  const absl::StatusOr<std::unique_ptr<IndexStream>> stream = order.Open(epoch);
  EXPECT_THAT(stream, IsOk());
  if (!stream.ok()) return {};
  std::vector<int64_t> indices((*stream)->size());
  EXPECT_THAT((*stream)->Read(0, 1, absl::MakeSpan(indices)), IsOk());
  return indices;
}

void ExpectConforms(const Order& order, int64_t epoch) {
  SCOPED_TRACE(order.Describe().ToString());
  Random random(RandomKey(1, 2, static_cast<uint64_t>(epoch)));
  const std::vector<int64_t> expected = ReadEpoch(order, epoch);
  for (const int64_t index : expected) {
    ASSERT_GE(index, 0);
    ASSERT_LT(index, order.Describe().size);
  }
  const Coverage found = CoverageOf(expected, order.Describe().size);
  ASSERT_GE(order.coverage(), found)
      << "an order that repeats samples, or leaves some out, overrides "
         "coverage()";
  const std::unique_ptr<IndexStream> again = *order.Open(epoch);
  ASSERT_EQ(again->size(), static_cast<int64_t>(expected.size()));
  ExpectSameInPieces(*again, expected, random);
  const std::vector<KeptSegment> segments =
      SegmentsOf(*again, order.packing().has_value());
  ExpectSameSegments(*again, segments, random);
  ExpectSameInPieces(*again, expected, random);

  const std::unique_ptr<IndexStream> prepared = *order.Open(epoch);
  ASSERT_THAT(prepared->Prepare(), IsOk());
  ASSERT_THAT(prepared->Prepare(), IsOk());
  ExpectSameSegments(*prepared, segments, random);
  ExpectSameInPieces(*prepared, expected, random);
}

}  // namespace lockstep
