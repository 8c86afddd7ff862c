// fathom/model/step_tables.h
// What a step reads from the processor, and whether a step that is like it can be run again with other tables
// (backend/recorder.h). Private to the room.
#pragma once
#include "fathom/model/batch.h"
#include "fathom/model/step.h"

namespace fathom {

/// `source` as a table of this call.
template <class T>
View<const T, 1> copied(Scratch& tables, View<const T, 1> source) {
  const auto out = tables.vector<T>(source.shape[0]);
  for (int64_t i = 0; i < out.shape[0]; ++i) out[i] = source[i];
  return out;
}

/// The batch's arrays as tables of this call. Block tables get a row of zeros behind the last sequence, and in a
/// repeatable step a width that is a multiple of kTableBlocks. Rows with logits stay where they are: only the processor
/// reads them.
inline constexpr int64_t kTableBlocks = 16;  // 2,048 tokens
Batch as_tables(Step& step, const Batch& batch);

/// Whether `tables`, which as_tables() made, are those of `batch` but for ids, history and block tables, and have room
/// for these. `replay` is what the tables were made with.
bool is_as_expected(const Batch& batch, const Batch& tables, std::span<const Replay> replay);
/// Writes those three into the tables.
void fill_in(const Batch& batch, const Batch& tables);

/// Whether what the step does follows from its shape alone: plain decode rows, each of which goes all the way.
/// `ring_rows`: rows of a sequence that a ring takes beside its window.
bool is_repeatable(const ModelConfig& config, int ring_rows, const Batch& batch);

}  // namespace fathom
