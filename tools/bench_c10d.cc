// Measures c10d's ProcessGroupGloo, a part of libtorch, so that
// tools/bench_collective.py can compare Lockstep with it. This is no Bazel
// target, since nothing else here needs libtorch: tools/bench compiles it. Each
// process is one of two ranks:
//
//   bench_c10d RANK FOLDER
//
// The ranks meet in FOLDER, which must be empty. Requests have the format of
// collective/testing/timed_rank.h, with the way "c10d".
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "lockstep/collective/testing/timed_rank.h"

namespace {

constexpr int kRanks = 2;

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

Group MakeGroup(int rank, const std::string& folder) {
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices = {
      c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::FileStore>(folder + "/c10d", kRanks), rank,
      kRanks, options);
}

class C10dRank : public lockstep::TimedRank {
 public:
  C10dRank(int rank, const std::string& folder)
      : group_(MakeGroup(rank, folder)) {}

  void Prepare(const lockstep::TimedRequest& request) override {
    const auto dtype = request.dtype == "f16" ? torch::kFloat16 : torch::kFloat;
    tensors_.resize(request.queued);
    for (auto& list : tensors_) {
      if (list.empty() || list[0].dtype() != dtype ||
          list[0].numel() != request.count) {
        list = {torch::empty({request.count}, dtype)};
      }
      list[0].fill_(1);
    }
    group_->barrier()->wait();
  }

  void Run(const lockstep::TimedRequest& request) override {
    std::vector<c10::intrusive_ptr<c10d::Work>> works(request.queued);
    for (int i = 0; i < request.calls; ++i) {
      for (int k = 0; k < request.queued; ++k) {
        works[k] = request.call == "barrier" ? group_->barrier()
                                             : group_->allreduce(tensors_[k]);
      }
      for (const auto& work : works) work->wait();
    }
  }

 private:
  const Group group_;
  // For each queued call, a list of one tensor.
  std::vector<std::vector<at::Tensor>> tensors_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: bench_c10d RANK FOLDER\n";
    return 2;
  }
  torch::set_num_threads(1);  // The ranks run in parallel.
  C10dRank rank(std::atoi(argv[1]), argv[2]);
  return rank.Answer(std::cin, std::cout) ? 0 : 2;
}
