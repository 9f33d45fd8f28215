// c10d's ProcessGroupGloo, of libtorch, for tools/bench_collective.py to set
// beside Lockstep. Not a target of Bazel's, since nothing else here needs
// libtorch: tools/bench compiles it. One process is one rank of two:
//
//   bench_c10d RANK FOLDER
//
// FOLDER is empty, and where the ranks meet. Requests come as
// collective/testing/timed_rank.h has them, with the way "c10d".
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
  // One of one tensor for each call that is queued.
  std::vector<std::vector<at::Tensor>> tensors_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: bench_c10d RANK FOLDER\n";
    return 2;
  }
  torch::set_num_threads(1);  // the ranks are what runs at once
  C10dRank rank(std::atoi(argv[1]), argv[2]);
  return rank.Answer(std::cin, std::cout) ? 0 : 2;
}
