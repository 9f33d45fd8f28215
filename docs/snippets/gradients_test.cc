// Compiles and runs the examples of docs/gradients.md, which are read from the
// document.
#include "lockstep/gradients/gradients.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

// Moves the bias to 10, whatever the weights are.
int64_t AddGradients(const std::vector<float>&, const std::vector<float>& bias,
                     absl::Span<float>, absl::Span<float> of_bias) {
  const int64_t rows = 3;
  of_bias[0] += static_cast<float>(rows) * (bias[0] - 10);
  return rows;
}

void Update(std::vector<float>&, std::vector<float>& bias, absl::Span<float>,
            absl::Span<float> of_bias) {
  bias[0] -= of_bias[0];
}

absl::Status Train(Communicator& group, int steps, float& moved) {
#include "lockstep/docs/snippets/gradients/alone.inc"
  moved = bias[0];
  return absl::OkStatus();
}

TEST(GradientsDocument, Alone) {
  const auto ended = LocalWorld(2).Run([](World& world) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    float moved = 0;
    LOCKSTEP_RETURN_IF_ERROR(Train(*group, /*steps=*/20, moved));
    EXPECT_NEAR(moved, 10, 1e-3);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, testing::Each(IsOk()));
}

// Moves the weight to the mean of the numbers of all ranks.
using Rows = std::vector<float>;

void AddGradients(const Rows& rows, absl::Span<float> of_weights) {
  for (const float row : rows) of_weights[0] -= row;
}

void Update(std::vector<float>& weights, absl::Span<float> of_weights) {
  weights[0] -= of_weights[0];
}

absl::Status TrainUnevenly(const std::vector<Rows>& mine,
                           std::vector<float>& weights, Gradients* gradients,
                           absl::Span<float> of_weights) {
#include "lockstep/docs/snippets/gradients/uneven.inc"
  return absl::OkStatus();
}

TEST(GradientsDocument, Uneven) {
  const auto ended = LocalWorld(2).Run([](World& world) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    std::vector<float> weights = {0};
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(*group, {{"weights", BufferOf(weights)}}));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> of_weights,
                              gradients->Of<float>("weights"));
    const std::vector<Rows> mine = world.rank() == 0
                                       ? std::vector<Rows>{{1, 2}}
                                       : std::vector<Rows>{{6}, {5}, {7}};
    LOCKSTEP_RETURN_IF_ERROR(
        TrainUnevenly(mine, weights, gradients.get(), of_weights));
    EXPECT_EQ(weights[0], 3 + 5 + 7);  // the mean of each step is added
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, testing::Each(IsOk()));
}

// Moves the weight of each layer to the mean of the numbers of all ranks.
constexpr int kLayers = 3;

struct Layers {
  std::vector<float> weights[kLayers];
  absl::Span<float> gradients[kLayers];
};

void Forward(const Layers&, const Rows&) {}

void Backward(const Layers& layers, int layer, const Rows& rows) {
  for (const float row : rows) {
    layers.gradients[layer][0] += layers.weights[layer][0] - row;
  }
}

// ---- Shards.

#include "lockstep/docs/snippets/determinism/tree.inc"

// The rows of this model are numbers, and its loss is a sum of squares.
class Numbers : public Dataset {
 public:
  int64_t size() const override { return 96; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    return row.Set<float>(0, static_cast<float>(Random(5, index).Normal()));
  }

 private:
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {}}};
};

double AddGradients(const BatchView& batch, const std::vector<float>& weights,
                    absl::Span<float> of_weights) {
  const absl::Span<const float> x = *batch.Values<float>("x");
  double loss = 0;
  for (int64_t row = 0; row < batch.valid(); ++row) {
    const float error = weights[0] - x[row];
    of_weights[0] += 2 * error;
    loss += double{error} * double{error};
  }
  return loss;
}

