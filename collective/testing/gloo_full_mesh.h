// Connects Gloo's ranks by Gloo's own rendezvous, whatever the release of Gloo.
// It is for benchmarks that compare with Gloo.
//
//   gloo::rendezvous::Context context(rank, size);
//   ConnectFullMesh(context, store, device);
//
// Gloo's function takes the store by reference in Debian 12's release, and by
// shared pointer in newer ones.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_GLOO_FULL_MESH_H_
#define LOCKSTEP_COLLECTIVE_TESTING_GLOO_FULL_MESH_H_

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>

#include <memory>

#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_gloo {

using ::gloo::rendezvous::Context;
using ::gloo::rendezvous::Store;
using ::gloo::transport::Device;

inline void Connect(void (Context::*connect)(Store&, std::shared_ptr<Device>&),
                    Context& context, const std::shared_ptr<Store>& store,
                    std::shared_ptr<Device>& device) {
  (context.*connect)(*store, device);
}

inline void Connect(void (Context::*connect)(std::shared_ptr<Store>,
                                             std::shared_ptr<Device>&),
                    Context& context, const std::shared_ptr<Store>& store,
                    std::shared_ptr<Device>& device) {
  (context.*connect)(store, device);
}

}  // namespace internal_gloo

// Connects `context` to the other ranks that meet in `store`. Throws what Gloo
// throws.
inline void ConnectFullMesh(
    ::gloo::rendezvous::Context& context,
    const std::shared_ptr<::gloo::rendezvous::Store>& store,
    std::shared_ptr<::gloo::transport::Device> device) {
  internal_gloo::Connect(&::gloo::rendezvous::Context::connectFullMesh, context,
                         store, device);
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_GLOO_FULL_MESH_H_
