#include "iteration.h"

#include <ATen/ATen.h>

namespace relaxc {

Iteration::Iteration(std::shared_ptr<const Pieces> pieces, uint64_t number, std::shared_ptr<Memory> memory, int rank)
    : Launch(std::move(pieces), number),
      missing(this->pieces->buckets),
      fired(memory->residuals.size()),
      tensors(memory->residuals.size()),
      absent(memory->residuals.size()),
      memory_(std::move(memory)),
      rank_(rank) {
  census = at::zeros({static_cast<int64_t>(fired.size())}, at::kByte);
}

char* Iteration::find(Operand::Source source, const Segment& segment) {
  int p = segment.parameter;
  const Residual& residual = memory_->residuals[p];
  switch (source) {
    case Operand::Source::value:
      return bytes_at(tensors[p], segment.first);
    case Operand::Source::owner:
      return bytes_at(residual.owner, segment.first - residual.owner_first);
    default:
      return bytes_at(absent[p] ? memory_->zeros[p] : residual.worker, segment.first);
  }
}

void Iteration::starts(const Piece& piece) {
  if (piece.bucket == census_bucket()) piece.buffers[rank_].copy_(census);
}

void Iteration::ran(const Call& call) {
  for (const Segment& segment : call.segments)
    for (const Operand& operand : segment.operands)
      if (operand.source == Operand::Source::residual && absent[segment.parameter])
        memory_->zeros[segment.parameter].zero_();
}

// All pieces are done, so it is known for which parameters no worker has a gradient.
void Iteration::arrived() {
  for (const at::Tensor& theirs : pieces->pieces.back().buffers) census.bitwise_or_(theirs);
  const auto* anywhere = census.const_data_ptr<uint8_t>();
  for (size_t p = 0; p < fired.size(); ++p)
    if (!anywhere[p]) give_back(static_cast<int>(p));
}

void Iteration::give_back(int parameter) {
  const Residual& residual = memory_->residuals[parameter];
  if (!residual.owner.defined() || residual.owner.numel() == 0) return;
  const at::Tensor& sent = tensors[parameter];
  residual.owner.add_(sent.as_strided({residual.owner.numel()}, {1}, sent.storage_offset() + residual.owner_first));
}

}  // namespace relaxc
