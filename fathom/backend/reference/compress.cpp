#include <cmath>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {

void compress(Queue& queue, const Compress& op) {
  const int64_t channels = op.out.cols;
  for_each_row(queue, op.group_row.shape[0], [&](int64_t g) {
    const int64_t last = op.group_row[g], sequence = op.rows.sequence[last], position = op.rows.positions[last];
    std::vector<const float*> tokens;  // value, then score, of each token of the group
    for (int64_t back = op.ratio - 1; back >= 0; --back) {
      const int64_t r = last - back;
      const bool in_step = r >= op.rows.begin[sequence] && op.rows.positions[r] == position - back;
      tokens.push_back(in_step ? op.projected.row(r).data()
                               : reinterpret_cast<const float*>(op.state.entry(sequence, position - back)));
    }
    for (int64_t i = 0; i < channels; ++i) {
      double best = -INFINITY, sum = 0, weighted = 0;
      for (const float* token : tokens) best = std::max(best, double(token[channels + i]));
      for (const float* token : tokens) {
        const double weight = std::exp(token[channels + i] - best);
        sum += weight;
        weighted += weight * token[i];
      }
      store(op.out.dtype, op.out.row(g), i, weighted / sum);
    }
  });
}

}  // namespace fathom::reference
