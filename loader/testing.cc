#include "lockstep/loader/testing.h"

#include <openssl/sha.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/native_shuffle.h"

namespace lockstep {

absl::Status TestDataset::Read(int64_t index, SampleContext& context,
                               SampleRow& row) {
  if (before) LOCKSTEP_RETURN_IF_ERROR(before(index, context));
  LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(0, index));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x, row.Mutable<float>(1));
  context.rng().FillNormal(x);
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                            row.MutableRagged<int32_t>(2, {index % 7}));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(context.rng().Below(50000));
  }
  return absl::OkStatus();
}

std::unique_ptr<Sampler> TestSampler(const TestJob& job) {
  NativeShuffleOptions shuffle;
  shuffle.size = job.size;
  shuffle.seed = job.seed;
  SamplerOptions options;
  options.cut.batch_size = job.batch_size;
  options.cut.world = job.world;
  options.cut.shards = job.shards;
  options.cut.tail = job.tail;
  options.cut.layout = job.layout;
  options.cut.min_last_batch = job.min_last_batch;
  options.cut.small_last_batch = job.small_last_batch;
  options.rank = job.rank;
  return *Sampler::Create(*NativeShuffle::Create(shuffle), options);
}

std::string BytesOf(const Batch& batch) {
  std::string bytes = absl::StrCat(batch.epoch(), " ", batch.step(), " ",
                                   batch.rows(), " ", batch.valid(), "\n");
  const auto append = [&bytes](const auto& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(values[0]));
  };
  append(batch.indices());
  append(batch.positions());
  for (size_t field = 0; field < batch.fields().size(); ++field) {
    append(batch.Bytes(static_cast<int>(field)));
    if (batch.fields()[field].ragged()) {
      append(*batch.Splits(batch.fields()[field].name));
    }
  }
  return bytes;
}

std::string DigestOfEpoch(Loader& loader, int64_t epoch) {
  std::string digests;
  for (absl::StatusOr<Batch>& batch : loader.Epoch(epoch)) {
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (batch.ok()) digests += Sha256(BytesOf(*batch));
  }
  return Sha256(digests);
}

std::string Sha256(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         digest);
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(digest), sizeof(digest)});
}

}  // namespace lockstep
