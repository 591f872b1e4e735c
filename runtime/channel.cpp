#include "channel.h"

#include <utility>

#include "ordered_transport.h"
#include "staged.h"

namespace relaxc {

std::unique_ptr<Transport> transport_over(const Channel& channel, c10::Device device, bool through_host) {
  if (!channel.group) return alone();
  std::unique_ptr<Transport> tagged = c10d_transport(*channel.group);
  if (channel.ordered) return ordered_transport(channel.ordered->group, device, channel.ordered->timeout, std::move(tagged));
  return through_host ? staged(std::move(tagged), device) : std::move(tagged);
}

}  // namespace relaxc