absl::Status TrainInShards(Communicator& group, Loader* loader,
                           std::vector<float>& weights, double& loss_of_epoch) {
#include "lockstep/docs/snippets/gradients/shards.inc"
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const World& world) {
  const auto dataset = std::make_shared<Numbers>();
  SamplerOptions options;
  options.cut.shards = 24;
  options.cut.world = world.size();
  options.cut.batch_size = 2;
  options.rank = world.rank();
  NativeShuffleOptions order;
  order.size = dataset->size();
  LOCKSTEP_ASSIGN_OR_RETURN(auto shuffle, NativeShuffle::Create(order));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            Sampler::Create(std::move(shuffle), options));
  return Loader::Create(dataset, std::move(sampler), LoaderOptions());
}

TEST(GradientsDocument, Shards) {
  std::vector<float> expected;
  double expected_loss = 0;
  for (const int ranks : {1, 2, 3, 5}) {
    const auto ended = LocalWorld(ranks).Run([&](World& world) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, MakeLoader(world));
      std::vector<float> weights = {1};
      double loss = 0;
      LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(0));
      LOCKSTEP_RETURN_IF_ERROR(
          TrainInShards(*group, loader.get(), weights, loss));
      if (ranks == 1) {
        expected = weights;
        expected_loss = loss;
      }
      EXPECT_EQ(weights, expected) << ranks;
      EXPECT_EQ(loss, expected_loss) << ranks;
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, testing::Each(IsOk()));
  }
}

// The document defines the order in which shards are added up.
TEST(GradientsDocument, ShardsAreAddedUpAlongTheTree) {
  Random random(3);
  std::vector<double> values(24);
  for (double& value : values) value = random.Normal();
  const double expected = SumOfShards(values, 0, values.size());
  EXPECT_NE(std::accumulate(values.begin(), values.end(), 0.0), expected);
  for (const int ranks : {1, 2, 3, 7}) {
    const auto ended = LocalWorld(ranks).Run([&](World& world) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
      GradientsOptions options;
      options.shards = 24;
      LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients,
                                Gradients::Create(*group, {}, options));
      const ShardRange own = gradients->shards();
      std::vector<double> sums(values.begin() + own.begin,
                               values.begin() + own.end);
      StepInput input;
      input.weight = 1;
      input.sums = absl::MakeSpan(sums);
      LOCKSTEP_RETURN_IF_ERROR(gradients->AddUp(input).status());
      EXPECT_EQ(sums[0], expected);
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, testing::Each(IsOk()));
  }
}

// This example needs a GPU, so it is only compiled.
[[maybe_unused]] absl::Status OnADevice(Communicator* nccl_group,
                                        Communicator* host_group, void* stream,
                                        std::vector<Parameter> parameters) {
#include "lockstep/docs/snippets/gradients/device.inc"
  return gradients->Await();
}

absl::Status TakeStep(const Layers& layers, const Rows& rows,
                      Gradients* gradients) {
#include "lockstep/docs/snippets/gradients/overlap.inc"
  EXPECT_EQ(result.weight, 4);
  return absl::OkStatus();
}

TEST(GradientsDocument, Overlap) {
  const auto ended = LocalWorld(2).Run([](World& world) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    Layers layers;
    std::vector<Parameter> parameters;
    for (int i = 0; i < kLayers; ++i) {
      layers.weights[i].resize(8192);  // a bucket
      parameters.push_back(
          {absl::StrCat("layer ", i), BufferOf(layers.weights[i])});
    }
    GradientsOptions options;
    options.bucket_bytes = 32 << 10;
    options.overlap = GradientsOptions::Overlap::kOn;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients,
                              Gradients::Create(*group, parameters, options));
    for (int i = 0; i < kLayers; ++i) {
      layers.gradients[i] = SpanOf<float>(gradients->views()[i].gradient);
    }
    const Rows rows = world.rank() == 0 ? Rows{1, 2, 3} : Rows{6};
    for (int step = 0; step < 3; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(TakeStep(layers, rows, gradients.get()));
      EXPECT_EQ(gradients->overlap().on, true);
      for (int i = 0; i < kLayers; ++i) {
        layers.weights[i][0] -= layers.gradients[i][0];
        EXPECT_EQ(layers.weights[i][0], 3);
      }
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, testing::Each(IsOk()));
}

}  // namespace
}  // namespace lockstep
