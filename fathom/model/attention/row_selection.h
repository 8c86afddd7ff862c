// fathom/model/attention/row_selection.h
// All that distinguishes one attention from another: which rows of which global cache a query reads beside its window.
#pragma once
#include "fathom/tensor/view.h"

namespace fathom {

struct RowSelection {
  int kv_source = -1;              // layer whose global cache; -1: none, window only
  View<const int32_t, 2> entries;  // [rows, top_k] entry numbers in rising order
  View<const int32_t, 1> count;    // [rows] how many of them are valid
};

/// The blocks of entries that the candidate source kept: later index sources select inside them (model.md 7.4).
struct Candidates {
  View<int32_t, 2> blocks;  // [rows, top_blocks] in rising order
  View<int32_t, 1> count;   // [rows]
};

}  // namespace fathom
